// linear_wide_append.cu - contract and instance of linear_wide.cuh: q, k and v of up to 64 rows, with RoPE, k and v
// into the cache
//
// Chosen as linear_wide.cu is, where the joined q, k, v projection ends in an append to the KV cache. Constants as
// there.
//@ kernel  linear_wide_append
//@ rank    330
//@ args    x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y
//@ match   y = append(linear(x, w, b?), t?)                | NORM=0 EPS=0
//@ match   y = append(linear(rmsnorm(x, g), w, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ match   y = append(linear(layernorm(x, g, c), w, b?), t?) | NORM=2 EPS=layernorm.eps
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(T_MAX)  BIAS: has(b)
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ consts  BLOCK_M: M <= 16 ? 16 : M <= 32 ? 32 : 64  CLUSTER_SIZE: ARCH >= 90 ? 2 : 1
//@ consts  TILE_N_MAX: SMEM >= 200000 ? (BLOCK_M < 64 ? 128 : ARCH >= 100 ? 64 : 96) : SMEM >= 150000 ? 64 : 32
//@ consts  CLUSTER_N: ceil_div(N, CLUSTER_SIZE == 2 ? 66 : 108)
//@ consts  TILE_N: min(TILE_N_MAX, CLUSTER_N <= 48 ? round_up(CLUSTER_N, 16) : round_up(CLUSTER_N, 32))  THREADS: TILE_N <= 64 ? 256 : 512
//@ consts  SUM_BYTES: TILE_N / 2 * (BLOCK_M * 8 + 8 + (CLUSTER_SIZE == 2 ? BLOCK_M * 4 + 8 : BLOCK_M * 8 + 8)) + BLOCK_M * 16 + 16
//@ consts  STAGE_BYTES: (TILE_N + BLOCK_M) * 256 + NORM * 512  HALF_SMEM: (SMEM + 1024) / 2 - 1024
//@ consts  WHOLE_SM: N * K >= 16777216 || SUM_BYTES + 3 * STAGE_BYTES > HALF_SMEM ? 1 : 0
//@ consts  STAGES: min(2 + ceil_div(49152, TILE_N * 256), ((WHOLE_SM == 1 ? SMEM : HALF_SMEM) - SUM_BYTES) / STAGE_BYTES)
//@ consts  BYTES: SUM_BYTES + STAGES * STAGE_BYTES  BLOCKS_PER_SM: WHOLE_SM == 1 || NORM == 2 || (ARCH >= 100 && BLOCK_M == 64) ? 1 : 2
//@ fits    sizeof(x) == 2 && X == W && BUCKET > 0 && M <= 64 && STAGES >= 2
//    On sm_90a a layer norm launch and linear_hopper_append are faster than layer norm in this kernel.
//@ fits    NORM != 2 || ARCH != 90 || ARCH_A == 0 || K % 8 != 0
//@ launch  grid max(1, min(SMS / CLUSTER_SIZE, ceil_div(N, 8))) * CLUSTER_SIZE   block THREADS   smem BYTES
//@ moves   2 * N * K
//@ flops   2 * T * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_wide.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = 0, GLU = 0, RES = 0, APPEND = 1;
    static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int ROWS_S = 0, LAST = 0;
    static constexpr float EPS = @EPS@;
    static constexpr int TILE_N = @TILE_N@, THREADS = @THREADS@, CLUSTER_SIZE = @CLUSTER_SIZE@, STAGES = @STAGES@, SMEM = @BYTES@;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, @BLOCKS_PER_SM@)
@NAME@(const LinearArgs a) { linear_wide<Config>(a); }
