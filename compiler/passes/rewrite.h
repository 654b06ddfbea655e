/* rewrite.h - a new graph built from an old one, value by value: how simplify changes graphs.
 *
 * For each value of the old graph, in the order of computation, a rule either builds a replacement in the new graph or
 * has the value copied; everything before it is in the new graph already. Equal weights are merged, and dead values are
 * removed at the end. */
#ifndef FTXC_REWRITE_H
#define FTXC_REWRITE_H

#include "../ir/ir.h"

typedef struct Rewrite {
    const Graph *old;
    Graph *now;
    Id *map;              /* old value to new */
    const uint32_t *uses; /* of old values */
    Id *bucket, *next;    /* weights of the new graph by hash */
    size_t cap;           /* of next */
    bool changed;
    const void *user; /* of rewrite_run_with */
} Rewrite;

/* The replacement of old value v in the new graph; 0: copy it. */
typedef Id Rule(Rewrite *r, Id v);

/* Runs one rule over the whole graph; true if it changed anything. */
bool rewrite_run(Graph *g, Rule *rule);
/* The same; the rule finds `user` in r->user. */
bool rewrite_run_with(Graph *g, Rule *rule, const void *user);

/* Appends to the new graph. Shape and type follow from the op; args are new values. */
Id rewrite_add(Rewrite *r, Op op, const Id args[IR_MAX_ARGS], const Attr *attrs, uint32_t n_attrs, Loc loc);
static inline Id rewrite_make(Rewrite *r, Op op, Id a, Id b, Id c, const Attr *attrs, uint32_t n_attrs, Loc loc)
{
    return rewrite_add(r, op, (const Id[IR_MAX_ARGS]){a, b, c}, attrs, n_attrs, loc);
}

static inline const Value *rewrite_old(const Rewrite *r, Id v)
{
    return &r->old->values.at[v];
}

#endif
