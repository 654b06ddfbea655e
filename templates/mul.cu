// mul.cu - contract and instance of act.cuh: a product
//@ kernel  mul
//@ rank    360
//@ args    a[M,C] b[M,C] $step -> y
//@ match   y = mul(a, b)
//@ consts  X: type(a)  C: C  ROWS_S: rows(a)  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(a)), 32))
//@ launch  grid M, ceil_div(C, THREADS * (16 / sizeof(a)))   block THREADS
//@ moves   3 * sizeof(a) * M * C
//@ overlap yes
#include "act.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@, MUL = 1;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const TwoArgs a) { two<Config>(a); }
