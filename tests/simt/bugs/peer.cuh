// peer.cuh - two blocks, each for a GPU, hand each other vectors whose words are their own flags. BUG: 0 none, else what
// is wrong.
//
//   words [2][3][32] uint4, zero: what arrives, in turns of three   ->   y [2][32]: sums of what came
struct Args {
    uint4_ *words;
    u32 *y;
};
constexpr int ROUNDS = 9;

DEVICE bool there(uint4_ v)
{
    return BUG == 1 ? v.w != 0 : v.x && v.y && v.z && v.w; // 1: half of it may be missing
}

DEVICE void body(const Args &a)
{
    const int t = threadIdx.x, rank = blockIdx.x;
    u32 sum = 0;
    for (u32 round = 1; round <= ROUNDS; round++) {
        const int turn = BUG == 2 ? 0 : round % 3; // 2: one buffer, in which the last round may still be unread
        uint4_ *to = a.words + ((1 - rank) * 3 + turn) * 32 + t, *from = a.words + (rank * 3 + turn) * 32 + t;
        const u32 value = round * 64 + rank * 32 + t;
        store_peer(to, uint4_{value, value + 1, BUG == 3 ? 0 : value + 2, value + 3}); // 3: a word that says "not there"
        uint4_ v = load_peer(from);
        while (!there(v))
            v = load_peer(from);
        sum += v.x + v.y + v.z + v.w;
        if (BUG != 4) // 4: words of the round before last are taken for this one's
            store_peer(from, uint4_{0, 0, 0, 0});
        fence_system(); // the end of a launch
        block_sync();
    }
    a.y[rank * 32 + t] = sum;
}
