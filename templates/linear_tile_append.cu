// linear_tile_append.cu - contract and instance of linear_tile.cuh: q, k and v of many rows on sm_90a, with RoPE, k and
// v into the cache
//
// Chosen for 16-bit weights in decode programs of more than 64 tokens. Up to 64 linear_hopper_append is; prompts go to
// cuBLASLt and append.
//@ kernel  linear_tile_append
//@ rank    300
//@ args    t:fp32 $token $pages $k $v x[M,K] w[N,K] b[N]:fp32 r[M,N] $step -> y
//@ match   y = append(linear(x, w, b?), t?)
//@ consts  X: type(x)  W: type(w)  Y: type(y)  KV: type($k)  N: N  K: K  BIAS: has(b)
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)
//    Tiles as in linear_tile.cu, where the constants are explained.
//@ consts  SMALL_M: T_MAX <= 256  ONE_TILE: SMALL_M || (T_MAX <= 1024 && N < 2048)  LONG_K: SMALL_M && K >= 2048  WIDE_N: SMALL_M && !LONG_K && N >= 3072
//@ consts  PAD_112: round_up(N, 112) - N  TILE_M: SMALL_M && !LONG_K ? 64 : 128
//@ consts  TILE_N: LONG_K && T_MAX <= 128 ? 32 : WIDE_N ? 96 : ONE_TILE ? 64 : 32 * PAD_112 <= N ? 112 : 128
//@ consts  CLUSTER_M: ONE_TILE ? 1 : 2  SPLIT_K: T_MAX > 512 || !ONE_TILE || K < 256 || WIDE_N ? 1 : LONG_K ? 4 : 2  WARPGROUPS: ONE_TILE ? 1 : 2
//@ consts  STAGES: LONG_K ? 8 : WIDE_N ? 9 : ONE_TILE ? 6 : 5
//@ consts  BYTES: STAGES * (TILE_M + TILE_N) * 128 + WARPGROUPS * TILE_N * 4 + (2 * STAGES + 1) * 8
//@ fits    sizeof(x) == 2 && X == W && X == Y && X == KV && ARCH == 90 && ARCH_A == 1
//@ fits    N % 8 == 0 && K % 8 == 0 && E % 8 == 0 && T_MAX > 64 && DECODE && BUCKET > 0
//@ tiled   x TILE_M
//@ tiled   w TILE_N / CLUSTER_M
//@ launch  grid min(ONE_TILE ? 65535 : SMS / (CLUSTER_M * SPLIT_K), ceil_div(M, TILE_M * CLUSTER_M) * ceil_div(N, TILE_N)) * CLUSTER_M * SPLIT_K   block 128 * WARPGROUPS + 32   smem BYTES
//@ moves   2 * N * K + 2 * M * (K + N)
//@ flops   2 * M * N * K
//@ rate    650
//@ matmul  yes
//@ overlap yes
#include "linear_tile.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    using KV = @KV@;
    static constexpr int N = @N@, K = @K@, BIAS = @BIAS@, ACT = 0, RES = 0, ROWS_S = 0, SEGMENTS = 0;
    static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int TILE_M = @TILE_M@, TILE_N = @TILE_N@, CLUSTER_M = @CLUSTER_M@, SPLIT_K = @SPLIT_K@, WARPGROUPS = @WARPGROUPS@, TILE_WARPGROUPS = 1, SMEM_EPILOGUE = 0, STAGES = @STAGES@, SMEM = @BYTES@;
    static constexpr int X_STATS = 0, R_STATS = 0, Y_STATS = 0;
    static constexpr float EPS = 0.0f, R_EPS = 0.0f;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_M * Config::SPLIT_K) __launch_bounds__(128 * Config::WARPGROUPS + 32, 1)
@NAME@(const TileAppendArgs a) { linear_tile<Config>(a); }
