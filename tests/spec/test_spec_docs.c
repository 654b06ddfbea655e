/* test_spec_docs.c - docs/specs.md names everything that a spec may use: functions, fields, methods. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "compiler/spec/spec.h"
#include "runtime/base/file.h"
#include "tests/temp.h"

static char *doc;

static int read_doc(void **state)
{
    FileMap map;
    FtxError err;

    (void)state;
    if (file_map("docs/specs.md", &map, &err))
        return -1;
    doc = strndup(map.at, map.bytes);
    file_unmap(&map);
    return doc ? 0 : -1;
}

static int free_doc(void **state)
{
    (void)state;
    free(doc);
    return 0;
}

/* The message of reading this text as a spec with this -D. */
static const char *message(const char *text, const char *define, Arena *a)
{
    const char *path = temp_path("names.lua");
    const Override o = {define};
    Diag d = {0};
    Spec spec;

    assert_int_equal(file_write_whole(path, text, strlen(text), NULL), FTX_OK);
    assert_false(spec_read(path, &o, define != NULL, a, &spec, &d));
    return arena_strdup(a, d.text);
}

/* Every word of a list, with something before and after it, stands in the document. */
static size_t check_words(const char *list, const char *before, const char *after, Arena *a)
{
    size_t n = 0;

    for (char *save = NULL, *w = strtok_r(arena_strdup(a, list), " ,", &save); w; w = strtok_r(NULL, " ,", &save), n++)
        if (!strstr(doc, arena_printf(a, "%s%s%s", before, w, after)))
            fail_msg("docs/specs.md does not name %s%s%s", before, w, after);
    return n;
}

/* The keys of a table, which a spec may list. */
static const char *keys_of(const char *table, Arena *a)
{
    const char *text = message(arena_printf(a,
                                            "local names = {}\n"
                                            "for name in pairs(%s) do\n"
                                            "  if string.sub(name, 1, 2) ~= '__' then names[#names + 1] = name end\n"
                                            "end\n"
                                            "error('names: ' .. table.concat(names, ' '))",
                                            table),
                               NULL, a);
    const char *names = strstr(text, "names: ");

    if (!names)
        fail_msg("%s", text);
    return names + strlen("names: ");
}

static void test_functions(void **state)
{
    Arena *a = arena_open();
    (void)state;

    assert_true(check_words(keys_of("require 'nn'", a), "nn.", "", a) >= 34);
    assert_true(check_words(keys_of("require 'ftx'", a), "ftx.", "", a) >= 7);
    assert_true(check_words(keys_of("require 'lib.config'", a), "config.", "", a) >= 8);
    assert_true(check_words(keys_of("require 'lib.hf'", a), "hf.", "", a) >= 5);
    assert_true(check_words(keys_of("getmetatable(require('lib.hf').file('x', {})).__index", a), "", "(", a) >= 10);
    arena_close(a);
}

/* The names after "the fields are: ". */
static const char *fields_in(const char *text)
{
    const char *list = strstr(text, "the fields are: ");

    if (!list)
        fail_msg("%s", text);
    return list + strlen("the fields are: ");
}

static void test_fields(void **state)
{
    static const char *const groups[] = {"precision", "limits", "kv", "decode"};
    const char *spec = "return require('ftx').model {}";
    Arena *a = arena_open();
    (void)state;

    assert_true(check_words(fields_in(message(spec, "nothing=1", a)), "`", "", a) >= 16);
    for (size_t i = 0; i < LEN(groups); i++) {
        const char *text = message(spec, arena_printf(a, "%s.nothing=1", groups[i]), a);

        check_words(fields_in(text), arena_printf(a, "%s.", groups[i]), "`", a);
    }
    arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_functions), cmocka_unit_test(test_fields)};

    return cmocka_run_group_tests(tests, read_doc, free_doc);
}
