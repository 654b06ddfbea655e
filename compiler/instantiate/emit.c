/* emit.c - `ftxc compile --emit-cuda DIR`: the instances of a plan as files that compile alone. */
#include "parts.h"

#include <stdio.h>
#include <string.h>

#include "../../runtime/base/file.h"

static bool write_text(const char *dir, const char *name, const char *suffix, const char *text, Diag *d)
{
    Arena *a = arena_open();
    const char *path = arena_printf(a, "%s/%s%s", dir, name, suffix);
    const char *slash = strrchr(path, '/');
    FtxError err = {0};
    const bool ok = !file_make_dirs(arena_strndup(a, path, (size_t)(slash - path)), &err) &&
                    !file_write_whole(path, text, strlen(text), &err);

    arena_close(a);
    return ok || diag_machine(d, "%s", err.text);
}

bool instantiate_emit(const Plan *plan, const char *dir, Diag *d)
{
    const char *const *names, *const *texts;
    Arena *a = arena_open();
    size_t headers[CATALOG_MAX_HEADERS];
    bool ok = true;

    catalog_headers(&names, &texts);
    for (size_t i = 0; ok && i < plan->instances.n; i++) {
        const Instance *instance = plan->instances.at[i];

        if (instance->device != KD_CUDA)
            continue;
        const char *text = instantiate_text(instance, plan->target, a);
        const size_t n = catalog_includes(text, headers, CATALOG_MAX_HEADERS);
        ok = write_text(dir, instance->entry, ".cu", text, d);
        for (size_t h = 0; ok && h < n; h++)
            ok = write_text(dir, names[headers[h]], "", texts[headers[h]], d);
        arena_reset(a);
    }
    arena_close(a);
    return ok;
}
