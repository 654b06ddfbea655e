/* test_consts.c - consts.h and extents.def of kernels/cpu are what the contracts say; FTX_UPDATE=1 ctest -R test_consts
 * makes consts.h anew. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/catalog/contract.h"
#include "kernels/cpu/cpu.h"
#include "runtime/device/cpu/extents.h"
#include "runtime/base/file.h"

static const char path[] = "kernels/cpu/consts.h";

static const char head[] =
    "/* consts.h - where each constant of a CPU kernel's contract stands in CpuCall.k.\n"
    " *\n"
    " * Made from the `//@ consts` and `//@ match` lines of kernels/cpu: FTX_UPDATE=1 ctest -R test_consts */\n"
    "#ifndef FTX_CPU_CONSTS_H\n"
    "#define FTX_CPU_CONSTS_H\n"
    "// clang-format off\n";

static char *upper(Arena *a, const char *s)
{
    char *out = arena_strdup(a, s);

    for (char *p = out; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    return out;
}

/* One enum for each kernel, its constants in the order in which the artifact stores them. */
static const char *header_text(Arena *a, const Catalog *c)
{
    const char *out = head;

    for (size_t i = 0; i < c->n; i++) {
        const Contract *k = c->at[i];

        if (k->device != KD_CPU || !k->consts.n)
            continue;
        out = arena_printf(a, "%s\nenum {\n", out);
        for (size_t n = 0; n < k->consts.n; n++)
            out = arena_printf(a, "%s    %s_%s,%s\n", out, upper(a, k->family), k->consts.at[n].value.name,
                               k->consts.at[n].kind == CONST_FLOAT ? " /* cpu_number */" : "");
        out = arena_printf(a, "%s};\n", out);
    }
    return arena_printf(a, "%s\n#endif\n", out);
}

static void cpu_consts(void **state)
{
    Arena *keep = arena_open();
    Catalog c = {0};
    Diag d = {0};
    FileMap map;
    FtxError err;
    const char *text;

    (void)state;
    if (!catalog_open(keep, &c, &d))
        fail_msg("%s", d.text);
    text = header_text(keep, &c);
    assert_non_null(strstr(text, "\n    LINEAR_ROWS_S,\n    LINEAR_KIND,\n    LINEAR_GLU,\n"));
    if (getenv("FTX_UPDATE") && file_write_whole(path, text, strlen(text), &err))
        fail_msg("%s", err.text);
    if (file_map(path, &map, &err))
        fail_msg("%s", err.text);
    if (map.bytes != strlen(text) || memcmp(map.at, text, map.bytes) != 0)
        fail_msg("%s is not what the contracts say: FTX_UPDATE=1 ctest -R test_consts", path);
    file_unmap(&map);
    arena_close(keep);
}

/* The constants of a contract by name, numbers with a ~. */
static const char *constant_names(Arena *a, const Contract *k)
{
    const char *out = "";

    for (size_t n = 0; n < k->consts.n; n++)
        out = arena_printf(a, "%s%s%s%s", out, n ? " " : "", k->consts.at[n].kind == CONST_FLOAT ? "~" : "",
                           k->consts.at[n].value.name);
    return out;
}

/* Every kernel of a contract has a row in extents.def, of the same constants and as many operands. */
static void cpu_extent_rows_fit(void **state)
{
    Arena *keep = arena_open();
    Catalog c = {0};
    Diag d = {0};
    size_t rows = 0;

    (void)state;
    if (!catalog_open(keep, &c, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < c.n; i++) {
        const Contract *k = c.at[i];
        const CpuExtents *row = k->device == KD_CPU ? cpu_extents(k->family) : NULL;
        size_t operands = 0, zeroed = 0;

        if (k->device != KD_CPU)
            continue;
        if (!row)
            fail_msg("kernels/cpu/extents.def has no %s", k->family);
        assert_string_equal(row->constants, constant_names(keep, k));
        for (const char *at = row->operands; *at; at++) {
            operands += *at == ';';
            zeroed += *at == '!';
        }
        if (operands != k->args.n + k->scratch.n + k->zeroed.n)
            fail_msg("kernels/cpu/extents.def: %s has %zu operands", k->family, operands);
        assert_int_equal(zeroed, k->zeroed.n);
        assert_true(operands <= EXTENT_OPERANDS);
        rows++;
    }
    assert_true(rows > 15);
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cpu_consts), cmocka_unit_test(cpu_extent_rows_fit)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
