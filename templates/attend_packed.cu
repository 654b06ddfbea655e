// attend_packed.cu - contract and instance of attend_packed.cuh: attention of texts over themselves
//@ kernel  attend_packed
//@ rank    90
//@ args    x[T,N] $step $rows -> y[T,Q]:type(x)
//@ match   y = attend_packed(x)
//@ consts  X: type(x)  HEADS: attend_packed.heads  KV_HEADS: attend_packed.kv_heads  HEAD_DIM: attend_packed.head_dim
//@ consts  SCALE: attend_packed.scale
//@ consts  MATRIX: X != fp32
//@ consts  COLUMNS: round_up(HEAD_DIM, MATRIX ? 16 : 32)  LINE: COLUMNS * sizeof(X)  PITCH: LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16
//    ROWS, KEYS: queries and keys of a tile, the first that fit. LINE, PITCH: bytes of a row of a tile, without and with
//    its padding. Q_PITCH: the same of the queries. P_PITCH: floats of a key's weights.
//@ tune    ROWS: 128 64 32 16  KEYS: 64 32 16
//@ order   KEYS
//@ sums    attend_packed = tiles KEYS
//    With short texts most rows of a tile of 128 would be empty.
//@ prefer  ROWS=64 if MATRIX && CONTEXT <= 512
//@ consts  Q_PITCH: MATRIX ? PITCH : COLUMNS * 4 + 16  P_PITCH: ROWS / 4 + 4
//@ shared  QUERIES ROWS * Q_PITCH
//@ shared  TILES   (MATRIX ? 2 : 1) * 2 * KEYS * PITCH        // keys, values
//@ shared  WEIGHTS MATRIX ? 0 : 4 * KEYS * P_PITCH * 4        // of the keys, from lane to lane
//@ shared  PIECE   64                                         // the block's work
//@ fits    type(y) == X && HEADS % KV_HEADS == 0 && HEAD_DIM % 8 == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 256
//@ fits    MATRIX ? ROWS >= 64 : KEYS == 32
//@ fits    SHARED <= SMEM
//    The sums of more rows do not fit registers. Two blocks per SM are worth more than long tiles of keys.
//@ prefer  other if MATRIX ? ROWS * HEAD_DIM > 128 * 128 : ROWS > 64 || ROWS * HEAD_DIM > 64 * 128
//@ prefer  other if MATRIX && KEYS == 64 && 2 * SHARED + 2048 > SMEM
//    Four blocks per SM where registers allow it: most texts are one or two tiles, whose time is latency.
//@ tune    BLOCKS: 2 4
//@ prefer  BLOCKS=4 if MATRIX && ROWS == 64 && HEAD_DIM <= 64 && 4 * (SHARED + 1024) <= SMEM
//@ prefer  BLOCKS=2
//    With fixed sums texts of all sizes take attend_hopper, where it can.
//@ prefer  other if FIXED && WGMMA
//@ launch  grid KV_HEADS, ceil_div(T * (HEADS / KV_HEADS), ROWS) + S    block 128
//@ moves   2 * T * (HEADS + KV_HEADS) * HEAD_DIM * sizeof(X)
//@ flops   4 * T * min(T_MAX, CONTEXT) * HEADS * HEAD_DIM
//@ overlap yes
#include "attend_packed.cuh"

struct Config {
    using T = @X@;
    using KV = @X@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@, WINDOW = 0, ALIGN = 8;
    static constexpr float SCALE = @SCALE@, SOFTCAP = 0.0f;
    static constexpr bool CAUSAL = false;
    static constexpr bool MATRIX = @MATRIX@;
    static constexpr int ROWS = @ROWS@, KEYS = @KEYS@, COLUMNS = @COLUMNS@, PITCH = @PITCH@, Q_PITCH = @Q_PITCH@, P_PITCH = @P_PITCH@;
    static constexpr int @REGIONS@;
};

extern "C" __global__ void __launch_bounds__(128, @BLOCKS@)
@NAME@(const __grid_constant__ AttendPackedArgs a) { attend_packed<Config>(a); }
