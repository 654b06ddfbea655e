// route.cu - contract and instance of route.cuh: the experts of each row, and the rows of each expert
//
// Up to 32 rows are one block, which sorts them by expert without a word to any other. Scores in shared memory take up to
// 32 KiB: groups need room for twice as many, so half as many rows.
//@ kernel  route
//@ rank    500
//@ args    x[M,N]:fp32 b[N]:fp32 $step -> y[M,R2]:i32 starts:by_expert.starts(y) rows:by_expert.rows(y)
//@ match   y = route(x, b?)
//@ gives   y as by_expert N
//@ consts  N: N  K: route.k  SIGMOID: route.sigmoid  CHOSEN: route.chosen  RENORM: route.renorm
//@ consts  GROUPS: route.groups  KEPT: route.groups_kept  BEST_TWO: route.best_two  SCALE: route.scale  NEAR: route.near
//@ consts  BIAS: has(b)  SORTED: has(starts)  ROWS_S: rows(x)
//@ consts  THREADS: 32 * min(M_MAX, (N > 256 ? 8 : 32) / (KEPT < GROUPS ? 2 : 1))
//@ consts  STAGED: SORTED && M_MAX > THREADS / 32 && 4 * M_MAX * K <= 98304
//@ shared  PAIRS    STAGED * 4 * M_MAX * K
//@ fits    N <= 1024 && K <= 32 && GROUPS <= 32
//@ zeroed  counts 4 * (N + 1)
//@ launch  grid min(SMS, ceil_div(M, THREADS / 32))   block THREADS
//@ moves   4 * M * N
//@ overlap yes
#include "route.cuh"

struct Config {
    static constexpr int N = @N@, K = @K@, SIGMOID = @SIGMOID@, CHOSEN = @CHOSEN@, RENORM = @RENORM@;
    static constexpr int GROUPS = @GROUPS@, KEPT = @KEPT@, BEST_TWO = @BEST_TWO@, BIAS = @BIAS@, SORTED = @SORTED@;
    static constexpr int ROWS_S = @ROWS_S@, THREADS = @THREADS@, STAGED = @STAGED@;
    static constexpr float SCALE = @SCALE@, NEAR = @NEAR@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const RouteArgs a) { route<Config>(a); }
