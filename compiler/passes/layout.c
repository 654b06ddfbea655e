/* layout.c - the offset of every weight in the packed block.
 *
 * One block serves all programs and targets. Weights are row-major, quantised ones lie in tiles (packed.h). A weight that
 * is read in two types or forms, or both folded and unfolded, is packed twice; random weights are the same in both. Weights
 * are packed in the order of their first use, so the hot loop reads memory forward. */
#include "../../runtime/base/packed.h"
#include "lower.h"

enum { WEIGHT_ALIGN = 256 };

/* The kind of a weight, by its shape and its readers: `show` prints it, and random weights depend on it. */
static FtxWeightKind kind_of(const Graph *g, Id w)
{
    if (ir_op_is_table(ir_value(g, w)->op == OP_PART ? ir_value(g, ir_value(g, w)->args[0])->op : ir_value(g, w)->op))
        return FTX_WEIGHT_TABLE;
    if (ir_value(g, w)->shape.rank > 1)
        return FTX_WEIGHT_MATRIX;
    for (Id v = w + 1; v < g->values.n; v++)
        if (ir_op_is_norm(ir_value(g, v)->op) && ir_value(g, v)->args[1] == w)
            return FTX_WEIGHT_GAIN;
    return FTX_WEIGHT_BIAS;
}

static void pack(Lower *l, Id w, DType type, Fold fold, uint32_t form)
{
    Packing *p = l->packing;
    const Value *v = ir_value(l->g, w);
    const bool codes = v->op == OP_QUANTISE;
    const PackedScales scales = codes ? (PackedScales)ir_int(v, "scales") : PACKED_FP16;
    const int64_t elements = ir_shape_elements(v->shape, 0, 0), group = codes ? ir_int(v, "group") : 0;
    PackedWeight *to = arena_push(l->keep, p->weights);

    *to = (PackedWeight){.value = w,
                         .type = type,
                         .fold = fold,
                         .form = form,
                         .form_name = codes ? l->catalog->forms[form].name : NULL,
                         .group = group,
                         .scales = scales,
                         .kind = kind_of(l->g, w),
                         .offset = p->bytes,
                         .bytes = codes ? packed_tiles((uint64_t)v->shape.dim[0].n) *
                                              packed_tile(type, (uint64_t)v->shape.dim[1].n, (uint64_t)group, scales)
                                        : (uint64_t)elements * dtype_size(type)};
    p->bytes = (to->offset + to->bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
}

/* Random weights: a weight has the same numbers in each of its packings but those in codes; where a norm is folded into one of
 * them, which takes the mean of each row away, they are drawn with a mean of 0. */
static void match_packings(const Graph *g, Packing *p)
{
    for (size_t i = 0; i < p->weights.n; i++) {
        PackedWeight *w = &p->weights.at[i];
        const Shape *shape = &ir_value(g, w->value)->shape;
        size_t first = 0;

        while (p->weights.at[first].value != w->value || p->weights.at[first].form_name)
            if (++first == p->weights.n)
                break;
        if (w->form_name || first == p->weights.n)
            continue;
        w->like = first < i ? 1 + (uint32_t)first : 0;
        if (w->fold.gain && shape->dim[shape->rank - 1].n % 2 == 0)
            p->weights.at[first].kind = FTX_WEIGHT_CENTRED;
    }
    for (size_t i = 0; i < p->weights.n; i++)
        if (p->weights.at[i].like)
            p->weights.at[i].kind = p->weights.at[p->weights.at[i].like - 1].kind;
}

bool stage_layout(Lower *l, Diag *d)
{
    (void)d;
    for (size_t i = 0; i < l->programs.n; i++) {
        const Program *p = &l->programs.at[i];

        for (size_t k = 0; k < p->groups.n; k++) {
            const Binding *b = &p->groups.at[k].b;

            for (size_t a = 0; a < b->contract->operands; a++)
                if (b->arg[a] && lower_is_packed(l, b, a) && lower_packed_at(l, p, b, a) == SIZE_MAX)
                    pack(l, b->arg[a], contract_arg_type(&p->facts, b, a), contract_arg_fold(b, a), b->form[a]);
        }
    }
    match_packings(l->g, l->packing);
    return true;
}
