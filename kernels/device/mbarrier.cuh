// mbarrier.cuh - barriers in shared memory that count arrivals and copied bytes (sm_90).
//
// A wait names the parity of the phase it waits for: 0, 1, 0, ... A wait for parity 1 on a fresh
// barrier returns at once.
#pragma once
#include "device/types.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
DEVICE void mbarrier_init(u32 b, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals) : "memory");
}
// After the inits, before a barrier of the block: copies see them.
DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Arrives once and announces bytes that will come.
DEVICE void mbarrier_expect(u32 b, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
DEVICE void mbarrier_arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
DEVICE bool mbarrier_try(u32 b, u32 parity)
{
    u32 r;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(r) : "r"(b), "r"(parity) : "memory");
    return r;
}
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
