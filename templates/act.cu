// act.cu - contract and instance of act.cuh: an activation function, element by element
//@ kernel  act
//@ rank    10
//@ args    x[M,C] $step -> y:type(x)
//@ match   y = act(x)
//@ consts  X: type(x)  C: C  ROWS_S: rows(x)  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ consts  KIND: act.kind
//@ launch  grid M, ceil_div(C, THREADS * (16 / sizeof(x)))   block THREADS
//@ moves   2 * sizeof(x) * M * C
//@ overlap yes
#include "act.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@, KIND = @KIND@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const OneArgs a) { act<Config>(a); }
