// shared.cuh - shared memory on the host. Its 32-bit addresses are offsets in the block's slot.
#pragma once
#include "device/vec.cuh"

DEVICE char *shared_memory() { return (char *)simt_shared(); }

// The site names the array: a block has one of it.
#define SHARED(type, name, count)                                                                  \
    static const char simt_site_##name = 0;                                                        \
    type(&name)[count] = *(type(*)[count])simt_static(&simt_site_##name, sizeof(type) * (count), #name)

DEVICE u32 shared_address(const void *p) { return simt_shared_address(p); }
DEVICE uint4_ shared_load16(u32 a)
{
    uint4_ v;
    simt_shared_load(a, &v, 16);
    return v;
}
DEVICE void shared_store16(u32 a, uint4_ v) { simt_shared_store(a, &v, 16); }
DEVICE Vec<float, 2> shared_load8(u32 a)
{
    Vec<float, 2> v;
    simt_shared_load(a, &v, 8);
    return v;
}
DEVICE void shared_store8(u32 a, uint2_ v) { simt_shared_store(a, &v, 8); }
