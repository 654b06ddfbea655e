/* polled.c - simulates a host that polls for results while kernels run.
 *
 *   data data data flag     the host polls the flag; when it has changed, it reads the data once
 *
 * The host sees everything written before the launch. A write of this launch becomes visible to the host when a
 * thread for which the write happened before does a release or fence of system scope. Device scope makes it visible
 * to other blocks only. At the store of the flag the harness copies the bytes that the host may see by then and
 * reports those it may not see. Another write to the record in the same launch is reported too. */
#include "device/host.h"
#include "parts.h"

static struct {
    char *at, *seen; /* seen: the records as the host sees them */
    size_t bytes, flag, count;
    uint32_t *told; /* [count] the last launch that stored the record's flag */
} polled;

void polled_reset(void)
{
    free(polled.seen);
    free(polled.told);
    memset(&polled, 0, sizeof polled);
}

void simt_polled(void *p, size_t bytes, size_t flag, size_t count)
{
    polled_reset();
    polled.at = p;
    polled.bytes = bytes;
    polled.flag = flag;
    polled.count = count;
    polled.seen = malloc(bytes * count);
    polled.told = calloc(count, sizeof *polled.told);
    if (!polled.seen || !polled.told)
        abort();
}

const void *simt_host_saw(const void *record)
{
    const size_t i = (size_t)((const char *)record - polled.at) / polled.bytes;

    return polled.told[i] == run.id ? polled.seen + i * polled.bytes : NULL;
}

void polled_launch_begins(void)
{
    if (polled.count)
        memcpy(polled.seen, polled.at, polled.bytes * polled.count);
}

static bool is_polled(const void *p)
{
    return (size_t)((const char *)p - polled.at) < polled.bytes * polled.count;
}

/* Whether the host that sees the flag also sees an earlier write. order: of the current thread's store of the flag. */
static bool handed_over(int order, uint32_t writer, uint32_t clock)
{
    const Fiber *f = run.current;

    return SIMT_SANITIZED || ((order & SIMT_RELEASE) && (order & SIMT_SYSTEM) && know_of(f, writer, clock)) ||
           know_told(&f->system, writer, clock);
}

static void tell(size_t record, int order, const void *pc)
{
    const char *lost = NULL;

    for (size_t i = record * polled.bytes; i < (record + 1) * polled.bytes; i += GRAIN) {
        const size_t within = i - record * polled.bytes;
        uint32_t writer, clock;
        uint16_t value;

        if (within >= polled.flag && within < polled.flag + 4)
            continue;
        if (!memory_look(polled.at + i, &writer, &clock, &value))
            continue;
        if (handed_over(order, writer, clock))
            memcpy(polled.seen + i, &value, sizeof value);
        else
            lost = polled.at + i;
    }
    if (lost)
        report(SIMT_HOST, pc, NULL, "the host is told of a result that it may not see yet: %s", memory_where(lost));
    polled.told[record] = run.id;
}

void polled_flag(const unsigned *p, unsigned v, int order, const void *pc)
{
    const size_t at = (size_t)((const char *)p - polled.at);

    if (!is_polled(p) || at % polled.bytes != polled.flag)
        return;
    tell(at / polled.bytes, order, pc);
    memcpy(polled.seen + at, &v, sizeof v);
}

void polled_write(const void *p, size_t bytes, bool plain, const void *pc)
{
    const size_t at = (size_t)((const char *)p - polled.at), record = polled.bytes ? at / polled.bytes : 0;
    const size_t flag = record * polled.bytes + polled.flag;

    if (!is_polled(p))
        return;
    if (polled.told[record] == run.id)
        report(SIMT_HOST, pc, NULL, "a result is written again that the host may have read: %s", memory_where(p));
    else if (plain && at < flag + 4 && at + bytes > flag) /* a plain store of the flag, which releases nothing */
        tell(record, SIMT_RELAXED, pc);
}
