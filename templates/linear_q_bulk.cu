// linear_q_bulk.cu - contracts and instance of linear_q_bulk.cuh: linear layers of 1 to 8 rows with quantised weights on sm_90 and newer
//
// Chosen before linear_q in programs of 1 to 4 tokens, and for LM heads of int4 and int8, where x and two chunks fit shared memory.
//
//   plain    RMSNorm before, activation, GLU or residual after in one kernel; a layer norm is a launch of its own
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 8 sequences, and their segments (body/segments.cuh)
//   fp8, fp8_append   the first two for weights of fp8 (body/e4m3.cuh)
//@ kernel  linear_q_bulk
//@ variant plain  | APPEND=0 LAST=0 SEGMENTS=0 FP8=0
//@ variant append | APPEND=1 LAST=0 SEGMENTS=0 ROWS_S=0 ACT=0 GLU=0 RES=0 FP8=0
//@ variant head   | APPEND=0 LAST=1 ROWS_S=1 ACT=0 GLU=0 RES=0 FP8=0
//@ variant fp8        | APPEND=0 LAST=0 SEGMENTS=0 FP8=1
//@ variant fp8_append | APPEND=1 LAST=0 SEGMENTS=0 ROWS_S=0 ACT=0 GLU=0 RES=0 FP8=1
//@ plain:  rank 670
//@ append: rank 680
//@ head:   rank 690
//@ fp8:        rank 742
//@ fp8_append: rank 744
//@ plain, append, fp8, fp8_append: args x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y
//@ head:   args  $params x[T,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y[S,N] $segments
//@ plain, fp8: match y = linear(x, w:m16k16, b?)                     | NORM=0 EPS=0 ACT=0 GLU=0 RES=0
//@ plain, fp8: match y = act(linear(x, w:m16k16, b?))                | NORM=0 EPS=0 ACT=act.kind GLU=0 RES=0
//@ plain, fp8: match y = glu(linear(x, w:m16k16, b?))                | NORM=0 EPS=0 ACT=glu.kind GLU=1 RES=0
//@ plain, fp8: match y = add(linear(x, w:m16k16, b?), r)             | NORM=0 EPS=0 ACT=0 GLU=0 RES=1
//@ plain, fp8: match y = linear(rmsnorm(x, g), w:m16k16, b?)         | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0 RES=0
//@ plain, fp8: match y = act(linear(rmsnorm(x, g), w:m16k16, b?))    | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0 RES=0
//@ plain, fp8: match y = glu(linear(rmsnorm(x, g), w:m16k16, b?))    | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1 RES=0
//@ append, fp8_append: match y = append(linear(x, w:m16k16, b?), t?)         | NORM=0 EPS=0
//@ append, fp8_append: match y = append(linear(rmsnorm(x, g), w:m16k16, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ head:   gives y as segments SEGMENTS
//@ head:   match y = linear(rmsnorm(select_last(x), g), w:m16k16, b?)   | NORM=1 EPS=rmsnorm.eps
//@ head:   match y = linear(select_last(x), w:m16k16, b?)        | NORM=0 EPS=0
//@ consts  X: type(x)  Y: type(y)  N: N  K: K  M: pow2(LAST ? min(T_MAX, S_MAX) : T_MAX)  BIAS: has(b)
//@ plain, fp8: consts ROWS_S: rows(x)
//@ head:   consts SEGMENTS: logits(y)
//@ append, fp8_append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append, fp8_append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append, fp8_append: fits sizeof(KV) > 1
//@ consts  HALF_SMEM: SM_SMEM / 2 - 1024  BITS: type(w) == int4 ? 4 : 8  GROUP: group(w)  SCALES: scales(w)
//@ plain, append, head: consts BRICK_K: 128  X_BYTES: M * 3 * (round_up(K, 128) + 64)
//@ fp8, fp8_append: consts BRICK_K: 128  X_ROW_BYTES: K * 2 + 16  X_BYTES: M * X_ROW_BYTES
//    A block takes all shared memory of an SM, or half, so that the next kernel can start beside it: q, k and v, beside which
//    attention starts, and other small layers. All of it is faster for the rest, and of int4 what leaves room for attention
//    (MOST_SMEM) for some (docs/decisions/033-quantised-weights-by-bulk-copies.md).
//@ consts  MOST_SMEM: SM_SMEM - 79872
//@ tune    BYTES: HALF_SMEM SMEM MOST_SMEM
//@ append: prefer BYTES=MOST_SMEM if BITS == 4 && N * K >= 16000000 && ARCH == 90
//@ plain:  prefer BYTES=MOST_SMEM if BITS == 4 && (GLU || K > N) && N * K >= 16000000 && N * K < 40000000 && ARCH == 90
//@ plain:  prefer BYTES=HALF_SMEM if BITS == 4 && RES && N == K && N * K < 20000000 && M == 1 && ARCH == 90
//@ prefer  BYTES=HALF_SMEM if APPEND || (N < 8192 && K < 4096)
//@ prefer  BYTES=SMEM
//@ consts  BLOCKS_PER_SM: BYTES > HALF_SMEM ? 1 : 2
//    A chunk of 16 KB of codes, or 32 KB: fewer waits of the warps that multiply. ROUND_TILES: tiles whose sums are finished
//    together.
//@ tune    CHUNK: 8 16 32
//@ prefer  CHUNK=16 if BITS == 4
//@ prefer  CHUNK=8
//    Long rows of x: more warps, since they make its digits first.
//@ tune    WARPS: 8 16
//@ order   WARPS
//@ prefer  WARPS=16 if BITS == 4 && K >= 8192 && !LAST
//@ prefer  WARPS=8
//@ tune    ROUND_MOST: 8 16 4
//@ prefer  ROUND_MOST=8
//@ consts  ROUND_TILES: min(min(ROUND_MOST, 32 / M), SEGMENTS ? 16 : ceil_div(ceil_div(N, 16), 132))
//@ consts  SLOT_BYTES: CHUNK * (256 * BITS + 16 * 128 / GROUP * (SCALES == 0 ? 2 : SCALES == 1 ? 3 : SCALES == 2 ? 4 : 8))
//@ tune    IN_FLIGHT: 49152 65536 98304 32768
//@ prefer  IN_FLIGHT=49152 if BYTES == MOST_SMEM
//@ plain:  prefer IN_FLIGHT=49152 if BITS == 4 && RES && N * K >= 40000000 && ARCH == 90
//@ plain, append: prefer IN_FLIGHT=32768 if BITS == 4 && BYTES == HALF_SMEM && K >= 2048 && ARCH == 90
//@ prefer  IN_FLIGHT=65536
//@ consts  STAGES: min((BYTES - BESIDE_RING) / SLOT_BYTES, 16)
//@ shared  BARRIERS 256
//@ shared  PLACES   round_up(M * 8, 16)                                    // append: {page, position} of a row
//@ shared  STATS    round_up(M * 4, 16)
//@ shared  SQUARES  round_up(NORM * M * ceil_div(K, 256) * 4, 16)
//@ shared  GAINS    NORM * K * 2
//@ shared  UNITS    round_up((1 - FP8) * K / GROUP * M * 4, 16)
//@ shared  X        X_BYTES
//@ shared  KEPT     SEGMENTS * M * 1024                                  // logits of a segment until it is whole
//@ shared  SUMS     2 * ROUND_TILES * WARPS * M * 80
//@ shared  RING     STAGES * SLOT_BYTES align 128
//@ needs   TMA
//@ fits    sizeof(x) == 2 && K % 64 == 0 && (LAST || BUCKET > 0) && M <= 8
//@ fits    STAGES >= 2 && CHUNK % WARPS == 0 && (type(w) == fp8) == FP8
//    Measured on an H200 (docs/decisions/033-quantised-weights-by-bulk-copies.md): 1 to 4 rows, 3 and 4 where three chunks fit and
//    the layer is not small.
//@ prefer  other if ARCH != 90 || M > 4 || K < 1024 || (LAST && K > 8192)
//@ prefer  other if M > 2 && (STAGES < 3 || K < (LAST || N >= 8192 ? 2048 : 4096))
//@ launch  grid min(SMS, ceil_div(N, 16))   block WARPS * 32 + 32   smem BYTES
//@ moves   N * K * BITS / 8 + N * K / GROUP * 2
//@ flops   2 * (LAST ? S : T) * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_q_bulk.cuh"
//@ fp8, fp8_append: text #include "body/e4m3.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append, fp8_append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@;
//@ append, fp8_append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int ROWS_S = @ROWS_S@, LAST = @LAST@, SEGMENTS = @SEGMENTS@;
    static constexpr float EPS = @EPS@;
    static constexpr int BITS = @BITS@, GROUP = @GROUP@, SCALES = @SCALES@, BRICK_K = @BRICK_K@;
    static constexpr int CHUNK = @CHUNK@, WARPS = @WARPS@, ROUND_TILES = @ROUND_TILES@;
//@ fp8, fp8_append: text     static constexpr int BLOCK_M = @M@, X_ROW_BYTES = @X_ROW_BYTES@;
    static constexpr int IN_FLIGHT = @IN_FLIGHT@, STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
//@ fp8, fp8_append: text template <> struct BulkCodes<Config> : E4m3Bulk<Config> {};
extern "C" __global__ void __launch_bounds__(@WARPS@ * 32 + 32, @BLOCKS_PER_SM@)
//@ plain, append, fp8, fp8_append: text @NAME@(const LinearArgs a) { linear_q_bulk<Config>(a); }
//@ head:   text @NAME@(const LinearHeadArgs a) { linear_q_bulk<Config>(a); }
