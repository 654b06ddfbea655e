// linear_q_digits.cu - contracts and instance of linear_q_digits.cuh: linear layers of up to 32 rows with weights of int4 and int8 on sm_90a
//
// For programs of 8, 16 and 32 tokens, and for LM heads of as many sequences. Rows of x are digits (row_digits.cu), which the launch
// of a norm leaves. Chosen before linear_q_hopper and linear_q (docs/decisions/033-quantised-weights-by-bulk-copies.md).
//
//   plain    activation, GLU or residual after
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   rows     GLU after, whose result is digits for the next layer
//@ kernel  linear_q_digits
//@ variant plain  | APPEND=0 DIGITS=0
//@ variant append | APPEND=1 DIGITS=0 ROWS_S=0 ACT=0 GLU=0 RES=0
//@ variant rows   | APPEND=0 DIGITS=1 ROWS_S=0 GLU=1 RES=0
//@ plain:  rank 645
//@ append: rank 655
//@ rows:   rank 646
//@ args    xs:digit_rows.units(x) x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y ys:digit_rows.units(y)
//@ plain: match y = linear(x:digit_rows, w:m16k16, b?)                     | ACT=0 GLU=0 RES=0
//@ plain: match y = act(linear(x:digit_rows, w:m16k16, b?))                | ACT=act.kind GLU=0 RES=0
//@ plain: match y = glu(linear(x:digit_rows, w:m16k16, b?))                | ACT=glu.kind GLU=1 RES=0
//@ plain: match y = add(linear(x:digit_rows, w:m16k16, b?), r)             | ACT=0 GLU=0 RES=1
//@ rows:  match y = glu(linear(x:digit_rows, w:m16k16, b?))                | ACT=glu.kind
//@ rows:  gives y as digit_rows 1
//@ append: match y = append(linear(x:digit_rows, w:m16k16, b?), t?)
//@ consts  X: type(x)  Y: type(y)  N: N  K: K  M: pow2(rows(x) ? S_MAX : T_MAX)  BIAS: has(b)
//@ plain: consts ROWS_S: rows(x)
//@ append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append: fits sizeof(KV) > 1
//@ consts  BITS: type(w) == int4 ? 4 : 8  GROUP: group(w)  SCALES: scales(w)  BLOCK_M: M
//@ tune    CLUSTER_SIZE: 1 2 4 8
//@ order   CLUSTER_SIZE
//@ prefer  CLUSTER_SIZE=1 if N > 8192 || DIGITS
//@ prefer  CLUSTER_SIZE=2 if N >= 4096
//@ prefer  CLUSTER_SIZE=4
//    EVEN_N: the tile that gives the clusters that an H200 holds (66, 30 and 15 of 2, 4 and 8 blocks) the same number of columns.
//@ consts  CLUSTER_N: ceil_div(N, CLUSTER_SIZE == 1 ? 132 : CLUSTER_SIZE == 2 ? 64 : CLUSTER_SIZE == 4 ? 30 : 15)
//@ consts  EVEN_N: round_up(ceil_div(CLUSTER_N, ceil_div(CLUSTER_N, 256)), max(16, 8 * CLUSTER_SIZE))
//@ tune    TILE_N: EVEN_N 64 96 128 192 256
//@ prefer  TILE_N=256 if DIGITS
//@ prefer  TILE_N=EVEN_N
//    SPLIT: parts of a step, so that a block has up to four warpgroups. ROWS: warpgroups side by side.
//@ consts  ROWS: ceil_div(TILE_N, 64)
//@ tune    SPLIT: 4 2 1
//@ order   SPLIT
//@ prefer  SPLIT=4 if ROWS == 1
//@ prefer  SPLIT=2 if ROWS == 2
//@ prefer  SPLIT=1
//    LATER: sums of a group are added while the products of the next run. GIVES: the producer is a warpgroup that gives its registers.
//@ consts  LATER: BLOCK_M <= 16  GIVES: BLOCK_M >= 16 && SPLIT * ROWS >= 3  TAKE: SPLIT * ROWS == 4 ? 112 : 152
//    STEP_K: bulk copies of 2 KB and more.
//@ consts  STEP_K: max(BITS == 4 ? 256 : 128, 128 * SPLIT)  THREADS: 128 * SPLIT * ROWS + (GIVES ? 128 : 32)
//@ consts  SLOT_BYTES: (BLOCK_M + TILE_N / 16 * BITS) * STEP_K * 2  K_STEPS: ceil_div(ceil_div(K, STEP_K), CLUSTER_SIZE)
//@ consts  STAGES: min(max(2, min(16, K_STEPS)), (SMEM - BESIDE_RING) / SLOT_BYTES)
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  SUMS     SPLIT * TILE_N / 8 * (BLOCK_M * 8 + 8) * 4 over RING
//@ shared  SCALES_OF TILE_N * K_STEPS * STEP_K / GROUP * (SCALES == 2 ? 4 : 2)
//@ shared  ZEROS_OF TILE_N * K_STEPS * STEP_K / GROUP * (SCALES == 1)
//@ shared  UNITS    K_STEPS * STEP_K / 128 * BLOCK_M * 4
//@ shared  PLACES   BLOCK_M * 8                 // append: {page, position} of a row
//@ shared  BARRIERS 34 * 8                      // full and empty of each of up to 16 slots; sums received; scales landed
//@ needs   TMA CLUSTER WGMMA
//@ fits    type(w) != fp8 && K % STEP_K == 0 && (SCALES == 0 || SCALES == 2 || (SCALES == 1 && BITS == 4))
//@ fits    sizeof(x) == 2 && M >= 8 && M <= 32 && STAGES >= 2 && (GROUP == 32 || GROUP == 64 || GROUP == 128)
//@ fits    M == (rows(x) ? S_MAX : T_MAX)
//@ rows:   fits TILE_N == 256 && N % 256 == 0 && CLUSTER_SIZE == 1 && SPLIT == 1 && !rows(x)
//@ fits    TILE_N <= 256 && TILE_N % max(16, 8 * CLUSTER_SIZE) == 0 && SPLIT * ROWS <= 4
//@ fits    BUCKET > 0 || rows(x)
//@ launch  grid ceil_div(N, TILE_N) * CLUSTER_SIZE   block THREADS
//@ moves   N * K * BITS / 8 + N * K / GROUP * 2
//@ flops   2 * M * N * K
//@ matmul  yes
//@ overlap yes
#include "linear_q_digits.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append: text     using KV = @KV@;
    static constexpr int M = @M@, N = @N@, K = @K@;
    static constexpr int BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@, DIGITS = @DIGITS@, ROWS_S = @ROWS_S@;
//@ append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int BITS = @BITS@, GROUP = @GROUP@, SCALES = @SCALES@;
    static constexpr int TILE_N = @TILE_N@, BLOCK_M = @BLOCK_M@, CLUSTER_SIZE = @CLUSTER_SIZE@, SPLIT = @SPLIT@, LATER = @LATER@, GIVES = @GIVES@, TAKE = @TAKE@, STEP_K = @STEP_K@;
    static constexpr int STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(@THREADS@, 1)
@NAME@(const LinearDigitArgs a) { linear_q_digits<Config>(a); }
