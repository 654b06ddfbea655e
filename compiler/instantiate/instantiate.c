/* instantiate.c - the code of a plan's instances, from the cache or from NVRTC.
 *
 *   instance -> text -> key -> cache? -> worker: NVRTC -> cache -> image in the code section
 *
 * Each instance is a translation unit of its own, so instances compile in parallel, and every plan and model with the
 * same constants uses the same cached code. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGE_ALIGN = 64 };

typedef struct Unit { /* one instance and its code */
    Instance *instance;
    const char *text;
    Hash128 key;
    Bytes code; /* at NULL: not compiled yet */
} Unit;

typedef struct Run {
    Plan *plan;
    Arena *keep;
    Unit *units;     /* one for each instance of the plan; instance NULL: it is not CUDA */
    size_t *missing; /* indices of the units that are not in the cache */
    KeyMaker keys;
    size_t n_missing, n_done, n_all;
    void (*progress)(void *user, uint64_t done, uint64_t all);
    void *user;
    Diag *d;
} Run;

/* A text that is written piece by piece. */
static FILE *text_open(char **at, size_t *n)
{
    FILE *f = open_memstream(at, n);

    if (!f)
        die("no memory");
    return f;
}

static void report_progress(Run *r)
{
    r->n_done++;
    if (r->progress)
        r->progress(r->user, r->n_done, r->n_all);
}

/* Sets the code of a unit and the resources of its instance. */
static bool accept(Run *r, Unit *u, Bytes code)
{
    Resources res = {0};

    if (!target_is_ptx(r->plan->target) && !cubin_resources(code, u->instance->entry, &res))
        return diag_error(r->d, (Loc){u->instance->template_name, 0},
                          "the compiled code has no kernel %s: the template must name it @NAME@", u->instance->entry);
    u->code = code;
    u->instance->registers = res.registers;
    u->instance->stack_bytes = res.stack_bytes;
    u->instance->spill_bytes = res.spill_bytes;
    u->instance->static_smem = res.static_smem;
    report_progress(r);
    return true;
}

static bool compile_unit(void *user, size_t i, Bytes *out)
{
    const Run *r = user;

    return nvrtc_compile(r->units[r->missing[i]].text, r->plan->target, out);
}

/* The first line of a log with the word error, or else its first line. */
static const char *first_error(Arena *keep, const char *log)
{
    const char *line = strstr(log, "error");

    if (!line)
        line = log + strspn(log, "\n ");
    while (line > log && line[-1] != '\n')
        line--;
    return arena_strndup(keep, line, strcspn(line, "\n"));
}

static bool unit_done(void *user, size_t i, bool ok, Bytes b)
{
    Run *r = user;
    Unit *u = &r->units[r->missing[i]];

    if (!ok) {
        const char *log = b.bytes ? arena_strndup(r->keep, b.at, b.bytes) : "NVRTC wrote no log";

        return diag_error(r->d, (Loc){0}, "%s does not compile for %s: %s", u->instance->entry, r->plan->target.name,
                          first_error(r->keep, log));
    }
    char *copy = arena_alloc(r->keep, b.bytes);
    memcpy(copy, b.at, b.bytes);
    cache_write(u->key, b);
    return accept(r, u, (Bytes){copy, b.bytes});
}

/* Bytes of a text with its headers: about proportional to its compile time. */
static size_t text_bytes(const char *text)
{
    const char *const *names, *const *texts;
    size_t headers[CATALOG_MAX_HEADERS], bytes = strlen(text);
    const size_t n = catalog_includes(text, headers, CATALOG_MAX_HEADERS);

    catalog_headers(&names, &texts);
    for (size_t i = 0; i < n; i++)
        bytes += strlen(texts[headers[i]]);
    return bytes;
}

/* Longest first, so that no worker begins a long unit when the others are done. */
static void sort_missing(Run *r)
{
    size_t *bytes = arena_array(r->keep, size_t, r->n_missing + 1);

    for (size_t i = 0; i < r->n_missing; i++) {
        const size_t unit = r->missing[i], n = text_bytes(r->units[unit].text);
        size_t at = i;

        for (; at > 0 && bytes[at - 1] < n; at--) {
            bytes[at] = bytes[at - 1];
            r->missing[at] = r->missing[at - 1];
        }
        bytes[at] = n;
        r->missing[at] = unit;
    }
}

static bool is_cuda(const Instance *i)
{
    return i->device == KD_CUDA;
}

/* Makes texts and keys of all units, and takes code from the cache. */
static bool prepare(Run *r)
{
    for (size_t i = 0; i < r->plan->instances.n; i++) {
        Instance *instance = r->plan->instances.at[i];
        Unit *u = &r->units[i];
        Bytes code;

        if (!is_cuda(instance))
            continue;
        u->instance = instance;
        u->key = key_make(&r->keys, instance, r->plan->target, &u->text);
        if (!cache_read(u->key, r->keep, &code))
            r->missing[r->n_missing++] = i;
        else if (!accept(r, u, code))
            return false;
    }
    return true;
}

/* Joins the images into one block, each at a multiple of 64 bytes. */
static void join(Run *r, Code *code)
{
    const size_t n = r->plan->instances.n;
    CodeImage *images = arena_array(r->keep, CodeImage, n + 1);
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++) {
        images[i] = (CodeImage){(uint32_t)bytes, (uint32_t)r->units[i].code.bytes};
        bytes = (bytes + r->units[i].code.bytes + IMAGE_ALIGN - 1) / IMAGE_ALIGN * IMAGE_ALIGN;
    }
    if (bytes > UINT32_MAX)
        die("the kernels of one target take %zu bytes, at most 4 GB are allowed", bytes);
    char *all = arena_alloc(r->keep, bytes + 1);
    for (size_t i = 0; i < n; i++)
        if (images[i].bytes)
            memcpy(all + images[i].at, r->units[i].code.at, images[i].bytes);
    code->cubin = all;
    code->cubin_bytes = bytes;
    code->images = images;
}

/* Joins all texts, each under a heading: first the headers that are used, then the instances. */
static const char *join_sources(Run *r)
{
    const char *const *names, *const *texts;
    const size_t count = catalog_headers(&names, &texts);
    bool *used = arena_array(r->keep, bool, count + 1);
    size_t headers[CATALOG_MAX_HEADERS], bytes = 0;
    char *all = NULL;
    FILE *f = text_open(&all, &bytes);
    Arena *a = arena_open();

    for (size_t i = 0; i < r->plan->instances.n; i++) {
        const size_t n = r->units[i].text ? catalog_includes(r->units[i].text, headers, CATALOG_MAX_HEADERS) : 0;

        for (size_t h = 0; h < n; h++)
            used[headers[h]] = true;
    }
    for (size_t h = 0; h < count; h++)
        if (used[h])
            fprintf(f, "// ===== file %s\n%s\n", names[h], texts[h]);
    for (size_t i = 0; i < r->plan->instances.n; i++)
        if (r->units[i].text)
            fprintf(f, "// ===== file %s.cu\n%s\n", r->units[i].instance->entry,
                    instantiate_text(r->units[i].instance, r->plan->target, a));
    fclose(f);
    const char *source = arena_strndup(r->keep, all, bytes);
    free(all);
    arena_close(a);
    return source;
}

bool instantiate_compile(Plan *plan, Arena *keep, Code *code, void (*progress)(void *user, uint64_t done, uint64_t all),
                         void *user, Diag *d)
{
    const size_t n = plan->instances.n;
    Run r = {.plan = plan, .keep = keep, .progress = progress, .user = user, .d = d};
    size_t died;

    *code = (Code){0};
    for (size_t i = 0; i < n; i++)
        r.n_all += is_cuda(plan->instances.at[i]);
    if (r.n_all == 0)
        return true;
    if (!nvrtc_version())
        return diag_machine(d, "target %s: %s", plan->target.name, nvrtc_missing());
    r.units = arena_array(keep, Unit, n);
    r.missing = arena_array(keep, size_t, n);
    r.keys.keep = keep;
    if (!prepare(&r))
        return false;
    sort_missing(&r);
    if (!workers_run(r.n_missing, compile_unit, unit_done, &r, &died)) {
        if (died < r.n_missing)
            diag_error(d, (Loc){0}, "NVRTC %s crashed while it compiled %s for %s", nvrtc_version(),
                       r.units[r.missing[died]].instance->entry, plan->target.name);
        return false;
    }
    join(&r, code);
    code->source = join_sources(&r);
    return true;
}
