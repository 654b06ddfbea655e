/* merge.c - what a tuning file holds after a search: what was found, and what it held of that which was not decided.
 *
 * A kernel of a program that was compared with the untuned model to the end is decided: if nothing was found for it now, an
 * older entry, which this search did not confirm, does not stay. */
#include "tune.h"

#include <string.h>

static bool has(const TuningEntry *entries, size_t n, const TuningEntry *e)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(e->kernel, entries[i].kernel) == 0 && strcmp(e->program, entries[i].program) == 0 &&
            strcmp(e->shape, entries[i].shape) == 0)
            return true;
    return false;
}

void tune_decided(const TuneCases *cases, const TuneResult *r, Arena *keep, TuneEntries *decided)
{
    for (size_t i = 0; i < cases->n && !r->stopped; i++) {
        const TuneCase *c = &cases->at[i];

        if (r->untuned_us && r->untuned_us[c->at] > 0)
            *(TuningEntry *)arena_push(keep, *decided) =
                (TuningEntry){.kernel = c->kernel, .program = c->program, .shape = c->shape};
    }
}

void tune_decided_borders(const TuneBorders *borders, const TuneResult *r, Arena *keep, TuneEntries *decided)
{
    for (size_t i = 0; i < borders->n && !r->stopped; i++)
        *(TuningEntry *)arena_push(keep, *decided) =
            (TuningEntry){.kernel = TUNING_BORDER, .program = borders->at[i].program, .shape = borders->at[i].shape};
}

void tune_merge(const TuningEntry *found, size_t n, const Tuning *before, const TuneEntries *decided, Arena *keep,
                TuneEntries *out)
{
    for (size_t i = 0; i < n; i++)
        *(TuningEntry *)arena_push(keep, *out) = found[i];
    for (size_t i = 0; i < before->entries.n; i++) {
        const TuningEntry *e = &before->entries.at[i];

        if (!has(found, n, e) && !has(decided->at, decided->n, e))
            *(TuningEntry *)arena_push(keep, *out) = *e;
    }
}
