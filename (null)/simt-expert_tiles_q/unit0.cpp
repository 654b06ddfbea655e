#define Config Config_0
#line 1 "expert_q_hopper_linear__bf16_bf16_x3_n208_k320_r2_863b864a.cu"
// expert_q_hopper_linear__bf16_bf16_x3_n208_k320_r2_863b864a
// made by ftxc from expert_q_hopper.cu, for %11
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_q_hopper_linear__bf16_bf16_x3_n208_k320_r2_863b864a.cu
#line 1 "expert_q_hopper.cu"
// expert_q_hopper.cu - contracts and instances of expert_q_hopper.cuh: linear layers of experts with quantised weights, for many
// rows, on sm_90a



















//    AHEAD: bricks of a producer's ring.






//    TILES: of each expert that is hit one that is not full, and the full ones.









//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.




#include "expert_q_hopper.cuh"


struct Config {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = 3, N = 208, K = 320, R = 2, BIAS = 1;
    static constexpr int SUM = 0, ACT = 5, GLU = 1;
    static constexpr int BITS = 4, GROUP = 64, SCALES = 0, BRICK_K = 128, BLOCK_M = 8, M = BLOCK_M;
    static constexpr int AHEAD = 4, STAGES = 5, SLOT_BYTES = 36864, RING_AT = 0, CODES_AT = 184320, BARRIERS_AT = 219136, COUNT_AT = 219520, TILES_AT = 219528, PAIRS_AT = 219600, WEIGHTS_AT = 222160, SHARED = 222160;
};

extern "C" __global__ void __launch_bounds__(512, 1)
expert_q_hopper_linear__bf16_bf16_x3_n208_k320_r2_863b864a(const ExpertArgs a) { expert_q_hopper<Config>(a); }

SIMT_KERNEL(expert_q_hopper_linear__bf16_bf16_x3_n208_k320_r2_863b864a, (1))
#undef Config
#define Config Config_2
#line 1 "expert_q_hopper_sum__bf16_bf16_x40_n16_k64_r5_bits4_3809d779.cu"
// expert_q_hopper_sum__bf16_bf16_x40_n16_k64_r5_bits4_3809d779
// made by ftxc from expert_q_hopper.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_q_hopper_sum__bf16_bf16_x40_n16_k64_r5_bits4_3809d779.cu
#line 1 "expert_q_hopper.cu"
// expert_q_hopper.cu - contracts and instances of expert_q_hopper.cuh: linear layers of experts with quantised weights, for many
// rows, on sm_90a



















//    AHEAD: bricks of a producer's ring.






//    TILES: of each expert that is hit one that is not full, and the full ones.









//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.




#include "expert_q_hopper.cuh"


struct Config {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = 40, N = 16, K = 64, R = 5, BIAS = 0;
    static constexpr int SUM = 1, ACT = 0, GLU = 0;
    static constexpr int BITS = 4, GROUP = 64, SCALES = 3, BRICK_K = 128, BLOCK_M = 8, M = BLOCK_M;
    static constexpr int AHEAD = 4, STAGES = 5, SLOT_BYTES = 36864, RING_AT = 0, CODES_AT = 184320, BARRIERS_AT = 225280, COUNT_AT = 225664, TILES_AT = 225672, PAIRS_AT = 226260, WEIGHTS_AT = 228824, SHARED = 231384;
};

extern "C" __global__ void __launch_bounds__(512, 1)
expert_q_hopper_sum__bf16_bf16_x40_n16_k64_r5_bits4_3809d779(const ExpertArgs a) { expert_q_hopper<Config>(a); }

SIMT_KERNEL(expert_q_hopper_sum__bf16_bf16_x40_n16_k64_r5_bits4_3809d779, (1))
#undef Config
#define Config Config_4
#line 1 "expert_q_hopper_sum__bf16_bf16_x2_n400_k448_r1_bits8_968393a8.cu"
// expert_q_hopper_sum__bf16_bf16_x2_n400_k448_r1_bits8_968393a8
// made by ftxc from expert_q_hopper.cu, for %9
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_q_hopper_sum__bf16_bf16_x2_n400_k448_r1_bits8_968393a8.cu
#line 1 "expert_q_hopper.cu"
// expert_q_hopper.cu - contracts and instances of expert_q_hopper.cuh: linear layers of experts with quantised weights, for many
// rows, on sm_90a



















//    AHEAD: bricks of a producer's ring.






//    TILES: of each expert that is hit one that is not full, and the full ones.









//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.




#include "expert_q_hopper.cuh"


struct Config {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = 2, N = 400, K = 448, R = 1, BIAS = 0;
    static constexpr int SUM = 1, ACT = 0, GLU = 0;
    static constexpr int BITS = 8, GROUP = 64, SCALES = 0, BRICK_K = 128, BLOCK_M = 8, M = BLOCK_M;
    static constexpr int AHEAD = 4, STAGES = 4, SLOT_BYTES = 36864, RING_AT = 0, CODES_AT = 147456, BARRIERS_AT = 215040, COUNT_AT = 215424, TILES_AT = 215432, PAIRS_AT = 215468, WEIGHTS_AT = 218032, SHARED = 220592;
};

extern "C" __global__ void __launch_bounds__(512, 1)
expert_q_hopper_sum__bf16_bf16_x2_n400_k448_r1_bits8_968393a8(const ExpertArgs a) { expert_q_hopper<Config>(a); }

SIMT_KERNEL(expert_q_hopper_sum__bf16_bf16_x2_n400_k448_r1_bits8_968393a8, (1))
#undef Config
#define Config Config_6
#line 1 "expert_q_hopper_fp8__bf16_bf16_x4_n144_k384_r2_bias1_37d7c5b4.cu"
// expert_q_hopper_fp8__bf16_bf16_x4_n144_k384_r2_bias1_37d7c5b4
// made by ftxc from expert_q_hopper.cu, for %10
// nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin expert_q_hopper_fp8__bf16_bf16_x4_n144_k384_r2_bias1_37d7c5b4.cu
#line 1 "expert_q_hopper.cu"
// expert_q_hopper.cu - contracts and instances of expert_q_hopper.cuh: linear layers of experts with quantised weights, for many
// rows, on sm_90a



















//    AHEAD: bricks of a producer's ring.






//    TILES: of each expert that is hit one that is not full, and the full ones.









//    Each expert that is hit has a tile that is not full: half of 32 rows on the mean.




#include "expert_q_hopper.cuh"
#include "body/e4m3.cuh"

struct Config {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = 4, N = 144, K = 384, R = 2, BIAS = 1;
    static constexpr int SUM = 0, ACT = 0, GLU = 0;
    static constexpr int BITS = 8, GROUP = 128, SCALES = 0, BRICK_K = 128, BLOCK_M = 8, M = BLOCK_M;
    static constexpr int AHEAD = 4, STAGES = 4, SLOT_BYTES = 36864, RING_AT = 0, CODES_AT = 147456, BARRIERS_AT = 214016, COUNT_AT = 214400, TILES_AT = 214408, PAIRS_AT = 214492, WEIGHTS_AT = 217056, SHARED = 217056;
};
template <> struct Codes<Config> : E4m3Fragments<Config> {};
extern "C" __global__ void __launch_bounds__(512, 1)
expert_q_hopper_fp8__bf16_bf16_x4_n144_k384_r2_bias1_37d7c5b4(const ExpertArgs a) { expert_q_hopper<Config>(a); }

SIMT_KERNEL(expert_q_hopper_fp8__bf16_bf16_x4_n144_k384_r2_bias1_37d7c5b4, (1))
#undef Config
