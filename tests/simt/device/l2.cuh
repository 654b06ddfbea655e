// l2.cuh - reads past the first cache: reads.
#pragma once
#include "device/types.cuh"

DEVICE uint4_ load_l2(const void *p)
{
    uint4_ v;
    simt_global_load(p, &v, 16);
    return v;
}
// One element.
template <class T> DEVICE T load_l2_scalar(const T *p) { return *p; }
