/* test_models.c - every spec of the tree and every checkout of tests/models is planned for the CPU and for GPUs: every op
 * has a kernel, every weight and buffer an offset, and the workspace equals its lower bound. Under the sanitizers a quarter
 * of them in each turn. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/spec/spec.h"
#include "runtime/base/file.h"
#include "tests/turn.h"

typedef struct Run {
    Arena *keep;
    Catalog catalog;
    Catalog renamed; /* the same contracts in files with other names and in reverse order */
    unsigned models;
} Run;

static Run run_open(void)
{
    Run r = {.keep = arena_open()};
    EmbeddedFile *files = arena_array(r.keep, EmbeddedFile, embedded_count);
    size_t n = 0;
    Diag d = {0};

    for (size_t i = embedded_count; i-- > 0;) {
        const char *name = embedded_files[i].name;
        const bool cpu = strncmp(name, "cpu/", 4) == 0;

        if (strcmp(name, "forms.def") == 0) {
            files[n++] = embedded_files[i];
            continue;
        }
        if (!cpu && (strlen(name) <= 3 || strcmp(name + strlen(name) - 3, ".cu") != 0))
            continue;
        files[n] = (EmbeddedFile){arena_printf(r.keep, "%s%03zu.%s", cpu ? "cpu/" : "", n, cpu ? "c" : "cu"),
                                  embedded_files[i].text};
        n++;
    }
    if (!catalog_open(r.keep, &r.catalog, &d) || !catalog_read(r.keep, files, n, &r.renamed, &d))
        fail_msg("%s", d.text);
    assert_int_equal(r.renamed.n, r.catalog.n);
    return r;
}

/* No two buffers that are live at the same time overlap, and all lie inside their space. */
static void check_work(const Plan *plan)
{
    for (size_t i = 0; i < plan->buffers.n; i++) {
        const FtxBuffer *a = &plan->buffers.at[i];

        assert_true(a->offset + a->bytes <= plan->head.space_bytes[a->space]);
        assert_int_equal(a->offset % 256, 0);
        for (size_t k = 0; k < i; k++) {
            const FtxBuffer *b = &plan->buffers.at[k];

            if (a->space != b->space || (a->space == FTX_SPACE_WORK && a->program != b->program))
                continue;
            if (a->space == FTX_SPACE_WORK && (a->last < b->first || b->last < a->first))
                continue;
            if (a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
                fail_msg("%s and %s overlap", plan->strings.at[a->name], plan->strings.at[b->name]);
        }
    }
}

/* The invariants that the reader of artifacts checks and on which the devices rely. */
static void check_plan(const char *path, const Plan *plan, const Packing *packing)
{
    size_t operands = 0;

    for (size_t i = 0; i < plan->programs.n; i++) {
        const FtxProgram *p = &plan->programs.at[i];

        assert_true(p->n_launches > 0);
        assert_true(p->first_launch + p->n_launches <= plan->launches.n);
        assert_true(p->work_bytes <= plan->head.space_bytes[FTX_SPACE_WORK]);
    }
    for (size_t i = 0; i < plan->launches.n; i++) {
        const FtxLaunch *l = &plan->launches.at[i];

        assert_true(l->kernel < plan->instances.n);
        assert_int_equal(l->first_operand, operands);
        operands = i + 1 < plan->launches.n ? plan->launches.at[i + 1].first_operand : plan->operands.n;
        assert_true(plan->strings.at[l->label][0]);
    }
    for (size_t i = 0; i < plan->operands.n; i++) {
        const FtxOperand *o = &plan->operands.at[i];
        const uint64_t bytes = o->space == FTX_SPACE_WEIGHTS ? packing->bytes : plan->head.space_bytes[o->space];

        assert_true(o->space == FTX_SPACE_NULL || o->offset < bytes || bytes == 0);
        assert_true(o->tile_rows == 0 || o->offset + 2 * (uint64_t)o->rows * o->columns <= bytes);
    }
    for (size_t i = 0; i < plan->instances.n; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(plan->instances.at[i]->entry, plan->instances.at[k]->entry);
    check_work(plan);
    if (plan->head.space_bytes[FTX_SPACE_WORK] != plan->head.lower_bound)
        fail_msg("%s on %s: work space %llu, lower bound %llu", path, plan->target.name,
                 (unsigned long long)plan->head.space_bytes[FTX_SPACE_WORK],
                 (unsigned long long)plan->head.lower_bound);
}

/* Random weights: packings of one weight that are no codes take the numbers of the first; a matrix with a folded norm in one of
 * them is centred in all. */
static void check_random(const char *path, const Packing *p)
{
    for (size_t i = 0; i < p->weights.n; i++) {
        const PackedWeight *a = &p->weights.at[i];
        bool folded = false;
        size_t first = i;

        for (size_t k = p->weights.n; k-- > 0 && !a->form_name;)
            if (p->weights.at[k].value == a->value && !p->weights.at[k].form_name) {
                folded = folded || p->weights.at[k].fold.gain;
                first = k;
            }
        if (a->like != (first < i ? 1 + first : 0) || (a->kind == FTX_WEIGHT_CENTRED) != folded)
            fail_msg("%s: weight %%%u, packing %zu, takes the numbers of %u, is of kind %d", path, a->value, i, a->like,
                     (int)a->kind);
    }
}

/* A target reads a matrix of more than 4 M elements folded or unfolded, not both, in one type; a smaller one may stand there
 * twice, in two forms. */
static void check_forms(const char *path, const Packing *p, const char *target)
{
    for (size_t i = 0; i < p->weights.n; i++)
        for (size_t k = 0; k < i; k++) {
            const PackedWeight *a = &p->weights.at[i], *b = &p->weights.at[k];

            if (a->value != b->value || a->type != b->type ||
                (a->kind != FTX_WEIGHT_MATRIX && a->kind != FTX_WEIGHT_CENTRED))
                continue;
            if (a->bytes > (uint64_t)(4 << 20) * dtype_size(a->type))
                fail_msg("%s on %s: weight %%%u is packed both folded and unfolded", path, target, a->value);
            if (memcmp(&a->fold, &b->fold, sizeof a->fold) == 0)
                fail_msg("%s on %s: weight %%%u is packed twice in one form", path, target, a->value);
        }
}

/* The same graph gives the same plan, byte for byte, even with the contracts in files with other names and in another
 * order: candidates of the same cost go by rank. */
static void check_again(const Run *r, const char *path, const Spec *spec, Target t, const Plan *plan)
{
    Packing packing = {0};
    Plan again;
    Diag d = {0};

    assert_true(passes_run_target(spec->graph, &r->renamed, t, &spec->precision, &packing, &again, NULL, &d));
    assert_int_equal(again.operands.n, plan->operands.n);
    assert_int_equal(again.launches.n, plan->launches.n);
    assert_int_equal(again.instances.n, plan->instances.n);
    assert_memory_equal(again.launches.at, plan->launches.at, sizeof *plan->launches.at * plan->launches.n);
    for (size_t i = 0; i < plan->instances.n; i++)
        assert_string_equal(again.instances.at[i]->entry, plan->instances.at[i]->entry);
    if (t.id == FTX_TARGET_CPU)
        assert_memory_equal(again.operands.at, plan->operands.at, sizeof *plan->operands.at * plan->operands.n);
    check_forms(path, &packing, t.name);
    check_random(path, &packing);
}

static void run_model(Run *r, const char *path, const char *override)
{
    if (!in_turn_sanitized(r->models++, 4))
        return;

    static const char *const targets[] = {"cpu", "sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120a"};
    const Override overrides[] = {{override}};
    Packing packing = {0};
    Diag d = {0};
    Spec spec = {0};
    const Dump dump = {getenv("FTX_DUMP"), "/tmp/ftx-dump"};

    if (!spec_read(path, overrides, override != NULL, r->keep, &spec, &d) ||
        !passes_run_graph(spec.graph, &spec.precision, &dump, &d))
        fail_msg("%s: %s", path, d.text);
    for (size_t i = 0; i < LEN(targets); i++) {
        Target t;
        Plan plan;

        assert_true(target_parse(targets[i], &t, &d));
        if (!passes_run_target(spec.graph, &r->catalog, t, &spec.precision, &packing, &plan, &dump, &d))
            fail_msg("%s %s on %s: %s", path, override ? override : "", targets[i], d.text);
        check_plan(path, &plan, &packing);
        check_again(r, path, &spec, t, &plan);
    }
    ir_graph_close(spec.graph);
}

/* Odd sizes: for every kernel that does not fit them there is another that does. */
static void odd_shapes(void **state)
{
    static const struct {
        int hidden, heads, kv_heads, head_dim, ffn, vocab, block, sequences, context, tokens;
        const char *type, *flags;
    } shapes[] = {
        {48, 2, 2, 16, 77, 300, 8, 1, 100, 128, "bf16", ""},
        {100, 3, 1, 24, 160, 320, 16, 3, 250, 100, "fp16", "tie_embeddings=true"},
        {120, 14, 2, 40, 203, 4099, 32, 16, 1000, 512, "fp32", "attention_bias=true"},
        {72, 8, 1, 64, 300, 50257, 64, 64, 100, 1000, "bf16", "mlp_bias=true"},
        {33, 7, 7, 80, 91, 301, 128, 100, 250, 128, "fp16", "window=17"},
        {200, 6, 2, 96, 160, 320, 8, 5, 1000, 40, "bf16", "attention_bias=true,mlp_bias=true"},
        {97, 7, 1, 128, 203, 4099, 16, 13, 300, 16, "fp32", "activation='gelu_tanh'"},
        {130, 16, 2, 256, 300, 300, 32, 2, 64, 7, "bf16", "activation='relu'"},
        {8, 1, 1, 16, 1, 2, 128, 1, 2, 1, "bf16", ""},
    };
    Run r = run_open();

    (void)state;
    for (size_t i = 0; i < LEN(shapes); i++) {
        const char *folder = getenv("FTX_BUILD") ? getenv("FTX_BUILD") : "/tmp";
        const char *path = arena_printf(r.keep, "%s/test-odd.lua", folder);
        const char *text = arena_printf(
            r.keep,
            "local ftx, llama = require 'ftx', require 'llama'\n"
            "return ftx.model { name = 'odd', graph = llama { layers = 2, hidden = %d, heads = %d, kv_heads = %d,\n"
            "head_dim = %d, ffn = %d, vocab = %d, %s }, kv = { block_size = %d }, precision = { weights = '%s' },\n"
            "limits = { sequences = %d, context = %d, tokens = %d }, decode = ftx.greedy {} }\n",
            shapes[i].hidden, shapes[i].heads, shapes[i].kv_heads, shapes[i].head_dim, shapes[i].ffn, shapes[i].vocab,
            shapes[i].flags, shapes[i].block, shapes[i].type, shapes[i].sequences, shapes[i].context, shapes[i].tokens);
        FtxError err;

        if (file_write_whole(path, text, strlen(text), &err))
            fail_msg("%s", err.text);
        run_model(&r, path, NULL);
        remove(path);
    }
    arena_close(r.keep);
}

/* An encoder whose steps have fewer tokens than its smallest bucket: the buffers of what a step brings, hidden states
 * included, are no larger than a step. */
static void few_tokens(void **state)
{
    static const char text[] =
        "local ftx, bert = require 'ftx', require 'bert'\n"
        "return ftx.model { name = 'odd', precision = { weights = 'fp16' },\n"
        "graph = bert { vocab = 100, hidden = 128, layers = 2, heads = 2, ffn = 64, positions = 60 },\n"
        "limits = { sequences = 3, context = 50, tokens = 55 } }\n";
    Run r = run_open();
    const char *path = arena_printf(r.keep, "%s/test-few.lua", getenv("FTX_BUILD") ? getenv("FTX_BUILD") : "/tmp");
    FtxError err;

    (void)state;
    if (file_write_whole(path, text, strlen(text), &err))
        fail_msg("%s", err.text);
    run_model(&r, path, NULL);
    remove(path);
    arena_close(r.keep);
}

/* Whether a file of specs/ returns a model; a family returns a function. */
static bool is_model(const char *path)
{
    FileMap m;
    bool model;

    assert_int_equal(file_map(path, &m, NULL), FTX_OK);
    model = memmem(m.at, m.bytes, "ftx.model", 9) != NULL;
    file_unmap(&m);
    return model;
}

static void every_model(void **state)
{
    static const char *const folders[] = {"specs", "tests/models"};
    Run r = run_open();

    (void)state;
    for (size_t i = 0; i < LEN(folders); i++) {
        struct dirent **list;
        const int n = scandir(folders[i], &list, NULL, alphasort);

        assert_true(n > 0);
        for (int k = 0; k < n; k++) {
            const char *name = list[k]->d_name, *path = arena_printf(r.keep, "%s/%s", folders[i], name);
            const bool spec =
                i == 0 && strlen(name) > 4 && strcmp(name + strlen(name) - 4, ".lua") == 0 && is_model(path);
            const bool checkout = file_exists(arena_printf(r.keep, "%s/config.json", path));

            if (spec || checkout) {
                print_message("%s\n", path);
                run_model(&r, path, NULL);
                run_model(&r, path, "precision.weights=fp32");
            }
            free(list[k]);
        }
        free(list);
    }
    assert_true(r.models >= 2 * 8);
    arena_close(r.keep);
}

/* The engine's memory, caches included, for translations of 32 tokens into 32 with 4 beams in fp16 is below the workspace
 * that LightSeq states for the same (5.0, 39.7, 158.9 and 635.4 MiB). */
static void translation_memory(void **state)
{
    static const struct {
        int batch;
        double most; /* MiB */
    } rows[] = {{1, 5.0}, {8, 39.7}, {32, 158.9}, {128, 635.4}};
    Run r = run_open();
    Diag d = {0};

    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        const Override overrides[] = {
            {"limits.context=32"},
            {"limits.source=32"},
            {arena_printf(r.keep, "limits.sequences=%d", 4 * rows[i].batch)},
            {arena_printf(r.keep, "limits.tokens=%d", rows[i].batch < 4 ? 128 : 32 * rows[i].batch)},
        };
        Packing packing = {0};
        Spec spec = {0};
        Target t;
        Plan plan;
        double bytes = 0;

        assert_true(target_parse("sm_90a", &t, &d));
        if (!spec_read("specs/transformer-base.lua", overrides, LEN(overrides), r.keep, &spec, &d) ||
            !passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d) ||
            !passes_run_target(spec.graph, &r.catalog, t, &spec.precision, &packing, &plan, NULL, &d))
            fail_msg("%s", d.text);
        for (int space = FTX_SPACE_STATE; space <= FTX_SPACE_OUT; space++)
            bytes += (double)plan.head.space_bytes[space];
        bytes += (double)plan.head.space_bytes[FTX_SPACE_PAGES] * (double)spec.graph->limits.kv_pages;
        print_message("batch %3d: %.1f MiB, at most %.1f\n", rows[i].batch, bytes / (1 << 20), rows[i].most);
        assert_true(bytes < rows[i].most * (1 << 20));
        ir_graph_close(spec.graph);
    }
    arena_close(r.keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_model), cmocka_unit_test(odd_shapes),
                                       cmocka_unit_test(few_tokens), cmocka_unit_test(translation_memory)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
