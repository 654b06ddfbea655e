// expert_q.cu - contracts and instances of expert_q.cuh: linear layers of experts with quantised weights, for few rows
//
//   linear, fp8   each row with the matrices of its experts, a norm before, activation or gate after
//   sum, fp8_sum  the weighted sum of a row's experts, and the residual
//@ kernel  expert_q
//@ variant linear  | SUM=0 RES=0 FP8=0
//@ variant sum     | SUM=1 NORM=0 EPS=0 ACT=0 GLU=0 FP8=0
//@ variant fp8     | SUM=0 RES=0 FP8=1
//@ variant fp8_sum | SUM=1 NORM=0 EPS=0 ACT=0 GLU=0 FP8=1
//@ linear:  rank 811
//@ sum:     rank 812
//@ fp8:     rank 813
//@ fp8_sum: rank 814
//@ linear, fp8:  args x[M,K] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 g[K]:fp32 -> y
//@ sum, fp8_sum: args x[M,RK] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a:type(x) -> y
//@ linear, fp8:  match y = expert_linear(x, r:by_expert, w:m16k16, b?)                      | NORM=0 EPS=0 ACT=0 GLU=0
//@ linear, fp8:  match y = act(expert_linear(x, r:by_expert, w:m16k16, b?))                 | NORM=0 EPS=0 ACT=act.kind GLU=0
//@ linear, fp8:  match y = glu(expert_linear(x, r:by_expert, w:m16k16, b?))                 | NORM=0 EPS=0 ACT=glu.kind GLU=1
//@ linear, fp8:  match y = expert_linear(rmsnorm(x, g), r:by_expert, w:m16k16, b?)          | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0
//@ linear, fp8:  match y = act(expert_linear(rmsnorm(x, g), r:by_expert, w:m16k16, b?))     | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0
//@ linear, fp8:  match y = glu(expert_linear(rmsnorm(x, g), r:by_expert, w:m16k16, b?))     | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1
//@ sum, fp8_sum: match y = expert_sum(x, r:by_expert, w:m16k16, b?)           | RES=0
//@ sum, fp8_sum: match y = add(expert_sum(x, r:by_expert, w:m16k16, b?), a)   | RES=1
//@ consts  T: type(x)  OUT: type(y)  X: param(starts)  N: XN / X  K: K  R: R2 / 2  BIAS: has(b)
//@ consts  BITS: type(w) == int4 ? 4 : 8  GROUP: group(w)  SCALES: scales(w)
//@ linear, fp8:  fits    OUT == T
//@ sum, fp8_sum: fits    RK == R * K
//@ consts  HALF_SMEM: SM_SMEM / 2 - 1024  PAIRS_MAX: M_MAX * R  MOST_M: min(pow2(M_MAX), M_MAX <= 128 ? 8 : 16)
//@ tune    BLOCK_M: MOST_M 8 4 2 1
//    A block takes half of an SM's shared memory, so that the next kernel can start beside it, or all of it.
//@ tune    BYTES: HALF_SMEM SMEM
//@ tune    BRICK_K: 128 256
//@ order   BRICK_K
//@ prefer  BRICK_K=128
//@ consts  BRICKS: ceil_div(K, BRICK_K)  X_ROW_BYTES: BRICKS * BRICK_K * 2 + 16  BLOCKS_PER_SM: BYTES > HALF_SMEM ? 1 : 2
//    CHAINS fix the order of summation: the same for all rows.
//@ tune    CHAINS: 8 4 2 1
//@ order   CHAINS
//@ prefer  CHAINS=2 if BRICKS >= 8
//@ prefer  CHAINS=1
//@ consts  SLOT_BYTES: BRICK_K * 2 * BITS + 16 * BRICK_K / GROUP * (SCALES == 0 ? 2 : SCALES == 1 ? 3 : SCALES == 2 ? 4 : 8)
//@ consts  STAGES: min(max(3, 1 + ceil_div(32768, 8 * SLOT_BYTES)), (BYTES - BESIDE_RING) / (8 * SLOT_BYTES))
//@ shared  COUNT    16                // of tiles
//    TILES: of each expert that is hit one that is not full, and the full ones.
//@ shared  TILES    round_up(12 * (min(PAIRS_MAX, X) + PAIRS_MAX / BLOCK_M), 16)
//@ shared  PAIRS    round_up(PAIRS_MAX * 4, 16)
//@ shared  WEIGHTS  round_up(SUM * BLOCK_M * 4, 16)
//@ shared  SCALES_OF round_up(NORM * BLOCK_M * 4, 16)
//@ shared  SQUARES  round_up(NORM * BLOCK_M * ceil_div(K, 256) * 4, 16)
//@ shared  X_SUMS   round_up(BRICKS * (BRICK_K / GROUP) * BLOCK_M * 4, 16)
//@ shared  X        BLOCK_M * X_ROW_BYTES
//@ shared  SUMS     2 * 8 * BLOCK_M * 80
//@ shared  RING     8 * STAGES * SLOT_BYTES align 128
//@ fits    (type(w) == fp8) == FP8
//@ fits    sizeof(x) == 2 && XN % X == 0 && N % 16 == 0 && K % 64 == 0 && M_MAX <= 512
//@ fits    BLOCK_M <= MOST_M && CHAINS <= BRICKS && STAGES >= 3
//@ prefer  other if M_MAX > 128 && WGMMA
//@ sum, fp8_sum: scratch parts 4 * M_MAX * R * N
//@ sum, fp8_sum: zeroed  arrived 4 * M_MAX * (N / 16)
//@ launch  grid BLOCKS_PER_SM * SMS   block 256   smem BYTES
//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.
//@ moves   X * M * R * (M * R + 2 * X) / (M * R * (M * R + 2 * X) + 2 * X * X) * N * K * BITS / 8
//@ flops   2 * M * R * N * K
//@ rate    10
//@ matmul  yes
//@ overlap yes
#include "expert_q.cuh"
//@ fp8, fp8_sum: text #include "body/e4m3.cuh"

struct Config {
    using T = @T@;
    using OUT = @OUT@;
    static constexpr int X = @X@, N = @N@, K = @K@, R = @R@, BIAS = @BIAS@, NORM = @NORM@, SUM = @SUM@;
    static constexpr int ACT = @ACT@, GLU = @GLU@, RES = @RES@, COLUMNS = 16, THREADS = 256, PAIRS_MAX = @PAIRS_MAX@;
    static constexpr float EPS = @EPS@;
    static constexpr int BITS = @BITS@, GROUP = @GROUP@, SCALES = @SCALES@, BRICK_K = @BRICK_K@, CHAINS = @CHAINS@;
    static constexpr int BLOCK_M = @BLOCK_M@, M = BLOCK_M, X_ROW_BYTES = @X_ROW_BYTES@, STAGES = @STAGES@, @REGIONS@;
};
//@ fp8, fp8_sum: text template <> struct Brick<Config> : E4m3Brick<Config> {};
extern "C" __global__ void __launch_bounds__(256, @BLOCKS_PER_SM@)
//@ linear, fp8: text @NAME@(const ExpertArgs a) { expert_q<Config>(a); }
//@ sum, fp8_sum: text @NAME@(const ExpertSumArgs a) { expert_q<Config>(a); }
