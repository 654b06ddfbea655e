/* test_passes.c - golden files: tests/passes/NAME.ir has a command, a graph, and after a line `---` the expected output.
 * FTX_UPDATE=1 rewrites the output; the diff is reviewed.
 *
 *     # run: simplify,precision                   graph passes; prints the graph
 *     # run: select sm_90a                        stages up to that one, on that target; prints its result
 *     # run: why cpu %4                           what `ftxc why` prints for a value
 *     # precision: weights=bf16 compute=fp32      optional; sums=fixed; quant=int4 head=int8 ...: read_quantising
 *     //@ kernel ...                              contracts for stages, instead of the tree's
 *     graph "..." ...
 *
 * A mistake prints as `error: ...`. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/passes/lower.h"
#include "runtime/base/file.h"

typedef struct Golden {
    Arena *keep;
    const char *path, *head, *expected; /* head: all before the line --- */
    const char *run;                    /* "select sm_90a" */
    const char *contracts, *graph;      /* parts of head */
    Precision precision;
} Golden;

/* The text after `# key: ` in the head, NULL if there is none. */
static const char *directive(const Golden *f, const char *key)
{
    const char *at = strstr(f->head, arena_printf(f->keep, "# %s: ", key));

    if (!at)
        return NULL;
    at += strlen(key) + 4;
    return arena_strndup(f->keep, at, strcspn(at, "\n"));
}

static DType type_after(const char *text, const char *key)
{
    const char *at = text ? strstr(text, key) : NULL;
    char word[8] = "";

    if (at)
        sscanf(at + strlen(key), "%7[a-z0-9]", word);
    return dtype_parse(word);
}

/* quant=int4 head=int8 group=64 zeros except=NAME: how weights are quantised; without quant= none is. */
static Quantising read_quantising(Arena *keep, const char *text)
{
    Quantising q = {.type = type_after(text, "quant="), .head = type_after(text, "head=")};
    const char *group = text ? strstr(text, "group=") : NULL, *except = text ? strstr(text, "except=") : NULL;

    q.group = group ? atoi(group + 6) : 0;
    q.zeros = text && strstr(text, "zeros");
    if (except) {
        q.except = arena_array(keep, const char *, 1);
        q.except[q.n_except++] = arena_strdup(keep, except + 7);
    }
    return q;
}

static Golden read_golden(Arena *keep, const char *path)
{
    Golden f = {.keep = keep, .path = path};
    FileMap map;
    FtxError err;
    const char *text, *cut, *graph, *first;

    if (file_map(path, &map, &err))
        fail_msg("%s", err.text);
    text = arena_strndup(keep, map.at, map.bytes);
    file_unmap(&map);
    cut = strstr(text, "\n---\n");
    if (!cut)
        fail_msg("%s: no line ---", path);
    f.head = arena_strndup(keep, text, (size_t)(cut - text) + 1);
    f.expected = cut + 5;
    f.run = directive(&f, "run");
    if (!f.run)
        fail_msg("%s: no line `# run: `", path);
    graph = strstr(f.head, "\ngraph ");
    if (!graph)
        fail_msg("%s: no graph", path);
    f.graph = graph + 1;
    first = strstr(f.head, "\n//@");
    f.contracts = first && first < graph ? arena_strndup(keep, first + 1, (size_t)(graph - first)) : NULL;
    f.precision.weights = type_after(directive(&f, "precision"), "weights=");
    f.precision.compute = type_after(directive(&f, "precision"), "compute=");
    f.precision.kv = type_after(directive(&f, "precision"), "kv=");
    f.precision.fixed_sums = directive(&f, "precision") && strstr(directive(&f, "precision"), "sums=fixed");
    f.precision.quant = read_quantising(keep, directive(&f, "precision"));
    return f;
}

static bool run_stages(const Golden *f, Graph *g, const char *stage, char *target, FILE *out, Diag *d)
{
    static const struct {
        const char *name;
        bool (*run)(Lower *l, Diag *d);
        void (*print)(const Lower *l, FILE *out);
    } stages[] = {
#define STAGE(key, name, what) {#name, stage_##name, print_##name},
#include "compiler/passes/passes.def"
#undef STAGE
    };
    const EmbeddedFile own[] = {{"forms.def", catalog_text("forms.def")},
                                {strncmp(target, "cpu", 3) == 0 ? "cpu/own.c" : "own.cu", f->contracts}};
    Catalog catalog = {0};
    Packing packing = {0};
    Plan plan;
    Target t;
    Lower l;
    char *value = strchr(target, ' ');

    if (value)
        *value++ = 0;
    if (!(f->contracts ? catalog_read(f->keep, own, LEN(own), &catalog, d) : catalog_open(f->keep, &catalog, d)) ||
        !target_parse(target, &t, d))
        return false;
    if (strcmp(stage, "why") == 0)
        return passes_why(g, &catalog, t, &f->precision, (Id)strtoul(value + 1, NULL, 10), out, d);
    lower_open(&l, g, &catalog, t, &f->precision, &packing, &plan);
    for (size_t i = 0; i < LEN(stages); i++) {
        if (!stages[i].run(&l, d))
            return false;
        if (strcmp(stages[i].name, stage) == 0) {
            stages[i].print(&l, out);
            return true;
        }
    }
    fail_msg("%s: no stage %s", f->path, stage);
    return false;
}

static char *run_golden(const Golden *f)
{
    char *text = NULL, words[200], *target;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    Diag d = {0};
    Graph *g = ir_parse(f->path, f->graph, &d);
    bool ok = g && ir_verify(g, &d);

    snprintf(words, sizeof words, "%s", f->run);
    target = strchr(words, ' ');
    if (target)
        *target++ = 0;
    for (char *save = NULL, *w = strtok_r(words, ",", &save); ok && w && !target; w = strtok_r(NULL, ",", &save))
        ok = passes_run_one(g, w, &f->precision, &d);
    if (ok && target)
        ok = run_stages(f, g, words, target, out, &d);
    else if (ok)
        ir_print(g, out);
    if (!ok)
        fprintf(out, "error: %s\n", d.text);
    fclose(out);
    ir_graph_close(g);
    return text;
}

static void update(const Golden *f, const char *text)
{
    const char *whole = arena_printf(f->keep, "%s---\n%s", f->head, text);
    FtxError err;

    if (file_write_whole(f->path, whole, strlen(whole), &err))
        fail_msg("%s", err.text);
}

static void golden_files(void **state)
{
    struct dirent **list;
    const int n = scandir("tests/passes", &list, NULL, alphasort);
    int files = 0, wrong = 0;

    (void)state;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;

        if (strlen(name) > 3 && strcmp(name + strlen(name) - 3, ".ir") == 0) {
            Arena *keep = arena_open();
            const Golden f = read_golden(keep, arena_printf(keep, "tests/passes/%s", name));
            char *text = run_golden(&f);

            if (getenv("FTX_UPDATE"))
                update(&f, text);
            else if (strcmp(text, f.expected) != 0) {
                print_error("%s: expected\n%s--- got\n%s", f.path, f.expected, text);
                wrong++;
            }
            files++;
            free(text);
            arena_close(keep);
        }
        free(list[i]);
    }
    free(list);
    assert_int_equal(wrong, 0);
    assert_true(files >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_files)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
