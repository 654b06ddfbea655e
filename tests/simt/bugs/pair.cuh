// pair.cuh - two blocks of a cluster exchange sums, twice, through each other's shared memory.
// BUG: 0 none, else what is wrong.
//
//   y [gridDim.x]: round by round what came from the other
struct Args {
    float *y;
};

DEVICE void body(const Args &a)
{
    char *shared = shared_memory();
    const u32 at = shared_address(shared), arrived = at + 128;
    const int t = threadIdx.x, rank = blockIdx.x & 1;
    float *room = (float *)shared, sum = 0.0f;
    if (t == 0) {
        mbarrier_init(arrived, 1);
        if (BUG != 1) // 1: the other block may not see the barrier
            mbarrier_init_fence();
    }
    cluster_arrive();
    for (int round = 0; round < 2; round++) {
        if (round == 0 || BUG != 2) // 2: the other may still read what the first round brought
            cluster_wait();
        if (t == 0)
            mbarrier_expect(arrived, BUG == 3 ? 124 : 128); // 3: a wrong count of bytes
        const u32 count = cluster_map(arrived, BUG == 5 ? rank : rank ^ 1); // 5: counted in another block than it goes to
        cluster_send(cluster_map(at + t * 4, rank ^ 1), (float)(t + round + rank), count);
        if (BUG != 4) // 4: what was sent is not waited for
            mbarrier_wait(arrived, round);
        sum += warp_sum(room[t]);
        if (round == 0 || BUG != 2)
            cluster_arrive();
        if (BUG == 6) // 6: arrives twice
            cluster_arrive();
    }
    if (BUG != 2)
        cluster_wait();
    if (t == 0)
        a.y[blockIdx.x] = sum;
}
