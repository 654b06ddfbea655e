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
