/* take.c - results of a step: tokens from the device to requests (landed), then to texts and events (told).
 *
 * Between the two, the next step may be enqueued: it needs tokens, but no texts. */
#include <math.h>

#include "engine.h"

#include "../base/team.h"

enum {
    OUTPUT_WEIGHT = 2, /* a new token counts as two of a prompt (VTC) */
    NO_TOKEN = -1,     /* FtxOut.token, landed: a mask allows none */
    NOT_FINITE = -2,   /* the same: logits that are not finite numbers */
};

static bool has_come(const FtxOut *o, int length)
{
    return __atomic_load_n(&o->length, __ATOMIC_ACQUIRE) == length;
}

/* Spins until the device has written the result: a step takes a fraction of a millisecond. After `patience` it waits
 * for the device, which returns its error. */
static FtxStatus await_result(FtxEngine *e, const Flight *f, const Request *r, const FtxOut *o, int length,
                              FtxError *err)
{
    const double patience = 0.2; /* seconds */
    double from = 0.0;
    FtxStatus s;

    if (f->again && !has_come(o, length)) {
        from = engine_now();
        for (uint32_t turn = 1; !has_come(o, length); turn++) {
            team_pause();
            if (turn % 4096 == 0 && engine_now() - from > patience)
                break;
        }
        s = has_come(o, length) ? FTX_OK : e->api->wait(e->session, err);
        if (e->trace)
            trace_host(e->trace, "wait for a token", (int64_t)(from * 1e9));
        if (s)
            return s;
    }
    s = e->api->check ? e->api->check(e->session, err) : FTX_OK;
    if (s)
        return s;
    if (!has_come(o, length))
        return ftx_fail(err, FTX_EDEVICE, "no result for token %d of a sequence: the device has lost a step", length);
    if (o->token >= (int)e->facts->vocab)
        return ftx_fail(err, FTX_EDEVICE, "request %llu: the device chose token %d at position %d, of %u tokens",
                        (unsigned long long)r->id, o->token, length, e->facts->vocab);
    return FTX_OK;
}

/* The logits of a row were not finite numbers. The request ends; its pages are wiped then. */
static FtxStatus land_nan(FtxEngine *e, Request *r, int length, FtxError *err)
{
    const char *const words = "request %llu: logits at position %d that are not finite numbers (FTX_NAN=1 finds where)";
    const FtxStatus s = e->api->wait(e->session, err); /* a rank that has failed leaves such logits, too */

    if (s)
        return s;
    if (e->facts->sources) /* what other sources read is not only in pages */
        return ftx_fail(err, FTX_EDEVICE, words, (unsigned long long)r->id, length);
    model_log(e->model, 1, words, (unsigned long long)r->id, length);
    r->not_finite = true;
    return FTX_OK;
}

static FtxStatus keep_logits(FtxEngine *e, Request *r, int row, FtxError *err)
{
    const size_t bytes = (size_t)e->facts->vocab * sizeof *r->logits;
    const FtxStatus s = e->api->read(e->session, FTX_NAMED_logits, (size_t)row * bytes, r->logits, bytes, err);

    r->has_logits = !s;
    return s;
}

/* With forced_eos, the last token that fits is replaced by that end id. Nothing follows it, so the device need not
 * know. */
static bool is_forced(const Request *r, const FtxOut *o)
{
    return r->forced_eos >= 0 && o->finish != 1 && r->length >= r->limit;
}

static FtxStatus read_row(FtxEngine *e, int i, FtxError *err)
{
    const size_t bytes = (size_t)e->facts->vocab * sizeof *e->draw.row;

    return e->api->read(e->session, FTX_NAMED_logits, (size_t)i * bytes, e->draw.row, bytes, err);
}

static int length_then(const Flight *f, int i)
{
    return f->row[i].from + f->row[i].count + f->taken;
}

static const FtxOut *out_of(const FtxEngine *e, const Flight *f, int i)
{
    return &e->out[(size_t)(length_then(f, i) % FTX_OUT_RING) * e->facts->sequences + (size_t)i];
}

void take_ask(FtxEngine *e, const Flight *f)
{
    for (int i = 0; i < f->rows; i++) {
        const Row *w = &f->row[i];

        if (w->request && w->emit && !w->lane && w->request->on_host)
            draw_ask(e, w->request, length_then(f, i));
    }
}

void take_masks(FtxEngine *e, const Flight *f, int *first, int *n)
{
    *first = *n = 0;
    for (int i = 0; i < f->rows; i++) {
        const Row *w = &f->row[i];

        if (!w->request || !w->emit || !w->request->masked)
            continue;
        draw_mask(e, w->request, length_then(f, i), i);
        *first = *n ? *first : i;
        *n = i + 1 - *first;
    }
}

static FtxStatus land_row(FtxEngine *e, const Flight *f, int i, FtxError *err)
{
    Request *r = f->row[i].request;
    const int length = length_then(f, i);
    const FtxOut *from = out_of(e, f, i);
    FtxStatus s = await_result(e, f, r, from, length, err);

    if (s)
        return s;
    e->landed[i] = *from;
    if (from->token < 0 || isnan(from->logprob)) {
        e->landed[i].token = NOT_FINITE;
        s = land_nan(e, r, length, err);
    } else if (r->masked && !draw_allows(e, r, length, i, from->token)) {
        e->landed[i].token = NO_TOKEN;
    }
    r->fed = r->length = length;
    r->unread = false;
    r->checked = true;
    if (s)
        return s;
    reuse_landed(e, r, length);
    return r->wants_logits && length == r->prompt ? keep_logits(e, r, i, err) : FTX_OK;
}

/* The host chooses the token of row i. */
static bool is_drawn(const FtxEngine *e, const Flight *f, int i)
{
    const Row *w = &f->row[i];

    return w->request && w->emit && !w->lane && w->request->on_host && e->landed[i].token != NOT_FINITE;
}

/* The rows whose tokens the host chooses. Their requests' lengths are without the new token. */
static FtxStatus draw_flight(FtxEngine *e, const Flight *f, FtxError *err)
{
    int n = 0;

    for (int i = 0; i < f->rows; i++)
        if (is_drawn(e, f, i))
            e->draw.item[n++] = (DrawItem){.request = f->row[i].request, .row = i, .out = &e->landed[i]};
    return n ? draw_rows(e, n, err) : FTX_OK;
}

/* The token that row i has, and its log-probabilities. */
static FtxStatus keep_token(FtxEngine *e, const Flight *f, int i, double log_sum, FtxError *err)
{
    Request *r = f->row[i].request;
    const int length = r->length++;
    FtxOut *o = &e->landed[i];
    const float *logits = r->on_host ? draw_logits(e, i) : e->draw.row;
    FtxStatus s = FTX_OK;

    if (r->beam.width)
        return FTX_OK;
    r->ids[length] = o->token < 0 ? 0 : is_forced(r, o) ? r->forced_eos : o->token; /* 0: a ghost reads it */
    if (!engine_reads_logits(r) || !(r->top || r->wants_logprob) || o->token < 0)
        return FTX_OK;
    if (!r->on_host) {
        s = read_row(e, i, err);
        log_sum = s ? 0.0 : draw_log_sum(e, r);
    }
    if (!s)
        o->logprob =
            logprobs_at(logits, e->facts->vocab, log_sum, r->ids[length], e->top + (size_t)i * MOST_TOP, r->top);
    return s;
}

static void count_step(FtxEngine *e, const Flight *f)
{
    const double now = engine_now();
    FtxSteps *to = f->decode == f->tokens ? &e->stats.decode : f->decode ? &e->stats.mixed : &e->stats.prompt;

    to->steps++;
    to->rows += (uint64_t)f->decode;
    to->tokens += (uint64_t)(f->tokens - f->decode);
    to->seconds += now - (e->landed_at > f->sent ? e->landed_at : f->sent);
    e->landed_at = now;
}

FtxStatus take_land(FtxEngine *e, const Flight *f, FtxError *err)
{
    FtxStatus s = f->again || !f->pending ? FTX_OK : e->api->wait(e->session, err);

    e->has_lanes = false;
    for (int i = 0; i < f->rows && !s; i++) {
        const Row *w = &f->row[i];

        if (!w->request || w->lane)
            continue;
        if (w->emit)
            s = land_row(e, f, i, err);
        else
            reuse_landed(e, w->request, w->from + w->count);
    }
    count_step(e, f);
    if (!s && e->facts->states)
        s = states_land(e, f, err);
    if (!s)
        s = draw_flight(e, f, err);
    for (int i = 0, drawn = 0; i < f->rows && !s; i++) {
        const Row *w = &f->row[i];

        if (w->request && !w->lane && w->emit)
            s = keep_token(e, f, i, is_drawn(e, f, i) ? e->draw.item[drawn++].log_sum : 0.0, err);
    }
    return s;
}

bool take_has_come(const FtxEngine *e, const Flight *f)
{
    for (int i = 0; i < f->rows; i++)
        if (f->row[i].request && f->row[i].emit)
            return has_come(out_of(e, f, i), length_then(f, i));
    return true;
}

/* Without a token the text ends as at a stop string. */
static FtxFinish finish_of(const Request *r, const FtxOut *o)
{
    if (o->token == NO_TOKEN)
        return FTX_FINISH_STOP;
    if (o->token == NOT_FINITE)
        return FTX_FINISH_NAN;
    if (o->finish == 1 || is_forced(r, o))
        return FTX_FINISH_END;
    return o->finish == 2 || r->length >= r->limit ? FTX_FINISH_LENGTH : FTX_RUNNING;
}

bool take_ends(const FtxEngine *e, const Flight *f)
{
    for (int i = 0; i < f->rows; i++)
        if (f->row[i].request && f->row[i].emit && finish_of(f->row[i].request, &e->landed[i]) != FTX_RUNNING)
            return true;
    return false;
}

static FtxStatus end_text(FtxEngine *e, Request *r, FtxError *err)
{
    FtxStatus s = FTX_OK;

    if (r->not_finite)
        s = grow_wipe(e, r, err);
    else
        grow_learn(e, r);
    submit_end_running(e, r);
    return s;
}

/* A beam search has no event before its end. */
static FtxStatus tell_group(FtxEngine *e, Request *r, const FtxOut *o, Events *v, FtxError *err)
{
    FtxEvent *event;
    FtxStatus s;

    fair_serve(&e->fair, r->fair_entry, OUTPUT_WEIGHT * (uint64_t)r->beam.width);
    if (o->token == NOT_FINITE) {
        submit_add_event(v, r)->finish = FTX_FINISH_NAN;
        return end_text(e, r, err);
    }
    if (o->finish == 0 && r->length < r->limit)
        return FTX_OK;
    r->first = engine_now(); /* all tokens come at once */
    event = submit_add_event(v, r);
    s = beams_finish(e, r, event, err);
    e->stats.new_tokens += r->n_found ? r->found[0].count : 0;
    return s ? s : end_text(e, r, err);
}

static void add_token(FtxEngine *e, Request *r, int i, FtxEvent *event)
{
    e->stats.new_tokens++;
    fair_serve(&e->fair, r->fair_entry, OUTPUT_WEIGHT);
    event->token = r->ids[r->length - 1];
    event->logprob = r->wants_logprob ? e->landed[i].logprob : 0.0f;
    event->top = engine_reads_logits(r) ? e->top + (size_t)i * MOST_TOP : NULL;
    event->top_count = (size_t)r->top;
}

static FtxStatus tell_row(FtxEngine *e, const Flight *f, int i, Events *v, FtxError *err)
{
    Request *r = f->row[i].request;
    const FtxOut *o = &e->landed[i];
    FtxEvent *event;
    bool stopped;
    FtxStatus s;

    if (r->beam.width)
        return tell_group(e, r, o, v, err);
    r->first = r->first > 0.0 || o->token < 0 ? r->first : engine_now();
    event = submit_add_event(v, r);
    states_tell(e, f, i, event, v);
    if (o->token >= 0)
        add_token(e, r, i, event);
    event->finish = finish_of(r, o);
    /* An end id is not text. */
    s = stream_token(&r->stream, e->model->tokenizer,
                     o->token < 0 || event->finish == FTX_FINISH_END ? -1 : event->token, event->finish != FTX_RUNNING,
                     &event->text, &event->text_bytes, &stopped, err);
    if (stopped)
        event->finish = FTX_FINISH_STOP;
    if (s || event->finish == FTX_RUNNING)
        return s;
    return end_text(e, r, err);
}

FtxStatus take_tell(FtxEngine *e, Flight *f, Events *v, FtxError *err)
{
    FtxStatus s = FTX_OK;

    f->pending = f->pending && f->again;
    for (int i = 0; i < f->rows && !s; i++)
        if (f->row[i].request && !f->row[i].lane && f->row[i].emit)
            s = tell_row(e, f, i, v, err);
        else if (f->row[i].request && !f->row[i].lane)
            states_tell(e, f, i, NULL, v);
    f->taken++;
    if (!e->running.n && !e->waiting.n)
        e->landed_at = 0.0; /* what follows is no gap between steps */
    return s;
}
