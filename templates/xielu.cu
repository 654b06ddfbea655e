// xielu.cu - contract and instance of xielu.cuh: the activation of Apertus
//@ kernel  xielu
//@ rank    11
//@ args    x[M,C] w[W]:fp32 $step -> y:type(x)
//@ match   y = xielu(x, w)
//@ consts  X: type(x)  C: C  ROWS_S: rows(x)  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ launch  grid M, ceil_div(C, THREADS * (16 / sizeof(x)))   block THREADS
//@ moves   2 * sizeof(x) * M * C
//@ overlap yes
#include "xielu.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const XieluArgs a) { xielu<Config>(a); }
