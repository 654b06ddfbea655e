// linear_head.cu - contract and instance of linear.cuh: up to 8 rows, one pass over w over the last token of each sequence,
//     and parts of the logits
//@ kernel  linear_head
//@ rank    250
//@ args    $params x[T,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y[S,N] $segments
//@ match   y = linear(rmsnorm(select_last(x), g), w, b?)   | NORM=1 EPS=rmsnorm.eps
//@ match   y = linear(layernorm(select_last(x), g, c), w, b?) | NORM=2 EPS=layernorm.eps
//@ match   y = linear(select_last(x), w, b?)               | NORM=0 EPS=0
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(min(T_MAX, S_MAX))  BIAS: has(b)
//@ consts  SEGMENTS: logits(y)  KEPT: SEGMENTS * M * 1024
//    PART: rows of 4 KB are read faster than rows of 2 KB, where three chunks of them find room.
//@ consts  XROW: round_up(2 * K, 128) + 64  HALF: (SMEM + 1024) / 2 - 1024
//@ consts  BYTES: N * K >= 16000000 || M * XROW > 36864 ? SMEM : HALF  BLOCKS: BYTES > HALF ? 1 : 2
//@ consts  PART: BYTES > HALF && 108544 + KEPT + M * XROW <= BYTES ? 2048 : 1024
//@ consts  CHUNK: round_up(ceil_div(K, ceil_div(K, PART)), 256)  FLIGHT: BYTES > HALF ? 49152 : 65536
//@ fits    sizeof(x) == 2 && X == W && ARCH >= 90 && K % 8 == 0 && M <= 8
//@ fits    8704 + KEPT + M * XROW + 3 * 8 * (2 * CHUNK + 64) <= BYTES
//@ launch  grid min(min(SMS, 192), ceil_div(N, 8))   block 320   smem BYTES
//@ moves   2 * N * K
//@ flops   2 * S * N * K
//@ matmul  yes
//@ overlap yes
#include "linear.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = 0, GLU = 0, RES = 0, APPEND = 0;
    static constexpr int ROWS_S = 1, LAST = 1, SEGMENTS = @SEGMENTS@;
    static constexpr float EPS = @EPS@;
    static constexpr int SMEM = @BYTES@, FLIGHT = @FLIGHT@, PART = @PART@;
};
extern "C" __global__ void __launch_bounds__(320, @BLOCKS@)
@NAME@(const LinearHeadArgs a) { linear<Config>(a); }
