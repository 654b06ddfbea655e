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
// All threads of all blocks arrive, then wait. Relaxed: only what was read before is done with;
// writes are handed over by cluster_send.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// The address that shared address a has in the block of that rank.
DEVICE u32 cluster_map(u32 a, u32 rank)
{
    u32 r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank));
    return r;
}
// Arrives at another block's mbarrier (mapped): what this thread read before is done with. Of the block's scope: a
// release to the cluster would wait, on the whole GPU, for writes that there are none of.
DEVICE void cluster_count(u32 mbarrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mbarrier) : "memory");
}
// Writes to another block; the bytes are counted on an mbarrier of that block (mapped too), so
// no fence is needed, which would wait for every read this SM has under way.
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
#else
#define CLUSTER(n)
DEVICE u32 cluster_rank() { return 0; }
DEVICE void cluster_arrive() {}
DEVICE void cluster_wait() {}
DEVICE u32 cluster_map(u32 a, u32) { return a; }
DEVICE void cluster_count(u32) {}
DEVICE void cluster_send(u32, float, u32) {}
DEVICE void cluster_send2(u32, float, float, u32) {}
DEVICE void cluster_send4(u32, float, float, float, float, u32) {}
DEVICE void cluster_send16(u32, uint4_, u32) {}
#endif
