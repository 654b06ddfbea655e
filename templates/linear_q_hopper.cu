// linear_q_hopper.cu - contracts and instance of linear_q_hopper.cuh: linear layers of 9 to 64 rows with quantised weights on sm_90a
//
// For weights of int4 and int8 without minima and of fp8 in programs of 9 to 64 tokens, and for LM heads of as many sequences. An RMS norm
// before it is a launch of its own. Chosen before linear_q (docs/decisions/033-quantised-weights-by-bulk-copies.md).
//
//   plain    activation, GLU or residual after
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   fp8, fp8_append   the same for weights of fp8 (body/e4m3.cuh)
//@ kernel  linear_q_hopper
//@ variant plain  | APPEND=0 FP8=0
//@ variant append | APPEND=1 ROWS_S=0 ACT=0 GLU=0 RES=0 FP8=0
//@ variant fp8        | APPEND=0 FP8=1
//@ variant fp8_append | APPEND=1 ROWS_S=0 ACT=0 GLU=0 RES=0 FP8=1
//@ plain:  rank 650
//@ append: rank 660
//@ fp8:        rank 780
//@ fp8_append: rank 790
//@ args    x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y
//@ plain, fp8: match y = linear(x, w:m16k16, b?)                     | ACT=0 GLU=0 RES=0
//@ plain, fp8: match y = act(linear(x, w:m16k16, b?))                | ACT=act.kind GLU=0 RES=0
//@ plain, fp8: match y = glu(linear(x, w:m16k16, b?))                | ACT=glu.kind GLU=1 RES=0
//@ plain, fp8: match y = add(linear(x, w:m16k16, b?), r)             | ACT=0 GLU=0 RES=1
//@ append, fp8_append: match y = append(linear(x, w:m16k16, b?), t?)
//@ consts  X: type(x)  Y: type(y)  N: N  K: K  M: pow2(rows(x) ? S_MAX : T_MAX)  BIAS: has(b)
//@ plain, fp8: consts ROWS_S: rows(x)
//@ append, fp8_append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append, fp8_append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append, fp8_append: fits sizeof(KV) > 1
//@ consts  BITS: type(w) == int4 ? 4 : 8  GROUP: group(w)  SCALES: scales(w)  BLOCK_M: M <= 16 ? 16 : M <= 32 ? 32 : 64
//@ tune    CLUSTER_SIZE: 1 2 4 8
//@ order   CLUSTER_SIZE
//@ prefer  CLUSTER_SIZE=1 if N > 8192
//@ prefer  CLUSTER_SIZE=2 if N >= 4096
//@ prefer  CLUSTER_SIZE=4
//    EVEN_N: the tile that gives the clusters that an H200 holds (66, 30 and 15 of 2, 4 and 8 blocks) the same number of columns.
//@ consts  CLUSTER_N: ceil_div(N, CLUSTER_SIZE == 1 ? 132 : CLUSTER_SIZE == 2 ? 64 : CLUSTER_SIZE == 4 ? 30 : 15)
//@ consts  EVEN_N: round_up(ceil_div(CLUSTER_N, ceil_div(CLUSTER_N, 256)), max(16, 8 * CLUSTER_SIZE))
//@ tune    TILE_N: EVEN_N 64 96 128 192 256
//@ prefer  TILE_N=EVEN_N
//    SPLIT: parts of a step, so that a block has up to four warpgroups. ROWS: warpgroups side by side.
//@ consts  ROWS: ceil_div(TILE_N, 64)
//@ tune    SPLIT: 4 2 1
//@ order   SPLIT
//@ prefer  SPLIT=4 if ROWS == 1
//@ prefer  SPLIT=2 if ROWS == 2
//@ prefer  SPLIT=1
//    STEP_K: bulk copies of 2 KB and more.
//@ consts  STEP_K: max(BITS == 4 ? 256 : 128, 128 * SPLIT)  THREADS: 128 * SPLIT * ROWS + 32
//@ consts  SLOT_BYTES: (BLOCK_M + TILE_N / 16 * BITS) * STEP_K * 2  K_STEPS: ceil_div(ceil_div(K, STEP_K), CLUSTER_SIZE)
//@ consts  STAGES: min(max(2, min(16, K_STEPS)), (SMEM - BESIDE_RING) / SLOT_BYTES)
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  SUMS     SPLIT * TILE_N / 8 * (BLOCK_M * 8 + 8) * 4 over RING
//@ shared  SCALES_OF TILE_N * K_STEPS * STEP_K / GROUP * (SCALES == 2 ? 4 : 2)
//@ shared  ZEROS_OF TILE_N * K_STEPS * STEP_K / GROUP * (SCALES == 1)
//@ shared  PLACES   BLOCK_M * 8                 // append: {page, position} of a row
//@ shared  BARRIERS 34 * 8                      // full and empty of each of up to 16 slots; sums received; scales landed
//@ tiled   x BLOCK_M
//@ needs   TMA CLUSTER WGMMA
//@ fits    (type(w) == fp8) == FP8
//@ fits    sizeof(x) == 2 && K % 64 == 0 && M > 8 && M <= 64 && STAGES >= 2 && SCALES < 3 && GROUP >= 32
//@ fits    TILE_N <= 256 && TILE_N % max(16, 8 * CLUSTER_SIZE) == 0 && SPLIT * ROWS <= 4
//@ fits    BUCKET > 0 || rows(x)
//@ launch  grid ceil_div(N, TILE_N) * CLUSTER_SIZE   block THREADS
//@ moves   N * K * BITS / 8 + N * K / GROUP * 2
//@ flops   2 * M * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_q_hopper.cuh"
//@ fp8, fp8_append: text #include "body/e4m3.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append, fp8_append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@, ROWS_S = @ROWS_S@;
//@ append, fp8_append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int BITS = @BITS@, GROUP = @GROUP@, SCALES = @SCALES@;
    static constexpr int TILE_N = @TILE_N@, BLOCK_M = @BLOCK_M@, CLUSTER_SIZE = @CLUSTER_SIZE@, SPLIT = @SPLIT@, STEP_K = @STEP_K@;
    static constexpr int STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
//@ fp8, fp8_append: text template <> struct Codes<Config> : E4m3Fragments<Config> {};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(@THREADS@, 1)
@NAME@(const LinearArgs a) { linear_q_hopper<Config>(a); }
