// linear_batch.cu - contracts and instance of linear_batch.cuh: linear layers of 65 to 512 rows on sm_90a
//
// Chosen for 16-bit weights of at least 2,048 x 2,048 elements in decode programs and steps of 65 to 512 tokens, where it costs as
// much as linear_tile in the model of `select` and has the lower rank. Measured: docs/decisions/029-65-to-512-rows.md.
// With precision.sums = "fixed" it has prompts of any size, too, and 33 to 64 rows of wide matrices
// (docs/decisions/032-order-of-sums.md).
//
//   plain    activation, GLU or residual after
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits with a vocabulary of 16,384 and more, and their segments (body/segments.cuh), of 129 to 512 rows
//@ kernel  linear_batch
//@ variant plain  | APPEND=0 SEGMENTS=0
//@ variant append | APPEND=1 ROWS_S=0 ACT=0 GLU=0 RES=0 SEGMENTS=0
//@ variant head   | APPEND=0 ACT=0 GLU=0 RES=0
//@ plain:  rank 282
//@ append: rank 284
//@ head:   rank 286
//@ plain, append: args x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y
//@ head:   args $params x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y[M,N] $segments
//@ head:   gives y as segments SEGMENTS
//@ head:   match y = linear(x, w, b?)
//@ plain:  match y = linear(x, w, b?)                            | ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(x, w, b?))                       | ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(x, w, b?))                       | ACT=glu.kind GLU=1 RES=0
//@ plain:  match y = add(linear(x, w, b?), r)                    | ACT=0 GLU=0 RES=1
//@ append: match y = append(linear(x, w, b?), t?)
//@ plain, append: consts X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: T_MAX  BIAS: has(b)
//@ head:   consts X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: rows(x) ? min(T_MAX, S_MAX) : T_MAX  BIAS: has(b)  SEGMENTS: 1
//@ plain, head: consts ROWS_S: rows(x)
//@ append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//    A tile of 256 rows (4 warpgroups) takes less time without its fourth block of rows, but there are registers for 128 columns
//    only, with 3 for 160 (128 beside positions). It is chosen where it was measured to be the faster.
//@ tune    WARPGROUPS: 2 3 4
//@ head:   prefer WARPGROUPS=3 if M <= 192
//@ head:   prefer WARPGROUPS=2
//@ prefer  WARPGROUPS=3 if BUCKET > 128 && BUCKET <= 192
//@ plain, append: prefer WARPGROUPS=3 if BUCKET > 256 && BUCKET <= 384
//@ plain:  prefer WARPGROUPS=4 if T_MAX > 128 && N >= 16384 && !RES
//@ prefer  WARPGROUPS=4 if T_MAX > 128 && T_MAX <= 256 && N >= 3072 && N <= 6336
//@ prefer  WARPGROUPS=2
//@ consts  TILE_M: 64 * WARPGROUPS  ROW_TILES: ceil_div(M, TILE_M)
//@ plain, append: tune SPLIT_K: 1 2 4
//@ head:   consts SPLIT_K: 1              // a segment needs finished sums
//@ plain, append: order SPLIT_K
//@ sums    linear = slices SPLIT_K
//@ plain, append: prefer SPLIT_K=4 if N * ROW_TILES <= 2048 && K >= 8192
//@ plain, append: prefer SPLIT_K=1 if BUCKET > 256 && BUCKET <= 384 && N > 4224
//@ plain, append: prefer SPLIT_K=2 if N * ROW_TILES <= 14784
//@ plain, append: prefer SPLIT_K=1
//    CLUSTERS run at once, ACROSS in a row of tiles. EVEN: the width that gives them the same number of columns in each round.
//@ consts  CLUSTERS: SPLIT_K == 1 ? 132 : SPLIT_K == 2 ? 66 : 30  ACROSS: max(1, CLUSTERS / ROW_TILES)
//    A lane has registers for 128 sums, but not beside a residual.
//@ consts  WIDEST: WARPGROUPS == 4 ? 128 : WARPGROUPS == 3 ? APPEND ? 128 : ROW_TILES > 1 ? 224 : SEGMENTS ? 168 : 160 : RES && SPLIT_K == 1 ? 224 : 256  EVEN: ceil_div(N, ceil_div(N, ACROSS * WIDEST) * ACROSS)
//@ consts  EVEN_N: EVEN <= 32 ? 32 : EVEN <= 48 && SPLIT_K <= 2 ? 48 : EVEN <= 64 ? 64 : EVEN <= 96 ? 96 : EVEN <= 112 && SPLIT_K <= 2 ? 112 : round_up(EVEN, 32)
//    A segment has at least 96 columns (FTX_SEGMENTS).
//@ head:   tune TILE_N: 96 112 128 160 168 192 224 256
//@ head:   prefer TILE_N=168 if WARPGROUPS == 3
//@ head:   prefer TILE_N=224 if WARPGROUPS == 2
//@ head:   prefer TILE_N=112
//@ plain, append: tune TILE_N: EVEN_N 32 48 64 96 112 128 160 192 224 256
//@ plain, append: prefer TILE_N=EVEN_N
//    More registers for a thread: q, k, v of 256 rows take 24 us in place of 29.
//@ consts  GIVE: (WARPGROUPS == 3 && TILE_N > 168) || (WARPGROUPS == 4 && APPEND && TILE_N > 64) ? 1 : 0
//@ consts  SLOT_BYTES: (TILE_M + TILE_N) * 128
//@ consts  STAGES: min(16, (SMEM - BESIDE_RING) / SLOT_BYTES)
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  SUMS     (SPLIT_K - 1) * TILE_M * (TILE_N / SPLIT_K) * 4 over RING  // received from the other slices
//@ shared  BARRIERS 33 * 8                      // full and empty of each of up to 16 slots; sums received
//@ tiled   x 64
//@ tiled   w TILE_N
//@ needs   TMA CLUSTER WGMMA
//@ fits    sizeof(x) == 2 && X == W && N % 8 == 0 && K % 8 == 0
//@ plain, append: fits X == Y
//@ head:   fits Y == fp32 && logits(y) && !FIXED
//@ append: fits X == KV && E % 8 == 0
//@ fits    TILE_N <= WIDEST && TILE_N % (8 * SPLIT_K) == 0 && SPLIT_K <= ceil_div(K, 64)
//    Logits are those of a head.
//@ plain, append: fits (BUCKET > 0 || FIXED) && T_MAX > (FIXED && N > 8192 ? 32 : 64) && logits(y) == 0
//@ head:   fits BUCKET > 0 && M > 64
//    With K < 1024 linear_tile is the faster up to 256 rows.
//@ head:   prefer other if M <= (K < 1024 ? 256 : 128) || N < 16384
//    Small layers are linear_tile's in decode programs, whose blocks leave room for those of the next kernel, and cuBLASLt's in
//    prompts.
//@ plain, append: prefer other if !FIXED && (ENCODE || N < 2048 || K < 2048)
//@ launch  grid min(SPLIT_K > 1 ? 65535 : SMS, ceil_div(M, TILE_M) * ceil_div(N, TILE_N)) * SPLIT_K   block 128 * WARPGROUPS + (GIVE ? 128 : 32)
//@ moves   2 * N * K + 2 * M * (K + N)
//@ flops   2 * M * N * K
//@ rate    65
//@ matmul  yes
//@ overlap yes
#include "linear_batch.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@, ROWS_S = @ROWS_S@, SEGMENTS = @SEGMENTS@;
//@ append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int WARPGROUPS = @WARPGROUPS@, TILE_N = @TILE_N@, SPLIT_K = @SPLIT_K@, GIVE = @GIVE@;
    static constexpr int STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
extern "C" __global__ void CLUSTER(Config::SPLIT_K) __launch_bounds__(128 * Config::WARPGROUPS + (Config::GIVE ? 128 : 32), 1)
//@ plain, append: text @NAME@(const LinearArgs a) { linear_batch<Config>(a); }
//@ head:   text @NAME@(const LinearHeadArgs a) { linear_batch<Config>(a); }
