// atomic.cuh - words that blocks share: counters, ordered reads and writes, fences.
#pragma once
#include "device/types.cuh"

// Adds and returns the old value. acq_rel: what this block's threads wrote before (and a barrier)
// is seen by whoever reads a later value of the counter.
DEVICE u32 atomic_add_acq_rel(u32 *p, u32 v)
{
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
DEVICE u32 atomic_add_relaxed(u32 *p, u32 v)
{
    u32 old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
DEVICE u32 load_acquire(const u32 *p)
{
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEVICE void store_release(u32 *p, u32 v) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE void store_release_system(u32 *p, u32 v) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
// 16 aligned bytes for a host that polls: it sees all of them or none. Nothing is waited for, and nothing else released.
DEVICE void store_whole_system(void *p, uint4_ v)
{
    asm volatile("{\n\t.reg .b64 low, high;\n\t.reg .b128 all;\n\t"
                 "mov.b64 low, {%1, %2};\n\tmov.b64 high, {%3, %4};\n\tmov.b128 all, {low, high};\n\t"
                 "st.relaxed.sys.global.b128 [%0], all;\n\t}" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
DEVICE void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// In shared memory.
DEVICE u32 shared_atomic_add(u32 *p, u32 v) { return atomicAdd(p, v); }
DEVICE u32 shared_atomic_or(u32 *p, u32 v) { return atomicOr(p, v); }
