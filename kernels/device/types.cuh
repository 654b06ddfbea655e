// types.cuh - the ground of every kernel: short names, element types and their conversions.
//
// Nothing from outside is included: NVRTC --minimal compiles this in milliseconds. bf16 and half
// are bit patterns here; arithmetic is in fp32, as in every kernel of the tree.
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
constexpr DEVICE int least(int a, int b) { return a < b ? a : b; }
constexpr DEVICE int most(int a, int b) { return a > b ? a : b; }
constexpr DEVICE int pow2_at_least(int n) { int p = 1; while (p < n) p *= 2; return p; }

DEVICE float to_float(float f) { return f; }
DEVICE float to_float(bf16 h) { return __uint_as_float((u32)h.bits << 16); }
DEVICE float to_float(half h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits));
    return f;
}

// Nearest, ties to even.
template <class T> DEVICE T from_float(float f);
template <> DEVICE float from_float<float>(float f) { return f; }
template <> DEVICE bf16 from_float<bf16>(float f)
{
    bf16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
    return h;
}
template <> DEVICE half from_float<half>(float f)
{
    half h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
    return h;
}

// Two elements of a 16-bit type in one word, the first in the low half.
template <class T> DEVICE u32 pack2(float lo, float hi);
template <> DEVICE u32 pack2<bf16>(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
template <> DEVICE u32 pack2<half>(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
template <class T> DEVICE float low(u32 w);   // first element of a pair
template <class T> DEVICE float high(u32 w);  // second
template <> DEVICE float low<bf16>(u32 w) { return __uint_as_float(w << 16); }
template <> DEVICE float high<bf16>(u32 w) { return __uint_as_float(w & 0xffff0000u); }
template <> DEVICE float low<half>(u32 w) { return to_float(half{(u16)w}); }
template <> DEVICE float high<half>(u32 w) { return to_float(half{(u16)(w >> 16)}); }
