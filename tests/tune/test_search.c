/* test_search.c - the search of `ftxc tune` over a machine whose times are planned: what is faster is found, what is not, by
 * noise or by drift, is not; a candidate that cannot be built is left out; an interrupted search keeps what it found. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "compiler/tune/tune.h"

enum { PROGRAMS = 2, MOST_CASES = 4, CANDIDATES = 6 };

/* What a candidate changes, in percent of a program's time; of the kernel alone in percent of its own. */
typedef struct Effect {
    double place, alone;
    bool fails;
    double second; /* as place, at the second point */
} Effect;

typedef struct World {
    Arena *keep;
    TuneCases cases;
    Effect effect[MOST_CASES][CANDIDATES];
    double noise, drift; /* in percent: of a run; of each later run */
    bool fades;          /* nothing is gained in program 0 any more once entries were kept */
    uint64_t random;
    int timed, stop_at;              /* runs; 0: never */
    double used, budget, alone_cost; /* of the time: a run takes 1 */
    int slow_from, slow_to;          /* runs that take twice as long: the clock has dropped */
    size_t points;
    int room; /* models that fit beside each other; 0: any number */
    int open, built, told, tried[MOST_CASES][CANDIDATES];
    size_t kept;
    TuningFile file;
} World;

typedef struct Variant {
    Effect at[MOST_CASES];
    int follows[MOST_CASES]; /* candidate; -1: none */
} Variant;

static int case_of(const World *w, const TuningEntry *e)
{
    for (size_t i = 0; i < w->cases.n; i++)
        if (strcmp(w->cases.at[i].kernel, e->kernel) == 0 && strcmp(w->cases.at[i].program, e->program) == 0)
            return (int)i;
    return -1;
}

static bool build(void *user, const TuningEntry *entries, size_t n, void **variant)
{
    World *w = user;
    Variant *v = arena_new(w->keep, Variant);

    for (int i = 0; i < MOST_CASES; i++)
        v->follows[i] = -1;
    for (size_t i = n; i-- > 0;) { /* the first of two counts */
        const int c = case_of(w, &entries[i]);

        assert_true(c >= 0 && entries[i].use.n + entries[i].algorithms.n == 1);
        if (entries[i].use.n)
            assert_string_equal(entries[i].use.at[0].name, "A");
        v->follows[c] = entries[i].use.n ? (int)entries[i].use.at[0].value : (int)entries[i].algorithms.at[0];
    }
    for (int i = 0; i < MOST_CASES; i++)
        if (v->follows[i] >= 0) {
            v->at[i] = w->effect[i][v->follows[i]];
            if (v->at[i].fails)
                return false;
        }
    if (w->room && w->open >= w->room)
        return false;
    w->open++;
    w->built++;
    assert_true(w->open <= 3);
    *variant = v;
    return true;
}

static void drop(void *user, void *variant)
{
    assert_non_null(variant);
    ((World *)user)->open--;
}

static double noise(World *w)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return w->noise * ((double)(w->random >> 40) / (double)(1 << 24) - 0.5);
}

static size_t points(void *user, size_t at)
{
    assert_true(at < PROGRAMS);
    return ((World *)user)->points;
}

static bool time_program(void *user, void *variant, size_t at, size_t point, double *us)
{
    const Variant *v = variant;
    World *w = user;
    double percent = 100 + noise(w) + w->drift * w->timed++;

    w->used++;
    if (w->timed > w->slow_from && w->timed <= w->slow_to)
        percent += 100;

    for (size_t i = 0; i < w->cases.n; i++)
        if (w->cases.at[i].at == at && v->follows[i] >= 0) {
            percent += w->fades && w->kept && at == 0 ? 0 : point ? v->at[i].second : v->at[i].place;
            w->tried[i][v->follows[i]]++;
        }
    *us = 10 * percent;
    return true;
}

static bool time_alone(void *user, void *variant, size_t at, const char *entry, double *us)
{
    const Variant *v = variant;
    World *w = user;
    const int c = entry[0] - '0', candidate = entry[1] == '-' ? -1 : entry[1] - '0';

    w->used += w->alone_cost;
    assert_int_equal(w->cases.at[c].at, at);
    assert_int_equal(v->follows[c], candidate);
    *us = 5 + 0.05 * v->at[c].alone;
    return true;
}

static bool stop(void *user, double share)
{
    const World *w = user;

    assert_true(share > 0 && share <= 1);
    return (w->stop_at && w->timed >= w->stop_at) || (w->budget > 0 && w->used >= share * w->budget);
}

static void say(void *user, const char *what, size_t done, size_t all)
{
    assert_true(*what && done >= 1 && done <= all);
    ((World *)user)->told++;
}

static void keep_entries(void *user, const TuningEntry *entries, size_t n)
{
    World *w = user;

    for (size_t i = 0; i < n; i++)
        assert_true(entries[i].us > 0 && entries[i].us < entries[i].untuned_us && entries[i].file == &w->file);
    w->kept = n;
}

/* `n` cases: of programs 0, 1, 0, 1; each with all candidates. */
static World world(size_t n)
{
    static const char *const kernels[] = {"first", "first", "second", "second"}, *const programs[] = {"decode 1",
                                                                                                      "step"};
    World w = {.keep = arena_open(), .noise = 0.1, .random = 1, .points = 1};

    w.cases.programs = PROGRAMS;
    for (size_t i = 0; i < n; i++) {
        TuneCase *c = arena_push(w.keep, w.cases);

        *c = (TuneCase){.kernel = kernels[i],
                        .hash = "0",
                        .program = programs[i % PROGRAMS],
                        .shape = "N=1",
                        .at = i % PROGRAMS,
                        .cost_us = 10 - (double)i,
                        .entry = arena_printf(w.keep, "%zu-", i)};
        for (int k = 0; k < CANDIDATES; k++) {
            TunedConst *use = arena_new(w.keep, TunedConst);

            *use = (TunedConst){"A", k};
            *(TuneCandidate *)arena_push(w.keep, c->candidates) =
                (TuneCandidate){.use = use, .n = 1, .entry = arena_printf(w.keep, "%zu%d", i, k)};
        }
    }
    return w;
}

static TuneResult search(World *w)
{
    const TuneMachine machine = {w, build, drop, points, time_program, time_alone, NULL, stop, say, keep_entries};
    TuneResult r;

    assert_true(tune_search(&w->cases, &w->file, &machine, w->keep, &r));
    assert_int_equal(w->open, 0);
    assert_int_equal(w->kept, r.n);
    return r;
}

static void check_entry(const TuningEntry *e, const char *kernel, const char *program, int64_t value)
{
    assert_string_equal(e->kernel, kernel);
    assert_string_equal(e->program, program);
    assert_int_equal(e->use.at[0].value, value);
}

/* Nothing is faster, or by less than 0.5 %, or by less than the noise. */
static void equal(void **state)
{
    World w = world(4);

    (void)state;
    assert_int_equal(search(&w).n, 0);
    assert_true(w.told > CANDIDATES);
    arena_close(w.keep);

    w = world(4);
    w.effect[0][3].place = -0.4;
    w.effect[1][2].place = 5;
    assert_int_equal(search(&w).n, 0);
    arena_close(w.keep);

    w = world(4);
    w.noise = 20;
    w.effect[0][3].place = -1.5;
    assert_int_equal(search(&w).n, 0);
    arena_close(w.keep);
}

static void faster(void **state)
{
    World w = world(4);
    TuneResult r;

    (void)state;
    w.effect[0][1].place = -2;
    w.effect[0][3].place = -1;
    w.effect[3][2].place = -3;
    r = search(&w);
    assert_int_equal(r.n, 2);
    check_entry(&r.entries[0], "first", "decode 1", 1);
    check_entry(&r.entries[1], "second", "step", 2);
    assert_true(r.entries[0].us < 985 && r.entries[0].untuned_us > 995);
    assert_true(r.tuned_us[0] < 985 && r.untuned_us[0] > 995 && r.tuned_us[1] < 975);
    assert_false(r.stopped);
    arena_close(w.keep);
}

/* Each run is slower, or faster, than the one before it: the order A B B A cancels it out. */
static void drift(void **state)
{
    (void)state;
    for (int way = -1; way <= 1; way += 2) {
        World w = world(2);

        w.noise = 0.01;
        w.drift = way * 0.02;
        w.effect[1][3].place = -2;
        const TuneResult r = search(&w);
        assert_int_equal(r.n, 1);
        check_entry(&r.entries[0], "first", "step", 3);
        arena_close(w.keep);
    }
}

static int count_tried(const World *w)
{
    int tried = 0;

    for (int i = 0; i < CANDIDATES; i++)
        tried += w->tried[0][i] > 0;
    return tried;
}

/* A candidate that is slower alone is not tried in place, nor is the fifth of equals. */
static void pruned(void **state)
{
    World w = world(1);
    TuneResult r;

    (void)state;
    for (int i = 0; i < CANDIDATES; i++)
        w.effect[0][i] = (Effect){.place = -5, .alone = 6};
    w.effect[0][1] = (Effect){0};
    w.effect[0][5] = (Effect){.place = -2, .alone = -3};
    r = search(&w);
    assert_int_equal(r.n, 1);
    check_entry(&r.entries[0], "first", "decode 1", 5);
    assert_int_equal(count_tried(&w), 2);
    arena_close(w.keep);

    w = world(1);
    assert_int_equal(search(&w).n, 0);
    assert_int_equal(count_tried(&w), 4);
    arena_close(w.keep);
}

/* One kernel that cannot be built is in one model with the candidates of other cases. */
static void unbuildable(void **state)
{
    World w = world(4);
    TuneResult r;

    (void)state;
    w.effect[0][2].fails = true;
    w.effect[1][2].place = -2;
    w.effect[2][2].place = -2;
    r = search(&w);
    assert_int_equal(r.n, 2);
    check_entry(&r.entries[0], "first", "step", 2);
    check_entry(&r.entries[1], "second", "decode 1", 2);
    assert_int_equal(w.tried[0][2], 0);
    assert_true(w.cases.at[0].candidates.at[2].dropped);
    assert_int_equal(r.failed, 1);
    arena_close(w.keep);
}

/* Memory for one model only: no candidate can be measured, and the search says so. */
static void no_room(void **state)
{
    World w = world(4);
    const TuneMachine machine = {&w, build, drop, points, time_program, time_alone, NULL, stop, say, keep_entries};
    TuneResult r;

    (void)state;
    w.room = 1;
    assert_false(tune_search(&w.cases, &w.file, &machine, w.keep, &r));
    assert_int_equal(r.n, 0);
    assert_int_equal(r.failed, 4 * CANDIDATES);
    assert_int_equal(w.open, 0);
    arena_close(w.keep);
}

/* What was gained in a trial is gone at the end: a program that is not faster then has no entries. */
static void confirmed(void **state)
{
    World w = world(2);
    TuneResult r;

    (void)state;
    w.effect[0][1].place = w.effect[1][1].place = -2;
    w.fades = true;
    r = search(&w);
    assert_int_equal(r.n, 1);
    check_entry(&r.entries[0], "first", "step", 1);
    assert_true(r.tuned_us[0] > 0.995 * r.untuned_us[0]);
    arena_close(w.keep);
}

/* At whatever run it is stopped: what was found is kept, everything is closed. */
static void interrupted(void **state)
{
    size_t most = 0;

    (void)state;
    for (int at = 1; at < 480; at += 7) {
        World w = world(4);
        TuneResult r;

        w.stop_at = at;
        w.effect[0][1].place = w.effect[2][3].place = w.effect[3][0].place = -3;
        r = search(&w);
        assert_true(r.stopped || r.n == 3);
        assert_true(r.n >= most || !r.stopped);
        most = r.n > most ? r.n : most;
        arena_close(w.keep);
    }
    assert_int_equal(most, 3);
}

/* With much context what is faster with little may be slower: it is not taken; the best by both is. */
static void contexts(void **state)
{
    World w = world(2);
    TuneResult r;

    (void)state;
    w.points = 2;
    w.effect[0][1] = (Effect){.place = -5, .second = 1};
    w.effect[0][2] = (Effect){.place = -2, .second = 0};
    w.effect[0][3] = (Effect){.place = 0, .second = -3};
    r = search(&w);
    assert_int_equal(r.n, 1);
    check_entry(&r.entries[0], "first", "decode 1", 3);
    arena_close(w.keep);
}

/* Rounds during which the clock changes are repeated: what seems faster by it is not taken. */
static void clock_drops(void **state)
{
    World w = world(1);

    (void)state;
    for (int at = 24; at < 224; at += 3) { /* behind the runs that measure noise */
        arena_close(w.keep);
        w = world(1);
        w.noise = 0.01;
        w.effect[0][2].place = -2;
        w.slow_from = at;
        w.slow_to = at + 9;
        const TuneResult r = search(&w);
        if (r.n != 1 || r.entries[0].use.at[0].value != 2 || r.entries[0].untuned_us > 1010)
            fail_msg("slow from %d: %zu entries, %g us untuned", at, r.n, r.n ? r.entries[0].untuned_us : 0);
    }
    arena_close(w.keep);

    w = world(1); /* a clock that is never the same: each round has three tries, not more */
    w.noise = 60;
    assert_int_equal(search(&w).n, 0);
    assert_true(w.timed > 400 && w.timed <= 24 + 3 * 4 * (4 * 6 + 2 * 10));
    arena_close(w.keep);
}

/* Algorithms of a library are not timed alone, but in place as all others. */
static void algorithms(void **state)
{
    static const int64_t word = 4;
    World w = world(2);
    TuneResult r;

    (void)state;
    w.cases.at[0].candidates.at[4] = (TuneCandidate){.algorithms = &word, .n_algorithms = 1};
    w.effect[0][4] = (Effect){.place = -2, .alone = 50};
    r = search(&w);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.entries[0].use.n, 0);
    assert_int_equal(r.entries[0].algorithms.n, 1);
    assert_int_equal(r.entries[0].algorithms.at[0], 4);
    arena_close(w.keep);
}

/* Where kernels alone would take all the time, the rest is for whole programs and for the last comparison. */
static void in_time(void **state)
{
    World w = world(4);
    TuneResult r;

    (void)state;
    w.budget = 1000;
    w.alone_cost = 25;
    w.effect[0][1].place = w.effect[3][0].place = -3;
    r = search(&w);
    assert_false(r.stopped);
    assert_int_equal(r.n, 2);
    assert_true(r.tuned_us[0] > 0 && r.tuned_us[1] > 0);
    assert_int_equal(w.tried[0][5], 0); /* not timed alone */
    arena_close(w.keep);

    w = world(4);
    w.budget = 200; /* not enough for whole programs: nothing is confirmed */
    w.alone_cost = 25;
    w.effect[0][1].place = -3;
    r = search(&w);
    assert_true(r.stopped);
    arena_close(w.keep);
}

/* The same times give the same entries. */
static void repeatable(void **state)
{
    const char *text[2];
    Arena *keep = arena_open();

    (void)state;
    for (int i = 0; i < 2; i++) {
        World w = world(4);
        TuneResult r;

        w.file = (TuningFile){.device = "NVIDIA H200"};
        w.effect[0][1].place = w.effect[3][2].place = -3;
        r = search(&w);
        text[i] = tuning_text(&w.file, r.entries, r.n, keep);
        arena_close(w.keep);
    }
    assert_string_equal(text[0], text[1]);
    assert_non_null(strstr(text[0], "{ kernel = \"second\", hash = \"0\", program = \"step\""));
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal),       cmocka_unit_test(faster),      cmocka_unit_test(drift),
        cmocka_unit_test(pruned),      cmocka_unit_test(unbuildable), cmocka_unit_test(confirmed),
        cmocka_unit_test(interrupted), cmocka_unit_test(contexts),    cmocka_unit_test(repeatable),
        cmocka_unit_test(algorithms),  cmocka_unit_test(in_time),     cmocka_unit_test(clock_drops),
        cmocka_unit_test(no_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
