/* test_exchange.c - all_reduce.cuh and all_gather.cuh between ranks that are rows of blocks of one launch: their stores
 * arrive late, torn and in any order (peer.c), some ranks are far ahead of others, one is absent. Sums are compared bit for
 * bit. */
#include "build.h"
#include "compiler/catalog/contract.h"
#include "runtime/base/dtype.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device/io.h"

enum { MAX_RANKS = 4, CALLS = 7 };

typedef struct Case {
    const char *name;
    DType x, y;
    int ranks, columns, rows, norm, residual, threads, blocks; /* rows: the most; blocks of a rank */
    int gathered; /* columns of all ranks, without padding; 0: all_reduce */
} Case;

static const Case cases[] = {
    {"bf16_2", DT_BF16, DT_BF16, 2, 64, 5, 0, 1, 32, 1, 0},   {"bf16_4", DT_BF16, DT_BF16, 4, 24, 3, 0, 0, 32, 2, 0},
    {"odd_2", DT_BF16, DT_FP32, 2, 9, 5, 0, 1, 32, 2, 0},     {"fp32_3", DT_FP32, DT_FP32, 3, 7, 9, 0, 1, 32, 1, 0},
    {"rms_2", DT_BF16, DT_BF16, 2, 264, 3, 1, 1, 64, 1, 0},   {"rms_4", DT_FP16, DT_FP16, 4, 40, 4, 1, 0, 32, 1, 0},
    {"layer_2", DT_FP32, DT_FP32, 2, 132, 3, 2, 1, 64, 1, 0}, {"layer_3", DT_BF16, DT_BF16, 3, 48, 5, 2, 1, 32, 2, 0},
    {"wide_2", DT_FP32, DT_FP32, 2, 40, 4, 0, 0, 32, 1, 80},  {"pad_3", DT_FP32, DT_FP32, 3, 11, 5, 0, 0, 32, 2, 31},
    {"pad_2", DT_BF16, DT_BF16, 2, 24, 3, 0, 0, 32, 2, 40},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* As the text below declares it. */
typedef struct Calls {
    struct {
        const void *x, *r, *g, *c, *peers, *exchange, *step, *y;
    } rank[MAX_RANKS];
    uint32_t *ended; /* [MAX_RANKS]: blocks of the rank that have ended a call */
    uint64_t x_bytes, y_bytes;
    int calls, host; /* host: the row of blocks that plays the host and tells rank 0 to stop; -1: none */
} Calls;

static const char text_of_calls[] =
    "struct Calls { AllReduceArgs rank[4]; u32 *ended; u64 x_bytes, y_bytes; int calls, host; };\n"
    "extern \"C\" __global__ void %s(const Calls a)\n"
    "{\n"
    "    const int rank = blockIdx.y;\n"
    "    if (rank == a.host) {\n"
    "        for (int i = 0; i < 500; i++)\n"
    "            nanoseconds();\n"
    "        store_system(&((FtxReport *)a.rank[0].peers->report)->stop, 1);\n"
    "        return;\n"
    "    }\n"
    "    for (int call = 0; call < a.calls; call++) {\n"
    "        AllReduceArgs b = a.rank[rank];\n"
    "        b.x = (const char *)b.x + call * a.x_bytes, b.r = (const char *)b.r + call * a.y_bytes;\n"
    "        b.y = (char *)b.y + call * a.y_bytes, b.step += call;\n"
    "        run(b);\n"
    "        fence_system(); // the end of a launch: all that it has stored is there\n"
    "        block_sync();\n"
    "        if (threadIdx.x == 0) {\n"
    "            atomic_add_acq_rel(a.ended + rank, 1);\n"
    "            while (load_acquire(a.ended + rank) < (call + 1) * gridDim.x)\n"
    "                ;\n"
    "        }\n"
    "        block_sync();\n"
    "    }\n"
    "}\n";

static Build *build;

static const struct {
    const char *family, *entry, *args;
} contracts[] = {{"all_reduce", "args_1", "AllReduceArgs"},
                 {"all_gather", "args_2", "AllGatherArgs"},
                 {"rank_slice", "args_3", "RankSliceArgs"}};
enum { N_CONTRACTS = sizeof contracts / sizeof *contracts };

static const char *type_name(DType t)
{
    return t == DT_FP32 ? "float" : t == DT_FP16 ? "half" : "bf16";
}

static int open_all(void **state)
{
    char dir[600], text[4000];

    (void)state;
    snprintf(dir, sizeof dir, "%s/simt-exchange", getenv("FTX_BUILD"));
    build = build_open(dir);
    for (int i = 0; i < N_CASES; i++) {
        const Case *c = &cases[i];
        const char *call = c->gathered ? "all_gather<Config>(AllGatherArgs{a.x, a.peers, a.exchange, a.step, a.y})"
                                       : "all_reduce<Config>(a)";
        int n = snprintf(
            text, sizeof text,
            "#include \"all_reduce.cuh\"\n#include \"all_gather.cuh\"\nnamespace in_%s {\nstruct Config {\n"
            "    using T = %s;\n    using OUT = %s;\n    static constexpr int RANKS = %d, C = %d, COLUMNS = %d, "
            "NORM = %d, RES = %d, THREADS = %d, ROWS_S = 0;\n    static constexpr float EPS = 1e-5f;\n};\n"
            "DEVICE void run(const AllReduceArgs &a) { %s; }\n",
            c->name, type_name(c->x), type_name(c->y), c->ranks, c->columns, c->gathered, c->norm, c->residual,
            c->threads, call);

        n += snprintf(text + n, sizeof text - (size_t)n, text_of_calls, c->name);
        snprintf(text + n, sizeof text - (size_t)n, "}\nusing in_%s::%s;\n", c->name, c->name);
        build_add(build, c->name, text);
    }
    for (int of = 2; of <= 4; of += 2) {
        char entry[16];

        snprintf(entry, sizeof entry, "slice_%d", of);
        snprintf(text, sizeof text,
                 "#include \"elementwise.cuh\"\nstruct Config {\n    using T = float;\n    static constexpr int C = 5, "
                 "OF = %d, ROWS_S = 0, THREADS = 32;\n};\nextern \"C\" __global__ void %s(const RankSliceArgs a) { "
                 "rank_slice<Config>(a); }\n",
                 of, entry);
        build_add(build, entry, text);
    }
    for (int i = 0; i < N_CONTRACTS; i++) {
        snprintf(text, sizeof text,
                 "#include \"all_reduce.cuh\"\n#include \"all_gather.cuh\"\n#include \"elementwise.cuh\"\n"
                 "extern \"C\" __global__ void %s(const %s) {}\n",
                 contracts[i].entry, contracts[i].args);
        build_add(build, contracts[i].entry, text);
    }
    build_run(build);
    return 0;
}

/* --- one run of a case ------------------------------------------------------------------------------ */

typedef struct Ranks {
    const Case *c;
    Calls calls;
    SimtLaunch launch;
    char *x[MAX_RANKS], *y[MAX_RANKS], *r;
    float *g, *shift;
    FtxExchange *exchange[MAX_RANKS];
    FtxReport *report[MAX_RANKS];
    size_t share, elements; /* of a call */
    int rows[CALLS];
} Ranks;

static uint64_t dice;

static int below(int n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice >> 33) % (uint64_t)n);
}

/* Values whose sums are often 0 and ties of rounding; -0.0 often, so that whole words are. */
static float drawn(void)
{
    const int kind = below(6);

    return kind < 2 ? -0.0f : kind == 2 ? 0.0f : kind == 3 ? (float)(below(5) - 2) : (float)(below(4001) - 2000) / 257;
}

static char *values(size_t n, DType type, const char *name)
{
    char *host = calloc(n + 16, 4), *p = simt_alloc(n * dtype_size(type) + 16, name);

    assert_non_null(host);
    for (size_t i = 0; i < n; i++)
        dtype_store(host, i, type, drawn());
    simt_write(p, host, n * dtype_size(type) + 16);
    simt_protect(p, n * dtype_size(type));
    free(host);
    return p;
}

static int by_nccl; /* FtxPeers.reserved of what is made */

static void make(Ranks *s, const Case *c, int timeout_ms)
{
    *s = (Ranks){.c = c, .elements = (size_t)c->rows * (size_t)c->columns};
    const size_t x_bytes = (s->elements * dtype_size(c->x) + 15) / 16 * 16;
    const size_t width = (size_t)(c->gathered ? c->gathered : c->columns);
    const size_t y_bytes = ((size_t)c->rows * width * dtype_size(c->y) + 15) / 16 * 16;
    FtxStep *step = simt_alloc(sizeof *step * CALLS, "step");
    FtxPeers peers = {.ranks = c->ranks, .timeout_ms = timeout_ms, .reserved = by_nccl};

    s->share = (x_bytes + 255) / 256 * 256;
    peers.bytes = s->share * (size_t)c->ranks;
    s->calls.x_bytes = x_bytes;
    s->calls.y_bytes = y_bytes;
    s->calls.calls = CALLS;
    s->calls.host = -1;
    s->calls.ended = simt_alloc(4 * MAX_RANKS, "ended");
    simt_fill(s->calls.ended, 0, 4 * MAX_RANKS);
    for (int i = 0; i < CALLS; i++) {
        s->rows[i] = i == 2 ? c->rows : 1 + below(c->rows);
        simt_write(&step[i], &(FtxStep){.tokens = s->rows[i], .rows = 1}, sizeof *step);
    }
    s->g = simt_alloc((size_t)c->columns * 4, "g");
    s->shift = simt_alloc((size_t)c->columns * 4, "c");
    for (int i = 0; i < c->columns; i++) {
        simt_write(&s->g[i], &(float){0.5f + (float)below(100) / 64}, 4);
        simt_write(&s->shift[i], &(float){(float)below(100) / 64 - 1}, 4);
    }
    s->r = values(y_bytes / dtype_size(c->y) * CALLS, c->y, "r");
    for (int i = 0; i < c->ranks; i++) {
        s->exchange[i] = simt_alloc(sizeof(FtxExchange) + FTX_EXCHANGES * peers.bytes, "exchange");
        simt_fill(s->exchange[i], 0, sizeof(FtxExchange) + FTX_EXCHANGES * peers.bytes);
        s->report[i] = simt_alloc(sizeof(FtxReport), "report");
        simt_fill(s->report[i], 0, sizeof(FtxReport));
        peers.exchange[i] = (uintptr_t)s->exchange[i];
    }
    for (int i = 0; i < c->ranks; i++) {
        FtxPeers *p = simt_alloc(sizeof peers, "peers");

        peers.rank = i;
        peers.report = (uintptr_t)s->report[i];
        simt_write(p, &peers, sizeof peers);
        simt_protect(p, sizeof peers);
        s->x[i] = values(x_bytes / dtype_size(c->x) * CALLS, c->x, "x");
        s->y[i] = simt_alloc(y_bytes * CALLS, "y");
        s->calls.rank[i].x = s->x[i];
        s->calls.rank[i].r = c->residual ? s->r : NULL;
        s->calls.rank[i].g = c->norm ? s->g : NULL;
        s->calls.rank[i].c = c->norm == 2 ? s->shift : NULL;
        s->calls.rank[i].peers = p;
        s->calls.rank[i].exchange = s->exchange[i];
        s->calls.rank[i].step = step;
        s->calls.rank[i].y = s->y[i];
    }
    s->launch = (SimtLaunch){.kernel = build_kernel(build, c->name),
                             .args = &s->calls,
                             .grid = {(unsigned)c->blocks, (unsigned)c->ranks, 1},
                             .block = (unsigned)c->threads};
}

static bool minus_zero(float f)
{
    return f == 0 && signbit(f);
}

/* Element i of a call's x of a rank, as it is added: a word of -0.0 counts as +0.0. Behind the last element of an odd
 * number stand zeros. */
static float sent(const Ranks *s, const char *x, size_t i, size_t n)
{
    const DType t = s->c->x;
    const float v = dtype_load(x, i, t);
    const bool pair = dtype_size(t) == 4 || ((i ^ 1) < n && minus_zero(dtype_load(x, i ^ 1, t)));

    return minus_zero(v) && pair ? 0.0f : v;
}

static void check_gathered(const Ranks *s, int call)
{
    const Case *c = s->c;
    const size_t C = (size_t)c->columns, width = (size_t)c->gathered, n = (size_t)s->rows[call] * C;

    for (int rank = 0; rank < c->ranks; rank++) {
        const char *y = s->y[rank] + (size_t)call * s->calls.y_bytes;

        for (size_t i = 0; i < (size_t)s->rows[call] * width; i++) {
            const size_t column = i % width;
            char want[4] = {0};

            dtype_store(want, 0, c->y,
                        sent(s, s->x[column / C] + (size_t)call * s->calls.x_bytes, i / width * C + column % C, n));
            if (memcmp(want, y + i * dtype_size(c->y), dtype_size(c->y)) != 0)
                fail_msg("%s, call %d, rank %d: row %zu, column %zu is %g, not %g", c->name, call, rank, i / width,
                         column, (double)dtype_load(y, i, c->y), (double)dtype_load(want, 0, c->y));
        }
        assert_true(simt_untouched(y + (size_t)s->rows[call] * width * dtype_size(c->y),
                                   (size_t)(c->rows - s->rows[call]) * width * dtype_size(c->y)));
    }
}

/* The sum of element i of a call, with the residual, rounded as y is. */
static float sum_of(const Ranks *s, int call, size_t i)
{
    const Case *c = s->c;
    const size_t n = (size_t)s->rows[call] * (size_t)c->columns;
    char rounded[4] = {0};
    float sum = 0;

    for (int k = 0; k < c->ranks; k++) {
        const float v = sent(s, s->x[k] + (size_t)call * s->calls.x_bytes, i, n);

        sum = k == 0 ? v : sum + v;
    }
    if (c->residual)
        sum += dtype_load(s->r + (size_t)call * s->calls.y_bytes, i, c->y);
    dtype_store(rounded, 0, c->y, sum);
    return dtype_load(rounded, 0, c->y);
}

static void check_call(const Ranks *s, int call)
{
    const Case *c = s->c;
    const size_t n = (size_t)s->rows[call] * (size_t)c->columns;

    for (int rank = 0; rank < c->ranks; rank++) {
        const char *y = s->y[rank] + (size_t)call * s->calls.y_bytes;

        for (size_t i = 0; i < n && !c->norm; i++) {
            const float want = sum_of(s, call, i), got = dtype_load(y, i, c->y);

            if (memcmp(&want, &got, sizeof want) != 0)
                fail_msg("%s, call %d, rank %d: element %zu is %g, not %g", c->name, call, rank, i, (double)got,
                         (double)want);
        }
        assert_true(simt_untouched(y + n * dtype_size(c->y), s->calls.y_bytes - n * dtype_size(c->y)));
    }
}

static void check_norm(const Ranks *s, int call, int rank)
{
    const Case *c = s->c;
    const char *got = s->y[rank] + (size_t)call * s->calls.y_bytes;
    const double limit = c->y == DT_FP32 ? 1e-5 : c->y == DT_FP16 ? 1e-3 : 8e-3;

    assert_memory_equal(got, s->y[0] + (size_t)call * s->calls.y_bytes,
                        (size_t)s->rows[call] * (size_t)c->columns * dtype_size(c->y));
    for (int row = 0; row < s->rows[call]; row++) {
        const size_t first = (size_t)row * (size_t)c->columns;
        double mean = 0, var = 0;

        for (size_t i = 0; i < (size_t)c->columns && c->norm == 2; i++)
            mean += (double)sum_of(s, call, first + i) / c->columns;
        for (size_t i = 0; i < (size_t)c->columns; i++)
            var += pow((double)sum_of(s, call, first + i) - mean, 2) / c->columns;
        for (size_t i = 0; i < (size_t)c->columns; i++) {
            const double want = ((double)sum_of(s, call, first + i) - mean) / sqrt(var + 1e-5) * (double)s->g[i] +
                                (c->norm == 2 ? (double)s->shift[i] : 0);

            if (!(fabs(want - (double)dtype_load(got, first + i, c->y)) <= limit * (1 + fabs(want))))
                fail_msg("%s, call %d, rank %d: the norm of row %d, column %zu is %g, not %g", c->name, call, rank, row,
                         i, (double)dtype_load(got, first + i, c->y), want);
        }
    }
}

static void no_reports(const Case *c)
{
    if (simt_reports() > 0)
        fail_msg("%s: %s", c->name, simt_report(0)->text);
}

static void check_idle(const Ranks *s)
{
    for (int i = 0; i < s->c->ranks; i++) {
        const unsigned char *buffers = (const unsigned char *)(s->exchange[i] + 1);

        for (size_t k = 0; k < FTX_EXCHANGES * s->share * (size_t)s->c->ranks; k++)
            assert_int_equal(buffers[k], 0);
        assert_int_equal(s->exchange[i]->count, CALLS);
        assert_int_equal(s->exchange[i]->arrived, 0);
        assert_int_equal(s->exchange[i]->stop, 0);
        assert_int_equal(s->report[i]->written, 0);
    }
}

/* --- tests ------------------------------------------------------------------------------------------ */

static void sums_and_norms(void **state)
{
    enum { SEEDS = 3 };

    (void)state;
    for (int i = 0; i < N_CASES * SIMT_SCHEDULES * SEEDS; i++) {
        Ranks s;

        dice = (uint64_t)i + 1;
        make(&s, &cases[i / (SIMT_SCHEDULES * SEEDS)], i % 2 ? 1 << 20 : 0);
        simt_schedule((SimtSchedule)(i % SIMT_SCHEDULES), (uint64_t)i);
        simt_launch(&s.launch);
        no_reports(s.c);
        for (int call = 0; call < CALLS; call++) {
            if (s.c->gathered)
                check_gathered(&s, call);
            else
                check_call(&s, call);
            for (int rank = 0; rank < s.c->ranks && s.c->norm; rank++)
                check_norm(&s, call, rank);
        }
        check_idle(&s);
        simt_free_all();
    }
}

/* What NCCL leaves behind: the parts of the other ranks, as x has them, in the first buffer; no zeros behind them. A second
 * exchange after it finds the buffer of the first. */
static void bring(const Ranks *s)
{
    const size_t bytes = (size_t)s->rows[0] * (size_t)s->c->columns * dtype_size(s->c->x);

    for (int rank = 0; rank < s->c->ranks; rank++) {
        char *parts = (char *)(s->exchange[rank] + 1);

        simt_fill(parts, 0xA5, s->share * (size_t)s->c->ranks);
        for (int from = 0; from < s->c->ranks; from++)
            if (from != rank)
                simt_write(parts + (size_t)from * s->share, s->x[from], bytes);
    }
}

static void parts_that_nccl_has_brought(void **state)
{
    (void)state;
    by_nccl = 1;
    for (int i = 0; i < N_CASES * SIMT_SCHEDULES; i++) {
        const Case *c = &cases[i / SIMT_SCHEDULES];
        Ranks s;

        if ((size_t)c->columns * dtype_size(c->x) % 4)
            continue; /* refused */
        dice = (uint64_t)i + 1;
        make(&s, c, 3);
        s.calls.calls = 1;
        for (int rank = 0; rank < c->ranks; rank++)
            s.exchange[rank]->count = 4;
        bring(&s);
        simt_schedule((SimtSchedule)(i % SIMT_SCHEDULES), (uint64_t)i);
        simt_launch(&s.launch);
        no_reports(c);
        if (c->gathered)
            check_gathered(&s, 0);
        else
            check_call(&s, 0);
        for (int rank = 0; rank < c->ranks; rank++) {
            const char *parts = (const char *)(s.exchange[rank] + 1), *others = parts + s.share * (size_t)c->ranks;

            if (c->norm)
                check_norm(&s, 0, rank);
            for (size_t k = 0; k < s.share; k++) /* nobody has sent anything */
                assert_int_equal((unsigned char)parts[(size_t)rank * s.share + k], 0xA5);
            for (size_t k = 0; k < 2 * s.share * (size_t)c->ranks; k++)
                assert_int_equal(others[k], 0);
            assert_int_equal(s.exchange[rank]->count, 5);
            assert_int_equal(s.exchange[rank]->stop, 0);
            assert_int_equal(s.report[rank]->written, 0);
        }
        simt_free_all();
    }
    by_nccl = 0;
}

/* The contracts' constants, whose places processes.c knows. */
static void constants(void **state)
{
    static const struct {
        const char *family, *names[5];
    } want[] = {{"all_reduce", {"X", "Y", "C", "RANKS", "ROWS_S"}},
                {"all_gather", {"X", "C", "COLUMNS", "RANKS", "ROWS_S"}}};
    Arena *keep = arena_open();
    Catalog c;
    Diag d = {0};
    int found = 0;

    (void)state;
    if (!catalog_open(keep, &c, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < c.n; i++)
        for (int k = 0; k < 2; k++)
            if (strcmp(c.at[i]->family, want[k].family) == 0 && c.at[i]->template_name) {
                for (int n = 0; n < 5; n++)
                    assert_string_equal(c.at[i]->consts.at[n].value.name, want[k].names[n]);
                found++;
            }
    assert_int_equal(found, 2);
    arena_close(keep);
}

/* A contract names each pointer of its kernel's struct. */
static void pointers(void **state)
{
    Arena *keep = arena_open();
    Catalog c;
    Diag d = {0};
    int found = 0;

    (void)state;
    if (!catalog_open(keep, &c, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < c.n; i++)
        for (int k = 0; k < N_CONTRACTS; k++)
            if (strcmp(c.at[i]->family, contracts[k].family) == 0 && c.at[i]->template_name) {
                assert_int_equal(c.at[i]->operands * sizeof(void *),
                                 build_kernel(build, contracts[k].entry)->args_bytes);
                found++;
            }
    assert_int_equal(found, N_CONTRACTS);
    arena_close(keep);
}

/* Each rank takes its own columns; with fewer pieces than ranks neighbours take the same. */
static void slices(void **state)
{
    enum { C = 5, ROWS = 3 };

    (void)state;
    for (int i = 0; i < 2 * MAX_RANKS; i++) {
        const int of = i < MAX_RANKS ? 4 : 2, rank = i % MAX_RANKS;
        FtxStep *step = simt_alloc(sizeof *step, "step");
        FtxPeers *peers = simt_alloc(sizeof *peers, "peers");
        float *x = simt_alloc((size_t)ROWS * (size_t)of * C * 4, "x"), *y = simt_alloc(ROWS * C * 4, "y");
        const void *args[] = {i % 3 ? x : NULL, i % 3 ? NULL : x, peers, step, y};
        const SimtLaunch l = {.kernel = build_kernel(build, of == 4 ? "slice_4" : "slice_2"),
                              .args = args,
                              .grid = {ROWS, 1, 1},
                              .block = 32};

        simt_write(step, &(FtxStep){.tokens = ROWS - 1, .rows = 1}, sizeof *step);
        simt_write(peers, &(FtxPeers){.rank = rank, .ranks = MAX_RANKS}, sizeof *peers);
        for (int k = 0; k < ROWS * of * C; k++)
            simt_write(&x[k], &(float){(float)k}, 4);
        simt_launch(&l);
        if (simt_reports() > 0)
            fail_msg("%s", simt_report(0)->text);
        for (int k = 0; k < (ROWS - 1) * C; k++)
            assert_true(y[k] == (float)((k / C * of + rank * of / MAX_RANKS) * C + k % C));
        assert_true(simt_untouched(&y[(ROWS - 1) * C], C * 4));
        simt_free_all();
    }
}

/* The last rank does not come. The others give up at their deadline, say for whom they waited, and end all calls. */
static void absent_rank(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES * SIMT_SCHEDULES; i++) {
        Ranks s;

        dice = (uint64_t)i + 1;
        make(&s, &cases[i / SIMT_SCHEDULES], 3);
        s.launch.grid[1]--;
        simt_schedule((SimtSchedule)(i % SIMT_SCHEDULES), (uint64_t)i);
        simt_launch(&s.launch);
        no_reports(s.c);
        bool blamed = false;
        for (int rank = 0; rank < s.c->ranks - 1; rank++) {
            const FtxExchange *e = s.exchange[rank];

            assert_int_not_equal(e->stop, 0);
            assert_in_range(e->failed, 1, s.c->ranks);
            assert_int_not_equal(e->failed, rank + 1);
            assert_int_equal(e->count, CALLS);
            assert_int_equal(s.report[rank]->failed, e->failed);
            assert_int_equal(s.report[rank]->step, e->step);
            assert_int_equal(s.report[rank]->written, 1);
            for (int call = 0; call < CALLS; call++)
                for (int k = 0; k < s.rows[call] * s.c->columns && !s.c->gathered; k++)
                    assert_false(isnan(dtype_load(s.y[rank] + (size_t)call * s.calls.y_bytes, (size_t)k, s.c->y)));
            blamed = blamed || e->failed == (unsigned)s.c->ranks;
        }
        assert_true(blamed); /* some rank waited for the absent one itself */
        assert_int_equal(s.exchange[0]->step, 0);
        simt_free_all();
    }
}

/* The host sets `stop` while rank 0 waits for the others: it ends all calls, and no rank is blamed. */
static void stopped(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        Ranks s;

        dice = (uint64_t)i + 1;
        make(&s, &cases[i], 0);
        s.launch.grid[1] = 2;
        s.calls.host = 1;
        simt_schedule(SIMT_RANDOM, (uint64_t)i);
        simt_launch(&s.launch);
        no_reports(s.c);
        assert_int_equal(s.exchange[0]->failed, 0);
        assert_int_equal(s.exchange[0]->count, CALLS);
        assert_int_equal(s.report[0]->written, 0);
        simt_free_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_norms), cmocka_unit_test(pointers), cmocka_unit_test(slices),
        cmocka_unit_test(absent_rank),    cmocka_unit_test(stopped),  cmocka_unit_test(parts_that_nccl_has_brought),
        cmocka_unit_test(constants),
    };

    return cmocka_run_group_tests(tests, open_all, NULL);
}
