/* infer_attention.c - the shapes of attention: caches, sources, and what reads them. */
#include "query.h"

#include <string.h>

/* What k of attend is: keys beside values, the cache of the layer, or a source. */
static bool want_keys(const Query *q)
{
    const Op op = arg(q, 1)->op;
    const bool source = strcmp(ir_word(q->attrs, "scope"), "source") == 0;

    if (q->args[2]) {
        if (source)
            return diag_error(q->d, q->loc, "attend: scope source reads what cross_cache kept, it takes no v");
        if (strcmp(ir_word(q->attrs, "scope"), "prefix") == 0)
            return diag_error(q->d, q->loc, "attend: scope prefix reads a cache, it takes no v");
        return want_heads(q, 1) && want_heads(q, 2) && want_same(q, 1, 2);
    }
    if (source ? op != OP_CROSS_CACHE && op != OP_CROSS_APPEND : op != OP_CACHE)
        return diag_error(q->d, q->loc, "attend: %s is the result of %s, it must be that of %s",
                          source ? "cross" : "cache", ir_op_name(op), source ? "cross_cache" : "cache");
    if (strcmp(ir_word(q->attrs, "scope"), "full") == 0)
        return diag_error(q->d, q->loc, "attend: scope full cannot read a cache, which lacks later tokens");
    if (op == OP_CACHE && ir_int(arg(q, 1), "v_dim") != get(q, "v_dim"))
        return diag_error(q->d, q->loc, "attend: v_dim is %lld, that of the cache %lld", (long long)get(q, "v_dim"),
                          (long long)ir_int(arg(q, 1), "v_dim"));
    if (ir_int(arg(q, 1), "layer") != get(q, "layer"))
        return diag_error(q->d, q->loc, "attend: layer is %lld, that of the %s %lld", (long long)get(q, "layer"),
                          source ? "source" : "cache", (long long)ir_int(arg(q, 1), "layer"));
    return true;
}

/* Values inside keys: only the kernel keys_attend reads them so. */
static bool want_inside(const Query *q)
{
    const char *lacks = q->args[2] || arg(q, 1)->op != OP_CACHE             ? "keys that are not in a cache"
                        : strcmp(ir_word(q->attrs, "scope"), "causal") != 0 ? "a prefix"
                        : q->args[3]                                        ? "a bias"
                        : q->args[4]                                        ? "slopes"
                        : get(q, "chunk")                                   ? "chunks"
                                                                            : NULL;

    return !get(q, "v_dim") || !lacks ||
           diag_error(q->d, q->loc, "attend: values that are inside the keys are not read with %s", lacks);
}

/* Numbers of queries and of keys by distance: with nothing else that changes a score. */
static bool want_by_distance(const Query *q)
{
    const Shape x = shape_of(q, 0), by = q->args[6] ? shape_of(q, 6) : (Shape){0};

    if (!q->args[6] && !q->args[7])
        return true;
    if (!q->args[6] || !q->args[7])
        return diag_error(q->d, q->loc, "attend: by_query and by_key stand together, %s is missing",
                          q->args[6] ? "by_key" : "by_query");
    if (!want_heads(q, 6) || !want_heads(q, 7) || !want_same(q, 6, 7))
        return false;
    if (size(by, 1) != size(x, 1) || size(by, 2) % 2 == 0 || size(shape_of(q, 1), 1) != size(x, 1))
        return diag_error(q->d, q->loc,
                          "attend: by_query is %s, it must be [T,%lld,N] with an odd N, of as many heads as keys",
                          text_of(q, 6), (long long)size(x, 1));
    if (strcmp(ir_word(q->attrs, "scope"), "full") != 0 || q->args[3] || q->args[4] || q->args[5] ||
        ir_float(q->attrs, "softcap") != 0)
        return diag_error(q->d, q->loc,
                          "attend: by_query and by_key are for scope full without bias, slopes, sinks or softcap");
    return true;
}

bool infer_distance_heads(const Query *q, Shape *out)
{
    const Shape w = shape_of(q, 0), r = shape_of(q, 1);
    const int64_t heads = get(q, "heads"), buckets = get(q, "buckets"), max_distance = get(q, "max_distance");

    if (!want_rank(q, 0, 2) || !want_weight(q, 1) || !want_rank(q, 1, 2) || !want_range(q, "heads", 1, 1 << 20) ||
        !want_range(q, "max_distance", 3, 1 << 20) || !want_range(q, "buckets", 0, max_distance) ||
        !want_range(q, "reach", 1, 1 << 20) || (q->args[2] && !want_vector(q, 2, size(w, 0))))
        return false;
    if (size(w, 0) % heads || size(r, 1) != size(w, 1) || size(r, 0) != 2 * (buckets ? buckets : max_distance))
        return diag_error(
            q->d, q->loc,
            "distance_heads: w is %s, r is %s: %lld heads must divide the rows of w, their columns be equal, "
            "and r have %lld rows",
            text_of(q, 0), text_of(q, 1), (long long)heads, (long long)(2 * (buckets ? buckets : max_distance)));
    if (buckets && (buckets % 2 || buckets < 4 || max_distance - 1 <= buckets / 2))
        return diag_error(
            q->d, q->loc,
            "distance_heads: buckets is %lld, it must be an even number of 4 or more, and max_distance - 1 be "
            "more than half of it",
            (long long)buckets);
    *out = ir_shape(2, ir_const(heads * (2 * get(q, "reach") + 1)), ir_const(size(w, 0) / heads), (Dim){0});
    return true;
}

bool infer_attend(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0), k = shape_of(q, 1), bias = q->args[3] ? shape_of(q, 3) : (Shape){0};

    if (!want_heads(q, 0) || !want_word(q, "scope", "causal full prefix source") || !want_keys(q) ||
        !want_range(q, "layer", 0, 1 << 20) || !want_range(q, "window", 0, MANY))
        return false;
    if (size(k, 2) != size(x, 2) || size(k, 1) < 1 || size(x, 1) % size(k, 1))
        return diag_error(q->d, q->loc, "attend: q is %s, %s %s: head_dim must be equal and kv_heads divide heads",
                          text_of(q, 0), q->args[2] ? "k is" : "the cache holds", text_of(q, 1));
    if (q->args[3] && (!want_weight(q, 3) || !want_rank(q, 3, 2)))
        return false;
    if (q->args[3] && (size(bias, 0) != size(x, 1) || size(bias, 1) % 2 == 0))
        return diag_error(q->d, q->loc, "attend: bias is %s, it must be [%lld,P] with an odd P: distance_bias makes it",
                          text_of(q, 3), (long long)size(x, 1));
    for (int i = 4; i < 6; i++)
        if (q->args[i] && !want_vector(q, i, size(x, 1)))
            return false;
    if (strcmp(ir_word(q->attrs, "scope"), "source") == 0 && (get(q, "window") || q->args[3] || q->args[4]))
        return diag_error(q->d, q->loc, "attend: positions of a source have no distance: no window, bias or slopes");
    if (!want_range(q, "chunk", 0, MANY) || !want_range(q, "rounded", 0, 1))
        return false;
    if (!want_range(q, "tail", 0, MANY))
        return false;
    if (strcmp(ir_word(q->attrs, "scope"), "prefix") == 0 && (get(q, "window") || get(q, "chunk")))
        return diag_error(q->d, q->loc, "attend: all of a prefix is seen: no window or chunk");
    if (get(q, "tail") && strcmp(ir_word(q->attrs, "scope"), "prefix") != 0)
        return diag_error(q->d, q->loc, "attend: tail is for scope prefix, the scope is %s",
                          ir_word(q->attrs, "scope"));
    if (get(q, "chunk") && strcmp(ir_word(q->attrs, "scope"), "causal") != 0)
        return diag_error(q->d, q->loc, "attend: chunk is for scope causal, the scope is %s",
                          ir_word(q->attrs, "scope"));
    if (get(q, "rounded") && !q->args[4])
        return diag_error(q->d, q->loc, "attend: rounded is for slopes, there are none");
    *out = x;
    if (get(q, "v_dim"))
        out->dim[2] = ir_const(get(q, "v_dim"));
    return want_by_distance(q) && want_inside(q);
}

bool infer_cache(const Query *q, Shape *out)
{
    *out = shape_of(q, 0);
    if (!want_range(q, "layer", 0, 1 << 20) || !want_heads(q, 0))
        return false;
    if (q->op == OP_CACHE && !q->args[1])
        return want_range(q, "v_dim", 1, size(*out, 2));
    if (q->op == OP_CACHE && get(q, "v_dim"))
        return diag_error(q->d, q->loc, "cache: v_dim is for values inside the keys, v is given beside them");
    return want_heads(q, 1) && want_same(q, 0, 1);
}

/* Whether argument 1 has written the pages that attend_paged reads. */
static bool is_cache_of(const Query *q, int64_t head_dim)
{
    const Value *v = arg(q, 1);
    const bool append = v->op == OP_APPEND;
    const int64_t kv_heads = append ? ir_int(v, "kv_heads") : v->op == OP_CACHE ? size(v->shape, 1) : 0;

    return kv_heads == get(q, "kv_heads") && ir_int(v, "layer") == get(q, "layer") && size(v->shape, 2) == head_dim;
}

bool infer_attend_paged(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0);
    const int64_t heads = size(x, 1), head_dim = size(x, 2);

    if (!want_heads(q, 0) || !want_range(q, "layer", 0, 1 << 20) || !want_range(q, "kv_heads", 1, heads) ||
        !want_range(q, "window", 0, MANY))
        return false;
    if (heads % get(q, "kv_heads"))
        return diag_error(q->d, q->loc, "attend_paged: q is %s, kv_heads %lld must divide the heads", text_of(q, 0),
                          (long long)get(q, "kv_heads"));
    if (q->args[1] && !is_cache_of(q, head_dim))
        return diag_error(q->d, q->loc, "attend_paged: cache is %s = %s, it must be the cache of the layer",
                          text_of(q, 1), ir_op_name(arg(q, 1)->op));
    *out = ir_shape(2, x.dim[0], ir_const(heads * head_dim), (Dim){0});
    return true;
}

bool infer_append(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0);
    int64_t rot = 0;

    if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_range(q, "layer", 0, 1 << 20) ||
        !want_range(q, "heads", 1, 1 << 20) || !want_range(q, "kv_heads", 1, get(q, "heads")) ||
        !want_range(q, "head_dim", 1, 1 << 20))
        return false;
    if (x.dim[0].kind != DIM_T || size(x, 1) != (get(q, "heads") + 2 * get(q, "kv_heads")) * get(q, "head_dim"))
        return diag_error(q->d, q->loc, "append: x is %s, it must be [T,(%lld+2*%lld)*%lld]", text_of(q, 0),
                          (long long)get(q, "heads"), (long long)get(q, "kv_heads"), (long long)get(q, "head_dim"));
    if (q->args[1] && !want_table(q, 1, get(q, "head_dim"), &rot))
        return false;
    if (rot != get(q, "rot"))
        return diag_error(q->d, q->loc, "append: rot is %lld, the table rotates %lld", (long long)get(q, "rot"),
                          (long long)rot);
    if (!q->args[2] != !q->args[3])
        return diag_error(q->d, q->loc, "append: qg and kg are given together, or neither");
    *out = ir_shape(3, x.dim[0], ir_const(get(q, "heads")), ir_const(get(q, "head_dim")));
    return !q->args[2] || (want_vector(q, 2, get(q, "head_dim")) && want_vector(q, 3, get(q, "head_dim")));
}

bool infer_cross(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0), c = q->args[1] ? shape_of(q, 1) : (Shape){0};
    const int64_t head_dim = get(q, "head_dim");
    const int64_t heads = q->op == OP_CROSS_APPEND ? 2 * get(q, "kv_heads") : get(q, "heads");

    if (!want_activation(q, 0) || !want_range(q, "layer", 0, 1 << 20) || !want_rank(q, 0, 2) ||
        !want_range(q, "kv_heads", 1, 1 << 20) || !want_range(q, "head_dim", 1, 1 << 20))
        return false;
    if (x.dim[0].kind != DIM_T || heads < 1 || size(x, 1) % head_dim || size(x, 1) / head_dim != heads)
        return diag_error(q->d, q->loc, "%s: x is %s, it must be [T,%lld*%lld]", ir_op_name(q->op), text_of(q, 0),
                          (long long)heads, (long long)head_dim);
    if (q->op == OP_CROSS_APPEND) {
        *out = ir_shape(3, x.dim[0], ir_const(get(q, "kv_heads")), ir_const(head_dim));
        return true;
    }
    if (arg(q, 1)->op != OP_CROSS_CACHE && arg(q, 1)->op != OP_CROSS_APPEND)
        return diag_error(q->d, q->loc, "%s: cross is the result of %s, it must be that of cross_cache",
                          ir_op_name(q->op), ir_op_name(arg(q, 1)->op));
    if (head_dim != size(c, 2) || size(c, 1) < 1 || heads % size(c, 1) || get(q, "kv_heads") != size(c, 1))
        return diag_error(q->d, q->loc,
                          "%s: q has %lld heads of %lld, the source %s: head_dim must be equal and "
                          "kv_heads divide heads",
                          ir_op_name(q->op), (long long)heads, (long long)head_dim, text_of(q, 1));
    if (ir_int(arg(q, 1), "layer") != get(q, "layer"))
        return diag_error(q->d, q->loc, "%s: layer is %lld, that of the source %lld", ir_op_name(q->op),
                          (long long)get(q, "layer"), (long long)ir_int(arg(q, 1), "layer"));
    *out = x;
    return true;
}

bool infer_packed(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0);

    if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_range(q, "heads", 1, 1 << 20) ||
        !want_range(q, "kv_heads", 1, get(q, "heads")) || !want_range(q, "head_dim", 1, 1 << 20))
        return false;
    if (x.dim[0].kind != DIM_T || size(x, 1) != (get(q, "heads") + 2 * get(q, "kv_heads")) * get(q, "head_dim") ||
        get(q, "heads") % get(q, "kv_heads"))
        return diag_error(q->d, q->loc, "attend_packed: x is %s, it must be [T,(%lld+2*%lld)*%lld]", text_of(q, 0),
                          (long long)get(q, "heads"), (long long)get(q, "kv_heads"), (long long)get(q, "head_dim"));
    *out = ir_shape(2, x.dim[0], ir_const(get(q, "heads") * get(q, "head_dim")), (Dim){0});
    return true;
}
