/* tuning_write.c - the text of a tuning file: sorted, so that a new measurement changes few lines. */
#include "tuning.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const TuningEntry *x = *(const TuningEntry *const *)a, *y = *(const TuningEntry *const *)b;
    int way = strcmp(x->kernel, y->kernel);

    way = way ? way : strcmp(x->shape, y->shape);
    way = way ? way : strcmp(x->program, y->program);
    return way ? way : strcmp(x->hash, y->hash);
}

static const char *entry_text(const TuningEntry *e, Arena *keep)
{
    const char *text =
        arena_printf(keep, "    { kernel = \"%s\", hash = \"%s\", program = \"%s\",\n      shape = \"%s\",\n      ",
                     e->kernel, e->hash, e->program, e->shape);

    if (e->most) {
        text = arena_printf(keep, "%smost = %lld", text, (long long)e->most);
    } else if (e->avoid) {
        text = arena_printf(keep, "%savoid = true", text);
    } else if (e->algorithms.n) {
        text = arena_printf(keep, "%slibrary = %lld, algorithms = {\n", text, (long long)e->algorithms.at[0]);
        for (size_t i = 1; i < e->algorithms.n; i += FTX_MM_RECORD) {
            text = arena_printf(keep, "%s        {", text);
            for (size_t k = 0; k < FTX_MM_RECORD; k++)
                text = arena_printf(keep, "%s%s %lld", text, k ? "," : "", (long long)e->algorithms.at[i + k]);
            text = arena_printf(keep, "%s },\n", text);
        }
        text = arena_printf(keep, "%s      }", text);
    } else {
        text = arena_printf(keep, "%suse = {", text);
        for (size_t i = 0; i < e->use.n; i++)
            text = arena_printf(keep, "%s%s %s = %lld", text, i ? "," : "", e->use.at[i].name,
                                (long long)e->use.at[i].value);
        text = arena_printf(keep, "%s }", text);
    }
    if (e->us > 0)
        text = arena_printf(keep, "%s, us = %.3f, untuned = %.3f", text, e->us, e->untuned_us);
    return arena_printf(keep, "%s },\n", text);
}

const char *tuning_text(const TuningFile *file, const TuningEntry *entries, size_t n, Arena *keep)
{
    const TuningEntry **sorted = arena_array(keep, const TuningEntry *, n);
    const char *made = file->made ? arena_printf(keep, "  made = \"%s\",\n", file->made) : "";
    const char *rate = file->rate > 0 ? arena_printf(keep, "  rate = %.0f,\n", file->rate) : "";
    const char *text =
        arena_printf(keep,
                     "-- Written by ftxc tune; docs/tuning.md explains it. What no longer applies is ignored.\n"
                     "return {\n  gpu = \"%s\",\n%s%s  any_order = %s,\n  entries = {\n",
                     file->device, made, rate, file->any_order ? "true" : "false");

    for (size_t i = 0; i < n; i++)
        sorted[i] = &entries[i];
    if (n)
        qsort(sorted, n, sizeof *sorted, compare);
    for (size_t i = 0; i < n; i++)
        text = arena_printf(keep, "%s%s", text, entry_text(sorted[i], keep));
    return arena_printf(keep, "%s  },\n}\n", text);
}
