/* shared.c - the regions of a block's shared memory: their lines, and their offsets in an instance.
 *
 *   //@ shared RING  STAGES * SLOT         RING_AT = 0
 *   //@ shared SUMS  4096 over RING        SUMS_AT = RING_AT
 *   //@ shared STATS 8 * M                 STATS_AT = the larger end of the two
 *
 * Offsets are not constants with a place in the order of `consts` lines: a name is evaluated where it is used, from the
 * sizes of the regions. So a constant may depend on the regions that do not depend on it. */
#include "scope.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

/* --- reading ----------------------------------------------------------------------------------- */

/* The start of " WORD " in the text, or NULL. */
static const char *find_word(const char *text, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        if (at > text && isspace((unsigned char)at[-1]) && isspace((unsigned char)at[n]))
            return at;
    return NULL;
}

static int find_region(const Contract *c, const char *name, size_t n)
{
    for (size_t i = 0; i < c->shared.n; i++)
        if (strlen(c->shared.at[i].bytes.name) == n && strncmp(c->shared.at[i].bytes.name, name, n) == 0)
            return (int)i;
    return -1;
}

/* over REGION, after REGION or align N, behind the expression. */
static bool read_place(Reader *r, SharedRegion *region)
{
    const bool over = reader_accept(r, "over ");
    const char *name;

    if (reader_accept(r, "align ")) {
        region->align = strtol(r->at, (char **)&r->at, 10);
        return (region->align > 0 && region->align <= 1024 && !(region->align & (region->align - 1)) && !*r->at) ||
               reader_fail(r, "power of two up to 1024");
    }
    if (!over && !reader_accept(r, "after "))
        return reader_fail(r, "over, after or align");
    name = reader_name(r);
    region->other = name ? find_region(r->c, name, strlen(name)) : -1;
    region->place = over ? SHARED_OVER : SHARED_AFTER;
    return (region->other >= 0 && !*r->at) || reader_fail(r, "region of a shared line above");
}

/* NAME bytes [over REGION | after REGION | align N] */
bool read_shared(Reader *r)
{
    static const char *const words[] = {"over", "after", "align"};
    SharedRegion region = {.align = 1};
    const char *end;

    if (r->c->device != KD_CUDA)
        return diag_error(r->d, r->loc, "contract: only a CUDA kernel has shared memory");
    if (r->c->shared.n == CONTRACT_MAX_REGIONS)
        return reader_fail(r, "at most sixteen shared lines");
    region.bytes.name = reader_name(r);
    region.bytes.loc = r->loc;
    if (!region.bytes.name)
        return reader_fail(r, "name of the region");
    if (find_region(r->c, region.bytes.name, strlen(region.bytes.name)) >= 0)
        return diag_error(r->d, r->loc, "contract: region %s is given twice", region.bytes.name);
    reader_spaces(r);
    end = r->at + strlen(r->at);
    for (size_t i = 0; i < LEN(words); i++) {
        const char *at = find_word(r->at, words[i]);

        end = at && at < end ? at : end;
    }
    while (end > r->at && isspace((unsigned char)end[-1]))
        end--;
    region.bytes.text = arena_strndup(r->keep, r->at, (size_t)(end - r->at));
    r->at = end;
    if (!*region.bytes.text)
        return reader_fail(r, "bytes");
    reader_spaces(r);
    if (*r->at && !read_place(r, &region))
        return false;
    *(SharedRegion *)arena_push(r->keep, r->c->shared) = region;
    return true;
}

/* --- offsets ----------------------------------------------------------------------------------- */

/* The offset of each region, and the end of all. Sizes are evaluated of the first `count` regions alone, without that of
 * region `without` and those in its memory (-1: with all); the others count as empty. While names are only checked, sizes
 * are parsed. */
static bool place_regions(const Scope *s, size_t count, int without, int64_t at[CONTRACT_MAX_REGIONS], int64_t *all,
                          FtxError *err)
{
    bool empty[CONTRACT_MAX_REGIONS];
    int64_t end[CONTRACT_MAX_REGIONS] = {0};
    Scope sizes = *s; /* a size uses constants alone */

    sizes.live = sizes.at_most = false;
    sizes.sizing = true;
    *all = 0;
    memset(at, 0, CONTRACT_MAX_REGIONS * sizeof *at);
    for (size_t i = 0; i < s->c->shared.n; i++) {
        const SharedRegion *r = &s->c->shared.at[i];
        int64_t bytes = 0;
        Expr e;

        empty[i] = i >= count || (int)i == without || (r->place == SHARED_OVER && empty[r->other]) ||
                   (r->place == SHARED_AFTER && r->other != without && empty[r->other]);
        if (!empty[i] &&
            !(s->f ? scope_evaluate(&sizes, r->bytes.text, &bytes, err) : scope_parse(&sizes, r->bytes.text, &e, err)))
            return false;
        if (bytes < 0 || bytes > INT32_MAX) {
            ftx_fail(err, FTX_EINVAL, "region %s has %lld bytes", r->bytes.name, (long long)bytes);
            return false;
        }
        at[i] = r->place == SHARED_OVER ? at[r->other] : r->place == SHARED_AFTER ? end[r->other] : *all;
        at[i] = (at[i] + r->align - 1) / r->align * r->align;
        end[i] = at[i] + bytes;
        *all = end[i] > *all ? end[i] : *all;
    }
    return true;
}

bool scope_shared(const Scope *s, const char *name, int64_t *value)
{
    const size_t n = strlen(name);
    const bool all = strcmp(name, "SHARED") == 0, beside = strncmp(name, "BESIDE_", 7) == 0;
    const bool offset = n > 3 && strcmp(name + n - 3, "_AT") == 0;
    const int i = beside ? find_region(s->c, name + 7, n - 7) : offset ? find_region(s->c, name, n - 3) : -1;
    const size_t count = offset && i >= 0 ? (size_t)i : s->c->shared.n;
    int64_t at[CONTRACT_MAX_REGIONS];

    if (s->sizing || !s->c->shared.n || (!all && i < 0) || !place_regions(s, count, beside ? i : -1, at, value, NULL))
        return false;
    *value = !s->f ? 0 : offset ? at[i] : *value;
    return true;
}

bool scope_regions(const Scope *s, Arena *keep, Instance *in, FtxError *err)
{
    const size_t n = s->c->shared.n;
    int64_t at[CONTRACT_MAX_REGIONS], all;

    if (!place_regions(s, n, -1, at, &all, err))
        return false;
    in->n_regions = n ? n + 1 : 0;
    in->regions = arena_array(keep, Const, in->n_regions);
    for (size_t i = 0; i < n; i++)
        in->regions[i] = (Const){.name = arena_printf(keep, "%s_AT", s->c->shared.at[i].bytes.name), .i = at[i]};
    if (n)
        in->regions[n] = (Const){.name = "SHARED", .i = all};
    return true;
}
