// linear_hopper_append.cu - contract and instance of linear_hopper.cuh: q, k and v of 9 to 64 rows, with RoPE, k and v
// into the cache
//
// Chosen as linear_hopper.cu is, where the joined q, k, v projection ends in an append to the KV cache. Tiles and
// clusters are those of linear_hopper.cu.
//@ kernel  linear_hopper_append
//@ rank    270
//@ args    x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y
//@ match   y = append(linear(x, w, b?), t?)                | NORM=0 EPS=0
//@ match   y = append(linear(rmsnorm(x, g), w, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(T_MAX)  BIAS: has(b)
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ consts  BLOCK_M: M <= 16 ? 16 : M <= 32 ? 32 : 64  CLUSTER_SIZE: N > 8192 ? 1 : N > 4096 ? 2 : K < 4 * N ? 4 : 8
//@ consts  CLUSTER_N: ceil_div(N, CLUSTER_SIZE == 1 ? 132 : CLUSTER_SIZE == 2 ? 64 : CLUSTER_SIZE == 4 ? 30 : 15)  PASSES: ceil_div(CLUSTER_N, 256)
//@ consts  TILE_N: round_up(ceil_div(CLUSTER_N, PASSES), CLUSTER_SIZE == 8 ? 64 : 32)  SLOT_BYTES: (TILE_N + BLOCK_M) * 128  K_STEPS: ceil_div(ceil_div(K, 64), CLUSTER_SIZE)
//@ consts  FIXED_BYTES: NORM * K_STEPS * 128 + CLUSTER_SIZE * BLOCK_M * 4 + BLOCK_M * 8 + 512
//@ consts  STAGES: min(PASSES > 1 ? 16 : max(2, min(16, K_STEPS)), (SMEM - FIXED_BYTES) / SLOT_BYTES)  BYTES: FIXED_BYTES + STAGES * SLOT_BYTES
//@ fits    sizeof(x) == 2 && X == W && ARCH == 90 && ARCH_A == 1 && K % 8 == 0 && BUCKET > 0 && M > 8 && M <= 64 && STAGES >= 2
//@ launch  grid PASSES > 1 ? min(SMS, ceil_div(N, 8)) : ceil_div(N, TILE_N) * CLUSTER_SIZE   block 256   smem BYTES
//@ moves   2 * N * K
//@ flops   2 * T * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_hopper.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = 0, GLU = 0, RES = 0, APPEND = 1;
    static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int ROWS_S = 0, LAST = 0, SEGMENTS = 0;
    static constexpr float EPS = @EPS@;
    static constexpr int TILE_N = @TILE_N@, PASSES = @PASSES@, CLUSTER_SIZE = @CLUSTER_SIZE@, STAGES = @STAGES@, SMEM = @BYTES@;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(256, 1)
@NAME@(const LinearArgs a) { linear_hopper<Config>(a); }
