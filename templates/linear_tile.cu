// linear_tile.cu - contract and instance of linear_tile.cuh: encoders' products in 16 bits on sm_90a
//
// Measured on the H200 without norms, BERT-base's matrices (tests/gpu/tile_check.cu, us; cuBLASLt's best of 24 beside;
// docs/decisions/002-norms-folded-into-weights.md says what norms cost in them):
//
//   2,240 rows   qkv 13.3 (13.8)   out 6.5 (7.2)   up with GELU 19.2 (22.0 with tanh's)   down 16.7 (17.2)
//
// Many rows: pairs of blocks share w, 128 x 128 for each warpgroup, or 128 x 112 where that leaves little of N over:
// the last round of the SMs is seldom full, and shorter rounds lose less. Few: small tiles fill the SMs, and parts of K.
// Where there are most, the power limit sets the clock, and fewer bytes count: products with a residual take 128 x 256
// by both warpgroups together (49,152 rows at 700 W, out 534 TFLOP/s for 510, down 632 for 599; up with GELU 490 for
// 519, qkv 600 for 657: their tiles in turn).
// Up to 128 tokens of texts, tiles are chosen by the time of the whole model: there a kernel whose blocks find
// room beside those of the kernel in front has its weights at hand, which says more than its time in a row of its kind.
// Decoders keep the library for their prompts, whose rows may be few in a program for many; in their decode
// programs of 128 to 512 rows products stand here.
//@ kernel  linear_tile
//@ rank    290
//@ args    rg[N]:fp32 rc[N]:fp32 xs:stats(x) rs:stats(r) x[M,K] w[N,K] b[N]:fp32 r[M,N] $step -> y[M,N] ys:stats(y)
//@ folded  w b g c
//@ leaves  ys STATS
//@ match   y = linear(x, w, b?)                             | ACT=0 RES=0 EPS=0 REPS=0
//@ match   y = act(linear(x, w, b?))                        | ACT=act.kind RES=0 EPS=0 REPS=0
//@ match   y = add(linear(x, w, b?), r)                     | ACT=0 RES=1 EPS=0 REPS=0
//@ match   y = linear(layernorm(x, g, c), w, b?)            | ACT=0 RES=0 EPS=layernorm.eps REPS=0
//@ match   y = act(linear(layernorm(x, g, c), w, b?))       | ACT=act.kind RES=0 EPS=layernorm.eps REPS=0
//@ match   y = add(linear(x, w, b?), layernorm(r, rg, rc))  | ACT=0 RES=1 EPS=0 REPS=layernorm.eps
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  BIAS: has(b)  ROWS_S: rows(x)
//@ consts  FEW: T_MAX <= 256  MID: FEW || (T_MAX <= 1024 && N < 2048)  DEEP: FEW && K >= 2048  BROAD: FEW && !DEEP && N >= (ENCODE && T_MAX > 128 ? 2048 : 3072)
//    Up to 128 tokens of texts, 256 for few columns, parts of K are for many k alone: to send sums takes a block 0.8 us,
//    8 steps of K. Up to 16, many columns are read in fewer, wider tiles.
//@ consts  TEXT: ENCODE && (T_MAX <= 128 || (FEW && N < 1024 && K <= 1024))  TEXT_NT: DEEP || (T_MAX <= 16 && BROAD) ? 64 : 48
//@ consts  TEXT_CK: DEEP ? 4 : K > 1024 ? 2 : 1  TEXT_STAGES: DEEP ? 8 : TEXT_NT == 64 ? 6 : 7
//    257 to 512: 64 x 96, where two parts of K for each tile find room at once.
//@ consts  PAGE: ENCODE && !FEW && T_MAX <= 512 && ceil_div(T_MAX, 64) * ceil_div(N, 96) <= 66
//@ consts  SPARE: round_up(N, 112) - N  MT: (FEW && (!DEEP || TEXT)) || PAGE ? 64 : 128
//@ consts  TEAM: !MID && RES && T_MAX > 16384 && 32 * (round_up(N, 256) - N) <= N ? 2 : 1  WIDE: TEAM == 2 ? 256 : T_MAX <= 16384 && 32 * SPARE <= N ? 112 : 128
//@ consts  NT: TEXT ? TEXT_NT : PAGE ? 96 : DEEP && T_MAX <= 128 ? 32 : BROAD ? 96 : MID ? 64 : WIDE
//@ consts  CM: MID ? 1 : 2  CK: TEXT ? TEXT_CK : PAGE ? (K > 1024 ? 2 : 1) : T_MAX > 512 || !MID || K < 256 || BROAD ? 1 : DEEP ? 4 : 2  WGS: MID ? 1 : 2
//@ consts  STAGED: WGS == 2 && sizeof(Y) == 2  STAGES: TEXT ? TEXT_STAGES : PAGE ? 8 : TEAM == 2 ? 4 : DEEP ? 8 : BROAD && NT == 96 ? 9 : !MID ? 5 : FEW || N >= 1024 || !ENCODE ? 6 : 8
//@ consts  SLOT: max((MT + NT) * 128, CK == 1 && RES ? round_up(min(NT, 128), 64) * MT * 2 : 0)
//    Norms have no launch: who writes a row leaves its sums, by parts of STATS columns.
//@ consts  XSTAT: columns(xs)  RSTAT: columns(rs)  STATS: has(ys) ? min(NT / CK, 128) : 0  EPS: EPS  REPS: REPS
//@ fits    (!has(xs) || (XSTAT && BIAS)) && (!has(rs) || RSTAT) && (!STATS || (RES && sizeof(Y) == 2))
//@ consts  BYTES: STAGES * SLOT + (STAGED ? 16384 : 0) + WGS * NT * (RSTAT ? 8 : 4) + (2 * STAGES + 1) * 8
//@ consts  SHARE: CM * CK
//@ fits    sizeof(x) == 2 && X == W && (X == Y || (Y == fp32 && !RES)) && ARCH == 90 && ARCH_A == 1
//@ fits    N % 8 == 0 && K % 8 == 0 && (ENCODE || (T_MAX > 64 && DECODE && BUCKET > 0))
//    linear_tile_head does these.
//@ fits    logits(y) == 0 || N < 3072
//@ tiled   x MT
//@ tiled   w NT / CM
//@ tiled   r CK == 1 ? MT : 0
//@ launch  grid min(MID ? 65535 : SMS / SHARE, ceil_div(M, MT * CM) * ceil_div(N, NT)) * SHARE   block 128 * WGS + 32   smem BYTES
//@ moves   2 * N * K + 2 * M * (K + N)
//@ flops   2 * M * N * K
//@ rate    650
//@ matmul  yes
//@ overlap yes
#include "linear_tile.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int N = @N@, K = @K@, BIAS = @BIAS@, ACT = @ACT@, RES = @RES@, ROWS_S = @ROWS_S@, SEGMENTS = 0;
    static constexpr int MT = @MT@, NT = @NT@, CM = @CM@, CK = @CK@, WGS = @WGS@, TEAM = @TEAM@, STAGED = @STAGED@, STAGES = @STAGES@, SMEM = @BYTES@;
    static constexpr int XSTAT = @XSTAT@, RSTAT = @RSTAT@, STATS = @STATS@;
    static constexpr float EPS = @EPS@, REPS = @REPS@;
};
extern "C" __global__ void CLUSTER(Config::CM * Config::CK) __launch_bounds__(128 * Config::WGS + 32, 1)
@NAME@(const TileNormArgs a) { linear_tile<Config>(a); }
