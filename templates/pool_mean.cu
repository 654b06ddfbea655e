// pool_mean.cu - contract and instance of pool_mean.cuh: the mean of each sequence's tokens
//@ kernel  pool_mean
//@ rank    380
//@ args    x[T,C] $step $rows -> y[S,C]
//@ match   y = pool_mean(x)
//@ consts  X: type(x)  Y: type(y)  C: C  THREADS: min(64, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ launch  grid S, ceil_div(C, THREADS)   block THREADS
//@ moves   sizeof(x) * T * C + sizeof(y) * S * C
//@ overlap yes
#include "pool_mean.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int C = @C@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const PoolMeanArgs a) { pool_mean<Config>(a); }
