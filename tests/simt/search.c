/* search.c - data and expected results of `beam`: two beam searches beside a row without one, from the end of
 * the prompt to the end of the search, one launch for each step. After each launch lanes, owners and hypotheses
 * are compared with kernels/ref/beam.c.
 *
 *   rows of a step:   0      | row, row + 1, ...         | ...
 *                     plain  | lanes of the first search | of the second, whose prompt ends a step later
 *
 * Between two launches this file does the work of the runtime and of `embed`. Logits are random; a few ids, at
 * times an end id, have much larger ones, so that few total scores are near each other. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "runtime/ftx.h"

enum { NEW = 5, PROMPT = 6, SEARCHES = 2, MAX_WIDTH = 64, OUTSTANDING = 24 };
#define NEAR 3e-5 /* sums of five log-probabilities in fp32 */

typedef struct Past { /* an earlier step, indexed by the lanes of that step */
    int32_t *ids;     /* [width, limit] */
    float *logits;    /* [width, V] */
    double *all;      /* [width] log of the sum of exp */
} Past;

typedef struct Search {
    FtxBeam beam;
    FtxParams params;
    int begins, row; /* the step in which the prompt ends; the row of lane 0 */
    bool over;
    int32_t ends[2];
    FtxBias bias[2];
    int32_t words[6];
    int32_t *slots, *prompt;
    RefBeams ref;
    Past past[NEW]; /* indexed by the number of generated tokens */
} Search;

struct Searches {
    Scene *s;
    int V, step, n, rows;
    const float *logits; /* of this step: [rows, V] */
    FtxRow plain;
    int32_t sampled; /* token of the plain row */
    Search at[SEARCHES];
    double *logprobs; /* [MAX_WIDTH, V] */
};

typedef struct Setting {
    int parts, groups; /* width: parts / 4 of limits.beams; groups: this many, 0: one, -1: one for each lane */
    float diversity, penalty;
    int early, forced_bos, forced_eos, n_ends;
    bool processors;
} Setting;

static const Setting settings[SEARCH_KINDS][SEARCHES] = {
    {{4, 0, 0, 1.0f, FTX_EARLY_FALSE, -1, -1, 1, false}, {3, 0, 0, 0.6f, FTX_EARLY_TRUE, -1, -1, 2, true}},
    {{4, 2, 0.7f, 1.0f, FTX_EARLY_FALSE, -1, -1, 2, false}, {3, -1, 1.5f, 1.0f, FTX_EARLY_NEVER, -1, -1, 1, true}},
    {{4, 0, 0, 2.0f, FTX_EARLY_NEVER, 7, 9, 1, false}, {2, 2, 0.5f, 0.0f, FTX_EARLY_TRUE, -1, 3, 0, false}},
};

static int most(int a, int b)
{
    return a > b ? a : b;
}

bool unit_searches(const Unit *u)
{
    return ir_value(u->g, u->b.root)->op == OP_BEAM;
}

/* --- the first step ------------------------------------------------------------------------------- */

static FtxParams params_of(const Setting *k, const Limits *m)
{
    FtxParams p = {.temperature = 1.0f, .top_p = 1.0f, .repetition = 1.0f, .simple = !k->processors};

    p.n_ends = k->n_ends < m->end_ids ? k->n_ends : (int)m->end_ids;
    if (k->processors) {
        p.repetition = 1.3f;
        p.ngram = 2;
        p.presence = 0.3f;
        p.n_bias = m->logit_bias < 2 ? (int)m->logit_bias : 2;
        p.min_length = PROMPT + 2;
        p.n_words = m->bad_words < 6 ? 0 : 6;
    }
    return p;
}

static void begin_reference(Searches *all, Search *q, const Setting *k)
{
    Arena *keep = all->s->keep;
    const int width = q->beam.width, limit = PROMPT + NEW;
    const size_t W = (size_t)width, ids = W * (size_t)limit, totals = W * (size_t)all->V;

    q->ref = (RefBeams){.width = width,
                        .V = all->V,
                        .limit = limit,
                        .n_ends = q->params.n_ends,
                        .early = k->early,
                        .length_penalty = (double)k->penalty,
                        .ends = q->ends,
                        .groups = q->beam.groups,
                        .diversity = (double)k->diversity,
                        .ids = arena_array(keep, int32_t, ids),
                        .score = arena_array(keep, double, W),
                        .hypothesis = arena_array(keep, RefFound, W + 1),
                        .found_ids = arena_array(keep, int32_t, ids),
                        .parent = arena_array(keep, int32_t, W),
                        .next = arena_array(keep, int32_t, W),
                        .total = arena_array(keep, double, totals),
                        .order = arena_array(keep, int32_t, totals),
                        .next_score = arena_array(keep, double, W),
                        .next_ids = arena_array(keep, int32_t, ids)};
    ref_beams_begin(&q->ref, q->prompt, PROMPT);
}

/* Bad words: two that begin with the last ids of the prompt, the first with an end id after it; one of one id. */
static void begin_words(const Searches *all, Search *q)
{
    const Scene *s = all->s;
    const int32_t *end = q->prompt + PROMPT;
    const int32_t words[] = {end[-1], ~q->ends[1], end[-2], end[-1], ~scene_below(all->V), ~scene_below(all->V)};

    memcpy(q->words, words, sizeof words);
    if (q->params.n_words)
        simt_write((int32_t *)s->device[FTX_NAMED_bad_words] + q->slots[0] * s->u->g->limits.bad_words, words,
                   sizeof words);
}

static void begin_search(Searches *all, const Setting *k, int32_t *slots)
{
    Scene *s = all->s;
    const Limits *m = &s->u->g->limits;
    Search *q = &all->at[all->n];
    const int width = most(2, (int)m->beams * k->parts / 4); /* a search has at least two lanes */
    const int groups = k->groups < 0 ? width : width % most(1, k->groups) ? 0 : k->groups;

    q->beam = (FtxBeam){.width = width,
                        .length_penalty = k->penalty,
                        .early = k->early,
                        .forced_bos = k->forced_bos,
                        .forced_eos = k->forced_eos,
                        .groups = groups,
                        .diversity = k->diversity};
    q->params = params_of(k, m);
    if (!k->processors && k->forced_bos < 0 && k->forced_eos < 0)
        q->params.top_needed = width + q->params.n_ends;
    q->begins = all->n++;
    q->slots = slots;
    q->prompt = s->history + slots[0] * m->context;
    for (int i = 0; i < 2; i++) {
        q->ends[i] = 11 + 2 * i;
        q->bias[i] = (FtxBias){scene_below(all->V), 2.0f};
    }
    begin_words(all, q);
    begin_reference(all, q, k);
    simt_write((int32_t *)s->device[FTX_NAMED_group] + slots[0] * m->beams, slots, sizeof *slots * (size_t)width);
}

Searches *searches_begin(Scene *s, int kind)
{
    const Limits *m = &s->u->g->limits;
    Searches *all = arena_new(s->keep, Searches);
    int32_t *slots = arena_array(s->keep, int32_t, (size_t)m->sequences);
    int taken = 1;

    all->s = s;
    all->V = (int)ir_value(s->u->g, s->u->b.arg[0])->shape.dim[1].n;
    all->logprobs = arena_array(s->keep, double, (size_t)MAX_WIDTH *(size_t)all->V);
    for (int i = 0; i < (int)m->sequences; i++) /* visits every slot: 5 is coprime to their number */
        slots[i] = (int32_t)((3 + 5 * i) % m->sequences);
    for (int k = 0; k < SEARCHES; k++)
        if (taken + most(2, (int)m->beams * settings[kind][k].parts / 4) <= s->u->facts.s_max) {
            begin_search(all, &settings[kind][k], slots + taken);
            taken += all->at[all->n - 1].beam.width;
        }
    assert_true(all->n > 0 && m->sequences % 5 != 0);
    all->plain = (FtxRow){.slot = slots[0], .q_len = 1, .kv_len = 3, .prompt = 3, .limit = 9, .lane = -1};
    for (size_t i = 0; i < (size_t)m->sequences; i++) /* left from another search */
        simt_write((FtxLane *)s->device[FTX_NAMED_lanes] + i, &(FtxLane){NAN, 1, 1e9f, 1e9f, 3, 1, {0, 0}},
                   sizeof(FtxLane));
    return all;
}

/* --- a step's data -------------------------------------------------------------------------------- */

/* Rows of a search in this step: one in the prompt, then one for each lane. */
static int rows_of(const Searches *all, const Search *q)
{
    return all->step <= q->begins ? 1 : q->beam.width;
}

static void write_row(Searches *all, int row, const FtxRow *r, const FtxParams *p, const FtxBeam *b, const Search *q)
{
    const Scene *s = all->s;
    const Limits *m = &s->u->g->limits;

    simt_write((FtxRow *)s->device[FTX_NAMED_rows] + row, r, sizeof *r);
    simt_write((FtxParams *)s->device[FTX_NAMED_params] + row, p, sizeof *p);
    simt_write((FtxBeam *)s->device[FTX_NAMED_beams] + row, b, sizeof *b);
    simt_write((FtxToken *)s->device[FTX_NAMED_token] + row, &(FtxToken){.id = 1, .row = row, .slot = r->slot},
               sizeof(FtxToken));
    if (q && p->n_ends)
        simt_write((int32_t *)s->device[FTX_NAMED_ends] + row * m->end_ids, q->ends, 4 * (size_t)p->n_ends);
    if (q && p->n_bias)
        simt_write((FtxBias *)s->device[FTX_NAMED_bias] + row * m->logit_bias, q->bias, 8 * (size_t)p->n_bias);
}

static void write_search(Searches *all, Search *q, int row)
{
    FtxBeam beam = q->beam;

    beam.emit = all->step >= q->begins && !q->over;
    q->row = row;
    for (int i = 0; i < rows_of(all, q); i++)
        write_row(all, row + i,
                  &(FtxRow){.q_start = row + i,
                            .q_len = 1,
                            .kv_len = q->ref.length,
                            .slot = q->slots[i],
                            .prompt = PROMPT,
                            .limit = q->ref.limit,
                            .done = q->over,
                            .group = row,
                            .lane = i},
                  &q->params, &beam, q);
}

/* The largest logits are far apart, so that rounding does not change their order; in half of the rows an end id is
 * among them. */
static void make_logits(Searches *all, float *x)
{
    for (int row = 0; row < all->rows; row++, x += all->V) {
        for (int id = 0; id < all->V; id++)
            x[id] = 3.0f * scene_uniform();
        for (int i = 0; i < OUTSTANDING; i++)
            x[scene_below(all->V)] = 6.0f + 2.5f * scene_uniform();
        if (scene_below(2))
            x[11 + 2 * scene_below(2)] = 8.0f + scene_uniform();
    }
}

bool searches_next(Searches *all)
{
    Scene *s = all->s;
    FtxStep step = {.processors = 1};
    bool over = true;
    float *logits;

    write_row(all, 0, &all->plain, &(FtxParams){.simple = 1, .top_needed = 1}, &(FtxBeam){0}, NULL);
    all->rows = 1;
    for (int k = 0; k < all->n; k++) {
        over = over && all->at[k].over;
        write_search(all, &all->at[k], all->rows);
        all->rows += rows_of(all, &all->at[k]);
    }
    step.tokens = step.rows = step.decode_rows = all->rows;
    simt_write(s->device[FTX_NAMED_step], &step, sizeof step);
    logits = arena_array(s->keep, float, (size_t)all->rows *(size_t)all->V);
    make_logits(all, logits);
    all->logits = logits;
    s->T = s->S = all->rows;
    all->sampled = scene_below(all->V);
    simt_write(s->arg[0], logits, sizeof *logits * (size_t)all->rows * (size_t)all->V);
    simt_write(s->arg[1], &all->sampled, sizeof all->sampled);
    if (unit_reads_form(s->u, s->u->g->logits))
        scene_segments(s, logits);
    return !over;
}

/* --- the reference -------------------------------------------------------------------------------- */

static int group_of(const Search *q, int lane)
{
    return q->beam.groups > 1 ? lane / (q->beam.width / q->beam.groups) : 0;
}

/* The one id that may follow; -1: any. */
static int forced(const Search *q)
{
    if (q->beam.forced_bos >= 0 && q->ref.length == PROMPT)
        return q->beam.forced_bos;
    return q->ref.length + 1 == q->ref.limit ? q->beam.forced_eos : -1;
}

static void remember(Searches *all, Search *q)
{
    Arena *keep = all->s->keep;
    const size_t W = (size_t)q->beam.width, V = (size_t)all->V, limit = (size_t)q->ref.limit;
    Past *p = &q->past[q->ref.length - PROMPT];

    *p = (Past){arena_array(keep, int32_t, W * limit), arena_array(keep, float, W *V), arena_array(keep, double, W)};
    memcpy(p->ids, q->ref.ids, W * limit * sizeof *p->ids);
    for (size_t i = 0; i < W; i++) { /* in the first step all lanes read the logits of lane 0 */
        const float *x = all->logits + ((size_t)q->row + (rows_of(all, q) == 1 ? 0 : i)) * V;

        memcpy(p->logits + i * V, x, V * sizeof *x);
        p->all[i] = ref_logsumexp(x, (int)V);
    }
}

static void step_reference(Searches *all, Search *q)
{
    const Past *past = &q->past[q->ref.length - PROMPT];
    const FtxRow row = {.kv_len = q->ref.length, .prompt = PROMPT};
    float *raw = arena_array(all->s->keep, float, (size_t)all->V);
    const int only = forced(q);

    for (int i = 0; i < q->beam.width; i++) {
        const RefRow r = {&row, &q->params, q->ref.ids + i * q->ref.limit, q->ends, q->bias, q->words};
        double *to = all->logprobs + (int64_t)i * all->V;

        for (int id = 0; id < all->V; id++)
            raw[id] = (float)((double)past->logits[(int64_t)i * all->V + id] - past->all[i]);
        ref_penalties(&r, raw, all->V, to);
        for (int id = 0; only >= 0 && id < all->V; id++)
            to[id] = id == only ? 0.0 : -INFINITY;
    }
    if (only >= 0) /* a forced id has no diversity penalty */
        q->ref.diversity = 0.0;
    ref_beams_step(&q->ref, all->logprobs);
    q->ref.diversity = (double)q->beam.diversity;
}

/* Log-probability of the n-th new id of a sequence, from the raw logits of the group's lane with the same ids before. */
static double logp_of(const Search *q, int group, const int32_t *ids, int n)
{
    const Past *p = &q->past[n];

    for (int i = 0; i < q->beam.width; i++)
        if (group_of(q, i) == group &&
            memcmp(p->ids + (int64_t)i * q->ref.limit + PROMPT, ids, sizeof *ids * (size_t)n) == 0)
            return (double)p->logits[(int64_t)i * q->ref.V + ids[n]] - p->all[i];
    return NAN;
}

/* --- results of a launch -------------------------------------------------------------------------- */

static bool near(float got, double want)
{
    return (got == -INFINITY && want == -INFINITY) || fabs((double)got - want) <= NEAR * (1.0 + fabs(want));
}

#define WRONG(format, ...) \
    scene_wrong("%s, search of %d, token %d: " format, all->s->u->name, q->beam.width, n - PROMPT, __VA_ARGS__)

/* A lane that continues: its score, the owners of its positions, its ids and their log-probabilities. */
static void check_lane(const Searches *all, const Search *q, int i, int n)
{
    const Scene *s = all->s;
    const int64_t context = s->u->g->limits.context, slot = q->slots[i];
    const FtxLane *lane = (const FtxLane *)s->device[FTX_NAMED_lanes] + slot;
    const int32_t *owner = (const int32_t *)s->device[FTX_NAMED_owner] + slot * context;
    const float *logps = s->device[FTX_NAMED_logps];
    const int32_t *want = q->ref.ids + (int64_t)i * q->ref.limit;

    if (!near(lane->score, q->ref.score[i]))
        WRONG("lane %d has %.7g, should have %.7g", i, (double)lane->score, q->ref.score[i]);
    if (q->ref.score[i] == -INFINITY)
        return;
    if (lane->token != want[n])
        WRONG("lane %d goes on with %d, should with %d", i, lane->token, want[n]);
    if (owner[n] != slot)
        WRONG("lane %d: its new position belongs to slot %d", i, owner[n]);
    for (int p = PROMPT; p <= n; p++) {
        const int32_t id = p == n ? lane->token : ((int32_t *)s->device[FTX_NAMED_history])[owner[p] * context + p];
        const double logp = logp_of(q, group_of(q, i), want + PROMPT, p - PROMPT);

        if (id != want[p])
            WRONG("lane %d has id %d at %d, should have %d", i, id, p, want[p]);
        if (!near(logps[owner[p] * context + p], logp))
            WRONG("lane %d has log-probability %.7g at %d, should have %.7g", i, (double)logps[owner[p] * context + p],
                  p, logp);
    }
}

/* The lane whose slot holds this hypothesis; -1: none. */
static int place_of(const Searches *all, const Search *q, const RefFound *h)
{
    const Scene *s = all->s;
    const int64_t context = s->u->g->limits.context;
    const int32_t *want = q->ref.found_ids + (int64_t)h->row * q->ref.limit + PROMPT, *hyps = s->device[FTX_NAMED_hyps];

    for (int i = 0; i < q->beam.width; i++) {
        const FtxLane *lane = (const FtxLane *)s->device[FTX_NAMED_lanes] + q->slots[i];

        if (group_of(q, i) == h->group && lane->hyp_length == h->length - PROMPT &&
            memcmp(hyps + q->slots[i] * context, want, sizeof *want * (size_t)lane->hyp_length) == 0)
            return i;
    }
    return -1;
}

static void check_hypotheses(const Searches *all, const Search *q, int n)
{
    const Scene *s = all->s;
    const Limits *m = &s->u->g->limits;
    const FtxLane *lanes = s->device[FTX_NAMED_lanes];
    int found = 0;

    for (int i = 0; i < q->beam.width; i++)
        found += lanes[q->slots[i]].hyp_length > 0;
    if (found != q->ref.found)
        WRONG("%d hypotheses, should be %d", found, q->ref.found);
    for (int k = 0; k < q->ref.found; k++) {
        const RefFound *h = &q->ref.hypothesis[k];
        const int i = place_of(all, q, h);
        const FtxLane *lane = &lanes[q->slots[most(0, i)]];
        const float *logps =
            (const float *)s->device[FTX_NAMED_logps] + (m->sequences + q->slots[most(0, i)]) * m->context;
        const int32_t *ids = q->ref.found_ids + (int64_t)h->row * q->ref.limit + PROMPT;

        if (i < 0) {
            WRONG("the hypothesis of score %g is nowhere", h->score);
            continue;
        }
        if (!near(lane->hyp_score, h->score) || !near(lane->hyp_sum, h->sum) || lane->hyp_end != h->end)
            WRONG("a hypothesis has %.7g of %.7g, end %d, should have %.7g of %.7g, %d", (double)lane->hyp_score,
                  (double)lane->hyp_sum, lane->hyp_end, h->score, h->sum, h->end);
        for (int p = 0; p < lane->hyp_length; p++)
            if (!near(logps[p], logp_of(q, h->group, ids, p)))
                WRONG("a hypothesis has log-probability %.7g at %d", (double)logps[p], p);
    }
}

static void check_rows(const Searches *all, const Search *q, int n)
{
    const Scene *s = all->s;
    const FtxRow *rows = s->device[FTX_NAMED_rows];
    const FtxToken *token = s->device[FTX_NAMED_token];
    const FtxOut *out =
        (const FtxOut *)s->device[FTX_NAMED_out] + (int64_t)(n % FTX_OUT_RING) * s->u->g->limits.sequences + q->row;
    const int finish = !q->ref.done ? 0 : q->ref.found && q->ref.hypothesis[0].end ? 1 : 2;

    scene_check_polled(s, out);
    if (out->length != n || out->finish != finish)
        WRONG("result of length %d, finish %d, should be %d, %d", out->length, out->finish, n, finish);
    for (int i = 0; i < rows_of(all, q); i++) {
        if (rows[q->row + i].done != q->ref.done || rows[q->row + i].kv_len != n + !q->ref.done)
            WRONG("row %d: done %d, length %d", i, rows[q->row + i].done, rows[q->row + i].kv_len);
        if (q->ref.done || q->ref.score[i] == -INFINITY)
            continue;
        if (token[q->row + i].id != q->ref.next[i] || token[q->row + i].pos != n ||
            token[q->row + i].slot != q->slots[i] || ((const int32_t *)s->y)[q->row + i] != q->ref.next[i])
            WRONG("row %d: token %d at %d", i, token[q->row + i].id, token[q->row + i].pos);
    }
    if (!q->ref.done && q->ref.score[0] > -INFINITY &&
        (out->token != q->ref.next[0] || !near(out->logprob, q->ref.score[0])))
        WRONG("result %d (%.7g), should be %d (%.7g)", out->token, (double)out->logprob, q->ref.next[0],
              q->ref.score[0]);
}

/* What `embed` does with the tokens of the next step. */
static void embed_lanes(const Searches *all, const Search *q, int n)
{
    const Scene *s = all->s;
    const FtxLane *lanes = s->device[FTX_NAMED_lanes];

    for (int i = 0; i < q->beam.width; i++)
        simt_write((int32_t *)s->device[FTX_NAMED_history] + q->slots[i] * s->u->g->limits.context + n,
                   &lanes[q->slots[i]].token, sizeof(int32_t));
}

static void check_search(Searches *all, Search *q)
{
    const int n = q->ref.length;

    remember(all, q);
    step_reference(all, q);
    check_rows(all, q, n);
    for (int i = 0; i < q->beam.width && !q->ref.done; i++)
        check_lane(all, q, i, n);
    check_hypotheses(all, q, n);
    if (!q->ref.done)
        embed_lanes(all, q, n);
    q->over = q->ref.done;
}

void searches_check(Searches *all)
{
    const Scene *s = all->s;
    const FtxRow *rows = s->device[FTX_NAMED_rows];
    const size_t before = scene_failures;

    if (((const int32_t *)s->y)[0] != all->sampled || memcmp(rows, &all->plain, sizeof *rows) != 0)
        scene_wrong("%s: a row that searches nothing was changed", s->u->name);
    for (int k = 0; k < all->n; k++) {
        Search *q = &all->at[k];

        if (all->step >= q->begins && !q->over)
            check_search(all, q);
        else if (rows[q->row].kv_len != q->ref.length || rows[q->row].done != q->over)
            scene_wrong("%s: a search was changed that is over, or has not begun", s->u->name);
    }
    for (int k = 0; k < all->n && scene_failures > before; k++) /* later steps would be wrong, too */
        all->at[k].over = true;
    all->step++;
}
