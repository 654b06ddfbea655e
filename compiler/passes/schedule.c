/* schedule.c - the launch list of every program: groups in the order of computation, one instance for those with equal
 * constants, and the kind of every operand. memory.c adds the offsets. */
#include <assert.h>
#include <string.h>

#include "lower.h"

/* --- labels ----------------------------------------------------------------------------------------- */

/* The role of a linear in the model, from its reader and its input. */
static const char *linear_role(const Graph *g, Id v)
{
    Op reader = OP_NONE;

    for (Id id = v + 1; id < g->values.n && !reader; id++)
        if (ir_value(g, id)->args[0] == v || ir_value(g, id)->args[1] == v)
            reader = ir_value(g, id)->op;
    const Op x = ir_value(g, ir_base(g, ir_value(g, v)->args[0]))->op;

    return v == g->logits || reader == OP_ALL_GATHER || reader == OP_GATHER_LOGITS ? "lm head"
           : reader == OP_APPEND || reader == OP_ATTEND_PACKED                     ? "qkv"
           : reader == OP_ROUTE                                                    ? "router"
           : reader == OP_CROSS_APPEND                                             ? "keys and values"
           : reader == OP_ATTEND_CROSS                                             ? "query"
           : reader == OP_SPLIT_HEADS                                              ? "heads"
           : x == OP_SELECT_FIRST || x == OP_SELECT_ID || x == OP_POOL_MEAN        ? "pooler"
           : reader == OP_GLU                                                      ? "gate and up"
           : reader == OP_ACT                                                      ? "up"
           : x == OP_ATTEND_PAGED || x == OP_ATTEND_PACKED || x == OP_ATTEND_CROSS ? "out"
           : x == OP_ATTEND                                                        ? "out"
           : x == OP_GLU || x == OP_ACT                                            ? "down"
                                                                                   : "linear";
}

static const char *role(const Graph *g, Id v)
{
    const Value *value = ir_value(g, v);

    switch (value->op) {
    case OP_LINEAR: return linear_role(g, v);
    case OP_RMSNORM:
    case OP_LAYERNORM: return "norm";
    case OP_ACT:
    case OP_GLU: return ir_word(value, "kind");
    case OP_ADD:
        return ir_value(g, value->args[0])->op == OP_POSITIONS || ir_value(g, value->args[1])->op == OP_POSITIONS
                   ? "add"
                   : "residual";
    case OP_ATTEND_PAGED:
    case OP_ATTEND_PACKED: return "attention";
    case OP_ATTEND_CROSS: return "attention to the source";
    case OP_EXPERT_LINEAR: return "experts";
    case OP_EXPERT_SUM: return "experts, down";
    case OP_IDS:
    case OP_SPLIT_HEADS:
    case OP_JOIN_HEADS: return NULL;
    default: return ir_op_name(value->op);
    }
}

const char *lower_describe(const Lower *l, const Group *g, Arena *a)
{
    const char *list = "";

    for (Id v = 1; v < l->g->values.n; v++) /* in the order of computation */
        for (uint32_t i = 0; i < g->b.n_covered; i++)
            if (g->b.covered[i] == v && role(l->g, v))
                list = arena_printf(a, "%s%s%s", list, *list ? ", " : "", role(l->g, v));
    if (!*list || strcmp(list, g->b.contract->family) == 0)
        return g->b.contract->family;
    return arena_printf(a, "%s (%s)", g->b.contract->family, list);
}

/* --- operands ---------------------------------------------------------------------------------------- */

/* The layer whose KV pages a group reads or writes: that of its op with a layer. */
static int64_t layer_of(const Lower *l, const Binding *b)
{
    for (uint32_t i = 0; i < b->n_covered; i++) {
        const Value *v = ir_value(l->g, b->covered[i]);

        if (v->op == OP_APPEND || v->op == OP_ATTEND_PAGED || v->op == OP_CACHE || v->op == OP_ATTEND ||
            v->op == OP_CROSS_APPEND || v->op == OP_CROSS_CACHE || v->op == OP_ATTEND_CROSS ||
            ir_op_is_recurrent(v->op))
            return ir_int(v, "layer");
    }
    return 0;
}

/* Bytes of one part of v. */
static int64_t part_bytes(const Lower *l, const Program *p, Id v, uint32_t part)
{
    const Value *value = ir_value(l->g, v);
    const int64_t elements = ir_shape_elements(value->shape, p->facts.t_max, p->facts.s_max);
    const int64_t columns = value->shape.dim[value->shape.rank - 1].n;
    const uint32_t form = part / MAX_PARTS, k = part % MAX_PARTS;
    const Form *f = &l->catalog->forms[form];
    int64_t bytes;

    if (!k && !f->instead)
        return elements * (int64_t)dtype_size(value->op == OP_QUANTISE ? l->compute : value->type);
    if (!form_bytes(k ? f->companions.at[k - 1].bytes : f->instead, elements / columns, columns,
                    facts_param(&p->facts, v, form), &bytes))
        die("form %s: bytes of %s cannot be computed", f->name, k ? f->companions.at[k - 1].name : "an element");
    return k ? bytes : elements * bytes;
}

/* The operand of an argument that is a value in the workspace, or a companion of one. */
static Operand value_operand(const Lower *l, const Program *p, const Group *g, size_t i, Operand o)
{
    const ContractArg *a = &g->b.contract->args.at[i];
    const uint32_t form = g->b.form[i];

    o.kind = OPERAND_VALUE;
    o.part = a->of >= 0                        ? lower_part(a->form, a->companion + 1)
             : l->catalog->forms[form].instead ? lower_part(form, 0)
                                               : PLAIN_PART;
    o.bytes = part_bytes(l, p, o.value, o.part);
    return o;
}

static uint32_t zeroed_at(Lower *l, const Contract *c, uint32_t at, int64_t bytes)
{
    size_t i = 0;

    while (i < l->zeroed.n && (l->zeroed.at[i].contract != c || l->zeroed.at[i].at != at))
        i++;
    if (i == l->zeroed.n)
        *arena_push(l->keep, l->zeroed) = (Zeroed){.contract = c, .at = at};
    if ((uint64_t)bytes > l->zeroed.at[i].bytes)
        l->zeroed.at[i].bytes = (uint64_t)bytes;
    return (uint32_t)i;
}

static bool is_cache(Op op)
{
    return op == OP_CACHE || op == OP_CROSS_CACHE || op == OP_CROSS_APPEND;
}

static Operand operand_of(const Lower *l, const Program *p, const Group *g, size_t i)
{
    const ContractArg *a = &g->b.contract->args.at[i];
    const Id v = ir_base(l->g, g->b.arg[i]);
    Operand o = {.value = v, .layer = -1, .tiled = contract_arg_tiled(&g->b, &g->fit, i)};

    if (a->named >= 0) {
        o.kind = OPERAND_NAMED;
        o.at = (uint32_t)a->named;
        if (a->named == FTX_NAMED_k || a->named == FTX_NAMED_v || a->named == FTX_NAMED_cross_k ||
            a->named == FTX_NAMED_cross_v || a->named == FTX_NAMED_recurrent)
            o.layer = layer_of(l, &g->b);
    } else if (v && a->of >= 0) {
        return value_operand(l, p, g, i, o);
    } else if (v && is_cache(ir_value(l->g, v)->op)) {
        o.kind = OPERAND_NULL; /* its value is in $k and $v, or in $cross_k and $cross_v */
    } else if (v && v == l->g->entry && p->facts.hidden) {
        o.kind = OPERAND_NAMED;
        o.at = FTX_NAMED_input;
    } else if (v && v == l->g->pooled) {
        o.kind = OPERAND_NAMED;
        o.at = FTX_NAMED_pooled;
    } else if (v && (v == l->g->states || (v == l->g->output && l->g->kind == FTX_MODEL_ENCODER))) {
        o.kind = OPERAND_NAMED;
        o.at = FTX_NAMED_hidden;
    } else if (v && v == l->g->logits) {
        o.kind = OPERAND_NAMED;
        o.at = FTX_NAMED_logits;
    } else if (v && lower_is_packed(l, &g->b, i)) {
        o.kind = OPERAND_WEIGHT;
        o.at = (uint32_t)lower_packed_at(l, p, &g->b, i);
        assert(o.at < l->packing->weights.n); /* layout has packed it */
    } else if (v) {
        return value_operand(l, p, g, i, o);
    }
    return o;
}

static uint32_t instance_at(Lower *l, Instance *in)
{
    for (size_t i = 0; i < l->plan->instances.n; i++) {
        const Instance *other = l->plan->instances.at[i];

        if (other->contract == in->contract && strcmp(other->entry, in->entry) == 0)
            return (uint32_t)i;
    }
    *arena_push(l->keep, l->plan->instances) = in;
    return (uint32_t)l->plan->instances.n - 1;
}

static void launch(Lower *l, Program *p, const Group *g)
{
    const Contract *c = g->b.contract;
    const int layer = l->layer[g->b.root];
    const char *what = arena_printf(l->keep, "%s%s", lower_describe(l, g, l->keep), sums_text(l, g));
    Launch *to = arena_push(l->keep, p->launches);

    to->group = g;
    to->instance = instance_at(l, g->fit.instance);
    to->label = layer >= 0 ? arena_printf(l->keep, "layer %d: %s", layer, what) : what;
    to->operands = arena_array(l->keep, Operand, c->operands + c->scratch.n + c->zeroed.n);
    for (size_t i = 0; i < c->operands; i++)
        to->operands[to->n_operands++] = operand_of(l, p, g, i);
    for (size_t i = 0; i < c->scratch.n; i++)
        to->operands[to->n_operands++] =
            (Operand){.kind = OPERAND_SCRATCH, .at = (uint32_t)i, .bytes = g->fit.scratch[i]};
    for (size_t i = 0; i < c->zeroed.n; i++)
        to->operands[to->n_operands++] = (Operand){
            .kind = OPERAND_ZEROED, .at = zeroed_at(l, c, (uint32_t)i, g->fit.zeroed[i]), .bytes = g->fit.zeroed[i]};
}

/* Instances of contracts with `match none` that fit: no program launches them, the runtime does, by their family. */
static void add_unmatched(Lower *l)
{
    for (size_t i = 0; i < l->catalog->n; i++) {
        const Contract *c = l->catalog->at[i];
        const Binding b = {.contract = c};
        const char *reason;
        Fitted fit;

        if (!c->unmatched || l->target.id == FTX_TARGET_CPU)
            continue;
        if (contract_fit(&l->programs.at[0].facts, &b, l->keep, l->scratch, &fit, &reason))
            instance_at(l, fit.instance);
    }
}

bool stage_schedule(Lower *l, Diag *d)
{
    (void)d;
    for (size_t i = 0; i < l->programs.n; i++) {
        Program *p = &l->programs.at[i];

        for (size_t k = 0; k < p->groups.n; k++)
            launch(l, p, &p->groups.at[k]);
    }
    add_unmatched(l);
    return true;
}
