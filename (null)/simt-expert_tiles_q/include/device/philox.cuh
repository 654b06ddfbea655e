// philox.cuh - Philox4x32-10: random words that are a function of (key, counter) alone.
// Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once
#include "device/types.cuh"

// Four random words for counter c.
DEVICE uint4_ philox(uint4_ c, u32 key0, u32 key1)
{
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u32 h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
        const u32 h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = uint4_{h1 ^ c.y ^ key0, l1, h0 ^ c.w ^ key1, l0};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}
