// ring.cuh - a producer warp streams tiles of weights through a ring by bulk copies; two consumer warps
// add them up. BUG: 0 none, else what is wrong.
//
//   w [TILES, 64] fp32   ->   y [64]: sums over the tiles
struct Args {
    float *w;
    float *y;
};
constexpr int TILES = 9, RING = 3, TILE = 64 * 4;

DEVICE void body(const Args &a)
{
    char *shared = shared_memory();
    const u32 full = shared_address(shared), empty = full + 8 * RING, ring = full + 64;
    const int t = threadIdx.x;
    if (t == 64) {
        for (int i = 0; i < RING; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, 2);
        }
        if (BUG != 1) // 1: copies may not see the barriers
            mbarrier_init_fence();
    }
    if (BUG == 2 && t < 64) { // 2: plain writes, then bulk copies, and no fence between
        ((float *)(shared + 64))[t] = 0.0f;
    }
    block_sync();
    if (t >= 64) {
        for (int i = 0; i < TILES && t == 64; i++) {
            const int slot = i % RING, turn = i / RING;
            if (turn > 0 && BUG != 3)                                       // 3: slots are not waited for
                mbarrier_wait(empty + 8 * slot, BUG == 4 ? turn & 1 : (turn - 1) & 1); // 4: the wrong phase
            const int wrong = BUG == 5 ? 16 : BUG == 6 ? -16 : 0;           // 5, 6: a wrong count of bytes
            mbarrier_expect(full + 8 * slot, TILE + (i == 4 ? wrong : 0));
            bulk_copy(ring + slot * TILE, a.w + i * 64 + (BUG == 7), TILE, full + 8 * slot); // 7: an address off by one
        }
        return;
    }
    float sum = 0.0f;
    for (int i = 0; i < TILES; i++) {
        const int slot = i % RING, turn = i / RING;
        if (BUG != 8) // 8: data is not waited for
            mbarrier_wait(full + 8 * slot, BUG == 9 ? (turn + 1) & 1 : turn & 1); // 9: the wrong phase
        sum += ((const float *)(shared + 64 + slot * TILE))[t];
        if (BUG != 10) // 10: a slot is given back before all lanes have read it
            warp_sync();
        if (t % 32 == 0 || (BUG == 11 && t == 1)) // 11: an arrival too many
            mbarrier_arrive(empty + 8 * slot);
    }
    a.y[t] = sum;
    if (BUG == 12) // 12: a write to the weights
        a.w[t] = sum;
}
