/* cache.c - compiled kernels kept between runs, each in a file that is named by its key.
 *
 * The key is a hash of everything that the code depends on, so an entry never becomes invalid, and two processes that
 * write the same file write the same bytes. A file is verified when it is read; a damaged one is ignored. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/base/env.h"
#include "../../runtime/base/file.h"

enum { CACHE_FORMAT = 1, PATH_BYTES = 4096 };

typedef struct Entry { /* head of a file; the code follows */
    char magic[8];
    uint64_t format;
    Hash128 key;
    uint64_t bytes, checksum;
} Entry;

/* $FTX_CACHE (0: no cache), else $XDG_CACHE_HOME/ftxc, else ~/.cache/ftxc. False: no cache. */
static bool folder(char out[PATH_BYTES])
{
    const char *own = env_text(ENV_FTX_CACHE), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;

    if (own)
        n = strcmp(own, "0") ? snprintf(out, PATH_BYTES, "%s", own) : -1;
    else if (xdg && xdg[0] == '/')
        n = snprintf(out, PATH_BYTES, "%s/ftxc", xdg);
    else if (home && *home)
        n = snprintf(out, PATH_BYTES, "%s/.cache/ftxc", home);
    return n > 0 && n < PATH_BYTES - 64;
}

const char *cache_folder(Arena *keep)
{
    char path[PATH_BYTES];

    return folder(path) ? arena_strdup(keep, path) : NULL;
}

static bool path_of(Hash128 key, char out[PATH_BYTES])
{
    if (!folder(out))
        return false;
    const size_t n = strlen(out);
    snprintf(out + n, PATH_BYTES - n, "/%016llx%016llx.code", (unsigned long long)key.high,
             (unsigned long long)key.low);
    return true;
}

static bool is_whole(const FileMap *m, Hash128 key)
{
    Entry e;

    if (m->bytes < sizeof e)
        return false;
    memcpy(&e, m->at, sizeof e);
    return !memcmp(e.magic, "ftxcode", 8) && e.format == CACHE_FORMAT && e.key.low == key.low &&
           e.key.high == key.high && e.bytes > 0 && e.bytes == m->bytes - sizeof e &&
           e.checksum == hash64((const char *)m->at + sizeof e, e.bytes);
}

bool cache_read(Hash128 key, Arena *keep, Bytes *out)
{
    char path[PATH_BYTES];
    FileMap m;

    if (!path_of(key, path) || file_map(path, &m, NULL))
        return false;
    const bool whole = is_whole(&m, key);
    if (whole) {
        void *copy = arena_alloc(keep, m.bytes - sizeof(Entry));

        memcpy(copy, (const char *)m.at + sizeof(Entry), m.bytes - sizeof(Entry));
        *out = (Bytes){copy, m.bytes - sizeof(Entry)};
    }
    file_unmap(&m);
    return whole;
}

void cache_write(Hash128 key, Bytes b)
{
    const Entry e = {"ftxcode", CACHE_FORMAT, key, b.bytes, hash64(b.at, b.bytes)};
    char path[PATH_BYTES];
    FileOut *f;

    if (!folder(path) || file_make_dirs(path, NULL) || !path_of(key, path) || file_create(path, &f, NULL))
        return;
    if (file_write(f, &e, sizeof e, NULL) || file_write(f, b.at, b.bytes, NULL))
        file_abort(f);
    else
        file_commit(f, NULL);
}
