// head_linear.cu - contract and instance of head_linear.cuh: a product for each head
//@ kernel  head_linear
//@ rank    225
//@ args    x[T,H,K] w[HN,K] $step -> y[T,H,N]
//@ match   y = head_linear(x, w)
//@ consts  X: type(x)  W: type(w)  Y: type(y)  H: H  N: N  K: K  ROWS: T_MAX <= 16 ? 16 : 64
//@ launch  grid ceil_div(N, 64), H, ceil_div(T, ROWS)   block 128
//@ moves   sizeof(w) * HN * K + T * H * (sizeof(x) * K + sizeof(y) * N)
//@ flops   2 * T * HN * K
//@ matmul  yes
//@ overlap yes
#include "head_linear.cuh"

struct Config {
    using T = @X@;
    using W = @W@;
    using OUT = @Y@;
    static constexpr int H = @H@, N = @N@, K = @K@, ROWS = @ROWS@;
};
extern "C" __global__ void __launch_bounds__(128)
@NAME@(const HeadLinearArgs a) { head_linear<Config>(a); }
