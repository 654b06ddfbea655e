// linear_fp8.cu - contracts and instance of linear_fp8.cuh: linear layers of more than 64 rows with weights and rows of fp8 on sm_90a
//
// Only with precision.activations = "fp8"; without it, and for rows that 128 does not divide, weights are unpacked (unpack.cu) and
// multiplied by cuBLASLt.
//
//   plain    activation, GLU or residual after
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//@ kernel  linear_fp8
//@ variant plain  | APPEND=0
//@ variant append | APPEND=1 ROWS_S=0 ACT=0 GLU=0 RES=0
//@ plain:  rank 810
//@ append: rank 820
//@ args    xs:e4m3_rows.scales(x) x[M,K] w[N,K] g[K]:fp32 c[K]:fp32 b[N]:fp32 r[M,N]:type(x) t:fp32 $step $token $rows $pages $k $v -> y
//@ plain:  match y = linear(x:e4m3_rows, w:m16k16, b?)            | ACT=0 GLU=0 RES=0
//@ plain:  match y = act(linear(x:e4m3_rows, w:m16k16, b?))       | ACT=act.kind GLU=0 RES=0
//@ plain:  match y = glu(linear(x:e4m3_rows, w:m16k16, b?))       | ACT=glu.kind GLU=1 RES=0
//@ plain:  match y = add(linear(x:e4m3_rows, w:m16k16, b?), r)    | ACT=0 GLU=0 RES=1
//@ append: match y = append(linear(x:e4m3_rows, w:m16k16, b?), t?)
//@ consts  X: type(x)  Y: type(y)  N: N  K: K  M: T_MAX  BIAS: has(b)  SCALES: scales(w)
//@ plain:  consts ROWS_S: rows(x)
//@ append: consts H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ append: consts BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ append: fits X == KV && E % 8 == 0
//    Two warpgroups have registers for 256 rows of x, of which 128 are multiplied at once, three for 128 and 64.
//@ tune    WARPGROUPS: 2 3
//@ tune    BLOCK_M: 256 192 128
//@ prefer  BLOCK_M=256 if WARPGROUPS == 2
//@ consts  PART: BLOCK_M == 192 ? 96 : WARPGROUPS == 3 ? 64 : 128
//@ consts  TILE_N: 64 * WARPGROUPS  THREADS: 128 * WARPGROUPS + 128  SLOT_BYTES: BLOCK_M * 128 + TILE_N * 128
//@ consts  STAGES: min(8, (SMEM - BESIDE_RING) / SLOT_BYTES)
//@ shared  RING     STAGES * SLOT_BYTES
//@ shared  BARRIERS 16 * 8                      // full and empty of each of up to 8 slots
//@ needs   TMA WGMMA
//@ fits    FP8_ROWS && ARCH == 90 && type(w) == fp8 && group(w) == 128 && sizeof(x) == 2 && X == Y && K % 128 == 0 && N % 8 == 0
//@ fits    T_MAX > 64 && T_MAX % 8 == 0 && !rows(x) && logits(y) == 0 && (WARPGROUPS == 2 || BLOCK_M == 128)
//@ launch  grid min(SMS, ceil_div(M, BLOCK_M) * ceil_div(N, TILE_N))   block THREADS
//@ moves   N * K + M * K + 2 * M * N
//    Products of fp8 take half of the time of those of 16 bits.
//@ flops   M * N * K
//@ rate    65
//@ matmul  yes
//@ overlap yes
#include "linear_fp8.cuh"

struct Config {
    using T = @X@;
    using OUT = @Y@;
//@ append: text     using KV = @KV@;
    static constexpr int M = @M@, ROWS = @M@, N = @N@, K = @K@, SCALES = @SCALES@;
    static constexpr int BIAS = @BIAS@, ACT = @ACT@, GLU = @GLU@, RES = @RES@, APPEND = @APPEND@, ROWS_S = @ROWS_S@;
//@ append: text     static constexpr int H = @H@, G = @G@, E = @E@, ROT = @ROT@, BLOCK = @BLOCK@, PAGES = @PAGES@;
    static constexpr int WARPGROUPS = @WARPGROUPS@, BLOCK_M = @BLOCK_M@, PART = @PART@;
    static constexpr int STAGES = @STAGES@, SLOT_BYTES = @SLOT_BYTES@, @REGIONS@;
};
extern "C" __global__ void __launch_bounds__(@THREADS@, 1)
@NAME@(const LinearFp8Args a) { linear_fp8<Config>(a); }
