// reduce.cuh - sums of rows, by a block and over blocks. BUG: 0 none, else what is wrong.
//
//   x [gridDim.x * 64] fp32   ->   y [1]: all of it, by the block that comes last
struct Args {
    const float *x;
    float *partial; // [gridDim.x]
    u32 *counter;   // zero between launches
    float *y;
};

DEVICE void body(const Args &a)
{
    SHARED(float, room, 64);
    SHARED(float, total, 1);
    SHARED(u32, last, 1);
    const int t = threadIdx.x, beyond = BUG == 1 ? 1 : 0; // 1: one element too far
    if (BUG == 2)                                         // 2: all add to one sum at once
        total[0] = 0.0f;
    room[t] = a.x[blockIdx.x * 64 + t + beyond * (t == 63 && blockIdx.x == gridDim.x - 1)];
    if (BUG != 3) // 3: no barrier
        block_sync();
    if (BUG == 2)
        total[0] += room[t];
    if (t < 32) {
        float v = room[t] + room[t + 32];
        if (BUG == 4) { // 4: lanes hand over in shared memory, and nothing orders them
            room[t] = v;
            v += room[t ^ 16];
        } else {
            v += shuffle_xor(v, 16);
        }
        if (BUG != 5 || t < 16) // 5: half of the warp goes another way
            v += shuffle_xor(v, 8);
        else
            warp_sync();
        v += shuffle_xor(v, 4);
        v += shuffle_xor(v, 2);
        v += shuffle_xor(v, 1);
        if (t == 0) {
            a.partial[blockIdx.x] = v;
            // 6: the counter orders nothing
            const u32 before = BUG == 6 ? atomic_add_relaxed(a.counter, 1) : atomic_add_acq_rel(a.counter, 1);
            last[0] = before == gridDim.x - 1;
        }
    }
    if (BUG == 7 && t < 32) // 7: a barrier of one warp where two are awaited
        named_barrier_sync(1, 64);
    block_sync();
    if (!last[0])
        return;
    if (t == 0) {
        float sum = 0.0f;
        for (int i = 0; i < (int)gridDim.x; i++)
            sum += a.partial[i];
        a.y[0] = sum;
        a.counter[0] = 0;
    }
}
