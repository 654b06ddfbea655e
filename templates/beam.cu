// beam.cu - contract and instance of beam.cuh: a step of beam search
//@ kernel  beam
//@ rank    130
//@ args    logits[M,V]:fp32 s:i32 $step $rows $params $beams $ends $bias $bad_words $token $history $owner $group $lanes $hyps $logps $out $segments -> y:i32
//@ match   y = beam(logits:segments, s)   | SEGMENTS=1
//@ match   y = beam(logits, s)            | SEGMENTS=0
//@ consts  VOCAB: V  LENGTH: CONTEXT  SLOTS: SEQUENCES  BIASES: LOGIT_BIAS  WORDS: BAD_WORDS  ENDS: END_IDS  WIDTH: BEAMS  SEGMENTS: SEGMENTS
//    TILES: of 512 ids. MOST: entries of a row that a search may look at. TOPS: entries of the list of TopsRoom.
//@ consts  TILES: ceil_div(VOCAB, 512)  MOST: WIDTH + ENDS
//@ consts  TOPS: 17 * max(32, MOST)
//@ shared  FACTS   32768 + 4 * BIASES      // a word for each of the 8,192 ids of a block, and sums of biases
//@ shared  ENTRIES 12 * WIDTH * MOST over FACTS
//    BLOCKS: two per SM where 64 registers are enough: as in sample.cu, and not with SEGMENTS or more than 32 lanes.
//@ tune    BLOCKS: 1 2
//@ prefer  BLOCKS=1 if SEGMENTS || ARCH == 86 || ARCH == 89 || ARCH >= 120 || VOCAB < 4096 || VOCAB % 4 != 0 || WIDTH > 32
//@ prefer  BLOCKS=2
//    Sums of segments depend on their width, which differs between the kernels of the LM head.
//@ fits    !FIXED || !SEGMENTS
//@ fits    SHARED + 8 * (TOPS + MOST) + 4 * MOST + 7680 <= SMEM && VOCAB >= 2 && BIASES <= 4095 && LENGTH < 262144 && WIDTH > 0
//@ launch  grid SEGMENTS ? 1 : min(ceil_div(VOCAB, 8192), max(1, 2 * SMS / S)), S    block 512
//@ scratch tiles (1 - SEGMENTS) * 8 * S_MAX * TILES
//@ scratch lists (1 - SEGMENTS) * 8 * S_MAX * ceil_div(VOCAB, 8192) * MOST
//@ scratch best 8 * S_MAX * (MOST + 1)
//@ scratch past 4 * S_MAX * LENGTH
//@ zeroed  counters 4 * S_MAX
//@ zeroed  groups 4 * S_MAX
//@ moves   4 * S * VOCAB
//@ overlap yes
#include "beam.cuh"

struct Config {
    static constexpr int V = @VOCAB@, CONTEXT = @LENGTH@, SEQUENCES = @SLOTS@;
    static constexpr int LOGIT_BIAS = @BIASES@, BAD_WORDS = @WORDS@, END_IDS = @ENDS@, WIDTH = @WIDTH@, SEGMENTS = @SEGMENTS@;
    static constexpr int BLOCKS = @BLOCKS@, TILES = @TILES@, MOST = @MOST@, TOPS = @TOPS@, @REGIONS@;
};

extern "C" __global__ void __launch_bounds__(512, Config::BLOCKS)
@NAME@(const __grid_constant__ BeamArgs a) { beam<Config>(a); }
