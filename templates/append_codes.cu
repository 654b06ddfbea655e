// append_codes.cu - contract and instance of append_codes.cuh: keys and values as codes of 8 bits
//@ kernel  append_codes
//@ rank    46
//@ args    x[T,N] t:fp32 qg[E]:fp32 kg[E]:fp32 $step $token $pages $k $v -> q
//@ match   q = append(x, t?, -, -)
//@ match   q = append(x, t?, qg, kg)
//@ consts  X: type(x)  Y: type(q)  FP8: type($k) == fp8  HEADS: append.heads  KV_HEADS: append.kv_heads
//@ consts  HEAD_DIM: append.head_dim  ROT: append.rot  NORM: has(qg)  EPS: append.eps
//@ consts  PAGE: BLOCK  LENGTH: CONTEXT  THREADS: 128
//@ fits    sizeof($k) == 1 && HEAD_DIM % 16 == 0 && HEAD_DIM <= 512
//@ launch  grid T, ceil_div(HEADS + 2 * KV_HEADS, THREADS / 32)   block THREADS
//@ moves   2 * sizeof(x) * T * N
//@ overlap yes
#include "append_codes.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int HEADS = @HEADS@, KV_HEADS = @KV_HEADS@, E = @HEAD_DIM@, ROT = @ROT@;
    static constexpr int BLOCK = @PAGE@, CONTEXT = @LENGTH@, THREADS = @THREADS@;
    static constexpr bool FP8 = @FP8@, NORM = @NORM@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const AppendCodesArgs a) { append_codes<Config>(a); }
