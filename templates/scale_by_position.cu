// scale_by_position.cu - contract and instance of elementwise.cuh: rows times a factor that grows with their position
//@ kernel  scale_by_position
//@ rank    1030
//@ args    x[T,C] $token $step -> y:type(x)
//@ match   y = scale_by_position(x)
//@ consts  X: type(x)  C: C  ROWS_S: rows(x)  THREADS: min(256, round_up(C, 32))
//@ consts  BY: scale_by_position.by  EVERY: scale_by_position.every  OFFSET: scale_by_position.offset
//@ launch  grid T, ceil_div(C, 4 * THREADS)   block THREADS
//@ moves   2 * sizeof(x) * T * C
//@ overlap yes
#include "elementwise.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@, EVERY = @EVERY@, OFFSET = @OFFSET@;
    static constexpr float BY = @BY@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const PositionArgs a) { scale_by_position<Config>(a); }
