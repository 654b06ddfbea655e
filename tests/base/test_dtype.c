/* test_dtype.c - 16-bit numbers: every pattern there and back, and every rounding between neighbours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "runtime/base/dtype.h"

static const struct {
    DType type;
    float (*to)(uint16_t h);
    uint16_t (*from)(float f);
    uint16_t infinity;
} types[] = {{DT_FP16, fp16_to_float, fp16_from_float, 0x7c00}, {DT_BF16, bf16_to_float, bf16_from_float, 0x7f80}};

enum { TYPES = sizeof types / sizeof *types, SIGN = 0x8000 };

static void every_pattern(void **state)
{
    (void)state;
    for (int k = 0; k < TYPES; k++)
        for (uint32_t h = 0; h <= UINT16_MAX; h++) {
            const float f = types[k].to((uint16_t)h);

            if (isnan(f)) {
                assert_true((h & ~(uint32_t)SIGN) > types[k].infinity);
                assert_true(isnan(types[k].to(types[k].from(f))));
            } else if (types[k].from(f) != h) {
                fail_msg("%s %04x is %.9g, which is %04x", dtype_name(types[k].type), h, (double)f, types[k].from(f));
            }
        }
}

static void expect(int k, float f, uint32_t h)
{
    if (types[k].from(f) != h || types[k].from(-f) != (h | SIGN))
        fail_msg("%s: %.9g became %04x, expected %04x", dtype_name(types[k].type), (double)f, types[k].from(f), h);
}

/* Also those whose payload is lost or would carry into the exponent. */
static void no_numbers(void **state)
{
    static const uint32_t bits[] = {0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff, 0x7fc00000};

    (void)state;
    for (int k = 0; k < TYPES; k++)
        for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
            float f;

            memcpy(&f, &bits[i], sizeof f);
            assert_true(isnan(types[k].to(types[k].from(f))));
        }
}

/* Halfway to the even one; a bit less or more to the nearer one. */
static void every_rounding(void **state)
{
    (void)state;
    for (int k = 0; k < TYPES; k++)
        for (uint32_t h = 0; h + 1 < types[k].infinity; h++) {
            const float a = types[k].to((uint16_t)h), b = types[k].to((uint16_t)(h + 1)), middle = a + (b - a) / 2;

            expect(k, middle, h % 2 ? h + 1 : h);
            expect(k, nextafterf(middle, a), h);
            expect(k, nextafterf(middle, b), h + 1);
        }
}

static void too_large(void **state)
{
    (void)state;
    expect(0, 65504.0f, 0x7bff);
    expect(0, nextafterf(65520.0f, 0.0f), 0x7bff);
    expect(0, 65520.0f, 0x7c00);
    expect(1, FLT_MAX, 0x7f80);
    for (int k = 0; k < TYPES; k++)
        expect(k, INFINITY, types[k].infinity);
}

/* e4m3: every code comes back; halfway to the even one, a bit less or more to the nearer one; from 448 on it stays there. */
static void e4m3(void **state)
{
    static const struct {
        uint8_t code;
        float number;
    } known[] = {{0, 0},      {1, 0x1p-9f}, {7, 0x7p-9f},     {8, 0x1p-6f}, {0x38, 1},    {0x3f, 1.875f},
                 {0x7e, 448}, {0xb8, -1},   {0x81, -0x1p-9f}, {0x40, 2},    {0x4d, 6.5f}, {0x77, 240.0f}};
    (void)state;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(e4m3_to_float(known[i].code) == known[i].number);
    for (int h = 0; h < 256; h++)
        if (h % 128 != 127)
            assert_int_equal(e4m3_from_float(e4m3_to_float((uint8_t)h)), h);
    for (int h = 0; h < 126; h++) {
        const float a = e4m3_to_float((uint8_t)h), b = e4m3_to_float((uint8_t)(h + 1)), middle = a + (b - a) / 2;

        assert_true(b > a);
        assert_int_equal(e4m3_from_float(middle), h % 2 ? h + 1 : h);
        assert_int_equal(e4m3_from_float(-middle), (h % 2 ? h + 1 : h) + 128);
        assert_int_equal(e4m3_from_float(nextafterf(middle, a)), h);
        assert_int_equal(e4m3_from_float(nextafterf(middle, b)), h + 1);
    }
    assert_int_equal(e4m3_from_float(465.0f), 0x7e);
    assert_int_equal(e4m3_from_float(-INFINITY), 0xfe);
    assert_true(isnan(e4m3_to_float(0x7f)) && isnan(e4m3_to_float(0xff)));
    assert_int_equal(e4m3_from_float(NAN) & 0x7f, 0x7f);
}

static void elements(void **state)
{
    static const DType all[] = {DT_FP32, DT_FP16, DT_BF16, DT_I32};
    uint32_t room[4] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(dtype_parse(dtype_name(all[i])), all[i]);
        dtype_store(room, 1, all[i], -3.0f);
        assert_true(dtype_load(room, 1, all[i]) == -3.0f);
        assert_true(dtype_load(room, 2, all[i]) == 0.0f);
    }
    for (int i = 0; i < 3; i++) { /* codes are no numbers without their scales */
        static const DType codes[] = {DT_INT8, DT_INT4, DT_FP8};
        const uint32_t before = room[0];

        assert_int_equal(dtype_parse(dtype_name(codes[i])), codes[i]);
        assert_int_equal(dtype_is_code(codes[i]), codes[i] != DT_INT4);
        dtype_store(room, 0, codes[i], 5.0f);
        assert_int_equal(room[0], before);
        assert_true(dtype_load(room, 1, codes[i]) == 0.0f);
    }
    assert_int_equal(dtype_parse("fp9"), DT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern), cmocka_unit_test(no_numbers), cmocka_unit_test(every_rounding),
        cmocka_unit_test(too_large),     cmocka_unit_test(elements),   cmocka_unit_test(e4m3),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
