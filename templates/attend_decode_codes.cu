// attend_decode_codes.cu - contracts and instance of attend_decode.cuh with body/coded_decode.cuh: one token a row over a
// cache of codes
//
//   plain    after append_codes
//   append   decode programs: the step's own keys and values are written by this kernel
//@ kernel  attend_decode_codes
//@ variant plain  | APPEND=0
//@ variant append | APPEND=1
//@ plain:  rank 72
//@ append: rank 74
//@ rows    decode
//@ plain:  args q[T,H,E] t:fp32 qg:fp32 kg:fp32 $step $rows $pages $k $v $owner -> y
//@ append: args q[T,N] t:fp32 qg:fp32 kg:fp32 $step $rows $pages $k $v $owner -> y
//@ plain:  match y = attend_paged(q, _?)
//@ append: match y = attend_paged(append(q, t?, -, -), _?)
//@ append: match y = attend_paged(append(q, t?, qg, kg), _?)
//@ plain:  consts HEADS: H  HEAD_DIM: E  ROT: 0  NORM: 0  EPS: append.eps
//@ append: consts HEADS: append.heads  HEAD_DIM: append.head_dim  ROT: append.rot  NORM: has(qg)  EPS: append.eps
//@ consts  X: type(q)  Y: type(y)  FP8: type($k) == fp8  KV_HEADS: attend_paged.kv_heads
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT  MAX_ROWS: SEQUENCES  BEAM_LANES: BEAMS > 0
//@ consts  SCALE: attend_paged.scale  WINDOW: attend_paged.window  SOFTCAP: attend_paged.softcap
//    As in attend_decode.cu.
//@ tune    CHUNK: 256 128 512 1024
//    On the H200, ms a step of the 8B and the 1B. Long chunks: 64 rows at 2,048 positions 7.55 to 7.17 and 1.95 to 1.84, but
//    one row 3.87 to 4.04. Four blocks of heads of 64: 64 rows 2.12 to 1.95, one row 0.693 to 0.703. Registers for two blocks
//    alone: one row 3.71 to 3.67 of the append variant. From 16 rows on its own append_codes is faster: 64 rows at 2,048
//    7.15 to 6.92 and 1.84 to 1.78.
//@ prefer  CHUNK=512 if T_MAX > 16
//@ prefer  CHUNK=256
//@ consts  MAX_CHUNKS: min(64, ceil_div(CONTEXT + 16, CHUNK))
//@ consts  SET: min(HEADS / KV_HEADS, HEAD_DIM <= 128 ? 16 : 8)
//@ consts  HEAD_SETS: KV_HEADS * ceil_div(HEADS / KV_HEADS, SET)  PARTIAL: round_up(SET * (HEAD_DIM + 2), 4)
//    SLOT_BYTES: codes of 16 keys and values, their scales, a key and a value of x; a multiple of 128 for swizzled rows.
//@ consts  PITCH: HEAD_DIM % 128 == 0 ? HEAD_DIM : round_up(HEAD_DIM, 32) + 16
//@ consts  SLOT_BYTES: round_up(2 * 16 * PITCH + 64 + APPEND * 2 * HEAD_DIM * sizeof(X), 128)  MERGE_PITCH: HEAD_DIM + 4
//    SPREAD: as in attend_decode.cu. REST: with 2,049 positions a block has four chunks, not five.
//@ tune    SPREAD: 0 1 2
//@ plain:  prefer SPREAD=2 if DECODE && BUCKET > 16 && BUCKET <= 64 && !FIXED && ARCH == 90 && HEAD_DIM == 128 && SET <= 4
//@ plain:  prefer SPREAD=1 if DECODE && BUCKET > 64 && !FIXED && ARCH == 90 && HEAD_DIM == 128 && SET <= 8
//@ prefer  SPREAD=0
//@ consts  REST: SPREAD == 2 ? CHUNK / 2 : 0
//@ tune    WARPS: 4 8 2  STAGES: 3 4 2  BLOCKS: 3 2 1 4 5 6
//@ order   CHUNK WARPS SPREAD
//    Chunks of CHUNK positions by WARPS warps: 2564 is 256 by 4; 102564 with a REST.
//@ sums    attend_paged = chunks CHUNK * 10 + WARPS + (SPREAD == 2 ? 100000 : 0)
//@ prefer  WARPS=4
//@ plain:  prefer BLOCKS=4 STAGES=2 if SPREAD == 1
//@ prefer  STAGES=3
//@ append: prefer BLOCKS=2
//@ prefer  BLOCKS=4 if SET <= 8 && HEAD_DIM <= 64 && T_MAX > 16
//@ prefer  BLOCKS=3 if SET <= 8
//@ prefer  BLOCKS=2
//@ shared  RING    WARPS * STAGES * SLOT_BYTES
//@ shared  MERGE   WARPS * SET * MERGE_PITCH * 4
//@ shared  STATS   WARPS * 2 * SET * 4
//@ shared  BEFORE  SPREAD ? 0 : (MAX_ROWS + 1) * 4  // chunks of earlier rows
//@ shared  ARRIVED 5 * 4               // whether this block was the last, row, set, chunks, first unit
//@ shared  UNIT    SPREAD ? 0 : 3 * 4               // first unit, last + 1, whether whole groups
//@ fits    HEADS % KV_HEADS == 0 && HEAD_DIM % 16 == 0 && HEAD_DIM <= 256 && PAGE % 8 == 0 && sizeof($k) == 1
//@ append: fits DECODE && SET == HEADS / KV_HEADS
//@ fits    SPREAD < 2 || SET * HEAD_DIM <= WARPS * 128
//@ fits    SHARED <= SMEM
//@ append: prefer other if T_MAX > 8
//@ launch  grid SPREAD == 1 ? S * HEAD_SETS + (MAX_CHUNKS > 1 ? BLOCKS * SMS : 0) : min(BLOCKS * SMS, S * HEAD_SETS * MAX_CHUNKS)    block WARPS * 32
//@ scratch partials 4 * S_MAX * HEAD_SETS * MAX_CHUNKS * PARTIAL
//@ zeroed  counters 4 * S_MAX * HEAD_SETS
//@ moves   S * CONTEXT * KV_HEADS * (HEAD_DIM + 2)
//@ flops   2 * S * CONTEXT * HEADS * HEAD_DIM
//@ overlap yes
#include "attend_decode.cuh"
#include "body/coded_decode.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    using KV = Code;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@, ROT = @ROT@;
    static constexpr int BLOCK = @PAGE@, CONTEXT = @LENGTH@, MAX_ROWS = @MAX_ROWS@;
    static constexpr int WINDOW = @WINDOW@, CHUNK = @CHUNK@, MAX_CHUNKS = @MAX_CHUNKS@, REST = @REST@;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@, EPS = @EPS@;
    static constexpr int WARPS = @WARPS@, STAGES = @STAGES@, BLOCKS = @BLOCKS@, BEAMS = @BEAM_LANES@, SPREAD = @SPREAD@;
    static constexpr bool MATRIX = true, FP8 = @FP8@, APPEND = @APPEND@, NORM = @NORM@;
    static constexpr int SET = @SET@, HEAD_SETS = @HEAD_SETS@, PARTIAL = @PARTIAL@, TILE = 16, PITCH = @PITCH@;
    static constexpr int SLOT_BYTES = @SLOT_BYTES@, MERGE_PITCH = @MERGE_PITCH@, @REGIONS@, QUERY_AT = 0;
};
extern "C" __global__ void __launch_bounds__(Config::WARPS * 32, Config::BLOCKS)
@NAME@(const __grid_constant__ AttendDecodeCodesArgs a) { attend_decode<Coded<Config>>(coded_args<Config>(a)); }
