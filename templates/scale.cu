// scale.cu - contract and instance of act.cuh: activations times a constant
//@ kernel  scale
//@ rank    420
//@ args    x[M,C] $step -> y:type(x)
//@ match   y = scale(x)
//@ consts  X: type(x)  C: C  ROWS_S: rows(x)  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ consts  BY: scale.by
//@ launch  grid M, ceil_div(C, THREADS * (16 / sizeof(x)))   block THREADS
//@ moves   2 * sizeof(x) * M * C
//@ overlap yes
#include "act.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
    static constexpr float BY = @BY@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const OneArgs a) { scale<Config>(a); }
