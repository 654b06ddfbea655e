/* bench.h - contracts of a text, and a graph to match them with: what the tests of this folder share. */
#ifndef FTX_TESTS_CATALOG_BENCH_H
#define FTX_TESTS_CATALOG_BENCH_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "compiler/catalog/contract.h"

/* What reading the text says: "" or the mistake. */
static inline const char *message(const char *text)
{
    static Diag d;
    const EmbeddedFile files[] = {{"forms.def", catalog_text("forms.def")}, {"t.cu", text}};
    Arena *keep = arena_open();
    Catalog c = {0};

    d = (Diag){0};
    catalog_read(keep, files, LEN(files), &c, &d);
    arena_close(keep);
    return d.text;
}

#define NORM \
    "//@ kernel norm\n//@ rank 1\n//@ args x[M,C] g[C]:fp32 -> y[M,C]\n//@ match y = rmsnorm(x, g)\n" \
    "//@ consts X: type(x) C: C EPS: rmsnorm.eps VEC: 8\n"
#define LAUNCH "//@ launch grid M block 256\n"

static const char *const graph_text =
    "graph \"t\"\n"
    "limits sequences=4 context=64 tokens=32 kv_block=8 kv_pages=32 logit_bias=0 end_ids=8\n"
    "%1 = ids : [T] i32\n"
    "%2 = weight {name=\"e\"} : [10,12] bf16\n"
    "%3 = embed %1 %2 : [T,12] bf16\n"
    "%4 = weight {name=\"g\"} : [12] fp32\n"
    "%5 = rmsnorm %3 %4 {eps=0.001} : [T,12] bf16\n"
    "%6 = weight {name=\"w\"} : [12,12] bf16\n"
    "%7 = linear %5 %6 - : [T,12] bf16\n"
    "%8 = add %3 %7 : [T,12] bf16\n"
    "%9 = select_last %8 : [S,12] bf16\n"
    "%10 = linear %9 %2 - : [S,10] fp32\n"
    "%11 = sample %10 : [S] i32\n"
    "output %11\n";

typedef struct Bench {
    Arena *keep;
    Graph *g;
    Catalog c;
    ProgramFacts f;
    uint32_t *uses;
} Bench;

static inline Bench bench_open(const char *contract)
{
    Bench b = {.keep = arena_open()};
    const EmbeddedFile files[] = {{"forms.def", catalog_text("forms.def")}, {"t.cu", contract}};
    Diag d = {0};

    b.g = ir_parse("t.ir", graph_text, &d);
    if (!b.g || !ir_verify(b.g, &d) || !catalog_read(b.keep, files, LEN(files), &b.c, &d))
        fail_msg("%s", d.text);
    b.f = (ProgramFacts){
        .g = b.g, .bucket = 16, .t_max = 16, .s_max = 4, .target = target_facts((Target){.id = 901}), .kv = DT_BF16};
    b.uses = ir_uses(b.g);
    return b;
}

static inline void bench_close(Bench *b)
{
    arena_close(b->keep);
    ir_graph_close(b->g);
}

/* With the root in a form. */
static inline bool matches_as(const Bench *t, uint32_t line, uint32_t form, Id v, Binding *b, const char **reason)
{
    return match_at(&t->f, t->uses, t->c.at[0], &t->c.at[0]->matches.at[line], 0, v, form, b, reason, t->keep);
}

static inline bool matches(const Bench *t, uint32_t line, uint32_t way, Id v, Binding *b, const char **reason)
{
    return match_at(&t->f, t->uses, t->c.at[0], &t->c.at[0]->matches.at[line], way, v, 0, b, reason, t->keep);
}

static inline const Const *constant(const Instance *in, const char *name)
{
    for (size_t i = 0; i < in->n_consts; i++)
        if (strcmp(in->consts[i].name, name) == 0)
            return &in->consts[i];
    fail_msg("no constant %s", name);
    return NULL;
}

#endif
