/* kernels.h - what the files of test_kernels share: steps, and graphs written line by line.
 *
 *   test_kernels.c   rows, products, sampling and searching
 *   attention.c      every kind of attention
 *   batches.c        products of decode programs of many rows
 *   codes.c          attention over a cache of codes
 *   mixtures.c       routers and experts
 *   orders.c         the order of sums, bit for bit
 *   quantised.c      products with quantised weights
 *   recurrences.c    linear recurrences */
#ifndef SIMT_KERNELS_H
#define SIMT_KERNELS_H

#include "case.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

extern bool wide; /* test_kernels long: more shapes, all schedules */

/* attention.c */
void attention(void **state);
void attention_of_normed_heads(void **state);
void windows(void **state);
void prompts(void **state);
void texts(void **state);
void split_texts(void **state);
void blocks(void **state);
void parts(void **state);
void inside(void **state);

/* batches.c */
void batches(void **state);

/* codes.c */
void codes_append(void **state);
void codes_decode(void **state);
void codes_prompts(void **state);

/* mixtures.c */
void routers(void **state);
void whole_routers(void **state);
void experts(void **state);
void expert_tiles(void **state);
void experts_q(void **state);
void expert_tiles_q(void **state);

/* orders.c */
void orders(void **state);

/* quantised.c */
void quantised(void **state);
void quantised_bulk(void **state);
void quantised_hopper(void **state);
void quantised_digits(void **state);
void quantised_fp8(void **state);
void fp8_by_fp8(void **state);

/* recurrences.c */
void recurrences(void **state);

static const DType types[] = {DT_FP32, DT_FP16, DT_BF16};

enum { SUITE_TURNS = SIMT_SANITIZED ? 6 : 1 };

static inline Suite *open_suite(const char *name)
{
    const char *build = getenv("FTX_BUILD");
    char dir[600];

    assert_non_null(build); /* a folder "(null)" would stand in the tree */
    snprintf(dir, sizeof dir, "%s/simt-%s%s", build, name, wide ? "-long" : "");
    return suite_open(dir, SUITE_TURNS);
}

static inline void finish(Suite *s, uint64_t seed)
{
    suite_build(s);
    suite_run(s, wide ? SIMT_SCHEDULES : 2, seed);
    suite_summary(s, stdout);
    suite_close(s);
}

/* --- steps -------------------------------------------------------------------------------------- */

static inline void set_rows(Case *c, int n, int decode_rows, const int (*rows)[2])
{
    c->rows = n;
    c->decode_rows = decode_rows;
    for (int i = 0; i < n; i++) {
        c->row[i].q_len = rows[i][0];
        c->row[i].kv_len = rows[i][1];
    }
}

/* Two decode rows, a whole prompt of 5 tokens and a chunk of 4 tokens of a longer prompt: 11 tokens. */
static inline void mixed_step(Case *c)
{
    set_rows(c, 4, 2, (const int[][2]){{1, 9}, {1, 1}, {5, 5}, {4, 15}});
    c->bucket = 16;
}

static inline void decode_step(Case *c, int rows)
{
    static const int lengths[CASE_ROWS][2] = {{1, 7}, {1, 21}, {1, 1}, {1, 16}, {1, 33}, {1, 8}, {1, 40}, {1, 64}};

    set_rows(c, rows, rows, lengths);
    c->decode = true;
    for (c->bucket = 1; c->bucket < rows; c->bucket *= 2)
        ;
}

/* --- graphs, line by line ----------------------------------------------------------------------- */

typedef struct Ir {
    char text[6000];
    size_t n;
    int ids; /* values so far, which is the number of the last one */
} Ir;

static inline int add(Ir *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline int add(Ir *g, const char *format, ...)
{
    va_list args;

    g->n += (size_t)snprintf(g->text + g->n, sizeof g->text - g->n, "%%%d = ", ++g->ids);
    va_start(args, format);
    g->n += (size_t)vsnprintf(g->text + g->n, sizeof g->text - g->n, format, args);
    va_end(args);
    assert_true(g->n + 20 < sizeof g->text);
    g->text[g->n++] = '\n';
    g->text[g->n] = 0;
    return g->ids;
}

static inline Ir begin(void)
{
    Ir g = {.text = "graph \"case\"\nlimits sequences=7 context=64 tokens=64 kv_block=8 kv_pages=72 "
                    "logit_bias=4 end_ids=4 bad_words=12\n"};

    g.n = strlen(g.text);
    add(&g, "ids : [T] i32");
    return g;
}

static inline int weight(Ir *g, const char *name, int n, int k, DType t)
{
    if (k == 0)
        return add(g, "weight {name=\"%s\"} : [%d] %s", name, n, dtype_name(t));
    return add(g, "weight {name=\"%s\"} : [%d,%d] %s", name, n, k, dtype_name(t));
}

/* An activation [T,C]: an input of the kernel under test. */
static inline int input(Ir *g, int C, DType t)
{
    const int w = weight(g, "e", 50, C, t);

    return add(g, "embed %%1 %%%d : [T,%d] %s", w, C, dtype_name(t));
}

static inline int norm_by(Ir *g, int kind, int x, int gain, int bias, const char *rows, int C, DType t)
{
    if (kind == 1)
        return add(g, "rmsnorm %%%d %%%d {eps=1e-5} : [%s,%d] %s", x, gain, rows, C, dtype_name(t));
    return add(g, "layernorm %%%d %%%d %%%d {eps=1e-5} : [%s,%d] %s", x, gain, bias, rows, C, dtype_name(t));
}

static inline int norm(Ir *g, int kind, int x, const char *rows, int C, DType t)
{
    const int gain = kind ? weight(g, "g", C, 0, t) : 0, bias = kind == 2 ? weight(g, "b", C, 0, t) : 0;

    return kind ? norm_by(g, kind, x, gain, bias, rows, C, t) : x;
}

static inline size_t take(Suite *s, Ir *g, Case *c, const char *name)
{
    if (!c->target)
        c->target = "sm_90a";
    if (!c->kv)
        c->kv = DT_FP32;
    snprintf(g->text + g->n, sizeof g->text - g->n, "output %%%d\n", g->ids);
    c->graph = g->text;
    const size_t n = suite_add(s, c, name);
    if (n == 0)
        fail_msg("%s: no kernel for it\n%s", name, g->text);
    return n;
}

/* A linear layer, with a bias if `bias` is not 0. */
static inline int product(Ir *g, int x, int N, int K, int bias, DType t)
{
    const int w = weight(g, "w", N, K, t);

    if (!bias)
        return add(g, "linear %%%d %%%d - : [T,%d] %s", x, w, N, dtype_name(t));
    return add(g, "linear %%%d %%%d %%%d : [T,%d] %s", x, w, weight(g, "b", N, 0, t), N, dtype_name(t));
}

#endif
