/* options.c - what a compile without --target is for, and options that contradict one another. */
#include "compile.h"

#include <string.h>
#include <sys/stat.h>

#include "instantiate/instantiate.h"
#include "../runtime/artifact/ftx_format.h"
#include "../runtime/artifact/trailer.h"
#include "../runtime/device/device.h"

/* Without --target: the CPU, and this machine's GPU where there is one. */
const char *options_targets(Arena *keep)
{
    uint32_t id;

    if (!nvrtc_version() || device_cuda_probe(0, &id, NULL) != FTX_OK)
        return "cpu";
    return arena_printf(keep, "cpu,sm_%u%s", id / 10, id % 10 ? "a" : "");
}

/* Whether a file would be lost that is no artifact: a part of the model, an adapter, a tuning file, anything else. A program
 * may be an artifact that has lost its end. An empty file, and what is no regular file, is not lost. */
static bool is_lost(const char *path)
{
    const size_t magic = sizeof FTX_MAGIC - 1;
    FileMap file, artifact;
    struct stat is;
    bool lost;

    if (!path || stat(path, &is) || !S_ISREG(is.st_mode) || !is.st_size || file_map(path, &file, NULL))
        return false;
    lost = trailer_find(file, &artifact, NULL) == FTX_OK;
    if (lost && artifact.bytes >= magic)
        lost = memcmp(artifact.at, FTX_MAGIC, magic) != 0;
    file_unmap(&file);
    return lost;
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
    if (is_lost(o->out))
        return diag_error(d, (Loc){0}, "%s: the artifact would overwrite this file, which is no artifact", o->out);
    return true;
}
