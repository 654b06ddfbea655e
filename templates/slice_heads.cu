// slice_heads.cu - contract and instance of elementwise.cuh: some elements of each head
//@ kernel  slice_heads
//@ rank    1040
//@ args    x[T,H,N] $step -> y[T,H,E]:type(x)
//@ match   y = slice_heads(x)
//@ consts  X: type(x)  C: H * E  E: E  N: N  FROM: slice_heads.from  ROWS_S: rows(x)  THREADS: min(256, round_up(C, 32))
//@ launch  grid T, ceil_div(C, 4 * THREADS)   block THREADS
//@ moves   2 * sizeof(x) * T * C
//@ overlap yes
#include "elementwise.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, E = @E@, N = @N@, FROM = @FROM@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const ElementArgs a) { slice_heads<Config>(a); }
