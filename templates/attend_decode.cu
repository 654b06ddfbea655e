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
//@ plain:  args q[T,H,E] $step $rows $pages $k $v -> y:type(q)
//@ beams:  args q[T,H,E] $step $rows $pages $k $v $owner -> y:type(q)
//@ match   y = attend_paged(q, _?)
//@ consts  X: type(q)  KV: type($k)  HEADS: H  KV_HEADS: attend_paged.kv_heads  HEAD_DIM: E
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT  MAX_ROWS: SEQUENCES
//@ consts  SCALE: attend_paged.scale  WINDOW: attend_paged.window  SOFTCAP: attend_paged.softcap
//    MAX_ROWS is that of the largest program, so that all programs share one instance. A row's keys are cut into
//    chunks of CHUNK positions, or of a multiple of it where a row would have more than MAX_CHUNKS.
//    SET: heads of a group that are computed together; a larger group reads the keys once for each set. TILE: positions of
//    a warp's tile. LINE, PITCH: bytes of a key in shared memory, without and with its padding. PARTIAL: floats of a partial
//    result: sums [SET][HEAD_DIM], maxima [SET], sums of weights [SET].
//    More than 64 rows: all SMs have work, and fewer chunks have to be added. Measured on sm_90.
//@ tune    CHUNK: 256 64 96 128 192 352 512
//@ prefer  CHUNK=512 if DECODE && BUCKET > 64 && !FIXED && ARCH == 90
//@ prefer  CHUNK=256
//@ consts  MAX_CHUNKS: min(64, ceil_div(CONTEXT + 16, CHUNK))
//@ consts  MATRIX: X == KV && X != fp32
//@ consts  SET: min(HEADS / KV_HEADS, MATRIX && HEAD_DIM <= 128 ? 16 : 8)
//@ consts  HEAD_SETS: KV_HEADS * ceil_div(HEADS / KV_HEADS, SET)  PARTIAL: round_up(SET * (HEAD_DIM + 2), 4)
//@ consts  TILE: MATRIX || HEAD_DIM <= 64 ? 16 : HEAD_DIM <= 128 ? 8 : 4
//@ consts  LINE: round_up(HEAD_DIM, 16) * sizeof(KV)  PITCH: LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16  SLOT_BYTES: 2 * TILE * PITCH  MERGE_PITCH: round_up(HEAD_DIM, 16) + 4
//    SPREAD 1: a block takes one (row, head set), as soon as an SM has room for it. 2: blocks have equal numbers of units
//    (attend_decode.cuh; measured with heads of 128: docs/decisions/021-split-kv-attention.md).
//@ tune    SPREAD: 0 1 2
//@ plain:  prefer SPREAD=2 if DECODE && BUCKET > 8 && BUCKET <= 64 && !FIXED && ARCH == 90 && MATRIX && HEAD_DIM == 128 && SET <= 4
//@ plain:  prefer SPREAD=1 if DECODE && BUCKET > (HEAD_DIM <= 64 && SET <= 8 ? 32 : 64) && !FIXED && ARCH == 90 && MATRIX
//@ prefer  SPREAD=0
//    BLOCKS per SM. Before sm_90, a head_dim that is no multiple of 16 needs more registers than two blocks leave.
//@ plain:  tune WARPS: 8 4 2 1
//@ beams:  tune WARPS: 4 2
//@ tune    STAGES: 2 3 4  BLOCKS: 1 2 3 4 6 8 16
//@ order   CHUNK WARPS
//    Chunks of CHUNK positions by WARPS warps: 2564 is 256 by 4.
//@ sums    attend_paged = chunks CHUNK * 10 + WARPS
//    A block of one warp has no sums of other warps to add: with 128 positions that takes as long as reading them. From 33 to 128
//    rows two warps are the faster (docs/decisions/021-split-kv-attention.md).
//@ plain:  prefer WARPS=2 BLOCKS=8 if DECODE && BUCKET > 32 && BUCKET <= 128 && !FIXED && ARCH == 90 && MATRIX && HEAD_DIM <= 64 && SET <= 8
//@ plain:  prefer WARPS=1 BLOCKS=16 if DECODE && BUCKET > 64 && !FIXED && ARCH == 90 && MATRIX && HEAD_DIM <= 64 && SET <= 8
//@ prefer  STAGES=2
//@ plain:  prefer BLOCKS=1 if ARCH < 90 && HEAD_DIM % 16
//@ prefer  BLOCKS=3 if WARPS == 4 && SET <= 8 && MATRIX
//@ prefer  BLOCKS=2
//@ shared  RING    WARPS * STAGES * SLOT_BYTES
//@ shared  MERGE   WARPS * SET * MERGE_PITCH * 4
//@ shared  STATS   WARPS * 2 * SET * 4
//@ shared  QUERY   MATRIX ? 0 : SET * HEAD_DIM * 4
//@ shared  BEFORE  SPREAD ? 0 : (MAX_ROWS + 1) * 4  // chunks of earlier rows
//@ shared  ARRIVED 5 * 4               // whether this block was the last, row, set, chunks, first unit
//@ shared  UNIT    SPREAD ? 0 : 3 * 4               // first unit, last + 1, whether whole groups
//@ fits    HEADS % KV_HEADS == 0 && HEAD_DIM % 8 == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 256 && PAGE % 8 == 0
//@ fits    sizeof(KV) > 1
//@ fits    SPREAD < 2 || SET * HEAD_DIM <= WARPS * 128
//@ fits    SHARED <= SMEM && BEAM_LANES == (BEAMS > 0)
//    Several blocks per SM; eight warps have few registers each.
//@ prefer  other if WARPS * SLOT_BYTES > 40000 || (WARPS == 8 && (!MATRIX || SET > 8))
//@ launch  grid SPREAD == 1 ? S * HEAD_SETS + (MAX_CHUNKS > 1 ? BLOCKS * SMS : 0) : min(BLOCKS * SMS, S * HEAD_SETS * MAX_CHUNKS)    block WARPS * 32
//@ scratch partials 4 * S_MAX * HEAD_SETS * MAX_CHUNKS * PARTIAL
//@ zeroed  counters 4 * S_MAX * HEAD_SETS
//@ moves   S * CONTEXT * KV_HEADS * HEAD_DIM * sizeof(KV)
//@ flops   2 * S * CONTEXT * HEADS * HEAD_DIM
//@ overlap yes
#include "attend_decode.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@;
    static constexpr int BLOCK = @PAGE@, CONTEXT = @LENGTH@, MAX_ROWS = @MAX_ROWS@;
    static constexpr int WINDOW = @WINDOW@, CHUNK = @CHUNK@, MAX_CHUNKS = @MAX_CHUNKS@, REST = 0;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
    static constexpr int WARPS = @WARPS@, STAGES = @STAGES@, BLOCKS = @BLOCKS@, BEAMS = @BEAM_LANES@, SPREAD = @SPREAD@;
    static constexpr bool MATRIX = @MATRIX@;
    static constexpr int SET = @SET@, HEAD_SETS = @HEAD_SETS@, PARTIAL = @PARTIAL@, TILE = @TILE@, PITCH = @PITCH@;
    static constexpr int SLOT_BYTES = @SLOT_BYTES@, MERGE_PITCH = @MERGE_PITCH@, @REGIONS@;
};
extern "C" __global__ void __launch_bounds__(Config::WARPS * 32, Config::BLOCKS)
//@ plain:  text @NAME@(const __grid_constant__ AttendDecodeArgs a) { attend_decode<Config>(a); }
//@ beams:  text @NAME@(const __grid_constant__ AttendDecodeBeamsArgs a) { attend_decode<Config>(a); }
