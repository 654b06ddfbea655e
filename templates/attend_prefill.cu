// attend_prefill.cu - contract and instance of attend_prefill.cuh: chunks of prompts over the paged cache
//@ kernel  attend_prefill
//@ rank    100
//@ rows    prefill
//@ args    q[T,H,E] $step $rows $pages $k $v -> y:type(q)
//@ match   y = attend_paged(q, _?)
//@ consts  X: type(q)  KV: type($k)  HEADS: H  KV_HEADS: attend_paged.kv_heads  HEAD_DIM: E
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT
//@ consts  SCALE: attend_paged.scale  WINDOW: attend_paged.window  SOFTCAP: attend_paged.softcap
//    ROWS, KEYS: queries and keys of a tile, the first that fit. LINE, PITCH: bytes of a row of a tile, without and with
//    its padding. Q_PITCH: the same of the queries. P_PITCH: floats of a key's weights.
//@ consts  MATRIX: X == KV && X != fp32
//@ consts  COLUMNS: round_up(HEAD_DIM, MATRIX ? 16 : 32)  LINE: COLUMNS * sizeof(KV)  PITCH: LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16
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
//@ fits    HEADS % KV_HEADS == 0 && HEAD_DIM % 8 == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 256 && PAGE % 8 == 0
//@ fits    sizeof(KV) > 1
//@ fits    MATRIX ? ROWS >= 64 : KEYS == 32
//@ fits    SHARED <= SMEM
//    The sums of more rows do not fit registers. Two blocks per SM are worth more than long tiles of keys.
//@ prefer  other if MATRIX ? ROWS * HEAD_DIM > 128 * 128 : ROWS > 64 || ROWS * HEAD_DIM > 64 * 128
//@ prefer  other if MATRIX && KEYS == 64 && 2 * SHARED + 2048 > SMEM
//    With fixed sums steps of all sizes take attend_prefill_hopper, where it can.
//@ prefer  other if FIXED && WGMMA
//@ launch  grid KV_HEADS, ceil_div(T * (HEADS / KV_HEADS), ROWS) + S    block 128
//@ moves   2 * T * (HEADS + KV_HEADS) * HEAD_DIM * sizeof(KV)
//@ flops   2 * T * T_MAX * HEADS * HEAD_DIM
//@ overlap yes
#include "attend_prefill.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@;
    static constexpr int BLOCK = @PAGE@, CONTEXT = @LENGTH@, WINDOW = @WINDOW@, ALIGN = @ALIGN@;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
    static constexpr bool CAUSAL = true;
    static constexpr bool MATRIX = @MATRIX@;
    static constexpr int ROWS = @ROWS@, KEYS = @KEYS@, COLUMNS = @COLUMNS@, PITCH = @PITCH@, Q_PITCH = @Q_PITCH@, P_PITCH = @P_PITCH@;
    static constexpr int @REGIONS@;
};

extern "C" __global__ void __launch_bounds__(128, 2)
@NAME@(const __grid_constant__ AttendPrefillArgs a) { attend_prefill<Config>(a); }
