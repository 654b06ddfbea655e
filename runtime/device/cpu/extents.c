/* extents.c - checks the constants and operands of each launch against kernels/cpu/extents.def.
 *
 * A kernel on the CPU takes its sizes from constants of the artifact. So a file that lies about them would be code. Here
 * the bytes that a kernel may touch are computed from its constants, and compared with the memory that its operand has:
 *
 *   named buffers    what the host and kernels use as indices ($pages, $rows, $token): each operand is just that buffer
 *   values           activations in WORK, or in a named buffer of values ($logits, $hidden, $pooled, $input)
 *   zeroed           counters that every launch leaves zero (`zeroed` lines): in STATE, outside of named buffers
 *   weights          are only read
 *
 * Named buffers do not overlap (artifact.c). What a launch writes overlaps none of its other operands: threads would
 * read half of it, and a kernel would read back other indices than it wrote. */
#include "extents.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../kernels/cpu/cpu.h"
#include "../../artifact/sizes.h"
#include "../../base/dtype.h"
#include "../../base/expr.h"

enum { EXTENT_TEXT = 400 };

static const struct {
    const char *name;
    uint32_t space;
} named_buffers[FTX_NAMED_COUNT] = {
#define NAMED(name, space, bytes, what) {#name, FTX_SPACE_##space},
#include "../../artifact/named.def"
#undef NAMED
};

typedef struct ExtentLaunch { /* a launch of a program */
    const Artifact *artifact;
    const ArtifactPlan *plan;
    const FtxProgram *program;
    const FtxKernel *kernel;
    const FtxOperand *operand; /* [n_operands] */
    const CpuExtents *row;
    Extent extent[EXTENT_OPERANDS];
} ExtentLaunch;

/* The index of a constant among those of the row; -1: none. */
static int constant_index(const CpuExtents *row, const char *name, size_t bytes)
{
    int i = 0;

    for (const char *at = row->constants; *at; i++) {
        const size_t n = strcspn(at, " ");

        if (n == bytes && memcmp(at, name, n) == 0)
            return i;
        at += n + (at[n] == ' ');
    }
    return -1;
}

static bool constant_of(const ExtentLaunch *l, const char *name, size_t bytes, int64_t *value)
{
    const int i = constant_index(l->row, name, bytes);

    if (i >= 0)
        *value = l->plan->consts[l->kernel->first_const + (uint32_t)i];
    return i >= 0;
}

static int64_t program_tokens(const ExtentLaunch *l)
{
    return l->program->bucket ? l->program->bucket : l->artifact->facts->tokens;
}

static int64_t most_rows(const ExtentLaunch *l)
{
    const int64_t tokens = program_tokens(l), sequences = l->artifact->facts->sequences;

    return tokens < sequences ? tokens : sequences;
}

static bool extent_name(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    const ExtentLaunch *l = user;
    const FtxFacts *f = l->artifact->facts;
    const bool encodes = l->program->kind == FTX_PROG_ENCODE || l->program->kind == FTX_PROG_HIDDEN;
    const bool source = encodes && f->kind == FTX_MODEL_SEQ2SEQ;
    const size_t n = strlen(name);
    int64_t by_rows = 0;
    const struct {
        const char *name;
        int64_t value;
    } names[] = {
        {"T", program_tokens(l)},
        {"S", most_rows(l)},
        {"vocab", f->vocab},
        {"context", f->context},
        {"sequences", f->sequences},
        {"end_ids", f->end_ids},
        {"logit_bias", f->logit_bias},
        {"bad_words", f->bad_words},
        {"kv_block", f->kv_block},
        {"beams", f->beams > 1 ? f->beams : 0},
        {"source_context", f->source_context},
        {"sources", f->sources},
        {"ranks", f->ranks},
        {"exchange", (int64_t)l->plan->head->exchange},
        {"ids", source ? f->source_vocab : f->vocab},
        {"places", source ? f->source_context : f->context},
        {"encodes", encodes},
        {"types", encodes ? (f->types ? f->types : 1) : f->sequences}, /* of a decoder FtxToken.slot is a slot */
    };

    *kind = EXPR_CONSTANT;
    if (strcmp(name, "M") == 0) {
        *value = constant_of(l, "ROWS_S", 6, &by_rows) && by_rows ? most_rows(l) : program_tokens(l);
        return true;
    }
    if (strncmp(name, "bytes(", 6) == 0) {
        if (!constant_of(l, name + 6, n - 7, value))
            return false;
        *value = *value >= DT_FP32 && *value <= DT_BF16 ? (int64_t)dtype_size((DType)*value) : INT64_MAX; /* no type */
        return true;
    }
    if (strncmp(name, "row(", 4) == 0) {
        int64_t type, dim;

        if (!constant_of(l, name + 4, n - 5, &type) || !constant_of(l, "E", 1, &dim))
            return false;
        *value = (int64_t)sizes_row((DType)type, (uint32_t)dim);
        *value = *value ? *value : INT64_MAX; /* no type */
        return true;
    }
    if (strncmp(name, "has", 3) == 0 && isdigit((unsigned char)name[3])) {
        const unsigned long i = strtoul(name + 3, NULL, 10);

        *value = i < l->kernel->n_operands && l->operand[i].space != FTX_SPACE_NULL;
        return true;
    }
    if (constant_of(l, name, n, value))
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) {
            *value = names[i].value;
            return true;
        }
    return false;
}

/* The value of the expression text[0..n). */
static FtxStatus extent_value(ExtentLaunch *l, const char *text, size_t n, int64_t *value, FtxError *err)
{
    char whole[EXTENT_TEXT];
    Expr e;
    FtxStatus s;

    snprintf(whole, sizeof whole, "%.*s", (int)n, text);
    s = expr_parse(whole, extent_name, l, &e, err);
    return s ? s : expr_run(e.words, e.n, NULL, 0, value, err);
}

static FtxStatus extent_constants(ExtentLaunch *l, FtxError *err)
{
    const char *at = l->row->constants;
    uint32_t n = 0;
    int64_t holds = 0;
    FtxStatus s;

    for (; *at; n++) {
        const size_t bytes = strcspn(at, " ");
        const int64_t value = n < l->kernel->n_consts ? l->plan->consts[l->kernel->first_const + n] : -1;

        if (*at != '~' && (value < 0 || value > INT32_MAX))
            return ftx_fail(err, FTX_EFORMAT, "its constant %.*s is missing or %lld", (int)bytes, at, (long long)value);
        at += bytes + (at[bytes] == ' ');
    }
    if (n != l->kernel->n_consts)
        return ftx_fail(err, FTX_EFORMAT, "it has %u constants, not %u", l->kernel->n_consts, n);
    s = extent_value(l, l->row->condition, strlen(l->row->condition), &holds, err);
    if (!s && !holds)
        s = ftx_fail(err, FTX_EFORMAT, "its constants do not fit: %s", l->row->condition);
    return s;
}

/* --- sizes ---------------------------------------------------------------------------------------- */

/* text[0..n): operand i of extents.def. Its size is 0 where it is absent. */
static FtxStatus extent_of(ExtentLaunch *l, uint32_t i, const char *text, size_t n, FtxError *err)
{
    Extent *e = &l->extent[i];
    const char *end = text + n;
    int64_t bytes = 0;
    FtxStatus s = FTX_OK;

    *e = (Extent){.named = -1};
    for (; text < end && strchr(" ?>!", *text); text++) {
        e->optional |= *text == '?';
        e->written |= *text == '>' || *text == '!';
        e->zeroed |= *text == '!';
    }
    if (text < end && *text == '$') {
        const size_t name = strspn(++text, "abcdefghijklmnopqrstuvwxyz_");

        for (int k = 0; k < FTX_NAMED_COUNT; k++)
            if (strlen(named_buffers[k].name) == name && memcmp(named_buffers[k].name, text, name) == 0)
                e->named = k;
        text += name;
    }
    if (l->operand[i].space == FTX_SPACE_NULL)
        return FTX_OK;
    e->whole = e->named >= 0 && text == end;
    if (!e->whole)
        s = extent_value(l, text, (size_t)(end - text), &bytes, err);
    e->bytes = e->whole ? l->plan->head->named_bytes[e->named] : (uint64_t)bytes;
    return s;
}

static FtxStatus extent_sizes(ExtentLaunch *l, FtxError *err)
{
    const char *at = l->row->operands;
    uint32_t n = 0;
    FtxStatus s = extent_constants(l, err);

    for (; !s && *at; n++) {
        const size_t bytes = strcspn(at, ";");

        if (n < l->kernel->n_operands)
            s = ftx_context(err, extent_of(l, n, at, bytes, err), "operand %u", n);
        at += bytes + 1;
    }
    if (!s && n != l->kernel->n_operands)
        s = ftx_fail(err, FTX_EFORMAT, "it has %u operands, not %u", l->kernel->n_operands, n);
    return s;
}

/* --- places --------------------------------------------------------------------------------------- */

static bool extents_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Whether the operand lies inside a named buffer. */
static bool extent_inside(const ExtentLaunch *l, const FtxOperand *o, const Extent *e, int named)
{
    const FtxPlan *head = l->plan->head;

    if (o->space != named_buffers[named].space || o->offset < head->named[named])
        return false;

    const uint64_t skip = o->offset - head->named[named], all = head->named_bytes[named];

    return skip <= all && e->bytes <= all - skip;
}

/* Whether the operand lies in STATE, outside of every named buffer. */
static bool extent_unnamed(const ExtentLaunch *l, const FtxOperand *o, const Extent *e)
{
    const FtxPlan *head = l->plan->head;

    for (int i = 0; i < FTX_NAMED_COUNT; i++)
        if (named_buffers[i].space == FTX_SPACE_STATE &&
            extents_overlap(o->offset, e->bytes, head->named[i], head->named_bytes[i]))
            return false;
    return o->space == FTX_SPACE_STATE;
}

/* Whether values may lie there. */
static bool extent_of_values(const ExtentLaunch *l, const FtxOperand *o, const Extent *e)
{
    static const int values[] = {FTX_NAMED_logits, FTX_NAMED_hidden, FTX_NAMED_pooled, FTX_NAMED_input};

    if (o->space == FTX_SPACE_WORK || (o->space == FTX_SPACE_WEIGHTS && !e->written))
        return true;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (extent_inside(l, o, e, values[i]))
            return true;
    return false;
}

static FtxStatus extent_place(const ExtentLaunch *l, const FtxOperand *o, const Extent *e, FtxError *err)
{
    const FtxPlan *head = l->plan->head;
    const uint64_t all = head->space_bytes[o->space];

    if (o->space == FTX_SPACE_NULL)
        return e->optional ? FTX_OK : ftx_fail(err, FTX_EFORMAT, "it is missing");
    if (o->offset % sizeof(float) || o->offset > all || e->bytes > all - o->offset)
        return ftx_fail(err, FTX_EFORMAT, "it has %llu bytes at %llu, there are %llu", (unsigned long long)e->bytes,
                        (unsigned long long)o->offset, (unsigned long long)all);
    if (e->named >= 0 && (!extent_inside(l, o, e, e->named) || (e->whole && o->offset != head->named[e->named])))
        return ftx_fail(err, FTX_EFORMAT, "it is not inside $%s", named_buffers[e->named].name);
    if (e->named < 0 && !(e->zeroed ? extent_unnamed(l, o, e) : extent_of_values(l, o, e)))
        return ftx_fail(err, FTX_EFORMAT, "it may not lie at %llu of space %u", (unsigned long long)o->offset,
                        o->space);
    return FTX_OK;
}

/* Whether operand i overlaps an earlier one, and one of them is written. */
static FtxStatus extent_apart(const ExtentLaunch *l, uint32_t i, FtxError *err)
{
    const FtxOperand *o = l->operand;
    const Extent *e = l->extent;

    for (uint32_t k = 0; k < i; k++)
        if (o[k].space == o[i].space && (e[k].written || e[i].written) &&
            extents_overlap(o[k].offset, e[k].bytes, o[i].offset, e[i].bytes))
            return ftx_fail(err, FTX_EFORMAT, "it overlaps operand %u", k);
    return FTX_OK;
}

static FtxStatus extent_launch(ExtentLaunch *l, FtxError *err)
{
    FtxStatus s = extent_sizes(l, err);

    for (uint32_t i = 0; !s && i < l->kernel->n_operands; i++) {
        s = extent_place(l, &l->operand[i], &l->extent[i], err);
        if (!s)
            s = extent_apart(l, i, err);
        s = ftx_context(err, s, "operand %u", i);
    }
    return s;
}

static FtxStatus extent_find(ExtentLaunch *l, const FtxLaunch *launch, FtxError *err)
{
    l->kernel = &l->plan->kernels[launch->kernel];
    l->operand = &l->plan->operands[launch->first_operand];
    l->row = cpu_extents(artifact_string(l->artifact, l->kernel->family));
    return l->row ? FTX_OK : ftx_fail(err, FTX_EFORMAT, "no program runs this kernel");
}

FtxStatus extents_of(const Artifact *a, const ArtifactPlan *p, const FtxProgram *program, const FtxLaunch *launch,
                     Extent extent[EXTENT_OPERANDS], FtxError *err)
{
    ExtentLaunch l = {.artifact = a, .plan = p, .program = program};
    FtxStatus s = extent_find(&l, launch, err);

    if (!s)
        s = extent_sizes(&l, err);
    memcpy(extent, l.extent, sizeof l.extent);
    return s;
}

FtxStatus extents_check(const Artifact *a, const ArtifactPlan *p, FtxError *err)
{
    for (uint32_t i = 0; i < p->n_programs; i++)
        for (uint32_t k = 0; k < p->programs[i].n_launches; k++) {
            const FtxLaunch *launch = &p->launches[p->programs[i].first_launch + k];
            ExtentLaunch l = {.artifact = a, .plan = p, .program = &p->programs[i]};
            FtxStatus s = extent_find(&l, launch, err);

            if (!s)
                s = extent_launch(&l, err);
            if (s)
                return ftx_context(err, FTX_EFORMAT, "plan: launch %s (%s)", artifact_string(a, launch->label),
                                   artifact_string(a, p->kernels[launch->kernel].family));
        }
    return FTX_OK;
}
