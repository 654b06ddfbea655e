/* tables.h - the tables of a plan by hand, filled row by row, and the artifact over them. */
#ifndef FTX_TEST_TABLES_H
#define FTX_TEST_TABLES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/device/io.h"
#include "runtime/base/dtype.h"
#include "runtime/base/expr.h"
#include "runtime/device/device.h"

enum { MOST_LAUNCHES = 256 };

typedef struct Tables {
    Artifact artifact;
    ArtifactPlan plan;
    FtxFacts facts;
    FtxPlan head;
    FtxKernel kernels[8];
    int64_t consts[FTX_MM_CONSTS + 1 + 2 * FTX_MM_RECORD]; /* of the one matrix product */
    FtxProgram programs[8];
    FtxLaunch launches[MOST_LAUNCHES];
    FtxOperand operands[5 * MOST_LAUNCHES];
    int64_t exprs[64];
    uint32_t n_launches, n_operands, n_exprs;
    FtxWeight weights[3];
} Tables;

static inline bool variable(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    (void)user;
    *kind = EXPR_VARIABLE;
    *value = !strcmp(name, "T") ? VAR_T : !strcmp(name, "S") ? VAR_S : VAR_SMS;
    return true;
}

static inline void grid(Tables *t, int kernel, int direction, const char *text)
{
    Expr e;

    assert_int_equal(expr_parse(text, variable, NULL, &e, NULL), FTX_OK);
    t->kernels[kernel].grid[direction][0] = t->n_exprs;
    t->kernels[kernel].grid[direction][1] = e.n;
    memcpy(&t->exprs[t->n_exprs], e.words, e.n * sizeof *e.words);
    t->n_exprs += e.n;
}

static inline void launch(Tables *t, uint32_t kernel, uint32_t label)
{
    t->launches[t->n_launches++] = (FtxLaunch){.kernel = kernel, .first_operand = t->n_operands, .label = label};
}

static inline void operand(Tables *t, FtxSpace space, uint64_t offset)
{
    t->operands[t->n_operands++] = (FtxOperand){.space = space, .offset = offset};
}

/* The plan and the artifact of what the tables hold. */
static inline void join_tables(Tables *t, uint32_t kernels, uint32_t programs, const void *code, size_t code_bytes,
                               const char *strings, size_t strings_bytes)
{
    t->plan = (ArtifactPlan){.head = &t->head,
                             .kernels = t->kernels,
                             .consts = t->consts,
                             .programs = t->programs,
                             .launches = t->launches,
                             .operands = t->operands,
                             .exprs = t->exprs,
                             .n_kernels = kernels,
                             .n_consts = FTX_MM_CONSTS,
                             .n_programs = programs,
                             .n_launches = t->n_launches,
                             .n_operands = t->n_operands,
                             .n_exprs = t->n_exprs,
                             .cubin = code,
                             .cubin_bytes = code_bytes};
    t->artifact = (Artifact){
        .facts = &t->facts, .strings = strings, .strings_bytes = strings_bytes, .weights = t->weights, .n_weights = 3};
}

static inline void must(FtxStatus s, const FtxError *err)
{
    if (s)
        fail_msg("%s", err->text);
}

#endif
