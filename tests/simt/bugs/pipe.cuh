// pipe.cuh - y = A B^T on the matrix units, tiles by cp.async, after the previous kernel.
// BUG: 0 none, else what is wrong.
//
//   a [16, 64] bf16, b [8, 64] bf16   ->   y [16, 8] fp32
struct Args {
    const bf16 *a, *b;
    float *y;
};
constexpr int PITCH = 64 * 2 + 16, A_AT = 0, B_AT = 16 * PITCH;

DEVICE void body(const Args &a)
{
    char *shared = shared_memory();
    const u32 at = shared_address(shared);
    const int lane = lane_id(), g = lane / 4, t = lane % 4;
    launch_dependents();
    if (BUG == 10) // 10: a result is written over what the previous kernel still uses
        a.y[lane] = 0.0f;
    if (BUG != 1) // 1: the previous kernel is not waited for
        wait_for_previous();
    for (int n = lane; n < 24 * 8; n += 32) {
        const int r = n / 8, c = n % 8;
        const bf16 *from = r < 16 ? a.a + r * 64 + c * 8 : a.b + (r - 16) * 64 + c * 8;
        const int bytes = BUG == 13 && r == 3 ? 8 : 16;                                 // 13: zeros in place of half a unit
        copy16(at + r * PITCH + c * 16 + (BUG == 2 && n == 191 ? 16 : 0), from, bytes); // 2: past the end of the tile
    }
    copy_commit();
    if (BUG == 11) // 11: a wait that leaves them under way
        copy_wait<1>();
    else if (BUG != 3) // 3: copies are not waited for
        copy_wait<0>();
    if (BUG != 4) // 4: other lanes' copies are not waited for
        warp_sync();
    float d[4] = {};
    for (int k = 0; k < 4; k++) {
        u32 x[4], w[2];
        ldmatrix4(x, at + A_AT + (lane % 16) * PITCH + lane / 16 * 16 + k * 32 + (BUG == 5 ? 8 : 0)); // 5: misaligned
        if (BUG == 12) // 12: matrices transposed
            ldmatrix2_trans(w, at + B_AT + (lane % 8) * PITCH + lane / 8 % 2 * 16 + k * 32);
        else
            ldmatrix2(w, at + B_AT + (lane % 8) * PITCH + lane / 8 % 2 * 16 + k * 32);
        if (BUG == 6) // 6: two registers of a fragment swapped
            mma<bf16>(d, x[0], x[2], x[1], x[3], w[0], w[1]);
        else
            mma<bf16>(d, x, w);
    }
    float *y = a.y + g * 8 + 2 * t;
    y[0] = d[0];
    y[1] = d[1];
    if (BUG == 7) { // 7: a vector of two at an odd element
        Vec<float, 2> v;
        v[0] = d[2];
        v[1] = d[3];
        store(y + 64 - (t == 3), v);
    } else {
        y[64] = d[2];
        y[65] = d[3];
    }
    if (BUG == 8 && lane == 0) // 8: a number that nobody wrote
        y[0] += ((const float *)(shared + 15 * PITCH + 128))[0];
    if (BUG == 9 && lane == 0) // 9: a counter of the step, off by one row
        y[8 * 16] = 0.0f;
}
