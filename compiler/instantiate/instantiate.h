/* instantiate.h - instance to CUDA text to cubin. */
#ifndef FTXC_INSTANTIATE_H
#define FTXC_INSTANTIATE_H

#include "../passes/pass.h"

/* The code of one instance of a plan: FtxKernel.code_at and code_bytes. */
typedef struct CodeImage {
    uint32_t at, bytes; /* in Code.cubin; 0 bytes: no CUDA kernel */
} CodeImage;

typedef struct Code {  /* what a target's kernels become; zero for the CPU */
    const void *cubin; /* the section FTX_SEC_CUBIN: images one after another, 64-byte aligned */
    size_t cubin_bytes;
    const CodeImage *images; /* one an instance, in the plan's order */
    const char *source;      /* all texts, one after another, with headings */
} Code;

/* The text of one instance: compiles alone, opens with what it is for and the nvcc line. */
const char *instantiate_text(const Instance *i, Target t, Arena *keep);

/* Compiles the CUDA instances of a plan for its target: NVRTC, in parallel processes, through the
 * cache. Fills the instances' resources from the ELF. The message names the instance and carries
 * the first error of NVRTC's log. progress may be NULL. */
bool instantiate_compile(Plan *plan, Arena *keep, Code *code, void (*progress)(void *user, uint64_t done, uint64_t all),
                         void *user, Diag *d);

/* --emit-cuda DIR: writes every instance of the plan as a file that compiles alone, and beside
 * them the headers that they include. */
bool instantiate_emit(const Plan *plan, const char *dir, Diag *d);

const char *cache_folder(Arena *keep); /* of compiled kernels; NULL: none are kept */

const char *nvrtc_version(void); /* "13.0", or NULL: not found; nvrtc_missing says why */
const char *nvrtc_missing(void);

#endif
