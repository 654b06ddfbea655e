/* lower.c - the state of one target before its first stage, and where its weights are packed. */
#include "lower.h"

#include <string.h>

/* The first linear that reads what linear v reads. */
static Id first_product(const Graph *g, Id v)
{
    const Id x = ir_value(g, v)->args[0];

    for (Id id = x + 1; id < v; id++)
        if (ir_value(g, id)->op == OP_LINEAR && ir_value(g, id)->args[0] == x)
            return id;
    return v;
}

static bool is_attention(Op op)
{
    return op == OP_ATTEND || op == OP_ATTEND_PAGED || op == OP_ATTEND_CROSS;
}

/* Whether v reads a cache that an earlier layer wrote and has read: has_read[i] says whether cache i was read before v. */
static bool shares_cache(const Graph *g, Id v, bool *has_read)
{
    const Value *value = ir_value(g, v);
    const bool paged =
        value->op == OP_ATTEND_PAGED || (value->op == OP_ATTEND && ir_value(g, value->args[1])->op == OP_CACHE);
    const int64_t cache = paged ? ir_int(value, "layer") : 0;
    const bool before = paged && cache < (int64_t)g->values.n && has_read[cache];

    if (paged && cache < (int64_t)g->values.n)
        has_read[cache] = true;
    return before;
}

/* The layer of each value, for labels. A layer begins with the values that only its attention reads (norm, product) and
 * ends where the next one begins; select_last ends the last. -1: before or after the layers, or a weight. */
static int *find_layers(const Graph *g, Arena *keep)
{
    int *layer = arena_array(keep, int, g->values.n), now = -1, texts = 0, cached = 0;
    int *begins = arena_array(keep, int, g->values.n);
    bool *has_read = arena_array(g->scratch, bool, g->values.n);
    const uint32_t *uses = ir_uses(g);
    bool states = false; /* recurrent ones */

    for (Id v = 1; v < g->values.n; v++) {
        begins[v] = -1;
        states = states || ir_op_is_recurrent(ir_value(g, v)->op);
    }
    for (Id v = 1; v < g->values.n; v++) {
        Id first = v;
        const Op op = ir_value(g, v)->op;
        const bool full = op == OP_ATTEND_PACKED || (op == OP_ATTEND && ir_value(g, v)->args[2]);
        const bool source = op == OP_CROSS_APPEND || op == OP_CROSS_CACHE, shares = shares_cache(g, v, has_read);

        if (states && (op == OP_APPEND || op == OP_CACHE || ir_op_is_recurrent(op))) {
            first = ir_layer_begin(g, v);
            begins[first] = begins[first] < 0 ? cached++ : begins[first];
            continue;
        }
        if (op != OP_APPEND && op != OP_CACHE && !source && !full && !shares)
            continue;
        for (Id x = ir_value(g, v)->args[0];
             x && uses[x] == 1 && ir_value(g, x)->op != OP_EMBED && ir_value(g, x)->op != OP_EMBED_PART &&
             !(shares && is_attention(ir_value(g, x)->op));
             x = ir_value(g, x)->args[0])
            first = x;
        if (op == OP_CACHE) /* the product that makes the queries stands before that of the keys */
            first = first_product(g, first);
        begins[first] = full ? texts++ : source ? (int)ir_int(ir_value(g, v), "layer") : cached++;
    }
    for (Id v = 1; v < g->values.n; v++) {
        if (begins[v] >= 0)
            now = begins[v];
        switch (ir_value(g, v)->op) {
        case OP_EMBED:
        case OP_EMBED_PART:
        case OP_SELECT_FIRST:
        case OP_SELECT_LAST:
        case OP_SELECT_ID:
        case OP_POOL_MEAN: now = -1; break;
        default: break;
        }
        layer[v] = ir_op_is_weight(ir_value(g, v)->op) ? -1 : now;
    }
    return layer;
}

void lower_open(Lower *l, const Graph *g, const Catalog *c, Target t, const Precision *p, Packing *packing, Plan *plan)
{
    *l = (Lower){.source = g,
                 .catalog = c,
                 .target = t,
                 .precision = p,
                 .packing = packing,
                 .plan = plan,
                 .keep = g->keep,
                 .scratch = g->scratch};
    uint32_t n;

    l->compute = precision_compute(p, t);
    l->kv = p->kv ? p->kv : l->compute;
    l->cross_kv = dtype_is_code(l->kv) ? l->compute : l->kv;
    l->g = arena_new(l->keep, Graph);
    *l->g = *g;
    l->g->values.at = arena_array(l->keep, Value, g->values.n);
    l->g->values.cap = g->values.n;
    memcpy(l->g->values.at, g->values.at, sizeof *g->values.at * g->values.n);
    precision_apply(l->g, p, l->compute);
    l->layer = find_layers(l->g, l->keep);
    n = l->g->values.n; /* precision_apply may have added one */
    l->encoder = arena_array(l->keep, bool, n);
    memcpy(l->encoder, ir_encoder_side(l->g), sizeof *l->encoder * n);
    l->after = arena_array(l->keep, bool, n);
    memcpy(l->after, ir_after_entry(l->g), sizeof *l->after * n);
    l->weight_forms = arena_array(l->keep, WeightForm, n);
    sums_open(l);
    lower_add_programs(l);
    *plan = (Plan){.target = t};
    plan->head.target = t.id;
    plan->head.weight_type = p->quant.type ? p->quant.type : p->weights ? p->weights : DT_FP32;
    plan->head.compute_type = l->compute;
    *(const char **)arena_push(l->keep, plan->strings) = "";
    plan->head.name = (uint32_t)plan->strings.n;
    *(const char **)arena_push(l->keep, plan->strings) = t.name;
    plan->head.device = t.device ? (uint32_t)plan->strings.n : 0;
    if (t.device)
        *(const char **)arena_push(l->keep, plan->strings) = t.device;
}

bool lower_is_packed(const Lower *l, const Binding *b, size_t i)
{
    const Op op = ir_value(l->g, b->arg[i])->op;

    return ir_op_is_weight(op) && (op != OP_QUANTISE || b->form[i]);
}

size_t lower_packed_at(const Lower *l, const Program *p, const Binding *b, size_t i)
{
    const Fold fold = contract_arg_fold(b, i);
    const DType type = contract_arg_type(&p->facts, b, i);

    for (size_t k = 0; k < l->packing->weights.n; k++) {
        const PackedWeight *w = &l->packing->weights.at[k];

        if (w->value == b->arg[i] && w->type == type && w->fold.gain == fold.gain && w->fold.matrix == fold.matrix &&
            w->fold.shift == fold.shift && w->form == b->form[i])
            return k;
    }
    return SIZE_MAX;
}
