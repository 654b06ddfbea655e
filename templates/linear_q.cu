// linear_q.cu - contracts and instance of linear_q.cuh: linear layers of 1 to 64 rows with quantised weights
//
// Chosen for weights of int4, int8 and fp8 and 16-bit activations in programs of up to 64 tokens. Larger programs unpack the
// weights (unpack.cu) and multiply by cuBLASLt; so do programs with rows of w that 64 does not divide.
//
//   plain    RMSNorm before, activation, GLU or residual after in one kernel; a layer norm is a launch of its own
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 64 sequences; of up to 8 also their segments (body/segments.cuh)
//   fp8, fp8_append, fp8_head   the same for weights of fp8 (body/e4m3.cuh)
//@ kernel  linear_q
//@ variant plain  | APPEND=0 LAST=0 SEGMENTS=0 FP8=0
//@ variant append | APPEND=1 LAST=0 SEGMENTS=0 ROWS_S=0 ACT=0 GLU=0 RES=0 FP8=0
//@ variant head   | APPEND=0 LAST=1 ROWS_S=1 ACT=0 GLU=0 RES=0 FP8=0
//@ variant fp8        | APPEND=0 LAST=0 SEGMENTS=0 FP8=1
//@ variant fp8_append | APPEND=1 LAST=0 SEGMENTS=0 ROWS_S=0 ACT=0 GLU=0 RES=0 FP8=1
//@ variant fp8_head   | APPEND=0 LAST=1 ROWS_S=1 ACT=0 GLU=0 RES=0 FP8=1
//@ plain:  rank 700
//@ append: rank 710
//@ head:   rank 720
//@ fp8:        rank 750
//@ fp8_append: rank 760
//@ fp8_head:   rank 770
//@ plain, append, fp8, fp8_append: args x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y
//@ head, fp8_head: args  $params x[T,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y[S,N] $segments
//@ plain, fp8: match y = linear(x, w:m16k16, b?)                     | NORM=0 EPS=0 ACT=0 GLU=0 RES=0
//@ plain, fp8: match y = act(linear(x, w:m16k16, b?))                | NORM=0 EPS=0 ACT=act.kind GLU=0 RES=0
//@ plain, fp8: match y = glu(linear(x, w:m16k16, b?))                | NORM=0 EPS=0 ACT=glu.kind GLU=1 RES=0
//@ plain, fp8: match y = add(linear(x, w:m16k16, b?), r)             | NORM=0 EPS=0 ACT=0 GLU=0 RES=1
//@ plain, fp8: match y = linear(rmsnorm(x, g), w:m16k16, b?)         | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0 RES=0
//@ plain, fp8: match y = act(linear(rmsnorm(x, g), w:m16k16, b?))    | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0 RES=0
//@ plain, fp8: match y = glu(linear(rmsnorm(x, g), w:m16k16, b?))    | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1 RES=0
//@ append, fp8_append: match y = append(linear(x, w:m16k16, b?), t?)         | NORM=0 EPS=0
//@ append, fp8_append: match y = append(linear(rmsnorm(x, g), w:m16k16, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ head, fp8_head: gives y as segments SEGMENTS
//@ head, fp8_head: match y = linear(rmsnorm(select_last(x), g), w:m16k16, b?)   | NORM=1 EPS=rmsnorm.eps
//@ head, fp8_head: match y = linear(select_last(x), w:m16k16, b?)        | NORM=0 EPS=0
//@ consts  X: type(x)  Y: type(y)  N: N  K: K  M: pow2(LAST ? min(T_MAX, S_MAX) : T_MAX)  BIAS: has(b)
//@ plain, fp8: consts ROWS_S: rows(x)
//    On sm_80 `sample` has too few registers for segments.
//@ head, fp8_head: consts SEGMENTS: logits(y) && M <= 8 && ARCH > 80
//@ append, fp8_append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append, fp8_append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append, fp8_append: fits sizeof(KV) > 1
//@ consts  HALF_SMEM: SM_SMEM / 2 - 1024  BITS: type(w) == int4 ? 4 : 8  GROUP: group(w)  SCALES: scales(w)
//    SLICES of K fix the order of summation: the same for 1 to 8 rows, and for 9 to 64. CLUSTER_SIZE blocks share them.
//@ tune    SLICES: 1 2 4 8
//@ order   SLICES
//@ prefer  SLICES=1 if CLUSTER == 0 || (M <= 8 && K <= 8192)
//@ prefer  SLICES=2 if (M <= 8 && K <= 16384) || K <= 2048
//@ prefer  SLICES=4 if M <= 8 || K <= 8192
//@ prefer  SLICES=8
//@ tune    CLUSTER_SIZE: SLICES 1
//@ prefer  CLUSTER_SIZE=1 if CLUSTER == 0 || M <= 2 || SEGMENTS
//@ prefer  CLUSTER_SIZE=SLICES
//    A segment is written by one block, so it has no cluster.
//    Clusters that an H200 holds with one block on an SM: 66, 30, 15 of 2, 4, 8 blocks.
//@ consts  CLUSTERS: CLUSTER_SIZE <= 2 ? 132 / CLUSTER_SIZE : 120 / CLUSTER_SIZE
//@ consts  MOST_M: min(M, 32)
//@ tune    BLOCK_M: MOST_M 32 16 8 4 2 1
//    A block takes half of an SM's shared memory, so that the next kernel can start beside it, or all of it. Always one of the
//    two, since a kernel with another division of the SM's memory starts when the SM is empty.
//@ tune    BYTES: HALF_SMEM SMEM
//@ prefer  BYTES=SMEM if CLUSTER_SIZE > 1
//@ tune    BRICK_K: 128 256
//@ order   BRICK_K
//@ prefer  BRICK_K=128
//@ tune    THREADS: 512 256
//@ prefer  THREADS=512
//@ consts  ROW_BLOCKS: ceil_div(M, BLOCK_M)  BLOCKS_PER_SM: BYTES > HALF_SMEM ? 1 : 2  OWN_SLICES: SLICES / CLUSTER_SIZE
//@ consts  X_BRICKS: ceil_div(ceil_div(K, BRICK_K), CLUSTER_SIZE)  X_ROW_BYTES: X_BRICKS * BRICK_K * 2 + 16
//    Tiles whose sums are added together, at most: at the end of a round a cluster exchanges its sums, which takes 2 us.
//    BUFFERS: of sums, so that a round can begin while the one before is finished.
//@ tune    ROUND_MOST: 16 8 4 2 1
//@ consts  ROUND_TILES: min(ROUND_MOST, SEGMENTS ? 16 : ceil_div(ceil_div(N, 16), max(1, CLUSTERS / ROW_BLOCKS)))
//@ consts  BUFFERS: CLUSTER_SIZE > 1 ? 1 : 2
//@ consts  SLOT_BYTES: BRICK_K * 2 * BITS + 16 * BRICK_K / GROUP * (SCALES == 0 ? 2 : SCALES == 1 ? 3 : SCALES == 2 ? 4 : 8)
//@ consts  STAGES: min(1 + ceil_div(65536, THREADS / 32 * SLOT_BYTES), (BYTES - BESIDE_RING) / (THREADS / 32 * SLOT_BYTES))
//@ shared  BARRIERS 16
//@ shared  PLACES   round_up(M * 8, 16)                                    // append: {page, position} of a row
//@ shared  STATS    round_up(NORM * SLICES * BLOCK_M * 4, 16)
//@ shared  SQUARES  round_up(NORM * BLOCK_M * X_BRICKS * BRICK_K / 16, 16)
//@ shared  GAINS    NORM * X_BRICKS * BRICK_K * 2
//@ shared  X_SUMS   round_up(X_BRICKS * (BRICK_K / GROUP) * BLOCK_M * 4, 16)
//@ shared  X        BLOCK_M * X_ROW_BYTES
//@ shared  KEPT     SEGMENTS * M * 1024                                  // logits of a segment until it is whole
//@ shared  SUMS     BUFFERS * ROUND_TILES * OWN_SLICES * 8 * BLOCK_M * 80
//@ shared  RECEIVED CLUSTER_SIZE == 1 ? 0 : ROUND_TILES * OWN_SLICES * BLOCK_M * 64
//@ shared  RING     THREADS / 32 * STAGES * SLOT_BYTES align 128
//@ fits    (type(w) == fp8) == FP8
//@ fits    sizeof(x) == 2 && K % 64 == 0 && (LAST || BUCKET > 0) && M <= 64
//@ fits    SLICES % CLUSTER_SIZE == 0 && (CLUSTER || CLUSTER_SIZE == 1) && BLOCK_M <= MOST_M && STAGES >= 3 && ROUND_MOST * BLOCK_M <= (CLUSTER_SIZE > 1 ? 128 : 32) && (!SEGMENTS || (ROW_BLOCKS == 1 && CLUSTER_SIZE == 1))
//    Measured on an H200 (docs/decisions/033-quantised-weights-by-bulk-copies.md): linear_q_hopper is 1.4 to 3 times as fast.
//@ prefer  other if M > 8 && ARCH == 90
//    Where linear_q_digits fits; not for o, whose rows no kernel leaves as digits.
//@ plain, append: prefer other if M == 8 && T_MAX == 8 && ROWS_S == 0 && WGMMA && K % 512 == 0 && SCALES < 3 && SCALES * BITS != 8 && GROUP > 16 && (RES == 0 || K > N)
//@ launch  grid max(1, min(CLUSTER_SIZE <= 2 ? SMS / CLUSTER_SIZE : SMS * 10 / (11 * CLUSTER_SIZE), ceil_div(N, 16) * ROW_BLOCKS) / ROW_BLOCKS) * CLUSTER_SIZE, ROW_BLOCKS   block THREADS   smem BYTES
//@ moves   N * K * BITS / 8 + N * K / GROUP * 2
//@ flops   2 * (LAST ? S : T) * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_q.cuh"
//@ fp8, fp8_append, fp8_head: text #include "body/e4m3.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append, fp8_append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@;
//@ append, fp8_append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int ROWS_S = @ROWS_S@, LAST = @LAST@, SEGMENTS = @SEGMENTS@;
    static constexpr float EPS = @EPS@;
    static constexpr int BITS = @BITS@, GROUP = @GROUP@, SCALES = @SCALES@;
    static constexpr int SLICES = @SLICES@, CLUSTER_SIZE = @CLUSTER_SIZE@, BLOCK_M = @BLOCK_M@, X_ROW_BYTES = @X_ROW_BYTES@;
    static constexpr int ROUND_TILES = @ROUND_TILES@, BUFFERS = @BUFFERS@, BRICK_K = @BRICK_K@, THREADS = @THREADS@;
    static constexpr int STAGES = @STAGES@, @REGIONS@;
};
//@ fp8, fp8_append, fp8_head: text template <> struct Brick<Config> : E4m3Brick<Config> {};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, @BLOCKS_PER_SM@)
//@ plain, append, fp8, fp8_append: text @NAME@(const LinearArgs a) { linear_q<Config>(a); }
//@ head, fp8_head: text @NAME@(const LinearHeadArgs a) { linear_q<Config>(a); }
