// attend_cross.cu - contract and instance of attend_cross.cuh
//@ kernel  attend_cross
//@ device  cuda
//@ args    q[T,N] c[T,G,E] $step $rows $token $cross_k $cross_v -> y
//@ match   y = attend_cross(q, c)
//@ consts  X: type(q)  KV: type($cross_k)  HEADS: attend_cross.heads  KV_HEADS: attend_cross.kv_heads
//@ consts  HEAD_DIM: attend_cross.head_dim  SCALE: attend_cross.scale  LENGTH: SOURCE
//@ consts  THREADS: SOURCE > 64 ? 128 : 64
//@ fits    type(y) == X && HEADS % KV_HEADS == 0 && HEAD_DIM % 8 == 0 && HEAD_DIM <= 256
//@ launch  grid HEADS, T   block THREADS
//@ moves   2 * T * HEADS * HEAD_DIM * sizeof(X) + 2 * S * KV_HEADS * SOURCE * HEAD_DIM * sizeof(KV)
//@ overlap yes
#include "attend_cross.cuh"

struct Config {
    using T = @X@;
    using KV = @KV@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@, SOURCE = @LENGTH@;
    static constexpr int THREADS = @THREADS@;
    static constexpr float SCALE = @SCALE@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS, 1)
@NAME@(const AttendCrossArgs a) { attend_cross<Config>(a); }
