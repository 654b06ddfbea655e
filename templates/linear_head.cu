// linear_head.cu - contract and instance of linear.cuh: logits of the last token of 1 to 8 sequences, and their
// segments
//
// Chosen for the LM head where at most 8 rows are sampled, on sm_90 and newer. Where a sampler or a beam search reads
// the logits, it also writes segments (body/segments.cuh), so that the row is not read again.
//@ kernel  linear_head
//@ rank    250
//@ args    $params x[T,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y[S,N] $segments
//@ match   y = linear(rmsnorm(select_last(x), g), w, b?)   | NORM=1 EPS=rmsnorm.eps
//@ match   y = linear(layernorm(select_last(x), g, c), w, b?) | NORM=2 EPS=layernorm.eps
//@ match   y = linear(select_last(x), w, b?)               | NORM=0 EPS=0
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(min(T_MAX, S_MAX))  BIAS: has(b)
//@ consts  SEGMENTS: logits(y)  KEPT_BYTES: SEGMENTS * M * 1024
//    A block takes all shared memory of an SM; for a matrix below 32 MB it takes half, so that the next kernel can start
//    beside it. CHUNK_MAX (k of a row in one bulk copy): rows of 4 KB are read faster than rows of 2 KB, if three chunks
//    fit. KEPT_BYTES: logits of a segment until it is whole.
//@ consts  X_ROW_BYTES: round_up(2 * K, 128) + 64  HALF_SMEM: (SMEM + 1024) / 2 - 1024
//@ consts  BYTES: N * K >= 16000000 || M * X_ROW_BYTES > 36864 ? SMEM : HALF_SMEM  BLOCKS_PER_SM: BYTES > HALF_SMEM ? 1 : 2
//@ consts  CHUNK_MAX: BYTES > HALF_SMEM && 108544 + KEPT_BYTES + M * X_ROW_BYTES <= BYTES ? 2048 : 1024
//@ consts  CHUNK: round_up(ceil_div(K, ceil_div(K, CHUNK_MAX)), 256)  IN_FLIGHT: BYTES > HALF_SMEM ? 49152 : 65536
//@ fits    sizeof(x) == 2 && X == W && ARCH >= 90 && K % 8 == 0 && M <= 8
//@ fits    8704 + KEPT_BYTES + M * X_ROW_BYTES + 3 * 8 * (2 * CHUNK + 64) <= BYTES
//@ launch  grid min(min(SMS, 192), ceil_div(N, 8))   block 320   smem BYTES
//@ moves   2 * N * K
//@ flops   2 * S * N * K
//@ matmul  yes
//@ overlap yes
#include "linear.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = 0, GLU = 0, RES = 0, APPEND = 0;
    static constexpr int ROWS_S = 1, LAST = 1, SEGMENTS = @SEGMENTS@;
    static constexpr float EPS = @EPS@;
    static constexpr int SMEM = @BYTES@, IN_FLIGHT = @IN_FLIGHT@, CHUNK_MAX = @CHUNK_MAX@;
};
extern "C" __global__ void __launch_bounds__(320, @BLOCKS_PER_SM@)
@NAME@(const LinearHeadArgs a) { linear<Config>(a); }
