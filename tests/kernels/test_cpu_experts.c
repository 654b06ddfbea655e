/* test_cpu_experts.c - route, expert_linear and expert_sum of the CPU against the reference, and those that round x to bf16; their
 * bits do not depend on the other rows or on threads. The form with AVX512_BF16 is tried with emulated instructions, too. */
#include "cpu_test.h"

#include "amx_emulated.h"

#define expert_linear emulated_expert_linear /* not the names of the kernels that are linked */
#define expert_sum emulated_expert_sum
#define expert_linear_bf16 emulated_expert_linear_bf16
#define expert_sum_bf16 emulated_expert_sum_bf16
#define expert_linear_bf16_avx512bf16 emulated_expert_linear_pairs
#define expert_sum_bf16_avx512bf16 emulated_expert_sum_pairs
#include "kernels/cpu/experts.c"
#undef expert_linear
#undef expert_sum
#undef expert_linear_bf16
#undef expert_sum_bf16
#undef expert_linear_bf16_avx512bf16
#undef expert_sum_bf16_avx512bf16

typedef enum Form { AS_STORED, ROUNDED, EMULATED, PAIRS } Form; /* of rows of x; PAIRS: FTX_CPU=avx512bf16 */

typedef struct Case {
    RefRoute route;
    int M, N, K; /* N of expert_linear; expert_sum has N and K in each other's place */
    DType type;
    bool bias, route_bias, residual;
    FtxAct kind;
    Form form;
} Case;

enum { MAX_ROWS = 64, MAX_K = 8, MAX_EXPERTS = 64 };

/* Of a case the values of every step. */
typedef struct Room {
    float *x, *logits, *route_bias, *up_bias, *down_bias, *residual;
    void *up, *down;
    int32_t routes[MAX_ROWS * 2 * MAX_K], starts[MAX_EXPERTS + 1], rows[MAX_ROWS * MAX_K];
    float *h, *y;
    int32_t done[16];
} Room;

static Room room_new(const Case *c)
{
    const size_t M = (size_t)c->M, N = (size_t)c->N, K = (size_t)c->K, X = (size_t)c->route.experts;
    Room r = {.x = random_tensor(M * K, DT_FP32, 1.0f),
              .logits = random_tensor(M * X, DT_FP32, 3.0f),
              .route_bias = random_tensor(X, DT_FP32, 0.3f),
              .up_bias = random_tensor(X * N, DT_FP32, 1.0f),
              .down_bias = random_tensor(X * K, DT_FP32, 1.0f),
              .residual = random_tensor(M * K, DT_FP32, 1.0f),
              .up = random_tensor(X * N * K, c->type, 1.0f),
              .down = random_tensor(X * K * (N / 2), c->type, 1.0f),
              .h = random_tensor(M * (size_t)c->route.k * (N / 2), DT_FP32, 1.0f),
              .y = random_tensor(M * K, DT_FP32, 1.0f)};

    assert_true(c->M <= MAX_ROWS && c->route.k <= MAX_K && c->route.experts <= MAX_EXPERTS);
    return r;
}

static void room_close(Room *r)
{
    free(r->x), free(r->logits), free(r->route_bias), free(r->up_bias), free(r->down_bias), free(r->residual);
    free(r->up), free(r->down), free(r->h), free(r->y);
}

static CpuKernel *kernel_of(const char *family, const char *bf16, CpuKernel *const emulated[], const Case *c, int level)
{
    CpuKernel *k;

    if (c->form == EMULATED) /* Arm has the text's plain form alone */
        return emulated[level] ? emulated[level] : emulated[0];
    if (c->form != PAIRS)
        return kernel_at(c->form ? bf16 : family, level);
    setenv("FTX_CPU", "avx512bf16", 1);
    k = cpu_kernel(bf16);
    unsetenv("FTX_CPU");
    return k;
}

#if defined __x86_64__
static CpuKernel *const linear_pairs[] = {emulated_expert_linear_pairs_plain, emulated_expert_linear_pairs_avx2,
                                          emulated_expert_linear_pairs_avx512};
static CpuKernel *const sum_pairs[] = {emulated_expert_sum_pairs_plain, emulated_expert_sum_pairs_avx2,
                                       emulated_expert_sum_pairs_avx512};
#else
static CpuKernel *const linear_pairs[LEVELS] = {emulated_expert_linear_pairs_plain};
static CpuKernel *const sum_pairs[LEVELS] = {emulated_expert_sum_pairs_plain};
#endif

/* Routes, gate and up, down: rows [from, from + M) as a step of their own. */
static void run(int level, const Case *c, Room *r, int from, int M, int threads)
{
    const RefRoute *to = &c->route;
    const int64_t route[] = {[ROUTE_N] = to->experts,
                             [ROUTE_K] = to->k,
                             [ROUTE_SIGMOID] = to->sigmoid,
                             [ROUTE_CHOSEN] = to->chosen,
                             [ROUTE_RENORM] = to->renorm,
                             [ROUTE_GROUPS] = to->groups,
                             [ROUTE_KEPT] = to->groups_kept,
                             [ROUTE_BEST_TWO] = to->best_two,
                             [ROUTE_SCALE] = number_bits(to->scale),
                             [ROUTE_ROWS_S] = 0,
                             [ROUTE_NEAR] = number_bits(to->near)};
    const int64_t linear_bf16[] = {
        [EXPERT_LINEAR_BF16_X] = to->experts, [EXPERT_LINEAR_BF16_N] = c->N,       [EXPERT_LINEAR_BF16_K] = c->K,
        [EXPERT_LINEAR_BF16_R] = to->k,       [EXPERT_LINEAR_BF16_KIND] = c->kind, [EXPERT_LINEAR_BF16_GLU] = 1};
    const int64_t sum_bf16[] = {[EXPERT_SUM_BF16_X] = to->experts,
                                [EXPERT_SUM_BF16_N] = c->K,
                                [EXPERT_SUM_BF16_K] = c->N / 2,
                                [EXPERT_SUM_BF16_R] = to->k,
                                [EXPERT_SUM_BF16_ROWS_S] = 0};
    const int64_t linear[] = {[EXPERT_LINEAR_X] = to->experts, [EXPERT_LINEAR_N] = c->N,    [EXPERT_LINEAR_K] = c->K,
                              [EXPERT_LINEAR_R] = to->k,       [EXPERT_LINEAR_W] = c->type, [EXPERT_LINEAR_ROWS_S] = 0,
                              [EXPERT_LINEAR_KIND] = c->kind,  [EXPERT_LINEAR_GLU] = 1};
    const int64_t sum[] = {[EXPERT_SUM_X] = to->experts, [EXPERT_SUM_N] = c->K,    [EXPERT_SUM_K] = c->N / 2,
                           [EXPERT_SUM_R] = to->k,       [EXPERT_SUM_W] = c->type, [EXPERT_SUM_ROWS_S] = 0};

    call(kernel_at("route", level),
         (void *const[]){r->logits + from * to->experts, c->route_bias ? r->route_bias : NULL, r->routes, r->starts,
                         r->rows, r->done},
         route, M, 0, threads);
    assert_int_equal(r->done[0], 0);
    call(kernel_of("expert_linear", "expert_linear_bf16", linear_pairs, c, level),
         (void *const[]){r->x + from * c->K, r->routes, r->starts, r->rows, r->up, c->bias ? r->up_bias : NULL, r->h},
         c->form ? linear_bf16 : linear, M, 0, threads);
    call(kernel_of("expert_sum", "expert_sum_bf16", sum_pairs, c, level),
         (void *const[]){r->h, r->routes, r->starts, r->rows, r->down, c->bias ? r->down_bias : NULL,
                         c->residual ? r->residual + from * c->K : NULL, r->y},
         c->form ? sum_bf16 : sum, M, 0, threads);
}

static void check_routes(const Case *c, const Room *r, const char *what)
{
    const int k = c->route.k;
    int32_t want[MAX_ROWS * 2 * MAX_K];

    ref_route((RefTensor){r->logits, DT_FP32}, (RefTensor){c->route_bias ? r->route_bias : NULL, DT_FP32}, &c->route,
              c->M, want);
    for (int m = 0; m < c->M; m++)
        for (int i = 0; i < k; i++) {
            float got, weight;

            assert_int_equal(r->routes[m * 2 * k + i], want[m * 2 * k + i]);
            memcpy(&got, &r->routes[m * 2 * k + k + i], sizeof got);
            memcpy(&weight, &want[m * 2 * k + k + i], sizeof weight);
            assert_close(&got, &weight, 1, 4e-6, what);
        }
    assert_int_equal(r->starts[0], 0);
    assert_int_equal(r->starts[c->route.experts], c->M * k);
    for (int e = 0; e < c->route.experts; e++)
        for (int i = r->starts[e]; i < r->starts[e + 1]; i++) {
            const int pair = r->rows[i];

            assert_true(pair >= 0 && pair < c->M * k && (i == r->starts[e] || pair > r->rows[i - 1]));
            assert_int_equal(r->routes[pair / k * 2 * k + pair % k], e);
        }
}

/* What the products see of x. */
static RefTensor as_read(const Case *c, const float *x, size_t n, uint16_t *rounded)
{
    for (size_t i = 0; c->form && i < n; i++)
        dtype_store(rounded, i, DT_BF16, x[i]);
    return c->form ? (RefTensor){rounded, DT_BF16} : (RefTensor){x, DT_FP32};
}

static void check(int level, const Case *c)
{
    const int R = c->route.k, F = c->N / 2;
    Room r = room_new(c);
    float *up = malloc(sizeof *up * (size_t)(c->M * R * c->N)), *h = malloc(sizeof *h * (size_t)(c->M * R * F));
    float *want = malloc(sizeof *want * (size_t)(c->M * c->K)), *y = malloc(sizeof *y * (size_t)(c->M * c->K));
    uint16_t *rounded = malloc(sizeof *rounded * (size_t)(c->M * (c->K + R * F)));
    char what[200];

    snprintf(what, sizeof what, "experts %s M=%d N=%d K=%d X=%d R=%d %s form=%d", levels[level], c->M, c->N, c->K,
             c->route.experts, R, dtype_name(c->type), (int)c->form);
    run(level, c, &r, 0, c->M, 1);
    check_routes(c, &r, what);
    ref_expert_linear(as_read(c, r.x, (size_t)(c->M * c->K), rounded), r.routes, (RefTensor){r.up, c->type},
                      (RefTensor){c->bias ? r.up_bias : NULL, DT_FP32}, c->M, R, c->N, c->K, up);
    ref_glu((RefTensor){up, DT_FP32}, c->kind, c->M * R, F, h);
    assert_close(r.h, h, (size_t)(c->M * R * F), 4e-6, what);
    ref_expert_sum(as_read(c, r.h, (size_t)(c->M * R * F), rounded), r.routes, (RefTensor){r.down, c->type},
                   (RefTensor){c->bias ? r.down_bias : NULL, DT_FP32}, c->M, R, c->K, F, want);
    if (c->residual)
        ref_add((RefTensor){want, DT_FP32}, (RefTensor){r.residual, DT_FP32}, (int64_t)c->M * c->K, want);
    assert_close(r.y, want, (size_t)(c->M * c->K), 8e-6, what);

    /* On more threads, and each row alone: the same bits. */
    memcpy(y, r.y, sizeof *y * (size_t)(c->M * c->K));
    memcpy(h, r.h, sizeof *h * (size_t)(c->M * R * F));
    run(level, c, &r, 0, c->M, 5);
    assert_memory_equal(r.h, h, sizeof *h * (size_t)(c->M * R * F));
    assert_memory_equal(r.y, y, sizeof *y * (size_t)(c->M * c->K));
    for (int m = 0; m < c->M; m += 1 + c->M / 3) {
        run(level, c, &r, m, 1, 1 + m % 3);
        assert_memory_equal(r.h, h + m * R * F, sizeof *h * (size_t)(R * F));
        assert_memory_equal(r.y, y + m * c->K, sizeof *y * (size_t)c->K);
    }
    room_close(&r);
    free(up), free(h), free(want), free(y), free(rounded);
}

#define PLAIN(x, n) \
    { \
        .experts = x, .k = n, .groups = 1, .groups_kept = 1, .scale = 1.0 \
    }

static void shapes(void **state)
{
    static const int rows[] = {1, 2, 5, 7, 16, 61}, sizes[] = {2, 18, 66, 300};
    static const DType types[] = {DT_FP32, DT_FP16, DT_BF16};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
            for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
                check(level, &(Case){.route = PLAIN(n % 2 ? 5 : 40, 1 + (int)(m + n) % 4),
                                     .M = rows[m],
                                     .N = sizes[n],
                                     .K = sizes[(n + m) % 4] + 1,
                                     .type = types[(m + n) % 3],
                                     .bias = m % 2,
                                     .residual = n % 2,
                                     .kind = n % 3 ? FTX_ACT_SILU : FTX_ACT_GELU_ERF});
}

/* K over several chunks. */
static void long_rows(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int M = 3; M < 40; M += 30)
            for (Form form = AS_STORED; form <= PAIRS; form++)
                check(level, &(Case){.route = PLAIN(3, 2),
                                     .M = M,
                                     .N = 10,
                                     .K = 2500,
                                     .type = DT_BF16,
                                     .kind = FTX_ACT_SILU,
                                     .form = form});
}

/* Rows rounded to bf16; several blocks of columns, and rows of x that begin within a pair. */
static void rows_of_bf16(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (Form form = ROUNDED; form <= PAIRS; form++)
            for (int M = 1; M < 50; M += 12) {
                Case c = {.route = PLAIN(M % 2 ? 5 : 40, 1 + M % 3),
                          .M = M,
                          .N = 34,
                          .K = 129 + M,
                          .type = DT_BF16,
                          .bias = M % 2,
                          .residual = M % 3 == 1,
                          .kind = FTX_ACT_SILU,
                          .form = form};

                check(level, &c);
                c.N = 150;
                check(level, &c);
            }
}

/* Every switch of the router, both ways. */
static void routers(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (unsigned bits = 0; bits < 128; bits++) {
            const bool groups = bits & 1, sigmoid = bits & 2, chosen = !sigmoid && bits & 4;

            check(level, &(Case){.route = {.experts = 24,
                                           .k = 5,
                                           .groups = groups ? 6 : 1,
                                           .groups_kept = groups ? 3 : 1,
                                           .sigmoid = sigmoid,
                                           .chosen = chosen,
                                           .renorm = (bits & 8) != 0,
                                           .best_two = (bits & 16) != 0,
                                           .near = chosen && bits & 16 && !(bits & 64) ? 0.6 : 0.0,
                                           .scale = bits & 32 ? 2.5 : 1.0},
                                 .M = 9,
                                 .N = 4,
                                 .K = 3,
                                 .type = DT_FP32,
                                 .route_bias = (bits & 64) != 0,
                                 .kind = FTX_ACT_SILU});
        }
}

/* Equal logits, infinities and NaN: k experts that differ, of equal ones the lower numbers. */
static void ties(void **state)
{
    enum { X = 10, K = 4, M = 4 };
    const int64_t k[] = {[ROUTE_N] = X,      [ROUTE_K] = K,    [ROUTE_CHOSEN] = 1,
                         [ROUTE_GROUPS] = 1, [ROUTE_KEPT] = 1, [ROUTE_SCALE] = number_bits(1.0),
                         [ROUTE_ROWS_S] = 1, [ROUTE_NEAR] = 0};
    const float nan = nanf(""), big = INFINITY;
    float x[M][X] = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                     {0, 2, 0, 2, 0, 2, 0, 2, 0, 2},
                     {-big, -big, 3, -big, -big, -big, -big, -big, -big, 3},
                     {nan, nan, nan, nan, nan, nan, nan, 1, nan, nan}};
    static const int want[M][K] = {{0, 1, 2, 3}, {1, 3, 5, 7}, {2, 9, 0, 1}, {7, 0, 1, 2}};

    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        int32_t y[M][2 * K], done[16] = {0};

        call(kernel_at("route", level), (void *const[]){x, NULL, y, NULL, NULL, done}, k, 0, M, 3);
        for (int m = 0; m < M; m++)
            for (int i = 0; i < K; i++)
                assert_int_equal(y[m][i], want[m][i]);
    }
}

/* Numbers of rows that lead nowhere, as an artifact from elsewhere may bring them: nothing outside is touched. */
static void wild_rows(void **state)
{
    enum { X = 3, R = 2, M = 4, N = 8, K = 5 };
    const int64_t k[] = {
        [EXPERT_LINEAR_X] = X,       [EXPERT_LINEAR_N] = N,      [EXPERT_LINEAR_K] = K,    [EXPERT_LINEAR_R] = R,
        [EXPERT_LINEAR_W] = DT_FP32, [EXPERT_LINEAR_ROWS_S] = 0, [EXPERT_LINEAR_KIND] = 0, [EXPERT_LINEAR_GLU] = 0};
    float *x = random_tensor(M * K, DT_FP32, 1.0f), *w = random_tensor(X * N * K, DT_FP32, 1.0f);
    float *y = random_tensor(M * R * N, DT_FP32, 1.0f);

    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        int32_t routes[M * 2 * R] = {0}, starts[X + 1] = {-7, INT32_MAX, 3, INT32_MIN};
        int32_t rows[M * R] = {INT32_MAX, -1, M * R, 1000, INT32_MIN, 7, 8, 9};

        call(kernel_at("expert_linear", level), (void *const[]){x, routes, starts, rows, w, NULL, y}, k, M, 0, 1);
        call(kernel_at("expert_sum", level), (void *const[]){y, routes, starts, rows, w, NULL, NULL, x},
             (const int64_t[]){[EXPERT_SUM_X] = X,
                               [EXPERT_SUM_N] = K,
                               [EXPERT_SUM_K] = N,
                               [EXPERT_SUM_R] = R,
                               [EXPERT_SUM_W] = DT_FP32,
                               [EXPERT_SUM_ROWS_S] = 0},
             M, 0, 1);
        for (int i = 0; i < M * K; i++)
            assert_true(isfinite(x[i]));
    }
    free(x), free(w), free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes),       cmocka_unit_test(long_rows),
                                       cmocka_unit_test(rows_of_bf16), cmocka_unit_test(routers),
                                       cmocka_unit_test(ties),         cmocka_unit_test(wild_rows)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
