/* precision.c - a storage type on every value.
 *
 *   matrices        precision.weights   converted from the checkpoint's type when they are packed
 *   vectors, tables fp32                they are small, and gains near 1 keep all their digits
 *   activations     the compute type    kernels sum in fp32 whatever the type
 *   logits, pooled, states  fp32                and the values between the last product and them; a router's logits, too
 *   hidden          fp32                the hidden states that an encoder returns; where linear layers read them, too, these read
 *                                       the same values in the compute type
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

/* Makes a result of the model fp32, and the values between it and the last product. */
static void make_fp32(Graph *g, Id id)
{
    for (; id; id = ir_value(g, id)->args[0]) {
        const Op op = ir_value(g, id)->op;

        ir_value(g, id)->type = DT_FP32;
        if (op != OP_SCALE && op != OP_ACT && op != OP_ADD && op != OP_MUL && op != OP_NORMALIZE &&
            op != OP_ALL_REDUCE && op != OP_ALL_GATHER && op != OP_GATHER_LOGITS)
            break;
    }
}

/* Hidden states that a linear layer reads are computed once more: as fp32 no kernel takes them beside weights of 16 bits. */
static void make_hidden_fp32(Graph *g)
{
    const Id read = g->output;
    bool by_linear = false;

    for (Id id = read + 1; id < g->values.n; id++)
        by_linear = by_linear || (ir_value(g, id)->op == OP_LINEAR && ir_value(g, id)->args[0] == read);
    if (by_linear && ir_value(g, read)->type != DT_FP32) {
        const Value v = *ir_value(g, read);

        g->output = ir_value_add(g, v.op, v.args, v.shape, v.type, v.loc);
        ir_value(g, g->output)->attrs = v.attrs;
        ir_value(g, g->output)->n_attrs = v.n_attrs;
    }
    ir_value(g, g->output)->type = DT_FP32;
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
            make_fp32(g, ir_value(g, id)->args[0]);
    make_fp32(g, g->logits);
    make_fp32(g, g->pooled);
    make_fp32(g, g->states);
    if (g->kind == FTX_MODEL_ENCODER)
        make_hidden_fp32(g);
}

bool pass_precision(Graph *g, const Precision *p, Diag *d)
{
    if (!quantise_weights(g, &p->quant, d))
        return false;
    precision_apply(g, p, p->compute ? p->compute : DT_FP32);
    return true;
}
