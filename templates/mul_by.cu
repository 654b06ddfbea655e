// mul_by.cu - contract and instance of act.cuh: an activation times a factor for each row or for each column
//@ kernel  mul_by
//@ rank    25
//@ args    a[M,C] b[M,1]:type(a) w[C]:fp32 $step -> y[M,C]:type(a)
//@ match   y = mul(a, b)    | OF_ROW=1
//@ match   y = mul(a, w)    | OF_ROW=0
//@ consts  X: type(a)  C: C  ROWS_S: rows(a)  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(a)), 32))
//@ launch  grid M, ceil_div(C, THREADS * (16 / sizeof(a)))   block THREADS
//@ moves   2 * sizeof(a) * M * C
//@ overlap yes
#include "act.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@, OF_ROW = @OF_ROW@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const FactorArgs a) { mul_by<Config>(a); }
