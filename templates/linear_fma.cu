// linear_fma.cu - contract and instance of linear_fma.cuh: linear layers in fp32, up to 64 rows
//
// Chosen for fp32 weights in programs of up to 64 tokens, on every GPU; above that cuBLASLt is (matmul.cu).
//@ kernel  linear_fma
//@ rank    220
//@ args    x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y
//@ match   y = linear(x, w, b?)                            | NORM=0 EPS=0 ACT=0 GLU=0 RES=0
//@ match   y = act(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=act.kind GLU=0 RES=0
//@ match   y = glu(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=glu.kind GLU=1 RES=0
//@ match   y = add(linear(x, w, b?), r)                    | NORM=0 EPS=0 ACT=0 GLU=0 RES=1
//@ match   y = linear(rmsnorm(x, g), w, b?)                | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0 RES=0
//@ match   y = act(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0 RES=0
//@ match   y = glu(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1 RES=0
//@ match   y = linear(layernorm(x, g, c), w, b?)           | NORM=2 EPS=layernorm.eps ACT=0 GLU=0 RES=0
//@ match   y = act(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=act.kind GLU=0 RES=0
//@ match   y = glu(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=glu.kind GLU=1 RES=0
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(T_MAX)  BIAS: has(b)
//@ consts  ROWS_S: rows(x)
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
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = 0;
    static constexpr int ROWS_S = @ROWS_S@, LAST = 0;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(256)
@NAME@(const LinearArgs a) { linear_fma<Config>(a); }
