// pairs.cuh - arithmetic on pairs of 16-bit elements on the host. A result that needs more than fp32 is rounded twice.
#pragma once
#include "device/types.cuh"

DEVICE u32 and_or(u32 a, u32 b, u32 c) { return a & b | c; }

DEVICE u32 xor_and(u32 a, u32 b, u32 c) { return (a ^ b) & c; }

DEVICE u32 max2(u32 a, u32 b)
{
    const u32 low = (a & 0xffffu) > (b & 0xffffu) ? a : b, high = a >> 16 > b >> 16 ? a : b;
    return (high & 0xffff0000u) | (low & 0xffffu);
}

template <class T> DEVICE u32 fma2(u32 a, u32 b, u32 c)
{
    return pack2<T>(fmaf(low<T>(a), low<T>(b), low<T>(c)), fmaf(high<T>(a), high<T>(b), high<T>(c)));
}
