/* submit.c - requests in and out of the queue: submitted, cancelled, too late, ended. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "engine.h"

double engine_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint32_t submit_waiting(const FtxEngine *e)
{
    return e->waiting.n + e->ending.n;
}

/* Adds r's part to what is counted of those that wait, or takes it away. */
static void count_waiting(FtxEngine *e, const Request *r, bool waits)
{
    const uint64_t tokens = r->together ? (uint64_t)r->prompt : 0;

    e->waiting_tokens += waits ? tokens : -tokens;
    e->waiting_swapped += r->kept_pages ? waits ? 1 : -1 : 0;
}

/* When r has waited too long; a preempted one has begun. */
static double late_at(const Request *r)
{
    return r->deadline > 0.0 && !r->preemptions ? r->submitted + r->deadline : INFINITY;
}

void submit_wait(FtxEngine *e, Request *r, bool first)
{
    const uint32_t at = first ? 0 : e->waiting.n;

    memmove(&e->waits[at + 1], &e->waits[at], (e->waiting.n - at) * sizeof *e->waits);
    e->waits[at] = (Waits){.priority = r->priority,
                           .fair_entry = r->fair_entry,
                           .together = (uint16_t)r->together,
                           .passed = (uint16_t)r->passed,
                           .preempted = r->preemptions > 0};
    if (first)
        list_add_first(&e->waiting, r);
    else
        list_add(&e->waiting, r);
    e->first_late = fmin(e->first_late, late_at(r));
    r->state = REQUEST_WAITING;
    count_waiting(e, r, true);
}

void submit_leave(FtxEngine *e, Request *r)
{
    const uint32_t at = list_find(&e->waiting, r);

    memmove(&e->waits[at], &e->waits[at + 1], (e->waiting.n - 1 - at) * sizeof *e->waits);
    list_remove(&e->waiting, r);
    count_waiting(e, r, false);
}

bool submit_has_room(const FtxEngine *e, const Request *r)
{
    if (submit_waiting(e) + r->together > e->most_waiting)
        return false;
    return !e->waiting.n || !e->most_waiting_tokens ||
           e->waiting_tokens + (uint64_t)r->prompt <= e->most_waiting_tokens;
}

FtxStatus submit_too_many(const FtxEngine *e, uint32_t samples, FtxError *err)
{
    return ftx_fail(err, FTX_EINVAL, "samples: %u, but only %u requests may wait (FtxOptions.queue_requests)", samples,
                    e->most_waiting);
}

void submit_enter(FtxEngine *e, Request *r, uint64_t fair_key)
{
    const uint32_t n = r->together;

    for (uint32_t i = 0; i < n; i++) {
        Request *one = r;

        if (i) {
            one = list_last(&e->unused, 0);
            e->unused.n--;
            request_follow(e, one, r, (int)i);
        }
        one->fair_entry = fair_enter(&e->fair, fair_key);
        submit_wait(e, one, false);
    }
}

FtxStatus ftx_engine_submit(FtxEngine *e, const FtxRequest *request, uint64_t *id, FtxError *err)
{
    FtxRequest q;
    uint32_t n = 1;
    Request *r;
    FtxStatus s;

    if (e->dead.status)
        return ftx_fail(err, e->dead.status, "%s", e->dead.text);
    if (!request)
        return ftx_fail(err, FTX_EINVAL, "ftx_engine_submit: request is NULL");
    if (e->facts->kind == FTX_MODEL_ENCODER)
        return ftx_fail(err, FTX_EINVAL, "the model is an encoder: it gives vectors, see ftx_engine_encode");
    s = request_read(e->model, request, &q, err);
    if (s)
        return s;
    if (q.samples > 1 && (uint32_t)q.samples <= e->slots)
        n = (uint32_t)q.samples; /* request_fill refuses more */
    if (n > e->most_waiting)
        return submit_too_many(e, n, err);
    if (submit_waiting(e) + n > e->most_waiting)
        return ftx_fail(err, FTX_EFULL, "%u requests wait already: step the engine, then submit again",
                        submit_waiting(e));
    r = list_last(&e->unused, 0);
    inbox_read_begin(e);
    s = request_fill(e, r, &q, err);
    inbox_read_end(e);
    if (s)
        return s;
    if (e->waiting.n && e->most_waiting_tokens && e->waiting_tokens + (uint64_t)r->prompt > e->most_waiting_tokens)
        return ftx_fail(err, FTX_EFULL, "%llu tokens of prompts wait already: step the engine, then submit again",
                        (unsigned long long)e->waiting_tokens);
    r->id = atomic_fetch_add(&e->next_id, 1);
    r->submitted = engine_now();
    r->began = r->first = 0.0;
    e->unused.n--;
    submit_enter(e, r, q.fair_key);
    if (id)
        *id = r->id;
    return FTX_OK;
}

/* Takes r out of the queue. Its event is still to come. */
static void end_waiting(FtxEngine *e, Request *r, FtxFinish finish)
{
    submit_leave(e, r);
    list_add(&e->ending, r);
    r->state = REQUEST_ENDING;
    r->ended = finish;
}

FtxStatus ftx_engine_cancel(FtxEngine *e, uint64_t id, FtxError *err)
{
    bool found = false;

    for (uint32_t i = 0; i < e->requests && id; i++) { /* all its samples */
        Request *r = &e->request[i];

        if (r->id != id || r->cancelled || (r->state != REQUEST_WAITING && r->state != REQUEST_RUNNING))
            continue;
        found = r->cancelled = true;
        if (r->state == REQUEST_WAITING)
            end_waiting(e, r, FTX_FINISH_CANCEL);
    }
    return found ? FTX_OK : ftx_fail(err, FTX_EINVAL, "request %llu neither waits nor runs", (unsigned long long)id);
}

/* --- ends ---------------------------------------------------------------------------------------------- */

FtxEvent *submit_add_event(Events *v, const Request *r)
{
    FtxEvent *e = &v->at[v->n++];
    const double now = engine_now(), began = r->began > 0.0 ? r->began : now;

    *e = (FtxEvent){.size = sizeof *e,
                    .request = r->id,
                    .user = r->user,
                    .sample = r->params.sample,
                    .token = -1,
                    .text = "",
                    .prompt_tokens = (size_t)(r->n_source ? r->n_source : r->prompt),
                    .cached_tokens = (size_t)r->cached,
                    .queued_seconds = began - r->submitted,
                    .first_seconds = r->first > 0.0 ? r->first - r->submitted : 0.0,
                    .seconds = now - r->submitted};
    return e;
}

static void retire(FtxEngine *e, Request *r)
{
    list_add(&e->unused, r);
    r->state = REQUEST_FREE;
    r->leader = NULL;
    r->found_pages = 0;
    r->grows = false;
    swap_drop(e, r);
    fair_leave(&e->fair, r->fair_entry);
}

void submit_end_running(FtxEngine *e, Request *r)
{
    for (int i = 0; i < e->flight.rows; i++)
        if (e->flight.row[i].request == r) {
            e->flight.row[i].request = NULL;
            e->flight.stop = true;
        }
    schedule_release(e, r);
    list_remove(&e->running, r);
    retire(e, r);
}

bool submit_is_late(const Request *r, double now)
{
    return r->deadline > 0.0 && !r->preemptions && now - r->submitted >= r->deadline; /* a preempted one has begun */
}

/* Requests that have not begun by their deadline end. */
static void end_late(FtxEngine *e)
{
    const double now = e->waiting.n ? engine_now() : 0.0;

    if (now < e->first_late)
        return;
    e->first_late = INFINITY;
    for (uint32_t i = 0; i < e->waiting.n;) {
        Request *r = e->waiting.at[i];

        if (submit_is_late(r, now)) {
            end_waiting(e, r, FTX_FINISH_DEADLINE);
        } else {
            e->first_late = fmin(e->first_late, late_at(r));
            i++;
        }
    }
}

void submit_end_others(FtxEngine *e, Events *v)
{
    end_late(e);
    while (e->ending.n && v->n < v->max) {
        Request *r = e->ending.at[0];

        submit_add_event(v, r)->finish = r->ended;
        list_remove(&e->ending, r);
        retire(e, r);
    }
    for (uint32_t i = 0; i < e->running.n;) {
        Request *r = e->running.at[i];

        if (!r->cancelled || v->n == v->max) {
            i++;
            continue;
        }
        submit_add_event(v, r)->finish = FTX_FINISH_CANCEL;
        submit_end_running(e, r);
    }
}
