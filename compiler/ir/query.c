/* query.c - what the arguments and attributes of an op must be, and the message where one is not. */
#include "query.h"

#include <string.h>

const char *arg_name(const Query *q, int i)
{
    char name[16];
    bool optional;

    return ir_op_arg(q->op, i, name, &optional) ? arena_strdup(q->g->scratch, name) : "?";
}

bool want_rank(const Query *q, int i, uint32_t rank)
{
    if (shape_of(q, i).rank == rank)
        return true;
    return diag_error(q->d, q->loc, "%s: %s is %s, it must have %u dimension%s", ir_op_name(q->op), arg_name(q, i),
                      text_of(q, i), rank, rank == 1 ? "" : "s");
}

bool want_weight(const Query *q, int i)
{
    if (ir_op_is_weight(arg(q, i)->op))
        return true;
    return diag_error(q->d, q->loc, "%s: %s must be a weight, it is the result of %s", ir_op_name(q->op),
                      arg_name(q, i), ir_op_name(arg(q, i)->op));
}

bool want_activation(const Query *q, int i)
{
    if (!ir_op_is_weight(arg(q, i)->op) && arg(q, i)->op != OP_IDS)
        return true;
    return diag_error(q->d, q->loc, "%s: %s must be an activation, it is %s", ir_op_name(q->op), arg_name(q, i),
                      arg(q, i)->op == OP_IDS ? "ids" : "a weight");
}

bool want_vector(const Query *q, int i, int64_t n)
{
    if (!want_weight(q, i))
        return false;
    if (shape_of(q, i).rank == 1 && size(shape_of(q, i), 0) == n)
        return true;
    return diag_error(q->d, q->loc, "%s: %s is %s, it must be [%lld]", ir_op_name(q->op), arg_name(q, i), text_of(q, i),
                      (long long)n);
}

bool want_same(const Query *q, int i, int j)
{
    if (ir_shape_equal(shape_of(q, i), shape_of(q, j)))
        return true;
    return diag_error(q->d, q->loc, "%s: %s is %s, %s is %s; they must be equal", ir_op_name(q->op), arg_name(q, i),
                      text_of(q, i), arg_name(q, j), text_of(q, j));
}

bool want_range(const Query *q, const char *name, int64_t low, int64_t high)
{
    const int64_t i = get(q, name);

    if (i >= low && i <= high)
        return true;
    return diag_error(q->d, q->loc, "%s: %s is %lld, it must be %lld to %lld", ir_op_name(q->op), name, (long long)i,
                      (long long)low, (long long)high);
}

bool want_word(const Query *q, const char *name, const char *list)
{
    const char *s = ir_word(q->attrs, name);
    const size_t n = strlen(s);

    for (const char *at = list; n && (at = strstr(at, s)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
            return true;
    return diag_error(q->d, q->loc, "%s: %s is \"%s\", it must be one of: %s", ir_op_name(q->op), name, s, list);
}

bool want_heads(const Query *q, int i)
{
    const Shape s = shape_of(q, i);

    if (!want_rank(q, i, 3) || !want_activation(q, i))
        return false;
    if (s.dim[0].kind == DIM_T && size(s, 1) > 0 && size(s, 2) > 0)
        return true;
    return diag_error(q->d, q->loc, "%s: %s is %s, it must be [T,heads,head_dim]", ir_op_name(q->op), arg_name(q, i),
                      text_of(q, i));
}

bool want_table(const Query *q, int i, int64_t head_dim, int64_t *rot)
{
    const Shape s = shape_of(q, i);

    *rot = 2 * size(s, 1);
    if (!want_weight(q, i) || !want_rank(q, i, 3))
        return false;
    if (size(s, 2) == 2 && *rot > 0 && *rot <= head_dim)
        return true;
    return diag_error(q->d, q->loc, "%s: %s is %s, it must be [positions,rot/2,2] with rot at most head_dim %lld",
                      ir_op_name(q->op), arg_name(q, i), text_of(q, i), (long long)head_dim);
}
