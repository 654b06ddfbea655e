/* memory.c - device memory, the blocks' shared memory, and the checks of every access to them.
 *
 * Each grain (two bytes) has a state (allocated, written, a copy under way ...) and a mark: its last writer with
 * the writer's clock, and its readers since. An access is checked against both and then recorded in the mark. A
 * mark has room for two readers; if there are more, the one dropped is chosen at random. */
#include <dlfcn.h>
#include <sys/mman.h>

#include "parts.h"

#ifndef SIMT_COUNTED
#define SIMT_COUNTED 0 /* 1: kernels are built for coverage (scripts/coverage) and write their own line counters */
#endif

#if SIMT_SANITIZED
#include <sanitizer/asan_interface.h>
#define HIDE(p, n) __asan_poison_memory_region(p, n)
#define SHOW(p, n) __asan_unpoison_memory_region(p, n)
enum { WATCHED = 0 }; /* AddressSanitizer checks plain loads and stores; they leave no marks */
#else
enum { WATCHED = 1 };
#define HIDE(p, n) (void)(p)
#define SHOW(p, n) (void)(p)
#endif

#define HEAP ((size_t)(WATCHED ? 3072 : 256) << 20)
enum {
    S_NEW = WATCHED ? S_ALLOCATED : S_ALLOCATED | S_WRITTEN,
    POISON = 0xff, /* NaN in every type */
    ZONE = 256,
};

typedef struct Mark {
    uint32_t written, read; /* when: the launch's id (heap), or the stamp of the block (shared memory) */
    uint32_t writer, write_clock;
    uint32_t reader[2], read_clock[2];
    const void *write_pc, *read_pc;
} Mark;

typedef struct Space {
    char *base;
    size_t bytes;
    uint8_t *state; /* one for each GRAIN */
    Mark *mark;
} Space;

static Space heap, shared;
static size_t heap_used;
static char *stacks;
static size_t stacks_bytes;

/* --- the heap ----------------------------------------------------------------------------------- */

enum { MAX_PIECES = 4096 };
static struct {
    char *at, name[40];
    size_t bytes;
} pieces[MAX_PIECES];
static size_t n_pieces;

void *memory_reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED) {
        perror("simt: reserving memory");
        abort();
    }
    return p;
}

void memory_release(void *p, size_t bytes)
{
    if (madvise(p, bytes, MADV_DONTNEED) != 0) {
        perror("simt: giving memory back");
        abort();
    }
}

static void open_space(Space *s, size_t bytes)
{
    s->bytes = bytes;
    s->base = memory_reserve(bytes);
    s->state = memory_reserve(bytes / GRAIN);
    s->mark = memory_reserve(bytes / GRAIN * sizeof(Mark));
    HIDE(s->base, bytes);
}

static uint8_t *state_of(const Space *s, const void *p)
{
    return s->state + (size_t)((const char *)p - s->base) / GRAIN;
}

static void set_state(const Space *s, const void *p, size_t bytes, uint8_t v)
{
    memset(state_of(s, p), v, (bytes + GRAIN - 1) / GRAIN);
}

static bool within(const Space *s, const void *p)
{
    return (size_t)((const char *)p - s->base) < s->bytes;
}

void *simt_alloc(size_t bytes, const char *name)
{
    char *p;

    if (!heap.base)
        open_space(&heap, HEAP);
    p = heap.base + heap_used + ZONE;
    heap_used += ZONE + (bytes + ZONE - 1) / ZONE * ZONE + ZONE;
    if (heap_used > heap.bytes || n_pieces == MAX_PIECES) {
        fprintf(stderr, "simt: more memory than the harness has\n");
        abort();
    }
    SHOW(p, bytes);
    memset(p, POISON, bytes);
    set_state(&heap, p, bytes, S_NEW);
    pieces[n_pieces].at = p;
    pieces[n_pieces].bytes = bytes;
    snprintf(pieces[n_pieces++].name, sizeof pieces[0].name, "%s", name);
    return p;
}

static int piece_of(const void *p)
{
    for (size_t i = 0; i < n_pieces; i++)
        if ((const char *)p >= pieces[i].at - ZONE && (const char *)p < pieces[i].at + pieces[i].bytes + ZONE)
            return (int)i;
    return -1;
}

bool simt_holds(const void *p, size_t bytes)
{
    for (size_t i = 0; i < n_pieces; i++)
        if ((const char *)p >= pieces[i].at && (size_t)((const char *)p - pieces[i].at) <= pieces[i].bytes &&
            bytes <= pieces[i].bytes - (size_t)((const char *)p - pieces[i].at))
            return true;
    return false;
}

void simt_free(void *p)
{
    for (size_t i = 0; i < n_pieces; i++)
        if (pieces[i].at == p) {
            set_state(&heap, p, pieces[i].bytes, 0);
            HIDE(p, pieces[i].bytes);
            pieces[i] = pieces[--n_pieces];
            return;
        }
    abort(); /* not from simt_alloc, or freed twice */
}

void simt_free_all(void)
{
    if (!heap.base)
        return;
    memory_release(heap.base, heap_used);
    memory_release(heap.state, heap_used / GRAIN);
    memory_release(heap.mark, heap_used / GRAIN * sizeof(Mark));
    views_release(heap_used / GRAIN);
    HIDE(heap.base, heap_used);
    heap_used = n_pieces = 0;
    polled_reset();
}

void simt_write(void *to, const void *from, size_t bytes)
{
    const uint8_t constant = bytes ? *state_of(&heap, to) & S_CONSTANT : 0;

    if (!simt_holds(to, bytes))
        abort();
    memcpy(to, from, bytes);
    set_state(&heap, to, bytes, S_ALLOCATED | S_WRITTEN | constant);
}

void simt_fill(void *to, int byte, size_t bytes)
{
    if (!simt_holds(to, bytes))
        abort();
    memset(to, byte, bytes);
    set_state(&heap, to, bytes, S_ALLOCATED | S_WRITTEN);
}

void simt_protect(void *p, size_t bytes)
{
    uint8_t *s = state_of(&heap, p);

    for (size_t i = 0; i < (bytes + GRAIN - 1) / GRAIN; i++)
        s[i] |= S_CONSTANT;
}

void simt_forget(void *p, size_t bytes)
{
    memset(p, POISON, bytes);
    set_state(&heap, p, bytes, S_NEW);
}

bool simt_written(const void *p, size_t bytes)
{
    const uint8_t *s = state_of(&heap, p);

    for (size_t i = 0; i < (bytes + GRAIN - 1) / GRAIN; i++)
        if (!(s[i] & S_WRITTEN))
            return false;
    return true;
}

bool simt_untouched(const void *p, size_t bytes)
{
    const uint8_t *s = state_of(&heap, p);

    for (size_t i = 0; i < (bytes + GRAIN - 1) / GRAIN; i++)
        if (WATCHED && s[i] & S_WRITTEN)
            return false;
    return true;
}

void simt_written_in_front(void *p, size_t bytes)
{
    Mark *m = heap.mark + (state_of(&heap, p) - heap.state);

    for (size_t i = 0; i < (bytes + GRAIN - 1) / GRAIN; i++)
        m[i].written = run.chain;
}

void memory_stacks(char *base, size_t bytes_each, size_t n)
{
    stacks = base;
    stacks_bytes = bytes_each * n;
}

/* --- shared memory ------------------------------------------------------------------------------ */

void memory_start_block(Block *b, unsigned dynamic_bytes)
{
    if (!shared.base) {
        open_space(&shared, (size_t)SLOT * MAX_BLOCKS);
        views_open(HEAP / GRAIN, shared.bytes / GRAIN);
    }
    b->shared = shared.base + (size_t)SLOT * b->slot;
    set_state(&shared, b->shared, SLOT, 0);
    HIDE(b->shared, SLOT);
    SHOW(b->shared, dynamic_bytes);
    memset(b->shared, POISON, dynamic_bytes);
    set_state(&shared, b->shared, dynamic_bytes, S_NEW);
}

void *memory_static(Block *b, const void *site, unsigned bytes, const char *name)
{
    char *p;

    for (unsigned i = 0; i < b->n_statics; i++)
        if (b->statics[i].site == site)
            return b->shared + b->statics[i].at;
    if (b->n_statics == MAX_STATICS || b->static_bytes + bytes + 64 > STATIC_MAX) {
        report(SIMT_BOUNDS, NULL, NULL, "static shared memory: no room for %s", name);
        run_abort();
    }
    p = b->shared + DYNAMIC_MAX + b->static_bytes + 16;
    b->statics[b->n_statics++] = (Static){site, (unsigned)(p - b->shared)};
    b->static_bytes += (bytes + 15) / 16 * 16 + 32;
    SHOW(p, bytes);
    memset(p, POISON, bytes);
    set_state(&shared, p, bytes, S_NEW);
    return p;
}

/* --- text for reports --------------------------------------------------------------------------- */

const char *memory_where(const void *p)
{
    static char text[160];
    const int i = within(&heap, p) ? piece_of(p) : -1;

    if (within(&shared, p))
        snprintf(text, sizeof text, "shared memory, address %u",
                 (unsigned)(((const char *)p - shared.base) % SLOT + SHARED_BASE));
    else if (i >= 0)
        snprintf(text, sizeof text, "%s, byte %td of %zu", pieces[i].name, (const char *)p - pieces[i].at,
                 pieces[i].bytes);
    else
        snprintf(text, sizeof text, "%p, no memory of the device", p);
    return text;
}

static const char *number_text(uint32_t number)
{
    static char text[80];
    const uint32_t block = (number - 1) / CLOCKS, i = (number - 1) % CLOCKS;

    if (i < MAX_MBARRIERS)
        snprintf(text, sizeof text, "block number %u's copy on mbarrier %u", block, i);
    else
        snprintf(text, sizeof text, "block number %u warp %u lane %u", block, (i - MAX_MBARRIERS) / WARP,
                 (i - MAX_MBARRIERS) % WARP);
    return text;
}

uint16_t *memory_heap(void)
{
    return (uint16_t *)(void *)heap.base;
}

/* --- one access --------------------------------------------------------------------------------- */

static bool race_with_writer(const Fiber *f, const Mark *m, uint32_t stamp, bool write)
{
    return m->written == stamp && m->writer != f->number &&
           !(write ? know_comes_after : know_of)(f, m->writer, m->write_clock);
}

/* The number of a reader that races with this access; 0: none. */
static uint32_t race_with_reader(const Fiber *f, const Mark *m, uint32_t stamp)
{
    if (m->read == stamp)
        for (int i = 0; i < 2; i++)
            if (m->reader[i] && m->reader[i] != f->number && !know_comes_after(f, m->reader[i], m->read_clock[i]))
                return m->reader[i];
    return 0;
}

static void leave_read(const Fiber *f, Mark *m, uint32_t stamp, const void *pc)
{
    const uint32_t clock = f->clocks[MAX_MBARRIERS + f->tid];
    int i;

    if (m->read != stamp) {
        m->read = stamp;
        m->reader[0] = m->reader[1] = 0;
    }
    for (i = 0; i < 2; i++)
        if (m->reader[i] == 0 || m->reader[i] == f->number)
            break;
    if (i == 2) /* drop a reader that happened before this one: what races with it also races with this one */
        i = know_of(f, m->reader[0], m->read_clock[0])   ? 0
            : know_of(f, m->reader[1], m->read_clock[1]) ? 1
                                                         : (int)run_random(2);
    m->reader[i] = f->number;
    m->read_clock[i] = clock;
    m->read_pc = pc;
}

static void leave_write(Mark *m, uint32_t stamp, uint32_t number, uint32_t clock, const void *pc)
{
    m->written = stamp;
    m->writer = number;
    m->write_clock = clock;
    m->write_pc = pc;
    m->reader[0] = m->reader[1] = 0;
}

/* Before the programmatic wait: an access to what an earlier launch of the chain wrote, or a write to what one
 * read. */
static bool too_early(const Mark *m, bool write)
{
    return (m->written >= run.chain && m->written < run.id) || (write && m->read >= run.chain && m->read < run.id);
}

static bool check_grain(const Fiber *f, Space *s, size_t at, size_t bytes, uint32_t stamp, unsigned how, const void *pc)
{
    uint8_t *state = &s->state[at];
    Mark *m = &s->mark[at];
    const void *p = s->base + at * GRAIN;
    const char *verb = how & A_ATOMIC ? "atomic access" : how & A_WRITE ? "write" : "read";
    uint32_t reader;

    if (!(*state & S_ALLOCATED))
        report(SIMT_BOUNDS, pc, NULL, "%s of %zu bytes: %s", verb, bytes, memory_where(p));
    else if (*state & S_COPY)
        report(SIMT_IN_FLIGHT, pc, m->write_pc, "%s of %zu bytes that a copy is still bringing: %s\n    copied by %s",
               verb, bytes, memory_where(p), number_text(m->writer));
    else if (*state & S_MBARRIER)
        report(SIMT_MBARRIER, pc, NULL, "plain %s of an mbarrier: %s", verb, memory_where(p));
    else if ((how & (A_WRITE | A_ATOMIC)) && (*state & S_CONSTANT))
        report(SIMT_CONSTANT, pc, NULL, "%s of %zu bytes: %s", verb, bytes, memory_where(p));
    else if (!(how & (A_WRITE | A_UNWRITTEN_OK)) && !(*state & S_WRITTEN) && (s == &heap || run.launch->strict))
        report(SIMT_UNWRITTEN, pc, NULL, "%s of %zu bytes that nobody wrote: %s", verb, bytes, memory_where(p));
    else if (s == &heap && run.launch->overlap && !f->waited && too_early(m, how & (A_WRITE | A_ATOMIC)))
        report(SIMT_EARLY, pc, m->write_pc, "%s of %zu bytes that an earlier kernel still uses: %s", verb, bytes,
               memory_where(p));
    else if (race_with_writer(f, m, stamp, how & (A_WRITE | A_ATOMIC)) && !(how & A_ATOMIC && *state & S_ATOMIC))
        report(SIMT_RACE, pc, m->write_pc, "%s of %zu bytes: %s\n    nothing orders it after the write by %s", verb,
               bytes, memory_where(p), number_text(m->writer));
    else if ((how & (A_WRITE | A_ATOMIC)) && (reader = race_with_reader(f, m, stamp)) != 0)
        report(SIMT_RACE, pc, m->read_pc, "%s of %zu bytes: %s\n    nothing orders it after the read by %s", verb,
               bytes, memory_where(p), number_text(reader));
    else
        return true;
    return false;
}

static void check_range(Space *s, const void *p, size_t bytes, uint32_t stamp, unsigned how, const void *pc)
{
    const Fiber *f = run.current;
    const size_t first = (size_t)((const char *)p - s->base) / GRAIN;
    const size_t last = (size_t)((const char *)p - s->base + bytes - 1) / GRAIN;
    bool ok = true;

    for (size_t at = first; at <= last; at++) {
        ok = ok && check_grain(f, s, at, bytes, stamp, how, pc);
        if (how & (A_WRITE | A_ATOMIC)) {
            leave_write(&s->mark[at], stamp, f->number, f->clocks[MAX_MBARRIERS + f->tid], pc);
            s->state[at] =
                (uint8_t)((s->state[at] | S_WRITTEN | S_ATOMIC) & (how & A_ATOMIC ? ~S_BULK : ~(S_ATOMIC | S_BULK)));
        } else {
            leave_read(f, &s->mark[at], stamp, pc);
        }
    }
}

/* An access to neither device memory nor the thread's own stack: the kernel's arguments, constant data of the
 * program, or an invalid address. */
static void other_memory(const void *p, size_t bytes, unsigned how, const void *pc)
{
    static const void *page; /* the last page of constant data that was looked up */
    Dl_info info;

    if (((uintptr_t)p ^ (uintptr_t)page) < 4096 && page)
        return;
    if ((const char *)p >= stacks && (const char *)p < stacks + stacks_bytes) {
        report(SIMT_RACE, pc, NULL, "%s of another thread's local memory", how & A_WRITE ? "write" : "read");
        return;
    }
    if ((size_t)((const char *)p - (const char *)run.launch->args) < run.launch->kernel->args_bytes)
        return;
    if ((!(how & A_WRITE) || SIMT_COUNTED) && dladdr(p, &info) && info.dli_fname) {
        page = p;
        return;
    }
    report(SIMT_BOUNDS, pc, NULL, "%s of %zu bytes: %s", how & A_WRITE ? "write" : "read", bytes, memory_where(p));
    run_abort(); /* else the kernel would now do this access */
}

/* True for memory that was written before the launch and that no kernel may write. Reads of it need no mark. */
static bool is_constant(const void *p, size_t bytes)
{
    const size_t first = (size_t)((const char *)p - heap.base) / GRAIN;
    const uint64_t all = 0x0101010101010101u * (S_ALLOCATED | S_WRITTEN | S_CONSTANT);

    for (size_t i = 0; i < bytes / GRAIN; i += sizeof all)
        if (memcmp(&heap.state[first + i], &all, sizeof all) != 0)
            return false;
    return true;
}

/* Puts into the heap, for the bytes of the access, the values that this block sees (views.c). */
static void show_heap(Block *b, const void *p, size_t bytes, unsigned how)
{
    const size_t first = (size_t)((const char *)p - heap.base) / GRAIN;
    const size_t end = (size_t)((const char *)p - heap.base + bytes - 1) / GRAIN + 1;

    if (!WATCHED)
        return;
    if (how & A_ATOMIC)
        view_atomic(b, memory_heap(), heap.state, first, end);
    else if (how & A_WRITE)
        view_write(b, memory_heap(), heap.state, first, end);
    else
        view_read(b, memory_heap(), heap.state, first, end);
}

static void hide_from_engines(Block *b, const void *p, size_t bytes, unsigned how)
{
    const size_t first = (size_t)((const char *)p - shared.base) / GRAIN;

    if (WATCHED && how & (A_WRITE | A_ATOMIC) && !(how & A_ENGINE))
        view_plain_shared(b, (uint16_t *)(void *)shared.base, shared.state, first,
                          (size_t)((const char *)p - shared.base + bytes - 1) / GRAIN + 1);
}

void memory_async_fence(Block *b)
{
    view_fence_shared(b, shared.state);
}

void memory_end_launch(void)
{
    views_end_launch(heap.state);
}

void memory_access(const void *p, size_t bytes, unsigned how, const void *pc)
{
    Fiber *f = run.current;

    if ((size_t)((const char *)p - f->stack) < SIMT_STACK || f == &fiber_main || bytes == 0)
        return;
    simt_counts.accesses++;
    if (how & A_ALIGNED && (uintptr_t)p % bytes)
        report(SIMT_ALIGN, pc, NULL, "%s of %zu bytes: %s", how & A_WRITE ? "write" : "read", bytes, memory_where(p));
    if (within(&heap, p)) {
        if (bytes % 16 == 0 && !(how & (A_WRITE | A_ATOMIC)) && is_constant(p, bytes))
            return;
        check_range(&heap, p, bytes, run.id, how, pc);
        show_heap(f->block, p, bytes, how);
        if (how & A_WRITE)
            polled_write(p, bytes, !(how & A_ATOMIC), pc);
    } else if (within(&shared, p)) {
        const size_t slot = (size_t)((const char *)p - shared.base) / SLOT;

        if (slot != f->block->slot)
            report(SIMT_BOUNDS, pc, NULL, "%s of another block's shared memory", how & A_WRITE ? "write" : "read");
        else
            check_range(&shared, p, bytes, f->block->stamp, how, pc);
        hide_from_engines(f->block, p, bytes, how);
    } else {
        other_memory(p, bytes, how, pc);
    }
}

bool memory_look(const void *p, uint32_t *writer, uint32_t *clock, uint16_t *value)
{
    const Mark *m = heap.mark + (state_of(&heap, p) - heap.state);

    show_heap(run.current->block, p, GRAIN, A_READ);
    memcpy(value, p, sizeof *value);
    *writer = m->writer;
    *clock = m->write_clock;
    return !WATCHED || m->written == run.id;
}

void *memory_shared(uint32_t address, size_t bytes, unsigned how, const void *pc)
{
    Block *b = run.current->block;
    const uint32_t rank = address >> 24, offset = (address & 0xffffff) - SHARED_BASE;
    char *p;

    if (rank > b->cluster->n || offset > SLOT - bytes) {
        report(SIMT_BOUNDS, pc, NULL, "shared address %#x", address);
        run_abort();
    }
    if (rank > 0)
        b = b->cluster->block[rank - 1];
    if (b->live == 0) {
        report(SIMT_BOUNDS, pc, NULL, "shared memory of a block of the cluster that has ended");
        run_abort();
    }
    p = b->shared + offset;
    simt_counts.accesses++;
    if (how & A_ALIGNED && address % bytes)
        report(SIMT_ALIGN, pc, NULL, "%s of %zu bytes: %s", how & A_WRITE ? "write" : "read", bytes, memory_where(p));
    check_range(&shared, p, bytes, b->stamp, how, pc);
    hide_from_engines(b, p, bytes, how);
    return p;
}

/* --- copies ------------------------------------------------------------------------------------- */

void memory_copy_begins(void *to, size_t bytes, bool bulk, const void *pc)
{
    const Fiber *f = run.current;
    uint8_t *state = state_of(&shared, to);
    Mark *m = shared.mark + (state - shared.state);

    if (bulk)
        for (size_t i = 0; i < bytes / GRAIN; i++) {
            const uint32_t n = m[i].writer, thread = n ? (n - 1) % CLOCKS : 0;
            const Fiber *w = n && thread >= MAX_MBARRIERS ? f->block->fiber[thread - MAX_MBARRIERS] : NULL;

            if (w && m[i].written == f->block->stamp && (n - 1) / CLOCKS == f->block->number &&
                m[i].write_clock > w->proxy_clock && m[i].write_clock > f->proxy_clock) {
                report(SIMT_FENCE, pc, m[i].write_pc,
                       "a bulk copy over bytes written by %s, with no async_proxy_fence between: %s", report_who(w),
                       memory_where((char *)to + i * GRAIN));
                break;
            }
        }
    memory_access(to, bytes, bulk ? A_WRITE | A_ENGINE : A_WRITE, pc);
    if (bulk)
        view_bulk_begins((uint16_t *)(void *)shared.base, shared.state, (size_t)(state - shared.state),
                         (size_t)(state - shared.state) + bytes / GRAIN);
    memset(to, POISON, bytes);
    for (size_t i = 0; i < bytes / GRAIN; i++)
        state[i] |= S_COPY;
}

void memory_send_begins(uint32_t address, size_t bytes, const void *pc)
{
    char *p = memory_shared(address, bytes, A_WRITE | A_ALIGNED | A_ENGINE, pc);
    uint8_t *state = state_of(&shared, p);

    memset(p, POISON, bytes);
    for (size_t i = 0; i < bytes / GRAIN; i++)
        state[i] |= S_COPY;
}

void memory_products(uint32_t address, uint16_t out[8])
{
    const char *p = run.current->block->shared + (address - SHARED_BASE);

    view_of_products((const uint16_t *)(const void *)shared.base, shared.state, (size_t)(p - shared.base) / GRAIN, 8,
                     out);
}

bool memory_is_plain(const void *p)
{
    const uint8_t state = *state_of(&shared, p);

    return WATCHED && state & S_WRITTEN &&
           !(state & S_BULK); /* else what nobody has written looks as if it were plain */
}

void memory_copy_lands(Block *b, void *to, const void *from, size_t bytes, size_t zeros, uint32_t number,
                       uint32_t clock, bool is_bulk)
{
    uint8_t *state = state_of(&shared, to);
    Mark *m = shared.mark + (state - shared.state);

    if (within(&heap, from) && bytes)
        show_heap(b, from, bytes, A_READ);
    memcpy(to, from, bytes);
    memset((char *)to + bytes, 0, zeros);
    for (size_t i = 0; i < (bytes + zeros) / GRAIN; i++) {
        state[i] = (uint8_t)((state[i] & ~(S_COPY | S_BULK)) | S_WRITTEN | (is_bulk ? S_BULK : 0));
        leave_write(&m[i], b->stamp, number, clock, m[i].write_pc);
    }
    if (is_bulk)
        view_bulk_lands((uint16_t *)(void *)shared.base, shared.state, (size_t)(state - shared.state),
                        (size_t)(state - shared.state) + bytes / GRAIN);
}

/* An mbarrier is initialised or invalidated. In between, plain accesses to its bytes are errors. */
void memory_mbarrier(void *p, bool is)
{
    uint8_t *state = state_of(&shared, p);

    for (size_t i = 0; i < 8 / GRAIN; i++)
        state[i] = (uint8_t)(is ? state[i] | S_MBARRIER : state[i] & ~S_MBARRIER);
}
