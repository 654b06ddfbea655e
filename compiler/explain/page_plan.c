/* page_plan.c - a plan as JSON for `ftxc page`: memory, kernels, programs with their launches.
 *
 *   {"target", "gpu", "read_gbs", "launch_us", "overlap_us", "weight_type", "compute_type",
 *    "spaces":   [[name, bytes]]
 *    "fixed":    [[name, space, offset, bytes, meaning]]     buffers with one place for all programs
 *    "caches":   [[layers, text]]
 *    "kernels":  [[entry, family, how it runs, threads, shared memory, overlaps, constants, bytes of one token]]
 *    "programs": [{name, kind, bucket, T, S, "buffers": [[name, first, last, offset, bytes]],
 *                  "launches": [[kernel, label, cost in us, bytes, [values], [operands]]]}]
 *    "considered": [[program, launch, root, cost in us, kernel, entry, reason, tuned]]}      page.c, of a spec
 *
 * An operand is 4 * index + what it is: 0 nothing, 1 a weight, 2 a buffer of the program, 3 a row of "fixed". Costs and
 * bytes are null where they are not known. */
#include "page.h"

#include <string.h>

#include "../../runtime/base/dtype.h"
#include "../../runtime/base/expr.h"

typedef struct View { /* of either kind of plan */
    const PlanSource *from;
    const TargetFacts *target;
    const FtxPlan *head;
    const FtxProgram *programs;
    const FtxLaunch *launches;
    const FtxOperand *operands;
    const FtxBuffer *buffers;
    const FtxCache *caches;
    uint32_t n_programs, n_launches, n_operands, n_buffers, n_caches, n_kernels;
} View;

static const char *string_of(const View *v, uint32_t s)
{
    return v->from->plan ? v->from->plan->strings.at[s] : artifact_string(v->from->artifact, s);
}

static View view_of(const PlanSource *from)
{
    View v;
    Target t;

    if (from->plan) {
        const Plan *p = from->plan;

        v = (View){from,
                   NULL,
                   &p->head,
                   p->programs.at,
                   p->launches.at,
                   p->operands.at,
                   p->buffers.at,
                   p->caches.at,
                   (uint32_t)p->programs.n,
                   (uint32_t)p->launches.n,
                   (uint32_t)p->operands.n,
                   (uint32_t)p->buffers.n,
                   (uint32_t)p->caches.n,
                   (uint32_t)p->instances.n};
    } else {
        const ArtifactPlan *p = from->stored;

        v = (View){from,      NULL,          p->head,       p->programs,   p->launches,  p->operands, p->buffers,
                   p->caches, p->n_programs, p->n_launches, p->n_operands, p->n_buffers, p->n_caches, p->n_kernels};
    }
    if (target_parse(string_of(&v, v.head->name), &t, &(Diag){0})) /* an artifact may be for one that we do not know */
        v.target = target_facts(t);
    return v;
}

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* --- memory ------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *what;
    FtxSpace space;
} named[] = {
#define NAMED(name, space, bytes, what) {"$" #name, what, FTX_SPACE_##space},
#include "../../runtime/artifact/named.def"
#undef NAMED
};

typedef struct Fixed { /* a row of "fixed" */
    uint32_t space;
    uint64_t offset, bytes;
} Fixed;

typedef struct FixedList {
    Fixed *at;
    size_t n, cap;
} FixedList;

static void add_fixed(Page *p, json_t *rows, FixedList *list, const char *name, const char *what, Fixed f)
{
    json_array_append_new(rows, json_pack("[o,o,o,o,o]", page_word(p, name), page_word(p, window_space(f.space)),
                                          number(f.offset), number(f.bytes), page_word(p, what)));
    *arena_push(p->keep, *list) = f;
}

static bool is_listed(const FixedList *list, const FtxBuffer *b)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].space == b->space && list->at[i].offset == b->offset && list->at[i].bytes == b->bytes)
            return true;
    return false;
}

static json_t *fixed_json(Page *p, const View *v, FixedList *list)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < LEN(named); i++)
        if (v->head->named_bytes[i])
            add_fixed(p, rows, list, named[i].name, named[i].what,
                      (Fixed){named[i].space, v->head->named[i], v->head->named_bytes[i]});
    for (uint32_t i = 0; i < v->n_buffers; i++) {
        const FtxBuffer *b = &v->buffers[i];

        if (b->space != FTX_SPACE_WORK && b->space != FTX_SPACE_WEIGHTS && !is_listed(list, b))
            add_fixed(p, rows, list, string_of(v, b->name), "of kernels: zero when an engine opens",
                      (Fixed){b->space, b->offset, b->bytes});
    }
    return rows;
}

static json_t *spaces_json(Page *p, const View *v)
{
    json_t *rows = json_array();

    for (uint32_t s = FTX_SPACE_WEIGHTS; s < FTX_SPACE_COUNT; s++)
        json_array_append_new(rows, json_pack("[o,o]", page_word(p, window_space(s)), number(v->head->space_bytes[s])));
    return rows;
}

/* Neighbouring layers with equal caches share a row. */
static json_t *caches_json(Page *p, const View *v)
{
    json_t *rows = json_array();

    for (uint32_t i = 0, n; i < v->n_caches; i += n) {
        const FtxCache *c = &v->caches[i];
        const char *text = arena_printf(p->keep, "%u heads, keys of %u, values %s %u, %s", c->kv_heads, c->k_dim,
                                        c->inside ? "in their first" : "of", c->v_dim, dtype_name((DType)c->type));

        if (c->recurrent)
            text = arena_printf(p->keep, "a recurrent state of %u x %u x %u, %s", c->kv_heads, c->k_dim, c->v_dim,
                                dtype_name((DType)c->type));
        if (c->window)
            text = arena_printf(p->keep, "%s, the last %u tokens", text, c->window);
        if (c->source)
            text = arena_printf(p->keep, "%s, sources of %u tokens", text, c->source);
        for (n = 1; i + n < v->n_caches && memcmp(c, c + n, sizeof *c) == 0;)
            n++;
        json_array_append_new(rows, json_pack("[i,o]", (int)n, page_word(p, text)));
    }
    return rows;
}

/* --- kernels ------------------------------------------------------------------------------------------ */

/* The bytes that a kernel moves; null: not known. */
static json_t *moves_json(const View *v, uint32_t kernel, int64_t T, int64_t S)
{
    const int64_t variables[VAR_COUNT] = {[VAR_T] = T, [VAR_S] = S, [VAR_SMS] = v->target ? v->target->sms : 0};
    const int64_t *words;
    int64_t bytes;
    uint32_t n;

    if (v->from->plan) {
        const Expr *e = &v->from->plan->instances.at[kernel]->moves;

        words = e->words;
        n = e->n;
    } else {
        words = v->from->stored->exprs + v->from->stored->kernels[kernel].moves[0];
        n = v->from->stored->kernels[kernel].moves[1];
    }
    return n && !expr_run(words, n, variables, VAR_COUNT, &bytes, &(FtxError){0}) ? json_integer(bytes) : json_null();
}

static const char *const runs[] = {
    [FTX_KERNEL_CPU] = "C on the CPU", [FTX_KERNEL_CUDA] = "CUDA", [FTX_KERNEL_MATMUL] = "cuBLASLt"};

static json_t *instance_json(Page *p, const Instance *k)
{
    static const FtxKernelKind kinds[] = {
        [KD_CPU] = FTX_KERNEL_CPU, [KD_CUDA] = FTX_KERNEL_CUDA, [KD_MATMUL] = FTX_KERNEL_MATMUL};
    const char *text = "";

    for (size_t i = 0; i < k->n_consts; i++) {
        const Const *c = &k->consts[i];

        text = c->kind == CONST_FLOAT ? arena_printf(p->keep, "%s %s=%g", text, c->name, c->f)
               : c->kind == CONST_TYPE
                   ? arena_printf(p->keep, "%s %s=%s", text, c->name, c->i ? dtype_name((DType)c->i) : "none")
                   : arena_printf(p->keep, "%s %s=%lld", text, c->name, (long long)c->i);
    }
    return json_pack("[o,o,o,i,i,b,o]", page_word(p, k->entry), page_word(p, k->family),
                     page_word(p, runs[kinds[k->device]]), (int)k->block, (int)k->smem, (int)k->overlap,
                     page_word(p, text));
}

/* The names of its constants are not in an artifact; what its machine code takes is. */
static json_t *stored_json(Page *p, const View *v, const FtxKernel *k)
{
    const Artifact *a = v->from->artifact;
    const char *text = "";
    Resources r;

    if (window_resources(a, v->from->stored, k, &r))
        text = arena_printf(p->keep,
                            "%u registers, %u bytes of stack, %u bytes of spills, %u bytes of static shared memory",
                            r.registers, r.stack_bytes, r.spill_bytes, r.static_smem);
    return json_pack("[o,o,o,i,i,b,o]", page_word(p, artifact_string(a, k->entry)),
                     page_word(p, artifact_string(a, k->family)),
                     page_word(p, k->kind < LEN(runs) && runs[k->kind] ? runs[k->kind] : "unknown"), (int)k->block,
                     (int)k->smem, (int)(k->flags & FTX_KERNEL_OVERLAP), page_word(p, text));
}

static json_t *kernels_json(Page *p, const View *v)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < v->n_kernels; i++) {
        json_t *row = v->from->plan ? instance_json(p, v->from->plan->instances.at[i])
                                    : stored_json(p, v, &v->from->stored->kernels[i]);

        json_array_append_new(row, moves_json(v, i, 1, 1));
        json_array_append_new(rows, row);
    }
    return rows;
}

/* --- programs ----------------------------------------------------------------------------------------- */

enum { NOTHING, WEIGHT, BUFFER, FIXED }; /* what an operand is */

static json_int_t operand_code(const Page *p, const View *v, const FixedList *fixed, uint32_t program, uint32_t launch,
                               const FtxOperand *o)
{
    json_t *weights = json_object_get(p->root, "weights"), *row;
    json_int_t n = 0;
    size_t i;

    if (o->space == FTX_SPACE_WEIGHTS)
        json_array_foreach(weights, i, row) if ((uint64_t)json_integer_value(json_array_get(row, 3)) ==
                                                o->offset) return (json_int_t)i *
                4 +
            WEIGHT;
    for (uint32_t k = 0; k < v->n_buffers && o->space == FTX_SPACE_WORK; k++) {
        const FtxBuffer *b = &v->buffers[k];

        if (b->space != FTX_SPACE_WORK || b->program != program)
            continue;
        if (b->offset == o->offset && b->first <= launch && launch <= b->last)
            return n * 4 + BUFFER;
        n++;
    }
    for (i = 0; i < fixed->n; i++)
        if (fixed->at[i].space == o->space && fixed->at[i].offset <= o->offset &&
            o->offset < fixed->at[i].offset + fixed->at[i].bytes)
            return (json_int_t)i * 4 + FIXED;
    return NOTHING;
}

static json_t *launch_json(Page *p, const View *v, const FixedList *fixed, uint32_t program, uint32_t at, int64_t T,
                           int64_t S)
{
    const uint32_t i = v->programs[program].first_launch + at;
    const FtxLaunch *l = &v->launches[i];
    const LaunchOrigin *origin = v->from->plan ? &v->from->plan->origins.at[i] : NULL;
    const uint32_t n = v->from->plan ? v->from->plan->instances.at[l->kernel]->n_operands
                                     : v->from->stored->kernels[l->kernel].n_operands;
    json_t *values = json_array(), *operands = json_array();

    for (uint32_t k = 0; origin && k < origin->n_values; k++)
        json_array_append_new(values, number(origin->values[k]));
    for (uint32_t k = 0; k < n; k++)
        json_array_append_new(operands,
                              json_integer(operand_code(p, v, fixed, program, at, &v->operands[l->first_operand + k])));
    return json_pack("[i,o,o,o,o,o]", (int)l->kernel, page_word(p, string_of(v, l->label)),
                     origin ? json_real(origin->cost_us) : json_null(), moves_json(v, l->kernel, T, S), values,
                     operands);
}

static json_t *program_json(Page *p, const View *v, const FixedList *fixed, uint32_t program)
{
    static const char *const kinds[] = {[FTX_PROG_STEP] = "step",
                                        [FTX_PROG_DECODE] = "decode",
                                        [FTX_PROG_ENCODE] = "encode",
                                        [FTX_PROG_HIDDEN] = "hidden"};
    const FtxProgram *g = &v->programs[program];
    const uint32_t T = g->bucket ? g->bucket : g->kind == FTX_PROG_DECODE ? v->from->sequences : v->from->tokens;
    const uint32_t S = T < v->from->sequences ? T : v->from->sequences;
    json_t *buffers = json_array(), *launches = json_array();

    for (uint32_t i = 0; i < v->n_buffers; i++) {
        const FtxBuffer *b = &v->buffers[i];

        if (b->space == FTX_SPACE_WORK && b->program == program)
            json_array_append_new(buffers, json_pack("[o,i,i,o,o]", page_word(p, string_of(v, b->name)), (int)b->first,
                                                     (int)b->last, number(b->offset), number(b->bytes)));
    }
    for (uint32_t i = 0; i < g->n_launches; i++)
        json_array_append_new(launches, launch_json(p, v, fixed, program, i, T, S));
    return json_pack("{ss,ss,si,si,si,so,so}", "name", window_program(g), "kind", kinds[g->kind], "bucket",
                     (int)g->bucket, "T", (int)T, "S", (int)S, "buffers", buffers, "launches", launches);
}

json_t *page_add_plan(Page *p, const PlanSource *from)
{
    const View v = view_of(from);
    FixedList list = {0};
    json_t *fixed = fixed_json(p, &v, &list), *programs = json_array(), *plan;

    for (uint32_t i = 0; i < v.n_programs; i++)
        json_array_append_new(programs, program_json(p, &v, &list, i));
    plan = json_pack("{so,ss,ss,so,so,so,so,so}", "target", page_text(string_of(&v, v.head->name)), "weight_type",
                     dtype_name((DType)v.head->weight_type), "compute_type", dtype_name((DType)v.head->compute_type),
                     "spaces", spaces_json(p, &v), "fixed", fixed, "caches", caches_json(p, &v), "kernels",
                     kernels_json(p, &v), "programs", programs);
    if (v.target)
        json_object_update_new(plan, json_pack("{ss,sf,sf,sf}", "gpu", v.target->gpu, "read_gbs", v.target->read_gbs,
                                               "launch_us", v.target->launch_us, "overlap_us", v.target->overlap_us));
    json_object_set_new(plan, "considered", json_array());
    json_array_append_new(json_object_get(p->root, "plans"), plan);
    return plan;
}
