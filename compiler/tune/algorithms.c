/* algorithms.c - records of cuBLASLt's fastest algorithms, from their times alone. */
#include "tune.h"

#include <string.h>

static const double FASTER_ALONE = 0.98;

/* The last record, if it is of the same algorithm and ends where `from` begins. */
static int64_t *record_before(const TuneWords *words, const DeviceAlgorithm *best, int64_t from, int64_t step)
{
    int64_t *last;

    if (words->n < FTX_MM_RECORD)
        return NULL;
    last = words->at + words->n - FTX_MM_RECORD;
    return last[FTX_MM_TO] + step == from && memcmp(last + FTX_MM_ALGO, best->attribute, sizeof best->attribute) == 0
               ? last
               : NULL;
}

void tune_algorithm(const DeviceAlgorithm *of, size_t n, int64_t from, int64_t to, int64_t step, Arena *keep,
                    TuneWords *words)
{
    const DeviceAlgorithm *best = n ? of : NULL;
    int64_t *before;

    for (size_t i = 1; i < n; i++)
        if (of[i].us > 0 && (best->us <= 0 || of[i].us < best->us))
            best = &of[i];
    if (!n || best == of || (of->us > 0 && best->us > of->us * FASTER_ALONE))
        return;
    before = record_before(words, best, from, step);
    if (before) {
        before[FTX_MM_TO] = to;
        return;
    }
    *arena_push(keep, *words) = from;
    *arena_push(keep, *words) = to;
    for (int i = 0; i < FTX_MM_ATTRIBUTES; i++)
        *arena_push(keep, *words) = best->attribute[i];
}
