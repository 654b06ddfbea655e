/* precision.c - a storage type on every value.
 *
 *   matrices        precision.weights   converted from the checkpoint's type when they are packed
 *   vectors, tables fp32                they are small, and gains near 1 keep all their digits
 *   activations     the compute type    kernels sum in fp32 whatever the type
 *   logits, pooled  fp32                and the values between the last products and them; a router's logits, too
 *   hidden, states  fp32                rows that an encoder or a decoder returns
 *
 * A kernel that cannot read fp32, such as that of a linear layer with weights of 16 bits, or that writes the type it reads, as
 * most do, must not meet a value that is fp32 for its result's sake: then the result is a value of its own beside the other.
 *
 *   %9 = add %7 %8 : [T,C] bf16                 the last op of an encoder
 *   %10 = scale %9 {by=1} : [T,C] fp32          what it returns
 *
 *   quantised       int8, int4, fp8     of weights that are stored as codes (quantise.c)
 *
 * The compute type depends on the target: fp32 on the CPU (where bf16 rounds rows as linears read them, linear.c), on CUDA
 * precision.compute or, with auto, precision.weights. The graph itself has the
 * types of the CPU; each target gives its own to a copy. */
#include "lower.h"

DType precision_compute(const Precision *p, Target t)
{
    if (t.id == FTX_TARGET_CPU)
        return DT_FP32;
    return p->compute ? p->compute : p->weights ? p->weights : DT_FP32;
}

/* What the kernels of an op can do beside computing in one type. */
enum {
    READS = 1,   /* their first argument may be fp32, whatever they write */
    WRITES = 2,  /* their result may be fp32, whatever they read */
    CARRIES = 4, /* on the way from a product to a result: as cheap in fp32 */
};

static int types_of(Op op)
{
    switch (op) {
    case OP_LINEAR:
    case OP_HEAD_LINEAR:
    case OP_EXPERT_SUM:
    case OP_EMBED:
    case OP_EMBED_PART:
    case OP_POSITIONS:
    case OP_ROUTE_WEIGHTS: return WRITES;
    case OP_SAMPLE:
    case OP_BEAM:
    case OP_MASK:
    case OP_ROUTE: return READS;
    case OP_RMSNORM:
    case OP_LAYERNORM:
    case OP_ROW_RMS:
    case OP_SELECT_FIRST:
    case OP_SELECT_LAST:
    case OP_SELECT_ID:
    case OP_POOL_MEAN: return READS | WRITES;
    case OP_SCALE:
    case OP_NORMALIZE:
    case OP_ALL_REDUCE: return READS | WRITES | CARRIES;
    case OP_ADD:
    case OP_MUL:
    case OP_ACT:
    case OP_GLU:
    case OP_GLU_CLAMPED:
    case OP_XIELU:
    case OP_CLAMP:
    case OP_SLICE:
    case OP_JOIN:
    case OP_SCALE_BY_POSITION:
    case OP_SPLIT_HEADS:
    case OP_JOIN_HEADS:
    case OP_ALL_GATHER:
    case OP_GATHER_LOGITS: return CARRIES;
    default: return 0; /* attention, recurrences, caches, experts before their sum: one type */
    }
}

/* Whether reader r can read its argument i in fp32. inside: values that are to be fp32. */
static bool reads_fp32(const Graph *g, Id r, int i, const bool *inside)
{
    const int types = types_of(ir_value(g, r)->op);

    return (inside[r] && types & CARRIES) || (i == 0 && types & READS);
}

static bool all_read_fp32(const Graph *g, Id id, const bool *inside)
{
    for (Id r = id + 1; r < g->values.n; r++)
        for (int i = 0; i < IR_MAX_ARGS; i++)
            if (ir_value(g, r)->args[i] == id && !reads_fp32(g, r, i, inside))
                return false;
    return true;
}

/* Marks the values from a result back to the last products. False: they cannot all be fp32. */
static bool mark(const Graph *g, Id id, bool *inside)
{
    const Value *v = ir_value(g, id);
    bool can = true;

    if (ir_op_is_weight(v->op) || inside[id])
        return true;
    inside[id] = true;
    if (!(types_of(v->op) & CARRIES))
        return types_of(v->op) & WRITES;
    for (int i = 0; i < IR_MAX_ARGS && v->args[i]; i++)
        can &= mark(g, v->args[i], inside);
    return can;
}

/* Makes a result fp32, and all between it and the last products. False: not all of them can be; with `always` they are all the
 * same, and the planner says which no kernel computes. */
static bool make_fp32(Graph *g, Id result, bool always)
{
    bool *inside = arena_array(g->scratch, bool, g->values.n), can;

    if (!result || ir_value(g, result)->type == DT_FP32)
        return true;
    can = mark(g, result, inside);
    for (Id id = 1; id <= result; id++)
        can &= !inside[id] || all_read_fp32(g, id, inside);
    for (Id id = 1; id <= result && (can || always); id++)
        if (inside[id])
            ir_value(g, id)->type = DT_FP32;
    return can;
}

/* The same in fp32, as a value of its own: a norm is computed once more, of others a copy is made. */
static Id append_fp32(Graph *g, Id id)
{
    const Value v = *ir_value(g, id);
    const bool norm = ir_op_is_norm(v.op);
    const Id made =
        ir_value_add(g, norm ? v.op : OP_SCALE, norm ? v.args : (Id[IR_MAX_ARGS]){id}, v.shape, DT_FP32, v.loc);

    if (!norm) {
        ir_attr_float(g, made, "by", 1);
        return made;
    }
    ir_value(g, made)->attrs = v.attrs;
    ir_value(g, made)->n_attrs = v.n_attrs;
    return made;
}

/* A result in fp32, what it is computed from in the compute type: that may reach back to the embedding, sum by sum. */
static Id fp32_beside(Graph *g, Id id)
{
    const bool *none = arena_array(g->scratch, bool, g->values.n);

    if (!id || ir_value(g, id)->type == DT_FP32)
        return id;
    if (!(types_of(ir_value(g, id)->op) & WRITES) || !all_read_fp32(g, id, none))
        return append_fp32(g, id);
    ir_value(g, id)->type = DT_FP32;
    return id;
}

void precision_apply(Graph *g, const Precision *p, DType compute)
{
    const DType matrix = p->weights ? p->weights : DT_FP32;

    for (Id id = 1; id < g->values.n; id++) {
        Value *v = ir_value(g, id);

        if (v->op == OP_WEIGHT)
            v->type = v->shape.rank == 1 ? DT_FP32 : matrix;
        else if (ir_op_is_table(v->op) || v->op == OP_DISTANCE_BIAS)
            v->type = DT_FP32;
        else if (v->op == OP_IDS || v->op == OP_ROUTE || v->op == OP_MASK || v->op == OP_SAMPLE || v->op == OP_BEAM)
            v->type = DT_I32;
        else if (v->op == OP_QUANTISE)
            v->type = dtype_parse(ir_word(v, "to"));
        else if (ir_op_is_weight(v->op))
            v->type = ir_value(g, v->args[0])->type;
        else
            v->type = compute;
    }
    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_ROUTE)
            make_fp32(g, ir_value(g, id)->args[0], true);
    make_fp32(g, g->logits, true);
    if (!make_fp32(g, g->pooled, false))
        g->pooled = fp32_beside(g, g->pooled);
    g->states = fp32_beside(g, g->states);
    if (g->kind == FTX_MODEL_ENCODER)
        g->output = fp32_beside(g, g->output);
}

bool pass_precision(Graph *g, const Precision *p, Diag *d)
{
    if (!quantise_weights(g, &p->quant, d))
        return false;
    precision_apply(g, p, p->compute ? p->compute : DT_FP32);
    return true;
}
