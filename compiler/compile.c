/* compile.c - the whole line: model.lua -> graph -> passes -> instances -> artifact. Start here.
 *
 * Each room is one call, declared in its door: spec/spec.h, passes/pass.h, instantiate/instantiate.h,
 * weights/weights.h, tokenizer/tokenizer.h, chat/chat.h, artifact/artifact.h. */
#include "compile.h"

#include "artifact/artifact.h"
#include "chat/chat.h"
#include "tokenizer/tokenizer.h"

typedef struct Stage { /* whose progress is reported */
    const CompileOptions *o;
    const char *what;
} Stage;

static void report(void *user, uint64_t done, uint64_t all)
{
    const Stage *s = user;

    if (s->o->progress)
        s->o->progress(s->o->user, s->what, done, all);
}

/* The checkpoint and its adapters; NULL: weights are left out. */
static bool open_weights(const CompileOptions *o, const Spec *spec, Arena *keep, Checkpoint **c, Diag *d)
{
    bool ok = !spec->weights || o->no_weights || checkpoint_open(spec->weights, keep, c, d);

    if (ok && *c)
        ok = checkpoint_add(*c, spec, keep, d);
    if (ok && *c)
        ok = checkpoint_rename(*c, spec, keep, d);
    for (size_t i = 0; ok && *c && i < o->n_adapters; i++)
        ok = checkpoint_adapt(*c, spec, o->adapters[i], keep, d);
    if (ok && *c && !spec->precision.dequantise)
        checkpoint_mark(*c, spec);
    return ok;
}

/* With o->plain: a model whose inputs of matrices are those of the unquantised one. */
static bool make_plain(const CompileOptions *o, Spec *s, Diag *d)
{
    Precision *p = &s->precision;

    if (!o->plain)
        return true;
    if (p->quant.type != DT_INT4 && p->quant.head != DT_INT4)
        return diag_error(d, (Loc){s->path, 0},
                          "--calibrate is for weights that become int4, and none does: add -D precision.weights=int4");
    if (!s->weights)
        return diag_error(d, (Loc){s->path, 0}, "has no weights, and --calibrate runs the model");
    if (ir_ranks(s->graph) > 1)
        return diag_error(d, (Loc){s->path, 0}, "--calibrate does not know matrices that lie on several devices");
    *p = (Precision){.weights = p->weights, .compute = DT_FP32, .dequantise = true};
    return true;
}

bool compile(const CompileOptions *o, Arena *keep, CompileResult *result, Diag *d)
{
    Targets targets = {0};
    Spec spec = {0};
    Catalog catalog;
    Packing packing = {0};
    Plan plans[MAX_TARGETS] = {0};
    Code codes[MAX_TARGETS] = {0};
    Checkpoint *checkpoint = NULL;
    void *tokenizer = NULL, *chat = NULL;
    size_t tokenizer_bytes = 0, chat_bytes = 0;
    const char *chat_note = NULL;
    bool ok =
        passes_check_dump(&o->dump, d) && targets_parse(o->targets ? o->targets : options_targets(keep), &targets, d) &&
        spec_read(o->spec, o->overrides, o->n_overrides, keep, &spec, d) && make_plain(o, &spec, d) &&
        open_weights(o, &spec, keep, &checkpoint, d) && passes_run_graph(spec.graph, &spec.precision, &o->dump, d) &&
        options_check(o, &spec, &targets, d) && catalog_open(keep, &catalog, d) &&
        (o->trial || tunings_find(o->tune, !o->targets, &spec, &targets, keep, d));

    for (size_t i = 0; o->trial && i < targets.n; i++)
        targets.at[i].tuning = o->trial;
    for (size_t i = 0; ok && i < targets.n; i++)
        ok = passes_run_target(spec.graph, &catalog, targets.at[i], &spec.precision, &packing, &plans[i], &o->dump, d);
    for (size_t i = 0; ok && i < targets.n; i++) { /* all targets share one block of weights, now complete */
        Stage s = {o, arena_printf(keep, "kernels for %s", targets.at[i].name)};

        plans[i].head.space_bytes[FTX_SPACE_WEIGHTS] = packing.bytes;
        if (targets.at[i].id != FTX_TARGET_CPU)
            ok = (!o->emit || instantiate_emit(&plans[i], o->emit, d)) && instantiate_list(&plans[i], d) &&
                 instantiate_compile(&plans[i], keep, &codes[i], report, &s, d);
    }
    if (ok && checkpoint)
        ok = checkpoint_check(checkpoint, &spec, d);
    if (ok && spec.tokenizer)
        ok = tokenizer_compile(spec.tokenizer, keep, &tokenizer, &tokenizer_bytes, d) &&
             chat_read(spec.tokenizer, keep, &chat, &chat_bytes, &chat_note, d);
    if (ok && o->calibration)
        checkpoint_calibrate(checkpoint, o->calibration);
    if (ok && o->out) {
        const ArtifactParts parts = {
            .spec = &spec,
            .packing = &packing,
            .plans = plans,
            .codes = codes,
            .n_plans = targets.n,
            .checkpoint = checkpoint,
            .tokenizer = tokenizer,
            .tokenizer_bytes = tokenizer_bytes,
            .chat = chat,
            .chat_bytes = chat_bytes,
            .sidecar = o->sidecar,
            .program = o->program,
            .program_bytes = o->program_bytes,
            .build = build_facts(o, &targets, checkpoint ? checkpoint_adapters(checkpoint) : "", keep)};

        ok = artifact_write(o->out, &parts, report, &(Stage){o, "weights"}, d);
    }
    *result = (CompileResult){.name = spec.name,
                              .kind = spec.gguf       ? "GGUF file"
                                      : spec.checkout ? "checkout"
                                                      : "spec",
                              .targets = targets,
                              .kv_pages = spec.graph ? (uint64_t)spec.graph->limits.kv_pages : 0,
                              .kv_block = spec.graph ? (uint64_t)spec.graph->limits.kv_block : 0,
                              .weight_bytes = packing.bytes};
    for (size_t i = 0; ok && i < targets.n; i++) {
        result->plans[i] = plans[i].head;
        result->n_instances += plans[i].instances.n;
        for (size_t k = 0; k < plans[i].instances.n; k++)
            result->spill_bytes += plans[i].instances.at[k]->spill_bytes;
    }
    result->notes[0] = spec.note;
    result->notes[1] = ok && checkpoint ? checkpoint_note(checkpoint, &spec, keep) : NULL;
    result->notes[2] = chat_note;
    result->notes[4] = ok && checkpoint ? checkpoint_stored(checkpoint) : NULL;
    result->notes[3] = ok ? tunings_note(&targets, &catalog, keep) : NULL;
    checkpoint_close(checkpoint);
    if (spec.graph)
        ir_graph_close(spec.graph);
    return ok;
}
