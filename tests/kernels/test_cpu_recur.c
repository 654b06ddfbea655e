/* test_cpu_recur.c - the CPU's linear recurrences against the reference: with the delta rule, without, and with a rate for each
 * key, heads of any size that share keys, prompts that begin and go on, slots in another order; and the bits of a prompt in
 * pieces. */
#include "cpu_test.h"

enum { ROWS = 4, SLOTS = 6 };

/* Of each row: tokens of the step, tokens after it, slot. */
static const FtxRow some[ROWS] = {{.q_len = 1, .kv_len = 1, .slot = 5},   /* a prompt of one token */
                                  {.q_len = 1, .kv_len = 9, .slot = 2},   /* a generated token */
                                  {.q_len = 23, .kv_len = 23, .slot = 0}, /* a prompt begins */
                                  {.q_len = 12, .kv_len = 30, .slot = 3}};

typedef struct Layer {
    int G, H, K, V;
    bool delta;
    double unit, scale, low, high;
    bool rates; /* of each key: selective_scan */
} Layer;

static const Layer layers[] = {
    {1, 1, 16, 16, false, 0, 1, 0, 0, false},         {2, 4, 24, 40, true, 1e-6, 0.2, 0, 0, false},
    {3, 3, 128, 128, true, 1e-6, 0.1, 0, 0, false},   {1, 6, 64, 64, false, 0, 1, 0.05, 0.4, false},
    {2, 2, 256, 24, false, 1e-5, 0.5, 0, 0.3, false}, {2, 6, 40, 256, true, 0, 0.3, 0.2, 0, false},
    {1, 37, 16, 1, false, 0, 1, 0, 0, true},          {1, 5, 256, 1, false, 0, 0.3, 0.1, 0.6, true},
    {1, 64, 24, 1, false, 0, 1, 0, 0.5, true},
};

typedef struct Data {
    const Layer *of;
    int T;
    FtxRow rows[ROWS];
    float *x[7]; /* q, k, v, a, rate, shift, beta */
    float *state, *y;
    size_t state_bytes, y_bytes;
} Data;

static Data make(const Layer *of)
{
    Data d = {.of = of};

    memcpy(d.rows, some, sizeof d.rows);
    for (int s = 0; s < ROWS; s++) {
        d.rows[s].q_start = d.T;
        d.T += d.rows[s].q_len;
    }
    const int sizes[7] = {d.T * of->G * of->K,
                          d.T * of->G * of->K,
                          d.T * of->H * of->V,
                          d.T * of->H,
                          of->rates ? of->H * of->K : of->H,
                          of->H,
                          d.T * of->H};

    for (int i = 0; i < 7; i++)
        d.x[i] = random_tensor((size_t)sizes[i], DT_FP32, i == 1 && of->unit == 0 ? 0.3f : i == 3 ? 3.0f : 1.0f);
    d.x[3][0] = 30.0f; /* softplus is the number itself */
    d.state_bytes = sizeof(float) * (size_t)(SLOTS * of->H * of->K * of->V);
    d.y_bytes = sizeof(float) * (size_t)(d.T * of->H * of->V);
    d.state = random_tensor(d.state_bytes / sizeof(float), DT_FP32, 1.0f);
    for (int s = 0; s < ROWS; s++) /* what an earlier sequence left is no number */
        if (d.rows[s].kv_len == d.rows[s].q_len)
            memset(d.state + (size_t)d.rows[s].slot * (size_t)(of->H * of->K * of->V), 0xff, d.state_bytes / SLOTS);
    d.y = malloc(d.y_bytes);
    return d;
}

static void drop(Data *d)
{
    for (int i = 0; i < 7; i++)
        free(d->x[i]);
    free(d->state), free(d->y);
}

static void *copy(const void *p, size_t bytes)
{
    return memcpy(malloc(bytes), p, bytes);
}

static void run(const Data *d, int level, const FtxRow *rows, int S, float *state, float *y, int threads)
{
    const Layer *of = d->of;

    if (of->rates) {
        void *const arg[] = {d->x[0], d->x[1], d->x[2], d->x[3], d->x[4], d->x[5], (void *)(uintptr_t)rows, state, y};
        const int64_t k[] = {[SELECTIVE_SCAN_H] = of->H,
                             [SELECTIVE_SCAN_K] = of->K,
                             [SELECTIVE_SCAN_SCALE] = number_bits(of->scale),
                             [SELECTIVE_SCAN_LOW] = number_bits(of->low),
                             [SELECTIVE_SCAN_HIGH] = number_bits(of->high)};

        call(kernel_at("selective_scan", level), arg, k, d->T, S, threads);
        return;
    }

    void *const arg[] = {
        d->x[0], d->x[1], d->x[2], d->x[3], d->x[4], d->x[5], of->delta ? d->x[6] : NULL, (void *)(uintptr_t)rows,
        state,   y};
    const int64_t k[] = {[RECUR_H] = of->H,
                         [RECUR_G] = of->G,
                         [RECUR_K] = of->K,
                         [RECUR_V] = of->V,
                         [RECUR_UNIT] = number_bits(of->unit),
                         [RECUR_SCALE] = number_bits(of->scale),
                         [RECUR_LOW] = number_bits(of->low),
                         [RECUR_HIGH] = number_bits(of->high)};

    call(kernel_at("recur", level), arg, k, d->T, S, threads);
}

static void against_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        Data d = make(&layers[i]);
        const Layer *of = d.of;
        float *want = malloc(d.y_bytes), *after = copy(d.state, d.state_bytes);
        const RefTensor none = {0};
        const RefRecur ref = {.q = {d.x[0], DT_FP32},
                              .k = {d.x[1], DT_FP32},
                              .v = {d.x[2], DT_FP32},
                              .a = {d.x[3], DT_FP32},
                              .rate = {d.x[4], DT_FP32},
                              .shift = {d.x[5], DT_FP32},
                              .beta = of->delta ? (RefTensor){d.x[6], DT_FP32} : none,
                              .G = of->G,
                              .H = of->H,
                              .K = of->K,
                              .V = of->V,
                              .rates = of->rates,
                              .unit = of->unit,
                              .scale = of->scale,
                              .low = of->low,
                              .high = of->high};
        const size_t one = d.state_bytes / SLOTS / sizeof(float);

        ref_recur(&ref, d.rows, ROWS, after, want);
        for (int level = 0; level < LEVELS; level++)
            for (int threads = 1; threads <= 5; threads += 4) {
                float *s = copy(d.state, d.state_bytes);

                memset(d.y, 0xff, d.y_bytes);
                run(&d, level, d.rows, ROWS, s, d.y, threads);
                assert_close(d.y, want, d.y_bytes / sizeof(float), 3e-6, "recur");
                for (size_t slot = 0; slot < SLOTS; slot++)
                    if (slot == 1 || slot == 4)
                        assert_memory_equal(s + slot * one, d.state + slot * one, one * sizeof(float));
                    else
                        assert_close(s + slot * one, after + slot * one, one, 3e-6, "the state");
                free(s);
            }
        free(want), free(after);
        drop(&d);
    }
}

/* Each sequence alone, in chunks of 1, 2, 3 ... tokens: the same bits of y and of the state. */
static void in_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        Data d = make(&layers[i]);

        for (int level = 0; level < LEVELS; level++) {
            float *whole = copy(d.state, d.state_bytes), *parts = copy(d.state, d.state_bytes), *y = malloc(d.y_bytes);

            run(&d, level, d.rows, ROWS, whole, d.y, 3);
            memset(y, 0xff, d.y_bytes);
            for (int s = 0; s < ROWS; s++) {
                const int before = d.rows[s].kv_len - d.rows[s].q_len;
                FtxRow row = d.rows[s];

                for (int at = 0, n = 1; at < d.rows[s].q_len; at += row.q_len, n++) {
                    row.q_start = d.rows[s].q_start + at;
                    row.q_len = n < d.rows[s].q_len - at ? n : d.rows[s].q_len - at;
                    row.kv_len = before + at + row.q_len;
                    run(&d, level, &row, 1, parts, y, 2);
                }
            }
            assert_memory_equal(y, d.y, d.y_bytes);
            assert_memory_equal(parts, whole, d.state_bytes);
            free(whole), free(parts), free(y);
        }
        drop(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_reference), cmocka_unit_test(in_pieces)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
