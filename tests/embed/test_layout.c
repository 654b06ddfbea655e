/* test_layout.c - what older programs know of ftx.h has not moved: fields keep their places and sizes, names their numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/ftx.h"

#include "layout.h"

static const Layout layout[] = {
#include "layout.def"
    {NULL, 0},
};

static void test_layout(void **state)
{
    size_t n = 0;

    (void)state;
    for (; layout[n].name; n++)
        if (layout[n].value != old_layout[n].value)
            fail_msg("%s: %zx, in older programs %zx", layout[n].name, layout[n].value, old_layout[n].value);
    assert_true(n > 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layout)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
