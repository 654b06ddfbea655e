// mbarrier.cuh - mbarriers: barriers in shared memory that count arrivals and bytes (sm_90).
//
// A phase is complete when all arrivals have come and all announced bytes have landed; the next phase begins at once.
// A wait names the parity of the phase it waits for: 0, 1, 0, ... On a new mbarrier a wait for parity 1 returns at
// once, as if a phase before the first were complete. A waiter two phases behind cannot tell them apart.
#pragma once
#include "device/types.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// mbarrier.init: `arrivals` of each phase. By one thread.
DEVICE void mbarrier_init(u32 b, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals) : "memory");
}
// fence.mbarrier_init: makes the inits visible to bulk copies and to other blocks of the cluster. It stands between the
// inits and a barrier.
DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// mbarrier.arrive.expect_tx: arrives once, and announces `bytes` that this phase waits for.
DEVICE void mbarrier_expect(u32 b, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
// mbarrier.arrive (release, of the block's scope): earlier reads and writes of this thread are complete for whoever
// waits.
DEVICE void mbarrier_arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
// mbarrier.try_wait.parity (acquire): whether the phase is complete; waits a while before it says no.
DEVICE bool mbarrier_try(u32 b, u32 parity)
{
    u32 r;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(r) : "r"(b), "r"(parity) : "memory");
    return r;
}
// Waits until the phase of that parity is complete.
DEVICE void mbarrier_wait(u32 b, u32 parity)
{
    while (!mbarrier_try(b, parity))
        ;
}
#else  // before sm_90 nothing calls them
DEVICE void mbarrier_init(u32, u32) {}
DEVICE void mbarrier_init_fence() {}
DEVICE void mbarrier_expect(u32, u32) {}
DEVICE void mbarrier_arrive(u32) {}
DEVICE void mbarrier_wait(u32, u32) {}
#endif
