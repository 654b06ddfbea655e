// linear_tile.cu - contracts and instance of linear_tile.cuh: linear layers of many rows on sm_90a
//
// Chosen for 16-bit weights in encode programs of any size, and in decode programs of 65 to 512 tokens for small layers (large
// ones: linear_batch.cu). Prompts of
// decoders go to cuBLASLt (matmul.cu): their programs take any number of rows, often few, and these tiles are chosen
// for T_MAX.
//
//   plain    activation or residual after; layer norms before and of the residual by row statistics
//   append   the joined q, k, v projection of decode programs with RoPE; k and v go to the KV cache
//   head     logits with a vocabulary of 3,072 and more, and their segments (body/segments.cuh), in programs of fixed size
//
// Measured on the H200 without norms, BERT-base's matrices (tests/gpu/tile_check.cu, us; in brackets the best of 24
// algorithms of cuBLASLt; docs/decisions/002-norms-folded-into-weights.md says what norms cost in them):
//
//   2,240 rows   qkv 13.3 (13.8)   out 6.5 (7.2)   up with GELU 19.2 (22.0 with its tanh form)   down 16.7 (17.2)
//
// How tiles are chosen, by rows (T_MAX):
//   above 1,024, or 257 and more with N >= 2,048: pairs of blocks share w, two pingpong warpgroups with tiles of 128 x 128,
//     or 128 x 112 if that pads N little: the last round of the SMs is seldom full, and shorter rounds lose less
//   above 16,384: the power limit sets the clock, so fewer bytes count. Products with a residual take 128 x 256 by both
//     warpgroups together (49,152 rows at 700 W: out 534 TFLOP/s, pingpong 510; down 632, pingpong 599; without a residual
//     pingpong is the faster: up with GELU 519, together 490; qkv 657, together 600)
//   fewer: each block has one tile (ONE_TILE), small enough to fill the SMs, and K is split
//   encoders up to 128: chosen by the time of the whole model. A block that fits beside those of the previous kernel has
//     its weights early, which matters more than the kernel's time by itself
//@ kernel  linear_tile
//@ variant plain  | SEGMENTS=0
//@ variant append | ACT=0 RES=0 ROWS_S=0 SEGMENTS=0 TILE_WARPGROUPS=1 SMEM_EPILOGUE=0 R_STATS=0 Y_STATS=0
//@ variant head   | ACT=0 RES=0 SPLIT_K=1 TILE_WARPGROUPS=1 SMEM_EPILOGUE=0 X_STATS=0 R_STATS=0 Y_STATS=0
//@ plain:  rank 290
//@ append: rank 300
//@ head:   rank 310
//@ plain:  args rg[N]:fp32 rc[N]:fp32 xs:row_stats(x) rs:row_stats(r) x[M,K] w[N,K] b[N]:fp32 r[M,N]:type(x) $step -> y[M,N] ys:row_stats(y)
//@ append: args t:fp32 $token $pages $k $v rg[N]:fp32 rc[N]:fp32 xs:row_stats(x) rs:row_stats(r) x[M,K] w[N,K] b[N]:fp32 r[M,N]:type(x) $step -> y
//@ head:   args $params x[M,K] w[N,K] b[N]:fp32 r[M,N]:type(x) $step -> y[M,N] $segments
//@ plain, append: folded w b g c
//@ plain:  gives y as row_stats Y_STATS
//@ head:   gives y as segments SEGMENTS
//@ plain:  match y = linear(x, w, b?)                             | ACT=0 RES=0 EPS=0 R_EPS=0
//@ plain:  match y = act(linear(x, w, b?))                        | ACT=act.kind RES=0 EPS=0 R_EPS=0
//@ plain:  match y = add(linear(x, w, b?), r)                     | ACT=0 RES=1 EPS=0 R_EPS=0
//@ plain:  match y = linear(layernorm(x:row_stats, g, c), w, b?)            | ACT=0 RES=0 EPS=layernorm.eps R_EPS=0
//@ plain:  match y = act(linear(layernorm(x:row_stats, g, c), w, b?))       | ACT=act.kind RES=0 EPS=layernorm.eps R_EPS=0
//@ plain:  match y = add(linear(x, w, b?), layernorm(r:row_stats, rg, rc))  | ACT=0 RES=1 EPS=0 R_EPS=layernorm.eps
//@ append: match y = append(linear(x, w, b?), t?)                        | EPS=0
//@ append: match y = append(linear(layernorm(x:row_stats, g, c), w, b?), t?)  | EPS=layernorm.eps
//@ head:   match y = linear(x, w, b?)
//@ plain:  consts X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  BIAS: has(b)  ROWS_S: rows(x)
//    SMALL_M: few rows. ONE_TILE: one tile a block. LONG_K: many steps for few tiles. WIDE_N: columns for all SMs.
//@ plain:  consts SMALL_M: T_MAX <= 256  ONE_TILE: SMALL_M || (T_MAX <= 1024 && N < 2048)
//@ plain:  consts LONG_K: SMALL_M && K >= 2048  WIDE_N: SMALL_M && !LONG_K && N >= (ENCODE && T_MAX > 128 ? 2048 : 3072)
//    Encoders up to 128 tokens (256 for few columns) split only a long K: sending sums takes a block 0.8 us, as long as 8
//    steps of K. Up to 16 tokens, many columns are read in fewer, wider tiles.
//@ plain:  consts ENC_SMALL: ENCODE && (T_MAX <= 128 || (SMALL_M && N < 1024 && K <= 1024))
//    Encoders of 257 to 512 tokens: 64 x 96, if all tiles, with K in two slices, run at once (132 SMs).
//@ plain:  consts ENC_MID: ENCODE && !SMALL_M && T_MAX <= 512 && ceil_div(T_MAX, 64) * ceil_div(N, 96) <= 66
//    PAD_112, PAD_256: columns that tiles of that width compute in vain.
//@ plain:  consts PAD_112: round_up(N, 112) - N  PAD_256: round_up(N, 256) - N
//@ plain:  tune TILE_M: 64 128  TILE_WARPGROUPS: 1 2  TILE_N: 32 48 64 96 112 128 256
//@ plain:  consts CLUSTER_M: ONE_TILE ? 1 : 2
//@ plain:  tune SPLIT_K: 1 2 4
//@ plain:  consts WARPGROUPS: ONE_TILE ? 1 : 2  SMEM_EPILOGUE: WARPGROUPS == 2 && sizeof(Y) == 2
//@ plain:  tune STAGES: 4 5 6 7 8 9
//@ plain:  order SPLIT_K
//@ plain:  prefer TILE_M=64  TILE_N=64  TILE_WARPGROUPS=1 SPLIT_K=4 STAGES=8 if ENC_SMALL && LONG_K
//@ plain:  prefer TILE_M=64  TILE_N=64  TILE_WARPGROUPS=1 SPLIT_K=2 STAGES=6 if ENC_SMALL && WIDE_N && T_MAX <= 16 && K > 1024
//@ plain:  prefer TILE_M=64  TILE_N=64  TILE_WARPGROUPS=1 SPLIT_K=1 STAGES=6 if ENC_SMALL && WIDE_N && T_MAX <= 16
//@ plain:  prefer TILE_M=64  TILE_N=48  TILE_WARPGROUPS=1 SPLIT_K=2 STAGES=7 if ENC_SMALL && K > 1024
//@ plain:  prefer TILE_M=64  TILE_N=48  TILE_WARPGROUPS=1 SPLIT_K=1 STAGES=7 if ENC_SMALL
//@ plain:  prefer TILE_M=64  TILE_N=96  TILE_WARPGROUPS=1 SPLIT_K=2 STAGES=8 if ENC_MID && K > 1024
//@ plain:  prefer TILE_M=64  TILE_N=96  TILE_WARPGROUPS=1 SPLIT_K=1 STAGES=8 if ENC_MID
//@ plain:  prefer TILE_M=128 TILE_N=32  TILE_WARPGROUPS=1 SPLIT_K=4 STAGES=8 if LONG_K && T_MAX <= 128
//@ plain:  prefer TILE_M=128 TILE_N=64  TILE_WARPGROUPS=1 SPLIT_K=4 STAGES=8 if LONG_K
//@ plain:  prefer TILE_M=64  TILE_N=96  TILE_WARPGROUPS=1 SPLIT_K=1 STAGES=9 if WIDE_N
//@ plain:  prefer TILE_M=64  TILE_N=64  TILE_WARPGROUPS=1 SPLIT_K=1 STAGES=6 if SMALL_M && K < 256
//@ plain:  prefer TILE_M=64  TILE_N=64  TILE_WARPGROUPS=1 SPLIT_K=2 STAGES=6 if SMALL_M
//@ plain:  prefer TILE_M=128 TILE_N=64  TILE_WARPGROUPS=1 STAGES=8 if ONE_TILE && ENCODE && N < 1024
//@ plain:  prefer TILE_M=128 TILE_N=64  TILE_WARPGROUPS=1 STAGES=6 if ONE_TILE
//@ plain:  prefer SPLIT_K=2 if ONE_TILE && T_MAX <= 512 && K >= 256
//@ plain:  prefer SPLIT_K=1
//@ plain:  prefer TILE_M=128 TILE_N=256 TILE_WARPGROUPS=2 STAGES=4 if RES && T_MAX > 16384 && 32 * PAD_256 <= N
//@ plain:  prefer TILE_M=128 TILE_N=112 TILE_WARPGROUPS=1 STAGES=5 if T_MAX <= 16384 && 32 * PAD_112 <= N
//@ plain:  prefer TILE_M=128 TILE_N=128 TILE_WARPGROUPS=1 STAGES=5
//    Slices of K: one block a tile, each with a step.
//@ plain:  fits SPLIT_K == 1 || (ONE_TILE && SPLIT_K <= ceil_div(K, 64))
//@ plain:  fits TILE_N % (8 * SPLIT_K) == 0 && TILE_N % (8 * CLUSTER_M) == 0 && TILE_WARPGROUPS <= WARPGROUPS
//    Two warpgroups have 64 rows of a tile each. A warpgroup has registers for 128 x 128 sums.
//@ plain:  fits TILE_WARPGROUPS == 2 ? TILE_M == 128 : TILE_M * TILE_N <= 128 * 128
//    The residual comes in steps of 128 columns.
//@ plain:  fits !RES || SPLIT_K > 1 || TILE_N <= 128 || (SMEM_EPILOGUE && TILE_WARPGROUPS == 2)
//@ plain:  consts SLOT_BYTES: max((TILE_M + TILE_N) * 128, SPLIT_K == 1 && RES ? round_up(min(TILE_N, 128), 64) * TILE_M * 2 : 0)
//    Norms need no launch: the kernel that writes a row writes its statistics too, over every Y_STATS columns.
//@ plain:  consts X_STATS: param(xs)  R_STATS: param(rs)  Y_STATS: has(ys) ? min(TILE_N / SPLIT_K, 128) : 0  EPS: EPS  R_EPS: R_EPS
//@ sums    linear = slices SPLIT_K
//@ needs   TMA CLUSTER WGMMA
//@ plain:  fits (!has(xs) || BIAS) && (!Y_STATS || (RES && sizeof(Y) == 2))
//@ plain:  consts CLUSTER_SIZE: CLUSTER_M * SPLIT_K
//@ plain:  fits sizeof(x) == 2 && X == W && (X == Y || (Y == fp32 && !RES))
//@ plain:  fits N % 8 == 0 && K % 8 == 0
//    16-bit results: another order of the bias, another activation.
//@ plain:  fits !FIXED || sizeof(Y) == 4
//@ plain:  prefer other if !ENCODE && (T_MAX <= 64 || (!FIXED && (!DECODE || BUCKET == 0)))
//    The logits of larger vocabularies are those of `head`.
//    Up to 64 tokens of a step have linear_swapped, which takes the statistics itself.
//@ plain:  prefer other if !ENCODE && T_MAX <= 64 && (has(xs) || has(rs) || has(ys))
//@ plain:  prefer other if !FIXED && logits(y) && N >= 3072
//    append: tiles as those of decode programs above.
//@ append: consts X: type(x)  W: type(w)  Y: type(y)  KV: type($k)  N: N  K: K  BIAS: has(b)  X_STATS: param(xs)  EPS: EPS
//@ append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)
//@ append: consts SMALL_M: T_MAX <= 256  ONE_TILE: SMALL_M || (T_MAX <= 1024 && N < 2048)  LONG_K: SMALL_M && K >= 2048  WIDE_N: SMALL_M && !LONG_K && N >= 3072
//@ append: consts PAD_112: round_up(N, 112) - N
//@ append: tune TILE_M: 64 128  TILE_N: 32 48 64 96 112 128
//@ append: consts CLUSTER_M: ONE_TILE ? 1 : 2
//@ append: tune SPLIT_K: 1 2 4
//@ append: consts WARPGROUPS: ONE_TILE ? 1 : 2
//@ append: tune STAGES: 4 5 6 7 8 9
//@ append: order SPLIT_K
//@ append: prefer TILE_M=128 TILE_N=32  SPLIT_K=4 STAGES=8 if LONG_K && T_MAX <= 128
//@ append: prefer TILE_M=128 TILE_N=64  SPLIT_K=4 STAGES=8 if LONG_K
//@ append: prefer TILE_M=64  TILE_N=96  SPLIT_K=1 STAGES=9 if WIDE_N
//@ append: prefer TILE_M=64  TILE_N=64  SPLIT_K=1 STAGES=6 if SMALL_M && K < 256
//@ append: prefer TILE_M=64  TILE_N=64  SPLIT_K=2 STAGES=6 if SMALL_M
//@ append: prefer TILE_M=128 TILE_N=64  SPLIT_K=2 STAGES=6 if ONE_TILE && T_MAX <= 512 && K >= 256
//@ append: prefer TILE_M=128 TILE_N=64  SPLIT_K=1 STAGES=6 if ONE_TILE
//@ append: prefer TILE_M=128 TILE_N=112 SPLIT_K=1 STAGES=5 if 32 * PAD_112 <= N
//@ append: prefer TILE_M=128 TILE_N=128 SPLIT_K=1 STAGES=5
//@ append: fits SPLIT_K == 1 || (ONE_TILE && SPLIT_K <= ceil_div(K, 64))
//@ append: fits TILE_N % (8 * SPLIT_K) == 0 && TILE_N % (8 * CLUSTER_M) == 0
//@ append: consts SLOT_BYTES: (TILE_M + TILE_N) * 128
//@ append: fits sizeof(x) == 2 && X == W && X == Y && X == KV && (!has(xs) || (BIAS && !FIXED))
//@ append: fits N % 8 == 0 && K % 8 == 0 && E % 8 == 0
//@ append: prefer other if T_MAX <= 64 || (!FIXED && (!DECODE || BUCKET == 0))
//@ head:   consts X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  BIAS: has(b)  ROWS_S: rows(x)  SEGMENTS: 1
//    N is large, so few rows still make many tiles. A cluster reads w once for all its rows. Tiles are as high as the rows
//    allow, and as wide as fills the last round of the SMs. K is never split: a segment needs finished sums.
//    HEAD_ROWS: rows that have logits.
//@ head:   consts HEAD_ROWS: rows(x) ? min(T_MAX, S_MAX) : T_MAX  SMALL_M: HEAD_ROWS <= 128
//@ head:   tune TILE_M: 64 128  TILE_N: 48 64 96 112 128
//@ head:   consts CLUSTER_M: 2  WARPGROUPS: 2
//@ head:   tune STAGES: 4 5 6 7 8 9
//@ head:   prefer TILE_M=64  TILE_N=128 STAGES=8 if SMALL_M
//@ head:   prefer TILE_M=128 TILE_N=96  STAGES=6 if HEAD_ROWS <= 256
//@ head:   prefer TILE_M=128 TILE_N=112 STAGES=5
//@ head:   consts SLOT_BYTES: (TILE_M + TILE_N) * 128
//@ head:   fits sizeof(x) == 2 && X == W && Y == fp32 && logits(y)
//@ head:   fits N % 8 == 0 && K % 8 == 0
//    With fixed sums nothing reads segments; logits are those of `plain`.
//@ head:   fits !FIXED
//@ head:   prefer other if (HEAD_ROWS <= 64 || N < 3072 || ENCODE || BUCKET == 0)
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  SUMS     (SPLIT_K - 1) * TILE_M * (TILE_N / SPLIT_K) * 4 over RING  // received from the other blocks of a tile
//@ shared  STAGING  SMEM_EPILOGUE * 8 * 2048                                   // 16 rows of 64 columns for each warp
//@ shared  VECTORS  WARPGROUPS * TILE_N * (R_STATS ? 8 : 4)                    // biases, and gains of the residual's norm
//@ shared  BARRIERS (2 * STAGES + 1) * 8                                       // of each slot: full, empty; sums received
//@ tiled   x TILE_M
//@ tiled   w TILE_N / CLUSTER_M
//@ plain:  tiled r SPLIT_K == 1 ? TILE_M : 0
//@ plain:  launch grid min(ONE_TILE ? 65535 : SMS / CLUSTER_SIZE, ceil_div(M, TILE_M * CLUSTER_M) * ceil_div(N, TILE_N)) * CLUSTER_SIZE   block 128 * WARPGROUPS + 32
//@ append: launch grid min(ONE_TILE ? 65535 : SMS / (CLUSTER_M * SPLIT_K), ceil_div(M, TILE_M * CLUSTER_M) * ceil_div(N, TILE_N)) * CLUSTER_M * SPLIT_K   block 128 * WARPGROUPS + 32
//@ head:   launch grid min(SMS / CLUSTER_M, ceil_div(M, TILE_M * CLUSTER_M) * ceil_div(N, TILE_N)) * CLUSTER_M   block 128 * WARPGROUPS + 32
//@ plain, append: moves 2 * N * K + 2 * M * (K + N)
//@ head:   moves 2 * N * K + 2 * M * K
//@ flops   2 * M * N * K
//@ rate    65
//@ matmul  yes
//@ overlap yes
#include "linear_tile.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append: text     using KV = @KV@;
    static constexpr int N = @N@, K = @K@, BIAS = @BIAS@, ACT = @ACT@, RES = @RES@, ROWS_S = @ROWS_S@, SEGMENTS = @SEGMENTS@;
//@ append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int TILE_M = @TILE_M@, TILE_N = @TILE_N@, CLUSTER_M = @CLUSTER_M@, SPLIT_K = @SPLIT_K@, WARPGROUPS = @WARPGROUPS@, TILE_WARPGROUPS = @TILE_WARPGROUPS@, SMEM_EPILOGUE = @SMEM_EPILOGUE@, STAGES = @STAGES@;
    static constexpr int SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
    static constexpr int X_STATS = @X_STATS@, R_STATS = @R_STATS@, Y_STATS = @Y_STATS@;
//@ plain:  text     static constexpr float EPS = @EPS@, R_EPS = @R_EPS@;
//@ append: text     static constexpr float EPS = @EPS@, R_EPS = 0.0f;
//@ head:   text     static constexpr float EPS = 0.0f, R_EPS = 0.0f;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_M * Config::SPLIT_K) __launch_bounds__(128 * Config::WARPGROUPS + 32, 1)
//@ plain:  text @NAME@(const TileNormArgs a) { linear_tile<Config>(a); }
//@ append: text @NAME@(const TileAppendArgs a) { linear_tile<Config>(a); }
//@ head:   text @NAME@(const TileHeadArgs a) { linear_tile<Config>(a); }
