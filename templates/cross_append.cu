// cross_append.cu - contract and instance of cross_append.cuh: keys and values of a source
//@ kernel  cross_append
//@ rank    140
//@ args    x[T,N] $step $rows $token $cross_k $cross_v -> y:type(x)
//@ match   y = cross_append(x)
//@ consts  X: type(x)  KV: type($cross_k)  N: N  G: cross_append.kv_heads  E: cross_append.head_dim  LENGTH: SOURCE
//@ consts  THREADS: min(256, round_up(ceil_div(N, 16 / sizeof(x)), 32))
//@ launch  grid T, ceil_div(N, THREADS * (16 / sizeof(x)))   block THREADS
//@ moves   (sizeof(x) + sizeof(KV)) * T * N
//@ overlap yes
#include "cross_append.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int G = @G@, E = @E@, SOURCE = @LENGTH@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const CrossAppendArgs a) { cross_append<Config>(a); }
