/* test_sum.c - linear_sum.cuh between ranks that are rows of blocks of one launch: products whose columns are stored into
 * the memory of all ranks, late and in any order (peer.c). All numbers are small integers, so sums are exact in any order
 * but for the rounding of what a rank sends and of the result. */
#include "build.h"
#include "compiler/catalog/contract.h"
#include "runtime/base/dtype.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device/io.h"

enum { MAX_RANKS = 4, CALLS = 4, THREADS = 320, SHARED = 36352, MOST_K = 512 };

typedef struct Case {
    const char *name;
    DType type;
    int ranks, rows, columns, K, residual, bias, blocks; /* rows: the most; blocks of a rank */
} Case;

static const Case cases[] = {
    {"one", DT_BF16, 2, 1, 40, 512, 1, 0, 2},
    {"many_tiles", DT_BF16, 2, 1, 280, 256, 1, 0, 2}, /* 16 tiles are a round */
    {"three", DT_FP16, 3, 2, 36, 264, 0, 1, 2},
    {"rounds", DT_BF16, 4, 8, 40, 72, 1, 1, 1},
    {"odd_end", DT_FP16, 2, 4, 14, 512, 1, 0, 2},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* As kernels/body/linear_sum.cuh declares it; the text below has an array of it. */
typedef struct Args {
    const void *x, *w, *b, *r, *peers, *exchange, *step, *y;
} Args;

static Build *build;

static int open_all(void **state)
{
    char dir[600], text[4000];

    (void)state;
    snprintf(dir, sizeof dir, "%s/simt-sum", getenv("FTX_BUILD"));
    build = build_open(dir);
    for (int i = 0; i < N_CASES; i++) {
        const Case *c = &cases[i];
        const char *type = c->type == DT_FP16 ? "half" : "bf16";

        snprintf(
            text, sizeof text,
            "#include \"linear.cuh\"\n#include \"body/linear_sum.cuh\"\nnamespace in_%s {\nstruct Config {\n"
            "    using T = %s;\n    using OUT = %s;\n"
            "    static constexpr int M = %d, N = %d, K = %d, RANKS = %d, RES = %d, BIAS = %d;\n"
            "    static constexpr int NORM = 0, ACT = 0, GLU = 0, APPEND = 0, ROWS_S = 0, LAST = 0, SEGMENTS = 0;\n"
            "    static constexpr float EPS = 0;\n"
            "    static constexpr int IN_FLIGHT = 16384, CHUNK = 256, TURNS = 1, X_ROW_BYTES = (2 * K + 127) / 128 "
            "* 128 + 64;\n"
            "    static constexpr int SLOTS = 4, SLOT_BYTES = 8 * (2 * CHUNK + 64), BARRIERS_AT = 0, STATS_AT = "
            "256, SUMS_AT = 384, KEPT_AT = 8576, X_AT = 8576, RING_AT = 17408;\n};\n"
            "struct Calls { LinearSumArgs rank[4]; };\n"
            "extern \"C\" __global__ void %s(const Calls a) { linear_sum<Config>(a.rank[blockIdx.y]); }\n}\n"
            "using in_%s::%s;\n",
            c->name, type, type, c->rows, c->columns, c->K, c->ranks, c->residual, c->bias, c->name, c->name, c->name);
        build_add(build, c->name, text);
    }
    build_add(build, "args",
              "#include \"linear.cuh\"\n#include \"body/linear_sum.cuh\"\n"
              "extern \"C\" __global__ void args(const LinearSumArgs) {}\n");
    build_run(build);
    return 0;
}

/* --- one run of a case ------------------------------------------------------------------------------ */

typedef struct Ranks {
    const Case *c;
    struct {
        Args rank[MAX_RANKS];
    } calls;
    SimtLaunch launch;
    int x[MAX_RANKS][8][MOST_K], w[MAX_RANKS][280][MOST_K], b[MAX_RANKS][280], r[8][280];
    char *y[MAX_RANKS];
    FtxStep *step;
    FtxExchange *exchange[MAX_RANKS];
    FtxReport *report[MAX_RANKS];
    size_t share;
} Ranks;

static Ranks s;
static uint64_t dice;

static int below(int n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice >> 33) % (uint64_t)n);
}

/* [rows, columns] small integers, most of them 0 in every second call of `below`: sums are often 0. */
static char *drawn(int *values, int stride, int rows, int columns, DType type, const char *name)
{
    const size_t bytes = (size_t)(rows * columns) * dtype_size(type);
    char *host = calloc(bytes, 1), *p = simt_alloc(bytes, name);
    const int most = 1 + below(3);

    assert_non_null(host);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < columns; k++) {
            values[i * stride + k] = below(2 * most + 1) - most;
            dtype_store(host, (size_t)(i * columns + k), type, (float)values[i * stride + k]);
        }
    simt_write(p, host, bytes);
    simt_protect(p, bytes);
    free(host);
    return p;
}

static void make(const Case *c, int timeout_ms, int by_nccl)
{
    FtxPeers peers = {.ranks = c->ranks, .timeout_ms = timeout_ms, .reserved = by_nccl};

    s = (Ranks){.c = c, .share = ((size_t)(c->rows * c->columns) * 2 + 255) / 256 * 256};
    peers.bytes = s.share * (size_t)c->ranks;
    s.step = simt_alloc(sizeof *s.step, "step");
    const char *r = drawn(s.r[0], 280, c->rows, c->columns, c->type, "r");
    for (int i = 0; i < c->ranks; i++) {
        const size_t bytes = sizeof(FtxExchange) + FTX_EXCHANGES * peers.bytes;

        s.exchange[i] = simt_alloc(bytes, "exchange");
        simt_fill(s.exchange[i], 0, bytes);
        s.report[i] = simt_alloc(sizeof(FtxReport), "report");
        simt_fill(s.report[i], 0, sizeof(FtxReport));
        peers.exchange[i] = by_nccl ? 0 : (uintptr_t)s.exchange[i];
    }
    for (int i = 0; i < c->ranks; i++) {
        FtxPeers *p = simt_alloc(sizeof peers, "peers");

        peers.rank = i;
        peers.report = (uintptr_t)s.report[i];
        simt_write(p, &peers, sizeof peers);
        simt_protect(p, sizeof peers);
        s.y[i] = simt_alloc((size_t)(c->rows * c->columns) * 2, "y");
        s.calls.rank[i] = (Args){.x = drawn(s.x[i][0], MOST_K, c->rows, c->K, c->type, "x"),
                                 .w = drawn(s.w[i][0], MOST_K, c->columns, c->K, c->type, "w"),
                                 .b = c->bias ? drawn(s.b[i], 280, 1, c->columns, DT_FP32, "b") : NULL,
                                 .r = c->residual ? r : NULL,
                                 .peers = p,
                                 .exchange = s.exchange[i],
                                 .step = s.step,
                                 .y = s.y[i]};
    }
    s.launch = (SimtLaunch){.kernel = build_kernel(build, c->name),
                            .args = &s.calls,
                            .grid = {(unsigned)c->blocks, (unsigned)c->ranks, 1},
                            .block = THREADS,
                            .smem = SHARED};
}

static float rounded(float v)
{
    char to[4];

    dtype_store(to, 0, s.c->type, v);
    return dtype_load(to, 0, s.c->type);
}

/* What a rank adds to an element of y. */
static float part(int rank, int m, int n)
{
    int sum = s.b[rank][n];

    for (int k = 0; k < s.c->K; k++)
        sum += s.x[rank][m][k] * s.w[rank][n][k];
    return rounded((float)sum);
}

static void check_sums(int live)
{
    const Case *c = s.c;

    for (int rank = 0; rank < c->ranks; rank++) {
        for (int m = 0; m < live; m++)
            for (int n = 0; n < c->columns; n++) {
                float want = 0;

                for (int i = 0; i < c->ranks; i++)
                    want += part(i, m, n);
                want = rounded(want + (c->residual ? (float)s.r[m][n] : 0.0f));
                if (dtype_load(s.y[rank], (size_t)(m * c->columns + n), c->type) != want)
                    fail_msg("%s, rank %d: row %d, column %d is %g, not %g", c->name, rank, m, n,
                             (double)dtype_load(s.y[rank], (size_t)(m * c->columns + n), c->type), (double)want);
            }
        assert_true(
            simt_untouched(s.y[rank] + (size_t)(live * c->columns) * 2, (size_t)((c->rows - live) * c->columns) * 2));
    }
}

static void launch(int live)
{
    simt_write(s.step, &(FtxStep){.tokens = live, .rows = 1}, sizeof *s.step);
    simt_launch(&s.launch);
    if (simt_reports() > 0)
        fail_msg("%s: %s", s.c->name, simt_report(0)->text);
}

/* --- tests ------------------------------------------------------------------------------------------ */

static void sums(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES * SIMT_SCHEDULES; i++) {
        const Case *c = &cases[i / SIMT_SCHEDULES];

        dice = (uint64_t)i + 1;
        make(c, i % 2 ? 1 << 20 : 0, 0);
        simt_schedule((SimtSchedule)(i % SIMT_SCHEDULES), (uint64_t)i);
        for (int call = 0; call < CALLS; call++) {
            const int live = call == 1 ? c->rows : 1 + below(c->rows);

            for (int rank = 0; rank < c->ranks; rank++)
                simt_forget(s.y[rank], (size_t)(c->rows * c->columns) * 2);
            launch(live);
            check_sums(live);
        }
        for (int rank = 0; rank < c->ranks; rank++) {
            const unsigned char *buffers = (const unsigned char *)(s.exchange[rank] + 1);

            for (size_t k = 0; k < FTX_EXCHANGES * s.share * (size_t)c->ranks; k++)
                assert_int_equal(buffers[k], 0); /* all that came was taken */
            assert_int_equal(s.exchange[rank]->count, CALLS);
            assert_int_equal(s.exchange[rank]->arrived, 0);
            assert_int_equal(s.exchange[rank]->stop, 0);
            assert_int_equal(s.report[rank]->written, 0);
        }
        simt_free_all();
    }
}

/* The last rank does not come: the others give up at their deadline and say for whom they waited. */
static void absent_rank(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES * SIMT_SCHEDULES; i++) {
        const Case *c = &cases[i / SIMT_SCHEDULES];
        bool blamed = false;

        dice = (uint64_t)i + 1;
        make(c, 3, 0);
        s.launch.grid[1]--;
        simt_schedule((SimtSchedule)(i % SIMT_SCHEDULES), (uint64_t)i);
        launch(c->rows);
        launch(c->rows); /* nobody waits any more */
        for (int rank = 0; rank < c->ranks - 1; rank++) {
            const FtxExchange *e = s.exchange[rank];

            assert_int_not_equal(e->stop, 0);
            assert_in_range(e->failed, 1, c->ranks);
            assert_int_not_equal(e->failed, rank + 1);
            assert_int_equal(e->count, 2);
            assert_int_equal(s.report[rank]->failed, e->failed);
            assert_int_equal(s.report[rank]->written, 1);
            blamed = blamed || e->failed == (unsigned)c->ranks;
        }
        assert_true(blamed);
        simt_free_all();
    }
}

/* GPUs of several processes: a launch, NCCL, a launch. */
static void two_launches(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES * SIMT_SCHEDULES; i++) {
        const Case *c = &cases[i / SIMT_SCHEDULES];
        const size_t bytes = (size_t)(c->rows * c->columns) * 2;

        dice = (uint64_t)i + 1;
        make(c, 3, 1);
        simt_schedule((SimtSchedule)(i % SIMT_SCHEDULES), (uint64_t)i);
        for (int call = 0; call < 2; call++) {
            for (int rank = 0; rank < c->ranks; rank++)
                simt_forget(s.y[rank], bytes);
            launch(c->rows);
            for (int rank = 0; rank < c->ranks; rank++) {
                assert_true(simt_untouched(s.y[rank], bytes));
                assert_int_equal(s.exchange[rank]->count, call);
                for (int to = 0; to < c->ranks; to++)
                    if (to != rank)
                        simt_write((char *)(s.exchange[to] + 1) + (size_t)rank * s.share,
                                   (char *)(s.exchange[rank] + 1) + (size_t)rank * s.share, bytes);
            }
            launch(c->rows);
            check_sums(c->rows);
        }
        for (int rank = 0; rank < c->ranks; rank++) {
            assert_int_equal(s.exchange[rank]->count, 2);
            assert_int_equal(s.exchange[rank]->stop, 0);
        }
        simt_free_all();
    }
}

/* The contract names each pointer of the kernel's struct, and its constants stand where processes.c reads them. */
static void contract(void **state)
{
    static const char *const names[] = {"X", "W", "Y", "N"};
    Arena *keep = arena_open();
    Catalog c;
    Diag d = {0};
    int found = 0;

    (void)state;
    if (!catalog_open(keep, &c, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < c.n; i++)
        if (strcmp(c.at[i]->family, "linear_sum") == 0) {
            assert_int_equal(c.at[i]->operands * sizeof(void *), build_kernel(build, "args")->args_bytes);
            for (int k = 0; k < 4; k++)
                assert_string_equal(c.at[i]->consts.at[k].value.name, names[k]);
            found++;
        }
    assert_int_equal(found, 1);
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(absent_rank),
        cmocka_unit_test(two_launches),
        cmocka_unit_test(contract),
    };

    return cmocka_run_group_tests(tests, open_all, NULL);
}
