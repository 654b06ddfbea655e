/* peer.c - stores to memory that several GPUs share: 16 bytes arrive in two halves, late and in any order; 4 at once.
 *
 * A half (or a word) arrives a random number of scheduling steps after its store, but no half overtakes an earlier one of the same
 * block to the same address. All stores of a block have arrived when it fences at system scope, and those of a launch
 * when it ends. */
#include "device/host.h"
#include "parts.h"

typedef struct Half {
    char *to;
    char bytes[8];
    size_t size; /* 4 or 8 */
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
    memcpy(halves[i].to, halves[i].bytes, halves[i].size);
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
    if (now) {
        unsigned i = run_random(n_halves);

        while (overtakes(i))
            i--;
        halves[i].due = run.step;
    }
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

/* Pieces of `size` bytes each. */
static void store_late(char *p, const char *v, unsigned pieces, size_t size, const void *pc)
{
    memory_access(p, pieces * size, A_ATOMIC | A_WRITE | A_ALIGNED, pc);
    if (n_halves + pieces > MAX_HALVES)
        run_abort();
    for (unsigned i = 0; i < pieces; i++) {
        Half *h = &halves[n_halves++];

        *h = (Half){.to = p + size * i,
                    .size = size,
                    .from = run.current->block,
                    .due = run.step + (run.schedule == SIMT_ROUND_ROBIN ? 1 : run_random(600))};
        memcpy(h->bytes, v + size * i, size);
        if (n_halves == 1 || h->due < soonest)
            soonest = h->due;
    }
}

void simt_peer_store(void *p, const void *v)
{
    run_pause();
    store_late(p, v, 2, 8, PC());
}

void simt_peer_store_word(void *p, unsigned v)
{
    run_pause();
    store_late(p, (const char *)&v, 1, 4, PC());
}

unsigned simt_peer_load_word(const void *p)
{
    unsigned v;

    run_yield(PC());
    memory_access(p, 4, A_ATOMIC | A_ALIGNED, PC());
    memcpy(&v, p, 4);
    return v;
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
