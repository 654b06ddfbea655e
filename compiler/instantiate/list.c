/* list.c - FTX_TEXTS: the kernels of a plan as lines of a file, each with the hash of its text.
 *
 *   sm_90a embed__bf16_c384_3f2a 50435a5b95620121
 *
 * The hash is the low half of the key without the version of NVRTC. Many compiles may add to one file at a time. */
#include "parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/base/env.h"

bool instantiate_list(const Plan *plan, Diag *d)
{
    const char *path = env_text(ENV_FTX_TEXTS), *text;
    FILE *f = path ? fopen(path, "a") : NULL;

    if (!path)
        return true;
    if (!f)
        return diag_machine(d, "FTX_TEXTS: cannot open %s: %s", path, strerror(errno));
    setvbuf(f, NULL, _IOLBF, BUFSIZ); /* each line by one write, so that lines of two processes do not mix */
    KeyMaker keys = {.keep = arena_open(), .any_nvrtc = true};
    int why = 0;
    for (size_t i = 0; i < plan->instances.n && !why; i++) {
        const Instance *instance = plan->instances.at[i];

        if (instance->device == KD_CUDA && fprintf(f, "%s %s %016" PRIx64 "\n", plan->target.name, instance->entry,
                                                   key_make(&keys, instance, plan->target, &text).low) < 0)
            why = errno;
    }
    arena_close(keys.keep);
    if (fclose(f) != 0 && !why)
        why = errno;
    return !why || diag_machine(d, "FTX_TEXTS: cannot write %s: %s", path, strerror(why));
}
