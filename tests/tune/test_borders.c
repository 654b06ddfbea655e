/* test_borders.c - borders between programs over a machine whose times are planned: the fewest rows from which on the next program
 * is faster are found; noise and drift move nothing; an interrupted search keeps what it found. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "compiler/tune/tune.h"

/* A program takes `base` + `row` * rows percent; the next one always 100. */
typedef struct Times {
    double base, row;
} Times;

typedef struct World {
    Arena *keep;
    TuneBorders borders;
    Times times[3];
    double noise, drift;
    uint64_t random;
    int runs, stop_at, fails_at; /* runs; 0: never */
    int open, refuse;            /* models; the n-th that is asked for cannot be built, 0: none */
    int asked;
    size_t kept;
    int64_t fewest; /* rows that were tried */
    TuningFile file;
} World;

typedef struct Variant {
    int64_t most[3]; /* of each program; 0: no entry */
    bool tuned;
} Variant;

static bool build(void *user, const TuningEntry *entries, size_t n, void **variant)
{
    World *w = user;
    Variant *v = arena_new(w->keep, Variant);

    if (++w->asked == w->refuse)
        return false;
    for (size_t i = 0; i < n; i++) {
        v->tuned |= !entries[i].most;
        for (size_t k = 0; k < w->borders.n && entries[i].most; k++)
            if (strcmp(entries[i].program, w->borders.at[k].program) == 0) {
                assert_string_equal(entries[i].kernel, TUNING_BORDER);
                assert_string_equal(entries[i].hash, w->borders.at[k].hash);
                assert_string_equal(entries[i].shape, w->borders.at[k].shape);
                v->most[k] = entries[i].most;
            }
    }
    w->open++;
    assert_true(w->open <= 2);
    *variant = v;
    return true;
}

static void drop(void *user, void *variant)
{
    assert_non_null(variant);
    ((World *)user)->open--;
}

static bool rows(void *user, void *variant, const TuneBorder *b, int64_t n, double *us)
{
    World *w = user;
    const Variant *v = variant;
    const size_t at = (size_t)(b - w->borders.at);
    const bool own = !v->most[at] || n <= v->most[at];
    double percent = own ? w->times[at].base + w->times[at].row * (double)n : 100;

    assert_true(n >= b->least && n <= b->most && (v->tuned || !strcmp(b->hash, "plain")));
    if (n < w->fewest)
        w->fewest = n;
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    percent += w->noise * ((double)(w->random >> 40) / (double)(1 << 24) - 0.5) + w->drift * w->runs;
    *us = 10 * percent;
    return ++w->runs != w->fails_at;
}

static bool stop(void *user, double share)
{
    const World *w = user;

    assert_true(share == 1);
    return w->stop_at && w->runs >= w->stop_at;
}

static void say(void *user, const char *what, size_t done, size_t all)
{
    assert_string_equal(what, "borders");
    assert_true(done >= 1 && done <= all && all == ((World *)user)->borders.n);
}

static void keep_entries(void *user, const TuningEntry *entries, size_t n)
{
    World *w = user;

    assert_true(entries[n - 1].most > 0 && entries[n - 1].us < entries[n - 1].untuned_us);
    w->kept = n;
}

static World world(void)
{
    static const TuneBorder borders[] = {{"decode 64", "before decode 128", "a", 0, true, 33, 64},
                                         {"decode 128", "before decode 192", "b", 1, true, 65, 128},
                                         {"step 16", "before step 64", "c", 2, false, 1, 16}};
    World w = {.keep = arena_open(), .noise = 0.1, .random = 1, .fewest = 1000};

    for (int i = 0; i < 3; i++) {
        *(TuneBorder *)arena_push(w.keep, w.borders) = borders[i];
        w.times[i] = (Times){90, 0};
    }
    return w;
}

static TuneResult search(World *w, bool ok)
{
    static const TuningEntry tuned = {.kernel = "linear", .hash = "0", .program = "decode 64", .shape = "N=1"};
    const TuneMachine machine = {w, build, drop, NULL, NULL, NULL, rows, stop, say, keep_entries};
    TuneResult r = {0};

    assert_int_equal(tune_borders(&w->borders, &tuned, 1, &w->file, &machine, w->keep, &r), ok);
    assert_int_equal(w->open, 0);
    if (ok) {
        assert_string_equal(r.entries[0].kernel, "linear");
        assert_int_equal(r.n, w->kept ? w->kept : 1);
    }
    return r;
}

/* The next program is never faster, or by less than 0.5 %, or with some rows by chance. */
static void equal(void **state)
{
    World w = world();

    (void)state;
    assert_int_equal(search(&w, true).n, 1);
    assert_int_equal(w.fewest, 16); /* where it is not faster with the most rows, no others are tried */
    arena_close(w.keep);

    w = world();
    w.times[0] = (Times){100.4, 0};
    w.noise = 0.01;
    assert_int_equal(search(&w, true).n, 1);
    arena_close(w.keep);

    w = world();
    w.times[1] = (Times){101, 0};
    w.noise = 40;
    assert_int_equal(search(&w, true).n, 1);
    arena_close(w.keep);
}

/* From a number of rows on the program takes longer than the next one: for each of these numbers it is found. */
static void found(void **state)
{
    (void)state;
    for (int64_t from = 34; from <= 64; from++) {
        World w = world();
        TuneResult r;

        w.times[0] = (Times){100 - 2.0 * ((double)from - 0.5), 2};
        r = search(&w, true);
        assert_int_equal(r.n, 2);
        assert_string_equal(r.entries[1].program, "decode 64");
        assert_int_equal(r.entries[1].most, from - 1);
        assert_ptr_equal(r.entries[1].file, &w.file);
        assert_true(r.entries[1].us < r.entries[1].untuned_us);
        arena_close(w.keep);
    }
}

/* Several move; of one that is slower with all rows the smaller program's rows are left, and of the smallest one row. */
static void several(void **state)
{
    World w = world();
    TuneResult r;

    (void)state;
    w.times[0] = (Times){120, 0};
    w.times[1] = (Times){0, 1};
    w.times[2] = (Times){130, 0};
    r = search(&w, true);
    assert_int_equal(r.n, 4);
    assert_int_equal(r.entries[1].most, 32);
    assert_int_equal(r.entries[2].most, 100);
    assert_int_equal(r.entries[3].most, 1);
    assert_string_equal(r.entries[3].program, "step 16");
    assert_false(r.stopped);
    arena_close(w.keep);
}

/* Each run is slower, or faster, than the one before it. */
static void drift(void **state)
{
    (void)state;
    for (int way = -1; way <= 1; way += 2) {
        World w = world();
        TuneResult r;

        w.noise = 0.01;
        w.drift = way * 0.02;
        w.times[1] = (Times){0, 1};
        w.times[0] = (Times){100, 0};
        r = search(&w, true);
        assert_int_equal(r.n, 2);
        assert_int_equal(r.entries[1].program == w.borders.at[1].program, 1);
        arena_close(w.keep);
    }
}

/* Wherever it ends, by time or a failure: what was found before is kept, and all is closed. */
static void interrupted(void **state)
{
    size_t most = 0;

    (void)state;
    for (int at = 1; at < 500; at += 7)
        for (int way = 0; way < 2; way++) {
            World w = world();
            TuneResult r;

            *(way ? &w.stop_at : &w.fails_at) = at;
            w.times[0] = w.times[1] = w.times[2] = (Times){120, 0};
            r = search(&w, true);
            assert_true(way ? r.stopped == (w.runs >= at) : !r.stopped);
            most = r.n > most ? r.n : most;
            for (size_t i = 1; way && i < r.n; i++) /* a bisection that was not finished gives none */
                assert_int_equal(r.entries[i].most, i == 1 ? 32 : i == 2 ? 64 : 1);
            arena_close(w.keep);
        }
    assert_int_equal(most, 4);
}

static void unbuildable(void **state)
{
    World w = world();

    (void)state;
    w.refuse = 1;
    search(&w, false);
    arena_close(w.keep);

    w = world(); /* one border cannot be tried: the others are */
    w.refuse = 2;
    w.times[0] = w.times[2] = (Times){130, 0};
    assert_int_equal(search(&w, true).n, 2);
    arena_close(w.keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal), cmocka_unit_test(found),       cmocka_unit_test(several),
        cmocka_unit_test(drift), cmocka_unit_test(interrupted), cmocka_unit_test(unbuildable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
