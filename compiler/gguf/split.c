/* split.c - a model in several GGUF files: NAME-00001-of-00003.gguf and, in the same folder, the other parts.
 *
 *   split.no              the number of the part, from 0        these three keys are in each part
 *   split.count           parts of the model
 *   split.tensors.count   tensors of all parts
 *
 * All other keys are in the first part, which may have no tensors. Each part is a whole GGUF file: offsets and
 * general.alignment are its own. A file whose split.count is 0 or 1, or missing, is a whole model, whatever its name is. */
#include "gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char END[] = "-00001-of-00003.gguf";

enum { MAX_PARTS = 65535 };

typedef struct Split {
    int64_t no, count, tensors; /* -1: the file has no such key */
} Split;

/* Whether a name ends as END does, with any digits. */
static bool is_part(const char *name, size_t n)
{
    const size_t end = sizeof END - 1;

    if (n <= end)
        return false;
    for (size_t i = 0; i < end; i++) {
        const char c = name[n - end + i], like = END[i];

        if (like >= '0' && like <= '9' ? c < '0' || c > '9' : c != like)
            return false;
    }
    return true;
}

size_t gguf_stem(const char *name)
{
    const size_t n = strlen(name);

    if (is_part(name, n))
        return n - (sizeof END - 1);
    return n > 5 && strcmp(name + n - 5, ".gguf") == 0 ? n - 5 : n;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static const char *part_path(const char *path, int64_t no, int64_t count, Arena *keep)
{
    return arena_printf(keep, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int)gguf_stem(path), path, no + 1, count);
}

static bool read_count(const Gguf *g, const char *name, int64_t *out, Diag *d)
{
    const GgufKey *k = gguf_key(g, name);

    *out = -1;
    if (!k)
        return true;
    if (k->is_array || !gguf_is_integer(k) || gguf_integer(k, 0) < 0)
        return diag_error(d, (Loc){g->path, 0}, "key \"%s\" must be a whole number of 0 or more", name);
    *out = gguf_integer(k, 0);
    return true;
}

static bool read_split(const Gguf *g, Split *s, Diag *d)
{
    return read_count(g, "split.no", &s->no, d) && read_count(g, "split.count", &s->count, d) &&
           read_count(g, "split.tensors.count", &s->tensors, d);
}

/* Whether a file is the first part of a model, with a name from which those of the others follow. */
static bool check_first(const Gguf *g, const Split *s, Arena *keep, Diag *d)
{
    const char *path = g->path, *first = part_path(path, 0, s->count, keep);
    const Loc loc = {path, 0};

    if (s->count > MAX_PARTS)
        return diag_error(d, loc, "key \"split.count\" says that the model has more than %d parts", MAX_PARTS);
    if (s->no < 0)
        return diag_error(d, loc, "key \"split.no\" is missing: the number of the part");
    if (s->no >= s->count)
        return diag_error(d, loc, "key \"split.no\" is %" PRId64 ", key \"split.count\" %s%s", s->no,
                          s->count < 0 ? "is missing" : "says no more parts than ",
                          s->count < 0 ? "" : arena_printf(keep, "%" PRId64, s->count));
    if (s->no && is_part(path, strlen(path)))
        return diag_error(d, loc, "is part %" PRId64 " of %" PRId64 " of a model; name its first part, %s", s->no + 1,
                          s->count, first);
    if (s->no || strcmp(path, first) != 0)
        return diag_error(d, loc,
                          "is part %" PRId64 " of %" PRId64 " of a model by its keys: its name must end with "
                          "-%05" PRId64 "-of-%05" PRId64 ".gguf",
                          s->no + 1, s->count, s->no + 1, s->count);
    if (s->tensors < 0)
        return diag_error(d, loc, "key \"split.tensors.count\" is missing: it says how many tensors all parts have");
    return true;
}

/* --- the other parts ------------------------------------------------------------------------------ */

static bool check_number(const Gguf *part, const char *name, int64_t found, int64_t expected, const Gguf *first,
                         Diag *d)
{
    if (found == expected)
        return true;
    if (found < 0)
        return diag_error(d, (Loc){part->path, 0}, "key \"%s\" is missing; as a part of %s it is %" PRId64, name,
                          base_of(first->path), expected);
    return diag_error(d, (Loc){part->path, 0}, "key \"%s\" is %" PRId64 "; as a part of %s it is %" PRId64, name, found,
                      base_of(first->path), expected);
}

static bool same_value(const GgufKey *a, const GgufKey *b)
{
    if (a->is_array != b->is_array || a->kind != b->kind || a->n != b->n)
        return false;
    for (uint64_t i = 0; i < a->n && a->kind == GGUF_STRING; i++)
        if (a->texts[i].n != b->texts[i].n || memcmp(a->texts[i].at, b->texts[i].at, a->texts[i].n) != 0)
            return false;
    return a->kind == GGUF_STRING || memcmp(a->at, b->at, (size_t)a->n * gguf_kind_bytes(a->kind)) == 0;
}

/* A key of the model that a part repeats says what the first part says. */
static bool same_model(const Gguf *first, const Gguf *part, Diag *d)
{
    for (size_t i = 0; i < part->keys.n; i++) {
        const GgufKey *k = &part->keys.at[i], *of = gguf_key(first, k->name);

        if (strncmp(k->name, "split.", 6) == 0 || strcmp(k->name, "general.alignment") == 0)
            continue;
        if (!of || !same_value(k, of))
            return diag_error(d, (Loc){part->path, 0}, "key \"%s\" is not that of %s: parts of different models",
                              k->name, base_of(first->path));
    }
    return true;
}

static bool add_part(Gguf *g, const Split *s, int64_t no, Arena *keep, FileMaps *maps, Diag *d)
{
    const char *path = part_path(g->path, no, s->count, keep);
    FileMap *map;
    FtxError err;
    Gguf part = {0};
    Split of;

    if (!file_exists(path))
        return diag_error(d, (Loc){g->path, 0}, "part %" PRId64 " of %" PRId64 " is missing: there is no %s beside it",
                          no + 1, s->count, base_of(path));
    map = arena_push(keep, *maps);
    if (file_map(path, map, &err))
        return diag_machine(d, "%s", err.text);
    if (!gguf_read(path, map->at, map->bytes, keep, &part, d) || !read_split(&part, &of, d) ||
        !check_number(&part, "split.no", of.no, no, g, d) ||
        !check_number(&part, "split.count", of.count, s->count, g, d) ||
        !check_number(&part, "split.tensors.count", of.tensors, s->tensors, g, d) || !same_model(g, &part, d))
        return false;
    for (size_t i = 0; i < part.tensors.n; i++)
        *arena_push(keep, g->tensors) = part.tensors.at[i];
    return true;
}

static int by_name(const void *x, const void *y)
{
    return strcmp(((const GgufTensor *)x)->name, ((const GgufTensor *)y)->name);
}

/* Sorts the tensors of all parts, and counts them. */
static bool check_tensors(Gguf *g, const Split *s, Diag *d)
{
    if (g->tensors.n)
        qsort(g->tensors.at, g->tensors.n, sizeof *g->tensors.at, by_name);
    for (size_t i = 1; i < g->tensors.n; i++)
        if (by_name(&g->tensors.at[i - 1], &g->tensors.at[i]) == 0)
            return diag_error(d, (Loc){g->path, 0}, "tensor \"%s\" is both in %s and in %s", g->tensors.at[i].name,
                              base_of(g->tensors.at[i - 1].path), base_of(g->tensors.at[i].path));
    if (g->tensors.n != (uint64_t)s->tensors)
        return diag_error(d, (Loc){g->path, 0},
                          "its %" PRId64 " parts have %zu tensors; key \"split.tensors.count\" says %" PRId64, s->count,
                          g->tensors.n, s->tensors);
    return true;
}

bool gguf_join(Gguf *g, Arena *keep, FileMaps *maps, Diag *d)
{
    Split s;

    if (!read_split(g, &s, d))
        return false;
    if (s.count < 2 && s.no < 1)
        return true;
    if (!check_first(g, &s, keep, d))
        return false;
    for (int64_t no = 1; no < s.count; no++)
        if (!add_part(g, &s, no, keep, maps, d))
            return false;
    return check_tensors(g, &s, d);
}
