// linear_fma_head.cu - contract and instance of linear_fma.cuh: logits in fp32 of the last token of up to 64 sequences
//
// Chosen for an fp32 LM head of up to 64 sampled rows. It writes no segments: the sampler reads the whole row.
//@ kernel  linear_fma_head
//@ rank    240
//@ args    x[T,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y[S,N]
//@ match   y = linear(rmsnorm(select_last(x), g), w, b?)   | NORM=1 EPS=rmsnorm.eps
//@ match   y = linear(layernorm(select_last(x), g, c), w, b?) | NORM=2 EPS=layernorm.eps
//@ match   y = linear(select_last(x), w, b?)               | NORM=0 EPS=0
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(min(T_MAX, S_MAX))  BIAS: has(b)
//@ fits    sizeof(x) == 4 && sizeof(w) == 4 && M <= 64
//@ launch  grid min(4 * SMS, ceil_div(N, 16))   block 256
//@ moves   4 * N * K
//@ flops   2 * S * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_fma.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = 0, GLU = 0, RES = 0, APPEND = 0;
    static constexpr int ROWS_S = 1, LAST = 1;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(256)
@NAME@(const LinearArgs a) { linear_fma<Config>(a); }
