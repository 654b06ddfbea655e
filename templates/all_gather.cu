// all_gather.cu - contract and instance of all_gather.cuh: columns of all ranks of a tensor-parallel model
//@ kernel  all_gather
//@ rank    1120
//@ args    x[M,C] $peers $exchange $step -> y[M,N]:type(x)
//@ match   y = all_gather(x)
//@ match   y = gather_logits(x)
//@ consts  X: type(x)  C: C  COLUMNS: N  RANKS: RANKS  ROWS_S: rows(x)
//@ consts  THREADS: M_MAX * C > 262144 ? 512 : 128
//@ fits    RANKS > 1 && type(x) == type(y)
//@ launch  grid min(ceil_div(M * C, THREADS * (16 / sizeof(x))), SMS * 2)   block THREADS
//@ moves   2 * sizeof(x) * M * N
//@ overlap yes
#include "all_gather.cuh"

struct Config {
    using T = @X@;
    static constexpr int C = @C@, COLUMNS = @COLUMNS@, RANKS = @RANKS@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const AllGatherArgs a) { all_gather<Config>(a); }
