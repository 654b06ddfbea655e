/* tunable.c - the kernels of a target's plan that have tuned constants, and the values that each could take: `ftxc tune`. */
#include <string.h>

#include "lower.h"
#include "../tune/tune.h"

enum { MAX_TRIED = 4096, MAX_CANDIDATES = 24 };

/* The next combination of places in tune lines; false: there is none. */
static bool advance(const Contract *c, size_t *places)
{
    for (size_t i = c->consts.n; i-- > 0;) {
        if (!c->consts.at[i].n_values)
            continue;
        if (++places[i] < c->consts.at[i].n_values)
            return true;
        places[i] = 0;
    }
    return false;
}

static bool is_known(const TuneCase *t, const char *entry)
{
    bool known = strcmp(t->entry, entry) == 0;

    for (size_t i = 0; i < t->candidates.n && !known; i++)
        known = t->candidates.at[i].entry && strcmp(t->candidates.at[i].entry, entry) == 0;
    return known;
}

/* How many tuned constants have other values than in the untuned instance; SIZE_MAX: one of an order line has, and may not. */
static size_t difference(const Contract *c, const Instance *untuned, const Instance *in, bool any_order)
{
    size_t n = 0;

    for (size_t i = 0; i < c->consts.n; i++)
        if (c->consts.at[i].n_values && untuned->consts[i].i != in->consts[i].i) {
            if (c->consts.at[i].reorders && !any_order)
                return SIZE_MAX;
            n++;
        }
    return n;
}

static TuneCandidate candidate_of(const Contract *c, const Instance *in, Arena *keep)
{
    TunedConst *use = arena_array(keep, TunedConst, c->consts.n);
    size_t n = 0;

    for (size_t i = 0; i < c->consts.n; i++)
        if (c->consts.at[i].n_values)
            use[n++] = (TunedConst){c->consts.at[i].value.name, in->consts[i].i};
    return (TuneCandidate){.use = use, .n = n, .entry = arena_strdup(keep, in->entry)};
}

/* The legal values that differ least from the untuned ones, and of those that differ equally the first. */
static void find_candidates(const Program *p, const Group *g, TuneCase *t, bool any_order, Arena *keep)
{
    const Contract *c = g->b.contract;
    size_t places[CONTRACT_MAX_CONSTS] = {0}, differs[MAX_CANDIDATES] = {0}, tried = 0;
    Arena *scratch = arena_open();

    do {
        const char *reason;
        size_t n = SIZE_MAX, at;
        Fitted fit;

        if (contract_fit_at(&p->facts, &g->b, places, scratch, scratch, &fit, &reason))
            n = difference(c, g->fit.instance, fit.instance, any_order);
        for (at = t->candidates.n; n != SIZE_MAX && at > 0 && differs[at - 1] > n; at--)
            ;
        if (n != SIZE_MAX && at < MAX_CANDIDATES && !is_known(t, fit.instance->entry)) {
            if (t->candidates.n < MAX_CANDIDATES)
                arena_push(keep, t->candidates);
            for (size_t i = t->candidates.n - 1; i > at; i--) {
                t->candidates.at[i] = t->candidates.at[i - 1];
                differs[i] = differs[i - 1];
            }
            t->candidates.at[at] = candidate_of(c, fit.instance, keep);
            differs[at] = n;
        }
        arena_reset(scratch);
    } while (advance(c, places) && ++tried < MAX_TRIED);
    arena_close(scratch);
    if (any_order)
        *(TuneCandidate *)arena_push(keep, t->candidates) = (TuneCandidate){.avoid = true};
}

static TuneCase *find_case(TuneCases *cases, size_t first, const char *kernel, const char *shape)
{
    for (size_t i = first; i < cases->n; i++)
        if (strcmp(cases->at[i].kernel, kernel) == 0 && strcmp(cases->at[i].shape, shape) == 0)
            return &cases->at[i];
    return NULL;
}

static bool is_tuned(const Contract *c)
{
    bool tuned = false;

    for (size_t i = 0; i < c->consts.n; i++)
        tuned |= c->consts.at[i].n_values > 0;
    return tuned;
}

static void add_program(const Program *p, size_t at, bool any_order, TuneCases *cases, Arena *keep)
{
    const size_t first = cases->n;

    for (size_t i = 0; i < p->groups.n; i++) {
        const Group *g = &p->groups.at[i];
        const char *shape;
        TuneCase *t;

        if (!is_tuned(g->b.contract) && !(any_order && g->b.contract->device == KD_MATMUL))
            continue;
        shape = tuning_shape(&g->b, g->fit.instance, keep);
        t = find_case(cases, first, g->b.contract->family, shape);
        if (!t) {
            t = arena_push(keep, *cases);
            *t = (TuneCase){.kernel = g->b.contract->family,
                            .hash = tuning_hash(g->b.contract, keep),
                            .program = arena_strdup(keep, p->facts.name),
                            .shape = shape,
                            .at = at,
                            .library = g->b.contract->device == KD_MATMUL,
                            .entry = arena_strdup(keep, g->fit.instance->entry)};
            find_candidates(p, g, t, any_order, keep);
        }
        t->cost_us += g->cost_us;
    }
}

bool passes_tunable(const Graph *g, const Catalog *c, Target t, const Precision *p, bool any_order,
                    bool (*wanted)(void *user, FtxProgramKind kind, int64_t bucket), void *user, TuneCases *cases,
                    Arena *keep, Diag *d)
{
    Packing packing = {0};
    Plan plan = {0};
    Lower l;

    t.tuning = NULL;
    lower_open(&l, g, c, t, p, &packing, &plan);
    if (!stage_select(&l, d))
        return false;
    cases->programs = l.programs.n;
    for (size_t i = 0; i < l.programs.n; i++)
        if (wanted(user, l.programs.at[i].kind, l.programs.at[i].facts.bucket) && !l.programs.at[i].dropped)
            add_program(&l.programs.at[i], i, any_order, cases, keep);
    return true;
}
