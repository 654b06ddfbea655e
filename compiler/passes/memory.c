/* memory.c - an offset for every buffer, then the plan in the artifact's structs.
 *
 *   STATE  named buffers of the engine, then the memory of `zeroed` lines
 *   PAGES  one page of the KV cache: the keys of all layers, then the values
 *   IO     what the host writes for a step, in the order of named.def; only the part in use is copied
 *   OUT    what the host reads
 *   WORK   values between launches, and scratch: packed by lifetime interval (planner.c) in each program; the
 *          workspace is as large as that of the largest program
 *
 * All offsets are multiples of 256. */
#include <assert.h>
#include <string.h>

#include "lower.h"
#include "planner.h"
#include "../../kernels/device/gather.h"
#include "../../kernels/device/io.h"
#include "../../runtime/artifact/sizes.h"

static const uint64_t ALIGN = 256;

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t plan_string(Lower *l, const char *s)
{
    Plan *p = l->plan;

    if (!p->strings.n)
        *(const char **)arena_push(l->keep, p->strings) = "";
    for (size_t i = p->strings.n; i > 0 && i + 64 > p->strings.n; i--) /* equal strings are close together */
        if (strcmp(p->strings.at[i - 1], s) == 0)
            return (uint32_t)(i - 1);
    *(const char **)arena_push(l->keep, p->strings) = s;
    return (uint32_t)p->strings.n - 1;
}

/* --- named buffers -------------------------------------------------------------------------------- */

static const FtxSpace named_space[] = {
#define NAMED(name, space, bytes, what) FTX_SPACE_##space,
#include "../../runtime/artifact/named.def"
#undef NAMED
};

/* The tokens that attention to a cache looks back, of several the most; 0: all. */
static int64_t window_of(const Graph *g, int64_t layer)
{
    int64_t most = 0;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);
        const bool paged = v->op == OP_ATTEND_PAGED || (v->op == OP_ATTEND && ir_value(g, v->args[1])->op == OP_CACHE);

        if (!paged || ir_int(v, "layer") != layer)
            continue;
        if (!ir_int(v, "window"))
            return 0;
        most = ir_int(v, "window") > most ? ir_int(v, "window") : most;
    }
    return most;
}

/* Adds the caches of the layers, or those of the source. Checks that layers are numbered from 0. */
static bool add_caches(const Lower *l, bool source, Diag *d)
{
    int64_t layer = 0;

    for (Id id = 1; id < l->g->values.n; id++) {
        const Value *v = ir_value(l->g, id);
        const bool heads = v->op == OP_CACHE || v->op == OP_CROSS_CACHE; /* k is [T,G,E] */

        if (source ? v->op != OP_CROSS_CACHE && v->op != OP_CROSS_APPEND : v->op != OP_CACHE && v->op != OP_APPEND)
            continue;
        if (ir_int(v, "layer") != layer)
            return diag_error(d, v->loc, "%s: this is layer %lld of the model, its attribute layer is %lld",
                              ir_op_name(v->op), (long long)layer, (long long)ir_int(v, "layer"));

        const int64_t kv_heads = heads ? v->shape.dim[1].n : ir_int(v, "kv_heads");
        const int64_t head_dim = heads ? v->shape.dim[2].n : ir_int(v, "head_dim");
        const int64_t inside = v->op == OP_CACHE ? ir_int(v, "v_dim") : 0;

        *arena_push(l->keep, l->plan->caches) = (FtxCache){.kv_heads = (uint32_t)kv_heads,
                                                           .k_dim = (uint32_t)head_dim,
                                                           .v_dim = (uint32_t)(inside ? inside : head_dim),
                                                           .inside = inside > 0,
                                                           .type = source ? l->cross_kv : l->kv,
                                                           .window = source ? 0 : (uint32_t)window_of(l->g, layer),
                                                           .source = source ? (uint32_t)l->g->limits.source : 0};
        layer++;
    }
    return true;
}

/* Adds the recurrent states, which are numbered from 0 as well. */
static bool add_recurrent(const Lower *l, Diag *d)
{
    int64_t layer = 0;

    for (Id id = 1; id < l->g->values.n; id++) {
        const Value *v = ir_value(l->g, id);

        if (!ir_op_is_recurrent(v->op))
            continue;
        if (ir_int(v, "layer") != layer)
            return diag_error(d, v->loc, "%s: this is recurrent state %lld of the model, its attribute layer is %lld",
                              ir_op_name(v->op), (long long)layer, (long long)ir_int(v, "layer"));

        FtxCache *c = arena_push(l->keep, l->plan->caches);

        *c = (FtxCache){.kv_heads = 1, .type = DT_FP32, .recurrent = 1};
        if (v->op == OP_RECUR) {
            c->kv_heads = (uint32_t)v->shape.dim[1].n;
            c->k_dim = (uint32_t)ir_value(l->g, v->args[0])->shape.dim[2].n;
            c->v_dim = (uint32_t)v->shape.dim[2].n;
        } else {
            c->k_dim = (uint32_t)ir_value(l->g, v->args[1])->shape.dim[1].n - 1;
            c->v_dim = (uint32_t)v->shape.dim[1].n;
        }
        layer++;
    }
    return true;
}

/* The bytes of a buffer for the largest exchange: the part of every rank. */
static uint64_t exchange_bytes(const Lower *l)
{
    uint64_t most = 0;

    for (Id id = 1; id < l->g->values.n; id++) {
        const Value *v = ir_value(l->g, id);
        const Value *x = ir_value(l->g, v->args[0]);
        const uint64_t elements = (uint64_t)ir_shape_elements(x->shape, l->g->limits.tokens, l->g->limits.sequences);
        const uint64_t bytes =
            v->op == OP_ALL_REDUCE || v->op == OP_ALL_GATHER ? elements * dtype_size(x->type)
            : v->op == OP_GATHER_LOGITS
                ? (uint64_t)(l->g->limits.sequences * GATHER_WORDS(x->shape.dim[1].n)) * sizeof(float)
                : 0;

        most = bytes > most ? bytes : most;
    }
    return aligned(most) * (uint64_t)ir_ranks(l->g);
}

/* On the CPU the host applies masks. */
static bool has_masks(const Lower *l)
{
    for (Id id = 1; id < l->g->values.n; id++)
        if (ir_value(l->g, id)->op == OP_MASK)
            return l->target.id != FTX_TARGET_CPU;
    return false;
}

static Sizes sizes_of(const Lower *l)
{
    const Graph *g = l->g;
    const Limits *m = &g->limits;
    Sizes s = {.S = m->sequences,
               .T = m->tokens,
               .C = m->context,
               .B = m->kv_block,
               .BIAS = m->logit_bias,
               .ENDS = m->end_ids,
               .WORDS = m->bad_words,
               .RING = FTX_OUT_RING,
               .SRC = m->source,
               .SOURCES = m->sources,
               .BEAMS = m->beams > 1 ? m->beams : 0,
               .SNAPSHOTS = m->snapshots,
               .RANKS = ir_ranks(g) - 1,
               .EXCHANGE = (int64_t)exchange_bytes(l),
               .MASKS = has_masks(l)};

    if (g->kind == FTX_MODEL_ENCODER)
        s.D = ir_value(g, g->output)->shape.dim[1].n;
    if (g->states)
        s.D = ir_value(g, g->states)->shape.dim[1].n;
    if (g->pooled)
        s.POOL = ir_value(g, g->pooled)->shape.dim[1].n;
    if (g->entry)
        s.IN = ir_value(g, g->entry)->shape.dim[1].n * (int64_t)dtype_size(l->compute);
    if (g->logits)
        s.V = ir_value(g, g->logits)->shape.dim[1].n;
    return s;
}

/* Adds a row to the plan's memory map. Named buffers are not in it: the plan's head has their offsets. */
static void record(Lower *l, const char *name, FtxSpace space, uint32_t program, uint32_t first, uint32_t last,
                   uint64_t offset, uint64_t bytes)
{
    const uint32_t at = plan_string(l, name);

    *arena_push(l->keep, l->plan->buffers) = (FtxBuffer){
        .name = at, .space = space, .program = program, .first = first, .last = last, .offset = offset, .bytes = bytes};
}

static bool place_named(Lower *l, Diag *d)
{
    FtxPlan *h = &l->plan->head;
    Sizes s = sizes_of(l);
    FtxError err;

    if (!add_caches(l, false, d) || !add_caches(l, true, d) || !add_recurrent(l, d))
        return false;
    if (sizes_caches(&s, l->plan->caches.at, l->plan->caches.n, &err))
        return diag_error(d, (Loc){0}, "memory: %s", err.text);
    h->exchange = (uint64_t)s.EXCHANGE;
    for (int i = 0; i < FTX_NAMED_COUNT; i++) {
        uint64_t *end = &h->space_bytes[named_space[i]];

        if (sizes_named(&s, i, &h->named_bytes[i], &err))
            return diag_error(d, (Loc){0}, "memory: %s: lower limits.sequences, limits.context or limits.tokens",
                              err.text);
        h->named[i] = *end;
        *end = aligned(*end + h->named_bytes[i]);
        assert(i != FTX_NAMED_segments || !s.V || /* named.def repeats this size as an expression */
               (size_t)h->named_bytes[i] ==
                   sizeof(FtxSegments) + (size_t)(s.S * FTX_SEGMENTS(s.V)) * sizeof(FtxSegment));
    }
    for (size_t i = 0; i < l->zeroed.n; i++) {
        Zeroed *z = &l->zeroed.at[i];

        z->offset = h->space_bytes[FTX_SPACE_STATE];
        h->space_bytes[FTX_SPACE_STATE] = aligned(z->offset + z->bytes);
        record(l, arena_printf(l->keep, "%s %s", z->contract->family, z->contract->zeroed.at[z->at].name),
               FTX_SPACE_STATE, 0, 0, 0, z->offset, z->bytes);
    }
    return true;
}

/* --- the workspace of a program ---------------------------------------------------------------------- */

static Buffer *buffer_of(Program *p, Id v, uint32_t part)
{
    for (size_t i = 0; i < p->buffers.n; i++)
        if (p->buffers.at[i].value == v && p->buffers.at[i].part == part)
            return &p->buffers.at[i];
    return NULL;
}

/* Whether v is the logits of a router. */
static bool is_routed(const Graph *g, Id v)
{
    for (Id id = v + 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_ROUTE && ir_value(g, id)->args[0] == v)
            return true;
    return false;
}

/* "%12 add", "sums of %12 add" (a companion), "q8_rows of %12 add" (the elements of a form), "i32 of %12 route" (the
 * routes, and in 16-bit programs a router's logits: FTX_NAN=1 reads the others as values of the compute type). */
static const char *buffer_name(const Lower *l, Id v, uint32_t part)
{
    const Form *f = &l->catalog->forms[part / MAX_PARTS];
    const uint32_t k = part % MAX_PARTS;
    const char *name = arena_printf(l->keep, "%%%u %s", v, ir_op_name(ir_value(l->g, v)->op));

    if (!part && (ir_value(l->g, v)->op == OP_ROUTE || (is_routed(l->g, v) && ir_value(l->g, v)->type != l->compute)))
        return arena_printf(l->keep, "%s of %s", dtype_name(ir_value(l->g, v)->type), name);
    return part ? arena_printf(l->keep, "%s of %s", k ? f->companions.at[k - 1].name : f->name, name) : name;
}

/* The buffers of a program with their lifetime intervals: from the launch that writes a part of a value to the last one
 * that reads it. */
static void find_buffers(Lower *l, Program *p)
{
    for (uint32_t i = 0; i < p->launches.n; i++) {
        const Launch *launch = &p->launches.at[i];

        for (uint32_t k = 0; k < launch->n_operands; k++) {
            const Operand *o = &launch->operands[k];
            Buffer *b = o->kind == OPERAND_VALUE ? buffer_of(p, o->value, o->part) : NULL;

            if (o->kind == OPERAND_SCRATCH)
                *arena_push(l->keep, p->buffers) =
                    (Buffer){.name = arena_printf(l->keep, "%s %s", launch->group->b.contract->family,
                                                  launch->group->b.contract->scratch.at[o->at].name),
                             .launch = i,
                             .scratch = o->at,
                             .first = i,
                             .last = i,
                             .bytes = aligned((uint64_t)o->bytes)};
            else if (o->kind == OPERAND_VALUE && !b)
                *arena_push(l->keep, p->buffers) = (Buffer){.name = buffer_name(l, o->value, o->part),
                                                            .value = o->value,
                                                            .part = o->part,
                                                            .first = i,
                                                            .last = i,
                                                            .bytes = aligned((uint64_t)o->bytes)};
            else if (b)
                b->last = i;
        }
    }
}

static void plan_work(Lower *l, Program *p)
{
    Interval *intervals;

    find_buffers(l, p);
    intervals = arena_array(l->scratch, Interval, p->buffers.n + 1);
    for (size_t i = 0; i < p->buffers.n; i++)
        intervals[i] = (Interval){p->buffers.at[i].first, p->buffers.at[i].last, p->buffers.at[i].bytes, 0};
    p->lower_bound = planner_lower_bound(intervals, p->buffers.n);
    p->work_bytes = planner_run(intervals, p->buffers.n, l->scratch);
    for (size_t i = 0; i < p->buffers.n; i++)
        p->buffers.at[i].offset = intervals[i].offset;
}

/* --- the plan in the artifact's structs -------------------------------------------------------------- */

static bool holds_values(int named)
{
    return named == FTX_NAMED_v || named == FTX_NAMED_cross_v;
}

/* The cache of a layer in $k and $v, in $cross_k and $cross_v, or in $recurrent; *at: where its part of the buffer begins. */
static const FtxCache *cache_of(const Lower *l, int named, int64_t layer, uint64_t *at)
{
    const bool source = named == FTX_NAMED_cross_k || named == FTX_NAMED_cross_v;
    const bool recurrent = named == FTX_NAMED_recurrent;
    const int64_t copies = source ? l->g->limits.sources : recurrent ? l->g->limits.sequences : 1;

    *at = 0;
    for (size_t i = 0; i < l->plan->caches.n; i++) {
        const FtxCache *c = &l->plan->caches.at[i];
        uint64_t keys, values;

        if ((c->source != 0) != source || (c->recurrent != 0) != recurrent)
            continue;
        if (layer-- <= 0)
            return c;
        sizes_cache(c, l->g->limits.kv_block, &keys, &values); /* place_named has checked it */
        *at += (holds_values(named) ? values : keys) * (uint64_t)copies;
    }
    return NULL;
}

/* Adds the shape that a TMA descriptor needs. Rows: those of the weight; of the program, whose bucket may be larger
 * than limits.tokens, the size of the buffers that a step fills; of a page, whose number the runtime knows. */
static FtxOperand with_tiles(const Lower *l, const Program *p, const Launch *launch, uint32_t k, FtxOperand o)
{
    const Operand *from = &launch->operands[k];
    const int64_t tokens = l->g->limits.tokens, t_max = p->facts.t_max < tokens ? p->facts.t_max : tokens;

    if (!from->tiled)
        return o;
    o.tile_rows = (uint32_t)from->tiled;
    if (launch->group->b.contract->args.at[k].named >= 0) {
        uint64_t at;
        const FtxCache *c = cache_of(l, (int)from->at, from->layer, &at);

        o.columns = holds_values((int)from->at) ? c->v_dim : c->k_dim;
        o.rows = c->kv_heads * (uint32_t)l->g->limits.kv_block;
        o.type = c->type;
    } else {
        const Shape all = ir_value(l->g, launch->group->b.arg[k])->shape; /* perhaps that of a view of from->value */
        Shape row = all;

        row.dim[0] = ir_const(1);
        o.columns = (uint32_t)ir_shape_elements(row, 1, 1);
        o.rows = (uint32_t)(ir_shape_elements(all, t_max, p->facts.s_max) / o.columns);
        o.type = contract_arg_type(&p->facts, &launch->group->b, k);
    }
    return o;
}

static FtxOperand operand_place(Lower *l, Program *p, uint32_t launch, const Operand *o)
{
    const FtxPlan *h = &l->plan->head;
    uint64_t at;

    switch (o->kind) {
    case OPERAND_NULL: break;
    case OPERAND_WEIGHT:
        return (FtxOperand){.space = FTX_SPACE_WEIGHTS, .offset = l->packing->weights.at[o->at].offset};
    case OPERAND_NAMED:
        cache_of(l, (int)o->at, o->layer, &at);
        return (FtxOperand){.space = named_space[o->at], .offset = h->named[o->at] + at};
    case OPERAND_VALUE: return (FtxOperand){.space = FTX_SPACE_WORK, .offset = buffer_of(p, o->value, o->part)->offset};
    case OPERAND_SCRATCH:
        for (size_t i = 0; i < p->buffers.n; i++)
            if (!p->buffers.at[i].value && p->buffers.at[i].launch == launch && p->buffers.at[i].scratch == o->at)
                return (FtxOperand){.space = FTX_SPACE_WORK, .offset = p->buffers.at[i].offset};
        break;
    case OPERAND_ZEROED: return (FtxOperand){.space = FTX_SPACE_STATE, .offset = l->zeroed.at[o->at].offset};
    }
    return (FtxOperand){.space = FTX_SPACE_NULL};
}

static void write_program(Lower *l, uint32_t index)
{
    Program *p = &l->programs.at[index];
    Plan *plan = l->plan;

    *arena_push(l->keep, plan->programs) = (FtxProgram){.kind = p->kind,
                                                        .bucket = (uint32_t)p->facts.bucket,
                                                        .most = (uint32_t)p->most,
                                                        .first_launch = (uint32_t)plan->launches.n,
                                                        .n_launches = (uint32_t)p->launches.n,
                                                        .work_bytes = p->work_bytes};
    for (uint32_t i = 0; i < p->launches.n; i++) {
        const Launch *launch = &p->launches.at[i];
        const uint32_t label = plan_string(l, launch->label);

        *arena_push(l->keep, plan->launches) =
            (FtxLaunch){.kernel = launch->instance, .first_operand = (uint32_t)plan->operands.n, .label = label};
        *arena_push(l->keep, plan->origins) =
            (LaunchOrigin){launch->group->b.covered, launch->group->b.n_covered, launch->group->cost_us};
        for (uint32_t k = 0; k < launch->n_operands; k++) {
            const FtxOperand o = with_tiles(l, p, launch, k, operand_place(l, p, i, &launch->operands[k]));

            *arena_push(l->keep, plan->operands) = o;
        }
    }
    for (size_t i = 0; i < p->buffers.n; i++) {
        const Buffer *b = &p->buffers.at[i];

        record(l, b->name, FTX_SPACE_WORK, index, b->first, b->last, b->offset, b->bytes);
    }
}

bool stage_memory(Lower *l, Diag *d)
{
    FtxPlan *h = &l->plan->head;

    if (!place_named(l, d))
        return false;
    for (size_t i = 0; i < l->programs.n; i++) {
        Program *p = &l->programs.at[i];

        plan_work(l, p);
        if (p->work_bytes > h->space_bytes[FTX_SPACE_WORK])
            h->space_bytes[FTX_SPACE_WORK] = p->work_bytes;
        if (p->lower_bound > h->lower_bound)
            h->lower_bound = p->lower_bound;
        arena_reset(l->scratch);
    }
    for (uint32_t i = 0; i < l->programs.n; i++)
        write_program(l, i);
    h->space_bytes[FTX_SPACE_WEIGHTS] = l->packing->bytes;
    return true;
}
