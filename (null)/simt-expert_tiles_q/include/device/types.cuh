// types.cuh - what every kernel needs: integer types, element types, small integer functions.
//
// No header of CUDA is included: NVRTC --minimal compiles this in milliseconds. bf16 and half hold bits; kernels
// compute in fp32.
#pragma once

#define DEVICE __device__ __forceinline__

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct bf16 { u16 bits; };
struct half { u16 bits; };

struct alignas(8) uint2_ { u32 x, y; };
struct alignas(16) uint4_ { u32 x, y, z, w; };

#ifdef __CUDA_ARCH__
constexpr int ARCH = __CUDA_ARCH__ / 10;  // 80, 86, 89, 90, 100, 120
#else
constexpr int ARCH = 0;                   // the host's pass of nvcc
#endif

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };

constexpr DEVICE int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr DEVICE int round_up(int a, int b) { return (a + b - 1) / b * b; }
// The smaller and the larger of two: usable in constants, on device and host.
constexpr DEVICE int least(int a, int b) { return a < b ? a : b; }
constexpr DEVICE int most(int a, int b) { return a > b ? a : b; }
constexpr DEVICE int pow2_at_least(int n) { int p = 1; while (p < n) p *= 2; return p; }

#include "device/convert.cuh"
