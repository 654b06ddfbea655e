// linear_fma_append.cu - contract and instance of linear_fma.cuh: q, k and v in fp32, with RoPE, k and v into the cache
//
// Chosen as linear_fma.cu is, where the joined q, k, v projection ends in an append to the KV cache.
//@ kernel  linear_fma_append
//@ rank    230
//@ args    x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y
//@ match   y = append(linear(x, w, b?), t?)                | NORM=0 EPS=0
//@ match   y = append(linear(rmsnorm(x, g), w, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ match   y = append(linear(layernorm(x, g, c), w, b?), t?) | NORM=2 EPS=layernorm.eps
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(T_MAX)  BIAS: has(b)
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ fits    sizeof(x) == 4 && sizeof(w) == 4 && BUCKET > 0 && M <= 64
//@ launch  grid min(4 * SMS, ceil_div(N, 16))   block 256
//@ moves   4 * N * K
//@ flops   2 * T * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_fma.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = 0, GLU = 0, RES = 0, APPEND = 1;
    static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int ROWS_S = 0, LAST = 0;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(256)
@NAME@(const LinearArgs a) { linear_fma<Config>(a); }
