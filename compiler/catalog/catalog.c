/* catalog.c - the texts embedded in ftxc, found by name. */
#include "catalog.h"

#include <string.h>

const char *catalog_text(const char *name)
{
    for (size_t i = 0; i < embedded_count; i++)
        if (strcmp(embedded_files[i].name, name) == 0)
            return embedded_files[i].text;
    return NULL;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

size_t catalog_headers(const char *const **names, const char *const **texts)
{
    static const char *all_names[CATALOG_MAX_HEADERS], *all_texts[CATALOG_MAX_HEADERS];
    size_t n = 0;

    for (size_t i = 0; i < embedded_count && n < CATALOG_MAX_HEADERS; i++) {
        const char *name = embedded_files[i].name;

        if (!ends_with(name, ".cuh") && !ends_with(name, ".h"))
            continue;
        all_names[n] = name;
        all_texts[n++] = embedded_files[i].text;
    }
    *names = all_names;
    *texts = all_texts;
    return n;
}

bool catalog_open(Arena *keep, Catalog *c, Diag *d)
{
    return catalog_read(keep, embedded_files, embedded_count, c, d) && catalog_check_types(c, d);
}
