// l2.cuh - reads from L2 on the host: plain reads.
#pragma once
#include "device/types.cuh"

DEVICE uint4_ load_l2(const void *p)
{
    uint4_ v;
    simt_global_load(p, &v, 16);
    return v;
}
template <class T> DEVICE T load_l2_scalar(const T *p) { return *p; }
