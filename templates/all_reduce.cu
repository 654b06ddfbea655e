// all_reduce.cu - contract and instance of all_reduce.cuh: sums over the ranks of a tensor-parallel model
//
// With the norm where nothing else reads the sum. THREADS: few elements are spread over many small blocks, since an
// exchange is mostly waiting; more than 2 blocks of an SM may not all run at once. Two H200s, bf16 rows of 4,096 with the
// residual, us a launch in a graph: 1 row 2.11 (128 threads), 2.33 (512); 64 rows 3.62, 3.83; 512 rows 29.7, 15.4; 2,048
// rows 159, 61. NCCL without the residual: 11.6, 14.7, 36, 78.
//@ kernel  all_reduce
//@ rank    1110
//@ args    x[M,C] r[M,C]:type(y) g[C]:fp32 c[C]:fp32 $peers $exchange $step -> y[M,C]
//@ match   y = all_reduce(x)                             | RES=0 NORM=0 EPS=0
//@ match   y = add(all_reduce(x), r)                     | RES=1 NORM=0 EPS=0
//@ match   y = rmsnorm(all_reduce(x), g)                 | RES=0 NORM=1 EPS=rmsnorm.eps
//@ match   y = rmsnorm(add(all_reduce(x), r), g)         | RES=1 NORM=1 EPS=rmsnorm.eps
//@ match   y = layernorm(all_reduce(x), g, c)            | RES=0 NORM=2 EPS=layernorm.eps
//@ match   y = layernorm(add(all_reduce(x), r), g, c)    | RES=1 NORM=2 EPS=layernorm.eps
//@ consts  X: type(x)  Y: type(y)  C: C  RANKS: RANKS  ROWS_S: rows(x)  NORM: NORM
//@ consts  THREADS: NORM ? min(512, round_up(ceil_div(C * sizeof(x), 16), 32)) : M_MAX * C > 262144 ? 512 : 128
//@ fits    RANKS > 1 && (NORM == 0 || C * sizeof(x) % 16 == 0)
//@ launch  grid min(NORM ? M : ceil_div(M * C, THREADS * (16 / sizeof(x))), SMS * 2)   block THREADS
//@ moves   3 * sizeof(x) * M * C
//@ overlap yes
#include "all_reduce.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int C = @C@, RANKS = @RANKS@, RES = @RES@, NORM = @NORM@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const AllReduceArgs a) { all_reduce<Config>(a); }
