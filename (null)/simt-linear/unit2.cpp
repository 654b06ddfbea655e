#define Config Config_2
#line 1 "linear_fma__fp32_fp32_fp32_n40_k96_m4_act5_glu1_f4663fcd.cu"
// linear_fma__fp32_fp32_fp32_n40_k96_m4_act5_glu1_f4663fcd
// made by ftxc from linear_fma.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_fma__fp32_fp32_fp32_n40_k96_m4_act5_glu1_f4663fcd.cu
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

    static constexpr int M = 4, N = 40, K = 96;
    static constexpr int NORM = 0, BIAS = 0, ACT = 5, GLU = 1, RES = 0, APPEND = 0;

    static constexpr int ROWS_S = 0, LAST = 0;
    static constexpr float EPS = 0.0f;
};
extern "C" __global__ void __launch_bounds__(256)
linear_fma__fp32_fp32_fp32_n40_k96_m4_act5_glu1_f4663fcd(const LinearArgs a) { linear_fma<Config>(a); }

SIMT_KERNEL(linear_fma__fp32_fp32_fp32_n40_k96_m4_act5_glu1_f4663fcd, (1))
#undef Config
#define Config Config_22
#line 1 "linear_wide__bf16_bf16_bf16_n72_k320_m4_block_m16_86408e69.cu"
// linear_wide__bf16_bf16_bf16_n72_k320_m4_block_m16_86408e69
// made by ftxc from linear_wide.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_wide__bf16_bf16_bf16_n72_k320_m4_block_m16_86408e69.cu
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

    static constexpr int M = 4, N = 72, K = 320;
    static constexpr int NORM = 0, BIAS = 0, ACT = 5, GLU = 1, RES = 0, APPEND = 0;

    static constexpr int ROWS_S = 0, LAST = 0, ROW_BLOCKS = 0;
    static constexpr float EPS = 0.0f;
    static constexpr int TILE_N = 16, BLOCK_M = 16, THREADS = 256, CLUSTER_SIZE = 2;
    static constexpr int STAGES = 13, STAGE_BYTES = 8192, SUM = 136, OTHER_SUM = 72, RING_AT = 0, SUMS_AT = 106496, OTHERS_AT = 107584, STATS_AT = 108160, PLACES_AT = 108288, BARRIER_AT = 108416, SHARED = 108432;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, 2)
linear_wide__bf16_bf16_bf16_n72_k320_m4_block_m16_86408e69(const LinearArgs a) { linear_wide<Config>(a); }

SIMT_KERNEL(linear_wide__bf16_bf16_bf16_n72_k320_m4_block_m16_86408e69, (Config::CLUSTER_SIZE))
#undef Config
#define Config Config_42
#line 1 "linear_wide__bf16_bf16_fp32_n51_k112_m8_rows_s1_block_m16_c05e05a8.cu"
// linear_wide__bf16_bf16_fp32_n51_k112_m8_rows_s1_block_m16_c05e05a8
// made by ftxc from linear_wide.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_wide__bf16_bf16_fp32_n51_k112_m8_rows_s1_block_m16_c05e05a8.cu
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

    static constexpr int M = 8, N = 51, K = 112;
    static constexpr int NORM = 0, BIAS = 0, ACT = 0, GLU = 0, RES = 0, APPEND = 0;

    static constexpr int ROWS_S = 1, LAST = 0, ROW_BLOCKS = 0;
    static constexpr float EPS = 0.0f;
    static constexpr int TILE_N = 16, BLOCK_M = 16, THREADS = 256, CLUSTER_SIZE = 2;
    static constexpr int STAGES = 13, STAGE_BYTES = 8192, SUM = 136, OTHER_SUM = 72, RING_AT = 0, SUMS_AT = 106496, OTHERS_AT = 107584, STATS_AT = 108160, PLACES_AT = 108288, BARRIER_AT = 108416, SHARED = 108432;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, 2)
linear_wide__bf16_bf16_fp32_n51_k112_m8_rows_s1_block_m16_c05e05a8(const LinearArgs a) { linear_wide<Config>(a); }

SIMT_KERNEL(linear_wide__bf16_bf16_fp32_n51_k112_m8_rows_s1_block_m16_c05e05a8, (Config::CLUSTER_SIZE))
#undef Config
#define Config Config_62
#line 1 "linear_swapped__bf16_bf16_bf16_n64_k520_m64_block_m64_f6f2491a.cu"
// linear_swapped__bf16_bf16_bf16_n64_k520_m64_block_m64_f6f2491a
// made by ftxc from linear_swapped.cu, for %7
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_swapped__bf16_bf16_bf16_n64_k520_m64_block_m64_f6f2491a.cu
#line 1 "linear_swapped.cu"
// linear_swapped.cu - contracts and instance of linear_swapped.cuh: linear layers of 9 to 64 rows on sm_90a without a norm
//
// Chosen for 16-bit weights in programs of 9 to 64 tokens (a bucket of 16, 32 or 64). It costs the same as linear_wide in the
// model of `select`, so rank decides; measured, it is the faster of the two. Layers with an RMS norm before them and LM
// heads are those of linear_hopper.
//
//   plain    activation, GLU or residual after
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//
// CLUSTER_SIZE, TILE_N: a block fills an SM, and all blocks of a launch run at once. An H200 holds 66, 30 and 15
// clusters of 2, 4 and 8 blocks (so the driver's occupancy call). EVEN_N: the tile that gives these clusters the same
// number of columns each. Measured: docs/decisions/027-swapped-operands-for-9-to-64-rows.md








































//    A product reads 64 rows of a slot.

//    Logits are those of a head.

//    precision.sums = "fixed": wide matrices of 33 to 64 rows are linear_batch's.






#include "linear_swapped.cuh"

struct Config {
    using T = bf16;
    using OUT = bf16;

    static constexpr int M = 64, N = 64, K = 520;
    static constexpr int BIAS = 0, ACT = 0, GLU = 0, RES = 0, APPEND = 0, ROWS_S = 0;

    static constexpr int TILE_N = 64, BLOCK_M = 64, CLUSTER_SIZE = 8;
    static constexpr int STAGES = 2, SLOT_BYTES = 16384, RING_AT = 0, SUMS_AT = 0, PLACES_AT = 32768, BARRIERS_AT = 33280, SHARED = 33544;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(160, 1)
linear_swapped__bf16_bf16_bf16_n64_k520_m64_block_m64_f6f2491a(const LinearArgs a) { linear_swapped<Config>(a); }

SIMT_KERNEL(linear_swapped__bf16_bf16_bf16_n64_k520_m64_block_m64_f6f2491a, (Config::CLUSTER_SIZE))
#undef Config
#define Config Config_82
#line 1 "add_mul__fp16_c33_threads32_2cf284b1.cu"
// add_mul__fp16_c33_threads32_2cf284b1
// made by ftxc from add_mul.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin add_mul__fp16_c33_threads32_2cf284b1.cu
#line 1 "add_mul.cu"
// add_mul.cu - contract and instance of act.cuh: the sum or the product of two activations









#include "act.cuh"

struct Config {
    using T = half;
    static constexpr int C = 33, ROWS_S = 0, THREADS = 32, MUL = 0;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
add_mul__fp16_c33_threads32_2cf284b1(const TwoArgs a) { add_mul<Config>(a); }

SIMT_KERNEL(add_mul__fp16_c33_threads32_2cf284b1, (1))
#undef Config
#define Config Config_102
#line 1 "linear_swapped__fp16_fp16_fp16_n40_k1096_m64_block_m64_d5d451a5.cu"
// linear_swapped__fp16_fp16_fp16_n40_k1096_m64_block_m64_d5d451a5
// made by ftxc from linear_swapped.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_swapped__fp16_fp16_fp16_n40_k1096_m64_block_m64_d5d451a5.cu
#line 1 "linear_swapped.cu"
// linear_swapped.cu - contracts and instance of linear_swapped.cuh: linear layers of 9 to 64 rows on sm_90a without a norm
//
// Chosen for 16-bit weights in programs of 9 to 64 tokens (a bucket of 16, 32 or 64). It costs the same as linear_wide in the
// model of `select`, so rank decides; measured, it is the faster of the two. Layers with an RMS norm before them and LM
// heads are those of linear_hopper.
//
//   plain    activation, GLU or residual after
//   append   the joined q, k, v projection with RoPE; k and v go to the KV cache
//
// CLUSTER_SIZE, TILE_N: a block fills an SM, and all blocks of a launch run at once. An H200 holds 66, 30 and 15
// clusters of 2, 4 and 8 blocks (so the driver's occupancy call). EVEN_N: the tile that gives these clusters the same
// number of columns each. Measured: docs/decisions/027-swapped-operands-for-9-to-64-rows.md








































//    A product reads 64 rows of a slot.

//    Logits are those of a head.

//    precision.sums = "fixed": wide matrices of 33 to 64 rows are linear_batch's.






#include "linear_swapped.cuh"

struct Config {
    using T = half;
    using OUT = half;

    static constexpr int M = 64, N = 40, K = 1096;
    static constexpr int BIAS = 0, ACT = 3, GLU = 0, RES = 0, APPEND = 0, ROWS_S = 0;

    static constexpr int TILE_N = 64, BLOCK_M = 64, CLUSTER_SIZE = 8;
    static constexpr int STAGES = 3, SLOT_BYTES = 16384, RING_AT = 0, SUMS_AT = 0, PLACES_AT = 49152, BARRIERS_AT = 49664, SHARED = 49928;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(160, 1)
linear_swapped__fp16_fp16_fp16_n40_k1096_m64_block_m64_d5d451a5(const LinearArgs a) { linear_swapped<Config>(a); }

SIMT_KERNEL(linear_swapped__fp16_fp16_fp16_n40_k1096_m64_block_m64_d5d451a5, (Config::CLUSTER_SIZE))
#undef Config
