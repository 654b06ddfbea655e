/* fake_cupti.c - a CUPTI that records what the fake driver does, on a clock of its own. */
#include <string.h>
#include <time.h>

#include "fake_parts.h"
#include "runtime/device/cuda/activity.h"
#include "runtime/device/cuda/cupti_table.h"

enum { RECORDS = 4096, IN_A_BUFFER = 3 };

typedef union Record {
    CUpti_Activity any;
    CUpti_ActivityKernel10 kernel; /* those of CUDA 13: longer than the ones that are read */
    CUpti_ActivityMemcpy6 copy;
    CUpti_ActivityMemset4 clear;
} Record;

static Record records[RECORDS];
static size_t n_records;
static bool enabled[CUPTI_ACTIVITY_KIND_COUNT];
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;

static uint64_t their_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec + FAKE_CUPTI_AHEAD;
}

static uint32_t number(CUstream s)
{
    return s ? (uint32_t)(uintptr_t)s : 7;
}

static Record *add(CUpti_ActivityKind kind)
{
    if (!enabled[kind] || n_records == RECORDS)
        return NULL;
    memset(&records[n_records], 0, sizeof *records);
    records[n_records].any.kind = kind;
    return &records[n_records++];
}

void fake_cupti_kernel(CUstream s, const char *name)
{
    Record *r = add(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);

    if (!r)
        return;
    r->kernel.start = their_clock();
    r->kernel.end = r->kernel.start + 10;
    r->kernel.contextId = 1;
    r->kernel.streamId = number(s);
    r->kernel.name = name;
}

void fake_cupti_copy(CUstream s, int kind, size_t bytes)
{
    Record *r = add(CUPTI_ACTIVITY_KIND_MEMCPY);

    if (!r)
        return;
    r->copy.start = their_clock();
    r->copy.end = r->copy.start + 10;
    r->copy.contextId = 1;
    r->copy.streamId = number(s);
    r->copy.copyKind = (uint8_t)kind;
    r->copy.bytes = bytes;
}

void fake_cupti_clear(CUstream s, size_t bytes)
{
    Record *r = add(CUPTI_ACTIVITY_KIND_MEMSET);

    if (!r)
        return;
    r->clear.start = their_clock();
    r->clear.end = r->clear.start + 10;
    r->clear.contextId = 1;
    r->clear.streamId = number(s);
    r->clear.bytes = bytes;
}

/* --- the functions -------------------------------------------------------------------------------- */

#define CUPTI_MAY_FAIL \
    do { \
        if (fake_fails(__func__)) \
            return CUPTI_ERROR_UNKNOWN; \
    } while (0)

static CUptiResult cupti_GetVersion(uint32_t *version)
{
    *version = 130001;
    return CUPTI_SUCCESS;
}

static CUptiResult cupti_GetResultString(CUptiResult r, const char **text)
{
    (void)r;
    *text = "CUPTI_ERROR_UNKNOWN, made to fail";
    return CUPTI_SUCCESS;
}

static CUptiResult cupti_GetTimestamp(uint64_t *t)
{
    CUPTI_MAY_FAIL;
    *t = their_clock();
    return CUPTI_SUCCESS;
}

static CUptiResult cupti_GetContextId(CUcontext context, uint32_t *id)
{
    (void)context;
    fake_need_context();
    CUPTI_MAY_FAIL;
    *id = 1;
    return CUPTI_SUCCESS;
}

static CUptiResult cupti_GetStreamIdEx(CUcontext context, CUstream s, uint8_t per_thread, uint32_t *id)
{
    (void)context, (void)per_thread;
    fake_need_context();
    CUPTI_MAY_FAIL;
    *id = number(s);
    return CUPTI_SUCCESS;
}

static CUptiResult cupti_RegisterCallbacks(CUpti_BuffersCallbackRequestFunc a, CUpti_BuffersCallbackCompleteFunc b)
{
    CUPTI_MAY_FAIL;
    request = a;
    complete = b;
    return CUPTI_SUCCESS;
}

static CUptiResult cupti_Enable(CUpti_ActivityKind kind)
{
    CUPTI_MAY_FAIL;
    if (!fake.cupti)
        return CUPTI_ERROR_UNKNOWN;
    enabled[kind] = true;
    return CUPTI_SUCCESS;
}

static CUptiResult cupti_Disable(CUpti_ActivityKind kind)
{
    enabled[kind] = false;
    return CUPTI_SUCCESS;
}

static CUptiResult cupti_FlushAll(uint32_t flag)
{
    if (flag != CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)
        return CUPTI_ERROR_UNKNOWN;
    for (size_t at = 0, n; at < n_records; at += n) {
        uint8_t *buffer;
        size_t size, most;

        n = n_records - at < IN_A_BUFFER ? n_records - at : IN_A_BUFFER;
        request(&buffer, &size, &most);
        if (!buffer || size < n * sizeof *records)
            return CUPTI_ERROR_UNKNOWN;
        memcpy(buffer, &records[at], n * sizeof *records);
        complete(NULL, 0, buffer, size, n * sizeof *records);
    }
    n_records = 0;
    return fake_fails(__func__) ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS;
}

static CUptiResult cupti_GetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + sizeof(Record) : buffer;

    if (next >= buffer + valid)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)next;
    return CUPTI_SUCCESS;
}

static CUptiResult cupti_GetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *n)
{
    (void)context, (void)stream;
    *n = fake.cupti_dropped;
    fake.cupti_dropped = 0;
    return CUPTI_SUCCESS;
}

void fake_install_cupti(void)
{
    static const CuptiTable table = {
        .cuptiGetVersion = cupti_GetVersion,
        .cuptiGetResultString = cupti_GetResultString,
        .cuptiGetTimestamp = cupti_GetTimestamp,
        .cuptiGetContextId = cupti_GetContextId,
        .cuptiGetStreamIdEx = cupti_GetStreamIdEx,
        .cuptiActivityRegisterCallbacks = cupti_RegisterCallbacks,
        .cuptiActivityEnable = cupti_Enable,
        .cuptiActivityDisable = cupti_Disable,
        .cuptiActivityFlushAll = cupti_FlushAll,
        .cuptiActivityGetNextRecord = cupti_GetNextRecord,
        .cuptiActivityGetNumDroppedRecords = cupti_GetNumDroppedRecords,
    };

    n_records = 0;
    memset(enabled, 0, sizeof enabled);
    activity_replace(&table);
}
