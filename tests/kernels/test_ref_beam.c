/* test_ref_beam.c - the plain beam search against all sequences there are, over tiny vocabularies, and
 * against the rule that makes it a search: what stands, what ends, when it is over. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/ref/ref.h"

enum { MOST_V = 5, MOST_NEW = 5, MOST_WIDTH = 700, MOST_FOUND = 5000 };

/* A made-up model: log-probabilities that depend on the whole sequence. */
typedef struct Toy {
    uint64_t seed;
    int V;
} Toy;

static double uniform(uint64_t *s)
{
    *s += 0x9e3779b97f4a7c15u;

    uint64_t z = *s;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static void next_logprobs(const Toy *t, const int32_t *ids, int n, double *to)
{
    uint64_t s = t->seed;
    double sum = 0.0;

    for (int i = 0; i < n; i++)
        s = s * 31 + (uint64_t)ids[i] + 1;
    for (int v = 0; v < t->V; v++) {
        to[v] = exp(3.0 * uniform(&s));
        sum += to[v];
    }
    for (int v = 0; v < t->V; v++)
        to[v] = log(to[v] / sum);
}

/* --- all sequences ---------------------------------------------------------------------------------- */

typedef struct All {
    const Toy *toy;
    int limit, end;
    double penalty;
    int32_t ids[MOST_NEW + 2];
    double score[MOST_FOUND];
    int n;
} All;

static void enumerate(All *a, int n, double sum)
{
    double logprobs[MOST_V];

    next_logprobs(a->toy, a->ids, n, logprobs);
    for (int v = 0; v < a->toy->V; v++) {
        a->ids[n] = v;
        if (v == a->end || n + 1 == a->limit)
            a->score[a->n++] = (sum + logprobs[v]) / pow(n, a->penalty); /* the prompt is one token */
        else
            enumerate(a, n + 1, sum + logprobs[v]);
    }
}

static int larger(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* --- the search --------------------------------------------------------------------------------------- */

static void search(RefBeams *b, const Toy *toy)
{
    static int32_t ids[MOST_WIDTH * 8], found_ids[MOST_WIDTH * 8], next_ids[MOST_WIDTH * 8];
    static int32_t parent[MOST_WIDTH], next[MOST_WIDTH], order[MOST_WIDTH * MOST_V];
    static double score[MOST_WIDTH], next_score[MOST_WIDTH], total[MOST_WIDTH * MOST_V];
    static double logprobs[MOST_WIDTH * MOST_V];
    static RefFound hypothesis[MOST_WIDTH + 1];
    const int32_t prompt = 0;

    b->V = toy->V;
    b->ids = ids, b->found_ids = found_ids, b->next_ids = next_ids, b->parent = parent, b->next = next;
    b->order = order, b->score = score, b->next_score = next_score, b->total = total, b->hypothesis = hypothesis;
    ref_beams_begin(b, &prompt, 1);
    while (!b->done) {
        for (int i = 0; i < b->width; i++)
            if (b->score[i] > -INFINITY)
                next_logprobs(toy, b->ids + i * b->limit, b->length, logprobs + i * b->V);
        ref_beams_step(b, logprobs);
        for (int i = 1; i < b->width; i++)
            if (b->groups < 2)
                assert_true(b->score[i] <= b->score[i - 1]);
    }
}

/* Wide enough that no prefix is lost, and to the end: exactly the best of all sequences. */
static void wide_is_exhaustive(void **state)
{
    static All all;

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        const Toy toy = {seed, 2 + (int)(seed % 4)};
        const int new = 2 + (int)(seed % 3), end = (int)(seed % (uint64_t)toy.V);
        const double penalty = seed % 5 == 0 ? 0.0 : seed % 5 == 1 ? 0.6 : seed % 5 == 2 ? 1.0 : 2.0;
        RefBeams b = {.limit = 1 + new,
                      .n_ends = 1,
                      .early = FTX_EARLY_NEVER,
                      .length_penalty = penalty,
                      .ends = &(int32_t){end}};

        b.width = 1;
        for (int i = 0; i < new; i++)
            b.width *= toy.V;
        assert_true(b.width <= MOST_WIDTH);
        all = (All){.toy = &toy, .limit = b.limit, .end = end, .penalty = penalty};
        enumerate(&all, 1, 0.0);
        qsort(all.score, (size_t)all.n, sizeof *all.score, larger);
        search(&b, &toy);
        assert_int_equal(b.found, all.n < b.width ? all.n : b.width);
        for (int i = 0; i < b.found; i++)
            assert_true(fabs(b.hypothesis[i].score - all.score[i]) < 1e-9);
    }
}

/* What every search keeps to, at any width: hypotheses are sequences of the model with their true
 * scores, in order, each once; none ends early without an end id; none is better than the best there is. */
static void narrow_is_sound(void **state)
{
    static All all;

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const Toy toy = {seed, 3 + (int)(seed % 3)};
        const int32_t ends[] = {1, 2};
        RefBeams b = {.width = 1 + (int)(seed % 3),
                      .limit = 5,
                      .n_ends = 1 + (int)(seed / 7 % 2),
                      .early = (int)(seed % 3),
                      .length_penalty = (double)(seed % 4) * 0.5,
                      .ends = ends};

        search(&b, &toy);
        assert_in_range(b.found, 1, b.width);
        if (b.early == FTX_EARLY_TRUE && !(b.length == b.limit))
            assert_true(b.found == b.width);
        for (int i = 0; i < b.found; i++) {
            const RefFound *h = &b.hypothesis[i];
            const int32_t *ids = b.found_ids + h->row * b.limit;
            const int last = ids[h->length - 1], is_end = last == 1 || (b.n_ends == 2 && last == 2);
            double sum = 0.0, logprobs[MOST_V];

            for (int k = 1; k < h->length; k++) {
                next_logprobs(&toy, ids, k, logprobs);
                sum += logprobs[ids[k]];
                assert_true(k + 1 == h->length || (ids[k] != 1 && (b.n_ends == 1 || ids[k] != 2)));
            }
            assert_int_equal(h->end, is_end);
            assert_true(is_end || h->length == b.limit);
            assert_true(fabs(sum - h->sum) < 1e-9);
            assert_true(fabs(sum / pow(h->length - 1, b.length_penalty) - h->score) < 1e-9);
            assert_true(i == 0 || b.hypothesis[i - 1].score >= h->score);
            for (int k = 0; k < i; k++)
                assert_true(b.hypothesis[k].length != h->length || memcmp(b.found_ids + b.hypothesis[k].row * b.limit,
                                                                          ids, (size_t)h->length * sizeof *ids) != 0);
        }
        if (b.n_ends == 1) {
            all = (All){.toy = &toy, .limit = b.limit, .end = 1, .penalty = b.length_penalty};
            enumerate(&all, 1, 0.0);
            qsort(all.score, (size_t)all.n, sizeof *all.score, larger);
            assert_true(b.hypothesis[0].score <= all.score[0] + 1e-9);
        }
    }
}

/* One lane is the greedy text, up to its first end id. */
static void one_lane_is_greedy(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        const Toy toy = {seed, 5};
        int32_t ids[8] = {0};
        int n = 1;
        RefBeams b = {
            .width = 1, .limit = 6, .n_ends = 1, .early = FTX_EARLY_TRUE, .length_penalty = 1.0, .ends = &(int32_t){3}};

        do {
            double logprobs[MOST_V];
            int best = 0;

            next_logprobs(&toy, ids, n, logprobs);
            for (int v = 1; v < toy.V; v++)
                best = logprobs[v] > logprobs[best] ? v : best;
            ids[n++] = best;
        } while (n < b.limit && ids[n - 1] != 3);
        search(&b, &toy);
        assert_int_equal(b.found, 1);
        assert_int_equal(b.hypothesis[0].length, n);
        assert_memory_equal(b.found_ids, ids, (size_t)n * sizeof *ids);
    }
}

/* Groups of one lane are greedy texts, one after another, as the paper's formula has it. */
static void groups_of_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        enum { GROUPS = 3 };
        const Toy toy = {seed, 5};
        const double rate = 0.4 * (double)(seed % 4);
        int32_t ids[GROUPS][8] = {{0}};
        double sum[GROUPS] = {0};
        int n[GROUPS] = {1, 1, 1}, ended[GROUPS] = {0};
        RefBeams b = {.width = GROUPS,
                      .limit = 6,
                      .n_ends = 1,
                      .early = FTX_EARLY_TRUE,
                      .length_penalty = 1.0,
                      .ends = &(int32_t){3},
                      .groups = GROUPS,
                      .diversity = rate};

        for (int t = 1; t < b.limit; t++) {
            int taken[GROUPS] = {-1, -1, -1}; /* what a group would go on with in this step */

            for (int g = 0; g < GROUPS; g++) {
                double logprobs[MOST_V];
                int best = 0;

                if (ended[g])
                    continue;
                next_logprobs(&toy, ids[g], t, logprobs);
                for (int h = 0; h < g; h++)
                    if (taken[h] >= 0)
                        logprobs[taken[h]] -= rate;
                for (int v = 0; v < toy.V; v++) {
                    best = logprobs[v] > logprobs[best] ? v : best;
                    if (v != 3 && (taken[g] < 0 || logprobs[v] > logprobs[taken[g]]))
                        taken[g] = v;
                }
                ids[g][t] = best;
                sum[g] += logprobs[best];
                n[g] = t + 1;
                ended[g] = best == 3;
            }
        }
        search(&b, &toy);
        assert_int_equal(b.found, GROUPS);
        for (int i = 0; i < GROUPS; i++) {
            const RefFound *h = &b.hypothesis[i];

            assert_int_equal(h->length, n[h->group]);
            assert_memory_equal(b.found_ids + h->row * b.limit, ids[h->group], (size_t)h->length * sizeof(int32_t));
            assert_true(fabs(h->sum - sum[h->group]) < 1e-9);
        }
    }
}

/* With equal log-probabilities everywhere the order of ties decides: lower ids first, and of hypotheses of one score
 * the earlier ones stay. */
static void ties(void **state)
{
    enum { V = 3, WIDTH = 2, LIMIT = 5 };
    const int32_t prompt = 0, end = 2;

    (void)state;
    for (int early = FTX_EARLY_FALSE; early <= FTX_EARLY_NEVER; early++) {
        int32_t ids[WIDTH * LIMIT], found_ids[WIDTH * LIMIT], next_ids[WIDTH * LIMIT], parent[WIDTH], next[WIDTH];
        int32_t order[WIDTH * V];
        double score[WIDTH], next_score[WIDTH], total[WIDTH * V], logprobs[WIDTH * V];
        RefFound hypothesis[WIDTH + 1];
        RefBeams b = {.width = WIDTH,
                      .V = V,
                      .limit = LIMIT,
                      .n_ends = 1,
                      .early = early,
                      .length_penalty = 1.0,
                      .ends = &end,
                      .ids = ids,
                      .found_ids = found_ids,
                      .next_ids = next_ids,
                      .parent = parent,
                      .next = next,
                      .order = order,
                      .score = score,
                      .next_score = next_score,
                      .total = total,
                      .hypothesis = hypothesis};

        for (int i = 0; i < WIDTH * V; i++)
            logprobs[i] = -1.0;
        ref_beams_begin(&b, &prompt, 1);
        ref_beams_step(&b, logprobs);
        assert_int_equal(b.ids[1], 0); /* lane 0; of lane 1 the next id */
        assert_int_equal(b.ids[LIMIT + 1], 1);
        ref_beams_step(&b, logprobs);
        assert_int_equal(b.ids[1], 0);
        assert_int_equal(b.ids[LIMIT + 1], 0); /* both go on from lane 0 */
        assert_int_equal(b.ids[2], 0);
        assert_int_equal(b.ids[LIMIT + 2], 1);
        assert_int_equal(b.found, 0); /* an end at rank 2 of 2 lanes is no hypothesis */
        logprobs[end] = logprobs[V + end] = 0.0;
        for (int i = 0; i < V - 1; i++)
            logprobs[i] = logprobs[V + i] = -1.5;
        ref_beams_step(&b, logprobs);
        assert_int_equal(b.found, 2);
        assert_int_equal(b.hypothesis[0].row, 0); /* of equal scores the earlier one first */
        assert_int_equal(b.found_ids[2], 0);
        assert_int_equal(b.found_ids[LIMIT + 2], 1);
        assert_int_equal(b.done, 1); /* -3.5 / 3 is no better than -2 / 3 */
    }
}

/* A running sequence that could just reach the worst hypothesis cannot pass it: the search is over. */
static void as_good_is_not_better(void **state)
{
    enum { V = 2, LIMIT = 6 };
    const int32_t prompt = 0, end = 1;
    int32_t ids[LIMIT], found_ids[LIMIT], next_ids[LIMIT], parent, next, order[V];
    double score, next_score, total[V], logprobs[V] = {-1.0, -1.0};
    RefFound hypothesis[2];
    RefBeams b = {.width = 1,
                  .V = V,
                  .limit = LIMIT,
                  .n_ends = 1,
                  .early = FTX_EARLY_FALSE,
                  .length_penalty = 0.0,
                  .ends = &end,
                  .ids = ids,
                  .found_ids = found_ids,
                  .next_ids = next_ids,
                  .parent = &parent,
                  .next = &next,
                  .order = order,
                  .score = &score,
                  .next_score = &next_score,
                  .total = total,
                  .hypothesis = hypothesis};

    (void)state;
    ref_beams_begin(&b, &prompt, 1);
    ref_beams_step(&b, logprobs); /* id 0 is first */
    assert_int_equal(b.found, 0);
    logprobs[1] = -0.5;
    logprobs[0] = -0.5 - 1e-9;
    ref_beams_step(&b, logprobs);
    assert_int_equal(b.found, 1);
    assert_int_equal(b.hypothesis[0].length, 3);
    assert_int_equal(b.done, 1);

    /* the same score one token later does not replace it: the search is made to go on by hand */
    b.done = 0;
    b.score[0] = hypothesis[0].sum;
    logprobs[1] = 0.0;
    logprobs[0] = -1.0;
    ref_beams_step(&b, logprobs);
    assert_int_equal(b.hypothesis[0].length, 3);

    /* a hypothesis and a running sequence of the same sum */
    ref_beams_begin(&b, &prompt, 1);
    b.n_ends = 0;
    b.found = 1;
    hypothesis[0] = (RefFound){.score = -1.0, .sum = -1.0, .length = 2};
    logprobs[0] = -1.0;
    logprobs[1] = -2.0;
    ref_beams_step(&b, logprobs);
    assert_int_equal(b.done, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ties),
                                       cmocka_unit_test(as_good_is_not_better),
                                       cmocka_unit_test(wide_is_exhaustive),
                                       cmocka_unit_test(narrow_is_sound),
                                       cmocka_unit_test(one_lane_is_greedy),
                                       cmocka_unit_test(groups_of_one)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
