// linear_attend.cu - contract and instance of linear_attend.cuh: q, k, v and attention of an encoder's few tokens
//
// Chosen in encode programs of up to 128 tokens on sm_90a, for heads of 64 elements without shared keys (no GQA), in
// place of linear_tile and attend_hopper.
//@ kernel  linear_attend
//@ rank    210
//@ args    x[M,D] w[P,D] b[P]:fp32 xs:row_stats(x) $step $rows -> y[M,A]
//@ folded  w b g c
//@ match   y = attend_packed(linear(x, w, b?))                   | EPS=0
//@ match   y = attend_packed(linear(layernorm(x:row_stats, g, c), w, b?))  | EPS=layernorm.eps
//@ consts  X: type(x)  W: type(w)  Y: type(y)  WIDTH: D  BIAS: has(b)
//@ consts  HEADS: attend_packed.heads  KV_HEADS: attend_packed.kv_heads  HEAD_DIM: attend_packed.head_dim  SCALE: attend_packed.scale
//@ consts  X_STATS: param(xs)  EPS: EPS
//@ needs   TMA CLUSTER WGMMA
//@ fits    !has(xs) || BIAS
//    SLOTS: steps of 64 k of a block.
//@ consts  SLOTS: ceil_div(ceil_div(WIDTH, 64), 2)
//@ shared  W        SLOTS * 96 * 128
//@ shared  KEYS     128 * 128 over W              // in the place of w, once all blocks have read the first slots
//@ shared  QUERIES  32 * 128 after KEYS
//@ shared  VALUES   128 * 80 after QUERIES
//@ shared  RESULTS  4 * 32 * 36 * 4 after VALUES  // of each warp
//@ shared  SOFTMAX  4 * 32 * 8 after RESULTS
//@ shared  X        SLOTS * 64 * 128 align 1024
//@ shared  SUMS     64 * 96 * 4 / 2 over X        // of the other half of D, once this block has read the first slots
//@ shared  TEXTS    32 * 2                        // begin and end of the text of each of the block's tokens
//@ shared  BARRIERS (SLOTS + 6) * 8               // full of each slot; free; sums of q, k, v are here; keys, values are here
//@ fits    X != fp32 && X == W && X == Y && ENCODE && T_MAX <= 128
//@ fits    HEADS == KV_HEADS && HEAD_DIM == 64 && WIDTH % 8 == 0 && SHARED <= SMEM
//    An H200 runs 15 clusters of 8 blocks at once; more heads need two rounds.
//@ prefer  other if HEADS > 15 && (T_MAX <= 16 || T_MAX > 64)
//@ tiled   x 64
//@ tiled   w 32
//@ launch  grid HEADS * 8   block 256
//@ moves   2 * P * D + 2 * M * (D + A)
//@ flops   2 * M * P * D
//@ overlap yes
#include "linear_attend.cuh"

struct Config {
    using T = @X@;
    static constexpr int D = @WIDTH@, HEADS = @HEADS@, BIAS = @BIAS@, X_STATS = @X_STATS@, SLOTS = @SLOTS@;
    static constexpr int @REGIONS@;
    static constexpr float SCALE = @SCALE@, EPS = @EPS@;
};

extern "C" __global__ void CLUSTER(8) __launch_bounds__(256, 1)
@NAME@(const __grid_constant__ LinearAttendArgs a) { linear_attend<Config>(a); }
