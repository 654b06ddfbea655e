// linear_append.cu - contract and instance of linear.cuh: q, k and v of 1 to 8 rows, with RoPE, k and v into the cache
//
// Chosen as linear.cu is, where the joined q, k, v projection ends in an append to the KV cache: programs of up to 8
// tokens on sm_90 and newer.
//@ kernel  linear_append
//@ rank    200
//@ args    x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y
//@ match   y = append(linear(x, w, b?), t?)                | NORM=0 EPS=0
//@ match   y = append(linear(rmsnorm(x, g), w, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ match   y = append(linear(layernorm(x, g, c), w, b?), t?) | NORM=2 EPS=layernorm.eps
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(T_MAX)  BIAS: has(b)
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//    A block takes all shared memory of an SM; for a matrix below 32 MB it takes half, so that the next kernel can start
//    beside it. CHUNK_MAX (k of a row in one bulk copy): rows of 4 KB are read faster than rows of 2 KB, if three chunks
//    fit.
//@ consts  X_ROW_BYTES: round_up(2 * K, 128) + 64  HALF_SMEM: (SMEM + 1024) / 2 - 1024
//@ consts  BYTES: N * K >= 16000000 || M * X_ROW_BYTES > 36864 ? SMEM : HALF_SMEM  BLOCKS_PER_SM: BYTES > HALF_SMEM ? 1 : 2
//@ consts  CHUNK_MAX: BYTES > HALF_SMEM && 108544 + M * X_ROW_BYTES <= BYTES ? 2048 : 1024
//@ consts  CHUNK: round_up(ceil_div(K, ceil_div(K, CHUNK_MAX)), 256)  IN_FLIGHT: BYTES > HALF_SMEM ? 49152 : 65536
//@ fits    sizeof(x) == 2 && X == W && ARCH >= 90 && K % 8 == 0 && BUCKET > 0 && M <= 8
//@ fits    8704 + M * X_ROW_BYTES + 3 * 8 * (2 * CHUNK + 64) <= BYTES
//@ launch  grid min(SMS, ceil_div(N, 8))   block 320   smem BYTES
//@ moves   2 * N * K
//@ flops   2 * T * N * K
//@ matmul  yes
//@ overlap yes
#include "linear.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = 0, GLU = 0, RES = 0, APPEND = 1;
    static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int ROWS_S = 0, LAST = 0, SEGMENTS = 0;
    static constexpr float EPS = @EPS@;
    static constexpr int SMEM = @BYTES@, IN_FLIGHT = @IN_FLIGHT@, CHUNK_MAX = @CHUNK_MAX@;
};
extern "C" __global__ void __launch_bounds__(320, @BLOCKS_PER_SM@)
@NAME@(const LinearArgs a) { linear<Config>(a); }
