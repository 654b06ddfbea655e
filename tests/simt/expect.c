/* expect.c - computes the expected result of a launch with kernels/ref and compares. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t scene_failures;

void scene_wrong(const char *format, ...)
{
    char text[600];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_message("wrong: %s\n", text);
    scene_failures++;
}

/* --- the reference ------------------------------------------------------------------------------ */

static FtxAct act_of(const Value *v)
{
    static const char *const names[] = {"",     "relu", "gelu_erf", "gelu_tanh", "quick_gelu",
                                        "silu", "tanh", "relu2",    "sigmoid"};

    for (int i = 1; i < (int)LEN(names); i++)
        if (strcmp(ir_word(v, "kind"), names[i]) == 0)
            return (FtxAct)i;
    fail_msg("no activation %s", ir_word(v, "kind"));
    return FTX_ACT_NONE;
}

typedef struct Wanted { /* expected contents of the caches, states and the token history after the launch */
    void *cache[2];
    float *recurrent;
    int32_t *history;
} Wanted;

/* Under the sanitizers the harness does not see plain stores. There a byte counts as written if it is no longer
 * poison. */
static bool was_written(const char *p, size_t bytes)
{
    if (!SIMT_SANITIZED)
        return simt_written(p, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != (char)0xff)
            return true;
    return false;
}

static int vocab_of(const Unit *u)
{
    return (int)ir_value(u->g, u->g->logits)->shape.dim[1].n;
}

static const FtxSegment *segments_of_row(const Scene *s, int row)
{
    return (const FtxSegment *)((const FtxSegments *)s->device[FTX_NAMED_segments] + 1) +
           (size_t)row * FTX_SEGMENTS((size_t)vocab_of(s->u));
}

/* The segment of row 0 that holds column n. NULL: it was not written. */
static const FtxSegment *part_with(const Scene *s, int n)
{
    const FtxSegment *p = segments_of_row(s, 0);

    for (int i = 0; i < FTX_SEGMENTS(vocab_of(s->u)); i++)
        if (n >= p[i].first && n < p[i].first + p[i].width && was_written((const char *)&p[i], sizeof *p))
            return &p[i];
    return NULL;
}

/* Whether column n of a linear layer is needed to check what the launch wrote (only some blocks may have run). */
static bool needed(const Scene *s, int n)
{
    const Value *root = ir_value(s->u->g, s->u->b.root);
    const int64_t C = root->shape.dim[root->shape.rank - 1].n;
    const int64_t rows = root->shape.dim[0].kind == DIM_S ? s->S : s->T;
    const size_t size = dtype_size(root->type);

    if (!s->u->c.blocks || root->op == OP_APPEND)
        return true;
    if (unit_leaves_segments(s->u))
        return part_with(s, n) != NULL;
    for (int64_t r = 0; r < rows; r++)
        if (was_written((const char *)s->y + (size_t)(r * C + (root->op == OP_GLU ? n / 2 : n)) * size, size))
            return true;
    return false;
}

/* The order in which the contract says that its kernel adds what an op sums: "slices 2". */
static const char *stated_order(const Unit *u, Op op)
{
    const Contract *c = u->b.contract;

    for (size_t i = 0; i < c->sums.n; i++)
        if (c->sums.at[i].op == op)
            return u->fit.sums[i];
    fail_msg("%s: %s does not state in which order it adds", u->name, c->family);
    return NULL;
}

/* y = x w^T + b, computed only in the columns that are needed. */
static void linear(const Scene *s, const RefTensor *a, int M, int N, int K, float *y)
{
    float *part = arena_array(s->keep, float, (size_t)M *(size_t)N);

    for (int from = 0, to; from < N; from = to + 1) {
        for (; from < N && !needed(s, from); from++)
            ;
        for (to = from; to < N && needed(s, to); to++)
            ;
        const RefTensor w = {(const char *)a[1].p + (size_t)from * (size_t)K * dtype_size(a[1].type), a[1].type};
        const RefTensor b = {a[2].p ? (const char *)a[2].p + (size_t)from * dtype_size(a[2].type) : NULL, a[2].type};

        if (!s->u->c.fixed)
            ref_linear(a[0], w, b, M, to - from, K, part);
        else if (!ref_linear_in_order(stated_order(s->u, OP_LINEAR), a[0], w, b, M, to - from, K, part))
            fail_msg("kernels/ref does not know the order %s", stated_order(s->u, OP_LINEAR));
        for (int m = 0; m < M; m++)
            memcpy(y + (int64_t)m * N + from, part + (int64_t)m * (to - from), sizeof *y * (size_t)(to - from));
    }
}

/* Bytes of an element of what a norm's kernel loads: of its input, or of the embedding that it computes itself. */
static size_t loaded_size(const Graph *g, Id x)
{
    for (; ir_value(g, x)->op == OP_ADD || ir_value(g, x)->op == OP_SCALE; x = ir_value(g, x)->args[0])
        ;
    return dtype_size(ir_value(g, ir_value(g, x)->op == OP_EMBED ? ir_value(g, x)->args[1] : x)->type);
}

void scene_norm(const Scene *s, const Value *v, RefTensor x, RefTensor g, RefTensor b, int M, int C, float *y)
{
    const double eps = ir_float(v, "eps");

    if (s->u->c.fixed) {
        const char *order = stated_order(s->u, v->op);

        if (!ref_norm_in_order(order, x, g, b, eps, M, C, (int)(16 / loaded_size(s->u->g, v->args[0])), y))
            fail_msg("kernels/ref does not know the order %s", order);
    } else if (v->op == OP_RMSNORM) {
        ref_rmsnorm(x, g, eps, M, C, y);
    } else {
        ref_layernorm(x, g, b, eps, M, C, y);
    }
}

/* Offset, in elements, of position p and head g in the source keys or values of a slot. */
static int64_t source_row(const Scene *s, int slot, int g, int p)
{
    return (((int64_t)slot * unit_kv_heads(s->u) + g) * s->u->g->limits.source + p) * unit_head_dim(s->u);
}

static void cross_append(const Scene *s, RefTensor x, const Wanted *w)
{
    const int E = unit_head_dim(s->u), G = unit_kv_heads(s->u);

    for (int t = 0; t < s->T; t++)
        for (int i = 0; i < 2 * G * E; i++)
            dtype_store(w->cache[i / (G * E)],
                        (size_t)(source_row(s, s->rows[s->token[t].row].src_slot, i / E % G, s->token[t].pos) + i % E),
                        s->u->facts.kv, (float)ref_at(x, (int64_t)t * 2 * G * E + i));
}

static void attend_cross(const Scene *s, RefTensor q, int H, double scale, float *y)
{
    const int E = unit_head_dim(s->u), G = unit_kv_heads(s->u);
    const RefTensor k = {s->cache[0], s->u->facts.kv}, v = {s->cache[1], s->u->facts.kv};

    for (int t = 0; t < s->T; t++)
        for (int h = 0; h < H; h++) {
            const FtxRow *row = &s->rows[s->token[t].row];
            const int64_t at = ((int64_t)t * H + h) * E;

            ref_attend_rows(q, at, k, v, source_row(s, row->src_slot, h / (H / G), 0), E, row->src_len, E, scale,
                            y + at);
        }
}

static void attend_paged(const Scene *s, const Value *v, RefTensor q, const RefCache *cache, float *y)
{
    const int H = (int)ir_value(s->u->g, v->args[0])->shape.dim[1].n, window = (int)ir_int(v, "window");

    for (int r = 0; r < s->S; r++) {
        FtxRow row = s->rows[r];
        RefCache c = *cache;

        if (row.lane >= 0) {
            c = scene_lane_cache(s, cache, &row);
            row.slot = 0;
        }
        ref_attend(q, &row, 1, H, ir_float(v, "scale"), window, ir_float(v, "softcap"), &c, y);
    }
}

static void rows_of(const Scene *s, const Value *v, RefTensor w, int64_t offset, int C, float *y)
{
    for (int t = 0; t < s->T; t++)
        for (int i = 0; i < C; i++)
            y[t * C + i] = (float)ref_at(w, (v->op == OP_TYPES ? s->token[t].slot : s->token[t].pos + offset) * C + i);
}

/* The row of each sequence's first token with the id, -1: with its largest; its first row if none has it. */
static void select_id(const Scene *s, int64_t id, RefTensor x, int C, float *y)
{
    for (int r = 0; r < s->S; r++) {
        const FtxToken *token = s->token + s->rows[r].q_start;
        int64_t wanted = id;
        int t = 0;

        for (int i = 0; id < 0 && i < s->rows[r].q_len; i++)
            wanted = token[i].id > wanted ? token[i].id : wanted;
        while (t < s->rows[r].q_len && token[t].id != wanted)
            t++;
        t = t < s->rows[r].q_len ? t : 0;
        for (int i = 0; i < C; i++)
            y[r * C + i] = (float)ref_at(x, (int64_t)(s->rows[r].q_start + t) * C + i);
    }
}

/* a: the arguments of v. */
static void recur(const Scene *s, const Value *v, const RefTensor *a, float *state, float *y)
{
    const Shape k = ir_value(s->u->g, v->args[0])->shape;
    const RefRecur r = {.q = a[0],
                        .k = a[1],
                        .v = a[2],
                        .a = a[3],
                        .rate = a[4],
                        .shift = a[5],
                        .beta = a[6],
                        .G = (int)k.dim[1].n,
                        .H = (int)v->shape.dim[1].n,
                        .K = (int)k.dim[2].n,
                        .V = (int)v->shape.dim[2].n,
                        .rates = ir_value(s->u->g, v->args[4])->shape.rank == 2,
                        .unit = ir_float(v, "unit"),
                        .scale = ir_float(v, "scale"),
                        .low = ir_float(v, "low"),
                        .high = ir_float(v, "high")};

    ref_recur(&r, s->rows, s->S, state, y);
}

static RefTensor evaluate(Scene *s, Id id, bool root, Wanted *w)
{
    const Graph *g = s->u->g;
    const Value *v = ir_value(g, id);
    RefTensor a[IR_MAX_ARGS] = {0};
    int64_t n, M;
    float *y;

    if (!root && s->input[id].p)
        return s->input[id];
    for (int i = 0; i < IR_MAX_ARGS; i++)
        if (v->args[i] && ir_value(g, v->args[i])->op != OP_IDS && !is_cache(ir_value(g, v->args[i])->op))
            a[i] = evaluate(s, v->args[i], false, w);
    if (ir_op_is_view(v->op))
        return a[0];
    n = ir_shape_elements(v->shape, s->T, s->S);
    M = n / (v->shape.dim[v->shape.rank - 1].n ? v->shape.dim[v->shape.rank - 1].n : 1);
    y = arena_alloc(s->keep, (size_t)n * 4 + 16);
    const int C = (int)v->shape.dim[v->shape.rank - 1].n;
    if (scene_heads(s, v, a, w->cache, y))
        return (RefTensor){y, DT_FP32};
    switch (v->op) {
    case OP_EMBED: ref_embed(s->token, s->T, a[1], (RefTensor){0}, 0, C, w->history, (int)g->limits.context, y); break;
    case OP_POSITIONS: rows_of(s, v, a[0], ir_int(v, "offset"), C, y); break;
    case OP_TYPES: rows_of(s, v, a[0], 0, C, y); break;
    case OP_LINEAR: linear(s, a, (int)M, C, (int)ir_value(g, v->args[1])->shape.dim[1].n, y); break;
    case OP_EXPERT_LINEAR:
    case OP_EXPERT_SUM: {
        const Shape of = ir_value(g, v->args[2])->shape;
        const int R = (int)ir_value(g, v->args[1])->shape.dim[1].n / 2;

        (v->op == OP_EXPERT_SUM ? ref_expert_sum : ref_expert_linear)(
            a[0], a[1].p, a[2], a[3], (int)M, R, (int)(of.dim[0].n / ir_int(v, "experts")), (int)of.dim[1].n, y);
        break;
    }
    case OP_ADD: ref_add(a[0], a[1], n, y); break;
    case OP_MUL:
        if (ir_shape_equal(v->shape, ir_value(g, v->args[1])->shape))
            ref_mul(a[0], a[1], n, y);
        else
            ref_mul_by(a[0], a[1], ir_value(g, v->args[1])->shape.rank == 2, (int)M, C, y);
        break;
    case OP_SLICE:
    case OP_JOIN:
        ref_columns(a[0], (int)ir_value(g, v->args[0])->shape.dim[1].n, v->op == OP_SLICE ? (int)ir_int(v, "from") : 0,
                    a[1], (int)M, C, y);
        break;
    case OP_XIELU: ref_xielu(a[0], a[1], n, y); break;
    case OP_SPLIT_HEADS:
    case OP_JOIN_HEADS:
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)ref_at(a[0], i);
        break;
    case OP_CLAMP: ref_clamp(a[0], ir_float(v, "low"), ir_float(v, "high"), n, y); break;
    case OP_GLU_CLAMPED: ref_glu_clamped(a[0], ir_float(v, "alpha"), ir_float(v, "limit"), (int)M, C, y); break;
    case OP_SCALE_BY_POSITION:
        ref_scale_by_position(a[0], s->token, s->T, C, ir_float(v, "by"), (int)ir_int(v, "every"),
                              (int)ir_int(v, "offset"), y);
        break;
    case OP_ROUTE_WEIGHTS:
        for (int64_t m = 0; m < M; m++)
            memcpy(y + m * C, (const int32_t *)a[0].p + m * 2 * C + C, (size_t)C * sizeof *y);
        break;
    case OP_SCALE: ref_scale(a[0], ir_float(v, "by"), n, y); break;
    case OP_RMSNORM:
    case OP_LAYERNORM: scene_norm(s, v, a[0], a[1], a[2], (int)M, C, y); break;
    case OP_ACT: ref_act(a[0], act_of(v), n, y); break;
    case OP_GLU: ref_glu(a[0], act_of(v), (int)M, C, y); break;
    case OP_SELECT_LAST: ref_select_last(a[0], s->rows, s->S, C, y); break;
    case OP_SELECT_FIRST:
        for (int r = 0; r < s->S; r++)
            for (int i = 0; i < C; i++)
                y[r * C + i] = (float)ref_at(a[0], (int64_t)s->rows[r].q_start * C + i);
        break;
    case OP_PREVIOUS:
        for (int t = 0; t < s->T; t++)
            for (int i = 0; i < C; i++) {
                const bool first = t == s->rows[s->token[t].row].q_start;

                y[t * C + i] = (float)ref_at(a[first], (first ? 0 : (int64_t)(t - 1) * C) + i);
            }
        break;
    case OP_NEIGHBOURS:
        ref_neighbours(a[0], s->rows, s->S, C / (int)ir_int(v, "count"), (int)ir_int(v, "from"),
                       (int)ir_int(v, "count"), ir_int(v, "ring") != 0, y);
        break;
    case OP_RECUR: recur(s, v, a, w->recurrent, y); break;
    case OP_CONVOLVE:
        ref_convolve(a[0], a[1], a[2], s->rows, s->S, C, (int)ir_value(s->u->g, v->args[1])->shape.dim[1].n,
                     w->recurrent, y);
        break;
    case OP_SELECT_ID: select_id(s, ir_int(v, "id"), a[0], C, y); break;
    case OP_POOL_MEAN: ref_pool_mean(a[0], s->rows, s->S, C, y); break;
    case OP_ROW_RMS:
        ref_row_rms(a[0], ir_int(v, "centred") != 0, ir_int(v, "inverse") != 0, ir_float(v, "floor"), (int)M,
                    (int)ir_value(s->u->g, v->args[0])->shape.dim[1].n, y);
        break;
    case OP_NORMALIZE: ref_normalize(a[0], ir_float(v, "eps"), (int)M, C, y); break;
    case OP_APPEND: {
        const RefCache cache = scene_cache(s, w->cache);

        if (v->args[2])
            a[0] = scene_normed_heads(s, v, a);
        ref_append(a[0], a[1].p, s->token, s->T, (int)ir_int(v, "heads"), (int)ir_int(v, "rot"), &cache, y);
        break;
    }
    case OP_ATTEND_PAGED: {
        const RefCache cache = scene_cache(s, w->cache);

        attend_paged(s, v, a[0], &cache, y);
        break;
    }
    case OP_ATTEND_PACKED: {
        const int64_t N = ir_value(g, v->args[0])->shape.dim[1].n;
        float *x = arena_array(s->keep, float, (size_t)(s->T * N));

        for (int64_t i = 0; i < s->T * N; i++)
            x[i] = (float)ref_at(a[0], i);
        ref_attend_packed(x, s->rows, s->S, (int)ir_int(v, "heads"), (int)ir_int(v, "kv_heads"),
                          (int)ir_int(v, "head_dim"), ir_float(v, "scale"), y);
        break;
    }
    case OP_CROSS_APPEND: cross_append(s, a[0], w); break;
    case OP_ATTEND_CROSS: attend_cross(s, a[0], (int)ir_int(v, "heads"), ir_float(v, "scale"), y); break;
    default: fail_msg("no reference for %s", ir_op_name(v->op));
    }
    return (RefTensor){y, DT_FP32};
}

/* --- one launch --------------------------------------------------------------------------------- */

/* Largest accepted error, relative to the largest value. bf16 keeps 8 bits and fp16 11; fused norms round once
 * more before the linear layer. */
static double tolerance(const Scene *s, DType out)
{
    DType least = out;

    for (size_t i = 0; i < s->u->b.contract->args.n; i++)
        if (s->u->b.arg[i] && dtype_size(ir_value(s->u->g, s->u->b.arg[i])->type) == 2)
            least = ir_value(s->u->g, s->u->b.arg[i])->type;
    if (unit_cache_op(s->u) && dtype_size(s->u->facts.kv) == 2)
        least = s->u->facts.kv;
    if (unit_cache_op(s->u) && dtype_is_code(s->u->facts.kv) && least == DT_FP32) /* codes are multiplied as fp16 */
        least = DT_FP16;
    return least == DT_BF16 ? 1.2e-2 : least == DT_FP16 ? 2e-3 : 2e-6 * 8;
}

/* The distance of two neighbouring codes, relative to the largest number. */
static double code_step(const Scene *s)
{
    return s->u->facts.kv == DT_INT8 ? 1.01 / 127 : 32.3 / 448;
}

/* Compares elements [from, n). If only some blocks ran, only what they wrote. */
void scene_compare(const Scene *s, const char *what, const void *got, DType type, const float *want, int64_t n,
                   int64_t from)
{
    const double limit = strcmp(what, "keys") == 0 && dtype_is_code(s->u->facts.kv) ? code_step(s) : tolerance(s, type);
    const size_t size = dtype_size(type);
    double largest = 1e-3;
    char rounded[8];

    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = from; i < n; i++) {
        const double y = dtype_load(got, (size_t)i, type);

        if (s->u->c.blocks && !was_written((const char *)got + (size_t)i * size, size))
            continue;
        dtype_store(rounded, 0, type, want[i]);
        if (s->u->c.fixed && memcmp(rounded, (const char *)got + (size_t)i * size, size) != 0) {
            scene_wrong("%s: %s: %s[%lld] is %.9g, in the order that its contract states it is %.9g", s->u->name,
                        s->u->fit.instance->entry, what, (long long)i, y, (double)want[i]);
            return;
        }
        if (!(fabs(y - (double)want[i]) <= limit * largest)) {
            scene_wrong("%s: %s: %s[%lld] is %.7g, should be %.7g (the largest is %.3g)", s->u->name,
                        s->u->fit.instance->entry, what, (long long)i, y, (double)want[i], largest);
            return;
        }
    }
}

/* --- logits and their segments ---------------------------------------------------------------------- */

/* Checks a segment's maximum, its column (the first of equal ones) and the sum of exp((x - maximum) / temperature).
 * near: accepted error of x; 0: x is what the kernel itself wrote, so the maximum must be exact. */
static void check_part(const Scene *s, int row, const FtxSegment *p, const float *x, double near)
{
    const double inv_temperature = scene_inv_temperature(&s->params[row]);
    const int at = p->first + p->at;
    float top = -INFINITY;
    double sum = 0;

    if (p->width > 256 || p->at < 0 || p->at >= p->width)
        fail_msg("row %d: a segment of %d columns from %d, the greatest value in %d", row, p->width, p->first, p->at);
    for (int i = p->first; i < p->first + p->width; i++)
        top = fmaxf(top, x[i]);
    for (int i = p->first; i < p->first + p->width; i++)
        sum += exp(((double)x[i] - (double)top) * inv_temperature);
    if (!(fabs((double)p->top - (double)top) <= near) || !(fabs((double)x[at] - (double)top) <= near) ||
        !(fabs((double)p->sum / sum - 1) <= 2 * near * fmax(1, inv_temperature) + 1e-5))
        scene_wrong("%s: row %d, columns %d to %d: greatest %.7g in %d, sum %.7g; should be %.7g, %.7g", s->u->name,
                    row, p->first, p->first + p->width, (double)p->top, at, (double)p->sum, (double)top, sum);
    for (int i = p->first; i < at && near == 0; i++)
        if (x[i] == top)
            scene_wrong("%s: row %d: column %d equals %d, the greatest, and comes before it", s->u->name, row, i, at);
}

/* Checks the candidates of a segment: they are values of the row, and no other value is greater than the least of
 * them by more than rounding. If kept is -1, all columns of the segment must be written. */
static void check_kept(int row, const FtxSegment *p, int need, const float *y, const float *x, double near)
{
    float least = INFINITY;
    bool kept[256] = {0};

    if (p->kept > 16 || p->kept < -1 || (p->kept >= 0 && need == 0) || (p->kept > 0 && (need == 1 || p->width < 32)))
        fail_msg("row %d: a segment of %d columns from %d has kept %d for %d", row, p->width, p->first, p->kept, need);
    if (p->kept < 0) {
        if (!simt_written(y + p->first, sizeof *y * (size_t)p->width))
            fail_msg("row %d: columns from %d are not written", row, p->first);
        return;
    }
    for (int i = 0; i < p->kept; i++) {
        int column;

        memcpy(&column, &y[p->first + 16 + i], sizeof column);
        if (column < p->first || column >= p->first + p->width || kept[column - p->first] ||
            !(fabs((double)y[p->first + i] - (double)x[column]) <= near))
            fail_msg("row %d: candidate %d of columns from %d is %d", row, i, p->first, column);
        kept[column - p->first] = true;
        least = fminf(least, y[p->first + i]);
    }
    if (need > 1 && p->kept < (need < p->width ? need : p->width))
        fail_msg("row %d: %d candidates of columns from %d, needed are %d", row, p->kept, p->first, need);
    for (int i = 0; i < p->width && need > 1; i++)
        if (!kept[i] && (double)x[p->first + i] > (double)least + 2 * near)
            fail_msg("row %d: column %d is greater than a candidate", row, p->first + i);
}

/* Checks what an LM head wrote: the logits of rows that need them, and for every row segments that cover its columns
 * in order. */
static void check_head(const Scene *s, const float *want)
{
    const Unit *u = s->u;
    const int V = vocab_of(u), room = FTX_SEGMENTS(V);
    const FtxSegments *head = s->device[FTX_NAMED_segments];
    const bool all = !u->c.blocks;
    double near = 1e-3;

    for (int64_t i = 0; i < (int64_t)s->S * V; i++)
        near = fmax(near, fabs((double)want[i]));
    near *= tolerance(s, DT_FP32);
    assert_true(!all || (simt_written(head, sizeof head->count) && head->count <= room));
    for (int r = 0; r < s->S; r++) {
        const bool sooner = u->c.only && strcmp(u->c.only, "linear_hopper_head") == 0 && s->params[r].temperature > 0;
        const int need = s->params[r].logits || s->params[r].top_needed > 8 || sooner ? 0 : s->params[r].top_needed;
        const bool whole = need == 0;
        const float *y = (const float *)s->y + (int64_t)r * V;
        const FtxSegment *p = segments_of_row(s, r);
        int next = 0;

        if (whole ? all && !simt_written(y, sizeof *y * (size_t)V)
                  : need == 1 && !simt_untouched(y, sizeof *y * (size_t)V))
            scene_wrong("%s: row %d: logits were %swritten", u->name, r, whole ? "not all " : "");
        if (whole)
            scene_compare(s, "logits", s->y, DT_FP32, want, (int64_t)(r + 1) * V, (int64_t)r * V);
        for (int i = 0; i < (all ? head->count : room); i++) {
            if (!was_written((const char *)&p[i], sizeof *p)) {
                assert_false(all);
                continue;
            }
            if (p[i].width == 0)
                continue;
            if (all && p[i].first != next)
                scene_wrong("%s: row %d: segment %d begins with %d, the one before ends with %d", u->name, r, i,
                            p[i].first, next);
            next = p[i].first + p[i].width;
            check_part(s, r, &p[i], want + (int64_t)r * V, near);
            check_kept(r, &p[i], need, y, want + (int64_t)r * V, near);
            if (whole)
                check_part(s, r, &p[i], y, 0);
        }
        if (all && next != V)
            scene_wrong("%s: row %d: the segments end with %d of %d", u->name, r, next, V);
    }
}

/* --- caches and samples -------------------------------------------------------------------------- */

/* Which rows of the cache this step writes. */
static bool *rows_written(const Scene *s, size_t rows)
{
    bool *written = arena_array(s->keep, bool, rows);
    const bool source = unit_of_source(s->u);
    const RefCache c = scene_cache(s, s->cache);

    for (int t = 0; t < s->T; t++)
        for (int g = 0; g < c.G; g++) {
            const FtxToken *k = &s->token[t];

            if (source)
                written[source_row(s, s->rows[k->row].src_slot, g, k->pos) / c.E] = true;
            else
                written[((int64_t)c.pages[k->slot * c.pages_of + k->pos / c.block] * c.G + g) * c.block +
                        k->pos % c.block] = true;
        }
    return written;
}

/* The number of a row of a cache in `x`. */
static void row_numbers(const RefCache *c, const void *cache, size_t row, float *x)
{
    const int64_t rows = (int64_t)c->G * c->block;
    double numbers[576];

    ref_cached(c, cache, (int64_t)row / rows, (int64_t)row % rows, numbers);
    for (int e = 0; e < c->E; e++)
        x[e] = (float)numbers[e];
}

/* Compares the caches: the step's own keys and values with a tolerance, all other rows bit by bit. The codes of values,
 * which nothing changes before, are those of the reference; of a key's codes one may differ by 1. */
static void compare_cache(const Scene *s, const Wanted *w)
{
    const DType type = s->u->facts.kv;
    const bool source = unit_of_source(s->u), codes = dtype_is_code(type);
    const RefCache c = scene_cache(s, s->cache);
    const size_t rows = s->cache_bytes / sizes_row(type, (uint32_t)c.E);
    const bool *written = rows_written(s, rows);
    float *want = arena_array(s->keep, float, (size_t)c.E), *got = arena_array(s->keep, float, (size_t)c.E);

    for (int k = 0; k < unit_caches(s->u); k++)
        for (size_t r = 0; r < rows; r++) {
            const CacheRow row = scene_cache_row(&c, r);
            const char *now = s->device[source ? (k ? FTX_NAMED_cross_v : FTX_NAMED_cross_k)
                                        : k    ? FTX_NAMED_v
                                               : FTX_NAMED_k];
            const char *same = written[r] ? w->cache[k] : s->cache[k];

            if ((!written[r] || (codes && k == 1)) &&
                (memcmp(now + row.at, same + row.at, row.bytes) != 0 ||
                 memcmp(now + row.scale_at, same + row.scale_at, row.scale_bytes) != 0))
                scene_wrong("%s: %s: a row of %s %s", s->u->name, s->u->fit.instance->entry, k ? "values" : "keys",
                            written[r] ? "has other codes" : "changed that is not of this step");
            if (!written[r])
                continue;
            row_numbers(&c, w->cache[k], r, want);
            if (!codes) {
                scene_compare(s, k ? "values" : "keys", now + row.at, type, want, c.E, 0);
                continue;
            }
            row_numbers(&c, now, r, got);
            scene_compare(s, "keys", got, DT_FP32, want, c.E, 0);
        }
}

void scene_check_polled(const Scene *s, const FtxOut *o)
{
    const FtxOut *host = simt_host_saw(o);

    if (!host || memcmp(host, o, sizeof *o) != 0)
        scene_wrong("%s: a host that polls sees another result", s->u->name);
}

static void check_sample(const Scene *s)
{
    const Unit *u = s->u;
    const Value *logits = ir_value(u->g, u->b.arg[0]);
    const int V = (int)logits->shape.dim[1].n, context = (int)u->g->limits.context;
    const FtxOut *out = s->device[FTX_NAMED_out];
    const FtxRow *rows = s->device[FTX_NAMED_rows];
    const FtxToken *token = s->device[FTX_NAMED_token];
    double *p = arena_array(s->keep, double, (size_t)V), logprob;
    int32_t *order = arena_array(s->keep, int32_t, (size_t)V);

    for (int r = 0; r < s->S; r++) {
        const RefRow ref = {&s->rows[r],
                            &s->params[r],
                            s->history + (int64_t)s->rows[r].slot * context,
                            s->ends + (int64_t)r * u->g->limits.end_ids,
                            s->bias + (int64_t)r * u->g->limits.logit_bias,
                            s->words + (int64_t)s->rows[r].slot * u->g->limits.bad_words};
        const int n = s->rows[r].kv_len;
        const FtxOut *o = out + (int64_t)(n % FTX_OUT_RING) * u->g->limits.sequences + r;
        int id, finish = n + 1 >= s->rows[r].limit ? 2 : 0;

        if (!s->rows[r].emit) {
            assert_true(simt_untouched(o, sizeof *o));
            assert_memory_equal(&rows[r], &s->rows[r], sizeof rows[r]);
            continue;
        }
        id = ref_sample(&ref, (const float *)s->input[u->b.arg[0]].p + (int64_t)r * V, V, p, order, &logprob);
        for (int i = 0; i < s->params[r].n_ends; i++)
            if (ref.ends[i] == id)
                finish = 1;
        assert_true(simt_written(o, sizeof *o));
        scene_check_polled(s, o);
        if (u->c.segments && scene_inv_temperature(&s->params[r]) != 1)
            logprob = (double)o->logprob; /* not checked: the segments' sums are taken at the row's temperature */
        if (o->token != id || o->finish != finish || o->length != n || !(fabs((double)o->logprob - logprob) < 2e-5))
            scene_wrong("%s: row %d: token %d (%g, finish %d, length %d), should be %d (%g, %d, %d)", u->name, r,
                        o->token, (double)o->logprob, o->finish, o->length, id, logprob, finish, n);
        assert_int_equal(rows[r].done, finish != 0);
        assert_int_equal(rows[r].kv_len, finish ? n : n + 1);
        if (!finish) {
            assert_int_equal(token[r].id, id);
            assert_int_equal(token[r].pos, n);
            assert_int_equal(token[r].slot, s->rows[r].slot);
        }
    }
}

/* The rows of y that this kernel computes: [from, to). Attention may have one kernel for the decode rows of a step
 * and one for its prompts. */
static void served(const Scene *s, int64_t rows, int64_t *from, int64_t *to)
{
    *from = 0;
    *to = rows;
    if (s->u->b.contract->rows == ROWS_DECODE)
        *to = s->step.decode_rows;
    if (s->u->b.contract->rows == ROWS_PREFILL)
        *from = s->step.decode_rows;
}

/* Checks that the kernel wrote all of its rows [from, to) and no other. */
static void check_written(const Scene *s, int64_t from, int64_t to, int64_t room, size_t bytes)
{
    const Unit *u = s->u;
    char *y = s->y;

    if (!u->c.blocks && !simt_written(y + (size_t)from * bytes, (size_t)(to - from) * bytes))
        scene_wrong("%s: %s: some of y was not written", u->name, u->fit.instance->entry);
    if (!SIMT_SANITIZED && simt_untouched(y, (size_t)room * bytes) && to > from) /* the sanitizers hide plain stores */
        scene_wrong("%s: %s: nothing was written", u->name, u->fit.instance->entry);
    if (!simt_untouched(y, (size_t)from * bytes) ||
        !simt_untouched(y + (size_t)to * bytes, (size_t)(room - to) * bytes))
        scene_wrong("%s: %s: rows of y were written that are not this kernel's", u->name, u->fit.instance->entry);
}

/* Checks the statistics that the kernel left of y's rows. If only some blocks ran, only what they wrote. */
static void check_stats(const Scene *s, const float *y, int64_t rows, int64_t room, int64_t C)
{
    const int64_t columns = s->u->fit.param, parts = (C + columns - 1) / columns;

    for (int64_t i = 0; i < rows * parts; i++) {
        const int64_t from = i % parts * columns, n = columns < C - from ? columns : C - from;
        const float *got = &s->left[2 * i];
        double sum, squares, sizes;

        if (s->u->c.blocks && !was_written((const char *)got, 8))
            continue;
        scene_stats((RefTensor){y, DT_FP32}, i / parts * C + from, n, &sum, &squares, &sizes);
        if (!(fabs((double)got[0] - sum) <= tolerance(s, DT_FP16) * sizes) ||
            !(fabs((double)got[1] - squares) <= 2 * tolerance(s, DT_FP16) * squares)) {
            scene_wrong("%s: %s: row %lld, columns from %lld: sum %g, squares %g, should be %g, %g", s->u->name,
                        s->u->fit.instance->entry, (long long)(i / parts), (long long)from, (double)got[0],
                        (double)got[1], sum, squares);
            return;
        }
    }
    if (!simt_untouched(&s->left[2 * rows * parts], (size_t)((room - rows) * parts) * 8))
        scene_wrong("%s: %s: statistics were left of rows that are none", s->u->name, s->u->fit.instance->entry);
}

/* Checks the parts of a sum of experts, each for itself. */
static void check_parts(const Scene *s)
{
    const Unit *u = s->u;
    const Value *v = ir_value(u->g, u->b.root);
    const int64_t bytes = (int64_t)(scene_parts_bytes(s, u->b.root, true) / (size_t)s->T);

    check_written(s, 0, s->T, u->facts.t_max, (size_t)bytes);
    scene_compare(s, "y", s->y, v->type, scene_expected_parts(s), s->T * bytes / (int64_t)dtype_size(v->type), 0);
}

static void check_values(Scene *s)
{
    const Unit *u = s->u;
    const Value *v = ir_value(u->g, u->b.root);
    const int64_t rows = v->shape.dim[0].kind == DIM_S ? s->S : s->T;
    const int64_t room = v->shape.dim[0].kind == DIM_S ? u->facts.s_max : u->facts.t_max;
    const size_t history_bytes = sizeof(int32_t) * (size_t)(u->g->limits.sequences * u->g->limits.context);
    Wanted w = {.history = arena_alloc(s->keep, history_bytes)};
    int64_t n, from, to;
    RefTensor want;

    for (int k = 0; k < 2 && s->cache_bytes; k++) {
        w.cache[k] = arena_alloc(s->keep, s->cache_bytes);
        memcpy(w.cache[k], s->cache[k], s->cache_bytes);
    }
    memcpy(w.history, s->history, history_bytes);
    w.recurrent = scene_copy_recurrent(s);
    want = u->b.n_covered ? evaluate(s, u->b.root, true, &w) : s->input[u->b.root];
    n = ir_shape_elements(v->shape, s->T, s->S) / rows;
    served(s, rows, &from, &to);
    if (unit_leaves_segments(u)) {
        check_head(s, want.p);
    } else if (!is_cache(v->op)) {
        check_written(s, from, to, room, (size_t)n * dtype_size(v->type));
        scene_compare(s, "y", s->y, v->type, want.p, to * n, from * n);
        if (s->left)
            check_stats(s, want.p, rows, room, n);
    }
    if (unit_appends(u))
        compare_cache(s, &w);
    scene_check_recurrent(s, w.recurrent);
    for (uint32_t i = 0; i < u->b.n_covered; i++)
        if (ir_value(u->g, u->b.covered[i])->op == OP_EMBED && !u->facts.encode)
            assert_memory_equal(s->device[FTX_NAMED_history], w.history, history_bytes);
}

void scene_check_zeroed(const Scene *s)
{
    const Contract *c = s->u->b.contract;

    for (size_t i = 0; i < c->zeroed.n; i++) {
        const char *p = s->arg[s->n_args - c->zeroed.n + i];

        for (int64_t k = 0; k < s->u->fit.zeroed[i]; k++)
            if (p[k])
                scene_wrong("%s: %s: %s is not left zero", s->u->name, s->u->fit.instance->entry, c->zeroed.at[i].name);
    }
}

void scene_check(Scene *s)
{
    const Value *v = ir_value(s->u->g, s->u->b.root);

    if (v->op == OP_SAMPLE)
        check_sample(s);
    else if (s->u->fp8_rows && s->u->b.gives == s->u->fp8_rows)
        scene_check_fp8(
            s, s->u->b.n_covered ? evaluate(s, s->u->b.root, true, &(Wanted){.history = NULL}) : s->input[s->u->b.root],
            s->u->b.n_covered == 0);
    else if (s->u->digit_rows && s->u->b.gives == s->u->digit_rows)
        scene_check_digits(
            s, s->u->b.n_covered ? evaluate(s, s->u->b.root, true, &(Wanted){.history = NULL}) : s->input[s->u->b.root],
            s->u->b.n_covered == 0);
    else if (s->u->b.gives == s->u->parts)
        check_parts(s);
    else if (v->op == OP_QUANTISE)
        scene_check_unpacked(s);
    else if (v->op == OP_ROUTE)
        scene_check_routes(s, evaluate(s, v->args[0], false, &(Wanted){.history = NULL}),
                           v->args[1] ? s->input[v->args[1]] : (RefTensor){0});
    else
        check_values(s);
    scene_check_zeroed(s);
}
