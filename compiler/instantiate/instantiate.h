/* instantiate.h - the instances of a plan to CUDA text and machine code. */
#ifndef FTXC_INSTANTIATE_H
#define FTXC_INSTANTIATE_H

#include "../passes/pass.h"

/* The code of one instance of a plan: becomes code_at and code_bytes of FtxKernel. */
typedef struct CodeImage {
    uint32_t at, bytes; /* in Code.cubin; 0 bytes: not a CUDA kernel */
} CodeImage;

typedef struct Code {  /* of one target; all 0 for the CPU */
    const void *cubin; /* the section FTX_SEC_CUBIN: images one after another, 64-byte aligned */
    size_t cubin_bytes;
    const CodeImage *images; /* of each instance, in the order of the plan */
    const char *source;      /* all texts, each under a heading */
} Code;

/* The text of one instance. It compiles alone; its head says what it is for and gives the nvcc line. */
const char *instantiate_text(const Instance *i, Target t, Arena *keep);

/* Compiles the CUDA instances of a plan for its target with NVRTC, in parallel processes; those in the cache are taken
 * from there. Sets the instances' registers, stack, spills and shared memory. The message of a failure names the
 * instance and has the first error of NVRTC's log. progress may be NULL. */
bool instantiate_compile(Plan *plan, Arena *keep, Code *code, void (*progress)(void *user, uint64_t done, uint64_t all),
                         void *user, Diag *d);

/* --emit-cuda DIR: writes every instance of the plan as a file that compiles alone, and the headers that they include. */
bool instantiate_emit(const Plan *plan, const char *dir, Diag *d);

/* FTX_TEXTS: adds a line to that file for every CUDA instance of the plan: target, entry, hash of the text. */
bool instantiate_list(const Plan *plan, Diag *d);

const char *cache_folder(Arena *keep); /* of compiled kernels; NULL: there is no cache */

const char *nvrtc_version(void); /* "13.0"; NULL: it cannot be used, nvrtc_missing says why */
const char *nvrtc_missing(void);

#endif
