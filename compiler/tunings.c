/* tunings.c - finds the tuning files of the targets: --tune FILE, else those in the spec's folder, in the user's and in ftxc. */
#include "compile.h"

#include <stdlib.h>
#include <string.h>

#include "../runtime/base/file.h"
#include "../runtime/device/device.h"

enum { MAX_TUNING_FILE = 1 << 20 };

bool tunings_read(const char *path, Arena *keep, Tuning *into, Diag *d)
{
    const char *text;
    FileMap map;
    FtxError err;
    size_t bytes;
    bool ok;

    if (file_map(path, &map, &err))
        return diag_machine(d, "%s", err.text);
    text = file_text(&map, &bytes);
    if (bytes > MAX_TUNING_FILE || memchr(text, 0, bytes))
        ok = diag_error(d, (Loc){path, 0}, "not a tuning file: it is a text of at most %d bytes", MAX_TUNING_FILE);
    else
        ok = spec_read_tuning(path, arena_strndup(keep, text, bytes), keep, into, d);
    file_unmap(&map);
    return ok;
}

static bool read_if_there(const char *path, const char *device, Arena *keep, Tuning *into, Diag *d)
{
    if (!file_exists(path))
        return true;
    if (!tunings_read(path, keep, into, d))
        return false;
    return strcmp(into->files.at[into->files.n - 1]->device, device) == 0 ||
           diag_error(d, (Loc){path, 0}, "the file is for %s, and by its name for %s",
                      into->files.at[into->files.n - 1]->device, device);
}

/* "specs/" of specs/fable.lua; a checkout is a folder. */
static const char *folder_of(const Spec *spec, Arena *keep)
{
    const char *slash = strrchr(spec->path, '/');

    if (spec->checkout)
        return arena_printf(keep, "%s/", spec->path);
    return slash ? arena_strndup(keep, spec->path, (size_t)(slash - spec->path) + 1) : "";
}

static const char *file_of(const char *device, Arena *keep)
{
    return arena_printf(keep, "tune/%s.lua", tuning_file_name(device, keep));
}

const char *tunings_default(const Spec *spec, const char *device, Arena *keep)
{
    return arena_printf(keep, "%s%s", folder_of(spec, keep), file_of(device, keep));
}

const char *tunings_folder(const char *path, Arena *keep)
{
    const char *slash = strrchr(path, '/');

    return slash ? arena_strndup(keep, path, (size_t)(slash - path)) : ".";
}

static const char *user_folder(Arena *keep)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (xdg && *xdg)
        return arena_printf(keep, "%s/ftxc/", xdg);
    return home && *home ? arena_printf(keep, "%s/.config/ftxc/", home) : NULL;
}

static bool search(const Spec *spec, const char *device, Arena *keep, Tuning *into, Diag *d)
{
    const char *file = file_of(device, keep), *user = user_folder(keep), *shipped = catalog_text(file);

    return read_if_there(tunings_default(spec, device, keep), device, keep, into, d) &&
           (!user || read_if_there(arena_printf(keep, "%s%s", user, file), device, keep, into, d)) &&
           (!shipped || spec_read_tuning(file, shipped, keep, into, d));
}

/* The GPU of this machine, for targets that were found and not named. */
static const char *device_here(uint32_t id, Arena *keep)
{
    CudaFacts facts;

    if (device_cuda_facts(0, &facts, NULL) != FTX_OK || facts.target != id)
        return NULL;
    return arena_strdup(keep, facts.name);
}

bool tunings_find(const char *file, bool here, const Spec *spec, Targets *t, Arena *keep, Diag *d)
{
    Tuning *given = NULL;
    bool used = false;

    if (file && strcmp(file, "none") == 0)
        return true;
    if (file) {
        given = arena_new(keep, Tuning);
        if (!tunings_read(file, keep, given, d))
            return false;
    }
    for (size_t i = 0; i < t->n; i++) {
        Target *target = &t->at[i];
        const char *device = target->device;

        if (target->id == FTX_TARGET_CPU)
            continue;
        if (here && !device)
            device = device_here(target->id, keep);
        if (!device)
            continue;
        if (given && strcmp(given->files.at[0]->device, device) == 0) {
            target->tuning = given;
            used = true;
        } else if (!given) {
            target->tuning = arena_new(keep, Tuning);
            if (!search(spec, device, keep, target->tuning, d))
                return false;
        }
    }
    return !given || used ||
           diag_error(d, (Loc){file, 0}, "the file is for %s, and no target is that GPU; -t names one: %s",
                      given->files.at[0]->device, targets_known);
}

const char *tunings_note(const Targets *t, const Catalog *c, Arena *keep)
{
    const char *all = NULL;

    for (size_t i = 0; i < t->n; i++) {
        const char *note;

        if (!t->at[i].tuning)
            continue;
        tuning_check(t->at[i].tuning, c, keep);
        note = tuning_note(t->at[i].tuning, keep);
        if (note)
            all = all ? arena_printf(keep, "%s\n%s", all, note) : note;
    }
    return all;
}

const char *tunings_lines(const Targets *t, Arena *keep)
{
    const char *lines = "";

    for (size_t i = 0; i < t->n; i++)
        if (t->at[i].tuning)
            lines = arena_printf(keep, "%s%s", lines, tuning_lines(t->at[i].tuning, t->at[i].name, keep));
    return lines;
}
