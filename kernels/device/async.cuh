// async.cuh - asynchronous copies from global to shared memory: cp.async (sm_80) and cp.async.bulk (sm_90).
#pragma once
#include "device/types.cuh"

// cp.async.cg: 16 bytes past L1; the first `bytes` (0..16) are read, the others become zero. Both addresses are
// 16-byte aligned. The data is in shared memory for this thread after copy_wait, for others after a barrier too.
DEVICE void copy16(u32 to, const void *from, int bytes = 16)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// The same for data that is read once: L2 evicts it first (createpolicy evict_first).
DEVICE void copy16_evict_first(u32 to, const void *from)
{
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
}
// cp.async.ca: 4 bytes through L1; the first `bytes` (0..4) are read, the others become zero.
DEVICE void copy4(u32 to, const void *from, int bytes = 4)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// cp.async.commit_group: this thread's copies since the last commit become one group.
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// cp.async.wait_group: waits until at most the PENDING newest groups of this thread are incomplete.
template <int PENDING> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// cp.async.mbarrier.arrive.noinc (sm_90): arrives at the mbarrier once this thread's copies so far are complete. The
// mbarrier's count includes this arrival.
DEVICE void copy_arrive(u32 mbarrier)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(mbarrier) : "memory");
#endif
}
// cp.async.bulk (sm_90), by one thread: `bytes`, a multiple of 16, both addresses 16-byte aligned. The mbarrier counts
// the bytes as they land (complete_tx).
DEVICE void bulk_copy(u32 to, const void *from, u32 bytes, u32 mbarrier)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(mbarrier) : "memory");
#endif
}
// fence.proxy.async (sm_90): orders this thread's ordinary accesses to shared memory with those of the async proxy:
// bulk copies, TMA and wgmma.
DEVICE void async_proxy_fence()
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
