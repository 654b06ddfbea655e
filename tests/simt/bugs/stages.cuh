// stages.cuh - blocks hand vectors to each other in stages, the value with its tag in a word; two
// buffers take turns. In a stage only some blocks have work; all gather the last stage's result.
// BUG: 0 none, else what is wrong.
//
//   y [1]: the last stage's sum
struct Args {
    u32 *words; // [2][WORDS] tag in the high half, value in the low half
    u32 *y;
};
constexpr int STAGES = 12, WORDS = 2;

DEVICE u32 take(const u32 *p, u32 tag)
{
    u32 v;
    do
        v = load_acquire(p);
    while (v >> 16 != tag);
    return v & 0xffff;
}

DEVICE void body(const Args &a)
{
    if (threadIdx.x != 0)
        return;
    u32 mine = 1;
    for (u32 stage = 1; stage <= STAGES; stage++) {
        u32 *to = a.words + stage % 2 * WORDS;
        const u32 *from = a.words + (stage + 1) % 2 * WORDS;
        // A block without work must not gather: nobody waits for it, and it is overtaken.
        if (blockIdx.x >= WORDS && BUG != 1)
            continue;
        if (stage > 1) {
            mine = 0;
            for (int i = 0; i < WORDS; i++)
                mine += take(from + i, stage - 1);
        }
        if (blockIdx.x < WORDS)
            store_release(to + blockIdx.x, stage << 16 | mine);
    }
    if (blockIdx.x == 0)
        a.y[0] = mine;
}
