// linear_hopper_head.cu - contract and instance of linear_hopper.cuh: logits of 9 to 64 rows on sm_90a, and their
// segments
//
// Chosen for the LM head of 9 to 64 sampled rows: over the last token of each sequence (LAST), or over rows that are
// already selected. With segments all of K is in one block (CLUSTER_SIZE 1); other constants as in linear_hopper.cu.
//@ kernel  linear_hopper_head
//@ rank    280
//@ args    $params x[T,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y[S,N] $segments
//@ match   y = linear(rmsnorm(select_last(x), g), w, b?)   | NORM=1 EPS=rmsnorm.eps LAST=1
//@ match   y = linear(select_last(x), w, b?)               | NORM=0 EPS=0 LAST=1
//@ match   y = linear(rmsnorm(x, g), w, b?)                | NORM=1 EPS=rmsnorm.eps
//@ match   y = linear(x, w, b?)                            | NORM=0 EPS=0
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(min(T_MAX, S_MAX))  BIAS: has(b)
//@ consts  BLOCK_M: M <= 16 ? 16 : M <= 32 ? 32 : 64  CLUSTER_SIZE: logits(y) || N > 8192 ? 1 : N > 4096 ? 2 : K < 4 * N ? 4 : 8
//@ consts  CLUSTER_N: ceil_div(N, CLUSTER_SIZE == 1 ? 132 : CLUSTER_SIZE == 2 ? 64 : CLUSTER_SIZE == 4 ? 30 : 15)  PASSES: ceil_div(CLUSTER_N, 256)
//@ consts  TILE_N: round_up(ceil_div(CLUSTER_N, PASSES), CLUSTER_SIZE == 8 ? 64 : 32)  SLOT_BYTES: (TILE_N + BLOCK_M) * 128  K_STEPS: ceil_div(ceil_div(K, 64), CLUSTER_SIZE)
//@ consts  FIXED_BYTES: NORM * K_STEPS * 128 + CLUSTER_SIZE * BLOCK_M * 4 + BLOCK_M * 8 + 512
//@ consts  STAGES: min(PASSES > 1 ? 16 : max(2, min(16, K_STEPS)), (SMEM - FIXED_BYTES) / SLOT_BYTES)  BYTES: FIXED_BYTES + STAGES * SLOT_BYTES
//@ consts  SEGMENTS: logits(y)  LAST: LAST
//@ fits    sizeof(x) == 2 && X == W && ARCH == 90 && ARCH_A == 1 && K % 8 == 0 && M > 8 && M <= 64 && STAGES >= 2
//    linear_hopper computes all others.
//@ fits    LAST || SEGMENTS
//@ launch  grid PASSES > 1 ? min(SMS, ceil_div(N, 8)) : ceil_div(N, TILE_N) * CLUSTER_SIZE   block 256   smem BYTES
//@ moves   2 * N * K
//@ flops   2 * S * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_hopper.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = 0, GLU = 0, RES = 0, APPEND = 0;
    static constexpr int ROWS_S = 1, LAST = @LAST@, SEGMENTS = @SEGMENTS@;
    static constexpr float EPS = @EPS@;
    static constexpr int TILE_N = @TILE_N@, PASSES = @PASSES@, CLUSTER_SIZE = @CLUSTER_SIZE@, STAGES = @STAGES@, SMEM = @BYTES@;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(256, 1)
@NAME@(const LinearHeadArgs a) { linear_hopper<Config>(a); }
