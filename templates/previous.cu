// previous.cu - contract and instance of previous.cuh: the row of the token before
//@ kernel  previous
//@ rank    436
//@ args    x[T,C] w[O,C] $step $rows $token -> y:type(x)
//@ match   y = previous(x, w)
//@ consts  X: type(x)  W: type(w)  C: C  THREADS: min(256, round_up(C, 32))
//@ fits    type(y) == X
//@ launch  grid T, ceil_div(C, 4 * THREADS)   block THREADS
//@ moves   2 * sizeof(x) * T * C
//@ overlap yes
#include "previous.cuh"

struct Config {
    using T = @X@;
    using W = @W@;
    static constexpr int C = @C@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const PreviousArgs a) { previous<Config>(a); }
