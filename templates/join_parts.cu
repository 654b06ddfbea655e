// join_parts.cu - contract and instance of elementwise.cuh: the elements of two values in each head
//@ kernel  join_parts
//@ rank    1050
//@ args    a[T,H,A] b[T,HB,B]:type(a) $step -> y[T,H,E]:type(a)
//@ match   y = join_parts(a, b)
//@ consts  X: type(a)  C: H * E  E: E  A: A  HB: HB  ROWS_S: rows(a)  THREADS: min(256, round_up(C, 32))
//@ launch  grid T, ceil_div(C, 4 * THREADS)   block THREADS
//@ moves   2 * sizeof(a) * T * C
//@ overlap yes
#include "elementwise.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, E = @E@, A = @A@, HB = @HB@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const PartsArgs a) { join_parts<Config>(a); }
