/* compile.h - the whole line: a spec in, an artifact out. */
#ifndef FTXC_COMPILE_H
#define FTXC_COMPILE_H

#include "spec/spec.h"
#include "targets.h"
#include "weights/weights.h"

typedef struct CompileOptions {
    const char *spec;    /* model.lua, or the folder of a Hugging Face checkout */
    const char *out;     /* the artifact; NULL: compile, write nothing */
    const char *targets; /* "cpu,sm_90a"; NULL: the CPU and the GPU of this machine */
    const char *tune;    /* a tuning file; "none": no file; NULL: those that are found */
    Tuning *trial;       /* of all GPU targets, in place of files: `ftxc tune`; NULL: none */
    const Override *overrides;
    size_t n_overrides;
    const char *const *adapters; /* folders of LoRA adapters, merged in this order */
    size_t n_adapters;
    bool no_weights;                /* leave them out: random weights only */
    bool plain;                     /* as if the spec asked for no codes: weights of 16 bits, arithmetic in fp32 */
    const Calibration *calibration; /* of matrices that become int4; NULL: none */
    const char *calibrated_with;    /* the file of its texts */
    bool sidecar;                   /* weights in a file of their own */
    const void *program;            /* put the artifact behind this program; NULL: into a file of its own */
    size_t program_bytes;
    const char *emit; /* --emit-cuda: where to write the CUDA texts */
    Dump dump;
    /* Called as a stage advances; what: "kernels for sm_90a", "weights". NULL: nobody asks. */
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t all);
    void *user;
} CompileOptions;

typedef struct CompileResult {
    const char *name;
    const char *kind; /* of what was compiled: "spec", "checkout", "GGUF file" */
    Targets targets;
    FtxPlan plans[MAX_TARGETS];  /* one a target: what an engine takes, space by space */
    uint64_t kv_pages, kv_block; /* the most KV pages of an engine, and the tokens of each; 0: encoders */
    size_t n_instances;
    uint64_t spill_bytes; /* of all kernels: what did not fit their registers (Instance) */
    uint64_t weight_bytes;
    const char *notes[5]; /* lines for the user; NULL: none */
} CompileResult;

/* options.c: the targets of a compile that names none; and options that contradict one another. */
const char *options_targets(Arena *keep);
bool options_check(const CompileOptions *o, const Spec *s, const Targets *t, Diag *d);

/* tunings.c: where `ftxc tune` writes by default; the folder of that; and one file. */
const char *tunings_default(const Spec *spec, const char *device, Arena *keep);
const char *tunings_folder(const char *path, Arena *keep);
bool tunings_read(const char *path, Arena *keep, Tuning *into, Diag *d);

/* Gives the targets what was measured on their GPUs; here: unnamed ones are this machine's. After their plans are
 * made: a line about it, NULL: nothing; and the lines that an artifact keeps. */
bool tunings_find(const char *file, bool here, const Spec *spec, Targets *t, Arena *keep, Diag *d);
const char *tunings_note(const Targets *t, const Catalog *c, Arena *keep);
const char *tunings_lines(const Targets *t, Arena *keep);

/* build.c: the versions, the command and the adapters (lines) that an artifact keeps. Loads NVRTC only if a target is a GPU. */
const char *build_facts(const CompileOptions *o, const Targets *t, const char *adapters, Arena *keep);

bool compile(const CompileOptions *o, Arena *keep, CompileResult *result, Diag *d);

#endif
