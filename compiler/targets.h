/* targets.h - the targets that ftxc knows (targets.def), and the words that name them. */
#ifndef FTXC_TARGETS_H
#define FTXC_TARGETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../runtime/base/arena.h"
#include "../runtime/base/diag.h"

/* What contracts may need of a target, as bits. */
enum {
#define CAPABILITY(name, meaning) CAPABILITY_INDEX_##name,
#include "targets.def"
#undef CAPABILITY
    CAPABILITY_COUNT
};
enum {
#define CAPABILITY(name, meaning) CAPABILITY_##name = 1 << CAPABILITY_INDEX_##name,
#include "targets.def"
#undef CAPABILITY
};

typedef struct Tuning Tuning; /* catalog/tuning.h */

typedef struct Target {
    uint32_t id;        /* FTX_TARGET_CPU, or 900, 901 ... as in ftx_format.h */
    const char *name;   /* "cpu", "sm_90a", "h200" */
    const char *device; /* the GPU's name, as its driver gives it; NULL: any GPU of this kind */
    Tuning *tuning;     /* what was measured on that GPU; NULL: nothing */
} Target;

enum { MAX_TARGETS = 16 }; /* of one artifact */

typedef struct Targets {
    Target at[MAX_TARGETS];
    size_t n;
} Targets;

/* A row of targets.def, which explains the columns. */
typedef struct TargetFacts {
    const char *name, *list; /* list: the word that stands for this one and others */
    uint32_t id, capabilities;
    int64_t smem, sm_smem;
    const char *gpu;
    int64_t sms;
    double read_gbs, fp32_tflops, tensor_tflops;
    struct { /* percent of these that kernels reach */
        int read, library_fp32, library_tensor, ours_fp32, ours_tensor;
    } shares;
    double launch_us, overlap_us;
    bool measured;      /* shares and launches */
    const char *device; /* the GPU's name, of a target that is one GPU; else NULL */
} TargetFacts;

extern const char *const capability_names[CAPABILITY_COUNT];
extern const char targets_known[]; /* "cpu sm_80 ... ": the names, for messages */
extern const char targets_help[];  /* what --target of `compile` takes */

/* One name. */
bool target_parse(const char *name, Target *t, Diag *d);

/* A list of names with commas between; `all` stands for every TARGET, `ptx` for every TARGET_PTX. A name that
 * stands twice counts once. */
bool targets_parse(const char *words, Targets *list, Diag *d);

/* The row of a target that target_parse or targets_parse gave. */
const TargetFacts *target_facts(Target t);

#endif
