// attention_block_cross.cu - contract and instance of attention_block.cuh: cross attention, from norm to residual, for up
// to 8 rows that bring one token each. Constants: attention_block.cu explains those that are not explained here.
//@ kernel  attention_block_cross
//@ rank    120
//@ rows    decode
//@ args    x[M,D] w[A,D] g[D]:fp32 c[D]:fp32 b[A]:fp32 wo[D,A] bo[D]:fp32 s:type(x) $step $rows $pages $owner $cross_k $cross_v -> y
//@ match   y = add(linear(attend_cross(linear(x, w, b?), s), wo, bo?), x)                                   | NORM=0 PRE=0 EPS=0
//@ match   y = add(linear(attend_cross(linear(rmsnorm(x, g), w, b?), s), wo, bo?), x)                       | NORM=1 PRE=1 EPS=rmsnorm.eps
//@ match   y = add(linear(attend_cross(linear(layernorm(x, g, c), w, b?), s), wo, bo?), x)                  | NORM=2 PRE=1 EPS=layernorm.eps
//@ match   y = add(linear(attend_cross(linear(layernorm(x, g, c), w, b?), s), wo, bo?), layernorm(x, g, c)) | NORM=2 PRE=0 EPS=layernorm.eps
//@ consts  X: type(x)  WIDTH: D  M: pow2(T_MAX)  NORM: NORM  W: type(w)  WO: type(wo)  Y: type(y)  KV: type($cross_k)
//@ consts  BIAS: has(b)  BIAS_OUT: has(bo)  HEADS: attend_cross.heads  KV_HEADS: attend_cross.kv_heads
//@ consts  HEAD_DIM: attend_cross.head_dim  LENGTH: SOURCE  SCALE: attend_cross.scale
//    KEY_WARPS: warps that share the tiles of keys. STAGES: two where a warp takes more than one tile.
//@ consts  WIDE: round_up(HEAD_DIM, 16)  STEPS: ceil_div(WIDTH, 256)  EACH: round_up(ceil_div(WIDTH, HEADS), 4)
//@ consts  LINE: WIDE * 2  PITCH: LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16  TILE_BYTES: 2 * 16 * PITCH
//@ tune    KEY_WARPS: 8 4 2
//@ order   KEY_WARPS
//@ prefer  KEY_WARPS=8 if SOURCE > 64
//@ prefer  KEY_WARPS=4
//@ tune    STAGES: 2 1
//@ prefer  STAGES=2 if ceil_div(M, max(BEAMS, 1)) * ceil_div(SOURCE, 16) > KEY_WARPS
//@ prefer  STAGES=1
//@ consts  X_ROW_BYTES: round_up(2 * WIDTH, 128) + 64  H_ROW_BYTES: LINE + 16  SUM_LINE: WIDE + 4
//@ shared  WO       round_up(WIDTH, 32) * PITCH
//@ shared  TILES    KEY_WARPS * STAGES * TILE_BYTES     // keys and values
//@ shared  X        M * X_ROW_BYTES
//@ shared  RAW      PRE * M * X_ROW_BYTES               // x itself, beside n(x)
//@ shared  SUMS     8 * M * SUM_LINE * 4                // [slices of D][M] rows
//@ shared  HEAD     M * H_ROW_BYTES                     // rows of q; q is replaced by the head's result
//@ shared  GAINS    min(NORM, 1) * 2 * WIDTH * 4        // gains and biases of the norm
//@ shared  PARTIALS KEY_WARPS * M * (HEAD_DIM + 2) * 4  // results of the warps
//@ shared  BIASES   (WIDE + EACH) * 4                   // of w, then of wo
//@ shared  HEADS    HEADS * M * EACH * 4 align 16       // what the heads add to y
//    MEMORY: more than half of an SM's, so that no block of a `linear` shares the SM: its loads of x would queue behind
//    all that the next launch of this kernel loads early. (With half an SM, `up` took 1 us longer on an H200.)
//@ tune    MEMORY: max(SHARED,(SMEM+1024)/2) SHARED
//@ prefer  MEMORY=max(SHARED,(SMEM+1024)/2)
//@ needs   TMA CLUSTER
//@ fits    X != fp32 && X == W && X == WO && X == Y && X == KV && BUCKET > 0 && M <= 8
//@ fits    HEADS == KV_HEADS && HEADS <= 8 && HEAD_DIM % 8 == 0 && HEAD_DIM <= 128
//@ fits    WIDTH % 8 == 0 && WIDE / 16 * (8 * STEPS + 4) <= 144 && SHARED + 1024 <= SMEM
//@ launch  grid HEADS   block 256   smem MEMORY
//@ moves   4 * A * D + 2 * S * KV_HEADS * SOURCE * HEAD_DIM * sizeof(KV)
//@ flops   4 * T * A * D
//@ overlap yes
#include "attention_block.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int M = @M@, D = @WIDTH@, HEADS = @HEADS@, KV_HEADS = HEADS, E = @HEAD_DIM@;
    static constexpr int CROSS = 1, FIRST = 0, NORM = @NORM@, PRE = @PRE@, BIAS = @BIAS@, BIAS_OUT = @BIAS_OUT@;
    static constexpr int SOURCE = @LENGTH@, UNIT = M, KEY_WARPS = @KEY_WARPS@, SLICES = KEY_WARPS, STAGES = @STAGES@;
    static constexpr int PITCH = @PITCH@, TILE_BYTES = @TILE_BYTES@, EACH = @EACH@, X_ROW_BYTES = @X_ROW_BYTES@;
    static constexpr int H_ROW_BYTES = @H_ROW_BYTES@, SUM_LINE = @SUM_LINE@, @REGIONS@;
    static constexpr float EPS = @EPS@, SCALE = @SCALE@, SOFTCAP = 0.0f;
};

extern "C" __global__ void CLUSTER(Config::HEADS) __launch_bounds__(256, 1)
@NAME@(const __grid_constant__ AttentionBlockArgs a) { attention_block<Config>(a); }
