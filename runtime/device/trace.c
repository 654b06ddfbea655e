/* trace.c - a recorder: when each call of the host, each kernel and each copy began and ended. */
#include "trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../base/file.h"

enum {
    LANES = 8, /* kernels that overlap stand on tracks of their own */
    PIECE = 1 << 16,
};

int64_t trace_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

FtxStatus trace_open(const Memory *m, size_t room, void (*log)(void *user, int level, const char *text), void *log_user,
                     Trace **out, FtxError *err)
{
    const size_t most = SIZE_MAX / 2 / sizeof(TraceEvent), bytes = sizeof(Trace) + room * sizeof(TraceEvent);
    Trace *t = room < most ? memory_alloc(m, bytes, 64) : NULL;

    *out = t;
    if (!t)
        return memory_fail(err, "a trace", room < most ? bytes : SIZE_MAX);
    t->memory = *m;
    t->bytes = bytes;
    t->log = log;
    t->log_user = log_user;
    t->room = room;
    t->start = trace_now();
    return FTX_OK;
}

void trace_close(Trace *t)
{
    if (!t)
        return;

    const Memory m = t->memory;

    memory_free(&m, t, t->bytes);
}

/* --- events --------------------------------------------------------------------------------------- */

/* "launch layer 0: up: linear__x T=4 S=2: 12.3 us at 0.104512 s" */
static void tell(const Trace *t, const TraceEvent *e)
{
    char text[600], live[40] = "", bytes[40] = "";

    if (e->T)
        snprintf(live, sizeof live, " T=%d S=%d", e->T, e->S);
    if (e->bytes)
        snprintf(bytes, sizeof bytes, ", %llu bytes", (unsigned long long)e->bytes);
    snprintf(text, sizeof text, "%s %s%s%.300s%s%s: %.1f us at %.6f s",
             e->kernel                ? "launch"
             : e->track == TRACE_HOST ? "host"
                                      : "device",
             e->name, e->kernel ? ": " : "", e->kernel ? e->kernel : "", live, bytes, (double)(e->to - e->from) * 1e-3,
             (double)(e->from - t->start) * 1e-9);
    t->log(t->log_user, 0, text);
}

void trace_add(Trace *t, TraceEvent e)
{
    if (t->log)
        tell(t, &e);
    if (t->n < t->room)
        t->event[t->n++] = e;
    else
        t->dropped++;
}

void trace_host(Trace *t, const char *name, int64_t from)
{
    trace_add(t, (TraceEvent){.from = from, .to = trace_now(), .name = name, .track = TRACE_HOST});
}

/* --- the file ------------------------------------------------------------------------------------- */

typedef struct Out {
    FileOut *file;
    FtxStatus status;
    FtxError *err;
    size_t n;
    char text[PIECE];
} Out;

static void send(Out *o)
{
    if (!o->status)
        o->status = file_write(o->file, o->text, o->n, o->err);
    o->n = 0;
}

/* At most PIECE / 4 bytes. */
static void put(Out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(Out *o, const char *format, ...)
{
    va_list ap;

    if (o->n > PIECE / 2)
        send(o);
    va_start(ap, format);
    o->n += (size_t)vsnprintf(o->text + o->n, PIECE / 4, format, ap);
    va_end(ap);
}

/* A JSON string. Names come from an artifact: what is not ASCII or would end the string is replaced. */
static void put_string(Out *o, const char *s)
{
    const size_t n = strnlen(s, 1000);

    put(o, "\"");
    for (size_t i = 0; i < n; i++)
        put(o, "%c", s[i] >= ' ' && s[i] < 127 && s[i] != '"' && s[i] != '\\' ? s[i] : '?');
    put(o, "\"");
}

static void put_name(Out *o, const char *what, int track, const char *name)
{
    put(o, "{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":", track, what);
    put_string(o, name);
    put(o, "}},\n");
}

static double us(const Trace *t, int64_t at)
{
    return (double)(at - t->start) * 1e-3;
}

/* An arrow from a run on the host to the first kernel that it has caused. */
static void put_arrow(Out *o, const Trace *t, const char *end, const TraceEvent *e, int track)
{
    put(o, ",\n{\"ph\":%s,\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"id\":%u,\"cat\":\"run\",\"name\":\"run\"}", end, track,
        us(t, e->from), e->run);
}

static void put_event(Out *o, const Trace *t, const TraceEvent *e, int track)
{
    const char *kind = e->track == TRACE_HOST ? "host" : e->kernel ? "kernel" : e->bytes ? "copy" : "program";
    const char *comma = "";

    put(o, "{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":", track,
        us(t, e->from), (double)(e->to - e->from) * 1e-3, kind);
    put_string(o, e->name);
    put(o, ",\"args\":{");
    if (e->kernel) {
        put(o, "\"kernel\":");
        put_string(o, e->kernel);
        comma = ",";
    }
    if (e->run)
        put(o, "%s\"run\":%u", comma, e->run);
    comma = e->run ? "," : comma;
    if (e->T)
        put(o, "%s\"T\":%d,\"S\":%d", comma, e->T, e->S);
    comma = e->T ? "," : comma;
    if (e->bytes)
        put(o, "%s\"bytes\":%llu", comma, (unsigned long long)e->bytes);
    put(o, "}}");
}

/* The lane of an event of the device: the first whose last event is over. Programmatic dependent launch lets a kernel
 * begin before the previous one ends, and events of one track may not overlap by halves. */
static int lane_of(int64_t *ends, const TraceEvent *e)
{
    int lane = 0;

    while (lane < LANES - 1 && e->from < ends[lane])
        lane++;
    ends[lane] = e->to;
    return lane;
}

static void put_events(Out *o, const Trace *t)
{
    int64_t ends[LANES] = {0};
    uint32_t reached = 0; /* the last run whose first kernel has been seen */

    for (size_t i = 0; i < t->n; i++) {
        const TraceEvent *e = &t->event[i];
        const int track = e->track == TRACE_HOST ? 1 : 2 + lane_of(ends, e);

        put(o, ",\n");
        put_event(o, t, e, track);
        if (e->run && e->track == TRACE_HOST) {
            put_arrow(o, t, "\"s\"", e, track);
        } else if (e->run > reached) {
            put_arrow(o, t, "\"f\",\"bp\":\"e\"", e, track);
            reached = e->run;
        }
    }
}

FtxStatus trace_write(const Trace *t, const char *model, const char *device, const char *path, FtxError *err)
{
    Out o = {.err = err};
    char lane[40];

    o.status = file_create(path, &o.file, err);
    if (o.status)
        return o.status;
    put(&o, "{\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"version\":\"ftxc %s\",\"model\":", ftx_version());
    put_string(&o, model);
    put(&o, ",\"device\":");
    put_string(&o, device);
    put(&o, ",\"device_times\":");
    put_string(&o, t->note);
    put(&o, ",\"dropped_events\":%llu},\n\"traceEvents\":[\n", (unsigned long long)t->dropped);
    put_name(&o, "thread_name", 1, "host");
    for (int i = 0; i < LANES; i++) {
        snprintf(lane, sizeof lane, i ? "device, overlapping %d" : "device", i);
        put_name(&o, "thread_name", 2 + i, lane);
    }
    put(&o, "{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"process_name\",\"args\":{\"name\":");
    put_string(&o, model);
    put(&o, "}}");
    put_events(&o, t);
    put(&o, "\n]}\n");
    send(&o);
    if (o.status) {
        file_abort(o.file);
        return o.status;
    }
    return file_commit(o.file, err);
}
