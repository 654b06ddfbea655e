/* simt.h - run CUDA kernels on the host: the text that NVRTC compiles is compiled as C++, each CUDA
 * thread is a fiber, and every memory access is checked.
 *
 *   build.h    texts -> g++ or clang++ -> a shared object of SimtKernel
 *   device/    host versions of the headers of kernels/device/; the include path finds them first
 *   simt.h     memory, launches, what was found wrong
 *
 * Every load and store of a kernel passes through memory.c: the compiler puts calls before them
 * (the instrumentation of -fsanitize=thread, without its runtime). Vector clocks track the
 * happens-before order of threads (FastTrack, Flanagan & Freund 2009), so a race is found whichever
 * access comes first. A schedule and a seed decide the order of threads and when copies complete. */
#ifndef FTX_SIMT_H
#define FTX_SIMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "device/kernel.h"
#include "tests/turn.h"

/* Under AddressSanitizer, the sanitizer checks plain loads and stores; the harness checks only accesses made by
 * the functions of kernels/device/. */
#define SIMT_SANITIZED TURN_SANITIZED

typedef enum SimtSchedule {
    SIMT_ROUND_ROBIN,
    SIMT_RANDOM,
    SIMT_LIFO,        /* the last to become ready runs first; blocks start from the last one */
    SIMT_STARVE_CTA,  /* one block at a time runs only when no other block can */
    SIMT_STARVE_WARP, /* the same for a warp */
    SIMT_SCHEDULES,
} SimtSchedule;

/* The check that found something. */
typedef enum SimtCheck {
    SIMT_RACE,       /* two accesses without a happens-before order, one of them a write */
    SIMT_BOUNDS,     /* an access outside an allocation, or outside the block's shared memory */
    SIMT_ALIGN,      /* a vector at an address that is not a multiple of its size */
    SIMT_UNWRITTEN,  /* a read of bytes that were never written */
    SIMT_IN_FLIGHT,  /* an access to memory that an asynchronous copy or wgmma still uses */
    SIMT_CONSTANT,   /* a write to memory that no kernel may write */
    SIMT_BARRIER,    /* a barrier used with two thread counts, or a wait without its arrival */
    SIMT_MBARRIER,   /* more or fewer arrivals or bytes than the mbarrier expects */
    SIMT_FENCE,      /* a fence is missing before a bulk copy or wgmma */
    SIMT_EARLY,      /* an access before the wait for the previous kernel, or no wait at all */
    SIMT_COLLECTIVE, /* lanes of one warp at different warp-wide operations */
    SIMT_HOST,       /* a polling host may not see a result yet, or sees it change */
    SIMT_HANG,       /* no thread can run */
    SIMT_CHECKS,
} SimtCheck;

typedef struct SimtReport {
    SimtCheck check;
    const char *text; /* what, who, where; valid until simt_clear */
} SimtReport;

const char *simt_check_name(SimtCheck c);
const char *simt_schedule_name(SimtSchedule s);

/* The harness's TMA descriptor (device/tensor.cuh): a matrix [rows, columns] of 16-bit elements. */
typedef struct SimtMap {
    const void *matrix;
    unsigned rows, columns, tile_rows;
} SimtMap;

/* --- memory of the device: between red zones, unwritten at first ------------------------------- */

void *simt_alloc(size_t bytes, const char *name);
void simt_free_all(void);
void simt_free(void *p);
bool simt_holds(const void *p, size_t bytes);              /* all of it is in one allocation */
void simt_write(void *to, const void *from, size_t bytes); /* by the host, between launches */
void simt_fill(void *to, int byte, size_t bytes);
void simt_protect(void *p, size_t bytes);         /* no kernel may write there */
void simt_forget(void *p, size_t bytes);          /* marks the bytes as never written */
bool simt_written(const void *p, size_t bytes);   /* every byte was written */
bool simt_untouched(const void *p, size_t bytes); /* no byte was written */

/* --- launches ----------------------------------------------------------------------------------- */

typedef struct SimtLaunch {
    const SimtKernel *kernel;
    const void *args;
    unsigned grid[3], block, smem;
    unsigned some; /* run only the first `some` clusters, the last, and as many in between; 0: all */
    bool overlap;  /* programmatic dependent launch: it may start while earlier launches still run */
    bool strict;   /* report reads of unwritten shared memory; else they are allowed, for values that are not used */
} SimtLaunch;

void simt_schedule(SimtSchedule s, uint64_t seed); /* of the launches that follow */

/* simt_in_front: pretend that a previous launch still runs when the next one, with overlap, starts.
 * simt_written_in_front: pretend that it wrote these bytes. */
void simt_in_front(void);
void simt_written_in_front(void *p, size_t bytes);

/* Until simt_free_all, the host polls these records while kernels run: it reads a record when the word at offset
 * `flag` is stored. simt_host_saw: the copy it read in the last launch; NULL: the flag was not stored. */
void simt_polled(void *p, size_t bytes, size_t flag, size_t count);
const void *simt_host_saw(const void *record);

/* Runs a launch to its end. False: a check failed; the reports say which, where, and under which
 * schedule and seed. */
bool simt_launch(const SimtLaunch *l);

/* Turns these checks (1 << SIMT_x) off from here on: their bugs then show only as wrong results. */
void simt_mute(unsigned checks);

size_t simt_reports(void);
const SimtReport *simt_report(size_t i);
void simt_clear(void);

/* Counts of all launches so far, for tests that must know that a mechanism was used. */
typedef struct SimtCounts {
    uint64_t launches, threads, switches, accesses, collectives, barriers, copies;
} SimtCounts;
extern SimtCounts simt_counts;

#endif
