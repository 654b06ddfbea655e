// attend_hopper.cu - contract and instance of attend_hopper.cuh: attention of encoders in 16 bits on sm_90a
//@ kernel  attend_hopper
//@ rank    80
//@ args    x[T,N] $step $rows -> y[T,Q]
//@ match   y = attend_packed(x)
//@ consts  X: type(x)  HEADS: attend_packed.heads  KV_HEADS: attend_packed.kv_heads  HEAD_DIM: attend_packed.head_dim
//@ consts  SCALE: attend_packed.scale  ROOM: SEQUENCES
//    ACROSS: boxes of 64 columns of a head. BLOCKS: as many per SM as fit, since they hide each other's latency
//    (docs/decisions/020-attention-of-texts.md).
//@ consts  ACROSS: ceil_div(HEAD_DIM, 64)
//@ tune    STAGES: 2 1 3 4  BLOCKS: 5 4 3 2 1
//@ prefer  STAGES=2
//@ prefer  BLOCKS=5 if ACROSS == 1
//@ prefer  BLOCKS=2
//@ consts  TILE_BYTES: ACROSS * 64 * 128  // 64 rows of a head
//@ shared  QUERIES  TILE_BYTES             // in the end the results
//@ shared  RING     STAGES * 2 * TILE_BYTES
//@ shared  BARRIERS STAGES * 3 * 8         // of each slot: keys have arrived, values have arrived, slot is free
//@ needs   WGMMA
//@ fits    sizeof(x) == 2 && type(y) == X
//@ fits    HEADS % KV_HEADS == 0 && HEAD_DIM % 16 == 0 && HEAD_DIM <= 128
//@ tiled   x 64
//@ launch  grid HEADS, ceil_div(T, 64) + S    block 128
//@ moves   2 * T * (HEADS + KV_HEADS) * HEAD_DIM * sizeof(X)
//@ flops   4 * T * min(T_MAX, CONTEXT) * HEADS * HEAD_DIM
//@ rate    40
//@ overlap yes
#include "attend_hopper.cuh"

struct Config {
    using T = @X@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@, SEQUENCES = @ROOM@;
    static constexpr float SCALE = @SCALE@;
    static constexpr int STAGES = @STAGES@, TILE_BYTES = @TILE_BYTES@, @REGIONS@;
};
extern "C" __global__ void __launch_bounds__(128, @BLOCKS@)
@NAME@(const AttendHopperArgs a) { attend_hopper<Config>(a); }
