// normalize.cu - contract and instance of normalize.cuh: rows of length 1
//@ kernel  normalize
//@ rank    370
//@ args    x[M,C] $step -> y
//@ match   y = normalize(x)
//@ consts  X: type(x)  Y: type(y)  C: C  EPS: normalize.eps  ROWS_S: rows(x)
//@ consts  THREADS: max(32, min(256, round_up(ceil_div(C, 16 / sizeof(x)), 32)))
//@ launch  grid M   block THREADS
//@ moves   (sizeof(x) + sizeof(y)) * M * C
//@ overlap yes
#include "normalize.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const NormalizeArgs a) { normalize<Config>(a); }
