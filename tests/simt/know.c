/* know.c - vector clocks: which accesses of other threads happened before the current one.
 *
 * Every thread has a clock for every thread of its block (Fidge 1988, after Lamport 1978). Knowledge of other
 * blocks is passed on rarely, so it is kept as immutable arrays that several threads share. The union of two such
 * arrays is one of them if it covers the other; only otherwise a third array is allocated. */
#include "parts.h"

unsigned know_clocks = CLOCKS;

/* Much of a test's time is spent here. Compared as signed (clocks stay far below 2^31), so that -O3 vectorises it. */
static void join_clocks(uint32_t *restrict to, const uint32_t *restrict from)
{
    const unsigned n = know_clocks / WARP * WARP; /* all clocks, since know_clocks is a multiple of WARP */

    for (unsigned i = 0; i < n; i++)
        to[i] = (int32_t)to[i] > (int32_t)from[i] ? to[i] : from[i];
}

/* The array that covers the other. NULL: neither does. */
static const uint32_t *later(const uint32_t *a, const uint32_t *b)
{
    const unsigned n = know_clocks / WARP * WARP;
    uint32_t first = 0, second = 0;

    for (unsigned i = 0; i < n; i++) {
        first |= (int32_t)a[i] > (int32_t)b[i];
        second |= (int32_t)b[i] > (int32_t)a[i];
    }
    return !second ? a : !first ? b : NULL;
}

static void join_far(Know *to, uint32_t block, const uint32_t *clock)
{
    const uint32_t *known;
    uint32_t *both;

    for (uint32_t i = 0; i < to->n_far; i++) {
        Far *f = &to->far[i];

        if (f->block != block)
            continue;
        if (f->clock == clock)
            return;
        known = later(f->clock, clock);
        if (known) {
            f->clock = known;
            return;
        }
        both = run_keep(sizeof(uint32_t) * CLOCKS);
        memcpy(both, f->clock, sizeof(uint32_t) * know_clocks);
        join_clocks(both, clock);
        f->clock = both;
        return;
    }
    if (to->n_far == to->cap_far) {
        const uint32_t cap = to->cap_far ? to->cap_far * 2 : 4;
        Far *more = run_keep(sizeof(Far) * cap);

        if (to->n_far)
            memcpy(more, to->far, sizeof(Far) * to->n_far);
        to->far = more;
        to->cap_far = cap;
    }
    to->far[to->n_far++] = (Far){block, clock};
}

void know_join(Know *to, const Know *from)
{
    if (to->clock && from->clock)
        join_clocks(to->clock, from->clock);
    for (uint32_t i = 0; i < from->n_far; i++)
        join_far(to, from->far[i].block, from->far[i].clock);
}

void know_take(Know *to, const Know *from)
{
    memcpy(to->clock, from->clock, sizeof(uint32_t) * know_clocks);
    for (uint32_t i = 0; i < from->n_far; i++)
        join_far(to, from->far[i].block, from->far[i].clock);
}

void know_tell(Know *to, const Know *from, uint32_t block)
{
    uint32_t *own = run_keep(sizeof(uint32_t) * CLOCKS);

    memcpy(own, from->clock, sizeof(uint32_t) * know_clocks);
    join_far(to, block, own);
    for (uint32_t i = 0; i < from->n_far; i++)
        join_far(to, from->far[i].block, from->far[i].clock);
}

void know_hear(Know *to, const Know *from, uint32_t block)
{
    for (uint32_t i = 0; i < from->n_far; i++) {
        if (from->far[i].block == block)
            join_clocks(to->clock, from->far[i].clock);
        else
            join_far(to, from->far[i].block, from->far[i].clock);
    }
}

void know_clear(Know *k)
{
    if (k->clock)
        memset(k->clock, 0, sizeof(uint32_t) * know_clocks);
    k->n_far = 0;
}

static bool told(const Know *k, uint32_t own, uint32_t number, uint32_t clock)
{
    const uint32_t block = (number - 1) / CLOCKS, i = (number - 1) % CLOCKS;

    if (block == own && k->clock && k->clock[i] >= clock)
        return true;
    for (uint32_t n = 0; n < k->n_far; n++)
        if (k->far[n].block == block)
            return k->far[n].clock[i] >= clock;
    return false;
}

bool know_of(const Fiber *f, uint32_t number, uint32_t clock)
{
    return told(&f->know, f->block->number, number, clock);
}

bool know_told(const Know *k, uint32_t number, uint32_t clock)
{
    return told(k, UINT32_MAX, number, clock);
}

/* Shuffles and matrix products make no memory visible. But a lane that has their result runs after the point at
 * which every lane of its warp took part. */
static bool same_warp_before(const Fiber *f, uint32_t number, uint32_t clock)
{
    const uint32_t block = (number - 1) / CLOCKS, thread = (number - 1) % CLOCKS - MAX_MBARRIERS;

    return block == f->block->number && thread / WARP == f->tid / WARP && f->warp->clock[thread % WARP] >= clock;
}

bool know_comes_after(const Fiber *f, uint32_t number, uint32_t clock)
{
    return know_of(f, number, clock) || same_warp_before(f, number, clock) ||
           told(&f->after, f->block->number, number, clock);
}
