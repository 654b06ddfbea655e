/* artifact.c - opens an artifact: every offset, count and index of the file is checked before it is used.
 *
 * Order of the checks: header, section table, extents and checksums, facts, then each plan, inner arrays first. Kernels
 * for GPUs are programs and cannot be checked. What launches on the CPU may touch is checked when a plan is opened
 * (device/cpu/extents.c). */
#include "artifact.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/device/io.h"
#include "../base/packed.h"
#include "../base/dtype.h"
#include "../base/expr.h"
#include "../base/hash.h"
#include "facts.h"
#include "sizes.h"
#include "trailer.h"
#include "version.h"
#include "weights.h"

enum {
    MAX_SECTIONS = 1024,
    SECTION_ALIGN = 64,
    WEIGHT_ALIGN = 256,
    EXCHANGE_ALIGN = 16,
    NAMED_ALIGN = 16, /* the host and kernels read structs and vectors there */
    MAX_BLOCK = 1024,
    MAX_SMEM = 1 << 20
};

/* --- header and section table ---------------------------------------------------------------- */

static bool inside(uint64_t at, uint64_t bytes, uint64_t all)
{
    return at <= all && bytes <= all - at;
}

static FtxStatus check_header(const Artifact *a, const char *path, FtxError *err)
{
    const FtxHeader *h = a->map.at;
    FtxStatus v;

    if (a->map.bytes < sizeof *h)
        return ftx_fail(err, FTX_EFORMAT, "is %zu bytes, the header alone is %zu: not an ftx artifact, or cut off",
                        a->map.bytes, sizeof *h);
    if (memcmp(h->magic, FTX_MAGIC, sizeof h->magic) != 0)
        return ftx_fail(err, FTX_EFORMAT,
                        "is not an ftx artifact, which ftxc compile makes of a spec (its first bytes are others)");
    v = version_check(a->map, path, a->file.at && a->map.at != a->file.at, err);
    if (v)
        return v;
    if (h->file_bytes != a->map.bytes)
        return ftx_fail(err, FTX_EFORMAT, "is %zu bytes, its header says %" PRIu64 ": cut off or damaged", a->map.bytes,
                        h->file_bytes);
    if (h->sections > MAX_SECTIONS || h->sections_at % SECTION_ALIGN || h->sections_at < sizeof *h ||
        !inside(h->sections_at, h->sections * sizeof(FtxSection), a->map.bytes))
        return ftx_fail(err, FTX_EFORMAT, "its section table (%u entries at %" PRIu64 ") is not inside the file",
                        h->sections, h->sections_at);
    if (hash64((const char *)a->map.at + h->sections_at, h->sections * sizeof(FtxSection)) != h->sections_checksum)
        return ftx_fail(err, FTX_EFORMAT, "its section table is damaged (checksum)");
    return FTX_OK;
}

static const struct {
    const char *name;
    uint32_t size;   /* bytes of an element */
    uint8_t planned; /* one for each target */
    uint8_t text;    /* ends in a NUL */
    uint8_t late;    /* artifact_verify checks its checksum */
} kinds[] = {
    [FTX_SEC_FACTS] = {"facts", sizeof(FtxFacts), 0, 0, 0},
    [FTX_SEC_STRINGS] = {"strings", 1, 0, 1, 0},
    [FTX_SEC_SPEC] = {"spec", 1, 0, 1, 0},
    [FTX_SEC_BUILD] = {"build", 1, 0, 1, 0},
    [FTX_SEC_WEIGHT_INDEX] = {"weight index", sizeof(FtxWeight), 0, 0, 0},
    [FTX_SEC_WEIGHTS] = {"weights", 1, 0, 0, 1},
    [FTX_SEC_TOKENIZER] = {"tokenizer", 1, 0, 0, 0},
    [FTX_SEC_PLAN] = {"plan", sizeof(FtxPlan), 1, 0, 0},
    [FTX_SEC_KERNELS] = {"kernels", sizeof(FtxKernel), 1, 0, 0},
    [FTX_SEC_CONSTS] = {"constants", sizeof(int64_t), 1, 0, 0},
    [FTX_SEC_PROGRAMS] = {"programs", sizeof(FtxProgram), 1, 0, 0},
    [FTX_SEC_LAUNCHES] = {"launches", sizeof(FtxLaunch), 1, 0, 0},
    [FTX_SEC_OPERANDS] = {"operands", sizeof(FtxOperand), 1, 0, 0},
    [FTX_SEC_EXPRS] = {"expressions", sizeof(int64_t), 1, 0, 0},
    [FTX_SEC_BUFFERS] = {"buffers", sizeof(FtxBuffer), 1, 0, 0},
    [FTX_SEC_CACHES] = {"caches", sizeof(FtxCache), 1, 0, 0},
    [FTX_SEC_CUBIN] = {"code", 1, 1, 0, 0},
    [FTX_SEC_SOURCE] = {"source", 1, 1, 1, 0},
    [FTX_SEC_TABLES] = {"tables", 1, 0, 0, 1},
    [FTX_SEC_BAD_WORDS] = {"bad words", sizeof(int32_t), 0, 0, 0},
    [FTX_SEC_CHAT] = {"chat templates", 1, 0, 0, 0},
};

const char *artifact_section_name(uint32_t kind)
{
    return kind < sizeof kinds / sizeof *kinds && kinds[kind].name ? kinds[kind].name : "unknown";
}

int artifact_layer(const char *label, const char **rest)
{
    static const char word[] = "layer ";
    const size_t n = strncmp(label, word, sizeof word - 1) == 0 ? strspn(label + sizeof word - 1, "0123456789") : 0;
    const bool has = n > 0 && n <= 6;

    if (rest)
        *rest = has ? label + sizeof word - 1 + n : label;
    return has ? atoi(label + sizeof word - 1) : -1;
}

static const void *bytes_of(const Artifact *a, const FtxSection *s)
{
    return (const char *)a->map.at + s->offset;
}

static FtxStatus check_section(const Artifact *a, uint32_t i, FtxError *err)
{
    const FtxSection *s = &a->sections[i];
    const char *name = artifact_section_name(s->kind);

    if (s->kind >= sizeof kinds / sizeof *kinds || !kinds[s->kind].name)
        return ftx_fail(err, FTX_EFORMAT, "section %u is of the unknown kind %u", i, s->kind);
    if (s->rank && (s->rank >= FTX_MAX_RANKS || !kinds[s->kind].late))
        return ftx_fail(err, FTX_EFORMAT, "section %u (%s) is for rank %u", i, name, s->rank);
    if (s->offset % SECTION_ALIGN || s->offset < sizeof(FtxHeader) || !inside(s->offset, s->bytes, a->map.bytes))
        return ftx_fail(err, FTX_EFORMAT, "section %u (%s) is not inside the file", i, name);
    if (s->bytes % kinds[s->kind].size || (!kinds[s->kind].late && s->bytes > INT32_MAX))
        return ftx_fail(err, FTX_EFORMAT, "section %u (%s) has %" PRIu64 " bytes, its elements have %u", i, name,
                        s->bytes, kinds[s->kind].size);
    if (!kinds[s->kind].planned && s->target)
        return ftx_fail(err, FTX_EFORMAT, "section %u (%s) belongs to target %u", i, name, s->target);
    if (s->variant && !kinds[s->kind].planned)
        return ftx_fail(err, FTX_EFORMAT, "section %u (%s) is of plan %u", i, name, s->variant);
    for (uint32_t k = 0; k < i; k++)
        if (a->sections[k].kind == s->kind && a->sections[k].target == s->target &&
            a->sections[k].variant == s->variant && a->sections[k].rank == s->rank)
            return ftx_fail(err, FTX_EFORMAT, "sections %u and %u are both the %s of target %u", k, i, name, s->target);
    if (kinds[s->kind].text && (s->bytes == 0 || ((const char *)bytes_of(a, s))[s->bytes - 1] != '\0'))
        return ftx_fail(err, FTX_EFORMAT, "section %u (%s) is text without its end", i, name);
    if (!kinds[s->kind].late && hash64(bytes_of(a, s), (size_t)s->bytes) != s->checksum)
        return ftx_fail(err, FTX_EFORMAT, "section %u (%s) is damaged (checksum)", i, name);
    return FTX_OK;
}

/* The section of a kind that belongs to the plan of `plan`, a section of it, or to none (NULL). */
static const FtxSection *find(const Artifact *a, uint32_t kind, const FtxSection *plan)
{
    for (uint32_t i = 0; i < a->header->sections; i++)
        if (a->sections[i].kind == kind && a->sections[i].target == (plan ? plan->target : 0) &&
            a->sections[i].variant == (plan ? plan->variant : 0) && !a->sections[i].rank)
            return &a->sections[i];
    return NULL;
}

/* The array of a section and how many elements it has; none where there is no such section. */
static const void *array(const Artifact *a, uint32_t kind, const FtxSection *plan, uint32_t *n)
{
    const FtxSection *s = find(a, kind, plan);

    *n = s ? (uint32_t)(s->bytes / kinds[kind].size) : 0;
    return s ? bytes_of(a, s) : NULL;
}

/* --- plans ----------------------------------------------------------------------------------- */

static FtxStatus check_named(const Artifact *a, const ArtifactPlan *p, FtxError *err)
{
    static const struct {
        const char *name;
        FtxSpace space;
    } named[] = {
#define NAMED(name, space, bytes, what) {#name, FTX_SPACE_##space},
#include "named.def"
#undef NAMED
    };
    const FtxFacts *f = a->facts;
    const FtxPlan *head = p->head;
    const bool encoder = f->kind == FTX_MODEL_ENCODER;
    Sizes sizes = {.S = f->sequences,
                   .T = f->tokens,
                   .C = f->context,
                   .B = f->kv_block,
                   .V = encoder ? 0 : f->vocab,
                   .BIAS = f->logit_bias,
                   .ENDS = f->end_ids,
                   .WORDS = f->bad_words,
                   .RING = FTX_OUT_RING,
                   .D = encoder ? f->hidden : f->states,
                   .POOL = f->pooled,
                   .SRC = f->source_context,
                   .SOURCES = f->sources,
                   .BEAMS = f->beams > 1 ? f->beams : 0,
                   .IN = f->input * (int64_t)dtype_size((DType)head->compute_type),
                   .RANKS = f->ranks - 1,
                   .EXCHANGE = (int64_t)head->exchange,
                   .MASKS = head->named_bytes[FTX_NAMED_mask] > 0};
    FtxStatus s = sizes_caches(&sizes, p->caches, p->n_caches, err);

    if (s)
        return s;
    if ((sizes.KEYS || sizes.RECURRENT) == encoder || (sizes.CROSS_KEYS != 0) != (f->kind == FTX_MODEL_SEQ2SEQ))
        return ftx_fail(err, FTX_EFORMAT, "its %u caches are not those of a model of kind %u", p->n_caches, f->kind);
    if (sizes.RECURRENT && (f->kind != FTX_MODEL_DECODER || f->beams > 1))
        return ftx_fail(err, FTX_EFORMAT, "recurrent states in a model of kind %u with %u beams", f->kind, f->beams);
    for (int i = 0; i < FTX_NAMED_COUNT; i++) {
        uint64_t least;

        if ((s = sizes_named(&sizes, i, &least, err)))
            return s;
        if (head->named_bytes[i] < least ||
            !inside(head->named[i], head->named_bytes[i], head->space_bytes[named[i].space]))
            return ftx_fail(
                err, FTX_EFORMAT, "$%s has %" PRIu64 " bytes at %" PRIu64 ", it needs %" PRIu64 " inside %" PRIu64,
                named[i].name, head->named_bytes[i], head->named[i], least, head->space_bytes[named[i].space]);
        if (head->named[i] % NAMED_ALIGN)
            return ftx_fail(err, FTX_EFORMAT, "$%s is at %" PRIu64 ", no multiple of %d", named[i].name, head->named[i],
                            NAMED_ALIGN);
        for (int k = 0; k < i; k++)
            if (named[k].space == named[i].space && head->named[k] < head->named[i] + head->named_bytes[i] &&
                head->named[i] < head->named[k] + head->named_bytes[k])
                return ftx_fail(err, FTX_EFORMAT, "$%s and $%s overlap", named[k].name, named[i].name);
    }
    return FTX_OK;
}

static FtxStatus check_head(const Artifact *a, const ArtifactPlan *plan, uint32_t target, FtxError *err)
{
    const FtxPlan *p = plan->head;

    if (p->target != target)
        return ftx_fail(err, FTX_EFORMAT, "its plan is for target %u", p->target);
    if (!artifact_has_string(a, p->name) || !artifact_has_string(a, p->device))
        return ftx_fail(err, FTX_EFORMAT, "its names are not inside the strings");
    if ((!packed_type((DType)p->weight_type) && (p->weight_type < DT_FP32 || p->weight_type > DT_BF16)) ||
        p->compute_type < DT_FP32 || p->compute_type > DT_BF16)
        return ftx_fail(err, FTX_EFORMAT, "its types are %u, %u", p->weight_type, p->compute_type);
    for (int i = 0; i < 8; i++)
        if (p->space_bytes[i] > MAX_SPACE || ((i == FTX_SPACE_NULL || i >= FTX_SPACE_COUNT) && p->space_bytes[i]))
            return ftx_fail(err, FTX_EFORMAT, "its space %d has %" PRIu64 " bytes", i, p->space_bytes[i]);
    if (a->facts->kv_pages && p->space_bytes[FTX_SPACE_PAGES] > (UINT64_C(1) << 62) / a->facts->kv_pages)
        return ftx_fail(err, FTX_EFORMAT, "its %u KV pages of %" PRIu64 " bytes are more than there can be",
                        a->facts->kv_pages, p->space_bytes[FTX_SPACE_PAGES]);
    if (p->space_bytes[FTX_SPACE_WEIGHTS] != a->facts->weight_bytes)
        return ftx_fail(err, FTX_EFORMAT, "it asks for %" PRIu64 " bytes of weights, there are %" PRIu64,
                        p->space_bytes[FTX_SPACE_WEIGHTS], a->facts->weight_bytes);
    if (p->exchange > MAX_SPACE || p->exchange % (a->facts->ranks * EXCHANGE_ALIGN) ||
        (p->exchange && a->facts->ranks == 1))
        return ftx_fail(err, FTX_EFORMAT, "its %u ranks exchange %" PRIu64 " bytes", a->facts->ranks, p->exchange);
    if (!p->exchange && a->facts->ranks > 1)
        return ftx_fail(err, FTX_EFORMAT, "its %u ranks exchange nothing, so each would answer for its part",
                        a->facts->ranks);
    return check_named(a, plan, err);
}

static FtxStatus check_expr(const ArtifactPlan *p, const uint32_t where[2], bool may_be_empty, FtxError *err)
{
    if (!inside(where[0], where[1], p->n_exprs) || where[1] > EXPR_MAX_WORDS)
        return ftx_fail(err, FTX_EFORMAT, "expression words %u..+%u are not there", where[0], where[1]);
    if (where[1] == 0)
        return may_be_empty ? FTX_OK : ftx_fail(err, FTX_EFORMAT, "an expression is missing");
    return expr_check(p->exprs + where[0], where[1], VAR_COUNT, err);
}

/* The constants of a cuBLASLt call (runtime/device/cuda/device_cuda.c). */
static FtxStatus check_matmul(const int64_t *c, uint32_t n, FtxError *err)
{
    static const int types[] = {FTX_MM_TYPE_X, FTX_MM_TYPE_W, FTX_MM_TYPE_Y};

    if (n < FTX_MM_CONSTS)
        return ftx_fail(err, FTX_EFORMAT, "a matmul has %u constants, it needs %d", n, FTX_MM_CONSTS);
    if (n > FTX_MM_CONSTS && (n - FTX_MM_CONSTS) % FTX_MM_RECORD != 1)
        return ftx_fail(err, FTX_EFORMAT, "a matmul has %u constants, which are no whole algorithms", n);
    if (c[FTX_MM_N] < 1 || c[FTX_MM_N] > INT32_MAX || c[FTX_MM_K] < 1 || c[FTX_MM_K] > INT32_MAX ||
        c[FTX_MM_ROWS_S] < 0 || c[FTX_MM_ROWS_S] > 1 || c[FTX_MM_ACT] < 0 || c[FTX_MM_ACT] >= FTX_ACT_COUNT)
        return ftx_fail(err, FTX_EFORMAT, "constants of a matmul are out of range");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (c[types[i]] < DT_FP32 || c[types[i]] > DT_BF16)
            return ftx_fail(err, FTX_EFORMAT, "a matmul has the type %" PRId64, c[types[i]]);
    return FTX_OK;
}

static FtxStatus check_code(const ArtifactPlan *p, const FtxKernel *k, FtxError *err)
{
    const char *code = p->cubin;

    if (k->code_bytes == 0 || k->code_at % SECTION_ALIGN || !inside(k->code_at, k->code_bytes, p->cubin_bytes))
        return ftx_fail(err, FTX_EFORMAT, "its code is not inside the section");
    if (p->head->target % 10 == 2 && code[(size_t)k->code_at + k->code_bytes - 1] != '\0')
        return ftx_fail(err, FTX_EFORMAT, "its PTX is text without its end");
    if (k->block < 1)
        return ftx_fail(err, FTX_EFORMAT, "its block has no threads");
    return FTX_OK;
}

static FtxStatus check_kernel(const Artifact *a, const ArtifactPlan *p, const FtxKernel *k, FtxError *err)
{
    const bool cpu = p->head->target == FTX_TARGET_CPU;
    FtxStatus s = FTX_OK;

    if (cpu ? k->kind != FTX_KERNEL_CPU : k->kind != FTX_KERNEL_CUDA && k->kind != FTX_KERNEL_MATMUL)
        return ftx_fail(err, FTX_EFORMAT, "its kind %u does not run on this target", k->kind);
    if (!artifact_has_string(a, k->family) || !artifact_has_string(a, k->entry))
        return ftx_fail(err, FTX_EFORMAT, "its names are not inside the strings");
    if (!inside(k->first_const, k->n_consts, p->n_consts))
        return ftx_fail(err, FTX_EFORMAT, "its constants %u..+%u are not there", k->first_const, k->n_consts);
    if (k->n_operands > p->n_operands || k->block > MAX_BLOCK || k->smem > MAX_SMEM)
        return ftx_fail(err, FTX_EFORMAT, "it has %u operands, %u threads, %u bytes of shared memory", k->n_operands,
                        k->block, k->smem);
    for (int i = 0; !s && i < 3; i++)
        s = check_expr(p, k->grid[i], k->kind != FTX_KERNEL_CUDA, err);
    if (!s)
        s = check_expr(p, k->moves, true, err);
    if (!s && k->kind == FTX_KERNEL_MATMUL)
        s = check_matmul(p->consts + k->first_const, k->n_consts, err);
    if (!s && k->kind == FTX_KERNEL_CUDA)
        s = check_code(p, k, err);
    return s;
}

static FtxStatus check_launch(const Artifact *a, const ArtifactPlan *p, const FtxLaunch *l, FtxError *err)
{
    if (l->kernel >= p->n_kernels || !artifact_has_string(a, l->label) ||
        !inside(l->first_operand, p->kernels[l->kernel].n_operands, p->n_operands))
        return ftx_fail(err, FTX_EFORMAT, "its kernel %u, operands from %u or label are not there", l->kernel,
                        l->first_operand);
    return FTX_OK;
}

static FtxStatus check_operand(const ArtifactPlan *p, const FtxOperand *o, FtxError *err)
{
    if (o->space >= FTX_SPACE_COUNT || o->offset > p->head->space_bytes[o->space])
        return ftx_fail(err, FTX_EFORMAT, "byte %" PRIu64 " of space %u is not there", o->offset, o->space);
    if (o->tile_rows == 0)
        return FTX_OK;
    if (o->tile_rows > 256 || o->rows == 0 || o->columns == 0 || o->columns > 1 << 20 || o->columns % 8 ||
        o->offset % 16 || (o->type != DT_FP16 && o->type != DT_BF16) ||
        !inside(o->offset, 2 * (uint64_t)o->rows * o->columns, p->head->space_bytes[o->space]))
        return ftx_fail(err, FTX_EFORMAT, "a matrix of %u x %u at %" PRIu64 " of space %u in tiles of %u rows", o->rows,
                        o->columns, o->offset, o->space, o->tile_rows);
    return FTX_OK;
}

static FtxStatus check_program(const ArtifactPlan *p, const FtxProgram *g, FtxError *err)
{
    if (g->kind < FTX_PROG_STEP || g->kind > FTX_PROG_HIDDEN)
        return ftx_fail(err, FTX_EFORMAT, "its kind is %u", g->kind);
    if (!inside(g->first_launch, g->n_launches, p->n_launches))
        return ftx_fail(err, FTX_EFORMAT, "its launches %u..+%u are not there", g->first_launch, g->n_launches);
    if (g > p->programs && g->first_launch < g[-1].first_launch + g[-1].n_launches)
        return ftx_fail(err, FTX_EFORMAT, "its launches begin among those of the program before");
    if (g->most > g->bucket)
        return ftx_fail(err, FTX_EFORMAT, "it takes %u tokens, and its bucket is %u", g->most, g->bucket);
    if (g->bucket > INT32_MAX || g->work_bytes > p->head->space_bytes[FTX_SPACE_WORK])
        return ftx_fail(err, FTX_EFORMAT, "its bucket %u or its %" PRIu64 " bytes are too large", g->bucket,
                        g->work_bytes);
    return FTX_OK;
}

static FtxStatus check_buffer(const Artifact *a, const ArtifactPlan *p, const FtxBuffer *b, FtxError *err)
{
    if (!artifact_has_string(a, b->name) || b->space >= FTX_SPACE_COUNT ||
        !inside(b->offset, b->bytes, p->head->space_bytes[b->space]))
        return ftx_fail(err, FTX_EFORMAT, "%" PRIu64 " bytes at %" PRIu64 " of space %u are not there", b->bytes,
                        b->offset, b->space);
    if (b->space == FTX_SPACE_WORK &&
        (b->program >= p->n_programs || b->first > b->last || b->last >= p->programs[b->program].n_launches))
        return ftx_fail(err, FTX_EFORMAT, "launches %u to %u of program %u are not there", b->first, b->last,
                        b->program);
    return FTX_OK;
}

/* An array of a plan. An empty one has an address, too, because ranges of no elements may refer to it. */
static const void *plan_array(const Artifact *a, uint32_t kind, const FtxSection *plan, uint32_t *n)
{
    static const int64_t none;
    const void *p = array(a, kind, plan, n);

    return p ? p : &none;
}

static FtxStatus check_plan(Artifact *a, const FtxSection *section, ArtifactPlan *p, FtxError *err)
{
    const FtxSection *code = find(a, FTX_SEC_CUBIN, section);
    FtxStatus s;
    uint32_t n;

    p->head = array(a, FTX_SEC_PLAN, section, &n);
    if (n != 1)
        return ftx_fail(err, FTX_EFORMAT, "it has %u plans", n);
    p->kernels = plan_array(a, FTX_SEC_KERNELS, section, &p->n_kernels);
    p->consts = plan_array(a, FTX_SEC_CONSTS, section, &p->n_consts);
    p->programs = plan_array(a, FTX_SEC_PROGRAMS, section, &p->n_programs);
    p->launches = plan_array(a, FTX_SEC_LAUNCHES, section, &p->n_launches);
    p->operands = plan_array(a, FTX_SEC_OPERANDS, section, &p->n_operands);
    p->exprs = plan_array(a, FTX_SEC_EXPRS, section, &p->n_exprs);
    p->buffers = plan_array(a, FTX_SEC_BUFFERS, section, &p->n_buffers);
    p->caches = plan_array(a, FTX_SEC_CACHES, section, &p->n_caches);
    p->cubin = code ? bytes_of(a, code) : NULL;
    p->cubin_bytes = code ? (size_t)code->bytes : 0;
    p->source = array(a, FTX_SEC_SOURCE, section, &n);
    if (p->n_programs == 0)
        return ftx_fail(err, FTX_EFORMAT, "it has no programs");
    if ((s = check_head(a, p, section->target, err)))
        return s;
    for (uint32_t i = 0; i < p->n_kernels; i++)
        if ((s = check_kernel(a, p, &p->kernels[i], err)))
            return ftx_context(err, s, "kernel %u", i);
    for (uint32_t i = 0; i < p->n_operands; i++)
        if ((s = check_operand(p, &p->operands[i], err)))
            return ftx_context(err, s, "operand %u", i);
    for (uint32_t i = 0; i < p->n_launches; i++)
        if ((s = check_launch(a, p, &p->launches[i], err)))
            return ftx_context(err, s, "launch %u", i);
    for (uint32_t i = 0; i < p->n_programs; i++)
        if ((s = check_program(p, &p->programs[i], err)))
            return ftx_context(err, s, "program %u", i);
    for (uint32_t i = 0; i < p->n_buffers; i++)
        if ((s = check_buffer(a, p, &p->buffers[i], err)))
            return ftx_context(err, s, "buffer %u", i);
    return FTX_OK;
}

/* --- the door -------------------------------------------------------------------------------- */

static FtxStatus check_all(Artifact *a, const char *path, FtxError *err)
{
    FtxStatus s = check_header(a, path, err);
    uint32_t n;

    if (s)
        return s;
    a->header = a->map.at;
    a->sections = (const FtxSection *)((const char *)a->map.at + a->header->sections_at);
    for (uint32_t i = 0; i < a->header->sections; i++)
        if ((s = check_section(a, i, err)))
            return s;

    a->facts = array(a, FTX_SEC_FACTS, NULL, &n);
    if (n != 1)
        return ftx_fail(err, FTX_EFORMAT, "it has no facts, or several");
    a->strings = array(a, FTX_SEC_STRINGS, NULL, &n);
    a->strings_bytes = n;
    a->spec = array(a, FTX_SEC_SPEC, NULL, &n);
    a->build = array(a, FTX_SEC_BUILD, NULL, &n);
    if (!a->strings || !a->spec || !a->build)
        return ftx_fail(err, FTX_EFORMAT, "its strings, spec or build facts are missing");
    a->weights = array(a, FTX_SEC_WEIGHT_INDEX, NULL, &a->n_weights);
    a->tokenizer = array(a, FTX_SEC_TOKENIZER, NULL, &n);
    a->tokenizer_bytes = n;
    a->chat = array(a, FTX_SEC_CHAT, NULL, &n);
    a->chat_bytes = n;
    a->bad_words = array(a, FTX_SEC_BAD_WORDS, NULL, &a->n_bad_words);
    if ((s = facts_check(a, err)) || (s = weights_check(a, path, err)))
        return s;

    for (uint32_t i = 0; i < a->header->sections; i++)
        if (a->sections[i].kind == FTX_SEC_PLAN) {
            if (a->n_plans == ARTIFACT_MAX_PLANS)
                return ftx_fail(err, FTX_EFORMAT, "it has more than %d plans", ARTIFACT_MAX_PLANS);
            if ((s = check_plan(a, &a->sections[i], &a->plans[a->n_plans++], err)))
                return ftx_context(err, s, "target %u", a->sections[i].target);
        }
    if (a->n_plans == 0)
        return ftx_fail(err, FTX_EFORMAT, "it has no plan for any target");
    return FTX_OK;
}

FtxStatus artifact_open(const char *path, Artifact *a, FtxError *err)
{
    FtxStatus s;

    *a = (Artifact){0};
    s = file_map(path, &a->file, err);
    if (s)
        return s;
    s = trailer_find(a->file, &a->map, err);
    if (!s)
        s = check_all(a, path, err);
    if (s) {
        artifact_close(a);
        return ftx_context(err, s, "%s", path);
    }
    return FTX_OK;
}

FtxStatus artifact_open_bytes(const void *p, size_t bytes, Artifact *a, FtxError *err)
{
    FtxStatus s;

    *a = (Artifact){.map = {p, bytes}};
    s = check_all(a, NULL, err);
    if (s)
        artifact_close(a);
    return s;
}

void artifact_close(Artifact *a)
{
    file_unmap(&a->file);
    file_unmap(&a->sidecar);
    *a = (Artifact){0};
}

/* Several ranks: the hash of the checksum so far and that of the next block. */
static uint64_t sidecar_checksum(const Artifact *a)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < a->facts->ranks; r++) {
        const uint64_t block = hash64(artifact_rank(a, r).weight_data, (size_t)a->facts->weight_bytes);

        sum = r ? hash64((uint64_t[]){sum, block}, 16) : block;
    }
    return sum;
}

FtxStatus artifact_verify(const Artifact *a, FtxError *err)
{
    for (uint32_t i = 0; i < a->header->sections; i++) {
        const FtxSection *s = &a->sections[i];

        if (hash64(bytes_of(a, s), (size_t)s->bytes) != s->checksum)
            return ftx_fail(err, FTX_EFORMAT, "section %u (%s) is damaged (checksum)", i,
                            artifact_section_name(s->kind));
    }
    if (a->sidecar.at && sidecar_checksum(a) != a->facts->sidecar_checksum)
        return ftx_fail(err, FTX_EFORMAT, "%s is damaged, or of another build (checksum)",
                        artifact_string(a, a->facts->sidecar));
    return FTX_OK;
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

const void *artifact_weight(const Artifact *a, uint32_t i)
{
    uint64_t at = 0;

    if (a->weight_data)
        return (const char *)a->weight_data + a->weights[i].offset;
    if (!a->tables || a->weights[i].kind != FTX_WEIGHT_TABLE)
        return NULL;
    for (uint32_t k = 0; k < i; k++)
        if (a->weights[k].kind == FTX_WEIGHT_TABLE)
            at = round_up(at, WEIGHT_ALIGN) + a->weights[k].bytes;
    return (const char *)a->tables + round_up(at, WEIGHT_ALIGN);
}

/* How near a plan is to a device: the larger, the nearer; 0: it does not run there. */
static uint64_t nearness(const Artifact *a, const ArtifactPlan *p, uint32_t target, const char *device)
{
    const char *of = artifact_string(a, p->head->device);
    const uint64_t has = p->head->target, name = strcmp(of, device) == 0 ? 2 : !*of;
    uint64_t kind = 3;

    if (has != target) {
        if (has == FTX_TARGET_CPU || target == FTX_TARGET_CPU || has / 10 > target / 10)
            return 0;
        kind = has % 10 == 2 ? 1 : has % 10 == 0 && has / 100 == target / 100 ? 2 : 0;
    }
    return kind ? kind << 40 | has << 8 | name : 0;
}

const ArtifactPlan *artifact_plan(const Artifact *a, uint32_t target, const char *device)
{
    const ArtifactPlan *nearest = NULL;
    uint64_t best = 0;

    for (uint32_t i = 0; i < a->n_plans; i++) {
        const uint64_t near = nearness(a, &a->plans[i], target, device);

        if (near > best) {
            nearest = &a->plans[i];
            best = near;
        }
    }
    return nearest;
}
