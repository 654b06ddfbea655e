// experts.cu - contracts and instances of experts.cuh: linear layers of experts, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual
//@ kernel  expert
//@ variant linear | SUM=0 RES=0
//@ variant sum    | SUM=1 ACT=0 GLU=0
//@ linear: rank 510
//@ sum:    rank 520
//@ linear: args x[M,K] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a -> y
//@ sum:    args x[M,RK] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a:type(x) -> y
//@ linear: match y = expert_linear(x, r:by_expert, w, b?)        | ACT=0 GLU=0
//@ linear: match y = act(expert_linear(x, r:by_expert, w, b?))   | ACT=act.kind GLU=0
//@ linear: match y = glu(expert_linear(x, r:by_expert, w, b?))   | ACT=glu.kind GLU=1
//@ sum:    match y = expert_sum(x, r:by_expert, w, b?)           | RES=0
//@ sum:    match y = add(expert_sum(x, r:by_expert, w, b?), a)   | RES=1
//@ consts  T: type(x)  OUT: type(y)  W: type(w)  X: param(starts)  N: XN / X  K: K  R: R2 / 2  BIAS: has(b)
//@ tune    COLUMNS: 4 2
//@ linear: fits    OUT == T && (!GLU || N % 2 == 0)
//@ sum:    fits    RK == R * K
//@ sum:    scratch parts 4 * M_MAX * R * N
//@ sum:    zeroed  arrived 4 * M_MAX * ceil_div(N, COLUMNS)
//@ fits    T == W && XN % X == 0
//@ launch  grid ceil_div(N, 8 * COLUMNS), min(M * R, X)   block 256
//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.
//@ moves   X * M * R * (M * R + 2 * X) / (M * R * (M * R + 2 * X) + 2 * X * X) * N * K * sizeof(w)
//@ flops   2 * M * R * N * K
//@ rate    4
//@ matmul  yes
//@ overlap waiting
#include "experts.cuh"

struct Config {
    using T = @T@;
    using OUT = @OUT@;
    static constexpr int X = @X@, N = @N@, K = @K@, R = @R@, BIAS = @BIAS@, SUM = @SUM@;
    static constexpr int ACT = @ACT@, GLU = @GLU@, RES = @RES@, COLUMNS = @COLUMNS@;
};
extern "C" __global__ void __launch_bounds__(256, 2)
//@ linear: text @NAME@(const ExpertArgs a) { expert<Config>(a); }
//@ sum:    text @NAME@(const ExpertSumArgs a) { expert<Config>(a); }
