// store.cuh - stores of several words at once. NVRTC may store a struct that is assigned (store() of vec.cuh) element by element,
// whatever its alignment, where one of two destinations is chosen by a branch.
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
