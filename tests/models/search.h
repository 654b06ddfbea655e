/* search.h - what the tests of beam search share: requests, what becomes of them, and the plain search of
 * kernels/ref over a model's own logits. */
#ifndef FTX_TEST_SEARCH_H
#define FTX_TEST_SEARCH_H

#include <math.h>

#include "golden.h"
#include "kernels/ref/ref.h"

enum { MAX_VOCAB = 320, MAX_NEW = 48, MAX_PROMPT = 128, MAX_WIDTH = 64 };

static inline double tolerance(void)
{
    const char *t = getenv("FTX_TEST_TOLERANCE");

    return t ? atof(t) : 1e-4;
}

typedef struct Found { /* what became of a request */
    size_t n, events;
    FtxFinish finish;
    size_t count[MAX_WIDTH];
    int32_t ids[MAX_WIDTH][MAX_NEW];
    double score[MAX_WIDTH];
    char text[MAX_WIDTH][1000];
    char event_text[1000];
    int32_t tokens[MAX_NEW]; /* of a request without beams */
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
        memcpy(f->ids[f->n], h[f->n].ids, h[f->n].count * sizeof *h->ids);
        snprintf(f->text[f->n], sizeof *f->text, "%.*s", (int)h[f->n].text_bytes, h[f->n].text);
        if (f->n)
            assert_true(f->score[f->n] <= f->score[f->n - 1]);
    }
}

static inline void step(FtxEngine *engine)
{
    FtxEvent events[300];
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
    int32_t words[6]; /* as in $bad_words */
    int n_words;
} Setting;

/* What is searched for: a prompt; or a source, and what the decoder begins with. */
typedef struct Task {
    const int32_t *ids; /* the prompt; the start token and the prefix */
    int n;
    const int32_t *source;
    int n_source;
} Task;

/* A request whose prompt is `ids`, the first n of them. */
static inline FtxRequest task_request(const FtxModel *model, const Task *t, const int32_t *ids, int n, int width,
                                      int max_new, Found *f)
{
    FtxRequest r = beam_request(model, ids, (size_t)n, width, max_new, f);

    if (!t->source)
        return r;
    r.ids = t->source;
    r.ids_count = (size_t)t->n_source;
    r.prefix = n > 1 ? ids + 1 : NULL; /* the start token is the model's */
    r.prefix_count = (size_t)(n - 1);
    return r;
}

/* Log-probabilities after `ids` with all processors, in double, by a prompt of their own. */
static inline void next_logprobs(FtxEngine *engine, FtxModel *model, const Task *t, const int32_t *ids, int n,
                                 const Setting *s, int vocab, double *to)
{
    static Found ignored;
    FtxRequest r = task_request(model, t, ids, n, 1, 1, &ignored);
    const FtxRow row = {.kv_len = n, .prompt = t->n};
    const FtxParams params = {.repetition = s->repetition,
                              .ngram = s->ngram,
                              .min_length = t->n + s->min_new,
                              .n_ends = s->n_ends,
                              .n_words = s->n_words};
    const RefRow ref = {&row, &params, ids, s->ends, NULL, s->words};
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
}

/* Ids and lengths of words in the form of $bad_words. */
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
    static int32_t bad_ids[6]; /* until submit */
    static size_t bad_lengths[6];
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
    r.bad_ids = bad_ids;
    r.bad_lengths = bad_lengths;
    r.bad_count = words_of(s->words, s->n_words, bad_ids, bad_lengths);
    return r;
}

static inline void check_setting(FtxEngine *engine, FtxModel *model, const Task *t, const Setting *s)
{
    enum { LIMIT = 160 };
    static int32_t ids[MAX_WIDTH * LIMIT], found_ids[MAX_WIDTH * LIMIT], next_ids[MAX_WIDTH * LIMIT];
    static int32_t parent[MAX_WIDTH], next[MAX_WIDTH], order[MAX_WIDTH * MAX_VOCAB];
    static double score[MAX_WIDTH], next_score[MAX_WIDTH], total[MAX_WIDTH * MAX_VOCAB];
    static double logprobs[MAX_WIDTH * MAX_VOCAB];
    static RefFound hypothesis[MAX_WIDTH + 1];
    static Found found;
    FtxModelInfo info;
    FtxRequest r = setting_request(model, t, s, &found);

    ftx_model_info(model, &info);
    assert_true(info.vocab <= MAX_VOCAB && t->n + s->max_new <= LIMIT);
    RefBeams b = {.width = s->width,
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
    golden_submit(engine, &r);
    finish(engine);

    ref_beams_begin(&b, t->ids, t->n);
    while (!b.done) {
        for (int lane = 0; lane < s->width; lane++)
            if (b.score[lane] > -INFINITY)
                next_logprobs(engine, model, t, ids + lane * b.limit, b.length, s, info.vocab,
                              logprobs + lane * info.vocab);
        ref_beams_step(&b, logprobs);
    }
    assert_int_equal(found.n, b.found);
    for (int i = 0; i < b.found; i++) {
        const RefFound *h = &hypothesis[i];

        if (fabs(found.score[i] - h->score) > 10.0 * tolerance())
            fail_msg("width %d, groups %d, penalty %g, early %d: hypothesis %d has score %.6f, expected %.6f", s->width,
                     s->groups, (double)s->penalty, (int)s->early, i, found.score[i], h->score);
        if ((i && hypothesis[i - 1].score - h->score < 1e-4) ||
            (i + 1 < b.found && h->score - hypothesis[i + 1].score < 1e-4))
            continue; /* too close to say which comes first */
        assert_int_equal(found.count[i], h->length - t->n);
        assert_memory_equal(found.ids[i], found_ids + h->row * b.limit + t->n, found.count[i] * sizeof(int32_t));
    }
}

/* To the bit on the CPU; on a GPU steps of other sizes may sum in another order. */
static inline bool same(const Found *a, const Found *b)
{
    const double off = golden_on_cuda() ? tolerance() : 0.0;

    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!(fabs(a->score[i] - b->score[i]) <= off))
            return false;
    return a->n == b->n && memcmp(a->ids, b->ids, sizeof a->ids) == 0 && a->n_tokens == b->n_tokens &&
           memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0;
}

#endif
