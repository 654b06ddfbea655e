/* test_cpu_gather.c - gather_logits between ranks that are threads: what is sent against the reference, the token and the
 * log-probability that follow against those of the whole row. */
#include "cpu_test.h"

#include <pthread.h>

#include "kernels/device/gather.h"

enum { CONTEXT = 48, ENDS = 4, BIAS = 4, WORDS = 12, ROWS = 2, MOST_RANKS = 4, MOST_V = 1200, STEPS = 4 };

typedef struct Tail { /* one row's inputs; V is set by the test */
    int V;
    float logits[MOST_V];
    FtxRow row;
    FtxParams params;
    int32_t history[CONTEXT], ends[ENDS];
    FtxBias bias[BIAS];
    int32_t words[WORDS];
} Tail;

typedef struct Rank {
    pthread_t thread;
    CpuKernel *kernel;
    void *arg[11];
    int64_t k[6];
    int threads;
    FtxPeers peers;
    FtxExchange *exchange;
    float *x, *y, *z;
} Rank;

static void *run_rank(void *user)
{
    Rank *r = user;

    for (int step = 0; step < STEPS; step++)
        call(r->kernel, r->arg, r->k, 7, ROWS, r->threads);
    return NULL;
}

static Tail new_tail(int V, int coarse)
{
    Tail t = {.V = V,
              .params = {.temperature = 0.8f, .top_p = 1.0f, .repetition = 1.0f},
              .row = {.q_len = 1, .kv_len = 30, .emit = 1, .prompt = 12, .limit = CONTEXT, .slot = 1}};

    for (int i = 0; i < V; i++) {
        t.logits[i] = 6.0f * random_float();
        t.logits[i] = coarse ? roundf(t.logits[i]) : t.logits[i]; /* many ties */
    }
    for (int i = 0; i < CONTEXT; i++)
        t.history[i] = random_below(V < 25 ? V : 25);
    t.params.seed_low = random_bits();
    return t;
}

static RefRow ref_row(const Tail *t)
{
    return (RefRow){&t->row, &t->params, t->history, t->ends, t->bias, t->words};
}

/* What rank `rank` sent of the row in the last step. */
static const FtxGather *sent_by(const Rank *r, int rank, int64_t C)
{
    const char *buffer = (const char *)(r[rank].exchange + 1) + (STEPS - 1) % FTX_EXCHANGES * r->peers.bytes;

    return (const FtxGather *)(const void *)(buffer + (uint64_t)rank * (r->peers.bytes / (uint64_t)r->peers.ranks) +
                                             4 * GATHER_WORDS(C));
}

/* Runs STEPS steps of two rows, of which the first emits nothing, and checks what the second one is on every rank. */
static void check(int level, const Tail *t, int ranks, const char *what)
{
    const int C = (t->V + ranks - 1) / ranks;
    const size_t share = (size_t)(ROWS * GATHER_WORDS(C)) * 4;
    const RefRow row = ref_row(t);
    FtxRow rows[ROWS] = {{.emit = 0, .slot = 0}, t->row};
    FtxParams params[ROWS] = {t->params, t->params};
    int32_t ends[ROWS][ENDS] = {{0}}, history[ROWS][CONTEXT] = {{0}}, words[ROWS][WORDS] = {{0}};
    FtxBias bias[ROWS][BIAS] = {{{0, 0}}};
    Rank rank[MOST_RANKS] = {{0}};
    double *p = malloc(sizeof *p * (size_t)t->V), logprob, logprob_of_all;
    const bool idle = t->row.done && !t->params.logits;
    bool finite = true;
    int32_t *order = malloc(sizeof *order * (size_t)t->V);

    params[0].logits = 0;
    memcpy(ends[1], t->ends, sizeof t->ends);
    memcpy(history[1], t->history, sizeof t->history);
    memcpy(bias[1], t->bias, sizeof t->bias);
    memcpy(words[1], t->words, sizeof t->words);
    for (int r = 0; r < ranks; r++) {
        Rank *me = &rank[r];

        me->exchange = aligned_alloc(64, (sizeof *me->exchange + FTX_EXCHANGES * share * (size_t)ranks + 63) / 64 * 64);
        memset(me->exchange, 0, sizeof *me->exchange);
        me->x = malloc(sizeof(float) * ROWS * (size_t)C);
        me->z = malloc(sizeof(float) * ROWS * (size_t)C);
        me->y = malloc(sizeof(float) * ROWS * (size_t)t->V);
        for (int i = 0; i < ROWS * C; i++)
            me->x[i] = i >= C && i - C + r * C < t->V ? t->logits[i - C + r * C] : 1e6f; /* padding is not read */
        for (int i = 0; i < ROWS * t->V; i++)
            me->y[i] = -77.0f;
    }
    for (int r = 0; r < ranks; r++) {
        Rank *me = &rank[r];
        const int64_t k[] = {
            [GATHER_LOGITS_C] = C,       [GATHER_LOGITS_COLUMNS] = t->V, [GATHER_LOGITS_CONTEXT] = CONTEXT,
            [GATHER_LOGITS_ENDS] = ENDS, [GATHER_LOGITS_BIAS] = BIAS,    [GATHER_LOGITS_WORDS] = WORDS};
        void *const arg[] = {me->x, rows, params, ends, bias, words, history, &me->peers, me->exchange, me->y, me->z};

        memcpy(me->k, k, sizeof k);
        memcpy(me->arg, arg, sizeof arg);
        me->kernel = kernel_at("gather_logits", level);
        me->threads = 1 + r;
        me->peers = (FtxPeers){.rank = r, .ranks = ranks, .timeout_ms = 20000, .bytes = share * (uint64_t)ranks};
        for (int i = 0; i < ranks; i++)
            me->peers.exchange[i] = (uintptr_t)rank[i].exchange;
    }
    for (int r = 0; r < ranks; r++)
        assert_int_equal(pthread_create(&rank[r].thread, NULL, run_rank, &rank[r]), 0);
    for (int r = 0; r < ranks; r++)
        pthread_join(rank[r].thread, NULL);
    for (int r = 0; r < ranks; r++) {
        const float *y = rank[r].y + t->V;

        assert_int_equal(rank[r].exchange->stop, 0);
        assert_int_equal(rank[r].exchange->count, STEPS);
        for (int i = 0; i < t->V; i++)
            assert_true(rank[r].y[i] == -77.0f && (!idle || y[i] == -77.0f)); /* a row that emits nothing */
        assert_memory_equal(y, rank[0].y + t->V, sizeof *y * (size_t)t->V);
    }
    for (int r = 0; r < ranks && !idle; r++) {
        const int first = r * C < t->V ? r * C : t->V, n = t->V - first < C ? t->V - first : C;
        const float *y = rank[0].y + t->V + first, *x = t->logits + first;
        bool sent[MOST_V];
        double rest = 0.0;
        int count = ref_gather(&row, x, first, n, sent, &rest);

        for (int i = 0; i < n; i++)
            count = isfinite(x[i]) ? count : -1;
        count = count > C / 2 ? -1 : count;
        if (sent_by(rank, r, C)->count != count)
            fail_msg("%s %s: rank %d sent %d logits, should send %d", levels[level], what, r,
                     sent_by(rank, r, C)->count, count);
        for (int i = 0; i < n; i++) {
            const bool whole = count < 0 || sent[i];

            if (whole ? memcmp(&y[i], &x[i], sizeof *y) != 0 : !(fabs((double)y[i] - rest) < 1e-5 && y[i] == y[i]))
                fail_msg("%s %s: logit %d is %.9g, should be %.9g", levels[level], what, first + i, (double)y[i],
                         whole ? (double)x[i] : rest);
        }
    }
    for (int i = 0; i < t->V; i++)
        finite = finite && isfinite(t->logits[i]);
    if (finite && !idle) {
        assert_int_equal(ref_sample(&row, rank[0].y + t->V, t->V, p, order, &logprob),
                         ref_sample(&row, t->logits, t->V, p, order, &logprob_of_all));
        assert_true(fabs(logprob - logprob_of_all) < 1e-5);
    }
    for (int r = 0; r < ranks; r++)
        free(rank[r].exchange), free(rank[r].x), free(rank[r].y), free(rank[r].z);
    free(p), free(order);
}

/* Every processor on and off with every filter. */
static void combinations(void **state)
{
    static const int vocabularies[] = {5, 61, 300, 1187};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int set = 0; set < 1 << 10; set++) {
            const int V = vocabularies[set * 7 % 11 % 4];
            Tail t = new_tail(V, set % 3 == 0);
            FtxParams *p = &t.params;
            char what[64];

            if (set & 1) {
                p->n_bias = 3;
                for (int i = 0; i < 3; i++)
                    t.bias[i] = (FtxBias){random_below(V), 5.0f * random_float()};
            }
            if (set & 2)
                p->repetition = set % 5 ? 1.3f : 0.7f;
            if (set & 4)
                p->frequency = -0.25f;
            if (set & 8)
                p->presence = 0.5f;
            if (set & 16)
                p->ngram = 1 + random_below(3);
            if ((set & 32) && V > 30) {
                const int32_t words[] = {t.history[29], ~(set % 20), ~(set * 37 % V), 4, ~3};

                memcpy(t.words, words, sizeof words);
                p->n_words = 5;
                p->min_length = 29 + set % 3;
                p->n_ends = 2;
                t.ends[0] = 0, t.ends[1] = 27;
            }
            if (set & 64)
                p->top_k = 1 + random_below(set % 2 ? 12 : 70);
            if (set & 128)
                p->top_p = 0.9f;
            if (set & 256)
                p->min_p = 0.05f;
            if (set & 512)
                p->typical_p = p->top_k ? 0.8f : 0.0f;
            if (set % 7 == 0)
                p->temperature = 0.0f;
            p->logits = set % 29 == 0;
            snprintf(what, sizeof what, "set %#x V=%d", set, V);
            check(level, &t, 2 + set % 3, what);
        }
}

/* Logits that are not finite go as they are; equal ones, more than there is room for; a temperature near zero. */
static void corners(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int kind = 0; kind < 5; kind++) {
            Tail t = new_tail(300, 0);

            for (int i = 0; i < t.V; i++)
                t.logits[i] = kind == 0   ? 1.5f
                              : kind == 1 ? (i % 2 ? 0.0f : -0.0f)
                              : kind == 4 ? (i % 4 ? -100.0f : (float)i * 1e-3f) /* the others weigh nothing */
                                          : t.logits[i];
            if (kind == 2)
                t.logits[7] = -INFINITY;
            if (kind == 3)
                t.logits[200] = INFINITY;
            t.params.top_k = 3;
            check(level, &t, 2, "corner, top-k");
            t.params.temperature = 0.0f;
            check(level, &t, 3, "corner, greedy");
            t.params.temperature = 1e-40f;
            t.params.top_k = 0;
            t.params.min_p = 0.5f;
            check(level, &t, 4, "corner, min-p");
        }
}

/* A row that is done is not sent, unless the host reads its logits. */
static void done(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        Tail t = new_tail(61, 0);

        t.row.done = 1;
        t.params.logits = 1;
        check(level, &t, 2, "done, the host reads");
        t.params.logits = 0;
        check(level, &t, 2, "done");
    }
}

/* The other rank has sent columns that it does not have, or more than there is room for: the exchange ends, and nothing is
 * written beside its part of the row. */
static void lies(void **state)
{
    enum { V = 63, C = 32, SHARE = 4 * GATHER_WORDS(C) };
    typedef struct Memory {
        FtxExchange head;
        char buffers[FTX_EXCHANGES][2][SHARE];
    } Memory;
    static const struct {
        int count, column;
        unsigned stop;
    } cases[] = {{0, 99, 0}, {1, C - 2, 0}, {1, C - 1, 1}, {1, -1, 1}, {C / 2, 5, 0}, {C / 2 + 1, 5, 1}};
    const int64_t k[] = {[GATHER_LOGITS_C] = C,       [GATHER_LOGITS_COLUMNS] = V, [GATHER_LOGITS_CONTEXT] = CONTEXT,
                         [GATHER_LOGITS_ENDS] = ENDS, [GATHER_LOGITS_BIAS] = BIAS, [GATHER_LOGITS_WORDS] = WORDS};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            _Alignas(64) static Memory own, other;
            Tail t = new_tail(V, 0);
            float z[C], y[V + 1];
            FtxPeers peers = {
                .ranks = 2, .timeout_ms = 20000, .bytes = 2 * SHARE, .exchange = {(uintptr_t)&own, (uintptr_t)&other}};
            FtxGather *head = (FtxGather *)(void *)other.buffers[0][1];
            FtxGathered *list = (FtxGathered *)(void *)(head + 1);
            void *arg[] = {t.logits, &t.row, &t.params, t.ends, t.bias, t.words, t.history, &peers, &own, y, z};

            memset(&own, 0, sizeof own);
            memset(&other, 0, sizeof other);
            t.row.slot = 0;
            t.params.temperature = 0.0f;
            other.head.count = 1;
            head->count = cases[i].count;
            for (int n = 0; n < C / 2; n++)
                list[n] = (FtxGathered){cases[i].column, 3.0f};
            y[V] = -77.0f;
            call(kernel_at("gather_logits", level), arg, k, 1, 1, 1);
            assert_int_equal(own.head.stop, cases[i].stop);
            assert_true(y[V] == -77.0f && y[C - 1] != 3.0f);
            if (!cases[i].stop && cases[i].count)
                assert_true(y[C + cases[i].column] == 3.0f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(combinations), cmocka_unit_test(corners),
                                       cmocka_unit_test(done), cmocka_unit_test(lies)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
