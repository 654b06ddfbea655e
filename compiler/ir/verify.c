/* verify.c - the invariants of a graph, checked after every pass. */
#include "ir.h"

#include <string.h>

/* Largest number of elements of a value, and largest limit: no size computed from them overflows. */
static const int64_t MAX_ELEMENTS = INT64_C(1) << 44, MAX_LIMIT = INT32_MAX;

/* Whether a value of this shape has at most MAX_ELEMENTS elements in the largest step. */
static bool fits(const Graph *g, Shape s)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < s.rank; i++) {
        const int64_t rows = s.dim[i].kind == DIM_T   ? g->limits.tokens
                             : s.dim[i].kind == DIM_S ? g->limits.sequences
                                                      : 1;

        if (__builtin_mul_overflow(n, s.dim[i].n, &n) || __builtin_mul_overflow(n, rows, &n) || n > MAX_ELEMENTS)
            return false;
    }
    return true;
}

static bool verify_limits(const Graph *g, Diag *d)
{
    const Limits *l = &g->limits;
    const struct {
        const char *name;
        int64_t value, least;
    } all[] = {
        {"sequences", l->sequences, 1},
        {"context", l->context, 1},
        {"tokens", l->tokens, 1},
        {"kv_block", l->kv_block, 1},
        {"kv_pages", l->kv_pages, g->kind != FTX_MODEL_ENCODER},
        {"logit_bias", l->logit_bias, 0},
        {"end_ids", l->end_ids, 0},
        {"bad_words", l->bad_words, 0},
        {"source", l->source, 0},
        {"sources", l->sources, l->source > 0},
        {"beams", l->beams, 0},
        {"snapshots", l->snapshots, 0},
        {"ranks", l->ranks, 0},
    };

    for (size_t i = 0; i < LEN(all); i++)
        if (all[i].value < all[i].least || all[i].value > MAX_LIMIT)
            return diag_error(d, (Loc){0}, "limits: %s is %lld, it must be %lld to %lld", all[i].name,
                              (long long)all[i].value, (long long)all[i].least, (long long)MAX_LIMIT);
    return true;
}

static bool verify_value(const Graph *g, Id id, Diag *d)
{
    const Value *v = ir_value(g, id);
    Shape shape = v->shape;
    DType type;

    if (!fits(g, v->shape))
        return diag_error(d, v->loc,
                          "%%%u = %s: %s has too many elements: lower limits.tokens or the sizes of the model", id,
                          ir_op_name(v->op), ir_shape_text(g->scratch, v->shape));
    for (int i = 0; i < IR_MAX_ARGS; i++)
        if (v->args[i] >= id)
            return diag_error(d, v->loc, "%%%u = %s: %%%u is not computed before it", id, ir_op_name(v->op),
                              v->args[i]);
    for (uint32_t i = 1; i < v->n_attrs; i++)
        if (strcmp(v->attrs[i - 1].name, v->attrs[i].name) >= 0)
            return diag_error(d, v->loc, "%%%u: attribute %s is given twice, or attributes are not sorted", id,
                              v->attrs[i].name);
    if (!ir_infer(g, v->op, v->args, v->attrs, v->n_attrs, v->type, v->loc, &shape, &type, d))
        return false;
    if (!ir_shape_equal(shape, v->shape))
        return diag_error(d, v->loc, "%%%u = %s: the declared shape is %s, the op gives %s", id, ir_op_name(v->op),
                          ir_shape_text(g->scratch, v->shape), ir_shape_text(g->scratch, shape));
    if (type != v->type)
        return diag_error(d, v->loc, "%%%u = %s: the declared type is %s, the op gives %s", id, ir_op_name(v->op),
                          dtype_name(v->type), dtype_name(type));
    if (v->type == DT_NONE && g->facts & IR_PRECISE)
        return diag_error(d, v->loc, "%%%u = %s has no type after precision", id, ir_op_name(v->op));
    if (v->type == DT_I32 && v->op != OP_IDS && v->op != OP_ROUTE && v->op != OP_MASK && v->op != OP_SAMPLE &&
        v->op != OP_BEAM)
        return diag_error(d, v->loc, "%%%u = %s: only ids and tokens are integers", id, ir_op_name(v->op));
    return true;
}

/* The decoder may read the encoder only through the keys and values of the source: the two run in different programs,
 * over different tokens. */
static bool verify_sides(const Graph *g, Diag *d)
{
    const bool *encoder = ir_encoder_side(g);

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);

        for (int i = 0; i < IR_MAX_ARGS && !encoder[id]; i++) {
            const Op from = ir_value(g, v->args[i])->op;

            if (v->args[i] && encoder[v->args[i]] && !ir_op_is_weight(from) && from != OP_IDS && v->op != OP_ATTEND &&
                v->op != OP_ATTEND_CROSS)
                return diag_error(d, v->loc,
                                  "%%%u = %s reads %%%u = %s of the encoder; the decoder sees it through "
                                  "attend_cross only",
                                  id, ir_op_name(v->op), v->args[i], ir_op_name(from));
        }
        if (g->kind != FTX_MODEL_SEQ2SEQ && (v->op == OP_CROSS_CACHE || v->op == OP_CROSS_APPEND))
            return diag_error(d, v->loc, "%%%u = %s needs a graph of kind seq2seq", id, ir_op_name(v->op));
        if ((v->op == OP_PREVIOUS || v->op == OP_NEIGHBOURS) && !encoder[id])
            return diag_error(d, v->loc, "%%%u = %s stands in an encoder, whose steps have whole texts", id,
                              ir_op_name(v->op));
        if (g->kind != FTX_MODEL_DECODER && ir_op_is_recurrent(v->op))
            return diag_error(d, v->loc, "%%%u = %s needs a graph of kind decoder", id, ir_op_name(v->op));
        if (g->limits.beams > 1 && ir_op_is_recurrent(v->op))
            return diag_error(
                d, v->loc,
                "%%%u = %s: beams share what they have in common, and a recurrent state cannot be shared; "
                "leave out beams",
                id, ir_op_name(v->op));
        if (g->kind == FTX_MODEL_ENCODER && (v->op == OP_CACHE || v->op == OP_APPEND || v->op == OP_SAMPLE))
            return diag_error(d, v->loc, "%%%u = %s cannot stand in an encoder", id, ir_op_name(v->op));
    }
    return true;
}

bool ir_verify(const Graph *g, Diag *d)
{
    const Loc nowhere = {0};

    if (!verify_limits(g, d))
        return false;
    for (Id id = 1; id < g->values.n; id++)
        if (!verify_value(g, id, d))
            return false;
    if (!g->output || g->output >= g->values.n)
        return diag_error(d, nowhere, "the graph has no output");
    if (g->logits != ir_logits(g))
        return diag_error(d, nowhere, "the logits are %%%u, the output reads another value", g->logits);
    if (g->pooled >= g->values.n || (g->pooled && g->kind != FTX_MODEL_ENCODER))
        return diag_error(d, nowhere, "pooled: %%%u is not a value of an encoder", g->pooled);
    if (g->states >= g->values.n || (g->states && g->kind != FTX_MODEL_DECODER))
        return diag_error(d, nowhere, "states: %%%u is not a value of a decoder", g->states);
    if (g->states) {
        const Shape h = ir_value(g, g->states)->shape;

        if (h.rank != 2 || h.dim[0].kind != DIM_T || h.dim[1].kind != DIM_CONST)
            return diag_error(d, nowhere, "states is %s, it must be [T,D]", ir_shape_text(g->scratch, h));
    }
    if (g->entry >= g->values.n || (g->entry && (g->kind != FTX_MODEL_ENCODER || g->entry == g->output)))
        return diag_error(d, nowhere, "entry: %%%u is not an inner value of an encoder", g->entry);
    if (g->entry) {
        const Shape e = ir_value(g, g->entry)->shape;

        if (e.rank != 2 || e.dim[0].kind != DIM_T || e.dim[1].kind != DIM_CONST)
            return diag_error(d, nowhere, "entry is %s, it must be [T,D]", ir_shape_text(g->scratch, e));
    }
    if (g->kind == FTX_MODEL_ENCODER) {
        const Shape h = ir_value(g, g->output)->shape, p = ir_value(g, g->pooled)->shape;

        if (h.rank != 2 || h.dim[0].kind != DIM_T || h.dim[1].kind != DIM_CONST)
            return diag_error(d, nowhere, "the output of an encoder is %s, it must be [T,D]",
                              ir_shape_text(g->scratch, h));
        if (g->pooled && (p.rank != 2 || p.dim[0].kind != DIM_S || p.dim[1].kind != DIM_CONST))
            return diag_error(d, nowhere, "pooled is %s, it must be [S,D]", ir_shape_text(g->scratch, p));
    }
    if (!verify_sides(g, d))
        return false;
    return true;
}
