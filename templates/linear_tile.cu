// linear_tile.cu - contract and instance of linear_tile.cuh: encoders' products in 16 bits on sm_90a
//
// Measured on the H200, BERT-base's matrices (tests/gpu/tile_check.cu, us; cuBLASLt's best of 24 beside):
//
//   2,240 rows   qkv 13.4 (13.8)   out 6.8 (7.2)   up with GELU 20.5 (19.9 without)   down 17.5 (17.2)
//   128 rows     3.4 (4.7)         2.8 (3.7)       4.2 (4.5)                          5.0 (17.5)
//
// Many rows: pairs of blocks share w, 128 x 128 for each warpgroup. Few: small tiles fill the SMs, and parts of K.
// Decoders keep the library for their prompts, whose rows may be few in a program for many.
//@ kernel  linear_tile
//@ device  cuda
//@ args    x[M,K] w[N,K] b[N]:fp32 r[M,N] $step -> y[M,N]
//@ match   y = linear(x, w, b?)            | ACT=0 RES=0
//@ match   y = act(linear(x, w, b?))       | ACT=act.kind RES=0
//@ match   y = add(linear(x, w, b?), r)    | ACT=0 RES=1
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  BIAS: has(b)  ROWS_S: rows(x)
//@ consts  FEW: T_MAX <= 256  MID: FEW || (T_MAX <= 1024 && N < 2048)
//@ consts  MT: FEW ? 64 : 128  NT: MID ? 64 : 128  CM: MID ? 1 : 2  CN: 1  WGS: MID ? 1 : 2
//@ consts  CK: T_MAX > 512 || !MID || K < 256 ? 1 : FEW && K >= 2048 ? 4 : N < 3072 ? 2 : 1
//@ consts  STAGES: MID ? 6 : 5  SLOT: (MT + NT) * 128  BYTES: STAGES * SLOT + WGS * NT * 4 + (2 * STAGES + 1) * 8
//@ consts  SHARE: CM * CN * CK
//@ fits    sizeof(x) == 2 && X == W && (X == Y || (Y == fp32 && !RES)) && ARCH == 90 && ARCH_A == 1
//@ fits    N % 8 == 0 && K % 8 == 0 && T_MAX > 64 && ENCODE
//@ tiled   x MT / CN
//@ tiled   w NT / CM
//@ tiled   r CK == 1 ? MT : 0
//@ launch  grid min(MID ? 65535 : SMS / SHARE, ceil_div(M, MT * CM) * ceil_div(N, NT * CN)) * SHARE   block 128 * WGS + 32   smem BYTES
//@ moves   2 * N * K + 2 * M * (K + N)
//@ flops   2 * M * N * K
//@ rate    650
//@ matmul  yes
//@ overlap yes
#include "linear_tile.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int N = @N@, K = @K@, BIAS = @BIAS@, ACT = @ACT@, RES = @RES@, ROWS_S = @ROWS_S@;
    static constexpr int MT = @MT@, NT = @NT@, CM = @CM@, CN = @CN@, CK = @CK@, WGS = @WGS@, STAGES = @STAGES@, SMEM = @BYTES@;
};
extern "C" __global__ void CLUSTER(Config::CM * Config::CN * Config::CK) __launch_bounds__(128 * Config::WGS + 32, 1)
@NAME@(const TileArgs a) { linear_tile<Config>(a); }
