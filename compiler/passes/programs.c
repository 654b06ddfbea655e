/* programs.c - the programs of a target: which there are, the facts about them on which contracts depend, and the stage that
 * selects the kernels of each. */
#include <string.h>

#include "lower.h"

enum { MAX_STEP_BUCKET = 512 };

/* The forms of quantised weights, as bits. */
static uint32_t packed_forms(const Catalog *c)
{
    uint32_t forms = 0;

    for (uint32_t f = 1; f < c->n_forms; f++)
        forms |= (uint32_t)c->forms[f].packed << f;
    return forms;
}

static bool has_op(const Graph *g, Op op)
{
    Id v = 1;

    while (v < g->values.n && ir_value(g, v)->op != op)
        v++;
    return v < g->values.n;
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
        .cross_kv = l->cross_kv,
        .compute = l->compute,
        .fixed = l->fixed,
        .exact = l->precision->compute != DT_NONE,
        .bf16_rows = l->target.id == FTX_TARGET_CPU && l->precision->compute == DT_BF16,
        .fp8_rows = l->precision->activations == DT_FP8,
        .quantised = has_op(l->g, OP_QUANTISE),
        .packed = packed_forms(l->catalog),
        .tuning = l->target.tuning,
    };
    p->facts.name = lower_program_name(p, l->keep);
    return p;
}

/* Whether kernels of ours compute products of more than 64 rows, in 16 bits on targets with wgmma: linear_tile for encoders,
 * linear_batch for prompts. */
static bool has_tiles(const Lower *l)
{
    return target_facts(l->target)->capabilities & CAPABILITY_WGMMA && dtype_size(l->compute) == 2;
}

/* Whether experts have quantised weights. */
static bool has_coded_experts(const Lower *l)
{
    bool any = false;

    for (Id v = 1; v < l->g->values.n && !any; v++) {
        const Value *e = ir_value(l->g, v);

        any = (e->op == OP_EXPERT_LINEAR || e->op == OP_EXPERT_SUM) && ir_value(l->g, e->args[2])->op == OP_QUANTISE;
    }
    return any;
}

/* The largest program of a fixed size. Tiles are chosen for T_MAX, and for short prompts those of limits.tokens would be far too
 * wide. Up to 256 rows expert_q multiplies codes of experts, where the program of any T unpacks all of them. Other steps of
 * quantised weights and of experts have not been measured. */
static int64_t largest_bucket(const Lower *l, FtxProgramKind kind)
{
    if (!has_tiles(l))
        return 64;
    if (kind == FTX_PROG_ENCODE || kind == FTX_PROG_HIDDEN)
        return 1024;
    if (has_coded_experts(l))
        return 256;
    return !l->fixed && (has_op(l->g, OP_QUANTISE) || has_op(l->g, OP_ROUTE)) ? 64 : MAX_STEP_BUCKET;
}

/* Whether all linear layers that linear_batch computes have at least `least` x `least` elements. */
static bool has_large_layers(const Lower *l, int64_t least)
{
    bool large = !l->fixed && largest_bucket(l, FTX_PROG_STEP) == MAX_STEP_BUCKET;

    for (Id v = 1; v < l->g->values.n && large; v++) {
        const Value *x = ir_value(l->g, v);

        if (x->op == OP_LINEAR) {
            const Shape *w = &ir_value(l->g, x->args[1])->shape;

            large = w->dim[0].n >= least && w->dim[1].n >= least;
        }
    }
    return large;
}

/* Adds the program between those of `bucket` rows and of twice as many, for tiles of 192 rows, where it takes less time than the
 * larger one: 192 rows with matrices of at least 4,096 x 4,096 elements, with smaller ones it takes more; 384 with those of 2,048 x
 * 2,048, the smallest that were measured. Measured: docs/decisions/029-65-to-512-rows.md. */
static void add_between(Lower *l, FtxProgramKind kind, int64_t bucket)
{
    if ((bucket == 128 && has_large_layers(l, 4096)) || (bucket == 256 && has_large_layers(l, 2048)))
        add_program(l, kind, bucket * 3 / 2)->optional = true;
}

/* The programs of one kind: small ones of a fixed size (buckets), and one for any larger T. */
static void add_ladder(Lower *l, FtxProgramKind kind)
{
    const int64_t tokens = l->g->limits.tokens;

    add_program(l, kind, 16);
    if (tokens > 16)
        add_program(l, kind, 64);
    for (int64_t bucket = 128; bucket <= largest_bucket(l, kind) && bucket <= tokens; bucket *= 2) {
        add_program(l, kind, bucket)->optional = true;
        if (kind == FTX_PROG_STEP && tokens >= bucket * 3 / 2)
            add_between(l, kind, bucket);
    }
    if (tokens > 64)
        add_program(l, kind, 0);
}

/* Rows of the largest decode program of fixed size. 77 separate launches take a host 0.4 ms a step, as long as an H200
 * computes on 512 rows of Transformer-base; launched as one CUDA graph they take almost nothing. */
enum { MAX_DECODE_BUCKET = 512 };

/* An encoder has encode programs, and hidden programs where callers may bring hidden states. On the CPU one step program
 * takes any step. On a GPU small steps have programs of fixed size, launched as CUDA graphs, and steps of one token a
 * sequence, the hot loop, have decode programs. */
void lower_add_programs(Lower *l)
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
        add_between(l, FTX_PROG_DECODE, bucket);
    }
    add_program(l, FTX_PROG_DECODE, 0);
}

/* --- select ---------------------------------------------------------------------------------------- */

/* Weights as this program reads them: so must all that are selected after it. */
static void note_weights(Lower *l, const Program *p)
{
    for (size_t k = 0; k < p->groups.n; k++) {
        const Binding *b = &p->groups.at[k].b;

        for (size_t i = 0; i < b->contract->operands; i++)
            if (b->arg[i] && ir_op_is_weight(ir_value(l->g, b->arg[i])->op))
                l->weight_forms[b->arg[i]] = (WeightForm){true, contract_arg_fold(b, i)};
    }
}

/* Whether cuBLASLt computes a part of it. */
static bool has_library(const Program *p)
{
    size_t k = 0;

    while (k < p->groups.n && p->groups.at[k].b.contract->device != KD_MATMUL)
        k++;
    return k < p->groups.n;
}

/* Selects every program, the largest first: it decides in which form each weight is packed. An optional one is dropped
 * where a value has no kernel for it, and where cuBLASLt has a part of it, except for encoders and experts with quantised weights:
 * that computes live rows alone, so the program of any T is as good. */
static bool select_programs(Lower *l, Diag *d)
{
    memset(l->weight_forms, 0, sizeof *l->weight_forms * l->g->values.n);
    for (size_t i = l->programs.n; i-- > 0;) {
        Program *p = &l->programs.at[i];
        Diag ignored = {0};

        p->dropped = !select_program(l, p, p->optional ? &ignored : d) ||
                     (p->optional && !p->facts.encode && !has_coded_experts(l) && has_library(p));
        if (p->dropped && !p->optional)
            return false;
        if (!p->dropped)
            note_weights(l, p);
        p->uses = NULL;
        arena_reset(l->scratch);
    }
    return true;
}

/* Folds norms into weights if every program can read them so. */
static bool select_all(Lower *l, Diag *d)
{
    Diag ignored = {0};

    if (select_programs(l, &ignored))
        return true;
    l->unfolded = true;
    return select_programs(l, d);
}

/* Whether the target has kernels for a cache of codes: on a GPU those of fused attention. */
static bool reads_codes(const Lower *l, Diag *d)
{
    for (Id v = 1; v < l->g->values.n && dtype_is_code(l->kv) && l->target.id != FTX_TARGET_CPU; v++) {
        const Value *x = ir_value(l->g, v);

        if (x->op == OP_CACHE || (x->op == OP_APPEND && ir_int(x, "head_dim") % 16))
            return diag_error(d, x->loc,
                              "precision.kv: there is no kernel for a cache of %s of this attention on %s: compile for "
                              "the CPU (-t cpu), or leave it at auto",
                              dtype_name(l->kv), l->target.name);
    }
    return true;
}

/* What precision.compute may be on the CPU, whose activations are fp32: bf16 rounds the rows that linear layers read. */
static bool rows_fit(const Lower *l, Diag *d)
{
    const Precision *p = l->precision;

    if (p->compute == DT_FP16)
        return diag_error(d, (Loc){0}, "precision.compute is fp16, the CPU has fp32 and bf16 only: leave it at auto");
    if (p->compute == DT_BF16 && (p->weights != DT_BF16 || has_op(l->g, OP_QUANTISE)))
        return diag_error(d, (Loc){0},
                          "precision.compute is bf16, which on the CPU is for weights of bf16 alone; here they are %s: "
                          "leave it at auto",
                          p->weights == DT_BF16 ? "quantised" : dtype_name(p->weights ? p->weights : DT_FP32));
    return true;
}

/* precision.activations = "fp8" is for weights of fp8 on GPUs that have a kernel for it. */
static bool activations_fit(const Lower *l, Diag *d)
{
    bool any = false;

    for (Id v = 1; v < l->g->values.n; v++)
        any |= ir_value(l->g, v)->op == OP_QUANTISE && ir_value(l->g, v)->type == DT_FP8;
    if (!any)
        return diag_error(
            d, (Loc){0},
            "precision.activations is fp8, but no linear layer has weights of fp8: leave it at auto, or set "
            "precision.weights = \"fp8\"");
    if (!(target_facts(l->target)->capabilities & CAPABILITY_WGMMA) || dtype_size(l->compute) != 2)
        return diag_error(
            d, (Loc){0},
            "precision.activations is fp8, which is for GPUs of sm_90a with 16-bit activations, not for %s with "
            "%s: leave it at auto",
            l->target.name, dtype_name(l->compute));
    return true;
}

bool stage_select(Lower *l, Diag *d)
{
    const Value *output = ir_value(l->g, l->g->output);
    size_t n = 0;

    if (l->target.id == FTX_TARGET_CPU && !rows_fit(l, d))
        return false;
    if (l->precision->activations == DT_FP8 && !activations_fit(l, d))
        return false;
    if (ir_op_is_view(output->op))
        return diag_error(d, output->loc, "the output is a view: %s computes nothing", ir_op_name(output->op));
    if (!reads_codes(l, d) || !sums_choose(l, d) || !select_all(l, d))
        return false;
    for (size_t i = 0; i < l->programs.n; i++)
        if (!l->programs.at[i].dropped)
            l->programs.at[n++] = l->programs.at[i];
    l->programs.n = n;
    borders_follow(l);
    return true;
}
