/* test_utf8.c - every code point there and back; the classes of characters that tokenizers split at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/utf8.h"

static void every_code(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        const size_t wanted = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        char bytes[4];
        size_t length;
        uint32_t code;

        if (c >= 0xd800 && c < 0xe000) /* surrogates */
            continue;
        assert_int_equal(utf8_put(c, bytes), wanted);
        assert_int_equal(utf8_next((const unsigned char *)bytes, wanted, &length, &code), UTF8_CHARACTER);
        assert_int_equal(length, wanted);
        assert_int_equal(code, c);
    }
}

/* As Unicode's White_Space. */
static void spaces(void **state)
{
    static const uint32_t all[] = {9,      10,     11,     12,     13,     0x20,   0x85,   0xa0,   0x1680,
                                   0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                   0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
    size_t n = 0;

    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++)
        if (utf8_is_space(c))
            assert_true(n < sizeof all / sizeof *all && all[n++] == c);
    assert_int_equal(n, sizeof all / sizeof *all);
}

/* ASCII: marks as BERT has them; words as the Hugging Face library's \\w. */
static void marks_and_words(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x80; c++) {
        const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');

        assert_int_equal(utf8_is_mark(c), c > 0x20 && c < 0x7f && !letter);
        assert_int_equal(utf8_is_word(c), letter || c == '_');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_code), cmocka_unit_test(spaces),
                                       cmocka_unit_test(marks_and_words)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
