/* case.h - a small graph, a step for it, and every kernel of the catalog that can compute it; or a model
 * and every kernel that it needs: run on the host under the schedules, compared with kernels/ref. */
#ifndef FTX_SIMT_CASE_H
#define FTX_SIMT_CASE_H

#include "build.h"
#include "compiler/catalog/contract.h"
#include "compiler/spec/spec.h"
#include "kernels/device/io.h"

enum { CASE_ROWS = 160, FEW_ROWS = 8 };

typedef struct Case {
    const char *graph;  /* text; its output is what is computed, its embeds and the like are inputs */
    const char *target; /* "sm_90a" */
    DType kv;
    bool decode;   /* a decode program: every row brings one token */
    bool encode;   /* an encode program */
    bool head;     /* what is computed: the logits; the graph's output is a sample of them */
    bool segments; /* of a sample: the kernel of the logits writes segments of them */
    int columns;   /* of parts of the statistics that are left of all inputs' rows; 0: of none */
    bool stats;    /* statistics of the output's rows are wanted */
    int bucket;    /* 0: exact */
    int rows, decode_rows;
    int lanes; /* the first rows so many are of one beam search, as long as the first of them; 0: none */
    struct {
        int q_len, kv_len;
    } row[CASE_ROWS];            /* kv_len: with the step's tokens */
    FtxParams params[CASE_ROWS]; /* of a sample */
    int sms;
    const char *only; /* the family; NULL: all that match */
    float flat;       /* logits lie so near 0, on few values; 0: anywhere from -5 to 5 */
    int levels;       /* so many of them; 0: 129 */
    int blocks;       /* run so many at each end of the grid and between; 0: all */
} Case;

typedef struct Suite Suite;

/* One kernel of `turns` is run, another one in each turn (tests/turn.h). */
Suite *suite_open(const char *dir, unsigned turns);
void suite_close(Suite *s);
/* Takes every kernel that can compute the graph's output; how many there are. */
size_t suite_add(Suite *s, const Case *c, const char *name);
/* Takes every kernel of the model's plan for the target, once, each with a step for the first program
 * that launches it; of products run `blocks` (0: all). How many are new and run. */
size_t suite_add_model(Suite *s, const char *path, const Override *overrides, size_t n, const char *target,
                       const char *name, int blocks);
void suite_build(Suite *s);

/* Runs all under `schedules` of the schedules (each kernel starts with another one), of which one in each turn, and seeds
 * made of `seed`; fails the test with what was found, or with the first value that is wrong. */
void suite_run(Suite *s, int schedules, uint64_t seed);

/* One line a family: instances, launches. */
void suite_summary(const Suite *s, FILE *out);

#endif
