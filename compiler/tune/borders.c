/* borders.c - up to how many rows a program is faster than the next larger one of its kind.
 *
 * Two models are compared: one as it is, and one in which the program is not run with these rows, so that the next one runs them.
 * The next one is tried with the most rows first, where it is most likely to be the faster. Where it is, fewer rows are tried by
 * bisection: what is found is the fewest rows from which on it was faster. */
#include "tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 6 /* A B B A */ };
static const double LEAST_GAIN = 0.005, ALL = 1;

typedef struct Sides {
    const TuneMachine *m;
    const TuneBorder *b;
    void *with, *without; /* the program */
    double us[2]; /* of the last comparison in which the next program was faster: of the program, of the next one */
} Sides;

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Whether the next program is faster with so many rows in each of all rounds but one, and by more than 0.5 % in the median. */
static bool is_faster(Sides *s, int64_t rows)
{
    void *const order[] = {s->with, s->without, s->without, s->with};
    double gains[ROUNDS], us[2] = {0};
    size_t losses = 0;

    for (int r = 0; r < ROUNDS; r++) {
        double took[4];

        for (int i = 0; i < 4; i++)
            if (s->m->stop(s->m->user, ALL) || !s->m->rows(s->m->user, order[i], s->b, rows, &took[i]))
                return false;
        gains[r] = (took[0] + took[3] - took[1] - took[2]) / (took[0] + took[3]);
        losses += gains[r] <= 0;
        us[0] += 0.5 * (took[0] + took[3]) / ROUNDS;
        us[1] += 0.5 * (took[1] + took[2]) / ROUNDS;
    }
    qsort(gains, ROUNDS, sizeof *gains, by_size);
    if (losses > 1 || 0.5 * (gains[ROUNDS / 2 - 1] + gains[ROUNDS / 2]) < LEAST_GAIN)
        return false;
    s->us[0] = us[0];
    s->us[1] = us[1];
    return true;
}

/* The most rows with which the program stays the one to run. */
static int64_t bisect(Sides *s)
{
    int64_t slower = s->b->least > 1 ? s->b->least - 1 : 1,
            faster = s->b->most; /* slower: the next program is not tried */

    if (slower >= faster || !is_faster(s, faster))
        return s->b->most;
    while (faster - slower > 1) {
        const int64_t middle = slower + (faster - slower) / 2;

        if (is_faster(s, middle))
            faster = middle;
        else
            slower = middle;
    }
    return faster - 1;
}

static TuningEntry entry_of(const TuneBorder *b, int64_t most, const TuningFile *file)
{
    return (TuningEntry){
        .kernel = TUNING_BORDER, .hash = b->hash, .program = b->program, .shape = b->shape, .most = most, .file = file};
}

bool tune_borders(const TuneBorders *borders, const TuningEntry *entries, size_t n, const TuningFile *file,
                  const TuneMachine *m, Arena *keep, TuneResult *out)
{
    TuningEntry *all = arena_array(keep, TuningEntry, n + borders->n + 1);
    size_t count = n;
    void *with;

    if (n)
        memcpy(all, entries, n * sizeof *all);
    if (!m->build(m->user, entries, n, &with))
        return false;
    for (size_t i = 0; i < borders->n && !m->stop(m->user, ALL); i++) {
        const TuneBorder *b = &borders->at[i];
        Sides s = {.m = m, .b = b, .with = with};
        int64_t most = b->most;

        /* The other model has this border alone: those that were found are of other rows. */
        all[count] = entry_of(b, b->least > 1 ? b->least - 1 : 1, file);
        if (m->build(m->user, all, count + 1, &s.without)) {
            most = bisect(&s);
            m->drop(m->user, s.without);
        }
        m->say(m->user, "borders", i + 1, borders->n);
        if (most == b->most || m->stop(m->user, ALL))
            continue;
        all[count] = entry_of(b, most, file);
        all[count].us = s.us[1];
        all[count].untuned_us = s.us[0];
        m->keep(m->user, all, ++count);
    }
    m->drop(m->user, with);
    out->entries = all;
    out->n = count;
    out->stopped = out->stopped || m->stop(m->user, ALL);
    return true;
}
