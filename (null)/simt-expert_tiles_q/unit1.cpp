#define Config Config_1
#line 1 "expert_q_hopper_sum__fp16_fp16_x3_n208_k320_r2_bits4_c2b844fb.cu"
// expert_q_hopper_sum__fp16_fp16_x3_n208_k320_r2_bits4_c2b844fb
// made by ftxc from expert_q_hopper.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_q_hopper_sum__fp16_fp16_x3_n208_k320_r2_bits4_c2b844fb.cu
#line 1 "expert_q_hopper.cu"
// expert_q_hopper.cu - contracts and instances of expert_q_hopper.cuh: linear layers of experts with quantised weights, for many
// rows, on sm_90a



















//    AHEAD: bricks of a producer's ring.






//    TILES: of each expert that is hit one that is not full, and the full ones.









//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.




#include "expert_q_hopper.cuh"


struct Config {
    using T = half;
    using OUT = half;
    static constexpr int X = 3, N = 208, K = 320, R = 2, BIAS = 0;
    static constexpr int SUM = 1, ACT = 0, GLU = 0;
    static constexpr int BITS = 4, GROUP = 32, SCALES = 1, BRICK_K = 128, BLOCK_M = 8, M = BLOCK_M;
    static constexpr int AHEAD = 4, STAGES = 5, SLOT_BYTES = 36864, RING_AT = 0, CODES_AT = 184320, BARRIERS_AT = 223232, COUNT_AT = 223616, TILES_AT = 223624, PAIRS_AT = 223696, WEIGHTS_AT = 226256, SHARED = 228816;
};

extern "C" __global__ void __launch_bounds__(512, 1)
expert_q_hopper_sum__fp16_fp16_x3_n208_k320_r2_bits4_c2b844fb(const ExpertArgs a) { expert_q_hopper<Config>(a); }

SIMT_KERNEL(expert_q_hopper_sum__fp16_fp16_x3_n208_k320_r2_bits4_c2b844fb, (1))
#undef Config
#define Config Config_3
#line 1 "expert_q_hopper_linear__fp16_fp16_x2_n400_k1152_r1_45d791d5.cu"
// expert_q_hopper_linear__fp16_fp16_x2_n400_k1152_r1_45d791d5
// made by ftxc from expert_q_hopper.cu, for %11
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_q_hopper_linear__fp16_fp16_x2_n400_k1152_r1_45d791d5.cu
#line 1 "expert_q_hopper.cu"
// expert_q_hopper.cu - contracts and instances of expert_q_hopper.cuh: linear layers of experts with quantised weights, for many
// rows, on sm_90a



















//    AHEAD: bricks of a producer's ring.






//    TILES: of each expert that is hit one that is not full, and the full ones.









//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.




#include "expert_q_hopper.cuh"


struct Config {
    using T = half;
    using OUT = half;
    static constexpr int X = 2, N = 400, K = 1152, R = 1, BIAS = 1;
    static constexpr int SUM = 0, ACT = 3, GLU = 0;
    static constexpr int BITS = 4, GROUP = 128, SCALES = 2, BRICK_K = 128, BLOCK_M = 8, M = BLOCK_M;
    static constexpr int AHEAD = 4, STAGES = 5, SLOT_BYTES = 36864, RING_AT = 0, CODES_AT = 184320, BARRIERS_AT = 219136, COUNT_AT = 219520, TILES_AT = 219528, PAIRS_AT = 219564, WEIGHTS_AT = 222128, SHARED = 222128;
};

extern "C" __global__ void __launch_bounds__(512, 1)
expert_q_hopper_linear__fp16_fp16_x2_n400_k1152_r1_45d791d5(const ExpertArgs a) { expert_q_hopper<Config>(a); }

SIMT_KERNEL(expert_q_hopper_linear__fp16_fp16_x2_n400_k1152_r1_45d791d5, (1))
#undef Config
#define Config Config_5
#line 1 "expert_q_hopper_linear__fp16_fp16_x6_n48_k256_r2_bits8_20733ae7.cu"
// expert_q_hopper_linear__fp16_fp16_x6_n48_k256_r2_bits8_20733ae7
// made by ftxc from expert_q_hopper.cu, for %10
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_q_hopper_linear__fp16_fp16_x6_n48_k256_r2_bits8_20733ae7.cu
#line 1 "expert_q_hopper.cu"
// expert_q_hopper.cu - contracts and instances of expert_q_hopper.cuh: linear layers of experts with quantised weights, for many
// rows, on sm_90a



















//    AHEAD: bricks of a producer's ring.






//    TILES: of each expert that is hit one that is not full, and the full ones.









//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.




#include "expert_q_hopper.cuh"


struct Config {
    using T = half;
    using OUT = half;
    static constexpr int X = 6, N = 48, K = 256, R = 2, BIAS = 0;
    static constexpr int SUM = 0, ACT = 5, GLU = 1;
    static constexpr int BITS = 8, GROUP = 32, SCALES = 1, BRICK_K = 128, BLOCK_M = 8, M = BLOCK_M;
    static constexpr int AHEAD = 4, STAGES = 4, SLOT_BYTES = 36864, RING_AT = 0, CODES_AT = 147456, BARRIERS_AT = 219136, COUNT_AT = 219520, TILES_AT = 219528, PAIRS_AT = 219636, WEIGHTS_AT = 222200, SHARED = 222200;
};

extern "C" __global__ void __launch_bounds__(512, 1)
expert_q_hopper_linear__fp16_fp16_x6_n48_k256_r2_bits8_20733ae7(const ExpertArgs a) { expert_q_hopper<Config>(a); }

SIMT_KERNEL(expert_q_hopper_linear__fp16_fp16_x6_n48_k256_r2_bits8_20733ae7, (1))
#undef Config
#define Config Config_7
#line 1 "expert_q_hopper_fp8_sum__fp16_fp16_x4_n144_k192_r2_a8c99347.cu"
// expert_q_hopper_fp8_sum__fp16_fp16_x4_n144_k192_r2_a8c99347
// made by ftxc from expert_q_hopper.cu, for %10
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_q_hopper_fp8_sum__fp16_fp16_x4_n144_k192_r2_a8c99347.cu
#line 1 "expert_q_hopper.cu"
// expert_q_hopper.cu - contracts and instances of expert_q_hopper.cuh: linear layers of experts with quantised weights, for many
// rows, on sm_90a



















//    AHEAD: bricks of a producer's ring.






//    TILES: of each expert that is hit one that is not full, and the full ones.









//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.




#include "expert_q_hopper.cuh"
#include "body/e4m3.cuh"

struct Config {
    using T = half;
    using OUT = half;
    static constexpr int X = 4, N = 144, K = 192, R = 2, BIAS = 1;
    static constexpr int SUM = 1, ACT = 0, GLU = 0;
    static constexpr int BITS = 8, GROUP = 32, SCALES = 2, BRICK_K = 128, BLOCK_M = 8, M = BLOCK_M;
    static constexpr int AHEAD = 4, STAGES = 4, SLOT_BYTES = 36864, RING_AT = 0, CODES_AT = 147456, BARRIERS_AT = 221184, COUNT_AT = 221568, TILES_AT = 221576, PAIRS_AT = 221660, WEIGHTS_AT = 224224, SHARED = 226784;
};
template <> struct Codes<Config> : E4m3Fragments<Config> {};
extern "C" __global__ void __launch_bounds__(512, 1)
expert_q_hopper_fp8_sum__fp16_fp16_x4_n144_k192_r2_a8c99347(const ExpertArgs a) { expert_q_hopper<Config>(a); }

SIMT_KERNEL(expert_q_hopper_fp8_sum__fp16_fp16_x4_n144_k192_r2_a8c99347, (1))
#undef Config
