// mask.cu - contract and instance of mask.cuh: logits that the masks of grammars do not allow
//@ kernel  mask
//@ rank    405
//@ args    logits[M,V]:fp32 $step $params $mask ->
//@ match   y = mask(logits)
//@ consts  VOCAB: V
//@ launch  grid min(ceil_div(VOCAB, 8192), max(1, 8 * SMS / S)), S   block 256
//@ moves   4 * S * VOCAB
//@ overlap yes
#include "mask.cuh"

struct Config {
    static constexpr int V = @VOCAB@, THREADS = 256;
};

extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const MaskArgs a) { mask<Config>(a); }
