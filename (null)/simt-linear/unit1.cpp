#define Config Config_1
#line 1 "glu__fp32_c20_threads32_kind5_dc3e220b.cu"
// glu__fp32_c20_threads32_kind5_dc3e220b
// made by ftxc from glu.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin glu__fp32_c20_threads32_kind5_dc3e220b.cu
#line 1 "glu.cu"
// glu.cu - contract and instance of act.cuh: a gated linear unit, C outputs from 2C inputs









#include "act.cuh"

struct Config {
    using T = float;
    static constexpr int C = 20, ROWS_S = 0, THREADS = 32, KIND = 5;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
glu__fp32_c20_threads32_kind5_dc3e220b(const OneArgs a) { glu<Config>(a); }

SIMT_KERNEL(glu__fp32_c20_threads32_kind5_dc3e220b, (1))
#undef Config
#define Config Config_21
#line 1 "linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_37e33aad.cu"
// linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_37e33aad
// made by ftxc from linear.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_37e33aad.cu
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
    static constexpr int NORM = 1, BIAS = 0, ACT = 5, GLU = 1, RES = 0, APPEND = 0;


    static constexpr int ROWS_S = 0, LAST = 0, SEGMENTS = 0;
    static constexpr float EPS = 1e-05f;
    static constexpr int IN_FLIGHT = 65536, CHUNK = 512, TURNS = 1, X_ROW_BYTES = 704;
    static constexpr int SLOTS = 11, SLOT_BYTES = 8704, BARRIERS_AT = 0, STATS_AT = 256, SUMS_AT = 384, KEPT_AT = 8576, X_AT = 8576, RING_AT = 11392, SHARED = 107136;
};
extern "C" __global__ void __launch_bounds__(320, 2)
linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_37e33aad(const LinearArgs a) { linear<Config>(a); }



SIMT_KERNEL(linear__bf16_bf16_bf16_n72_k320_m4_x_row_bytes704_37e33aad, (1))
#undef Config
#define Config Config_41
#line 1 "linear_head__bf16_bf16_fp32_n51_k112_m8_x_row_bytes320_e073b904.cu"
// linear_head__bf16_bf16_fp32_n51_k112_m8_x_row_bytes320_e073b904
// made by ftxc from linear.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_head__bf16_bf16_fp32_n51_k112_m8_x_row_bytes320_e073b904.cu
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


    static constexpr int ROWS_S = 1, LAST = 1, SEGMENTS = 0;
    static constexpr float EPS = 1e-05f;
    static constexpr int IN_FLIGHT = 65536, CHUNK = 256, TURNS = 1, X_ROW_BYTES = 320;
    static constexpr int SLOTS = 16, SLOT_BYTES = 4608, BARRIERS_AT = 0, STATS_AT = 256, SUMS_AT = 384, KEPT_AT = 8576, X_AT = 8576, RING_AT = 11136, SHARED = 84864;
};
extern "C" __global__ void __launch_bounds__(320, 2)

linear_head__bf16_bf16_fp32_n51_k112_m8_x_row_bytes320_e073b904(const LinearHeadArgs a) { linear<Config>(a); }


SIMT_KERNEL(linear_head__bf16_bf16_fp32_n51_k112_m8_x_row_bytes320_e073b904, (1))
#undef Config
#define Config Config_61
#line 1 "linear_wide_head__bf16_bf16_fp32_n51_k112_m8_block_m16_1ba3e70e.cu"
// linear_wide_head__bf16_bf16_fp32_n51_k112_m8_block_m16_1ba3e70e
// made by ftxc from linear_wide.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin linear_wide_head__bf16_bf16_fp32_n51_k112_m8_block_m16_1ba3e70e.cu
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
    static constexpr int NORM = 2, BIAS = 0, ACT = 0, GLU = 0, RES = 0, APPEND = 0;

    static constexpr int ROWS_S = 1, LAST = 1, ROW_BLOCKS = 0;
    static constexpr float EPS = 1e-05f;
    static constexpr int TILE_N = 16, BLOCK_M = 16, THREADS = 256, CLUSTER_SIZE = 2;
    static constexpr int STAGES = 12, STAGE_BYTES = 9216, SUM = 136, OTHER_SUM = 72, RING_AT = 0, SUMS_AT = 110592, OTHERS_AT = 111680, STATS_AT = 112256, PLACES_AT = 112384, BARRIER_AT = 112512, SHARED = 112528;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, 1)
linear_wide_head__bf16_bf16_fp32_n51_k112_m8_block_m16_1ba3e70e(const LinearArgs a) { linear_wide<Config>(a); }

SIMT_KERNEL(linear_wide_head__bf16_bf16_fp32_n51_k112_m8_block_m16_1ba3e70e, (Config::CLUSTER_SIZE))
#undef Config
#define Config Config_81
#line 1 "linear_wide_append__fp16_fp16_fp16_n96_k64_m16_h2_adc32c10.cu"
// linear_wide_append__fp16_fp16_fp16_n96_k64_m16_h2_adc32c10
// made by ftxc from linear_wide.cu, for %7
// nvcc -gencode=arch=compute_86,code=sm_86 -std=c++17 -I. -cubin linear_wide_append__fp16_fp16_fp16_n96_k64_m16_h2_adc32c10.cu
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
    using T = half;
    using OUT = half;
    using KV = half;
    static constexpr int M = 16, N = 96, K = 64;
    static constexpr int NORM = 0, BIAS = 0, ACT = 0, GLU = 0, RES = 0, APPEND = 1;
    static constexpr int H = 2, G = 1, E = 24, ROT = 24, BLOCK = 8, PAGES = 8;
    static constexpr int ROWS_S = 0, LAST = 0, ROW_BLOCKS = 0;
    static constexpr float EPS = 0.0f;
    static constexpr int TILE_N = 16, BLOCK_M = 16, THREADS = 256, CLUSTER_SIZE = 1;
    static constexpr int STAGES = 5, STAGE_BYTES = 8192, SUM = 136, OTHER_SUM = 136, RING_AT = 0, SUMS_AT = 40960, OTHERS_AT = 42048, STATS_AT = 43136, PLACES_AT = 43264, BARRIER_AT = 43392, SHARED = 43408;
};
extern "C" __global__ void CLUSTER(Config::CLUSTER_SIZE) __launch_bounds__(Config::THREADS, 2)
linear_wide_append__fp16_fp16_fp16_n96_k64_m16_h2_adc32c10(const LinearArgs a) { linear_wide<Config>(a); }

SIMT_KERNEL(linear_wide_append__fp16_fp16_fp16_n96_k64_m16_h2_adc32c10, (Config::CLUSTER_SIZE))
#undef Config
#define Config Config_101
#line 1 "act__fp16_c40_threads32_kind3_159ae697.cu"
// act__fp16_c40_threads32_kind3_159ae697
// made by ftxc from act.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin act__fp16_c40_threads32_kind3_159ae697.cu
#line 1 "act.cu"
// act.cu - contract and instance of act.cuh: an activation function, element by element









#include "act.cuh"

struct Config {
    using T = half;
    static constexpr int C = 40, ROWS_S = 0, THREADS = 32, KIND = 3;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
act__fp16_c40_threads32_kind3_159ae697(const OneArgs a) { act<Config>(a); }

SIMT_KERNEL(act__fp16_c40_threads32_kind3_159ae697, (1))
#undef Config
