// expert_add.cu - contract and instance of expert_add.cuh: sums of the experts of a row, and the residual
//@ kernel  expert_add
//@ rank    545
//@ args    p[M,N] r[M,N]:type(p) $step -> y[M,N]:type(p)
//@ match   y = p:parts          | RES=0
//@ match   y = add(p:parts, r)  | RES=1
//@ consts  T: type(p)  N: N  R: param(p)  RES: RES  ROWS_S: rows(p)  THREADS: 256
//@ fits    type(y) == T && sizeof(p) == 2
//@ launch  grid ceil_div(M * (N / (N % 8 == 0 ? 8 : N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1)), THREADS)   block THREADS
//@ moves   2 * (R + RES + 1) * M * N
//@ overlap yes
#include "expert_add.cuh"

struct Config {
    using T = @T@;
    static constexpr int N = @N@, R = @R@, RES = @RES@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const ExpertAddArgs a) { expert_add<Config>(a); }
