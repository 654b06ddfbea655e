// cluster.cuh - blocks of one cluster: their barrier, and writes to each other's shared memory
// (sm_90).
#pragma once
#include "device/types.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CLUSTER(n) __cluster_dims__(n, 1, 1)
DEVICE u32 cluster_rank()
{
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
// All threads of all blocks arrive; after the wait their earlier writes are seen.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// The address that shared address a has in the block of that rank.
DEVICE u32 cluster_map(u32 a, u32 rank)
{
    u32 r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank));
    return r;
}
DEVICE void cluster_store(u32 mapped, float v) { asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(mapped), "f"(v) : "memory"); }
DEVICE void cluster_store2(u32 mapped, float v0, float v1)
{
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1,%2};" ::"r"(mapped), "f"(v0), "f"(v1) : "memory");
}
#else
#define CLUSTER(n)
DEVICE u32 cluster_rank() { return 0; }
DEVICE void cluster_arrive() {}
DEVICE void cluster_wait() {}
DEVICE u32 cluster_map(u32 a, u32) { return a; }
DEVICE void cluster_store(u32, float) {}
DEVICE void cluster_store2(u32, float, float) {}
#endif
