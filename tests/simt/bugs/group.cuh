// group.cuh - y = A B^T by a warpgroup, twice; B comes by cp.async, counted on an mbarrier, into one place. A is
// in registers at first, in shared memory then.
// BUG: 0 none, else what is wrong.
//
//   a [64, 64] bf16, b [2][32, 64] bf16   ->   y [64, 32] fp32: A (b[0] + b[1])^T
struct Args {
    const bf16 *a, *b;
    float *y;
};

constexpr int A_AT = 4096, FULL_AT = A_AT + 64 * 128;

DEVICE void copy_rows(const bf16 *from, int rows, u32 to)
{
    for (int n = threadIdx.x; n < rows * 8; n += 128) {
        const int r = n / 8, u = n % 8;
        copy16(to + r * 128 + (u ^ (r & 7)) * 16, from + r * 64 + u * 8);
    }
}

DEVICE void fetch(const bf16 *b, u32 to, u32 full)
{
    copy_rows(b, 32, to);
    if (BUG == 7) // 7: it arrives before its copies
        mbarrier_arrive(full);
    else
        copy_arrive(full);
}

DEVICE void body(const Args &a)
{
    char *shared = shared_memory();
    const u32 at = shared_address(shared), full = at + FULL_AT;
    const int g = lane_id() / 4, t = lane_id() % 4, row = warp_id() * 16 + g;
    if (threadIdx.x == 0) {
        mbarrier_init(full, 128);
        mbarrier_init_fence();
    }
    block_sync();
    copy_rows(a.a, 64, at + A_AT);
    fetch(a.b, at, full);
    float d[16] = {};
    for (int turn = 0; turn < 2; turn++) {
        mbarrier_wait(full, turn);
        if (BUG != 1) // 1: what cp.async brought is not handed to the matrix units
            async_proxy_fence();
        if (BUG != 2) // 2: registers are not handed to them
            wgmma_fence();
        for (int k = 0; k < 4; k++) {
            if (turn == 1) {
                Wgmma<32, bf16>::add(d, wgmma_descriptor(at + A_AT, 0, k), wgmma_descriptor(at, 0, k));
                continue;
            }
            u32 x[4];
            for (int i = 0; i < 4; i++)
                x[i] = *(const u32 *)(a.a + (row + i % 2 * 8) * 64 + k * 16 + i / 2 * 8 + 2 * t);
            Wgmma<32, bf16>::add(d, x, wgmma_descriptor(at + (BUG == 9 ? 128 : 0), 0, BUG == 8 ? k ^ 1 : k)); // 8: other k of B
        } // 9: B lies where no operand may
        if (BUG != 5) // 5: a wait for what was not committed
            wgmma_commit();
        if (BUG == 10 && turn == 1) // 10: A is overwritten while products run
            *(u32 *)(shared + A_AT + threadIdx.x * 64) = 0;
        if (BUG == 6) // 6: a wait that leaves the last products under way
            wgmma_wait<1>();
        else if (BUG != 3 || turn == 1) // 3: the next B overwrites what products still read
            wgmma_wait<0>();
        if (BUG != 4) // 4: so do other warps' products
            block_sync();
        if (turn == 0)
            fetch(a.b + 32 * 64, at, full);
    }
    for (int i = 0; i < 16; i++)
        a.y[(row + i % 4 / 2 * 8) * 32 + i / 4 * 8 + 2 * t + i % 2] = d[i];
}
