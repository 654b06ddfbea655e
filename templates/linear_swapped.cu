// linear_swapped.cu - contracts and instance of linear_swapped.cuh: linear layers of 9 to 64 rows on sm_90a, also after a layer norm
// that is folded into w and b
//
// Chosen for 16-bit weights in programs of 9 to 64 tokens (a bucket of 16, 32 or 64). It costs the same as linear_wide in the
// model of `select`, so rank decides; measured, it is the faster of the two. Layers with an RMS norm before them and LM
// heads are those of linear_hopper.
//
//   plain    activation, GLU or residual after
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//
// CLUSTER_SIZE, TILE_N: a block fills an SM, and all blocks of a launch run at once. An H200 holds 66, 30 and 15
// clusters of 2, 4 and 8 blocks (so the driver's occupancy call). EVEN_N: the tile that gives these clusters the same
// number of columns each. Measured: docs/decisions/027-swapped-operands-for-9-to-64-rows.md
//@ kernel  linear_swapped
//@ variant plain  | APPEND=0
//@ variant append | APPEND=1 ROWS_S=0 ACT=0 GLU=0 RES=0
//@ plain:  rank 256
//@ append: rank 258
//@ args    x[M,K] w[N,K] gain[K]:fp32 shift[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y
//@ folded  w b g c
//@ plain:  match y = linear(x, w, b?)                              | ACT=0 GLU=0 RES=0 NORM=0 EPS=0
//@ plain:  match y = act(linear(x, w, b?))                         | ACT=act.kind GLU=0 RES=0 NORM=0 EPS=0
//@ plain:  match y = glu(linear(x, w, b?))                         | ACT=glu.kind GLU=1 RES=0 NORM=0 EPS=0
//@ plain:  match y = add(linear(x, w, b?), r)                      | ACT=0 GLU=0 RES=1 NORM=0 EPS=0
//@ plain:  match y = linear(layernorm(x, g, c), w, b?)             | ACT=0 GLU=0 RES=0 NORM=2 EPS=layernorm.eps
//@ plain:  match y = act(linear(layernorm(x, g, c), w, b?))        | ACT=act.kind GLU=0 RES=0 NORM=2 EPS=layernorm.eps
//@ append: match y = append(linear(x, w, b?), t?)                  | NORM=0 EPS=0
//@ append: match y = append(linear(layernorm(x, g, c), w, b?), t?) | NORM=2 EPS=layernorm.eps
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(T_MAX)  BIAS: has(b)
//@ plain:  consts ROWS_S: rows(x)
//@ append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append: fits sizeof(KV) > 1
//@ consts  BLOCK_M: M <= 16 ? 16 : M <= 32 ? 32 : 64  NORM: NORM  EPS: EPS  THREADS: NORM ? 288 : 160
//@ tune    CLUSTER_SIZE: 1 2 4 8
//@ order   CLUSTER_SIZE
//@ sums    linear = slices CLUSTER_SIZE
//@ prefer  CLUSTER_SIZE=1 if N > 8192
//@ prefer  CLUSTER_SIZE=2 if N >= 4096 || (N >= 2048 && K < 1024)
//@ prefer  CLUSTER_SIZE=8 if N <= 512 && K >= 512
//@ prefer  CLUSTER_SIZE=8 if N <= 1024 && K >= 4 * N
//@ prefer  CLUSTER_SIZE=4
//@ consts  CLUSTER_N: ceil_div(N, CLUSTER_SIZE == 1 ? 132 : CLUSTER_SIZE == 2 ? 64 : CLUSTER_SIZE == 4 ? 30 : 15)
//@ consts  EVEN_N: max(64, round_up(ceil_div(CLUSTER_N, ceil_div(CLUSTER_N, 256)), 8 * CLUSTER_SIZE))
//@ tune    TILE_N: EVEN_N 32 64 96 128 160 192 224 256
//@ prefer  TILE_N=128 if CLUSTER_SIZE == 4 && N > 1024 && N <= 2048 && K <= 2048
//@ prefer  TILE_N=EVEN_N
//@ consts  SLOT_BYTES: (TILE_N + BLOCK_M) * 128  K_STEPS: ceil_div(ceil_div(K, 64), CLUSTER_SIZE)
//@ consts  STAGES: min(max(2, min(16, K_STEPS)), (SMEM - BESIDE_RING) / SLOT_BYTES)
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  SUMS     TILE_N / 8 * (BLOCK_M * 8 + 8) * 4 over RING
//@ shared  STATS    NORM ? CLUSTER_SIZE * BLOCK_M * 8 : 0 // sum and squares of each row, of all slices of K
//@ shared  PLACES   BLOCK_M * 8                 // append: {page, position} of a row
//@ shared  BARRIERS 33 * 8                      // full and empty of each of up to 16 slots; sums received
//@ tiled   x BLOCK_M
//@ tiled   w TILE_N
//@ needs   TMA CLUSTER WGMMA
//@ fits    sizeof(x) == 2 && X == W && K % 8 == 0 && (M > 8 || FIXED) && M <= 64 && STAGES >= 2
//    A product reads 64 rows of a slot.
//@ fits    TILE_N <= 256 && TILE_N % (8 * CLUSTER_SIZE) == 0 && TILE_N + BLOCK_M >= 64
//    Encoders have row statistics (linear_tile.cu), and a folded norm needs a bias.
//@ fits    !NORM || (BIAS && !FIXED && !ENCODE)
//    Logits are those of a head.
//@ fits    (BUCKET > 0 || FIXED) && logits(y) == 0
//    precision.sums = "fixed": wide matrices of 33 to 64 rows are linear_batch's.
//@ prefer  other if FIXED && T_MAX > 32 && N > 8192
//@ launch  grid ceil_div(N, TILE_N) * CLUSTER_SIZE   block THREADS
//@ moves   2 * N * K
//@ flops   2 * T * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_swapped.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@, ROWS_S = @ROWS_S@;
//@ append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int TILE_N = @TILE_N@, BLOCK_M = @BLOCK_M@, CLUSTER_SIZE = @CLUSTER_SIZE@, NORM = @NORM@, THREADS = @THREADS@;
    static constexpr float EPS = @EPS@;
    static constexpr int STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, 1)
@NAME@(const LinearArgs a) { linear_swapped<Config>(a); }
