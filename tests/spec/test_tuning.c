/* test_tuning.c - tuning files: what a file may hold, which of its entries a compile follows, and which it ignores. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/passes/lower.h"
#include "compiler/spec/spec.h"
#include "compiler/tune/tune.h"

/* --- reading and writing ------------------------------------------------------------------------------ */

static const char *message(const char *text, Arena *keep)
{
    Tuning t = {0};
    Diag d = {0};

    return spec_read_tuning("t.lua", text, keep, &t, &d) ? "" : arena_strdup(keep, d.text);
}

#define FILE_OF(entries) "return { gpu = \"NVIDIA H200\", entries = { " entries " } }"
#define KEY "kernel = \"k\", hash = \"h\", program = \"decode 8\", shape = \"N=8\""

#define BORDER "kernel = \"border\", hash = \"h\", program = \"decode 8\", shape = \"before decode 16\""

static void mistakes(void **state)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {FILE_OF(""), ""},
        {FILE_OF("{ " KEY ", use = { A = 2 }, us = 1.5, untuned = 2 }"), ""},
        {FILE_OF("{ " KEY ", avoid = true }"), ""},
        {"return 1", "t.lua: a tuning file returns a table, this one returned number"},
        {"return { entries = {} }", "t.lua: gpu: expected a line of text, found nil"},
        {"return { gpu = \"a\\nb\", entries = {} }", "t.lua: gpu: expected a line of text, found string"},
        {"return { gpu = \"g\" }", "t.lua: entries: expected a list, found nil"},
        {"return { gpu = \"g\", any_order = 1, entries = {} }",
         "t.lua: any_order: expected true or false, found number"},
        {"return { gpu = \"g\", made = 1, entries = {} }", "t.lua: made: expected a line of text, found number"},
        {"return { gpu = \"g\", rate = 0, entries = {} }", "t.lua: rate: expected GB/s, found number"},
        {"return { gpu = \"g\", rate = \"4000\", entries = {} }", "t.lua: rate: expected GB/s, found string"},
        {FILE_OF("1"), "t.lua: entry 1: entries: expected a table, found number"},
        {FILE_OF("{ " KEY ", avoid = true }, {}"), "t.lua: entry 2: kernel: expected a line of text, found nil"},
        {FILE_OF("{ " KEY " }"), "t.lua: entry 1: use: expected a table of constants, found nil"},
        {FILE_OF("{ " KEY ", use = { A = 2.5 } }"), "t.lua: entry 1: use: expected NAME = whole number, found number"},
        {FILE_OF("{ " KEY ", use = { 2 } }"), "t.lua: entry 1: use: expected NAME = whole number, found number"},
        {FILE_OF("{ " KEY ", use = { A = \"2\" } }"),
         "t.lua: entry 1: use: expected NAME = whole number, found string"},
        {FILE_OF("{ " KEY ", use = { A = 2 }, avoid = true }"),
         "t.lua: entry 1: use: expected nothing beside avoid, found table"},
        {FILE_OF("{ " KEY ", library = 130002, algorithms = { { 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, 8 } } }"), ""},
        {FILE_OF("{ " KEY ", library = 130002, algorithms = { { 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, 8 }, { 1 } } }"),
         "t.lua: entry 1: algorithms: expected lists of 11 numbers: rows from, to, and nine attributes, found table"},
        {FILE_OF("{ " KEY ", library = 130002, algorithms = { 1 } }"),
         "t.lua: entry 1: algorithms: expected lists of 11 numbers: rows from, to, and nine attributes, found number"},
        {FILE_OF("{ " KEY ", library = 130002, algorithms = { { 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, -1 } } }"),
         "t.lua: entry 1: algorithms: expected a whole number of 0 or more, found number"},
        {FILE_OF("{ " KEY ", library = 130002, algorithms = { { 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, 2^32 } } }"),
         "t.lua: entry 1: algorithms: expected a whole number of 0 or more, found number"},
        {FILE_OF("{ " KEY ", library = 130002, algorithms = {} }"),
         "t.lua: entry 1: algorithms: expected a list of 1 to 1024 algorithms, found table"},
        {"local l = {} for i = 1, 1025 do l[i] = { 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, 8 } end return { gpu = \"g\", "
         "entries = { { " KEY ", library = 1, algorithms = l } } }",
         "t.lua: entry 1: algorithms: expected a list of 1 to 1024 algorithms, found table"},
        {FILE_OF("{ " KEY ", algorithms = { { 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, 8 } } }"),
         "t.lua: entry 1: library: expected cuBLASLt's version, found nil"},
        {FILE_OF("{ " KEY ", avoid = true, library = 1, algorithms = { { 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, 8 } } }"),
         "t.lua: entry 1: algorithms: expected nothing beside avoid, found table"},
        {FILE_OF("{ " BORDER ", most = 48 }"), ""},
        {FILE_OF("{ " BORDER " }"), "t.lua: entry 1: most: expected a whole number of rows, found nil"},
        {FILE_OF("{ " BORDER ", most = 0 }"), "t.lua: entry 1: most: expected a whole number of rows, found number"},
        {FILE_OF("{ " BORDER ", most = 1.5 }"), "t.lua: entry 1: most: expected a whole number of rows, found number"},
        {FILE_OF("{ " BORDER ", most = 2^31 }"), "t.lua: entry 1: most: expected a whole number of rows, found number"},
        {FILE_OF("{ " KEY ", use = {}, us = -1 }"), "t.lua: entry 1: us: expected microseconds, found number"},
        {"return { gpu = (\"g\"):rep(4097), entries = {} }", "t.lua: gpu: expected at most 4096 bytes, found string"},
        {"return { gpu = (\"g\"):rep(4096), entries = {} }", ""},
        {"local l = {} for i = 1, 16385 do l[i] = 1 end return { gpu = \"g\", entries = l }",
         "t.lua: entries: expected at most 16384 entries, found table"},
        {"local l = {} for i = 1, 16384 do l[i] = 1 end return { gpu = \"g\", entries = l }",
         "t.lua: entry 1: entries: expected a table, found number"},
        {"local u = {} for i = 1, 49 do u[\"c\" .. i] = i end return { gpu = \"g\", entries = { { " KEY
         ", use = u } } }",
         "t.lua: entry 1: use: expected no more constants than a kernel has, found number"},
        {"local u = {} for i = 1, 48 do u[\"c\" .. i] = i end return { gpu = \"g\", entries = { { " KEY
         ", use = u } } }",
         ""},
        {"print(1) return {}", "t.lua:1: attempt to call a nil value (global 'print')"},
    };
    Arena *keep = arena_open();

    (void)state;
    for (size_t i = 0; i < LEN(rows); i++)
        assert_string_equal(message(rows[i].text, keep), rows[i].message);
    arena_close(keep);
}

/* What is written is read back, sorted by kernel, shape and program, whatever the order. */
static void written(void **state)
{
    Arena *keep = arena_open();
    Tuning t = {0}, again = {0};
    const char *text, *first, *second, *third;
    Diag d = {0};

    (void)state;
    assert_true(spec_read_tuning(
        "t.lua",
        "return { gpu = \"NVIDIA H200\", made = \"ftxc 9\", rate = 4000.4, any_order = true, entries = {\n"
        "{ kernel = \"b\", hash = \"1\", program = \"step\", shape = \"N=1\", avoid = true },\n"
        "{ kernel = \"border\", hash = \"1\", program = \"decode 8\", shape = \"before decode 16\", most = 6 },\n"
        "{ kernel = \"a\", hash = \"1\", program = \"step\", shape = \"N=2\", use = { Z = 1, B = -2 } },\n"
        "{ kernel = \"a\", hash = \"1\", program = \"decode 8\", shape = \"N=2\", use = {}, us = 1.25, "
        "untuned = 2 },\n"
        "{ kernel = \"c\", hash = \"1\", program = \"step\", shape = \"N=2\", library = 130002, "
        "algorithms = { { 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, 8 }, { 192, 192, 9, 0, 0, 0, 0, 0, 0, 0, 4294967295 } } } "
        "} }",
        keep, &t, &d));
    text = tuning_text(t.files.at[0], t.entries.at, t.entries.n, keep);
    first = strstr(text, "decode 8");
    second = strstr(text, "use = { B = -2, Z = 1 }");
    third = strstr(text, "avoid = true");
    assert_true(first && first < second && second < third);
    assert_non_null(strstr(text, "use = { }, us = 1.250, untuned = 2.000 },\n"));
    assert_true(spec_read_tuning("t.lua", text, keep, &again, &d));
    assert_string_equal(tuning_text(again.files.at[0], again.entries.at, again.entries.n, keep), text);
    assert_true(again.files.at[0]->any_order);
    assert_non_null(
        strstr(text, "  gpu = \"NVIDIA H200\",\n  made = \"ftxc 9\",\n  rate = 4000,\n  any_order = true,\n"));
    assert_string_equal(again.files.at[0]->made, "ftxc 9");
    assert_non_null(
        strstr(text, "library = 130002, algorithms = {\n        { 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, 8 },\n"));
    assert_int_equal(again.entries.n, 5);
    assert_string_equal(again.entries.at[3].kernel, TUNING_BORDER);
    assert_int_equal(again.entries.at[3].most, 6);
    assert_int_equal(again.entries.at[4].algorithms.n, 1 + 2 * FTX_MM_RECORD);
    assert_int_equal(again.entries.at[4].algorithms.at[0], 130002);
    assert_int_equal(again.entries.at[4].algorithms.at[22], 4294967295);
    arena_close(keep);
}

/* --- following ------------------------------------------------------------------------------------------ */

typedef struct Bench {
    Arena *keep;
    Catalog catalog;
    Spec spec;
    Lower l;
    Tuning tuning;
    TuningFile file;
} Bench;

static void select_all(Bench *b)
{
    static Packing packing;
    static Plan plan;
    Target target;
    Diag d = {0};

    assert_true(target_parse("h200", &target, &d));
    target.tuning = &b->tuning;
    packing = (Packing){0};
    plan = (Plan){0};
    lower_open(&b->l, b->spec.graph, &b->catalog, target, &b->spec.precision, &packing, &plan);
    if (!stage_select(&b->l, &d))
        fail_msg("%s", d.text);
    tuning_check(&b->tuning, &b->catalog, b->keep);
}

static Bench bench_open(bool any_order)
{
    Bench b = {.keep = arena_open(), .file = {.name = "tune/nvidia-h200.lua", .device = "NVIDIA H200", .hash = 15}};
    Diag d = {0};

    b.file.any_order = any_order;
    if (!spec_read("specs/fable.lua", NULL, 0, b.keep, &b.spec, &d) ||
        !passes_run_graph(b.spec.graph, &b.spec.precision, &(Dump){0}, &d) || !catalog_open(b.keep, &b.catalog, &d))
        fail_msg("%s", d.text);
    return b;
}

static void bench_close(Bench *b)
{
    ir_graph_close(b->spec.graph);
    arena_close(b->keep);
}

/* The first launch of a family in a program. */
static const Group *find(const Bench *b, const char *program, const char *family)
{
    for (size_t i = 0; i < b->l.programs.n; i++)
        for (size_t k = 0; k < b->l.programs.at[i].groups.n; k++) {
            const Group *g = &b->l.programs.at[i].groups.at[k];

            if (strcmp(b->l.programs.at[i].facts.name, program) == 0 && strcmp(g->b.contract->family, family) == 0)
                return g;
        }
    fail_msg("%s has no %s", program, family);
    return NULL;
}

static int64_t constant(const Group *g, const char *name)
{
    for (size_t i = 0; i < g->fit.instance->n_consts; i++)
        if (strcmp(g->fit.instance->consts[i].name, name) == 0)
            return g->fit.instance->consts[i].i;
    fail_msg("no constant %s", name);
    return 0;
}

static TuningEntry *add(Bench *b, const char *program, const char *family, const char *name, int64_t value)
{
    TuningEntry e = {.kernel = family, .program = program, .file = &b->file, .us = 90, .untuned_us = 100};
    const Group *g = find(b, program, family);

    e.hash = tuning_hash(g->b.contract, b->keep);
    e.shape = tuning_shape(&g->b, g->fit.instance, b->keep);
    if (name)
        *(TunedConst *)arena_push(b->keep, e.use) = (TunedConst){name, value};
    e.avoid = !name;
    if (!b->tuning.files.n)
        *(TuningFile **)arena_push(b->keep, b->tuning.files) = &b->file;
    *(TuningEntry *)arena_push(b->keep, b->tuning.entries) = e;
    return &b->tuning.entries.at[b->tuning.entries.n - 1];
}

static void followed(void **state)
{
    static const char head[] = "tuning h200: nvidia-h200.lua 000000000000000f\ntuned linear, decode 8, X=bf16 ";
    Bench b = bench_open(false);
    const char *lines;

    (void)state;
    select_all(&b);
    assert_null(tuning_note(&b.tuning, b.keep));
    assert_int_equal(constant(find(&b, "decode 8", "linear"), "IN_FLIGHT"), 65536);
    add(&b, "decode 8", "linear", "IN_FLIGHT", 32768);
    select_all(&b);
    assert_int_equal(constant(find(&b, "decode 8", "linear"), "IN_FLIGHT"), 32768);
    assert_int_equal(constant(find(&b, "decode 8", "linear"), "CHUNK_MAX"), 1024); /* as without the entry */
    assert_int_equal(constant(find(&b, "decode 4", "linear"), "IN_FLIGHT"), 65536);
    assert_ptr_equal(find(&b, "decode 8", "linear")->fit.tuned, &b.tuning.entries.at[0]);
    assert_string_equal(tuning_note(&b.tuning, b.keep), "tune/nvidia-h200.lua: 1 of 1 entries used");
    lines = tuning_lines(&b.tuning, "h200", b.keep);
    assert_ptr_equal(strstr(lines, head), lines);
    assert_non_null(strstr(lines, ": IN_FLIGHT=32768\n"));
    bench_close(&b);
}

/* Constants that depend on tuned ones are not part of the shape; all others are. */
static void shapes(void **state)
{
    Bench b = bench_open(false);
    const Group *g;
    const char *shape;

    (void)state;
    select_all(&b);
    g = find(&b, "decode 8", "linear");
    shape = tuning_shape(&g->b, g->fit.instance, b.keep);
    assert_int_equal(strncmp(shape, "X=bf16 W=bf16 Y=bf16 N=", 23), 0);
    assert_non_null(strstr(shape, " X_ROW_BYTES="));
    assert_null(strstr(shape, "BYTES=HALF"));
    assert_null(strstr(shape, " SLOTS="));      /* names BYTES */
    assert_null(strstr(shape, " SLOT_BYTES=")); /* names CHUNK, which names CHUNK_MAX */
    assert_null(strstr(shape, " IN_FLIGHT="));
    g = find(&b, "decode 8", "linear_append");
    shape = tuning_shape(&g->b, g->fit.instance, b.keep);
    assert_non_null(strstr(shape, " BLOCK="));
    assert_null(strstr(shape, "PAGES=")); /* of limits.context alone */
    bench_close(&b);
}

static void ignored(void **state)
{
    Bench b = bench_open(false);

    (void)state;
    select_all(&b);
    add(&b, "decode 8", "linear", "IN_FLIGHT", 32768)->hash = "0123456789abcdef"; /* another text */
    add(&b, "decode 8", "linear", "IN_FLIGHT", 1000);                             /* no value of the tune line */
    add(&b, "decode 8", "linear", "M", 4);                                        /* no tuned constant */
    add(&b, "decode 8", "linear", "IN_FLIGHT", 32768)->program = "decode 3";
    add(&b, "decode 8", "linear", "IN_FLIGHT", 32768)->shape = "X=bf16 N=1";
    add(&b, "step 64", "linear_hopper", "CLUSTER_SIZE", 1); /* changes the order of sums: 4 without it */
    add(&b, "step 64", "linear_hopper", NULL, 0);           /* another kernel */
    add(&b, "step 16", "linear_hopper", "CLUSTER_SIZE", 4); /* the order that it has */
    select_all(&b);
    assert_int_equal(constant(find(&b, "decode 8", "linear"), "IN_FLIGHT"), 65536);
    assert_int_equal(constant(find(&b, "step 64", "linear_hopper"), "CLUSTER_SIZE"), 4);
    assert_string_equal(tuning_note(&b.tuning, b.keep),
                        "tune/nvidia-h200.lua: 1 of 8 entries used; ignored: 1 of older kernels, 2 not legal, "
                        "2 that change the order of sums (the file was made without --any-order)");
    bench_close(&b);
}

static void any_order(void **state)
{
    Bench b = bench_open(true);

    (void)state;
    select_all(&b);
    add(&b, "step 64", "linear_hopper", "CLUSTER_SIZE", 1);
    select_all(&b);
    assert_int_equal(constant(find(&b, "step 64", "linear_hopper"), "CLUSTER_SIZE"), 1);
    b.tuning.entries.n = 0;
    select_all(&b);
    {
        const Group *g = find(&b, "step 64", "linear_hopper");
        const Id root = g->b.root;

        add(&b, "step 64", "linear_hopper", NULL, 0);
        select_all(&b);
        for (size_t i = 0; i < b.l.programs.n; i++)
            for (size_t k = 0; k < b.l.programs.at[i].groups.n; k++)
                if (strcmp(b.l.programs.at[i].facts.name, "step 64") == 0 &&
                    b.l.programs.at[i].groups.at[k].b.root == root)
                    assert_string_equal(b.l.programs.at[i].groups.at[k].b.contract->family, "linear_wide");
    }
    bench_close(&b);
}

/* Algorithms of cuBLASLt come with the kernel, which is then another; with any order only, and for cuBLASLt alone. */
static void library(void **state)
{
    static const int64_t words[] = {130002, 64, 128, 66, 1, 2, 3, 4, 5, 6, 7, 8};

    (void)state;
    for (int any = 0; any < 2; any++) {
        Bench b = bench_open(any);
        const char *untuned;
        const Instance *in;

        select_all(&b);
        untuned = find(&b, "step", "matmul")->fit.instance->entry;
        for (int i = 0; i < 2; i++) {
            TuningEntry *e = add(&b, i ? "decode 8" : "step", i ? "linear" : "matmul", NULL, 0);

            e->avoid = false;
            for (size_t k = 0; k < LEN(words); k++)
                *arena_push(b.keep, e->algorithms) = words[k];
        }
        select_all(&b);
        in = find(&b, "step", "matmul")->fit.instance;
        assert_int_equal(in->n_algorithms, any ? LEN(words) : 0);
        assert_int_equal(strcmp(in->entry, untuned) == 0, !any);
        assert_string_equal(tuning_note(&b.tuning, b.keep),
                            any ? "tune/nvidia-h200.lua: 1 of 2 entries used; ignored: 1 not legal"
                                : "tune/nvidia-h200.lua: 0 of 2 entries used; ignored: 2 that change the order of sums "
                                  "(the file was made without --any-order)");
        if (any) {
            assert_memory_equal(in->algorithms, words, sizeof words);
            assert_non_null(strstr(tuning_lines(&b.tuning, "h200", b.keep), ": 1 algorithms of cuBLASLt 130002\n"));
        }
        bench_close(&b);
    }
}

static int64_t most_of(const Bench *b, const char *program)
{
    for (size_t i = 0; i < b->l.programs.n; i++)
        if (strcmp(b->l.programs.at[i].facts.name, program) == 0)
            return b->l.programs.at[i].most;
    fail_msg("no program %s", program);
    return 0;
}

/* A border holds for the two programs, their kernels and their tuned values; with any order only. */
static void borders(void **state)
{
    (void)state;
    for (int any = 0; any < 2; any++) {
        Bench b = bench_open(any);
        TuneBorders all = {0};
        const TuneBorder *at = NULL;
        TuningEntry *e;
        Target target;
        Diag d = {0};

        assert_true(target_parse("h200", &target, &d));
        assert_true(passes_borders(b.spec.graph, &b.catalog, target, &b.spec.precision, &all, b.keep, &d));
        for (size_t i = 0; i < all.n; i++) {
            assert_true(all.at[i].least < all.at[i].most && all.at[i].decode == (all.at[i].program[0] == 'd'));
            if (strcmp(all.at[i].program, "decode 8") == 0)
                at = &all.at[i];
        }
        assert_non_null(at);
        assert_int_equal(at->least, 5);
        assert_int_equal(at->most, 8);
        assert_string_equal(at->shape, "before decode 16");
        select_all(&b);
        assert_int_equal(most_of(&b, "decode 8"), 0);
        for (int64_t most = 8; most >= 6; most--) {
            e = add(&b, "decode 8", "linear", NULL, 0);
            *e = (TuningEntry){.kernel = TUNING_BORDER,
                               .hash = at->hash,
                               .program = "decode 8",
                               .shape = at->shape,
                               .most = most,
                               .file = &b.file};
        }
        e = add(&b, "decode 8", "linear", NULL, 0);
        *e = b.tuning.entries.at[1];
        e->hash = "0123456789abcdef";
        select_all(&b);
        assert_int_equal(most_of(&b, "decode 8"), any ? 7 : 0); /* 8 are no border; of two the first counts */
        assert_int_equal(most_of(&b, "decode 4"), 0);
        assert_string_equal(
            tuning_note(&b.tuning, b.keep),
            any ? "tune/nvidia-h200.lua: 1 of 4 entries used; ignored: 1 not legal"
                : "tune/nvidia-h200.lua: 0 of 4 entries used; ignored: 1 of older kernels, 1 not legal, "
                  "2 that change the order of sums (the file was made without --any-order)");
        if (any)
            assert_non_null(strstr(tuning_lines(&b.tuning, "h200", b.keep),
                                   "tuned border, decode 8, before decode 16: 7 rows at most\n"));
        b.tuning.entries.n = 0; /* another value of a tuned constant in the next program */
        add(&b, "decode 8", "linear", "IN_FLIGHT", 32768);
        e = add(&b, "decode 8", "linear", NULL, 0);
        *e = (TuningEntry){.kernel = TUNING_BORDER,
                           .hash = at->hash,
                           .program = "decode 8",
                           .shape = at->shape,
                           .most = 7,
                           .file = &b.file};
        select_all(&b);
        assert_int_equal(most_of(&b, "decode 8"), 0);
        assert_int_equal(e->state, TUNING_OLD);
        bench_close(&b);
    }
}

/* The files that ftxc brings with it: of this ftxc's kernels, of the GPU that their name says, and followed by the spec that they
 * were made for. If this fails after a kernel was changed: run ftxc tune again, or take its entries out. */
static void shipped(void **state)
{
    static const char *const specs[] = {"specs/llama-3.2-1b.lua"};
    const char *text = catalog_text("tune/nvidia-h200.lua");
    Arena *keep = arena_open();
    Tuning t = {0};
    Catalog catalog;
    size_t used = 0;
    Diag d = {0};

    (void)state;
    assert_non_null(text);
    assert_null(catalog_text("tune/nvidia-h300.lua"));
    assert_true(spec_read_tuning("tune/nvidia-h200.lua", text, keep, &t, &d));
    assert_string_equal(t.files.at[0]->device, "NVIDIA H200");
    assert_false(t.files.at[0]->any_order); /* texts are those of untuned models */
    assert_true(catalog_open(keep, &catalog, &d));
    for (size_t i = 0; i < LEN(specs); i++) {
        Packing packing = {0};
        Plan plan = {0};
        Spec spec = {0};
        Target target;
        Lower l;

        assert_true(target_parse("h200", &target, &d));
        target.tuning = &t;
        if (!spec_read(specs[i], NULL, 0, keep, &spec, &d) ||
            !passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d))
            fail_msg("%s", d.text);
        lower_open(&l, spec.graph, &catalog, target, &spec.precision, &packing, &plan);
        assert_true(stage_select(&l, &d));
        ir_graph_close(spec.graph);
    }
    tuning_check(&t, &catalog, keep);
    for (size_t i = 0; i < t.entries.n; i++)
        used += t.entries.at[i].state == TUNING_USED;
    if (!t.entries.n || used != t.entries.n)
        fail_msg("%s", tuning_note(&t, keep));
    arena_close(keep);
}

/* --- what a tuner may try ------------------------------------------------------------------------------ */

static bool only_64(void *user, FtxProgramKind kind, int64_t bucket)
{
    (*(int *)user)++;
    return kind == FTX_PROG_STEP && bucket == 64;
}

static const ContractConst *find_constant(const Contract *c, const char *name)
{
    for (size_t i = 0; i < c->consts.n; i++)
        if (strcmp(c->consts.at[i].value.name, name) == 0)
            return &c->consts.at[i];
    fail_msg("no constant %s", name);
    return NULL;
}

/* A candidate, followed as an entry, gives its own instance; without any order no constant of an order line differs. */
static void candidates(void **state)
{
    (void)state;
    for (int any_order = 0; any_order < 2; any_order++) {
        Bench b = bench_open(any_order);
        bool ordered = false, avoids = false;
        TuneCases cases = {0};
        size_t followed = 0;
        Target target;
        int asked = 0;
        Diag d = {0};

        assert_true(target_parse("h200", &target, &d));
        assert_true(passes_tunable(b.spec.graph, &b.catalog, target, &b.spec.precision, any_order, only_64, &asked,
                                   &cases, b.keep, &d));
        select_all(&b);
        assert_int_equal(asked, b.l.programs.n);
        assert_int_equal(cases.programs, b.l.programs.n);
        assert_true(cases.n >= 4);
        for (size_t i = 0; i < cases.n; i++) {
            TuneCase *c = &cases.at[i];
            const Group *untuned = find(&b, "step 64", c->kernel);

            assert_string_equal(c->program, "step 64");
            assert_true(c->cost_us > 0);
            for (size_t k = 0; k < c->candidates.n; k++) {
                const TuneCandidate *x = &c->candidates.at[k];

                avoids |= x->avoid;
                assert_true(x->avoid || strcmp(x->entry, c->entry) != 0);
                for (size_t n = 0; n < x->n && strcmp(untuned->fit.instance->entry, c->entry) == 0; n++)
                    ordered |= find_constant(untuned->b.contract, x->use[n].name)->reorders &&
                               constant(untuned, x->use[n].name) != x->use[n].value;
            }
            if (!c->candidates.n || c->candidates.at[0].avoid || strcmp(untuned->fit.instance->entry, c->entry) != 0)
                continue;
            {
                TuningEntry e = {
                    .kernel = c->kernel, .hash = c->hash, .program = c->program, .shape = c->shape, .file = &b.file};

                for (size_t n = 0; n < c->candidates.at[0].n; n++)
                    *(TunedConst *)arena_push(b.keep, e.use) = c->candidates.at[0].use[n];
                b.tuning.entries.n = 0;
                *(TuningEntry *)arena_push(b.keep, b.tuning.entries) = e;
                select_all(&b);
                assert_string_equal(find(&b, "step 64", c->kernel)->fit.instance->entry, c->candidates.at[0].entry);
                b.tuning.entries.n = 0;
                select_all(&b);
                followed++;
            }
        }
        assert_true(followed > 0);
        assert_int_equal(ordered, any_order);
        assert_int_equal(avoids, any_order);
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes),   cmocka_unit_test(written), cmocka_unit_test(followed),
        cmocka_unit_test(shapes),     cmocka_unit_test(ignored), cmocka_unit_test(any_order),
        cmocka_unit_test(candidates), cmocka_unit_test(library), cmocka_unit_test(borders),
        cmocka_unit_test(shipped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
