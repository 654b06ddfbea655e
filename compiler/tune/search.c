/* search.c - prunes candidates by their launches alone, decides by whole programs, confirms at the end. */
#include "tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEPT = 4,       /* candidates of a case that are tried in place */
    SAMPLES = 12,   /* runs by which noise is measured */
    ROUNDS = 6,     /* A B B A */
    CONFIRMED = 10, /* rounds of the last comparison */
    TRIES = 3,      /* of a round */
};
static const double SLOWER_ALONE = 1.05, LEAST_GAIN = 0.005, LEAST_LOSS = 0.001, SAME_CLOCK = 0.05;
static const double ALONE = 0.5, IN_PLACE = 0.9, ALL = 1; /* shares of the time at which a part ends */

typedef struct Best { /* of the candidates of a case */
    TuneCandidate *x; /* NULL: none is faster */
    double us, untuned_us, gain;
} Best;

typedef struct Search {
    TuneCases *cases;
    const TuningFile *file;
    const TuneMachine *m;
    Arena *keep;
    void *base; /* follows all entries that were taken so far */
    struct {
        TuningEntry *at;
        size_t n, cap;
    } taken;
    struct {
        TuneCase **at;
        size_t n, cap;
    } * of;        /* [programs]: its cases, the one with the largest cost first */
    double *noise; /* [programs][TUNE_POINTS] of one run */
    bool *timed;   /* [programs]: it can be measured */
    Best *best;    /* [programs]: of the cases that are being tried */
    size_t done, all;
    double share;  /* of the time, for this part and those before it */
    size_t failed; /* candidates that cannot be built or measured alone */
} Search;

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *at, size_t n)
{
    qsort(at, n, sizeof *at, by_size);
    return n % 2 ? at[n / 2] : 0.5 * (at[n / 2 - 1] + at[n / 2]);
}

static int by_cost(const void *a, const void *b)
{
    const TuneCase *x = *(TuneCase *const *)a, *y = *(TuneCase *const *)b;

    if (x->cost_us != y->cost_us)
        return x->cost_us > y->cost_us ? -1 : 1;
    return (x > y) - (x < y);
}

static bool stopped(const Search *s)
{
    return s->m->stop(s->m->user, s->share);
}

static void step(Search *s, const char *what)
{
    s->m->say(s->m->user, what, ++s->done, s->all);
}

static TuningEntry entry_of(const Search *s, const TuneCase *c, const TuneCandidate *x)
{
    TuningEntry e = {.kernel = c->kernel,
                     .hash = c->hash,
                     .program = c->program,
                     .shape = c->shape,
                     .avoid = x->avoid,
                     .file = s->file};

    for (size_t i = 0; i < x->n; i++)
        *(TunedConst *)arena_push(s->keep, e.use) = x->use[i];
    for (size_t i = 0; i < x->n_algorithms; i++)
        *arena_push(s->keep, e.algorithms) = x->algorithms[i];
    return e;
}

/* --- variants ------------------------------------------------------------------------------------ */

typedef struct Trial { /* a candidate of one case */
    TuneCase *c;
    TuneCandidate *x;
} Trial;

/* The entries that were taken, those of the trials in place of theirs. */
static bool build(Search *s, const Trial *trials, size_t n, void **variant)
{
    TuningEntry *entries = arena_array(s->keep, TuningEntry, n + s->taken.n);

    for (size_t i = 0; i < n; i++) /* of two entries for one match the first is followed */
        entries[i] = entry_of(s, trials[i].c, trials[i].x);
    for (size_t i = 0; i < s->taken.n; i++)
        entries[n + i] = s->taken.at[i];
    return s->m->build(s->m->user, entries, n + s->taken.n, variant);
}

/* Builds one model for as many of the trials as can be: the halves are tried where the whole fails, so that one kernel that
 * cannot be compiled drops one candidate. Each part is measured by `measure`. */
static void try_trials(Search *s, const Trial *trials, size_t n,
                       void (*measure)(Search *s, void *variant, const Trial *trials, size_t n))
{
    void *variant = NULL;

    if (!n || stopped(s))
        return;
    if (build(s, trials, n, &variant)) {
        measure(s, variant, trials, n);
        s->m->drop(s->m->user, variant);
    } else if (n == 1) {
        trials[0].x->dropped = true;
        s->failed++;
    } else {
        try_trials(s, trials, n / 2, measure);
        try_trials(s, trials + n / 2, n - n / 2, measure);
    }
}

/* --- alone ----------------------------------------------------------------------------------------- */

static void measure_alone(Search *s, void *variant, const Trial *trials, size_t n)
{
    for (size_t i = 0; i < n && !stopped(s); i++)
        if (!s->m->alone(s->m->user, variant, trials[i].c->at, trials[i].x->entry, &trials[i].x->alone_us)) {
            trials[i].x->dropped = true;
            s->failed++;
        }
}

static int by_alone(const void *a, const void *b)
{
    const TuneCandidate *x = *(TuneCandidate *const *)a, *y = *(TuneCandidate *const *)b;

    if (x->alone_us != y->alone_us)
        return x->alone_us < y->alone_us ? -1 : 1;
    return (x > y) - (x < y); /* the one that differs less from the untuned values */
}

/* Keeps the best few of a case, none much slower than the best or the untuned values. */
static void prune(Search *s, TuneCase *c)
{
    TuneCandidate **order = arena_array(s->keep, TuneCandidate *, c->candidates.n);
    double best = c->alone_us;
    size_t n = 0;

    for (size_t i = 0; i < c->candidates.n; i++) {
        TuneCandidate *x = &c->candidates.at[i];

        if (!x->entry || x->dropped)
            continue;
        if (x->alone_us <= 0) { /* the time was over before */
            x->dropped = true;
            continue;
        }
        order[n++] = x;
        best = x->alone_us < best ? x->alone_us : best;
    }
    if (n)
        qsort(order, n, sizeof *order, by_alone);
    for (size_t i = 0; i < n; i++)
        order[i]->dropped = i >= KEPT || order[i]->alone_us > best * SLOWER_ALONE;
}

static void search_alone(Search *s)
{
    size_t most = 0;

    for (size_t i = 0; i < s->cases->n; i++) {
        TuneCase *c = &s->cases->at[i];

        most = c->candidates.n > most ? c->candidates.n : most;
        if (!s->m->alone(s->m->user, s->base, c->at, c->entry, &c->alone_us))
            c->alone_us = INFINITY;
    }
    s->all = most;
    for (size_t k = 0; k < most && !stopped(s); k++) {
        Trial *trials = arena_array(s->keep, Trial, s->cases->n);
        size_t n = 0;

        for (size_t i = 0; i < s->cases->n; i++) {
            TuneCase *c = &s->cases->at[i];

            if (k < c->candidates.n && c->candidates.at[k].entry)
                trials[n++] = (Trial){c, &c->candidates.at[k]};
        }
        try_trials(s, trials, n, measure_alone);
        step(s, "kernels alone");
    }
    for (size_t i = 0; i < s->cases->n; i++)
        prune(s, &s->cases->at[i]);
}

/* --- in place -------------------------------------------------------------------------------------- */

typedef struct Comparison {
    double a_us, b_us; /* of the point with the largest gain */
    double gain;       /* the sum of all points', as a share of their times */
    bool faster;       /* at one point by more than the noise and half a percent, and slower at none */
} Comparison;

/* The medians of both over rounds A B B A at one point, and of their difference in a round. Where both A of a round differ by
 * more than 5 %, the clock has changed: the round is repeated, twice at most. */
static bool compare_at(Search *s, void *a, void *b, size_t at, size_t point, size_t rounds, double us[3])
{
    void *const order[] = {a, b, b, a};
    double all[3][CONFIRMED];

    for (size_t r = 0; r < rounds; r++) {
        double us_of[4], sum[2];
        int tries = 0;

        do {
            for (int turn = 0; turn < 4; turn++)
                if (stopped(s) || !s->m->time(s->m->user, order[turn], at, point, &us_of[turn]))
                    return false;
        } while (fabs(us_of[0] - us_of[3]) > SAME_CLOCK * us_of[0] && ++tries < TRIES);
        sum[0] = 0.5 * (us_of[0] + us_of[3]);
        sum[1] = 0.5 * (us_of[1] + us_of[2]);
        all[0][r] = sum[0];
        all[1][r] = sum[1];
        all[2][r] = sum[0] - sum[1];
    }
    for (int i = 0; i < 3; i++)
        us[i] = median(all[i], rounds);
    return true;
}

static bool compare(Search *s, void *a, void *b, size_t at, size_t rounds, Comparison *out)
{
    double best = -INFINITY;
    bool slower = false;

    *out = (Comparison){0};
    for (size_t point = 0; point < s->m->points(s->m->user, at); point++) {
        const double noise = 3 * s->noise[at * TUNE_POINTS + point] / sqrt((double)rounds);
        double us[3], gain;

        if (!compare_at(s, a, b, at, point, rounds, us))
            return false;
        gain = us[2] / us[0];
        out->gain += gain;
        out->faster |= gain > LEAST_GAIN && us[2] > noise;
        slower |= us[2] < -noise && gain < -LEAST_LOSS;
        if (gain > best) {
            best = gain;
            out->a_us = us[0];
            out->b_us = us[1];
        }
    }
    out->faster &= !slower;
    return true;
}

/* The distance of the quartiles of a normal distribution is 1.35 sigma. */
static bool measure_noise(Search *s, size_t at)
{
    double us[SAMPLES];

    for (size_t point = 0; point < s->m->points(s->m->user, at); point++) {
        for (size_t i = 0; i < SAMPLES; i++)
            if (stopped(s) || !s->m->time(s->m->user, s->base, at, point, &us[i]))
                return false;
        qsort(us, SAMPLES, sizeof *us, by_size);
        s->noise[at * TUNE_POINTS + point] = (us[SAMPLES * 3 / 4] - us[SAMPLES / 4]) / 1.35;
    }
    return true;
}

static void measure_in_place(Search *s, void *variant, const Trial *trials, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t at = trials[i].c->at;
        Comparison c;

        if (compare(s, s->base, variant, at, ROUNDS, &c) && c.faster && c.gain > s->best[at].gain)
            s->best[at] = (Best){trials[i].x, c.b_us, c.a_us, c.gain};
    }
}

static void take(Search *s, const TuneCase *c, const Best *b)
{
    TuningEntry e = entry_of(s, c, b->x);

    e.us = b->us;
    e.untuned_us = b->untuned_us;
    *(TuningEntry *)arena_push(s->keep, s->taken) = e;
}

/* Tries the candidates of the k-th case of every program, and takes the best of each. */
static bool search_case(Search *s, size_t k)
{
    const size_t programs = s->cases->programs, before = s->taken.n;
    bool more = true;

    s->best = arena_array(s->keep, Best, programs);
    for (size_t j = 0; more && !stopped(s); j++) {
        Trial *trials = arena_array(s->keep, Trial, programs);
        size_t n = 0;

        more = false;
        for (size_t p = 0; p < programs; p++) {
            TuneCase *c = k < s->of[p].n && s->timed[p] ? s->of[p].at[k] : NULL;

            for (size_t i = 0, seen = 0; c && i < c->candidates.n; i++)
                if (!c->candidates.at[i].dropped && seen++ == j) {
                    trials[n++] = (Trial){c, &c->candidates.at[i]};
                    more = true;
                }
        }
        try_trials(s, trials, n, measure_in_place);
    }
    for (size_t p = 0; p < programs; p++)
        if (s->best[p].x)
            take(s, s->of[p].at[k], &s->best[p]);
    if (s->taken.n == before)
        return true;
    s->m->keep(s->m->user, s->taken.at, s->taken.n);
    s->m->drop(s->m->user, s->base);
    s->base = NULL;
    return build(s, NULL, 0, &s->base);
}

/* --- the end ----------------------------------------------------------------------------------------- */

/* Compares with the untuned model; entries of programs that did not become faster are dropped. False: the model cannot be built
 * a second time. */
static bool confirm(Search *s, TuneResult *out)
{
    double *tuned_us = arena_array(s->keep, double, s->cases->programs);
    double *untuned_us = arena_array(s->keep, double, s->cases->programs);
    bool *keeps = arena_array(s->keep, bool, s->cases->programs);
    const size_t taken = s->taken.n;
    void *untuned = NULL;
    size_t n = 0;
    bool built;

    out->untuned_us = untuned_us;
    out->tuned_us = tuned_us;
    s->taken.n = 0;
    built = build(s, NULL, 0, &untuned);
    s->taken.n = taken;
    for (size_t p = 0; built && p < s->cases->programs; p++) {
        Comparison c = {0};

        keeps[p] = s->timed[p] && compare(s, untuned, s->base, p, CONFIRMED, &c) && c.faster;
        untuned_us[p] = c.a_us;
        tuned_us[p] = c.b_us;
    }
    if (built)
        s->m->drop(s->m->user, untuned);
    if (!built || stopped(s))
        return built;
    for (size_t i = 0; i < taken; i++)
        for (size_t k = 0; k < s->cases->n; k++)
            if (strcmp(s->cases->at[k].program, s->taken.at[i].program) == 0) {
                if (keeps[s->cases->at[k].at])
                    s->taken.at[n++] = s->taken.at[i];
                break;
            }
    s->taken.n = n;
    return true;
}

static size_t sort_cases(Search *s)
{
    size_t most = 0;

    for (size_t i = 0; i < s->cases->n; i++)
        *(TuneCase **)arena_push(s->keep, s->of[s->cases->at[i].at]) = &s->cases->at[i];
    for (size_t p = 0; p < s->cases->programs; p++) {
        if (s->of[p].n)
            qsort(s->of[p].at, s->of[p].n, sizeof *s->of[p].at, by_cost);
        most = s->of[p].n > most ? s->of[p].n : most;
    }
    return most;
}

bool tune_search(TuneCases *cases, const TuningFile *file, const TuneMachine *m, Arena *keep, TuneResult *out)
{
    Search s = {.cases = cases, .file = file, .m = m, .keep = keep};
    size_t most;
    bool ok;

    *out = (TuneResult){0};
    s.of = arena_alloc(keep, sizeof *s.of * cases->programs);
    memset(s.of, 0, sizeof *s.of * cases->programs);
    s.noise = arena_array(keep, double, cases->programs *TUNE_POINTS);
    s.timed = arena_array(keep, bool, cases->programs);
    most = sort_cases(&s);
    if (!build(&s, NULL, 0, &s.base))
        return false;
    s.share = ALONE;
    search_alone(&s);
    s.share = IN_PLACE;
    for (size_t p = 0; p < cases->programs; p++)
        s.timed[p] = measure_noise(&s, p);
    s.done = 0;
    s.all = most;
    for (size_t k = 0; k < most && s.base && !stopped(&s); k++) {
        if (!search_case(&s, k))
            break;
        step(&s, "in place");
    }
    s.share = ALL;
    ok = s.base && (stopped(&s) || confirm(&s, out));
    out->stopped = stopped(&s);
    if (s.base)
        m->drop(m->user, s.base);
    m->keep(m->user, s.taken.at, s.taken.n);
    out->entries = s.taken.at;
    out->n = s.taken.n;
    out->failed = s.failed;
    return ok;
}
