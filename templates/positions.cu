// positions.cu - contract and instance of positions.cuh: learned positions, or token types, that are added to another value than an
// embedding
//@ kernel  positions
//@ rank    157
//@ args    p[P,D] $token $step -> y
//@ match   y = positions(p) | OFFSET=positions.offset TYPES=0
//@ match   y = types(p)     | OFFSET=0 TYPES=1
//@ consts  X: type(y)  W: type(p)  D: D  THREADS: min(256, round_up(D, 32))
//@ launch  grid T, ceil_div(D, 4 * THREADS)   block THREADS
//@ moves   T * D * (sizeof(p) + sizeof(y))
//@ overlap yes
#include "positions.cuh"

struct Config {
    using T = @X@;
    using P = @W@;
    static constexpr int D = @D@, OFFSET = @OFFSET@, TYPES = @TYPES@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const PositionsArgs a) { positions<Config>(a); }
