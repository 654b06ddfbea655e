/* precision.c - a storage type on every value.
 *
 *   matrices        precision.weights      what the checkpoint holds is converted when packed
 *   vectors, tables fp32                   they are small, and gains of 1 + tiny stay exact
 *   activations     the compute type       sums are fp32 in every kernel
 *   logits          fp32                   and what lies between the last product and them; so the
 *   hidden, pooled  fp32                   vectors that an encoder gives
 *
 * The compute type may differ by target (auto: fp32 on the CPU, the weights' type on CUDA); the
 * graph itself shows the CPU's, each target retypes a copy. */
#include "lower.h"

DType precision_compute(const Precision *p, Target t)
{
    if (p->compute)
        return p->compute;
    return t.id == FTX_TARGET_CPU || !p->weights ? DT_FP32 : p->weights;
}

/* A result of the model, and what lies between it and the product that it is made of. */
static void make_fp32(Graph *g, Id id)
{
    for (; id; id = ir_value(g, id)->args[0]) {
        const Op op = ir_value(g, id)->op;

        ir_value(g, id)->type = DT_FP32;
        if (op != OP_SCALE && op != OP_ACT && op != OP_ADD && op != OP_MUL && op != OP_NORMALIZE)
            break;
    }
}

void precision_apply(Graph *g, const Precision *p, DType compute)
{
    const DType matrix = p->weights ? p->weights : DT_FP32;

    for (Id id = 1; id < g->values.n; id++) {
        Value *v = ir_value(g, id);

        if (v->op == OP_WEIGHT)
            v->type = v->shape.rank == 1 ? DT_FP32 : matrix;
        else if (v->op == OP_ROPE_TABLE || v->op == OP_SINUSOID)
            v->type = DT_FP32;
        else if (v->op == OP_IDS || v->op == OP_SAMPLE || v->op == OP_BEAM)
            v->type = DT_I32;
        else if (ir_op_is_weight(v->op))
            v->type = ir_value(g, v->args[0])->type;
        else
            v->type = compute;
    }
    make_fp32(g, g->logits);
    make_fp32(g, g->pooled);
    if (g->kind == FTX_MODEL_ENCODER)
        ir_value(g, g->output)->type = DT_FP32;
}

bool pass_precision(Graph *g, const Precision *p, Diag *d)
{
    (void)d;
    precision_apply(g, p, precision_compute(p, (Target){FTX_TARGET_CPU, "cpu"}));
    return true;
}
