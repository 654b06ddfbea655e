// random.cuh - fills one weight with random values from a seed, in place, for benchmarks.
//
//   weights   the block of all weights
//   fill      which of them: offset, number of elements, type, scale, key
//
// runtime/device/random.h defines the value of each element; the CPU draws the same bits. Memory bound: only writes.
#pragma once
#include "device/io.h"
#include "device/vec.cuh"

struct RandomArgs {
    unsigned char *weights;
    const FtxFill *fill;
};

DEVICE unsigned random_mix(unsigned x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

DEVICE float random_value(unsigned key, unsigned long long element, float scale)
{
    const unsigned bits = random_mix(random_mix((unsigned)element ^ key) + (unsigned)(element >> 32) + key);
    return ((float)(bits >> 8) * 0x1p-23f - 1.0f) * scale;
}

// 16 bytes a thread and iteration.
template <class T, int THREADS> DEVICE void random_fill(unsigned char *weights, const FtxFill &fill)
{
    constexpr int VEC = 16 / sizeof(T);
    T *to = (T *)(weights + fill.offset);
    const i64 n = (i64)fill.elements;
    for (i64 at = ((i64)blockIdx.x * THREADS + threadIdx.x) * VEC; at < n; at += (i64)gridDim.x * THREADS * VEC) {
        Vec<float, VEC> f;
#pragma unroll
        for (int i = 0; i < VEC; i++)
            if (fill.constant == 1)
                f[i] = fill.scale;
            else if (fill.constant == 2 && i % 2)
                f[i] = -f[i - 1];
            else
                f[i] = random_value(fill.key, (unsigned long long)(at + i), fill.scale);
        store_up_to(to + at, from_floats<T>(f), n - at < VEC ? (int)(n - at) : VEC);
    }
}

template <class K> DEVICE void random(const RandomArgs &a)
{
    const FtxFill fill = *a.fill;
    switch (fill.type) {
    case FTX_FILL_FP32: random_fill<float, K::THREADS>(a.weights, fill); return;
    case FTX_FILL_FP16: random_fill<half, K::THREADS>(a.weights, fill); return;
    case FTX_FILL_BF16: random_fill<bf16, K::THREADS>(a.weights, fill); return;
    }
}
