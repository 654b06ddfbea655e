#define Config Config_2
#line 1 "expert_linear__bf16_bf16_bf16_x8_n72_k264_r2_columns4_21656f2b.cu"
// expert_linear__bf16_bf16_bf16_x8_n72_k264_r2_columns4_21656f2b
// made by ftxc from experts.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_linear__bf16_bf16_bf16_x8_n72_k264_r2_columns4_21656f2b.cu
#line 1 "experts.cu"
// experts.cu - contracts and instances of experts.cuh: linear layers of experts, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual




















//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.





#include "experts.cuh"

struct Config {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = 8, N = 72, K = 264, R = 2, BIAS = 0, SUM = 0;
    static constexpr int ACT = 5, GLU = 1, RES = 0, COLUMNS = 4;
};
extern "C" __global__ void __launch_bounds__(256, 2)
expert_linear__bf16_bf16_bf16_x8_n72_k264_r2_columns4_21656f2b(const ExpertArgs a) { expert<Config>(a); }


SIMT_KERNEL(expert_linear__bf16_bf16_bf16_x8_n72_k264_r2_columns4_21656f2b, (1))
#undef Config
#define Config Config_10
#line 1 "expert_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_5a3343fe.cu"
// expert_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_5a3343fe
// made by ftxc from experts.cu, for %10
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_5a3343fe.cu
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
    static constexpr int X = 40, N = 66, K = 72, R = 8, BIAS = 1, SUM = 0;
    static constexpr int ACT = 5, GLU = 1, RES = 0, COLUMNS = 4;
};
extern "C" __global__ void __launch_bounds__(256, 2)
expert_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_5a3343fe(const ExpertArgs a) { expert<Config>(a); }


SIMT_KERNEL(expert_linear__fp16_fp16_fp16_x40_n66_k72_r8_bias1_5a3343fe, (1))
#undef Config
#define Config Config_18
#line 1 "expert_linear__fp32_fp32_fp32_x3_n7_k6_r1_columns4_208a2887.cu"
// expert_linear__fp32_fp32_fp32_x3_n7_k6_r1_columns4_208a2887
// made by ftxc from experts.cu, for %8
// nvcc -gencode=arch=compute_80,code=sm_80 -std=c++17 -I. -cubin expert_linear__fp32_fp32_fp32_x3_n7_k6_r1_columns4_208a2887.cu
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
    static constexpr int X = 3, N = 7, K = 6, R = 1, BIAS = 0, SUM = 0;
    static constexpr int ACT = 0, GLU = 0, RES = 0, COLUMNS = 4;
};
extern "C" __global__ void __launch_bounds__(256, 2)
expert_linear__fp32_fp32_fp32_x3_n7_k6_r1_columns4_208a2887(const ExpertArgs a) { expert<Config>(a); }


SIMT_KERNEL(expert_linear__fp32_fp32_fp32_x3_n7_k6_r1_columns4_208a2887, (1))
#undef Config
#define Config Config_26
#line 1 "expert_sum__bf16_bf16_bf16_x33_n34_k520_r4_columns4_830884f7.cu"
// expert_sum__bf16_bf16_bf16_x33_n34_k520_r4_columns4_830884f7
// made by ftxc from experts.cu, for %11
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_sum__bf16_bf16_bf16_x33_n34_k520_r4_columns4_830884f7.cu
#line 1 "experts.cu"
// experts.cu - contracts and instances of experts.cuh: linear layers of experts, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual




















//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.





#include "experts.cuh"

struct Config {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = 33, N = 34, K = 520, R = 4, BIAS = 0, SUM = 1;
    static constexpr int ACT = 0, GLU = 0, RES = 1, COLUMNS = 4;
};
extern "C" __global__ void __launch_bounds__(256, 2)

expert_sum__bf16_bf16_bf16_x33_n34_k520_r4_columns4_830884f7(const ExpertSumArgs a) { expert<Config>(a); }

SIMT_KERNEL(expert_sum__bf16_bf16_bf16_x33_n34_k520_r4_columns4_830884f7, (1))
#undef Config
#define Config Config_34
#line 1 "expert_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_columns4_cd5cf4ba.cu"
// expert_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_columns4_cd5cf4ba
// made by ftxc from experts.cu, for %12
// nvcc -gencode=arch=compute_80,code=sm_80 -std=c++17 -I. -cubin expert_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_columns4_cd5cf4ba.cu
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
    static constexpr int X = 3, N = 36, K = 136, R = 2, BIAS = 1, SUM = 1;
    static constexpr int ACT = 0, GLU = 0, RES = 1, COLUMNS = 4;
};
extern "C" __global__ void __launch_bounds__(256, 2)

expert_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_columns4_cd5cf4ba(const ExpertSumArgs a) { expert<Config>(a); }

SIMT_KERNEL(expert_sum__fp16_fp16_fp16_x3_n36_k136_r2_bias1_columns4_cd5cf4ba, (1))
#undef Config
#define Config Config_42
#line 1 "expert_linear__bf16_bf16_bf16_x4_n20_k36_r2_bias1_a7b67c44.cu"
// expert_linear__bf16_bf16_bf16_x4_n20_k36_r2_bias1_a7b67c44
// made by ftxc from experts.cu, for %10
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_linear__bf16_bf16_bf16_x4_n20_k36_r2_bias1_a7b67c44.cu
#line 1 "experts.cu"
// experts.cu - contracts and instances of experts.cuh: linear layers of experts, for few rows
//
//   linear   each row with the matrices of its experts, activation or gate after
//   sum      the weighted sum of a row's experts, and the residual




















//    Of X experts p pairs hit X (1 - exp(-p / X)), if all are as likely: by the series of exp to its second power.





#include "experts.cuh"

struct Config {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = 4, N = 20, K = 36, R = 2, BIAS = 1, SUM = 0;
    static constexpr int ACT = 5, GLU = 1, RES = 0, COLUMNS = 4;
};
extern "C" __global__ void __launch_bounds__(256, 2)
expert_linear__bf16_bf16_bf16_x4_n20_k36_r2_bias1_a7b67c44(const ExpertArgs a) { expert<Config>(a); }


SIMT_KERNEL(expert_linear__bf16_bf16_bf16_x4_n20_k36_r2_bias1_a7b67c44, (1))
#undef Config
