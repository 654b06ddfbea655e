/* engine.c - the engine: opened with all its memory, then requests in, steps, events out. */
#include "engine.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "../base/env.h"
#include "../base/sized.h"

/* --- open and close ------------------------------------------------------------------------------ */

static Prefix *lay_out_prefix(Carve *c, const FtxFacts *f)
{
    Prefix none, *p = carve(c, 1, sizeof *p), *to = p ? p : &none;

    to->block = f->kv_block;
    to->buckets = prefix_buckets(f->kv_pages);
    to->page = carve(c, f->kv_pages, sizeof *to->page);
    to->ids = carve(c, (size_t)f->kv_pages * f->kv_block, sizeof *to->ids);
    to->bucket = carve(c, to->buckets, sizeof *to->bucket);
    return p;
}

/* What the arrays of an engine depend on, beside the facts of its model. */
typedef struct EngineSizes {
    uint32_t slots, waiting; /* requests that run, and wait */
    int threads;
    size_t stream, hyp_text;
    bool prefix;
    uint32_t snapshots;
    uint32_t swap;  /* KV pages on the host */
    uint32_t inbox; /* requests in it */
} EngineSizes;

/* Places the engine and its arrays in one block. Called twice: for the size, then with the block. */
static FtxEngine *lay_out_engine(Carve *c, const FtxFacts *f, const EngineSizes *size)
{
    const uint32_t lanes = f->beams > 1 ? f->beams : 0;
    const uint32_t slots = size->slots, requests = slots + size->waiting + size->inbox;
    const uint32_t pages = (f->context + f->kv_block - 1) / f->kv_block;
    FtxEngine none, *e = carve(c, 1, sizeof *e), *to = e ? e : &none;
    Request nobody, *r;

    to->slots = slots;
    to->requests = requests;
    to->most_waiting = size->waiting;
    to->fair.n = requests;
    to->fair.at = carve(c, requests, sizeof *to->fair.at);
    to->queued = carve(c, requests, sizeof *to->queued);
    to->queue_heap = carve(c, requests, sizeof *to->queue_heap);
    to->waits = carve(c, requests, sizeof *to->waits);
    to->queue = carve(c, requests, sizeof *to->queue);
    to->pages_of_sequence = pages;
    to->request = carve(c, requests, sizeof *to->request);
    to->waiting.at = carve(c, requests, sizeof *to->waiting.at);
    to->running.at = carve(c, requests, sizeof *to->running.at);
    to->ending.at = carve(c, requests, sizeof *to->ending.at);
    to->unused.at = carve(c, requests, sizeof *to->unused.at);
    to->inbox.free.at = carve(c, size->inbox, sizeof *to->inbox.free.at);
    to->inbox.full.at = carve(c, size->inbox, sizeof *to->inbox.full.at);
    to->inbox.cancel = carve(c, size->inbox ? requests : 0, sizeof *to->inbox.cancel);
    to->free_slot = carve(c, slots, sizeof *to->free_slot);
    to->free_source = carve(c, f->sources, sizeof *to->free_source);
    to->source_users = carve(c, f->sources, sizeof *to->source_users);
    to->page_table = (SlotTable){.named = FTX_NAMED_pages, .width = pages};
    to->group_table = (SlotTable){.named = FTX_NAMED_group, .width = lanes};
    to->history = (SlotTable){.named = FTX_NAMED_history, .width = f->context};
    to->word_table = (SlotTable){.named = FTX_NAMED_bad_words, .width = f->bad_words};
    if (table_is_small(slots, f->bad_words))
        to->word_table.rows = carve(c, (size_t)slots * f->bad_words, sizeof *to->word_table.rows);
    if (table_is_small(slots, pages))
        to->page_table.rows = carve(c, (size_t)slots * pages, sizeof *to->page_table.rows);
    if (table_is_small(slots, lanes))
        to->group_table.rows = carve(c, (size_t)slots * lanes, sizeof *to->group_table.rows);
    to->swap.all = size->swap;
    to->swap.free = carve(c, size->swap, sizeof *to->swap.free);
    to->pages.free = carve(c, f->kv_pages, sizeof *to->pages.free);
    to->pages.users = carve(c, f->kv_pages, sizeof *to->pages.users);
    to->pages.doubtful = carve(c, f->kv_pages, sizeof *to->pages.doubtful);
    if (size->prefix)
        to->pages.prefix = lay_out_prefix(c, f);
    to->snapshots.all = size->prefix ? size->snapshots : 0;
    to->snapshots.at = carve(c, to->snapshots.all, sizeof *to->snapshots.at);
    to->flight.row = carve(c, slots, sizeof *to->flight.row);
    to->landing.row = carve(c, slots, sizeof *to->landing.row);
    to->landed = carve(c, slots, sizeof *to->landed);
    to->batch = carve(c, slots, sizeof *to->batch);
    to->shares = carve(c, slots, sizeof *to->shares);
    to->scratch_rows = carve(c, slots, sizeof *to->scratch_rows);
    to->top = carve(c, (size_t)slots * MOST_TOP, sizeof *to->top);
    to->prompt_logprob = carve(c, slots, sizeof *to->prompt_logprob);
    to->prompt_top = carve(c, (size_t)slots * MOST_TOP, sizeof *to->prompt_top);
    to->events = carve(c, requests, sizeof *to->events);
    to->lanes = carve(c, lanes ? f->sequences : 0, sizeof *to->lanes);
    to->hyp_text_bytes = size->hyp_text;
    for (uint32_t i = 0; i < requests; i++) {
        r = e ? &e->request[i] : &nobody;
        r->bias = carve(c, f->logit_bias > MOST_BIAS_ENTRIES ? f->logit_bias : MOST_BIAS_ENTRIES, sizeof *r->bias);
        r->ends = carve(c, f->end_ids, sizeof *r->ends);
        r->bad_words = carve(c, f->bad_words, sizeof *r->bad_words);
        r->pages = carve(c, (size_t)pages * (lanes ? lanes : 1), sizeof *r->pages);
        r->key = carve(c, size->prefix ? pages : 0, sizeof *r->key);
        r->kept = carve(c, size->swap ? pages : 0, sizeof *r->kept);
        r->lane = carve(c, lanes, sizeof *r->lane);
        r->found = carve(c, lanes, sizeof *r->found);
        r->stream.text = carve(c, size->stream, 1);
        r->stream.cap = (uint32_t)size->stream;
    }
    for (uint32_t i = 0; i < requests; i++) { /* large, and mostly never touched */
        r = e ? &e->request[i] : &nobody;
        r->ids = carve(c, f->context, sizeof *r->ids);
        r->source = carve(c, f->source_context, sizeof *r->source);
    }
    to->states = carve(c, (size_t)f->tokens * f->states, sizeof *to->states);
    for (uint32_t i = 0; i < requests; i++) { /* rarely touched, so they are kept apart from the others */
        r = e ? &e->request[i] : &nobody;
        r->states_sum = carve(c, f->states, sizeof *r->states_sum);
        r->logits = carve(c, f->vocab, sizeof *r->logits);
    }
    draw_lay_out(&to->draw, c, f, f->kind == FTX_MODEL_ENCODER ? 0 : slots, size->threads);
    to->hyp_ids = carve(c, lanes ? (size_t)slots * f->context : 0, sizeof *to->hyp_ids);
    to->hyp_logps = carve(c, lanes ? (size_t)slots * f->context : 0, sizeof *to->hyp_logps);
    to->hyp_text = carve(c, lanes ? slots : 0, size->hyp_text);
    return e;
}

static void fill_lists(FtxEngine *e)
{
    for (uint32_t i = e->requests; i-- > 0;)
        list_add(&e->unused, &e->request[i]);
    for (e->free_slots = 0; e->free_slots < e->slots; e->free_slots++)
        e->free_slot[e->free_slots] = (int32_t)(e->slots - 1 - e->free_slots);
    for (e->free_sources = 0; e->free_sources < e->facts->sources; e->free_sources++)
        e->free_source[e->free_sources] = (int32_t)(e->facts->sources - 1 - e->free_sources);
}

/* Checks what artifact_open does not: the alignment of structs, and a program for every step. */
static FtxStatus check_programs(const FtxEngine *e, FtxError *err)
{
    uint32_t program;

    for (int i = 0; i < FTX_NAMED_COUNT; i++)
        if (e->plan->named[i] % 16)
            return ftx_fail(err, FTX_EFORMAT, "plan: named buffer %d is at %llu, not at a multiple of 16", i,
                            (unsigned long long)e->plan->named[i]);
    if ((e->facts->kind != FTX_MODEL_DECODER && !schedule_program(&e->encode, (int)e->facts->tokens, &program)) ||
        (e->facts->input && !schedule_program(&e->hidden, (int)e->facts->tokens, &program)) ||
        (e->facts->kind != FTX_MODEL_ENCODER && !schedule_program(&e->step, (int)e->facts->tokens, &program)))
        return ftx_fail(err, FTX_EFORMAT, "plan: no program takes a step of %u tokens", e->facts->tokens);
    return FTX_OK;
}

/* Only runs of very long tokens make a prompt of more bytes (English has 4 bytes a token). */
static size_t prompt_bytes(const FtxEngine *e)
{
    const size_t longest = tokenizer_token_bytes(e->model->tokenizer);
    const FtxFacts *f = e->facts;

    return (size_t)(f->context > f->source_context ? f->context : f->source_context) * (longest < 16 ? longest : 16) +
           1024;
}

/* Room for the text of a hypothesis of any tokens. Hardly any of it is ever touched. */
static size_t hypothesis_bytes(const FtxFacts *f, const Tokenizer *t)
{
    return f->beams > 1 && t ? ((size_t)f->context + 1) * (tokenizer_token_bytes(t) + 16) : 0;
}

static FtxStatus fill_engine(FtxEngine *e, uint64_t kv_bytes, FtxError *err)
{
    const int most = FTX_OUT_RING - 2;
    uint32_t pages = 0;
    FtxStatus s = env_int(ENV_FTX_AHEAD, 1, most, most, &e->ahead, err);

    if (s)
        return s;
    e->nan = env_on(ENV_FTX_NAN);
    fill_lists(e);
    schedule_ladders(e);
    s = check_programs(e, err);
    if (!s && e->model->tokenizer) {
        e->max_text = prompt_bytes(e);
        s = tokenizer_scratch_open(e->model->tokenizer, e->max_text, &e->scratch, err);
    }
    if (!s)
        s = e->api->session_open(e->model->device, kv_bytes, &e->session, &pages, err);
    if (s)
        return s;
    s = draw_open(e, err);
    if (s)
        return s;
    pages_init(&e->pages, pages);
    if (e->pages.prefix && getentropy(&e->pages.prefix->seed, sizeof e->pages.prefix->seed))
        return ftx_fail(err, FTX_EIO, "the prefix cache needs a random number: %s", strerror(errno));
    atomic_store(&e->model->pages, pages);
    e->io = e->api->io(e->session);
    if (e->api->masks && !e->nan) /* -infinity of a mask is no finite number */
        e->masks = e->api->masks(e->session);
    /* The host writes OUT only in clear_out (schedule.c). */
    e->out = (FtxOut *)((uintptr_t)e->api->out(e->session) + e->plan->named[FTX_NAMED_out]);
    return env_on(ENV_FTX_TRACE) && e->model->log ? tracing_begin(e, 0, err) : FTX_OK;
}

FtxStatus ftx_engine_open(FtxModel *model, const FtxOptions *options, FtxEngine **engine, FtxError *err)
{
    Carve size = {NULL, 0};
    FtxOptions o;
    FtxEngine *e;
    FtxStatus s;

    if (!engine)
        return ftx_fail(err, FTX_EINVAL, "ftx_engine_open: engine is NULL");
    *engine = NULL;
    if (!model)
        return ftx_fail(err, FTX_EINVAL, "ftx_engine_open: model is NULL");
    s = options_read(options, &o, err);
    if (s)
        return s;

    const Memory memory = o.allocator ? memory_of(&o) : model->memory;
    const FtxFacts *f = model->artifact.facts;
    /* Each sequence that decodes brings a token to every step. */
    const uint32_t slots = f->sequences < f->tokens ? f->sequences : f->tokens;
    const uint64_t *named = model->plan->head->named_bytes, state = named[FTX_NAMED_recurrent] / f->sequences;
    const bool recurrent = state > 0;
    const uint32_t snapshots = recurrent ? (uint32_t)(named[FTX_NAMED_snapshots] / state) : 0;
    const uint32_t most_swapped = UINT32_C(1) << 24; /* pages: 256 million tokens */
    const EngineSizes sizes = {
        .slots = slots,
        .threads = o.threads > 0 ? o.threads : team_default_threads(),
        .waiting = o.queue_requests ? (uint32_t)o.queue_requests : slots * WAITING_PER_SEQUENCE,
        .stream = stream_bytes(model->tokenizer),
        .hyp_text = hypothesis_bytes(f, model->tokenizer),
        /* A translator's pages depend on its source, those of a prompt that is seen whole on its end, and pages of a model
         * with recurrent states are of use with a snapshot of these alone. */
        .prefix = o.prefix_cache && f->kind == FTX_MODEL_DECODER && !f->whole_prompts && (!recurrent || snapshots),
        .snapshots = snapshots,
        .inbox = (uint32_t)o.inbox,
        .swap = o.overcommit && f->kind == FTX_MODEL_DECODER && !recurrent
                    ? swap_count(model, o.swap_bytes, most_swapped)
                    : 0,
    };

    if (o.step_ms > MOST_STEP_MS)
        return ftx_fail(err, FTX_EINVAL, "step_ms: expected 0 to %d, found %zu", MOST_STEP_MS, o.step_ms);
    if (o.queue_requests > MOST_WAITING)
        return ftx_fail(err, FTX_EINVAL, "queue_requests: expected 0 to %d, found %zu", MOST_WAITING, o.queue_requests);
    if (o.inbox > MOST_WAITING || (o.inbox && f->kind == FTX_MODEL_ENCODER))
        return ftx_fail(err, FTX_EINVAL, "inbox: %s",
                        o.inbox > MOST_WAITING ? "expected 0 to 65536" : "an encoder takes no requests");
    if (o.swap_bytes && !sizes.swap)
        return ftx_fail(err, FTX_EINVAL, "swap_bytes (--swap-memory): %s",
                        recurrent ? "the model's recurrent states are not copied; preempted requests are recomputed"
                        : o.overcommit && f->kind == FTX_MODEL_DECODER
                            ? "it is less than a KV page"
                            : "only a decoder with overcommit preempts requests");
    if (sizes.swap && !model->api->keep)
        return ftx_fail(err, FTX_EINVAL, "swap_bytes (--swap-memory): not for an artifact of several ranks");
    lay_out_engine(&size, f, &sizes);

    char *block = memory_alloc(&memory, size.at, 64);

    if (!block)
        return memory_fail(err, "the engine", size.at);
    e = lay_out_engine(&(Carve){block, 0}, f, &sizes);
    e->most_waiting_tokens = o.queue_tokens;
    e->first_late = INFINITY;
    e->memory = memory;
    e->block_bytes = size.at;
    e->model = model;
    e->facts = f;
    e->plan = model->plan->head;
    e->api = model->api;
    e->by_role = f->fixed_sums && e->api->asynchronous;
    e->recurrent = recurrent;
    atomic_init(&e->next_id, 1);
    if (o.overcommit && f->kind == FTX_MODEL_DECODER)
        grow_begin(e);
    atomic_fetch_add(&model->users, 1);
    s = fill_engine(e, o.kv_bytes, err);
    if (!s)
        s = pace_measure(e, o.step_ms, err);
    if (!s)
        s = swap_open(e, err);
    if (!s)
        s = inbox_open(e, sizes.inbox, err);
    if (s) {
        ftx_engine_close(e);
        return s;
    }
    *engine = e;
    return FTX_OK;
}

void ftx_engine_close(FtxEngine *e)
{
    if (!e)
        return;

    const Memory memory = e->memory;
    FtxModel *model = e->model;

    if (e->trace)
        tracing_end(e, NULL, NULL);
    if (e->session) {
        e->api->wait(e->session, NULL);
        draw_close(e);
        e->api->session_close(e->session);
    }
    tokenizer_scratch_close(e->scratch);
    inbox_close(e);
    memory_free(&memory, e, e->block_bytes);
    model_leave(model);
}

bool ftx_engine_busy(const FtxEngine *e)
{
    return engine_busy(e);
}

FtxStatus ftx_engine_read_stats(const FtxEngine *e, FtxStats *stats)
{
    const FtxStatus s = sized_check("FtxStats", stats->size, NULL);
    FtxStats now = e->stats;

    if (s)
        return s;
    now.size = stats->size;
    now.waiting = submit_waiting(e);
    now.waiting_tokens = e->waiting_tokens;
    now.running = e->running.n;
    now.swapped = e->waiting_swapped;
    now.swap_pages = e->swap.all;
    now.free_swap_pages = e->swap.n;
    now.pages = e->pages.all;
    now.free_pages = e->pages.n;
    now.idle_pages = e->pages.prefix ? e->pages.prefix->idle : 0;
    sized_write(stats, stats->size, &now, sizeof now);
    return FTX_OK;
}

const float *ftx_engine_logits(const FtxEngine *e, uint64_t id)
{
    for (uint32_t i = 0; i < e->requests; i++)
        if (id && e->request[i].id == id && e->request[i].has_logits)
            return e->request[i].logits;
    return NULL;
}

/* --- a step --------------------------------------------------------------------------------------------- */

/* The device has failed: every request gets an event. Those that have ended in this step keep theirs. */
static void end_all(FtxEngine *e, Events *v)
{
    const RequestList *lists[] = {&e->running, &e->waiting, &e->ending};
    size_t ended = 0;

    for (size_t i = 0; i < v->n; i++)
        if (v->at[i].finish != FTX_RUNNING)
            v->at[ended++] = v->at[i];
    v->n = ended;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (uint32_t i = 0; i < lists[k]->n && v->n < v->max; i++)
            submit_add_event(v, lists[k]->at[i])->finish = FTX_FINISH_ERROR;
    e->flight.rows = 0;
}

FtxStatus ftx_engine_step(FtxEngine *e, FtxEvent *events, size_t max, size_t *n, FtxError *err)
{
    Events v = {e->events, 0, max < e->requests ? max : e->requests};
    FtxError why = {0};
    FtxStatus s;
    size_t size;

    *n = 0;
    if (e->dead.status)
        return ftx_fail(err, e->dead.status, "%s", e->dead.text);
    if (max < e->slots || !events)
        return ftx_fail(err, FTX_EINVAL, "events: room for %zu, a step of this model may have %u", max, e->slots);
    size = events->size; /* the distance between two events in the caller's array */
    s = sized_check("FtxEvent", size, err);
    if (s)
        return s;
    const int64_t from = e->trace ? trace_now() : 0;

    inbox_take(e, &v);
    submit_end_others(e, &v);
    if (v.max - v.n >= e->slots) /* else the step runs in the next call */
        s = flight_step(e, &v, &why);
    if (s) {
        e->dead = why;
        e->dead.status = s;
        end_all(e, &v);
        inbox_fail(e, &v);
        ftx_fail(err, s, "%s", why.text);
    }
    for (size_t i = 0; i < v.n; i++)
        sized_write((char *)events + i * size, size, &v.at[i], sizeof v.at[i]);
    *n = v.n;
    if (e->trace)
        trace_host(e->trace, "step", from);
    return s;
}

FtxStatus ftx_engine_profile(FtxEngine *e, bool on, const FtxProfile **rows, size_t *n, FtxError *err)
{
    const FtxStatus s =
        e->dead.status ? ftx_fail(err, e->dead.status, "%s", e->dead.text) : e->api->wait(e->session, err);

    return s ? s : e->api->profile(e->session, on, rows, n, err);
}
