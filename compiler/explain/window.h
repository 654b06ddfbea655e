/* window.h - what the files of this room share: numbers and names as text for people. */
#ifndef FTXC_EXPLAIN_WINDOW_H
#define FTXC_EXPLAIN_WINDOW_H

#include "explain.h"
#include "../instantiate/cubin.h"
#include "../../runtime/artifact/artifact.h"

/* Each returns one of eight static buffers in turn: up to eight results may be used in one printf. */
const char *window_bytes(uint64_t bytes);        /* "20.9 MiB" */
const char *window_count(uint64_t n);            /* "11,010,432" */
const char *window_program(const FtxProgram *p); /* "step, up to 16 tokens" */
const char *window_shape(const FtxWeight *w);    /* "[640,384]" */
const char *window_space(uint32_t space);        /* "workspace" */
const char *window_weight_kind(uint32_t kind);   /* "matrix" */

/* Registers, stack and shared memory of a CUDA kernel; false: it has no cubin (CPU, cuBLASLt, PTX). */
bool window_resources(const Artifact *a, const ArtifactPlan *p, const FtxKernel *k, Resources *r);

/* The lower bound of a program's workspace: the largest sum of live bytes, and its launch. */
uint64_t window_live_peak(const ArtifactPlan *p, uint32_t program, uint32_t *launch);

/* The name of the plan to which a section belongs, as --target has it: "cpu", "sm_90a", "h200"; "": to none. */
const char *window_plan(const Artifact *a, const FtxSection *s);

void show_memory(const Artifact *a, const ArtifactPlan *p, FILE *out);
FtxStatus show_json(const Artifact *a, const char *path, bool verified, FILE *out, FtxError *err);

#endif
