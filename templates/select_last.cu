// select_last.cu - contract and instance of select_row.cuh: the last token of each sequence
//@ kernel  select_last
//@ rank    440
//@ args    x[T,C] $step $rows -> y[S,C]
//@ match   y = select_last(x)
//@ consts  X: type(x)  Y: type(y)  C: C  THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ launch  grid S   block THREADS
//@ moves   2 * sizeof(x) * S * C
//@ overlap yes
#include "select_row.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int C = @C@, FIRST = 0, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const SelectArgs a) { select_row<Config>(a); }
