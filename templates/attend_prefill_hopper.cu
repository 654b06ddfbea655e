// attend_prefill_hopper.cu - contract and instance of attend_prefill_hopper.cuh: chunks of prompts in 16 bits on sm_90a
//@ kernel  attend_prefill_hopper
//@ rank    98
//@ rows    prefill
//@ args    q[T,H,E] $step $rows $pages $k $v -> y:type(q)
//@ match   y = attend_paged(q, _?)
//@ consts  X: type(q)  HEADS: H  KV_HEADS: attend_paged.kv_heads  HEAD_DIM: E
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT
//    BOX: positions of a TMA copy, in one page.
//@ consts  BOX: PAGE % 64 == 0 ? 64 : PAGE % 32 == 0 ? 32 : PAGE % 16 == 0 ? 16 : 8
//@ consts  SCALE: attend_paged.scale  WINDOW: attend_paged.window  SOFTCAP: attend_paged.softcap
//    WARPGROUPS: those that multiply, 64 rows each. KEYS: of a tile. SLOTS: tiles in shared memory, of keys or of values.
//@ consts  ACROSS: ceil_div(HEAD_DIM, 64)
//@ tune    WARPGROUPS: 2 3  KEYS: 128 64  SLOTS: 6 4 8
//@ order   KEYS
//@ consts  ALIGN: FIXED ? KEYS : 8
//@ sums    attend_paged = wgmma_tiles KEYS
//@ prefer  WARPGROUPS=3 SLOTS=8 if HEAD_DIM <= 64
//@ prefer  KEYS=64 SLOTS=4 if HEAD_DIM > 128
//@ consts  ROWS: WARPGROUPS * 64  TILE_BYTES: KEYS * ACROSS * 128
//@ shared  QUERIES  ROWS * ACROSS * 128
//@ shared  RING     SLOTS * TILE_BYTES
//@ shared  BARRIERS SLOTS * 16 + 16                 // of each slot: full, empty; of queries and piece: full, empty
//@ shared  WORK     64                              // the block's piece
//@ zeroed  counters 8
//@ needs   WGMMA
//@ tiled   k BOX
//@ tiled   v BOX
//@ fits    X != fp32 && type($k) == X && type(y) == X
//@ fits    HEADS % KV_HEADS == 0 && PAGE % 8 == 0
//@ fits    HEAD_DIM == 64 || HEAD_DIM == 96 || HEAD_DIM == 128 || HEAD_DIM == 256
//    A step of 64 tokens has too few pieces to gain anything. With fixed sums it takes the kernel of the others.
//@ fits    FIXED || BUCKET == 0 || BUCKET > 64
//@ fits    SHARED <= SMEM && (WARPGROUPS == 2 ? KEYS <= 64 || HEAD_DIM <= 128 : HEAD_DIM <= 64)
//@ launch  grid min(SMS, KV_HEADS * (ceil_div(T * (HEADS / KV_HEADS), ROWS) + S))    block 128 * (WARPGROUPS + 1)
//@ moves   2 * T * (HEADS + KV_HEADS) * HEAD_DIM * sizeof(X)
//@ flops   2 * T * T_MAX * HEADS * HEAD_DIM
//@ rate    60
//@ overlap yes
#include "attend_prefill_hopper.cuh"

struct Config {
    using T = @X@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@;
    static constexpr int BLOCK = @PAGE@, CONTEXT = @LENGTH@, BOX = @BOX@, WINDOW = @WINDOW@, ALIGN = @ALIGN@;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
    static constexpr bool CAUSAL = true;
    static constexpr int WARPGROUPS = @WARPGROUPS@, ROWS = @ROWS@, KEYS = @KEYS@, SLOTS = @SLOTS@, TILE_BYTES = @TILE_BYTES@;
    static constexpr int @REGIONS@;
};

extern "C" __global__ void __launch_bounds__(128 * (@WARPGROUPS@ + 1), 1)
@NAME@(const __grid_constant__ AttendPrefillHopperArgs a) { attend_prefill_hopper<Config>(a); }
