// glu.cu - contract and instance of act.cuh: a gated linear unit, C outputs from 2C inputs
//@ kernel  glu
//@ rank    170
//@ args    x[M,2*C] $step -> y[M,C]:type(x)
//@ match   y = glu(x)
//@ consts  X: type(x)  C: C  ROWS_S: rows(x)  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ consts  KIND: glu.kind
//@ launch  grid M, ceil_div(C, THREADS * (16 / sizeof(x)))   block THREADS
//@ moves   3 * sizeof(x) * M * C
//@ overlap yes
#include "act.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@, KIND = @KIND@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const OneArgs a) { glu<Config>(a); }
