// linear_tile_head.cu - contract and instance of linear_tile.cuh: logits of many rows and parts of them, on sm_90a
//@ kernel  linear_tile_head
//@ rank    310
//@ args    $params x[M,K] w[N,K] b[N]:fp32 r[M,N] $step -> y[M,N] $segments
//@ match   y = linear(x, w, b?)
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  BIAS: has(b)  ROWS_S: rows(x)  SEGMENTS: 1
//    Few rows never mean few tiles: N is large. So w is read once for all rows of a cluster, by tiles as high as the rows
//    allow, and as wide as makes the last round a full one. Never parts of K, so that a block has whole columns.
//@ consts  FEW: T_MAX <= 128  MT: FEW ? 64 : 128  NT: FEW ? 128 : T_MAX <= 256 ? 96 : 112  CM: 2  WGS: 2
//@ consts  STAGES: FEW ? 8 : NT == 96 ? 6 : 5  BYTES: STAGES * (MT + NT) * 128 + WGS * NT * 4 + (2 * STAGES + 1) * 8
//@ fits    sizeof(x) == 2 && X == W && Y == fp32 && ARCH == 90 && ARCH_A == 1 && logits(y)
//@ fits    N % 8 == 0 && K % 8 == 0 && T_MAX > 64 && N >= 3072 && DECODE && BUCKET > 0
//@ tiled   x MT
//@ tiled   w NT / CM
//@ launch  grid min(SMS / CM, ceil_div(M, MT * CM) * ceil_div(N, NT)) * CM   block 128 * WGS + 32   smem BYTES
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
    static constexpr int MT = @MT@, NT = @NT@, CM = @CM@, CK = 1, WGS = @WGS@, TEAM = 1, STAGED = 0, STAGES = @STAGES@, SMEM = @BYTES@;
    static constexpr int XSTAT = 0, RSTAT = 0, STATS = 0;
    static constexpr float EPS = 0.0f, REPS = 0.0f;
};
extern "C" __global__ void CLUSTER(Config::CM) __launch_bounds__(128 * Config::WGS + 32, 1)
@NAME@(const TileHeadArgs a) { linear_tile<Config>(a); }
