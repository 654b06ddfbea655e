// append_norm.cu - contract and instance of append_norm.cuh: heads of q and k normed, rotated, and written
//@ kernel  append_norm
//@ rank    44
//@ args    x[T,N] t:fp32 qg[E]:fp32 kg[E]:fp32 $step $token $pages $k $v -> q
//@ match   q = append(x, t?, qg, kg)
//@ consts  X: type(x)  Y: type(q)  KV: type($k)  ONE_TYPE: type(q) == type($k)
//@ consts  H: append.heads  G: append.kv_heads  E: E  ROT: append.rot  EPS: append.eps
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  THREADS: 128
//@ consts  VEC: (E * sizeof(x) % 16 == 0 ? 16 : E * sizeof(x) % 8 == 0 ? 8 : 4) / sizeof(x)
//@ consts  LANES: min(32, pow2(ceil_div(E, VEC)))
//@ tune    PER: 1 2 4 5
//@ fits    E % 2 == 0 && sizeof(KV) > 1
//@ launch  grid T, ceil_div(H + 2 * G, THREADS / LANES * PER)   block THREADS
//@ moves   2 * sizeof(x) * T * N
//@ overlap yes
#include "append_norm.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    using KV = @KV@;
    static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@;
    static constexpr int BLOCK = @BLOCK@, PAGES = @PAGES@, THREADS = @THREADS@;
    static constexpr int VEC = @VEC@, LANES = @LANES@, PER = @PER@, ONE_TYPE = @ONE_TYPE@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const AppendNormArgs a) { append_norm<Config>(a); }
