// attention_block.cu - contract and instance of attention_block.cuh: self attention, from norm to residual, for up to 8
// rows that bring one token each
//@ kernel  attention_block
//@ rank    110
//@ rows    decode
//@ args    x[M,D] w[P,D] g[D]:fp32 c[D]:fp32 b[P]:fp32 wo[D,A] bo[D]:fp32 t:fp32 $step $rows $pages $owner $k $v -> y
//    PRE: pre-norm; the residual is x, and not n(x).
//@ match   y = add(linear(attend_paged(append(linear(x, w, b?), t?)), wo, bo?), x)                                   | NORM=0 PRE=0 EPS=0
//@ match   y = add(linear(attend_paged(append(linear(rmsnorm(x, g), w, b?), t?)), wo, bo?), x)                       | NORM=1 PRE=1 EPS=rmsnorm.eps
//@ match   y = add(linear(attend_paged(append(linear(layernorm(x, g, c), w, b?), t?)), wo, bo?), x)                  | NORM=2 PRE=1 EPS=layernorm.eps
//@ match   y = add(linear(attend_paged(append(linear(layernorm(x, g, c), w, b?), t?)), wo, bo?), layernorm(x, g, c)) | NORM=2 PRE=0 EPS=layernorm.eps
//@ consts  X: type(x)  WIDTH: D  M: pow2(T_MAX)  NORM: NORM  W: type(w)  WO: type(wo)  Y: type(y)  KV: type($k)
//@ consts  BIAS: has(b)  BIAS_OUT: has(bo)  HEADS: append.heads  KV_HEADS: append.kv_heads  HEAD_DIM: append.head_dim  FIRST: NORM == 0
//@ consts  ROT: append.rot  PAGE: BLOCK  LENGTH: CONTEXT  LANES: min(BEAMS, 1)
//@ consts  SCALE: attend_paged.scale  SOFTCAP: attend_paged.softcap  WINDOW: attend_paged.window
//    SLICES: slices of a row's keys. SHARE: warps that share a row. STEPS: steps of 32 k that a warp multiplies; each
//    takes 8 registers of weights for 16 columns. EACH: columns of y that a block finishes. LINE, PITCH: bytes of a row of
//    a tile, without and with its padding. X_ROW_BYTES, H_ROW_BYTES, SUM_LINE: of a row of x, of q, k or v, floats of a
//    row of sums; all padded against bank conflicts.
//@ consts  TILES: ceil_div(CONTEXT, 16)
//@ tune    SLICES: min(8,TILES) min(4,TILES) min(2,TILES)
//@ order   SLICES
//@ prefer  SLICES=min(8,TILES)
//@ consts  WIDE: round_up(HEAD_DIM, 16)  STEPS: ceil_div(WIDTH, 128)  EACH: round_up(ceil_div(WIDTH, HEADS), 4)
//@ consts  LINE: WIDE * 2  PITCH: LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16  TILE_BYTES: 2 * 16 * PITCH
//@ consts  X_ROW_BYTES: round_up(2 * WIDTH, 128) + 64  H_ROW_BYTES: LINE + 16  SUM_LINE: 3 * WIDE + 4
//@ tune    SHARE: min(12/M,SLICES) min(8/M,SLICES)
//@ prefer  SHARE=min(12/M,SLICES) if BESIDE_TILES + 12 * TILE_BYTES + 1024 <= SMEM
//@ prefer  SHARE=min(8/M,SLICES)
//@ consts  KEY_WARPS: M * SHARE
//@ consts  STAGES: min(ceil_div(SLICES, SHARE) * ceil_div(TILES, SLICES), (SMEM - 1024 - BESIDE_TILES) / (KEY_WARPS * TILE_BYTES))
//@ shared  WO       round_up(WIDTH, 32) * PITCH
//@ shared  TILES    KEY_WARPS * STAGES * TILE_BYTES  // keys and values
//@ shared  X        M * X_ROW_BYTES
//@ shared  RAW      PRE * M * X_ROW_BYTES            // x itself, beside n(x)
//@ shared  SUMS     4 * M * SUM_LINE * 4             // [slices of D][M] rows
//@ shared  HEAD     3 * M * H_ROW_BYTES              // rows of q, k, v; q is replaced by the head's result
//@ shared  GAINS    min(NORM, 1) * 2 * WIDTH * 4     // gains and biases of the norm
//@ shared  PARTIALS SLICES * M * (HEAD_DIM + 2) * 4  // results of the warps
//@ shared  BIASES   (3 * WIDE + EACH) * 4            // of w, then of wo
//@ shared  HEADS    HEADS * M * EACH * 4 align 16    // what the heads add to y
//@ needs   TMA CLUSTER
//@ fits    X != fp32 && X == W && X == WO && X == Y && X == KV && BUCKET > 0 && M <= 8
//@ fits    HEADS == KV_HEADS && HEADS <= 8 && HEAD_DIM % 8 == 0 && HEAD_DIM <= 128 && WINDOW == 0
//@ fits    WIDTH % 8 == 0 && WIDE / 16 * (8 * STEPS + 4) <= 144 && STAGES >= 1
//    On sm_120a it would spill some registers with M = 1. Longer contexts have not been measured.
//@ prefer  other if ARCH >= 120 || CONTEXT > 256
//@ launch  grid HEADS   block 384
//@ moves   2 * (P + A) * D + S * CONTEXT * KV_HEADS * HEAD_DIM * sizeof(KV)
//@ flops   2 * T * (P + A) * D
//@ overlap yes
//@ holds   FIRST
#include "attention_block.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int M = @M@, D = @WIDTH@, HEADS = @HEADS@, KV_HEADS = HEADS, H = HEADS, G = HEADS, E = @HEAD_DIM@;
    static constexpr int CROSS = 0, NORM = @NORM@, PRE = @PRE@, BIAS = @BIAS@, BIAS_OUT = @BIAS_OUT@;
    static constexpr int FIRST = @FIRST@, ROT = @ROT@, BLOCK = @PAGE@, CONTEXT = @LENGTH@, BEAMS = @LANES@;
    static constexpr int SLICES = @SLICES@, SHARE = @SHARE@, KEY_WARPS = @KEY_WARPS@, STAGES = @STAGES@;
    static constexpr int PITCH = @PITCH@, TILE_BYTES = @TILE_BYTES@, EACH = @EACH@, X_ROW_BYTES = @X_ROW_BYTES@;
    static constexpr int H_ROW_BYTES = @H_ROW_BYTES@, SUM_LINE = @SUM_LINE@, @REGIONS@;
    static constexpr float EPS = @EPS@, SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
};

extern "C" __global__ void CLUSTER(Config::HEADS) __launch_bounds__(384, 1)
@NAME@(const __grid_constant__ AttentionBlockArgs a) { attention_block<Config>(a); }
