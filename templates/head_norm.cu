// head_norm.cu - contract and instance of head_norm.cuh: norms over heads, with the product behind them
//@ kernel  head_norm
//@ rank    34
//@ args    x[T,H,E] g[E]:fp32 c[E]:fp32 og[H,E]:fp32 oc[H,E]:fp32 z[T,H*E]:type(x) $step -> y:type(x)
//@ match   y = rmsnorm(x, g)          | NORM=1 OWN_G=0 OWN_C=0 EPS=rmsnorm.eps
//@ match   y = rmsnorm(x, og)         | NORM=1 OWN_G=1 OWN_C=0 EPS=rmsnorm.eps
//@ match   y = layernorm(x, g, c)     | NORM=2 OWN_G=0 OWN_C=0 EPS=layernorm.eps
//@ match   y = layernorm(x, og, c)    | NORM=2 OWN_G=1 OWN_C=0 EPS=layernorm.eps
//@ match   y = layernorm(x, og, oc)   | NORM=2 OWN_G=1 OWN_C=1 EPS=layernorm.eps
//@ match   y = mul(join_heads(rmsnorm(x, g)), z)   | NORM=1 OWN_G=0 OWN_C=0 MUL=1 EPS=rmsnorm.eps
//@ match   y = mul(join_heads(rmsnorm(x, og)), z)  | NORM=1 OWN_G=1 OWN_C=0 MUL=1 EPS=rmsnorm.eps
//@ consts  X: type(x)  H: H  E: E  MUL: MUL  THREADS: 128
//@ sums    rmsnorm = heads 32
//@ sums    layernorm = heads 32
//@ fits    type(y) == X
//@ launch  grid ceil_div(T * H, THREADS / 32)   block THREADS
//@ moves   (2 + MUL) * sizeof(x) * T * H * E
//@ overlap yes
#include "head_norm.cuh"

struct Config {
    using T = @X@;
    static constexpr int H = @H@, E = @E@, NORM = @NORM@, OWN_G = @OWN_G@, OWN_C = @OWN_C@, MUL = @MUL@, THREADS = @THREADS@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
@NAME@(const HeadNormArgs a) { head_norm<Config>(a); }
