// atomic.cuh - words that blocks share: atomic counters, acquire loads, release stores and fences.
#pragma once
#include "device/types.cuh"

// atom.acq_rel.gpu: adds and returns the old value. What this thread wrote before, and what its block wrote before a
// barrier, is visible to every thread of the GPU that acquires a later value of the counter.
DEVICE u32 atomic_add_acq_rel(u32 *p, u32 v)
{
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
// atom.relaxed.gpu: adds and returns the old value; orders nothing else.
DEVICE u32 atomic_add_relaxed(u32 *p, u32 v)
{
    u32 old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
// ld.acquire.gpu: later reads of this thread see what was written before the release store of this value.
DEVICE u32 load_acquire(const u32 *p)
{
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
// st.release.gpu, st.release.sys: what this thread wrote before is visible to whoever acquires this value, on the GPU,
// or on the host too.
DEVICE void store_release(u32 *p, u32 v) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE void store_release_system(u32 *p, u32 v) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
// st.relaxed.sys.b128: 16 aligned bytes that the host sees all at once or not at all. It orders no other write.
DEVICE void store_relaxed16_system(void *p, uint4_ v)
{
    asm volatile("{\n\t.reg .b64 low, high;\n\t.reg .b128 all;\n\t"
                 "mov.b64 low, {%1, %2};\n\tmov.b64 high, {%3, %4};\n\tmov.b128 all, {low, high};\n\t"
                 "st.relaxed.sys.global.b128 [%0], all;\n\t}" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// fence.acq_rel: orders this thread's reads and writes before it with those after it, for the GPU, or for the host too.
DEVICE void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// atom.shared, relaxed: return the old value.
DEVICE u32 shared_atomic_add(u32 *p, u32 v) { return atomicAdd(p, v); }
DEVICE u32 shared_atomic_or(u32 *p, u32 v) { return atomicOr(p, v); }
