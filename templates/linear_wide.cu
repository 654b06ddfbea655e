// linear_wide.cu - contracts and instance of linear_wide.cuh: linear layers of up to 64 rows, any K and N, every GPU
//
// Chosen for 16-bit weights in programs of up to 64 tokens where none of linear, linear_swapped and linear_hopper fits: GPUs before
// sm_90, other forms of sm_90 than sm_90a above 8 rows, sm_100 and sm_120 above 8 rows, K that is no multiple of 8.
//
//   plain    norm before, activation, GLU or residual after in one kernel
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 64 sequences. It writes no segments: the sampler reads the whole row
//   rows, rows_append, rows_head   the same for any number of rows, with precision.sums = "fixed"
//
// TILE_N_MAX: what registers and shared memory hold. CLUSTER_N: columns for each pair of blocks (sm_90) or block, if
// all SMs take part. WHOLE_SM: a block takes all shared memory of an SM, for matrices of 32 MB and more or where half
// is too little.
//@ kernel  linear_wide
//@ variant plain  | APPEND=0 LAST=0 ROW_BLOCKS=0
//@ variant append | APPEND=1 LAST=0 ROW_BLOCKS=0 ROWS_S=0 ACT=0 GLU=0 RES=0
//@ variant head   | APPEND=0 LAST=1 ROW_BLOCKS=0 ROWS_S=1 ACT=0 GLU=0 RES=0
//@ variant rows   | APPEND=0 LAST=0 ROW_BLOCKS=1
//@ variant rows_append | APPEND=1 LAST=0 ROW_BLOCKS=1 ROWS_S=0 ACT=0 GLU=0 RES=0
//@ variant rows_head | APPEND=0 LAST=1 ROW_BLOCKS=1 ROWS_S=1 ACT=0 GLU=0 RES=0
//@ plain:  rank 320
//@ append: rank 330
//@ head:   rank 340
//@ rows:   rank 342
//@ rows_append: rank 344
//@ rows_head: rank 346
//@ plain, append, rows, rows_append: args x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y
//@ head, rows_head: args  x[T,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y[S,N]
//@ plain, rows: match y = linear(x, w, b?)                            | NORM=0 EPS=0 ACT=0 GLU=0 RES=0
//@ plain, rows: match y = act(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=act.kind GLU=0 RES=0
//@ plain, rows: match y = glu(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=glu.kind GLU=1 RES=0
//@ plain, rows: match y = add(linear(x, w, b?), r)                    | NORM=0 EPS=0 ACT=0 GLU=0 RES=1
//@ plain:  match y = linear(rmsnorm(x, g), w, b?)                | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1 RES=0
//@ plain:  match y = linear(layernorm(x, g, c), w, b?)           | NORM=2 EPS=layernorm.eps ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=glu.kind GLU=1 RES=0
//@ append, rows_append: match y = append(linear(x, w, b?), t?)                | NORM=0 EPS=0
//@ append: match y = append(linear(rmsnorm(x, g), w, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ append: match y = append(linear(layernorm(x, g, c), w, b?), t?)    | NORM=2 EPS=layernorm.eps
//@ head:   match y = linear(rmsnorm(select_last(x), g), w, b?)   | NORM=1 EPS=rmsnorm.eps
//@ head:   match y = linear(layernorm(select_last(x), g, c), w, b?)   | NORM=2 EPS=layernorm.eps
//@ head, rows_head: match y = linear(select_last(x), w, b?)               | NORM=0 EPS=0
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: min(ROW_BLOCKS ? 64 : 1048576, pow2(LAST ? min(T_MAX, S_MAX) : T_MAX))  BIAS: has(b)
//@ plain, rows: consts ROWS_S: rows(x)
//@ append, rows_append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append, rows_append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append, rows_append: fits sizeof(KV) > 1
//@ consts  BLOCK_M: M <= 16 ? 16 : M <= 32 ? 32 : 64
//@ tune    CLUSTER_SIZE: 1 2
//@ prefer  CLUSTER_SIZE=2 if CLUSTER
//@ prefer  CLUSTER_SIZE=1
//@ consts  TILE_N_MAX: SMEM >= 200000 ? (BLOCK_M < 64 ? 128 : ARCH >= 100 || (LAST && NORM == 2) ? 64 : 96) : SMEM >= 150000 ? 64 : 32
//@ consts  CLUSTER_N: ceil_div(N, CLUSTER_SIZE == 2 ? 66 : 108)
//@ tune    TILE_N: 16 32 48 64 96 128
//@ prefer  TILE_N=16 if CLUSTER_N <= 16
//@ prefer  TILE_N=32 if CLUSTER_N <= 32 || TILE_N_MAX == 32
//@ prefer  TILE_N=48 if CLUSTER_N <= 48
//@ prefer  TILE_N=64 if CLUSTER_N <= 64 || TILE_N_MAX == 64
//@ prefer  TILE_N=96 if CLUSTER_N <= 96 || TILE_N_MAX == 96
//@ prefer  TILE_N=128
//@ consts  THREADS: TILE_N <= 64 ? 256 : 512
//@ consts  SUM: BLOCK_M * 8 + 8  OTHER_SUM: CLUSTER_SIZE == 2 ? BLOCK_M * 4 + 8 : SUM  // floats of a tile of 8 columns
//@ consts  STAGE_BYTES: (TILE_N + BLOCK_M) * 256 + NORM * 512  HALF_SMEM: SM_SMEM / 2 - 1024
//@ tune    WHOLE_SM: 0 1
//@ prefer  WHOLE_SM=1 if N * K >= 16777216 || BESIDE_RING + 3 * STAGE_BYTES > HALF_SMEM
//@ prefer  WHOLE_SM=0
//@ consts  STAGES: min(2 + ceil_div(49152, TILE_N * 256), ((WHOLE_SM == 1 ? SMEM : HALF_SMEM) - BESIDE_RING) / STAGE_BYTES)
//@ shared  RING    STAGES * STAGE_BYTES
//@ shared  SUMS    TILE_N / 8 * SUM * 4
//@ shared  OTHERS  TILE_N / 8 * OTHER_SUM * 4  // sums of the other block, or of the second sweep
//@ shared  STATS   BLOCK_M * 8
//@ shared  PLACES  BLOCK_M * 8                 // append: {page, position} of a row
//@ shared  BARRIER 16
//@ tune    BLOCKS_PER_SM: 1 2
//@ prefer  BLOCKS_PER_SM=1 if WHOLE_SM == 1 || NORM == 2 || (ARCH >= 100 && BLOCK_M == 64)
//@ prefer  BLOCKS_PER_SM=2
//@ sums    linear = chains 8
//@ fits    sizeof(x) == 2 && X == W && (LAST || BUCKET > 0 || ROW_BLOCKS) && M <= 64 && STAGES >= 2
//@ rows, rows_append, rows_head: fits FIXED
//@ fits    CLUSTER || CLUSTER_SIZE == 1
//@ prefer  other if TILE_N > TILE_N_MAX
//    On sm_90a a layer norm launch and linear_hopper are faster than layer norm in this kernel.
//@ prefer  other if NORM == 2 && WGMMA && K % 8 == 0
//    Each row of blocks reads w again.
//@ rows, rows_append, rows_head: prefer other if WGMMA || T_MAX <= 64
//@ launch  grid max(1, min(SMS / CLUSTER_SIZE, ceil_div(N, 8))) * CLUSTER_SIZE, ROW_BLOCKS ? ceil_div(ROWS_S ? S : T, 64) : 1   block THREADS
//@ moves   2 * N * K
//@ flops   2 * (LAST ? S : T) * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_wide.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append, rows_append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@;
//@ append, rows_append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int ROWS_S = @ROWS_S@, LAST = @LAST@, ROW_BLOCKS = @ROW_BLOCKS@;
    static constexpr float EPS = @EPS@;
    static constexpr int TILE_N = @TILE_N@, BLOCK_M = @BLOCK_M@, THREADS = @THREADS@, CLUSTER_SIZE = @CLUSTER_SIZE@;
    static constexpr int STAGES = @STAGES@, STAGE_BYTES = @STAGE_BYTES@, SUM = @SUM@, OTHER_SUM = @OTHER_SUM@, @REGIONS@;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, @BLOCKS_PER_SM@)
@NAME@(const LinearArgs a) { linear_wide<Config>(a); }
