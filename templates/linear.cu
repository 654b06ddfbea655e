// linear.cu - contracts and instance of linear.cuh: linear layers of 1 to 8 rows on sm_90 and newer
//
// Chosen for 16-bit weights in programs of up to 8 tokens. Where x does not fit shared memory, or K is no multiple of 8,
// linear_wide is chosen.
//
//   plain    norm before, activation, GLU or residual after in one kernel
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 8 sequences. Where a sampler or a beam search reads them, it also writes
//            segments (body/segments.cuh), so that the row is not read again
//   sum      the sum of the result over the ranks of a tensor-parallel model (linear_sum.cuh)
//@ kernel  linear
//@ variant plain  | APPEND=0 LAST=0 SEGMENTS=0 KEPT_BYTES=0
//@ variant append | APPEND=1 LAST=0 SEGMENTS=0 KEPT_BYTES=0 ROWS_S=0 ACT=0 GLU=0 RES=0 THREADS=320
//@ variant head   | APPEND=0 LAST=1 ROWS_S=1 ACT=0 GLU=0 RES=0 THREADS=320
//@ variant sum    | APPEND=0 LAST=0 SEGMENTS=0 KEPT_BYTES=0 ACT=0 GLU=0 NORM=0 EPS=0 THREADS=320
//@ plain:  rank 190
//@ append: rank 200
//@ head:   rank 250
//@ sum:    rank 188
//@ plain, append: args x[M,K] w[N,K] g:fp32 c:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y
//@ head:   args  $params x[T,K] w[N,K] g:fp32 c:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y[S,N] $segments
//@ sum:    args  x[M,K] w[N,K] b[N]:fp32 r[M,N]:type(y) $peers $exchange $step -> y[M,N]
//@ plain:  match y = linear(x, w, b?)                            | NORM=0 EPS=0 ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=glu.kind GLU=1 RES=0
//@ plain:  match y = add(linear(x, w, b?), r)                    | NORM=0 EPS=0 ACT=0 GLU=0 RES=1
//@ plain:  match y = add(linear(x, w, b?), layernorm(r, g, c))   | NORM=0 EPS=layernorm.eps ACT=0 GLU=0 RES=2
//@ plain:  match y = linear(rmsnorm(x, g), w, b?)                | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1 RES=0
//@ plain:  match y = linear(layernorm(x, g, c), w, b?)           | NORM=2 EPS=layernorm.eps ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=glu.kind GLU=1 RES=0
//@ append: match y = append(linear(x, w, b?), t?)                | NORM=0 EPS=0
//@ append: match y = append(linear(rmsnorm(x, g), w, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ append: match y = append(linear(layernorm(x, g, c), w, b?), t?)    | NORM=2 EPS=layernorm.eps
//@ head:   gives y as segments SEGMENTS
//@ head:   match y = linear(rmsnorm(select_last(x), g), w, b?)   | NORM=1 EPS=rmsnorm.eps
//@ head:   match y = linear(layernorm(select_last(x), g, c), w, b?)   | NORM=2 EPS=layernorm.eps
//@ head:   match y = linear(select_last(x), w, b?)               | NORM=0 EPS=0
//@ sum:    match y = all_reduce(linear(x, w, b?))                | RES=0
//@ sum:    match y = add(all_reduce(linear(x, w, b?)), r)        | RES=1
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(LAST ? min(T_MAX, S_MAX) : T_MAX)  BIAS: has(b)
//@ plain:  consts ROWS_S: rows(x)
//@ sum:    consts ROWS_S: rows(x)  RANKS: RANKS  RES: RES
//@ append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append: fits sizeof(KV) > 1
//    KEPT_BYTES: logits of a segment until it is whole. With fixed sums nothing reads segments, so all logits are written.
//@ head:   consts SEGMENTS: logits(y) && !FIXED  KEPT_BYTES: SEGMENTS * M * 1024
//    A block takes all shared memory of an SM; for a matrix below 32 MB it takes half, so that the next kernel can start
//    beside it. MOST_SMEM leaves room for a block of attention. CHUNK_MAX (k of a row in one bulk copy): rows of 4 KB are read
//    faster than rows of 2 KB, if three chunks fit.
//@ consts  X_ROW_BYTES: round_up(2 * K, 128) + 64  HALF_SMEM: SM_SMEM / 2 - 1024  MOST_SMEM: SM_SMEM - 90112
//@ tune    BYTES: HALF_SMEM SMEM MOST_SMEM
//@ prefer  BYTES=MOST_SMEM if NORM == 1 && N * K >= 8000000 && N * K < 16000000 && M <= 2 && !LAST && ARCH == 90
//@ prefer  BYTES=SMEM if N * K >= 16000000 || M * X_ROW_BYTES > 36864
//@ prefer  BYTES=HALF_SMEM
//@ consts  BLOCKS_PER_SM: BYTES > HALF_SMEM ? 1 : 2
//@ tune    CHUNK_MAX: 1024 2048
//@ prefer  CHUNK_MAX=2048 if BYTES > HALF_SMEM && X_AT + M * X_ROW_BYTES + 128 + 3 * 8 * (2 * 2048 + 64) <= BYTES
//@ prefer  CHUNK_MAX=1024
//    CHUNK: k of a chunk. A slot has 8 rows of it; 64 bytes more: no bank conflicts. TURNS: the producer copies up to 16 KB
//    of a chunk in one turn. SLOTS: what fits, and at most 32 mbarriers.
//@ consts  CHUNK: round_up(ceil_div(K, ceil_div(K, CHUNK_MAX)), 256)  TURNS: CHUNK <= 1024 ? 1 : 2
//@ consts  SLOT_BYTES: 8 * (2 * CHUNK + 64)  SLOTS: min((BYTES - BESIDE_RING) / SLOT_BYTES, 32 / (TURNS + 1))
//@ shared  BARRIERS 256
//@ shared  STATS    16 * 8
//@ shared  SUMS     2 * 16 * 64 * 4  // of 16 tiles of a row; two of them, taken in turns
//@ shared  KEPT     KEPT_BYTES
//@ shared  X        M * X_ROW_BYTES
//@ shared  RING     SLOTS * SLOT_BYTES align 128
//    Copies under way delay x on its way from L2: small matrices, which are there soon, take few
//    (docs/decisions/006-programmatic-dependent-launch.md).
//@ tune    IN_FLIGHT: 16384 32768 49152 65536 98304
//@ prefer  IN_FLIGHT=49152 if BYTES > HALF_SMEM
//@ plain:  prefer IN_FLIGHT=16384 if RES == 1 && N * K >= 4000000 && N * K < 8000000 && ARCH == 90
//@ plain, append: prefer IN_FLIGHT=32768 if N * K >= 500000 && N * K < 8000000 && ARCH == 90
//@ prefer  IN_FLIGHT=65536
//    SPARE: SMs without a block: of o, where attention's blocks end late, and of down.
//@ plain:  tune SPARE: 0 4 8
//@ plain:  prefer SPARE=8 if RES == 1 && N == K && N * K >= 16000000 && M == 1 && ARCH == 90
//@ plain:  prefer SPARE=4 if RES == 1 && N % 1024 == 0 && N * K >= 16000000 && (M == 1 || N * K < 20000000) && ARCH == 90
//@ plain:  prefer SPARE=0
//@ plain:  consts THREADS: RES == 2 ? 288 + 32 * M : 320
//@ sums    linear = chains 8
//@ needs   TMA
//@ fits    sizeof(x) == 2 && X == W && K % 8 == 0 && (LAST || BUCKET > 0) && M <= 8
//@ fits    RES < 2 || (N % 8 == 0 && N <= 2048)
//@ sum:    fits RANKS > 1 && Y == X && N % 2 == 0
//    Three slots behind x, wherever the ring begins.
//@ fits    X_AT + M * X_ROW_BYTES + 128 + 3 * SLOT_BYTES <= BYTES
//@ plain:  launch grid min(SMS - SPARE, ceil_div(N, 8))   block THREADS   smem BYTES
//@ append, sum: launch grid min(SMS, ceil_div(N, 8))   block THREADS   smem BYTES
//@ head:   launch grid min(min(SMS, 192), ceil_div(N, 8))   block THREADS   smem BYTES
//@ moves   2 * N * K
//@ flops   2 * (LAST ? S : T) * N * K
//@ matmul  yes
//@ overlap yes
#include "linear.cuh"
//@ sum:    text #include "body/linear_sum.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@;
//@ append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
//@ sum:    text     static constexpr int RANKS = @RANKS@;
    static constexpr int ROWS_S = @ROWS_S@, LAST = @LAST@, SEGMENTS = @SEGMENTS@;
    static constexpr float EPS = @EPS@;
    static constexpr int IN_FLIGHT = @IN_FLIGHT@, CHUNK = @CHUNK@, TURNS = @TURNS@, X_ROW_BYTES = @X_ROW_BYTES@;
    static constexpr int SLOTS = @SLOTS@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
extern "C" __global__ void __launch_bounds__(@THREADS@, @BLOCKS_PER_SM@)
//@ plain, append: text @NAME@(const LinearArgs a) { linear<Config>(a); }
//@ head:   text @NAME@(const LinearHeadArgs a) { linear<Config>(a); }
//@ sum:    text @NAME@(const LinearSumArgs a) { linear_sum<Config>(a); }
