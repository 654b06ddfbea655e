/* lower.c - the programs of a target, and the facts about them on which contracts depend. */
#include "lower.h"

#include <string.h>

/* The layer of each value, for labels. A layer begins with the values that only its attention reads (norm, product) and
 * ends where the next one begins; select_last ends the last. -1: before or after the layers, or a weight. */
static int *find_layers(const Graph *g, Arena *keep)
{
    int *layer = arena_array(keep, int, g->values.n), now = -1, full = 0;
    int *begins = arena_array(keep, int, g->values.n);
    const uint32_t *uses = ir_uses(g);

    for (Id v = 1; v < g->values.n; v++) {
        Id first = v;

        begins[v] = -1;
        const Op op = ir_value(g, v)->op;

        if (op != OP_APPEND && op != OP_CACHE && op != OP_ATTEND_PACKED && op != OP_CROSS_APPEND)
            continue;
        for (Id x = ir_value(g, v)->args[0]; x && uses[x] == 1 && ir_value(g, x)->op != OP_EMBED;
             x = ir_value(g, x)->args[0])
            first = x;
        begins[first] = op == OP_ATTEND_PACKED ? full++ : (int)ir_int(ir_value(g, v), "layer");
    }
    for (Id v = 1; v < g->values.n; v++) {
        if (begins[v] >= 0)
            now = begins[v];
        switch (ir_value(g, v)->op) {
        case OP_EMBED:
        case OP_SELECT_FIRST:
        case OP_SELECT_LAST:
        case OP_POOL_MEAN: now = -1; break;
        default: break;
        }
        layer[v] = ir_op_is_weight(ir_value(g, v)->op) ? -1 : now;
    }
    return layer;
}

static Program *add_program(Lower *l, FtxProgramKind kind, int64_t bucket)
{
    const Limits *m = &l->g->limits;
    Program *p = arena_push(l->keep, l->programs);
    const int64_t t_max = bucket ? bucket : kind == FTX_PROG_DECODE ? m->sequences : m->tokens;

    p->kind = kind;
    p->facts = (ProgramFacts){
        .g = l->g,
        .decode = kind == FTX_PROG_DECODE,
        .encode = kind == FTX_PROG_ENCODE || kind == FTX_PROG_HIDDEN,
        .hidden = kind == FTX_PROG_HIDDEN,
        .bucket = bucket,
        .t_max = t_max,
        .s_max = t_max < m->sequences ? t_max : m->sequences,
        .target = target_facts(l->target),
        .kv = l->kv,
    };
    return p;
}

/* Programs of a fixed size above 64 tokens are made where a kernel of ours computes their products, as linear_tile does
 * for encoders in 16 bits on targets with wgmma. */
static bool has_large_buckets(const Lower *l, FtxProgramKind kind)
{
    return (kind == FTX_PROG_ENCODE || kind == FTX_PROG_HIDDEN) &&
           (target_facts(l->target)->capabilities & CAPABILITY_WGMMA) && dtype_size(l->compute) == 2;
}

/* The programs of one kind: small ones of a fixed size (buckets), and one for any larger T. */
static void add_ladder(Lower *l, FtxProgramKind kind)
{
    const int64_t tokens = l->g->limits.tokens;

    add_program(l, kind, 16);
    if (tokens > 16)
        add_program(l, kind, 64);
    for (int64_t bucket = 128; has_large_buckets(l, kind) && bucket <= 1024 && bucket <= tokens; bucket *= 2)
        add_program(l, kind, bucket)->optional = true;
    if (tokens > 64)
        add_program(l, kind, 0);
}

/* Rows of the largest decode program of fixed size. 77 separate launches take a host 0.4 ms a step, as long as an H200
 * computes on 512 rows of Transformer-base; launched as one CUDA graph they take almost nothing. */
enum { MAX_DECODE_BUCKET = 512 };

/* An encoder has encode programs, and hidden programs where callers may bring hidden states. On the CPU one step program
 * takes any step. On a GPU small steps have programs of fixed size, launched as CUDA graphs, and steps of one token a
 * sequence, the hot loop, have decode programs. */
static void add_programs(Lower *l)
{
    const Limits *m = &l->g->limits;

    if (l->target.id == FTX_TARGET_CPU) {
        if (l->g->kind != FTX_MODEL_DECODER)
            add_program(l, FTX_PROG_ENCODE, 0);
        if (l->g->entry)
            add_program(l, FTX_PROG_HIDDEN, 0);
        if (l->g->kind != FTX_MODEL_ENCODER)
            add_program(l, FTX_PROG_STEP, 0);
        return;
    }
    if (l->g->kind != FTX_MODEL_DECODER)
        add_ladder(l, FTX_PROG_ENCODE);
    if (l->g->entry)
        add_ladder(l, FTX_PROG_HIDDEN);
    if (l->g->kind == FTX_MODEL_ENCODER)
        return;
    add_ladder(l, FTX_PROG_STEP);
    for (int64_t bucket = 1; bucket <= MAX_DECODE_BUCKET; bucket *= 2) {
        add_program(l, FTX_PROG_DECODE, bucket);
        if (bucket >= m->sequences)
            return;
    }
    add_program(l, FTX_PROG_DECODE, 0);
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
    l->compute = precision_compute(p, t);
    l->kv = p->kv ? p->kv : l->compute;
    l->g = arena_new(l->keep, Graph);
    *l->g = *g;
    l->g->values.at = arena_array(l->keep, Value, g->values.n);
    l->g->values.cap = g->values.n;
    memcpy(l->g->values.at, g->values.at, sizeof *g->values.at * g->values.n);
    precision_apply(l->g, p, l->compute);
    l->layer = find_layers(l->g, l->keep);
    l->encoder = arena_array(l->keep, bool, g->values.n);
    memcpy(l->encoder, ir_encoder_side(g), sizeof *l->encoder * g->values.n);
    l->after = arena_array(l->keep, bool, g->values.n);
    memcpy(l->after, ir_after_entry(g), sizeof *l->after * g->values.n);
    l->launch_norms = arena_array(l->keep, bool, g->values.n);
    add_programs(l);
    *plan = (Plan){.target = t};
    plan->head.target = t.id;
    plan->head.weight_type = p->weights ? p->weights : DT_FP32;
    plan->head.compute_type = l->compute;
    *(const char **)arena_push(l->keep, plan->strings) = "";
}

size_t lower_packed_at(const Lower *l, const Program *p, const Binding *b, size_t i)
{
    const Fold fold = contract_arg_fold(b, i);
    const DType type = contract_arg_type(&p->facts, b, i);

    for (size_t k = 0; k < l->packing->weights.n; k++) {
        const PackedWeight *w = &l->packing->weights.at[k];

        if (w->value == b->arg[i] && w->type == type && w->fold.gain == fold.gain && w->fold.matrix == fold.matrix &&
            w->fold.shift == fold.shift)
            return k;
    }
    return SIZE_MAX;
}

const char *lower_program_name(const Program *p, Arena *a)
{
    static const char *const names[] = {[FTX_PROG_STEP] = "step",
                                        [FTX_PROG_DECODE] = "decode",
                                        [FTX_PROG_ENCODE] = "encode",
                                        [FTX_PROG_HIDDEN] = "hidden"};
    const char *kind = names[p->kind];

    return p->facts.bucket ? arena_printf(a, "%s %lld", kind, (long long)p->facts.bucket) : kind;
}
