/* memory.c - an offset for every buffer, then the plan in the artifact's structs.
 *
 *   STATE  named buffers of the engine, then the memory of `zeroed` lines
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
#include "../../kernels/device/io.h"

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

static const struct {
    const char *name, *bytes;
    FtxSpace space;
} named[] = {
#define NAMED(name, space, bytes, what) {#name, bytes, FTX_SPACE_##space},
#include "../../runtime/artifact/named.def"
#undef NAMED
};

/* The names of named.def's expressions. */
typedef struct Sizes {
    int64_t S, T, C, B, P, V, L, G, E, KV, BIAS, ENDS, RING, D, POOL, SRC, SOURCES, BEAMS, IN, WORDS;
} Sizes;

static bool lookup_size(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    const Sizes *s = user;
    const struct {
        const char *name;
        int64_t value;
    } names[] = {
        {"S", s->S},
        {"T", s->T},
        {"C", s->C},
        {"B", s->B},
        {"P", s->P},
        {"V", s->V},
        {"L", s->L},
        {"G", s->G},
        {"E", s->E},
        {"KV", s->KV},
        {"BIAS", s->BIAS},
        {"ENDS", s->ENDS},
        {"RING", s->RING},
        {"D", s->D},
        {"POOL", s->POOL},
        {"SRC", s->SRC},
        {"SOURCES", s->SOURCES},
        {"BEAMS", s->BEAMS},
        {"IN", s->IN},
        {"WORDS", s->WORDS},
    };

    *kind = EXPR_CONSTANT;
    for (size_t i = 0; i < LEN(names); i++)
        if (strcmp(names[i].name, name) == 0) {
            *value = names[i].value;
            return true;
        }
    return false;
}

/* Fills the sizes; checks that layers are numbered from 0 and have KV caches of one shape. */
static bool sizes_of(const Lower *l, Sizes *s, Diag *d)
{
    const Limits *m = &l->g->limits;

    *s = (Sizes){.S = m->sequences,
                 .T = m->tokens,
                 .C = m->context,
                 .B = m->kv_block,
                 .P = m->kv_pages,
                 .KV = (int64_t)dtype_size(l->kv),
                 .BIAS = m->logit_bias,
                 .ENDS = m->end_ids,
                 .WORDS = m->bad_words,
                 .RING = FTX_OUT_RING};
    s->SRC = m->source;
    s->SOURCES = m->sources;
    s->BEAMS = m->beams > 1 ? m->beams : 0;
    if (l->g->kind == FTX_MODEL_ENCODER)
        s->D = ir_value(l->g, l->g->output)->shape.dim[1].n;
    if (l->g->pooled)
        s->POOL = ir_value(l->g, l->g->pooled)->shape.dim[1].n;
    if (l->g->entry)
        s->IN = ir_value(l->g, l->g->entry)->shape.dim[1].n * (int64_t)dtype_size(l->compute);
    if (l->g->logits)
        s->V = ir_value(l->g, l->g->logits)->shape.dim[1].n;
    for (Id id = 1; id < l->g->values.n; id++) {
        const Value *v = ir_value(l->g, id);

        if (v->op != OP_APPEND)
            continue;
        if (s->L && (s->G != ir_int(v, "kv_heads") || s->E != ir_int(v, "head_dim")))
            return diag_error(
                d, v->loc,
                "append: layer %lld has %lld kv_heads of %lld, layer 0 has %lld of %lld; all layers must have "
                "the same",
                (long long)ir_int(v, "layer"), (long long)ir_int(v, "kv_heads"), (long long)ir_int(v, "head_dim"),
                (long long)s->G, (long long)s->E);
        if (ir_int(v, "layer") != s->L)
            return diag_error(d, v->loc, "append: this is layer %lld of the model, its attribute layer is %lld",
                              (long long)s->L, (long long)ir_int(v, "layer"));
        s->G = ir_int(v, "kv_heads");
        s->E = ir_int(v, "head_dim");
        s->L++;
    }
    return true;
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
    Sizes s;

    if (!sizes_of(l, &s, d))
        return false;
    for (size_t i = 0; i < LEN(named); i++) {
        FtxError err;
        Expr e;
        int64_t bytes;

        if (expr_parse(named[i].bytes, lookup_size, &s, &e, &err) || expr_run(e.words, e.n, NULL, 0, &bytes, &err))
            return diag_error(d, (Loc){0},
                              "memory: $%s is too large (%s): lower limits.sequences, limits.context or limits.tokens",
                              named[i].name, err.text);
        h->named[i] = h->space_bytes[named[i].space];
        h->named_bytes[i] = (uint64_t)bytes;
        h->space_bytes[named[i].space] = aligned(h->named[i] + (uint64_t)bytes);
        assert(i != FTX_NAMED_segments || !s.V || /* named.def repeats this size as an expression */
               (size_t)bytes == sizeof(FtxSegments) + (size_t)(s.S * FTX_SEGMENTS(s.V)) * sizeof(FtxSegment));
        if (bytes > INT64_C(1) << 46)
            return diag_error(
                d, (Loc){0},
                "memory: $%s would need %lld bytes: lower limits.sequences, limits.context or limits.tokens",
                named[i].name, (long long)bytes);
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

static Buffer *buffer_of(Program *p, Id v, bool stats)
{
    for (size_t i = 0; i < p->buffers.n; i++)
        if (p->buffers.at[i].value == v && p->buffers.at[i].stats == stats)
            return &p->buffers.at[i];
    return NULL;
}

static uint64_t value_bytes(const Lower *l, const Program *p, Id v)
{
    const Value *value = ir_value(l->g, v);

    return (uint64_t)ir_shape_elements(value->shape, p->facts.t_max, p->facts.s_max) * dtype_size(value->type);
}

/* The buffers of a program with their lifetime intervals: from the launch that writes a value to the last one that reads
 * it. Row statistics of a value are a buffer of their own. */
static void find_buffers(Lower *l, Program *p)
{
    uint32_t *at[2]; /* of the value, of its statistics: index + 1 into buffers */

    for (int i = 0; i < 2; i++)
        at[i] = arena_array(l->scratch, uint32_t, l->g->values.n);

    for (uint32_t i = 0; i < p->launches.n; i++) {
        const Launch *launch = &p->launches.at[i];

        for (uint32_t k = 0; k < launch->n_operands; k++) {
            const Operand *o = &launch->operands[k];
            const bool stats = o->kind == OPERAND_STATS;

            if (o->kind == OPERAND_SCRATCH) {
                *arena_push(l->keep, p->buffers) =
                    (Buffer){.name = arena_printf(l->keep, "%s %s", launch->group->b.contract->family,
                                                  launch->group->b.contract->scratch.at[o->at].name),
                             .launch = i,
                             .scratch = o->at,
                             .first = i,
                             .last = i,
                             .bytes = aligned((uint64_t)o->bytes)};
            } else if ((o->kind == OPERAND_VALUE || stats) && !at[stats][o->value]) {
                *arena_push(l->keep, p->buffers) =
                    (Buffer){.name = arena_printf(l->keep, "%s%%%u %s", stats ? "statistics of " : "", o->value,
                                                  ir_op_name(ir_value(l->g, o->value)->op)),
                             .value = o->value,
                             .stats = stats,
                             .first = i,
                             .last = i,
                             .bytes = aligned(stats ? (uint64_t)o->bytes : value_bytes(l, p, o->value))};
                at[stats][o->value] = (uint32_t)p->buffers.n;
            } else if (o->kind == OPERAND_VALUE || stats) {
                p->buffers.at[at[stats][o->value] - 1].last = i;
            }
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

/* Adds the shape that a TMA descriptor needs. Rows: those of the weight, or of the program, whose bucket may be larger
 * than limits.tokens, the size of the buffers that a step fills. */
static FtxOperand with_tiles(const Lower *l, const Program *p, const Launch *launch, uint32_t k, FtxOperand o)
{
    const Operand *from = &launch->operands[k];
    const Value *v = ir_value(l->g, from->value);
    const int64_t tokens = l->g->limits.tokens, t_max = p->facts.t_max < tokens ? p->facts.t_max : tokens;

    if (!from->tiled)
        return o;
    o.tile_rows = (uint32_t)from->tiled;
    o.columns = (uint32_t)v->shape.dim[v->shape.rank - 1].n;
    o.rows = (uint32_t)(ir_shape_elements(v->shape, t_max, p->facts.s_max) / o.columns);
    o.type = contract_arg_type(&p->facts, &launch->group->b, k);
    return o;
}

static FtxOperand operand_place(Lower *l, Program *p, uint32_t launch, const Operand *o)
{
    const FtxPlan *h = &l->plan->head;
    uint64_t layers = 0;

    switch (o->kind) {
    case OPERAND_NULL: break;
    case OPERAND_WEIGHT:
        return (FtxOperand){.space = FTX_SPACE_WEIGHTS, .offset = l->packing->weights.at[o->at].offset};
    case OPERAND_NAMED:
        for (Id v = 1; v < l->g->values.n && o->layer > 0; v++)
            layers += ir_value(l->g, v)->op == OP_APPEND;
        assert(o->layer <= 0 || layers > 0);
        return (FtxOperand){.space = named[o->at].space,
                            .offset = h->named[o->at] +
                                      (o->layer > 0 ? h->named_bytes[o->at] / layers * (uint64_t)o->layer : 0)};
    case OPERAND_VALUE:
    case OPERAND_STATS:
        return (FtxOperand){.space = FTX_SPACE_WORK,
                            .offset = buffer_of(p, o->value, o->kind == OPERAND_STATS)->offset};
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
                                                        .first_launch = (uint32_t)plan->launches.n,
                                                        .n_launches = (uint32_t)p->launches.n,
                                                        .work_bytes = p->work_bytes};
    for (uint32_t i = 0; i < p->launches.n; i++) {
        const Launch *launch = &p->launches.at[i];
        const uint32_t label = plan_string(l, launch->label);

        *arena_push(l->keep, plan->launches) =
            (FtxLaunch){.kernel = launch->instance, .first_operand = (uint32_t)plan->operands.n, .label = label};
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
