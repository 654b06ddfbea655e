/* test_cpu_bf16.c - linear_bf16, which rounds x to bf16, against the reference with rounded rows, and a row's bits whatever its
 * neighbours, tiles and threads. Of the forms with AVX512_BF16 and with the tiles of AMX the same text is tried with emulated
 * instructions, too, on any processor. Where the processor has them, its bits are those of the emulated ones. */
#include "cpu_test.h"

#include "amx_emulated.h"

#define linear emulated_linear /* not the names of the kernels that are linked */
#define linear_bf16 emulated_linear_bf16
#define linear_bf16_avx512bf16 emulated_linear_bf16_pairs
#define linear_bf16_amx emulated_linear_bf16_amx
#include "kernels/cpu/linear.c"
#undef linear
#undef linear_bf16
#undef linear_bf16_avx512bf16
#undef linear_bf16_amx

typedef struct Form {
    const char *name;
    CpuKernel *kernel; /* NULL: what FTX_CPU=name gives */
    int needs;         /* a level of the machine */
    int same;          /* the form of emulated instructions that has the same bits; 0: none */
} Form;

enum { EMULATED_TILES = 1, EMULATED_PAIRS };
static const Form forms[] = {
    {"plain", NULL, 0, 0},
    [EMULATED_TILES] = {"plain with emulated tiles", emulated_linear_bf16_amx_plain, 0, EMULATED_TILES},
#if defined __x86_64__
    [EMULATED_PAIRS] = {"avx512 with emulated pairs", emulated_linear_bf16_pairs_avx512, 2, EMULATED_PAIRS},
    {"avx2", NULL, 1, 0},
    {"avx512", NULL, 2, 0},
    {"avx512bf16", NULL, 3, EMULATED_PAIRS},
    {"amx", NULL, 4, EMULATED_TILES},
    {"avx2 with emulated tiles", emulated_linear_bf16_amx_avx2, 1, EMULATED_TILES},
    {"avx512 with emulated tiles", emulated_linear_bf16_amx_avx512, 2, EMULATED_TILES},
    {"avx2 with emulated pairs", emulated_linear_bf16_pairs_avx2, 1, 0},
#endif
    {"plain with emulated pairs", emulated_linear_bf16_pairs_plain, 0, 0},
};
enum { FORMS = sizeof forms / sizeof *forms };

static CpuKernel *named(const char *level)
{
    CpuKernel *k;

    setenv("FTX_CPU", level, 1);
    k = cpu_kernel("linear_bf16");
    unsetenv("FTX_CPU");
    assert_non_null(k);
    return k;
}

static CpuKernel *form_at(const Form *f)
{
    return f->kernel ? f->kernel : named(f->name);
}

/* Whether this machine runs a form: asked for a level that it lacks, it gives the best it has. */
static bool runs(const Form *f)
{
#if defined __x86_64__
    static const char *const all[] = {"plain", "avx2", "avx512", "avx512bf16", "amx"};

    for (int i = 1; i <= f->needs; i++)
        if (named(all[i]) == named(all[i - 1]))
            return false;
#endif
    return f->needs >= 0;
}

typedef struct Case {
    int M, N, K;
    int bias, residual, kind, glu;
} Case;

typedef struct Data { /* arrays of exactly the size, so that a sanitizer sees a read past their ends */
    float *x, *b, *r;
    void *w;
} Data;

static int width_of(const Case *c)
{
    return c->glu ? c->N / 2 : c->N;
}

static Data data_new(const Case *c)
{
    return (Data){.x = random_tensor((size_t)c->M * c->K, DT_FP32, 1.0f),
                  .b = random_tensor(c->N, DT_FP32, 1.0f),
                  .r = random_tensor((size_t)c->M * width_of(c), DT_FP32, 1.0f),
                  .w = random_tensor((size_t)c->N * c->K, DT_BF16, 1.0f)};
}

static void data_free(Data *d)
{
    free(d->x), free(d->b), free(d->r), free(d->w);
}

/* Rows [from, from + M). */
static void run(const Form *f, const Case *c, const Data *d, int from, int M, int threads, float *y)
{
    const int64_t k[] = {
        [LINEAR_BF16_N] = c->N, [LINEAR_BF16_K] = c->K, [LINEAR_BF16_KIND] = c->kind, [LINEAR_BF16_GLU] = c->glu};
    float *r = d->r + (size_t)from * width_of(c);
    void *const arg[] = {d->x + (size_t)from * c->K, d->w, c->bias ? d->b : NULL, c->residual ? r : NULL, y};

    memset(scratch, 0xff, sizeof scratch); /* NaN */
    if (threads)
        call(form_at(f), arg, k, M, 0, threads);
    else
        form_at(f)(&(CpuCall){.arg = arg, .k = k, .T = M, .threads = 1}); /* without scratch */
}

static void check(const Form *f, const Case *c)
{
    const size_t n = (size_t)c->M * c->K, width = (size_t)width_of(c), out = c->M * width;
    float *want = malloc(sizeof *want * c->M * c->N), *y = malloc(sizeof *y * out), *again = malloc(sizeof *y * out);
    Data d = data_new(c);
    uint16_t *rounded = malloc(n * sizeof *rounded);
    char what[200];

    for (size_t i = 0; i < n; i++)
        dtype_store(rounded, i, DT_BF16, d.x[i]);
    ref_linear((RefTensor){rounded, DT_BF16}, (RefTensor){d.w, DT_BF16}, (RefTensor){c->bias ? d.b : NULL, DT_FP32},
               c->M, c->N, c->K, want);
    if (c->glu)
        ref_glu((RefTensor){want, DT_FP32}, (FtxAct)c->kind, c->M, (int)width, want);
    else
        ref_act((RefTensor){want, DT_FP32}, (FtxAct)c->kind, (int64_t)out, want);
    if (c->residual)
        ref_add((RefTensor){want, DT_FP32}, (RefTensor){d.r, DT_FP32}, (int64_t)out, want);
    snprintf(what, sizeof what, "linear_bf16 %s M=%d N=%d K=%d bias=%d residual=%d kind=%d glu=%d", f->name, c->M, c->N,
             c->K, c->bias, c->residual, c->kind, c->glu);
    run(f, c, &d, 0, c->M, 1, y);
    assert_close(y, want, out, 3e-6, what);
    for (int m = 0; m < c->M; m += 1 + c->M / 3)
        for (int rows = 1; rows <= 18 && m + rows <= c->M; rows += 16) { /* alone, and in two tiles */
            run(f, c, &d, m, rows, 1 + m % 3, again);
            if (memcmp(again, y + (size_t)m * width, sizeof *y * width * rows) != 0)
                fail_msg("%s: row %d has other bits among %d", what, m, rows);
        }
    for (int threads = 0; threads < 40; threads += 1 + 2 * threads) { /* none: no scratch */
        memset(again, 0xff, sizeof *y * out);
        run(f, c, &d, 0, c->M, threads, again);
        if (memcmp(again, y, sizeof *y * out) != 0)
            fail_msg("%s: other bits on %d threads", what, threads);
    }
    if (f->same && !c->kind) { /* levels differ in activations */
        run(&forms[f->same], c, &d, 0, c->M, 1, again);
        if (memcmp(again, y, sizeof *y * out) != 0)
            fail_msg("%s: other bits than emulated", what);
    }
    data_free(&d);
    free(want), free(y), free(again), free(rounded);
}

/* Tiles, units and steps that are whole, one more, one less; K over several chunks of x. */
static void shapes(void **state)
{
    static const int rows[] = {1, 2, 15, 16, 17, 33, 50, 65, 128, 129, 150},
                     outputs[] = {1, 15, 16, 17, 32, 33, 47, 70, 100};
    static const int columns[] = {1, 2, 31, 32, 33, 64, 100, 512, 545};

    (void)state;
    for (const Form *f = forms; f < forms + FORMS; f++)
        for (int i = 0; i < 66 && runs(f); i++)
            check(f, &(Case){.M = rows[i % 11], .N = outputs[(i / 2 + i / 9) % 9], .K = columns[(i + i / 11) % 9]});
}

static void large(void **state)
{
    (void)state;
    for (const Form *f = forms; f < forms + FORMS; f++) {
        if (!runs(f))
            continue;
        check(f, &(Case){.M = 2, .N = 37, .K = 1024});
        check(f, &(Case){.M = 101, .N = 40, .K = 1100, .bias = 1});
        check(f, &(Case){.M = 128, .N = 33, .K = 1056, .residual = 1});
        check(f, &(Case){.M = 17, .N = 20, .K = 4200});
        check(f, &(Case){.M = 45, .N = 9, .K = 2049}); /* two chunks of pairs, rows that begin within a pair */
        check(f, &(Case){.M = 64, .N = 13, .K = 2050});
        check(f, &(Case){.M = 1, .N = 1200, .K = 64});
        check(f, &(Case){.M = 113, .N = 1300, .K = 40}); /* more units than there is room for sums */
    }
}

static void epilogues(void **state)
{
    (void)state;
    for (const Form *f = forms; f < forms + FORMS; f++)
        for (int kind = 0; kind < FTX_ACT_COUNT && runs(f); kind++)
            for (int M = 1; M < 60; M += 19) {
                Case c = {.M = M, .N = 134, .K = 24, .kind = kind, .bias = kind % 2};

                check(f, &c);
                c.glu = 1;
                check(f, &c);
                c.glu = 0;
                c.residual = 1;
                check(f, &c);
            }
}

/* Ties to even, the end of the range and what is no number, by rows of one element. */
static void rounding(void **state)
{
    static const float numbers[] = {
        1.0f, 0x1.01p0f, 0x1.03p0f, 0x1.01p0f + 0x1p-23f, -0x1.01p0f, 3.4028235e38f, -3.4e38f, 0.0f, 0x1p-120f,
        NAN,  INFINITY,  -INFINITY, 0x1.fffffep0f};
    enum { N = sizeof numbers / sizeof *numbers };

    (void)state;
    for (const Form *f = forms; f < forms + FORMS; f++)
        for (int M = 1; M <= 80 && runs(f); M += 79) {
            const uint16_t one = 0x3f80;
            float x[80], y[80];

            for (int i = 0; i < N; i++) {
                Data d = {.x = x, .w = (void *)(uintptr_t)&one};
                float want;
                uint16_t bits;

                for (int m = 0; m < M; m++)
                    x[m] = numbers[(i + m) % N];
                run(f, &(Case){.M = M, .N = 1, .K = 1}, &d, 0, M, 1, y);
                for (int m = 0; m < M; m++) {
                    dtype_store(&bits, 0, DT_BF16, x[m]);
                    want = dtype_load(&bits, 0, DT_BF16);
                    if (isnan(want) ? !isnan(y[m]) : y[m] != want)
                        fail_msg("%s: %a becomes %a, not %a", f->name, x[m], y[m], want);
                }
            }
        }
}

/* NaN and infinity stay in their own row and column. */
static void not_numbers(void **state)
{
    enum { M = 69, N = 50, K = 37 };

    (void)state;
    for (const Form *f = forms; f < forms + FORMS; f++) {
        const Case c = {.M = M, .N = N, .K = K};
        Data d = data_new(&c);
        float *y = malloc(sizeof *y * M * N);

        d.x[(M - 1) * K + K - 1] = NAN;
        dtype_store(d.w, (N - 1) * K + K - 1, DT_BF16, INFINITY);
        if (runs(f)) {
            run(f, &c, &d, 0, M, 3, y);
            for (int m = 0; m < M; m++)
                for (int n = 0; n < N; n++)
                    assert_int_equal(isfinite(y[m * N + n]), m < M - 1 && n < N - 1);
        }
        data_free(&d);
        free(y);
    }
}

/* Weights of all bits and x of all exponents: sums that cancel, leave the range, are subnormal. */
static void all_numbers(void **state)
{
    enum { M = 70, N = 40, K = 34 };
    const Case c = {.M = M, .N = N, .K = K};
    float *want = malloc(sizeof *want * M * N), *y = malloc(sizeof *y * M * N);
    Data d = data_new(&c);

    (void)state;
    for (const Form *f = forms; f < forms + FORMS; f++)
        for (int round = 0; round < 24 && f->same && runs(f); round++) {
            for (int i = 0; i < M * K; i++) { /* small ones in the first rounds; none that is subnormal */
                const uint32_t bits = random_bits() << 1 ^ random_bits(), most = round < 8 ? 40 : 256;
                const uint32_t x = (bits & 0x807fffff) | (1 + (bits >> 7) % (most - 1)) << 23;

                memcpy(&d.x[i], &x, sizeof x);
            }
            for (int i = 0; i < N * K; i++) {
                const uint32_t bits = random_bits(), small = (bits & 0x807f) | (bits >> 16) % 150 << 7;

                ((uint16_t *)d.w)[i] = (uint16_t)(round % 8 < 4 ? small : bits);
            }
            run(&forms[f->same], &c, &d, 0, M, 1, want);
            run(f, &c, &d, 0, M, 1, y);
            for (int i = 0; i < M * N; i++)
                if (isnan(want[i]) ? !isnan(y[i]) : memcmp(&y[i], &want[i], sizeof *y) != 0)
                    fail_msg("%s: row %d, column %d is %a, not %a", f->name, i / N, i % N, y[i], want[i]);
        }
    data_free(&d);
    free(want), free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),   cmocka_unit_test(large),       cmocka_unit_test(epilogues),
        cmocka_unit_test(rounding), cmocka_unit_test(not_numbers), cmocka_unit_test(all_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
