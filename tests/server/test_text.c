/* test_text.c - a text that grows: pieces of every length are printed whole, wherever the memory ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/text.h"

enum { MOST = 700 };

/* Behind `before` bytes a piece of every length; the third one is behind a longer text still. */
static void print_at(size_t before, size_t bytes)
{
    char piece[MOST + 1], want[4 * MOST];
    Text t = {0};

    memset(want, 'a', before);
    text_add(&t, want, before);
    memset(piece, 'b', bytes);
    piece[bytes] = '\0';
    for (int i = 0; i < 3; i++) {
        text_printf(&t, "%s%d", piece, i);
        memcpy(want + before, piece, bytes);
        before += bytes;
        want[before++] = (char)('0' + i);
        assert_int_equal(t.n, before);
        assert_memory_equal(t.at, want, before);
        assert_int_equal(t.at[t.n], '\0');
        assert_true(t.cap > t.n);
    }
    text_free(&t);
}

static void test_printf(void **state)
{
    (void)state;
    for (size_t before = 0; before < 300; before += 7)
        for (size_t bytes = 0; bytes <= MOST; bytes++)
            print_at(before, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_printf)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
