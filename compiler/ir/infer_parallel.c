/* infer_parallel.c - the shapes of what ranks hold and exchange. */
#include "query.h"

int64_t ir_ranks(const Graph *g)
{
    return g->limits.ranks > 1 ? g->limits.ranks : 1;
}

/* The attribute `of`: so many pieces, of which each is on equally many ranks. */
static bool want_pieces(const Query *q)
{
    const int64_t ranks = ir_ranks(q->g), of = get(q, "of");

    if (of >= 1 && of <= ranks && ranks % of == 0)
        return true;
    return diag_error(q->d, q->loc, "%s: of is %lld, it must divide the %lld rank%s", ir_op_name(q->op), (long long)of,
                      (long long)ranks, ranks == 1 ? "" : "s");
}

bool infer_part(const Query *q, Shape *out)
{
    const Shape w = shape_of(q, 0);
    const int64_t of = get(q, "of"), dim = get(q, "dim"), stack = get(q, "stack"), n = size(w, (uint32_t)dim);

    if (!want_range(q, "dim", 0, w.rank > 1) || !want_range(q, "first", 0, 1) || !want_pieces(q) ||
        !want_range(q, "stack", 1, size(w, 0)))
        return false;
    *out = w;
    if (get(q, "first"))
        return true;
    if (w.rank > 2 || size(w, 0) % stack || (dim || stack > 1 ? n / (dim ? 1 : stack) % of : n < of))
        return diag_error(q->d, q->loc, "part: w is %s, %lld pieces of %s of %lld matrices cannot be equal",
                          text_of(q, 0), (long long)of, dim ? "columns" : "rows", (long long)stack);
    out->dim[dim] = ir_const(dim ? n / of : stack * ((n / stack + of - 1) / of));
    return true;
}

bool infer_exchange(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0);
    const int64_t ranks = ir_ranks(q->g), columns = q->op == OP_ALL_REDUCE ? 0 : get(q, "columns");

    if (!want_rank(q, 0, 2) || !want_activation(q, 0))
        return false;
    *out = x;
    if (q->op == OP_ALL_REDUCE)
        return true;
    if (columns > ranks * size(x, 1) || columns < 1)
        return diag_error(q->d, q->loc, "%s: x is %s, %lld ranks cannot have %lld columns", ir_op_name(q->op),
                          text_of(q, 0), (long long)ranks, (long long)columns);
    out->dim[1] = ir_const(columns);
    return true;
}

bool infer_rank_slice(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0);

    if (!(x.rank == 3 ? want_heads(q, 0) : want_rank(q, 0, 2)) || !want_activation(q, 0) || !want_pieces(q))
        return false;
    if (size(x, 1) % get(q, "of"))
        return diag_error(q->d, q->loc, "rank_slice: x is %s, it cannot be cut into %lld pieces", text_of(q, 0),
                          (long long)get(q, "of"));
    *out = x;
    out->dim[1] = ir_const(size(x, 1) / get(q, "of"));
    return true;
}
