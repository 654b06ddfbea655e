// tiles.cuh - two blocks of a cluster stream a matrix through rings of two slots: each asks for half the rows
// of a tile, for both of them. A warp asks, two warps add up. BUG: 0 none, else what is wrong.
//
//   m [16, 64 * TILES] bf16, by a map of tiles of 8 rows   ->   y [gridDim.x][64]: sums by column of a tile
struct Args {
    const TensorMap *m;
    float *y;
};
constexpr int TILES = 5, RING = 2, TILE = 16 * 128;

// Element (row, column) of a tile as TMA leaves it.
DEVICE float at(const char *slot, int row, int column)
{
    const int unit = BUG == 8 ? column / 8 : column / 8 ^ (row & 7); // 8: units as if they were not swizzled
    return to_float(*(const bf16 *)(slot + row * 128 + unit * 16 + column % 8 * 2));
}

DEVICE void ask(const Args &a, u32 ring, u32 full, u32 empty, int rank)
{
    for (int i = 0; i < TILES; i++) {
        const int slot = i % RING, turn = i / RING;
        const u32 to = ring + slot * TILE + rank * 1024 + (BUG == 4 ? 128 : 0); // 4: not where a tile may lie
        if (turn > 0)
            mbarrier_wait(empty + 8 * slot, BUG == 11 ? turn & 1 : (turn - 1) & 1); // 11: the wrong phase
        mbarrier_expect(full + 8 * slot, BUG == 1 ? TILE / 2 : TILE); // 1: only what it asked for itself
        if (BUG == 3) // 3: for this block alone
            tensor_copy(to, a.m, rank * 8, i * 64, full + 8 * slot);
        else
            tensor_copy_multicast(to, a.m, (BUG == 9 ? rank ^ 1 : rank) * 8, i * 64, full + 8 * slot, BUG == 12 ? 7 : 3);
    } // 9: the other's rows; 12: for a block that is not there
}

DEVICE void body(const Args &a)
{
    char *shared = shared_memory();
    const u32 ring = shared_address(shared), full = ring + RING * TILE, empty = full + 8 * RING;
    const int t = threadIdx.x, rank = cluster_rank();
    if (t == 0) {
        for (int i = 0; i < RING; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, BUG == 2 ? 2 : 4);
        }
        if (BUG != 7) // 7: the engine and the other block may not see the barriers
            mbarrier_init_fence();
    }
    if (BUG != 6) { // 6: the other block may not have made them yet
        cluster_arrive();
        cluster_wait();
    } else {
        block_sync();
    }
    if (t >= 64) {
        if (t == 64)
            ask(a, ring, full, empty, rank);
    } else {
        float sum = 0.0f;
        for (int i = 0; i < TILES; i++) {
            const int slot = i % RING;
            if (BUG != 10) // 10: tiles are not waited for
                mbarrier_wait(full + 8 * slot, i / RING & 1);
            for (int row = 0; row < 16; row++)
                sum += (float)(row + 1) * at(shared + slot * TILE, row, t);
            warp_sync();
            if (t % 32 == 0) // 2: the other block's engine writes here, too, and is not told
                for (int to = 0; to < 2; to++)
                    if (BUG != 2 || to == rank)
                        cluster_mbarrier_arrive(cluster_map(empty + 8 * slot, to));
        }
        a.y[blockIdx.x * 64 + t] = sum;
    }
    if (BUG != 5) { // 5: ends while the other still counts here
        cluster_arrive();
        cluster_wait();
    }
}
