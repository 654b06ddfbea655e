/* test_mask.c - mask.cuh against kernels/ref: rows with a mask and without, rows that are not live, grids of any size. The
 * launch before still writes the logits when this one starts. */
#include "build.h"
#include "compiler/catalog/contract.h"
#include "kernels/device/mask.h"
#include "kernels/ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, MOST = 20011 };

static const struct {
    const char *name;
    int V, threads, blocks;
} cases[] = {{"even", 320, 64, 1}, {"odd", 20011, 256, 3}, {"one", 20011, 64, 1}, {"many", 1056, 32, 7}};
enum { CASES = sizeof cases / sizeof *cases };

static Build *build;
static uint64_t dice;

static int below(int n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice >> 33) % (uint64_t)n);
}

static int open_all(void **state)
{
    char dir[600], text[1000];

    (void)state;
    snprintf(dir, sizeof dir, "%s/simt-mask", getenv("FTX_BUILD"));
    build = build_open(dir);
    for (int i = 0; i < CASES; i++) {
        snprintf(
            text, sizeof text,
            "#include \"mask.cuh\"\nnamespace in_%s {\nstruct Config { static constexpr int V = %d, THREADS = %d; };\n"
            "extern \"C\" __global__ void %s(const MaskArgs a) { mask<Config>(a); }\n}\nusing in_%s::%s;\n",
            cases[i].name, cases[i].V, cases[i].threads, cases[i].name, cases[i].name, cases[i].name);
        build_add(build, cases[i].name, text);
    }
    build_run(build);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    build_close(build);
    return 0;
}

static void *copied(const void *from, size_t bytes, const char *name)
{
    void *p = simt_alloc(bytes, name);

    simt_write(p, from, bytes);
    simt_protect(p, bytes);
    return p;
}

/* Row 0 allows all ids, 1 none, 2 half of them; 3 is not masked, though its logits are read; 4 is masked, but not live. */
static void run_case(int i, int schedule)
{
    static float logits[ROWS][MOST], want[ROWS][MOST];
    static uint32_t masks[ROWS][FTX_MASK_WORDS(MOST)];
    const int V = cases[i].V, words = FTX_MASK_WORDS(V);
    const size_t bytes = (size_t)(ROWS * V) * sizeof(float);
    FtxStep step = {.tokens = ROWS - 1, .rows = ROWS - 1};
    FtxParams params[ROWS] = {{.logits = 0}};
    float *device = simt_alloc(bytes, "logits");
    uint32_t *packed = malloc((size_t)(ROWS * words) * 4);

    for (int r = 0; r < ROWS; r++) {
        params[r].logits = r == 3 ? 1 : FTX_LOGITS_MASKED;
        for (int w = 0; w < words; w++)
            masks[r][w] = r == 0 ? ~0u : r == 1 ? 0 : (uint32_t)below(1 << 16) << 16 | (uint32_t)below(1 << 16);
        for (int id = 0; id < V; id++)
            want[r][id] = logits[r][id] = (float)below(1000) - 500.0f;
        if (r < 3)
            ref_mask(masks[r], V, want[r]);
        memcpy(packed + r * words, masks[r], (size_t)words * 4);
        simt_write(device + r * V, logits[r], (size_t)V * sizeof(float));
    }
    {
        const void *args[] = {device, copied(&step, sizeof step, "step"), copied(params, sizeof params, "params"),
                              copied(packed, (size_t)(ROWS * words) * 4, "masks")};
        const SimtLaunch l = {.kernel = build_kernel(build, cases[i].name),
                              .args = args,
                              .grid = {(unsigned)cases[i].blocks, ROWS, 1},
                              .block = (unsigned)cases[i].threads,
                              .overlap = true};

        simt_schedule((SimtSchedule)schedule, (uint64_t)(i * 7 + schedule));
        simt_in_front();
        simt_written_in_front(device, bytes);
        simt_launch(&l);
    }
    if (simt_reports() > 0)
        fail_msg("%s: %s", cases[i].name, simt_report(0)->text);
    for (int r = 0; r < ROWS; r++)
        assert_memory_equal(device + r * V, want[r], (size_t)V * sizeof(float));
    free(packed);
    simt_free_all();
}

static void masks(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++)
        for (int schedule = 0; schedule < SIMT_SCHEDULES; schedule++)
            run_case(i, schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks)};

    return cmocka_run_group_tests(tests, open_all, close_all);
}
