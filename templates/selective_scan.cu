// selective_scan.cu - contract and instance of selective_scan.cuh: the state space of Mamba over the tokens of each sequence
//@ kernel  selective_scan
//@ rank    449
//@ args    q[T,1,K] k[T,1,K]:type(q) v[T,H,1]:type(q) a[T,H]:type(q) rate[H,K]:fp32 shift[H]:fp32 $step $rows $recurrent -> y[T,H,1]:type(q)
//@ match   y = recur(q, k, v, a, rate, shift)
//@ consts  X: type(q)  H: H  K: K  SCALE: recur.scale  LOW: recur.low  HIGH: recur.high
//@ fits    type(y) == X && K % 8 == 0 && K <= 256
//@ launch  grid S, ceil_div(H, 16)   block 128
//@ moves   8 * S * H * K + 2 * sizeof(q) * T * (K + H)
//@ flops   6 * T * H * K
//@ overlap yes
#include "selective_scan.cuh"

struct Config {
    using T = @X@;
    static constexpr int H = @H@, KEY = @K@, THREADS = 128;
    static constexpr float SCALE = @SCALE@, LOW = @LOW@, HIGH = @HIGH@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const SelectiveScanArgs a) { selective_scan<Config>(a); }
