/* test_random.c - drawn weights: the same in any order, of the right size, and fixed for ever. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/packed.h"
#include "runtime/device/random.h"

enum { ROWS = 300, COLUMNS = 48, N = ROWS * COLUMNS };

static const float table[4] = {1.0f, 0.5f, -2.0f, 7.0f};
static FtxWeight weights[] = {
    {.type = DT_FP32, .rank = 2, .kind = FTX_WEIGHT_MATRIX, .dim = {ROWS, COLUMNS}},
    {.type = DT_BF16, .rank = 2, .kind = FTX_WEIGHT_MATRIX, .dim = {ROWS, COLUMNS}},
    {.type = DT_FP16, .rank = 2, .kind = FTX_WEIGHT_MATRIX, .dim = {ROWS, COLUMNS}},
    {.type = DT_FP32, .rank = 1, .kind = FTX_WEIGHT_GAIN, .dim = {COLUMNS}},
    {.type = DT_FP32, .rank = 1, .kind = FTX_WEIGHT_BIAS, .dim = {COLUMNS}},
    {.type = DT_FP32, .rank = 1, .kind = FTX_WEIGHT_TABLE, .dim = {4}, .bytes = sizeof table},
    {.type = DT_FP32, .rank = 2, .kind = FTX_WEIGHT_CENTRED, .dim = {ROWS, COLUMNS}},
    {.type = DT_FP16, .rank = 2, .kind = FTX_WEIGHT_CENTRED, .dim = {ROWS, COLUMNS}, .like = 7},
};
static const Artifact artifact = {.weights = weights, .n_weights = 8, .tables = table};

static void test_pieces(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < 3; w++) {
        const size_t size = dtype_size(weights[w].type);
        char all[N * sizeof(float)], parts[N * sizeof(float)];

        random_fill(&artifact, w, 42, 0, N, all);
        for (uint64_t first = 0; first < N; first += 1000)
            random_fill(&artifact, w, 42, first, first + 1000 < N ? first + 1000 : N, parts + first * size);
        assert_memory_equal(all, parts, N * size);
    }
}

/* Quantised: what stands behind the codes of a tile makes values of about the size of the others, around 0. */
static void test_tiles(void **state)
{
    enum { K = 64, GROUP = 32, GROUPS = 16 * K / GROUP };
    const float scale = sqrtf(3.0f / K) / 8;
    const float half_scale = fp16_to_float(fp16_from_float(scale)), minimum = scale * 8;
    (void)state;

    for (int kind = 0; kind < PACKED_SCALES_COUNT; kind++) {
        FtxWeight w = {.type = DT_INT4, .rank = 2, .kind = FTX_WEIGHT_MATRIX, .dim = {32, K}, .group = GROUP};
        const Artifact a = {.weights = &w, .n_weights = 1};
        unsigned char tiles[2 * 4096], *behind;
        const size_t codes = packed_codes(DT_INT4, K);

        w.scales = (uint32_t)kind;
        assert_true(2 * random_unit(&w) <= sizeof tiles);
        random_fill(&a, 0, 3, 0, 2, tiles);
        assert_memory_not_equal(tiles, tiles + random_unit(&w), codes);
        behind = tiles + random_unit(&w) + codes;
        for (int i = 0; i < GROUPS; i++) {
            uint16_t half;
            float f;

            memcpy(&half, behind + 2 * i, sizeof half);
            memcpy(&f, behind + 4 * i, sizeof f);
            assert_true(kind >= PACKED_FP32 ? f == scale : fp16_to_float(half) == half_scale);
            memcpy(&f, behind + 4 * (GROUPS + i), sizeof f);
            assert_true(kind != PACKED_FP32_MINIMA || f == minimum);
            assert_true(kind != PACKED_FP16_ZEROS || behind[2 * GROUPS + i] == 8);
        }
    }
}

static void test_statistics(void **state)
{
    const float scale = sqrtf(3.0f / COLUMNS);
    float v[N], other[N];
    uint16_t half[N];
    double sum = 0.0, squares = 0.0, product = 0.0;

    (void)state;
    random_fill(&artifact, 0, 7, 0, N, v);
    random_fill(&artifact, 1, 7, 0, N, half);
    for (int i = 0; i < N; i++) {
        other[i] = bf16_to_float(half[i]);
        assert_true(v[i] >= -scale && v[i] < scale);
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
        product += (double)v[i] * (double)other[i];
    }
    /* five standard deviations of each mean */
    assert_true(fabs(sum / N) < 5.0 * sqrt(1.0 / COLUMNS / N));
    assert_true(fabs(squares / N - 1.0 / COLUMNS) < 5.0 * sqrt(0.8 / N) / COLUMNS);
    assert_true(fabs(product / N) < 5.0 / COLUMNS / sqrt(N));
}

/* A device draws the same: these values may not change. */
static void test_values(void **state)
{
    const uint32_t key = random_key(0x0123456789abcdefull, 5);

    (void)state;
    assert_int_equal(key, 0xa4693df9u);
    assert_true(random_value(key, 0, 1.0f) == 5921953.0f / 8388608.0f - 1.0f);
    assert_true(random_value(key, 1, 1.0f) == 1375607.0f / 8388608.0f - 1.0f);
    assert_true(random_value(key, 1ull << 32, 1.0f) == 16555746.0f / 8388608.0f - 1.0f);
    assert_int_not_equal(random_key(1, 5), random_key(2, 5));
    assert_int_not_equal(random_key(1, 5), random_key(1ull << 32 | 1, 5));
    assert_true(random_value(random_key(1, 0), 0, 1.0f) != random_value(random_key(1, 0), 1ull << 32, 1.0f));
}

static void test_rounding(void **state)
{
    uint16_t half[N];

    (void)state;
    random_fill(&artifact, 1, 3, 0, N, half);
    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(half[i], bf16_from_float(random_value(random_key(3, 1), i, random_scale(&weights[1]))));
}

static void test_kinds(void **state)
{
    float v[COLUMNS];

    (void)state;
    random_fill(&artifact, 3, 9, 0, COLUMNS, v);
    for (int i = 0; i < COLUMNS; i++)
        assert_true(v[i] == 1.0f);
    random_fill(&artifact, 4, 9, 0, COLUMNS, v);
    for (int i = 0; i < COLUMNS; i++)
        assert_true(v[i] == 0.0f);
    random_fill(&artifact, 5, 9, 1, 4, v);
    assert_memory_equal(v, table + 1, 3 * sizeof *v);
}

/* Of a pair the second is the first with the other sign, wherever a piece begins; another packing takes the same numbers. */
static void test_centred(void **state)
{
    float v[N], from_one[N - 1];
    uint16_t half[N];

    (void)state;
    random_fill(&artifact, 6, 11, 0, N, v);
    random_fill(&artifact, 6, 11, 1, N, from_one);
    random_fill(&artifact, 7, 11, 0, N, half);
    assert_memory_equal(v + 1, from_one, sizeof from_one);
    for (uint64_t i = 0; i < N; i += 2) {
        assert_true(v[i] == random_value(random_key(11, 6), i, random_scale(&weights[6])));
        assert_true(v[i + 1] == -v[i]);
        assert_int_equal(half[i], fp16_from_float(v[i]));
        assert_int_equal(half[i + 1], fp16_from_float(v[i + 1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),   cmocka_unit_test(test_pieces),   cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_values),  cmocka_unit_test(test_rounding), cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_centred),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
