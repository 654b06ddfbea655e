/* borders.c - how many rows a program is run with before the next larger one takes over, where a tuning file says so.
 *
 * Of programs of one kind a step takes the smallest that has room for its rows. The next one may still be faster: its kernels
 * are others. A border moves the last rows of a program there; neither program changes. */
#include <string.h>

#include "../../runtime/base/hash.h"
#include "../tune/tune.h"
#include "lower.h"

/* The next larger program of p's kind; NULL: there is none. */
static const Program *next_of(const Lower *l, const Program *p)
{
    for (const Program *q = p + 1; q < l->programs.at + l->programs.n; q++)
        if (!q->dropped && q->kind == p->kind && (!q->facts.bucket || q->facts.bucket > p->facts.bucket))
            return q;
    return NULL;
}

/* Of a program's kernels, shapes and tuned values. */
static uint64_t hash_program(const Program *p, Arena *scratch)
{
    uint64_t all = 0;

    for (size_t i = 0; i < p->groups.n; i++) {
        const Group *g = &p->groups.at[i];
        const Contract *c = g->b.contract;
        const char *text = arena_printf(scratch, "%016llx %s %s %s", (unsigned long long)all, c->family,
                                        tuning_hash(c, scratch), tuning_shape(&g->b, g->fit.instance, scratch));

        for (size_t k = 0; k < c->consts.n; k++)
            if (c->consts.at[k].n_values)
                text = arena_printf(scratch, "%s %lld", text, (long long)g->fit.instance->consts[k].i);
        all = hash64(text, strlen(text));
    }
    return all;
}

static TuneBorder border_of(const Lower *l, const Program *p, const Program *next, Arena *keep)
{
    Arena *scratch = arena_open();
    TuneBorder b = {.program = arena_strdup(keep, p->facts.name),
                    .shape = arena_printf(keep, "before %s", next->facts.name),
                    .at = (size_t)(p - l->programs.at),
                    .decode = p->kind == FTX_PROG_DECODE,
                    .least = 1,
                    .most = p->facts.bucket};

    b.hash =
        arena_printf(keep, "%016llx", (unsigned long long)hash_program(p, scratch) * 31 + hash_program(next, scratch));
    for (const Program *q = l->programs.at; q < p; q++)
        if (!q->dropped && q->kind == p->kind && q->facts.bucket >= b.least)
            b.least = q->facts.bucket + 1;
    arena_close(scratch);
    return b;
}

static void follow(const TuneBorder *b, TuningEntry *e, Program *p)
{
    if (strcmp(e->hash, b->hash) != 0)
        e->state = TUNING_OLD;
    else if (e->most >= b->most)
        e->state = TUNING_ILLEGAL;
    else if (!e->file->any_order)
        e->state = TUNING_ORDER;
    else
        e->state = TUNING_USED;
    if (e->state == TUNING_USED)
        p->most = e->most;
}

void borders_follow(Lower *l)
{
    const Tuning *t = l->target.tuning;

    for (size_t i = 0; t && i < t->entries.n; i++)
        for (size_t k = 0; t->entries.at[i].most && k < l->programs.n; k++) {
            Program *p = &l->programs.at[k];
            const Program *next = p->facts.bucket ? next_of(l, p) : NULL;
            TuneBorder b;

            if (!next || p->most || strcmp(t->entries.at[i].program, p->facts.name) != 0)
                continue;
            b = border_of(l, p, next, l->keep);
            if (strcmp(t->entries.at[i].shape, b.shape) == 0)
                follow(&b, &t->entries.at[i], p);
        }
}

bool passes_borders(const Graph *g, const Catalog *c, Target t, const Precision *p, TuneBorders *borders, Arena *keep,
                    Diag *d)
{
    Packing packing = {0};
    Plan plan = {0};
    Lower l;

    lower_open(&l, g, c, t, p, &packing, &plan);
    if (!stage_select(&l, d))
        return false;
    for (size_t i = 0; i < l.programs.n; i++) {
        const Program *x = &l.programs.at[i], *next = x->facts.bucket ? next_of(&l, x) : NULL;
        const TuneBorder b = next ? border_of(&l, x, next, keep) : (TuneBorder){0};

        if (next && b.most > b.least && (x->kind == FTX_PROG_DECODE || x->kind == FTX_PROG_STEP))
            *(TuneBorder *)arena_push(keep, *borders) = b;
    }
    return true;
}
