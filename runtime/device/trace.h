/* trace.h - a recorder: when each call of the host, each kernel and each copy began and ended.
 *
 * Events are kept for a file in the trace-event format, which Perfetto and chrome://tracing read; or each is told to
 * the log (FTX_TRACE); or both. The engine's thread alone uses a Trace. Times are nanoseconds of CLOCK_MONOTONIC. */
#ifndef FTX_TRACE_H
#define FTX_TRACE_H

#include "../base/memory.h"
#include "device.h"

typedef enum TraceTrack { TRACE_HOST, TRACE_DEVICE } TraceTrack;

typedef struct TraceEvent {
    int64_t from, to;
    const char *name;   /* a call; the label of a launch ("layer 3: linear"). Valid as long as the model */
    const char *kernel; /* the entry of a kernel; NULL: no kernel */
    uint64_t bytes;     /* of a copy; 0: it is none */
    int T, S;           /* live tokens and rows of a program; 0: it is none */
    uint32_t run;       /* which call of DeviceApi.run has caused it, from 1; 0: none */
    TraceTrack track;
} TraceEvent;

struct Trace {
    Memory memory;
    size_t bytes; /* of this block */
    void (*log)(void *user, int level, const char *text);
    void *log_user;
    int64_t start;
    uint32_t runs;  /* calls of DeviceApi.run so far */
    char note[400]; /* how times of the device were taken */
    size_t n, room;
    uint64_t dropped; /* events for which there was no room */

    /* The session whose calls are recorded (traced.c). */
    DeviceApi api;
    const DeviceApi *traced;
    Session *session;
    TraceEvent event[]; /* [room] */
};

int64_t trace_now(void);

/* room: events that are kept. log: told each event; NULL: nobody is. */
FtxStatus trace_open(const Memory *m, size_t room, void (*log)(void *user, int level, const char *text), void *log_user,
                     Trace **out, FtxError *err);
void trace_close(Trace *t); /* NULL is fine */

void trace_add(Trace *t, TraceEvent e);
/* A call of the host, from then until now. */
void trace_host(Trace *t, const char *name, int64_t from);

/* Writes the events to a file, whole or not at all. */
FtxStatus trace_write(const Trace *t, const char *model, const char *device, const char *path, FtxError *err);

/* traced.c: t->api is then a table whose calls, with (Session *)t, are those of the session and are recorded, and
 * the session records its kernels. trace_leave ends that; FTX_EDEVICE: what the device did last is not known. */
FtxStatus trace_enter(Trace *t, const DeviceApi *api, Session *s, FtxError *err);
FtxStatus trace_leave(Trace *t, FtxError *err);

#endif
