/* parts.h - what the files of the harness share.
 *
 *   fiber.c    switching between threads         run.c      launches, schedules, hangs
 *   know.c     who knows of whose accesses       memory.c   memory, its marks, every access
 *   hooks.c    what the compiler calls           views.c    which value a block sees
 *   sync.c     barriers, warps, atomics          async.c    copies, mbarriers
 *   wgmma.c    products of a warpgroup        polled.c   what a host sees meanwhile
 *   report.c   what is said of a finding */
#ifndef FTX_SIMT_PARTS_H
#define FTX_SIMT_PARTS_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "simt.h"

enum {
    WARP = 32,
    MAX_THREADS = 1024,  /* of a block */
    MAX_RESIDENT = 4096, /* threads at a time */
    MAX_BLOCKS = 64,     /* at a time */
    MAX_MBARRIERS = 64,  /* of a block */
    CLOCKS = MAX_THREADS + MAX_MBARRIERS,
    SHARED_BASE = 1024,      /* 32-bit address of a block's first dynamic byte */
    DYNAMIC_MAX = 256 << 10, /* bytes of a slot for dynamic shared memory */
    STATIC_MAX = 64 << 10,   /* behind it, static arrays */
    SLOT = DYNAMIC_MAX + STATIC_MAX,
    GRAIN = 2, /* bytes that a mark stands for: no element is smaller */
};
#if SIMT_SANITIZED
enum { SIMT_STACK = 256 << 10 };
#else
enum { SIMT_STACK = 64 << 10 };
#endif
#define PC() __builtin_return_address(0)

/* --- know.c: vector clocks -------------------------------------------------------------------- */

/* What is known of another block's accesses: up to clock[i] of its thread i. Never changed. */
typedef struct Far {
    uint32_t block;
    const uint32_t *clock; /* [CLOCKS] */
} Far;

/* What a thread knows of, or what an object hands on. */
typedef struct Know {
    uint32_t *clock; /* [CLOCKS] of the own block; NULL: of a global object, all is far */
    Far *far;
    uint32_t n_far, cap_far;
} Know;

typedef struct Fiber Fiber;
typedef struct Block Block;
/* Clocks [0, MAX_MBARRIERS) are of copies that the mbarriers count, then one a thread. */
extern unsigned know_clocks; /* in use */
void know_join(Know *to, const Know *from);
void know_take(Know *to, const Know *from);                     /* the same, where `from` knows all that `to` does */
bool know_of(const Fiber *f, uint32_t number, uint32_t clock);  /* sees its writes */
bool know_told(const Know *k, uint32_t number, uint32_t clock); /* by what was told of other blocks */
bool know_comes_after(const Fiber *f, uint32_t number, uint32_t clock); /* at least comes after it */
void know_tell(Know *to, const Know *from, uint32_t block);             /* own clocks become far ones */
void know_hear(Know *to, const Know *from, uint32_t block);             /* and back */
void know_clear(Know *k);

/* --- a launch on its way ------------------------------------------------------------------------ */

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
    OP_LDMATRIX,
    OP_LDMATRIX_TRANS,
    OP_TRANSPOSE,
    OP_LEAST,
    OP_ROWS,
    OP_WGMMA_WAIT,
} WarpOp;

typedef struct Warp {
    unsigned arrived, left; /* lanes that wait; lanes that have ended */
    WarpOp op;
    unsigned param;       /* matrices of ldmatrix, bytes of a shuffle */
    uint32_t clock[WARP]; /* of the lanes when they last did something together */
    uint32_t done[WARP];  /* and when they last waited for products: what these read is read */
    bool has_done;
    Fiber *lane[WARP];
} Warp;

struct Fiber {
    void *sp;
    char *stack;
    void *fake; /* of the address sanitizer */
    Block *block;
    Warp *warp;
    unsigned tid;
    uint32_t number;   /* of its accesses in marks: 1 + block * CLOCKS + MAX_MBARRIERS + tid */
    bool done, waited; /* waited: for the previous kernel */
    Know know;
    uint32_t clocks[CLOCKS];
    Know after; /* others have come so far, but what they wrote may not be seen yet */
    uint32_t after_clocks[CLOCKS];
    /* waiting */
    WaitKind wait;
    void *object;
    unsigned value;
    const void *pc;
    Fiber *next;
    /* in a warp's operation */
    uint32_t in[8], out[4];
    float sum[4], rows[2][16];
    /* copies under way */
    Copy *copies;
    unsigned n_copies, cap_copies, group;
    uint32_t proxy_clock;  /* its writes up to here are seen by bulk copies */
    Know fenced, unfenced; /* told by the last fence; heard by relaxed reads since */
    bool has_fenced, has_unfenced;
    Know system; /* told by the last fence of the system's scope */
    unsigned cluster_arrived;
    /* products under way: wgmma.c */
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
    int64_t bytes;               /* announced and not arrived yet; negative: the other way round */
    uint32_t phase;              /* completed */
    Know open, done;             /* told in this phase; known once it is complete */
    Know open_after, done_after; /* likewise, who has come so far */
    uint32_t clock[4][CLOCKS];
    Fiber *maker;
    uint32_t made; /* the maker's clock */
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
    unsigned index[3], number; /* number: in the grid */
    uint32_t stamp;            /* of marks: no two blocks have the same */
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
    Grains buffer;     /* its plain writes that no other block sees yet: views.c */
    uint32_t acquired; /* drains of buffers that it has taken in */
    Grains unfenced;   /* of shared memory: what the async proxy (TMA, wgmma) does not see yet */
};

typedef struct Cluster {
    unsigned n, arrived, phase;
    Block *block[8];
    uint32_t *clock[8]; /* told in this phase, by block */
    Know know;          /* told in the phases before */
    Queue waiting;
} Cluster;

typedef struct Run {
    const SimtLaunch *launch;
    uint32_t id, chain; /* of this launch; of the first that it may overlap */
    SimtSchedule schedule;
    uint64_t seed, random;
    Fiber *current;
    unsigned live; /* threads */
    uint64_t step, polls;
    bool aborted, hangs, someone_waited;
    bool lets_ahead; /* a thread of this launch lets the next one start, or ends, before it has waited */
} Run;
extern Run run;

uint32_t run_random(uint32_t n); /* 0 .. n-1 */
void *run_keep(size_t bytes);    /* zeroed; until the launch ends */
void run_block(WaitKind kind, void *object, unsigned value, Queue *q, const void *pc);
void run_wake(Queue *q);
void run_yield(const void *pc); /* polls: others first */
void run_pause(void);           /* now and then another goes first */
_Noreturn void run_abort(void);
Block *run_block_of_slot(unsigned slot); /* NULL: nobody's */

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
       S_VIEW = 128, /* not everyone sees the same: views.c */
};

/* An access of the current thread to [p, p + bytes). */
void memory_access(const void *p, size_t bytes, unsigned how, const void *pc);
/* The same to a block's shared memory by its 32-bit address (a mapped one: of another block of the
 * cluster); gives the pointer. */
void *memory_shared(uint32_t address, size_t bytes, unsigned how, const void *pc);
/* Own shared memory as products see it, 16 bytes; it leaves no mark. */
void memory_products(uint32_t address, uint16_t out[8]);
bool memory_is_plain(const void *p);        /* written, and not by a bulk copy */
void *memory_reserve(size_t bytes);         /* zeroed, until the end */
void memory_release(void *p, size_t bytes); /* zeroed again, and the system's meanwhile */
uint16_t *memory_heap(void);                /* by grain */
const char *memory_where(const void *p);
void memory_async_fence(Block *b); /* what it wrote to shared memory is visible to the async proxy */
void memory_end_launch(void);
void memory_start_block(Block *b, unsigned dynamic_bytes);
void *memory_static(Block *b, const void *site, unsigned bytes, const char *name);
/* A copy is under way to these bytes of the current block; it has landed, ordered by `number` at
 * `clock`. */
void memory_copy_begins(void *to, size_t bytes, bool bulk, const void *pc);
void memory_send_begins(uint32_t address, size_t bytes, const void *pc);
void memory_copy_lands(Block *b, void *to, const void *from, size_t bytes, size_t zeros, uint32_t number,
                       uint32_t clock, bool is_bulk);
void memory_mbarrier(void *p, bool is);
void memory_stacks(char *base, size_t bytes_each, size_t n);

/* What the current block sees of two bytes of the heap; false: nobody has written them in this launch. */
bool memory_look(const void *p, uint32_t *writer, uint32_t *clock, uint16_t *value);

/* --- polled.c ----------------------------------------------------------------------------------- */
void polled_launch_begins(void);
void polled_reset(void);
void polled_flag(const unsigned *p, unsigned v, int order, const void *pc); /* an ordered store */
void polled_write(const void *p, size_t bytes, bool plain, const void *pc);

/* --- views.c ------------------------------------------------------------------------------------ */

/* `memory` and `state` are those of the whole heap or of all shared memory; first .. end: grains. */
void views_open(size_t heap_grains, size_t shared_grains);
void views_release(size_t heap_grains); /* nobody sees of them what was there */
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
bool async_land(bool now); /* bulk copies that are due, or (now) the next one; false: there is none */
void async_thread_ends(Fiber *f);
void async_block_ends(Block *b);
void async_reset(void);

/* --- sync.c ------------------------------------------------------------------------------------- */
void sync_thread_ends(Fiber *f);
/* Rows g and g + 8 of A, 16 k, from the lanes' in[0..3]; by the warp together. */
void sync_rows(float rows[2][16], bool bf16, const void *pc);
/* All lanes have read what their products read. */
void sync_products_done(const void *pc);
void sync_reset(void);

/* --- wgmma.c ------------------------------------------------------------------------------------ */
void wgmma_thread_ends(Fiber *f);

/* --- report.c ----------------------------------------------------------------------------------- */
/* %p places are not formatted here; up to two program places are named under the text. */
void report(SimtCheck c, const void *pc, const void *pc2, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void report_finish(void);               /* names the places; on the main stack */
const char *report_who(const Fiber *f); /* "block 3 warp 2 lane 5" */
void report_hang(Fiber *const *fibers, size_t n);
const char *report_wait(const Fiber *f);

#endif
