// expert_few.cu - contracts and instances of expert_few.cuh: linear layers of experts in 16 bits, for few rows, on sm_90 and newer
//
//   linear   each row with the matrices of its experts, activation or gate after, up to 8 rows a norm before
//   sum      the weighted sum of a row's experts, and the residual
//@ kernel  expert_few
//@ variant linear | SUM=0 RES=0
//@ variant sum    | SUM=1 ACT=0 GLU=0 NORM=0 HELD=0 X_ROW_BYTES=0
//@ linear: rank 507
//@ sum:    rank 508
//@ linear: args x[M,K] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 g[K]:fp32 -> y
//@ sum:    args x[M,RK] r[M,R2]:i32 starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a:type(x) -> y
//@ linear: match y = expert_linear(x, r:by_expert, w, b?)                      | NORM=0 EPS=0 ACT=0 GLU=0
//@ linear: match y = act(expert_linear(x, r:by_expert, w, b?))                 | NORM=0 EPS=0 ACT=act.kind GLU=0
//@ linear: match y = glu(expert_linear(x, r:by_expert, w, b?))                 | NORM=0 EPS=0 ACT=glu.kind GLU=1
//@ linear: match y = expert_linear(rmsnorm(x, g), r:by_expert, w, b?)          | NORM=1 EPS=rmsnorm.eps ACT=0 GLU=0
//@ linear: match y = act(expert_linear(rmsnorm(x, g), r:by_expert, w, b?))     | NORM=1 EPS=rmsnorm.eps ACT=act.kind GLU=0
//@ linear: match y = glu(expert_linear(rmsnorm(x, g), r:by_expert, w, b?))     | NORM=1 EPS=rmsnorm.eps ACT=glu.kind GLU=1
//@ sum:    match y = expert_sum(x, r:by_expert, w, b?)           | RES=0
//@ sum:    match y = add(expert_sum(x, r:by_expert, w, b?), a)   | RES=1
//@ consts  T: type(x)  OUT: type(y)  W: type(w)  X: param(starts)  N: XN / X  K: K  R: R2 / 2  BIAS: has(b)
//    HELD: rows of x that lie in shared memory, all or none; X_ROW_BYTES: 64 more than whole lines, so that there are no bank
//    conflicts.
//@ linear: consts  X_ROW_BYTES: round_up(2 * K, 128) + 64  HELD: M_MAX <= 8 && M_MAX * X_ROW_BYTES <= 36864 ? M_MAX : 0
//@ linear: fits    OUT == T && (!GLU || N % 2 == 0) && (!NORM || HELD)
//@ sum:    fits    RK == R * K
//    CHUNK: k of a slot, which has 16 rows of it, of the sum and 16 of x. Two blocks share an SM if three slots fit each.
//    ROWS: of x, where there are few: the pairs are then read without waiting for how many are live. ROWS_MAX, PAIRS_MAX: else
//    programs of up to 64 rows share an instance.
//@ consts  CHUNK: round_up(ceil_div(K, ceil_div(K, 1024)), 256)  ROW_BYTES: K <= CHUNK ? 2 * K : 2 * CHUNK
//@ consts  ROWS: M_MAX <= 8 ? M_MAX : 0  ROWS_MAX: ROWS ? ROWS : max(64, M_MAX)  PAIRS_MAX: ROWS_MAX * R
//@ consts  SLOT_BYTES: (16 + 16 * SUM) * ROW_BYTES  HALF_SMEM: SM_SMEM / 2 - 1024
//@ tune    BYTES: HALF_SMEM SMEM
//@ prefer  BYTES=HALF_SMEM if BESIDE_RING + (HELD ? 2 : 3) * SLOT_BYTES <= HALF_SMEM
//@ prefer  BYTES=SMEM
//@ consts  BLOCKS_PER_SM: BYTES > HALF_SMEM ? 1 : 2  SLOTS: min((BYTES - BESIDE_RING) / SLOT_BYTES, HELD ? 2 : 8)
//@ shared  BARRIERS 128
//@ shared  COUNT    8                 // of tiles
//@ shared  SUMS     8 * 2 * 512      // of 8 warps, 8 rows twice
//    TILES: of each expert that is hit one that is not full, and the full ones.
//@ shared  TILES    12 * (min(PAIRS_MAX, X) + PAIRS_MAX / 16)
//@ shared  PAIRS    (SUM ? PAIRS_MAX : HELD * R) * 4
//@ shared  WEIGHTS  SUM * PAIRS_MAX * 4
//@ shared  TOTAL    SUM * ROWS_MAX * 64  // of expert_sum: 16 columns of each row
//@ shared  SCALES   HELD * 4
//@ shared  X        HELD * X_ROW_BYTES align 16
//@ shared  RING     SLOTS * SLOT_BYTES align 128
//@ needs   TMA
//@ fits    T == W && sizeof(x) == 2 && XN % X == 0 && K % 8 == 0 && SLOTS >= 2
//@ linear: launch grid BLOCKS_PER_SM * SMS   block 288   smem BYTES
//@ sum:    launch grid ceil_div(N, 16)   block 288   smem BYTES
//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.
//@ moves   X * M * R * (M * R + 2 * X) / (M * R * (M * R + 2 * X) + 2 * X * X) * N * K * sizeof(w)
//@ flops   2 * M * R * N * K
//@ rate    15
//@ matmul  yes
//@ overlap yes
#include "expert_few.cuh"

struct Config {
    using T = @T@;
    using OUT = @OUT@;
    static constexpr int X = @X@, N = @N@, K = @K@, R = @R@, BIAS = @BIAS@, SUM = @SUM@;
    static constexpr int ACT = @ACT@, GLU = @GLU@, RES = @RES@, COLUMNS = 16, NORM = @NORM@, HELD = @HELD@, ROWS = @ROWS@, X_ROW_BYTES = @X_ROW_BYTES@;
//@ linear: text     static constexpr float EPS = @EPS@;
    static constexpr int CHUNK = @CHUNK@, ROW_BYTES = @ROW_BYTES@, SLOTS = @SLOTS@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
extern "C" __global__ void __launch_bounds__(288, @BLOCKS_PER_SM@)
@NAME@(const ExpertArgs a) { expert_few<Config>(a); }
