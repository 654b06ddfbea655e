// atomic.cuh - words that blocks share, on the host.
#pragma once
#include "device/types.cuh"

DEVICE u32 atomic_add_acq_rel(u32 *p, u32 v) { return simt_atomic(p, SIMT_ADD, v, SIMT_ACQUIRE | SIMT_RELEASE); }
DEVICE u32 atomic_add_relaxed(u32 *p, u32 v) { return simt_atomic(p, SIMT_ADD, v, SIMT_RELAXED); }
DEVICE u32 load_acquire(const u32 *p) { return simt_load(p, SIMT_ACQUIRE); }
DEVICE void store_release(u32 *p, u32 v) { simt_store(p, v, SIMT_RELEASE); }
DEVICE void store_release_system(u32 *p, u32 v) { simt_store(p, v, SIMT_RELEASE | SIMT_SYSTEM); }
DEVICE void store_relaxed16_system(void *p, uint4_ v) // the last word tells of all four
{
    u32 *to = (u32 *)p;
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    simt_store(to + 3, v.w, SIMT_RELEASE | SIMT_SYSTEM);
}
DEVICE void fence_gpu() { simt_fence(SIMT_ACQUIRE | SIMT_RELEASE); }
DEVICE void fence_system() { simt_fence(SIMT_ACQUIRE | SIMT_RELEASE | SIMT_SYSTEM); }
DEVICE u32 shared_atomic_add(u32 *p, u32 v) { return simt_shared_atomic(p, SIMT_ADD, v); }
DEVICE u32 shared_atomic_or(u32 *p, u32 v) { return simt_shared_atomic(p, SIMT_OR, v); }
