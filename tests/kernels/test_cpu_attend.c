/* test_cpu_attend.c - append and attention of the CPU over paged, ragged, windowed, capped cases against the
 * reference; and a token's bits the same alone, in a chunk, and with its keys spread over threads. */
#include "cpu_test.h"

typedef struct Shape {
    int H, G, E, rot, block, context, window;
    double softcap;
    DType kv;
} Shape;

typedef struct Row {
    int had, brings; /* tokens in the cache before, tokens of this step */
} Row;

enum { MAX_ROWS = 6 };

typedef struct Setup {
    const Shape *s;
    int S, T, pages_of, span, spans;
    FtxRow rows[MAX_ROWS];
    FtxToken *token;
    int32_t *pages;    /* [MAX_ROWS][pages_of], shuffled */
    size_t all, cache; /* rows of all pages; bytes of keys */
    void *k, *v;
    float *x, *q, *table, *parts;
    int ready[16];
} Setup;

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

static RefCache ref_of(const Setup *u, void *k, void *v)
{
    return (RefCache){k, v, u->s->kv, u->pages, u->pages_of, u->s->block, u->s->G, u->s->E};
}

/* Keys or values of all pages. */
static void *random_cache(const Setup *u)
{
    const int rows = u->s->G * u->s->block;
    void *p = malloc(u->cache);
    const RefCache c = ref_of(u, p, p);
    float x[256];

    for (size_t i = 0; i < u->all; i++) {
        for (int e = 0; e < u->s->E; e++)
            x[e] = random_float();
        ref_cache(&c, p, (int64_t)i / rows, (int64_t)i % rows, x);
    }
    return p;
}

static void setup(Setup *u, const Shape *s, const Row *rows, int S)
{
    *u = (Setup){.s = s, .S = S, .pages_of = ceil_div(s->context, s->block)};
    const int pages = MAX_ROWS * u->pages_of, group = s->H / s->G;

    u->span = ceil_div(s->context, 32) > 256 ? ceil_div(ceil_div(s->context, 32), 32) * 32 : 256;
    u->spans = ceil_div(s->context, u->span);
    u->pages = malloc(sizeof *u->pages * pages);
    for (int i = 0; i < pages; i++)
        u->pages[i] = i;
    for (int i = pages - 1; i > 0; i--) {
        const int j = random_below(i + 1), t = u->pages[i];
        u->pages[i] = u->pages[j];
        u->pages[j] = t;
    }
    for (int i = 0; i < S; i++) {
        u->rows[i] = (FtxRow){
            .q_start = u->T, .q_len = rows[i].brings, .kv_len = rows[i].had + rows[i].brings, .slot = MAX_ROWS - 1 - i};
        u->T += rows[i].brings;
    }
    u->token = malloc(sizeof *u->token * u->T);
    for (int i = 0; i < S; i++)
        for (int j = 0; j < rows[i].brings; j++)
            u->token[u->rows[i].q_start + j] = (FtxToken){0, rows[i].had + j, i, u->rows[i].slot};
    u->all = (size_t)pages * s->G * s->block;
    u->cache = u->all * (s->E * dtype_size(s->kv) + (dtype_is_code(s->kv) ? 2 : 0));
    u->k = random_cache(u);
    u->v = random_cache(u);
    u->x = random_tensor((size_t)u->T * (s->H + 2 * s->G) * s->E, DT_FP32, 1.0f);
    u->q = malloc(sizeof *u->q * u->T * s->H * s->E);
    u->table = malloc(sizeof *u->table * (s->context * s->rot + 1));
    ref_rope_table(s->context, s->rot, 10000.0, u->table);
    u->parts = malloc(sizeof *u->parts * 16 * u->spans * (group < 16 ? group : 16) * (s->E + 2));
}

static void teardown(Setup *u)
{
    free(u->pages), free(u->token), free(u->k), free(u->v), free(u->x), free(u->q), free(u->table), free(u->parts);
}

static void append(Setup *u, int level, int threads)
{
    const Shape *s = u->s;
    const int64_t k[] = {[APPEND_H] = s->H,     [APPEND_G] = s->G,         [APPEND_E] = s->E,
                         [APPEND_ROT] = s->rot, [APPEND_BLOCK] = s->block, [APPEND_PAGES] = u->pages_of,
                         [APPEND_KV] = s->kv};

    call(kernel_at("append", level),
         (void *const[]){u->x, s->rot ? u->table : NULL, u->token, u->pages, u->k, u->v, u->q}, k, u->T, u->S, threads);
}

static void attend(Setup *u, int level, int threads, FtxRow *rows, int S, int T, float *y)
{
    const Shape *s = u->s;
    const int64_t k[] = {[ATTEND_PAGED_H] = s->H,
                         [ATTEND_PAGED_G] = s->G,
                         [ATTEND_PAGED_E] = s->E,
                         [ATTEND_PAGED_SCALE] = number_bits(1.0 / sqrt(s->E)),
                         [ATTEND_PAGED_WINDOW] = s->window,
                         [ATTEND_PAGED_SOFTCAP] = number_bits(s->softcap),
                         [ATTEND_PAGED_BLOCK] = s->block,
                         [ATTEND_PAGED_PAGES] = u->pages_of,
                         [ATTEND_PAGED_KV] = s->kv,
                         [ATTEND_PAGED_SPAN] = u->span,
                         [ATTEND_PAGED_SPANS] = u->spans,
                         [ATTEND_PAGED_LENGTH] = s->context,
                         [ATTEND_PAGED_BEAM] = 0};

    call(kernel_at("attend_paged", level),
         (void *const[]){u->q, rows, u->pages, u->k, u->v, NULL, y, u->parts, u->ready}, k, T, S, threads);
}

static void check(int level, const Shape *s, const Row *rows, int S)
{
    Setup u;
    char what[200];

    setup(&u, s, rows, S);
    snprintf(what, sizeof what, "%s H=%d G=%d E=%d rot=%d block=%d window=%d softcap=%g %s", levels[level], s->H, s->G,
             s->E, s->rot, s->block, s->window, s->softcap, dtype_name(s->kv));

    const size_t n = (size_t)u.T * s->H * s->E, bytes = u.cache;
    float *want = malloc(n * sizeof *want), *y = malloc(n * sizeof *y), *alone = malloc(n * sizeof *y);
    void *k = malloc(bytes), *v = malloc(bytes);
    RefCache cache = ref_of(&u, memcpy(k, u.k, bytes), memcpy(v, u.v, bytes));

    ref_append((RefTensor){u.x, DT_FP32}, s->rot ? u.table : NULL, u.token, u.T, s->H, s->rot, &cache, want);
    append(&u, level, 3);
    assert_close(u.q, want, n, 1e-6, what);
    for (size_t i = 0; i < u.all; i++) { /* a half-way case may round the other way: one unit */
        const double unit = s->kv == DT_FP32   ? 1e-6
                            : s->kv == DT_FP16 ? 1e-3
                            : s->kv == DT_FP8  ? 1.5 / 14 /* of numbers up to 1.5 */
                                               : 1.2e-2;
        const int64_t page = (int64_t)i / (s->G * s->block), row = (int64_t)i % (s->G * s->block);
        double got[256], right[256];

        ref_cached(&cache, u.k, page, row, got);
        ref_cached(&cache, k, page, row, right);
        for (int e = 0; e < s->E; e++)
            assert_true(fabs(got[e] - right[e]) <= unit);
    }
    assert_memory_equal(u.v, v, bytes);

    cache.k = u.k;
    cache.v = u.v;
    ref_attend((RefTensor){u.q, DT_FP32}, u.rows, S, s->H, 1.0 / sqrt(s->E), s->window, s->softcap, &cache, want);
    attend(&u, level, 2, u.rows, S, u.T, y);
    assert_close(y, want, n, 3e-6, what);

    /* Some tokens, each row's first among them, as rows of their own with nobody beside; 40 threads: spans are spread. */
    for (int t = 0; t < u.T; t++) {
        const FtxRow *row = &u.rows[u.token[t].row];
        FtxRow one = {.q_start = 0, .q_len = 1, .kv_len = u.token[t].pos + 1, .slot = row->slot};
        const size_t width = (size_t)s->H * s->E;
        Setup w = u;

        if (t % (1 + u.T / 7) && t != row->q_start)
            continue;
        w.q = u.q + t * width;
        for (int threads = 1; threads < 80; threads += 39) {
            memset(alone, 0, width * sizeof *alone);
            attend(&w, level, threads, &one, 1, 1, alone);
            assert_memory_equal(alone, y + t * width, width * sizeof *y);
        }
        for (int i = 0; i < 16; i++)
            assert_int_equal(w.ready[i], 0);
    }
    free(want), free(y), free(alone), free(k), free(v);
    teardown(&u);
}

static void shapes(void **state)
{
    static const int head_dims[] = {16, 24, 40, 64, 80, 96, 128, 256}, groups[] = {1, 3, 7, 8, 20};
    static const int blocks[] = {8, 16, 32, 128};
    static const DType types[] = {DT_FP32, DT_FP16, DT_BF16, DT_INT8, DT_FP8};
    static const Row rows[] = {{0, 1}, {37, 1}, {0, 9}, {31, 33}, {62, 3}};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int e = 0; e < 8; e++)
            for (int g = 0; g < 5; g++) {
                const int G = 1 + (e + g) % 2, E = head_dims[e];
                const Shape s = {.H = G * groups[g],
                                 .G = G,
                                 .E = E,
                                 .rot = g % 3 == 0   ? E
                                        : g % 3 == 1 ? E / 4 * 2
                                                     : 0,
                                 .block = blocks[(e + g) % 4],
                                 .context = 100,
                                 .kv = types[(e + g) % 5]};

                check(level, &s, rows, 5);
            }
}

static void windows_and_caps(void **state)
{
    static const int windows[] = {1, 2, 7, 31, 32, 33, 64, 100};
    static const Row rows[] = {{0, 1}, {70, 1}, {0, 40}, {31, 2}, {60, 40}};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int w = 0; w < 8; w++) {
            check(level,
                  &(Shape){.H = 6,
                           .G = 2,
                           .E = 40,
                           .rot = 40,
                           .block = 16,
                           .context = 100,
                           .window = windows[w],
                           .kv = DT_FP32},
                  rows, 5);
            check(level,
                  &(Shape){.H = 4,
                           .G = 4,
                           .E = 64,
                           .rot = 64,
                           .block = 8,
                           .context = 100,
                           .window = windows[w],
                           .softcap = 0.5,
                           .kv = DT_FP32},
                  rows, 5);
        }
}

/* Several spans, prompt chunks and single tokens around the edges of blocks, pages and spans. */
static void long_context(void **state)
{
    static const Row rows[] = {{255, 1}, {256, 1}, {700, 1}, {254, 5}, {541, 30}, {999, 1}};

    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        check(level, &(Shape){.H = 6, .G = 2, .E = 64, .rot = 64, .block = 16, .context = 1000, .kv = DT_FP32}, rows,
              6);
        check(level,
              &(Shape){.H = 3, .G = 1, .E = 24, .rot = 24, .block = 128, .context = 1000, .window = 300, .kv = DT_BF16},
              rows, 6);
        check(level, &(Shape){.H = 20, .G = 1, .E = 16, .rot = 16, .block = 32, .context = 1000, .kv = DT_FP16}, rows,
              6);
        check(level, &(Shape){.H = 6, .G = 3, .E = 64, .rot = 64, .block = 16, .context = 1000, .kv = DT_INT8}, rows,
              6);
        check(level, &(Shape){.H = 4, .G = 2, .E = 40, .rot = 40, .block = 8, .context = 1000, .kv = DT_FP8}, rows, 6);
    }
}

/* Rows that no model should bring, as codes: byte for byte those of the reference. */
static void odd_rows(void **state)
{
    static const float rows[][4] = {
        {0.0f, -0.0f, 0.0f, 0.0f},
        {NAN, 1.0f, -1.0f, 0.5f},
        {INFINITY, -INFINITY, 65024.0f, 1.0f},
        {3e38f, -65024.0f, 511.9f, -512.1f},
        {1e-9f, -1e-9f, 0.0f, 1e-10f},        /* below the least scale */
        {1e-5f, -7e-6f, 4e-6f, 1e-7f},        /* a scale of few bits: codes above the largest */
        {127.0f, 0.5f, 1.5f, -2.5f},          /* ties of int8 */
        {448.0f, 0x1p-10f, 0x3p-10f, -17.0f}, /* ties of e4m3, below its least exponent and above it */
        {448.0f, 0x1.fp-7f, 247.9f, 15.7f},
    };
    static const DType types[] = {DT_INT8, DT_FP8};
    enum { N = sizeof rows / sizeof *rows, E = 4 };
    static const Row tokens[] = {{0, N}};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int t = 0; t < 2; t++) {
            const Shape s = {.H = 1, .G = 1, .E = E, .block = 8, .context = 16, .kv = types[t]};
            Setup u;

            setup(&u, &s, tokens, 1);
            for (int i = 0; i < N; i++)
                for (int h = 0; h < 3; h++)
                    memcpy(u.x + (i * 3 + h) * E, rows[i], sizeof rows[i]);
            void *k = malloc(u.cache), *v = malloc(u.cache);
            const RefCache cache = ref_of(&u, memcpy(k, u.k, u.cache), memcpy(v, u.v, u.cache));

            ref_append((RefTensor){u.x, DT_FP32}, NULL, u.token, u.T, 1, 0, &cache, u.q);
            append(&u, level, 2);
            assert_memory_equal(u.k, k, u.cache);
            assert_memory_equal(u.v, v, u.cache);
            free(k), free(v);
            teardown(&u);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_rows),
        cmocka_unit_test(shapes),
        cmocka_unit_test(windows_and_caps),
        cmocka_unit_test(long_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
