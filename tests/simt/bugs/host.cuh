// host.cuh - each block leaves a result for a host that polls: words by several warps, and a last one that says
// that they are there. BUG: 0 none, else what is wrong.
//
//   out [gridDim.x][4]: b + 1, b + 2, b + 3, 9, from which each word the host waits for the last of
struct Args {
    u32 *out;
};
enum { WEAK = SIMT_RELAXED };

DEVICE void body(const Args &a)
{
    u32 *out = a.out + blockIdx.x * 4;
    const int t = threadIdx.x;
    const u32 value = blockIdx.x + 1 + t / 32;
    if (t % 32 == 0 && !(BUG == 5 && t == 0))
        out[t / 32] = value;
    if (BUG != 6) // 6: other warps' words are not waited for
        block_sync();
    if (t != 0)
        return;
    if (BUG == 1) { // 1: a release of the GPU's scope
        store_release(out + 3, 9);
    } else if (BUG == 2) { // 2: nothing releases
        simt_store(out + 3, 9, WEAK);
    } else if (BUG == 3) { // 3: a plain store
        out[3] = 9;
    } else if (BUG == 4) { // 4: a fence of the GPU's scope
        fence_gpu();
        simt_store(out + 3, 9, WEAK);
    } else if (blockIdx.x % 3 == 0) { // three ways without a bug
        fence_system();
        simt_store(out + 3, 9, WEAK);
    } else if (blockIdx.x % 3 == 1) {
        store_release_system(out + 3, 9);
    } else {
        store_relaxed16_system(out, uint4_{value, value + 1, value + 2, 9});
    }
    if (BUG == 5) // 5: a word after the last one
        out[0] = value;
}
