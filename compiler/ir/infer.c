/* infer.c - the shape and type of an op's result, or the reason why its arguments do not fit.
 *
 * The rule of each op stands here once; the spec's `nn.*` and the verifier both call it. */
#include "query.h"
#include "../../runtime/base/packed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The attribute freqs: n frequencies; a pair with one below 0 turns the other way. */
static bool want_freqs(const Query *q, int64_t n)
{
    const char *at = ir_word(q->attrs, "freqs");
    int64_t found = 0;

    for (char *end; *at; at = end, found++) {
        const double f = strtod(at, &end);

        if (end == at || !isfinite(f))
            return diag_error(q->d, q->loc, "rope_table: freqs has \"%.20s\", it must be finite numbers", at);
        end += *end == ' ';
    }
    if (found == n)
        return true;
    return diag_error(q->d, q->loc, "rope_table: freqs are %lld numbers, they must be %lld", (long long)found,
                      (long long)n);
}

/* Elements of a row of codes; across: of a column of a matrix. */
static int64_t coded_elements(const Query *q, const Shape *s)
{
    if (q->op != OP_WEIGHT || !get(q, "across"))
        return s->dim[1].n;
    return s->dim[0].n / (get(q, "stack") ? get(q, "stack") : 1);
}

/* Codes of type `name` in rows of a shape: as packed.h has them. */
static bool want_codes(const Query *q, const Shape *s, const char *name)
{
    if (!want_word(q, name, "int8 int4 fp8") || !want_range(q, "scales", 0, PACKED_SCALES_COUNT - 1))
        return false;
    if (!packed_has(dtype_parse(ir_word(q->attrs, name)), (PackedScales)get(q, "scales")))
        return diag_error(q->d, q->loc, "%s: fp8 has scales=0 or scales=2: neither zeros nor minima",
                          ir_op_name(q->op));
    if (s->rank == 2 && packed_group((uint64_t)get(q, "group"), (uint64_t)coded_elements(q, s)))
        return true;
    return diag_error(q->d, q->loc,
                      "%s: w is %s, group is %lld: it must be 16, 32, 64 or 128 and divide the elements of a row",
                      ir_op_name(q->op), ir_shape_text(q->g->scratch, *s), (long long)get(q, "group"));
}

static bool infer_weight_op(const Query *q, Shape *out)
{
    const Shape a = q->args[0] ? shape_of(q, 0) : (Shape){0};

    for (int i = 0; i < IR_MAX_ARGS; i++)
        if (q->args[i] && !want_weight(q, i))
            return false;
    *out = a;
    if (q->op == OP_TRANSPOSE) {
        const int64_t stack = get(q, "stack");

        if (!want_rank(q, 0, 2) || !want_range(q, "stack", 1, size(a, 0)))
            return false;
        if (size(a, 0) % stack)
            return diag_error(q->d, q->loc, "transpose: w is %s, stack %lld must divide its rows", text_of(q, 0),
                              (long long)stack);
        *out = ir_shape(2, ir_const(stack * size(a, 1)), ir_const(size(a, 0) / stack), (Dim){0});
    } else if (q->op == OP_CONCAT) {
        for (int i = 1; i < IR_MAX_ARGS && q->args[i]; i++) {
            const Shape b = shape_of(q, i);

            if (b.rank != a.rank || b.rank > 2 || (b.rank == 2 && !dim_equal(a.dim[1], b.dim[1])))
                return diag_error(q->d, q->loc, "concat: %s is %s, %s is %s; only the first size may differ",
                                  arg_name(q, 0), text_of(q, 0), arg_name(q, i), text_of(q, i));
            out->dim[0].n += b.dim[0].n;
        }
    } else if (q->op == OP_INTERLEAVE) {
        if (!want_same(q, 0, 1))
            return false;
        out->dim[0].n *= 2;
    } else if (q->op == OP_PAIRS) {
        const int64_t head_dim = get(q, "head_dim"), rot = get(q, "rot");

        if (!want_range(q, "head_dim", 1, MANY) || !want_range(q, "rot", 2, head_dim))
            return false;
        if (rot % 2 || size(a, 0) % head_dim)
            return diag_error(q->d, q->loc, "pairs: w is %s, rot %lld must be even and head_dim %lld divide the rows",
                              text_of(q, 0), (long long)rot, (long long)head_dim);
    } else if (q->op == OP_ROWS) {
        const int64_t every = get(q, "every"), block = every ? every : size(a, 0);

        if (!want_range(q, "every", 0, size(a, 0)) || !want_range(q, "from", 0, block - 1) ||
            !want_range(q, "count", 1, block - get(q, "from")))
            return false;
        if (size(a, 0) % block)
            return diag_error(q->d, q->loc, "rows: w is %s, every %lld must divide its rows", text_of(q, 0),
                              (long long)every);
        out->dim[0].n = size(a, 0) / block * get(q, "count");
    } else if (q->op == OP_REPEAT) {
        if (!want_range(q, "times", 1, MANY / size(a, 0)))
            return false;
        out->dim[0].n *= get(q, "times");
    } else if (q->op == OP_PLUS) {
        return want_rank(q, 0, 1);
    } else if (q->op == OP_UNIT_ROWS) {
        return want_rank(q, 0, 2);
    } else if (q->op == OP_NORM_ROWS) {
        return want_rank(q, 0, 2) && want_vector(q, 1, size(a, 1)) && want_vector(q, 2, size(a, 1));
    } else if (q->op == OP_DISTANCE_HEADS) {
        return infer_distance_heads(q, out);
    } else if (q->op == OP_FILL) {
        if (!want_range(q, "count", 1, MANY))
            return false;
        *out = ir_shape(1, ir_const(get(q, "count")), (Dim){0}, (Dim){0});
    } else if (q->op == OP_ALIBI) {
        if (!want_range(q, "heads", 1, 1 << 20) || !want_range(q, "reach", 0, 1 << 20))
            return false;
        *out = ir_shape(get(q, "reach") ? 2 : 1, ir_const(get(q, "heads")),
                        get(q, "reach") ? ir_const(2 * get(q, "reach") + 1) : (Dim){0}, (Dim){0});
    } else if (q->op == OP_DISTANCE_BIAS) {
        const int64_t max_distance = get(q, "max_distance");
        const int64_t exact = q->args[0] && a.rank == 2 ? size(a, 0) / (get(q, "causal") ? 2 : 4) : 0;

        if (!want_rank(q, 0, 2) || !want_range(q, "causal", 0, 1) || !want_range(q, "max_distance", 2, 1 << 20))
            return false;
        if (exact < 1 || max_distance <= exact)
            return diag_error(q->d, q->loc,
                              "distance_bias: w is %s, max_distance %lld: a row for each of %d buckets or more, and "
                              "max_distance above the %lld distances that have a bucket each",
                              text_of(q, 0), (long long)max_distance, get(q, "causal") ? 2 : 4, (long long)exact);
        *out = ir_shape(2, a.dim[1], ir_const(2 * max_distance + 1), (Dim){0});
    } else if (q->op == OP_QUANTISE) {
        return want_rank(q, 0, 2) && want_range(q, "stored", 0, 1) && want_codes(q, out, "to");
    } else if (q->op == OP_PART) {
        return infer_part(q, out);
    } else if (q->op == OP_SINUSOID) {
        if (!want_range(q, "dim", 2, MANY) || !want_range(q, "positions", 1, MANY) || !want_range(q, "span", 0, MANY) ||
            !want_word(q, "style", "half neighbour"))
            return false;
        if (get(q, "dim") % 2)
            return diag_error(q->d, q->loc, "sinusoid: dim is %lld, it must be even", (long long)get(q, "dim"));
        *out = ir_shape(2, ir_const(get(q, "positions")), ir_const(get(q, "dim")), (Dim){0});
    } else if (q->op == OP_ROPE_TABLE) {
        if (!want_range(q, "rot", 2, MANY) || !want_range(q, "positions", 1, MANY) ||
            !want_word(q, "scaling", "none linear llama3"))
            return false;
        if (*ir_word(q->attrs, "freqs") && !want_freqs(q, get(q, "rot") / 2))
            return false;
        if (get(q, "rot") % 2)
            return diag_error(q->d, q->loc, "rope_table: rot is %lld, it must be even", (long long)get(q, "rot"));
        *out = ir_shape(3, ir_const(get(q, "positions")), ir_const(get(q, "rot") / 2), ir_const(2));
    }
    return true;
}

static bool infer_linear(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0), w = shape_of(q, 1);

    if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_rank(q, 1, 2) || !want_weight(q, 1))
        return false;
    if (!dim_equal(x.dim[1], w.dim[1]))
        return diag_error(q->d, q->loc, "linear: x is %s, w is %s", text_of(q, 0), text_of(q, 1));
    if (q->args[2] && !want_vector(q, 2, size(w, 0)))
        return false;
    *out = ir_shape(2, x.dim[0], w.dim[0], (Dim){0});
    return true;
}

static bool infer_route(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0);
    const int64_t experts = size(x, 1), groups = get(q, "groups");

    if (!want_rank(q, 0, 2) || !want_activation(q, 0) || (q->args[1] && !want_vector(q, 1, experts)) ||
        !want_range(q, "k", 1, experts) || !want_range(q, "sigmoid", 0, 1) || !want_range(q, "chosen", 0, 1) ||
        !want_range(q, "renorm", 0, 1) || !want_range(q, "best_two", 0, 1) || !want_range(q, "groups", 1, experts) ||
        !want_range(q, "groups_kept", 1, groups))
        return false;
    if (ir_float(q->attrs, "near") < 0 || (ir_float(q->attrs, "near") > 0 && (!get(q, "chosen") || q->args[1])))
        return diag_error(q->d, q->loc, "route: near is %g, it must be 0, or positive with chosen and without a bias",
                          ir_float(q->attrs, "near"));
    if (get(q, "sigmoid") && get(q, "chosen"))
        return diag_error(q->d, q->loc, "route: the softmax over the chosen logits cannot be of sigmoids");
    if (experts % groups || get(q, "k") > get(q, "groups_kept") * (experts / groups))
        return diag_error(q->d, q->loc,
                          "route: logits are %s: groups %lld must divide the experts, and the %lld that are kept have "
                          "at least k %lld",
                          text_of(q, 0), (long long)groups, (long long)get(q, "groups_kept"), (long long)get(q, "k"));
    *out = x;
    out->dim[1] = ir_const(2 * get(q, "k"));
    return true;
}

static bool infer_experts(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0), routes = shape_of(q, 1), w = shape_of(q, 2);
    const int64_t experts = get(q, "experts"), k = size(routes, 1) / 2, parts = q->op == OP_EXPERT_SUM ? k : 1;

    if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_rank(q, 2, 2) || !want_weight(q, 2))
        return false;
    if (arg(q, 1)->op != OP_ROUTE || k < 1 || !dim_equal(x.dim[0], routes.dim[0]))
        return diag_error(q->d, q->loc, "%s: routes is %s of %s, it must be that of route for the rows of x %s",
                          ir_op_name(q->op), text_of(q, 1), ir_op_name(arg(q, 1)->op), text_of(q, 0));
    if (experts < 1 || experts != size(ir_value(q->g, arg(q, 1)->args[0])->shape, 1))
        return diag_error(q->d, q->loc, "%s: experts is %lld, the routes choose of %s", ir_op_name(q->op),
                          (long long)experts, ir_shape_text(q->g->scratch, ir_value(q->g, arg(q, 1)->args[0])->shape));
    if (size(w, 0) % experts || size(x, 1) != parts * size(w, 1))
        return diag_error(q->d, q->loc, "%s: x is %s, w is %s: it must be [%lld*N,%lld]", ir_op_name(q->op),
                          text_of(q, 0), text_of(q, 2), (long long)experts, (long long)(size(x, 1) / parts));
    if (q->args[3] && !want_vector(q, 3, size(w, 0)))
        return false;
    *out = ir_shape(2, x.dim[0], ir_const(size(w, 0) / experts * (q->op == OP_EXPERT_SUM ? 1 : k)), (Dim){0});
    return true;
}

/* Whether argument 1 of a product, of shape b, has one factor for each row or column of x. */
static bool is_factor(const Query *q, Shape b, Shape x)
{
    if (x.rank != 2)
        return false;
    if (ir_op_is_weight(arg(q, 1)->op))
        return b.rank == 1 && dim_equal(b.dim[0], x.dim[1]);
    return b.rank == 2 && size(b, 1) == 1 && dim_equal(b.dim[0], x.dim[0]);
}

/* A norm of rows [M,C], or of each head of [T,H,E]: then the gain and the bias are [E], or [H,E] if each head has its own. */
static bool infer_norm(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0);

    if (x.rank == 3 ? !want_heads(q, 0) : !want_rank(q, 0, 2) || !want_activation(q, 0))
        return false;
    for (int i = 1; i < IR_MAX_ARGS; i++) {
        const Shape w = q->args[i] ? shape_of(q, i) : (Shape){0};
        const bool own = x.rank == 3 && w.rank == 2 && size(w, 0) == size(x, 1) && size(w, 1) == size(x, 2);

        if (q->args[i] && (own ? !want_weight(q, i) : !want_vector(q, i, size(x, x.rank - 1))))
            return false;
    }
    *out = x;
    return true;
}

static bool infer_glu(const Query *q, Shape *out)
{
    if (!want_rank(q, 0, 2) || !want_activation(q, 0))
        return false;
    if (size(shape_of(q, 0), 1) % 2)
        return diag_error(q->d, q->loc, "%s: x is %s, its rows must have an even length", ir_op_name(q->op),
                          text_of(q, 0));
    *out = shape_of(q, 0);
    out->dim[1].n /= 2;
    return true;
}

/* Columns of rows [M,N], or of each head of [T,H,N]. */
static bool infer_slice(const Query *q, Shape *out)
{
    const Shape x = shape_of(q, 0);
    const uint32_t last = q->op == OP_SLICE_HEADS ? 2 : 1;

    if ((last == 2 ? !want_heads(q, 0) : !want_rank(q, 0, 2) || !want_activation(q, 0)) ||
        !want_range(q, "from", 0, size(x, last) - 1) || !want_range(q, "count", 1, size(x, last) - get(q, "from")))
        return false;
    *out = x;
    out->dim[last] = ir_const(get(q, "count"));
    return true;
}

/* Columns of a and of b; of heads, b may have one for all. */
static bool infer_join(const Query *q, Shape *out)
{
    const Shape a = shape_of(q, 0), b = shape_of(q, 1);
    const uint32_t last = q->op == OP_JOIN_PARTS ? 2 : 1;

    if (last == 2 ? !want_heads(q, 0) || !want_heads(q, 1)
                  : !want_rank(q, 0, 2) || !want_activation(q, 0) || !want_rank(q, 1, 2) || !want_activation(q, 1))
        return false;
    if (!dim_equal(a.dim[0], b.dim[0]))
        return diag_error(q->d, q->loc, "%s: a is %s, b is %s; they must have equally many rows", ir_op_name(q->op),
                          text_of(q, 0), text_of(q, 1));
    if (last == 2 && size(b, 1) != size(a, 1) && size(b, 1) != 1)
        return diag_error(q->d, q->loc, "%s: a is %s, b is %s; b must have as many heads, or one", ir_op_name(q->op),
                          text_of(q, 0), text_of(q, 1));
    *out = a;
    out->dim[last] = ir_const(size(a, last) + size(b, last));
    return true;
}

static bool want_token_rows(const Query *q)
{
    if (shape_of(q, 0).dim[0].kind == DIM_T)
        return true;
    return diag_error(q->d, q->loc, "%s: x is %s, it must have a row for each token", ir_op_name(q->op), text_of(q, 0));
}

static bool infer(const Query *q, DType type, Shape *out, DType *out_type)
{
    const Shape x = q->args[0] ? shape_of(q, 0) : (Shape){0};
    int64_t rot;

    *out_type = type;
    switch (q->op) {
    case OP_WEIGHT:
        if (out->rank < 1 || out->rank > 2)
            return diag_error(q->d, q->loc, "weight: it must have 1 or 2 dimensions, not %u", out->rank);
        for (uint32_t i = 0; i < out->rank; i++)
            if (out->dim[i].kind != DIM_CONST || out->dim[i].n < 1 || out->dim[i].n > MANY)
                return diag_error(q->d, q->loc, "weight: the shape is %s, it must be of positive constants",
                                  ir_shape_text(q->g->scratch, *out));
        if (!want_range(q, "stack", 0, out->dim[0].n) || (get(q, "stack") && out->dim[0].n % get(q, "stack")))
            return diag_error(q->d, q->loc, "weight: %s cannot be a stack of %lld", ir_shape_text(q->g->scratch, *out),
                              (long long)get(q, "stack"));
        return !*ir_word(q->attrs, "codes") || want_codes(q, out, "codes");
    case OP_IDS:
        *out = ir_shape(1, ir_T(), (Dim){0}, (Dim){0});
        *out_type = DT_I32;
        return true;
    case OP_TRANSPOSE:
    case OP_CONCAT:
    case OP_INTERLEAVE:
    case OP_PAIRS:
    case OP_ROWS:
    case OP_REPEAT:
    case OP_PLUS:
    case OP_UNIT_ROWS:
    case OP_NORM_ROWS:
    case OP_FILL:
    case OP_ALIBI:
    case OP_DISTANCE_BIAS:
    case OP_DISTANCE_HEADS:
    case OP_QUANTISE:
    case OP_PART:
    case OP_SINUSOID:
    case OP_ROPE_TABLE:
        if (!infer_weight_op(q, out))
            return false;
        *out_type = ir_op_is_table(q->op) || q->op == OP_DISTANCE_BIAS ? DT_FP32 : arg(q, 0)->type;
        if (q->op == OP_QUANTISE)
            *out_type = dtype_parse(ir_word(q->attrs, "to"));
        for (int i = 1; i < IR_MAX_ARGS && q->args[i]; i++)
            if (arg(q, i)->type != *out_type && q->op != OP_NORM_ROWS && q->op != OP_DISTANCE_HEADS)
                return diag_error(q->d, q->loc, "%s: %s is %s, %s is %s; their types must be equal", ir_op_name(q->op),
                                  arg_name(q, 0), dtype_name(*out_type), arg_name(q, i), dtype_name(arg(q, i)->type));
        return true;
    case OP_EMBED:
    case OP_EMBED_PART:
        if (arg(q, 0)->op != OP_IDS)
            return diag_error(q->d, q->loc, "%s: ids is the result of %s, it must be ids", ir_op_name(q->op),
                              ir_op_name(arg(q, 0)->op));
        if (!want_rank(q, 1, 2) || !want_weight(q, 1))
            return false;
        *out = ir_shape(2, ir_T(), shape_of(q, 1).dim[1], (Dim){0});
        return true;
    case OP_POSITIONS:
        if (!want_rank(q, 0, 2) || !want_weight(q, 0) || !want_range(q, "offset", 0, size(x, 0) - 1))
            return false;
        *out = ir_shape(2, ir_T(), x.dim[1], (Dim){0});
        return true;
    case OP_TYPES:
        if (!want_rank(q, 0, 2) || !want_weight(q, 0))
            return false;
        *out = ir_shape(2, ir_T(), x.dim[1], (Dim){0});
        return true;
    case OP_PREVIOUS:
        if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_token_rows(q) || !want_weight(q, 1) ||
            !want_rank(q, 1, 2))
            return false;
        if (size(shape_of(q, 1), 0) != 1 || size(shape_of(q, 1), 1) != size(x, 1))
            return diag_error(q->d, q->loc, "previous: w is %s, it must be [1,%lld]", text_of(q, 1),
                              (long long)size(x, 1));
        *out = x;
        return true;
    case OP_NEIGHBOURS:
        if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_token_rows(q) || !want_range(q, "from", -64, 64) ||
            !want_range(q, "count", 1, 64) || !want_range(q, "ring", 0, 1))
            return false;
        *out = ir_shape(2, x.dim[0], ir_const(size(x, 1) * get(q, "count")), (Dim){0});
        return true;
    case OP_LINEAR: return infer_linear(q, out);
    case OP_MUL:
        if (is_factor(q, shape_of(q, 1), x)) {
            *out = x;
            return want_activation(q, 0);
        }
        /* fall through */
    case OP_ADD: *out = x; return want_activation(q, 0) && want_activation(q, 1) && want_same(q, 0, 1);
    case OP_SCALE: *out = x; return want_activation(q, 0);
    case OP_SLICE:
    case OP_SLICE_HEADS: return infer_slice(q, out);
    case OP_JOIN:
    case OP_JOIN_PARTS: return infer_join(q, out);
    case OP_CLAMP:
        *out = x;
        if (want_activation(q, 0) && ir_float(q->attrs, "low") >= ir_float(q->attrs, "high"))
            return diag_error(q->d, q->loc, "clamp: low is %g, it must be less than high %g", ir_float(q->attrs, "low"),
                              ir_float(q->attrs, "high"));
        return want_activation(q, 0);
    case OP_SCALE_BY_POSITION:
        *out = x;
        return want_rank(q, 0, 2) && want_activation(q, 0) && want_token_rows(q) &&
               want_range(q, "every", 1, 1 << 30) && want_range(q, "offset", 0, 1 << 20);
    case OP_GLU_CLAMPED:
        if (ir_float(q->attrs, "limit") <= 0)
            return diag_error(q->d, q->loc, "glu_clamped: limit is %g, it must be positive",
                              ir_float(q->attrs, "limit"));
        return infer_glu(q, out);
    case OP_RMSNORM:
    case OP_LAYERNORM: return infer_norm(q, out);
    case OP_ACT:
        *out = x;
        return want_activation(q, 0) &&
               want_word(q, "kind", "gelu_erf gelu_tanh quick_gelu relu relu2 sigmoid silu tanh");
    case OP_XIELU: *out = x; return want_activation(q, 0) && want_vector(q, 1, 3);
    case OP_GLU:
        return want_word(q, "kind", "gelu_erf gelu_tanh quick_gelu relu relu2 sigmoid silu tanh") && infer_glu(q, out);
    case OP_ROUTE: *out_type = DT_I32; return infer_route(q, out);
    case OP_ROUTE_WEIGHTS:
        if (arg(q, 0)->op != OP_ROUTE)
            return diag_error(q->d, q->loc, "route_weights: routes is the result of %s, it must be that of route",
                              ir_op_name(arg(q, 0)->op));
        *out = x;
        out->dim[1].n /= 2;
        return true;
    case OP_EXPERT_LINEAR:
    case OP_EXPERT_SUM: return infer_experts(q, out);
    case OP_HEAD_LINEAR: {
        if (!want_heads(q, 0) || !want_weight(q, 1) || !want_rank(q, 1, 2))
            return false;

        const int64_t heads = size(x, 1), rows = size(shape_of(q, 1), 0);

        if (heads < 1 || size(shape_of(q, 1), 1) != size(x, 2) || rows % heads)
            return diag_error(q->d, q->loc,
                              "head_linear: x is %s, w is %s: columns of w must be elements of a head, and "
                              "heads divide its rows",
                              text_of(q, 0), text_of(q, 1));
        *out = ir_shape(3, x.dim[0], x.dim[1], ir_const(rows / heads));
        return true;
    }
    case OP_SPLIT_HEADS:
        if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_range(q, "heads", 1, 1 << 20))
            return false;
        if (size(x, 1) % get(q, "heads"))
            return diag_error(q->d, q->loc, "split_heads: x is %s, it cannot be divided into %lld heads", text_of(q, 0),
                              (long long)get(q, "heads"));
        *out = ir_shape(3, x.dim[0], ir_const(get(q, "heads")), ir_const(size(x, 1) / get(q, "heads")));
        return true;
    case OP_JOIN_HEADS:
        if (!want_heads(q, 0))
            return false;
        *out = ir_shape(2, x.dim[0], ir_const(size(x, 1) * size(x, 2)), (Dim){0});
        return true;
    case OP_ROPE:
        *out = x;
        return want_heads(q, 0) && want_table(q, 1, size(x, 2), &rot) && want_word(q, "style", "half neighbour") &&
               want_word(q, "count", "all prefix rest") &&
               want_range(q, "tail", 0, strcmp(ir_word(q->attrs, "count"), "all") == 0 ? 0 : MANY);
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
    case OP_GATHER_LOGITS: return infer_exchange(q, out);
    case OP_RANK_SLICE: return infer_rank_slice(q, out);
    case OP_CACHE:
    case OP_CROSS_CACHE: return infer_cache(q, out);
    case OP_RECUR: return infer_recur(q, out);
    case OP_ATTEND: return infer_attend(q, out);
    case OP_ATTEND_PAGED: return infer_attend_paged(q, out);
    case OP_APPEND: return infer_append(q, out);
    case OP_ATTEND_PACKED: return infer_packed(q, out);
    case OP_CROSS_APPEND:
    case OP_ATTEND_CROSS: return infer_cross(q, out);
    case OP_CONVOLVE: return infer_convolve(q, out);
    case OP_ROW_RMS:
        *out = x;
        out->dim[1] = ir_const(1);
        if (ir_float(q->attrs, "floor") < 0)
            return diag_error(q->d, q->loc, "row_rms: floor is %g, it must not be negative",
                              ir_float(q->attrs, "floor"));
        return want_rank(q, 0, 2) && want_activation(q, 0) && want_range(q, "centred", 0, 1) &&
               want_range(q, "inverse", 0, 1);
    case OP_NORMALIZE: *out = x; return want_rank(q, 0, 2) && want_activation(q, 0);
    case OP_SELECT_FIRST:
    case OP_POOL_MEAN:
    case OP_SELECT_LAST:
    case OP_SELECT_ID:
        if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_token_rows(q) ||
            (q->op == OP_SELECT_ID && !want_range(q, "id", -1, INT32_MAX)))
            return false;
        *out = x;
        out->dim[0] = ir_S();
        return true;
    case OP_MASK:
    case OP_SAMPLE:
        if (!want_rank(q, 0, 2) || !want_activation(q, 0))
            return false;
        if (x.dim[0].kind != DIM_S)
            return diag_error(q->d, q->loc,
                              "%s: logits are %s, they must have a row for each sequence: "
                              "select_last comes before",
                              ir_op_name(q->op), text_of(q, 0));
        if (q->args[1] && (arg(q, 1)->op != OP_MASK || arg(q, 1)->args[0] != q->args[0]))
            return diag_error(q->d, q->loc, "sample: masked is %s, it must be the mask of the same logits",
                              text_of(q, 1));
        *out = ir_shape(1, ir_S(), (Dim){0}, (Dim){0});
        *out_type = DT_I32;
        return true;
    case OP_BEAM:
        if (!want_rank(q, 0, 2) || !want_activation(q, 0) || !want_rank(q, 1, 1))
            return false;
        if (ir_value(q->g, q->args[1])->op != OP_SAMPLE || ir_value(q->g, q->args[1])->args[0] != q->args[0])
            return diag_error(q->d, q->loc, "beam: sampled is %s, it must be the sample of the same logits",
                              text_of(q, 1));
        *out = ir_shape(1, ir_S(), (Dim){0}, (Dim){0});
        *out_type = DT_I32;
        return true;
    case OP_NONE:
    case OP_COUNT: break;
    }
    return diag_error(q->d, q->loc, "no such op");
}

/* The number of arguments is right, and all are defined by now. */
static bool check_args(const Query *q)
{
    char name[16];
    bool optional;

    for (int i = 0; i < IR_MAX_ARGS; i++) {
        const bool declared = ir_op_arg(q->op, i, name, &optional);

        if (q->args[i] >= q->g->values.n)
            return diag_error(q->d, q->loc, "%s: %%%u is not defined yet", ir_op_name(q->op), q->args[i]);
        if (q->args[i] && !declared)
            return diag_error(q->d, q->loc, "%s takes %d argument%s: %s", ir_op_name(q->op), i, i == 1 ? "" : "s",
                              ir_op_args(q->op));
        if (!q->args[i] && declared && !optional)
            return diag_error(q->d, q->loc, "%s: %s is missing", ir_op_name(q->op), name);
        if (q->args[i] && (arg(q, i)->op == OP_CROSS_CACHE || arg(q, i)->op == OP_CROSS_APPEND) && q->op != OP_ATTEND &&
            q->op != OP_ATTEND_CROSS)
            return diag_error(q->d, q->loc, "%s: %s are keys and values of a source, which only attend_cross reads",
                              ir_op_name(q->op), name);
        if (q->args[i] && arg(q, i)->op == OP_ROUTE && q->op != OP_ROUTE_WEIGHTS &&
            (i != 1 || (q->op != OP_EXPERT_LINEAR && q->op != OP_EXPERT_SUM)))
            return diag_error(q->d, q->loc, "%s: %s are routes, only experts read them", ir_op_name(q->op), name);
        if (q->args[i] && arg(q, i)->op == OP_QUANTISE && q->op != OP_LINEAR &&
            (i != 2 || (q->op != OP_EXPERT_LINEAR && q->op != OP_EXPERT_SUM)))
            return diag_error(q->d, q->loc, "%s: %s is a quantised weight, only linears read one", ir_op_name(q->op),
                              name);
        if (q->args[i] && arg(q, i)->op == OP_CACHE && q->op != OP_ATTEND && q->op != OP_ATTEND_PAGED)
            return diag_error(q->d, q->loc, "%s: %s is a cache, only attend reads one", ir_op_name(q->op), name);
    }
    return true;
}

/* The op has these attributes, their kinds are right, and no required one is missing. */
static bool check_attrs(const Query *q)
{
    AttrRule rule;

    for (uint32_t i = 0; i < q->attrs->n_attrs; i++) {
        const Attr *a = &q->attrs->attrs[i];

        if (!ir_op_attr_named(q->op, a->name, &rule))
            return diag_error(q->d, q->loc, "%s has no attribute \"%s\"; it has: %s", ir_op_name(q->op), a->name,
                              ir_op_attrs(q->op));
        if (rule.kind != a->kind)
            return diag_error(q->d, q->loc, "%s: %s must be %s", ir_op_name(q->op), a->name,
                              rule.kind == ATTR_INT     ? "an integer"
                              : rule.kind == ATTR_FLOAT ? "a number"
                                                        : "a word");
        if (a->kind == ATTR_FLOAT && !isfinite(a->f))
            return diag_error(q->d, q->loc, "%s: %s is not finite", ir_op_name(q->op), a->name);
    }
    for (int i = 0; ir_op_attr(q->op, i, &rule); i++)
        if (rule.required && !ir_attr(q->attrs, rule.name))
            return diag_error(q->d, q->loc, "%s: %s is missing", ir_op_name(q->op), rule.name);
    return true;
}

bool ir_infer(const Graph *g, Op op, const Id args[IR_MAX_ARGS], const Attr *attrs, uint32_t n_attrs, DType type,
              Loc loc, Shape *shape, DType *out, Diag *d)
{
    const Value with = {.op = op, .attrs = (Attr *)attrs, .n_attrs = n_attrs};
    const Query q = {g, op, args, &with, loc, d};

    return check_args(&q) && check_attrs(&q) && infer(&q, type, shape, out);
}
