// route_weights.cu - contract and instance of elementwise.cuh: the weights of the experts that rows were routed to
//@ kernel  route_weights
//@ rank    1060
//@ args    r[M,R2]:i32 $step -> y[M,C]
//@ match   y = route_weights(r)
//@ consts  X: type(y)  C: C  ROWS_S: rows(r)  THREADS: min(256, round_up(C, 32))
//@ launch  grid M   block THREADS
//@ moves   2 * sizeof(y) * M * C
//@ overlap yes
#include "elementwise.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const ElementArgs a) { route_weights<Config>(a); }
