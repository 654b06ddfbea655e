/* extents.c - checks the constants and operands of each launch against kernels/cpu/extents.def.
 *
 * A kernel on the CPU takes its sizes from constants of the artifact. So a file that lies about them would be code. Here
 * the bytes that a kernel may touch are computed from its constants, and compared with the space that its operand has.
 * Indices that a kernel reads (pages, rows, ids) come from the named buffers that the host fills: each must be just that
 * buffer, and nothing else may be written over it. */
#include "extents.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../kernels/cpu/cpu.h"
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
    const FtxLaunch *launch;
    const FtxKernel *kernel;
    const FtxOperand *operand; /* [n_operands] */
    const CpuExtents *row;
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

static bool extents_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Named buffers that hold values of the model, not what kernels use as indices. */
static bool holds_values(int named)
{
    return named == FTX_NAMED_logits || named == FTX_NAMED_hidden || named == FTX_NAMED_pooled ||
           named == FTX_NAMED_input;
}

static bool extent_is_free(const ExtentLaunch *l, const FtxOperand *o, uint64_t bytes)
{
    const FtxPlan *head = l->plan->head;

    for (int i = 0; i < FTX_NAMED_COUNT; i++)
        if (named_buffers[i].space == o->space && !holds_values(i) &&
            extents_overlap(o->offset, bytes, head->named[i], head->named_bytes[i]))
            return false;
    return true;
}

static FtxStatus extent_memory(const ExtentLaunch *l, const FtxOperand *o, uint64_t bytes, bool written, FtxError *err)
{
    const uint64_t all = l->plan->head->space_bytes[o->space];

    if (o->space != FTX_SPACE_WORK && o->space != FTX_SPACE_STATE && (written || o->space != FTX_SPACE_WEIGHTS))
        return ftx_fail(err, FTX_EFORMAT, "it is in space %u", o->space);
    if (o->offset % sizeof(float) || o->offset > all || bytes > all - o->offset)
        return ftx_fail(err, FTX_EFORMAT, "it has %llu bytes at %llu, there are %llu", (unsigned long long)bytes,
                        (unsigned long long)o->offset, (unsigned long long)all);
    if (!extent_is_free(l, o, bytes))
        return ftx_fail(err, FTX_EFORMAT, "it lies over a named buffer");
    return FTX_OK;
}

/* bytes -1: the buffer from its start. */
static FtxStatus extent_named(const ExtentLaunch *l, const FtxOperand *o, const char *name, size_t n, int64_t bytes,
                              FtxError *err)
{
    const FtxPlan *head = l->plan->head;

    for (int i = 0; i < FTX_NAMED_COUNT; i++) {
        if (strlen(named_buffers[i].name) != n || memcmp(named_buffers[i].name, name, n) != 0)
            continue;
        if (o->space != named_buffers[i].space || o->offset < head->named[i])
            break;

        const uint64_t skip = o->offset - head->named[i], all = head->named_bytes[i];

        if (bytes < 0 ? skip == 0 : skip <= all && (uint64_t)bytes <= all - skip && skip % sizeof(float) == 0)
            return FTX_OK;
        break;
    }
    return ftx_fail(err, FTX_EFORMAT, "it is not inside $%.*s", (int)n, name);
}

/* text[0..n): one operand of extents.def. */
static FtxStatus extent_operand(ExtentLaunch *l, const FtxOperand *o, const char *text, size_t n, FtxError *err)
{
    const char *end = text + n, *name = NULL;
    bool optional = false, written = false;
    size_t name_bytes = 0;
    int64_t bytes = -1;

    for (; text < end && strchr(" ?>", *text); text++) {
        optional |= *text == '?';
        written |= *text == '>';
    }
    if (text < end && *text == '$') {
        for (name = ++text; text < end && (isalnum((unsigned char)*text) || *text == '_');)
            text++;
        name_bytes = (size_t)(text - name);
    }
    if (o->space == FTX_SPACE_NULL)
        return optional ? FTX_OK : ftx_fail(err, FTX_EFORMAT, "it is missing");
    if (text < end) {
        const FtxStatus s = extent_value(l, text, (size_t)(end - text), &bytes, err);

        if (s)
            return s;
    }
    return name ? extent_named(l, o, name, name_bytes, bytes, err) : extent_memory(l, o, (uint64_t)bytes, written, err);
}

static FtxStatus extent_launch(ExtentLaunch *l, FtxError *err)
{
    const char *at = l->row->operands;
    uint32_t n = 0;
    FtxStatus s = extent_constants(l, err);

    for (; !s && *at; n++) {
        const size_t bytes = strcspn(at, ";");

        if (n < l->kernel->n_operands)
            s = ftx_context(err, extent_operand(l, &l->operand[n], at, bytes, err), "operand %u", n);
        at += bytes + 1;
    }
    if (!s && n != l->kernel->n_operands)
        s = ftx_fail(err, FTX_EFORMAT, "it has %u operands, not %u", l->kernel->n_operands, n);
    return s;
}

FtxStatus extents_check(const Artifact *a, const ArtifactPlan *p, FtxError *err)
{
    for (uint32_t i = 0; i < p->n_programs; i++)
        for (uint32_t k = 0; k < p->programs[i].n_launches; k++) {
            ExtentLaunch l = {.artifact = a,
                              .plan = p,
                              .program = &p->programs[i],
                              .launch = &p->launches[p->programs[i].first_launch + k]};
            FtxStatus s;

            l.kernel = &p->kernels[l.launch->kernel];
            l.operand = &p->operands[l.launch->first_operand];
            l.row = cpu_extents(artifact_string(a, l.kernel->family));
            s = l.row ? extent_launch(&l, err) : ftx_fail(err, FTX_EFORMAT, "no program runs this kernel");
            if (s)
                return ftx_context(err, FTX_EFORMAT, "plan: launch %s (%s)", artifact_string(a, l.launch->label),
                                   artifact_string(a, l.kernel->family));
        }
    return FTX_OK;
}
