// expert_hopper.cu - contracts and instances of expert_hopper.cuh: linear layers of experts in 16 bits, for many rows, on sm_90a
//@ kernel  expert_hopper
//@ variant linear | SUM=0
//@ variant sum    | SUM=1 ACT=0 GLU=0
//@ linear: rank 506
//@ sum:    rank 536
//@ linear: args x[M,K] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a -> y
//@ sum:    args x[M,RK] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a -> y
//@ linear: match y = expert_linear(x, r:by_expert, w, b?)        | ACT=0 GLU=0
//@ linear: match y = act(expert_linear(x, r:by_expert, w, b?))   | ACT=act.kind GLU=0
//@ linear: match y = glu(expert_linear(x, r:by_expert, w, b?))   | ACT=glu.kind GLU=1
//@ sum:    match y = expert_sum(x, r:by_expert, w, b?)
//@ sum:    gives y as parts R
//@ consts  T: type(x)  OUT: type(y)  W: type(w)  X: param(starts)  N: XN / X  K: K  R: R2 / 2  BIAS: has(b)
//@ sum:    fits    RK == R * K
//@ consts  SLOT_BYTES: 128 * 128 + 160 * 128  STAGES: min(6, (SMEM - BESIDE_RING) / SLOT_BYTES)
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  BARRIERS 128
//@ shared  COUNT    8                 // of tiles
//    TILES: of each expert that is hit one that is not full, and the full ones.
//    Programs of up to 64 rows share an instance.
//@ shared  TILES    12 * (min(max(M_MAX, 64) * R, X) + max(M_MAX, 64) * R / 160)
//@ shared  PAIRS    4 * 160 * 4
//@ shared  WEIGHTS  SUM * 4 * 160 * 4 align 8
//@ tiled   w 128
//@ needs   TMA WGMMA
//@ fits    T == W && OUT == T && sizeof(x) == 2 && XN % X == 0 && K % 8 == 0 && N % 8 == 0 && (!GLU || N % 16 == 0) && STAGES >= 4
//    Up to 64 rows only where units of 128 columns fill the GPU four times: few, small copies cost expert_few 3 to 5 % there.
//@ linear: prefer  other if M_MAX <= 64 && (M_MAX <= 8 || min(M_MAX * R, X) * N < 65536)
//@ launch  grid SMS   block 384
//@ moves   X * M * R * (M * R + 2 * X) / (M * R * (M * R + 2 * X) + 2 * X * X) * N * K * sizeof(w)
//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.
//@ flops   2 * (M * R + 16 * min(M * R, X)) * N * K
//@ rate    50
//@ matmul  yes
//@ overlap waiting
#include "expert_hopper.cuh"

struct Config {
    using T = @T@;
    using OUT = @OUT@;
    static constexpr int X = @X@, N = @N@, K = @K@, R = @R@, BIAS = @BIAS@;
    static constexpr int SUM = @SUM@, ACT = @ACT@, GLU = @GLU@;
    static constexpr int STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
extern "C" __global__ void __launch_bounds__(384, 1)
@NAME@(const ExpertArgs a) { expert_hopper<Config>(a); }
