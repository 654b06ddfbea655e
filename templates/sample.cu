// sample.cu - contract and instance of sample.cuh: the next token of each row
//@ kernel  sample
//@ rank    410
//@ args    logits[M,V]:fp32 $step $rows $params $ends $bias $bad_words $token $history $out $segments -> y:i32
//@ match   y = sample(logits:segments, _?) | SEGMENTS=1
//@ match   y = sample(logits, _?)          | SEGMENTS=0
//@ consts  VOCAB: V  LENGTH: CONTEXT  SLOTS: SEQUENCES  BIASES: LOGIT_BIAS  WORDS: BAD_WORDS  ENDS: END_IDS  SEGMENTS: SEGMENTS
//@ consts  TILES: ceil_div(VOCAB, 512)
//    TILES: of 512 ids. BLOCKS: two per SM where 64 registers are enough: not with a small or odd
//    vocabulary, nor on sm_86, 89 and 120.
//@ tune    BLOCKS: 1 2
//@ prefer  BLOCKS=1 if ARCH == 86 || ARCH == 89 || ARCH >= 120 || VOCAB < 4096 || VOCAB % 4 != 0
//@ prefer  BLOCKS=2
//@ shared  FACTS 32768 + 4 * BIASES  // a word for each of the 8,192 ids of a block, and sums of biases
//@ shared  ROOM  16384 + max(24576, 6 * ceil_div(VOCAB, 96) + 7344) + 8 * TILES + 320 over FACTS  // a DrawRoom
//    Sums of segments depend on their width, which differs between the kernels of the LM head.
//@ fits    !FIXED || !SEGMENTS
//@ fits    SHARED + 1024 <= SMEM && VOCAB >= 2 && BIASES <= 4095 && LENGTH < 262144
//@ launch  grid min(ceil_div(VOCAB, 8192), max(1, 2 * SMS / S)), S    block 512
//@ scratch tiles 32 * S_MAX * TILES
//@ scratch values 4 * S_MAX * VOCAB
//@ zeroed  counters 4 * S_MAX
//@ moves   4 * S * VOCAB
//@ overlap yes
#include "sample.cuh"

struct Config {
    static constexpr int V = @VOCAB@, CONTEXT = @LENGTH@, SEQUENCES = @SLOTS@;
    static constexpr int LOGIT_BIAS = @BIASES@, BAD_WORDS = @WORDS@, END_IDS = @ENDS@, SEGMENTS = @SEGMENTS@;
    static constexpr int BLOCKS = @BLOCKS@, TILES = @TILES@, @REGIONS@;
};

extern "C" __global__ void __launch_bounds__(512, Config::BLOCKS)
@NAME@(const __grid_constant__ SampleArgs a) { sample<Config>(a); }
