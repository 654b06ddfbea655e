/* targets.h - the targets that ftxc knows (targets.def), and the words that name them. */
#ifndef FTXC_TARGETS_H
#define FTXC_TARGETS_H

#include <stddef.h>
#include <stdint.h>

#include "../runtime/base/arena.h"
#include "../runtime/base/diag.h"

typedef struct Target {
    uint32_t id;      /* FTX_TARGET_CPU, or 900, 901 ... as in ftx_format.h */
    const char *name; /* "cpu", "sm_90a" */
} Target;

enum { MAX_TARGETS = 16 }; /* of one artifact */

typedef struct Targets {
    Target at[MAX_TARGETS];
    size_t n;
} Targets;

extern const char targets_known[]; /* "cpu sm_80 ... ": the names, for messages */
extern const char targets_help[];  /* what --target of `compile` takes */

/* One name. */
bool target_parse(const char *name, Target *t, Diag *d);

/* A list of names with commas between; `all` stands for every TARGET, `ptx` for every TARGET_PTX. A name that
 * stands twice counts once. */
bool targets_parse(const char *words, Targets *list, Diag *d);

uint32_t target_smem_bytes(Target t); /* shared memory that a block may have */

#endif
