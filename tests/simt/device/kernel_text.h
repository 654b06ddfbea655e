// kernel_text.h - included before each kernel text: the words of CUDA C++ on the host.
#pragma once
#include "host.h"
#include "kernel.h"

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx simt_thread_index()
#define blockIdx simt_block_index()
#define blockDim simt_block_size()
#define gridDim simt_grid_size()

#define HOST static inline __attribute__((always_inline))

// Declared here, since the headers of the C library declare __expf and others in another meaning.
extern "C" {
float fmaf(float, float, float);
float fmaxf(float, float);
float fminf(float, float);
float fabsf(float);
float sqrtf(float);
float expf(float);
float exp2f(float);
float logf(float);
float log1pf(float);
float powf(float, float);
float log2f(float);
float tanhf(float);
float erff(float);
float floorf(float);
float ceilf(float);
float sinf(float);
float cosf(float);
float rintf(float);
}

template <class A, class B> HOST A simt_bits(B b)
{
    static_assert(sizeof(A) == sizeof(B), "another size");
    A a;
    __builtin_memcpy(&a, &b, sizeof a);
    return a;
}
HOST float __uint_as_float(unsigned u)
{
    return simt_bits<float>(u);
}
HOST unsigned __float_as_uint(float f)
{
    return simt_bits<unsigned>(f);
}
HOST float __int_as_float(int i)
{
    return simt_bits<float>(i);
}
HOST int __float_as_int(float f)
{
    return simt_bits<int>(f);
}

HOST int __float2int_rn(float f)
{
    return (int)rintf(f);
}

HOST float __fmul_rn(float a, float b)
{
    return a * b;
}
HOST float __fadd_rn(float a, float b)
{
    return a + b;
}
HOST float __fsub_rn(float a, float b)
{
    return a - b;
}
HOST float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
HOST float __fdiv_rn(float a, float b)
{
    return a / b;
}
HOST float __expf(float x)
{
    return expf(x);
}
HOST float __logf(float x)
{
    return logf(x);
}
HOST float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
HOST unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}
HOST unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
HOST int __ffs(int x)
{
    return __builtin_ffs(x);
}
HOST int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
HOST int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

// Lanes. The mask must be all of them.
template <class T> HOST T simt_shuffled(int kind, T v, int by)
{
    static_assert(sizeof v == 4 || sizeof v == 8, "a shuffle of 4 or 8 bytes");
    simt_shuffle(kind, &v, sizeof v, by);
    return v;
}
template <class T> HOST T __shfl_xor_sync(unsigned, T v, int mask)
{
    return simt_shuffled(SIMT_XOR, v, mask);
}
template <class T> HOST T __shfl_up_sync(unsigned, T v, int by)
{
    return simt_shuffled(SIMT_UP, v, by);
}
template <class T> HOST T __shfl_down_sync(unsigned, T v, int by)
{
    return simt_shuffled(SIMT_DOWN, v, by);
}
template <class T> HOST T __shfl_sync(unsigned, T v, int lane)
{
    return simt_shuffled(SIMT_INDEX, v, lane);
}
HOST void __syncwarp()
{
    simt_warp_sync();
}
HOST unsigned __ballot_sync(unsigned, bool p)
{
    return simt_ballot(p);
}

HOST unsigned __reduce_min_sync(unsigned, unsigned v)
{
    return simt_least(v);
}
// Stands after the text: makes its entry known to the harness.
template <class A> HOST void simt_call(void (*f)(A), const void *a)
{
    f(*(const A *)a);
}
template <class A> constexpr unsigned simt_args(void (*)(A))
{
    return sizeof(A);
}
#define SIMT_KERNEL(entry, cluster) \
    extern "C" __attribute__((visibility("default"))) const SimtKernel simt_kernel_##entry; \
    const SimtKernel simt_kernel_##entry = {#entry, [](const void *a) { simt_call(entry, a); }, simt_args(entry), \
                                            cluster};
