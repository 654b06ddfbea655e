// linear_hopper.cu - contracts and instance of linear_hopper.cuh: linear layers of 9 to 64 rows on sm_90a
//
// Chosen for 16-bit weights in programs of 9 to 64 tokens (a bucket of 16 or 64). It costs the same as linear_wide in
// the model of `select`, so rank decides; measured, it is the faster of the two. Layer norm before it is a launch of
// its own.
//
//   plain    RMSNorm before, activation or GLU after in one kernel; without a norm linear_swapped is faster
//   append   RMSNorm and the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of each sequence (LAST) or of rows that are already selected, and their segments
//
// CLUSTER_SIZE, TILE_N: each block fills an SM, and all blocks of a launch run at once. An H200 holds 66, 30 and 15
// clusters of 2, 4 and 8 blocks (so the driver's occupancy call). Fewer SMs with wider tiles beat all SMs with narrow
// ones, since x is read 64 / TILE_N times as often as w. CLUSTER_N: columns that a cluster computes in all passes. With
// segments all of K is in one block (CLUSTER_SIZE 1).
//
// The order of summation is not that of linear.cu (up to 8 rows): a row has the same bits for 9 to 64 rows, but not
// across that border.
//@ kernel  linear_hopper
//@ variant plain  | APPEND=0 LAST=0 SEGMENTS=0
//@ variant append | APPEND=1 LAST=0 SEGMENTS=0 ROWS_S=0 ACT=0 GLU=0 RES=0
//@ variant head   | APPEND=0 ROWS_S=1 ACT=0 GLU=0 RES=0
//@ plain:  rank 260
//@ append: rank 270
//@ head:   rank 280
//@ plain, append: args x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y
//@ head:   args  $params x[T,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y[S,N] $segments
//@ plain:  match y = linear(rmsnorm(x, g), w, b?)                | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1 RES=0
//@ append: match y = append(linear(rmsnorm(x, g), w, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ head:   gives y as segments SEGMENTS
//@ head:   match y = linear(rmsnorm(select_last(x), g), w, b?)   | NORM=1 EPS=rmsnorm.eps LAST=1
//@ head:   match y = linear(select_last(x), w, b?)               | NORM=0 EPS=0 LAST=1
//@ head:   match y = linear(rmsnorm(x, g), w, b?)                | NORM=1 EPS=rmsnorm.eps
//@ head:   match y = linear(x, w, b?)                            | NORM=0 EPS=0
//@ plain, append: consts X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(T_MAX)  BIAS: has(b)
//@ head:   consts X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(min(T_MAX, S_MAX))  BIAS: has(b)
//@ plain:  consts ROWS_S: rows(x)
//@ append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append: fits sizeof(KV) > 1
//@ consts  BLOCK_M: M <= 16 ? 16 : M <= 32 ? 32 : 64
//@ tune    CLUSTER_SIZE: 1 2 4 8
//@ order   CLUSTER_SIZE
//@ sums    linear = slices CLUSTER_SIZE
//@ prefer  CLUSTER_SIZE=1 if logits(y) || N > 8192
//@ prefer  CLUSTER_SIZE=2 if N > 4096
//@ prefer  CLUSTER_SIZE=4 if K < 4 * N
//@ prefer  CLUSTER_SIZE=8
//@ consts  CLUSTER_N: ceil_div(N, CLUSTER_SIZE == 1 ? 132 : CLUSTER_SIZE == 2 ? 64 : CLUSTER_SIZE == 4 ? 30 : 15)  PASSES: ceil_div(CLUSTER_N, 256)
//@ consts  TILE_N: round_up(ceil_div(CLUSTER_N, PASSES), CLUSTER_SIZE == 8 ? 64 : 32)  SLOT_BYTES: (TILE_N + BLOCK_M) * 128  K_STEPS: ceil_div(ceil_div(K, 64), CLUSTER_SIZE)
//@ consts  STAGES: min(PASSES > 1 ? 16 : max(2, min(16, K_STEPS)), (SMEM - BESIDE_RING) / SLOT_BYTES)
//    With fixed sums nothing reads segments, so all logits are written.
//@ head:   consts SEGMENTS: logits(y) && !FIXED  LAST: LAST
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  SUMS     PASSES > 1 || SEGMENTS ? 0 : TILE_N / 8 * (BLOCK_M * 8 + 8) * 4 over RING
//@ shared  GAINS    NORM * K_STEPS * 128        // of this block, in x's type
//@ shared  SQUARES  CLUSTER_SIZE * BLOCK_M * 4  // sums of squares of x, of each block of the cluster
//@ shared  PLACES   BLOCK_M * 8                 // append: {page, position} of a row
//@ shared  BARRIERS 512                         // full and empty of each of up to 31 slots; sums received
//@ needs   TMA CLUSTER WGMMA
//@ fits    sizeof(x) == 2 && X == W && K % 8 == 0 && (M > 8 || FIXED) && M <= 64 && STAGES >= 2
//    Passes and segments need all of K in one block.
//@ fits    CLUSTER_SIZE == 1 || (PASSES == 1 && !logits(y))
//    Logits and their segments are those of `head`, all else of `plain`.
//@ plain, append: fits BUCKET > 0 && logits(y) == 0
//@ head:   fits LAST || logits(y)
//@ launch  grid PASSES > 1 ? min(SMS, ceil_div(N, 8)) : ceil_div(N, TILE_N) * CLUSTER_SIZE   block 256
//@ moves   2 * N * K
//@ plain, append: flops 2 * T * N * K
//@ head:   flops 2 * S * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_hopper.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@;
//@ append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int ROWS_S = @ROWS_S@, LAST = @LAST@, SEGMENTS = @SEGMENTS@;
    static constexpr float EPS = @EPS@;
    static constexpr int TILE_N = @TILE_N@, BLOCK_M = @BLOCK_M@, PASSES = @PASSES@, CLUSTER_SIZE = @CLUSTER_SIZE@;
    static constexpr int K_STEPS = @K_STEPS@, STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(256, 1)
//@ plain, append: text @NAME@(const LinearArgs a) { linear_hopper<Config>(a); }
//@ head:   text @NAME@(const LinearHeadArgs a) { linear_hopper<Config>(a); }
