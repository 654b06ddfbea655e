/* heads.c - the caches of a launch, and the expected results of ops on heads: attend, cache, rope, norms. */
#include "scene.h"

#include <string.h>

static bool reads_source(const Value *v)
{
    return v->op == OP_ATTEND && strcmp(ir_word(v, "scope"), "source") == 0;
}

const Value *unit_cache_op(const Unit *u)
{
    for (uint32_t i = 0; i < u->b.n_covered; i++) {
        const Value *v = ir_value(u->g, u->b.covered[i]);

        if (v->op == OP_APPEND || v->op == OP_ATTEND_PAGED || v->op == OP_ATTEND_CROSS || is_cache(v->op) ||
            (v->op == OP_ATTEND && !v->args[2]))
            return v;
    }
    return NULL;
}

bool is_cache(Op op)
{
    return op == OP_CACHE || op == OP_CROSS_CACHE || op == OP_CROSS_APPEND;
}

bool unit_appends(const Unit *u)
{
    for (uint32_t i = 0; i < u->b.n_covered; i++)
        if (ir_value(u->g, u->b.covered[i])->op == OP_APPEND || is_cache(ir_value(u->g, u->b.covered[i])->op))
            return true;
    return false;
}

bool unit_of_source(const Unit *u)
{
    const Value *v = unit_cache_op(u);

    return v && (v->op == OP_CROSS_APPEND || v->op == OP_CROSS_CACHE || v->op == OP_ATTEND_CROSS || reads_source(v));
}

int unit_head_dim(const Unit *u)
{
    const Value *v = unit_cache_op(u);

    if (!v)
        return 0;
    if (v->op == OP_CACHE || v->op == OP_CROSS_CACHE)
        return (int)v->shape.dim[2].n;
    if (v->op == OP_ATTEND)
        return (int)ir_value(u->g, v->args[1])->shape.dim[2].n;
    return v->op == OP_ATTEND_PAGED ? (int)ir_value(u->g, v->args[0])->shape.dim[2].n : (int)ir_int(v, "head_dim");
}

int unit_caches(const Unit *u)
{
    const Value *v = unit_cache_op(u);

    return v && ((v->op == OP_CACHE && !v->args[1]) || (v->op == OP_ATTEND && ir_int(v, "v_dim"))) ? 1 : 2;
}

int unit_kv_heads(const Unit *u)
{
    const Value *v = unit_cache_op(u);

    if (!v)
        return 0;
    if (v->op == OP_CACHE || v->op == OP_CROSS_CACHE)
        return (int)v->shape.dim[1].n;
    return v->op == OP_ATTEND ? (int)ir_value(u->g, v->args[1])->shape.dim[1].n : (int)ir_int(v, "kv_heads");
}

RefCache scene_cache(const Scene *s, void *const cache[2])
{
    return (RefCache){cache[0],
                      cache[1],
                      s->u->facts.kv,
                      s->pages,
                      s->pages_of,
                      (int)s->u->g->limits.kv_block,
                      unit_kv_heads(s->u),
                      unit_head_dim(s->u)};
}

CacheRow scene_cache_row(const RefCache *c, size_t row)
{
    const size_t rows = (size_t)(c->G * c->block), E = (size_t)c->E, page = row / rows * rows * (E + 2);

    if (!dtype_is_code(c->type))
        return (CacheRow){.at = row * E * dtype_size(c->type), .bytes = E * dtype_size(c->type)};
    return (CacheRow){page + row % rows * E, E, page + rows * E + row % rows * 2, 2};
}

/* Offset, in elements, of position `pos` and head g in the paged keys or values of a slot. */
static int64_t paged_row(const RefCache *c, int slot, int g, int pos)
{
    return (((int64_t)c->pages[slot * c->pages_of + pos / c->block] * c->G + g) * c->block + pos % c->block) * c->E;
}

/* The slot in whose pages position p of a row lies. */
static int slot_of(const Scene *s, const FtxRow *row, int p)
{
    return row->lane < 0 || p == row->kv_len - 1 ? row->slot
           : p < row->prompt                     ? s->rows[row->group].slot
                                                 : s->owner[row->slot * (int)s->u->g->limits.context + p];
}

RefCache scene_lane_cache(const Scene *s, const RefCache *c, const FtxRow *row)
{
    static const int32_t first = 0;
    const int n = row->kv_len;
    const size_t bytes = ((size_t)c->E * dtype_size(c->type) + 2) * (size_t)(n * c->G);
    RefCache own = {arena_alloc(s->keep, bytes), arena_alloc(s->keep, bytes), c->type, &first, 1, n, c->G, c->E};

    for (int p = 0; p < n; p++)
        for (int g = 0; g < c->G; g++) {
            const CacheRow from = scene_cache_row(c, (size_t)(paged_row(c, slot_of(s, row, p), g, p) / c->E));
            const CacheRow to = scene_cache_row(&own, (size_t)(g * n + p));

            memcpy((char *)own.k + to.at, (const char *)c->k + from.at, to.bytes);
            memcpy((char *)own.v + to.at, (const char *)c->v + from.at, to.bytes);
            memcpy((char *)own.k + to.scale_at, (const char *)c->k + from.scale_at, to.scale_bytes);
            memcpy((char *)own.v + to.scale_at, (const char *)c->v + from.scale_at, to.scale_bytes);
        }
    return own;
}

/* Offset, in elements, of key j of a row in the operand or cache that the op reads or writes. */
static int64_t key_at(const Scene *s, const Value *v, const FtxRow *row, int g, int j)
{
    const Shape k = ir_value(s->u->g, v->op == OP_ATTEND ? v->args[1] : v->args[0])->shape;
    const int64_t G = k.dim[1].n, E = k.dim[2].n;

    if (v->op == OP_ATTEND && v->args[2])
        return ((row->q_start + j) * G + g) * E;
    if (v->op == OP_CROSS_CACHE || reads_source(v))
        return ((row->src_slot * G + g) * s->u->g->limits.source + j) * E;
    const RefCache c = scene_cache(s, (void *[2]){NULL, NULL});

    return paged_row(&c, slot_of(s, row, j), g, j);
}

static void attend(const Scene *s, const Value *v, const RefTensor *a, void *const cache[2], float *y)
{
    const Graph *g = s->u->g;
    const int H = (int)v->shape.dim[1].n, V = (int)v->shape.dim[2].n;
    const int E = (int)ir_value(g, v->args[0])->shape.dim[2].n, G = (int)ir_value(g, v->args[1])->shape.dim[1].n;
    const bool inside = ir_int(v, "v_dim") != 0; /* values are the first elements of keys */
    const bool beside = v->args[2] != 0, full = strcmp(ir_word(v, "scope"), "full") == 0;
    const RefTensor k = beside ? a[1] : (RefTensor){cache[0], s->u->facts.kv};
    const RefTensor values = beside ? a[2] : (RefTensor){cache[!inside], s->u->facts.kv};
    RefScores r = {.scale = ir_float(v, "scale"),
                   .softcap = ir_float(v, "softcap"),
                   .bias = a[3],
                   .slopes = a[4],
                   .sinks = a[5],
                   .by_query = a[6],
                   .by_key = a[7],
                   .reach = v->args[6] ? (int)ir_value(g, v->args[6])->shape.dim[2].n : 0,
                   .rounded = ir_int(v, "rounded") != 0,
                   .v_dim = (int)ir_int(v, "v_dim"),
                   .span = v->args[3] ? (int)ir_value(g, v->args[3])->shape.dim[1].n : 0};
    int64_t at[2048];

    for (int t = 0; t < s->T; t++)
        for (int h = 0; h < H; h++) {
            const FtxRow *row = &s->rows[s->token[t].row];
            const int i = t - row->q_start + (beside || reads_source(v) ? 0 : row->kv_len - row->q_len);
            const int end = reads_source(v) ? row->src_len : beside && full ? row->q_len : i + 1;
            const int whole = ref_prefix(row, (int)ir_int(v, "tail"));
            const int seen = whole < row->kv_len ? whole : row->kv_len;
            const int n = strcmp(ir_word(v, "scope"), "prefix") == 0 && seen > end ? seen : end;
            const int window = (int)ir_int(v, "window"), chunk = (int)ir_int(v, "chunk");

            for (int j = 0; j < n; j++)
                at[j] = (window && (full ? abs(i - j) > window : i - j >= window)) || (chunk && i / chunk != j / chunk)
                            ? -1
                            : key_at(s, v, row, h / (H / G), j);
            r.i = i;
            ref_attend_keys(a[0], ((int64_t)t * H + h) * E, k, values, at, n, E, h, &r, y + ((int64_t)t * H + h) * V);
        }
}

static void keep(const Scene *s, const Value *v, const RefTensor *a, void *const cache[2])
{
    const int G = (int)v->shape.dim[1].n, E = (int)v->shape.dim[2].n;

    for (int t = 0; t < s->T; t++)
        for (int g = 0; g < G; g++)
            for (int k = 0; k < (v->args[1] ? 2 : 1); k++)
                for (int e = 0; e < E; e++)
                    dtype_store(cache[k], (size_t)(key_at(s, v, &s->rows[s->token[t].row], g, s->token[t].pos) + e),
                                s->u->facts.kv, (float)ref_at(a[k], ((int64_t)t * G + g) * E + e));
}

/* The part of a tensor from element `from` on. */
static RefTensor part(RefTensor x, int64_t from)
{
    return (RefTensor){x.p ? (const char *)x.p + (size_t)from * dtype_size(x.type) : NULL, x.type};
}

static void norm(const Scene *s, const Value *v, const RefTensor *a, float *y)
{
    const int64_t H = v->shape.dim[1].n, E = v->shape.dim[2].n;
    const bool own_g = ir_value(s->u->g, v->args[1])->shape.rank == 2;
    const bool own_b = v->args[2] && ir_value(s->u->g, v->args[2])->shape.rank == 2;

    for (int64_t i = 0; i < s->T * H; i++) {
        const RefTensor g = part(a[1], own_g ? i % H * E : 0), b = part(a[2], own_b ? i % H * E : 0);

        scene_norm(s, v, part(a[0], i * E), g, b, 1, (int)E, y + i * E);
    }
}

RefTensor scene_normed_heads(const Scene *s, const Value *v, const RefTensor *a)
{
    const int64_t H = ir_int(v, "heads"), G = ir_int(v, "kv_heads"), E = ir_int(v, "head_dim"), all = H + 2 * G;
    float *y = arena_array(s->keep, float, s->T *all *E);

    for (int64_t i = 0; i < s->T * all; i++)
        if (i % all < H + G)
            ref_rmsnorm(part(a[0], i * E), a[i % all < H ? 2 : 3], ir_float(v, "eps"), 1, (int)E, y + i * E);
        else
            for (int64_t e = 0; e < E; e++)
                y[i * E + e] = (float)ref_at(a[0], i * E + e);
    return (RefTensor){y, DT_FP32};
}

/* The step's tokens with the positions that a rope counts. */
static const FtxToken *counted(const Scene *s, const Value *v)
{
    const char *count = ir_word(v, "count");
    FtxToken *to;

    if (strcmp(count, "all") == 0)
        return s->token;
    to = arena_array(s->keep, FtxToken, (size_t)s->T + 1);
    ref_count(s->rows, s->token, s->T, (int)ir_int(v, "tail"), strcmp(count, "rest") == 0, to);
    return to;
}

bool scene_heads(const Scene *s, const Value *v, const RefTensor *a, void *const cache[2], float *y)
{
    const Shape x = v->shape;

    if (v->op == OP_ATTEND)
        attend(s, v, a, cache, y);
    else if (v->op == OP_CACHE || v->op == OP_CROSS_CACHE)
        keep(s, v, a, cache);
    else if (v->op == OP_HEAD_LINEAR) {
        const Shape of = ir_value(s->u->g, v->args[0])->shape;

        ref_head_linear(a[0], a[1], s->T, (int)x.dim[1].n, (int)x.dim[2].n, (int)of.dim[2].n, y);
    } else if (v->op == OP_SLICE_HEADS)
        ref_columns(a[0], (int)ir_value(s->u->g, v->args[0])->shape.dim[2].n, (int)ir_int(v, "from"), (RefTensor){0},
                    s->T * (int)x.dim[1].n, (int)x.dim[2].n, y);
    else if (v->op == OP_JOIN_PARTS) {
        const Shape l = ir_value(s->u->g, v->args[0])->shape, r = ir_value(s->u->g, v->args[1])->shape;

        ref_join_parts(a[0], a[1], s->T, (int)l.dim[1].n, (int)l.dim[2].n, (int)r.dim[1].n, (int)r.dim[2].n, y);
    } else if (v->op == OP_ROPE)
        ref_rope(a[0], a[1].p, counted(s, v), s->T, (int)x.dim[1].n, (int)x.dim[2].n,
                 2 * (int)ir_value(s->u->g, v->args[1])->shape.dim[1].n, strcmp(ir_word(v, "style"), "half") == 0, y);
    else if ((v->op == OP_RMSNORM || v->op == OP_LAYERNORM) && x.rank == 3)
        norm(s, v, a, y);
    else
        return false;
    return true;
}
