/* query.h - the inside of ir_infer: an op with its arguments, and what they must be.
 *
 * Each want_ function reports what is wrong, with the names of the op and the argument, and returns false. */
#ifndef FTX_IR_QUERY_H
#define FTX_IR_QUERY_H

#include "ir.h"

/* The op in question, its arguments, and where a diagnostic goes. */
typedef struct Query {
    const Graph *g;
    Op op;
    const Id *args;
    const Value *attrs; /* only op and attributes are set */
    Loc loc;
    Diag *d;
} Query;

static inline const Value *arg(const Query *q, int i)
{
    return ir_value(q->g, q->args[i]);
}

static inline Shape shape_of(const Query *q, int i)
{
    return arg(q, i)->shape;
}

static inline const char *text_of(const Query *q, int i)
{
    return ir_shape_text(q->g->scratch, shape_of(q, i));
}

/* Dimension i if it is a constant, else 0, so that the callers' comparisons fail. */
static inline int64_t size(Shape s, uint32_t i)
{
    return i < s.rank && s.dim[i].kind == DIM_CONST ? s.dim[i].n : 0;
}

static inline bool dim_equal(Dim a, Dim b)
{
    return a.kind == b.kind && a.n == b.n;
}

static inline int64_t get(const Query *q, const char *name)
{
    return ir_int(q->attrs, name);
}

static const int64_t MANY = INT64_C(1) << 40; /* above any real dimension */

const char *arg_name(const Query *q, int i);
bool want_rank(const Query *q, int i, uint32_t rank);
/* Argument i must be a weight: known at compile time. */
bool want_weight(const Query *q, int i);
/* Argument i must be an activation. */
bool want_activation(const Query *q, int i);
/* Argument i must be a weight vector of n elements. */
bool want_vector(const Query *q, int i, int64_t n);
/* Arguments i and j must have one shape. */
bool want_same(const Query *q, int i, int j);
/* An attribute must lie in [low, high]. */
bool want_range(const Query *q, const char *name, int64_t low, int64_t high);
/* An attribute must be one of the words in `list`, which are separated by spaces. */
bool want_word(const Query *q, const char *name, const char *list);
/* Argument i must be an activation [T,H,E], where H and E are constants. */
bool want_heads(const Query *q, int i);
/* Argument i must be a rope table; *rot: how many values of a head it rotates, at most head_dim. */
bool want_table(const Query *q, int i, int64_t head_dim, int64_t *rot);

/* infer_attention.c */
bool infer_attend(const Query *q, Shape *out);
bool infer_distance_heads(const Query *q, Shape *out);
bool infer_cache(const Query *q, Shape *out);
bool infer_attend_paged(const Query *q, Shape *out);
bool infer_append(const Query *q, Shape *out);
bool infer_cross(const Query *q, Shape *out);  /* cross_append and attend_cross */
bool infer_packed(const Query *q, Shape *out); /* attend_packed: attention over all tokens of the sequence */

/* infer_recurrent.c */
bool infer_convolve(const Query *q, Shape *out);
bool infer_recur(const Query *q, Shape *out);

/* infer_parallel.c */
bool infer_part(const Query *q, Shape *out);
bool infer_exchange(const Query *q, Shape *out); /* all_reduce, all_gather and gather_logits */
bool infer_rank_slice(const Query *q, Shape *out);

#endif
