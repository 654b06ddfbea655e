/* model.c - a served model: its engine on a thread of its own, and the jobs that wait for it.
 *
 *     served_submit ─lock─▶ arrived ─ftx_engine_submit─▶ active ─ftx_engine_step─▶ Job.event
 *
 * Jobs go to the engine as soon as its queue has room: the engine decides which of them begins. */
#include "model.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runner/command.h"
#include "../runtime/base/arena.h"

typedef struct Engine {
    Served *m;
    FtxEngine *engine;
    QueueLimits limits;
    pthread_t thread;
    pthread_mutex_t lock; /* of all until `active` */
    pthread_cond_t arrived;
    Job *first, **last; /* arrived: not yet the engine's */
    size_t waiting, waiting_tokens;
    FtxStats stats;             /* of the engine, after its last step */
    size_t given, given_tokens; /* samples that the engine has been given since then, and their tokens */
    double mean_seconds;        /* of a job, the late ones count more */
    bool stop, failed;
    atomic_bool unwanted; /* some jobs may be, whatever `gone` says */
    /* the engine's thread */
    Job *active;
    unsigned gone; /* exchanges_gone() when all jobs were looked at last */
} Engine;

/* Jobs that run alone count as one sample. */
static int samples_of(const Job *j)
{
    return !j->run && j->request.samples > 1 ? j->request.samples : 1;
}

static bool unwanted(const Job *j)
{
    return j->dropped || exchange_gone(j->exchange);
}

/* --- the queue ------------------------------------------------------------------------------------------- */

/* Requests that have not begun; the lock is held. */
static size_t all_waiting(const Engine *e)
{
    return e->waiting + e->given + e->stats.waiting;
}

static double expected_wait(const Engine *e, size_t more)
{
    return e->mean_seconds * (double)(all_waiting(e) + more) / (double)e->m->info.sequences;
}

int served_submit(Served *m, Job *const *jobs, size_t n, int *retry)
{
    Engine *e = m->engine;
    size_t tokens = 0;
    int status = 0;

    for (size_t i = 0; i < n; i++)
        tokens += jobs[i]->prompt_tokens;
    pthread_mutex_lock(&e->lock);
    *retry = (int)fmin(60.0, fmax(1.0, ceil(expected_wait(e, 1))));
    if (e->failed)
        status = 503;
    else if (all_waiting(e) &&
             (all_waiting(e) + n > (size_t)e->limits.requests ||
              e->waiting_tokens + e->given_tokens + e->stats.waiting_tokens + tokens > e->limits.tokens ||
              expected_wait(e, n) > e->limits.seconds))
        status = 429;
    for (size_t i = 0; !status && i < n; i++) {
        Job *j = jobs[i];

        j->arrived = command_seconds();
        j->next = NULL;
        *e->last = j;
        e->last = &j->next;
        e->waiting++;
        e->waiting_tokens += j->prompt_tokens;
        if (unwanted(j)) /* its client was counted before it came */
            atomic_store(&e->unwanted, true);
    }
    pthread_cond_signal(&e->arrived);
    pthread_mutex_unlock(&e->lock);
    return status;
}

bool served_alive(Served *m)
{
    bool failed;

    pthread_mutex_lock(&m->engine->lock);
    failed = m->engine->failed;
    pthread_mutex_unlock(&m->engine->lock);
    return !failed;
}

void served_load(Served *m, size_t *waiting, FtxStats *stats)
{
    Engine *e = m->engine;

    pthread_mutex_lock(&e->lock);
    *waiting = e->waiting + e->given;
    *stats = e->stats;
    pthread_mutex_unlock(&e->lock);
}

/* Takes the job behind *at out of the queue; the lock is held. */
static Job *take(Engine *e, Job **at)
{
    Job *j = *at;

    *at = j->next;
    if (e->last == &j->next)
        e->last = at;
    e->waiting--;
    e->waiting_tokens -= j->prompt_tokens;
    return j;
}

/* Ends jobs that nobody wants any more: those that have not begun go to *gone, the others are cancelled. */
static void end_unwanted(Engine *e, Job **gone)
{
    const unsigned now = exchanges_gone();

    if (now == e->gone && !atomic_load(&e->unwanted))
        return;
    e->gone = now; /* who goes from here on is counted behind it */
    atomic_store(&e->unwanted, false);
    pthread_mutex_lock(&e->lock);
    for (Job **at = &e->first; *at;) {
        if (unwanted(*at)) {
            Job *lost = take(e, at);

            lost->next = *gone;
            *gone = lost;
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&e->lock);
    for (Job *j = e->active; j; j = j->next)
        if (unwanted(j))
            ftx_engine_cancel(e->engine, j->id, NULL); /* it has been cancelled already, if this fails */
}

/* The engine takes a job of so many samples; the lock is held. */
static bool has_room(const Engine *e, int samples)
{
    return e->stats.waiting + e->given + (size_t)samples <= e->m->options.queue_requests;
}

/* The first job if there is room for it; NULL: none can begin. */
static Job *next_job(Engine *e)
{
    Job *j = NULL;

    pthread_mutex_lock(&e->lock);
    while (!e->first && !e->active && !e->stop)
        pthread_cond_wait(&e->arrived, &e->lock);
    if (e->first && !e->stop && (e->first->run ? !e->active : has_room(e, samples_of(e->first)))) {
        j = take(e, &e->first);
        e->given += j->run ? 0 : (size_t)samples_of(j);
        e->given_tokens += j->run ? 0 : j->prompt_tokens;
    }
    pthread_mutex_unlock(&e->lock);
    return j;
}

static void publish(Engine *e)
{
    const FtxStats stats = ftx_engine_stats(e->engine);

    pthread_mutex_lock(&e->lock);
    e->stats = stats;
    e->given = e->given_tokens = 0;
    pthread_mutex_unlock(&e->lock);
}

/* --- the engine's thread --------------------------------------------------------------------------------- */

/* Counts a job that has ended. This comes before its last words, so that a client finds itself in /metrics. */
static void count_job(Engine *e, Job *j, FtxFinish finish)
{
    const double now = command_seconds();

    metrics_job(&e->m->metrics, finish, now - j->arrived, j->begun > 0.0 ? j->begun - j->arrived : now - j->arrived,
                j->first > 0.0 ? j->first - j->begun : 0.0, j->first > 0.0 ? now - j->first : 0.0, j->prompt_tokens,
                j->new_tokens, samples_of(j));
    if (j->begun > 0.0) {
        pthread_mutex_lock(&e->lock);
        e->mean_seconds += (now - j->begun - e->mean_seconds) * (e->mean_seconds > 0.0 ? 0.125 : 1.0);
        pthread_mutex_unlock(&e->lock);
    }
}

/* Others of its request were dropped with it. */
static void note_dropped(Engine *e, const Job *j)
{
    if (j->dropped)
        atomic_store(&e->unwanted, true);
}

static void fail_job(Engine *e, Job *j, int status, const char *why)
{
    count_job(e, j, FTX_FINISH_ERROR);
    j->fail(j, status, why);
    note_dropped(e, j);
    j->free(j);
}

static int status_of(FtxStatus s)
{
    return s == FTX_EINVAL || s == FTX_EFULL ? 400 : 500;
}

static FtxStatus begin_job(Engine *e, Job *j, FtxError *err)
{
    FtxStatus s;

    j->given = command_seconds();
    j->running = samples_of(j);
    j->request.user = j;
    if (j->run) {
        j->begun = j->given;
        publish(e);
        s = j->run(j, e->engine, err);
        if (s) {
            fail_job(e, j, status_of(s), err->text);
        } else {
            count_job(e, j, FTX_FINISH_END);
            j->free(j);
        }
    } else {
        if (j->request.deadline_ms) /* the rest of it */
            j->request.deadline_ms = (int)fmax(1.0, j->request.deadline_ms - (j->given - j->arrived) * 1e3);
        s = ftx_engine_submit(e->engine, &j->request, &j->id, err);
        if (s) {
            fail_job(e, j, status_of(s), err->text);
        } else {
            j->next = e->active;
            e->active = j;
        }
    }
    return s == FTX_EINVAL || s == FTX_EFULL ? FTX_OK : s;
}

static void take_event(Engine *e, const FtxEvent *ev)
{
    Job *j = ev->user;
    const FtxHypothesis *best = NULL;
    const double now = command_seconds();
    size_t n, tokens = ev->token >= 0;

    if (ev->hypotheses) {
        best = ftx_engine_hypotheses(e->engine, ev->request, &n);
        tokens = best ? best->count : 0;
    }
    if (ev->queued_seconds < ev->seconds)
        j->begun = j->given + ev->queued_seconds;
    metrics_tokens(&e->m->metrics, tokens, j->new_tokens ? -1.0 : now - j->arrived,
                   j->new_tokens && tokens ? now - j->last : -1.0);
    if (tokens && !j->new_tokens) {
        j->first = now;
        j->prompt_tokens = ev->prompt_tokens;
    }
    j->new_tokens += tokens;
    j->last = now;
    if (ev->finish != FTX_RUNNING) {
        j->running--;
        for (Job **at = &e->active; !j->running && *at; at = &(*at)->next)
            if (*at == j) {
                *at = j->next;
                break;
            }
        publish(e);
        if (!j->running)
            count_job(e, j, ev->finish);
    }
    j->event(j, ev, best);
    note_dropped(e, j);
    if (!j->running)
        j->free(j);
}

/* All jobs fail; the engine can only be closed. */
static void give_up(Engine *e, const char *why)
{
    Job *j, *waiting;

    pthread_mutex_lock(&e->lock);
    e->failed = true;
    waiting = e->first;
    e->first = NULL;
    e->last = &e->first;
    e->waiting = e->waiting_tokens = 0;
    pthread_mutex_unlock(&e->lock);
    while ((j = e->active)) {
        e->active = j->next;
        fail_job(e, j, 500, why);
    }
    while ((j = waiting)) {
        waiting = j->next;
        fail_job(e, j, 500, why);
    }
    publish(e);
    command_print("%s: %s: the engine has failed and takes no more requests: %s\n", command_program, e->m->name, why);
}

static FtxStatus step(Engine *e, FtxEvent *events, FtxError *err)
{
    size_t n = 0;
    FtxStatus s;

    s = ftx_engine_step(e->engine, events, (size_t)e->m->info.sequences, &n, err);
    if (s)
        return s; /* give_up tells all jobs */
    for (size_t i = 0; i < n; i++)
        take_event(e, &events[i]);
    if (n)
        metrics_step(&e->m->metrics, n);
    return FTX_OK;
}

static void *serve_engine(void *user)
{
    Engine *e = user;
    FtxEvent *events = command_must(calloc((size_t)e->m->info.sequences + 1, sizeof *events));
    FtxError err = {0};

    events->size = sizeof *events;
    while (!e->failed) {
        Job *gone = NULL, *j;
        FtxStatus s = FTX_OK;

        end_unwanted(e, &gone);
        while (!s && (j = next_job(e))) {
            s = begin_job(e, j, &err);
            end_unwanted(e, &gone);
        }
        while ((j = gone)) {
            gone = j->next;
            count_job(e, j, FTX_FINISH_CANCEL);
            j->free(j);
        }
        if (!s && e->active)
            s = step(e, events, &err);
        publish(e);
        if (s)
            give_up(e, err.text);
        pthread_mutex_lock(&e->lock);
        s = e->stop;
        pthread_mutex_unlock(&e->lock);
        if (s)
            break;
    }
    free(events);
    return NULL;
}

/* --- start and stop ---------------------------------------------------------------------------------------- */

/* Requests that wait in the engine: all that may, and at least the samples of one. */
static int queue_room(const Engine *e)
{
    const int least = e->m->info.sequences, most = 65536;

    return e->limits.requests < least ? least : e->limits.requests < most ? e->limits.requests : most;
}

bool served_start(Served *m, const QueueLimits *limits, FtxError *err)
{
    Engine *e = command_must(calloc(1, sizeof *e));

    e->m = m;
    e->limits = *limits;
    e->last = &e->first;
    if (m->info.sequences < 1)
        m->info.sequences = 1; /* an encoder runs one job at a time */
    if (!e->limits.requests)
        e->limits.requests = 4 * m->info.sequences;
    m->options.queue_requests = (size_t)queue_room(e);
    if (ftx_engine_open(m->model, &m->options, &e->engine, err)) {
        free(e);
        return false;
    }
    ftx_model_info(m->model, &m->info); /* the engine has decided how many tokens the KV cache holds */
    m->info.sequences = m->info.sequences < 1 ? 1 : m->info.sequences;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->arrived, NULL);
    metrics_open(&m->metrics);
    m->engine = e;
    if (pthread_create(&e->thread, NULL, serve_engine, e)) {
        snprintf(err->text, sizeof err->text, "no thread can be started");
        err->status = FTX_ENOMEM;
        ftx_engine_close(e->engine);
        free(e);
        m->engine = NULL;
        return false;
    }
    return true;
}

void served_stop(Served *m)
{
    Engine *e = m->engine;

    if (e) {
        Job *lists[2], *next;

        pthread_mutex_lock(&e->lock);
        e->stop = true;
        pthread_cond_signal(&e->arrived);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
        lists[0] = e->first;
        lists[1] = e->active;
        for (size_t i = 0; i < LEN(lists); i++)
            for (Job *j = lists[i]; j; j = next) {
                next = j->next;
                j->free(j);
            }
        ftx_engine_close(e->engine);
        pthread_mutex_destroy(&e->lock);
        pthread_cond_destroy(&e->arrived);
        metrics_close(&m->metrics);
        free(e);
    }
    ftx_model_close(m->model);
}
