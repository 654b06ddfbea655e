/* instantiate.h - instance to CUDA text to cubin. */
#ifndef FTXC_INSTANTIATE_H
#define FTXC_INSTANTIATE_H

#include "../passes/pass.h"

typedef struct Code { /* what a target's kernels become */
    const void *cubin;
    size_t cubin_bytes;
    const char *ptx; /* compute_80 or compute_90; NULL where not asked for */
    const char *source; /* all texts, one after another, with headings */
} Code;

/* The text of one instance: compiles alone, opens with what it is for and the nvcc line. */
const char *instantiate_text(const Instance *i, Arena *keep);

/* Compiles the CUDA instances of a plan for its target: NVRTC, in parallel, through the cache, and
 * links them into one cubin. Fills the instances' resources from the ELF. The message names
 * the instance and carries the first line of NVRTC's log. */
bool instantiate_compile(Plan *plan, Arena *keep, Code *code,
                         void (*progress)(void *user, size_t done, size_t all), void *user, Diag *d);

/* --emit-cuda DIR: writes every instance of the plan as a file that compiles alone. */
bool instantiate_emit(const Plan *plan, const char *dir, Diag *d);

const char *nvrtc_version(void); /* "13.0", or NULL: not found; nvrtc_missing says why */
const char *nvrtc_missing(void);

#endif
