/* test_cpu_rows.c - the CPU's row by row kernels against the reference: norms, activations, gates, sums,
 * embedding, last rows; with rows counted by T and by S. */
#include "cpu_test.h"

static const int widths[] = {1, 2, 7, 16, 17, 33, 112, 300, 2048};
enum { WIDTHS = sizeof widths / sizeof *widths, M = 5 };

/* Runs on y with rows = M counted by T or S. */
static void run(const char *family, int level, void *const *arg, const int64_t *k, int by_s, int threads)
{
    call(kernel_at(family, level), arg, k, by_s ? 1 : M, by_s ? M : 1, threads);
}

static void norms(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < WIDTHS * 2; i++) {
            const int C = widths[i / 2], by_s = i % 2;
            float *x = random_tensor((size_t)M * C, DT_FP32, 3.0f), *g = random_tensor(C, DT_FP32, 1.0f);
            float *b = random_tensor(C, DT_FP32, 1.0f), *y = malloc(sizeof *y * M * C),
                  *want = malloc(sizeof *y * M * C);
            const int64_t k[] = {C, number_bits(1e-5), by_s};
            const RefTensor rx = {x, DT_FP32}, rg = {g, DT_FP32}, rb = {b, DT_FP32};

            for (int j = 0; j < M * C; j++)
                x[j] += 10.0f; /* a mean that would cost digits */
            ref_rmsnorm(rx, rg, 1e-5, M, C, want);
            run("rmsnorm", level, (void *const[]){x, g, y}, k, by_s, 2);
            assert_close(y, want, (size_t)M * C, 1e-6, "rmsnorm");
            ref_layernorm(rx, rg, rb, 1e-5, M, C, want);
            run("layernorm", level, (void *const[]){x, g, b, y}, k, by_s, 3);
            assert_close(y, want, (size_t)M * C, 1e-5, "layernorm");          /* mean 10: half a digit lost */
            run("layernorm", level, (void *const[]){x, g, b, x}, k, by_s, 1); /* in place */
            assert_memory_equal(x, y, sizeof *y * M * C);
            free(x), free(g), free(b), free(y), free(want);
        }
}

static void activations(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < WIDTHS; i++)
            for (int kind = 1; kind < FTX_ACT_COUNT; kind++) {
                const int C = widths[i];
                float *x = random_tensor((size_t)M * C * 2, DT_FP32, i % 2 ? 8.0f : 0.3f);
                float *y = malloc(sizeof *y * M * C), *want = malloc(sizeof *y * M * C);
                const int64_t k[] = {C, kind, i % 2};
                const RefTensor rx = {x, DT_FP32};

                ref_act(rx, (FtxAct)kind, M * C, want);
                run("act", level, (void *const[]){x, y}, k, i % 2, 2);
                assert_close(y, want, (size_t)M * C, 1e-6, "act");
                ref_glu(rx, (FtxAct)kind, M, C, want);
                run("glu", level, (void *const[]){x, y}, k, i % 2, 2);
                assert_close(y, want, (size_t)M * C, 1e-6, "glu");
                free(x), free(y), free(want);
            }
}

/* Far from zero the activations neither overflow to NaN nor lose their limits. */
static void extremes(void **state)
{
    static const float xs[] = {-INFINITY, -3e38f, -1000, -100, -88, -20, -1e-30f, 0, 1e-30f, 20, 88, 100, 1000, 3e38f};
    enum { N = sizeof xs / sizeof *xs };

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int kind = 1; kind < FTX_ACT_COUNT; kind++) {
            float y[N];

            call(kernel_at("act", level), (void *const[]){(void *)(xs + 1), y + 1}, (const int64_t[]){N - 1, kind, 0},
                 1, 1, 1);
            for (int i = 1; i < N; i++) {
                const double want = ref_act_of(xs[i], (FtxAct)kind);

                if (want > 3.4e38 ? !isinf(y[i]) : !(fabs(y[i] - want) <= 2e-6 * fabs(want) + 1e-30))
                    fail_msg("%s kind %d of %g is %g, should be %g", levels[level], kind, xs[i], y[i], want);
            }
        }
}

static void sums(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < WIDTHS; i++) {
            const int C = widths[i];
            float *a = random_tensor((size_t)M * C, DT_FP32, 1.0f), *b = random_tensor((size_t)M * C, DT_FP32, 1.0f);
            float *y = malloc(sizeof *y * M * C), *want = malloc(sizeof *y * M * C);
            const RefTensor ra = {a, DT_FP32}, rb = {b, DT_FP32};

            ref_add(ra, rb, M * C, want);
            run("add", level, (void *const[]){a, b, y}, (const int64_t[]){C, i % 2}, i % 2, 2);
            assert_memory_equal(y, want, sizeof *y * M * C);
            ref_mul(ra, rb, M * C, want);
            run("mul", level, (void *const[]){a, b, y}, (const int64_t[]){C, i % 2}, i % 2, 2);
            assert_memory_equal(y, want, sizeof *y * M * C);
            for (int of_row = 0; of_row < 2; of_row++) {
                ref_mul_by(ra, rb, of_row, M, C, want);
                run("mul_by", level, (void *const[]){a, of_row ? b : NULL, of_row ? NULL : b, y},
                    (const int64_t[]){C, i % 2, of_row}, i % 2, 2);
                assert_memory_equal(y, want, sizeof *y * M * C);
            }
            const int from = C / 3, n = C - C / 3 - C / 4; /* a: rows of C; b: rows of n */
            ref_columns(ra, C, from, rb, M, n, want);
            run("slice", level, (void *const[]){a, y}, (const int64_t[]){n, C, from, i % 2}, i % 2, 2);
            assert_memory_equal(y, want, sizeof *y * M * n);
            ref_columns(ra, from, 0, rb, M, C, want);
            run("join", level, (void *const[]){a, b, y}, (const int64_t[]){from, C - from, i % 2}, i % 2, 2);
            assert_memory_equal(y, want, sizeof *y * M * C);
            ref_scale(ra, 0.375, M * C, want);
            run("scale", level, (void *const[]){a, y}, (const int64_t[]){C, number_bits(0.375), i % 2}, i % 2, 2);
            assert_memory_equal(y, want, sizeof *y * M * C);
            free(a), free(b), free(y), free(want);
        }
}

/* Elements within bounds, gates within limits, scales by position, weights of routes. */
static void limits(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < WIDTHS; i++) {
            const int C = widths[i];
            float *x = random_tensor((size_t)M * C * 2, DT_FP32, 3.0f), *y = malloc(sizeof *y * M * C);
            float *want = malloc(sizeof *y * M * C);
            const RefTensor rx = {x, DT_FP32};
            FtxToken token[M];

            for (int t = 0; t < M; t++)
                token[t].pos = t * 5;
            ref_clamp(rx, -0.5, 1.25, M * C, want);
            run("clamp", level, (void *const[]){x, y},
                (const int64_t[]){number_bits(-0.5), C, number_bits(1.25), i % 2}, i % 2, 2);
            assert_memory_equal(y, want, sizeof *y * M * C);
            ref_xielu(rx, (RefTensor){(float[]){-0.4f, 0.9f, 0.7f}, DT_FP32}, M * C, want);
            run("xielu", level, (void *const[]){x, (float[]){-0.4f, 0.9f, 0.7f}, y}, (const int64_t[]){C, i % 2}, i % 2,
                2);
            assert_close(y, want, (size_t)M * C, 1e-6, "xielu");
            ref_glu_clamped(rx, 1.5, 0.75, M, C, want);
            run("glu_clamped", level, (void *const[]){x, y},
                (const int64_t[]){number_bits(1.5), C, number_bits(0.75), i % 2}, i % 2, 2);
            assert_close(y, want, (size_t)M * C, 1e-6, "glu_clamped");
            ref_scale_by_position(rx, token, M, C, 0.3, 4, 2, want);
            run("scale_by_position", level, (void *const[]){x, token, y}, (const int64_t[]){C, number_bits(0.3), 4, 2},
                0, 2);
            assert_close(y, want, (size_t)M * C, 1e-6, "scale_by_position");
            for (int form = 0; form < 4; form++) {
                const double floor = form == 3 ? 0.5 : form == 1 ? 1e-5 : 0.0;

                ref_row_rms(rx, form & 1, form & 2, floor, M, C, want);
                run("row_rms", level, (void *const[]){x, y},
                    (const int64_t[]){C, form & 1, form >> 1, number_bits(floor), i % 2}, i % 2, 2);
                assert_close(y, want, M, 1e-6, "row_rms");
            }
            run("route_weights", level, (void *const[]){x, y}, (const int64_t[]){C, i % 2}, i % 2, 2);
            for (int m = 0; m < M; m++)
                assert_memory_equal(y + m * C, x + (2 * m + 1) * C, sizeof *y * (size_t)C);
            free(x), free(y), free(want);
        }
}

static void embedding(void **state)
{
    enum { V = 300, P = 40, CONTEXT = 33, SLOTS = 3, T = 7 };
    static const DType types[] = {DT_FP32, DT_FP16, DT_BF16};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < WIDTHS * 6; i++) {
            const int D = widths[i / 6], learned = i % 2;
            const DType wt = types[i % 3], pt = types[(i + 1) % 3];
            void *w = random_tensor((size_t)V * D, wt, 1.0f), *p = random_tensor((size_t)P * D, pt, 1.0f);
            float *y = malloc(sizeof *y * T * D), *want = malloc(sizeof *y * T * D);
            int32_t history[SLOTS][CONTEXT] = {{0}}, wanted[SLOTS][CONTEXT] = {{0}};
            FtxToken token[T];

            for (int t = 0; t < T; t++)
                token[t] = (FtxToken){random_below(V), t < 4 ? 29 + t : t, t < 4 ? 0 : 1, t < 4 ? 2 : 0};
            ref_embed(token, T, (RefTensor){w, wt}, (RefTensor){learned ? p : NULL, pt}, 2, D, wanted[0], CONTEXT,
                      want);
            call(kernel_at("embed", level), (void *const[]){w, learned ? p : NULL, NULL, token, history, y},
                 (const int64_t[]){[EMBED_D] = D,
                                   [EMBED_WT] = wt,
                                   [EMBED_CONTEXT] = CONTEXT,
                                   [EMBED_OFFSET] = learned ? 2 : 0,
                                   [EMBED_PT] = learned ? (int64_t)pt : 0,
                                   [EMBED_SCALED] = 0},
                 T, 2, 2);
            assert_memory_equal(y, want, sizeof *y * T * D);
            assert_memory_equal(history, wanted, sizeof history);
            for (int t = 0; t < T; t++)
                for (int k = 0; k < D; k++)
                    want[t * D + k] = (float)ref_at((RefTensor){p, pt}, (int64_t)(token[t].pos + 3) * D + k);
            call(kernel_at("positions", level), (void *const[]){p, token, y},
                 (const int64_t[]){
                     [POSITIONS_D] = D, [POSITIONS_PT] = pt, [POSITIONS_OFFSET] = 3, [POSITIONS_TYPES] = 0},
                 T, 2, 2);
            assert_memory_equal(y, want, sizeof *y * T * D);
            for (int t = 0; t < T; t++)
                for (int k = 0; k < D; k++)
                    want[t * D + k] = (float)ref_at((RefTensor){p, pt}, (int64_t)token[t].slot * D + k); /* the type */
            call(kernel_at("positions", level), (void *const[]){p, token, y},
                 (const int64_t[]){
                     [POSITIONS_D] = D, [POSITIONS_PT] = pt, [POSITIONS_OFFSET] = 0, [POSITIONS_TYPES] = 1},
                 T, 2, 2);
            assert_memory_equal(y, want, sizeof *y * T * D);
            free(w), free(p), free(y), free(want);
        }
}

/* Each rank has the rows of its ids, zeros for the others: the sum is the whole embedding. Of 301 ids the last rank has fewer. */
static void embedding_of_ranks(void **state)
{
    enum { V = 301, CONTEXT = 33, SLOTS = 3, T = 7, RANKS = 3, P = (V + RANKS - 1) / RANKS };
    static const DType types[] = {DT_FP32, DT_FP16, DT_BF16};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < WIDTHS * 3; i++) {
            const int D = widths[i / 3];
            const DType wt = types[i % 3];
            char *w = random_tensor((size_t)P * RANKS * D, wt, 1.0f);
            float *y = malloc(sizeof *y * T * D), *want = malloc(sizeof *y * T * D);
            int32_t wanted[SLOTS][CONTEXT] = {{0}};
            FtxToken token[T];

            for (int t = 0; t < T; t++)
                token[t] = (FtxToken){t == 0 ? P - 1 : t == 1 ? P : random_below(V), t, t % 2, t % 2 ? 2 : 0};
            ref_embed(token, T, (RefTensor){w, wt}, (RefTensor){NULL, wt}, 0, D, wanted[0], CONTEXT, want);
            for (int rank = 0; rank < RANKS; rank++) {
                int32_t history[SLOTS][CONTEXT] = {{0}};
                FtxPeers peers = {.rank = rank, .ranks = RANKS};

                call(kernel_at("embed_part", level),
                     (void *const[]){w + (size_t)rank * P * D * dtype_size(wt), token, history, &peers, y},
                     (const int64_t[]){[EMBED_PART_P] = P,
                                       [EMBED_PART_D] = D,
                                       [EMBED_PART_WT] = wt,
                                       [EMBED_PART_CONTEXT] = CONTEXT,
                                       [EMBED_PART_ENCODE] = 0},
                     T, 2, 2);
                assert_memory_equal(history, wanted, sizeof history);
                for (int t = 0; t < T; t++)
                    for (int k = 0; k < D; k++)
                        assert_true(y[t * D + k] == (token[t].id / P == rank ? want[t * D + k] : 0.0f));
            }
            free(w), free(y), free(want);
        }
}

/* Scaled, with the rows of types; what an encoder reads is no history. */
static void embedding_of_texts(void **state)
{
    enum { V = 300, P = 40, T = 7, TYPES = 3, D = 40 };
    float *w = random_tensor(V * D, DT_FP32, 1.0f), *p = random_tensor(P * D, DT_FP32, 1.0f);
    float *s = random_tensor(TYPES * D, DT_FP32, 1.0f), y[T * D], want[T * D];
    int32_t history[1] = {-7};
    FtxToken token[T];

    (void)state;
    for (int t = 0; t < T; t++) {
        token[t] = (FtxToken){random_below(V), t, 0, t % TYPES};
        for (int i = 0; i < D; i++)
            want[t * D + i] = w[token[t].id * D + i] * 3.5f + s[t % TYPES * D + i] + p[(t + 2) * D + i];
    }
    for (int level = 0; level < LEVELS; level++) {
        call(kernel_at("embed", level), (void *const[]){w, p, s, token, history, y},
             (const int64_t[]){[EMBED_D] = D,
                               [EMBED_WT] = DT_FP32,
                               [EMBED_ENCODE] = 1,
                               [EMBED_OFFSET] = 2,
                               [EMBED_PT] = DT_FP32,
                               [EMBED_ST] = DT_FP32,
                               [EMBED_BY] = number_bits(3.5),
                               [EMBED_SCALED] = 1},
             T, 1, 2);
        assert_close(y, want, T * D, 1e-6, "embedding of texts");
        assert_int_equal(history[0], -7);
    }
    free(w), free(p), free(s);
}

static void last_rows(void **state)
{
    enum { S = 3, T = 9, C = 17 };
    static const FtxRow rows[S] = {{.q_start = 0, .q_len = 1}, {.q_start = 1, .q_len = 6}, {.q_start = 7, .q_len = 2}};
    float *x = random_tensor(T * C, DT_FP32, 1.0f), y[S * C], want[S * C];

    (void)state;
    ref_select_last((RefTensor){x, DT_FP32}, rows, S, C, want);
    for (int level = 0; level < LEVELS; level++) {
        call(kernel_at("select_last", level), (void *const[]){x, (void *)rows, y}, (const int64_t[]){C}, T, S, 2);
        assert_memory_equal(y, want, sizeof y);
        assert_memory_equal(y + C, x + 6 * C, C * sizeof *y);
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),     cmocka_unit_test(activations), cmocka_unit_test(extremes),
        cmocka_unit_test(sums),      cmocka_unit_test(embedding),   cmocka_unit_test(embedding_of_texts),
        cmocka_unit_test(last_rows), cmocka_unit_test(limits),      cmocka_unit_test(embedding_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
