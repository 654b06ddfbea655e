/* compile.h - the whole line: a spec in, an artifact out. */
#ifndef FTXC_COMPILE_H
#define FTXC_COMPILE_H

#include "passes/pass.h"
#include "spec/spec.h"

typedef struct CompileOptions {
    const char *spec;    /* model.lua, or the folder of a Hugging Face checkout */
    const char *out;     /* the artifact; NULL: compile, write nothing */
    const char *targets; /* "cpu,sm_90a"; NULL: the CPU and the GPU of this machine */
    const Override *overrides;
    size_t n_overrides;
    bool no_weights;     /* leave them out: random weights only */
    bool sidecar;        /* weights in a file of their own */
    const void *program; /* put the artifact behind this program; NULL: into a file of its own */
    size_t program_bytes;
    bool quiet;       /* no progress */
    const char *emit; /* --emit-cuda: where to write the CUDA texts */
    Dump dump;
} CompileOptions;

typedef struct CompileResult {
    const char *name;
    size_t n_targets, n_instances;
    uint64_t weight_bytes;
    uint64_t engine_bytes, work_bytes, lower_bound; /* of the last target; the second is a part of the first */
    const char *targets;
} CompileResult;

bool compile(const CompileOptions *o, Arena *keep, CompileResult *result, Diag *d);

#endif
