// append.cu - contract and instance of append.cuh: after a cuBLASLt product
//@ kernel  append
//@ rank    30
//@ args    x[T,N] t:fp32 $step $token $pages $k $v -> q
//@ match   q = append(x, t?)
//@ consts  X: type(x)  Y: type(q)  KV: type($k)  N: N
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)
//@ fits    sizeof(KV) > 1
//@ consts  THREADS: min(256, round_up(ceil_div(N, 16 / sizeof(x)), 32))
//@ launch  grid T, ceil_div(N, THREADS * (16 / sizeof(x)))   block THREADS
//@ moves   2 * sizeof(x) * T * N
//@ overlap yes
#include "append.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    using KV = @KV@;
    static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@;
    static constexpr int BLOCK = @BLOCK@, PAGES = @PAGES@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const AppendArgs a) { append<Config>(a); }
