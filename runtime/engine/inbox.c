/* inbox.c - requests and cancels from any thread (FtxOptions.inbox).
 *
 *   any thread     ftx_engine_post ─reading─▶ a free request is filled ─lock─▶ full, in order
 *   the engine's   ftx_engine_step ─lock─▶ full to waiting, while the queue has room; for each an unused one becomes free.
 *                                          What is cancelled or too late ends there
 *
 * `reading` is held while a request is read, which may take as long as its text is tokenized: the engine never waits for
 * it, but in ftx_engine_submit. `lock` is held for a few instructions. A request that is filled has no number (Request.id)
 * until the engine has it, since the engine looks at the numbers of all requests. */
#include <assert.h>
#include <errno.h>
#include <time.h>

#include "engine.h"

FtxStatus inbox_open(FtxEngine *e, uint32_t most, FtxError *err)
{
    Inbox *in = &e->inbox;
    pthread_condattr_t clock;

    if (!most)
        return FTX_OK;
    if (pthread_condattr_init(&clock) || pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) ||
        pthread_mutex_init(&in->reading, NULL) || pthread_mutex_init(&in->lock, NULL) ||
        pthread_cond_init(&in->changed, &clock))
        return ftx_fail(err, FTX_ENOMEM, "inbox: no lock can be made");
    pthread_condattr_destroy(&clock);
    in->most = most;
    for (uint32_t i = 0; i < most; i++) {
        list_add(&in->free, list_last(&e->unused, 0));
        e->unused.n--;
    }
    return FTX_OK;
}

void inbox_close(FtxEngine *e)
{
    Inbox *in = &e->inbox;

    if (!in->most)
        return;
    pthread_mutex_destroy(&in->reading);
    pthread_mutex_destroy(&in->lock);
    pthread_cond_destroy(&in->changed);
}

void inbox_read_begin(FtxEngine *e)
{
    if (e->inbox.most)
        pthread_mutex_lock(&e->inbox.reading);
}

void inbox_read_end(FtxEngine *e)
{
    if (e->inbox.most)
        pthread_mutex_unlock(&e->inbox.reading);
}

/* --- any thread -------------------------------------------------------------------------------------------- */

/* The engine sees the numbers without the lock. */
static void note_change(Inbox *in)
{
    atomic_store(&in->n, in->full.n + in->n_cancels);
    pthread_cond_signal(&in->changed);
}

/* NULL: there is none. */
static Request *take_free(Inbox *in)
{
    Request *r = NULL;

    pthread_mutex_lock(&in->lock);
    if (in->free.n) {
        r = list_last(&in->free, 0);
        in->free.n--;
    }
    pthread_mutex_unlock(&in->lock);
    return r;
}

static FtxStatus read_request(FtxEngine *e, Request *r, const FtxRequest *request, FtxError *err)
{
    FtxRequest q;
    FtxStatus s = request_read(e->model, request, &q, err);

    if (!s && q.samples > 0 && (uint32_t)q.samples > e->most_waiting && (uint32_t)q.samples <= e->slots)
        s = submit_too_many(e, (uint32_t)q.samples, err);
    if (!s)
        s = request_fill(e, r, &q, err);
    r->fair_key = s ? 0 : q.fair_key;
    return s;
}

FtxStatus ftx_engine_post(FtxEngine *e, const FtxRequest *request, uint64_t *id, FtxError *err)
{
    Inbox *in = &e->inbox;
    FtxStatus s;
    Request *r;

    if (!in->most)
        return ftx_fail(err, FTX_EINVAL, "ftx_engine_post: the engine was opened without an inbox (FtxOptions.inbox)");
    if (!request)
        return ftx_fail(err, FTX_EINVAL, "ftx_engine_post: request is NULL");
    r = take_free(in);
    if (!r)
        return ftx_fail(err, FTX_EFULL, "the inbox has %u requests already (FtxOptions.inbox): post again after a step",
                        in->most);
    pthread_mutex_lock(&in->reading);
    s = read_request(e, r, request, err);
    pthread_mutex_lock(&in->lock);
    if (!s && in->dead.status)
        s = ftx_fail(err, in->dead.status, "%s", in->dead.text);
    if (s) {
        list_add(&in->free, r);
    } else {
        r->posted = atomic_fetch_add(&e->next_id, 1);
        r->submitted = engine_now();
        r->began = r->first = 0.0;
        if (id)
            *id = r->posted;
        list_add(&in->full, r);
        note_change(in);
    }
    pthread_mutex_unlock(&in->lock);
    pthread_mutex_unlock(&in->reading);
    return s;
}

FtxStatus ftx_engine_post_cancel(FtxEngine *e, uint64_t id, FtxError *err)
{
    Inbox *in = &e->inbox;
    FtxStatus s = FTX_OK;
    uint32_t i = 0;

    if (!in->most || !id)
        return ftx_fail(err, FTX_EINVAL, "ftx_engine_post_cancel: %s",
                        id ? "the engine was opened without an inbox (FtxOptions.inbox)" : "no request has the id 0");
    pthread_mutex_lock(&in->lock);
    while (i < in->n_cancels && in->cancel[i] != id)
        i++;
    if (in->dead.status) {
        s = ftx_fail(err, in->dead.status, "%s", in->dead.text);
    } else if (i == e->requests) {
        s = ftx_fail(err, FTX_EFULL, "the inbox has %u cancels already: post again after a step", e->requests);
    } else if (i == in->n_cancels) {
        in->cancel[in->n_cancels++] = id;
        note_change(in);
    }
    pthread_mutex_unlock(&in->lock);
    return s;
}

void ftx_engine_wake(FtxEngine *e)
{
    Inbox *in = &e->inbox;

    if (!in->most)
        return;
    pthread_mutex_lock(&in->lock);
    in->woken = true;
    pthread_cond_signal(&in->changed);
    pthread_mutex_unlock(&in->lock);
}

/* --- the engine's thread -------------------------------------------------------------------------------------- */

bool ftx_engine_wait(FtxEngine *e, int ms)
{
    Inbox *in = &e->inbox;
    struct timespec until;

    if (!in->most || engine_busy(e) || e->dead.status)
        return engine_busy(e);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&in->lock);
    while (!in->full.n && !in->n_cancels && !in->woken)
        if (ms < 0)
            pthread_cond_wait(&in->changed, &in->lock);
        else if (pthread_cond_timedwait(&in->changed, &in->lock, &until) == ETIMEDOUT)
            break;
    in->woken = false;
    pthread_mutex_unlock(&in->lock);
    return engine_busy(e);
}

/* To the queue. An unused request takes its place in the inbox. */
static void enter(FtxEngine *e, Request *r)
{
    const bool cancelled = r->cancelled;
    Request *other;

    list_remove(&e->inbox.full, r);
    r->id = r->posted;
    r->cancelled = false;
    submit_enter(e, r, r->fair_key);
    assert(e->unused.n); /* slots + waiting + inbox requests in all */
    other = list_last(&e->unused, 0);
    e->unused.n--;
    other->id = 0;
    list_add(&e->inbox.free, other);
    if (cancelled)
        ftx_engine_cancel(e, r->id, NULL);
}

static void cancel(FtxEngine *e, uint64_t id)
{
    for (uint32_t i = 0; i < e->inbox.full.n; i++)
        if (e->inbox.full.at[i]->posted == id) {
            e->inbox.full.at[i]->cancelled = true;
            return;
        }
    ftx_engine_cancel(e, id, NULL); /* it may have ended */
}

/* A posted request ends in the inbox: an event for each of its samples. */
static void end_posted(FtxEngine *e, Request *r, FtxFinish finish, Events *v)
{
    r->id = r->posted;
    for (uint32_t i = 0; i < r->together && v->n < v->max; i++) {
        FtxEvent *event = submit_add_event(v, r);

        event->sample += (int)i;
        event->finish = finish;
    }
    r->id = 0;
    list_remove(&e->inbox.full, r);
    list_add(&e->inbox.free, r);
}

/* Those for which the queue may not have room for long. */
static void end_others(FtxEngine *e, Events *v)
{
    const double now = e->inbox.full.n ? engine_now() : 0.0;

    for (uint32_t i = 0; i < e->inbox.full.n;) {
        Request *r = e->inbox.full.at[i];

        if ((r->cancelled || submit_is_late(r, now)) && v->max - v->n >= r->together)
            end_posted(e, r, r->cancelled ? FTX_FINISH_CANCEL : FTX_FINISH_DEADLINE, v);
        else
            i++;
    }
}

void inbox_take(FtxEngine *e, Events *v)
{
    Inbox *in = &e->inbox;

    if (!in->most || !atomic_load(&in->n))
        return;
    pthread_mutex_lock(&in->lock);
    while (in->full.n && submit_has_room(e, in->full.at[0]))
        enter(e, in->full.at[0]);
    for (uint32_t i = 0; i < in->n_cancels; i++)
        cancel(e, in->cancel[i]);
    in->n_cancels = 0;
    end_others(e, v);
    atomic_store(&in->n, in->full.n);
    pthread_mutex_unlock(&in->lock);
}

void inbox_fail(FtxEngine *e, Events *v)
{
    Inbox *in = &e->inbox;

    if (!in->most)
        return;
    pthread_mutex_lock(&in->lock);
    in->dead = e->dead;
    while (in->full.n)
        end_posted(e, in->full.at[0], FTX_FINISH_ERROR, v);
    in->n_cancels = 0;
    atomic_store(&in->n, 0);
    pthread_mutex_unlock(&in->lock);
}
