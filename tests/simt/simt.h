/* simt.h - CUDA kernels on the host: the text that NVRTC compiles, compiled as C++, one fiber a
 * thread, watched.
 *
 *   build.h    texts -> g++ or clang++ -> a shared object of SimtKernel
 *   device/    what the vocabulary of kernels/device/ means here, found before it on the include path
 *   simt.h     memory, launches, what was found wrong
 *
 * Every load and store of a kernel passes through memory.c: the compiler puts calls before them
 * (the instrumentation of -fsanitize=thread, without its runtime). What orders two threads is
 * tracked by vector clocks (FastTrack, Flanagan & Freund 2009), so a race is found whichever way it
 * falls; what depends on luck (who comes first, when a copy lands) is up to a schedule and a seed. */
#ifndef FTX_SIMT_H
#define FTX_SIMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "device/kernel.h"
#include "tests/turn.h"

/* Under the address sanitizer plain loads and stores are watched by it, and only what goes through the
 * vocabulary by the harness. */
#define SIMT_SANITIZED TURN_SANITIZED

typedef enum SimtSchedule {
    SIMT_ROUND_ROBIN,
    SIMT_RANDOM,
    SIMT_LIFO,        /* the last to become ready runs first; blocks start from the last one */
    SIMT_STARVE_CTA,  /* a block at a time does not run while another can */
    SIMT_STARVE_WARP, /* the same for a warp */
    SIMT_SCHEDULES,
} SimtSchedule;

/* The check that found something. */
typedef enum SimtCheck {
    SIMT_RACE,       /* two accesses that nothing orders, one of them a write */
    SIMT_BOUNDS,     /* outside of what was allocated, or of the block's shared memory */
    SIMT_ALIGN,      /* a vector at an address that is no multiple of its size */
    SIMT_UNWRITTEN,  /* a read of bytes that nobody wrote */
    SIMT_IN_FLIGHT,  /* an access to bytes that a copy is still bringing */
    SIMT_CONSTANT,   /* a write to memory that no kernel may write */
    SIMT_BARRIER,    /* a barrier used in two ways at once */
    SIMT_MBARRIER,   /* arrivals or bytes that do not add up */
    SIMT_FENCE,      /* a copy that does not see what it must */
    SIMT_EARLY,      /* an access before the wait for the previous kernel, or no wait at all */
    SIMT_COLLECTIVE, /* lanes of a warp that do different things together */
    SIMT_HOST,       /* a result that a host which polls may not see, or sees change */
    SIMT_HANG,       /* nobody can go on */
    SIMT_CHECKS,
} SimtCheck;

typedef struct SimtReport {
    SimtCheck check;
    const char *text; /* what, who, where; valid until simt_clear */
} SimtReport;

const char *simt_check_name(SimtCheck c);
const char *simt_schedule_name(SimtSchedule s);

/* What stands for a TMA descriptor (device/tensor.cuh): a matrix [rows, columns] of 16 bits. */
typedef struct SimtMap {
    const void *matrix;
    unsigned rows, columns, tile_rows;
} SimtMap;

/* --- memory of the device: between red zones, unwritten at first ------------------------------- */

void *simt_alloc(size_t bytes, const char *name);
void simt_free_all(void);
void simt_free(void *p);
bool simt_holds(const void *p, size_t bytes);              /* it lies in one piece of memory */
void simt_write(void *to, const void *from, size_t bytes); /* by the host, between launches */
void simt_fill(void *to, int byte, size_t bytes);
void simt_protect(void *p, size_t bytes);         /* no kernel may write there */
void simt_forget(void *p, size_t bytes);          /* nobody has written there */
bool simt_written(const void *p, size_t bytes);   /* every byte was written */
bool simt_untouched(const void *p, size_t bytes); /* no byte was written */

/* --- launches ----------------------------------------------------------------------------------- */

typedef struct SimtLaunch {
    const SimtKernel *kernel;
    const void *args;
    unsigned grid[3], block, smem;
    unsigned some; /* clusters to run at each end of the grid and as many between; 0: all */
    bool overlap;  /* programmatic: it may start while the launches before it still run */
    bool strict;   /* it reads no shared memory that nobody wrote; others may, for what they throw away */
} SimtLaunch;

void simt_schedule(SimtSchedule s, uint64_t seed); /* of the launches that follow */

/* As if a launch stood before the next one, which still runs when that starts (overlap) and
 * wrote these bytes. */
void simt_in_front(void);
void simt_written_in_front(void *p, size_t bytes);

/* The host reads these records while kernels run: of each once the word at `flag` in it has been stored. Until
 * simt_free_all. What it saw of a record in the last launch; NULL: nothing new. */
void simt_polled(void *p, size_t bytes, size_t flag, size_t count);
const void *simt_host_saw(const void *record);

/* Runs a launch to its end. False: something was found; reports say what, where, under which
 * schedule and seed. */
bool simt_launch(const SimtLaunch *l);

/* Checks (1 << SIMT_x) that say nothing from here on: what they would find shows only by its effect. */
void simt_mute(unsigned checks);

size_t simt_reports(void);
const SimtReport *simt_report(size_t i);
void simt_clear(void);

/* What the last launches did: for tests that want to know that something was exercised. */
typedef struct SimtCounts {
    uint64_t launches, threads, switches, accesses, collectives, barriers, copies;
} SimtCounts;
extern SimtCounts simt_counts;

#endif
