// attend_cross.cu - contract and instance of attend_cross.cuh: tokens of a decoder over their sources
//@ kernel  attend_cross
//@ rank    50
//@ args    q[T,N] c[T,G,E]:type(q) $step $rows $token $cross_k $cross_v -> y:type(q)
//@ match   y = attend_cross(q, c)
//@ consts  X: type(q)  KV: type($cross_k)  HEADS: attend_cross.heads  KV_HEADS: attend_cross.kv_heads
//@ consts  HEAD_DIM: attend_cross.head_dim  SCALE: attend_cross.scale  LENGTH: SOURCE
//    UNIT: tokens of a block in the form on the matrix units (the lanes of a beam); 0: the plain form.
//    LINE, PITCH: bytes of a row of a tile, without and with its padding. KEY_WARPS: warps that share the tiles of keys.
//@ consts  UNIT: X == KV && X != fp32 ? (BEAMS > 4 ? 8 : BEAMS > 2 ? 4 : BEAMS > 1 ? 2 : 1) : 0
//    FILLS_GPU: there are so many blocks that more warps in each would only reduce how many fit on an SM.
//@ consts  FILLS_GPU: UNIT > 0 && T_MAX > 64 && T_MAX * HEADS > 660 * UNIT
//@ tune    THREADS: 128 64 32
//@ order   THREADS
//@ sums    attend_cross = warps THREADS / 32
//@ prefer  THREADS=128 if SOURCE > (UNIT > 0 ? 32 : 64) && !FILLS_GPU
//@ prefer  THREADS=64
//@ consts  LINE: round_up(HEAD_DIM, 16) * 2  PITCH: LINE % 128 == 0 ? LINE : round_up(LINE, 32) + 16  TILE_BYTES: 2 * 16 * PITCH
//@ consts  KEY_WARPS: THREADS / 32
//@ tune    STAGES: 2 1 3 4
//@ prefer  STAGES=2
//@ shared  TILES UNIT ? KEY_WARPS * STAGES * TILE_BYTES : 0
//@ fits    type(y) == X && HEADS % KV_HEADS == 0 && HEAD_DIM % 8 == 0 && HEAD_DIM <= 256
//@ fits    SHARED + KEY_WARPS * UNIT * (HEAD_DIM + 2) * 4 + 1024 <= SMEM
//@ launch  grid HEADS, ceil_div(T, max(UNIT, 1))   block THREADS
//@ moves   2 * T * HEADS * HEAD_DIM * sizeof(X) + 2 * S * KV_HEADS * SOURCE * HEAD_DIM * sizeof(KV)
//@ overlap yes
#include "attend_cross.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@, SOURCE = @LENGTH@;
    static constexpr int UNIT = @UNIT@, THREADS = @THREADS@, KEY_WARPS = @KEY_WARPS@, STAGES = @STAGES@;
    static constexpr int PITCH = @PITCH@, TILE_BYTES = @TILE_BYTES@;
    static constexpr float SCALE = @SCALE@, SOFTCAP = 0.0f;
};

extern "C" __global__ void __launch_bounds__(Config::THREADS, 1)
@NAME@(const AttendCrossArgs a) { attend_cross<Config>(a); }
