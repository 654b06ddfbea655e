// recur.cu - contract and instance of recur.cuh: linear recurrences over the tokens of each sequence
//@ kernel  recur
//@ rank    448
//@ args    q[T,G,K] k[T,G,K]:type(q) v[T,H,V]:type(q) a[T,H]:type(q) rate[H]:fp32 shift[H]:fp32 beta[T,H]:type(q) $step $rows $recurrent -> y[T,H,V]:type(q)
//@ match   y = recur(q, k, v, a, rate, shift, beta?)
//@ consts  X: type(q)  H: H  G: G  K: K  V: V  BETA: has(beta)
//@ consts  UNIT: recur.unit  SCALE: recur.scale  LOW: recur.low  HIGH: recur.high
//@ fits    type(y) == X && H % G == 0 && K % 8 == 0 && K <= 256 && V % 8 == 0
//@ launch  grid S, H, ceil_div(V, 16)   block 64
//@ moves   8 * S * H * K * V + 2 * sizeof(q) * T * (G * K + H * V)
//@ flops   8 * T * H * K * V
//@ overlap yes
#include "recur.cuh"

struct Config {
    using T = @X@;
    static constexpr int H = @H@, G = @G@, KEY = @K@, VALUE = @V@, BETA = @BETA@, THREADS = 64;
    static constexpr float UNIT = @UNIT@, SCALE = @SCALE@, LOW = @LOW@, HIGH = @HIGH@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const RecurArgs a) { recur<Config>(a); }
