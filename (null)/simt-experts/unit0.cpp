#define Config Config_0
#line 1 "glu__bf16_c72_threads32_kind5_bed56833.cu"
// glu__bf16_c72_threads32_kind5_bed56833
// made by ftxc from glu.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin glu__bf16_c72_threads32_kind5_bed56833.cu
#line 1 "glu.cu"
// glu.cu - contract and instance of act.cuh: a gated linear unit, C outputs from 2C inputs









#include "act.cuh"

struct Config {
    using T = bf16;
    static constexpr int C = 72, ROWS_S = 0, THREADS = 32, KIND = 5;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
glu__bf16_c72_threads32_kind5_bed56833(const OneArgs a) { glu<Config>(a); }

SIMT_KERNEL(glu__bf16_c72_threads32_kind5_bed56833, (1))
#undef Config
#define Config Config_8
#line 1 "glu__fp16_c264_threads64_kind5_04396dc8.cu"
// glu__fp16_c264_threads64_kind5_04396dc8
// made by ftxc from glu.cu, for %10
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin glu__fp16_c264_threads64_kind5_04396dc8.cu
#line 1 "glu.cu"
// glu.cu - contract and instance of act.cuh: a gated linear unit, C outputs from 2C inputs









#include "act.cuh"

struct Config {
    using T = half;
    static constexpr int C = 264, ROWS_S = 0, THREADS = 64, KIND = 5;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
glu__fp16_c264_threads64_kind5_04396dc8(const OneArgs a) { glu<Config>(a); }

SIMT_KERNEL(glu__fp16_c264_threads64_kind5_04396dc8, (1))
#undef Config
#define Config Config_16
#line 1 "add_mul__fp32_c20_threads32_7b410c08.cu"
// add_mul__fp32_c20_threads32_7b410c08
// made by ftxc from add_mul.cu, for %12
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin add_mul__fp32_c20_threads32_7b410c08.cu
#line 1 "add_mul.cu"
// add_mul.cu - contract and instance of act.cuh: the sum or the product of two activations









#include "act.cuh"

struct Config {
    using T = float;
    static constexpr int C = 20, ROWS_S = 0, THREADS = 32, MUL = 0;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
add_mul__fp32_c20_threads32_7b410c08(const TwoArgs a) { add_mul<Config>(a); }

SIMT_KERNEL(add_mul__fp32_c20_threads32_7b410c08, (1))
#undef Config
#define Config Config_24
#line 1 "add_mul__bf16_c34_threads32_5a4c1e76.cu"
// add_mul__bf16_c34_threads32_5a4c1e76
// made by ftxc from add_mul.cu, for %11
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin add_mul__bf16_c34_threads32_5a4c1e76.cu
#line 1 "add_mul.cu"
// add_mul.cu - contract and instance of act.cuh: the sum or the product of two activations









#include "act.cuh"

struct Config {
    using T = bf16;
    static constexpr int C = 34, ROWS_S = 0, THREADS = 32, MUL = 0;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
add_mul__bf16_c34_threads32_5a4c1e76(const TwoArgs a) { add_mul<Config>(a); }

SIMT_KERNEL(add_mul__bf16_c34_threads32_5a4c1e76, (1))
#undef Config
#define Config Config_32
#line 1 "add_mul__fp16_c36_threads32_cf6654a9.cu"
// add_mul__fp16_c36_threads32_cf6654a9
// made by ftxc from add_mul.cu, for %12
// nvcc -gencode=arch=compute_80,code=sm_80 -std=c++17 -I. -cubin add_mul__fp16_c36_threads32_cf6654a9.cu
#line 1 "add_mul.cu"
// add_mul.cu - contract and instance of act.cuh: the sum or the product of two activations









#include "act.cuh"

struct Config {
    using T = half;
    static constexpr int C = 36, ROWS_S = 0, THREADS = 32, MUL = 0;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
add_mul__fp16_c36_threads32_cf6654a9(const TwoArgs a) { add_mul<Config>(a); }

SIMT_KERNEL(add_mul__fp16_c36_threads32_cf6654a9, (1))
#undef Config
#define Config Config_40
#line 1 "expert_sum__fp16_fp16_fp16_x2_n17_k40_r2_columns4_c1396dcb.cu"
// expert_sum__fp16_fp16_fp16_x2_n17_k40_r2_columns4_c1396dcb
// made by ftxc from experts.cu, for %8
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_sum__fp16_fp16_fp16_x2_n17_k40_r2_columns4_c1396dcb.cu
#line 1 "experts.cu"
// experts.cu - contracts and instances of experts.cuh: linear layers of experts, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual




















//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.





#include "experts.cuh"

struct Config {
    using T = half;
    using OUT = half;
    static constexpr int X = 2, N = 17, K = 40, R = 2, BIAS = 0, SUM = 1;
    static constexpr int ACT = 0, GLU = 0, RES = 0, COLUMNS = 4;
};
extern "C" __global__ void __launch_bounds__(256, 2)

expert_sum__fp16_fp16_fp16_x2_n17_k40_r2_columns4_c1396dcb(const ExpertSumArgs a) { expert<Config>(a); }

SIMT_KERNEL(expert_sum__fp16_fp16_fp16_x2_n17_k40_r2_columns4_c1396dcb, (1))
#undef Config
