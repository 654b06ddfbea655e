/* take.c - results of a step: tokens from the device to events. */
#include "engine.h"

#include "../base/team.h"

enum { OUTPUT_WEIGHT = 2 }; /* a new token counts as two of a prompt (VTC) */

static bool has_come(const FtxOut *o, int length)
{
    return __atomic_load_n(&o->length, __ATOMIC_ACQUIRE) == length;
}

/* Spins until the device has written the result: a step takes a fraction of a millisecond. After `patience` it waits
 * for the device, which returns its error. */
static FtxStatus await_result(FtxEngine *e, const FtxOut *o, int length, FtxError *err)
{
    const double patience = 0.2; /* seconds */
    double from = 0.0;
    FtxStatus s;

    if (e->flight.again && !has_come(o, length)) {
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
    if (!has_come(o, length))
        return ftx_fail(err, FTX_EDEVICE, "no result for token %d of a sequence: the device has lost a step", length);
    if (o->token < 0 || o->token >= (int)e->facts->vocab)
        return ftx_fail(err, FTX_EDEVICE,
                        "sampled token %d of a vocabulary of %u: the logits may not be finite (FTX_NAN=1 finds where)",
                        o->token, e->facts->vocab);
    return FTX_OK;
}

static FtxStatus keep_logits(FtxEngine *e, Request *r, int row, FtxError *err)
{
    const size_t bytes = (size_t)e->facts->vocab * sizeof *r->logits;
    const FtxStatus s = e->api->read(e->session, FTX_NAMED_logits, (size_t)row * bytes, r->logits, bytes, err);

    r->has_logits = !s;
    return s;
}

static FtxFinish finish_of(const Request *r, const FtxOut *o)
{
    if (o->finish == 1)
        return FTX_FINISH_END;
    return o->finish == 2 || r->length >= r->limit ? FTX_FINISH_LENGTH : FTX_RUNNING;
}

/* A beam search has no event before its end. */
static FtxStatus take_group(FtxEngine *e, Request *r, int length, const FtxOut *o, Events *v, FtxError *err)
{
    FtxEvent *event;
    FtxStatus s;

    r->fed = length;
    r->length = length + 1;
    fair_serve(&e->fair, r->fair_entry, OUTPUT_WEIGHT * (uint64_t)r->beam.width);
    if (o->finish == 0 && r->length < r->limit)
        return FTX_OK;
    r->first = engine_now(); /* all tokens come at once */
    event = submit_add_event(v, r);
    s = beams_finish(e, r, event, err);
    e->stats.new_tokens += r->n_found ? r->found[0].count : 0;
    if (!s)
        submit_end_running(e, r);
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

/* Log-probabilities of an event's token and of the likeliest ones, from the logits in e->draw.row. */
static void add_top(FtxEngine *e, const Request *r, int i, FtxEvent *event)
{
    FtxTop *top = e->top + (size_t)i * MOST_TOP;
    const float logprob = logprobs_at(e->draw.row, e->facts->vocab, event->token, top, r->top);

    event->logprob = r->wants_logprob ? logprob : 0.0f;
    event->top = top;
    event->top_count = (size_t)r->top;
}

/* No token is allowed: the text ends as at a stop string. */
static void end_without_token(FtxEngine *e, Request *r, int length, Events *v)
{
    FtxEvent *event = submit_add_event(v, r);
    bool stopped;

    r->fed = length;
    stream_token(&r->stream, e->model->tokenizer, -1, true, &event->text, &event->text_bytes, &stopped, NULL);
    event->finish = FTX_FINISH_STOP;
    submit_end_running(e, r);
}

/* Takes the result of row i in the oldest run that was not read. */
static FtxStatus take_row(FtxEngine *e, int i, Events *v, FtxError *err)
{
    const Row *w = &e->flight.row[i];
    Request *r = w->request;
    const int length = w->from + w->count + e->flight.taken;
    const FtxOut *o = &e->out[(size_t)(length % FTX_OUT_RING) * e->facts->sequences + (size_t)i];
    FtxEvent *event;
    FtxOut drawn;
    bool stopped;
    FtxStatus s = await_result(e, o, length, err);

    if (!s)
        reuse_landed(e, r, length);
    if (!s && r->wants_logits && length == r->prompt)
        s = keep_logits(e, r, i, err);
    if (s)
        return s;
    if (r->beam.width)
        return take_group(e, r, length, o, v, err);
    if (engine_reads_logits(r)) {
        s = read_row(e, i, err);
        if (s)
            return s;
    }
    if (r->on_host) {
        if (!draw_token(e, r, &drawn)) {
            end_without_token(e, r, length, v);
            return FTX_OK;
        }
        o = &drawn;
    }
    r->fed = length;
    r->length = length + 1;
    r->ids[length] = is_forced(r, o) ? r->forced_eos : o->token;
    r->first = r->first > 0.0 ? r->first : engine_now();
    event = submit_add_event(v, r);
    e->stats.new_tokens++;
    fair_serve(&e->fair, r->fair_entry, OUTPUT_WEIGHT);
    event->token = r->ids[length];
    event->logprob = r->wants_logprob ? o->logprob : 0.0f;
    if (engine_reads_logits(r))
        add_top(e, r, i, event);
    event->finish = is_forced(r, o) ? FTX_FINISH_END : finish_of(r, o);
    /* An end id is not text. */
    s = stream_token(&r->stream, e->model->tokenizer, event->finish == FTX_FINISH_END ? -1 : r->ids[length],
                     event->finish != FTX_RUNNING, &event->text, &event->text_bytes, &stopped, err);
    if (stopped)
        event->finish = FTX_FINISH_STOP;
    if (!s && event->finish != FTX_RUNNING)
        submit_end_running(e, r);
    return s;
}

FtxStatus take_results(FtxEngine *e, Events *v, FtxError *err)
{
    Flight *f = &e->flight;
    FtxStatus s = FTX_OK;

    if (!f->again) {
        s = e->api->wait(e->session, err);
        f->pending = false;
    }
    e->has_lanes = false;
    for (int i = 0; i < f->rows && !s; i++) {
        const Row *w = &f->row[i];

        if (!w->request || w->lane)
            continue;
        if (w->emit)
            s = take_row(e, i, v, err);
        else
            reuse_landed(e, w->request, w->from + w->count);
    }
    f->taken++;
    return s;
}
