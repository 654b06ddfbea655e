// attend_decode_norm.cu - contract and instance of attend_decode.cuh with body/normed_decode.cuh: one token a row over the paged
// cache, behind norms of the heads of q and k
//@ kernel  attend_decode_norm
//@ rank    76
//@ rows    decode
//@ args    x[T,N] t:fp32 qg:fp32 kg:fp32 $step $rows $pages $k $v -> y:type(x)
//@ match   y = attend_paged(append(x, t?, qg, kg), _?)
//@ consts  X: type(x)  KV: type($k)  HEADS: append.heads  KV_HEADS: attend_paged.kv_heads  HEAD_DIM: append.head_dim
//@ consts  ROT: append.rot  EPS: append.eps  PAGE: BLOCK  LENGTH: CONTEXT  MAX_ROWS: SEQUENCES
//@ consts  SCALE: attend_paged.scale  WINDOW: attend_paged.window  SOFTCAP: attend_paged.softcap
//    As in attend_decode.cu.
//@ tune    CHUNK: 256 64 96 128 192 352 512
//@ prefer  CHUNK=256
//@ consts  MAX_CHUNKS: min(64, ceil_div(CONTEXT + 16, CHUNK))
//@ consts  SET: min(HEADS / KV_HEADS, HEAD_DIM <= 128 ? 16 : 8)
//@ consts  HEAD_SETS: KV_HEADS * ceil_div(HEADS / KV_HEADS, SET)  PARTIAL: round_up(SET * (HEAD_DIM + 2), 4)
//@ consts  LINE: round_up(HEAD_DIM, 16) * 2  PITCH: LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16  SLOT_BYTES: 2 * 16 * PITCH  MERGE_PITCH: round_up(HEAD_DIM, 16) + 4
//@ tune    WARPS: 8 4 2 1
//@ tune    STAGES: 2 3 4  BLOCKS: 1 2 3 4 6 8 16
//@ order   CHUNK WARPS
//    Chunks of CHUNK positions by WARPS warps: 2564 is 256 by 4.
//@ sums    attend_paged = chunks CHUNK * 10 + WARPS
//@ prefer  STAGES=2
//@ prefer  BLOCKS=3 if WARPS == 4 && SET <= 8
//@ prefer  BLOCKS=2
//@ shared  RING    WARPS * STAGES * SLOT_BYTES
//@ shared  MERGE   WARPS * SET * MERGE_PITCH * 4
//@ shared  STATS   WARPS * 2 * SET * 4
//@ shared  NORMED  (SET * (HEAD_DIM + 8) + 4 * HEAD_DIM) * 2 align 16  // queries, keys and values (body/normed_decode.cuh)
//@ shared  BEFORE  (MAX_ROWS + 1) * 4  // chunks of earlier rows
//@ shared  ARRIVED 4 * 4               // whether this block was the last, row, set, chunks
//@ shared  UNIT    3 * 4               // first unit, last + 1, whether whole groups
//@ fits    DECODE && BEAMS == 0 && SET == HEADS / KV_HEADS && X == KV && X == type(y) && sizeof(KV) == 2
//@ fits    HEADS % KV_HEADS == 0 && HEAD_DIM % 8 == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 256 && PAGE % 8 == 0 && SHARED <= SMEM
//    As in attend_decode.cu. More rows, contexts of attend_brief and other GPUs were not measured (docs/decisions/035-experts.md).
//@ prefer  other if WARPS * SLOT_BYTES > 40000 || (WARPS == 8 && SET > 8)
//@ prefer  other if BUCKET > 8 || CONTEXT <= 256 || ARCH != 90
//@ launch  grid min(BLOCKS * SMS, S * HEAD_SETS * MAX_CHUNKS)    block WARPS * 32
//@ scratch partials 4 * S_MAX * HEAD_SETS * MAX_CHUNKS * PARTIAL
//@ zeroed  counters 4 * S_MAX * HEAD_SETS
//@ moves   S * CONTEXT * KV_HEADS * HEAD_DIM * sizeof(KV)
//@ flops   2 * S * CONTEXT * HEADS * HEAD_DIM
//@ overlap yes
#include "attend_decode.cuh"
#include "body/normed_decode.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@, ROT = @ROT@;
    static constexpr int BLOCK = @PAGE@, CONTEXT = @LENGTH@, MAX_ROWS = @MAX_ROWS@;
    static constexpr int WINDOW = @WINDOW@, CHUNK = @CHUNK@, MAX_CHUNKS = @MAX_CHUNKS@, REST = 0;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@, EPS = @EPS@;
    static constexpr int WARPS = @WARPS@, STAGES = @STAGES@, BLOCKS = @BLOCKS@, BEAMS = 0, SPREAD = 0;
    static constexpr bool MATRIX = true;
    static constexpr int SET = @SET@, HEAD_SETS = @HEAD_SETS@, PARTIAL = @PARTIAL@, TILE = 16, PITCH = @PITCH@;
    static constexpr int SLOT_BYTES = @SLOT_BYTES@, MERGE_PITCH = @MERGE_PITCH@, @REGIONS@, QUERY_AT = 0;
};
extern "C" __global__ void __launch_bounds__(Config::WARPS * 32, Config::BLOCKS)
@NAME@(const __grid_constant__ AttendDecodeNormArgs a) { attend_decode<Normed<Config>>(normed_args<Config>(a)); }
