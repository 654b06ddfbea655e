/* activity.c - when each kernel and copy of a stream ran, by CUPTI, which is loaded when first needed.
 *
 * CUPTI asks for buffers, fills them and gives them back, from any thread. It writes records of its own version; the
 * fields that are read here have the same place in all since CUDA 11.6. */
#include "activity.h"

#ifdef FTX_HAVE_CUDA
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cupti_table.h"
#include "../trace.h"

enum {
    OLDEST = 18, /* cuptiGetVersion of CUDA 12.0 */
    BUFFERS = 8,
    BUFFER_BYTES = 1 << 20,
};

struct Activities {
    Memory memory;
    size_t bytes;
    uint32_t context, stream, default_stream; /* as CUPTI numbers them */
    int64_t ahead;                            /* ns from CUPTI's clock to ours */
    size_t n, taken, room;                    /* rows from `taken` on have not been returned */
    uint64_t dropped;
    Activity row[];
};

static struct {
    pthread_mutex_t lock;
    const CuptiTable *replaced;
    bool tried;
    FtxError why; /* status FTX_OK: the table is whole */
    CuptiTable table;
    Activities *active; /* NULL: nothing is recorded */
    bool lent[BUFFERS];
} cupti = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint8_t buffers[BUFFERS][BUFFER_BYTES] __attribute__((aligned(8)));

static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMSET};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* --- the library ---------------------------------------------------------------------------------- */

static FtxStatus load_cupti(CuptiTable *t, FtxError *err)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    const char *missing = NULL;
    uint32_t version = 0;
    char why[500];
    void *library = cuda_library_open(names, sizeof names / sizeof *names, why, sizeof why);

    if (!library)
        return ftx_fail(err, FTX_ENODEVICE, "no CUPTI on this machine: %s", why);
#define F(name) \
    *(void **)&t->name = dlsym(library, #name); \
    if (!t->name) \
        missing = #name;
    CUPTI_FUNCTIONS(F)
#undef F
    if (!missing && !t->cuptiGetVersion(&version) && version >= OLDEST)
        return FTX_OK; /* the library stays for as long as the process */
    dlclose(library);
    return missing
               ? ftx_fail(err, FTX_ENODEVICE, "CUPTI has no %s", missing)
               : ftx_fail(err, FTX_ENODEVICE, "CUPTI is too old: version %u, needed is %d (CUDA 12)", version, OLDEST);
}

static FtxStatus find_cupti(const CuptiTable **out, FtxError *err)
{
    *out = cupti.replaced;
    if (*out)
        return FTX_OK;
    if (!cupti.tried)
        cupti.why.status = load_cupti(&cupti.table, &cupti.why);
    cupti.tried = true;
    if (cupti.why.status)
        return ftx_fail(err, cupti.why.status, "%s", cupti.why.text);
    *out = &cupti.table;
    return FTX_OK;
}

void activity_replace(const CuptiTable *table)
{
    pthread_mutex_lock(&cupti.lock);
    cupti.replaced = table;
    pthread_mutex_unlock(&cupti.lock);
}

FtxStatus activity_find(FtxError *err)
{
    const CuptiTable *table;
    FtxStatus s;

    pthread_mutex_lock(&cupti.lock);
    s = find_cupti(&table, err);
    pthread_mutex_unlock(&cupti.lock);
    return s;
}

static const CuptiTable *table_in_use(void)
{
    return cupti.replaced ? cupti.replaced : &cupti.table;
}

static FtxStatus check_cupti(const CuptiTable *t, CUptiResult r, const char *what, FtxError *err)
{
    const char *text = NULL;

    if (r == CUPTI_SUCCESS)
        return FTX_OK;
    t->cuptiGetResultString(r, &text);
    return ftx_fail(err, FTX_EDEVICE, "%s: %s", what, text ? text : "CUPTI error");
}

/* --- records -------------------------------------------------------------------------------------- */

static void add_row(Activities *a, uint64_t from, uint64_t to, const char *name, uint64_t bytes)
{
    if (!to) /* it was not timed */
        return;
    if (a->n < a->room)
        a->row[a->n++] = (Activity){(int64_t)from + a->ahead, (int64_t)to + a->ahead, name, bytes};
    else
        a->dropped++;
}

static const char *copy_name(uint8_t kind)
{
    return kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy from the host"
           : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
           : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD ? "copy on the GPU"
                                                     : "copy";
}

static bool ours(const Activities *a, uint32_t context, uint32_t stream)
{
    return context == a->context && (stream == a->stream || stream == a->default_stream);
}

static void take_record(Activities *a, const CUpti_Activity *r)
{
    if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || r->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
        const CUpti_ActivityKernel6 *k = (const void *)r;

        if (k->contextId == a->context && k->streamId == a->stream)
            add_row(a, k->start, k->end, k->name, 0);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy4 *c = (const void *)r;

        if (ours(a, c->contextId, c->streamId))
            add_row(a, c->start, c->end, copy_name(c->copyKind), c->bytes);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset3 *c = (const void *)r;

        if (ours(a, c->contextId, c->streamId))
            add_row(a, c->start, c->end, "clear", c->bytes);
    }
}

static void CUPTIAPI lend(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = NULL; /* all are lent: CUPTI drops records, and counts them */
    *size = *most = 0;
    pthread_mutex_lock(&cupti.lock);
    for (int i = 0; i < BUFFERS && !*buffer; i++) {
        if (!cupti.lent[i]) {
            cupti.lent[i] = true;
            *buffer = buffers[i];
            *size = BUFFER_BYTES;
        }
    }
    pthread_mutex_unlock(&cupti.lock);
}

static void CUPTIAPI take_back(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;

    (void)size;
    pthread_mutex_lock(&cupti.lock);

    const CuptiTable *t = table_in_use();

    while (cupti.active && valid && t->cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        take_record(cupti.active, record);
    if (cupti.active && t->cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
        cupti.active->dropped += dropped;
    cupti.lent[(size_t)(buffer - buffers[0]) / BUFFER_BYTES] = false;
    pthread_mutex_unlock(&cupti.lock);
}

/* --- open, take, close ---------------------------------------------------------------------------- */

/* The distance between the clocks, by the quickest of some readings. */
static FtxStatus compare_clocks(const CuptiTable *t, Activities *a, FtxError *err)
{
    int64_t least = INT64_MAX;
    FtxStatus s = FTX_OK;

    for (int i = 0; i < 20 && !s; i++) {
        const int64_t from = trace_now();
        uint64_t theirs = 0;

        s = check_cupti(t, t->cuptiGetTimestamp(&theirs), "CUPTI's clock", err);

        const int64_t took = trace_now() - from;

        if (took < least) {
            least = took;
            a->ahead = from + took / 2 - (int64_t)theirs;
        }
    }
    return s;
}

static void disable(const CuptiTable *t)
{
    for (int i = 0; i < KINDS; i++)
        t->cuptiActivityDisable(kinds[i]);
}

static FtxStatus start(const CuptiTable *t, Activities *a, CUcontext context, CUstream stream, FtxError *err)
{
    FtxStatus s = check_cupti(t, t->cuptiActivityRegisterCallbacks(lend, take_back), "registering with CUPTI", err);

    if (!s)
        s = check_cupti(t, t->cuptiGetContextId(context, &a->context), "CUPTI's number of the context", err);
    if (!s)
        s = check_cupti(t, t->cuptiGetStreamIdEx(context, stream, 0, &a->stream), "CUPTI's number of the stream", err);
    if (!s)
        s = check_cupti(t, t->cuptiGetStreamIdEx(context, NULL, 0, &a->default_stream), "CUPTI's number of the stream",
                        err);
    if (!s)
        s = compare_clocks(t, a, err);
    for (int i = 0; i < KINDS && !s; i++)
        s = check_cupti(t, t->cuptiActivityEnable(kinds[i]), "recording by CUPTI", err);
    if (s)
        disable(t);
    return s;
}

/* Finds CUPTI and takes it for `a`. */
static FtxStatus take_cupti(Activities *a, const CuptiTable **t, FtxError *err)
{
    FtxStatus s;

    pthread_mutex_lock(&cupti.lock);
    s = find_cupti(t, err);
    if (!s && cupti.active)
        s = ftx_fail(err, FTX_EDEVICE, "CUPTI records another engine of this process");
    if (!s)
        cupti.active = a;
    pthread_mutex_unlock(&cupti.lock);
    return s;
}

static void leave_cupti(void)
{
    pthread_mutex_lock(&cupti.lock);
    cupti.active = NULL;
    pthread_mutex_unlock(&cupti.lock);
}

FtxStatus activity_open(const Memory *m, CUcontext context, CUstream stream, size_t room, Activities **out,
                        FtxError *err)
{
    const size_t bytes = sizeof(Activities) + room * sizeof(Activity); /* a Trace has more, and was allocated */
    Activities *a = memory_alloc(m, bytes, 64);
    const CuptiTable *t;
    FtxStatus s;

    *out = NULL;
    if (!a)
        return memory_fail(err, "a trace", bytes);
    a->memory = *m;
    a->bytes = bytes;
    a->room = room;
    s = take_cupti(a, &t, err);
    if (!s) {
        s = start(t, a, context, stream, err);
        if (s)
            leave_cupti();
    }
    if (s) {
        memory_free(m, a, bytes);
        return s;
    }
    *out = a;
    return FTX_OK;
}

static int by_begin(const void *x, const void *y)
{
    const Activity *a = x, *b = y;

    return a->from != b->from ? a->from < b->from ? -1 : 1 : a->to < b->to ? -1 : a->to > b->to;
}

FtxStatus activity_take(Activities *a, const Activity **rows, size_t *n, uint64_t *dropped, FtxError *err)
{
    const CuptiTable *t = table_in_use();
    const FtxStatus s =
        check_cupti(t, t->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "CUPTI's records", err);

    pthread_mutex_lock(&cupti.lock);
    memmove(a->row, a->row + a->taken, (a->n - a->taken) * sizeof *a->row);
    a->n -= a->taken;
    a->taken = a->n;
    qsort(a->row, a->n, sizeof *a->row, by_begin);
    *rows = a->row;
    *n = a->n;
    *dropped = a->dropped;
    a->dropped = 0;
    pthread_mutex_unlock(&cupti.lock);
    return s;
}

void activity_close(Activities *a)
{
    if (!a)
        return;

    const CuptiTable *t = table_in_use();
    const Memory m = a->memory;

    disable(t);
    t->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); /* so that all buffers come back */
    leave_cupti();
    memory_free(&m, a, a->bytes);
}
#endif
