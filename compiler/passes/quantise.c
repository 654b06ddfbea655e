/* quantise.c - which weights are stored as codes: those that the checkpoint has as codes, and with precision.weights = "int8",
 * "int4" or "fp8" the others.
 *
 *     before                               after
 *     %4 = weight {name="up"}              %4 = weight {name="up"}
 *     %5 = linear %3 %4 -                  %5 = quantise %4 {group=128 to="int8"}
 *                                          %6 = linear %3 %5 -
 *
 * The weights of linears and of experts whose outputs are whole tiles are quantised, each a row (an output) at a time in groups of
 * its elements. The others are not: embeddings, also where the head shares
 * them, norms, biases, tables, and what chooses experts. The last linear before logits or a pooled vector is the head, which has
 * a type of its own.
 *
 * What is joined of several tensors of codes has the least form that holds all of them exactly: the more bits, the smaller
 * group, scales in fp32 if one has them, zeros or minima if one has them. No form holds fp8 beside integers. */
#include <string.h>

#include "../../runtime/base/packed.h"
#include "rewrite.h"
#include "lower.h"

typedef struct Chosen {
    DType type; /* NONE: not quantised */
    int64_t group;
    PackedScales scales;
    bool stored; /* the checkpoint has these codes */
} Chosen;

/* The linear whose result is `of`, but for elementwise ops behind it; 0: there is none. */
static Id head_of(const Graph *g, Id of)
{
    while (of && ir_value(g, of)->op != OP_LINEAR) {
        const Op op = ir_value(g, of)->op;

        if (op != OP_SCALE && op != OP_ACT && op != OP_ADD && op != OP_MUL && op != OP_NORMALIZE &&
            op != OP_ALL_REDUCE && op != OP_ALL_GATHER && op != OP_GATHER_LOGITS)
            return 0;
        of = ir_value(g, of)->args[0];
    }
    return of;
}

/* Whether a tensor of weight w has the name of a pattern of precision.except; notes the patterns that were found. */
static bool is_excepted(const Graph *g, const Quantising *q, Id w, bool *found)
{
    const Value *v = ir_value(g, w);
    bool excepted = false;

    for (size_t i = 0; i < q->n_except && v->op == OP_WEIGHT; i++)
        if (lower_name_has(ir_word(v, "name"), q->except[i]))
            excepted = found[i] = true;
    for (int i = 0; i < IR_MAX_ARGS; i++)
        excepted |= v->args[i] && is_excepted(g, q, v->args[i], found);
    return excepted;
}

/* The name of a tensor of weight w, for messages. */
static const char *tensor_of(const Graph *g, Id w)
{
    while (ir_value(g, w)->op != OP_WEIGHT && ir_value(g, w)->args[0])
        w = ir_value(g, w)->args[0];
    return ir_value(g, w)->op == OP_WEIGHT ? ir_word(ir_value(g, w), "name") : ir_op_name(ir_value(g, w)->op);
}

static bool choose_group(const Graph *g, const Quantising *q, Id linear, Id w, Chosen *c, Diag *d)
{
    const Value *v = ir_value(g, linear);
    const int64_t columns = ir_value(g, w)->shape.dim[1].n;

    for (c->group = q->group ? q->group : 128; c->group >= 32; c->group /= 2)
        if (packed_group((uint64_t)c->group, (uint64_t)columns))
            return true;
        else if (q->group)
            break;
    if (q->group)
        return diag_error(d, v->loc,
                          "precision.group is %lld, which does not divide the %lld elements of a row of \"%s\": set "
                          "another, or name the weight in precision.except",
                          (long long)q->group, (long long)columns, tensor_of(g, w));
    return diag_error(d, v->loc,
                      "\"%s\" has rows of %lld elements, which no group of 32, 64 or 128 divides: name the weight in "
                      "precision.except",
                      tensor_of(g, w), (long long)columns);
}

static bool has_zeros(const Chosen *c)
{
    return c->scales == PACKED_FP16_ZEROS || c->scales == PACKED_FP32_MINIMA;
}

static Chosen join(Chosen a, Chosen b)
{
    const bool fp32 = a.scales >= PACKED_FP32 || b.scales >= PACKED_FP32, zeros = has_zeros(&a) || has_zeros(&b);

    if (!a.stored || !b.stored || (a.type == DT_FP8) != (b.type == DT_FP8))
        return (Chosen){0};
    return (Chosen){.type = a.type == b.type ? a.type : DT_INT8,
                    .group = a.group < b.group ? a.group : b.group,
                    .scales = fp32    ? zeros ? PACKED_FP32_MINIMA : PACKED_FP32
                              : zeros ? PACKED_FP16_ZEROS
                                      : PACKED_FP16,
                    .stored = true};
}

/* The codes that the checkpoint has of a weight. */
static Chosen stored_codes(const Graph *g, Id w)
{
    const Value *v = ir_value(g, w);
    Chosen c = {0};
    const bool turned = v->op == OP_TRANSPOSE && ir_value(g, v->args[0])->op == OP_WEIGHT;

    if (turned)
        v = ir_value(g, v->args[0]);
    if (v->op == OP_WEIGHT && *ir_word(v, "codes") && (ir_int(v, "across") != 0) == turned)
        c = (Chosen){dtype_parse(ir_word(v, "codes")), ir_int(v, "group"), (PackedScales)ir_int(v, "scales"), true};
    else if (v->op == OP_CONCAT || v->op == OP_INTERLEAVE || v->op == OP_PAIRS || v->op == OP_ROWS ||
             v->op == OP_REPEAT || v->op == OP_PART)
        c = stored_codes(g, v->args[0]);
    for (int i = 1; i < IR_MAX_ARGS && v->args[i]; i++)
        c = join(c, stored_codes(g, v->args[i]));
    return c;
}

/* The argument of v that may be quantised; 0: none. */
static int matrix_of(const Graph *g, Id v)
{
    const Value *e = ir_value(g, v);

    if (e->op == OP_LINEAR)
        return 1;
    return (e->op == OP_EXPERT_LINEAR || e->op == OP_EXPERT_SUM) &&
                   ir_value(g, e->args[2])->shape.dim[0].n / ir_int(e, "experts") % PACKED_ROWS == 0
               ? 2
               : 0;
}

/* any: whether a weight is quantised */
static bool choose(const Graph *g, const Quantising *q, Chosen *of, bool *any, Diag *d)
{
    const Id logits = head_of(g, g->logits), pooled = head_of(g, g->pooled);
    bool *found = arena_array(g->scratch, bool, q->n_except + 1), *routes = arena_array(g->scratch, bool, g->values.n);

    for (Id v = 1; v < g->values.n; v++)
        if (ir_value(g, v)->op == OP_ROUTE)
            routes[ir_value(g, v)->args[0]] = true;
    for (Id v = 1; v < g->values.n; v++) {
        const int matrix = matrix_of(g, v);
        const Id w = ir_value(g, v)->args[matrix];
        bool excepted;

        if (!matrix || routes[v])
            continue;
        excepted = is_excepted(g, q, w, found);
        of[v] = stored_codes(g, w);
        *any |= of[v].stored;
        if (of[v].stored || excepted || !q->type)
            continue;
        *any = true;
        of[v].type = v == logits || v == pooled ? q->head : q->type;
        of[v].scales = q->zeros && of[v].type == DT_INT4 ? PACKED_FP16_ZEROS : PACKED_FP16;
        if (packed_type(of[v].type) && !choose_group(g, q, v, w, &of[v], d))
            return false;
    }
    for (size_t i = 0; i < q->n_except; i++)
        if (!found[i])
            return diag_error(d, (Loc){0}, "precision.except: no linear reads a weight \"%s\"", q->except[i]);
    return true;
}

static Id quantise_linear(Rewrite *r, Id id)
{
    const Value *v = rewrite_old(r, id);
    const Chosen *c = (const Chosen *)r->user + id;
    const Attr attrs[] = {{.name = "group", .kind = ATTR_INT, .i = c->group},
                          {.name = "to", .kind = ATTR_WORD, .s = dtype_name(c->type)},
                          {.name = "scales", .kind = ATTR_INT, .i = (int64_t)c->scales},
                          {.name = "stored", .kind = ATTR_INT, .i = 1}};
    const int matrix = v->op == OP_LINEAR ? 1 : 2;
    Id args[IR_MAX_ARGS];

    if (!packed_type(c->type))
        return 0;
    for (int i = 0; i < IR_MAX_ARGS; i++)
        args[i] = r->map[v->args[i]];
    args[matrix] = rewrite_make(r, OP_QUANTISE, args[matrix], 0, 0, attrs, c->stored ? 4 : c->scales ? 3 : 2, v->loc);
    return rewrite_add(r, v->op, args, v->attrs, v->n_attrs, v->loc);
}

bool quantise_weights(Graph *g, const Quantising *q, Diag *d)
{
    Chosen *of = arena_array(g->scratch, Chosen, g->values.n);

    bool any = false;

    if (!choose(g, q, of, &any, d))
        return false;
    if (any)
        rewrite_run_with(g, quantise_linear, of);
    return true;
}
