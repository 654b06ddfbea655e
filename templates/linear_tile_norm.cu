// linear_tile_norm.cu - contract and instance of linear_tile.cuh: a product, its residual and the layer norm behind
// it, for many rows on sm_90a
//
// 2,240 x 768 x 768 on the H200: 8.4 us, where product and norm take 6.5 and 2.7; docs/performance.md has more.
//@ kernel  linear_tile_norm
//@ device  cuda
//@ args    g[N]:fp32 c[N]:fp32 x[M,K] w[N,K] b[N]:fp32 r[M,N] $step -> y[M,N]
//@ match   y = layernorm(add(linear(x, w, b?), r), g, c)   | EPS=layernorm.eps
//@ consts  X: type(x)  W: type(w)  R: type(r)  Y: type(y)  N: N  K: K  BIAS: has(b)  ROWS_S: rows(x)  EPS: EPS
//@ consts  CN: N / 256  STAGES: 5  BYTES: STAGES * 40960 + 3072 + 2048 * CN + (2 * STAGES + 2) * 8
//@ fits    sizeof(x) == 2 && X == W && X == R && X == Y && ARCH == 90 && ARCH_A == 1
//    Where K or the cluster is larger, the tiles of linear_tile, which leave fewer SMs idle, are worth a launch more;
//    clusters of two nobody has timed.
//@ fits    N == 768 && K <= N && K % 8 == 0 && T_MAX > 1024 && ENCODE
//@ tiled   x 64 % (CN * 8) ? 8 : 64 / CN
//@ tiled   w 256
//@ tiled   r 64
//    The blocks of a cluster stand on neighbouring SMs, so not all SMs find one: of 7/8 of the SMs, no
//    more clusters than the rounds need.
//@ launch  grid ceil_div(ceil_div(M, 64), ceil_div(ceil_div(M, 64), max(1, SMS * 7 / 8 / CN))) * CN   block 288   smem BYTES
//@ moves   2 * N * K + 2 * M * (K + 2 * N)
//@ flops   2 * M * N * K
//@ rate    650
//@ matmul  yes
//@ overlap yes
#include "linear_tile.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int N = @N@, K = @K@, BIAS = @BIAS@, ACT = 0, RES = 1, ROWS_S = @ROWS_S@, NORM = 2, PARTS = 0;
    static constexpr int MT = 64, NT = 256, CM = 1, CN = @CN@, CK = 1, WGS = 2, TEAM = 1, STAGED = 0, STAGES = @STAGES@, SMEM = @BYTES@;
    static constexpr float EPS = @EPS@;
};
extern "C" __global__ void CLUSTER(Config::CN) __launch_bounds__(288, 1)
@NAME@(const TileNormArgs a) { linear_tile<Config>(a); }
