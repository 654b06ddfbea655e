/* tuning.c - finds the entry of a tuning file that belongs to a match, and fits by it. */
#include "tuning.h"

#include <ctype.h>
#include <string.h>

#include "../../runtime/base/hash.h"

const char *tuning_file_name(const char *device, Arena *keep)
{
    char *name = arena_strdup(keep, device);

    for (char *p = name; *p; p++)
        *p = isalnum((unsigned char)*p) ? (char)tolower((unsigned char)*p) : '-';
    return name;
}

const char *tuning_hash(const Contract *c, Arena *keep)
{
    const char *name = c->template_name ? c->template_name : "matmul.cu";

    return arena_printf(keep, "%016llx", (unsigned long long)catalog_hash(name, keep));
}

/* --- the shape ----------------------------------------------------------------------------------- */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Whether `text` holds the word. */
static bool mentions(const char *text, const char *word)
{
    const size_t n = strlen(word);

    for (const char *p = text; (p = strstr(p, word)) != NULL; p += n)
        if ((p == text || !is_word(p[-1])) && !is_word(p[n]))
            return true;
    return false;
}

/* Whether a value depends on a tuned constant: by the constants that it names, or by a region of shared memory. */
static bool depends(const Contract *c, const char *text, const bool *tuned)
{
    if (!text)
        return false;
    for (size_t i = 0; i < c->consts.n; i++)
        if (tuned[i] && mentions(text, c->consts.at[i].value.name))
            return true;
    for (size_t i = 0; i < c->shared.n; i++)
        if (strstr(text, "_AT") || strstr(text, "BESIDE_") || mentions(text, "SHARED"))
            return true;
    return false;
}

static void find_tuned(const Contract *c, bool *tuned)
{
    for (size_t i = 0; i < c->consts.n; i++) {
        const ContractConst *k = &c->consts.at[i];

        tuned[i] = k->n_values > 0 || (!k->of_match && depends(c, k->value.text, tuned));
    }
}

const char *tuning_shape(const Binding *b, const Instance *in, Arena *keep)
{
    const Contract *c = b->contract;
    bool tuned[CONTRACT_MAX_CONSTS] = {false};
    const char *shape = b->gives ? "given" : "";

    find_tuned(c, tuned);
    for (size_t i = 0; i < c->consts.n; i++) {
        const Const *k = &in->consts[i];

        if (tuned[i] || k->kind == CONST_FLOAT || !k->i || strcmp(k->name, "PAGES") == 0)
            continue;
        shape =
            arena_printf(keep, "%s%s%s=%s", shape, *shape ? " " : "", k->name,
                         k->kind == CONST_TYPE ? dtype_name((DType)k->i) : arena_printf(keep, "%lld", (long long)k->i));
    }
    return shape;
}

/* --- following an entry ------------------------------------------------------------------------------ */

/* Whether values that change the order of a sum are those that were chosen without the entry. */
static bool keeps_order(const TuningEntry *e, const Contract *c, const Instance *untuned)
{
    for (size_t i = 0; i < e->use.n; i++)
        for (size_t k = 0; k < c->consts.n; k++)
            if (c->consts.at[k].reorders && strcmp(c->consts.at[k].value.name, e->use.at[i].name) == 0 &&
                untuned->consts[k].i != e->use.at[i].value)
                return false;
    return !e->avoid && !e->algorithms.n;
}

static bool names_constants(const TuningEntry *e, const Contract *c)
{
    for (size_t i = 0; i < e->use.n; i++) {
        bool found = false;

        for (size_t k = 0; k < c->consts.n; k++)
            found |= c->consts.at[k].n_values && strcmp(c->consts.at[k].value.name, e->use.at[i].name) == 0;
        if (!found)
            return false;
    }
    return true;
}

/* A matmul with these algorithms is another instance. */
static Instance *with_algorithms(const TuningEntry *e, const Instance *untuned, Arena *keep)
{
    const size_t bytes = e->algorithms.n * sizeof *e->algorithms.at;
    Instance *in = arena_new(keep, Instance);

    *in = *untuned;
    in->algorithms = e->algorithms.at;
    in->n_algorithms = e->algorithms.n;
    in->entry = arena_printf(keep, "%s_%08x", untuned->entry, (uint32_t)hash64(e->algorithms.at, bytes));
    return in;
}

static TuningState follow(TuningEntry *e, const ProgramFacts *f, const Binding *b, Arena *keep, Arena *scratch,
                          Fitted *fit)
{
    static const NamedText another = {.name = "avoid", .text = "another kernel was measured to be faster"};
    const char *reason;
    Fitted tuned;

    if (!e->file->any_order && !keeps_order(e, b->contract, fit->instance))
        return TUNING_ORDER;
    if (e->algorithms.n && b->contract->device != KD_MATMUL)
        return TUNING_ILLEGAL;
    if (!names_constants(e, b->contract) ||
        !contract_fit_with(f, b, e->use.at, e->use.n, keep, scratch, &tuned, &reason))
        return TUNING_ILLEGAL;
    *fit = tuned;
    if (e->algorithms.n)
        fit->instance = with_algorithms(e, tuned.instance, keep);
    fit->tuned = e;
    if (e->avoid)
        fit->avoided = &another;
    return TUNING_USED;
}

void tuning_follow(const ProgramFacts *f, const Binding *b, Arena *keep, Arena *scratch, Fitted *fit)
{
    const char *shape = NULL, *hash = NULL;

    for (size_t i = 0; f->tuning && i < f->tuning->entries.n; i++) {
        TuningEntry *e = &f->tuning->entries.at[i];

        if (strcmp(e->kernel, b->contract->family) != 0 || strcmp(e->program, f->name) != 0)
            continue;
        shape = shape ? shape : tuning_shape(b, fit->instance, scratch);
        if (strcmp(e->shape, shape) != 0)
            continue;
        hash = hash ? hash : tuning_hash(b->contract, scratch);
        if (strcmp(e->hash, hash) != 0)
            continue;
        e->state = follow(e, f, b, keep, scratch, fit);
        if (e->state == TUNING_USED)
            return;
    }
}

/* --- what is said of it ------------------------------------------------------------------------------- */

void tuning_check(Tuning *t, const Catalog *c, Arena *scratch)
{
    for (size_t i = 0; i < c->n; i++) {
        const char *hash = NULL;

        for (size_t k = 0; c->at[i]->device != KD_CPU && k < t->entries.n; k++) {
            if (strcmp(t->entries.at[k].kernel, c->at[i]->family) != 0)
                continue;
            hash = hash ? hash : tuning_hash(c->at[i], scratch);
            if (strcmp(t->entries.at[k].hash, hash) != 0)
                t->entries.at[k].state = TUNING_OLD;
        }
    }
}

const char *tuning_note(const Tuning *t, Arena *keep)
{
    static const char *const what[TUNING_STATES] = {
        [TUNING_OLD] = "of older kernels",
        [TUNING_ILLEGAL] = "not legal",
        [TUNING_ORDER] = "that change the order of sums (the file was made without --any-order)",
    };
    size_t count[TUNING_STATES] = {0};
    const char *note = "";

    for (size_t i = 0; i < t->entries.n; i++)
        count[t->entries.at[i].state]++;
    if (!t->entries.n)
        return NULL;
    for (size_t i = 0; i < t->files.n; i++)
        note = arena_printf(keep, "%s%s%s", note, i ? ", " : "", t->files.at[i]->name);
    note = arena_printf(keep, "%s: %zu of %zu entries used", note, count[TUNING_USED], t->entries.n);
    for (int s = 0, n = 0; s < TUNING_STATES; s++)
        if (what[s] && count[s])
            note = arena_printf(keep, "%s%s%zu %s", note, n++ ? ", " : "; ignored: ", count[s], what[s]);
    return note;
}

static const char *base_name(const char *path)
{
    return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

static const char *use_text(const TuningEntry *e, Arena *keep)
{
    const char *text = e->most           ? arena_printf(keep, "%lld rows at most", (long long)e->most)
                       : e->avoid        ? "avoid"
                       : e->algorithms.n ? arena_printf(keep, "%zu algorithms of cuBLASLt %lld",
                                                        e->algorithms.n / FTX_MM_RECORD, (long long)e->algorithms.at[0])
                                         : "";

    for (size_t i = 0; i < e->use.n; i++)
        text =
            arena_printf(keep, "%s%s%s=%lld", text, *text ? " " : "", e->use.at[i].name, (long long)e->use.at[i].value);
    return text;
}

const char *tuning_lines(const Tuning *t, const char *target, Arena *keep)
{
    const char *lines = "";

    for (size_t i = 0; i < t->files.n; i++) {
        const TuningFile *f = t->files.at[i];

        lines = arena_printf(keep, "%stuning %s: %s %016llx%s\n", lines, target, base_name(f->name),
                             (unsigned long long)f->hash, f->any_order ? ", any order of sums" : "");
        for (size_t k = 0; k < t->entries.n; k++)
            if (t->entries.at[k].file == f && t->entries.at[k].state == TUNING_USED)
                lines =
                    arena_printf(keep, "%stuned %s, %s, %s: %s\n", lines, t->entries.at[k].kernel,
                                 t->entries.at[k].program, t->entries.at[k].shape, use_text(&t->entries.at[k], keep));
    }
    return lines;
}
