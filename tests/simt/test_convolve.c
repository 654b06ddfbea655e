/* test_convolve.c - convolve.cuh in runs and pieces: a prompt leaves the bits of y and of the state that it leaves token by token,
 * with runs of any length, in chunks, and beside other sequences. What is right at all, test_kernels holds against kernels/ref. */
#include "build.h"
#include "kernels/device/io.h"
#include "runtime/base/dtype.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 75, COLUMNS = 36, TAPS = 6, KEPT = TAPS - 1, SLOTS = 4, OTHERS = 2 };
enum {
    ROW_BYTES = COLUMNS * 4,
    ALL_BYTES = TOKENS * ROW_BYTES,
    STATE = SLOTS * KEPT * COLUMNS
}; /* x and y are fp32: no rounding hides another order */

static const int runs[] = {1, 4, 8, 16, 32};
enum { RUNS = sizeof runs / sizeof *runs };

static Build *build;
static uint64_t dice = 5;

static float uniform(void)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (float)(dice >> 40) * 0x1p-23f - 1.0f;
}

static int open_all(void **state)
{
    char dir[600], text[800], name[20];

    (void)state;
    snprintf(dir, sizeof dir, "%s/simt-convolve", getenv("FTX_BUILD"));
    build = build_open(dir);
    for (int i = 0; i < RUNS; i++) {
        snprintf(name, sizeof name, "run%d", runs[i]);
        snprintf(
            text, sizeof text,
            "#include \"convolve.cuh\"\nnamespace in_%s {\nstruct Config { using T = float; using W = bf16; using B = "
            "bf16; static constexpr int C = %d, PITCH = C, FROM = 0, TAPS = %d, BIAS = 1, ACT = 5, VEC = 4, RUN = %d, "
            "THREADS = 32; };\n"
            "extern \"C\" __global__ void %s(const ConvolveArgs a) { convolve<Config>(a); }\n}\nusing in_%s::%s;\n",
            name, COLUMNS, TAPS, runs[i], name, name, name);
        build_add(build, name, text);
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

static float x[TOKENS * COLUMNS], other[OTHERS * COLUMNS];
static uint16_t w[COLUMNS * TAPS], b[COLUMNS]; /* bf16 */

static void fill(void *to, size_t bytes, DType t)
{
    for (size_t i = 0; i < bytes / dtype_size(t); i++)
        dtype_store(to, i, t, uniform());
}

static void *device(const void *from, size_t bytes, const char *name)
{
    void *p = simt_alloc(bytes, name);

    simt_write(p, from, bytes);
    return p;
}

/* Tokens [from, from + n) of the sequence in slot 2. beside: behind a generated token of slot 0, before another of slot 3. */
static void launch(int run, int from, int n, bool beside, float *state, char *y)
{
    const int before = beside ? 1 : 0, T = n + 2 * before;
    const FtxRow rows[] = {{.q_len = 1, .kv_len = 9, .slot = 0},
                           {.q_start = before, .q_len = n, .kv_len = from + n, .slot = 2},
                           {.q_start = before + n, .q_len = 1, .kv_len = 1, .slot = 3}};
    const FtxStep step = {.tokens = T, .rows = 1 + 2 * before, .decode_rows = before};
    FtxToken token[TOKENS + OTHERS] = {{0}};
    char *all = simt_alloc((size_t)T * ROW_BYTES, "x"), name[20];
    void *kept, *result;

    for (int t = 0; t < T; t++)
        token[t].row = t < before + n ? t >= before && beside : 2;
    if (beside) {
        simt_write(all, other, ROW_BYTES);
        simt_write(all + (T - 1) * ROW_BYTES, other + COLUMNS, ROW_BYTES);
    }
    simt_write(all + before * ROW_BYTES, (char *)x + from * ROW_BYTES, (size_t)n * ROW_BYTES);
    snprintf(name, sizeof name, "run%d", run);
    const void *arg[] = {all,
                         device(w, sizeof w, "w"),
                         device(b, sizeof b, "b"),
                         device(&step, sizeof step, "step"),
                         device(rows + !beside, sizeof rows - (beside ? 0 : sizeof *rows), "rows"),
                         device(token, (size_t)T * sizeof *token, "token"),
                         kept = device(state, STATE * sizeof *state, "state"),
                         result = simt_alloc((size_t)T * ROW_BYTES, "y")};
    const unsigned grid = run == 1 ? T : step.rows + (T + run - 1) / run;
    const SimtLaunch l = {
        .kernel = build_kernel(build, name), .args = arg, .grid = {grid, 1, 1}, .block = 32, .overlap = true};

    simt_schedule((SimtSchedule)((from + run) % SIMT_SCHEDULES), (uint64_t)from);
    simt_in_front();
    simt_launch(&l);
    if (simt_reports() > 0)
        fail_msg("%s: %s", name, simt_report(0)->text);
    memcpy(state, kept, STATE * sizeof *state);
    memcpy(y + from * ROW_BYTES, (char *)result + before * ROW_BYTES, (size_t)n * ROW_BYTES);
    simt_free_all();
}

static void pieces(void **unused)
{
    static const int cuts[][14] = {{0, 75}, {0, 1, 2, 5, 37, 41, 69, 75}, {0, 4, 8, 12, 28, 33, 65, 74, 75}};
    float first[STATE], want_state[STATE];
    char want[ALL_BYTES];

    (void)unused;
    fill(x, sizeof x, DT_FP32);
    fill(other, sizeof other, DT_FP32);
    fill(w, sizeof w, DT_BF16);
    fill(b, sizeof b, DT_BF16);
    for (int i = 0; i < STATE; i++)
        first[i] = uniform();
    memcpy(want_state, first, sizeof first);
    for (int t = 0; t < TOKENS; t++)
        launch(1, t, 1, false, want_state, want);
    for (int r = 0; r < RUNS; r++)
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++)
            for (int beside = 0; beside < 2; beside++) {
                float kept[STATE];
                char y[ALL_BYTES] = {0};

                memcpy(kept, first, sizeof first);
                for (int i = 0; cuts[k][i] < TOKENS; i++)
                    launch(runs[r], cuts[k][i], cuts[k][i + 1] - cuts[k][i], beside != 0, kept, y);
                assert_memory_equal(y, want, sizeof want);
                assert_memory_equal(kept + 2 * KEPT * COLUMNS, want_state + 2 * KEPT * COLUMNS,
                                    KEPT * COLUMNS * sizeof *kept);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces)};

    return cmocka_run_group_tests(tests, open_all, close_all);
}
