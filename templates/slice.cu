// slice.cu - contract and instance of act.cuh: some columns of an activation
//@ kernel  slice
//@ rank    450
//@ args    x[M,N] $step -> y[M,C]:type(x)
//@ match   y = slice(x)
//@ consts  X: type(x)  C: C  N: N  FROM: slice.from  ROWS_S: rows(x)
//@ consts  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ launch  grid M, ceil_div(C, THREADS * (16 / sizeof(x)))   block THREADS
//@ moves   2 * sizeof(x) * M * C
//@ overlap yes
#include "act.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, N = @N@, FROM = @FROM@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const OneArgs a) { slice<Config>(a); }
