/* key.c - the key of an instance's code: a hash of everything that the code follows from.
 *
 * That is the text and the headers it includes, without their comments, the flags, and NVRTC's version. The entry's name
 * is in the text. The name of the template is not: the key has the family in its place. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEY_FORMAT = 2 };

Hash128 key_make(KeyMaker *k, const Instance *i, Target t, const char **text)
{
    const char *const *names, *const *texts, *flags[NVRTC_MAX_FLAGS];
    size_t headers[CATALOG_MAX_HEADERS], bytes = 0;
    char architecture[64], *all = NULL;
    FILE *f = open_memstream(&all, &bytes);

    if (!f)
        die("no memory");
    const char *body = text_body(i, k->keep);

    *text = arena_printf(k->keep, "#line 1 \"%s\"\n%s", i->template_name, body);
    catalog_headers(&names, &texts);
    fprintf(f, "%d NVRTC %s", KEY_FORMAT, k->any_nvrtc ? "any" : nvrtc_version());
    const size_t n_flags = nvrtc_flags(t, flags, architecture);
    for (size_t n = 0; n < n_flags; n++)
        fprintf(f, " %s", flags[n]);
    fprintf(f, "%c#line 1 \"%s.cu\"\n%s%c", 0, i->family, catalog_strip(body, false, k->keep), 0);
    const size_t n_headers = catalog_includes(*text, headers, CATALOG_MAX_HEADERS);
    for (size_t n = 0; n < n_headers; n++) {
        const size_t h = headers[n];

        if (!k->headers[h])
            k->headers[h] = catalog_strip(texts[h], false, k->keep);
        fprintf(f, "%s%c%s%c", names[h], 0, k->headers[h], 0);
    }
    fclose(f);
    const Hash128 key = hash128(all, bytes);
    free(all);
    return key;
}
