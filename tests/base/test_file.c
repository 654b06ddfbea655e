/* test_file.c - files that appear when they are complete: what stands in the way, and what is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "runtime/base/file.h"
#include "tests/temp.h"

static void refused(const char *path, const char *word)
{
    FtxError err = {0};
    FileOut *f;

    assert_int_equal(file_create(path, &f, &err), FTX_EIO);
    assert_null(f);
    assert_non_null(strstr(err.text, word));
}

static void no_such_place(void **state)
{
    static char far[5000];

    (void)state;
    memset(far, 'x', sizeof far - 1);
    refused(far, "the path is too long");
    refused("/tmp", "it is a folder");
    refused(temp_path("none/file"), "cannot be written");
    assert_int_equal(file_make_dirs(far, NULL), FTX_EIO);
}

static void a_dead_process_left_a_part(void **state)
{
    const char *path = temp_path("whole");
    char part[300], text[8] = "";
    FtxError err;
    FileOut *f;
    FILE *in;

    (void)state;
    snprintf(part, sizeof part, "%s.part-%ld", path, (long)getpid());
    in = fopen(part, "w");
    assert_non_null(in);
    fputs("what is left", in);
    fclose(in);
    assert_int_equal(file_create(path, &f, &err), FTX_OK);
    assert_int_equal(file_write(f, "new", 3, &err), FTX_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(file_commit(f, &err), FTX_OK);
    assert_int_not_equal(access(part, F_OK), 0);
    in = fopen(path, "r");
    assert_non_null(in);
    assert_int_equal(fread(text, 1, sizeof text - 1, in), 3);
    fclose(in);
    assert_string_equal(text, "new");
}

static void given_up(void **state)
{
    const char *path = temp_path("never");
    char part[300];
    FileOut *f;

    (void)state;
    snprintf(part, sizeof part, "%s.part-%ld", path, (long)getpid());
    assert_int_equal(file_create(path, &f, NULL), FTX_OK);
    assert_int_equal(file_write(f, "x", 1, NULL), FTX_OK);
    file_abort(f);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(part, F_OK), 0);
}

static void programs_may_run(void **state)
{
    const char *path = temp_path("program");
    struct stat st;
    FileOut *f;

    (void)state;
    assert_int_equal(file_create(path, &f, NULL), FTX_OK);
    assert_int_equal(file_executable(f, NULL), FTX_OK);
    assert_int_equal(file_commit(f, NULL), FTX_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_mode & S_IXUSR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_such_place),
        cmocka_unit_test(a_dead_process_left_a_part),
        cmocka_unit_test(given_up),
        cmocka_unit_test(programs_may_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
