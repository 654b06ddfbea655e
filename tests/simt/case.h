/* case.h - suites of kernels that run on the host under several schedules and are compared with kernels/ref.
 *
 * A case is a small graph and a step for it; the suite takes every kernel of the catalog that can compute the graph's
 * output. From a model the suite takes every kernel of its plan. */
#ifndef FTX_SIMT_CASE_H
#define FTX_SIMT_CASE_H

#include "build.h"
#include "compiler/catalog/contract.h"
#include "compiler/spec/spec.h"
#include "kernels/device/io.h"

enum { CASE_ROWS = 512, FEW_ROWS = 8 };

typedef struct Case {
    const char *graph;  /* its text; the kernel computes its output; values like embeddings are the kernel's inputs */
    const char *target; /* "sm_90a" */
    DType kv;
    bool decode;     /* a decode program: every row brings one token */
    bool encode;     /* an encode program */
    bool head;       /* the kernel computes the logits; the graph's output is a sample of them */
    bool segments;   /* for sampling: the kernel of the logits writes segments of them */
    int columns;     /* the inputs have row statistics, one part for so many columns; 0: they have none */
    bool stats;      /* the kernel must write statistics of the output's rows */
    bool fixed;      /* precision.sums is fixed: inputs whose sums depend on the order, results compared bit for bit */
    bool unpacked;   /* the kernel writes the plain values of the output's quantised weight */
    bool fp8_rows;   /* precision.activations is fp8: the inputs are there as rows of fp8, too */
    bool fp8;        /* the kernel must write rows of fp8 */
    bool digit_rows; /* the inputs are there as rows of digits, too */
    bool digits;     /* the kernel must write rows of digits */
    bool sorted;     /* the kernel must sort the rows of routes by expert */
    int parts;       /* sums of experts lie as parts, so many a row; 0: as their values */
    bool as_parts;   /* the kernel must write parts */
    int bucket;      /* 0: exact */
    int rows, decode_rows;
    bool whole; /* prompts of several tokens end with the step */
    int lanes;  /* the first `lanes` rows are one beam search, all as long as the first; 0: no beam search */
    struct {
        int q_len, kv_len;
    } row[CASE_ROWS];            /* kv_len: with the step's tokens */
    FtxParams params[CASE_ROWS]; /* of sampling */
    int sms;                     /* multiprocessors of the GPU; 0: 3 */
    const char *only;            /* the kernel family to test; NULL: all that match */
    float flat;                  /* logits are `levels` values within this distance of 0; 0: anywhere from -5 to 5 */
    int levels;                  /* number of different logits if flat; 0: 129 */
    float ties;        /* activations are multiples of 1/2, one in 16 of them this number, the largest; 0: any */
    int blocks;        /* run so many clusters at each end of the grid and as many between; 0: all */
    TunedConst use[4]; /* values of tuned constants; the others are chosen as always */
    size_t n_use;
} Case;

typedef struct Suite Suite;

/* One kernel of `turns` is run, a different one in each turn (tests/turn.h). */
Suite *suite_open(const char *dir, unsigned turns);
void suite_close(Suite *s);
/* Adds every kernel that can compute the graph's output. Returns their number. */
size_t suite_add(Suite *s, const Case *c, const char *name);
/* Adds every kernel of the model's plan for the target once, with a step for the first program that launches it.
 * blocks: as Case.blocks, for linear layers. Returns the number of kernels that are new and will run. */
size_t suite_add_model(Suite *s, const char *path, const Override *overrides, size_t n, const char *target,
                       const char *name, int blocks);
void suite_build(Suite *s);

/* Runs every kernel under `schedules` schedules, beginning with a different one for each kernel, or under one of
 * them if FTX_TURN is set. Seeds are derived from `seed`. Prints what each launch did wrong and then fails the test. */
void suite_run(Suite *s, int schedules, uint64_t seed);

/* Prints the number of cases of each kernel family, then totals. */
void suite_summary(const Suite *s, FILE *out);

#endif
