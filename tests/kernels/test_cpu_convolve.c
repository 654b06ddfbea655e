/* test_cpu_convolve.c - the CPU's convolution over a token and those before it against the reference: reaches from 2 to 16, rows
 * that begin and go on, slots in another order, weights of any type; and the bits of a prompt in pieces. */
#include "cpu_test.h"

enum { ROWS = 5, SLOTS = 7 };

/* Of each row: tokens of the step, tokens after it, slot. */
static const FtxRow some[ROWS] = {
    {.q_len = 1, .kv_len = 1, .slot = 6},   /* a prompt of one token */
    {.q_len = 1, .kv_len = 9, .slot = 2},   /* a generated token */
    {.q_len = 23, .kv_len = 23, .slot = 0}, /* a prompt begins */
    {.q_len = 2, .kv_len = 3, .slot = 4},   /* it goes on, and is still shorter than the reach */
    {.q_len = 12, .kv_len = 30, .slot = 3}};

static const struct {
    int C, taps;
    DType type;
    bool bias;
} layers[] = {{1, 2, DT_FP32, false},
              {37, 3, DT_BF16, true},
              {64, 4, DT_FP16, true},
              {200, 16, DT_FP32, true},
              {130, 3, DT_BF16, false}};

/* The rows one after another; returns their tokens. */
static int place(FtxRow *rows)
{
    int T = 0;

    memcpy(rows, some, sizeof some);
    for (int s = 0; s < ROWS; s++) {
        rows[s].q_start = T;
        T += rows[s].q_len;
    }
    return T;
}

static void convolutions(void **state)
{
    FtxRow rows[ROWS];
    const int T = place(rows);

    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const int C = layers[i].C, taps = layers[i].taps;
        const int64_t k[] = {
            [CONVOLVE_C] = C, [CONVOLVE_TAPS] = taps, [CONVOLVE_WT] = layers[i].type, [CONVOLVE_BT] = layers[i].type};
        const size_t of = (size_t)((taps - 1) * C), n = of * SLOTS, out = (size_t)(T * C);
        float *x = random_tensor(out, DT_FP32, 1.0f), *before = random_tensor(n, DT_FP32, 1.0f);
        void *w = random_tensor((size_t)(C * taps), layers[i].type, 1.0f);
        void *b = layers[i].bias ? random_tensor((size_t)C, layers[i].type, 1.0f) : NULL;
        float *want = malloc(out * sizeof *want), *y = malloc(out * sizeof *y), *kept = malloc(n * sizeof *kept);
        float *now = malloc(n * sizeof *now), *pieces = malloc(out * sizeof *pieces);

        for (int s = 0; s < ROWS; s++) /* what an earlier sequence left is no number */
            if (rows[s].kv_len == rows[s].q_len)
                memset(before + (size_t)rows[s].slot * of, 0xff, of * sizeof *before);
        memcpy(kept, before, n * sizeof *kept);
        ref_convolve((RefTensor){x, DT_FP32}, (RefTensor){w, layers[i].type}, (RefTensor){b, layers[i].type}, rows,
                     ROWS, C, taps, kept, want);
        for (int level = 0; level < LEVELS; level++) {
            CpuKernel *const kernel = kernel_at("convolve", level);

            for (int threads = 1; threads < 4; threads++) {
                memcpy(now, before, n * sizeof *now);
                memset(y, 0xff, out * sizeof *y);
                call(kernel, (void *const[]){x, w, b, rows, now, y}, k, T, ROWS, threads);
                assert_close(y, want, out, 1e-6, "convolve");
                assert_memory_equal(now, kept, n * sizeof *now); /* copies of x; other slots stay */
            }
            memcpy(now, before, n * sizeof *now);
            for (int s = 0; s < ROWS; s++)
                for (int at = 0, count; at < rows[s].q_len; at += count) { /* 1, 2, 3 ... tokens */
                    FtxRow piece = rows[s];

                    count = at + at / 2 + 1 < rows[s].q_len - at ? at / 2 + 1 : rows[s].q_len - at;
                    piece.q_start += at;
                    piece.q_len = count;
                    piece.kv_len += at + count - rows[s].q_len;
                    call(kernel, (void *const[]){x, w, b, &piece, now, pieces}, k, count, 1, 1);
                }
            assert_memory_equal(pieces, y, out * sizeof *y);
            assert_memory_equal(now, kept, n * sizeof *now);
        }
        free(x), free(before), free(w), free(b), free(want), free(y), free(kept), free(now), free(pieces);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(convolutions)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
