// expert_tile.cu - contracts and instances of expert_tile.cuh: linear layers of experts in 16 bits, for many rows
//@ kernel  expert_tile
//@ variant linear | SUM=0 RES=0
//@ variant sum    | SUM=1 ACT=0 GLU=0
//@ linear: rank 530
//@ sum:    rank 540
//@ linear: args x[M,K] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a -> y
//@ sum:    args x[M,RK] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a:type(x) -> y
//@ linear: match y = expert_linear(x, r:by_expert, w, b?)        | ACT=0 GLU=0
//@ linear: match y = act(expert_linear(x, r:by_expert, w, b?))   | ACT=act.kind GLU=0
//@ linear: match y = glu(expert_linear(x, r:by_expert, w, b?))   | ACT=glu.kind GLU=1
//@ sum:    match y = expert_sum(x, r:by_expert, w, b?)           | RES=0
//@ sum:    match y = add(expert_sum(x, r:by_expert, w, b?), a)   | RES=1
//@ consts  T: type(x)  OUT: type(y)  W: type(w)  X: param(starts)  N: XN / X  K: K  R: R2 / 2  BIAS: has(b)
//@ linear: fits    OUT == T
//@ sum:    fits    RK == R * K
//@ fits    T == W && sizeof(x) == 2 && XN % X == 0 && K % 8 == 0 && N % 2 == 0
//    A stage: 64 rows of x and 128 of w, 64 k and 16 bytes more of each.
//@ consts  STAGE_BYTES: 192 * 144
//@ shared  RING     3 * STAGE_BYTES
//@ shared  PAIRS    64 * 4
//@ shared  READY    64 * 4
//@ sum:    scratch parts 4 * M_MAX * R * N
//@ sum:    zeroed arrived 4 * M_MAX * ceil_div(N, 128)
//    Tiles of 64 pairs: each expert that is hit has at most one that is not full.
//@ launch  grid ceil_div(N, 128), min(M * R, X) + M * R / 64   block 256
//@ moves   X * M * R * (M * R + 2 * X) / (M * R * (M * R + 2 * X) + 2 * X * X) * N * K * sizeof(w)
//@ flops   2 * M * R * N * K
//@ rate    20
//@ matmul  yes
//@ overlap waiting
#include "expert_tile.cuh"

struct Config {
    using T = @T@;
    using OUT = @OUT@;
    static constexpr int X = @X@, N = @N@, K = @K@, R = @R@, BIAS = @BIAS@;
    static constexpr int SUM = @SUM@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, STAGE_BYTES = @STAGE_BYTES@, @REGIONS@;
};
extern "C" __global__ void __launch_bounds__(256)
//@ linear: text @NAME@(const ExpertArgs a) { expert_tiles<Config>(a); }
//@ sum:    text @NAME@(const ExpertSumArgs a) { expert_tiles<Config>(a); }
