// rmsnorm.cu - contract and instance of norm.cuh: root-mean-square norm of each row, and a residual
//@ kernel  rmsnorm
//@ rank    400
//@ args    x[M,C] g[C]:fp32 c[C]:fp32 r[M,C]:type(x) $step -> y
//@ match   y = rmsnorm(x, g)          | RES=0
//@ match   y = add(rmsnorm(x, g), r)  | RES=1
//@ consts  X: type(x)  Y: type(y)  C: C  EPS: rmsnorm.eps  ROWS_S: rows(x)
//    LANES: threads of a row: a warp up to 2 KB, else a block.
//@ consts  LANES: C * sizeof(x) <= 2048 ? 32 : min(1024, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ sums    rmsnorm = lanes LANES
//@ consts  THREADS: LANES == 32 ? 128 : LANES
//@ launch  grid ceil_div(M, THREADS / LANES)   block THREADS
//@ moves   ((1 + RES) * sizeof(x) + sizeof(y)) * M * C
//@ overlap yes
#include "norm.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int C = @C@, NORM = 1, RES = @RES@, ROWS_S = @ROWS_S@, LANES = @LANES@, THREADS = @THREADS@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const NormArgs a) { norm<Config>(a); }
