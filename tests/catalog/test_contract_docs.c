/* test_contract_docs.c - docs/contracts.md is complete: it has every line and every name that contracts may use, and each of its
 * examples is a line of the tree. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/embed.h"
#include "runtime/base/arena.h"
#include "runtime/base/dtype.h"
#include "runtime/base/file.h"

typedef struct Page {
    Arena *keep;
    const char *text;
    int missing;
} Page;

static const char *read_text(Arena *keep, const char *path)
{
    FileMap map;
    FtxError err;
    const char *text;

    if (file_map(path, &map, &err))
        fail_msg("%s", err.text);
    text = arena_strndup(keep, map.at, map.bytes);
    file_unmap(&map);
    return text;
}

static void must_have(Page *p, const char *what)
{
    if (strstr(p->text, what))
        return;
    print_error("docs/contracts.md lacks %s\n", what);
    p->missing++;
}

static void must_have_name(Page *p, const char *before, const char *name, const char *after)
{
    must_have(p, arena_printf(p->keep, "%s%s%s", before, name, after));
}

/* An example of a line, of all variants or of some. */
static void must_have_line(Page *p, const char *key)
{
    if (!strstr(p->text, arena_printf(p->keep, ": %s ", key)) && !strstr(p->text, arena_printf(p->keep, ":  %s ", key)))
        must_have_name(p, "\n//@ ", key, " ");
}

static void lines_and_names(Page *p)
{
#define LINE(key, form, what) must_have_line(p, #key);
#include "compiler/catalog/lines.def"
#undef LINE
#define NAME(name, value, meaning) must_have_name(p, "`", #name, "`");
#define LAUNCH(name, meaning) must_have_name(p, "`", #name, "`");
#define FUNCTION(name, meaning) must_have_name(p, "`", #name, "(x");
#define WORD(name, value) must_have_name(p, "`", #name, "`");
#include "compiler/catalog/names.def"
#define CAPABILITY(name, meaning) must_have_name(p, "`", #name, "`");
#include "compiler/targets.def"
#undef CAPABILITY
#undef NAME
#undef LAUNCH
#undef FUNCTION
#undef WORD
    for (DType t = DT_FP32; t <= DT_I32; t++)
        must_have_name(p, "`", dtype_name(t), "`");
}

/* Operators and functions of numbers stand in tables of runtime/base/expr.c: {"==", W_EQ}, {"min", W_MIN}, ... */
static void operators(Page *p)
{
    const char *at = read_text(p->keep, "runtime/base/expr.c");
    int n = 0;

    for (; (at = strstr(at, "{\"")) != NULL; at += 2, n++) {
        const char *name = arena_strndup(p->keep, at + 2, strcspn(at + 2, "\""));

        if (isalpha((unsigned char)*name))
            must_have_name(p, "`", name, "(");
        else
            must_have(p, name);
    }
    assert_true(n >= 17);
}

static bool has_line(const char *text, const char *line)
{
    for (const char *at = text; (at = strstr(at, line)) != NULL; at++)
        if ((at == text || at[-1] == '\n') && at[strlen(line)] == '\n')
            return true;
    return false;
}

static bool in_tree(const char *line, const char *made_up)
{
    for (size_t i = 0; i < embedded_count; i++)
        if (has_line(embedded_files[i].text, line))
            return true;
    return has_line(made_up, line);
}

static void examples(Page *p)
{
    const char *made_up = read_text(p->keep, "tests/passes/forms-quantised.ir"); /* forms that the tree does not have */
    int n = 0;

    for (const char *at = p->text; (at = strstr(at, "\n//@ ")) != NULL; n++) {
        const char *line = arena_strndup(p->keep, at + 1, strcspn(at + 1, "\n"));

        if (!in_tree(line, made_up)) {
            print_error("docs/contracts.md: no contract has the line %s\n", line);
            p->missing++;
        }
        at++;
    }
    assert_true(n >= 20);
}

static void contracts_page(void **state)
{
    Page p = {.keep = arena_open()};

    (void)state;
    p.text = read_text(p.keep, "docs/contracts.md");
    lines_and_names(&p);
    operators(&p);
    examples(&p);
    arena_close(p.keep);
    assert_int_equal(p.missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(contracts_page)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
