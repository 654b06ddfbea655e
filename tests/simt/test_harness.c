/* test_harness.c - tests of the harness itself: each seeded bug of bugs/ is reported by one of the checks
 * listed for it; the same kernels without a bug pass under every schedule. */
#include "build.h"
#include "runtime/base/dtype.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* No check reports the bug; the wrong result shows it. */
enum { VALUES = SIMT_CHECKS };

/* A value is not released to its reader: the result is wrong even with all checks muted. */
enum { STALE = SIMT_CHECKS + 1 };

typedef struct Bug {
    const char *file;
    int bug;
    unsigned checks; /* any of these finds it: 1 << SIMT_x */
    const char *what;
} Bug;
#define BY(x) (1u << (x))

static const Bug bugs[] = {
    {"reduce", 1, BY(SIMT_BOUNDS), "a bound off by one"},
    {"reduce", 2, BY(SIMT_RACE), "a reduction in which all add at once"},
    {"reduce", 3, BY(SIMT_RACE), "a missing barrier"},
    {"reduce", 4, BY(SIMT_RACE), "lanes that rely on lockstep"},
    {"reduce", 5, BY(SIMT_COLLECTIVE), "a shuffle of half a warp"},
    {"reduce", 6, BY(SIMT_RACE) | BY(STALE), "a counter without release and acquire: the missing fence"},
    {"reduce", 7, BY(SIMT_HANG) | BY(SIMT_BARRIER), "a barrier that not all come to"},
    {"ring", 1, BY(SIMT_FENCE), "mbarriers not fenced after their making"},
    {"ring", 2, BY(SIMT_FENCE) | BY(STALE), "plain writes before a bulk copy without async_proxy_fence"},
    {"ring", 3, BY(SIMT_RACE) | BY(SIMT_IN_FLIGHT) | BY(SIMT_MBARRIER), "slots used again before they are empty"},
    {"ring", 4, BY(SIMT_RACE) | BY(SIMT_HANG) | BY(SIMT_IN_FLIGHT) | BY(SIMT_MBARRIER),
     "the producer waits for the wrong phase"},
    {"ring", 5, BY(SIMT_HANG), "more bytes announced than come"},
    {"ring", 6, BY(SIMT_HANG) | BY(SIMT_MBARRIER), "fewer bytes announced than come"},
    {"ring", 7, BY(SIMT_ALIGN), "a bulk copy from an odd address"},
    {"ring", 8, BY(SIMT_IN_FLIGHT) | BY(SIMT_UNWRITTEN) | BY(SIMT_RACE), "data not waited for"},
    {"ring", 9, BY(SIMT_IN_FLIGHT) | BY(SIMT_UNWRITTEN) | BY(SIMT_RACE), "the consumer waits for the wrong phase"},
    {"ring", 10, BY(SIMT_RACE), "a slot given back while lanes still read"},
    {"ring", 11, BY(SIMT_MBARRIER) | BY(SIMT_RACE), "an arrival too many"},
    {"ring", 12, BY(SIMT_CONSTANT), "a write to the weights"},
    {"pipe", 1, BY(SIMT_EARLY), "no wait for the previous kernel"},
    {"pipe", 2, BY(SIMT_BOUNDS), "a copy past the end of shared memory"},
    {"pipe", 3, BY(SIMT_IN_FLIGHT), "cp.async not waited for"},
    {"pipe", 4, BY(SIMT_IN_FLIGHT) | BY(SIMT_RACE), "other lanes' cp.async not waited for"},
    {"pipe", 5, BY(SIMT_ALIGN), "ldmatrix of misaligned rows"},
    {"pipe", 6, BY(VALUES), "registers of a fragment swapped"},
    /* clang splits the vector access, so its alignment is not seen; the race with the next thread is found instead */
    {"pipe", 7, BY(SIMT_ALIGN) | BY(SIMT_RACE), "a misaligned vector"},
    {"pipe", 8, BY(SIMT_UNWRITTEN), "shared memory that nobody wrote"},
    {"pipe", 9, BY(SIMT_BOUNDS), "a row past the end"},
    {"pipe", 10, BY(SIMT_EARLY), "a write before the wait for the previous kernel"},
    {"pipe", 11, BY(SIMT_IN_FLIGHT), "a wait that leaves a group of cp.async under way"},
    {"pipe", 12, BY(VALUES), "matrices transposed on their way to registers"},
    {"pipe", 13, BY(VALUES), "a copy that fills half with zeros"},
    {"stages", 1, BY(SIMT_HANG), "a reader that is overtaken"},
    {"entry", 1, BY(SIMT_EARLY), "the step's state read ahead, behind an entry that lets others start"},
    {"entry", 2, BY(SIMT_EARLY), "a second kernel that lets the third start before its own wait"},
    {"pair", 1, BY(SIMT_RACE) | BY(SIMT_FENCE), "an mbarrier the other block may not see"},
    {"pair", 2, BY(SIMT_RACE) | BY(SIMT_IN_FLIGHT), "a send over what is still read"},
    {"pair", 3, BY(SIMT_IN_FLIGHT) | BY(SIMT_MBARRIER), "fewer bytes announced than are sent"},
    {"pair", 4, BY(SIMT_IN_FLIGHT) | BY(SIMT_RACE) | BY(SIMT_UNWRITTEN), "a send not waited for"},
    {"pair", 5, BY(SIMT_BOUNDS), "a send counted in another block"},
    {"pair", 6, BY(SIMT_BARRIER), "two arrivals at the cluster before a wait"},
    {"tiles", 1, BY(SIMT_IN_FLIGHT) | BY(SIMT_MBARRIER), "bytes of a tile's half only, where two blocks bring it"},
    {"tiles", 2, BY(SIMT_RACE) | BY(SIMT_IN_FLIGHT), "a tile over what the other block still reads"},
    {"tiles", 3, BY(SIMT_HANG), "a multicast without the other block"},
    {"tiles", 4, BY(SIMT_ALIGN), "a tile at an address that is no multiple of 1024"},
    {"tiles", 5, BY(SIMT_BOUNDS), "a block ends that the other still counts in"},
    {"tiles", 6, BY(SIMT_MBARRIER) | BY(SIMT_RACE), "a multicast before the other block has made its mbarriers"},
    {"tiles", 7, BY(SIMT_FENCE) | BY(SIMT_RACE), "a tile on an mbarrier not fenced after its making"},
    {"tiles", 8, BY(VALUES), "units of a tile not swizzled"},
    {"tiles", 9, BY(VALUES), "the other block's rows"},
    {"tiles", 10, BY(SIMT_IN_FLIGHT) | BY(SIMT_UNWRITTEN) | BY(SIMT_RACE), "tiles not waited for"},
    {"tiles", 11, BY(SIMT_RACE) | BY(SIMT_HANG) | BY(SIMT_IN_FLIGHT) | BY(SIMT_MBARRIER),
     "the wrong phase of the other blocks' counts"},
    {"tiles", 12, BY(SIMT_BOUNDS), "a multicast to a block that is not there"},
    {"group", 1, BY(SIMT_FENCE) | BY(STALE), "wgmma of what cp.async brought without async_proxy_fence"},
    {"group", 2, BY(SIMT_FENCE), "wgmma without wgmma_fence"},
    {"group", 3, BY(SIMT_IN_FLIGHT) | BY(SIMT_RACE), "an operand overwritten while products run"},
    {"group", 4, BY(SIMT_IN_FLIGHT) | BY(SIMT_RACE), "an operand overwritten that other warps still read"},
    {"group", 5, BY(SIMT_IN_FLIGHT), "a wait for products that were not committed"},
    {"group", 6, BY(SIMT_IN_FLIGHT), "a wait that leaves the last products under way"},
    {"group", 7, BY(SIMT_IN_FLIGHT), "an arrival that does not wait for its cp.async"},
    {"group", 8, BY(VALUES), "an operand's place along k"},
    {"group", 9, BY(SIMT_ALIGN), "an operand that is misaligned"},
    {"group", 10, BY(SIMT_IN_FLIGHT) | BY(SIMT_RACE),
     "an operand in place of registers overwritten while products run"},
    {"parts", 1, BY(SIMT_BARRIER), "a named barrier of two counts"},
    {"parts", 2, BY(SIMT_HANG) | BY(SIMT_RACE) | BY(SIMT_BARRIER), "another named barrier than the reader's"},
    {"parts", 3, BY(SIMT_RACE), "an arrival before the write"},
    {"parts", 4, BY(SIMT_RACE) | BY(SIMT_HANG), "a named barrier that gives a buffer back, left out"},
    {"parts", 5, BY(SIMT_RACE), "an arrival in place of a wait"},
    {"parts", 6, BY(SIMT_BARRIER), "a named barrier of no whole warps"},
    {"parts", 7, BY(SIMT_RACE), "a shared sum without atomics"},
    {"parts", 8, BY(SIMT_RACE), "a shared sum read before all have added"},
    {"flag", 1, BY(SIMT_RACE) | BY(STALE), "a flag without a fence before it"},
    {"flag", 2, BY(SIMT_RACE) | BY(STALE), "a fence of the block's scope between blocks"},
    {"flag", 3, BY(SIMT_RACE) | BY(STALE), "a release of the block's scope between blocks"},
    {"flag", 4, BY(SIMT_RACE) | BY(STALE), "a flag raised by a relaxed atomic"},
    {"flag", 5, BY(SIMT_RACE) | BY(STALE), "a flag read without acquire"},
    {"flag", 6, BY(SIMT_RACE) | BY(STALE), "an acquire of the block's scope between blocks"},
    {"flag", 7, BY(SIMT_RACE) | BY(STALE), "a fence before the writes it should hand over"},
    {"flag", 8, BY(SIMT_RACE) | BY(STALE), "a vector read before its flag"},
    {"peer", 1, BY(VALUES), "a vector of another GPU of which half has arrived"},
    {"peer", 2, BY(VALUES) | BY(SIMT_HANG), "a buffer between GPUs used again before it is read"},
    {"peer", 3, BY(SIMT_HANG), "a word that means that nothing has arrived"},
    {"peer", 4, BY(VALUES), "a buffer between GPUs that is not cleared"},
    {"host", 1, BY(SIMT_HOST) | BY(STALE), "a result for the host released at the GPU's scope"},
    {"host", 2, BY(SIMT_HOST) | BY(STALE), "a result for the host that nothing releases"},
    {"host", 3, BY(SIMT_HOST) | BY(STALE), "a result for the host told by a plain store"},
    {"host", 4, BY(SIMT_HOST) | BY(STALE), "a fence of the GPU's scope before the host is told"},
    {"host", 5, BY(SIMT_HOST) | BY(STALE), "a word of a result after the host was told"},
    {"host", 6, BY(SIMT_HOST) | BY(STALE), "the host told while other warps still write"},
};
enum { N_BUGS = sizeof bugs / sizeof *bugs };
static const char *const files[] = {"reduce", "ring",  "pipe",  "stages", "entry", "pair",
                                    "tiles",  "group", "parts", "flag",   "host",  "peer"};
enum { N_FILES = sizeof files / sizeof *files };

static Build *build;

static void add(const char *file, int bug)
{
    static char body[20000], text[24000], entry[60];
    char path[100];
    FILE *f;

    snprintf(path, sizeof path, "tests/simt/bugs/%s.cuh", file);
    f = fopen(path, "rb");
    assert_non_null(f);
    body[fread(body, 1, sizeof body - 1, f)] = 0;
    fclose(f);
    snprintf(entry, sizeof entry, "%s_%d", file, bug);
    snprintf(text, sizeof text,
             "#include \"device/async.cuh\"\n#include \"device/atomic.cuh\"\n#include \"device/block.cuh\"\n"
             "#include \"device/cluster.cuh\"\n#include \"device/mbarrier.cuh\"\n#include \"device/mma.cuh\"\n"
             "#include \"device/pdl.cuh\"\n#include \"device/peer.cuh\"\n#include \"device/tensor.cuh\"\n#include "
             "\"device/vec.cuh\"\n#include "
             "\"device/wgmma.cuh\"\n"
             "namespace in_%s {\nconstexpr int BUG = %d;\n#line 1 \"%s.cuh\"\n%s\n}\n"
             "extern \"C\" __global__ void CLUSTER(%d) %s(const in_%s::Args a) { in_%s::body(a); }\n",
             entry, bug, file, body, strcmp(file, "pair") == 0 || strcmp(file, "tiles") == 0 ? 2 : 1, entry, entry,
             entry);
    build_add(build, entry, text);
}

static int open_all(void **state)
{
    char dir[600];

    (void)state;
    snprintf(dir, sizeof dir, "%s/simt-bugs", getenv("FTX_BUILD"));
    build = build_open(dir);
    for (int i = 0; i < N_FILES; i++)
        add(files[i], 0);
    for (int i = 0; i < N_BUGS; i++)
        add(bugs[i].file, bugs[i].bug);
    build_run(build);
    return 0;
}

/* --- one run: data, launch, whether the result is right ------------------------------------------- */

static float *floats(const char *name, int n)
{
    float *p = simt_alloc((size_t)n * 4, name);

    for (int i = 0; i < n; i++)
        simt_write(p + i, &(float){(float)(i * 7 % 13)}, 4);
    return p;
}

static bool right_reduce(SimtLaunch *l)
{
    float *x = floats("x", 6 * 64), *y = simt_alloc(4, "y"), want = 0;
    void *args[] = {x, simt_alloc(24, "partial"), simt_alloc(4, "counter"), y};

    simt_fill(args[2], 0, 4);
    l->grid[0] = 6;
    l->block = 64;
    l->args = args;
    for (int i = 0; i < 6 * 64; i++)
        want += (float)(i * 7 % 13);
    return simt_launch(l) && *y == want;
}

static bool right_ring(SimtLaunch *l)
{
    float *w = floats("w", 10 * 64), *y = simt_alloc(256, "y");
    void *args[] = {w, y};
    bool ok;

    simt_protect(w, 10 * 256);
    l->grid[0] = 1;
    l->block = 96;
    l->smem = 64 + 3 * 256;
    l->args = args;
    ok = simt_launch(l);
    for (int i = 0; i < 64 && ok; i++) {
        float want = 0;

        for (int k = 0; k < 9; k++)
            want += w[k * 64 + i];
        ok = y[i] == want;
    }
    return ok;
}

static bool right_pipe(SimtLaunch *l)
{
    uint16_t a[16 * 64], b[8 * 64];
    void *args[] = {simt_alloc(sizeof a, "a"), simt_alloc(sizeof b, "b"), simt_alloc(512, "y")};
    const float *y = args[2];
    bool ok;

    for (int i = 0; i < 16 * 64; i++)
        a[i] = bf16_from_float((float)(i * 5 % 11 - 5));
    for (int i = 0; i < 8 * 64; i++)
        b[i] = bf16_from_float((float)(i * 3 % 13 - 6));
    simt_write(args[0], a, sizeof a);
    simt_write(args[1], b, sizeof b);
    simt_in_front();
    simt_written_in_front(args[0], sizeof a);
    simt_written_in_front(args[2], 512);
    l->grid[0] = 1;
    l->block = 32;
    l->smem = 24 * (64 * 2 + 16) - 16;
    l->overlap = l->strict = true;
    l->args = args;
    ok = simt_launch(l);
    for (int m = 0; m < 16 && ok; m++)
        for (int n = 0; n < 8 && ok; n++) {
            float want = 0;

            for (int k = 0; k < 64; k++)
                want += bf16_to_float(a[m * 64 + k]) * bf16_to_float(b[n * 64 + k]);
            ok = y[m * 8 + n] == want;
        }
    return ok;
}

static bool right_stages(SimtLaunch *l)
{
    void *args[] = {simt_alloc(16, "words"), simt_alloc(4, "y")};

    simt_fill(args[0], 0, 16);
    l->grid[0] = 4;
    l->block = 32;
    l->args = args;
    return simt_launch(l) && *(uint32_t *)args[1] == 1u << 11;
}

static bool right_entry(SimtLaunch *l)
{
    float *w = floats("w", 32), *y = simt_alloc(3 * 32 * 4, "y");
    int *length = simt_alloc(4, "length");
    void *args[] = {w, length, y, NULL};
    bool ok = true;

    simt_protect(w, 32 * 4);
    simt_write(length, &(int){4}, 4);
    l->block = 32;
    l->args = args;
    for (uintptr_t part = 0; part < 4 && ok; part++) {
        args[3] = (void *)part;
        l->overlap = part > 0;
        ok = simt_launch(l);
    }
    for (int i = 0; i < 32 && ok; i++)
        ok = y[64 + i] == 5 * w[i] + 5 + 5;
    return ok;
}

static bool right_pair(SimtLaunch *l)
{
    void *args[] = {simt_alloc(16, "y")};
    bool ok;

    l->grid[0] = 4;
    l->block = 32;
    l->smem = 136;
    l->args = args;
    ok = simt_launch(l);
    for (int b = 0; b < 4 && ok; b++)
        ok = ((float *)args[0])[b] == 2 * 496 + 32 + 64 * (float)((b & 1) ^ 1);
    return ok;
}

static bool right_tiles(SimtLaunch *l)
{
    enum { COLUMNS = 5 * 64 };
    uint16_t m[16 * COLUMNS];
    SimtMap map = {simt_alloc(sizeof m, "m"), 16, COLUMNS, 8};
    void *args[] = {simt_alloc(sizeof map, "map"), simt_alloc((size_t)4 * 64 * 4, "y")};
    const float *y = args[1];
    bool ok;

    for (int i = 0; i < 16 * COLUMNS; i++)
        m[i] = bf16_from_float((float)(i * 5 % 11 - 5));
    simt_write((void *)(uintptr_t)map.matrix, m, sizeof m);
    simt_write(args[0], &map, sizeof map);
    l->grid[0] = 4;
    l->block = 96;
    l->smem = 2 * 2048 + 128 + 32;
    l->args = args;
    ok = simt_launch(l);
    for (int i = 0; i < 4 * 64 && ok; i++) {
        float want = 0;

        for (int row = 0; row < 16; row++)
            for (int tile = 0; tile < 5; tile++)
                want += (float)(row + 1) * bf16_to_float(m[row * COLUMNS + tile * 64 + i % 64]);
        ok = y[i] == want;
    }
    return ok;
}

static bool right_group(SimtLaunch *l)
{
    uint16_t a[64 * 64], b[2 * 32 * 64];
    void *args[] = {simt_alloc(sizeof a, "a"), simt_alloc(sizeof b, "b"), simt_alloc(64 * 32 * 4, "y")};
    const float *y = args[2];
    bool ok;

    for (int i = 0; i < 64 * 64; i++)
        a[i] = bf16_from_float((float)(i * 5 % 11 - 5));
    for (int i = 0; i < 2 * 32 * 64; i++)
        b[i] = bf16_from_float((float)(i * 3 % 7 - 3));
    simt_write(args[0], a, sizeof a);
    simt_write(args[1], b, sizeof b);
    l->block = 128;
    l->smem = 4096 + 64 * 128 + 8;
    l->args = args;
    ok = simt_launch(l);
    for (int m = 0; m < 64 && ok; m++)
        for (int n = 0; n < 32 && ok; n++) {
            float want = 0;

            for (int k = 0; k < 64; k++)
                want +=
                    bf16_to_float(a[m * 64 + k]) * (bf16_to_float(b[n * 64 + k]) + bf16_to_float(b[(32 + n) * 64 + k]));
            ok = y[m * 32 + n] == want;
        }
    return ok;
}

static bool right_parts(SimtLaunch *l)
{
    void *args[] = {simt_alloc(33 * 4, "y")};
    const float *y = args[0];
    bool ok;

    l->block = 96;
    l->args = args;
    ok = simt_launch(l) && y[32] == 4 * 32;
    for (int i = 0; i < 32 && ok; i++)
        ok = y[i] == (float)(4 * i + 6);
    return ok;
}

static bool right_host(SimtLaunch *l)
{
    uint32_t *out = simt_alloc(6 * 16, "out"), *args[] = {out};
    bool ok;

    simt_fill(out, 0, 6 * 16);
    simt_polled(out, 16, 12, 6);
    l->grid[0] = 6;
    l->block = 96;
    l->args = args;
    ok = simt_launch(l);
    for (uint32_t b = 0; b < 6 && ok; b++) {
        const uint32_t *saw = simt_host_saw(out + 4 * b);

        ok = saw && saw[0] == b + 1 && saw[1] == b + 2 && saw[2] == b + 3 && saw[3] == 9;
    }
    return ok;
}

static bool right_flag(SimtLaunch *l)
{
    uint32_t *args[] = {simt_alloc(256, "data"), simt_alloc(4, "flag"), simt_alloc(5 * 4, "y")};
    bool ok = true;

    for (unsigned blocks = 4; blocks <= 5 && ok; blocks++) { /* by a fence, by a release */
        simt_fill(args[0], 0, 256);
        simt_fill(args[1], 0, 4);
        l->grid[0] = blocks;
        l->block = 64;
        l->args = args;
        ok = simt_launch(l);
        for (unsigned i = 1; i < blocks && ok; i++)
            ok = args[2][i] == 64 * 65 / 2 + 64;
    }
    return ok;
}

static bool right_peer(SimtLaunch *l)
{
    enum { WORDS = 2 * 3 * 32 * 16 };
    void *args[] = {simt_alloc(WORDS, "words"), simt_alloc(2 * 32 * 4, "y")};
    const uint32_t *y = args[1];
    bool ok;

    simt_fill(args[0], 0, WORDS);
    l->grid[0] = 2;
    l->block = 32;
    l->args = args;
    ok = simt_launch(l);
    for (uint32_t i = 0; i < 64 && ok; i++)
        ok = y[i] == 4 * 64 * 45 + 9 * (4 * ((1 - i / 32) * 32 + i % 32) + 6);
    return ok;
}

static bool right(const char *file, int bug, SimtSchedule schedule, uint64_t seed)
{
    static bool (*const runs[N_FILES])(SimtLaunch *) = {right_reduce, right_ring, right_pipe,  right_stages,
                                                        right_entry,  right_pair, right_tiles, right_group,
                                                        right_parts,  right_flag, right_host,  right_peer};
    char entry[60];
    SimtLaunch l = {.grid = {1, 1, 1}};
    bool ok = false;

    snprintf(entry, sizeof entry, "%s_%d", file, bug);
    l.kernel = build_kernel(build, entry);
    simt_clear();
    simt_schedule(schedule, seed);
    for (int i = 0; i < N_FILES; i++)
        if (strcmp(files[i], file) == 0)
            ok = runs[i](&l);
    simt_free_all();
    return ok;
}

/* --- tests -------------------------------------------------------------------------------------- */

static void without_bugs(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++)
        for (int k = 0; k < SIMT_SCHEDULES * 8; k++)
            if (!right(files[i], 0, (SimtSchedule)(k % SIMT_SCHEDULES), (uint64_t)k)) {
                for (size_t r = 0; r < simt_reports(); r++)
                    print_message("%s\n", simt_report(r)->text);
                fail_msg("%s goes wrong without a bug, schedule %s, seed %d", files[i],
                         simt_schedule_name((SimtSchedule)(k % SIMT_SCHEDULES)), k);
            }
}

/* The checks that reported something in this run; BY(VALUES) if none did and the result is wrong. */
static unsigned spoke(const Bug *b, SimtSchedule schedule, uint64_t seed)
{
    const bool ok = right(b->file, b->bug, schedule, seed);
    unsigned by = 0;

    for (size_t r = 0; r < simt_reports(); r++)
        by |= BY(simt_report(r)->check);
    return ok || by ? by : BY(VALUES);
}

static void seeded_bugs(void **state)
{
    enum { SEEDS = 8 };

    (void)state;
    for (int i = 0; i < N_BUGS; i++) {
        const Bug *b = &bugs[i];
        unsigned found[SIMT_SCHEDULES] = {0}, by = 0;

        for (int s = 0; s < SIMT_SCHEDULES; s++)
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                const unsigned now = spoke(b, (SimtSchedule)s, seed);

                found[s] += (now & b->checks) != 0;
                by |= now;
            }
        print_message("%-8s %-50s", b->file, b->what);
        for (int s = 0; s < SIMT_SCHEDULES; s++)
            print_message(" %u", found[s]);
        for (int c = 0; c <= VALUES; c++)
            if (by & BY(c))
                print_message("  %s", c == VALUES ? "values" : simt_check_name((SimtCheck)c));
        print_message("\n");
        if (!(by & b->checks))
            fail_msg("%s: not found by its check", b->what);
    }
}

/* With all checks muted, a value that is not released to its reader gives a wrong result. */
static void stale_values(void **state)
{
    enum { SEEDS = 4 };

    (void)state;
    simt_mute(~0u);
    for (int i = 0; i < N_BUGS; i++) {
        unsigned wrong = 0;

        for (int s = 0; s < SIMT_SCHEDULES && bugs[i].checks & BY(STALE); s++)
            for (uint64_t seed = 1; seed <= SEEDS; seed++)
                wrong += !right(bugs[i].file, bugs[i].bug, (SimtSchedule)s, seed);
        if (!(bugs[i].checks & BY(STALE)))
            continue;
        print_message("%-8s %-60s wrong in %u of %u\n", bugs[i].file, bugs[i].what, wrong, SEEDS * SIMT_SCHEDULES);
        if (wrong == 0)
            fail_msg("%s: the result is right", bugs[i].what);
    }
    simt_mute(0);
}

/* The same schedule and seed give the same report. */
static void replay(void **state)
{
    (void)state;
    for (int s = 0; s < SIMT_SCHEDULES; s++) {
        char first[2000] = "";

        for (int k = 0; k < 2; k++) {
            right("ring", 3, (SimtSchedule)s, 5);
            assert_true(simt_reports() > 0);
            if (k == 0)
                snprintf(first, sizeof first, "%s", simt_report(0)->text);
            else
                assert_string_equal(first, simt_report(0)->text);
        }
    }
}

/* A report names the line of the kernel, the thread, the schedule and the seed. */
static void places(void **state)
{
    const char *text;

    (void)state;
    right("reduce", 3, SIMT_RANDOM, 3);
    assert_true(simt_reports() > 0);
    text = simt_report(0)->text;
    assert_non_null(strstr(text, "reduce.cuh:"));
    assert_non_null(strstr(text, "schedule random, seed 3"));
    assert_non_null(strstr(text, "warp "));
    right("ring", 5, SIMT_ROUND_ROBIN, 1);
    assert_true(simt_reports() > 0);
    text = simt_report(0)->text;
    assert_non_null(strstr(text, "mbarrier at"));
    assert_non_null(strstr(text, "16 bytes missing"));
    assert_non_null(strstr(text, "ring.cuh:"));
}

/* Which texts meet in a unit depends on the turn. */
static void headers_together(void **state)
{
    char dir[600];

    (void)state;
    snprintf(dir, sizeof dir, "%s/simt-headers", getenv("FTX_BUILD"));
    Build *all = build_open(dir);
    build_headers(all);
    build_close(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_bugs),
        cmocka_unit_test(headers_together),
#if !SIMT_SANITIZED /* AddressSanitizer ends the program at the first bug that it finds */
        cmocka_unit_test(seeded_bugs),
        cmocka_unit_test(stale_values),
        cmocka_unit_test(replay),
        cmocka_unit_test(places)
#endif
    };

#if SIMT_SANITIZED
    (void)seeded_bugs, (void)stale_values, (void)replay, (void)places;
#endif

    return cmocka_run_group_tests(tests, open_all, NULL);
}
