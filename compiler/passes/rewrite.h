/* rewrite.h - a graph rebuilt value by value: how simplify changes graphs.
 *
 * A rule looks at one value of the old graph and either builds something for it in the new one, or
 * lets it be copied. It runs in the order of computation, so all that stands before is there
 * already. What nobody needs afterwards is swept. Equal weights become one. */
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
} Rewrite;

/* What becomes of old value v: a new value, or 0: a copy of it. */
typedef Id Rule(Rewrite *r, Id v);

/* Runs one rule over the whole graph; true if it changed anything. */
bool rewrite_run(Graph *g, Rule *rule);

/* Appends to the new graph. Shape and type follow from the op; args are new values. */
Id rewrite_make(Rewrite *r, Op op, Id a, Id b, Id c, const Attr *attrs, uint32_t n_attrs, Loc loc);

static inline const Value *rewrite_old(const Rewrite *r, Id v)
{
    return &r->old->values.at[v];
}

#endif
