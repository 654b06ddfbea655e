/* search.h - helpers of the beam search tests: requests, their results, and the plain search, which runs the
 * reference beam search of kernels/ref over the model's own logits.
 *
 * In 16 bits (rounding.h) a search may return other hypotheses than the plain one, or than the same search in another
 * batch, but only if a decision of the plain search was close: the gap between a continuation that was kept and one
 * that was dropped is within the rounding tolerance. The result must still be consistent: each log-probability and
 * each score is compared with that of its ids, computed by separate prompts. Each test limits how many searches may
 * differ ("part"). */
#ifndef FTX_TEST_SEARCH_H
#define FTX_TEST_SEARCH_H

#include <math.h>

#include "golden.h"
#include "rounding.h"

enum { MAX_VOCAB = 8000, MAX_LENGTH = 300, MAX_NEW = 64, MAX_PROMPT = 128, MAX_WIDTH = 64 };

static inline double tolerance(void)
{
    const char *t = getenv("FTX_TEST_TOLERANCE");

    return t ? atof(t) : 1e-4;
}

typedef struct Found { /* the result of a request */
    size_t n, events;
    FtxFinish finish;
    size_t count[MAX_WIDTH];
    int32_t ids[MAX_WIDTH][MAX_NEW];
    double score[MAX_WIDTH];
    float logprob[MAX_WIDTH][MAX_NEW];
    char text[MAX_WIDTH][1000];
    char event_text[1000];
    int32_t tokens[MAX_NEW]; /* of a request without beam search */
    size_t n_tokens;
} Found;

static inline void take(FtxEngine *engine, const FtxEvent *e)
{
    Found *f = e->user;
    size_t n;
    const FtxHypothesis *h = ftx_engine_hypotheses(engine, e->request, &n);

    f->events++;
    f->finish = e->finish;
    if (e->token >= 0)
        f->tokens[f->n_tokens++] = e->token;
    if (e->finish == FTX_RUNNING || e->finish == FTX_FINISH_CANCEL)
        return;
    assert_int_equal(n, e->hypotheses);
    snprintf(f->event_text, sizeof f->event_text, "%.*s", (int)e->text_bytes, e->text);
    for (f->n = 0; f->n < n; f->n++) {
        f->count[f->n] = h[f->n].count;
        f->score[f->n] = (double)h[f->n].score;
        assert_true(h[f->n].count <= MAX_NEW);
        memcpy(f->ids[f->n], h[f->n].ids, h[f->n].count * sizeof *h->ids);
        if (h[f->n].logprobs)
            memcpy(f->logprob[f->n], h[f->n].logprobs, h[f->n].count * sizeof *h->logprobs);
        snprintf(f->text[f->n], sizeof *f->text, "%.*s", (int)h[f->n].text_bytes, h[f->n].text);
        if (f->n)
            assert_true(f->score[f->n] <= f->score[f->n - 1]);
    }
}

static inline void step(FtxEngine *engine)
{
    FtxEvent events[300] = {FTX_EVENT_INIT};
    FtxError err;
    size_t n;

    if (ftx_engine_step(engine, events, 300, &n, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++)
        take(engine, &events[i]);
}

static inline void finish(FtxEngine *engine)
{
    while (ftx_engine_busy(engine))
        step(engine);
}

static inline FtxRequest beam_request(const FtxModel *m, const int32_t *ids, size_t n, int width, int max_new, Found *f)
{
    FtxRequest r = ftx_request_default(m);

    *f = (Found){0};
    r.ids = ids;
    r.ids_count = n;
    r.repetition_penalty = 1.0f;
    r.beams = width;
    r.n_best = width;
    r.length_penalty = 1.0f;
    r.early_stopping = FTX_EARLY_FALSE;
    r.logprobs = true;
    r.max_new = max_new;
    r.user = f;
    return r;
}

typedef struct Setting {
    int width, max_new, min_new, ngram;
    float penalty, repetition;
    FtxEarly early;
    int32_t ends[3];
    int n_ends;
    int groups;
    float rate;
    int32_t words[6]; /* bad words: the last id of each word is stored as ~id, as in $bad_words */
    int n_words;
    float bias; /* added to the logits of ends[0..2]; 0: none. Only the first n_ends of them end a hypothesis */
} Setting;

/* Input of a search: a prompt, or for an encoder-decoder a source and the first ids of the decoder. */
typedef struct Task {
    const int32_t *ids; /* the prompt; with a source: the start token and the prefix */
    int n;
    const int32_t *source;
    int n_source;
} Task;

/* A request with the first n of `ids` as its prompt (with a source: as start token and prefix). */
static inline FtxRequest task_request(const FtxModel *model, const Task *t, const int32_t *ids, int n, int width,
                                      int max_new, Found *f)
{
    FtxRequest r = beam_request(model, ids, (size_t)n, width, max_new, f);

    if (!t->source)
        return r;
    r.ids = t->source;
    r.ids_count = (size_t)t->n_source;
    r.prefix = n > 1 ? ids + 1 : NULL; /* the model adds the start token itself */
    r.prefix_count = (size_t)(n - 1);
    return r;
}

/* Runs `ids` as a prompt. Writes the next log-probabilities after all logits processors to `to`; returns those before
 * the processors. */
static inline const float *next_logprobs(FtxEngine *engine, FtxModel *model, const Task *t, const int32_t *ids, int n,
                                         const Setting *s, int vocab, double *to)
{
    static Found ignored;
    FtxRequest r = task_request(model, t, ids, n, 1, 1, &ignored);
    const FtxRow row = {.kv_len = n, .prompt = t->n};
    const FtxParams params = {.repetition = s->repetition,
                              .ngram = s->ngram,
                              .min_length = t->n + s->min_new,
                              .n_ends = s->n_ends,
                              .n_bias = s->bias != 0.0f ? 3 : 0,
                              .n_words = s->n_words};
    const FtxBias bias[3] = {{s->ends[0], s->bias}, {s->ends[1], s->bias}, {s->ends[2], s->bias}};
    const RefRow ref = {&row, &params, ids, s->ends, bias, s->words};
    static float raw[MAX_VOCAB];
    const float *logits;
    uint64_t id;
    double all;

    r.ignore_eos = true;
    r.logits = true;
    id = golden_submit(engine, &r);
    finish(engine);
    logits = ftx_engine_logits(engine, id);
    assert_non_null(logits);
    all = ref_logsumexp(logits, vocab);
    for (int i = 0; i < vocab; i++)
        raw[i] = (float)((double)logits[i] - all);
    ref_penalties(&ref, raw, vocab, to);
    return raw;
}

/* Splits words in the form of $bad_words into ids and lengths; returns the number of words. */
static inline size_t words_of(const int32_t *words, int n, int32_t *ids, size_t *lengths)
{
    size_t count = 0;

    memset(lengths, 0, (size_t)n * sizeof *lengths);
    for (int i = 0; i < n; i++) {
        ids[i] = words[i] < 0 ? ~words[i] : words[i];
        lengths[count]++;
        count += words[i] < 0;
    }
    return count;
}

static inline FtxRequest setting_request(const FtxModel *model, const Task *t, const Setting *s, Found *found)
{
    static int32_t bad_ids[6]; /* must stay valid until submit */
    static size_t bad_lengths[6];
    static float bias[3];
    FtxRequest r = task_request(model, t, t->ids, t->n, s->width, s->max_new, found);

    r.min_new = s->min_new;
    r.no_repeat_ngram = s->ngram;
    r.repetition_penalty = s->repetition;
    r.length_penalty = s->penalty;
    r.early_stopping = s->early;
    r.beam_groups = s->groups;
    r.diversity_rate = s->rate;
    r.ignore_eos = true;
    r.stop_ids = s->ends;
    r.stop_ids_count = (size_t)s->n_ends;
    for (int i = 0; i < 3; i++)
        bias[i] = s->bias;
    r.bias_ids = s->ends;
    r.bias_values = bias;
    r.bias_count = s->bias != 0.0f ? 3 : 0;
    r.bad_ids = bad_ids;
    r.bad_lengths = bad_lengths;
    r.bad_count = words_of(s->words, s->n_words, bad_ids, bad_lengths);
    return r;
}

/* --- the plain search -------------------------------------------------------------------------------- */

static inline bool is_end(const RefBeams *b, int id)
{
    for (int i = 0; i < b->n_ends; i++)
        if (b->ends[i] == id)
            return true;
    return false;
}

/* The smallest gap in the last step between a continuation that was kept and one that was dropped. */
static inline double gap_of_step(const RefBeams *b, const bool *ran)
{
    const int size = b->groups > 1 ? b->width / b->groups : b->width, all = size * b->V;
    double gap = INFINITY;

    for (int first = 0; first < b->width; first += size) {
        const int32_t *order = b->order + first * b->V;
        double least = -INFINITY; /* the lowest total among the continuations that keep running */
        int running = 0;

        for (int rank = 0; ran[first / size] && rank < all; rank++) {
            const double total = b->total[order[rank]];
            const bool last = b->length >= b->limit, end = last || is_end(b, order[rank] % b->V);

            if (total == -INFINITY)
                break;
            if (end && rank < size && size < all) /* an end counts only among the first `size` */
                gap = fmin(gap, total - b->total[order[size]]);
            else if (end)
                gap = fmin(gap, b->total[order[size - 1]] - total);
            else if (running < size)
                running++, least = total;
            else
                gap = fmin(gap, least - total);
            if (rank >= size && (last || (!end && running == size && total < least)))
                break;
        }
    }
    return gap;
}

/* Scores of all hypotheses that ended so far in a group, best first, including those that were dropped. */
typedef struct Offers {
    double score[MAX_WIDTH * MAX_NEW];
    int n;
} Offers;

static inline void offer(Offers *o, double score)
{
    int at = o->n++;

    assert_true(o->n <= MAX_WIDTH * MAX_NEW);
    for (; at > 0 && o->score[at - 1] < score; at--)
        o->score[at] = o->score[at - 1];
    o->score[at] = score;
}

/* The smallest gap in scores between a finished hypothesis that is kept and one that is dropped, and between the best
 * running beam and the worst finished hypothesis, which decides whether the search stops. */
static inline double gap_of_scores(const RefBeams *b, const bool *ran, Offers *offers)
{
    const int size = b->groups > 1 ? b->width / b->groups : b->width;
    const double norm = pow(b->length - b->prompt, b->length_penalty);
    double gap = INFINITY;

    for (int first = 0; first < b->width; first += size) {
        const int32_t *order = b->order + first * b->V;
        Offers *o = &offers[first / size];

        if (!ran[first / size])
            continue;
        for (int rank = 0; rank < size && b->total[order[rank]] > -INFINITY; rank++)
            if (b->length >= b->limit || is_end(b, order[rank] % b->V))
                offer(o, b->total[order[rank]] / norm);
        if (o->n > size)
            gap = fmin(gap, o->score[size - 1] - o->score[size]);
        if (o->n >= size && b->early != FTX_EARLY_TRUE && b->length < b->limit) {
            const bool longest = b->early == FTX_EARLY_NEVER && b->length_penalty > 0.0;
            int at = 0;

            while (at < size * b->V - 1 && is_end(b, order[at] % b->V)) /* find the best running beam */
                at++;
            gap = fmin(gap,
                       fabs(b->total[order[at]] / pow((longest ? b->limit : b->length) - b->prompt, b->length_penalty) -
                            o->score[size - 1]));
        }
    }
    return gap;
}

/* Tolerance of the score of a hypothesis of up to n ids. */
static inline double score_rounding(const Rounding *r, int n, double penalty)
{
    double most = 0.0;

    for (int i = 1; i <= n; i++)
        most = fmax(most, rounding_total(r, i) / pow(i, penalty));
    return most;
}

/* Runs the plain search to its end; b points into static arrays, which the next call overwrites. Returns whether a
 * decision was close. */
static inline bool plain_search(FtxEngine *engine, FtxModel *model, const Task *t, const Setting *s, const Rounding *r,
                                RefBeams *b)
{
    static int32_t ids[MAX_WIDTH * MAX_LENGTH], found_ids[MAX_WIDTH * MAX_LENGTH], next_ids[MAX_WIDTH * MAX_LENGTH];
    static int32_t parent[MAX_WIDTH], next[MAX_WIDTH], order[MAX_WIDTH * MAX_VOCAB];
    static double score[MAX_WIDTH], next_score[MAX_WIDTH], total[MAX_WIDTH * MAX_VOCAB];
    static double logprobs[MAX_WIDTH * MAX_VOCAB];
    static RefFound hypothesis[MAX_WIDTH + 1];
    static Offers offers[MAX_WIDTH];
    const double more = fmax(1.0, (double)s->repetition); /* a repetition penalty multiplies differences */
    const int groups = s->groups > 1 ? s->groups : 1;
    bool close = false;
    FtxModelInfo info;

    ftx_model_info(model, &info);
    assert_true(info.vocab <= MAX_VOCAB && t->n + s->max_new <= MAX_LENGTH);
    *b = (RefBeams){.width = s->width,
                    .V = info.vocab,
                    .limit = t->n + s->max_new,
                    .n_ends = s->n_ends,
                    .early = (int)s->early,
                    .length_penalty = (double)s->penalty,
                    .ends = s->ends,
                    .groups = s->groups,
                    .diversity = (double)s->rate,
                    .ids = ids,
                    .score = score,
                    .hypothesis = hypothesis,
                    .found_ids = found_ids,
                    .parent = parent,
                    .next = next,
                    .total = total,
                    .order = order,
                    .next_score = next_score,
                    .next_ids = next_ids};
    for (int i = 0; i < groups; i++)
        offers[i].n = 0;
    ref_beams_begin(b, t->ids, t->n);
    while (!b->done) {
        bool ran[MAX_WIDTH];

        for (int i = 0; i < groups; i++)
            ran[i] = b->score[i * (s->width / groups)] > -INFINITY;
        for (int lane = 0; lane < s->width; lane++)
            if (b->score[lane] > -INFINITY)
                next_logprobs(engine, model, t, ids + lane * b->limit, b->length, s, info.vocab,
                              logprobs + lane * info.vocab);
        ref_beams_step(b, logprobs);
        if (r->any) {
            const int n = b->length - t->n;

            close = close || gap_of_step(b, ran) <= 2.0 * more * rounding_total(r, n) ||
                    gap_of_scores(b, ran, offers) <= 2.0 * more * score_rounding(r, n, (double)s->penalty);
        }
    }
    return close;
}

/* In 16 bits: compares each log-probability and each score of the best two hypotheses with those of separate
 * prompts of the same ids. */
static inline void check_own(FtxEngine *engine, FtxModel *model, const Task *t, const Setting *s, const Rounding *r,
                             const Found *f)
{
    static double changed[MAX_VOCAB];
    FtxModelInfo info;

    ftx_model_info(model, &info);
    for (size_t i = 0; i < f->n && i < 2; i++) {
        int32_t ids[MAX_LENGTH];
        double sum = 0.0;

        memcpy(ids, t->ids, (size_t)t->n * sizeof *ids);
        for (int k = 0; k < (int)f->count[i]; k++) {
            const float *raw = next_logprobs(engine, model, t, ids, t->n + k, s, info.vocab, changed);
            const int id = ids[t->n + k] = f->ids[i][k];

            sum += changed[id];
            if (!(fabs((double)f->logprob[i][k] - (double)raw[id]) <= rounding_logprob(r)))
                fail_msg("hypothesis %zu, id %d of %zu: log-probability %.6f, alone %.6f (%.6f away)", i, k,
                         f->count[i], (double)f->logprob[i][k], (double)raw[id], rounding_logprob(r));
        }
        const double off = fmax(1.0, (double)s->repetition) * rounding_total(r, (int)f->count[i]);

        if (s->rate == 0.0f && !(fabs(f->score[i] * pow(f->count[i], (double)s->penalty) - sum) <= off))
            fail_msg("hypothesis %zu of %zu ids has score %.6f, its ids sum up to %.6f (%.6f away)", i, f->count[i],
                     f->score[i], sum, off);
    }
}

/* Whether the result equals that of the plain search; `why` names the first difference. */
static inline bool is_found(const Found *found, const RefBeams *b, const Task *t, const Setting *s, const Rounding *r,
                            char why[200])
{
    for (int i = 0; i < b->found; i++) {
        const RefFound *h = &b->hypothesis[i];
        const int n = h->length - t->n;
        const double off =
            r->any ? fmax(1.0, (double)s->repetition) * score_rounding(r, n, (double)s->penalty) : 10.0 * tolerance();
        const double apart = fmax(1e-4, r->any ? 2.0 * off : 0.0);

        if (fabs(found->score[i] - h->score) > off) {
            snprintf(why, 200, "width %d, groups %d, penalty %g, early %d: hypothesis %d has score %.6f, expected %.6f",
                     s->width, s->groups, (double)s->penalty, (int)s->early, i, found->score[i], h->score);
            return false;
        }
        if ((i && b->hypothesis[i - 1].score - h->score < apart) ||
            (i + 1 < b->found && h->score - b->hypothesis[i + 1].score < apart))
            continue; /* two scores are nearly equal: their order may differ */
        if ((int)found->count[i] != n ||
            memcmp(found->ids[i], b->found_ids + h->row * b->limit + t->n, found->count[i] * sizeof(int32_t)) != 0) {
            snprintf(why, 200, "width %d, groups %d, penalty %g, early %d: hypothesis %d has other ids", s->width,
                     s->groups, (double)s->penalty, (int)s->early, i);
            return false;
        }
    }
    return true;
}

/* Compares one search with the plain one. Returns 1 if they differ and a decision was close; fails if none was. */
static inline int check_setting(FtxEngine *engine, FtxModel *model, const Task *t, const Setting *s, const Rounding *r)
{
    static Found found;
    FtxRequest q = setting_request(model, t, s, &found);
    char why[200];
    RefBeams b;
    bool close;

    golden_submit(engine, &q);
    finish(engine);
    close = plain_search(engine, model, t, s, r, &b);
    assert_int_equal(found.n, b.found);
    if (r->any)
        check_own(engine, model, t, s, r, &found);
    if (is_found(&found, &b, t, s, r, why))
        return 0;
    if (!close)
        fail_msg("%s", why);
    return 1;
}

/* Bit for bit on the CPU. On a GPU the order of a sum depends on the step size, so scores may differ a little. */
static inline bool same(const Found *a, const Found *b, const Rounding *r)
{
    const double off = !golden_on_cuda() ? 0.0 : r->any ? rounding_total(r, MAX_NEW) : tolerance();

    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!(fabs(a->score[i] - b->score[i]) <= off))
            return false;
    return a->n == b->n && memcmp(a->ids, b->ids, sizeof a->ids) == 0 && a->n_tokens == b->n_tokens &&
           memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0;
}

#endif
