// embed_part.cu - contract and instance of embed_part.cuh: the rows of an embedding that a rank has
//@ kernel  embed_part
//@ rank    155
//@ args    w[P,D] $step $token $history $peers -> y
//@ match   y = embed_part(ids(), w)
//@ consts  WT: type(w)  Y: type(y)  P: P  D: D  LENGTH: CONTEXT  SOURCES: ENCODE
//@ consts  THREADS: min(256, round_up(ceil_div(D, 16 / sizeof(w)), 32))
//@ fits    RANKS > 1
//@ launch  grid T, ceil_div(D, THREADS * (16 / sizeof(w)))   block THREADS
//@ moves   T * D * (sizeof(w) + sizeof(y))
//@ overlap yes
//@ holds   1
#include "embed_part.cuh"

struct Config {
    using W = @WT@;
    using OUT = @Y@;
    static constexpr int P = @P@, D = @D@, CONTEXT = @LENGTH@, ENCODE = @SOURCES@, THREADS = @THREADS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const EmbedPartArgs a) { embed_part<Config>(a); }
