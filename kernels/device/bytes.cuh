// bytes.cuh - bytes of words, differences of pairs, two bytes of shared memory.
#pragma once
#include "device/types.cuh"

// prmt: byte i of the result is byte (selector >> 4 i & 7) of a (0..3) and b (4..7).
DEVICE u32 permute(u32 a, u32 b, u32 selector)
{
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}
// sub.rn.f16x2
DEVICE u32 subtract2(u32 a, u32 b)
{
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
DEVICE u16 shared_load2(u32 a)
{
    u16 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(a) : "memory");
    return v;
}
DEVICE void shared_store2(u32 a, u16 v) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(a), "h"(v) : "memory"); }
