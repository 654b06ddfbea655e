// linear_tile_append.cu - contract and instance of linear_tile.cuh: columns of many rows rotated and appended to the cache, on sm_90a
//@ kernel  linear_tile_append
//@ rank    300
//@ args    t:fp32 $token $pages $k $v x[M,K] w[N,K] b[N]:fp32 r[M,N] $step -> y
//@ match   y = append(linear(x, w, b?), t?)
//@ consts  X: type(x)  W: type(w)  Y: type(y)  KV: type($k)  N: N  K: K  BIAS: has(b)
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)
//    The tiles of linear_tile.
//@ consts  FEW: T_MAX <= 256  MID: FEW || (T_MAX <= 1024 && N < 2048)  DEEP: FEW && K >= 2048  BROAD: FEW && !DEEP && N >= 3072
//@ consts  SPARE: round_up(N, 112) - N  MT: FEW && !DEEP ? 64 : 128
//@ consts  NT: DEEP && T_MAX <= 128 ? 32 : BROAD ? 96 : MID ? 64 : 32 * SPARE <= N ? 112 : 128
//@ consts  CM: MID ? 1 : 2  CK: T_MAX > 512 || !MID || K < 256 || BROAD ? 1 : DEEP ? 4 : 2  WGS: MID ? 1 : 2
//@ consts  STAGES: DEEP ? 8 : BROAD ? 9 : MID ? 6 : 5
//@ consts  BYTES: STAGES * (MT + NT) * 128 + WGS * NT * 4 + (2 * STAGES + 1) * 8
//@ fits    sizeof(x) == 2 && X == W && X == Y && X == KV && ARCH == 90 && ARCH_A == 1
//@ fits    N % 8 == 0 && K % 8 == 0 && E % 8 == 0 && T_MAX > 64 && DECODE && BUCKET > 0
//@ tiled   x MT
//@ tiled   w NT / CM
//@ launch  grid min(MID ? 65535 : SMS / (CM * CK), ceil_div(M, MT * CM) * ceil_div(N, NT)) * CM * CK   block 128 * WGS + 32   smem BYTES
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
    static constexpr int MT = @MT@, NT = @NT@, CM = @CM@, CK = @CK@, WGS = @WGS@, TEAM = 1, STAGED = 0, STAGES = @STAGES@, SMEM = @BYTES@;
    static constexpr int XSTAT = 0, RSTAT = 0, STATS = 0;
    static constexpr float EPS = 0.0f, REPS = 0.0f;
};
extern "C" __global__ void CLUSTER(Config::CM * Config::CK) __launch_bounds__(128 * Config::WGS + 32, 1)
@NAME@(const TileAppendArgs a) { linear_tile<Config>(a); }
