// rank_slice.cu - contract and instance of elementwise.cuh: a rank's own columns, or heads, of what all ranks have
//@ kernel  rank_slice
//@ rank    1130
//@ args    x[M,N]:type(y) h[T,H,E]:type(y) $peers $step -> y
//@ match   y = rank_slice(x)   | WIDTH=N
//@ match   y = rank_slice(h)   | WIDTH=H*E
//@ consts  X: type(y)  OF: rank_slice.of  C: WIDTH / OF  ROWS_S: rows(y)  THREADS: min(256, round_up(C, 32))
//@ fits    RANKS > 1
//@ launch  grid ROWS_S ? S : T, ceil_div(C, 4 * THREADS)   block THREADS
//@ moves   2 * sizeof(y) * T * C
//@ overlap yes
#include "elementwise.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, OF = @OF@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const RankSliceArgs a) { rank_slice<Config>(a); }
