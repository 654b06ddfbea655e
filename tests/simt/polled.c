/* polled.c - a host that reads results while kernels run: records with a word that says that they are there.
 *
 *   data data data flag     the host looks at the flag; once it has changed, at the data, once
 *
 * What was written before the launch is there. What this launch writes the host sees from a release or fence of
 * the system's scope on, by a thread that knows of the write; the GPU's own scope orders it for other blocks, not
 * for the host. So at the flag's store it is asked, byte for byte, what the host may read, and that is kept; and
 * a record is not written again in this launch. */
#include "device/host.h"
#include "parts.h"

static struct {
    char *at, *seen; /* seen: as the host has it */
    size_t bytes, flag, count;
    uint32_t *told; /* [count] the launch that stored the flag last */
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

/* Whether the host sees a write before a flag that the current thread stores so. */
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
    else if (plain && at < flag + 4 && at + bytes > flag) /* what it says is not known yet, and too early */
        tell(record, SIMT_RELAXED, pc);
}
