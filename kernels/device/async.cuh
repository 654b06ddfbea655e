// async.cuh - copies from global to shared memory that run beside the program.
#pragma once
#include "device/types.cuh"

// 16 bytes, of which the first `bytes` (0..16) are read and the rest becomes zero. Both ends
// 16-byte aligned.
DEVICE void copy16(u32 to, const void *from, int bytes = 16)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// 16 bytes that nobody needs again soon: the first that L2 gives up.
DEVICE void copy16_once(u32 to, const void *from)
{
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
}
DEVICE void copy4(u32 to, const void *from, int bytes = 4)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most PENDING of this thread's groups are under way.
template <int PENDING> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// sm_90: this thread's arrival at an mbarrier that expects it comes once its copies so far are done.
DEVICE void copy_arrive(u32 mbarrier)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(mbarrier) : "memory");
#endif
}
// sm_90: one bulk copy by one thread, multiples of 16 bytes, 16-byte aligned; its bytes are
// counted on the mbarrier.
DEVICE void bulk_copy(u32 to, const void *from, u32 bytes, u32 mbarrier)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(mbarrier) : "memory");
#endif
}
// Ordinary writes to shared memory become visible to bulk copies and back.
DEVICE void async_fence()
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
