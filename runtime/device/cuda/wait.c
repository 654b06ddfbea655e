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

static bool is_set(const unsigned *stop)
{
    return stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE);
}

/* CUDA_ERROR_NOT_READY: the time limit has passed, or *stop is set. */
static CUresult wait_until_done(const CudaDriver *cu, CUstream stream, CUevent event, double patience,
                                const unsigned *stop)
{
    CUresult r = ask(cu, stream, event);
    double from = 0.0, waited = 0.0;

    if (r != CUDA_ERROR_NOT_READY)
        return r;
    from = now();
    do {
        if (waited > spin_seconds)
            nanosleep(&(struct timespec){0, nap_ns}, NULL);
        else
            for (int i = 0; i < (stop ? RANK_PAUSES : 1); i++)
                team_pause();
        r = ask(cu, stream, event);
        waited = now() - from;
    } while (r == CUDA_ERROR_NOT_READY && (patience <= 0 || waited < patience) && !is_set(stop));
    return r;
}

static FtxStatus wait_for(Device *d, CUstream stream, CUevent event, int programs, const unsigned *stop, FtxError *err,
                          const char *what)
{
    const CUresult r =
        d->lost ? CUDA_ERROR_NOT_READY : wait_until_done(d->cu, stream, event, (double)d->patience * programs, stop);

    if (r != CUDA_ERROR_NOT_READY)
        return cuda_check(d->cu, r, err, "%s", what);
    if (is_set(stop))
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
    const unsigned *stop = s->report && !is_set(&s->report->stop) ? &s->report->stop : NULL;

    return wait_for(s->device, s->stream, event, programs, stop, err, what);
}
#endif
