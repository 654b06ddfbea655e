/* wait.c - waits for a GPU that may never answer.
 *
 * cuStreamSynchronize on a stream whose kernel hangs does not return. So the runtime polls, and gives the GPU up
 * after FTX_PATIENCE seconds. Then it calls nothing for this device any more: destroying a stream or freeing memory
 * waits as well. The process keeps that memory until it ends. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "../../base/team.h"

enum { RANK_PAUSES = 64 }; /* between polls of a rank: each takes a lock that the launches of the other ranks need */
static const double spin_seconds = 0.02; /* then the thread sleeps between polls ... */
static const long nap_ns = 50 * 1000;    /* ... for this long */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static CUresult ask(const CudaDriver *cu, CUstream stream, CUevent event)
{
    return event ? cu->cuEventQuery(event) : cu->cuStreamQuery(stream);
}

static bool is_stopped(const Session *s)
{
    return s && __atomic_load_n(&s->report->stop, __ATOMIC_ACQUIRE);
}

/* Whether the wait of one of several ranks ends before its work does. */
static bool is_over(Session *s, double waited)
{
    return is_stopped(s) || (s && s->links && cuda_ranks_over(s, waited));
}

/* CUDA_ERROR_NOT_READY: the time limit has passed, or the ranks have stopped (ranks: the session of one of several). */
static CUresult wait_until_done(const CudaDriver *cu, CUstream stream, CUevent event, double patience, Session *ranks)
{
    CUresult r = ask(cu, stream, event);
    double from = 0.0, waited = 0.0;

    if (r != CUDA_ERROR_NOT_READY)
        return r;
    from = now();
    if (ranks)
        ranks->since = ranks->next_look = ranks->next_probe = 0.0;
    do {
        if (waited > spin_seconds)
            nanosleep(&(struct timespec){0, nap_ns}, NULL);
        else
            for (int i = 0; i < (ranks ? RANK_PAUSES : 1); i++)
                team_pause();
        r = ask(cu, stream, event);
        waited = now() - from;
    } while (r == CUDA_ERROR_NOT_READY && (patience <= 0 || waited < patience) && !is_over(ranks, waited));
    return r;
}

static FtxStatus wait_for(Device *d, CUstream stream, CUevent event, int programs, Session *ranks, FtxError *err,
                          const char *what)
{
    const CUresult r =
        d->lost ? CUDA_ERROR_NOT_READY : wait_until_done(d->cu, stream, event, (double)d->patience * programs, ranks);

    if (r != CUDA_ERROR_NOT_READY)
        return cuda_check(d->cu, r, err, "%s", what);
    if (ranks && ranks->failed.status)
        return ftx_fail(err, ranks->failed.status, "%s", ranks->failed.text);
    if (is_stopped(ranks))
        return ftx_fail(err, FTX_EDEVICE, "another rank has failed");
    d->lost = true;
    return ftx_fail(err, FTX_EDEVICE,
                    "%s: the GPU has not answered for %d s (FTX_PATIENCE); it is given up; its memory is freed when "
                    "the process ends",
                    what, d->patience * programs);
}

FtxStatus cuda_wait_stream(Device *d, CUstream stream, int programs, FtxError *err, const char *what, ...)
{
    char text[300];
    va_list ap;

    va_start(ap, what);
    vsnprintf(text, sizeof text, what, ap);
    va_end(ap);
    return wait_for(d, stream, NULL, programs, NULL, err, text);
}

FtxStatus cuda_wait_event(Device *d, CUevent event, FtxError *err, const char *what)
{
    return wait_for(d, NULL, event, 1, NULL, err, what);
}

FtxStatus cuda_wait_session(Session *s, CUevent event, int programs, FtxError *err, const char *what)
{
    if (s->links && is_stopped(s))
        cuda_ranks_leave(s); /* else the work would not end */
    return wait_for(s->device, s->stream, event, programs, s->report && !is_stopped(s) ? s : NULL, err, what);
}
#endif
