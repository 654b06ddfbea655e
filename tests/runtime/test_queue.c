/* test_queue.c - the order of waiting requests, the counters of keys and the shares of a step, against plain models of
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/batch.h"
#include "runtime/engine/fair.h"
#include "runtime/engine/queue.h"

enum { MOST = 40, SEEDS = 4000 };

static uint64_t dice_state;

static uint32_t dice(uint32_t n)
{
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice_state >> 33) % n;
}

/* --- the queue -------------------------------------------------------------------------------------------- */

typedef struct Waiting { /* the items of a queue, and what fits */
    QueueItem item[MOST];
    QueueFit fit[MOST];
    uint32_t n;
} Waiting;

static QueueFit fit_of(void *user, uint32_t i)
{
    return ((const Waiting *)user)->fit[i];
}

static const Waiting *sorted;

static int by_rank(const void *a, const void *b)
{
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const QueueItem *x = &sorted->item[i], *y = &sorted->item[k];

    if (x->priority != y->priority)
        return x->priority < y->priority ? -1 : 1;
    if (x->preempted != y->preempted)
        return x->preempted ? -1 : 1;
    if (x->served != y->served)
        return x->served < y->served ? -1 : 1;
    return i < k ? -1 : i > k;
}

/* Sorts all, then walks. */
static uint32_t plain_next(const Waiting *w, uint32_t *too_large, uint32_t *n_too_large)
{
    uint32_t order[MOST];

    sorted = w;
    for (uint32_t i = 0; i < w->n; i++)
        order[i] = i;
    qsort(order, w->n, sizeof *order, by_rank);
    *n_too_large = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->fit[order[i]] == QUEUE_FITS)
            return order[i];
        if (w->fit[order[i]] == QUEUE_LATER)
            continue;
        if (*n_too_large == 8 || w->item[order[i]].passed >= 32)
            return w->n;
        too_large[(*n_too_large)++] = order[i];
    }
    return w->n;
}

static void test_order(void **state)
{
    int found = 0, none = 0;

    (void)state;
    for (dice_state = 1; dice_state <= SEEDS; dice_state++) {
        const uint64_t seed = dice_state;
        uint32_t a[QUEUE_MOST_PASSED + 1] = {0}, b[QUEUE_MOST_PASSED + 1] = {0}, heap[MOST], n_a, n_b, next;
        const uint32_t small = 1 + dice(6);
        Waiting w = {.n = dice(MOST)};

        for (uint32_t i = 0; i < w.n; i++) {
            w.item[i] = (QueueItem){
                .priority = (int)dice(3) - 1, .preempted = dice(5) == 0, .served = dice(3), .passed = dice(34)};
            w.fit[i] = dice(small) ? QUEUE_TOO_LARGE : dice(4) ? QUEUE_FITS : QUEUE_LATER;
        }
        next = plain_next(&w, b, &n_b);
        assert_int_equal(queue_next(w.item, w.n, heap, fit_of, &w, a, &n_a), next);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, n_a * sizeof *a);
        found += next < w.n;
        none += next == w.n;
        dice_state = seed;
    }
    assert_true(found > SEEDS / 10 && none > SEEDS / 10);
}

/* A request that does not fit is passed 32 times by those behind it, and then by none. */
static void test_passed(void **state)
{
    Waiting w = {.item = {{.priority = 0}, {.priority = 1}}, .fit = {QUEUE_TOO_LARGE, QUEUE_FITS}, .n = 2};
    uint32_t too_large[QUEUE_MOST_PASSED], heap[2], n;
    int passed = 0;

    (void)state;
    while (queue_next(w.item, w.n, heap, fit_of, &w, too_large, &n) == 1) {
        assert_int_equal(n, 1);
        w.item[too_large[0]].passed++;
        passed++;
    }
    assert_int_equal(passed, QUEUE_MOST_TIMES);
    w.fit[0] = QUEUE_FITS;
    assert_int_equal(queue_next(w.item, w.n, heap, fit_of, &w, too_large, &n), 0);
}

/* --- keys ------------------------------------------------------------------------------------------------- */

/* Three keys that always have requests waiting are served alike, however large their requests. A key that comes back
 * begins at the least of the others. */
static void test_fair(void **state)
{
    enum { N = 6 };
    FairKey keys[N] = {{0}};
    Fair f = {.at = keys, .n = N};
    uint32_t entry[3], again;
    uint64_t served[3] = {0};

    (void)state;
    for (uint32_t k = 0; k < 3; k++)
        entry[k] = fair_enter(&f, 100 + k);
    for (int i = 0; i < 3000; i++) {
        uint32_t least = 0;
        uint64_t tokens;

        for (uint32_t k = 1; k < 3; k++)
            least = f.at[entry[k]].served < f.at[entry[least]].served ? k : least;
        tokens = 1 + dice(10 * (least + 1));
        served[least] += tokens;
        fair_serve(&f, entry[least], tokens);
        again = fair_enter(&f, 100 + least); /* the next one comes before this has ended */
        assert_int_equal(again, entry[least]);
        fair_leave(&f, entry[least]);
    }
    for (uint32_t k = 1; k < 3; k++)
        assert_true(llabs((long long)(served[k] - served[0])) <= 30);
    again = fair_enter(&f, 7);
    assert_true(f.at[again].served >= served[0] - 30 && f.at[again].served <= served[0] + 30);
    fair_serve(&f, again, 1000000);
    fair_leave(&f, again);
    assert_int_equal(fair_enter(&f, 7), again); /* it is known still, with what it was served */
    assert_true(f.at[again].served >= 1000000);
}

/* As many keys as there is room for, in turn; key 0 is one as any other. */
static void test_fair_entries(void **state)
{
    enum { N = 5 };
    FairKey keys[N] = {{0}};
    Fair f = {.at = keys, .n = N};
    uint32_t entry[N];

    (void)state;
    for (int round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < N; i++) {
            entry[i] = fair_enter(&f, (uint64_t)(round * 3) + i);
            for (uint32_t k = 0; k < i; k++)
                assert_int_not_equal(entry[i], entry[k]);
            fair_serve(&f, entry[i], 1 + i);
        }
        for (uint32_t i = 0; i < N; i++) {
            assert_true(f.at[entry[i]].key == (uint64_t)(round * 3) + i && f.at[entry[i]].users == 1);
            fair_leave(&f, entry[i]);
        }
    }
}

/* A key that takes another's entry does not take its counter. */
static void test_fair_anew(void **state)
{
    FairKey keys[2] = {{0}};
    Fair f = {.at = keys, .n = 2};
    uint32_t entry;

    (void)state;
    fair_serve(&f, fair_enter(&f, 1), 10);
    entry = fair_enter(&f, 2);
    fair_serve(&f, entry, 1000);
    fair_leave(&f, entry);
    assert_int_equal(fair_enter(&f, 3), entry);
    assert_int_equal(f.at[entry].served, 10);
}

/* Nobody has a request for a while. A key that is new then has no credit over the one that was served before. */
static void test_fair_idle(void **state)
{
    FairKey keys[4] = {{0}};
    Fair f = {.at = keys, .n = 4};
    uint32_t old;

    (void)state;
    old = fair_enter(&f, 1);
    fair_serve(&f, old, 50);
    fair_enter(&f, 1);
    fair_leave(&f, old);
    fair_serve(&f, old, 950);
    fair_leave(&f, old);
    assert_int_equal(f.at[fair_enter(&f, 2)].served, 1000);
    assert_int_equal(fair_enter(&f, 1), old);
    assert_int_equal(f.at[old].served, 1000);
}

/* --- the shares of a step -------------------------------------------------------------------------------------- */

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* One prompt after another, from a list in the order of their turns. */
static void plain_share(const BatchItem *item, int n, int budget, int *tokens)
{
    int turn[MOST], turns = 0, part[2], parts = 0;

    for (int i = 0; i < n; i++)
        budget -= tokens[i] = item[i].lanes;
    for (int i = 0; i < n; i++)
        if (!item[i].lanes && item[i].started)
            turn[turns++] = i;
    for (int i = 0; i < n; i++)
        if (!item[i].lanes && !item[i].started)
            turn[turns++] = i;
    for (int t = 0; t < turns; t++) {
        const int need = item[turn[t]].need;
        const int gets = need <= budget ? need : parts == 2 ? 0 : budget - budget / 2;

        if (need > budget && gets)
            part[parts++] = turn[t];
        tokens[turn[t]] = gets;
        budget -= gets;
    }
    for (int t = 0; t < parts + turns; t++) {
        const int i = t < parts ? part[t] : turn[t - parts];
        const int more = least_of(item[i].need - tokens[i], budget);

        tokens[i] += more;
        budget -= more;
    }
}

static void check_shares(const BatchItem *item, int n, int budget, const int *tokens)
{
    int sum = 0, wanted = 0, partial = 0, first = -1, left = budget;

    for (int i = 0; i < n; i++) {
        sum += tokens[i];
        wanted += item[i].lanes ? item[i].lanes : item[i].need;
        if (item[i].lanes) {
            assert_int_equal(tokens[i], item[i].lanes);
            left -= tokens[i];
            continue;
        }
        assert_true(tokens[i] >= 0 && tokens[i] <= item[i].need);
        partial += tokens[i] < item[i].need && (tokens[i] || item[i].started);
        if (item[i].need && (first < 0 || (item[i].started && !item[first].started)))
            first = i;
    }
    assert_int_equal(sum, least_of(budget, wanted)); /* nothing is left while somebody could use it */
    assert_true(partial <= BATCH_MOST_PARTIAL);
    if (first >= 0) /* the oldest has at least half */
        assert_true(tokens[first] >= least_of(item[first].need, left / 2));
}

static void test_shares(void **state)
{
    (void)state;
    for (dice_state = 1; dice_state <= SEEDS; dice_state++) {
        const uint64_t seed = dice_state;
        BatchItem item[MOST];
        int a[MOST], b[MOST], started = 0, lanes = 0;
        const int n = 1 + (int)dice(12), budget = 64 + (int)dice(64);

        for (int i = 0; i < n; i++) {
            item[i] = (BatchItem){.lanes = dice(3) ? 0 : 1 + (int)dice(4)};
            lanes += item[i].lanes;
            if (item[i].lanes)
                continue;
            item[i].need = dice(8) ? 1 + (int)dice(dice(2) ? 30 : 400) : 0;
            item[i].started = item[i].need && started < 2 && dice(2);
            started += item[i].started;
        }
        assert_true(lanes <= budget);
        batch_share(item, n, budget, a);
        plain_share(item, n, budget, b);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
        check_shares(item, n, budget, a);
        dice_state = seed;
    }
}

/* The first part of a prompt comes in one step, or none of it: one behind it that fits goes ahead. */
static void test_whole(void **state)
{
    const BatchItem item[] = {{.lanes = 2},
                              {.need = 9, .whole = 9},
                              {.need = 5, .whole = 5},
                              {.need = 12, .whole = 1},
                              {.need = 2, .whole = 2}};
    int tokens[5];

    (void)state;
    batch_share(item, 5, 10, tokens);
    assert_memory_equal(tokens, ((int[]){2, 0, 5, 1, 2}), sizeof tokens);
    batch_share(item, 5, 11, tokens);
    assert_memory_equal(tokens, ((int[]){2, 9, 0, 0, 0}), sizeof tokens);
    batch_share(item, 5, 18, tokens);
    assert_memory_equal(tokens, ((int[]){2, 9, 5, 1, 0}), sizeof tokens);
}

/* Prompts that come one after another until all are read: short ones behind two long ones do not wait for these. */
static void test_short_ones(void **state)
{
    BatchItem item[10] = {{.need = 5000}, {.need = 5000}};
    int steps[10] = {0}, tokens[10];

    (void)state;
    for (int i = 2; i < 10; i++)
        item[i].need = 20;
    for (int step = 1, left = 1; left; step++) {
        batch_share(item, 10, 128, tokens);
        check_shares(item, 10, 128, tokens);
        left = 0;
        for (int i = 0; i < 10; i++) {
            item[i].need -= tokens[i];
            item[i].started = item[i].need && (item[i].started || tokens[i]);
            if (!item[i].need && !steps[i])
                steps[i] = step;
            left += item[i].need;
        }
        assert_true(step < 100);
    }
    for (int i = 2; i < 10; i++)
        assert_in_range(steps[i], 1, 8);
    assert_true(steps[0] < steps[1] && steps[1] == (10000 + 8 * 20 + 127) / 128);
}

/* batch_fit, by looking at all numbers of tokens. */
static int plain_fit(int budget, int most, int decode, int need, const BatchSizes *s)
{
    const int wanted = decode + need < budget ? decode + need : budget;
    bool full[8192] = {false};
    int below = wanted, above = wanted + 1;

    for (uint32_t i = 0; i < s->n; i++)
        full[s->bucket[i]] = true;
    for (int i = 1; s->tile && i < 8192; i++)
        if ((!s->n || i > (int)s->bucket[s->n - 1]) && i % s->tile == 0)
            full[i] = true;
    while (below && !full[below])
        below--;
    while (above < 8192 && !full[above])
        above++;
    if (!decode || below == wanted || above == 8192)
        return budget;
    if (wanted - below < above - wanted)
        return below - decode >= (wanted - decode + 1) / 2 ? below : budget;
    return wanted < decode + need && above <= most ? above : budget;
}

static void test_fit(void **state)
{
    static const uint32_t ours[] = {128, 192, 256, 512};
    const BatchSizes h200 = {.bucket = ours, .n = 4, .tile = 128};

    (void)state;
    assert_int_equal(batch_fit(2048, 2048, 30, 227, &h200), 256);    /* one token too many: it waits */
    assert_int_equal(batch_fit(2048, 2048, 0, 257, &h200), 2048);    /* no step follows in any case */
    assert_int_equal(batch_fit(2048, 2048, 30, 226, &h200), 2048);   /* full */
    assert_int_equal(batch_fit(2048, 2048, 30, 400, &h200), 2048);   /* 430 of 512 */
    assert_int_equal(batch_fit(2048, 2048, 250, 12, &h200), 256);    /* 6 of 12 stay */
    assert_int_equal(batch_fit(2048, 2048, 250, 13, &h200), 2048);   /* 6 of 13 would be less than half */
    assert_int_equal(batch_fit(2048, 2048, 300, 270, &h200), 512);   /* 58 beyond 512 */
    assert_int_equal(batch_fit(2048, 2048, 300, 280, &h200), 2048);  /* 68 */
    assert_int_equal(batch_fit(1000, 2048, 300, 5000, &h200), 1024); /* cut in any case: 104 of 128 */
    assert_int_equal(batch_fit(1000, 1023, 300, 5000, &h200), 1000);
    assert_int_equal(batch_fit(950, 2048, 300, 5000, &h200), 896); /* 54 of 128 */
    assert_int_equal(batch_fit(640, 2048, 300, 5000, &h200), 640);
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        uint32_t bucket[4], n = 0;
        BatchSizes s;

        dice_state = seed;
        s = (BatchSizes){.bucket = bucket, .tile = dice(4) ? 1 + (int)dice(200) : 0};
        for (uint32_t at = 0; n < dice(5) && n < 4; n++)
            at = bucket[n] = at + 1 + dice(200);
        s.n = n;
        const int decode = (int)dice(300), budget = decode + 1 + (int)dice(2000), need = (int)dice(3000);
        const int most = budget + (int)dice(200), got = batch_fit(budget, most, decode, need, &s);

        assert_int_equal(got, plain_fit(budget, most, decode, need, &s));
        assert_in_range(got, decode + (need > 0), most); /* a prompt goes on */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),        cmocka_unit_test(test_passed),     cmocka_unit_test(test_fair),
        cmocka_unit_test(test_fair_entries), cmocka_unit_test(test_fair_anew),  cmocka_unit_test(test_fair_idle),
        cmocka_unit_test(test_shares),       cmocka_unit_test(test_short_ones), cmocka_unit_test(test_whole),
        cmocka_unit_test(test_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
