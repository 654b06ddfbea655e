// layernorm.cu - contract and instance of norm.cuh: layer norm of each row
//@ kernel  layernorm
//@ rank    180
//@ args    x[M,C] g[C]:fp32 c[C]:fp32 r $step -> y
//@ match   y = layernorm(x, g, c)
//@ consts  X: type(x)  Y: type(y)  C: C  EPS: layernorm.eps  ROWS_S: rows(x)
//    LANES: threads of a row: a warp up to 2 KB, else a block.
//@ consts  LANES: C * sizeof(x) <= 2048 ? 32 : min(1024, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ sums    layernorm = lanes LANES
//@ consts  THREADS: LANES == 32 ? 128 : LANES
//@ launch  grid ceil_div(M, THREADS / LANES)   block THREADS
//@ moves   (sizeof(x) + sizeof(y)) * M * C
//@ overlap yes
#include "norm.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int C = @C@, NORM = 2, RES = 0, ROWS_S = @ROWS_S@, LANES = @LANES@, THREADS = @THREADS@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const NormArgs a) { norm<Config>(a); }
