/* simplify.c - from the graph that the spec wrote to the canonical form that kernels are written for.
 *
 *   q = rope(split_heads(linear(x, wq)), t)             wqkv = concat(pairs(wq), pairs(wk), wv)
 *   k = rope(split_heads(linear(x, wk)), t)       ->    q = append(linear(x, wqkv), t)
 *   v = split_heads(linear(x, wv))                      y = attend_paged(q)
 *   y = join_heads(attend(q, cache(k, v)))
 *   q = rope(rmsnorm(split_heads(..), g), t), k as q   ->   q = append(.., t, pairs(gq), pairs(gk))
 *
 *   z = join_heads(attend(p, cache(k, v)))        ->    z = attend_paged(p, q)    the cache that append has written with q
 *
 *   y = join_heads(attend(q, k, v))               ->    y = attend_packed(linear(x, wqkv))
 *   c = cross_cache(k, v)                         ->    c = cross_append(linear(x, wkv))
 *   y = join_heads(attend(q, c))                  ->    y = attend_cross(linear(x, wq), c)
 *   y = join_heads(attend(q, cache(k, v)))        ->    y = attend_paged(q, cache(k, v))   where q, k or v is another chain
 *
 *   mul(act(linear(x, wg)), linear(x, wu))        ->    glu(linear(x, interleave(wg, wu)))
 *   select_last(norm(x))                          ->    norm(select_last(x))
 *   scale(scale(x)), a scale of q or k            ->    one scale, or the attention's own
 *   concat(rows(w, 0, n), rows(w, n, m))          ->    rows(w, 0, n + m), or w itself
 *
 * `pairs` makes the two values that RoPE rotates together neighbours, so that kernels need one form of RoPE only; q and
 * k are permuted in the same way, so q k^T does not change. A value that has none of these forms stays as it is; select
 * reports it if no kernel computes it. */
#include <string.h>

#include "lower.h"
#include "rewrite.h"

static Attr attr_int(const char *name, int64_t i)
{
    return (Attr){.name = name, .kind = ATTR_INT, .i = i};
}

static Attr attr_float(const char *name, double f)
{
    return (Attr){.name = name, .kind = ATTR_FLOAT, .f = f};
}

static Attr attr_word(const char *name, const char *s)
{
    return (Attr){.name = name, .kind = ATTR_WORD, .s = s};
}

/* --- scales -------------------------------------------------------------------------------------- */

static Id fold_scales(Rewrite *r, Id id)
{
    const Value *v = rewrite_old(r, id);
    double by;
    Id x;

    if (v->op != OP_SCALE)
        return 0;
    by = ir_float(v, "by");
    for (x = v->args[0]; rewrite_old(r, x)->op == OP_SCALE; x = rewrite_old(r, x)->args[0])
        by *= ir_float(rewrite_old(r, x), "by");
    if (by == 1.0) {
        r->changed = true;
        return r->map[x];
    }
    if (x == v->args[0])
        return 0;
    return rewrite_make(r, OP_SCALE, r->map[x], 0, 0, &(Attr[]){attr_float("by", by)}[0], 1, v->loc);
}

/* --- select_last --------------------------------------------------------------------------------- */

/* Whether each row of the result depends only on the same row of argument 0. */
static bool is_row_wise(Op op)
{
    return op == OP_RMSNORM || op == OP_LAYERNORM || op == OP_LINEAR || op == OP_SCALE || op == OP_ACT ||
           op == OP_GLU || op == OP_ALL_REDUCE;
}

static Id lift_select(Rewrite *r, Id id)
{
    const Value *v = rewrite_old(r, id), *x = rewrite_old(r, v->args[0]);
    Id last;

    if (v->op != OP_SELECT_LAST || !is_row_wise(x->op) || r->uses[v->args[0]] != 1)
        return 0;
    last = rewrite_make(r, OP_SELECT_LAST, r->map[x->args[0]], 0, 0, NULL, 0, v->loc);
    return rewrite_make(r, x->op, last, r->map[x->args[1]], r->map[x->args[2]], x->attrs, x->n_attrs, x->loc);
}

/* --- attention ----------------------------------------------------------------------------------- */

/* The chain from a linear to the attention, for one of q, k, v. */
typedef struct Projection {
    const Value *linear, *norm, *rope; /* NULL: heads are not normed, not rotated */
    const Value *rope_table;
    int64_t heads, head_dim;
    double scale;
} Projection;

/* Follows value id back through rope, a norm of each head, split_heads and scales, each with one reader, to its linear. The
 * norm stands before rope, and no scale before the norm. */
static bool find_projection(const Rewrite *r, Id id, Projection *p)
{
    *p = (Projection){.scale = 1};
    for (;;) {
        const Value *v = rewrite_old(r, id);

        if (r->uses[id] != 1)
            return false;
        if (v->op == OP_LINEAR && p->heads) {
            p->linear = v;
            return true;
        }
        if (v->op == OP_ROPE && !p->rope && !p->norm && !p->heads) {
            p->rope = v;
            p->rope_table = rewrite_old(r, v->args[1]);
        } else if (v->op == OP_RMSNORM && !p->norm && !p->heads && rewrite_old(r, v->args[1])->shape.rank == 1) {
            p->norm = v;
        } else if (v->op == OP_SPLIT_HEADS && !p->heads) {
            p->heads = ir_int(v, "heads");
            p->head_dim = v->shape.dim[2].n;
        } else if (v->op == OP_SCALE && !p->norm) {
            p->scale *= ir_float(v, "by");
        } else {
            return false;
        }
        id = v->args[0];
    }
}

/* Weight or bias of a projection, with the rows of rotated pairs side by side. */
static Id in_pairs(Rewrite *r, const Projection *p, Id w, int64_t rot)
{
    if (!w || !p->rope || strcmp(ir_word(p->rope, "style"), "half") != 0)
        return w;
    return rewrite_make(r, OP_PAIRS, w, 0, 0, (Attr[]){attr_int("head_dim", p->head_dim), attr_int("rot", rot)}, 2,
                        p->linear->loc);
}

/* Weights (arg 1) or biases (arg 2) of q, k and v concatenated. */
static Id joined(Rewrite *r, const Projection *q, const Projection *k, const Projection *v, int arg, int64_t rot)
{
    const Id a = in_pairs(r, q, r->map[q->linear->args[arg]], rot);
    const Id b = in_pairs(r, k, r->map[k->linear->args[arg]], rot);

    return a ? rewrite_make(r, OP_CONCAT, a, b, r->map[v->linear->args[arg]], NULL, 0, q->linear->loc) : 0;
}

/* Whether one product can compute q, k and v. */
static bool joinable(const Rewrite *r, const Projection *q, const Projection *k, const Projection *v)
{
    const Id x = q->linear->args[0];

    if (k->linear->args[0] != x || v->linear->args[0] != x || v->rope || v->norm || v->scale != 1)
        return false;
    if (!q->norm != !k->norm || (q->norm && ir_float(q->norm, "eps") != ir_float(k->norm, "eps")))
        return false;
    if (!q->linear->args[2] != !k->linear->args[2] || !q->linear->args[2] != !v->linear->args[2])
        return false;
    if (!q->rope != !k->rope || k->heads != v->heads)
        return false;
    if (q->rope && (strcmp(ir_word(q->rope, "style"), ir_word(k->rope, "style")) != 0 ||
                    r->map[q->rope->args[1]] != r->map[k->rope->args[1]]))
        return false;
    /* what writes the cache knows a token's place in the whole text alone */
    if (q->rope && (strcmp(ir_word(q->rope, "count"), "all") != 0 || strcmp(ir_word(k->rope, "count"), "all") != 0))
        return false;
    return true;
}

enum { PLAIN_HEAD_DIM = 256 }; /* the most elements of a head but for the general kernel */

/* Whether v is attention of a scope without what only the general kernel computes. */
static bool is_plain(const Value *v, const char *scope)
{
    return v->op == OP_ATTEND && strcmp(ir_word(v, "scope"), scope) == 0 && !v->args[3] && !v->args[4] && !v->args[5] &&
           !v->args[6] && !ir_int(v, "chunk") && !ir_int(v, "v_dim") && v->shape.dim[2].n <= PLAIN_HEAD_DIM;
}

/* Attributes of attend_paged; returns their number. */
static uint32_t paged_attrs(const Value *attend, int64_t kv_heads, double scale, Attr attrs[8])
{
    uint32_t n = 0;

    attrs[n++] = attr_int("kv_heads", kv_heads);
    attrs[n++] = attr_int("layer", ir_int(attend, "layer"));
    attrs[n++] = attr_float("scale", scale);
    if (ir_float(attend, "softcap") != 0)
        attrs[n++] = attr_float("softcap", ir_float(attend, "softcap"));
    if (ir_int(attend, "window") != 0)
        attrs[n++] = attr_int("window", ir_int(attend, "window"));
    return n;
}

/* Caches that several attentions read: by cache of the old graph the append that writes it; 0: none. */
typedef struct Appended {
    Id *by_cache;
} Appended;

/* The join_heads that alone reads an attention over pages; 0: other values do, or no such kernel computes it. */
static Id joins_pages(const Rewrite *r, Id attend)
{
    Id join = attend + 1;

    if (!is_plain(rewrite_old(r, attend), "causal") || rewrite_old(r, attend)->args[2] || r->uses[attend] != 1)
        return 0;
    while (join < r->old->values.n && rewrite_old(r, join)->args[0] != attend)
        join++;
    return join < r->old->values.n && rewrite_old(r, join)->op == OP_JOIN_HEADS ? join : 0;
}

static int64_t rotated(const Projection *p)
{
    return p->rope ? 2 * p->rope_table->shape.dim[1].n : 0;
}

/* Whether q is rotated in the pairs of k, which append puts side by side. */
static bool same_pairs(const Projection *q, const Projection *k)
{
    return rotated(q) == rotated(k) &&
           (!k->rope || (strcmp(ir_word(q->rope, "style"), ir_word(k->rope, "style")) == 0 &&
                         strcmp(ir_word(q->rope, "count"), "all") == 0));
}

/* Whether the attention below `join` may write the cache of k by an append: all others that read it come behind, as attention
 * over pages with queries whose rows can be moved as those of k. */
static bool may_append(const Rewrite *r, Id join, const Projection *k)
{
    const Id attend = rewrite_old(r, join)->args[0], cache = rewrite_old(r, attend)->args[1];
    Projection q;

    for (Id id = cache + 1; id < r->old->values.n && r->uses[cache] > 1; id++)
        if (id != attend && rewrite_old(r, id)->args[1] == cache &&
            (joins_pages(r, id) <= join || !find_projection(r, rewrite_old(r, id)->args[0], &q) || !same_pairs(&q, k)))
            return false;
    return true;
}

/* Attention to the pages that an append has written: the rows of its queries are moved as those of the keys, and it takes
 * over the scale of the keys. */
static Id read_appended(Rewrite *r, const Value *attend, Id append)
{
    Attr attrs[8];
    Projection q, k;
    uint32_t n;
    Id w, b, x;

    if (!find_projection(r, attend->args[0], &q) || !find_projection(r, rewrite_old(r, attend->args[1])->args[0], &k))
        return 0; /* may_append has found them */
    w = in_pairs(r, &q, r->map[q.linear->args[1]], rotated(&q));
    b = in_pairs(r, &q, r->map[q.linear->args[2]], rotated(&q));
    x = rewrite_make(r, OP_LINEAR, r->map[q.linear->args[0]], w, b, NULL, 0, q.linear->loc);
    x = rewrite_make(r, OP_SPLIT_HEADS, x, 0, 0, (Attr[]){attr_int("heads", q.heads)}, 1, q.linear->loc);
    if (q.norm)
        x = rewrite_make(r, OP_RMSNORM, x, in_pairs(r, &q, r->map[q.norm->args[1]], rotated(&q)), 0,
                         (Attr[]){attr_float("eps", ir_float(q.norm, "eps"))}, 1, q.norm->loc);
    if (q.rope)
        x = rewrite_make(r, OP_ROPE, x, r->map[q.rope->args[1]], 0, (Attr[]){attr_word("style", "neighbour")}, 1,
                         q.rope->loc);
    n = paged_attrs(attend, k.heads, ir_float(attend, "scale") * k.scale * q.scale, attrs);
    return rewrite_make(r, OP_ATTEND_PAGED, x, append, 0, attrs, n, attend->loc);
}

static Id join_attention(Rewrite *r, Id id)
{
    const Value *join = rewrite_old(r, id), *attend, *cache;
    const Appended *appended = r->user;
    Projection q, k, v;
    Id table = 0, gains[2] = {0}, w, b, x;
    int64_t rot = 0;
    Attr attrs[8];
    uint32_t n = 0;

    if (join->op != OP_JOIN_HEADS)
        return 0;
    attend = rewrite_old(r, join->args[0]);
    if (!is_plain(attend, "causal") || attend->args[2] || r->uses[join->args[0]] != 1)
        return 0;
    cache = rewrite_old(r, attend->args[1]);
    if (appended->by_cache[attend->args[1]])
        return read_appended(r, attend, appended->by_cache[attend->args[1]]);
    if (!find_projection(r, attend->args[0], &q) || !find_projection(r, cache->args[0], &k) ||
        !find_projection(r, cache->args[1], &v) || !joinable(r, &q, &k, &v) || !may_append(r, id, &k))
        return 0;
    if (q.rope) {
        table = r->map[q.rope->args[1]];
        rot = rotated(&q);
    }
    w = joined(r, &q, &k, &v, 1, rot);
    b = joined(r, &q, &k, &v, 2, rot);
    x = rewrite_make(r, OP_LINEAR, r->map[q.linear->args[0]], w, b, NULL, 0, q.linear->loc);

    attrs[n++] = attr_int("head_dim", q.head_dim);
    attrs[n++] = attr_int("heads", q.heads);
    attrs[n++] = attr_int("kv_heads", k.heads);
    attrs[n++] = attr_int("layer", ir_int(attend, "layer"));
    if (rot)
        attrs[n++] = attr_int("rot", rot);
    if (q.norm) {
        attrs[n++] = attr_float("eps", ir_float(q.norm, "eps"));
        gains[0] = in_pairs(r, &q, r->map[q.norm->args[1]], rot);
        gains[1] = in_pairs(r, &k, r->map[k.norm->args[1]], rot);
    }
    x = rewrite_add(r, OP_APPEND, (const Id[IR_MAX_ARGS]){x, table, gains[0], gains[1]}, attrs, n, cache->loc);
    appended->by_cache[attend->args[1]] = x;

    n = paged_attrs(attend, k.heads, ir_float(attend, "scale") * q.scale * k.scale, attrs);
    return rewrite_make(r, OP_ATTEND_PAGED, x, 0, 0, attrs, n, attend->loc);
}

/* Attention whose projections cannot be joined still has the kernels over pages, beside a cache of its own. */
static Id keep_pages(Rewrite *r, Id id)
{
    const Value *join = rewrite_old(r, id), *attend;
    Attr attrs[8];
    uint32_t n;

    if (join->op != OP_JOIN_HEADS)
        return 0;
    attend = rewrite_old(r, join->args[0]);
    if (!is_plain(attend, "causal") || attend->args[2] || r->uses[join->args[0]] != 1)
        return 0;
    n = paged_attrs(attend, rewrite_old(r, attend->args[1])->shape.dim[1].n, ir_float(attend, "scale"), attrs);
    return rewrite_make(r, OP_ATTEND_PAGED, r->map[attend->args[0]], r->map[attend->args[1]], 0, attrs, n, attend->loc);
}

/* --- bidirectional and cross attention --------------------------------------------------------------- */

static Id join_full(Rewrite *r, Id id)
{
    const Value *join = rewrite_old(r, id), *attend;
    Projection q, k, v;
    Attr attrs[4];
    Id x;

    if (join->op != OP_JOIN_HEADS)
        return 0;
    attend = rewrite_old(r, join->args[0]);
    if (!is_plain(attend, "full") || ir_int(attend, "window") || ir_float(attend, "softcap") != 0 ||
        r->uses[join->args[0]] != 1 || !find_projection(r, attend->args[0], &q) ||
        !find_projection(r, attend->args[1], &k) || !find_projection(r, attend->args[2], &v) || q.rope || k.rope ||
        q.norm || !joinable(r, &q, &k, &v))
        return 0;
    x = rewrite_make(r, OP_LINEAR, r->map[q.linear->args[0]], joined(r, &q, &k, &v, 1, 0), joined(r, &q, &k, &v, 2, 0),
                     NULL, 0, q.linear->loc);
    attrs[0] = attr_int("head_dim", q.head_dim);
    attrs[1] = attr_int("heads", q.heads);
    attrs[2] = attr_int("kv_heads", k.heads);
    attrs[3] = attr_float("scale", ir_float(attend, "scale") * q.scale * k.scale);
    return rewrite_make(r, OP_ATTEND_PACKED, x, 0, 0, attrs, 4, attend->loc);
}

/* Keys and values of a cross_cache; false: one product cannot compute both. */
static bool source_pair(const Rewrite *r, const Value *cross, Projection *k, Projection *v)
{
    return cross->op == OP_CROSS_CACHE && find_projection(r, cross->args[0], k) &&
           find_projection(r, cross->args[1], v) && k->linear->args[0] == v->linear->args[0] &&
           !k->linear->args[2] == !v->linear->args[2] && !k->rope && !v->rope && !k->norm && !v->norm &&
           v->scale == 1 && k->heads == v->heads;
}

/* Each cross_cache is read by one attention, which takes over the scale of the keys. */
static Id join_cross(Rewrite *r, Id id)
{
    const Value *v = rewrite_old(r, id), *attend, *cross;
    Projection q, key, value;
    Attr attrs[5];

    if (v->op == OP_CROSS_CACHE && r->uses[id] == 1 && source_pair(r, v, &key, &value)) {
        Id w =
            rewrite_make(r, OP_CONCAT, r->map[key.linear->args[1]], r->map[value.linear->args[1]], 0, NULL, 0, v->loc);
        Id b = key.linear->args[2] ? rewrite_make(r, OP_CONCAT, r->map[key.linear->args[2]],
                                                  r->map[value.linear->args[2]], 0, NULL, 0, v->loc)
                                   : 0;

        w = rewrite_make(r, OP_LINEAR, r->map[key.linear->args[0]], w, b, NULL, 0, key.linear->loc);
        attrs[0] = attr_int("head_dim", key.head_dim);
        attrs[1] = attr_int("kv_heads", key.heads);
        attrs[2] = attr_int("layer", ir_int(v, "layer"));
        return rewrite_make(r, OP_CROSS_APPEND, w, 0, 0, attrs, 3, v->loc);
    }
    if (v->op != OP_JOIN_HEADS)
        return 0;
    attend = rewrite_old(r, v->args[0]);
    if (!is_plain(attend, "source") || ir_float(attend, "softcap") != 0 || r->uses[v->args[0]] != 1 ||
        r->uses[attend->args[1]] != 1)
        return 0;
    cross = rewrite_old(r, attend->args[1]);
    if (!source_pair(r, cross, &key, &value) || !find_projection(r, attend->args[0], &q) || q.rope || q.norm)
        return 0;
    attrs[0] = attr_int("head_dim", q.head_dim);
    attrs[1] = attr_int("heads", q.heads);
    attrs[2] = attr_int("kv_heads", key.heads);
    attrs[3] = attr_int("layer", ir_int(attend, "layer"));
    attrs[4] = attr_float("scale", ir_float(attend, "scale") * q.scale * key.scale);
    Id x = rewrite_make(r, OP_LINEAR, r->map[q.linear->args[0]], r->map[q.linear->args[1]], r->map[q.linear->args[2]],
                        NULL, 0, q.linear->loc);

    return rewrite_make(r, OP_ATTEND_CROSS, x, r->map[attend->args[1]], 0, attrs, 5, attend->loc);
}

/* --- gated products ------------------------------------------------------------------------------ */

static Id join_glu(Rewrite *r, Id id)
{
    const Value *mul = rewrite_old(r, id);
    Id w, b = 0, x;

    if (mul->op != OP_MUL)
        return 0;
    for (int i = 0; i < 2; i++) { /* mul is commutative */
        const Id act_id = mul->args[i], up_id = mul->args[1 - i];
        const Value *act = rewrite_old(r, act_id), *up = rewrite_old(r, up_id), *gate;

        if (act->op != OP_ACT || up->op != OP_LINEAR || r->uses[act_id] != 1 || r->uses[up_id] != 1)
            continue;
        gate = rewrite_old(r, act->args[0]);
        if (gate->op != OP_LINEAR || r->uses[act->args[0]] != 1 || gate->args[0] != up->args[0] ||
            !gate->args[2] != !up->args[2] || !ir_shape_equal(gate->shape, up->shape))
            continue;
        w = rewrite_make(r, OP_INTERLEAVE, r->map[gate->args[1]], r->map[up->args[1]], 0, NULL, 0, gate->loc);
        if (gate->args[2])
            b = rewrite_make(r, OP_INTERLEAVE, r->map[gate->args[2]], r->map[up->args[2]], 0, NULL, 0, gate->loc);
        x = rewrite_make(r, OP_LINEAR, r->map[gate->args[0]], w, b, NULL, 0, gate->loc);
        return rewrite_make(r, OP_GLU, x, 0, 0, (Attr[]){attr_word("kind", ir_word(act, "kind"))}, 1, mul->loc);
    }
    return 0;
}

/* --- concat of rows of one weight ------------------------------------------------------------------ */

static Id fold_concat(Rewrite *r, Id id)
{
    const Value *v = rewrite_old(r, id);
    int64_t from = 0, count = 0;
    Id w = 0;

    if (v->op != OP_CONCAT)
        return 0;
    for (int i = 0; i < IR_MAX_ARGS && v->args[i]; i++) {
        const Value *rows = rewrite_old(r, v->args[i]);

        if (rows->op != OP_ROWS || ir_int(rows, "every") ||
            (i && (rows->args[0] != w || ir_int(rows, "from") != from + count)))
            return 0;
        if (!i) {
            w = rows->args[0];
            from = ir_int(rows, "from");
        }
        count += ir_int(rows, "count");
    }
    r->changed = true;
    if (from == 0 && count == rewrite_old(r, w)->shape.dim[0].n)
        return r->map[w];
    return rewrite_make(r, OP_ROWS, r->map[w], 0, 0, (Attr[]){attr_int("count", count), attr_int("from", from)}, 2,
                        v->loc);
}

/* Copies every value: rewrite_run itself merges equal weights and removes dead values. */
static Id copy_only(Rewrite *r, Id id)
{
    (void)r;
    (void)id;
    return 0;
}

bool pass_simplify(Graph *g, const Precision *p, Diag *d)
{
    (void)p;
    (void)d;
    ir_sweep(g);
    rewrite_run(g, copy_only);
    rewrite_run(g, fold_scales);
    while (rewrite_run(g, lift_select))
        ;
    rewrite_run_with(g, join_attention, &(Appended){arena_array(g->scratch, Id, g->values.n)});
    rewrite_run(g, keep_pages);
    rewrite_run(g, join_full);
    rewrite_run(g, join_cross);
    rewrite_run(g, join_glu);
    rewrite_run(g, fold_concat);
    rewrite_run(g, copy_only);
    return true;
}
