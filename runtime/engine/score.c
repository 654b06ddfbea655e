/* score.c - log-probabilities of a given text: ftx_engine_score, its form with logits, FtxRequest.prompt_logprobs.
 *
 * The text's tokens are fed as rows of one token each, all of one slot. They are rows of a prompt (Row.scored): that kernel
 * of attention reads the cache after the step has appended all keys and values, and each row sees it up to its own position,
 * so rows of one text may stand side by side. The log-probability of the next token comes from each row's raw logits.
 *
 * A recurrent state is read and written by the row's kernel, so a model that has one takes a token a step. */
#include <math.h>
#include <string.h>

#include "engine.h"

static FtxStatus check(const FtxEngine *e, const int32_t *ids, size_t n, const float *logprobs, FtxError *err)
{
    if (e->dead.status)
        return ftx_fail(err, e->dead.status, "%s", e->dead.text);
    if (e->facts->kind != FTX_MODEL_DECODER)
        return ftx_fail(err, FTX_EINVAL, "score: %s",
                        e->facts->kind == FTX_MODEL_ENCODER ? "the model is an encoder: it has no next token"
                                                            : "the model reads a source, and score has none");
    if (e->facts->whole_prompts)
        return ftx_fail(err, FTX_EINVAL, "score: the model sees a prompt whole, so its tokens have no probabilities");
    if (!ids || !logprobs)
        return ftx_fail(err, FTX_EINVAL, "score: ids or logprobs is NULL");
    if (engine_busy(e))
        return ftx_fail(err, FTX_EINVAL, "requests wait or run: score needs the engine for itself");
    if (n < 2 || n > e->facts->context)
        return ftx_fail(err, FTX_EINVAL, "score: expected 2 to %u tokens (limits.context), found %zu",
                        e->facts->context, n);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->facts->vocab)
            return ftx_fail(err, FTX_EINVAL, "ids[%zu]: %d is not below the vocabulary of %u", i, ids[i],
                            e->facts->vocab);
    return FTX_OK;
}

/* Rows of the next step, of `left` tokens. */
static int rows_of_step(const FtxEngine *e, int left)
{
    const int most = e->recurrent ? 1 : (int)e->slots;

    return left < most ? left : most;
}

/* A step of so many rows of one token. */
static FtxStatus run_rows(FtxEngine *e, int rows, FtxError *err)
{
    Flight *f = &e->flight;
    FtxStatus s;

    f->rows = rows;
    f->tokens = rows;
    s = schedule_write(e, err);
    if (!s)
        s = schedule_send(e, err);
    if (!s)
        s = e->api->run(e->session, f->program, rows, rows, 1, err);
    if (!s)
        s = e->api->wait(e->session, err);
    f->pending = false;
    return s;
}

/* Runs tokens [at, at + rows) in one step and takes the log-probabilities of the tokens after them: logprobs[rows], and
 * top[rows][MOST_TOP], of which r->top are written. logits [rows][vocab], or NULL. */
static FtxStatus score_rows(FtxEngine *e, Request *r, int at, int rows, float *logprobs, FtxTop *top, float *logits,
                            FtxError *err)
{
    const size_t bytes = (size_t)e->facts->vocab * sizeof *e->draw.row;
    Flight *f = &e->flight;
    FtxStatus s;

    for (int i = 0; i < rows; i++)
        f->row[i] = (Row){.request = r, .first = i, .count = 1, .from = at + i, .scored = true};
    s = run_rows(e, rows, err);
    for (int i = 0; i < rows && !s; i++) {
        s = e->api->read(e->session, FTX_NAMED_logits, (size_t)i * bytes, e->draw.row, bytes, err);
        if (!s && logits)
            memcpy(logits + (size_t)i * e->facts->vocab, e->draw.row, bytes);
        if (!s)
            logprobs[i] = logprobs_at(e->draw.row, e->facts->vocab, draw_log_sum(e, r), r->ids[at + i + 1],
                                      top + (size_t)i * MOST_TOP, r->top);
    }
    return s;
}

bool score_pending(const Request *r)
{
    return r->wants_prompt && r->fed < r->prompt - 1;
}

FtxStatus score_prompt(FtxEngine *e, Events *v, FtxError *err)
{
    FtxEvent *event;
    Request *r = NULL;
    FtxStatus s;
    int rows, at;

    e->scored = NULL;
    for (uint32_t i = 0; i < e->running.n && !r; i++)
        r = score_pending(e->running.at[i]) ? e->running.at[i] : NULL;
    if (!r)
        return FTX_OK;
    at = r->fed;
    rows = rows_of_step(e, r->prompt - 1 - at);
    s = score_rows(e, r, at, rows, e->prompt_logprob, e->prompt_top, NULL, err);
    if (s)
        return s;
    r->fed += rows;
    reuse_landed(e, r, r->fed);
    e->scored = r;
    event = submit_add_event(v, r);
    event->prompt_first = (size_t)at + 1;
    event->prompt_count = (size_t)rows;
    event->prompt_logprobs = e->prompt_logprob;
    event->prompt_top = e->prompt_top;
    event->top_count = (size_t)r->top;
    return FTX_OK;
}

static FtxStatus score_text(FtxEngine *e, const int32_t *ids, size_t n, float *logprobs, float *logits, FtxError *err)
{
    const uint32_t block = e->facts->kv_block;
    FtxStatus s = check(e, ids, n, logprobs, err);
    Request *r;

    if (s)
        return s;
    r = list_last(&e->unused, 0);
    r->id = 0;
    r->wants_logits = r->on_host = r->wants_prompt = false;
    r->states = FTX_STATES_NONE;
    r->top = 0;
    r->params = (FtxParams){.top_p = 1.0f, .repetition = 1.0f, .simple = 1, .logits = 1, .top_needed = 1};
    r->prompt = r->limit = (int)n;
    memcpy(r->ids, ids, n * sizeof *ids);
    r->beam = (FtxBeam){0};
    r->n_pages = r->own_pages = ((uint32_t)n + block - 1) / block;
    if (r->n_pages > e->pages.n)
        return ftx_fail(err, FTX_EFULL, "%zu tokens need %u KV pages of %u tokens; there are %u: raise %s", n,
                        r->n_pages, block, e->pages.n, engine_more_pages(e));
    if (e->flight.pending && (s = e->api->wait(e->session, err))) /* runs of requests that have ended */
        return s;
    s = schedule_place(e, r, err);
    if (!s)
        s = schedule_tell(e, err);
    for (int at = 0, rows, last = (int)n - 1; at < last && !s; at += rows) {
        rows = rows_of_step(e, last - at);
        s = score_rows(e, r, at, rows, logprobs + at, e->prompt_top,
                       logits ? logits + (size_t)at * e->facts->vocab : NULL, err);
    }
    for (size_t i = 0; i + 1 < n && !s; i++)
        if (isnan(logprobs[i]))
            r->fed = (int)n; /* its pages are in doubt (grow_doubt) */
    schedule_release(e, r);
    e->flight = (Flight){.row = e->flight.row};
    return s;
}

FtxStatus ftx_engine_score(FtxEngine *e, const int32_t *ids, size_t n, float *logprobs, FtxError *err)
{
    return score_text(e, ids, n, logprobs, NULL, err);
}

FtxStatus ftx_engine_score_logits(FtxEngine *e, const int32_t *ids, size_t n, float *logprobs, float *logits,
                                  FtxError *err)
{
    if (!logits)
        return ftx_fail(err, FTX_EINVAL, "score: logits is NULL");
    return score_text(e, ids, n, logprobs, logits, err);
}
