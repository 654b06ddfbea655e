// flag.cuh - the first block writes a vector and raises a flag, the others wait for it and add the vector up;
// nothing but fences and orders hands it over. BUG: 0 none, else what is wrong.
//
//   data [64] u32, zero before   ->   y [gridDim.x]: 64 * 65 / 2 + 64, from the second on
struct Args {
    u32 *data, *flag, *y;
};
enum { WEAK = SIMT_RELAXED, IN_BLOCK = SIMT_ACQUIRE | SIMT_RELEASE | SIMT_IN_BLOCK };

DEVICE void raise(u32 *flag)
{
    if (BUG == 1) { // 1: no fence
        simt_store(flag, 1, WEAK);
    } else if (BUG == 2) { // 2: a fence of the block's scope
        simt_fence(IN_BLOCK);
        simt_store(flag, 1, WEAK);
    } else if (BUG == 3) { // 3: a release of the block's scope
        simt_store(flag, 1, IN_BLOCK);
    } else if (BUG == 4) { // 4: an atomic that orders nothing
        atomic_add_relaxed(flag, 1);
    } else if (blockIdx.x == 0 && gridDim.x % 2 == 0) { // both ways without a bug
        fence_gpu();
        simt_store(flag, 1, WEAK);
    } else {
        store_release(flag, 1);
    }
}

DEVICE void await(const u32 *flag)
{
    const int order = BUG == 5 ? WEAK : BUG == 6 ? IN_BLOCK : SIMT_ACQUIRE;
    while (simt_load(flag, order) == 0) // 5: no acquire; 6: one of the block's scope
        ;
}

DEVICE void body(const Args &a)
{
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        a.data[t] = t + 1;
        if (BUG == 7 && t == 0) // 7: a fence before what it should hand over
            fence_gpu();
        block_sync();
        a.data[t] += 1;
        block_sync();
        if (t == 0) {
            if (BUG == 7)
                simt_store(a.flag, 1, WEAK);
            else
                raise(a.flag);
        }
        return;
    }
    u32 before = BUG == 8 ? a.data[t] : 0; // 8: the vector is read early, and the copy kept
    if (t == 0)
        await(a.flag);
    block_sync();
    const u32 sum = warp_sum((int)(BUG == 8 ? before : a.data[t]));
    SHARED(u32, half, 2);
    if (t % 32 == 0)
        half[t / 32] = sum;
    block_sync();
    if (t == 0)
        a.y[blockIdx.x] = half[0] + half[1];
}
