// l2.cuh - reads from L2 that bypass L1.
#pragma once
#include "device/types.cuh"

// ld.global.cg: 16 bytes. For data that another kernel wrote after this one had started: L1 may hold older bytes.
DEVICE uint4_ load_l2(const void *p)
{
    uint4_ v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
// The same for one element.
template <class T> DEVICE T load_l2_scalar(const T *p) { return __ldcg(p); }
