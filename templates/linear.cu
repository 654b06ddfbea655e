// linear.cu - contract and instance of linear.cuh: linear layers of 1 to 8 rows on sm_90 and newer
//
// Chosen for 16-bit weights in programs of up to 8 tokens: norm before, activation, GLU or residual after in one
// kernel. Where x does not fit shared memory, or K is no multiple of 8, linear_wide is chosen.
//@ kernel  linear
//@ rank    190
//@ args    x[M,K] w[N,K] g:fp32 c:fp32 b[N]:fp32 r[M,N] t:fp32 $step $token $rows $pages $k $v -> y
//@ match   y = linear(x, w, b?)                            | NORM=0 EPS=0 ACT=0 GLU=0 RES=0
//@ match   y = act(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=act.kind GLU=0 RES=0
//@ match   y = glu(linear(x, w, b?))                       | NORM=0 EPS=0 ACT=glu.kind GLU=1 RES=0
//@ match   y = add(linear(x, w, b?), r)                    | NORM=0 EPS=0 ACT=0 GLU=0 RES=1
//@ match   y = add(linear(x, w, b?), layernorm(r, g, c)) | NORM=0 EPS=layernorm.eps ACT=0 GLU=0 RES=2
//@ match   y = linear(rmsnorm(x, g), w, b?)                | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0 RES=0
//@ match   y = act(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0 RES=0
//@ match   y = glu(linear(rmsnorm(x, g), w, b?))           | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1 RES=0
//@ match   y = linear(layernorm(x, g, c), w, b?)           | NORM=2 EPS=layernorm.eps ACT=0 GLU=0 RES=0
//@ match   y = act(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=act.kind GLU=0 RES=0
//@ match   y = glu(linear(layernorm(x, g, c), w, b?))      | NORM=2 EPS=layernorm.eps ACT=glu.kind GLU=1 RES=0
//@ consts  X: type(x)  W: type(w)  Y: type(y)  N: N  K: K  M: pow2(T_MAX)  BIAS: has(b)
//@ consts  ROWS_S: rows(x)
//    A block takes all shared memory of an SM; for a matrix below 32 MB it takes half, so that the next kernel can start
//    beside it. CHUNK_MAX (k of a row in one bulk copy): rows of 4 KB are read faster than rows of 2 KB, if three chunks
//    fit.
//@ consts  X_ROW_BYTES: round_up(2 * K, 128) + 64  HALF_SMEM: (SMEM + 1024) / 2 - 1024
//@ consts  BYTES: N * K >= 16000000 || M * X_ROW_BYTES > 36864 ? SMEM : HALF_SMEM  BLOCKS_PER_SM: BYTES > HALF_SMEM ? 1 : 2
//@ consts  CHUNK_MAX: BYTES > HALF_SMEM && 108544 + M * X_ROW_BYTES <= BYTES ? 2048 : 1024
//@ consts  CHUNK: round_up(ceil_div(K, ceil_div(K, CHUNK_MAX)), 256)  IN_FLIGHT: BYTES > HALF_SMEM ? 49152 : 65536
//@ consts  THREADS: RES == 2 ? 288 + 32 * M : 320
//@ fits    sizeof(x) == 2 && X == W && ARCH >= 90 && K % 8 == 0 && BUCKET > 0 && M <= 8
//@ fits    RES < 2 || (N % 8 == 0 && N <= 2048)
//@ fits    8704 + M * X_ROW_BYTES + 3 * 8 * (2 * CHUNK + 64) <= BYTES
//@ launch  grid min(SMS, ceil_div(N, 8))   block THREADS   smem BYTES
//@ moves   2 * N * K
//@ flops   2 * T * N * K
//@ matmul  yes
//@ overlap yes
#include "linear.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int NORM = @NORM@, BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = 0;
    static constexpr int ROWS_S = @ROWS_S@, LAST = 0, SEGMENTS = 0;
    static constexpr float EPS = @EPS@;
    static constexpr int SMEM = @BYTES@, IN_FLIGHT = @IN_FLIGHT@, CHUNK_MAX = @CHUNK_MAX@;
};
extern "C" __global__ void __launch_bounds__(@THREADS@, @BLOCKS_PER_SM@)
@NAME@(const LinearArgs a) { linear<Config>(a); }
