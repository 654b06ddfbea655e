// scale.cu - contracts and instance of act.cuh: activations times a constant; convert: written in another type
//@ kernel  scale
//@ variant plain
//@ variant convert
//@ plain:   rank 420
//@ convert: rank 422
//@ plain:   args x[M,C] $step -> y:type(x)
//@ convert: args x[M,C] $step -> y
//@ match   y = scale(x)
//@ consts  X: type(x)  C: C  ROWS_S: rows(x)
//@ plain:   consts THREADS: min(256, round_up(ceil_div(C, 16 / sizeof(x)), 32))
//@ convert: consts Y: type(y)  VEC: 16 / max(sizeof(x), sizeof(y))  THREADS: min(256, round_up(ceil_div(C, VEC), 32))
//@ consts  BY: scale.by
//@ convert: fits X != Y
//@ plain:   launch grid M, ceil_div(C, THREADS * (16 / sizeof(x)))   block THREADS
//@ convert: launch grid M, ceil_div(C, THREADS * VEC)   block THREADS
//@ plain:   moves 2 * sizeof(x) * M * C
//@ convert: moves (sizeof(x) + sizeof(y)) * M * C
//@ overlap yes
#include "act.cuh"

struct Config {
    using T = @X@;
//@ plain:   text     using OUT = @X@;
//@ convert: text     using OUT = @Y@;
    static constexpr int C = @C@, ROWS_S = @ROWS_S@, THREADS = @THREADS@;
    static constexpr float BY = @BY@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const OneArgs a) { scale<Config>(a); }
