/* test_recur.c - recur.cuh and selective_scan.cuh in pieces: a prompt whose chunks come in several launches, beside another sequence, leaves the bits of
 * y and of the state that it leaves in one. What is right at all, test_kernels holds against kernels/ref. */
#include "build.h"
#include "kernels/device/io.h"
#include "runtime/base/dtype.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 75, OTHERS = 3, ALL = TOKENS + OTHERS, SLOTS = 4, INPUTS = 7 };

typedef struct Case {
    const char *name, *type;
    DType t;
    int H, G, K, V, beta;
    const char *unit;
    bool rates; /* selective_scan */
    int columns;
} Case;

static const Case cases[] = {{"delta", "bf16", DT_BF16, 2, 1, 64, 24, 1, "1e-6f", false, 1},
                             {"delta_of_two", "bf16", DT_BF16, 2, 1, 64, 24, 1, "1e-6f", false, 2},
                             {"space", "float", DT_FP32, 2, 2, 16, 40, 0, "0.0f", false, 2},
                             {"scan", "bf16", DT_BF16, 21, 1, 24, 1, 0, "", true, 0}};
enum { CASES = sizeof cases / sizeof *cases };

static Build *build;
static uint64_t dice = 5;

static float uniform(void)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (float)(dice >> 40) * 0x1p-23f - 1.0f;
}

static int open_all(void **state)
{
    char dir[600], text[1200];

    (void)state;
    snprintf(dir, sizeof dir, "%s/simt-recur", getenv("FTX_BUILD"));
    build = build_open(dir);
    for (int i = 0; i < CASES; i++) {
        const Case *c = &cases[i];

        if (c->rates)
            snprintf(text, sizeof text,
                     "#include \"selective_scan.cuh\"\nnamespace in_%s {\nstruct Config { using T = %s; using Q = "
                     "ScanRows<%d, 0>; "
                     "using K = Q; using V = ScanRows<%d, 0>; using A = V; static "
                     "constexpr int H = %d, KEY = %d, THREADS = 128, ONE = 0, TILE = 32, QUERIES_AT = 0, KEYS_AT = "
                     "TILE * KEY * 4, "
                     "INPUTS_AT = 2 * KEYS_AT; static constexpr float SCALE = 0.5f, LOW = 0.0f, HIGH = 0.0f; };\n"
                     "extern \"C\" __global__ void %s(const SelectiveScanArgs a) { selective_scan<Config>(a); }\n}\n"
                     "using in_%s::%s;\n",
                     c->name, c->type, c->K, c->H, c->H, c->K, c->name, c->name, c->name);
        else
            snprintf(
                text, sizeof text,
                "#include \"recur.cuh\"\nnamespace in_%s {\nstruct Config { using T = %s; using Q = ScanRows<%d, "
                "0>; using K = Q; using V = ScanRows<%d, 0>; using A = ScanRows<%d, 0>; using B = A; static constexpr "
                "int H = %d, G = %d, "
                "KEY = %d, VALUE = %d, BETA = %d, COLUMNS = %d, ONE = 0, TILE = 16, QUERIES_AT = 0, "
                "KEYS_AT = TILE * (KEY + 4) * 4, VALUES_AT = 2 * KEYS_AT, GATES_AT = VALUES_AT + TILE * 16 * COLUMNS * "
                "4, "
                "BUFFER = GATES_AT + TILE * 16; "
                "static constexpr float UNIT = %s, SCALE = 0.5f, LOW = 0.0f, HIGH = 0.0f; };\n"
                "extern \"C\" __global__ void %s(const RecurArgs a) { recur<Config>(a); }\n}\nusing in_%s::%s;\n",
                c->name, c->type, c->G * c->K, c->H * c->V, c->H, c->H, c->G, c->K, c->V, c->beta, c->columns, c->unit,
                c->name, c->name, c->name);
        build_add(build, c->name, text);
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

/* The inputs of all tokens; the states before the first. */
typedef struct Data {
    const Case *c;
    void *input[INPUTS]; /* q, k, v, a, rate, shift, beta */
    size_t row[INPUTS];  /* bytes of a token; 0: a weight */
    size_t bytes[INPUTS], y_row, state_bytes;
    float *state;
} Data;

static Data make(const Case *c)
{
    const int columns[INPUTS] = {c->G * c->K, c->G * c->K, c->H * c->V, c->H, c->rates ? c->H * c->K : c->H,
                                 c->H,        c->H};
    Data d = {.c = c};

    for (int i = 0; i < INPUTS; i++) {
        const bool weight = i == 4 || i == 5;
        const DType t = weight ? DT_FP32 : c->t;
        const size_t n = (size_t)columns[i] * (weight ? 1 : ALL);

        d.row[i] = weight ? 0 : (size_t)columns[i] * dtype_size(t);
        d.bytes[i] = n * dtype_size(t);
        d.input[i] = malloc(d.bytes[i]);
        for (size_t k = 0; k < n; k++)
            dtype_store(d.input[i], k, t, uniform());
    }
    d.y_row = d.row[2];
    d.state_bytes = sizeof(float) * (size_t)(SLOTS * c->H * c->K * c->V);
    d.state = malloc(d.state_bytes);
    for (size_t k = 0; k < d.state_bytes / sizeof(float); k++)
        d.state[k] = uniform();
    return d;
}

static void *device(const void *from, size_t bytes, const char *name)
{
    void *p = simt_alloc(bytes, name);

    simt_write(p, from, bytes);
    return p;
}

/* Tokens [from, from + n) of the long sequence in slot 2, and those of the other one if `beside`; y: of all tokens. */
static void launch(const Data *d, int from, int n, bool beside, float *state, char *y)
{
    const FtxRow rows[2] = {{.q_len = n, .kv_len = from + n, .slot = 2},
                            {.q_start = n, .q_len = OTHERS, .kv_len = 40, .slot = 1}};
    const int T = n + (beside ? OTHERS : 0);
    const FtxStep step = {.tokens = T, .rows = beside ? 2 : 1};
    const int inputs = d->c->rates ? INPUTS - 1 : INPUTS; /* without beta */
    const void *arg[INPUTS + 4];
    void *kept, *result;

    for (int i = 0; i < inputs; i++) {
        char *p = simt_alloc(d->row[i] ? (size_t)T * d->row[i] : d->bytes[i], "input");

        arg[i] = p;
        if (!d->row[i]) {
            simt_write(p, d->input[i], d->bytes[i]);
            continue;
        }
        simt_write(p, (char *)d->input[i] + (size_t)from * d->row[i], (size_t)n * d->row[i]);
        if (beside)
            simt_write(p + (size_t)n * d->row[i], (char *)d->input[i] + TOKENS * d->row[i], OTHERS * d->row[i]);
    }
    arg[inputs] = device(&step, sizeof step, "step");
    arg[inputs + 1] = device(rows, sizeof rows, "rows");
    arg[inputs + 2] = kept = device(state, d->state_bytes, "state");
    arg[inputs + 3] = result = simt_alloc((size_t)T * d->y_row, "y");

    const SimtLaunch l = {.kernel = build_kernel(build, d->c->name),
                          .args = arg,
                          .grid = {3, (unsigned)(d->c->rates ? (d->c->H + 15) / 16 : d->c->H),
                                   d->c->rates ? 1
                                               : (unsigned)((d->c->V + 16 * d->c->columns - 1) /
                                                            (16 * d->c->columns))}, /* a row more than there is */
                          .block = d->c->rates ? 128 : 256,
                          .smem = 32768,
                          .overlap = true};

    simt_schedule((SimtSchedule)(from % SIMT_SCHEDULES), (uint64_t)from);
    simt_in_front();
    simt_launch(&l);
    if (simt_reports() > 0)
        fail_msg("%s: %s", d->c->name, simt_report(0)->text);
    memcpy(state, kept, d->state_bytes);
    memcpy(y + (size_t)from * d->y_row, result, (size_t)n * d->y_row);
    if (beside)
        memcpy(y + TOKENS * d->y_row, (char *)result + (size_t)n * d->y_row, OTHERS * d->y_row);
    simt_free_all();
}

static void pieces(void **state)
{
    static const int cuts[][12] = {{0, 1, 2, 5, 37, 69, 75}, {0, 32, 64, 74, 75}, {0, 33, 34, 75}};

    (void)state;
    for (int i = 0; i < CASES; i++) {
        const Data d = make(&cases[i]);
        const size_t y_bytes = ALL * d.y_row;
        float *whole = memcpy(malloc(d.state_bytes), d.state, d.state_bytes);
        char *want = calloc(1, y_bytes);

        launch(&d, 0, TOKENS, true, whole, want);
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
            float *kept = memcpy(malloc(d.state_bytes), d.state, d.state_bytes);
            char *y = calloc(1, y_bytes);

            for (int at = 0; cuts[k][at] < TOKENS; at++)
                launch(&d, cuts[k][at], cuts[k][at + 1] - cuts[k][at], at == 1, kept, y);
            assert_memory_equal(y, want, y_bytes);
            assert_memory_equal(kept, whole, d.state_bytes);
            free(kept);
            free(y);
        }
        for (int k = 0; k < INPUTS; k++)
            free(d.input[k]);
        free(d.state);
        free(whole);
        free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces)};

    return cmocka_run_group_tests(tests, open_all, close_all);
}
