// add_mul.cu - contract and instance of act.cuh: the sum or the product of two activations
//@ kernel  add_mul
//@ rank    20
//@ args    a[M,C] b[M,C]:type(a) $step -> y:type(a)
//@ match   y = add(a, b)    | MUL=0
//@ match   y = mul(a, b)    | MUL=1
//@ consts  X: type(a)  C: C  ROWS_S: rows(a)  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(a)), 32))
//@ launch  grid M, ceil_div(C, THREADS * (16 / sizeof(a)))   block THREADS
//@ moves   3 * sizeof(a) * M * C
//@ overlap yes
#include "act.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@, MUL = @MUL@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const TwoArgs a) { add_mul<Config>(a); }
