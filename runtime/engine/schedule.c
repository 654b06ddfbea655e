/* schedule.c - chooses the rows of the next step and writes the IO block that describes them.
 *
 * A step has limits.tokens tokens. Sequences that decode come first, one token each. The rest goes to prompts (dynamic
 * SplitFuse; batch.h), so a long prompt comes in chunks and delays nobody. Which request begins next: queue.h.
 * Pages for prompt and new tokens are taken at admission, so a running request never lacks memory; with
 * FtxOptions.overcommit they are taken as it grows (grow.c). Page tables change between flights only.
 *
 * Two kernels compute attention: one for rows [0, decode_rows) of a step, which bring one token each, one for the others.
 * On a GPU they add keys in different orders. With e->by_role a token's kernel follows from its role, so that its bits do
 * not depend on how its prompt was cut, on pages that were found, or on preemption:
 *
 *   a token of the prompt   the second kernel, also if its row brings it alone
 *   a generated token       the first kernel, also when it is read again: then one a step, since the kernel takes no more
 *
 * Pages that hold generated tokens are found by nobody then, since a later prompt with the same text has other bits. */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "engine.h"

/* --- programs ------------------------------------------------------------------------------------- */

static void ladder_add(ProgramLadder *l, uint32_t index, uint32_t bucket)
{
    uint32_t at = l->n;

    if (l->n == sizeof l->index / sizeof *l->index)
        return;
    for (; at && bucket && (l->bucket[at - 1] == 0 || l->bucket[at - 1] > bucket); at--) {
        l->bucket[at] = l->bucket[at - 1];
        l->index[at] = l->index[at - 1];
    }
    l->bucket[at] = bucket;
    l->index[at] = index;
    l->n++;
}

void schedule_ladders(FtxEngine *e)
{
    const ArtifactPlan *p = e->model->plan;

    for (uint32_t i = 0; i < p->n_programs; i++)
        ladder_add(p->programs[i].kind == FTX_PROG_DECODE   ? &e->decode
                   : p->programs[i].kind == FTX_PROG_ENCODE ? &e->encode
                   : p->programs[i].kind == FTX_PROG_HIDDEN ? &e->hidden
                                                            : &e->step,
                   i, p->programs[i].most ? p->programs[i].most : p->programs[i].bucket);
}

bool schedule_program(const ProgramLadder *l, int tokens, uint32_t *program)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->bucket[i] == 0 || l->bucket[i] >= (uint32_t)tokens) {
            *program = l->index[i];
            return true;
        }
    return false;
}

uint32_t schedule_found_program(const ProgramLadder *l, int tokens)
{
    uint32_t program = 0;
    const bool found = schedule_program(l, tokens, &program);

    assert(found);
    (void)found;
    return program;
}

/* --- admission -------------------------------------------------------------------------------------- */

typedef struct Admission {
    FtxEngine *e;
    uint32_t reserve; /* pages that running requests will probably take */
} Admission;

/* Whether item i of the queue can run now. One whose prompt begins with pages that another is about to write lets others
 * pass. */
static QueueFit fits_now(void *user, uint32_t i)
{
    const Admission *a = user;
    FtxEngine *e = a->e;
    Request *r = e->waiting.at[e->queued[i]];

    if (e->free_slots < (r->beam.width ? (uint32_t)r->beam.width : r->together) ||
        (e->facts->sources && !e->free_sources))
        return QUEUE_TOO_LARGE;

    const uint32_t idle = reuse_find(e, r);

    if (!r->kept_pages && reuse_awaits(e, r))
        return QUEUE_LATER;
    const uint32_t pages = grow_does(r) ? grow_needs(e, r) : r->all_pages;

    return (uint64_t)pages - r->found_pages + a->reserve > e->pages.n - idle ? QUEUE_TOO_LARGE : QUEUE_FITS;
}

/* The waiting requests that are no further samples, as the queue sees them. */
static uint32_t list_queue(FtxEngine *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->waiting.n; i += e->waits[i].together) {
        const Waits *w = &e->waits[i];

        e->queued[n] = i;
        e->queue[n++] = (QueueItem){.priority = w->priority,
                                    .preempted = w->preempted,
                                    .served = e->fair.at[w->fair_entry].served,
                                    .passed = w->passed};
    }
    return n;
}

/* The index of the waiting request that runs next; waiting.n: none can now. passed: it is admitted, so those that it
 * passes count that. */
static uint32_t next_to_admit(FtxEngine *e, bool passed)
{
    uint32_t too_large[QUEUE_MOST_PASSED], n_too_large, n, next;
    Admission a = {.e = e};

    if (!e->waiting.n || !e->free_slots)
        return e->waiting.n;
    a.reserve = grow_reserve(e);
    n = list_queue(e);
    next = queue_next(e->queue, n, e->queue_heap, fits_now, &a, too_large, &n_too_large);
    if (next == n)
        return e->waiting.n;
    for (uint32_t i = 0; i < n_too_large && passed; i++)
        e->waits[e->queued[too_large[i]]].passed = (uint16_t)++e->waiting.at[e->queued[too_large[i]]]->passed;
    return e->queued[next];
}

bool schedule_can_admit(FtxEngine *e)
{
    return next_to_admit(e, false) < e->waiting.n;
}

/* A further sample shares the first one's whole prompt pages, and its source. */
static void follow(FtxEngine *e, Request *r)
{
    r->encoded = true;
    r->source_slot = r->leader->source_slot;
    if (e->facts->sources)
        e->source_users[r->source_slot]++;
    r->found_pages = e->recurrent ? 0 : r->leader->found_pages;
    memcpy(r->pages, r->leader->pages, r->shared_pages * sizeof *r->pages);
}

uint32_t schedule_shared(const Request *r)
{
    return r->leader ? r->shared_pages : r->found_pages;
}

FtxStatus schedule_place(FtxEngine *e, Request *r, FtxError *err)
{
    const uint32_t shared = schedule_shared(r);
    FtxStatus s = FTX_OK;
    bool taken;

    if (r->grows)
        r->n_pages = grow_does(r) ? grow_first(e, r) : r->own_pages;
    if (r->leader) {
        follow(e, r);
    } else if (e->facts->sources) {
        r->source_slot = e->free_source[--e->free_sources];
        e->source_users[r->source_slot] = 1;
    }
    pages_share(&e->pages, r->pages, shared); /* before others are taken: they may be idle */
    taken = pages_take(&e->pages, r->pages + shared, r->n_pages - shared);
    assert(taken && e->free_slots); /* schedule_can_admit */
    (void)taken;
    r->slot = e->free_slot[--e->free_slots];
    s = grow_clean(e, r->pages + shared, r->n_pages - shared, err);
    r->fed = swap_in(e, r, shared);
    r->placed = r->fed;
    r->checked = false;
    r->known_pages = shared;
    r->cached = r->preemptions ? r->cached : (int)(r->found_pages * e->facts->kv_block);
    if (!s)
        s = snapshots_begin(e, r, err);
    if (!s && r->fed)
        s = table_put(e, &e->history, r->slot, 0, r->ids, (uint32_t)r->fed, err);
    if (!s)
        s = table_put(e, &e->page_table, r->slot, 0, r->pages, r->grows ? r->n_pages : r->own_pages, err);
    if (!s && r->params.n_words)
        s = table_put(e, &e->word_table, r->slot, 0, r->bad_words, (uint32_t)r->params.n_words, err);
    return s || !r->beam.width ? s : beams_place(e, r, err);
}

FtxStatus schedule_tell(FtxEngine *e, FtxError *err)
{
    FtxStatus s = table_send(e, &e->page_table, err);

    if (!s)
        s = table_send(e, &e->word_table, err);
    return s ? s : table_send(e, &e->group_table, err);
}

void schedule_release(FtxEngine *e, Request *r)
{
    grow_doubt(e, r);
    snapshots_leave(e, r);
    pages_give(&e->pages, r->pages, r->n_pages);
    e->free_slot[e->free_slots++] = r->slot;
    if (e->facts->sources && --e->source_users[r->source_slot] == 0)
        e->free_source[e->free_sources++] = r->source_slot;
    beams_release(e, r);
}

FtxStatus schedule_admit(FtxEngine *e, FtxError *err)
{
    FtxStatus s = FTX_OK;

    for (uint32_t i; !s && (i = next_to_admit(e, true)) < e->waiting.n;)
        for (uint32_t n = e->waiting.at[i]->together; n && !s; n--) {
            Request *r = e->waiting.at[i];

            submit_leave(e, r);
            r->state = REQUEST_RUNNING;
            r->began = r->began > 0.0 ? r->began : engine_now();
            list_add(&e->running, r);
            s = schedule_place(e, r, err);
            if (!r->leader && !r->preemptions) {
                e->stats.requests++;
                e->stats.prompt_tokens += (uint64_t)r->prompt;
                e->stats.cached_tokens += (uint64_t)r->cached;
                fair_serve(&e->fair, r->fair_entry, (uint64_t)(r->prompt - r->cached));
            }
        }
    return s;
}

/* --- sources ------------------------------------------------------------------------------------------ */

/* Packs the sources of running requests from i on, as many as one step takes; returns the next i. */
static uint32_t pack_sources(FtxEngine *e, uint32_t i, FtxStep *step)
{
    *step = (FtxStep){0};
    for (; i < e->running.n; i++) {
        Request *r = e->running.at[i];
        FtxToken *token = (FtxToken *)engine_io(e, FTX_NAMED_token) + step->tokens;

        if (r->encoded)
            continue;
        if (step->tokens + r->n_source > (int)e->facts->tokens)
            break;
        ((FtxRow *)engine_io(e, FTX_NAMED_rows))[step->rows] = (FtxRow){
            .q_start = step->tokens,
            .q_len = r->n_source,
            .kv_len = r->n_source,
            .slot = r->slot,
            .src_len = r->n_source,
            .src_slot = r->source_slot,
            .group = step->rows,
        };
        for (int k = 0; k < r->n_source; k++)
            token[k] = (FtxToken){r->source[k], k, step->rows, 0};
        step->rows++;
        step->tokens += r->n_source;
        r->encoded = true;
    }
    *(FtxStep *)engine_io(e, FTX_NAMED_step) = *step;
    return i;
}

FtxStatus schedule_encode(FtxEngine *e, FtxError *err)
{
    FtxStatus s = FTX_OK;
    FtxStep step = {0};

    if (e->facts->kind != FTX_MODEL_SEQ2SEQ)
        return FTX_OK;
    for (uint32_t i = 0; i < e->running.n && !s;) {
        i = pack_sources(e, i, &step);
        if (step.rows == 0)
            return FTX_OK;
        s = e->api->upload(e->session, schedule_live_bytes(e, step.tokens, 0), err);
        if (!s)
            s = e->api->run(e->session, schedule_found_program(&e->encode, step.tokens), step.tokens, step.rows, 1,
                            err);
        if (!s)
            s = e->api->settle(e->session, err); /* because IO is written again for the next step */
    }
    return s;
}

/* --- composition -------------------------------------------------------------------------------------- */

/* It has tokens to read before it gets a new one: a prompt, or all that it had when it was preempted. */
static bool is_prompt(const FtxEngine *e, const Request *r)
{
    return r->fed < r->prompt || (!e->by_role && r->fed < r->length - 1);
}

/* Whether attention of the row is computed as that of generated tokens. That kernel may read the cache before the step has
 * written it, so it gets no row that sees tokens of other rows. */
static bool is_decode(const FtxEngine *e, const Row *w)
{
    return w->count == 1 && !w->scored && (!e->by_role || w->from >= w->request->prompt);
}

/* A further sample starts only after a step in which the first one fed the shared tokens: attention may read the
 * cache while the kernel that appends to it still runs. Log-probabilities of the prompt come before any new token. */
static void start_samples(FtxEngine *e)
{
    for (uint32_t i = 0; i < e->running.n; i++) {
        Request *r = e->running.at[i];

        if (r->leader && r->leader->fed >= r->fed && !score_pending(r->leader))
            r->leader = NULL;
    }
}

static Row row_of(Request *r, int count)
{
    const bool emit = r->fed + count >= r->length;

    return (Row){.request = r, .count = count, .from = r->fed, .emit = emit};
}

/* Puts decode rows, of one token, first: then token t belongs to row t. */
static void order_rows(FtxEngine *e, const Row *rows, int n)
{
    Flight *f = &e->flight;
    int first = 0;

    f->rows = 0;
    for (int decode = 1; decode >= 0; decode--)
        for (int i = 0; i < n; i++)
            if (is_decode(e, &rows[i]) == decode) {
                f->row[f->rows] = rows[i];
                f->row[f->rows++].first = first;
                first += rows[i].count;
            }
    f->tokens = first;
}

/* The running requests as batch_share sees them. A sample that waits for its leader needs nothing yet, and nothing more
 * does one that ends with the run that is not read yet. */
static void list_batch(FtxEngine *e)
{
    for (uint32_t i = 0; i < e->running.n; i++) {
        const Request *r = e->running.at[i];

        e->batch[i] = (BatchItem){0};
        if (r->length >= r->limit)
            continue;
        if (!is_prompt(e, r))
            e->batch[i].lanes = r->beam.width ? r->beam.width : 1;
        else if (!r->leader && !score_pending(r) && r != e->scored)
            e->batch[i] = (BatchItem){.need = snapshots_cut(e, r, (e->by_role ? r->prompt : r->length) - r->fed),
                                      .whole = e->facts->whole_prompts && r->fed < r->prompt ? r->prompt - r->fed : 0,
                                      .started = r->fed > r->placed && !r->wants_prompt};
    }
}

/* Prompts need not begin a size of a GPU's programs with a few tokens. A processor's take time by the token. */
static int fit_budget(const FtxEngine *e, int budget, int decode)
{
    const int rows = 128; /* of a tile of matrix products with many rows, ours and cuBLASLt's */
    BatchSizes sizes = {.bucket = e->step.bucket, .n = e->step.n, .tile = rows};
    int need = 0;

    if (!e->api->asynchronous)
        return budget;
    while (sizes.n && sizes.bucket[sizes.n - 1] == 0) /* programs of any size */
        sizes.n--;
    for (uint32_t i = 0; i < e->running.n; i++)
        need += e->batch[i].need;
    return batch_fit(budget, (int)e->facts->tokens, decode, need, &sizes);
}

/* Tokens of the next step. A prompt that is read in one step may need them all: where it does not fit beside the sequences that
 * decode, these wait. */
static int budget_of(FtxEngine *e)
{
    const int most = (int)e->facts->tokens;
    int decode = 0;
    bool waits = false;

    for (uint32_t i = 0; i < e->running.n; i++)
        decode += e->batch[i].lanes;
    if (!e->facts->whole_prompts)
        return fit_budget(e, pace_tokens(&e->pace, decode, most), decode);
    for (uint32_t i = 0; i < e->running.n; i++)
        waits = waits || e->batch[i].whole > most - decode;
    for (uint32_t i = 0; i < e->running.n && waits; i++)
        e->batch[i].lanes = 0;
    return most;
}

void schedule_compose(FtxEngine *e)
{
    Row *rows = e->scratch_rows;
    int n = 0;

    start_samples(e);
    list_batch(e);
    batch_share(e->batch, (int)e->running.n, budget_of(e), e->shares);
    for (uint32_t i = 0; i < e->running.n; i++) {
        Request *r = e->running.at[i];
        const int lanes = e->batch[i].lanes, count = lanes ? 1 : e->shares[i];

        for (int lane = 0; lane < (lanes ? lanes : count > 0); lane++) {
            rows[n] = row_of(r, count);
            rows[n++].lane = lane;
        }
        r->fed += count;
    }
    order_rows(e, rows, n);
    start_samples(e); /* for the next step: the first sample may end before it */
}

/* Chooses a decode program if every row brings one token and gets one. The device can repeat it without the host. */
static void choose_program(FtxEngine *e)
{
    Flight *f = &e->flight;
    bool decode = true, grows = false;

    f->most = 0;
    f->masked = false;
    for (int i = 0; i < f->rows; i++) {
        const Row *w = &f->row[i];
        const int left = w->request->limit - (w->from + w->count);

        decode = decode && is_decode(e, w) && w->emit;
        /* the host reads logits or states after this step, or a beam search gets rows for its other lanes */
        grows = grows || engine_reads_logits(w->request) || states_wait(w->request, w->from) ||
                ((w->request->wants_logits || w->request->beam.width) && w->emit &&
                 w->from + w->count == w->request->prompt);
        f->most = left > f->most ? left : f->most;
        f->masked = f->masked || (w->emit && w->request->masked);
    }
    for (int i = 0; i < f->rows; i++) {
        const Row *w = &f->row[i];
        const int room = grow_room(e, w->request) - (w->from + w->count);

        if (grow_does(w->request) && room < w->request->limit - (w->from + w->count) && room < f->most)
            f->most = room; /* then the request gets more pages */
    }
    decode = decode && schedule_program(&e->decode, f->tokens, &f->program);
    if (!decode)
        f->program = schedule_found_program(&e->step, f->tokens);
    for (uint32_t i = 0; i < e->running.n; i++) /* they have steps of their own */
        grows = grows || score_pending(e->running.at[i]) || e->running.at[i] == e->scored;
    f->again = decode && e->api->asynchronous && !grows;
}

/* --- the IO block -------------------------------------------------------------------------------------- */

static void write_row(FtxEngine *e, int i)
{
    const FtxFacts *f = e->facts;
    const Row *w = &e->flight.row[i];
    const Request *r = w->request;
    const int slot = w->lane ? r->lane[w->lane] : r->slot;
    FtxToken *token = (FtxToken *)engine_io(e, FTX_NAMED_token) + w->first;

    ((FtxRow *)engine_io(e, FTX_NAMED_rows))[i] = (FtxRow){
        .q_start = w->first,
        .q_len = w->count,
        .kv_len = w->from + w->count,
        .slot = slot,
        .emit = w->emit && !r->beam.width,
        .prompt = r->prompt,
        .limit = r->limit,
        .src_len = r->n_source,
        .src_slot = r->source_slot,
        .group = i - w->lane,
        .lane = r->beam.width ? w->lane : -1,
    };
    if (f->beams > 1) {
        FtxBeam *beam = (FtxBeam *)engine_io(e, FTX_NAMED_beams) + i;

        *beam = r->beam;
        beam->emit = r->beam.width && w->emit;
    }
    ((FtxParams *)engine_io(e, FTX_NAMED_params))[i] = r->params;
    memcpy((int32_t *)engine_io(e, FTX_NAMED_ends) + (size_t)i * f->end_ids, r->ends,
           (size_t)r->params.n_ends * sizeof *r->ends);
    memcpy((FtxBias *)engine_io(e, FTX_NAMED_bias) + (size_t)i * f->logit_bias, r->bias,
           (size_t)r->params.n_bias * sizeof *r->bias);
    for (int k = 0; k < w->count; k++) {
        const int pos = w->from + k;

        token[k] = (FtxToken){r->beam.width && pos >= r->prompt ? e->lanes[slot].token : r->ids[pos], pos, i, slot};
    }
}

/* Clears old results: a row of this flight may have the length of an earlier one. */
static void clear_out(FtxEngine *e)
{
    for (int ring = 0; ring < FTX_OUT_RING; ring++)
        for (int i = 0; i < e->flight.rows; i++)
            e->out[(size_t)ring * e->facts->sequences + (size_t)i].length = -1;
}

/* The part of IO that this step fills: buffers are in the order of named.def, tokens and biases last. */
size_t schedule_live_bytes(const FtxEngine *e, int tokens, int biased_rows)
{
    const uint64_t *at = e->plan->named;

    for (int i = 0; i < FTX_NAMED_bias; i++)
        if (at[i] > at[i + 1])
            return e->plan->space_bytes[FTX_SPACE_IO];
    if (biased_rows)
        return at[FTX_NAMED_bias] + sizeof(FtxBias) * e->facts->logit_bias * (uint64_t)biased_rows;
    return at[FTX_NAMED_token] + sizeof(FtxToken) * (uint64_t)tokens;
}

/* Only the device knows which token a lane brings next. */
static FtxStatus read_lanes(FtxEngine *e, FtxError *err)
{
    for (int i = 0; i < e->flight.rows; i++)
        if (e->flight.row[i].request->beam.width && e->flight.row[i].from >= e->flight.row[i].request->prompt)
            return e->api->read(e->session, FTX_NAMED_lanes, 0, e->lanes, e->facts->sequences * sizeof *e->lanes, err);
    return FTX_OK;
}

FtxStatus schedule_write(FtxEngine *e, FtxError *err)
{
    Flight *f = &e->flight;
    FtxStep *step = engine_io(e, FTX_NAMED_step);
    const FtxStatus s = read_lanes(e, err);
    int biased = 0; /* rows up to the last that has biases */

    if (s)
        return s;
    choose_program(e);
    f->issued = f->taken = f->finished = 0;
    f->stop = false;
    *step = (FtxStep){.tokens = f->tokens, .rows = f->rows};
    f->decode = 0;
    for (int i = 0; i < f->rows; i++) {
        f->decode += is_decode(e, &f->row[i]);
        step->processors |= !f->row[i].request->params.simple;
        biased = f->row[i].request->params.n_bias ? i + 1 : biased;
        write_row(e, i);
    }
    step->decode_rows = f->decode;
    f->bytes = schedule_live_bytes(e, f->tokens, biased);
    return FTX_OK;
}

/* The tokens that have landed since schedule_write: of a row of one token behind its request's prompt. */
static void write_landed(FtxEngine *e)
{
    const Flight *f = &e->flight;

    for (int i = 0; i < f->rows && f->row[i].count == 1; i++) {
        const Row *w = &f->row[i];

        if (w->from >= w->request->prompt && !w->request->beam.width)
            ((FtxToken *)engine_io(e, FTX_NAMED_token) + w->first)->id = w->request->ids[w->from];
    }
}

FtxStatus schedule_send(FtxEngine *e, FtxError *err)
{
    write_landed(e);
    clear_out(e);
    e->flight.pending = true;
    return e->api->upload(e->session, e->flight.bytes, err);
}
