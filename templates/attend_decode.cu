// attend_decode.cu - contracts and instance of attend_decode.cuh: one token a row over the paged cache
//
//   plain   models without beam search
//   beams   rows may be lanes of a beam search, whose positions are looked up by owner
//@ kernel  attend_decode
//@ variant plain | BEAM_LANES=0
//@ variant beams | BEAM_LANES=1
//@ plain:  rank 60
//@ beams:  rank 70
//@ rows    decode
//@ plain:  args q[T,H,E] $step $rows $pages $k $v -> y
//@ beams:  args q[T,H,E] $step $rows $pages $k $v $owner -> y
//@ match   y = attend_paged(q)
//@ consts  X: type(q)  KV: type($k)  HEADS: H  KV_HEADS: attend_paged.kv_heads  HEAD_DIM: E
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT  MAX_ROWS: SEQUENCES
//@ consts  SCALE: attend_paged.scale  WINDOW: attend_paged.window  SOFTCAP: attend_paged.softcap
//    MAX_ROWS is that of the largest program, so that all programs share one instance. A row's keys are cut into
//    chunks of CHUNK positions, or of a multiple of it where a row would have more than MAX_CHUNKS.
//    SET, SLOT, PARTIAL, SHARED: as in DecodeShape. LINE: bytes of a key in shared memory.
//@ consts  CHUNK: 256  MAX_CHUNKS: min(64, ceil_div(CONTEXT + 16, CHUNK))
//@ consts  MATRIX: X == KV && X != fp32
//@ consts  SET: min(HEADS / KV_HEADS, MATRIX && HEAD_DIM <= 128 ? 16 : 8)
//@ consts  SETS: KV_HEADS * ceil_div(HEADS / KV_HEADS, SET)  PARTIAL: round_up(SET * (HEAD_DIM + 2), 4)
//@ consts  TILE: MATRIX || HEAD_DIM <= 64 ? 16 : HEAD_DIM <= 128 ? 8 : 4
//@ consts  LINE: round_up(HEAD_DIM, 16) * sizeof(KV)  SLOT: 2 * TILE * (LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16)
//    BLOCKS per SM. Before sm_90, a head_dim that is no multiple of 16 needs more registers than two blocks leave.
//@ plain:  tune WARPS: 8 4 2
//@ plain:  consts STAGES: 2  BLOCKS: ARCH < 90 && HEAD_DIM % 16 ? 1 : WARPS == 4 && SET <= 8 && MATRIX ? 3 : 2
//@ beams:  tune WARPS: 4 2
//@ beams:  consts STAGES: 2  BLOCKS: WARPS == 4 && SET <= 8 && MATRIX ? 3 : 2
//@ order   WARPS
//@ consts  SHARED: WARPS * (STAGES * SLOT + SET * (round_up(HEAD_DIM, 16) + 6) * 4) + (MATRIX ? 0 : SET * HEAD_DIM * 4) + (MAX_ROWS + 8) * 4
//@ fits    HEADS % KV_HEADS == 0 && HEAD_DIM % 8 == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 256 && PAGE % 8 == 0
//@ fits    WARPS * SLOT <= 40000 && (WARPS < 8 || MATRIX && SET <= 8)
//@ fits    SHARED <= SMEM && BEAM_LANES == (BEAMS > 0)
//@ launch  grid min(BLOCKS * SMS, S * SETS * MAX_CHUNKS)    block WARPS * 32    smem SHARED
//@ scratch partials 4 * S_MAX * SETS * MAX_CHUNKS * PARTIAL
//@ zeroed  counters 4 * S_MAX * SETS
//@ moves   S * CONTEXT * KV_HEADS * HEAD_DIM * sizeof(KV)
//@ flops   2 * S * CONTEXT * HEADS * HEAD_DIM
//@ overlap yes
#include "attend_decode.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@;
    static constexpr int BLOCK = @PAGE@, CONTEXT = @LENGTH@, MAX_ROWS = @MAX_ROWS@;
    static constexpr int WINDOW = @WINDOW@, CHUNK = @CHUNK@, MAX_CHUNKS = @MAX_CHUNKS@;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
    static constexpr int WARPS = @WARPS@, STAGES = @STAGES@, BLOCKS = @BLOCKS@, BEAMS = @BEAM_LANES@;
};
static_assert(DecodeShape<Config>::SHARED <= @SHARED@ && DecodeShape<Config>::PARTIAL == @PARTIAL@ &&
                  DecodeShape<Config>::HEAD_SETS == @SETS@, "contract and kernel disagree");

extern "C" __global__ void __launch_bounds__(Config::WARPS * 32, Config::BLOCKS)
//@ plain:  text @NAME@(const __grid_constant__ AttendDecodeArgs a) { attend_decode<Config>(a); }
//@ beams:  text @NAME@(const __grid_constant__ AttendDecodeBeamsArgs a) { attend_decode<Config>(a); }
