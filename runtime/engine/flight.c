/* flight.c - which runs are enqueued when, so that a GPU need not wait for the host.
 *
 *   device  ... N ────────────────▶ N+1 ───────────────▶ N+2
 *   host        compose N+1, wait ▶ send, tell N, compose N+2, wait ▶ send, tell N+1
 *
 * While a flight's rows stay the same, runs are enqueued ahead of the results (FTX_AHEAD). When they are to change,
 * the next flight is composed and written to the IO block while the last run of this one goes on: all that it depends
 * on is certain then, but which tokens come, and whether a text ends by one of them. Such a text's row is a ghost in
 * the next flight. When the run has landed, its tokens complete the IO block, the next flight is enqueued, and only
 * then are texts and events made of the results.
 *
 * Rows whose masks the device applies need the host within a run, so its launches are enqueued in two parts. The masks are
 * made while the layers run:
 *
 *   device   layers of N+1 ──────────▶ mask, sample │ layers of N+2 ──────────▶
 *   host     tell N, masks of N+1, copy, enqueue them │ and the layers of N+2
 *
 * Nothing is composed ahead where the host must know more: beam searches, log-probabilities of a prompt, translators'
 * sources, requests that must be preempted. */
#include "engine.h"

#include "../base/team.h"

/* The flight may be run once more as it is. */
static bool goes_on(FtxEngine *e)
{
    const Flight *f = &e->flight;

    return f->again && !f->stop && f->issued < f->most && !schedule_can_admit(e);
}

/* Between flights: composes and sends the next. */
static FtxStatus take_off(FtxEngine *e, Events *v, FtxError *err)
{
    Flight *f = &e->flight;
    FtxStatus s = f->pending ? e->api->wait(e->session, err) : FTX_OK;
    double from = engine_now(), apart;
    bool preempted = false;

    f->pending = false;
    f->rows = 0;
    if (!s && e->overcommit)
        s = grow_all(e, true, &preempted, err);
    if (!s && !preempted)
        s = schedule_admit(e, err);
    if (!s)
        s = schedule_tell(e, err);
    apart = engine_now();
    if (!s)
        s = schedule_encode(e, err);
    if (!s)
        s = score_prompt(e, v, err);
    if (s)
        return s;
    from += engine_now() - apart; /* steps of their own */
    schedule_compose(e);
    if (!f->rows)
        return FTX_OK;
    s = schedule_write(e, err);
    if (!s)
        s = schedule_send(e, err);
    e->stats.compose_seconds += engine_now() - from;
    return s;
}

/* How many runs to enqueue now: up to e->ahead, but not before a whole chain (FTX_CHAIN) fits. */
static int runs_now(FtxEngine *e)
{
    const Flight *f = &e->flight;

    if (f->masked) /* none behind a run whose second part is still to come */
        return f->issued == f->finished && (f->issued == 0 || goes_on(e));

    const int ahead = pace_runs(&e->pace, f->rows, e->ahead);
    const int left = f->most - f->issued, room = ahead - (f->issued - f->taken);
    const int n = left < room ? left : room;

    if (!f->again || (f->issued == 0 && !goes_on(e)))
        return f->issued == 0;
    if (!goes_on(e))
        return 0;
    return n == left || n >= FTX_CHAIN || ahead <= FTX_CHAIN || f->issued == f->taken ? n : 0;
}

/* When the runs that are under way have probably ended, less the time that the next flight takes the host. */
static double due(const FtxEngine *e)
{
    const double host = 0.5e-3;
    const Flight *f = &e->flight;

    return engine_now() + (f->issued - f->taken) * pace_step_us(&e->pace, f->decode, f->tokens - f->decode) * 1e-6 -
           host;
}

static FtxStatus enqueue_runs(FtxEngine *e, FtxError *err)
{
    Flight *f = &e->flight;
    const int n = runs_now(e);
    FtxStatus s;

    if (n && f->issued == 0) {
        f->sent = engine_now();
        e->stats.gap_seconds += e->landed_at > 0.0 ? f->sent - e->landed_at : 0.0;
    }
    f->issued += n;
    f->due = e->pace.n ? due(e) : 0.0;
    if (!n)
        return FTX_OK;
    if (f->masked)
        return e->api->begin(e->session, f->program, f->tokens, f->rows, err);
    s = e->api->run(e->session, f->program, f->tokens, f->rows, n, err);
    return s ? s : snapshots_enqueued(e, f, err);
}

/* Between steps of the caller, once it knows all tokens before this run's: its masks, its second part, and the next run's
 * first. */
static FtxStatus enqueue_masked(FtxEngine *e, FtxError *err)
{
    Flight *f = &e->flight;
    int first, n;
    FtxStatus s;

    if (f->finished == f->issued || f->finished > f->taken) /* the run before is still waited for */
        return FTX_OK;
    take_masks(e, f, &first, &n);
    s = e->api->finish(e->session, f->program, f->tokens, f->rows, first, n, err);
    f->finished++;
    if (!s)
        s = snapshots_enqueued(e, f, err);
    return s ? s : enqueue_runs(e, err);
}

/* --- the next flight while the last run of this one goes on ------------------------------------------------- */

/* All that the next flight depends on is certain but for tokens and ends. */
static bool is_certain(const FtxEngine *e)
{
    if (e->facts->kind != FTX_MODEL_DECODER || e->scored)
        return false;
    for (uint32_t i = 0; i < e->running.n; i++)
        if (e->running.at[i]->beam.width || score_pending(e->running.at[i]))
            return false;
    return true;
}

/* The requests of the flight as they are when its last run has landed. */
static void count_last_run(FtxEngine *e)
{
    const Flight *f = &e->flight;

    for (int i = 0; i < f->rows; i++) {
        const Row *w = &f->row[i];

        if (!w->request)
            continue;
        w->request->fed = w->from + w->count + f->issued - 1;
        if (w->emit) {
            w->request->length = w->request->fed + 1;
            w->request->unread = true;
        }
    }
}

static void swap_flights(FtxEngine *e)
{
    const Flight f = e->flight;

    e->flight = e->landing;
    e->landing = f;
}

/* Composes e->flight; the one whose last run goes on becomes e->landing. *ready: there is one. */
static FtxStatus compose_ahead(FtxEngine *e, bool *ready, FtxError *err)
{
    FtxStatus s = FTX_OK;
    bool short_of = false;

    count_last_run(e);
    if (e->overcommit)
        s = grow_all(e, false, &short_of, err);
    if (s || short_of)
        return s;
    s = schedule_admit(e, err);
    if (s || !is_certain(e)) /* one that was admitted may not be */
        return s;
    s = schedule_tell(e, err);
    if (!s)
        s = e->api->settle(e->session, err);
    if (s)
        return s;
    swap_flights(e);
    schedule_compose(e);
    *ready = e->flight.rows > 0;
    if (*ready)
        return schedule_write(e, err);
    swap_flights(e);
    return FTX_OK;
}

/* The last run of a flight: the next one is enqueued before the host looks at the texts of this one. */
static FtxStatus change(FtxEngine *e, Events *v, FtxError *err)
{
    const double from = engine_now();
    bool ready = false;
    FtxStatus s, told;
    Flight *f;

    e->flight.stop = true;
    s = compose_ahead(e, &ready, err);
    e->stats.compose_seconds += engine_now() - from;
    f = ready ? &e->landing : &e->flight;
    if (!s && ready) { /* also for rows whose results nobody waits for */
        s = e->api->wait(e->session, err);
        f->pending = false;
    }
    if (!s)
        s = take_land(e, f, err);
    if (s)
        return s;
    if (ready) {
        s = schedule_send(e, err);
        e->flight.stop = take_ends(e, f);
        if (!s)
            s = enqueue_runs(e, err);
    }
    told = take_tell(e, f, v, s ? NULL : err);
    return s ? s : told;
}

/* What arrives until the last run ends can still have a place in the next flight, so that is composed late. False: it is
 * too early, and the caller has its turn. */
static bool is_time(const FtxEngine *e)
{
    const double until = engine_now() + 0.2e-3;
    const Flight *f = &e->flight;

    while (engine_now() < f->due && !take_has_come(e, f)) {
        if (engine_now() > until)
            return false;
        team_pause();
    }
    return true;
}

FtxStatus flight_step(FtxEngine *e, Events *v, FtxError *err)
{
    Flight *f = &e->flight;
    FtxStatus s = FTX_OK;

    if (f->taken == f->issued && !goes_on(e))
        s = take_off(e, v, err);
    if (s || f->rows == 0)
        return s;
    s = enqueue_runs(e, err);
    if (!s && f->masked)
        s = enqueue_masked(e, err);
    if (s)
        return s;
    take_ask(e, f);
    if (e->api->asynchronous && f->issued - f->taken == 1 && !goes_on(e) && is_certain(e))
        return is_time(e) ? change(e, v, err) : FTX_OK;
    s = take_land(e, f, err);
    return s ? s : take_tell(e, f, v, err);
}
