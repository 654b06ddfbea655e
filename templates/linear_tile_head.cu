// linear_tile_head.cu - contract and instance of linear_tile.cuh: logits of many rows on sm_90a, and their segments
//
// Chosen for the LM head in decode programs of more than 64 tokens, with a vocabulary of 3,072 and more. Up to 64 rows
// linear_hopper_head is; a smaller vocabulary goes to linear_tile.
//@ kernel  linear_tile_head
//@ rank    310
//@ args    $params x[M,K] w[N,K] b[N]:fp32 r[M,N] $step -> y[M,N] $segments
//@ match   y = linear(x, w, b?)
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  BIAS: has(b)  ROWS_S: rows(x)  SEGMENTS: 1
//    N is large, so few rows still make many tiles. A cluster reads w once for all its rows. Tiles are as high as the rows
//    allow, and as wide as fills the last round of the SMs. K is never split: a segment needs finished sums.
//@ consts  SMALL_M: T_MAX <= 128  TILE_M: SMALL_M ? 64 : 128  TILE_N: SMALL_M ? 128 : T_MAX <= 256 ? 96 : 112  CLUSTER_M: 2  WARPGROUPS: 2
//@ consts  STAGES: SMALL_M ? 8 : TILE_N == 96 ? 6 : 5  BYTES: STAGES * (TILE_M + TILE_N) * 128 + WARPGROUPS * TILE_N * 4 + (2 * STAGES + 1) * 8
//@ fits    sizeof(x) == 2 && X == W && Y == fp32 && ARCH == 90 && ARCH_A == 1 && logits(y)
//@ fits    N % 8 == 0 && K % 8 == 0 && T_MAX > 64 && N >= 3072 && DECODE && BUCKET > 0
//@ tiled   x TILE_M
//@ tiled   w TILE_N / CLUSTER_M
//@ launch  grid min(SMS / CLUSTER_M, ceil_div(M, TILE_M * CLUSTER_M) * ceil_div(N, TILE_N)) * CLUSTER_M   block 128 * WARPGROUPS + 32   smem BYTES
//@ moves   2 * N * K + 2 * M * K
//@ flops   2 * M * N * K
//@ rate    650
//@ matmul  yes
//@ overlap yes
#include "linear_tile.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int N = @N@, K = @K@, BIAS = @BIAS@, ACT = 0, RES = 0, ROWS_S = @ROWS_S@;
    static constexpr int SEGMENTS = @SEGMENTS@;
    static constexpr int TILE_M = @TILE_M@, TILE_N = @TILE_N@, CLUSTER_M = @CLUSTER_M@, SPLIT_K = 1, WARPGROUPS = @WARPGROUPS@, TILE_WARPGROUPS = 1, SMEM_EPILOGUE = 0, STAGES = @STAGES@, SMEM = @BYTES@;
    static constexpr int X_STATS = 0, R_STATS = 0, Y_STATS = 0;
    static constexpr float EPS = 0.0f, R_EPS = 0.0f;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_M) __launch_bounds__(128 * Config::WARPGROUPS + 32, 1)
@NAME@(const TileHeadArgs a) { linear_tile<Config>(a); }
