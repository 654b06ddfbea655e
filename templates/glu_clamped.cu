// glu_clamped.cu - contract and instance of elementwise.cuh: a gated unit within limits, C outputs from 2C inputs
//@ kernel  glu_clamped
//@ rank    1020
//@ args    x[M,2*C] $step -> y[M,C]:type(x)
//@ match   y = glu_clamped(x)
//@ consts  X: type(x)  C: C  ROWS_S: rows(x)  THREADS: min(256, round_up(C, 32))
//@ consts  ALPHA: glu_clamped.alpha  LIMIT: glu_clamped.limit
//@ launch  grid M, ceil_div(C, 4 * THREADS)   block THREADS
//@ moves   3 * sizeof(x) * M * C
//@ overlap yes
#include "elementwise.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
    static constexpr float ALPHA = @ALPHA@, LIMIT = @LIMIT@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const ElementArgs a) { glu_clamped<Config>(a); }
