// gather_logits.cu - contract and instance of gather_logits.cuh: logits of all ranks, as far as `sample` needs them
//
// It has not run on a GPU yet. all_gather, which sends all logits, costs as much in the model of `select` and has the lower rank, so
// this kernel is taken where a tuning file avoids all_gather.
//@ kernel  gather_logits
//@ rank    1125
//@ args    x[M,C]:fp32 $step $rows $params $ends $bias $bad_words $history $peers $exchange -> y[M,N]:fp32
//@ match   y = gather_logits(x)
//@ consts  C: C  COLUMNS: N  RANKS: RANKS  LENGTH: CONTEXT  BIASES: LOGIT_BIAS  WORDS: BAD_WORDS  ENDS: END_IDS
//@ consts  LIST: 1024
//    SMALL: bytes of a rank that are sent whole in 3.6 us (docs/decisions/030-sums-over-gpus.md).
//@ consts  THREADS: 512  SMALL: 524288
//@ shared  ROOM  round_up(C, 32) / 8 + 4 * THREADS + 8 * LIST + 16 * RANKS + 320
//@ fits    RANKS > 1 && type(y) == fp32 && C >= 2 && SHARED + 1024 <= SMEM
//@ launch  grid SMS   block THREADS
//@ moves   8 * M * N
//@ overlap yes
#include "gather_logits.cuh"

struct Config {
    static constexpr int C = @C@, COLUMNS = @COLUMNS@, RANKS = @RANKS@, CONTEXT = @LENGTH@;
    static constexpr int LOGIT_BIAS = @BIASES@, BAD_WORDS = @WORDS@, END_IDS = @ENDS@;
    static constexpr int LIST = @LIST@, THREADS = @THREADS@, SMALL = @SMALL@, @REGIONS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const GatherLogitsArgs a) { gather_logits<Config>(a); }
