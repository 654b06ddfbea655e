// attend_hopper.cu - contracts and instances of attend_hopper.cuh: attention of encoders in 16 bits on sm_90a
//
//   plain   queries, keys and values come from one product
//   split   they are apart; windows, biases, soft caps, and rotation on the way
//@ kernel  attend_hopper
//@ variant plain | SPLIT=0 ROT=0 CAUSAL=0 WINDOW=0 SPAN=0 SLOPES=0 SOFTCAP=0
//@ variant split | SPLIT=1
//@ plain:  rank 80
//@ split:  rank 41
//@ plain:  args x[T,N] $step $rows -> y[T,Q]:type(x)
//@ split:  args q[T,H,E] keys[T,G,E]:type(q) values[T,G,E]:type(q) table[P,R,2]:fp32 bias[H,B]:fp32 slopes[H]:fp32 $step $rows -> y:type(q)
//@ plain:  match y = attend_packed(x)
//@ split:  match y = attend(rope(q, table), rope(keys, table), values, bias, slopes?)  | ROT=2*R SPAN=B
//@ split:  match y = attend(rope(q, table), rope(keys, table), values, -, slopes?)     | ROT=2*R
//@ split:  match y = attend(q, keys, values, bias, slopes?)                            | SPAN=B
//@ split:  match y = attend(q, keys, values, -, slopes?)
//@ plain:  consts X: type(x)  HEADS: attend_packed.heads  KV_HEADS: attend_packed.kv_heads  HEAD_DIM: attend_packed.head_dim
//@ split:  consts X: type(q)  HEADS: H  KV_HEADS: G  HEAD_DIM: E
//@ plain:  consts SCALE: attend_packed.scale  ROOM: SEQUENCES
//@ split:  consts SCALE: attend.scale  ROOM: SEQUENCES  CAUSAL: attend.scope == causal  WINDOW: attend.window
//@ split:  consts SOFTCAP: attend.softcap  SPAN: SPAN  SLOPES: has(slopes)  ROT: ROT
//    ACROSS: boxes of 64 columns of a head. BLOCKS: as many per SM as fit, since they hide each other's latency
//    (docs/decisions/020-attention-of-texts.md).
//@ consts  ACROSS: ceil_div(HEAD_DIM, 64)
//@ tune    STAGES: 2 1 3 4  BLOCKS: 5 4 3 2 1
//@ plain:  sums attend_packed = wgmma_tiles 64
//@ split:  sums attend = wgmma_tiles 64
//    Turning keys reads a table: with less shared memory its lines stay in the L1 cache.
//@ split:  prefer STAGES=1 if ROT > 0
//@ prefer  STAGES=2
//@ split:  prefer other if FIXED
//@ prefer  BLOCKS=5 if ACROSS == 1
//@ prefer  BLOCKS=2
//@ consts  TILE_BYTES: ACROSS * 64 * 128  // 64 rows of a head
//@ shared  QUERIES  TILE_BYTES             // in the end the results
//@ shared  RING     STAGES * 2 * TILE_BYTES
//@ shared  BARRIERS STAGES * 3 * 8         // of each slot: keys have arrived, values have arrived, slot is free
//@ split:  shared BIAS SPAN > 0 ? (SPAN + 254) * 4 : 0
//@ needs   WGMMA
//@ fits    sizeof(X) == 2 && type(y) == X
//@ fits    HEADS % KV_HEADS == 0 && HEAD_DIM % 16 == 0 && HEAD_DIM <= 128
//@ split:  fits attend.chunk == 0 && attend.rounded == 0 && (ROT == 0 || rope.style == half && rope.count == all && ROT % 16 == 0)
//    Each block rotates the keys that it sees. Of long texts one launch for all is less work.
//@ split:  prefer other if ROT > 0 && WINDOW == 0 && CONTEXT > 1024
//@ plain:  tiled x 64
//@ split:  tiled q 64
//@ split:  tiled keys 64
//@ split:  tiled values 64
//@ launch  grid HEADS, ceil_div(T, 64) + S    block 128
//@ moves   2 * T * (HEADS + KV_HEADS) * HEAD_DIM * sizeof(X)
//@ flops   4 * T * min(T_MAX, CONTEXT) * HEADS * HEAD_DIM
//@ rate    40
//@ overlap yes
#include "attend_hopper.cuh"

struct Config {
    using T = @X@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@, SEQUENCES = @ROOM@;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
    static constexpr int SPLIT = @SPLIT@, ROT = @ROT@, CAUSAL = @CAUSAL@, WINDOW = @WINDOW@, SPAN = @SPAN@, SLOPES = @SLOPES@;
    static constexpr int STAGES = @STAGES@, TILE_BYTES = @TILE_BYTES@, @REGIONS@;
};
extern "C" __global__ void __launch_bounds__(128, @BLOCKS@)
//@ plain:  text @NAME@(const AttendHopperArgs a) { attend_hopper<Config>(a); }
//@ split:  text @NAME@(const AttendSplitArgs a) { attend_hopper<Config>(a); }
