/* async.c - asynchronous copies (cp.async, bulk, tensor) and the mbarriers that count them.
 *
 * While a copy is under way its destination holds poison, and any access to it is reported. A cp.async completes
 * at the wait of the thread that started it, no earlier. A bulk copy completes a random number of scheduling
 * steps after its start. */
#include "device/host.h"
#include "parts.h"

static void tick(Fiber *f)
{
    f->clocks[MAX_MBARRIERS + f->tid]++;
}

static void *own_shared(unsigned address, unsigned bytes, const void *pc)
{
    const unsigned at = address - SHARED_BASE;

    if (address >> 24 || at > SLOT - bytes) {
        report(SIMT_BOUNDS, pc, NULL, "shared address %#x", address);
        run_abort();
    }
    return run.current->block->shared + at;
}

/* --- cp.async ----------------------------------------------------------------------------------- */

void simt_copy(unsigned to, const void *from, unsigned bytes, unsigned zeros)
{
    Fiber *f = run.current;
    char *p = own_shared(to, bytes + zeros, PC());

    if (to % (bytes + zeros) || (uintptr_t)from % (bytes + zeros)) {
        report(SIMT_ALIGN, PC(), NULL, "a copy of %u bytes from %p to shared address %u", bytes + zeros, from, to);
        run_abort();
    }
    if (bytes) /* kernels may copy unwritten rows past the last valid one; poison in a result then shows their use */
        memory_access(from, bytes, A_READ | A_UNWRITTEN_OK, PC());
    memory_copy_begins(p, bytes + zeros, false, PC());
    if (f->n_copies == f->cap_copies) {
        f->cap_copies = f->cap_copies ? f->cap_copies * 2 : 64;
        f->copies = realloc(f->copies, f->cap_copies * sizeof *f->copies);
        if (!f->copies)
            abort();
    }
    f->copies[f->n_copies++] = (Copy){p, from, bytes, zeros, f->group, PC()};
    simt_counts.copies++;
}

void simt_copy_commit(void)
{
    run.current->group++;
}

void simt_copy_wait(unsigned pending)
{
    Fiber *f = run.current;
    unsigned left = 0;

    for (unsigned i = 0; i < f->n_copies; i++) {
        const Copy c = f->copies[i];

        if (c.group + pending >= f->group) /* among the last `pending`, or not committed */
            f->copies[left++] = c;
        else
            memory_copy_lands(f->block, c.to, c.from, c.bytes, c.zeros, f->number, f->clocks[MAX_MBARRIERS + f->tid],
                              false);
    }
    f->n_copies = left;
    f->proxied = false;
}

void async_thread_ends(Fiber *f)
{
    if (f->n_copies)
        report(SIMT_IN_FLIGHT, f->copies[0].pc, NULL, "a thread ends with %u copies under way", f->n_copies);
    f->n_copies = 0;
}

/* --- mbarriers ---------------------------------------------------------------------------------- */

static unsigned index_of(const Block *b, const char *p)
{
    for (unsigned i = 0; i < b->n_mbarriers; i++)
        if (b->mbarrier[i]->at == p)
            return i;
    return MAX_MBARRIERS;
}

static Mbarrier *find_in(Block *b, unsigned address, const void *pc)
{
    const unsigned i = index_of(b, b->shared + ((address & 0xffffff) - SHARED_BASE));

    if (i == MAX_MBARRIERS) {
        report(SIMT_MBARRIER, pc, NULL, "no mbarrier was made at shared address %u", address);
        run_abort();
    }
    return b->mbarrier[i];
}

static Mbarrier *find(unsigned address, const void *pc)
{
    own_shared(address, 8, pc);
    return find_in(run.current->block, address, pc);
}

static void check_complete(Mbarrier *m)
{
    if (m->pending || m->bytes)
        return;
    m->phase++;
    m->pending = m->count;
    know_join(&m->done, &m->open);
    know_clear(&m->open);
    know_join(&m->done_after, &m->open_after);
    know_clear(&m->open_after);
    run_wake(&m->waiting);
}

void simt_mbarrier_init(unsigned address, unsigned arrivals)
{
    Block *b = run.current->block;
    char *p = own_shared(address, 8, PC());
    Mbarrier *m;

    if (address % 8 || arrivals == 0)
        report(SIMT_MBARRIER, PC(), NULL, "an mbarrier at %u for %u arrivals", address, arrivals);
    if (index_of(b, p) != MAX_MBARRIERS || b->n_mbarriers == MAX_MBARRIERS) {
        report(SIMT_MBARRIER, PC(), NULL, "an mbarrier is made twice at %u, or there are over %d", address,
               MAX_MBARRIERS);
        run_abort();
    }
    memory_access(p, 8, A_WRITE, PC());
    memory_mbarrier(p, true);
    m = run_keep(sizeof *m);
    *m = (Mbarrier){.at = p,
                    .count = arrivals,
                    .pending = arrivals,
                    .maker = run.current,
                    .made = run.current->clocks[MAX_MBARRIERS + run.current->tid]};
    m->open.clock = m->clock[0];
    m->done.clock = m->clock[1];
    m->open_after.clock = m->clock[2];
    m->done_after.clock = m->clock[3];
    know_join(&m->done, &(Know){.clock = run.current->clocks}); /* who waits knows of the initialisation */
    b->mbarrier[b->n_mbarriers++] = m;
    tick(run.current);
}

void simt_mbarrier_init_fence(void)
{
    Fiber *f = run.current;

    for (unsigned i = 0; i < f->block->n_mbarriers; i++)
        if (f->block->mbarrier[i]->maker == f)
            f->block->mbarrier[i]->fenced = true;
}

/* The initialisation of an mbarrier must happen before its use by the current thread. A thread of another block
 * also needs simt_mbarrier_init_fence before the cluster's barrier. */
static void check_made(const Mbarrier *m, const void *pc)
{
    const Fiber *f = run.current;

    if (f != m->maker && !know_of(f, m->maker->number, m->made) &&
        !(m->fenced && know_comes_after(f, m->maker->number, m->made)))
        report(SIMT_RACE, pc, NULL, "nothing orders this after the making of the mbarrier");
}

/* Adds what thread f knows (from) to an object of block b. f may belong to another block. */
static void tell(Know *to, const Know *from, const Fiber *f, const Block *b)
{
    Know told = {0};

    if (b == f->block) {
        know_join(to, from);
        return;
    }
    know_tell(&told, from, f->block->number);
    know_hear(to, &told, b->number);
}

/* One lane arrives for its whole warp. All lanes took part in the warp's last wait for wgmma, so the arrival says
 * that the reads of those products are done in every lane. */
static void tell_of_products(Know *to, const Fiber *f, const Block *b)
{
    static uint32_t clock[CLOCKS];

    if (!f->warp->has_done)
        return;
    memset(clock, 0, sizeof *clock * know_clocks);
    memcpy(clock + MAX_MBARRIERS + f->tid / WARP * WARP, f->warp->done, sizeof f->warp->done);
    tell(to, &(Know){.clock = clock}, f, b);
}

static void hear(Fiber *f, const Mbarrier *m)
{
    know_join(&f->know, &m->done);
    know_join(&f->after, &m->done_after);
    f->proxied = false;
}

static void arrive(Block *b, Mbarrier *m, unsigned bytes, const void *pc)
{
    Fiber *f = run.current;

    check_made(m, pc);
    if (m->pending == 0) {
        report(SIMT_MBARRIER, pc, NULL, "an arrival more than the %u of the phase", m->count);
        run_abort();
    }
    tell(&m->open, &f->know, f, b);
    tell_of_products(&m->open_after, f, b);
    tick(f);
    m->bytes += bytes;
    m->pending--;
    check_complete(m);
}

void simt_mbarrier_arrive(unsigned address, unsigned bytes)
{
    arrive(run.current->block, find(address, PC()), bytes, PC());
}

/* The block that a mapped (shared::cluster) address belongs to. It must not have ended. */
static Block *block_of(unsigned mapped, const void *pc)
{
    const Cluster *c = run.current->block->cluster;
    const unsigned rank = mapped >> 24;

    if (rank == 0 || rank > c->n || c->block[rank - 1]->live == 0) {
        report(SIMT_BOUNDS, pc, NULL, "address %#x of a block that is not there, or has ended", mapped);
        run_abort();
    }
    return c->block[rank - 1];
}

void simt_cluster_mbarrier_arrive(unsigned mbarrier)
{
    Block *b = block_of(mbarrier, PC());

    arrive(b, find_in(b, mbarrier, PC()), 0, PC());
}

int simt_mbarrier_try(unsigned address, unsigned parity)
{
    Fiber *f = run.current;
    Mbarrier *m = find(address, PC());

    check_made(m, PC());
    if ((m->phase & 1) == parity) {
        run_yield(PC());
        if ((m->phase & 1) == parity)
            return 0;
    }
    hear(f, m);
    return 1;
}

void simt_mbarrier_wait(unsigned address, unsigned parity)
{
    Fiber *f = run.current;
    Mbarrier *m = find(address, PC());

    check_made(m, PC());
    run_pause();
    while ((m->phase & 1) == parity)
        run_block(WAIT_MBARRIER, m, parity, &m->waiting, PC());
    hear(f, m);
}

/* --- bulk copies -------------------------------------------------------------------------------- */

typedef struct Bulk {
    Block *block;
    Mbarrier *mbarrier;
    char *to;
    const char *from; /* NULL: the source is `sent` */
    char sent[16];
    Copy *copies; /* not NULL: `bytes` is the number of these cp.async; when all have landed, one arrival */
    unsigned bytes;
    const SimtMap *map; /* not NULL: a tile of this matrix, from (row, column) */
    int row, column;
    uint64_t due; /* the scheduling step at which it lands */
} Bulk;
enum { MAX_BULK = 1 << 14 };
static Bulk bulk[MAX_BULK];
static unsigned n_bulk;

static void start(Bulk b)
{
    if (n_bulk == MAX_BULK)
        run_abort();
    b.due = run.step + (run.schedule == SIMT_ROUND_ROBIN ? 1 : run_random(300));
    bulk[n_bulk++] = b;
    simt_counts.copies++;
}

void simt_bulk_copy(unsigned to, const void *from, unsigned bytes, unsigned mbarrier)
{
    Fiber *f = run.current;
    Mbarrier *m = find(mbarrier, PC());
    char *p = own_shared(to, bytes, PC());

    if (to % 16 || (uintptr_t)from % 16 || bytes % 16 || bytes == 0) {
        report(SIMT_ALIGN, PC(), NULL, "a bulk copy of %u bytes from %p to shared address %u", bytes, from, to);
        run_abort();
    }
    check_made(m, PC());
    if (!m->fenced)
        report(SIMT_FENCE, PC(), NULL, "a bulk copy on an mbarrier whose making was not fenced for copies");
    memory_access(from, bytes, A_READ, PC());
    memory_copy_begins(p, bytes, true, PC());
    start((Bulk){.block = f->block, .mbarrier = m, .to = p, .from = from, .bytes = bytes});
}

/* Source of 16-byte unit u in row r of a tile. NULL: it lies outside of the matrix and is filled with zeros. */
static const char *unit_from(const SimtMap *m, int row, int column, unsigned r, unsigned u)
{
    const int64_t y = (int64_t)row + r, x = (int64_t)column + 8 * u;

    return y < 0 || y >= m->rows || x < 0 || x >= m->columns ? NULL
                                                             : (const char *)m->matrix + (y * m->columns + x) * 2;
}

static unsigned unit_to(unsigned r, unsigned u)
{
    return r * 128 + (u ^ (r & 7)) * 16;
}

/* Copies a tile to this block, or to every block of the cluster that is in the mask. Each destination's mbarrier
 * counts the bytes. */
void simt_tensor_copy(unsigned to, const void *map, int row, int column, unsigned mbarrier, unsigned mask)
{
    const SimtMap *m = map;
    const Cluster *c = run.current->block->cluster;
    const unsigned own = run.current->block->number % c->n;

    if (to % 1024)
        report(SIMT_ALIGN, PC(), NULL, "a tile at shared address %u", to);
    if (mask >> c->n)
        report(SIMT_BOUNDS, PC(), NULL, "a tile for blocks %#x of a cluster of %u", mask, c->n);
    for (unsigned r = 0; r < m->tile_rows; r++)
        for (unsigned u = 0; u < 8; u++)
            if (unit_from(m, row, column, r, u))
                memory_access(unit_from(m, row, column, r, u), 16, A_READ | A_UNWRITTEN_OK, PC());
    for (unsigned rank = 0; rank < c->n; rank++) {
        if (!((mask ? mask : 1u << own) >> rank & 1))
            continue;
        Block *b = block_of((rank + 1) << 24, PC());
        Bulk k = {.block = b,
                  .mbarrier = find_in(b, mbarrier, PC()),
                  .bytes = m->tile_rows * 128,
                  .map = m,
                  .row = row,
                  .column = column,
                  .to = b->shared + (to - SHARED_BASE)};

        check_made(k.mbarrier, PC());
        if (!k.mbarrier->fenced)
            report(SIMT_FENCE, PC(), NULL, "a tile on an mbarrier whose making was not fenced for copies");
        if (rank == own)
            memory_copy_begins(own_shared(to, k.bytes, PC()), k.bytes, true, PC());
        for (unsigned i = 0; i < k.bytes && rank != own; i += 16)
            memory_send_begins(to + i + ((rank + 1) << 24), 16, PC());
        start(k);
    }
}

static void land_tile(const Bulk *b, uint32_t number, uint32_t clock)
{
    for (unsigned r = 0; r < b->map->tile_rows; r++)
        for (unsigned u = 0; u < 8; u++) {
            const char *from = unit_from(b->map, b->row, b->column, r, u);

            memory_copy_lands(b->block, b->to + unit_to(r, u), from ? from : b->to, from ? 16 : 0, from ? 0 : 16,
                              number, clock, true);
        }
}

/* cp.async.mbarrier.arrive: the cp.async that this thread has started land together some steps later and then
 * count as its arrival. */
void simt_copy_arrive(unsigned mbarrier)
{
    Fiber *f = run.current;
    Mbarrier *m = find(mbarrier, PC());
    Bulk b = {.block = f->block, .mbarrier = m, .bytes = f->n_copies};

    check_made(m, PC());
    b.copies = run_keep(sizeof *b.copies * (f->n_copies + 1));
    if (f->n_copies)
        memcpy(b.copies, f->copies, sizeof *b.copies * f->n_copies);
    else
        b.copies[0].pc = PC();
    f->n_copies = 0;
    start(b);
}

/* st.async: stores up to 16 bytes in the shared memory of a block of the cluster; the mbarrier there counts them. */
void simt_cluster_send(unsigned mapped, const void *from, unsigned bytes, unsigned mbarrier)
{
    const Cluster *c = run.current->block->cluster;
    const unsigned rank = mapped >> 24;
    Bulk b = {.bytes = bytes};

    if (rank == 0 || rank > c->n || mbarrier >> 24 != rank) {
        report(SIMT_BOUNDS, PC(), NULL, "a send to address %#x with its mbarrier at %#x: both must be of one block",
               mapped, mbarrier);
        run_abort();
    }
    b.block = c->block[rank - 1];
    b.to = b.block->shared + ((mapped & 0xffffff) - SHARED_BASE);
    memory_send_begins(mapped, bytes, PC());
    b.mbarrier = find_in(b.block, mbarrier, PC());
    check_made(b.mbarrier, PC());
    assert(bytes <= sizeof b.sent);
    memcpy(b.sent, from, bytes);
    start(b);
}

static void land(unsigned i)
{
    const Bulk c = bulk[i];
    Mbarrier *m = c.mbarrier;
    const unsigned index = index_of(c.block, m->at);

    const uint32_t number = 1 + c.block->number * CLOCKS + index;

    bulk[i] = bulk[--n_bulk];
    if (c.copies) {
        for (unsigned k = 0; k < c.bytes; k++)
            memory_copy_lands(c.block, c.copies[k].to, c.copies[k].from, c.copies[k].bytes, c.copies[k].zeros, number,
                              m->phase + 1, false);
        if (m->pending == 0)
            report(SIMT_MBARRIER, c.copies[0].pc, NULL, "an arrival more than the %u of the phase", m->count);
        else
            m->pending--;
    } else if (c.map) {
        land_tile(&c, number, m->phase + 1);
        m->bytes -= c.bytes;
    } else {
        memory_copy_lands(c.block, c.to, c.from ? c.from : c.sent, c.bytes, 0, number, m->phase + 1, true);
        m->bytes -= c.bytes;
    }
    m->open.clock[index] = m->phase + 1;
    check_complete(m);
    run.polls = 0;
}

bool async_land(bool now)
{
    bool any = false;

    if (!now) {
        for (unsigned i = 0; i < n_bulk;)
            if (bulk[i].due <= run.step) {
                land(i);
                any = true;
            } else {
                i++;
            }
    } else if (n_bulk) {
        land(run_random(n_bulk));
        any = true;
    }
    return peer_land(now) || any;
}

void simt_async_proxy_fence(void)
{
    Fiber *f = run.current;

    f->proxy_clock = f->clocks[MAX_MBARRIERS + f->tid];
    f->proxied = true;
    memory_async_fence(f->block);
    tick(f);
}

void async_block_ends(Block *b)
{
    for (unsigned i = 0; i < n_bulk;)
        if (bulk[i].block == b) {
            if (!run.aborted && run.live == 0 && simt_reports() == 0)
                report(SIMT_IN_FLIGHT, NULL, NULL, "a block ends with bulk copies under way");
            bulk[i] = bulk[--n_bulk];
        } else {
            i++;
        }
    for (unsigned i = 0; i < b->n_mbarriers; i++) {
        const Mbarrier *m = b->mbarrier[i];

        if (m->bytes && b->live == 0)
            report(SIMT_MBARRIER, NULL, NULL, "a block ends, and its mbarrier %u (address %u) has %lld bytes %s", i,
                   (unsigned)(m->at - b->shared) + SHARED_BASE, (long long)(m->bytes < 0 ? -m->bytes : m->bytes),
                   m->bytes < 0 ? "nobody announced" : "that did not come");
    }
}

void async_reset(void)
{
    n_bulk = 0;
    peer_reset();
}
