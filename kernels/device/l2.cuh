// l2.cuh - reads that pass the first cache by.
#pragma once
#include "device/types.cuh"

// 16 bytes from L2, past L1: for what another kernel wrote while this one was already running.
DEVICE uint4_ load_l2(const void *p)
{
    uint4_ v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
// One element.
template <class T> DEVICE T load_l2_scalar(const T *p) { return __ldcg(p); }
