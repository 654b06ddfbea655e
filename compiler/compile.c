/* compile.c - the whole line: model.lua -> graph -> passes -> instances -> artifact. Start here.
 *
 * Every room is one call; what it needs and gives stands in its door (spec/spec.h, passes/pass.h,
 * instantiate/instantiate.h, weights/weights.h, artifact/artifact.h). */
#include "compile.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "artifact/artifact.h"
#include "tokenizer/tokenizer.h"
#include "../runtime/device/device.h"

enum { MAX_TARGETS = ARTIFACT_MAX_PLANS };

/* --- progress: one line on a terminal, rewritten --------------------------------------------- */

typedef struct Progress {
    const char *what;
    bool on;
    int shown; /* percent */
} Progress;

static void progress_show(Progress *p, uint64_t done, uint64_t all)
{
    const int percent = all ? (int)(done * 100 / all) : 100;

    if (!p->on || percent == p->shown)
        return;
    p->shown = percent;
    fprintf(stderr, "\r%s %3d%%%s", p->what, percent, done >= all ? "\r\033[K" : "");
    fflush(stderr);
}

static void progress_bytes(void *user, uint64_t done, uint64_t all)
{
    progress_show(user, done, all);
}

static void progress_pieces(void *user, size_t done, size_t all)
{
    progress_show(user, done, all);
}

/* --- targets -------------------------------------------------------------------------------- */

static bool add_target(const char *name, Target *targets, size_t *n, Diag *d)
{
    Target t;

    if (!target_parse(name, &t, d))
        return false;
    for (size_t i = 0; i < *n; i++)
        if (targets[i].id == t.id)
            return true;
    if (*n == MAX_TARGETS)
        return diag_error(d, (Loc){0}, "--target: more than %d targets", MAX_TARGETS);
    targets[(*n)++] = t;
    return true;
}

/* The words of --target; without it the CPU, and the GPU of this machine where there is one. */
static bool parse_targets(const char *words, Target *targets, size_t *n, Arena *keep, Diag *d)
{
    static const char *const all[] = {"cpu", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    static const char *const ptx[] = {"compute_80", "compute_90"}; /* for GPUs that have no code of their own */

    *n = 0;
    if (!words) {
        uint32_t id;

        if (!add_target("cpu", targets, n, d))
            return false;
        if (nvrtc_version() && device_cuda_probe(0, &id, NULL) == FTX_OK)
            return add_target(arena_printf(keep, "sm_%u%s", id / 10, id % 10 ? "a" : ""), targets, n, d);
        return true;
    }
    for (char *save = NULL, *w = strtok_r(arena_strdup(keep, words), ",", &save); w; w = strtok_r(NULL, ",", &save)) {
        if (strcmp(w, "all") == 0) {
            for (size_t i = 0; i < LEN(all); i++)
                if (!add_target(all[i], targets, n, d))
                    return false;
        } else if (strcmp(w, "ptx") == 0) {
            for (size_t i = 0; i < LEN(ptx); i++)
                if (!add_target(ptx[i], targets, n, d))
                    return false;
        } else if (!add_target(w, targets, n, d)) {
            return false;
        }
    }
    if (*n == 0)
        return diag_error(d, (Loc){0},
                          "--target: no target named; known: cpu, sm_80, sm_86, sm_89, sm_90a, "
                          "sm_100a, sm_120a, compute_80, compute_90, all, ptx");
    return true;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool any_gpu(const Target *targets, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (targets[i].id != FTX_TARGET_CPU)
            return true;
    return false;
}

/* --- the line ------------------------------------------------------------------------------- */

bool compile(const CompileOptions *o, Arena *keep, CompileResult *result, Diag *d)
{
    Target targets[MAX_TARGETS];
    Plan plans[MAX_TARGETS] = {0};
    Code codes[MAX_TARGETS] = {0};
    Packing packing = {0};
    Catalog catalog;
    Checkpoint *checkpoint = NULL;
    Spec spec = {0};
    ArtifactParts parts = {0};
    Progress progress = {.on = !o->quiet && isatty(2)};
    void *tokenizer = NULL;
    size_t n = 0;
    bool ok = false;

    if (!passes_check_dump(&o->dump, d) || !parse_targets(o->targets, targets, &n, keep, d) ||
        !spec_read(o->spec, o->overrides, o->n_overrides, keep, &spec, d) ||
        !passes_run_graph(spec.graph, &spec.precision, &o->dump, d) || !catalog_open(keep, &catalog, d))
        goto end;

    if (o->emit && !any_gpu(targets, n)) {
        diag_error(d, (Loc){0}, "--emit-cuda: no target is a GPU; name one: -t sm_90a");
        goto end;
    }
    if (same_file(o->out, o->spec) || same_file(o->out, spec.weights) || same_file(o->out, spec.tokenizer)) {
        diag_error(d, (Loc){0}, "%s: the artifact would take the place of what it is made of", o->out);
        goto end;
    }
    for (size_t i = 0; i < n; i++)
        if (!passes_run_target(spec.graph, &catalog, targets[i], &spec.precision, &packing, &plans[i], &o->dump, d))
            goto end;
    for (size_t i = 0; i < n; i++) /* later targets may have added weights to the block they share */
        plans[i].head.space_bytes[FTX_SPACE_WEIGHTS] = packing.bytes;

    for (size_t i = 0; i < n; i++) {
        if (targets[i].id == FTX_TARGET_CPU)
            continue;
        progress.what = arena_printf(keep, "kernels for %s", targets[i].name);
        progress.shown = -1;
        if ((o->emit && !instantiate_emit(&plans[i], o->emit, d)) ||
            !instantiate_compile(&plans[i], keep, &codes[i], progress_pieces, &progress, d))
            goto end;
    }

    if (spec.weights && !o->no_weights &&
        (!checkpoint_open(spec.weights, keep, &checkpoint, d) || !checkpoint_check(checkpoint, &spec, d)))
        goto end;
    if (spec.tokenizer && !tokenizer_compile(spec.tokenizer, keep, &tokenizer, &parts.tokenizer_bytes, d))
        goto end;

    parts.spec = &spec;
    parts.packing = &packing;
    parts.plans = plans;
    parts.codes = codes;
    parts.n_plans = n;
    parts.checkpoint = checkpoint;
    parts.tokenizer = tokenizer;
    parts.sidecar = o->sidecar;
    parts.program = o->program;
    parts.program_bytes = o->program_bytes;
    parts.build = arena_printf(keep, "ftxc %d.%d\nnvrtc %s\n", FTX_VERSION_MAJOR, FTX_VERSION_MINOR,
                               n > 1 || targets[0].id ? nvrtc_version() : "not used");
    progress.what = "weights";
    progress.shown = -1;
    if (o->out && !artifact_write(o->out, &parts, progress_bytes, &progress, d))
        goto end;

    *result = (CompileResult){.name = spec.name, .n_targets = n, .weight_bytes = packing.bytes};
    result->targets = "";
    for (size_t i = 0; i < n; i++) {
        result->n_instances += plans[i].instances.n;
        result->engine_bytes = 0;
        for (int space = FTX_SPACE_STATE; space < FTX_SPACE_COUNT; space++)
            result->engine_bytes += plans[i].head.space_bytes[space];
        result->work_bytes = plans[i].head.space_bytes[FTX_SPACE_WORK];
        result->lower_bound = plans[i].head.lower_bound;
        result->targets = arena_printf(keep, "%s%s%s", result->targets, i ? ", " : "", targets[i].name);
    }
    ok = true;
end:
    checkpoint_close(checkpoint);
    if (spec.graph)
        ir_graph_close(spec.graph);
    return ok;
}
