/* test_env.c - environment variables: whole numbers in their range, and what is said of others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/env.h"

static void taken(const char *text, int wanted)
{
    int value = -1;

    setenv("FTX_AHEAD", text, 1);
    assert_int_equal(env_int(ENV_FTX_AHEAD, 1, 6, 5, &value, NULL), FTX_OK);
    assert_int_equal(value, wanted);
}

static void refused(const char *text)
{
    FtxError err = {0};
    int value;

    setenv("FTX_AHEAD", text, 1);
    assert_int_equal(env_int(ENV_FTX_AHEAD, 1, 6, 5, &value, &err), FTX_EINVAL);
    assert_memory_equal(err.text, "FTX_AHEAD is \"", 14);
    assert_non_null(strstr(err.text, text));
    assert_non_null(strstr(err.text, "\": expected a whole number from 1 to 6"));
}

static void whole_numbers(void **state)
{
    int value;

    (void)state;
    unsetenv("FTX_AHEAD");
    assert_int_equal(env_int(ENV_FTX_AHEAD, 1, 6, 5, &value, NULL), FTX_OK);
    assert_int_equal(value, 5);
    taken("", 5);
    taken("1", 1);
    taken("6", 6);
    refused("0");
    refused("7");
    refused("-3");
    refused("4 ");
    refused("0x4");
    refused("4.5");
    refused("four");
    refused("4294967298"); /* not 2 */
    refused("99999999999999999999");
    unsetenv("FTX_AHEAD");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_numbers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
