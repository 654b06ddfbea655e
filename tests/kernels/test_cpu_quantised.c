/* test_cpu_quantised.c - the CPU's kernels of quantised weights against the reference: codes of activations bit by bit,
 * products within the rounding of fp32, and a row's bits whatever its neighbours, tiles and threads; every code of fp8. Of the form with the tiles
 * of AMX the same text is tried with emulated instructions, too, on any processor. */
#include "cpu_test.h"

#include "amx_emulated.h"
#include "quantised.h"

#define linear_q emulated_linear_q /* not the names of the kernels that are linked */
#include "kernels/cpu/linear_q.c"
#undef linear_q

/* Forms of linear_q with tiles, and the level whose bits they must have: of this processor, or emulated. */
static const struct {
    const char *name;
    CpuKernel *kernel; /* NULL: what FTX_CPU=name gives */
    int below;
} tiled[] = {
    {"plain with emulated tiles", linear_q_amx_plain, 0},
#if defined __x86_64__
    {"avx2 with emulated tiles", linear_q_amx_avx2, 1},
    {"avx512 with emulated tiles", linear_q_amx_avx512, 2},
    {"amx", NULL, 2},
#endif
};
enum { FORMS = LEVELS + sizeof tiled / sizeof *tiled };

/* Of the levels, those that this machine has. */
static int level_count(void)
{
    int n = 1;

    while (n < LEVELS && kernel_at("linear_q", n) != kernel_at("linear_q", n - 1))
        n++;
    return n;
}

/* A level's form; from LEVELS on one with tiles. */
static CpuKernel *form_at(int form)
{
    CpuKernel *k;

    if (form < LEVELS)
        return kernel_at("linear_q", form);
    if (tiled[form - LEVELS].kernel)
        return tiled[form - LEVELS].kernel;
    setenv("FTX_CPU", tiled[form - LEVELS].name, 1);
    k = cpu_kernel("linear_q");
    unsetenv("FTX_CPU");
    return k;
}

static const char *form_name(int form)
{
    return form < LEVELS ? levels[form] : tiled[form - LEVELS].name;
}

/* The level whose bits this form must have; -1: its own. */
static int form_below(int form)
{
    if (form >= LEVELS)
        return tiled[form - LEVELS].below;
#if defined __aarch64__
    return 0; /* levels differ in the products of bytes alone, which are exact */
#else
    return -1;
#endif
}

/* Whether this machine runs a form. */
static bool form_runs(int form)
{
    if (form < LEVELS)
        return form < level_count();
    return tiled[form - LEVELS].below < level_count() &&
           form_at(form) != kernel_at("linear_q", tiled[form - LEVELS].below);
}

/* Rows [from, from + M) of x times the matrix. */
static void run(int level, const Case *c, const Rows *x, const Matrix *w, const float *b, const float *r, int from,
                int M, int threads, float *y)
{
    const int64_t k[] = {
        [LINEAR_Q_N] = c->N,         [LINEAR_Q_K] = c->K,           [LINEAR_Q_W] = c->type,
        [LINEAR_Q_GROUP] = c->group, [LINEAR_Q_SCALES] = c->scales, [LINEAR_Q_XGROUP] = c->exact ? 0 : x->group,
        [LINEAR_Q_KIND] = c->kind,   [LINEAR_Q_GLU] = c->glu};
    const size_t at = (size_t)from * c->K, width = c->glu ? c->N / 2 : c->N;
    void *const arg[] = {c->exact ? (void *)(x->x + at) : x->codes + at,
                         c->exact ? NULL : x->scales + at / x->group,
                         c->exact ? NULL : x->sums + at / 32,
                         w->tiles,
                         c->bias ? (void *)b : NULL,
                         c->residual ? (void *)(r + from * width) : NULL,
                         y};

    call(form_at(level), arg, k, M, 0, threads);
}

static void check(int level, const Case *c)
{
    const int width = c->glu ? c->N / 2 : c->N;
    const size_t n = (size_t)c->M * c->K, out = (size_t)c->M * width;
    float *b = random_tensor(c->N, DT_FP32, 1.0f), *r = random_tensor(out, DT_FP32, 1.0f);
    float *want = malloc(sizeof *want * c->M * c->N), *y = malloc(sizeof *y * out), *alone = malloc(sizeof *y * width);
    Rows x = rows_new(c->M, c->K);
    Matrix w = matrix_new(c);
    char what[200];

    if (!c->exact) {
        quantise(level < LEVELS ? level : 0, &x, c->M, c->K, 2);
        for (size_t i = 0; i < n; i++)
            x.x[i] = (float)x.codes[i] * x.scales[i / x.group];
    }
    ref_linear((RefTensor){x.x, DT_FP32}, (RefTensor){w.values, DT_FP32}, (RefTensor){c->bias ? b : NULL, DT_FP32},
               c->M, c->N, c->K, want);

    const double sums = largest_of(want, (size_t)c->M * c->N); /* an activation may leave little of them */

    if (c->glu)
        ref_glu((RefTensor){want, DT_FP32}, (FtxAct)c->kind, c->M, width, want);
    else
        ref_act((RefTensor){want, DT_FP32}, (FtxAct)c->kind, (int64_t)out, want);
    if (c->residual)
        ref_add((RefTensor){want, DT_FP32}, (RefTensor){r, DT_FP32}, (int64_t)out, want);
    snprintf(what, sizeof what,
             "linear_q %s M=%d N=%d K=%d %s group=%d scales=%d exact=%d bias=%d residual=%d kind=%d glu=%d",
             form_name(level), c->M, c->N, c->K, dtype_name(c->type), c->group, c->scales, c->exact, c->bias,
             c->residual, c->kind, c->glu);
    run(level, c, &x, &w, b, r, 0, c->M, 1, y);
    assert_within(y, want, out, 3e-6 * (sums > largest_of(want, out) ? sums : largest_of(want, out)), what);
    for (int m = 0; m < c->M; m += 1 + c->M / 3) {
        run(level, c, &x, &w, b, r, m, 1, 1 + m % 3, alone);
        if (memcmp(alone, y + (size_t)m * width, sizeof *y * width) != 0)
            fail_msg("%s: row %d has other bits alone", what, m);
    }
    memcpy(want, y, sizeof *y * out);
    run(level, c, &x, &w, b, r, 0, c->M, 5, y);
    assert_memory_equal(y, want, sizeof *y * out);
    if (form_below(level) >= 0) {
        run(form_below(level), c, &x, &w, b, r, 0, c->M, 1, y);
        if (memcmp(y, want, sizeof *y * out) != 0)
            fail_msg("%s: other bits than %s", what, levels[form_below(level)]);
    }
    rows_free(&x);
    matrix_free(&w);
    free(b), free(r), free(want), free(y), free(alone);
}

static void shapes(void **state)
{
    static const int rows[] = {1, 2, 3, 5, 6, 7, 13, 50}, outputs[] = {1, 15, 16, 17, 48, 100};
    static const int columns[] = {32, 64, 96, 128, 192, 384};

    (void)state;
    for (int level = 0; level < level_count(); level++)
        for (int i = 0; i < 96; i++) {
            const int K = columns[i % 6];
            int group = 16 << i / 6 % 4;

            while (K % group)
                group /= 2;
            check(level, &(Case){.M = rows[i % 8],
                                 .N = outputs[i / 2 % 6],
                                 .K = K,
                                 .group = group,
                                 .type = i / 3 % 2 ? DT_INT4 : DT_INT8,
                                 .scales = (PackedScales)(i / 5 % 4),
                                 .exact = i / 16 % 2});
        }
}

/* K over several chunks, rows of x over several blocks. */
static void large(void **state)
{
    (void)state;
    for (int level = 0; level < level_count(); level++)
        for (int exact = 0; exact < 2; exact++) {
            check(level, &(Case){.M = 9, .N = 40, .K = 2176, .group = 128, .type = DT_INT8, .exact = exact});
            check(level, &(Case){.M = 101,
                                 .N = 70,
                                 .K = 64,
                                 .group = 32,
                                 .type = DT_INT4,
                                 .scales = PACKED_FP16_ZEROS,
                                 .exact = exact});
            check(level, &(Case){.M = 50,
                                 .N = 40,
                                 .K = 2176,
                                 .group = 16,
                                 .type = DT_INT8,
                                 .scales = PACKED_FP32_MINIMA,
                                 .exact = exact});
            check(level, &(Case){.M = 1, .N = 200, .K = 4096, .group = 64, .type = DT_INT4, .exact = exact});
        }
}

/* Many rows of x: tiles of 1 to 16 of them, two tiles and one, blocks of up to 128; K over several panels, the last one short;
 * each way to hold weights. */
static void many_rows(void **state)
{
    static const int rows[] = {16, 17, 31, 32, 33, 47, 65, 100, 128, 129, 150};
    static const int outputs[] = {16, 32, 33, 70, 96}, columns[] = {64, 128, 512, 640, 1152, 1056, 544};

    (void)state;
    for (int form = 0; form < FORMS; form++) {
        for (int i = 0; i < 72 && form_runs(form); i++) {
            const int K = columns[i % 7];
            int group = 16 << i / 2 % 4;

            while (K % group)
                group /= 2;
            check(form, &(Case){.M = rows[i % 11],
                                .N = outputs[i % 5],
                                .K = K,
                                .group = group,
                                .type = i / 3 % 2 ? DT_INT4 : DT_INT8,
                                .scales = (PackedScales)(i / 8 % 4),
                                .exact = i % 19 == 18,
                                .bias = i % 3 == 0,
                                .residual = i % 4 == 0,
                                .kind = i % 8 == 2 ? FTX_ACT_SILU : FTX_ACT_NONE,
                                .glu = i % 8 == 2 && outputs[i % 5] % 2 == 0});
        }
    }
}

/* fp8: rows of fp32, few and many, K over several chunks, scales in fp16 and fp32, epilogues. */
static void numbers(void **state)
{
    static const int rows[] = {1, 2, 3, 5, 6, 7, 13, 50, 101}, outputs[] = {1, 15, 16, 17, 48, 100, 130};
    static const int columns[] = {16, 32, 96, 128, 192, 384, 2176, 1040};

    (void)state;
    for (int level = 0; level < level_count(); level++)
        for (int i = 0; i < 72; i++) {
            const int K = columns[i % 8];
            int group = 16 << i / 8 % 4;

            while (K % group)
                group /= 2;
            check(level, &(Case){.M = rows[i % 9],
                                 .N = outputs[i % 7],
                                 .K = K,
                                 .group = group,
                                 .type = DT_FP8,
                                 .scales = i % 3 ? PACKED_FP32 : PACKED_FP16,
                                 .exact = true,
                                 .bias = i % 4 == 1,
                                 .residual = i % 6 == 2,
                                 .kind = i % 6 == 3 ? FTX_ACT_SILU : FTX_ACT_NONE,
                                 .glu = i % 6 == 3 && outputs[i % 7] % 2 == 0});
        }
}

/* Each of the 256 codes of e4m3 gives its number times the scale, exactly: those of zero, below the least exponent, the largest. */
static void every_number(void **state)
{
    enum { K = 256 };
    const Case c = {.M = 1, .N = 16, .K = K, .group = 128, .type = DT_FP8, .scales = PACKED_FP32, .exact = true};
    Matrix w = matrix_new(&c);
    Rows x = rows_new(1, K);
    (void)state;

    for (int n = 0; n < 16; n++)
        for (int k = 0; k < K; k++) {
            int shift;

            *code_at(&c, w.tiles, 0, n, k, &shift) = (uint8_t)(k + n);
        }
    for (int level = 0; level < level_count(); level++)
        for (int k = 0; k < K; k++) {
            float y[16];

            memset(x.x, 0, K * sizeof *x.x);
            x.x[k] = 1.0f;
            run(level, &c, &x, &w, NULL, NULL, 0, 1, 1, y);
            for (int n = 0; n < 16; n++)
                if (y[n] != (float)ref_e4m3((k + n) % 256) * w.scales[n * 2 + k / 128])
                    fail_msg("%s: code %d of row %d gives %g", levels[level], (k + n) % 256, n, (double)y[n]);
        }
    rows_free(&x);
    matrix_free(&w);
}

static void epilogues(void **state)
{
    (void)state;
    for (int level = 0; level < level_count(); level++)
        for (int kind = 0; kind <= FTX_ACT_TANH; kind++)
            for (int M = 1; M < 60; M += 19) {
                Case c = {.M = M, .N = 134, .K = 64, .group = 32, .type = kind % 2 ? DT_INT8 : DT_INT4, .kind = kind};

                c.bias = kind % 3 == 0;
                check(level, &c);
                c.glu = 1;
                check(level, &c);
                c.glu = 0;
                c.residual = 1;
                check(level, &c);
            }
}

/* The largest sums of integers: every code at an end of its range, for each number of rows of x in a tile. */
static void extremes(void **state)
{
    enum { M = 17 };
    (void)state;
    for (int level = 0; level < FORMS; level++)
        for (int i = 0; i < 8 * M && form_runs(level); i++) {
            const int rows = 1 + i / 8, sign = i / 4 % 2 ? -1 : 1;
            const Case c = {.M = rows, .N = 16, .K = 128, .group = 128, .type = i / 2 % 2 ? DT_INT4 : DT_INT8};
            Matrix w = matrix_new(&c);
            Rows x = rows_new(rows, c.K);
            float y[M * 16];

            memset(w.tiles, i % 2 ? 0 : 255, packed_codes(c.type, c.K));
            for (int k = 0; k < rows * c.K; k++)
                x.x[k] = (float)(sign * (1 + k / c.K));
            quantise(level < LEVELS ? level : 0, &x, rows, c.K, 1);
            run(level, &c, &x, &w, NULL, NULL, 0, rows, 1, y);
            for (int n = 0; n < rows * 16; n++) {
                const int code = i % 2 ? 0 : c.type == DT_INT4 ? 15 : 255;
                const double want =
                    (code - (double)packed_zero(c.type)) * sign * 128 * 127 * x.scales[n / 16] * w.scales[n % 16];

                assert_true(fabs(y[n] - want) <= 1e-6 * fabs(want));
            }
            rows_free(&x);
            matrix_free(&w);
        }
}

static void codes(void **state)
{
    enum { M = 7, K = 256 };
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int threads = 1; threads < 4; threads++) {
            Rows x = rows_new(M, K);
            int8_t want[M * K];
            float scales[M * K / 128];
            int32_t sums[M * K / 32];

            for (int i = 0; i < 128; i++) {
                x.x[2 * 128 + i] = 0.0f;
                x.x[3 * 128 + i] = i == 77 ? -1e-35f : 0.0f; /* below the smallest scale */
                x.x[4 * 128 + i] = i == 5 ? NAN : 1.0f;      /* not finite: no value of the product is */
                x.x[5 * 128 + i] = i == 127 ? -INFINITY : 3e38f;
                x.x[6 * 128 + i] = (float)(i - 64) * 0.5f + 63.5f; /* ties */
            }
            quantise(level, &x, M, K, threads);
            ref_quantise(x.x, M, K, 128, want, scales, sums);
            assert_memory_equal(x.codes, want, sizeof want);
            assert_memory_equal(x.sums, sums, sizeof sums);
            for (size_t g = 0; g < sizeof scales / sizeof *scales; g++)
                assert_true(isnan(scales[g]) ? isnan(x.scales[g]) : x.scales[g] == scales[g]);
            rows_free(&x);
        }
}

/* test_cpu_quantised [WORD]: cpu_features() ends with it, so the machine's form is the one that was meant. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),    cmocka_unit_test(large),        cmocka_unit_test(many_rows),
        cmocka_unit_test(epilogues), cmocka_unit_test(extremes),     cmocka_unit_test(codes),
        cmocka_unit_test(numbers),   cmocka_unit_test(every_number),
    };
    const char *features = cpu_features(), *last = strrchr(features, ' ');

    if (argc > 1 && strcmp(last ? last + 1 : features, argv[1]) != 0) {
        fprintf(stderr, "the kernels are those for %s, not for %s\n", features, argv[1]);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
