// random_codes.cuh - fills one quantised weight with random codes from a seed, in place, for benchmarks.
//
//   weights   the block of all weights
//   fill      which of them: tiles of runtime/base/packed.h
//
// runtime/device/random.h defines the codes and scales; the CPU writes the same bits. Memory bound: only writes.
#pragma once
#include "device/fill.h"
#include "device/types.cuh"

struct RandomCodesArgs {
    unsigned char *weights;
    const FtxCodesFill *fill;
};

DEVICE u32 codes_mix(u32 x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// Word i of tile t: codes, then scales, zeros or minima, and 0.
DEVICE u32 codes_word(const FtxCodesFill &f, u32 t, u32 i)
{
    const u32 codes = f.codes / 4, scales = f.scales >= 2 ? f.groups : f.groups / 2;
    const u32 zeros = f.scales == 1 ? f.groups / 4 : f.scales == 3 ? f.groups : 0;
    const u64 element = (u64)t * codes + i;
    if (i < codes)
        return codes_mix(codes_mix((u32)element ^ f.key) + (u32)(element >> 32) + f.key);
    if (i < codes + scales)
        return f.scales >= 2 ? __float_as_uint(f.scale) : from_float<half>(f.scale).bits * 0x10001u;
    if (i < codes + scales + zeros)
        return f.scales == 1 ? f.zero * 0x01010101u : __float_as_uint(f.scale * (float)f.zero);
    return 0;
}

// A block takes tiles blockIdx.x, blockIdx.x + gridDim.x, ...
template <class K> DEVICE void random_codes(const RandomCodesArgs &a)
{
    const FtxCodesFill f = *a.fill;
    const u32 scale = f.scales >= 2 ? 4 : 2, zero = f.scales == 1 ? 1 : f.scales == 3 ? 4 : 0;
    const u32 words = round_up(f.codes + f.groups * (scale + zero), 64) / 4;
    for (u32 t = blockIdx.x; t < f.tiles; t += gridDim.x)
        for (u32 i = threadIdx.x; i < words; i += K::THREADS)
            ((u32 *)(a.weights + f.offset))[(u64)t * words + i] = codes_word(f, t, i);
}
