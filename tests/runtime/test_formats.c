/* test_formats.c - artifacts of older formats are opened, or refused with the command that makes a new one.
 *
 * formats/N.ftx is a tiny artifact of format N. When FTX_FORMAT grows, add one of the format before:
 *   ftxc compile tests/runtime/settings.lua -t cpu --no-weights -D decode.width=1 -D limits.sequences=1 -o tests/runtime/formats/N.ftx */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/artifact/artifact.h"
#include "runtime/base/hash.h"
#include "tests/temp.h"

enum { OLDEST = 6 };

#define SPEC "settings.lua"
#define SETTINGS "-t cpu -D decode.width=2 -D limits.sequences=2 -D 'name=two words'"

static void test_stored(void **state)
{
    (void)state;
    for (int n = OLDEST; n < FTX_FORMAT; n++) {
        char path[100];
        FtxModel *model;
        FtxError err = {0};
        FtxOptions o = FTX_OPTIONS_INIT;
        FtxStatus s;

        o.random_weights = 1;
        snprintf(path, sizeof path, "tests/runtime/formats/%d.ftx", n);
        s = ftx_model_open(path, &o, &model, &err);
        if (s == FTX_EVERSION)
            assert_non_null(strstr(err.text, "make a new one: ftxc compile "));
        else if (s)
            fail_msg("%s", err.text);
        ftx_model_close(model);
    }
}

/* Makes an artifact and says that it is of the format before. */
static void make_old(const char *path)
{
    const uint32_t format = FTX_FORMAT - 1;
    char command[600];
    FILE *f;

    snprintf(command, sizeof command, "cd tests/runtime && %s compile " SPEC " " SETTINGS " -q -o %s", getenv("FTXC"),
             path);
    assert_int_equal(system(command), 0);
    f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offsetof(FtxHeader, format), SEEK_SET), 0);
    assert_int_equal(fwrite(&format, sizeof format, 1, f), 1);
    fclose(f);
}

/* The command of the message makes an artifact that opens. */
static void test_command(void **state)
{
    const char *path = temp_path("old.ftx"), *command;
    char wanted[500], line[1000];
    Artifact a;
    FtxError err;

    (void)state;
    make_old(path);
    assert_int_equal(artifact_open(path, &a, &err), FTX_EVERSION);
    snprintf(wanted, sizeof wanted, "; make a new one: ftxc compile " SPEC " " SETTINGS " -o %s", path);
    command = strstr(err.text, wanted);
    if (!command)
        fail_msg("\"%s\" has no \"%s\"", err.text, wanted);
    snprintf(line, sizeof line, "cd tests/runtime && %s%s >/dev/null", getenv("FTXC"), strstr(command, " compile"));
    assert_int_equal(system(line), 0);
    assert_int_equal(artifact_open(path, &a, &err), FTX_OK);
    assert_string_equal(artifact_string(&a, a.facts->name), "two words");
    artifact_close(&a);
}

/* A program with an artifact behind it is made anew as a program. */
static void test_program(void **state)
{
    const uint32_t format = FTX_FORMAT - 1;
    const char *path = temp_path("story");
    char command[600];
    Artifact a;
    FtxError err;
    FILE *f;
    long at = 0;

    (void)state;
    snprintf(command, sizeof command, "cd tests/runtime && %s compile " SPEC " -t cpu -q --exe -o %s", getenv("FTXC"),
             path);
    assert_int_equal(system(command), 0);
    assert_int_equal(artifact_open(path, &a, &err), FTX_OK);
    at = (long)((const char *)a.map.at - (const char *)a.file.at);
    assert_true(at > 0);
    artifact_close(&a);
    f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at + (long)offsetof(FtxHeader, format), SEEK_SET), 0);
    assert_int_equal(fwrite(&format, sizeof format, 1, f), 1);
    fclose(f);
    assert_int_equal(artifact_open(path, &a, &err), FTX_EVERSION);
    snprintf(command, sizeof command, "make a new one: ftxc compile " SPEC " -t cpu --exe -o %s", path);
    if (!strstr(err.text, command))
        fail_msg("\"%s\" has no \"%s\"", err.text, command);
}

/* Of a damaged one no command is believed: it may lie outside of the file, or move a terminal's cursor. */
static void test_damaged(void **state)
{
    enum { COMMAND, TABLE, COUNT, SECTION, CASES };
    const char *path = temp_path("damaged.ftx");
    FileMap map;
    Artifact a;
    FtxError err;

    (void)state;
    make_old(path);
    assert_int_equal(file_map(path, &map, &err), FTX_OK);
    for (int i = 0; i < CASES; i++) {
        char *bytes = aligned_alloc(64, (map.bytes + 63) / 64 * 64);
        FtxHeader *h = (FtxHeader *)bytes;
        FtxSection *s;

        assert_non_null(bytes);
        memcpy(bytes, map.at, map.bytes);
        s = (FtxSection *)(bytes + h->sections_at);
        while (s->kind != FTX_SEC_BUILD)
            s++;
        if (i == COMMAND)
            *strstr(bytes + s->offset, "compile") = '\033';
        if (i == TABLE)
            h->sections_at = map.bytes + 8;
        if (i == COUNT)
            h->sections = UINT32_MAX;
        if (i == SECTION)
            s->bytes = UINT64_MAX - s->offset + 1;
        assert_int_equal(artifact_open_bytes(bytes, map.bytes, &a, &err), FTX_EVERSION);
        assert_non_null(strstr(err.text, "make a new one: ftxc compile SPEC -o FILE.ftx, where SPEC"));
        free(bytes);
    }
    file_unmap(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stored),
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
