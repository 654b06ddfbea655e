#define Config Config_0
#line 1 "linear_fma__fp32_fp32_fp32_n37_k70_m16_bias1_69a454a5.cu"
// linear_fma__fp32_fp32_fp32_n37_k70_m16_bias1_69a454a5
// made by ftxc from linear_fma.cu, for %6
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_fma__fp32_fp32_fp32_n37_k70_m16_bias1_69a454a5.cu
#line 1 "linear_fma.cu"
// linear_fma.cu - contracts and instance of linear_fma.cuh: linear layers in fp32, up to 64 rows
//
// Chosen for fp32 weights in programs of up to 64 tokens, on every GPU; above that cuBLASLt is (matmul.cu).
//
//   plain    norm before, activation, GLU or residual after in one kernel
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 64 sequences. It writes no segments: the sampler reads the whole row





































#include "linear_fma.cuh"

struct Config {
    using T = float;
    using OUT = float;

    static constexpr int M = 16, N = 37, K = 70;
    static constexpr int NORM = 0, BIAS = 1, ACT = 0, GLU = 0, RES = 0, APPEND = 0;

    static constexpr int ROWS_S = 0, LAST = 0;
    static constexpr float EPS = 0.0f;
};
extern "C" __global__ void __launch_bounds__(256)
linear_fma__fp32_fp32_fp32_n37_k70_m16_bias1_69a454a5(const LinearArgs a) { linear_fma<Config>(a); }

SIMT_KERNEL(linear_fma__fp32_fp32_fp32_n37_k70_m16_bias1_69a454a5, (1))
#undef Config
#define Config Config_20
#line 1 "linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_8ed0c4cd.cu"
// linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_8ed0c4cd
// made by ftxc from linear.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_8ed0c4cd.cu
#line 1 "linear.cu"
// linear.cu - contracts and instance of linear.cuh: linear layers of 1 to 8 rows on sm_90 and newer
//
// Chosen for 16-bit weights in programs of up to 8 tokens. Where x does not fit shared memory, or K is no multiple of 8,
// linear_wide is chosen.
//
//   plain    norm before, activation, GLU or residual after in one kernel
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 8 sequences. Where a sampler or a beam search reads them, it also writes
//            segments (body/segments.cuh), so that the row is not read again
//   sum      the sum of the result over the ranks of a tensor-parallel model (linear_sum.cuh)






































//    KEPT_BYTES: logits of a segment until it is whole. With fixed sums nothing reads segments, so all logits are written.

//    A block takes all shared memory of an SM; for a matrix below 32 MB it takes half, so that the next kernel can start
//    beside it. CHUNK_MAX (k of a row in one bulk copy): rows of 4 KB are read faster than rows of 2 KB, if three chunks
//    fit.








//    CHUNK: k of a chunk. A slot has 8 rows of it; 64 bytes more: no bank conflicts. TURNS: the producer copies up to 16 KB
//    of a chunk in one turn. SLOTS: what fits, and at most 32 mbarriers.

















//    Three slots behind x, wherever the ring begins.







#include "linear.cuh"


struct Config {
    using T = bf16;
    using OUT = bf16;

    static constexpr int M = 4, N = 72, K = 320;
    static constexpr int NORM = 0, BIAS = 0, ACT = 5, GLU = 1, RES = 0, APPEND = 0;


    static constexpr int ROWS_S = 0, LAST = 0, SEGMENTS = 0;
    static constexpr float EPS = 0.0f;
    static constexpr int IN_FLIGHT = 65536, CHUNK = 512, TURNS = 1, X_ROW_BYTES = 704;
    static constexpr int SLOTS = 11, SLOT_BYTES = 8704, BARRIERS_AT = 0, STATS_AT = 256, SUMS_AT = 384, KEPT_AT = 8576, X_AT = 8576, RING_AT = 11392, SHARED = 107136;
};
extern "C" __global__ void __launch_bounds__(320, 2)
linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_8ed0c4cd(const LinearArgs a) { linear<Config>(a); }



SIMT_KERNEL(linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_8ed0c4cd, (1))
#undef Config
#define Config Config_40
#line 1 "linear__bf16_bf16_fp32_n51_k112_m8_rows_s1_x_row_bytes320_deca8023.cu"
// linear__bf16_bf16_fp32_n51_k112_m8_rows_s1_x_row_bytes320_deca8023
// made by ftxc from linear.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear__bf16_bf16_fp32_n51_k112_m8_rows_s1_x_row_bytes320_deca8023.cu
#line 1 "linear.cu"
// linear.cu - contracts and instance of linear.cuh: linear layers of 1 to 8 rows on sm_90 and newer
//
// Chosen for 16-bit weights in programs of up to 8 tokens. Where x does not fit shared memory, or K is no multiple of 8,
// linear_wide is chosen.
//
//   plain    norm before, activation, GLU or residual after in one kernel
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 8 sequences. Where a sampler or a beam search reads them, it also writes
//            segments (body/segments.cuh), so that the row is not read again
//   sum      the sum of the result over the ranks of a tensor-parallel model (linear_sum.cuh)






































//    KEPT_BYTES: logits of a segment until it is whole. With fixed sums nothing reads segments, so all logits are written.

//    A block takes all shared memory of an SM; for a matrix below 32 MB it takes half, so that the next kernel can start
//    beside it. CHUNK_MAX (k of a row in one bulk copy): rows of 4 KB are read faster than rows of 2 KB, if three chunks
//    fit.








//    CHUNK: k of a chunk. A slot has 8 rows of it; 64 bytes more: no bank conflicts. TURNS: the producer copies up to 16 KB
//    of a chunk in one turn. SLOTS: what fits, and at most 32 mbarriers.

















//    Three slots behind x, wherever the ring begins.







#include "linear.cuh"


struct Config {
    using T = bf16;
    using OUT = float;

    static constexpr int M = 8, N = 51, K = 112;
    static constexpr int NORM = 1, BIAS = 0, ACT = 0, GLU = 0, RES = 0, APPEND = 0;


    static constexpr int ROWS_S = 1, LAST = 0, SEGMENTS = 0;
    static constexpr float EPS = 1e-05f;
    static constexpr int IN_FLIGHT = 65536, CHUNK = 256, TURNS = 1, X_ROW_BYTES = 320;
    static constexpr int SLOTS = 16, SLOT_BYTES = 4608, BARRIERS_AT = 0, STATS_AT = 256, SUMS_AT = 384, KEPT_AT = 8576, X_AT = 8576, RING_AT = 11136, SHARED = 84864;
};
extern "C" __global__ void __launch_bounds__(320, 2)
linear__bf16_bf16_fp32_n51_k112_m8_rows_s1_x_row_bytes320_deca8023(const LinearArgs a) { linear<Config>(a); }



SIMT_KERNEL(linear__bf16_bf16_fp32_n51_k112_m8_rows_s1_x_row_bytes320_deca8023, (1))
#undef Config
#define Config Config_60
#line 1 "linear_wide__bf16_bf16_fp32_n51_k112_m16_rows_s1_block_m16_e143516a.cu"
// linear_wide__bf16_bf16_fp32_n51_k112_m16_rows_s1_block_m16_e143516a
// made by ftxc from linear_wide.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_wide__bf16_bf16_fp32_n51_k112_m16_rows_s1_block_m16_e143516a.cu
#line 1 "linear_wide.cu"
// linear_wide.cu - contracts and instance of linear_wide.cuh: linear layers of up to 64 rows, any K and N, every GPU
//
// Chosen for 16-bit weights in programs of up to 64 tokens where none of linear, linear_swapped and linear_hopper fits: GPUs before
// sm_90, other forms of sm_90 than sm_90a above 8 rows, sm_100 and sm_120 above 8 rows, K that is no multiple of 8.
//
//   plain    norm before, activation, GLU or residual after in one kernel
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 64 sequences. It writes no segments: the sampler reads the whole row
//   rows, rows_append, rows_head   the same for any number of rows, with precision.sums = "fixed"
//
// TILE_N_MAX: what registers and shared memory hold. CLUSTER_N: columns for each pair of blocks (sm_90) or block, if
// all SMs take part. WHOLE_SM: a block takes all shared memory of an SM, for matrices of 32 MB and more or where half
// is too little.






































































//    On sm_90a a layer norm launch and linear_hopper are faster than layer norm in this kernel.

//    Each row of blocks reads w again.






#include "linear_wide.cuh"

struct Config {
    using T = bf16;
    using OUT = float;

    static constexpr int M = 16, N = 51, K = 112;
    static constexpr int NORM = 2, BIAS = 0, ACT = 0, GLU = 0, RES = 0, APPEND = 0;

    static constexpr int ROWS_S = 1, LAST = 0, ROW_BLOCKS = 0;
    static constexpr float EPS = 1e-05f;
    static constexpr int TILE_N = 16, BLOCK_M = 16, THREADS = 256, CLUSTER_SIZE = 2;
    static constexpr int STAGES = 12, STAGE_BYTES = 9216, SUM = 136, OTHER_SUM = 72, RING_AT = 0, SUMS_AT = 110592, OTHERS_AT = 111680, STATS_AT = 112256, PLACES_AT = 112384, BARRIER_AT = 112512, SHARED = 112528;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, 1)
linear_wide__bf16_bf16_fp32_n51_k112_m16_rows_s1_block_m16_e143516a(const LinearArgs a) { linear_wide<Config>(a); }

SIMT_KERNEL(linear_wide__bf16_bf16_fp32_n51_k112_m16_rows_s1_block_m16_e143516a, (Config::CLUSTER_SIZE))
#undef Config
#define Config Config_80
#line 1 "append__fp16_fp16_fp16_n96_h2_g1_e24_rot24_block8_cbf359c3.cu"
// append__fp16_fp16_fp16_n96_h2_g1_e24_rot24_block8_cbf359c3
// made by ftxc from append.cu, for %7
// nvcc -gencode=arch=compute_86,code=sm_86 -std=c++17 -I. -cubin append__fp16_fp16_fp16_n96_h2_g1_e24_rot24_block8_cbf359c3.cu
#line 1 "append.cu"
// append.cu - contract and instance of append.cuh: after a cuBLASLt product












#include "append.cuh"

struct Config {
    using T = half;
    using OUT = half;
    using KV = half;
    static constexpr int H = 2, G = 1, E = 24, ROT = 24;
    static constexpr int BLOCK = 8, PAGES = 8, THREADS = 32;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
append__fp16_fp16_fp16_n96_h2_g1_e24_rot24_block8_cbf359c3(const AppendArgs a) { append<Config>(a); }

SIMT_KERNEL(append__fp16_fp16_fp16_n96_h2_g1_e24_rot24_block8_cbf359c3, (1))
#undef Config
#define Config Config_100
#line 1 "linear_wide__bf16_bf16_bf16_n72_k304_m64_bias1_block_m64_ba57fab1.cu"
// linear_wide__bf16_bf16_bf16_n72_k304_m64_bias1_block_m64_ba57fab1
// made by ftxc from linear_wide.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_wide__bf16_bf16_bf16_n72_k304_m64_bias1_block_m64_ba57fab1.cu
#line 1 "linear_wide.cu"
// linear_wide.cu - contracts and instance of linear_wide.cuh: linear layers of up to 64 rows, any K and N, every GPU
//
// Chosen for 16-bit weights in programs of up to 64 tokens where none of linear, linear_swapped and linear_hopper fits: GPUs before
// sm_90, other forms of sm_90 than sm_90a above 8 rows, sm_100 and sm_120 above 8 rows, K that is no multiple of 8.
//
//   plain    norm before, activation, GLU or residual after in one kernel
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//   head     logits of the last token of up to 64 sequences. It writes no segments: the sampler reads the whole row
//   rows, rows_append, rows_head   the same for any number of rows, with precision.sums = "fixed"
//
// TILE_N_MAX: what registers and shared memory hold. CLUSTER_N: columns for each pair of blocks (sm_90) or block, if
// all SMs take part. WHOLE_SM: a block takes all shared memory of an SM, for matrices of 32 MB and more or where half
// is too little.






































































//    On sm_90a a layer norm launch and linear_hopper are faster than layer norm in this kernel.

//    Each row of blocks reads w again.






#include "linear_wide.cuh"

struct Config {
    using T = bf16;
    using OUT = bf16;

    static constexpr int M = 64, N = 72, K = 304;
    static constexpr int NORM = 1, BIAS = 1, ACT = 5, GLU = 1, RES = 0, APPEND = 0;

    static constexpr int ROWS_S = 0, LAST = 0, ROW_BLOCKS = 0;
    static constexpr float EPS = 1e-05f;
    static constexpr int TILE_N = 16, BLOCK_M = 64, THREADS = 256, CLUSTER_SIZE = 2;
    static constexpr int STAGES = 5, STAGE_BYTES = 20992, SUM = 520, OTHER_SUM = 264, RING_AT = 0, SUMS_AT = 104960, OTHERS_AT = 109120, STATS_AT = 111232, PLACES_AT = 111744, BARRIER_AT = 112256, SHARED = 112272;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, 2)
linear_wide__bf16_bf16_bf16_n72_k304_m64_bias1_block_m64_ba57fab1(const LinearArgs a) { linear_wide<Config>(a); }

SIMT_KERNEL(linear_wide__bf16_bf16_bf16_n72_k304_m64_bias1_block_m64_ba57fab1, (Config::CLUSTER_SIZE))
#undef Config
