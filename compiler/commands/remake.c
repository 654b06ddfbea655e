/* remake.c - the spec and the settings of an artifact, from the command among its build facts (build.c).
 *
 * The command names files without their folders: the spec is looked for beside the artifact, then in the current folder. */
#include "remake.h"

#include <string.h>

#include "../../runtime/artifact/artifact.h"
#include "../../runtime/base/file.h"

bool remake_is_artifact(const char *path)
{
    const size_t n = strlen(path);

    return n > 4 && strcmp(path + n - 4, ".ftx") == 0;
}

/* The next word of a line, in quotes or not, and *line behind it; NULL: there is none. */
static const char *next_word(const char **line, Arena *keep)
{
    const char *from = *line + strspn(*line, " ");
    const bool quoted = *from == '\'';
    size_t n;

    from += quoted;
    n = strcspn(from, quoted ? "'" : " ");
    *line = from + n + (from[n] == '\'');
    return n || quoted ? arena_strndup(keep, from, n) : NULL;
}

/* The line of the build facts that begins with "command "; NULL: there is none. */
static const char *command_of(const char *facts, Arena *keep)
{
    for (const char *line = facts; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "command ", 8) == 0)
            return arena_strndup(keep, line + 8, strcspn(line + 8, "\n"));
    }
    return NULL;
}

static bool find_spec(const char *path, const char *name, Arena *keep, Remake *out, Diag *d)
{
    const char *slash = strrchr(path, '/');
    const char *beside = arena_printf(keep, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);

    out->spec = file_exists(beside) ? beside : name;
    return file_exists(out->spec) ||
           diag_error(d, (Loc){path, 0},
                      "was made from %s, which is neither beside it nor in this folder: name the spec", name);
}

/* ftxc compile SPEC -t cpu -D FIELD=VALUE ... */
static bool read_command(const char *path, const char *line, Arena *keep, Remake *out, Diag *d)
{
    const char *name, *word;

    for (size_t i = 0; i < 2; i++)
        next_word(&line, keep);
    name = next_word(&line, keep);
    if (!name || *name == '-')
        return diag_error(d, (Loc){path, 0}, "does not say which spec it was made from: name the spec");
    while ((word = next_word(&line, keep)) != NULL)
        if (strcmp(word, "-D") == 0 && out->n < REMAKE_MOST && (word = next_word(&line, keep)) != NULL)
            out->overrides[out->n++].text = word;
    return find_spec(path, name, keep, out, d);
}

bool remake_read(const char *path, Arena *keep, Remake *out, Diag *d)
{
    const char *line;
    Artifact a;
    FtxError err;

    *out = (Remake){0};
    if (artifact_open(path, &a, &err))
        return err.status == FTX_EIO ? diag_machine(d, "%s", err.text) : diag_error(d, (Loc){0}, "%s", err.text);
    line = command_of(a.build, keep);
    artifact_close(&a);
    return read_command(path, line ? line : "", keep, out, d);
}
