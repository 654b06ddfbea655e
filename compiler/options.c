/* options.c - what a compile without --target is for, and options that contradict one another. */
#include "compile.h"

#include <sys/stat.h>

#include "gguf/gguf.h"
#include "instantiate/instantiate.h"
#include "../runtime/device/device.h"

/* Without --target: the CPU, and this machine's GPU where there is one. */
const char *options_targets(Arena *keep)
{
    uint32_t id;

    if (!nvrtc_version() || device_cuda_probe(0, &id, NULL) != FTX_OK)
        return "cpu";
    return arena_printf(keep, "cpu,sm_%u%s", id / 10, id % 10 ? "a" : "");
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Whether it is the second or a later file of a model in several GGUF files. */
static bool is_later_part(const char *path, const char *first)
{
    Arena *keep = arena_open();
    const char *part;
    bool is = false;

    for (int64_t no = 2; !is && (part = gguf_part(first, no, keep)); no++)
        is = same_file(path, part);
    arena_close(keep);
    return is;
}

bool options_check(const CompileOptions *o, const Spec *s, const Targets *t, Diag *d)
{
    bool gpu = false;

    for (size_t i = 0; i < t->n; i++)
        gpu |= t->at[i].id != FTX_TARGET_CPU;
    if (o->emit && !gpu)
        return diag_error(d, (Loc){0}, "--emit-cuda: no target is a GPU; name one: -t sm_90a");
    if (o->n_adapters && o->no_weights)
        return diag_error(d, (Loc){0}, "--lora: an adapter changes weights, and --no-weights stores none");
    if (o->n_adapters && !s->weights)
        return diag_error(d, (Loc){s->path, 0}, "has no weights that --lora could change");
    if (same_file(o->out, o->spec) || same_file(o->out, s->weights) || same_file(o->out, s->tokenizer) ||
        (s->gguf && is_later_part(o->out, o->spec)))
        return diag_error(d, (Loc){0}, "%s: the artifact would overwrite a file that it is made from", o->out);
    return true;
}
