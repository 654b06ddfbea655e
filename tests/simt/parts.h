/* parts.h - types and functions that the files of the harness share.
 *
 *   fiber.c    switching between threads         run.c      launches, schedules, hangs
 *   know.c     vector clocks                     memory.c   memory, its marks, checks of every access
 *   hooks.c    hooks of -fsanitize=thread        views.c    which value a block sees
 *   sync.c     barriers, warps, atomics          async.c    asynchronous copies, mbarriers
 *   wgmma.c    matrix products of a warpgroup    polled.c   what a polling host sees
 *   report.c   texts of findings                 peer.c     stores between GPUs
 *
 * "To know of an access" means that it happened before (Lamport 1978) and that its effect is visible. "To come
 * after" an access means the order alone: a later write is no race with it, but a read may miss its effect. */
#ifndef FTX_SIMT_PARTS_H
#define FTX_SIMT_PARTS_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "simt.h"

enum {
    WARP = 32,
    MAX_THREADS = 1024,  /* of a block */
    MAX_RESIDENT = 4096, /* threads that run at the same time */
    MAX_BLOCKS = 64,     /* blocks that run at the same time */
    MAX_MBARRIERS = 64,  /* of a block */
    CLOCKS = MAX_THREADS + MAX_MBARRIERS,
    SHARED_BASE = 1024,      /* 32-bit address of a block's first dynamic byte */
    DYNAMIC_MAX = 256 << 10, /* bytes of a block's slot for dynamic shared memory */
    STATIC_MAX = 64 << 10,   /* bytes after it for static shared arrays */
    SLOT = DYNAMIC_MAX + STATIC_MAX,
    GRAIN = 2, /* bytes with one state and one mark: the smallest element */
};
#if SIMT_SANITIZED
enum { SIMT_STACK = 256 << 10 };
#else
enum { SIMT_STACK = 64 << 10 };
#endif
#define PC() __builtin_return_address(0)

/* --- know.c: vector clocks -------------------------------------------------------------------- */

/* Knowledge of another block: the accesses of its thread i up to clock[i]. The array never changes. */
typedef struct Far {
    uint32_t block;
    const uint32_t *clock; /* [CLOCKS] */
} Far;

/* The accesses that a thread knows of, or that a synchronisation object passes on to who waits for it. */
typedef struct Know {
    uint32_t *clock; /* [CLOCKS] of the own block; NULL: an object of no block, which has only `far` */
    Far *far;
    uint32_t n_far, cap_far;
} Know;

typedef struct Fiber Fiber;
typedef struct Block Block;
/* Of a block's clocks the first MAX_MBARRIERS are of the copies that its mbarriers count; then follow the threads'. */
extern unsigned know_clocks; /* number in use */
void know_join(Know *to, const Know *from);
void know_take(Know *to, const Know *from);                             /* the same, if `from` covers `to` */
bool know_of(const Fiber *f, uint32_t number, uint32_t clock);          /* f knows of this access */
bool know_told(const Know *k, uint32_t number, uint32_t clock);         /* the same for k, by `far` alone */
bool know_comes_after(const Fiber *f, uint32_t number, uint32_t clock); /* f comes after this access */
void know_tell(Know *to, const Know *from, uint32_t block); /* adds what a thread of `block` knows to a global object */
void know_hear(Know *to, const Know *from, uint32_t block); /* adds it to what a thread of `block` knows */
void know_clear(Know *k);

/* --- a running launch --------------------------------------------------------------------------- */

typedef enum WaitKind {
    WAIT_NONE,
    WAIT_BARRIER,
    WAIT_WARP,
    WAIT_MBARRIER,
    WAIT_CLUSTER,
    WAIT_POLL,
} WaitKind;

typedef struct Queue { /* of waiting fibers */
    Fiber *first;
} Queue;

typedef struct Copy { /* cp.async: one thread's 4 or 16 bytes */
    char *to;
    const char *from;
    unsigned bytes, zeros, group;
    const void *pc;
} Copy;

typedef enum WarpOp {
    OP_SYNC = 1,
    OP_XOR,
    OP_UP,
    OP_DOWN,
    OP_INDEX,
    OP_BALLOT,
    OP_MMA_BF16,
    OP_MMA_FP16,
    OP_MMA_CODES,
    OP_LDMATRIX,
    OP_LDMATRIX_TRANS,
    OP_TRANSPOSE,
    OP_LEAST,
    OP_ROWS,
    OP_WGMMA_WAIT,
} WarpOp;

typedef struct Warp {
    unsigned arrived, left; /* number of lanes that wait; of lanes that have ended */
    WarpOp op;
    unsigned param;       /* matrices of ldmatrix, bytes of a shuffle, k of a product of codes */
    uint32_t clock[WARP]; /* the lanes' clocks at their last operation together */
    uint32_t done[WARP];  /* the same at their last wait for wgmma: reads of those products are complete */
    bool has_done;
    Fiber *lane[WARP];
} Warp;

struct Fiber {
    void *sp;
    char *stack;
    void *fake; /* AddressSanitizer's fake stack */
    Block *block;
    Warp *warp;
    unsigned tid;
    uint32_t number;   /* identifies the thread in marks: 1 + block * CLOCKS + MAX_MBARRIERS + tid */
    bool done, waited; /* waited: it has waited for the previous kernel (programmatic dependent launch) */
    Know know;
    uint32_t clocks[CLOCKS];
    Know after; /* accesses that this thread comes after, although it may not see their effect yet */
    uint32_t after_clocks[CLOCKS];
    /* waiting */
    WaitKind wait;
    void *object;
    unsigned value;
    const void *pc;
    Fiber *next;
    /* operands and results of a warp's operation */
    uint32_t in[8], out[4];
    float sum[4], rows[2][16];
    /* copies under way */
    Copy *copies;
    unsigned n_copies, cap_copies, group;
    uint32_t proxy_clock;  /* clock of its last async_proxy_fence: bulk copies see its writes up to here */
    Know fenced, unfenced; /* known at its last fence; learnt by relaxed reads since then */
    bool has_fenced, has_unfenced;
    Know system; /* known at its last fence of system scope */
    unsigned cluster_arrived;
    /* wgmma products under way: wgmma.c */
    struct Product *products;
    struct Sums *sums;
    unsigned wgmma_group;
    bool wgmma_fenced;
    bool proxied; /* async_proxy_fence since the last wait */
};

typedef struct Barrier {
    unsigned expected, arrived, votes;
    Know know;
    uint32_t clock[CLOCKS];
    Queue waiting;
    const void *pc;
} Barrier;

typedef struct Mbarrier {
    char *at;
    unsigned count, pending;
    int64_t bytes;               /* announced by expect_tx and not copied yet; negative: copied, not announced yet */
    uint32_t phase;              /* number of completed phases */
    Know open, done;             /* knowledge gathered in the current phase; in the completed ones */
    Know open_after, done_after; /* the same for Fiber.after */
    uint32_t clock[4][CLOCKS];
    Fiber *maker;
    uint32_t made; /* the maker's clock at the initialisation */
    bool fenced;
    Queue waiting;
} Mbarrier;

typedef struct GrainRange {
    size_t first, end;
} GrainRange;

typedef struct Grains {
    GrainRange *at;
    size_t n, cap;
} Grains;

typedef struct Static { /* a SHARED array of a block */
    const void *site;
    unsigned at;
} Static;

enum { MAX_STATICS = 32 };
struct Block {
    unsigned index[3], number; /* blockIdx; its linear index in the grid */
    uint32_t stamp;            /* identifies the block in marks of shared memory; unique over all launches */
    unsigned slot, live, threads;
    char *shared;
    Fiber **fiber; /* [threads] */
    Warp warp[MAX_THREADS / WARP];
    Barrier barrier[16];
    Mbarrier *mbarrier[MAX_MBARRIERS];
    unsigned n_mbarriers;
    Static statics[MAX_STATICS];
    unsigned n_statics, static_bytes;
    struct Cluster *cluster;
    Grains buffer;     /* its plain writes to global memory that no other block sees yet: views.c */
    uint32_t acquired; /* number of store buffer drains at its last acquire */
    Grains unfenced;   /* its writes to shared memory that the async proxy (TMA, wgmma) does not see yet */
};

typedef struct Cluster {
    unsigned n, arrived, phase;
    Block *block[8];
    uint32_t *clock[8]; /* clocks gathered in this phase, one array for each block */
    Know know;          /* knowledge gathered in the phases before */
    Queue waiting;
} Cluster;

typedef struct Run {
    const SimtLaunch *launch;
    uint32_t id, chain; /* number of this launch; of the first launch that it may overlap */
    SimtSchedule schedule;
    uint64_t seed, random;
    Fiber *current;
    unsigned live; /* number of threads that have not ended */
    uint64_t step, polls;
    bool aborted, hangs, someone_waited;
    bool lets_ahead; /* a thread triggers the next launch, or ends, before its own wait for the previous one */
} Run;
extern Run run;

uint32_t run_random(uint32_t n); /* 0 .. n-1 */
void *run_keep(size_t bytes);    /* zeroed; until the launch ends */
void run_block(WaitKind kind, void *object, unsigned value, Queue *q, const void *pc);
void run_wake(Queue *q);
void run_yield(const void *pc); /* a thread that polls: lets others run first */
void run_pause(void);           /* at random, lets another thread run first */
_Noreturn void run_abort(void);
Block *run_block_of_slot(unsigned slot); /* NULL: the slot is free */

/* --- fiber.c ------------------------------------------------------------------------------------ */
void fiber_start(Fiber *f, void (*entry)(void));
void fiber_switch(Fiber *from, Fiber *to, bool ends);
extern Fiber fiber_main;

/* --- memory.c ----------------------------------------------------------------------------------- */
enum {
    A_READ = 0,
    A_WRITE = 1,
    A_ATOMIC = 2,
    A_UNWRITTEN_OK = 4,
    A_ALIGNED = 8,
    A_ENGINE = 16, /* by an asynchronous copy (TMA), not by the thread's own store */
};

enum { /* of a grain */
       S_ALLOCATED = 1,
       S_WRITTEN = 2,
       S_COPY = 4,
       S_CONSTANT = 8,
       S_MBARRIER = 16,
       S_ATOMIC = 32,
       S_BULK = 64,
       S_VIEW = 128, /* not all blocks see the same value: views.c */
};

/* An access of the current thread to [p, p + bytes). */
void memory_access(const void *p, size_t bytes, unsigned how, const void *pc);
/* The same for shared memory by its 32-bit address, which may be mapped to another block of the cluster. Returns the
 * host pointer. */
void *memory_shared(uint32_t address, size_t bytes, unsigned how, const void *pc);
/* Reads 16 bytes of the block's shared memory as wgmma sees them. Leaves no mark. */
void memory_products(uint32_t address, uint16_t out[8]);
bool memory_is_plain(const void *p);        /* written, and not by a bulk copy */
void *memory_reserve(size_t bytes);         /* zeroed; never unmapped */
void memory_release(void *p, size_t bytes); /* zeroes it by returning its pages to the system */
uint16_t *memory_heap(void);                /* the base of the heap, as grains */
const char *memory_where(const void *p);
void memory_async_fence(Block *b); /* makes its writes to shared memory visible to the async proxy */
void memory_end_launch(void);
void memory_start_block(Block *b, unsigned dynamic_bytes);
void *memory_static(Block *b, const void *site, unsigned bytes, const char *name);
/* A copy to these bytes begins (send: to another block of the cluster); it has landed, and counts as a write by
 * `number` at `clock`. */
void memory_copy_begins(void *to, size_t bytes, bool bulk, const void *pc);
void memory_send_begins(uint32_t address, size_t bytes, const void *pc);
void memory_copy_lands(Block *b, void *to, const void *from, size_t bytes, size_t zeros, uint32_t number,
                       uint32_t clock, bool is_bulk);
void memory_mbarrier(void *p, bool is);
void memory_stacks(char *base, size_t bytes_each, size_t n);

/* Reads two bytes of the heap as the current block sees them. False: this launch has not written them. */
bool memory_look(const void *p, uint32_t *writer, uint32_t *clock, uint16_t *value);

/* --- polled.c ----------------------------------------------------------------------------------- */
void polled_launch_begins(void);
void polled_reset(void);
void polled_flag(const unsigned *p, unsigned v, int order, const void *pc); /* a store with a memory order */
void polled_write(const void *p, size_t bytes, bool plain, const void *pc);

/* --- views.c ------------------------------------------------------------------------------------ */

/* memory, state: arrays of the whole heap, or of all shared memory. [first, end): indices of grains. */
void views_open(size_t heap_grains, size_t shared_grains);
void views_release(size_t heap_grains); /* forgets the blocks' views of these grains */
void view_read(const Block *b, uint16_t *memory, const uint8_t *state, size_t first, size_t end);
void view_write(Block *b, uint16_t *memory, uint8_t *state, size_t first, size_t end);
void view_atomic(const Block *b, uint16_t *memory, const uint8_t *state, size_t first, size_t end);
void view_release(Block *b);
void view_acquire(Block *b);
void views_end_launch(uint8_t *state);
void view_plain_shared(Block *b, const uint16_t *memory, uint8_t *state, size_t first, size_t end);
void view_fence_shared(Block *b, uint8_t *state);
void view_bulk_begins(const uint16_t *memory, const uint8_t *state, size_t first, size_t end);
void view_bulk_lands(uint16_t *memory, uint8_t *state, size_t first, size_t end);
void view_of_products(const uint16_t *memory, const uint8_t *state, size_t first, size_t n, uint16_t *out);

/* --- async.c ------------------------------------------------------------------------------------ */
bool async_land(bool now); /* lands the copies that are due or, if now, a random one; false: none */
void async_thread_ends(Fiber *f);
void async_block_ends(Block *b);
void async_reset(void);

/* --- peer.c ------------------------------------------------------------------------------------- */
bool peer_land(bool now);        /* as async_land, of stores to memory that GPUs share */
void peer_fence(const Block *b); /* all stores of the block have arrived */
void peer_reset(void);

/* --- sync.c ------------------------------------------------------------------------------------- */
void sync_thread_ends(Fiber *f);
/* Gathers rows g and g + 8 of A ([16, 16]) from the lanes' in[0..3]. All lanes of the warp call it together. */
void sync_rows(float rows[2][16], bool bf16, const void *pc);
/* All lanes of the warp have waited for their wgmma, so the reads of those products are complete. */
void sync_products_done(const void *pc);
void sync_reset(void);

/* --- wgmma.c ------------------------------------------------------------------------------------ */
void wgmma_thread_ends(Fiber *f);

/* --- report.c ----------------------------------------------------------------------------------- */
/* Records a finding. pc, pc2: program addresses whose source lines are printed below the text; NULL: none. */
void report(SimtCheck c, const void *pc, const void *pc2, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void report_finish(void);               /* finds the source lines; call it on the main stack */
const char *report_who(const Fiber *f); /* "block 3 warp 2 lane 5" */
void report_hang(Fiber *const *fibers, size_t n);
const char *report_wait(const Fiber *f);

#endif
