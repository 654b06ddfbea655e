/* run.c - runs a launch: starts blocks as room allows and switches between their threads.
 *
 * A thread runs until it must wait; the schedule then chooses the next. If no thread can run, the report says what
 * each one waits for. */
#include <sys/mman.h>

#include "parts.h"

Run run;
SimtCounts simt_counts;

static Fiber fibers[MAX_RESIDENT];
static Fiber *idle_fibers[MAX_RESIDENT];
static unsigned n_idle;
static Block *blocks[MAX_BLOCKS]; /* by slot */
static uint32_t stamps, launches;

/* --- memory of a launch ------------------------------------------------------------------------- */

typedef struct Piece {
    struct Piece *next;
    size_t used, bytes;
} Piece;
enum { PIECE = 1 << 20 };
static Piece *pieces, *idle_pieces; /* idle: of PIECE bytes, from earlier launches */

static Piece *new_piece(size_t bytes)
{
    Piece *p = idle_pieces;

    if (p && bytes == PIECE) {
        idle_pieces = p->next;
        return p;
    }
    p = malloc(sizeof *p + bytes);
    if (!p)
        abort();
    return p;
}

void *run_keep(size_t bytes)
{
    char *p;

    bytes = (bytes + 15) & ~(size_t)15;
    if (!pieces || pieces->bytes - pieces->used < bytes) {
        const size_t want = bytes > PIECE ? bytes : PIECE;
        Piece *more = new_piece(want);

        *more = (Piece){pieces, 0, want};
        pieces = more;
    }
    p = (char *)(pieces + 1) + pieces->used;
    pieces->used += bytes;
    return memset(p, 0, bytes);
}

static void drop_pieces(void)
{
    while (pieces) {
        Piece *p = pieces;

        pieces = p->next;
        if (p->bytes == PIECE) {
            p->next = idle_pieces;
            idle_pieces = p;
        } else {
            free(p);
        }
    }
}

/* --- ready threads and schedules ---------------------------------------------------------------- */

enum { READY_ROOM = 4 * MAX_RESIDENT };
static Fiber *ready[READY_ROOM]; /* [head, tail), modulo */
static unsigned head, tail;
static unsigned victim, mercy; /* the block or warp that starves; steps until another one is chosen */

uint32_t run_random(uint32_t n)
{
    uint64_t z = run.random += 0x9E3779B97F4A7C15u; /* SplitMix64 */

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)(((z ^ (z >> 31)) >> 32) * n >> 32);
}

static void make_ready(Fiber *f)
{
    f->wait = WAIT_NONE;
    ready[tail++ % READY_ROOM] = f;
}

static unsigned starving(const Fiber *f)
{
    return run.schedule == SIMT_STARVE_CTA ? f->block->slot : f->block->slot * 64 + f->tid / WARP;
}

/* A random resident block, or a random warp of one, whatever the blocks' size. */
static unsigned new_victim(void)
{
    unsigned at_hand[MAX_BLOCKS], n = 0;

    for (unsigned s = 0; s < MAX_BLOCKS; s++)
        if (blocks[s])
            at_hand[n++] = s;
    const unsigned slot = at_hand[run_random(n)];

    return run.schedule == SIMT_STARVE_CTA ? slot : slot * 64 + run_random(blocks[slot]->threads / WARP);
}

static Fiber *take(unsigned i)
{
    Fiber *f = ready[i % READY_ROOM];

    ready[i % READY_ROOM] = ready[(tail - 1) % READY_ROOM];
    tail--;
    return f;
}

static Fiber *pick(void)
{
    const unsigned n = tail - head;

    run.step++;
    async_land(false);
    if (tail == head)
        return NULL;
    switch (run.schedule) {
    case SIMT_RANDOM: return take(head + run_random(n));
    case SIMT_LIFO: return ready[--tail % READY_ROOM];
    case SIMT_STARVE_CTA:
    case SIMT_STARVE_WARP:
        if (mercy-- == 0) {
            victim = new_victim();
            mercy = run_random(2000);
        }
        for (unsigned i = 0, any = run_random(n); i < n; i++) /* from any, or two pollers might run for ever */
            if (starving(ready[(head + (any + i) % n) % READY_ROOM]) != victim)
                return take(head + (any + i) % n);
        return take(head + run_random(n));
    case SIMT_ROUND_ROBIN:
    case SIMT_SCHEDULES: break;
    }
    return ready[head++ % READY_ROOM];
}

static void go_on(bool ends)
{
    Fiber *from = run.current, *to = run.aborted ? NULL : pick();

    if (to == from)
        return;
    simt_counts.switches++;
    fiber_switch(from, to ? to : &fiber_main, ends);
}

void run_block(WaitKind kind, void *object, unsigned value, Queue *q, const void *pc)
{
    Fiber *f = run.current;

    f->wait = kind;
    f->object = object;
    f->value = value;
    f->pc = pc;
    if (q) {
        f->next = q->first;
        q->first = f;
    }
    go_on(false);
}

void run_wake(Queue *q)
{
    Fiber *list = NULL;

    while (q->first) { /* reverses the list: threads become ready in the order in which they began to wait */
        Fiber *f = q->first;

        q->first = f->next;
        f->next = list;
        list = f;
    }
    for (Fiber *f = list; f;) {
        Fiber *next = f->next;

        make_ready(f);
        f = next;
    }
    run.polls = 0;
}

/* After this many polls with no progress of any thread, the launch counts as hanging. */
static bool polls_in_vain(void)
{
    return ++run.polls > 100000 + 100 * (uint64_t)run.live;
}

void run_yield(const void *pc)
{
    Fiber *f = run.current;

    f->pc = pc;
    f->wait = WAIT_POLL;
    if (polls_in_vain() && !async_land(true)) {
        run.hangs = true;
        run_abort();
    }
    if (run.schedule == SIMT_LIFO)
        ready[--head % READY_ROOM] = f;
    else
        ready[tail++ % READY_ROOM] = f;
    go_on(false);
    f->wait = WAIT_NONE;
}

void run_pause(void)
{
    if (run.schedule == SIMT_ROUND_ROBIN || run_random(2) == 0)
        return;
    make_ready(run.current);
    go_on(false);
}

_Noreturn void run_abort(void)
{
    run.aborted = true;
    fiber_switch(run.current, &fiber_main, true);
    abort();
}

Block *run_block_of_slot(unsigned slot)
{
    return slot < MAX_BLOCKS ? blocks[slot] : NULL;
}

/* --- threads and blocks ------------------------------------------------------------------------- */

static void thread(void)
{
    Fiber *f = run.current;

    run.launch->kernel->call(run.launch->args);
    f = run.current;
    async_thread_ends(f);
    wgmma_thread_ends(f);
    f->done = true;
    run.someone_waited |= f->waited;
    run.lets_ahead |= !f->waited;
    run.live--;
    f->block->live--;
    run.polls = 0;
    sync_thread_ends(f);
    if (f->block->live == 0) /* run_all, on the main stack, ends the block */
        fiber_switch(f, &fiber_main, true);
    else
        go_on(true);
    abort();
}

static void make_stacks(void)
{
    const size_t bytes = (size_t)SIMT_STACK * MAX_RESIDENT;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        abort();
    memory_stacks(p, SIMT_STACK, MAX_RESIDENT);
    for (unsigned i = 0; i < MAX_RESIDENT; i++) {
        fibers[i].stack = p + (size_t)i * SIMT_STACK;
        mprotect(fibers[i].stack, 4096, PROT_NONE); /* guard page: a stack overflow faults */
        idle_fibers[n_idle++] = &fibers[MAX_RESIDENT - 1 - i];
    }
}

static Block *start_block(unsigned number, unsigned slot, Cluster *cluster)
{
    const SimtLaunch *l = run.launch;
    static Block *spare[MAX_BLOCKS];
    Block *b = spare[slot];

    if (!b)
        b = spare[slot] = calloc(1, sizeof *b);
    if (!b)
        abort();
    free(b->buffer.at);
    free(b->unfenced.at);
    memset(b, 0, sizeof *b);
    b->number = number;
    b->index[0] = number % l->grid[0];
    b->index[1] = number / l->grid[0] % l->grid[1];
    b->index[2] = number / l->grid[0] / l->grid[1];
    b->stamp = ++stamps;
    b->slot = slot;
    b->threads = b->live = l->block;
    b->cluster = cluster;
    b->fiber = run_keep(sizeof *b->fiber * l->block);
    blocks[slot] = b;
    for (int i = 0; i < 16; i++)
        b->barrier[i].know.clock = b->barrier[i].clock;
    memory_start_block(b, l->smem);
    return b;
}

static void start_threads(Block *b)
{
    for (unsigned t = 0; t < b->threads; t++) {
        Fiber *f = idle_fibers[--n_idle];

        b->fiber[t] = f;
        f->block = b;
        f->warp = &b->warp[t / WARP];
        f->tid = t;
        f->number = 1 + b->number * CLOCKS + MAX_MBARRIERS + t;
        f->done = f->waited = f->has_fenced = f->has_unfenced = false;
        f->know = (Know){.clock = f->clocks};
        f->fenced = f->unfenced = f->system = (Know){0};
        f->after = (Know){.clock = f->after_clocks};
        memset(f->after_clocks, 0, sizeof *f->after_clocks * know_clocks);
        memset(f->clocks, 0, sizeof f->clocks);
        f->clocks[MAX_MBARRIERS + t] = 1;
        f->n_copies = f->group = 0;
        f->proxy_clock = f->cluster_arrived = f->wgmma_group = 0;
        f->products = NULL;
        f->sums = NULL;
        f->wgmma_fenced = f->proxied = false;
        f->object = NULL;
        fiber_start(f, thread);
        make_ready(f);
        run.live++;
    }
    simt_counts.threads += b->threads;
}

static void end_block(Block *b)
{
    async_block_ends(b);
    for (unsigned t = 0; t < b->threads; t++)
        idle_fibers[n_idle++] = b->fiber[t];
    blocks[b->slot] = NULL;
}

/* --- hangs -------------------------------------------------------------------------------------- */

static void find_waiting(void)
{
    static Fiber *waiting[MAX_RESIDENT];
    size_t n = 0;

    for (unsigned s = 0; s < MAX_BLOCKS; s++)
        for (unsigned t = 0; blocks[s] && t < blocks[s]->threads; t++)
            if (!blocks[s]->fiber[t]->done)
                waiting[n++] = blocks[s]->fiber[t];
    report_hang(waiting, n);
}

/* --- a launch ----------------------------------------------------------------------------------- */

void simt_schedule(SimtSchedule s, uint64_t seed)
{
    run.schedule = s;
    run.seed = seed;
}

void simt_in_front(void)
{
    run.chain = ++launches;
    run.lets_ahead = true;
}

/* The order in which clusters start. */
static unsigned *order_of_clusters(unsigned n)
{
    unsigned *order = run_keep(sizeof *order * n);

    for (unsigned i = 0; i < n; i++)
        order[i] = run.schedule == SIMT_LIFO ? n - 1 - i : i;
    if (run.schedule != SIMT_LIFO && run.schedule != SIMT_ROUND_ROBIN)
        for (unsigned i = n; i > 1; i--) {
            const unsigned j = run_random(i), x = order[i - 1];

            order[i - 1] = order[j];
            order[j] = x;
        }
    return order;
}

/* Keeps the first `some` of n clusters, the last `some` and as many at a random place between. Returns how many
 * are left. */
static unsigned some_of(unsigned *order, unsigned n, unsigned some)
{
    unsigned left = 0;

    if (!some || n <= 3 * some)
        return n;
    const unsigned from = some + run_random(n - 3 * some + 1);
    for (unsigned i = 0; i < n; i++)
        if (order[i] < some || order[i] >= n - some || (order[i] >= from && order[i] < from + some))
            order[left++] = order[i];
    return left;
}

/* Starts the blocks of a cluster. False: there is no room at the moment. */
static bool start_cluster(unsigned cluster)
{
    const unsigned n = run.launch->kernel->cluster;
    unsigned slots[8], found = 0;
    Cluster *c;

    if (n_idle < n * run.launch->block)
        return false;
    for (unsigned s = 0; s < MAX_BLOCKS && found < n; s++)
        if (!blocks[s])
            slots[found++] = s;
    if (found < n)
        return false;
    c = run_keep(sizeof *c);
    c->n = n;
    for (unsigned i = 0; i < n; i++)
        c->block[i] = start_block(cluster * n + i, slots[i], c);
    for (unsigned i = 0; i < n; i++)
        start_threads(c->block[i]);
    return true;
}

static bool end_blocks(void)
{
    bool any = false;

    for (unsigned s = 0; s < MAX_BLOCKS; s++)
        if (blocks[s] && blocks[s]->live == 0) {
            bool all = true; /* a block's shared memory stays until its whole cluster has ended */

            for (unsigned i = 0; i < blocks[s]->cluster->n; i++)
                all = all && blocks[s]->cluster->block[i]->live == 0;
            if (all) {
                end_block(blocks[s]);
                any = true;
            }
        }
    return any;
}

static void run_all(const unsigned *order, unsigned n)
{
    unsigned next = 0;

    for (;;) {
        Fiber *f;

        end_blocks();
        while (next < n && start_cluster(order[next]))
            next++;
        f = pick();
        if (f) {
            simt_counts.switches++;
            fiber_switch(&fiber_main, f, false);
            if (run.hangs)
                find_waiting();
            if (run.aborted)
                return;
        } else if (async_land(true)) {
            continue;
        } else if (run.live > 0) {
            find_waiting();
            return;
        } else if (next == n) {
            end_blocks();
            return;
        }
    }
}

static bool sensible(const SimtLaunch *l)
{
    const unsigned cluster = l->kernel->cluster;

    if (l->block == 0 || l->block % WARP || l->block > MAX_THREADS || l->smem > DYNAMIC_MAX || cluster < 1 ||
        cluster > 8 || l->grid[0] % cluster || cluster * l->block > MAX_RESIDENT) {
        report(SIMT_BOUNDS, NULL, NULL, "cannot launch: grid %u,%u,%u, clusters of %u, %u threads, %u bytes",
               l->grid[0], l->grid[1], l->grid[2], cluster, l->block, l->smem);
        return false;
    }
    return true;
}

bool simt_launch(const SimtLaunch *l)
{
    const size_t before = simt_reports();
    const uint32_t n = l->grid[0] * l->grid[1] * l->grid[2];

    if (!fibers[0].stack)
        make_stacks();
    run.launch = l;
    run.id = ++launches;
    if (!l->overlap)
        run.chain = run.id;
    else if (!run.lets_ahead)
        run.chain = run.id - 1; /* launches before the previous one have ended */
    run.random = run.seed * 0x2545F4914F6CDD1Du;
    run.current = &fiber_main;
    run.live = 0;
    run.step = run.polls = 0;
    run.aborted = run.hangs = run.someone_waited = false;
    run.lets_ahead = n == 0;
    head = tail = victim = mercy = 0;
    simt_counts.launches++;
    polled_launch_begins();
    if (sensible(l)) {
        know_clocks = MAX_MBARRIERS + l->block;
        unsigned *order = order_of_clusters(n / l->kernel->cluster);

        run_all(order, some_of(order, n / l->kernel->cluster, l->some));
        if (l->overlap && n > 0 && !run.someone_waited && simt_reports() == before)
            report(SIMT_EARLY, NULL, NULL, "no thread waits for the previous kernel: one behind could overtake both");
    }
    for (unsigned s = 0; s < MAX_BLOCKS; s++) /* after a hang */
        if (blocks[s])
            end_block(blocks[s]);
    memory_end_launch();
    async_reset();
    sync_reset();
    drop_pieces();
    report_finish();
    run.launch = NULL;
    return simt_reports() == before;
}
