/* peer.c - stores to memory that several GPUs share: 16 bytes arrive in two halves, late and in any order.
 *
 * A half arrives a random number of scheduling steps after its store, but no half overtakes an earlier one of the same
 * block to the same address. All stores of a block have arrived when it fences at system scope, and those of a launch
 * when it ends. */
#include "device/host.h"
#include "parts.h"

typedef struct Half {
    char *to;
    char bytes[8];
    const Block *from;
    uint64_t due; /* the scheduling step at which it arrives */
} Half;
enum { MAX_HALVES = 1 << 14 };
static Half halves[MAX_HALVES]; /* in the order of the stores */
static unsigned n_halves;
static uint64_t soonest; /* the least `due` of all */
static uint64_t clock_reads;

static void arrive(unsigned i)
{
    memcpy(halves[i].to, halves[i].bytes, sizeof halves[i].bytes);
    memmove(halves + i, halves + i + 1, (n_halves - i - 1) * sizeof *halves);
    n_halves--;
    run.polls = 0;
}

static bool overtakes(unsigned i)
{
    for (unsigned k = 0; k < i; k++)
        if (halves[k].to == halves[i].to && halves[k].from == halves[i].from)
            return true;
    return false;
}

bool peer_land(bool now)
{
    bool any = false;

    if (n_halves == 0 || (!now && run.step < soonest))
        return false;
    if (now)
        halves[run_random(n_halves)].due = run.step;
    soonest = UINT64_MAX;
    for (unsigned i = 0; i < n_halves;)
        if (halves[i].due <= run.step && !overtakes(i)) {
            arrive(i);
            any = true;
        } else {
            if (halves[i].due < soonest)
                soonest = halves[i].due;
            i++;
        }
    return any;
}

void peer_fence(const Block *b)
{
    for (unsigned i = 0; i < n_halves;)
        if (halves[i].from == b)
            arrive(i);
        else
            i++;
}

void peer_reset(void)
{
    n_halves = 0;
    clock_reads = 0;
}

void simt_peer_store(void *p, const void *v)
{
    run_pause();
    memory_access(p, 16, A_ATOMIC | A_WRITE | A_ALIGNED, PC());
    if (n_halves + 2 > MAX_HALVES)
        run_abort();
    for (unsigned i = 0; i < 2; i++) {
        Half *h = &halves[n_halves++];

        *h = (Half){.to = (char *)p + 8 * i,
                    .from = run.current->block,
                    .due = run.step + (run.schedule == SIMT_ROUND_ROBIN ? 1 : run_random(600))};
        memcpy(h->bytes, (const char *)v + 8 * i, 8);
        if (n_halves == 1 || h->due < soonest)
            soonest = h->due;
    }
}

void simt_peer_load(const void *p, void *v)
{
    run_yield(PC());
    memory_access(p, 16, A_ATOMIC | A_ALIGNED, PC());
    memcpy(v, p, 16);
}

/* Each read of the clock is a millisecond later than the one before. */
unsigned long long simt_clock(void)
{
    run_pause();
    return ++clock_reads * 1000000;
}
