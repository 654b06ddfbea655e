/* test_gather.c - gather_logits.cuh and embed_part.cuh between ranks that are rows of blocks of one launch: what each rank
 * sends arrives late, torn and in any order; the logits that come out, and the token that follows, against kernels/ref. */
#include "build.h"
#include "compiler/catalog/contract.h"
#include "kernels/device/gather.h"
#include "kernels/ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 4, CALLS = 5, ROWS = 4, MOST = 700, CONTEXT = 24, ENDS = 3, BIASES = 4, WORDS = 6, THREADS = 64 };

typedef struct Case {
    const char *name;
    int ranks, C, columns, list, small, blocks;
} Case;

static const Case cases[] = {
    {"two", 2, 200, 400, 100, 0, 2},   {"three", 3, 101, 300, 40, 0, 3}, {"four", 4, 160, 630, 70, 0, 5},
    {"small", 2, 64, 126, 32, 600, 4}, {"brief", 2, 96, 192, 2, 0, 2},   {"none", 4, 2, 5, 2, 0, 1},
    {"full", 2, 96, 192, 96, 0, 2}, /* a list with room for all would reach into the next row */
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* As the text below declares it. */
typedef struct Calls {
    struct {
        const void *x, *step, *rows, *params, *ends, *bias, *bad_words, *history, *peers, *exchange, *y;
    } rank[MAX_RANKS];
    uint32_t *ended; /* [MAX_RANKS]: blocks of the rank that have ended a call */
    uint64_t x_floats, y_floats;
    int calls, rows;
} Calls;

static const char text_of_calls[] =
    "struct Calls { GatherLogitsArgs rank[4]; u32 *ended; u64 x_floats, y_floats; int calls, rows; };\n"
    "extern \"C\" __global__ void %s(const Calls a)\n"
    "{\n"
    "    const int rank = blockIdx.y;\n"
    "    for (int call = 0; call < a.calls; call++) {\n"
    "        GatherLogitsArgs b = a.rank[rank];\n"
    "        b.x += call * a.x_floats, b.y += call * a.y_floats, b.step += call;\n"
    "        b.rows += call * a.rows, b.params += call * a.rows;\n"
    "        gather_logits<Config>(b);\n"
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

static int open_all(void **state)
{
    char dir[600], text[4000];

    (void)state;
    snprintf(dir, sizeof dir, "%s/simt-gather", getenv("FTX_BUILD"));
    build = build_open(dir);
    for (int i = 0; i < N_CASES; i++) {
        const Case *c = &cases[i];
        int n = snprintf(text, sizeof text,
                         "#include \"gather_logits.cuh\"\nnamespace in_%s {\nstruct Config {\n"
                         "    static constexpr int C = %d, COLUMNS = %d, RANKS = %d, CONTEXT = %d, LOGIT_BIAS = %d, "
                         "BAD_WORDS = %d, END_IDS = %d, LIST = %d, THREADS = %d, SMALL = %d, SHARED = 16384;\n};\n",
                         c->name, c->C, c->columns, c->ranks, CONTEXT, BIASES, WORDS, ENDS, c->list, THREADS, c->small);

        n += snprintf(text + n, sizeof text - (size_t)n, text_of_calls, c->name);
        snprintf(text + n, sizeof text - (size_t)n, "}\nusing in_%s::%s;\n", c->name, c->name);
        build_add(build, c->name, text);
    }
    build_add(build, "args_1",
              "#include \"gather_logits.cuh\"\n"
              "extern \"C\" __global__ void args_1(const GatherLogitsArgs) {}\n");
    build_add(build, "args_2",
              "#include \"embed_part.cuh\"\n"
              "extern \"C\" __global__ void args_2(const EmbedPartArgs) {}\n");
    build_add(build, "rows",
              "#include \"embed_part.cuh\"\nstruct Config {\n    using W = bf16;\n    using OUT = float;\n"
              "    static constexpr int P = 7, D = 24, CONTEXT = 9, ENCODE = 0, THREADS = 32;\n};\n"
              "extern \"C\" __global__ void rows(const EmbedPartArgs a) { embed_part<Config>(a); }\n");
    build_run(build);
    return 0;
}

/* --- one run of a case ------------------------------------------------------------------------------ */

typedef struct Ranks {
    const Case *c;
    Calls calls;
    SimtLaunch launch;
    float logits[CALLS][ROWS][MOST];
    FtxRow rows[CALLS][ROWS];
    FtxParams params[CALLS][ROWS];
    int32_t ends[ROWS][ENDS], history[ROWS][CONTEXT], words[ROWS][WORDS];
    FtxBias bias[ROWS][BIASES];
    int live[CALLS];
    FtxExchange *exchange[MAX_RANKS];
    FtxReport *report[MAX_RANKS];
    float *y[MAX_RANKS];
    size_t share;
} Ranks;

static uint64_t dice;

static int below(int n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice >> 33) % (uint64_t)n);
}

static void *copied(const void *from, size_t bytes, const char *name)
{
    void *p = simt_alloc(bytes, name);

    simt_write(p, from, bytes);
    simt_protect(p, bytes);
    return p;
}

/* Every way to choose a token, with and without processors; some rows emit nothing. */
static void draw_row(Ranks *s, int call, int row, bool all)
{
    const int V = s->c->columns, kind = below(7);
    FtxParams *p = &s->params[call][row];
    const bool coarse = below(2);

    *p = (FtxParams){.temperature = 0.9f, .top_p = 1.0f, .repetition = 1.0f};
    p->temperature = kind == 0 ? 0.0f : p->temperature;
    p->top_k = kind == 1 ? 1 + below(FTX_GATHER_MOST + 5) : kind == 2 ? 1 + below(4) : 0;
    p->min_p = kind == 3 ? 0.2f : 0.0f;
    p->top_p = kind == 4 ? 0.9f : 1.0f;
    p->typical_p = kind == 2 ? 0.8f : 0.0f;
    p->logits = !below(8);
    p->repetition = below(3) ? 1.0f : 1.3f;
    p->presence = below(3) ? 0.0f : 0.5f;
    p->n_bias = below(BIASES);
    p->n_words = below(2) ? WORDS : 0;
    p->n_ends = below(ENDS + 1);
    p->min_length = below(CONTEXT);
    s->rows[call][row] = (FtxRow){.q_len = 1, .kv_len = 5 + below(CONTEXT - 5), .prompt = 3, .slot = ROWS - 1 - row};
    s->rows[call][row].emit = all || below(5) > 0;
    s->rows[call][row].done = !all && !below(6);
    for (int i = 0; i < V; i++) {
        s->logits[call][row][i] = (float)(below(8001) - 4000) / 500;
        if (coarse)
            s->logits[call][row][i] = roundf(s->logits[call][row][i]);
    }
    if (!below(12))
        s->logits[call][row][below(V)] = -INFINITY;
}

static void make(Ranks *s, const Case *c, int timeout_ms, bool all)
{
    FtxStep step[CALLS];
    FtxPeers peers = {.ranks = c->ranks, .timeout_ms = timeout_ms};
    float *x = calloc((size_t)(CALLS * ROWS * c->C), sizeof *x);

    *s = (Ranks){.c = c, .share = (size_t)(ROWS * GATHER_WORDS(c->C)) * 4};
    peers.bytes = s->share * (size_t)c->ranks;
    for (int row = 0; row < ROWS; row++) {
        const int32_t words[WORDS] = {1, ~below(c->columns), ~(c->columns - 1), 2, 3, ~below(c->columns)};

        memcpy(s->words[row], words, sizeof words);
        for (int i = 0; i < ENDS; i++)
            s->ends[row][i] = below(c->columns);
        for (int i = 0; i < CONTEXT; i++)
            s->history[row][i] = below(c->columns);
        for (int i = 0; i < BIASES; i++)
            s->bias[row][i] = (FtxBias){below(c->columns), (float)(below(9) - 4)};
    }
    for (int call = 0; call < CALLS; call++) {
        s->live[call] = all || call == 2 ? ROWS : 1 + below(ROWS);
        step[call] = (FtxStep){.tokens = 1, .rows = s->live[call]};
        for (int row = 0; row < ROWS; row++)
            draw_row(s, call, row, all);
    }
    s->calls = (Calls){.x_floats = (uint64_t)(ROWS * c->C),
                       .y_floats = (uint64_t)(ROWS * c->columns),
                       .calls = CALLS,
                       .rows = ROWS,
                       .ended = simt_alloc(4 * MAX_RANKS, "ended")};
    simt_fill(s->calls.ended, 0, 4 * MAX_RANKS);
    for (int i = 0; i < c->ranks; i++) {
        s->exchange[i] = simt_alloc(sizeof(FtxExchange) + FTX_EXCHANGES * peers.bytes, "exchange");
        simt_fill(s->exchange[i], 0, sizeof(FtxExchange) + FTX_EXCHANGES * peers.bytes);
        s->report[i] = simt_alloc(sizeof(FtxReport), "report");
        simt_fill(s->report[i], 0, sizeof(FtxReport));
        peers.exchange[i] = (uintptr_t)s->exchange[i];
    }
    for (int i = 0; i < c->ranks; i++) {
        for (int k = 0; k < CALLS * ROWS * c->C; k++) {
            const int column = i * c->C + k % c->C;

            x[k] = column < c->columns ? s->logits[k / c->C / ROWS][k / c->C % ROWS][column] : 1e6f; /* padding */
        }
        peers.rank = i;
        peers.report = (uintptr_t)s->report[i];
        s->y[i] = simt_alloc((size_t)s->calls.y_floats * CALLS * 4, "y");
        s->calls.rank[i].x = copied(x, (size_t)(CALLS * ROWS * c->C) * 4, "x");
        s->calls.rank[i].step = copied(step, sizeof step, "step");
        s->calls.rank[i].rows = copied(s->rows, sizeof s->rows, "rows");
        s->calls.rank[i].params = copied(s->params, sizeof s->params, "params");
        s->calls.rank[i].ends = copied(s->ends, sizeof s->ends, "ends");
        s->calls.rank[i].bias = copied(s->bias, sizeof s->bias, "bias");
        s->calls.rank[i].bad_words = copied(s->words, sizeof s->words, "bad words");
        s->calls.rank[i].history = copied(s->history, sizeof s->history, "history");
        s->calls.rank[i].peers = copied(&peers, sizeof peers, "peers");
        s->calls.rank[i].exchange = s->exchange[i];
        s->calls.rank[i].y = s->y[i];
    }
    s->launch = (SimtLaunch){.kernel = build_kernel(build, c->name),
                             .args = &s->calls,
                             .grid = {(unsigned)c->blocks, (unsigned)c->ranks, 1},
                             .block = THREADS,
                             .smem = 16384};
    free(x);
}

static size_t spared; /* logits that were not sent */

/* What was not sent is the log of the mean of the exponentials of all that was not. */
static void check_part(const Ranks *s, int call, int row, int rank, const RefRow *r)
{
    const int C = s->c->C, first = rank * C < s->c->columns ? rank * C : s->c->columns;
    const int n = s->c->columns - first < C ? s->c->columns - first : C;
    const int fits = C < 4 ? 2 : C / 4 * 2, list = s->c->list < fits ? s->c->list : fits;
    const float *x = s->logits[call][row] + first,
                *y = s->y[0] + ((size_t)call * ROWS + (size_t)row) * (size_t)s->c->columns + first;
    bool needed[MOST];
    double rest = 0.0, sum = 0.0;
    const int count = ref_gather(r, x, first, n, needed, &rest);
    int left = 0, above = 0;
    float other = 0.0f;

    for (int i = 0; i < n; i++) {
        above += count >= 0 && !needed[i];
        if (x[i] == y[i]) /* -0.0 arrives as 0.0 */
            continue;
        if (count < 0 || needed[i] || (left > 0 && y[i] != other))
            fail_msg("%s, call %d, row %d: logit %d is %.9g, not %.9g", s->c->name, call, row, first + i, (double)y[i],
                     (double)x[i]);
        other = y[i];
        left++;
        sum += exp((double)x[i]);
    }
    spared += (size_t)left;
    assert_true(left == 0 || fabs(log(sum / left) - (double)other) < 1e-5);
    if (count >= 0 && (s->live[call] * C * 4 <= s->c->small || count > list))
        assert_int_equal(left, 0);
    else if (count >= 0 && above > 3 * FTX_GATHER_MOST) /* the bound is not much lower than it must be */
        assert_true(left > above / 2);
}

static void check_row(const Ranks *s, int call, int row)
{
    const int V = s->c->columns;
    const FtxRow *w = &s->rows[call][row];
    const FtxParams *p = &s->params[call][row];
    const RefRow r = {w, p, s->history[w->slot], s->ends[row], s->bias[row], s->words[w->slot]};
    const size_t at = ((size_t)call * ROWS + (size_t)row) * (size_t)V;
    double probs[MOST], logprob, logprob_of_all;
    int32_t order[MOST];
    bool finite = true;

    for (int rank = 0; rank < s->c->ranks; rank++) {
        if (row >= s->live[call] || (!p->logits && (!w->emit || w->done))) {
            assert_true(simt_untouched(s->y[rank] + at, (size_t)V * 4));
            continue;
        }
        assert_memory_equal(s->y[rank] + at, s->y[0] + at, (size_t)V * 4);
    }
    if (row >= s->live[call] || (!p->logits && (!w->emit || w->done)))
        return;
    for (int i = 0; i < V; i++)
        finite = finite && isfinite(s->logits[call][row][i]);
    for (int rank = 0; rank < s->c->ranks && finite; rank++)
        check_part(s, call, row, rank, &r);
    if (finite) {
        assert_int_equal(ref_sample(&r, s->y[0] + at, V, probs, order, &logprob),
                         ref_sample(&r, s->logits[call][row], V, probs, order, &logprob_of_all));
        assert_true(fabs(logprob - logprob_of_all) < 1e-5);
    }
    for (int i = 0; i < V; i++)
        assert_true(finite || isfinite(s->logits[call][row][i]) || s->y[0][at + (size_t)i] == s->logits[call][row][i]);
}

static void no_reports(const Case *c)
{
    if (simt_reports() > 0)
        fail_msg("%s: %s", c->name, simt_report(0)->text);
}

/* --- tests ------------------------------------------------------------------------------------------ */

static void logits(void **state)
{
    enum { SEEDS = 2 };
    static Ranks s;

    (void)state;
    for (int i = 0; i < N_CASES * SIMT_SCHEDULES * SEEDS; i++) {
        dice = (uint64_t)i + 1;
        make(&s, &cases[i / (SIMT_SCHEDULES * SEEDS)], i % 2 ? 1 << 20 : 0, false);
        simt_schedule((SimtSchedule)(i % SIMT_SCHEDULES), (uint64_t)i);
        simt_launch(&s.launch);
        no_reports(s.c);
        for (int call = 0; call < CALLS; call++)
            for (int row = 0; row < ROWS; row++)
                check_row(&s, call, row);
        for (int rank = 0; rank < s.c->ranks; rank++) {
            const unsigned char *buffers = (const unsigned char *)(s.exchange[rank] + 1);

            for (size_t k = 0; k < FTX_EXCHANGES * s.share * (size_t)s.c->ranks; k++)
                assert_int_equal(buffers[k], 0); /* all that came was taken */
            assert_int_equal(s.exchange[rank]->count, CALLS);
            assert_int_equal(s.exchange[rank]->arrived, 0);
            assert_int_equal(s.exchange[rank]->stop, 0);
        }
        simt_free_all();
    }
    assert_true(spared > 10000);
}

/* The last rank does not come: the others give up at their deadline and end all calls. */
static void absent_rank(void **state)
{
    static Ranks s;

    (void)state;
    for (int i = 0; i < N_CASES * SIMT_SCHEDULES; i++) {
        dice = (uint64_t)i + 1;
        make(&s, &cases[i / SIMT_SCHEDULES], 3, true);
        s.launch.grid[1]--;
        simt_schedule((SimtSchedule)(i % SIMT_SCHEDULES), (uint64_t)i);
        simt_launch(&s.launch);
        no_reports(s.c);
        for (int rank = 0; rank < s.c->ranks - 1; rank++) {
            assert_int_not_equal(s.exchange[rank]->stop, 0);
            assert_in_range(s.exchange[rank]->failed, 1, s.c->ranks);
            assert_int_equal(s.exchange[rank]->count, CALLS);
            assert_int_equal(s.report[rank]->written, 1);
        }
        simt_free_all();
    }
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
    for (size_t i = 0; i < c.n; i++) {
        const bool gather = strcmp(c.at[i]->family, "gather_logits") == 0;

        if (!c.at[i]->template_name || (!gather && strcmp(c.at[i]->family, "embed_part") != 0))
            continue;
        assert_int_equal(c.at[i]->operands * sizeof(void *),
                         build_kernel(build, gather ? "args_1" : "args_2")->args_bytes);
        found++;
    }
    assert_int_equal(found, 2);
    arena_close(keep);
}

/* Ids 7, 8 ... 13 are rank 1's: their rows, zeros for other ids, all in the history. */
static void embedding(void **state)
{
    enum { T = 5, D = 24, P = 7, CONTEXT_OF = 9 };
    static const int ids[T] = {6, 7, 13, 14, 9};
    char w[P * D * 2];
    FtxToken token[T];
    FtxStep step = {.tokens = T - 1, .rows = 1};
    FtxPeers peers = {.rank = 1, .ranks = 3};
    float *y;
    int *history;

    (void)state;
    for (size_t i = 0; i < P * D; i++)
        dtype_store(w, i, DT_BF16, (float)i);
    for (int t = 0; t < T; t++)
        token[t] = (FtxToken){ids[t], t + 3, 0, t % 2};
    y = simt_alloc(T * D * 4, "y");
    history = simt_alloc(2 * CONTEXT_OF * 4, "history");
    {
        const void *args[] = {copied(w, sizeof w, "w"),          copied(&step, sizeof step, "step"),
                              copied(token, sizeof token, "t"),  history,
                              copied(&peers, sizeof peers, "p"), y};
        const SimtLaunch l = {.kernel = build_kernel(build, "rows"), .args = args, .grid = {T, 2, 1}, .block = 32};

        simt_launch(&l);
    }
    if (simt_reports() > 0)
        fail_msg("%s", simt_report(0)->text);
    for (int t = 0; t < T - 1; t++)
        for (int i = 0; i < D; i++)
            assert_true(y[t * D + i] ==
                        (ids[t] / P == 1 ? (float)dtype_load(w, (size_t)((ids[t] - P) * D + i), DT_BF16) : 0.0f));
    for (int t = 0; t < T - 1; t++)
        assert_int_equal(history[t % 2 * CONTEXT_OF + t + 3], ids[t]);
    assert_true(simt_untouched(y + (T - 1) * D, D * 4));
    assert_true(simt_untouched(history + 7, 4));
    simt_free_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits),
        cmocka_unit_test(absent_rank),
        cmocka_unit_test(pointers),
        cmocka_unit_test(embedding),
    };

    return cmocka_run_group_tests(tests, open_all, NULL);
}
