/* tune.h - which constants make a model faster: the search of `ftxc tune`.
 *
 * A case is a kernel with tuned constants in one program. Its candidates are tried in two steps:
 *
 *   alone      every candidate once, each launch by itself, with the weights cold as they are between two layers. This only
 *              prunes: what is more than 5 % slower than the best is left out
 *   in place   the whole program, with and without the candidate, in turn (A B B A), with little context and with much. A
 *              candidate is taken if the program gets faster in one of these by more than 0.5 % and by more than the noise that
 *              was measured, and slower in none by more than the noise
 *
 * Half of the time is for kernels alone, nine tenths for both. At the end each program is compared with the untuned one; where that is not slower by 0.5 %, all its entries are dropped.
 * Programs do not depend on each other, so a variant has the next candidate of every program at once. */
#ifndef FTXC_TUNE_H
#define FTXC_TUNE_H

#include "../catalog/tuning.h"
#include "../../runtime/device/device.h"

typedef struct TuneCandidate {
    const TunedConst *use; /* a value for each tuned constant */
    size_t n;
    bool avoid;                /* in place of values: let another kernel compute it */
    const int64_t *algorithms; /* in place of values: of cuBLASLt, as in TuningEntry */
    size_t n_algorithms;
    const char *entry; /* of its instance; of avoid and algorithms: NULL, they are not timed alone here */
    double alone_us;   /* 0: not measured */
    bool dropped;      /* it cannot be built, or it is too slow */
} TuneCandidate;

typedef struct TuneCase {
    const char *kernel, *hash, *program, *shape; /* as in a tuning file */
    size_t at;                                   /* the program's number */
    double cost_us;                              /* of all its launches in the program, by the cost model */
    const char *entry;                           /* of the untuned instance */
    double alone_us;                             /* of that one */
    bool library;                                /* a matrix product of cuBLASLt */
    struct {
        TuneCandidate *at;
        size_t n, cap;
    } candidates; /* those that differ least from the untuned values come first */
} TuneCase;

typedef struct TuneCases {
    TuneCase *at;
    size_t n, cap;
    size_t programs; /* of the target */
} TuneCases;

/* Up to `most` rows are run by a program, and more by the next larger one of its kind; with fewer than `least` a smaller one
 * is run. */
typedef struct TuneBorder {
    const char *program, *shape, *hash; /* as in a tuning file */
    size_t at;                          /* the program's number */
    bool decode;                        /* a row is a sequence; else it is a token of one */
    int64_t least, most;
} TuneBorder;

typedef struct TuneBorders {
    TuneBorder *at;
    size_t n, cap;
} TuneBorders;

enum { TUNE_POINTS = 4 };

/* What a search needs of the world. */
typedef struct TuneMachine {
    void *user;
    /* A model that follows these entries. False: it cannot be built. */
    bool (*build)(void *user, const TuningEntry *entries, size_t n, void **variant);
    void (*drop)(void *user, void *variant);
    /* In how many steps a program is timed, at most TUNE_POINTS: with little and much context, of more and fewer tokens. */
    size_t (*points)(void *user, size_t at);
    /* Microseconds of a run of program `at`; of one launch of a kernel by itself. False: it cannot be measured. */
    bool (*time)(void *user, void *variant, size_t at, size_t point, double *us);
    bool (*alone)(void *user, void *variant, size_t at, const char *entry, double *us);
    /* Microseconds of a step of so many rows, by whatever program runs it. */
    bool (*rows)(void *user, void *variant, const TuneBorder *b, int64_t rows, double *us);
    bool (*stop)(void *user, double share); /* this share of the time is over, or the user wants to end */
    void (*say)(void *user, const char *what, size_t done, size_t all);
    /* Entries that were found in place so far, or all that were confirmed. */
    void (*keep)(void *user, const TuningEntry *entries, size_t n);
} TuneMachine;

typedef struct TuneResult {
    const TuningEntry *entries;
    size_t n;
    const double *untuned_us, *tuned_us; /* of each program; 0: it was not confirmed; NULL: none was */
    size_t failed;                       /* candidates that could not be built or measured */
    bool stopped;
} TuneResult;

/* algorithms.c: of cuBLASLt's algorithms for rows from `from` to `to`, its first choice first, adds the fastest to `words` as a
 * record (FtxMatmulAlgo) if it is faster than the first by more than 2 %. `step`: the rows from a range to the next. */
typedef struct TuneWords {
    int64_t *at;
    size_t n, cap;
} TuneWords;
void tune_algorithm(const DeviceAlgorithm *of, size_t n, int64_t from, int64_t to, int64_t step, Arena *keep,
                    TuneWords *words);

/* `file` is what the entries belong to. False: the untuned model cannot be built, or not beside another; what was found until
 * then was kept. */
bool tune_search(TuneCases *cases, const TuningFile *file, const TuneMachine *m, Arena *keep, TuneResult *out);

/* borders.c: where the next larger program runs a step faster than the one that its rows fit, found by bisection: the border
 * goes there. `entries` are followed. Adds an entry for each border that moves. False: no model can be built. */
bool tune_borders(const TuneBorders *borders, const TuningEntry *entries, size_t n, const TuningFile *file,
                  const TuneMachine *m, Arena *keep, TuneResult *out);

typedef struct TuneEntries {
    TuningEntry *at;
    size_t n, cap;
} TuneEntries;

/* merge.c. Adds what the search has decided: kernels of programs that were compared with the untuned model, and borders. Nothing
 * is decided by a search that was stopped. Of a decided entry kernel, program and shape are set. */
void tune_decided(const TuneCases *cases, const TuneResult *r, Arena *keep, TuneEntries *decided);
void tune_decided_borders(const TuneBorders *borders, const TuneResult *r, Arena *keep, TuneEntries *decided);
/* Adds what the file holds then: what was found, and of `before` what was neither found again nor decided. */
void tune_merge(const TuningEntry *found, size_t n, const Tuning *before, const TuneEntries *decided, Arena *keep,
                TuneEntries *out);

#endif
