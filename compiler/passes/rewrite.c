/* rewrite.c - a new graph built from an old one, value by value. */
#include "rewrite.h"

#include <assert.h>
#include <string.h>

#include "../../runtime/base/hash.h"

enum { BUCKETS = 4096 };

static bool attr_equal(const Attr *a, const Attr *b)
{
    return a->kind == b->kind && strcmp(a->name, b->name) == 0 && a->i == b->i && a->f == b->f &&
           (a->kind != ATTR_WORD || strcmp(a->s, b->s) == 0);
}

static bool same(const Value *a, const Value *b)
{
    if (a->op != b->op || memcmp(a->args, b->args, sizeof a->args) != 0 || a->n_attrs != b->n_attrs ||
        !ir_shape_equal(a->shape, b->shape) || a->type != b->type)
        return false;
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (!attr_equal(&a->attrs[i], &b->attrs[i]))
            return false;
    return true;
}

static uint32_t bucket_of(const Value *v)
{
    uint64_t h = hash64(v->args, sizeof v->args) + v->op;

    for (uint32_t i = 0; i < v->n_attrs; i++)
        h = h * 31 + (v->attrs[i].kind == ATTR_WORD ? hash64(v->attrs[i].s, strlen(v->attrs[i].s))
                                                    : hash64(&v->attrs[i].i, sizeof(int64_t)));
    return (uint32_t)(h % BUCKETS);
}

/* Merges equal weights: if the new graph already has one equal to its last value, the last is dropped. */
static Id merge_equal(Rewrite *r, Id id)
{
    const Value *v = ir_value(r->now, id);
    uint32_t b;

    if (!ir_op_is_weight(v->op) && v->op != OP_IDS)
        return id;
    b = bucket_of(v);
    for (Id other = r->bucket[b]; other; other = r->next[other])
        if (same(ir_value(r->now, other), v)) {
            *ir_value(r->now, id) = (Value){0}; /* it was the last; the next one is made in its place */
            r->now->values.n = id;
            return other;
        }
    if (id >= r->cap) {
        r->next = arena_grow(r->old->scratch, r->next, sizeof(Id) * r->cap, sizeof(Id) * (id * 2u + 64u));
        r->cap = id * 2u + 64u;
    }
    r->next[id] = r->bucket[b];
    r->bucket[b] = id;
    return id;
}

Id rewrite_add(Rewrite *r, Op op, const Id args[IR_MAX_ARGS], const Attr *attrs, uint32_t n_attrs, Loc loc)
{
    const Id a = args[0];
    Diag d = {0};
    Shape shape = {0};
    DType type = DT_NONE;
    Id id;

    if (!ir_infer(r->now, op, args, attrs, n_attrs, a ? ir_value(r->now, a)->type : DT_NONE, loc, &shape, &type, &d))
        die("a rewrite made an op with wrong arguments: %s", d.text);
    id = ir_value_add(r->now, op, args, shape, type, loc);
    for (uint32_t i = 0; i < n_attrs; i++) {
        if (attrs[i].kind == ATTR_INT)
            ir_attr_int(r->now, id, attrs[i].name, attrs[i].i);
        else if (attrs[i].kind == ATTR_FLOAT)
            ir_attr_float(r->now, id, attrs[i].name, attrs[i].f);
        else
            ir_attr_word(r->now, id, attrs[i].name, attrs[i].s);
    }
    r->changed = true;
    return merge_equal(r, id);
}

static Id copy(Rewrite *r, Id v)
{
    const Value *from = rewrite_old(r, v);
    Value *to = arena_push(r->now->keep, r->now->values);

    *to = *from;
    for (int i = 0; i < IR_MAX_ARGS; i++)
        to->args[i] = r->map[from->args[i]];
    return merge_equal(r, (Id)(r->now->values.n - 1));
}

bool rewrite_run(Graph *g, Rule *rule)
{
    return rewrite_run_with(g, rule, NULL);
}

bool rewrite_run_with(Graph *g, Rule *rule, const void *user)
{
    Graph now = *g;
    Rewrite r = {.old = g, .now = &now, .user = user};

    memset(&now.values, 0, sizeof now.values);
    arena_push(g->keep, now.values);
    r.map = arena_array(g->scratch, Id, g->values.n);
    r.bucket = arena_array(g->scratch, Id, BUCKETS);
    r.uses = ir_uses(g);
    for (Id v = 1; v < g->values.n; v++) {
        const Id made = rule(&r, v);

        r.map[v] = made ? made : copy(&r, v);
    }
    now.output = r.map[g->output];
    now.pooled = r.map[g->pooled];
    now.states = r.map[g->states];
    now.entry = r.map[g->entry];
    now.logits = ir_logits(&now);
    *g = now;
    ir_sweep(g);
    return r.changed;
}
