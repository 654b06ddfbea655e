/* name.c - readable names of packed weights: layers.0.self_attn.{q,k,v}_proj.weight */
#include <string.h>

#include "tensors.h"

typedef struct Names {
    const char **at;
    size_t n, cap;
} Names;

static void leaves(const Graph *g, Id id, Names *names, Arena *a)
{
    const Value *v = ir_value(g, id);

    if (v->op == OP_WEIGHT)
        *arena_push(a, *names) = ir_word(v, "name");
    for (int i = 0; i < IR_MAX_ARGS; i++)
        if (v->args[i])
            leaves(g, v->args[i], names, a);
}

/* The number of bytes that all names share at the beginning; back: at the end, behind the first `front` bytes. */
static size_t shared(const Names *names, bool back, size_t front)
{
    const char *one = names->at[0];
    size_t n = strlen(one) - front;

    for (size_t i = 1; i < names->n; i++) {
        const char *other = names->at[i];
        const size_t a = strlen(one), b = strlen(other), most = b - front;
        size_t k = 0;

        while (k < n && k < most && (back ? one[a - 1 - k] == other[b - 1 - k] : one[k] == other[k]))
            k++;
        n = k;
    }
    return n;
}

const char *weights_name(const Graph *g, Id value, Arena *keep)
{
    const Value *v = ir_value(g, value);
    Names names = {0};
    const char *s;
    size_t front, back;

    leaves(g, value, &names, keep);
    if (!names.n)
        return ir_op_name(v->op);
    if (names.n == 1)
        return arena_strdup(keep, names.at[0]);
    front = shared(&names, false, 0);
    if (front == strlen(names.at[0])) /* the same tensor several times */
        return arena_strdup(keep, names.at[0]);
    back = shared(&names, true, front);
    s = arena_printf(keep, "%.*s{", (int)front, names.at[0]);
    for (size_t i = 0; i < names.n; i++)
        s = arena_printf(keep, "%s%s%.*s", s, i ? "," : "", (int)(strlen(names.at[i]) - front - back),
                         names.at[i] + front);
    return arena_printf(keep, "%s}%s", s, names.at[0] + strlen(names.at[0]) - back);
}

const char *weights_packed_name(const Graph *g, const PackedWeight *w, Arena *keep)
{
    const Id with = w->fold.gain ? w->fold.gain : w->fold.shift;
    const char *name = weights_name(g, w->value, keep);

    return with ? arena_printf(keep, "%s folded with %s", name, weights_name(g, with, keep)) : name;
}

uint64_t weights_parameters(const Graph *g, Arena *scratch)
{
    Names seen = {0};
    uint64_t n = 0;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);
        size_t i = 0;

        if (v->op != OP_WEIGHT)
            continue;
        while (i < seen.n && strcmp(seen.at[i], ir_word(v, "name")) != 0)
            i++;
        if (i < seen.n)
            continue;
        *arena_push(scratch, seen) = ir_word(v, "name");
        n += (uint64_t)ir_shape_elements(v->shape, 1, 1);
    }
    return n;
}
