// linear_fma.cu - contracts and instance of linear_fma.cuh: linear layers in fp32, up to 64 rows
//
// Chosen for fp32 weights in programs of up to 64 tokens, on every GPU; above that cuBLASLt is (matmul.cu).
//
//   plain    norm before, activation, GLU or residual after in one kernel
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 64 sequences. It writes no segments: the sampler reads the whole row
//@ kernel  linear_fma
//@ variant plain  | APPEND=0 LAST=0
//@ variant append | APPEND=1 LAST=0 ROWS_S=0 ACT=0 GLU=0 RES=0
//@ variant head   | APPEND=0 LAST=1 ROWS_S=1 ACT=0 GLU=0 RES=0
//@ plain:  rank 220
//@ append: rank 230
//@ head:   rank 240
//@ plain, append: args x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y
//@ head:   args  x[T,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y[S,N]
//@ plain:  match y = linear(x, w, b?)                            | NORM=0 EPS=0 ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=glu.kind GLU=1 RES=0
//@ plain:  match y = add(linear(x, w, b?), r)                    | NORM=0 EPS=0 ACT=0 GLU=0 RES=1
//@ plain:  match y = linear(rmsnorm(x, g), w, b?)                | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1 RES=0
//@ plain:  match y = linear(layernorm(x, g, c), w, b?)           | NORM=2 EPS=layernorm.eps ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=glu.kind GLU=1 RES=0
//@ append: match y = append(linear(x, w, b?), t?)                | NORM=0 EPS=0
//@ append: match y = append(linear(rmsnorm(x, g), w, b?), t?)    | NORM=1 EPS=rmsnorm.eps
//@ append: match y = append(linear(layernorm(x, g, c), w, b?), t?)    | NORM=2 EPS=layernorm.eps
//@ head:   match y = linear(rmsnorm(select_last(x), g), w, b?)   | NORM=1 EPS=rmsnorm.eps
//@ head:   match y = linear(layernorm(select_last(x), g, c), w, b?)   | NORM=2 EPS=layernorm.eps
//@ head:   match y = linear(select_last(x), w, b?)               | NORM=0 EPS=0
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(LAST ? min(T_MAX, S_MAX) : T_MAX)  BIAS: has(b)
//@ plain:  consts ROWS_S: rows(x)
//@ append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append: fits sizeof(KV) > 1
//@ sums    linear = lanes 32
//@ fits    sizeof(x) == 4 && sizeof(w) == 4 && (LAST || BUCKET > 0 || FIXED) && (M <= 64 || FIXED)
//@ launch  grid min(4 * SMS, ceil_div(N, 16))   block 256
//@ moves   4 * N * K
//@ flops   2 * (LAST ? S : T) * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_fma.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@;
//@ append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int ROWS_S = @ROWS_S@, LAST = @LAST@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(256)
@NAME@(const LinearArgs a) { linear_fma<Config>(a); }
