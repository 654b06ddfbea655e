/* reading.h - reads a spec or a checkout, and asks its graph for ops and weights. */
#ifndef TESTS_READING_H
#define TESTS_READING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "compiler/spec/spec.h"

typedef struct Reading {
    Arena *keep;
    Spec spec;
    Diag d;
    bool ok;
} Reading;

/* defines: words with a space between, or NULL */
static inline Reading read_spec(const char *path, const char *defines)
{
    Reading r = {.keep = arena_open()};
    Override list[8];
    size_t n = 0;

    if (defines)
        for (char *save = NULL, *w = strtok_r(arena_strdup(r.keep, defines), " ", &save); w;
             w = strtok_r(NULL, " ", &save))
            list[n++].text = w;
    r.ok = spec_read(path, list, n, r.keep, &r.spec, &r.d);
    assert_int_equal(r.ok, !r.d.failed);
    if (!r.ok)
        assert_null(r.spec.graph);
    return r;
}

static inline void drop(Reading *r)
{
    ir_graph_close(r->spec.graph);
    arena_close(r->keep);
}

static inline Reading read_good(const char *path, const char *defines)
{
    Reading r = read_spec(path, defines);
    Diag d = {0};

    if (!r.ok)
        fail_msg("%s: %s", path, r.d.text);
    assert_true(ir_verify(r.spec.graph, &d));
    return r;
}

static inline size_t count_ops(const Graph *g, Op op)
{
    size_t n = 0;

    for (Id id = 1; id < g->values.n; id++)
        n += ir_value(g, id)->op == op;
    return n;
}

static inline const Value *first_op(const Graph *g, Op op)
{
    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == op)
            return ir_value(g, id);
    fail_msg("no %s in the graph", ir_op_name(op));
    return NULL;
}

static inline bool has_weight(const Graph *g, const char *name)
{
    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_WEIGHT && strcmp(ir_word(ir_value(g, id), "name"), name) == 0)
            return true;
    return false;
}

#endif
