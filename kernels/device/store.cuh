// store.cuh - stores of several words at once. A struct of words that is assigned is stored word by word, and one of 16-bit
// elements element by element, whatever its alignment.
#pragma once
#include "device/types.cuh"

// st.global.v4, v2: 16 and 8 bytes; p is aligned to as many.
DEVICE void store_16(void *p, uint4_ v)
{
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
DEVICE void store_8(void *p, uint2_ v)
{
    asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}
