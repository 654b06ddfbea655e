// attend_brief.cu - contract and instance of attend_brief.cuh: one token a row over at most 256 positions
//@ kernel  attend_brief
//@ rank    40
//@ rows    decode
//@ args    q[T,H,E] $step $rows $pages $k $v $owner -> y:type(q)
//@ match   y = attend_paged(q, _?)
//@ consts  X: type(q)  KV: type($k)  HEADS: H  KV_HEADS: attend_paged.kv_heads  HEAD_DIM: E
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT  SCALE: attend_paged.scale  SOFTCAP: attend_paged.softcap
//@ consts  WINDOW: attend_paged.window  LANES: min(BEAMS, 1)
//    LINE, PITCH: bytes of a row of a tile, without and with its padding. PARTIALS: floats of the warps' results.
//    FILLS_GPU: there are so many rows and heads that one warp each fills the GPU. Four warps a unit would leave three
//    without a tile while rows are short. What counts then is how many blocks fit on an SM: 256 rows of 16 heads of 64
//    (Transformer-big on the H200) take 12.7 us with two tiles a warp and 88 registers, 10.3 us with one and 64.
//    FEW_REGISTERS: bound the kernel by MIN_BLOCKS an SM. 8 blocks (64 registers) where 32 lanes divide a row's pieces
//    evenly, before sm_100.
//@ consts  FILLS_GPU: T_MAX > 64 && T_MAX * KV_HEADS > 1056  FEW_REGISTERS: FILLS_GPU && HEAD_DIM <= 64
//@ tune    WARPS: 4 2 1
//@ order   WARPS
//@ sums    attend_paged = warps WARPS
//@ prefer  WARPS=4 if CONTEXT > 64 && !FILLS_GPU
//@ prefer  WARPS=1
//@ consts  TILES: ceil_div(ceil_div(CONTEXT, 16), WARPS)
//@ tune    STAGES: TILES min(TILES,2) 1
//@ prefer  STAGES=TILES if T_MAX * KV_HEADS * WARPS <= 1056
//@ prefer  STAGES=1 if FEW_REGISTERS
//@ prefer  STAGES=min(TILES,2)
//@ tune    MIN_BLOCKS: 1 6 8
//@ prefer  MIN_BLOCKS=1 if !FEW_REGISTERS
//@ prefer  MIN_BLOCKS=8 if ARCH < 100 && (HEAD_DIM == 64 || HEAD_DIM <= 32)
//@ prefer  MIN_BLOCKS=6
//@ consts  LINE: round_up(HEAD_DIM, 16) * 2  PITCH: LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16  TILE_BYTES: 2 * 16 * PITCH
//@ consts  PARTIALS: 4 * (HEADS / KV_HEADS) * (HEAD_DIM + 2)
//@ shared  TILES 4 * STAGES * TILE_BYTES
//@ fits    WINDOW == 0 && X == KV && X != fp32
//@ fits    HEADS % KV_HEADS == 0 && HEADS / KV_HEADS <= 8 && HEAD_DIM % 8 == 0 && HEAD_DIM <= 256
//@ fits    SHARED + 4 * PARTIALS <= SMEM
//    With fewer than 40,000 bytes left it has not been measured.
//@ prefer  other if CONTEXT > 256 || SHARED + 40000 > SMEM
//@ launch  grid ceil_div(S * KV_HEADS, 4 / WARPS)   block 128
//@ moves   S * CONTEXT * KV_HEADS * HEAD_DIM * sizeof(KV)
//@ overlap yes
#include "attend_brief.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@, BLOCK = @PAGE@, CONTEXT = @LENGTH@;
    static constexpr int BEAMS = @LANES@, WARPS = @WARPS@, STAGES = @STAGES@;
    static constexpr int PITCH = @PITCH@, TILE_BYTES = @TILE_BYTES@, PARTIALS = @PARTIALS@;
    static constexpr float SCALE = @SCALE@, SOFTCAP = @SOFTCAP@;
};

extern "C" __global__ void __launch_bounds__(128, @MIN_BLOCKS@)
@NAME@(const __grid_constant__ AttendBriefArgs a) { attend_brief<Config>(a); }
