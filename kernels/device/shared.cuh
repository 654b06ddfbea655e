// shared.cuh - shared memory: arrays, 32-bit addresses, vector loads and stores.
#pragma once
#include "device/vec.cuh"

// The dynamic shared memory of the block, 1024-byte aligned.
DEVICE char *shared_memory()
{
    extern __shared__ __align__(1024) char shared_bytes_[];
    return shared_bytes_;
}

// A fixed array in shared memory: SHARED(float, sums, 32);
#define SHARED(type, name, count) __shared__ type name[count]

// The 32-bit shared-memory address of p, as PTX takes it.
DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// ld.shared.v4, st.shared.v4: 16 aligned bytes; ld.shared.v2: 8.
DEVICE uint4_ shared_load16(u32 a)
{
    uint4_ v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a) : "memory");
    return v;
}
DEVICE void shared_store16(u32 a, uint4_ v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};"
                 ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
DEVICE Vec<float, 2> shared_load8(u32 a)
{
    Vec<float, 2> v;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(a) : "memory");
    return v;
}
DEVICE void shared_store8(u32 a, uint2_ v) { asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(a), "r"(v.x), "r"(v.y) : "memory"); }
