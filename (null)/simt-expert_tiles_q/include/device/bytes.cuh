// bytes.cuh - bytes of words, differences of pairs, two bytes of shared memory, on the host.
#pragma once
#include "device/types.cuh"

DEVICE u32 permute(u32 a, u32 b, u32 selector)
{
    const u64 both = (u64)b << 32 | a;
    u32 r = 0;
    for (int i = 0; i < 4; i++)
        r |= (u32)(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return r;
}
DEVICE u32 subtract2(u32 a, u32 b) { return pack2<half>(low<half>(a) - low<half>(b), high<half>(a) - high<half>(b)); }
DEVICE u16 shared_load2(u32 a)
{
    u16 v;
    simt_shared_load(a, &v, 2);
    return v;
}
DEVICE void shared_store2(u32 a, u16 v) { simt_shared_store(a, &v, 2); }
