// parts.cuh - a warp hands vectors to another, one at a time, by named barriers; a third adds votes up.
// BUG: 0 none, else what is wrong.
//
//   y [32]: sums of ROUNDS vectors; y [32]: lanes of all warps whose number divides by three, ROUNDS times
struct Args {
    float *y;
};
constexpr int ROUNDS = 4, FULL = 1, EMPTY = 2, WHOLE = 3;

DEVICE void give(float *room, int lane)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (i > 0 && BUG != 4) // 4: the reader is not waited for
            named_barrier_sync(EMPTY, 64);
        if (BUG == 3) // 3: arrives before it has written
            named_barrier_arrive(FULL, 64);
        room[lane] = (float)(lane + i);
        if (BUG == 1) // 1: another count than the reader's
            named_barrier_arrive(FULL, 96);
        else if (BUG == 2) // 2: another barrier than the reader's
            named_barrier_arrive(EMPTY, 64);
        else if (BUG != 3)
            named_barrier_arrive(FULL, 64);
    }
}

DEVICE float take(const float *room, int lane)
{
    float sum = 0.0f;
    for (int i = 0; i < ROUNDS; i++) {
        if (BUG == 5) // 5: arrives, and does not wait
            named_barrier_arrive(FULL, 64);
        else
            named_barrier_sync(FULL, BUG == 6 ? 48 : 64); // 6: no whole warps
        sum += room[lane];
        if (i < ROUNDS - 1)
            named_barrier_arrive(EMPTY, 64);
    }
    return sum;
}

DEVICE void body(const Args &a)
{
    SHARED(float, room, 32);
    SHARED(u32, votes, 1);
    const int lane = lane_id(), warp = warp_id();
    if (threadIdx.x == 0)
        votes[0] = 0;
    block_sync();
    if (warp == 0)
        give(room, lane);
    else if (warp == 1)
        a.y[lane] = take(room, lane);
    for (int i = 0; i < ROUNDS; i++)
        if ((lane + 32 * warp) % 3 == 0) {
            if (BUG == 7) // 7: several add at once
                votes[0] += 1;
            else
                shared_atomic_add(votes, 1);
        }
    if (BUG == 8 && warp == 2) // 8: the sum is read before all have added
        a.y[32] = (float)votes[0];
    named_barrier_sync(WHOLE, 96);
    if (warp == 2 && lane == 0 && BUG != 8)
        a.y[32] = (float)votes[0];
}
