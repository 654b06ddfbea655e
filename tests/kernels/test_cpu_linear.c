/* test_cpu_linear.c - the CPU's linear kernel against the reference, and its promise that a row's bits
 * do not depend on the other rows or on threads. */
#include "cpu_test.h"

typedef struct Case {
    int M, N, K;
    DType type;
    int bias, residual, kind, glu;
} Case;

/* threads < 0: as many threads, to whom pieces are dealt out. */
static void run(int level, const Case *c, const float *x, void *w, const float *b, const float *r, int M, int threads,
                float *y)
{
    const int64_t k[] = {
        [LINEAR_N] = c->N, [LINEAR_K] = c->K, [LINEAR_W] = c->type, [LINEAR_KIND] = c->kind, [LINEAR_GLU] = c->glu};
    void *const arg[] = {(void *)x, w, c->bias ? (void *)b : NULL, c->residual ? (void *)r : NULL, y};

    memset(scratch, 0xff, sizeof scratch); /* NaN */
    if (threads < 0)
        call_dealt(kernel_at("linear", level), arg, k, M, 0, -threads);
    else
        call(kernel_at("linear", level), arg, k, M, 0, threads);
}

static void without_scratch(int level, const Case *c, const float *x, void *w, const float *b, const float *r, float *y)
{
    const int64_t k[] = {
        [LINEAR_N] = c->N, [LINEAR_K] = c->K, [LINEAR_W] = c->type, [LINEAR_KIND] = c->kind, [LINEAR_GLU] = c->glu};
    void *const arg[] = {(void *)x, w, c->bias ? (void *)b : NULL, c->residual ? (void *)r : NULL, y};

    kernel_at("linear", level)(&(CpuCall){.arg = arg, .k = k, .T = c->M, .threads = 1});
}

static void check(int level, const Case *c)
{
    const int width = c->glu ? c->N / 2 : c->N;
    float *x = random_tensor((size_t)c->M * c->K, DT_FP32, 1.0f), *b = random_tensor(c->N, DT_FP32, 1.0f);
    float *r = random_tensor((size_t)c->M * width, DT_FP32, 1.0f);
    float *want = malloc(sizeof *want * c->M * c->N), *y = malloc(sizeof *y * c->M * width);
    float *alone = malloc(sizeof *y * width);
    void *w = random_tensor((size_t)c->N * c->K, c->type, 1.0f);
    char what[200];

    ref_linear((RefTensor){x, DT_FP32}, (RefTensor){w, c->type}, (RefTensor){c->bias ? b : NULL, DT_FP32}, c->M, c->N,
               c->K, want);
    if (c->glu)
        ref_glu((RefTensor){want, DT_FP32}, (FtxAct)c->kind, c->M, width, want);
    else
        ref_act((RefTensor){want, DT_FP32}, (FtxAct)c->kind, (int64_t)c->M * width, want);
    if (c->residual)
        ref_add((RefTensor){want, DT_FP32}, (RefTensor){r, DT_FP32}, (int64_t)c->M * width, want);
    snprintf(what, sizeof what, "linear %s M=%d N=%d K=%d %s bias=%d residual=%d kind=%d glu=%d", levels[level], c->M,
             c->N, c->K, dtype_name(c->type), c->bias, c->residual, c->kind, c->glu);

    run(level, c, x, w, b, r, c->M, 1, y);
    assert_close(y, want, (size_t)c->M * width, 3e-6, what);

    /* The same rows alone, and on more threads than there is work: the same bits. */
    for (int m = 0; m < c->M; m += 1 + c->M / 3) {
        run(level, c, x + (size_t)m * c->K, w, b, r + (size_t)m * width, 1, 1 + m % 3, alone);
        assert_memory_equal(alone, y + (size_t)m * width, sizeof *y * width);
    }
    memcpy(want, y, sizeof *y * c->M * width);
    static const int others[] = {5, 33, -1, -2};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        memset(y, 0xff, sizeof *y * c->M * width);
        run(level, c, x, w, b, r, c->M, others[i], y);
        assert_memory_equal(y, want, sizeof *y * c->M * width);
    }
    without_scratch(level, c, x, w, b, r, y);
    assert_memory_equal(y, want, sizeof *y * c->M * width);
    free(x), free(b), free(r), free(want), free(y), free(alone), free(w);
}

static void widths(void **state)
{
    static const int rows[] = {1, 2, 3, 5, 6, 7, 13, 50}, sizes[] = {1, 2, 7, 17, 33, 112, 300};
    static const DType types[] = {DT_FP32, DT_FP16, DT_BF16};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
            for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
                const int K = sizes[(n + m) % 7];

                check(level, &(Case){.M = rows[m], .N = sizes[n], .K = K, .type = types[(m + n) % 3]});
            }
}

/* K over several chunks, rows over several blocks. */
static void large(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        check(level, &(Case){.M = 2, .N = 37, .K = 1024, .type = DT_BF16});
        check(level, &(Case){.M = 8, .N = 21, .K = 2051, .type = DT_BF16, .bias = 1});
        check(level, &(Case){.M = 1, .N = 9, .K = 9000, .type = DT_FP16});
        check(level, &(Case){.M = 101, .N = 130, .K = 40, .type = DT_BF16, .residual = 1});
        check(level, &(Case){.M = 50, .N = 18, .K = 8200, .type = DT_BF16});
    }
}

/* Blocks and panels that are whole, one more, one less; odd numbers of vectors in a chunk of K. */
static void many_rows(void **state)
{
    static const int rows[] = {24, 49, 69, 128, 129, 200}, widths[] = {1, 23, 48, 193};
    static const int depths[] = {1, 15, 16, 40, 100, 1024, 1040, 1025};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
            for (size_t n = 0; n < sizeof widths / sizeof *widths; n++) {
                const Case c = {.M = rows[m],
                                .N = widths[n],
                                .K = depths[(m + 3 * n + (size_t)level) % 8],
                                .type = (DType)(DT_FP32 + (m + n) % 3),
                                .bias = n % 2,
                                .residual = m % 2,
                                .kind = (int)((m + 2 * n) % 4) /* none, ReLU, GELU by erf and by tanh */};

                check(level, &c);
            }
}

/* Each piece is done once, whichever thread is done first; without a count each thread does its own. */
static void dealing(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 7; threads++)
        for (int n = 0; n < 50; n++)
            for (int turn = 1; turn <= 3; turn++) {
                int64_t own[7] = {0}, at;
                int32_t taken = 0;
                int done[50] = {0}, ended = 0, dealt = 0;

                for (int step = 0; ended < threads; step++) {
                    const int i = turn == 1   ? step % threads
                                  : turn == 2 ? step * 3 / 4 % threads
                                              : threads - 1 - step % threads;
                    CpuCall c = {.thread = i, .threads = threads, .taken = &taken};

                    at = own[i] < 0 ? -1 : cpu_take(&c, n, &own[i]);
                    if (at < 0) {
                        ended += own[i] >= 0;
                        own[i] = -1;
                        continue;
                    }
                    assert_in_range(at, 0, n - 1);
                    done[at]++;
                    dealt++;
                }
                assert_int_equal(dealt, n);
                for (int i = 0; i < n; i++)
                    assert_int_equal(done[i], 1);
                for (int i = 0; i < threads; i++) {
                    CpuCall c = {.thread = i, .threads = threads};
                    int64_t first, last, mine = 0;

                    cpu_share(&c, n, &first, &last);
                    while ((at = cpu_take(&c, n, &mine)) >= 0)
                        assert_int_equal(at, first++);
                    assert_int_equal(first, last);
                }
            }
}

/* NaN and infinity stay in their own row and column: what is computed beyond the last row or column touches no other. */
static void not_numbers(void **state)
{
    enum { M = 69, N = 50, K = 37 };

    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        const Case c = {.M = M, .N = N, .K = K, .type = DT_FP32};
        float *x = random_tensor(M * K, DT_FP32, 1.0f), *w = random_tensor(N * K, DT_FP32, 1.0f);
        float *y = malloc(sizeof *y * M * N);

        x[(M - 1) * K + K - 1] = NAN;
        w[(N - 1) * K + K - 1] = INFINITY;
        run(level, &c, x, w, NULL, NULL, M, 3, y);
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++)
                assert_int_equal(isfinite(y[m * N + n]), m < M - 1 && n < N - 1);
        free(x), free(w), free(y);
    }
}

static void epilogues(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int kind = 0; kind < FTX_ACT_COUNT; kind++)
            for (int bias = 0; bias < 2; bias++)
                for (int M = 1; M < 60; M += 19) {
                    const Case base = {.M = M, .N = 134, .K = 24, .type = DT_BF16, .bias = bias, .kind = kind};
                    Case c = base;

                    check(level, &c);
                    c.glu = 1;
                    check(level, &c);
                    c.glu = 0;
                    c.residual = 1;
                    check(level, &c);
                }
}

/* Every fp16 and bf16 number is read as what it is (NaN aside). */
static void conversions(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (DType type = DT_FP16; type <= DT_BF16; type++) {
            enum { N = 65536 };
            uint16_t *w = malloc(N * sizeof *w);
            float *y = malloc(N * sizeof *y);
            const float one = 1.0f;
            const Case c = {.M = 1, .N = N, .K = 1, .type = type};

            for (int i = 0; i < N; i++)
                w[i] = (uint16_t)i;
            run(level, &c, &one, w, NULL, NULL, 1, 1, y);
            for (size_t i = 0; i < N; i++) {
                const float want = dtype_load(w, i, type);

                if (!isnan(want) && y[i] != want)
                    fail_msg("%s %s %04zx: %g, should be %g", levels[level], dtype_name(type), i, y[i], want);
            }
            free(w), free(y);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths),      cmocka_unit_test(large),       cmocka_unit_test(many_rows),
        cmocka_unit_test(dealing),     cmocka_unit_test(not_numbers), cmocka_unit_test(epilogues),
        cmocka_unit_test(conversions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
