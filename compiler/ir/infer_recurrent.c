/* infer_recurrent.c - the shapes of ops that keep a state of all tokens so far. */
#include "query.h"

enum { MOST_TAPS = 16 };

bool infer_convolve(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0), w = shape_of(q, 1);
    const int64_t columns = size(x, 1), taps = size(w, 1);

    if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_rank(q, 1, 2) || !want_weight(q, 1) ||
        !want_range(q, "layer", 0, 1 << 20))
        return false;
    if (x.dim[0].kind != DIM_T || size(w, 0) != columns || taps < 2 || taps > MOST_TAPS)
        return diag_error(q->d, q->loc, "convolve: x is %s, w is %s: they must be [T,C] and [C,2] to [C,%d]",
                          text_of(q, 0), text_of(q, 1), MOST_TAPS);
    *out = x;
    return !q->args[2] || want_vector(q, 2, columns);
}

/* Elements of a head of argument i: what kernels keep in registers. */
static bool want_head_size(const Query *q, int i)
{
    const int64_t n = size(shape_of(q, i), 2);

    return (n % 8 == 0 && n >= 16 && n <= 256) ||
           diag_error(q->d, q->loc, "recur: %s is %s, its heads must have a multiple of 8 from 16 to 256 elements",
                      arg_name(q, i), text_of(q, i));
}

/* Argument i must be an activation with a number for each head of v. */
static bool want_for_heads(const Query *q, int i)
{
    const Shape s = shape_of(q, i);
    const int64_t heads = size(shape_of(q, 2), 1);

    if (!want_activation(q, i))
        return false;
    return (s.rank == 2 && s.dim[0].kind == DIM_T && size(s, 1) == heads) ||
           diag_error(q->d, q->loc, "recur: %s is %s, it must be [T,%lld], a number for each head of v", arg_name(q, i),
                      text_of(q, i), (long long)heads);
}

/* Argument 4, a matrix: each key has a rate of its own. */
static bool want_rates(const Query *q)
{
    const Shape of_q = shape_of(q, 0), v = shape_of(q, 2), rate = shape_of(q, 4);

    if (!want_weight(q, 4))
        return false;
    if (size(rate, 0) != size(v, 1) || size(rate, 1) != size(of_q, 2))
        return diag_error(q->d, q->loc, "recur: rate is %s, it must be [%lld] or [%lld,%lld]", text_of(q, 4),
                          (long long)size(v, 1), (long long)size(v, 1), (long long)size(of_q, 2));
    return (size(of_q, 1) == 1 && size(v, 2) == 1 && !q->args[6] && ir_float(q->attrs, "unit") == 0) ||
           diag_error(q->d, q->loc,
                      "recur: q is %s, v is %s: with a rate for each key q must have one head and those of v one "
                      "element, and there is no beta and no unit",
                      text_of(q, 0), text_of(q, 2));
}

bool infer_recur(const Query *q, Shape *out)
{
    const bool rates = shape_of(q, 4).rank == 2;
    const double unit = ir_float(q->attrs, "unit"), low = ir_float(q->attrs, "low"), high = ir_float(q->attrs, "high");

    for (int i = 0; i < 3; i++)
        if (!want_heads(q, i) || (!(rates && i == 2) && !want_head_size(q, i)))
            return false;
    if (!want_same(q, 0, 1) || !want_range(q, "layer", 0, 1 << 20))
        return false;

    const int64_t keys = size(shape_of(q, 0), 1), heads = size(shape_of(q, 2), 1);

    if (keys < 1 || heads % keys)
        return diag_error(q->d, q->loc, "recur: q is %s, v is %s: the heads of q must divide those of v", text_of(q, 0),
                          text_of(q, 2));
    if (!want_for_heads(q, 3) || !(rates ? want_rates(q) : want_vector(q, 4, heads)) || !want_vector(q, 5, heads) ||
        (q->args[6] && !want_for_heads(q, 6)))
        return false;
    if (unit < 0)
        return diag_error(q->d, q->loc, "recur: unit is %g, it must be 0 or positive", unit);
    if (low < 0 || (high != 0 && high <= low))
        return diag_error(q->d, q->loc, "recur: low is %g and high %g: low must be 0 or positive, high above it or 0",
                          low, high);
    *out = shape_of(q, 2);
    return true;
}
