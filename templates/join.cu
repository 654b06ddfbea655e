// join.cu - contract and instance of act.cuh: the columns of two activations beside each other
//@ kernel  join
//@ rank    460
//@ args    a[M,A] b[M,B]:type(a) $step -> y[M,C]:type(a)
//@ match   y = join(a, b)
//@ consts  X: type(a)  C: C  A: A  ROWS_S: rows(a)  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(a)), 32))
//@ launch  grid M, ceil_div(C, THREADS * (16 / sizeof(a)))   block THREADS
//@ moves   2 * sizeof(a) * M * C
//@ overlap yes
#include "act.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, A = @A@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const TwoArgs a) { join<Config>(a); }
