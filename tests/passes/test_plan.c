/* test_plan.c - what the golden files of stages do not print: operands of the plan, and graphs of many values. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/passes/lower.h"

typedef struct Made {
    Arena *keep;
    Graph *g;
    Packing packing;
    Plan plan;
    Lower l;
    bool ok;
    Diag d;
} Made;

/* All stages over a graph, with contracts of the test. */
static void make(Made *m, const char *contracts, const char *graph, const char *target)
{
    const EmbeddedFile own = {strcmp(target, "cpu") == 0 ? "cpu/own.c" : "own.cu", contracts};
    const Precision precision = {.weights = DT_BF16, .compute = strcmp(target, "cpu") == 0 ? DT_NONE : DT_FP32};
    Catalog *catalog;
    Target t = {0};

    *m = (Made){.keep = arena_open()};
    catalog = arena_new(m->keep, Catalog);
    m->g = ir_parse("t.ir", graph, &m->d);
    if (!m->g || !ir_verify(m->g, &m->d) || !catalog_read(m->keep, &own, 1, catalog, &m->d) ||
        !target_parse(target, &t, &m->d))
        fail_msg("%s", m->d.text);
    lower_open(&m->l, m->g, catalog, t, &precision, &m->packing, &m->plan);
    m->ok = stage_select(&m->l, &m->d) && stage_edges(&m->l, &m->d) && stage_layout(&m->l, &m->d) &&
            stage_schedule(&m->l, &m->d) && stage_memory(&m->l, &m->d);
}

static void drop(Made *m)
{
    ir_graph_close(m->g);
    arena_close(m->keep);
}

#define KERNEL(name, rank, args, match) \
    "//@ kernel " name "\n//@ rank " rank "\n//@ args " args "\n//@ match " match "\n//@ launch grid 1 block 32\n"
#define EMBED KERNEL("embed", "10", "w[V,D] $token -> y[T,D]", "y = embed(ids(), w)")
#define SCALE(more) KERNEL("scale", "20", "x[T,D] b[D] -> y[T,D]", "y = scale(x)") more /* nothing binds b */
#define CACHE CACHE_OF("")
#define CACHE_OF(tiles) \
    EMBED KERNEL("append", "30", "x[T,N] $k $v -> q", "q = append(x)") \
        KERNEL("attend", "40", "q[T,H,E] $k $v -> y", "y = attend_paged(q, _?)") \
            tiles KERNEL("last", "50", "x[T,D] $rows -> y[S,D]", "y = select_last(x)") \
                KERNEL("sample", "60", "x[S,V]:fp32 $out -> y", "y = sample(x)")
#define HEAD(kind, tokens, pages) HEAD_OF(kind, "4", "16", tokens, pages)
#define HEAD_OF(kind, sequences, context, tokens, pages) \
    "graph \"plan\"\nlimits sequences=" sequences " context=" context " tokens=" tokens \
    " kv_block=1024 kv_pages=" pages " logit_bias=0 end_ids=4 beams=1\n" kind \
    "facts clean precise\n%1 = ids : [T] i32\n%2 = weight {name=\"e\"} : [64,64] bf16\n" \
    "%3 = embed %1 %2 : [T,64] fp32\n"
#define LAYER(x, a, b, c, layer, e, heads, size) \
    a " = append " x " - {head_dim=" e " heads=" heads " kv_heads=1 layer=" layer "} : [T," heads "," e "] fp32\n" b \
      " = attend_paged " a " {kv_heads=1 layer=" layer " scale=1} : [T," size "] fp32\n" c " = scale " b \
      " {by=2} : [T," size "] fp32\n"

static FtxOperand operand(const Made *m, size_t launch, size_t at)
{
    return m->plan.operands.at[m->plan.launches.at[launch].first_operand + at];
}

#define TWO(head, layer, x, e, heads, size, first) \
    head LAYER("%3", "%4", "%5", "%6", "0", "16", "2", "32") \
        LAYER(x, "%7", "%8", "%9", layer, e, heads, size) "%10 = add " first " %9 : [T," size \
                                                          "] fp32\n%11 = select_last %10 : [S," size "] fp32\n" \
                                                          "%12 = sample %11 : [S] i32\noutput %12\n"
#define ADDED ADDED_TO(CACHE)
#define ADDED_TO(cache) cache SCALE("") KERNEL("add", "70", "a[T,D] b[T,D] -> y[T,D]", "y = add(a, b)")

/* Each layer has its own part of a page, however many pages there may be; the heads of layers may differ. */
static void layers(void **state)
{
    static const struct {
        const char *graph;
        uint64_t second; /* head_dim of layer 1 */
    } good[] = {
        {TWO(HEAD("", "24", "2"), "1", "%3", "16", "2", "32", "%6"), 16},
        {TWO(HEAD("", "24", "2147483647"), "1", "%3", "16", "2", "32", "%6"), 16},
        {TWO(HEAD("", "24", "2"), "1", "%6", "8", "2", "16", "%9"), 8},
    };

    (void)state;
    for (size_t i = 0; i < LEN(good); i++) {
        const uint64_t first = 1024 * 16 * 4, second = 1024 * good[i].second * 4; /* tokens, head_dim, fp32 */
        Made m;

        make(&m, ADDED, good[i].graph, "cpu");
        if (!m.ok)
            fail_msg("%s", m.d.text);
        assert_int_equal(m.plan.head.named_bytes[FTX_NAMED_k], first + second);
        assert_int_equal(m.plan.head.named_bytes[FTX_NAMED_v], first + second);
        assert_int_equal(m.plan.head.space_bytes[FTX_SPACE_PAGES], 2 * (first + second));
        assert_int_equal(m.plan.caches.n, 2);
        assert_int_equal(m.plan.caches.at[1].k_dim, good[i].second);
        for (size_t k = 0; k < 2; k++) /* launches: embed, append, attend, scale, append, attend ... */
            for (size_t l = 1; l <= 2; l++) {
                const FtxOperand o = operand(&m, 3 * k + l, 1), v = operand(&m, 3 * k + l, 2);

                assert_int_equal(o.space, FTX_SPACE_PAGES);
                assert_int_equal(o.offset, k * first);
                assert_int_equal(v.offset, first + second + k * first);
            }
        assert_int_equal(m.plan.head.named_bytes[FTX_NAMED_beams], 0); /* one beam is no search */
        drop(&m);
    }
}

#define READERS(first, second) \
    HEAD("", "24", "2") \
    "%4 = append %3 - {head_dim=16 heads=2 kv_heads=1 layer=0} : [T,2,16] fp32\n%5 = attend_paged %4 {kv_heads=1 " \
    "layer=0 " \
    "scale=1" first \
    "} : [T,32] fp32\n%6 = scale %5 {by=2} : [T,32] fp32\n%7 = split_heads %6 {heads=2} : [T,2,16] fp32\n" \
    "%8 = attend_paged %7 %4 {kv_heads=1 layer=0 scale=1" second \
    "} : [T,32] fp32\n%9 = scale %8 {by=2} : [T,32] fp32\n" \
    "%10 = select_last %9 : [S,32] fp32\n%11 = sample %10 : [S] i32\noutput %11\n"

/* Layers that read the cache of the first: one cache, whose window is the longest, and each its name in labels. */
static void shared(void **state)
{
    static const struct {
        const char *graph;
        uint32_t window;
    } rows[] = {{READERS(" window=5", " window=7"), 7},
                {READERS(" window=9", " window=7"), 9},
                {READERS(" window=9", ""), 0},
                {READERS("", " window=7"), 0}};

    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        Made m;

        make(&m, CACHE SCALE(""), rows[i].graph, "cpu");
        if (!m.ok)
            fail_msg("%s", m.d.text);
        assert_int_equal(m.plan.caches.n, 1);
        assert_int_equal(m.plan.caches.at[0].window, rows[i].window);
        for (size_t l = 1; l <= 4; l++) { /* embed, append, attend, scale, attend */
            const char *label = m.plan.strings.at[m.plan.launches.at[l].label];

            if (l == 3) /* only the second layer reads it */
                continue;
            if (!strstr(label, l < 4 ? "layer 0: " : "layer 1: "))
                fail_msg("launch %zu is \"%s\"", l, label);
            assert_int_equal(operand(&m, l, 1).space, FTX_SPACE_PAGES);
            assert_int_equal(operand(&m, l, 1).offset, 0);
            assert_int_equal(operand(&m, l, 2).offset, 1024 * 16 * 4);
        }
        drop(&m);
    }
}

/* TMA descriptors of $k and $v: the rows of a page, the columns of the layer. */
static void tiled_pages(void **state)
{
    Made m;

    (void)state;
    make(&m, ADDED_TO(CACHE_OF("//@ tiled k 8\n//@ tiled v 16\n")),
         TWO(HEAD("", "24", "2"), "1", "%6", "8", "2", "16", "%9"), "sm_90a");
    if (!m.ok)
        fail_msg("%s", m.d.text);
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 1; i <= 2; i++) {
            const FtxOperand plain = operand(&m, 3 * k + 1, i), o = operand(&m, 3 * k + 2, i);

            assert_int_equal(plain.tile_rows, 0);
            assert_int_equal(o.tile_rows, 8 * i);
            assert_int_equal(o.space, FTX_SPACE_PAGES);
            assert_int_equal(o.offset, plain.offset);
            assert_int_equal(o.rows, 1024);
            assert_int_equal(o.columns, k ? 8 : 16);
            assert_int_equal(o.type, m.plan.caches.at[k].type);
        }
    drop(&m);
}

/* A TMA descriptor of heads: a row has all heads of a token. */
static void tiled_heads(void **state)
{
    Made m;

    (void)state;
    make(&m,
         EMBED KERNEL("scale", "20", "x[T,H,E] -> y",
                      "y = scale(x)") "//@ tiled x 64\n" KERNEL("act", "30", "x[T,D] -> y", "y = act(x)"),
         HEAD("kind encoder\n", "16", "0") "%4 = split_heads %3 {heads=4} : [T,4,16] fp32\n"
                                           "%5 = scale %4 {by=2} : [T,4,16] fp32\n"
                                           "%6 = join_heads %5 : [T,64] fp32\n"
                                           "%7 = act %6 {kind=\"relu\"} : [T,64] fp32\noutput %7\n",
         "sm_90a");
    if (!m.ok)
        fail_msg("%s", m.d.text);
    const FtxOperand x = operand(&m, m.plan.programs.at[0].first_launch + 1, 0);

    assert_int_equal(x.tile_rows, 64);
    assert_int_equal(x.columns, 64);
    assert_int_equal(x.rows, 16);
    drop(&m);
}

/* A layer that is left out, and a buffer beyond 2^46 bytes are refused. */
static void refused(void **state)
{
    static const struct {
        const char *graph, *message;
    } bad[] = {
        {TWO(HEAD("", "24", "2"), "2", "%3", "16", "2", "32", "%6"),
         "append: this is layer 1 of the model, its attribute layer is 2"},
        {TWO(HEAD_OF("", "16384", "2147483647", "16384", "2"), "1", "%3", "16", "2", "32", "%6"),
         "memory: $history would need 140737488289792 bytes: lower limits.sequences, "},
    };

    (void)state;
    for (size_t i = 0; i < LEN(bad); i++) {
        Made m;

        make(&m, ADDED, bad[i].graph, "cpu");
        assert_false(m.ok);
        if (!strstr(m.d.text, bad[i].message))
            fail_msg("%s", m.d.text);
        drop(&m);
    }
}

/* A workspace of more than 4 GB, scratch of more than 2 GB, a descriptor of 128 rows a tile and of a step's tokens. */
static void large(void **state)
{
    static const char scales[] = EMBED SCALE("//@ scratch part 3000000000\n//@ tiled x 128\n");
    Made m;
    bool found = false;

    (void)state;
    make(&m, scales,
         HEAD("kind encoder\n", "33554432", "0") "%4 = scale %3 {by=2} : [T,64] fp32\n"
                                                 "%5 = scale %4 {by=3} : [T,64] fp32\noutput %5\n",
         "sm_90a");
    if (!m.ok)
        fail_msg("%s", m.d.text);
    assert_true(m.plan.head.space_bytes[FTX_SPACE_WORK] >= UINT64_C(33554432) * 64 * 4 + UINT64_C(3000000000));
    for (size_t i = 0; i < m.plan.buffers.n; i++)
        found |= m.plan.buffers.at[i].bytes == UINT64_C(3000000000);
    assert_true(found);
    drop(&m);

    make(&m, scales,
         HEAD("kind encoder\n", "24", "0") "%4 = scale %3 {by=2} : [T,64] fp32\n"
                                           "%5 = scale %4 {by=3} : [T,64] fp32\noutput %5\n",
         "sm_90a");
    if (!m.ok)
        fail_msg("%s", m.d.text);
    for (size_t i = 0; i < m.plan.programs.n; i++) {
        const FtxProgram *p = &m.plan.programs.at[i];
        const FtxOperand x = operand(&m, p->first_launch + 1, 0);

        assert_int_equal(x.tile_rows, 128);
        assert_int_equal(x.columns, 64);
        assert_int_equal(x.rows, p->bucket == 16 ? 16 : 24); /* the program for 64 tokens has no more than a step */
    }
    drop(&m);
}

/* 300 values and launches: each reads what the one before has written. */
static void many(void **state)
{
    char text[20000] = HEAD("kind encoder\n", "16", "0");
    Made m;

    (void)state;
    for (int i = 4; i <= 303; i++)
        snprintf(text + strlen(text), 100, "%%%d = scale %%%d {by=2} : [T,64] fp32\n", i, i - 1);
    strcat(text, "output %303\n");
    make(&m, EMBED SCALE("") "//@ kernel spare\n//@ rank 80\n//@ args x -> y\n//@ match none\n", text, "cpu");
    if (!m.ok)
        fail_msg("%s", m.d.text);
    assert_int_equal(m.plan.launches.n, 301);
    assert_int_equal(m.plan.buffers.n, 300); /* the last value is $hidden */
    assert_int_equal(m.plan.instances.n, 2); /* without the kernel that no program launches */
    for (size_t i = 1; i < 301; i++) {
        const FtxOperand x = operand(&m, i, 0), before = operand(&m, i - 1, 2);

        assert_int_equal(x.space, FTX_SPACE_WORK);
        assert_int_equal(x.offset, before.offset);
        assert_int_equal(operand(&m, i, 1).space, FTX_SPACE_NULL);
    }
    assert_int_equal(operand(&m, 300, 2).offset, m.plan.head.named[FTX_NAMED_hidden]);
    drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers),      cmocka_unit_test(shared),
                                       cmocka_unit_test(tiled_pages), cmocka_unit_test(tiled_heads),
                                       cmocka_unit_test(refused),     cmocka_unit_test(large),
                                       cmocka_unit_test(many)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
