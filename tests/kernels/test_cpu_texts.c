/* test_cpu_texts.c - the CPU kernels of encoders and of sources against the references, over odd
 * shapes: lengths around blocks of queries and keys, heads of any size, caches of any type. */
#include "cpu_test.h"

enum { ROWS = 5 };

static const int lengths[ROWS] = {1, 33, 4, 64, 31};

/* Texts one after another; token t of each. */
static int make_rows(const int *of, FtxRow *rows, FtxToken *token)
{
    int T = 0;

    for (int s = 0; s < ROWS; s++) {
        rows[s] =
            (FtxRow){.q_start = T, .q_len = of[s], .kv_len = of[s], .src_len = of[s], .src_slot = (s * 3 + 1) % ROWS};
        for (int i = 0; i < of[s]; i++)
            token[T++] = (FtxToken){.pos = i, .row = s};
    }
    return T;
}

/* Each text alone gives the bits that it has among others. */
static void same_alone(CpuKernel *kernel, const float *x, const float *y, const FtxRow *rows, int H, int G, int E,
                       double scale)
{
    float *alone = malloc(sizeof *alone * (size_t)(131 * H * E));

    for (int s = 0; s < ROWS; s++) {
        const FtxRow row = {.q_len = rows[s].q_len};
        const float *text = x + (size_t)rows[s].q_start * (size_t)((H + 2 * G) * E);

        call(kernel, (void *const[]){(void *)(uintptr_t)text, (void *)(uintptr_t)&row, alone},
             (const int64_t[]){[ATTEND_PACKED_H] = H,
                               [ATTEND_PACKED_G] = G,
                               [ATTEND_PACKED_E] = E,
                               [ATTEND_PACKED_SCALE] = number_bits(scale)},
             row.q_len, 1, 2);
        assert_memory_equal(alone, y + (size_t)rows[s].q_start * (size_t)(H * E),
                            sizeof *y * (size_t)(row.q_len * H * E));
    }
    free(alone);
}

static void packed(void **state)
{
    static const int packed_lengths[ROWS] = {1, 33, 4, 131, 64}; /* over several blocks of keys */
    static const struct {
        int H, G, E;
        float size;   /* of queries and keys */
        double scale; /* small beside large products: only their scaled differences may count */
    } shapes[] = {{1, 1, 16, 2.0f, 0.3}, {3, 1, 24, 2.0f, 0.3},  {4, 4, 40, 2.0f, 0.3},
                  {6, 2, 64, 2.0f, 0.3}, {2, 2, 256, 2.0f, 0.3}, {1, 1, 16, 14.0f, 0.01}};
    FtxRow rows[ROWS];
    FtxToken token[256];
    const int T = make_rows(packed_lengths, rows, token);

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int H = shapes[i].H, G = shapes[i].G, E = shapes[i].E;
        float *x = random_tensor((size_t)T * (size_t)((H + 2 * G) * E), DT_FP32, 2.0f);
        float *y = malloc(sizeof *y * (size_t)(T * H * E)), *want = malloc(sizeof *y * (size_t)(T * H * E));

        for (int at = 0; at < T * (H + 2 * G) * E; at++)
            if (at % ((H + 2 * G) * E) < (H + G) * E)
                x[at] *= shapes[i].size / 2.0f;
        ref_attend_packed(x, rows, ROWS, H, G, E, shapes[i].scale, want);
        for (int level = 0; level < LEVELS; level++)
            for (int threads = 1; threads <= 5; threads += 4) {
                memset(y, -1, sizeof *y * (size_t)(T * H * E));
                call(kernel_at("attend_packed", level), (void *const[]){x, rows, y},
                     (const int64_t[]){[ATTEND_PACKED_H] = H,
                                       [ATTEND_PACKED_G] = G,
                                       [ATTEND_PACKED_E] = E,
                                       [ATTEND_PACKED_SCALE] = number_bits(shapes[i].scale)},
                     T, ROWS, threads);
                assert_close(y, want, (size_t)(T * H * E), 4e-6, "attend_packed");
                same_alone(kernel_at("attend_packed", level), x, y, rows, H, G, E, shapes[i].scale);
            }
        free(x), free(y), free(want);
    }
}

/* Scores of one block of keys 200 above those of the other: e^200 is no number. */
static void far_scores(void **state)
{
    enum { L = 128, E = 16, HALF = L / 2 };
    static float x[L * 3 * E], y[L * E];
    const FtxRow row = {.q_len = L};

    (void)state;
    for (int first = 0; first <= 1; first++)
        for (int level = 0; level < LEVELS; level++) {
            memset(x, 0, sizeof x);
            for (int j = 0; j < L; j++) {
                const bool high = (j < HALF) == (first == 1);

                x[j * 3 * E] = 1.0f;
                x[j * 3 * E + E] = high ? 200.0f : 0.0f;
                for (int e = 0; e < E; e++)
                    x[j * 3 * E + 2 * E + e] = high ? 1.0f : 5.0f;
            }
            call(kernel_at("attend_packed", level), (void *const[]){x, (void *)(uintptr_t)&row, y},
                 (const int64_t[]){[ATTEND_PACKED_H] = 1,
                                   [ATTEND_PACKED_G] = 1,
                                   [ATTEND_PACKED_E] = E,
                                   [ATTEND_PACKED_SCALE] = number_bits(1.0)},
                 L, 1, 1);
            for (int i = 0; i < L * E; i++)
                assert_true(y[i] == 1.0f);
        }
}

/* Sources to their slots, then tokens over them; the slots are not in the order of the rows. */
static void sources(void **state)
{
    enum { SOURCE = 70 };
    static const struct {
        int H, G, E;
        DType type;
    } shapes[] = {{1, 1, 16, DT_FP32}, {6, 2, 24, DT_FP32}, {4, 4, 40, DT_BF16}, {9, 1, 64, DT_FP16}};
    FtxRow rows[ROWS];
    FtxToken token[256], one[ROWS];
    const int T = make_rows(lengths, rows, token);

    (void)state;
    for (int s = 0; s < ROWS; s++)
        one[s] = (FtxToken){.row = ROWS - 1 - s};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int H = shapes[i].H, G = shapes[i].G, E = shapes[i].E;
        const DType type = shapes[i].type;
        const size_t cache = (size_t)(ROWS * G * SOURCE * E);
        float *x = random_tensor((size_t)(T * 2 * G * E), DT_FP32, 2.0f),
              *q = random_tensor((size_t)(ROWS * H * E), DT_FP32, 2.0f);
        float *y = malloc(sizeof *y * (size_t)(ROWS * H * E)), *want = malloc(sizeof *y * (size_t)(ROWS * H * E));
        void *k = calloc(cache, dtype_size(type)), *v = calloc(cache, dtype_size(type));
        void *wanted = calloc(cache, dtype_size(type));

        for (int level = 0; level < LEVELS; level++) {
            call(kernel_at("cross_append", level), (void *const[]){x, rows, token, k, v, NULL},
                 (const int64_t[]){[CROSS_APPEND_G] = G,
                                   [CROSS_APPEND_E] = E,
                                   [CROSS_APPEND_SOURCE] = SOURCE,
                                   [CROSS_APPEND_KV] = type},
                 T, ROWS, 3);
            for (int t = 0; t < T; t++)
                for (int g = 0; g < G; g++)
                    for (int e = 0; e < E; e++)
                        dtype_store(wanted,
                                    (size_t)(((rows[token[t].row].src_slot * G + g) * SOURCE + token[t].pos) * E + e),
                                    type, x[(t * 2 * G + g) * E + e]);
            assert_memory_equal(k, wanted, cache * dtype_size(type));
            for (int s = 0; s < ROWS; s++)
                for (int h = 0; h < H; h++) {
                    const FtxRow *row = &rows[one[s].row];

                    ref_attend_rows((RefTensor){q, DT_FP32}, (s * H + h) * E, (RefTensor){k, type},
                                    (RefTensor){v, type}, (int64_t)(row->src_slot * G + h / (H / G)) * SOURCE * E, E,
                                    row->src_len, E, 0.3, want + (s * H + h) * E);
                }
            call(kernel_at("attend_cross", level), (void *const[]){q, NULL, one, rows, k, v, y},
                 (const int64_t[]){[ATTEND_CROSS_H] = H,
                                   [ATTEND_CROSS_G] = G,
                                   [ATTEND_CROSS_E] = E,
                                   [ATTEND_CROSS_SCALE] = number_bits(0.3),
                                   [ATTEND_CROSS_SOURCE] = SOURCE,
                                   [ATTEND_CROSS_KV] = type},
                 ROWS, ROWS, 3);
            assert_close(y, want, (size_t)(ROWS * H * E), 4e-6, "attend_cross");
        }
        free(x), free(q), free(y), free(want), free(k), free(v), free(wanted);
    }
}

/* The first token with the id, -1: with the largest; the first of all if none has it. */
static int row_of_id(const FtxRow *row, const FtxToken *token, int id)
{
    int most = id;

    for (int t = 0; id < 0 && t < row->q_len; t++)
        most = token[row->q_start + t].id > most ? token[row->q_start + t].id : most;
    for (int t = 0; t < row->q_len; t++)
        if (token[row->q_start + t].id == most)
            return row->q_start + t;
    return row->q_start;
}

static void pooling(void **state)
{
    enum { C = 37 };
    FtxRow rows[ROWS];
    FtxToken token[256];
    const int T = make_rows(lengths, rows, token);
    float *x = random_tensor((size_t)T * C, DT_FP32, 1.0f), y[ROWS * C], want[ROWS * C], n[ROWS * C];

    (void)state;
    for (int t = 0; t < T; t++)
        token[t].id = t >= rows[ROWS - 1].q_start ? t % 2 : t * 5 % 3;
    for (int i = 0; i < rows[1].q_len; i++) /* of the second text the last token alone has the largest id */
        token[rows[1].q_start + i].id = i == rows[1].q_len - 1 ? 2 : 0;
    for (int level = 0; level < LEVELS; level++) {
        ref_pool_mean((RefTensor){x, DT_FP32}, rows, ROWS, C, want);
        call(kernel_at("pool_mean", level), (void *const[]){x, rows, y}, (const int64_t[]){C}, T, ROWS, 2);
        assert_close(y, want, ROWS * C, 2e-6, "pool_mean");
        ref_normalize((RefTensor){y, DT_FP32}, 1e-12, ROWS, C, want);
        call(kernel_at("normalize", level), (void *const[]){y, n}, (const int64_t[]){C, number_bits(1e-12), 1}, T, ROWS,
             2);
        assert_close(n, want, ROWS * C, 2e-6, "normalize");
        call(kernel_at("select_first", level), (void *const[]){x, rows, y}, (const int64_t[]){C}, T, ROWS, 2);
        for (int s = 0; s < ROWS; s++)
            assert_memory_equal(y + s * C, x + rows[s].q_start * C, C * sizeof *y);
        for (DType type = DT_FP32; type <= DT_BF16; type++) { /* the row of the token before */
            void *w = random_tensor(C, type, 1.0f);
            float before[256 * C], w_row[C];

            for (int i = 0; i < C; i++)
                w_row[i] = (float)ref_at((RefTensor){w, type}, i);
            call(kernel_at("previous", level), (void *const[]){x, w, rows, token, before}, (const int64_t[]){C, type},
                 T, ROWS, 3);
            for (int t = 0; t < T; t++)
                assert_memory_equal(before + t * C, t == rows[token[t].row].q_start ? w_row : x + (t - 1) * C,
                                    sizeof w_row);
            free(w);
        }
        for (int i = 0; i < 4; i++) { /* the rows around each token */
            static const int from[] = {-1, -3, -1, 2}, count[] = {3, 7, 1, 2};
            const size_t size = (size_t)T * C * (size_t)count[i];
            float *around = calloc(size, sizeof *around), *expected = calloc(size, sizeof *expected);

            ref_neighbours((RefTensor){x, DT_FP32}, rows, ROWS, C, from[i], count[i], i > 1, expected);
            call(kernel_at("neighbours", level), (void *const[]){x, rows, token, around},
                 (const int64_t[]){C, from[i] + 64, count[i], i > 1}, T, ROWS, 3);
            assert_memory_equal(around, expected, size * sizeof *around);
            free(around);
            free(expected);
        }
        for (int id = -1; id < 3; id++) { /* ids 0 to 2 repeat in a text; none is above 1 in the last text */
            call(kernel_at("select_id", level), (void *const[]){x, rows, token, y}, (const int64_t[]){C, id + 1}, T,
                 ROWS, 2);
            for (int s = 0; s < ROWS; s++)
                assert_memory_equal(y + s * C, x + row_of_id(&rows[s], token, id) * C, C * sizeof *y);
        }
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed), cmocka_unit_test(far_scores),
                                       cmocka_unit_test(sources), cmocka_unit_test(pooling)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
