/* sync.c - synchronisation of threads: barriers, warp operations, atomics, clusters, and the
 * happens-before order that each creates. */
#include "device/host.h"
#include "parts.h"

#include "runtime/base/dtype.h"

/* Advances a thread's clock after a release, so that its later accesses are not part of the release. */
static void tick(Fiber *f)
{
    f->clocks[MAX_MBARRIERS + f->tid]++;
}

/* --- barriers of a block ------------------------------------------------------------------------ */

static void complete(Barrier *b)
{
    for (Fiber *f = b->waiting.first; f; f = f->next) {
        f->proxied = false;
        know_take(&f->know, &b->know);
        tick(f);
        f->out[0] = b->votes;
    }
    know_clear(&b->know);
    b->arrived = b->expected = b->votes = 0;
    simt_counts.barriers++;
    run_wake(&b->waiting);
}

static void arrive(unsigned id, unsigned threads, bool wait, unsigned vote, const void *pc)
{
    Fiber *f = run.current;
    Barrier *b = &f->block->barrier[id % 16];

    if (id > 15 || threads == 0 || threads % WARP || threads > f->block->threads) {
        report(SIMT_BARRIER, pc, NULL, "barrier %u of %u threads in a block of %u", id, threads, f->block->threads);
        run_abort();
    }
    if (b->arrived && b->expected != threads)
        report(SIMT_BARRIER, pc, b->pc, "barrier %u is of %u threads here and of %u there", id, threads, b->expected);
    if (!b->arrived) {
        b->expected = threads;
        b->pc = pc;
    }
    b->arrived++;
    b->votes += vote;
    know_join(&b->know, &f->know);
    if (b->arrived == b->expected) {
        if (wait) {
            know_take(&f->know, &b->know);
            tick(f);
            f->out[0] = b->votes;
            f->proxied = false;
        }
        complete(b);
        if (!wait)
            tick(f);
        else
            run_pause();
        return;
    }
    if (wait)
        run_block(WAIT_BARRIER, b, id, &b->waiting, pc);
    else
        tick(f);
}

void simt_block_sync(void)
{
    /* Threads that have ended count as arrived. */
    arrive(0, run.current->block->live, true, 0, PC());
}

int simt_block_count(int p)
{
    arrive(0, run.current->block->live, true, p != 0, PC());
    return (int)run.current->out[0];
}

void simt_named_barrier_sync(int id, int threads)
{
    arrive((unsigned)id, (unsigned)threads, true, 0, PC());
}

void simt_named_barrier_arrive(int id, int threads)
{
    arrive((unsigned)id, (unsigned)threads, false, 0, PC());
}

/* --- warps -------------------------------------------------------------------------------------- */

static uint16_t half_of(uint32_t pair, int i)
{
    return (uint16_t)(i ? pair >> 16 : pair);
}

static float element(uint32_t pair, int i, bool bf16)
{
    return bf16 ? bf16_to_float(half_of(pair, i)) : fp16_to_float(half_of(pair, i));
}

/* Each lane has A in in[0..3], B in in[4..5] and D in sum; device/mma.cuh has the layout of the fragments. */
static void multiply(Warp *w, bool bf16)
{
    float a[16][16], b[8][16];

    for (int lane = 0; lane < WARP; lane++) {
        const int g = lane / 4, t = lane % 4;
        const uint32_t *in = w->lane[lane]->in;

        for (int i = 0; i < 2; i++) {
            a[g][2 * t + i] = element(in[0], i, bf16);
            a[g + 8][2 * t + i] = element(in[1], i, bf16);
            a[g][2 * t + 8 + i] = element(in[2], i, bf16);
            a[g + 8][2 * t + 8 + i] = element(in[3], i, bf16);
            b[g][2 * t + i] = element(in[4], i, bf16);
            b[g][2 * t + 8 + i] = element(in[5], i, bf16);
        }
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++) {
            const int m = lane / 4 + i / 2 * 8, n = lane % 4 * 2 + i % 2;
            float sum = 0.0f;

            for (int k = 0; k < 16; k++)
                sum += a[m][k] * b[n][k];
            w->lane[lane]->sum[i] += sum;
        }
}

/* The same for bytes, A without sign, B with; D, 32 bits, lies in sum. */
static void multiply_codes(Warp *w)
{
    int a[16][32], b[8][32];

    for (int lane = 0; lane < WARP; lane++) {
        const int g = lane / 4, t = lane % 4;
        const uint32_t *in = w->lane[lane]->in;

        for (int i = 0; i < 16; i++) {
            const int k = 4 * t + i % 4 + i / 8 * 16;

            a[g + i / 4 % 2 * 8][k] = (int)(in[i / 4] >> i % 4 * 8 & 0xff);
            b[g][k] = (int8_t)(in[4 + i / 8] >> i % 4 * 8 & 0xff);
        }
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++) {
            const int m = lane / 4 + i / 2 * 8, n = lane % 4 * 2 + i % 2;
            int sum;

            memcpy(&sum, &w->lane[lane]->sum[i], sizeof sum);
            for (unsigned k = 0; k < w->param; k++)
                sum += a[m][k] * b[n][k];
            memcpy(&w->lane[lane]->sum[i], &sum, sizeof sum);
        }
}

static void load_matrices(Warp *w, bool trans)
{
    for (unsigned m = 0; m < w->param; m++) {
        uint16_t row[8][8];

        for (int r = 0; r < 8; r++)
            memcpy(row[r], w->lane[m * 8 + (unsigned)r]->object, 16);
        for (int lane = 0; lane < WARP; lane++) {
            const int g = lane / 4, t = lane % 4;

            w->lane[lane]->out[m] = trans ? row[2 * t][g] | (uint32_t)row[2 * t + 1][g] << 16
                                          : row[g][2 * t] | (uint32_t)row[g][2 * t + 1] << 16;
        }
    }
}

static void transpose(Warp *w)
{
    for (int lane = 0; lane < WARP; lane++) {
        const int g = lane / 4, t = lane % 4; /* gets rows 2t, 2t+1 of column g */

        w->lane[lane]->out[0] = half_of(w->lane[2 * t * 4 + g / 2]->in[0], g % 2) |
                                (uint32_t)half_of(w->lane[(2 * t + 1) * 4 + g / 2]->in[0], g % 2) << 16;
    }
}

static void gather_rows(Warp *w)
{
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++) /* register i: row + 8 * (i % 2), k + 8 * (i / 2) */
            for (int t = 0; t < 4; t++)
                for (int e = 0; e < 2; e++)
                    w->lane[lane]->rows[i % 2][i / 2 * 8 + 2 * t + e] =
                        element(w->lane[lane / 4 * 4 + t]->in[i], e, w->param);
}

static void shuffle(Warp *w, WarpOp op)
{
    for (int lane = 0; lane < WARP; lane++) {
        Fiber *f = w->lane[lane];
        const int by = (int)f->in[2];
        const int from = op == OP_XOR ? lane ^ by : op == OP_UP ? lane - by : op == OP_DOWN ? lane + by : by & 31;
        const Fiber *source = from >= 0 && from < WARP ? w->lane[from] : f;

        f->out[0] = source->in[0];
        f->out[1] = source->in[1];
    }
}

static void do_together(Warp *w)
{
    static uint32_t clock[CLOCKS];
    Know all = {.clock = clock};
    uint32_t votes = 0, least = UINT32_MAX;

    switch (w->op) {
    case OP_SYNC:
        know_clear(&all);
        for (int i = 0; i < WARP; i++)
            know_join(&all, &w->lane[i]->know);
        for (int i = 0; i < WARP; i++) {
            know_take(&w->lane[i]->know, &all);
            tick(w->lane[i]);
        }
        break;
    case OP_XOR:
    case OP_UP:
    case OP_DOWN:
    case OP_INDEX: shuffle(w, w->op); break;
    case OP_BALLOT:
        for (int i = 0; i < WARP; i++)
            votes |= (w->lane[i]->in[0] ? 1u : 0u) << i;
        for (int i = 0; i < WARP; i++)
            w->lane[i]->out[0] = votes;
        break;
    case OP_MMA_BF16:
    case OP_MMA_FP16: multiply(w, w->op == OP_MMA_BF16); break;
    case OP_MMA_CODES: multiply_codes(w); break;
    case OP_LDMATRIX:
    case OP_LDMATRIX_TRANS: load_matrices(w, w->op == OP_LDMATRIX_TRANS); break;
    case OP_TRANSPOSE: transpose(w); break;
    case OP_ROWS: gather_rows(w); break;
    case OP_WGMMA_WAIT:
        for (int i = 0; i < WARP; i++)
            w->done[i] = w->lane[i]->clocks[MAX_MBARRIERS + w->lane[i]->tid];
        w->has_done = true;
        break;
    case OP_LEAST:
        for (int i = 0; i < WARP; i++)
            least = w->lane[i]->in[0] < least ? w->lane[i]->in[0] : least;
        for (int i = 0; i < WARP; i++)
            w->lane[i]->out[0] = least;
        break;
    }
    simt_counts.collectives++;
}

/* Waits until all lanes of the warp have called the same operation; the last one performs it. */
static void together(WarpOp op, unsigned param, const void *pc)
{
    Fiber *f = run.current;
    Warp *w = f->warp;

    if (w->arrived && (w->op != op || w->param != param)) {
        const Fiber *other = w->lane[0];

        for (int i = 0; i < WARP; i++)
            if (w->lane[i])
                other = w->lane[i];
        report(SIMT_COLLECTIVE, pc, other->pc, "lanes of a warp do different things together");
        run_abort();
    }
    if (w->left) {
        report(SIMT_COLLECTIVE, pc, NULL, "%u lanes of the warp have ended before", w->left);
        run_abort();
    }
    w->op = op;
    w->param = param;
    w->lane[f->tid % WARP] = f;
    f->pc = pc;
    if (++w->arrived < WARP) {
        run_block(WAIT_WARP, f->object, 0, NULL, pc); /* ldmatrix: object points to the lane's row */
        return;
    }
    do_together(w);
    for (int i = 0; i < WARP; i++) {
        w->clock[i] = w->lane[i]->clocks[MAX_MBARRIERS + w->lane[i]->tid];
        tick(w->lane[i]);
    }
    w->arrived = 0;
    Queue q = {NULL};
    for (int i = WARP; i-- > 0;) {
        Fiber *lane = w->lane[i];

        w->lane[i] = NULL;
        if (lane == f)
            continue;
        lane->next = q.first;
        q.first = lane;
    }
    if (run.schedule != SIMT_ROUND_ROBIN) { /* another lane may run first */
        run_wake(&q);
        run_pause();
    } else {
        run_wake(&q);
    }
}

void simt_warp_sync(void)
{
    together(OP_SYNC, 0, PC());
}

void simt_shuffle(int kind, void *value, unsigned bytes, int by)
{
    static const WarpOp ops[] = {OP_XOR, OP_UP, OP_DOWN, OP_INDEX};
    Fiber *f = run.current;

    memcpy(f->in, value, bytes);
    f->in[2] = (uint32_t)by;
    together(ops[kind], bytes, PC());
    memcpy(value, f->out, bytes);
}

unsigned simt_ballot(int p)
{
    run.current->in[0] = p != 0;
    together(OP_BALLOT, 0, PC());
    return run.current->out[0];
}

unsigned simt_least(unsigned v)
{
    run.current->in[0] = v;
    together(OP_LEAST, 0, PC());
    return run.current->out[0];
}

void simt_mma(int bf16, float *d, const unsigned *a, const unsigned *b)
{
    Fiber *f = run.current;

    memcpy(f->in, a, 16);
    memcpy(f->in + 4, b, 8);
    memcpy(f->sum, d, 16);
    together(bf16 ? OP_MMA_BF16 : OP_MMA_FP16, 0, PC());
    memcpy(d, f->sum, 16);
}

void simt_mma_codes(unsigned k, int *d, const unsigned *a, const unsigned *b)
{
    Fiber *f = run.current;

    memcpy(f->in, a, 16);
    memcpy(f->in + 4, b, 8);
    memcpy(f->sum, d, 16);
    together(OP_MMA_CODES, k, PC());
    memcpy(d, f->sum, 16);
}

void simt_ldmatrix(unsigned *r, unsigned n, int trans, unsigned row)
{
    Fiber *f = run.current;

    if (f->tid % WARP < n * 8)
        f->object = memory_shared(row, 16, A_READ | A_ALIGNED | A_UNWRITTEN_OK, PC());
    together(trans ? OP_LDMATRIX_TRANS : OP_LDMATRIX, n, PC());
    memcpy(r, f->out, n * 4);
}

void sync_rows(float rows[2][16], bool bf16, const void *pc)
{
    Fiber *f = run.current;

    together(OP_ROWS, bf16, pc);
    memcpy(rows, f->rows, sizeof f->rows);
}

void sync_products_done(const void *pc)
{
    together(OP_WGMMA_WAIT, 0, pc);
}

unsigned simt_transpose(unsigned pair)
{
    run.current->in[0] = pair;
    together(OP_TRANSPOSE, 0, PC());
    return run.current->out[0];
}

/* --- atomics ------------------------------------------------------------------------------------ */

/* A word of global memory through which blocks synchronise. */
typedef struct Word {
    const void *at;
    Know know;
} Word;
enum { MAX_WORDS = 1 << 15 };
static Word words[MAX_WORDS];
static size_t n_words;

static Know *word_of(const void *p)
{
    size_t i = ((uintptr_t)p >> 2) * 0x9E3779B1u % MAX_WORDS;

    while (words[i].at && words[i].at != p)
        i = (i + 1) % MAX_WORDS;
    if (!words[i].at) {
        if (++n_words > MAX_WORDS / 2) {
            fprintf(stderr, "simt: more words with atomics than the harness has\n");
            abort();
        }
        words[i].at = p;
    }
    return &words[i].know;
}

void sync_reset(void)
{
    memset(words, 0, sizeof words);
    n_words = 0;
}

/* Whether this is a release of a scope wider than the block. */
static bool releases(int order)
{
    return (order & (SIMT_RELEASE | SIMT_IN_BLOCK)) == SIMT_RELEASE;
}

static void tell(const void *p, int order)
{
    Fiber *f = run.current;

    if (order & SIMT_IN_BLOCK)
        return;
    if (order & SIMT_RELEASE) {
        know_tell(word_of(p), &f->know, f->block->number);
        tick(f);
    } else if (f->has_fenced) {
        know_hear(word_of(p), &f->fenced, UINT32_MAX);
    }
}

static void hear(const void *p, int order)
{
    Fiber *f = run.current;
    const Know *k = word_of(p);

    if (order & SIMT_IN_BLOCK)
        return;
    if (order & SIMT_ACQUIRE) {
        view_acquire(f->block);
        know_hear(&f->know, k, f->block->number);
    } else if (k->n_far) {
        know_hear(&f->unfenced, k, UINT32_MAX);
        f->has_unfenced = true;
    }
}

unsigned simt_atomic(unsigned *p, int op, unsigned v, int order)
{
    unsigned old;

    run_pause();
    if (releases(order))
        view_release(run.current->block);
    memory_access(p, 4, A_ATOMIC | A_ALIGNED, PC());
    old = *p;
    hear(p, order);
    *p = op == SIMT_ADD ? old + v : op == SIMT_OR ? old | v : op == SIMT_MAX ? (old > v ? old : v) : v;
    if (*p != old)
        run.polls = 0;
    tell(p, order);
    polled_flag(p, *p, order, PC());
    return old;
}

unsigned simt_load(const unsigned *p, int order)
{
    run_yield(PC());
    memory_access(p, 4, A_ATOMIC | A_ALIGNED, PC());
    hear(p, order);
    return *p;
}

void simt_store(unsigned *p, unsigned v, int order)
{
    run_pause();
    if (releases(order))
        view_release(run.current->block);
    memory_access(p, 4, A_ATOMIC | A_WRITE | A_ALIGNED, PC());
    if (order & SIMT_RELEASE) /* a store starts a new release sequence */
        *word_of(p) = (Know){0};
    if (*p != v)
        run.polls = 0;
    *p = v;
    tell(p, order);
    polled_flag(p, v, order, PC());
}

void simt_fence(int order)
{
    Fiber *f = run.current;

    if (order & SIMT_IN_BLOCK)
        return;
    view_release(f->block);
    view_acquire(f->block);
    if (f->has_unfenced)
        know_hear(&f->know, &f->unfenced, f->block->number);
    f->unfenced = f->fenced = (Know){0};
    f->has_unfenced = false;
    know_tell(&f->fenced, &f->know, f->block->number);
    f->has_fenced = true;
    if (order & SIMT_SYSTEM) {
        f->system = f->fenced;
        peer_fence(f->block);
    }
    tick(f);
}

unsigned simt_shared_atomic(unsigned *p, int op, unsigned v)
{
    unsigned old;

    run_pause();
    memory_access(p, 4, A_ATOMIC | A_ALIGNED, PC());
    old = *p;
    *p = op == SIMT_ADD ? old + v : op == SIMT_OR ? old | v : op == SIMT_MAX ? (old > v ? old : v) : v;
    return old;
}

/* --- clusters ----------------------------------------------------------------------------------- */

/* barrier.cluster.arrive.relaxed: all threads have arrived, but their writes need not be visible yet. */
static void cluster_complete(Cluster *c)
{
    for (unsigned i = 0; i < c->n; i++)
        if (c->clock[i])
            know_hear(&c->know, &(Know){.far = &(Far){c->block[i]->number, c->clock[i]}, .n_far = 1}, UINT32_MAX);
    memset(c->clock, 0, sizeof c->clock);
    for (unsigned i = 0; i < c->n; i++)
        for (unsigned t = 0; t < c->block[i]->threads; t++) {
            Fiber *f = c->block[i]->fiber[t];

            if (!f->done && f->wait == WAIT_CLUSTER && f->object == c)
                know_hear(&f->after, &c->know, UINT32_MAX);
        }
    c->phase++;
    c->arrived = 0;
    run_wake(&c->waiting);
}

static unsigned cluster_live(const Cluster *c)
{
    unsigned n = 0;

    for (unsigned i = 0; i < c->n; i++)
        n += c->block[i]->live;
    return n;
}

void simt_cluster_arrive(void)
{
    Fiber *f = run.current;
    Cluster *c = f->block->cluster;
    const unsigned rank = f->block->number % c->n;

    if (f->cluster_arrived)
        report(SIMT_BARRIER, PC(), NULL, "a second arrival at the cluster before the wait");
    if (!c->clock[rank])
        c->clock[rank] = run_keep(sizeof(uint32_t) * CLOCKS);
    know_join(&(Know){.clock = c->clock[rank]}, &(Know){.clock = f->clocks});
    know_join(&c->know, &(Know){.far = f->know.far, .n_far = f->know.n_far});
    tick(f);
    f->cluster_arrived = c->phase + 1;
    if (++c->arrived == cluster_live(c))
        cluster_complete(c);
}

void simt_cluster_wait(void)
{
    Fiber *f = run.current;
    Cluster *c = f->block->cluster;

    if (!f->cluster_arrived) {
        report(SIMT_BARRIER, PC(), NULL, "a wait for the cluster without an arrival");
        return;
    }
    if (c->phase == f->cluster_arrived - 1)
        run_block(WAIT_CLUSTER, c, 0, &c->waiting, PC());
    else
        know_hear(&f->after, &c->know, UINT32_MAX);
    f->cluster_arrived = 0;
}

unsigned simt_cluster_rank(void)
{
    const Block *b = run.current->block;

    return b->number % b->cluster->n;
}

unsigned simt_cluster_map(unsigned address, unsigned rank)
{
    if (rank >= run.current->block->cluster->n)
        report(SIMT_BOUNDS, PC(), NULL, "rank %u of a cluster of %u", rank, run.current->block->cluster->n);
    return (address & 0xffffff) | (rank + 1) << 24;
}

/* --- the end of a thread ------------------------------------------------------------------------ */

void sync_thread_ends(Fiber *f)
{
    Barrier *b = &f->block->barrier[0];
    Cluster *c = f->block->cluster;

    f->warp->left++;
    if (f->warp->arrived) {
        report(SIMT_COLLECTIVE, f->pc, NULL, "a lane ends while others of its warp wait for it");
        run_abort();
    }
    if (b->arrived) { /* the barrier no longer waits for threads that have ended */
        b->expected = f->block->live;
        if (b->arrived >= b->expected)
            complete(b);
    }
    if (f->cluster_arrived && c->n > 1)
        report(SIMT_BARRIER, NULL, NULL, "a thread ends between its arrival at the cluster and the wait");
    if (c->arrived && c->arrived >= cluster_live(c))
        cluster_complete(c);
}

/* --- the other functions of kernels/device/ ----------------------------------------------------- */

SimtIndex simt_thread_index(void)
{
    return (SimtIndex){run.current->tid, 0, 0};
}
SimtIndex simt_block_index(void)
{
    const unsigned *i = run.current->block->index;

    return (SimtIndex){i[0], i[1], i[2]};
}
SimtIndex simt_block_size(void)
{
    return (SimtIndex){run.current->block->threads, 1, 1};
}
SimtIndex simt_grid_size(void)
{
    const unsigned *g = run.launch->grid;

    return (SimtIndex){g[0], g[1], g[2]};
}

void *simt_shared(void)
{
    return run.current->block->shared;
}

void *simt_static(const void *site, unsigned bytes, const char *name)
{
    return memory_static(run.current->block, site, bytes, name);
}

unsigned simt_shared_address(const void *p)
{
    const Block *b = run.current->block;
    const size_t at = (size_t)((const char *)p - b->shared);

    if (at >= SLOT) {
        report(SIMT_BOUNDS, PC(), NULL, "the shared address of what is not in shared memory");
        run_abort();
    }
    return (unsigned)at + SHARED_BASE;
}

void simt_shared_load(unsigned address, void *to, unsigned bytes)
{
    memcpy(to, memory_shared(address, bytes, A_READ | A_ALIGNED | A_UNWRITTEN_OK, PC()), bytes);
}

void simt_shared_store(unsigned address, const void *from, unsigned bytes)
{
    memcpy(memory_shared(address, bytes, A_WRITE | A_ALIGNED, PC()), from, bytes);
}

void simt_global_load(const void *p, void *to, unsigned bytes)
{
    memory_access(p, bytes, A_READ | A_ALIGNED, PC());
    memcpy(to, p, bytes);
}

void simt_wait_for_previous(void)
{
    run.current->waited = true;
}

/* A thread that triggers its dependents before its own wait lets them start before earlier launches have ended. */
void simt_launch_dependents(void)
{
    run.lets_ahead |= !run.current->waited;
}
