// neighbours.cu - contract and instance of neighbours.cuh: the rows of the tokens around each token
//@ kernel  neighbours
//@ rank    437
//@ args    x[T,C] $step $rows $token -> y[T,N]:type(x)
//@ match   y = neighbours(x)
//@ consts  X: type(x)  C: C  FROM: neighbours.from + 64  COUNT: neighbours.count  RING: neighbours.ring  THREADS: min(256, round_up(N, 32))
//@ fits    type(y) == X
//@ launch  grid T, ceil_div(N, 4 * THREADS)   block THREADS
//@ moves   sizeof(x) * T * (C + N)
//@ overlap yes
#include "neighbours.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, FROM = @FROM@, COUNT = @COUNT@, RING = @RING@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const NeighboursArgs a) { neighbours<Config>(a); }
