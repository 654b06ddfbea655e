/* test_cpu_experts_q.c - expert_linear_q and expert_sum_q of the CPU against the reference with what the codes stand for, and a
 * row's bits whatever its neighbours, threads and scratch. Of the form with the tiles of AMX the same text is tried with
 * emulated instructions, too, on any processor. */
#include "cpu_test.h"

#include "amx_emulated.h"
#include "quantised.h"

#define expert_linear_q emulated_expert_linear_q /* not the names of the kernels that are linked */
#define expert_sum_q emulated_expert_sum_q
#include "kernels/cpu/experts_q.c"
#undef expert_linear_q
#undef expert_sum_q

/* Forms with tiles, and the level whose bits they must have: of this processor, or emulated. */
static const struct {
    const char *name;
    CpuKernel *linear, *sum; /* NULL: what FTX_CPU=name gives */
    int below;
} tiled[] = {
    {"plain with emulated tiles", expert_linear_q_amx_plain, expert_sum_q_amx_plain, 0},
#if defined __x86_64__
    {"avx2 with emulated tiles", expert_linear_q_amx_avx2, expert_sum_q_amx_avx2, 1},
    {"avx512 with emulated tiles", expert_linear_q_amx_avx512, expert_sum_q_amx_avx512, 2},
    {"amx", NULL, NULL, 2},
#endif
};
enum { FORMS = LEVELS + sizeof tiled / sizeof *tiled };

/* A level's form; from LEVELS on one with tiles. */
static CpuKernel *form_at(int form, bool sum)
{
    const char *family = sum ? "expert_sum_q" : "expert_linear_q";
    CpuKernel *k;

    if (form < LEVELS)
        return kernel_at(family, form);
    k = sum ? tiled[form - LEVELS].sum : tiled[form - LEVELS].linear;
    if (!k) {
        setenv("FTX_CPU", tiled[form - LEVELS].name, 1);
        k = cpu_kernel(family);
        unsetenv("FTX_CPU");
    }
    return k;
}

/* Whether this machine runs a form: asked for a level that it lacks, it gives the best it has. */
static bool runs(int form)
{
    const int level = form < LEVELS ? form : tiled[form - LEVELS].below;

    for (int i = 1; i <= level; i++)
        if (form_at(i, true) == form_at(i - 1, true))
            return false;
    return form < LEVELS || form_at(form, true) != form_at(level, true);
}

enum { MAX_PAIRS = 300, MAX_EXPERTS = 16 };

typedef struct Mixture {
    Case matrix; /* N: of all experts */
    int M, X, R;
    bool sum;
    int32_t routes[2 * MAX_PAIRS], starts[MAX_EXPERTS + 1], rows[MAX_PAIRS];
    float *b, *r;
    Matrix w;
    Rows x;
} Mixture;

static int outputs_of(const Mixture *m) /* of an expert */
{
    return m->matrix.N / m->X;
}

static int columns_of(const Mixture *m) /* of a row of y */
{
    const int N = outputs_of(m);

    return m->sum ? N : m->R * (m->matrix.glu ? N / 2 : N);
}

/* R experts of each row that differ, of which the first ones are the likely ones; and their weights. */
static void draw_routes(Mixture *m)
{
    assert_true(m->M * m->R <= MAX_PAIRS && m->X <= MAX_EXPERTS);
    for (int row = 0; row < m->M; row++)
        for (int i = 0; i < m->R; i++) {
            const float weight = 0.5f + random_float() / 4;
            int32_t *e = &m->routes[row * 2 * m->R];
            bool taken = true;

            for (e[i] = random_below(1 + random_below(m->X)); taken; e[i] = taken ? (e[i] + 1) % m->X : e[i]) {
                taken = false;
                for (int k = 0; k < i; k++)
                    taken |= e[k] == e[i];
            }
            memcpy(&e[m->R + i], &weight, sizeof weight);
        }
}

/* The pairs of each expert of rows [from, from + M). */
static void group_rows(Mixture *m, int from, int M)
{
    int n = 0;

    for (int e = 0; e < m->X; e++) {
        m->starts[e] = n;
        for (int pair = 0; pair < M * m->R; pair++)
            if (m->routes[(from + pair / m->R) * 2 * m->R + pair % m->R] == e)
                m->rows[n++] = pair;
    }
    m->starts[m->X] = n;
}

/* Rows [from, from + M) as a step of their own; threads 0: one, without scratch. */
static void run(int form, Mixture *m, int from, int M, int threads, float *y)
{
    const Case *c = &m->matrix;
    const int64_t linear[] = {
        [EXPERT_LINEAR_Q_X] = m->X,           [EXPERT_LINEAR_Q_N] = outputs_of(m),
        [EXPERT_LINEAR_Q_K] = c->K,           [EXPERT_LINEAR_Q_R] = m->R,
        [EXPERT_LINEAR_Q_W] = c->type,        [EXPERT_LINEAR_Q_GROUP] = c->group,
        [EXPERT_LINEAR_Q_SCALES] = c->scales, [EXPERT_LINEAR_Q_XGROUP] = c->exact ? 0 : m->x.group,
        [EXPERT_LINEAR_Q_KIND] = c->kind,     [EXPERT_LINEAR_Q_GLU] = c->glu};
    const int64_t sum[] = {[EXPERT_SUM_Q_X] = m->X,           [EXPERT_SUM_Q_N] = outputs_of(m),
                           [EXPERT_SUM_Q_K] = c->K,           [EXPERT_SUM_Q_R] = m->R,
                           [EXPERT_SUM_Q_W] = c->type,        [EXPERT_SUM_Q_GROUP] = c->group,
                           [EXPERT_SUM_Q_SCALES] = c->scales, [EXPERT_SUM_Q_XGROUP] = c->exact ? 0 : m->x.group,
                           [EXPERT_SUM_Q_ROWS_S] = 0};
    const size_t at = (size_t)from * c->K * (m->sum ? m->R : 1);
    void *const arg[] = {c->exact ? (void *)(m->x.x + at) : m->x.codes + at,
                         c->exact ? NULL : m->x.scales + at / m->x.group,
                         c->exact ? NULL : m->x.sums + at / 32,
                         m->routes + from * 2 * m->R,
                         m->starts,
                         m->rows,
                         m->w.tiles,
                         c->bias ? m->b : NULL,
                         !m->sum       ? (void *)y
                         : c->residual ? m->r + (size_t)from * columns_of(m)
                                       : NULL,
                         y};
    const int64_t *k = m->sum ? sum : linear;

    group_rows(m, from, M);
    memset(scratch, 0xff, sizeof scratch); /* NaN */
    if (threads)
        call(form_at(form, m->sum), arg, k, M, 0, threads);
    else
        form_at(form, m->sum)(&(CpuCall){.arg = arg, .k = k, .T = M, .threads = 1});
}

static void check(int form, Mixture m)
{
    Case *c = &m.matrix;
    const int N = outputs_of(&m), width = columns_of(&m), x_rows = m.M * (m.sum ? m.R : 1);
    const size_t out = (size_t)m.M * width;
    float *want = malloc(sizeof *want * m.M * m.R * N), *y = malloc(sizeof *y * out), *again = malloc(sizeof *y * out);
    char what[200];

    m.b = random_tensor(c->N, DT_FP32, 1.0f);
    m.r = random_tensor(out, DT_FP32, 1.0f);
    m.w = matrix_new(c);
    m.x = rows_new(x_rows, c->K);
    draw_routes(&m);
    if (!c->exact) {
        quantise(form < LEVELS ? form : 0, &m.x, x_rows, c->K, 2);
        for (size_t i = 0; i < (size_t)x_rows * c->K; i++)
            m.x.x[i] = (float)m.x.codes[i] * m.x.scales[i / m.x.group];
    }
    (m.sum ? ref_expert_sum : ref_expert_linear)((RefTensor){m.x.x, DT_FP32}, m.routes,
                                                 (RefTensor){m.w.values, DT_FP32},
                                                 (RefTensor){c->bias ? m.b : NULL, DT_FP32}, m.M, m.R, N, c->K, want);

    const double sums =
        largest_of(want, (size_t)m.M * (m.sum ? 1 : m.R) * N); /* an activation may leave little of them */

    if (!m.sum && c->glu)
        ref_glu((RefTensor){want, DT_FP32}, (FtxAct)c->kind, m.M * m.R, N / 2, want);
    else if (!m.sum)
        ref_act((RefTensor){want, DT_FP32}, (FtxAct)c->kind, (int64_t)out, want);
    else if (c->residual)
        ref_add((RefTensor){want, DT_FP32}, (RefTensor){m.r, DT_FP32}, (int64_t)out, want);
    snprintf(what, sizeof what, "%s %s M=%d X=%d R=%d N=%d K=%d %s group=%d scales=%d exact=%d",
             m.sum ? "expert_sum_q" : "expert_linear_q", form < LEVELS ? levels[form] : tiled[form - LEVELS].name, m.M,
             m.X, m.R, N, c->K, dtype_name(c->type), c->group, c->scales, c->exact);
    run(form, &m, 0, m.M, 1, y);
    assert_within(y, want, out, 4e-6 * (sums > largest_of(want, out) ? sums : largest_of(want, out)), what);
    for (int row = 0; row < m.M; row += 1 + m.M / 3) {
        run(form, &m, row, 1, 1 + row % 3, again);
        if (memcmp(again, y + (size_t)row * width, sizeof *y * width) != 0)
            fail_msg("%s: row %d has other bits alone", what, row);
    }
    for (int threads = 0; threads < 10; threads += 3) { /* none: no scratch */
        memset(again, 0xff, sizeof *y * out);
        run(form, &m, 0, m.M, threads, again);
        if (memcmp(again, y, sizeof *y * out) != 0)
            fail_msg("%s: other bits on %d threads", what, threads);
    }
    if (form >= LEVELS) {
        run(tiled[form - LEVELS].below, &m, 0, m.M, 1, again);
        if (memcmp(again, y, sizeof *y * out) != 0)
            fail_msg("%s: other bits than %s", what, levels[tiled[form - LEVELS].below]);
    }
    rows_free(&m.x);
    matrix_free(&m.w);
    free(m.b), free(m.r), free(want), free(y), free(again);
}

/* One row to many of an expert, tiles of columns that do and do not fill a block, each way to hold weights; x as codes and not. */
static void shapes(void **state)
{
    static const int rows[] = {1, 2, 3, 7, 20, 60, 140}, outputs[] = {16, 32, 48, 80, 112};
    static const int columns[] = {32, 64, 96, 128, 384}, experts[] = {3, 8, 16};

    (void)state;
    for (int form = 0; form < FORMS; form++)
        for (int i = 0; i < 60 && runs(form); i++) {
            const int K = columns[i % 5], X = experts[i % 3];
            const bool sum = i % 2;
            Mixture m = {.M = rows[i % 7], .X = X, .R = 1 + i / 3 % 2, .sum = sum};
            int group = 16 << i / 5 % 4;

            while (K % group)
                group /= 2;
            m.matrix = (Case){.N = X * outputs[i / 2 % 5],
                              .K = K,
                              .group = group,
                              .type = i / 3 % 2 ? DT_INT4 : DT_INT8,
                              .scales = (PackedScales)(i / 7 % 4),
                              .exact = i % 5 == 4,
                              .bias = i / 2 % 2,
                              .residual = i % 4 == 1,
                              .kind = !sum && i % 3 == 0 ? FTX_ACT_SILU : FTX_ACT_NONE,
                              .glu = !sum && i % 3 == 0};
            check(form, m);
        }
}

/* More rows of an expert than are copied at once, for want of scratch and at all; fp8. */
static void large(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++)
        for (int sum = 0; sum < 2 && runs(form); sum++) {
            check(form, (Mixture){.M = 9,
                                  .X = 2,
                                  .R = 1,
                                  .sum = sum,
                                  .matrix = {.N = 32, .K = 32768, .group = 128, .type = DT_INT8, .exact = 1}});
            check(form, (Mixture){.M = 101,
                                  .X = 2,
                                  .R = 2,
                                  .sum = sum,
                                  .matrix = {.N = 64, .K = 2176, .group = 32, .type = DT_INT4}});
            check(form, (Mixture){.M = 21,
                                  .X = 3,
                                  .R = 2,
                                  .sum = sum,
                                  .matrix = {.N = 96, .K = 64, .group = 32, .type = DT_FP8, .exact = 1}});
        }
}

/* Numbers of rows that lead nowhere, as an artifact from elsewhere may bring them: nothing outside is touched. */
static void wild_rows(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++)
        for (int sum = 0; sum < 2 && runs(form); sum++) {
            Mixture m = {
                .M = 4, .X = 3, .R = 2, .sum = sum, .matrix = {.N = 48, .K = 32, .group = 32, .type = DT_INT8}};
            const int32_t starts[] = {-7, INT32_MAX, 3, INT32_MIN};
            const int32_t rows[] = {INT32_MAX, -1, 8, 1000, INT32_MIN, 7, 8, 9};
            const int64_t k[] = {
                [EXPERT_LINEAR_Q_X] = 3,      [EXPERT_LINEAR_Q_N] = 16,      [EXPERT_LINEAR_Q_K] = 32,
                [EXPERT_LINEAR_Q_R] = 2,      [EXPERT_LINEAR_Q_W] = DT_INT8, [EXPERT_LINEAR_Q_GROUP] = 32,
                [EXPERT_LINEAR_Q_SCALES] = 0, [EXPERT_LINEAR_Q_XGROUP] = 32, [EXPERT_LINEAR_Q_GLU] = 0};
            Matrix w = matrix_new(&m.matrix);
            Rows x = rows_new(8, 32);
            float *y = random_tensor(4 * 2 * 16, DT_FP32, 1.0f);

            quantise(0, &x, 8, 32, 1);
            call(form_at(form, sum),
                 (void *const[]){x.codes, x.scales, x.sums, m.routes, (void *)(uintptr_t)starts,
                                 (void *)(uintptr_t)rows, w.tiles, NULL, sum ? NULL : y, y},
                 k, 4, 0, 1);
            for (int i = 0; i < 4 * (sum ? 1 : 2) * 16; i++)
                assert_true(isfinite(y[i]));
            rows_free(&x), matrix_free(&w), free(y);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(large), cmocka_unit_test(wild_rows)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
