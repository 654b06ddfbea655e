// router.cu - contract and instance of router.cuh: norm, router and the choice of experts in one launch, for up to 8 rows
//
// A cluster of BLOCKS blocks for each row. The weights of a warp's experts and the row's vectors under way are in registers:
// 4 for each vector of 8 elements.
//@ kernel  router
//@ rank    501
//@ args    x[M,D] w[N,D] g[D]:fp32 lb[N]:fp32 b[N]:fp32 $step -> y[M,R2]:i32 starts:by_expert.starts(y) rows:by_expert.rows(y)
//@ match   y = route(linear(rmsnorm(x, g), w, lb?), b?)    | NORM=1 EPS=rmsnorm.eps
//@ match   y = route(linear(x, w, lb?), b?)                | NORM=0 EPS=0
//@ gives   y as by_expert N
//@ consts  T: type(x)  W: type(w)  N: N  D: D  K: route.k  SIGMOID: route.sigmoid  CHOSEN: route.chosen  RENORM: route.renorm
//@ consts  GROUPS: route.groups  KEPT: route.groups_kept  BEST_TWO: route.best_two  SCALE: route.scale  NEAR: route.near
//@ consts  LINEAR_BIAS: has(lb)  BIAS: has(b)  SORTED: has(starts)  ROWS_S: rows(x)  NORM: NORM  EPS: EPS
//@ consts  BLOCKS: N > 64 ? 8 : N > 32 ? 4 : N > 16 ? 2 : 1  THREADS: 32 * min(16, ceil_div(N, BLOCKS))
//@ shared  BARRIER 16
//@ shared  GAINS   NORM * 4 * D
//@ shared  LOGITS  4 * N
//@ shared  ROOM    (KEPT < GROUPS ? 8 : 4) * N
//@ shared  COUNT   4 * (N + 1)
//@ shared  CHOSEN  4 * K
//@ needs   CLUSTER WGMMA
//    Other GPUs have not run it.
//@ fits    N <= 1024 && ARCH == 90 && BUCKET > 0 && M_MAX <= 8 && sizeof(x) == 2 && T == W && D % 8 == 0 && K <= 32 && GROUPS <= 32
//@ fits    ceil_div(N, BLOCKS * (THREADS / 32)) * ceil_div(D, 256) <= 16
//@ zeroed  done 4
//@ launch  grid BLOCKS * M   block THREADS
//@ moves   2 * N * D
//@ flops   2 * M * N * D
//@ matmul  yes
//@ overlap yes
#include "router.cuh"

struct Config {
    using T = @T@;
    static constexpr int N = @N@, D = @D@, K = @K@, SIGMOID = @SIGMOID@, CHOSEN = @CHOSEN@, RENORM = @RENORM@;
    static constexpr int GROUPS = @GROUPS@, KEPT = @KEPT@, BEST_TWO = @BEST_TWO@, LINEAR_BIAS = @LINEAR_BIAS@, BIAS = @BIAS@;
    static constexpr int SORTED = @SORTED@, ROWS_S = @ROWS_S@, NORM = @NORM@;
    static constexpr int BLOCKS = @BLOCKS@, THREADS = @THREADS@, @REGIONS@;
    static constexpr float SCALE = @SCALE@, NEAR = @NEAR@, EPS = @EPS@;
};
extern "C" __global__ void CLUSTER(Config::BLOCKS) __launch_bounds__(Config::THREADS)
@NAME@(const RouterArgs a) { router<Config>(a); }
