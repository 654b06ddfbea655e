// linear_live.cu - contracts and instance of linear_live.cuh: linear layers of 129 to 512 rows on sm_90a, by live rows
//
// Chosen where it was measured to be faster than linear_batch, which costs as much in the model of `select` and has the higher
// rank: docs/decisions/039-products-as-wide-as-the-live-rows.md.
//
//   plain    activation, GLU or residual after
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//@ kernel  linear_live
//@ variant plain  | APPEND=0
//@ variant append | APPEND=1 ROWS_S=0 ACT=0 GLU=0 RES=0
//@ plain:  rank 278
//@ append: rank 279
//@ args    x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y
//@ plain:  match y = linear(x, w, b?)                            | ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(x, w, b?))                       | ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(x, w, b?))                       | ACT=glu.kind GLU=1 RES=0
//@ plain:  match y = add(linear(x, w, b?), r)                    | ACT=0 GLU=0 RES=1
//@ append: match y = append(linear(x, w, b?), t?)
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: T_MAX  BIAS: has(b)
//@ plain:  consts ROWS_S: rows(x)
//@ append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ consts  ROW_TILES: ceil_div(T_MAX, 256)  ROWS: max(128, round_up(ceil_div(T_MAX, ROW_TILES), 16))
//@ tune    SPLIT_K: 1 2 4
//@ order   SPLIT_K
//@ sums    linear = slices SPLIT_K
//    As linear_batch, so that a row has the same bits from either.
//@ prefer  SPLIT_K=4 if N <= 2048 && K >= 8192
//@ prefer  SPLIT_K=2 if N <= 14784
//@ prefer  SPLIT_K=1
//    66 clusters of two run at once.
//@ tune    WARPGROUPS: 1 2
//@ prefer  WARPGROUPS=1 if SPLIT_K == 2 && N <= 4224
//@ prefer  WARPGROUPS=2
//@ consts  TILE_N: 64 * WARPGROUPS  SLOT_BYTES: (TILE_N + round_up(ROWS, 32)) * 128
//@ consts  STAGES: min(16, (SMEM - BESIDE_RING) / SLOT_BYTES)
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  SUMS     (SPLIT_K - 1) * ceil_div(ROWS / 8, SPLIT_K) * 2 * WARPGROUPS * 1024 over RING  // received from the other slices
//@ append: shared  PLACES   M * 8                       // {page, position} of a row
//@ plain:  shared  PLACES   8                           // none
//@ shared  BARRIERS 33 * 8                      // full and empty of each of up to 16 slots; sums received
//@ tiled   x 32
//@ tiled   w TILE_N
//@ needs   TMA CLUSTER WGMMA
//@ fits    sizeof(x) == 2 && X == W && X == Y && N % 8 == 0 && K % 8 == 0
//@ append: fits X == KV && E % 8 == 0
//@ fits    SPLIT_K <= ceil_div(K, 64)
//    Logits are those of a head.
//@ fits    BUCKET > 0 && T_MAX > 128 && T_MAX <= 512 && logits(y) == 0
//@ prefer  other if FIXED || ENCODE || N < 2048 || K < 2048
//@ launch  grid min(SPLIT_K > 1 ? 65535 : SMS, ROW_TILES * ceil_div(N, TILE_N)) * SPLIT_K   block 128 * WARPGROUPS + 32
//@ moves   2 * N * K + 2 * M * (K + N)
//@ flops   2 * M * N * K
//@ rate    65
//@ matmul  yes
//@ overlap yes
#include "linear_live.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@, ROWS = @ROWS@;
    static constexpr int BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@, ROWS_S = @ROWS_S@;
//@ append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int WARPGROUPS = @WARPGROUPS@, TILE_N = @TILE_N@, SPLIT_K = @SPLIT_K@;
    static constexpr int STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
extern "C" __global__ void CLUSTER(Config::SPLIT_K) __launch_bounds__(128 * Config::WARPGROUPS + 32, 1)
@NAME@(const LinearArgs a) { linear_live<Config>(a); }
