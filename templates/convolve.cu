// convolve.cu - contract and instance of convolve.cuh: a sum over a token and those before it, of each column
//@ kernel  convolve
//@ rank    438
//@ args    x[T,C] w[C,TAPS] b[C] $step $rows $token $recurrent -> y:type(x)
//@ match   y = convolve(x, w, b?)
//@ consts  X: type(x)  W: type(w)  B: type(b)  C: C  TAPS: TAPS  THREADS: min(128, round_up(C, 32))
//@ fits    type(y) == X
//@ launch  grid T, ceil_div(C, 4 * THREADS)   block THREADS
//@ moves   2 * sizeof(x) * T * C + sizeof(w) * C * TAPS
//@ overlap yes
#include "convolve.cuh"

struct Config {
    using T = @X@;
    using W = @W@;
    using B = @B@;
    static constexpr int C = @C@, TAPS = @TAPS@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const ConvolveArgs a) { convolve<Config>(a); }
