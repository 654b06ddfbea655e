// select_id.cu - contract and instance of select_id.cuh: the token of each sequence that has an id
//@ kernel  select_id
//@ rank    435
//@ args    x[T,C] $step $rows $token -> y[S,C]
//@ match   y = select_id(x)
//@ consts  X: type(x)  Y: type(y)  C: C  WANTED: select_id.id + 1  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ launch  grid S   block THREADS
//@ moves   2 * sizeof(x) * S * C
//@ overlap yes
#include "select_id.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int C = @C@, ID = @WANTED@ - 1, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const SelectIdArgs a) { select_id<Config>(a); }
