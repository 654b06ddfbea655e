// expert_q_hopper.cu - contracts and instances of expert_q_hopper.cuh: linear layers of experts with quantised weights, for many
// rows, on sm_90a
//@ kernel  expert_q_hopper
//@ variant linear  | SUM=0 FP8=0
//@ variant sum     | SUM=1 ACT=0 GLU=0 FP8=0
//@ variant fp8     | SUM=0 FP8=1
//@ variant fp8_sum | SUM=1 ACT=0 GLU=0 FP8=1
//@ linear:  rank 815
//@ sum:     rank 816
//@ fp8:     rank 817
//@ fp8_sum: rank 818
//@ linear, fp8:  args x[M,K] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a -> y
//@ sum, fp8_sum: args x[M,RK] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a -> y
//@ linear, fp8:  match y = expert_linear(x, r:by_expert, w:m16k16, b?)                      | ACT=0 GLU=0
//@ linear, fp8:  match y = act(expert_linear(x, r:by_expert, w:m16k16, b?))                 | ACT=act.kind GLU=0
//@ linear, fp8:  match y = glu(expert_linear(x, r:by_expert, w:m16k16, b?))                 | ACT=glu.kind GLU=1
//@ sum, fp8_sum: match y = expert_sum(x, r:by_expert, w:m16k16, b?)
//@ sum, fp8_sum: gives y as parts R
//@ consts  T: type(x)  OUT: type(y)  X: param(starts)  N: XN / X  K: K  R: R2 / 2  BIAS: has(b)
//@ consts  BITS: type(w) == int4 ? 4 : 8  GROUP: group(w)  SCALES: scales(w)  BRICK_K: 256
//@ sum, fp8_sum: fits    RK == R * K
//    AHEAD: bricks of a producer's ring.
//@ consts  BRICK_BYTES: BRICK_K * 2 * BITS + 16 * BRICK_K / max(GROUP, 1) * (SCALES == 0 ? 2 : SCALES == 1 ? 3 : SCALES == 2 ? 4 : 8)  AHEAD: 3
//@ consts  SLOT_BYTES: 128 * 128 + 160 * 128  STAGES: min(6, (SMEM - BESIDE_RING) / SLOT_BYTES)
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  CODES    8 * AHEAD * BRICK_BYTES
//@ shared  BARRIERS 384               // of up to 6 slots, of 8 AHEAD bricks
//@ shared  COUNT    8                 // of tiles
//    TILES: of each expert that is hit one that is not full, and the full ones.
//@ shared  TILES    12 * (min(M_MAX * R, X) + M_MAX * R / 160)
//@ shared  PAIRS    4 * 160 * 4
//@ shared  WEIGHTS  SUM * 4 * 160 * 4 align 8
//@ needs   TMA WGMMA
//@ fits    (type(w) == fp8) == FP8
//@ fits    OUT == T && sizeof(x) == 2 && XN % X == 0 && N % 16 == 0 && K % 64 == 0 && GROUP >= 32 && STAGES >= 3
//@ prefer  other if M_MAX <= 128
//@ launch  grid SMS   block 512
//@ moves   X * M * R * (M * R + 2 * X) / (M * R * (M * R + 2 * X) + 2 * X * X) * N * K * BITS / 8
//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.
//@ flops   2 * (M * R + 16 * min(M * R, X)) * N * K
//@ rate    45
//@ matmul  yes
//@ overlap waiting
#include "expert_q_hopper.cuh"
//@ fp8, fp8_sum: text #include "body/e4m3.cuh"

struct Config {
    using T = @T@;
    using OUT = @OUT@;
    static constexpr int X = @X@, N = @N@, K = @K@, R = @R@, BIAS = @BIAS@;
    static constexpr int SUM = @SUM@, ACT = @ACT@, GLU = @GLU@;
    static constexpr int BITS = @BITS@, GROUP = @GROUP@, SCALES = @SCALES@, BRICK_K = @BRICK_K@, BLOCK_M = 8, M = BLOCK_M;
    static constexpr int AHEAD = @AHEAD@, STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
//@ fp8, fp8_sum: text template <> struct Codes<Config> : E4m3Fragments<Config> {};
extern "C" __global__ void __launch_bounds__(512, 1)
@NAME@(const ExpertArgs a) { expert_q_hopper<Config>(a); }
