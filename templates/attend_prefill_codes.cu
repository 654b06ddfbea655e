// attend_prefill_codes.cu - contract and instance of attend_prefill.cuh with body/coded_prefill.cuh: chunks of prompts
// over a cache of codes
//@ kernel  attend_prefill_codes
//@ rank    102
//@ rows    prefill
//@ args    q[T,H,E] $step $rows $pages $k $v -> y:type(q)
//@ match   y = attend_paged(q, _?)
//@ consts  X: type(q)  FP8: type($k) == fp8  HEADS: H  KV_HEADS: attend_paged.kv_heads  HEAD_DIM: E
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT
//@ consts  SCALE: attend_paged.scale  WINDOW: attend_paged.window  SOFTCAP: attend_paged.softcap
//    As in attend_prefill.cu, with keys and values of the queries' type in shared memory.
//@ consts  MATRIX: X != fp32
//@ consts  COLUMNS: round_up(HEAD_DIM, MATRIX ? 16 : 32)  LINE: COLUMNS * sizeof(X)  PITCH: LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16
//@ tune    ROWS: 128 64 32 16  KEYS: 64 32 16
//@ order   KEYS
//    ALIGN: multiples of it are first keys of tiles.
//@ consts  ALIGN: FIXED ? KEYS : 8
//@ sums    attend_paged = tiles KEYS
//@ consts  Q_PITCH: MATRIX ? PITCH : COLUMNS * 4 + 16  P_PITCH: ROWS / 4 + 4
//@ shared  QUERIES ROWS * Q_PITCH
//@ shared  TILES   (MATRIX ? 2 : 1) * 2 * KEYS * PITCH        // keys, values
//@ shared  WEIGHTS MATRIX ? 0 : 4 * KEYS * P_PITCH * 4        // of the keys, from lane to lane
//@ shared  PIECE   64                                         // the block's work
//@ fits    HEADS % KV_HEADS == 0 && HEAD_DIM % 16 == 0 && HEAD_DIM <= 256 && PAGE % 8 == 0 && sizeof($k) == 1
//@ fits    MATRIX ? ROWS >= 64 : KEYS == 32
//@ fits    SHARED <= SMEM
//@ prefer  other if MATRIX ? ROWS * HEAD_DIM > 128 * 128 : ROWS > 64 || ROWS * HEAD_DIM > 64 * 128
//@ prefer  other if MATRIX && KEYS == 64 && 2 * SHARED + 2048 > SMEM
//@ launch  grid KV_HEADS, ceil_div(T * (HEADS / KV_HEADS), ROWS) + S    block 128
//@ moves   2 * T * (HEADS + KV_HEADS) * HEAD_DIM * sizeof(X)
//@ flops   2 * T * T_MAX * HEADS * HEAD_DIM
//@ overlap yes
#include "attend_prefill.cuh"
#include "body/coded_prefill.cuh"

struct Config {
    using T = @X@;
    using KV = @X@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@;
    static constexpr int BLOCK = @PAGE@, CONTEXT = @LENGTH@, WINDOW = @WINDOW@, ALIGN = @ALIGN@;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
    static constexpr bool CAUSAL = true;
    static constexpr bool MATRIX = @MATRIX@, FP8 = @FP8@;
    static constexpr int ROWS = @ROWS@, KEYS = @KEYS@, COLUMNS = @COLUMNS@, PITCH = @PITCH@, Q_PITCH = @Q_PITCH@, P_PITCH = @P_PITCH@;
    static constexpr int @REGIONS@;
};

extern "C" __global__ void __launch_bounds__(128, 2)
@NAME@(const __grid_constant__ AttendPrefillArgs a) { flash<Config>(a.step, a.rows, a.step->decode_rows, CodedSource<Config>{{a}}); }
