/* test_merge.c - what stays of a tuning file that was there before a search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "compiler/tune/tune.h"

static TuningEntry entry(const char *kernel, const char *program, const char *shape, double us)
{
    return (TuningEntry){.kernel = kernel, .hash = "0", .program = program, .shape = shape, .us = us};
}

/* The kernels, programs, shapes and times of what the file has then, in one line. */
static const char *merged(const TuningEntry *found, size_t n, const TuneEntries *decided, Arena *keep)
{
    Tuning before = {0};
    TuneEntries all = {0};
    const char *text = "";

    *(TuningEntry *)arena_push(keep, before.entries) = entry("a", "decode 1", "N=1", 1);
    *(TuningEntry *)arena_push(keep, before.entries) = entry("a", "decode 8", "N=1", 2);
    *(TuningEntry *)arena_push(keep, before.entries) = entry("a", "decode 1", "N=2", 3);
    *(TuningEntry *)arena_push(keep, before.entries) = entry("b", "decode 1", "N=1", 4);
    *(TuningEntry *)arena_push(keep, before.entries) = entry(TUNING_BORDER, "decode 8", "decode 16", 5);
    tune_merge(found, n, &before, decided, keep, &all);
    for (size_t i = 0; i < all.n; i++)
        text = arena_printf(keep, "%s%s%s,%s,%s:%g", text, i ? " " : "", all.at[i].kernel, all.at[i].program,
                            all.at[i].shape, all.at[i].us);
    return text;
}

/* A search that goes on, or was stopped, replaces what it found and leaves the rest. */
static void replaced(void **state)
{
    const TuningEntry found[] = {entry("a", "decode 1", "N=1", 9)};
    Arena *keep = arena_open();
    (void)state;

    assert_string_equal(
        merged(found, 1, &(TuneEntries){0}, keep),
        "a,decode 1,N=1:9 a,decode 8,N=1:2 a,decode 1,N=2:3 b,decode 1,N=1:4 border,decode 8,decode 16:5");
    assert_string_equal(
        merged(NULL, 0, &(TuneEntries){0}, keep),
        "a,decode 1,N=1:1 a,decode 8,N=1:2 a,decode 1,N=2:3 b,decode 1,N=1:4 border,decode 8,decode 16:5");
    arena_close(keep);
}

static const char *after(bool stopped, bool borders, Arena *keep)
{
    static const double us[] = {5, 0};
    TuneCase cases[] = {{.kernel = "a", .program = "decode 1", .shape = "N=1", .at = 0},
                        {.kernel = "a", .program = "decode 8", .shape = "N=1", .at = 1},
                        {.kernel = "c", .program = "decode 1", .shape = "N=1", .at = 0}};
    TuneBorder border[] = {{.program = "decode 8", .shape = "decode 16"}};
    const TuneResult r = {.untuned_us = us, .stopped = stopped};
    const TuningEntry found[] = {entry("c", "decode 1", "N=1", 9)};
    TuneEntries decided = {0};

    tune_decided(&(TuneCases){cases, 3, 3, 2}, &r, keep, &decided);
    if (borders)
        tune_decided_borders(&(TuneBorders){border, 1, 1}, &r, keep, &decided);
    return merged(found, 1, &decided, keep);
}

/* An entry that a whole search did not find again goes, but not that of a program which could not be compared. */
static void gone(void **state)
{
    Arena *keep = arena_open();
    (void)state;

    assert_string_equal(after(false, false, keep),
                        "c,decode 1,N=1:9 a,decode 8,N=1:2 a,decode 1,N=2:3 b,decode 1,N=1:4 "
                        "border,decode 8,decode 16:5");
    assert_string_equal(after(false, true, keep),
                        "c,decode 1,N=1:9 a,decode 8,N=1:2 a,decode 1,N=2:3 b,decode 1,N=1:4");
    assert_string_equal(after(true, true, keep),
                        "c,decode 1,N=1:9 a,decode 1,N=1:1 a,decode 8,N=1:2 a,decode 1,N=2:3 b,decode 1,N=1:4 "
                        "border,decode 8,decode 16:5");
    arena_close(keep);
}

/* Before a program was compared nothing is decided. */
static void not_compared(void **state)
{
    TuneCase cases[] = {{.kernel = "a", .program = "decode 1", .shape = "N=1", .at = 0}};
    Arena *keep = arena_open();
    TuneEntries decided = {0};
    (void)state;

    tune_decided(&(TuneCases){cases, 1, 1, 1}, &(TuneResult){0}, keep, &decided);
    assert_int_equal(decided.n, 0);
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(replaced), cmocka_unit_test(gone),
                                       cmocka_unit_test(not_compared)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
