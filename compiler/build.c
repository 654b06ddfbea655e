/* build.c - the build facts of an artifact: versions, the command that makes it again, and the adapters in it.
 *
 * The command names files without their folders, so that an artifact does not depend on where it was made. */
#include "compile.h"

#include <string.h>

#include "instantiate/instantiate.h"
#include "../runtime/ftx.h"

static const char *base_name(const char *path, Arena *keep)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    path = arena_strndup(keep, path, n);
    return n > 1 && strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

/* For a shell; NULL: it cannot be written in a line. */
static const char *quoted(const char *text, Arena *keep)
{
    const char *safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=+-";

    if (strpbrk(text, "'\n"))
        return NULL;
    return text[strspn(text, safe)] ? arena_printf(keep, "'%s'", text) : text;
}

const char *build_facts(const CompileOptions *o, const Targets *t, const char *adapters, Arena *keep)
{
    const char *spec = quoted(base_name(o->spec, keep), keep);
    const char *line = arena_printf(keep, "ftxc compile %s -t ", spec ? spec : "SPEC");
    bool gpu = false;

    for (size_t i = 0; i < t->n; i++) {
        line = arena_printf(keep, "%s%s%s", line, i ? "," : "", t->at[i].name);
        gpu |= t->at[i].id != FTX_TARGET_CPU;
    }
    for (size_t i = 0; i < o->n_overrides; i++) {
        const char *text = o->overrides[i].text, *equals = strchr(text, '=');

        if (equals && strchr(equals, '/')) /* a file */
            text = arena_printf(keep, "%.*s%s", (int)(equals + 1 - text), text, base_name(equals + 1, keep));
        text = quoted(text, keep);
        if (text)
            line = arena_printf(keep, "%s -D %s", line, text);
    }
    for (size_t i = 0; i < o->n_adapters; i++) {
        const char *folder = quoted(base_name(o->adapters[i], keep), keep);

        line = arena_printf(keep, "%s --lora %s", line, folder ? folder : "DIR");
    }
    if (o->calibrated_with) {
        const char *file = quoted(base_name(o->calibrated_with, keep), keep);

        line = arena_printf(keep, "%s --calibrate %s", line, file ? file : "FILE");
    }
    return arena_printf(keep, "ftxc %d.%d\nnvrtc %s\ncommand %s%s%s\n%s%s", FTX_VERSION_MAJOR, FTX_VERSION_MINOR,
                        gpu ? nvrtc_version() : "not used", line, o->no_weights ? " --no-weights" : "",
                        o->sidecar ? " --sidecar" : "", adapters, tunings_lines(t, keep));
}
