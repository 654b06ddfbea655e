// clamp.cu - contract and instance of elementwise.cuh: elements within two bounds
//@ kernel  clamp
//@ rank    1010
//@ args    x[M,C] $step -> y:type(x)
//@ match   y = clamp(x)
//@ consts  X: type(x)  C: C  ROWS_S: rows(x)  THREADS: min(256, round_up(C, 32))  LOW: clamp.low  HIGH: clamp.high
//@ launch  grid M, ceil_div(C, 4 * THREADS)   block THREADS
//@ moves   2 * sizeof(x) * M * C
//@ overlap yes
#include "elementwise.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
    static constexpr float LOW = @LOW@, HIGH = @HIGH@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const ElementArgs a) { clamp<Config>(a); }
