#define Config Config_1
#line 1 "expert_few_linear__bf16_bf16_bf16_x8_n72_k264_r2_act5_8b888a47.cu"
// expert_few_linear__bf16_bf16_bf16_x8_n72_k264_r2_act5_8b888a47
// made by ftxc from expert_few.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_few_linear__bf16_bf16_bf16_x8_n72_k264_r2_act5_8b888a47.cu
#line 1 "expert_few.cu"
// expert_few.cu - contracts and instances of expert_few.cuh: linear layers of experts in 16 bits, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual



















//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.





#include "expert_few.cuh"

struct Config {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = 8, N = 72, K = 264, R = 2, BIAS = 0, SUM = 0;
    static constexpr int ACT = 5, GLU = 1, RES = 0, COLUMNS = 16;
};
extern "C" __global__ void __launch_bounds__(128)
expert_few_linear__bf16_bf16_bf16_x8_n72_k264_r2_act5_8b888a47(const ExpertArgs a) { expert_few<Config>(a); }


SIMT_KERNEL(expert_few_linear__bf16_bf16_bf16_x8_n72_k264_r2_act5_8b888a47, (1))
#undef Config
#define Config Config_9
#line 1 "expert_few_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_11a4d584.cu"
// expert_few_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_11a4d584
// made by ftxc from expert_few.cu, for %10
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_few_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_11a4d584.cu
#line 1 "expert_few.cu"
// expert_few.cu - contracts and instances of expert_few.cuh: linear layers of experts in 16 bits, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual



















//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.





#include "expert_few.cuh"

struct Config {
    using T = half;
    using OUT = half;
    static constexpr int X = 40, N = 66, K = 72, R = 8, BIAS = 1, SUM = 0;
    static constexpr int ACT = 5, GLU = 1, RES = 0, COLUMNS = 16;
};
extern "C" __global__ void __launch_bounds__(128)
expert_few_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_11a4d584(const ExpertArgs a) { expert_few<Config>(a); }


SIMT_KERNEL(expert_few_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_11a4d584, (1))
#undef Config
#define Config Config_17
#line 1 "expert_sum__fp32_fp32_fp32_x5_n20_k36_r3_bias1_columns4_2ee3b3f8.cu"
// expert_sum__fp32_fp32_fp32_x5_n20_k36_r3_bias1_columns4_2ee3b3f8
// made by ftxc from experts.cu, for %12
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_sum__fp32_fp32_fp32_x5_n20_k36_r3_bias1_columns4_2ee3b3f8.cu
#line 1 "experts.cu"
// experts.cu - contracts and instances of experts.cuh: linear layers of experts, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual




















//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.





#include "experts.cuh"

struct Config {
    using T = float;
    using OUT = float;
    static constexpr int X = 5, N = 20, K = 36, R = 3, BIAS = 1, SUM = 1;
    static constexpr int ACT = 0, GLU = 0, RES = 1, COLUMNS = 4;
};
extern "C" __global__ void __launch_bounds__(256, 2)

expert_sum__fp32_fp32_fp32_x5_n20_k36_r3_bias1_columns4_2ee3b3f8(const ExpertSumArgs a) { expert<Config>(a); }

SIMT_KERNEL(expert_sum__fp32_fp32_fp32_x5_n20_k36_r3_bias1_columns4_2ee3b3f8, (1))
#undef Config
#define Config Config_25
#line 1 "expert_few_sum__bf16_bf16_bf16_x33_n34_k520_r4_res1_b5a96e11.cu"
// expert_few_sum__bf16_bf16_bf16_x33_n34_k520_r4_res1_b5a96e11
// made by ftxc from expert_few.cu, for %11
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_few_sum__bf16_bf16_bf16_x33_n34_k520_r4_res1_b5a96e11.cu
#line 1 "expert_few.cu"
// expert_few.cu - contracts and instances of expert_few.cuh: linear layers of experts in 16 bits, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual



















//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.





#include "expert_few.cuh"

struct Config {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = 33, N = 34, K = 520, R = 4, BIAS = 0, SUM = 1;
    static constexpr int ACT = 0, GLU = 0, RES = 1, COLUMNS = 16;
};
extern "C" __global__ void __launch_bounds__(128)

expert_few_sum__bf16_bf16_bf16_x33_n34_k520_r4_res1_b5a96e11(const ExpertSumArgs a) { expert_few<Config>(a); }

SIMT_KERNEL(expert_few_sum__bf16_bf16_bf16_x33_n34_k520_r4_res1_b5a96e11, (1))
#undef Config
#define Config Config_33
#line 1 "expert_few_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_9ce629ba.cu"
// expert_few_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_9ce629ba
// made by ftxc from expert_few.cu, for %12
// nvcc -gencode=arch=compute_80,code=sm_80 -std=c++17 -I. -cubin expert_few_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_9ce629ba.cu
#line 1 "expert_few.cu"
// expert_few.cu - contracts and instances of expert_few.cuh: linear layers of experts in 16 bits, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual



















//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.





#include "expert_few.cuh"

struct Config {
    using T = half;
    using OUT = half;
    static constexpr int X = 3, N = 36, K = 136, R = 2, BIAS = 1, SUM = 1;
    static constexpr int ACT = 0, GLU = 0, RES = 1, COLUMNS = 16;
};
extern "C" __global__ void __launch_bounds__(128)

expert_few_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_9ce629ba(const ExpertSumArgs a) { expert_few<Config>(a); }

SIMT_KERNEL(expert_few_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_9ce629ba, (1))
#undef Config
#define Config Config_41
#line 1 "glu__bf16_c20_threads32_kind5_6f5a7644.cu"
// glu__bf16_c20_threads32_kind5_6f5a7644
// made by ftxc from glu.cu, for %10
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin glu__bf16_c20_threads32_kind5_6f5a7644.cu
#line 1 "glu.cu"
// glu.cu - contract and instance of act.cuh: a gated linear unit, C outputs from 2C inputs









#include "act.cuh"

struct Config {
    using T = bf16;
    static constexpr int C = 20, ROWS_S = 0, THREADS = 32, KIND = 5;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS)
glu__bf16_c20_threads32_kind5_6f5a7644(const OneArgs a) { glu<Config>(a); }

SIMT_KERNEL(glu__bf16_c20_threads32_kind5_6f5a7644, (1))
#undef Config
