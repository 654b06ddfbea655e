/* planner.c - offsets for buffers with lifetime intervals.
 *
 * Buffers whose intervals intersect may not overlap in memory. In some order, each gets the lowest offset that is free
 * during its whole interval: Pisarchyk & Lee 2020, "greedy by size". The best order depends on the model: several are
 * tried, then single buffers of the best one are moved forward at random, at last those that lie above the lower bound,
 * until it is reached. O(n^2) an order; n is below 2,000. */
#include "planner.h"

#include <stdlib.h>
#include <string.h>

uint64_t planner_lower_bound(const Interval *intervals, size_t n)
{
    uint64_t most = 0;

    for (size_t i = 0; i < n; i++) { /* the sum has its maximum where some interval begins */
        uint64_t sum = 0;

        for (size_t k = 0; k < n; k++)
            if (intervals[k].first <= intervals[i].first && intervals[i].first <= intervals[k].last)
                sum += intervals[k].bytes;
        most = sum > most ? sum : most;
    }
    return most;
}

static bool intersect(const Interval *a, const Interval *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Sets the offsets in the given order and returns the bytes needed. `placed`: those that are done, sorted by offset. */
static uint64_t place(Interval *intervals, const uint32_t *order, size_t n, uint32_t *placed)
{
    uint64_t peak = 0;

    for (size_t i = 0; i < n; i++) {
        Interval *interval = &intervals[order[i]];
        uint64_t at = 0;
        size_t slot = i;

        for (size_t k = 0; k < i; k++) {
            const Interval *other = &intervals[placed[k]];

            if (!intersect(interval, other))
                continue;
            if (other->offset >= at && other->offset - at >= interval->bytes)
                break;
            if (other->offset + other->bytes > at)
                at = other->offset + other->bytes;
        }
        interval->offset = at;
        while (slot > 0 && intervals[placed[slot - 1]].offset > at) {
            placed[slot] = placed[slot - 1];
            slot--;
        }
        placed[slot] = order[i];
        if (at + interval->bytes > peak)
            peak = at + interval->bytes;
    }
    return peak;
}

typedef enum Key { BY_SIZE, BY_AREA, BY_START, BY_LENGTH, BY_END, KEYS } Key;

/* Sort keys: larger ones come first, equal ones keep their order. */
static uint64_t key_of(const Interval *l, Key key)
{
    const uint64_t length = (uint64_t)(l->last - l->first) + 1;

    switch (key) {
    case BY_SIZE: return l->bytes;
    case BY_AREA: return l->bytes > UINT64_MAX / length ? UINT64_MAX : l->bytes * length;
    case BY_START: return UINT32_MAX - l->first;
    case BY_LENGTH: return length;
    case BY_END: return l->last;
    case KEYS: break;
    }
    return 0;
}

static void sort(uint32_t *order, size_t n, const Interval *intervals, Key key, uint32_t *spare)
{
    if (n < 2)
        return;
    const size_t half = n / 2;
    size_t i = 0, k = half, to = 0;

    sort(order, half, intervals, key, spare);
    sort(order + half, n - half, intervals, key, spare);
    while (i < half || k < n)
        spare[to++] = k == n || (i < half && key_of(&intervals[order[i]], key) >= key_of(&intervals[order[k]], key))
                          ? order[i++]
                          : order[k++];
    memcpy(order, spare, n * sizeof *order);
}

static void move_to_front(uint32_t *order, size_t from, size_t to)
{
    const uint32_t piece = order[from];

    memmove(order + to + 1, order + to, (from - to) * sizeof *order);
    order[to] = piece;
}

/* The bytes above the bound, of all buffers together. */
static uint64_t excess_of(const Interval *intervals, size_t n, uint64_t bound)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        if (intervals[i].offset + intervals[i].bytes > bound)
            sum += intervals[i].offset + intervals[i].bytes - bound;
    return sum;
}

/* Places the best order, then moves forward one of the buffers above the bound at a time: layers are alike, so what is wrong
 * in one is wrong in all, and the peak alone does not show that one of them is mended. Returns the bytes needed. */
static uint64_t lower_excess(Interval *intervals, uint32_t *best, size_t n, uint64_t bound, uint32_t *order,
                             uint32_t *spare)
{
    uint64_t peak = place(intervals, best, n, spare), least = excess_of(intervals, n, bound), seed = 1;

    for (int step = 0; step < 4000 && least > 0; step++) {
        size_t from, tries = 0;

        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        from = (size_t)(seed >> 40) % n;
        while (tries++ < n && intervals[best[from]].offset + intervals[best[from]].bytes <= bound)
            from = (from + 1) % n;
        memcpy(order, best, n * sizeof *order);
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): it is a remainder by more than 0 */
        move_to_front(order, from, from ? (size_t)(seed >> 16) % from : 0);
        place(intervals, order, n, spare);
        if (excess_of(intervals, n, bound) <= least) {
            least = excess_of(intervals, n, bound);
            memcpy(best, order, n * sizeof *order);
        }
        peak = place(intervals, best, n, spare);
    }
    return peak;
}

uint64_t planner_run(Interval *intervals, size_t n, Arena *scratch)
{
    uint32_t *order = arena_array(scratch, uint32_t, n + 1), *best = arena_array(scratch, uint32_t, n + 1);
    uint32_t *spare = arena_array(scratch, uint32_t, n + 1);
    const uint64_t bound = planner_lower_bound(intervals, n);
    uint64_t least = UINT64_MAX, seed = 1;

    for (int key = 0; key < KEYS && least > bound; key++) {
        uint64_t peak;

        for (size_t i = 0; i < n; i++)
            order[i] = (uint32_t)i;
        sort(order, n, intervals, (Key)key, spare);
        peak = place(intervals, order, n, spare);
        if (peak < least) {
            least = peak;
            memcpy(best, order, n * sizeof *order);
        }
    }
    for (int step = 0; step < 400 && least > bound && n > 1; step++) {
        uint64_t peak;

        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const size_t a = (size_t)(seed >> 40) % n, b = (size_t)(seed >> 16) % n;

        memcpy(order, best, n * sizeof *order);
        move_to_front(order, a > b ? a : b, a > b ? b : a);
        peak = place(intervals, order, n, spare);
        if (peak <= least) { /* taken if equal, too, so that the search can cross plateaus */
            least = peak;
            memcpy(best, order, n * sizeof *order);
        }
    }
    return n ? lower_excess(intervals, best, n, bound, order, spare) : 0;
}
