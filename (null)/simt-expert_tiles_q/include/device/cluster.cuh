// cluster.cuh - blocks of one cluster, on the host. build.c reads the n of CLUSTER(n) in the text.
#pragma once
#include "device/types.cuh"

#define CLUSTER(n)
DEVICE u32 cluster_rank() { return simt_cluster_rank(); }
DEVICE void cluster_arrive() { simt_cluster_arrive(); }
DEVICE void cluster_wait() { simt_cluster_wait(); }
DEVICE u32 cluster_map(u32 a, u32 rank) { return simt_cluster_map(a, rank); }
DEVICE void cluster_mbarrier_arrive(u32 mbarrier) { simt_cluster_mbarrier_arrive(mbarrier); }
DEVICE void cluster_send(u32 mapped, float v, u32 mbarrier) { simt_cluster_send(mapped, &v, 4, mbarrier); }
DEVICE void cluster_send2(u32 mapped, float v0, float v1, u32 mbarrier)
{
    const float v[2] = {v0, v1};
    simt_cluster_send(mapped, v, 8, mbarrier);
}
DEVICE void cluster_send4(u32 mapped, float v0, float v1, float v2, float v3, u32 mbarrier)
{
    const float v[4] = {v0, v1, v2, v3};
    simt_cluster_send(mapped, v, 16, mbarrier);
}
DEVICE void cluster_send16(u32 mapped, uint4_ v, u32 mbarrier) { simt_cluster_send(mapped, &v, 16, mbarrier); }
