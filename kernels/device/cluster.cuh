// cluster.cuh - thread block clusters (sm_90): the barrier of their blocks, and writes to the shared memory of another
// block (distributed shared memory).
#pragma once
#include "device/types.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Launch attribute of a kernel: clusters of n blocks.
#define CLUSTER(n) __cluster_dims__(n, 1, 1)
// This block's rank in its cluster, 0..n-1.
DEVICE u32 cluster_rank()
{
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
// barrier.cluster.arrive.relaxed, .wait: all threads of all blocks arrive, then wait. Relaxed: earlier reads are
// complete, but earlier writes are not made visible. Data goes by cluster_send, which has an mbarrier.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// mapa: the address, in the cluster's shared memory, of shared address a of block `rank`.
DEVICE u32 cluster_map(u32 a, u32 rank)
{
    u32 r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank));
    return r;
}
// mbarrier.arrive.shared::cluster: one arrival at another block's mbarrier (address from cluster_map). It tells that
// this thread's earlier reads are complete. It has no release at cluster scope, which would wait for all writes of
// this thread to reach the GPU's scope.
DEVICE void cluster_mbarrier_arrive(u32 mbarrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mbarrier) : "memory");
}
// st.async: writes 4, 8 or 16 bytes to another block. An mbarrier of that block counts the bytes (complete_tx); whoever
// waits for its phase sees them. Both addresses come from cluster_map. No fence is needed, which would wait for all
// outstanding reads of the SM.
DEVICE void cluster_send(u32 mapped, float v, u32 mbarrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
                 ::"r"(mapped), "f"(v), "r"(mbarrier) : "memory");
}
DEVICE void cluster_send2(u32 mapped, float v0, float v1, u32 mbarrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];"
                 ::"r"(mapped), "f"(v0), "f"(v1), "r"(mbarrier) : "memory");
}
DEVICE void cluster_send4(u32 mapped, float v0, float v1, float v2, float v3, u32 mbarrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];"
                 ::"r"(mapped), "f"(v0), "f"(v1), "f"(v2), "f"(v3), "r"(mbarrier) : "memory");
}
DEVICE void cluster_send16(u32 mapped, uint4_ v, u32 mbarrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];"
                 ::"r"(mapped), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(mbarrier) : "memory");
}
#else // before sm_90 kernels use no clusters
#define CLUSTER(n)
DEVICE u32 cluster_rank() { return 0; }
DEVICE void cluster_arrive() {}
DEVICE void cluster_wait() {}
DEVICE u32 cluster_map(u32 a, u32) { return a; }
DEVICE void cluster_mbarrier_arrive(u32) {}
DEVICE void cluster_send(u32, float, u32) {}
DEVICE void cluster_send2(u32, float, float, u32) {}
DEVICE void cluster_send4(u32, float, float, float, float, u32) {}
DEVICE void cluster_send16(u32, uint4_, u32) {}
#endif
