/* includes.c - the headers that a text includes, and a hash of all that the kernels of a template follow from. */
#include "catalog.h"

#include <stdlib.h>
#include <string.h>

#include "../../runtime/base/hash.h"

/* Finds the next `#include "NAME"` from *p on, and moves *p past it. */
static bool next_include(const char **p, const char **name, size_t *n)
{
    for (const char *at = *p; (at = strstr(at, "#include")) != NULL;) {
        at += 8;
        const char *quote = at + strspn(at, " \t");

        if (*quote != '"')
            continue;
        *name = quote + 1;
        *n = strcspn(*name, "\"\n");
        *p = *name + *n;
        return true;
    }
    return false;
}

static void collect(const char *text, bool *seen)
{
    const char *const *names, *const *texts;
    const size_t count = catalog_headers(&names, &texts);
    const char *name;
    size_t n;

    while (next_include(&text, &name, &n)) {
        for (size_t h = 0; h < count; h++) {
            if (!seen[h] && strlen(names[h]) == n && !memcmp(names[h], name, n)) {
                seen[h] = true;
                collect(texts[h], seen);
            }
        }
    }
}

size_t catalog_includes(const char *text, size_t *indices, size_t max)
{
    const char *const *names, *const *texts;
    const size_t count = catalog_headers(&names, &texts);
    bool *seen = calloc(count + 1, sizeof *seen);
    size_t n = 0;

    if (!seen)
        die("no memory");
    collect(text, seen);
    for (size_t h = 0; h < count; h++)
        if (seen[h] && n < max)
            indices[n++] = h;
    free(seen);
    return n;
}

/* The `//@` lines of a template, which catalog_strip removes. */
static const char *contract_lines(const char *text, Arena *keep)
{
    char *out = arena_alloc(keep, strlen(text) + 1);
    size_t n = 0;

    for (const char *line = text; *line;) {
        const size_t bytes = strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n');

        if (strncmp(line, "//@", 3) == 0) {
            memcpy(out + n, line, bytes);
            n += bytes;
        }
        line += bytes;
    }
    out[n] = 0;
    return out;
}

uint64_t catalog_hash(const char *name, Arena *scratch)
{
    const char *const *names, *const *texts, *text = catalog_text(name);
    size_t headers[CATALOG_MAX_HEADERS];
    uint64_t hash = 0;

    if (!text)
        return 0;
    catalog_headers(&names, &texts);
    const size_t n = catalog_includes(text, headers, CATALOG_MAX_HEADERS);
    for (size_t i = 0; i < n + 2; i++) {
        const char *part = i == 0   ? contract_lines(text, scratch)
                           : i == 1 ? catalog_strip(text, false, scratch)
                                    : catalog_strip(texts[headers[i - 2]], false, scratch);
        const uint64_t both[] = {hash, hash64(part, strlen(part))};

        hash = hash64(both, sizeof both);
    }
    return hash;
}
