/* test_lies.c - artifacts that say what is not so, with every checksum right: each lie is refused with its reason,
 * and the value beside the border is accepted.
 *
 * A case changes fields of the small artifact (small.h) where the file stands in memory. */
#include <math.h>

#include "small.h"

enum { EDITS = 5 };

typedef struct Edit {
    size_t at, bytes; /* of the field in its element */
    uint64_t value;
} Edit;

typedef struct Lie {
    uint32_t section, target, element;
    const char *why; /* in the message; NULL: it is accepted */
    Edit edit[EDITS];
} Lie;

#define F(type, field, value) \
    { \
        offsetof(type, field), sizeof(((type *)0)->field), (uint64_t)(value) \
    }
#define FACT(why, ...) \
    { \
        FTX_SEC_FACTS, 0, 0, why, \
        { \
            __VA_ARGS__ \
        } \
    }
#define WEIGHT(i, why, ...) \
    { \
        FTX_SEC_WEIGHT_INDEX, 0, i, why, \
        { \
            __VA_ARGS__ \
        } \
    }
#define CACHE(why, ...) \
    { \
        FTX_SEC_CACHES, 901, 0, why, \
        { \
            __VA_ARGS__ \
        } \
    }
#define PLAN(why, ...) \
    { \
        FTX_SEC_PLAN, 901, 0, why, \
        { \
            __VA_ARGS__ \
        } \
    }
#define KERNEL(target, why, ...) \
    { \
        FTX_SEC_KERNELS, target, 0, why, \
        { \
            __VA_ARGS__ \
        } \
    }
#define OPERAND(i, why, ...) \
    { \
        FTX_SEC_OPERANDS, 901, i, why, \
        { \
            __VA_ARGS__ \
        } \
    }
#define LAUNCH(i, why, ...) \
    { \
        FTX_SEC_LAUNCHES, 901, i, why, \
        { \
            __VA_ARGS__ \
        } \
    }
#define PROGRAM(i, why, ...) \
    { \
        FTX_SEC_PROGRAMS, 901, i, why, \
        { \
            __VA_ARGS__ \
        } \
    }
#define BUFFER(i, why, ...) \
    { \
        FTX_SEC_BUFFERS, 901, i, why, \
        { \
            __VA_ARGS__ \
        } \
    }

static uint64_t bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* --- the cases ---------------------------------------------------------------------------------------- */

static const Lie lies[] = {
    FACT("its vocab is 0", F(FtxFacts, vocab, 0)),
    FACT("its vocab is 2147483648", F(FtxFacts, vocab, 0x80000000u)),
    FACT("its kv_pages is 0", F(FtxFacts, kv_pages, 0)),
    FACT("its bad_words is 4294967295", F(FtxFacts, bad_words, UINT32_MAX)),
    FACT("its bad words have 3 ids, at most 2", F(FtxFacts, bad_words, 2)),
    FACT("id 15 of its bad words is not below vocab 15", F(FtxFacts, vocab, 15)),
    FACT("it has 9 end ids, at most 8", F(FtxFacts, n_ends, 9)),
    FACT("its end id 16 is not below vocab 16", F(FtxFacts, ends[0], 16)),
    FACT("its end id -1 is not below", F(FtxFacts, ends[0], -1)),
    FACT(NULL, F(FtxFacts, ends[0], 15)),
    FACT(NULL, F(FtxFacts, ends[1], 16)), /* not among its ends */
    FACT("its first id 16 is not", F(FtxFacts, bos, 16)),
    FACT("its first id -2 is not", F(FtxFacts, bos, -2)),
    FACT(NULL, F(FtxFacts, bos, 15)),
    FACT("its start id 16 is not", F(FtxFacts, start, 16)),
    FACT("its padding id 16 is not", F(FtxFacts, pad, 16)),
    FACT("its forced first id 16 is not", F(FtxFacts, decode.forced_bos, 16)),
    FACT("its forced last id -2 is not", F(FtxFacts, decode.forced_eos, -2)),
    FACT("its kind 3,", F(FtxFacts, kind, 3)),
    FACT("source_context 4,", F(FtxFacts, source_context, 4)),
    FACT("pooled 4 and start", F(FtxFacts, pooled, 4)),
    FACT("its source_context is 0", F(FtxFacts, kind, FTX_MODEL_SEQ2SEQ)),
    FACT("start id -1 do not belong together", F(FtxFacts, kind, FTX_MODEL_SEQ2SEQ), F(FtxFacts, source_context, 4),
         F(FtxFacts, sources, 1), F(FtxFacts, source_vocab, 4)),
    FACT("its sources is 0", F(FtxFacts, kind, FTX_MODEL_SEQ2SEQ), F(FtxFacts, source_context, 4),
         F(FtxFacts, source_vocab, 4), F(FtxFacts, start, 1)),
    FACT("its source_vocab is 0", F(FtxFacts, kind, FTX_MODEL_SEQ2SEQ), F(FtxFacts, source_context, 4),
         F(FtxFacts, sources, 1), F(FtxFacts, start, 1)),
    FACT("its fixed_sums is 2", F(FtxFacts, fixed_sums, 2)),
    FACT(NULL, F(FtxFacts, fixed_sums, 1)),
    FACT("its input of 4,", F(FtxFacts, input, 4)),
    FACT("4 labels", F(FtxFacts, n_labels, 4)),
    FACT("scoring 3 do not belong", F(FtxFacts, scoring, 3)),
    FACT("labels and scoring 0 do not belong to a vector of 4", F(FtxFacts, kind, FTX_MODEL_ENCODER),
         F(FtxFacts, pooled, 4), F(FtxFacts, n_labels, 3)),
    FACT("3 labels and scoring 0 do not belong to a vector of 5", F(FtxFacts, kind, FTX_MODEL_ENCODER),
         F(FtxFacts, hidden, 5), F(FtxFacts, n_labels, 3)),
    FACT("its names are not inside the strings", F(FtxFacts, name, 1 << 20)),
    FACT("its names are not inside the strings", F(FtxFacts, labels, 1 << 20)),
    FACT("its weights would be 70368744177665 bytes", F(FtxFacts, weight_bytes, ((uint64_t)1 << 46) + 1)),
    FACT("bytes of weights and asks for 70368744177664", F(FtxFacts, weight_bytes, (uint64_t)1 << 46)),
    FACT("its 1 caches are not those of a model of kind 1", F(FtxFacts, kind, FTX_MODEL_ENCODER)),
    FACT("max_top_k is -1", F(FtxFacts, decode.max_top_k, -1)),
    FACT("must have one of a weights section", F(FtxFacts, sidecar, 1)),

    FACT("it is for 0 ranks, which must be 1 to 8", F(FtxFacts, ranks, 0)),
    FACT("it is for 9 ranks, which must be 1 to 8", F(FtxFacts, ranks, 9)),
    FACT("it has no weights of rank 1", F(FtxFacts, ranks, 2)),

    WEIGHT(0, "its name is not inside", F(FtxWeight, name, 1 << 20)),
    WEIGHT(0, "its type is 0", F(FtxWeight, type, 0)),
    WEIGHT(0, "its type is 4", F(FtxWeight, type, DT_I32)),
    WEIGHT(0, "are no quantised weight", F(FtxWeight, type, DT_INT8)),
    WEIGHT(0, "are no quantised weight", F(FtxWeight, type, DT_INT4), F(FtxWeight, rank, 2), F(FtxWeight, dim[1], 96),
           F(FtxWeight, group, 64)),
    WEIGHT(0, "are no quantised weight", F(FtxWeight, type, DT_INT4), F(FtxWeight, rank, 2), F(FtxWeight, dim[1], 96),
           F(FtxWeight, group, 32), F(FtxWeight, scales, 4)),
    WEIGHT(0, "are no quantised weight", F(FtxWeight, type, DT_FP8), F(FtxWeight, rank, 2), F(FtxWeight, dim[1], 96),
           F(FtxWeight, group, 32), F(FtxWeight, scales, 1)),
    WEIGHT(0, "864 bytes at 0 are not what its shape asks for", F(FtxWeight, type, DT_INT4), F(FtxWeight, rank, 2),
           F(FtxWeight, dim[1], 96), F(FtxWeight, group, 32), F(FtxWeight, bytes, 864)), /* a multiple of 64 */
    WEIGHT(0, "its rank is 0", F(FtxWeight, rank, 0)),
    WEIGHT(0, "its rank is 5", F(FtxWeight, rank, 5)),
    WEIGHT(0, "its kind 5", F(FtxWeight, kind, FTX_WEIGHT_CENTRED + 1)),
    WEIGHT(0, NULL, F(FtxWeight, kind, FTX_WEIGHT_CENTRED)),
    WEIGHT(0, "its rows of 7 elements are no pairs", F(FtxWeight, kind, FTX_WEIGHT_CENTRED), F(FtxWeight, dim[1], 7)),
    WEIGHT(0, "weight 0, whose numbers it takes", F(FtxWeight, like, 1)),
    WEIGHT(2, "weight 4294967294, whose numbers it takes", F(FtxWeight, like, UINT32_MAX)),
    WEIGHT(2, NULL, F(FtxWeight, like, 2)),
    WEIGHT(0, "more elements than there can be", F(FtxWeight, dim[0], (uint64_t)1 << 32),
           F(FtxWeight, dim[1], (uint64_t)1 << 31), F(FtxWeight, bytes, 0)), /* 2^64 bytes are 0 of 64 bits */
    WEIGHT(0, "are not what its shape asks for", F(FtxWeight, dim[0], (uint64_t)1 << 32),
           F(FtxWeight, dim[1], (uint64_t)1 << 30), F(FtxWeight, bytes, (uint64_t)1 << 63)),
    WEIGHT(0, "are not what its shape asks for", F(FtxWeight, bytes, 62)),
    WEIGHT(0, "are not what its shape asks for", F(FtxWeight, offset, 128)),
    WEIGHT(0, "are not what its shape asks for", F(FtxWeight, offset, 1024)),
    WEIGHT(0, "are not what its shape asks for", F(FtxWeight, offset, UINT64_MAX - 255)),
    WEIGHT(0, NULL, F(FtxWeight, offset, 768)),

    PLAN("its plan is for target 900", F(FtxPlan, target, 900)),
    PLAN("its names are not inside the strings", F(FtxPlan, name, UINT32_MAX)),
    PLAN("its names are not inside the strings", F(FtxPlan, device, UINT32_MAX)),
    PLAN("its types are 0,", F(FtxPlan, weight_type, 0)),
    PLAN("its types are", F(FtxPlan, compute_type, DT_I32)),
    PLAN("its space 4 has 70368744177665 bytes", F(FtxPlan, space_bytes[FTX_SPACE_WORK], ((uint64_t)1 << 46) + 1)),
    PLAN(NULL, F(FtxPlan, space_bytes[FTX_SPACE_WORK], (uint64_t)1 << 46)),
    PLAN("its space 0 has 1 bytes", F(FtxPlan, space_bytes[FTX_SPACE_NULL], 1)),
    PLAN("its space 7 has 1 bytes", F(FtxPlan, space_bytes[FTX_SPACE_COUNT], 1)),
    PLAN("bytes of weights, there are", F(FtxPlan, space_bytes[FTX_SPACE_WEIGHTS], 256)),
    PLAN("$rows has", F(FtxPlan, named_bytes[FTX_NAMED_rows], sizeof(FtxRow))),
    PLAN("$rows has", F(FtxPlan, named[FTX_NAMED_rows], UINT64_MAX - 7)),
    PLAN("$history has", F(FtxPlan, named_bytes[FTX_NAMED_history], 4 * 2 * 8 - 1)),
    PLAN("$rows is at 8, no multiple of 16", F(FtxPlan, named[FTX_NAMED_rows], 8)),
    PLAN("$step and $rows overlap", F(FtxPlan, named[FTX_NAMED_rows], 48)),
    PLAN("$step and $rows overlap", F(FtxPlan, named[FTX_NAMED_step], 256 + 16)),
    PLAN("$step and $rows overlap", F(FtxPlan, named_bytes[FTX_NAMED_step], 256 + 1)),
    PLAN(NULL, F(FtxPlan, named_bytes[FTX_NAMED_step], 256)),

    PLAN("$v has", F(FtxPlan, space_bytes[FTX_SPACE_PAGES], 383)),

    PLAN("its 1 ranks exchange 16 bytes", F(FtxPlan, exchange, 16)),

    CACHE("cache 0: 0 kv_heads", F(FtxCache, kv_heads, 0)),
    CACHE("kv_heads of 0 and 8", F(FtxCache, k_dim, 0)),
    CACHE("kv_heads of 8 and 0", F(FtxCache, v_dim, 0)),
    CACHE("type 0, window", F(FtxCache, type, 0)),
    CACHE("type 4, window", F(FtxCache, type, DT_I32)),
    CACHE("type 6, window", F(FtxCache, type, DT_INT4)),
    CACHE("$k has 128 bytes at 0, it needs 132", F(FtxCache, type, DT_INT8), F(FtxCache, k_dim, 31)),
    CACHE("$v has 128 bytes at 256, it needs 132", F(FtxCache, type, DT_FP8), F(FtxCache, v_dim, 31)),
    CACHE("window 2147483648", F(FtxCache, window, 0x80000000u)),
    CACHE(NULL, F(FtxCache, window, 0)),
    CACHE("source 4", F(FtxCache, source, 4)),
    CACHE("cache 0: a recurrent state (2)", F(FtxCache, recurrent, 2)),
    CACHE("a recurrent state (1) of type 1, source 0, window 3", F(FtxCache, recurrent, 1), F(FtxCache, window, 3)),
    CACHE("$recurrent has 0 bytes at 0, it needs 512", F(FtxCache, recurrent, 1),
          F(FtxCache, window, 0)), /* a decoder may have no keys */
    CACHE("$k has 128 bytes at 0, it needs 256", F(FtxCache, k_dim, 16)),
    CACHE("$v has 128 bytes at 256, it needs 256", F(FtxCache, v_dim, 16)),
    CACHE(NULL, F(FtxCache, inside, 1)),
    CACHE(NULL, F(FtxCache, inside, 1), F(FtxCache, v_dim, 1)),
    CACHE("values of 8 cannot be inside (2) its keys of 8", F(FtxCache, inside, 2)),
    CACHE("values of 9 cannot be inside (1) its keys of 8", F(FtxCache, inside, 1), F(FtxCache, v_dim, 9)),
    CACHE("are too large", F(FtxCache, kv_heads, UINT32_MAX), F(FtxCache, k_dim, UINT32_MAX)),
    CACHE("are too large", F(FtxCache, kv_heads, 1u << 31), F(FtxCache, k_dim, 1u << 29)), /* 2^64 bytes */

    KERNEL(901, "its kind 1 does not run", F(FtxKernel, kind, FTX_KERNEL_CPU)),
    KERNEL(0, "its kind 2 does not run", F(FtxKernel, kind, FTX_KERNEL_CUDA)),
    KERNEL(901, "its names are not inside", F(FtxKernel, family, 1 << 20)),
    KERNEL(901, "its names are not inside", F(FtxKernel, entry, 1 << 20)),
    KERNEL(901, "its constants 1..+2 are not there", F(FtxKernel, first_const, 1)),
    KERNEL(901, "its constants", F(FtxKernel, first_const, UINT32_MAX)),
    KERNEL(901, "it has 13 operands", F(FtxKernel, n_operands, 13)),
    KERNEL(901, "1025 threads", F(FtxKernel, block, 1025)),
    KERNEL(901, NULL, F(FtxKernel, block, 1024)),
    KERNEL(901, "its block has no threads", F(FtxKernel, block, 0)),
    KERNEL(901, "1048577 bytes of shared", F(FtxKernel, smem, (1 << 20) + 1)),
    KERNEL(901, NULL, F(FtxKernel, smem, 1 << 20)),
    KERNEL(901, "an expression is missing", F(FtxKernel, grid[1][1], 0)),
    KERNEL(0, NULL, F(FtxKernel, grid[1][1], 0)), /* the CPU has no grid */
    KERNEL(901, "are not there", F(FtxKernel, grid[0][0], UINT32_MAX)),
    KERNEL(901, "are not there", F(FtxKernel, moves[1], 1 << 20)),
    KERNEL(901, "its code is not inside", F(FtxKernel, code_bytes, 0)),
    KERNEL(901, "its code is not inside", F(FtxKernel, code_at, 32)),
    KERNEL(901, "its code is not inside", F(FtxKernel, code_bytes, 65)),
    KERNEL(901, NULL, F(FtxKernel, code_bytes, 64)),
    KERNEL(901, "a matmul has 2 constants", F(FtxKernel, kind, FTX_KERNEL_MATMUL)),

    OPERAND(0, "of space 7 is not there", F(FtxOperand, space, FTX_SPACE_COUNT)),
    OPERAND(2, "byte 4097 of space 4 is not there", F(FtxOperand, offset, 4097)),
    OPERAND(2, NULL, F(FtxOperand, offset, 4096)),
    OPERAND(2, "in tiles of 257 rows", F(FtxOperand, tile_rows, 257), F(FtxOperand, rows, 8), F(FtxOperand, columns, 8),
            F(FtxOperand, type, DT_BF16)),
    OPERAND(2, NULL, F(FtxOperand, tile_rows, 256), F(FtxOperand, rows, 8), F(FtxOperand, columns, 8),
            F(FtxOperand, type, DT_BF16)),
    OPERAND(2, "a matrix of 0 x 8", F(FtxOperand, tile_rows, 64), F(FtxOperand, rows, 0), F(FtxOperand, columns, 8),
            F(FtxOperand, type, DT_BF16)),
    OPERAND(2, "a matrix of 8 x 12", F(FtxOperand, tile_rows, 64), F(FtxOperand, rows, 8), F(FtxOperand, columns, 12),
            F(FtxOperand, type, DT_BF16)),
    OPERAND(2, "a matrix of 8 x 8", F(FtxOperand, tile_rows, 64), F(FtxOperand, rows, 8), F(FtxOperand, columns, 8),
            F(FtxOperand, type, DT_FP32)),
    OPERAND(2, "a matrix of 257 x 8", F(FtxOperand, tile_rows, 64), F(FtxOperand, rows, 257), F(FtxOperand, columns, 8),
            F(FtxOperand, type, DT_FP16)), /* 4,112 bytes, there are 4,096 */
    OPERAND(2, "a matrix of 8 x 8 at 8 ", F(FtxOperand, tile_rows, 64) /* offset 8 */,
            {offsetof(FtxOperand, rows), 8, (uint64_t)8 << 32 | 8}, F(FtxOperand, offset, 8),
            F(FtxOperand, type, DT_FP16)),
    OPERAND(2, "a matrix of 300 x 16", {offsetof(FtxOperand, space), 8, (uint64_t)8 << 32 | FTX_SPACE_PAGES},
            {offsetof(FtxOperand, rows), 8, (uint64_t)16 << 32 | 300},
            F(FtxOperand, type, DT_BF16)), /* more than a page */
    OPERAND(2, NULL, {offsetof(FtxOperand, space), 8, (uint64_t)8 << 32 | FTX_SPACE_PAGES},
            {offsetof(FtxOperand, rows), 8, (uint64_t)16 << 32 | 12}, F(FtxOperand, type, DT_BF16)),

    LAUNCH(0, "its kernel 1,", F(FtxLaunch, kernel, 1)),
    LAUNCH(0, "operands from 10 or label", F(FtxLaunch, first_operand, 10)),
    LAUNCH(0, NULL, F(FtxLaunch, first_operand, 9)),
    LAUNCH(0, "operands from 4294967295", F(FtxLaunch, first_operand, UINT32_MAX)),
    LAUNCH(0, "label are not there", F(FtxLaunch, label, 1 << 20)),

    PROGRAM(0, "its kind is 0", F(FtxProgram, kind, 0)),
    PROGRAM(0, "its kind is 5", F(FtxProgram, kind, FTX_PROG_HIDDEN + 1)),
    PROGRAM(1, "its launches 3..+2 are not there", F(FtxProgram, first_launch, 3)),
    PROGRAM(1, "its launches", F(FtxProgram, first_launch, UINT32_MAX)),
    PROGRAM(1, "its launches begin among those of the program before", F(FtxProgram, first_launch, 1)),
    PROGRAM(0, "its bucket 2147483648", F(FtxProgram, bucket, 0x80000000u)),
    PROGRAM(0, "it takes 1 tokens, and its bucket is 0", F(FtxProgram, most, 1)),
    PROGRAM(0, "or its 4097 bytes are too large", F(FtxProgram, work_bytes, 4097)),

    BUFFER(0, "of space 7 are not there", F(FtxBuffer, space, FTX_SPACE_COUNT)),
    BUFFER(0, "are not there", F(FtxBuffer, bytes, 4097)),
    BUFFER(0, "launches 0 to 2 of program 0 are not there", F(FtxBuffer, last, 2)),
    BUFFER(0, "launches 1 to 0", F(FtxBuffer, first, 1)),
    BUFFER(0, "of program 2 are not there", F(FtxBuffer, program, 2)),
    BUFFER(0, "are not there", F(FtxBuffer, name, 1 << 20)),
};

/* --- files in memory ---------------------------------------------------------------------------------- */

typedef struct File {
    Small small;
    unsigned char *at;
    size_t bytes;
} File;

static File file_of(bool with_weights)
{
    const char *path = temp_path("lies.ftx");
    FtxError err;
    FileMap map;
    Diag d = {0};
    File f;

    small_begin(&f.small);
    if (!with_weights)
        f.small.parts.checkpoint = NULL;
    if (!artifact_write(path, &f.small.parts, NULL, NULL, &d))
        fail_msg("%s", d.text);
    if (file_map(path, &map, &err))
        fail_msg("%s", err.text);
    f.bytes = map.bytes;
    f.at = aligned_alloc(64, (map.bytes + 63) / 64 * 64);
    assert_non_null(f.at);
    memcpy(f.at, map.at, map.bytes);
    file_unmap(&map);
    return f;
}

static FtxSection *section_of(const File *f, uint32_t kind, uint32_t target)
{
    const FtxHeader *h = (const FtxHeader *)f->at;
    FtxSection *s = (FtxSection *)(f->at + h->sections_at);

    for (uint32_t i = 0; i < h->sections; i++)
        if (s[i].kind == kind && s[i].target == target)
            return &s[i];
    fail_msg("no section %u of target %u", kind, target);
    return NULL;
}

static size_t element_bytes(uint32_t kind)
{
    switch (kind) {
    case FTX_SEC_FACTS: return sizeof(FtxFacts);
    case FTX_SEC_WEIGHT_INDEX: return sizeof(FtxWeight);
    case FTX_SEC_PLAN: return sizeof(FtxPlan);
    case FTX_SEC_KERNELS: return sizeof(FtxKernel);
    case FTX_SEC_OPERANDS: return sizeof(FtxOperand);
    case FTX_SEC_LAUNCHES: return sizeof(FtxLaunch);
    case FTX_SEC_PROGRAMS: return sizeof(FtxProgram);
    case FTX_SEC_BUFFERS: return sizeof(FtxBuffer);
    case FTX_SEC_CACHES: return sizeof(FtxCache);
    }
    fail_msg("section %u has no elements here", kind);
    return 0;
}

/* The file with a lie in it, sealed: accepted, or refused with the reason. */
static void tell(File *f, const Lie *lie, size_t number)
{
    unsigned char *before = malloc(f->bytes);
    const size_t at = section_of(f, lie->section, lie->target)->offset + lie->element * element_bytes(lie->section);
    Artifact a;
    FtxError err = {0};

    assert_non_null(before);
    memcpy(before, f->at, f->bytes);
    for (int i = 0; i < EDITS; i++)
        memcpy(f->at + at + lie->edit[i].at, &lie->edit[i].value, lie->edit[i].bytes);
    small_seal(f->at, f->bytes);

    const FtxStatus s = artifact_open_bytes(f->at, f->bytes, &a, &err);

    if (!lie->why != !s || (s && (s != FTX_EFORMAT || !strstr(err.text, lie->why))))
        fail_msg("case %zu: status %d, \"%s\"; expected %s%s", number, (int)s, err.text,
                 lie->why ? "one about " : "it to be accepted", lie->why ? lie->why : "");
    if (!s)
        small_walk(&a);
    artifact_close(&a);
    memcpy(f->at, before, f->bytes);
    free(before);
}

static void test_lies(void **state)
{
    File f = file_of(true);

    (void)state;
    for (size_t i = 0; i < LEN(lies); i++)
        tell(&f, &lies[i], i);
    free(f.at);
    small_end(&f.small);
}

/* All pages together have at most 2^62 bytes. */
static void test_pages(void **state)
{
    const Lie good = PLAN(NULL, F(FtxPlan, space_bytes[FTX_SPACE_PAGES], (uint64_t)1 << 46));
    Lie bad = good;
    File f = file_of(true);
    FtxFacts *facts = (FtxFacts *)(void *)(f.at + section_of(&f, FTX_SEC_FACTS, 0)->offset);

    (void)state;
    bad.why = "its 65537 KV pages of 70368744177664 bytes are more";
    facts->kv_pages = 65536;
    tell(&f, &good, 0);
    facts->kv_pages = 65537;
    tell(&f, &bad, 1);
    free(f.at);
    small_end(&f.small);
}

/* Decoding defaults are within a request's ranges; a NaN is in none. */
static void test_decode_ranges(void **state)
{
    static const struct {
        size_t at;
        float value;
        const char *why;
    } cases[] = {
        {offsetof(FtxFacts, decode.temperature), -0.01f, "temperature"},
        {offsetof(FtxFacts, decode.temperature), NAN, "temperature"},
        {offsetof(FtxFacts, decode.temperature), 0.25f, NULL},
        {offsetof(FtxFacts, decode.top_p), 1.01f, "top_p"},
        {offsetof(FtxFacts, decode.repetition_penalty), 0.0f, "repetition_penalty"},
        {offsetof(FtxFacts, decode.repetition_penalty), NAN, "repetition_penalty"},
        {offsetof(FtxFacts, decode.min_p), -0.5f, "min_p"},
    };
    File f = file_of(true);

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        const Lie lie = {FTX_SEC_FACTS, 0, 0, cases[i].why, {{cases[i].at, 4, bits_of(cases[i].value)}}};

        tell(&f, &lie, i);
    }
    free(f.at);
    small_end(&f.small);
}

/* Tables that overlap: together more bytes than there can be, each of them inside. */
static void test_large_tables(void **state)
{
    File f = file_of(false);
    FtxFacts *facts = (FtxFacts *)(f.at + section_of(&f, FTX_SEC_FACTS, 0)->offset);
    FtxWeight *w = (FtxWeight *)(f.at + section_of(&f, FTX_SEC_WEIGHT_INDEX, 0)->offset);
    FtxError err = {0};
    Artifact a;

    (void)state;
    facts->weight_bytes = (uint64_t)1 << 46;
    for (int i = 1; i < 4; i += 2) { /* the tables of small.h */
        w[i].rank = 2;
        w[i].dim[0] = (uint64_t)1 << 44;
        w[i].dim[1] = 1;
        w[i].offset = 0;
        w[i].bytes = (uint64_t)1 << 46;
    }
    small_seal(f.at, f.bytes);
    assert_int_equal(artifact_open_bytes(f.at, f.bytes, &a, &err), FTX_EFORMAT);
    assert_string_equal(err.text, "its tables have more bytes than there can be");
    free(f.at);
    small_end(&f.small);
}

/* The constants of a cuBLASLt call, each just outside of its range. */
static void test_matmul(void **state)
{
    static const int64_t algorithms[1 + 2 * FTX_MM_RECORD] = {130000};
    static const struct {
        int at;
        int64_t value;
        const char *message; /* NULL: accepted */
        size_t algorithms;   /* words */
    } cases[] = {
        {FTX_MM_N, 8, NULL, 0},
        {FTX_MM_N, 8, NULL, 1 + FTX_MM_RECORD},
        {FTX_MM_N, 8, NULL, 1 + 2 * FTX_MM_RECORD},
        {FTX_MM_N, 8, "a matmul has 18 constants, which are no whole algorithms", FTX_MM_RECORD},
        {FTX_MM_N, 8, "a matmul has 20 constants, which are no whole algorithms", 2 + FTX_MM_RECORD},
        {FTX_MM_N, 0, "constants of a matmul are out of range", 0},
        {FTX_MM_N, (int64_t)INT32_MAX + 1, "constants of a matmul are out of range", 0},
        {FTX_MM_K, 0, "constants of a matmul are out of range", 0},
        {FTX_MM_ROWS_S, 2, "constants of a matmul are out of range", 0},
        {FTX_MM_ROWS_S, -1, "constants of a matmul are out of range", 0},
        {FTX_MM_ACT, FTX_ACT_COUNT, "constants of a matmul are out of range", 0},
        {FTX_MM_TYPE_X, 0, "a matmul has the type 0", 0},
        {FTX_MM_TYPE_W, DT_I32, "a matmul has the type 4", 0},
        {FTX_MM_TYPE_Y, 0, "a matmul has the type 0", 0},
    };
    const char *path = temp_path("matmul.ftx");

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        Const consts[FTX_MM_CONSTS];
        FtxError err = {0};
        Artifact a;
        Diag d = {0};
        Small s;

        for (int k = 0; k < FTX_MM_CONSTS; k++)
            consts[k] =
                (Const){.name = "X", .kind = CONST_INT, .i = k == FTX_MM_ROWS_S || k == FTX_MM_ACT ? 0 : DT_BF16};
        consts[cases[i].at].i = cases[i].value;
        small_begin(&s);
        s.instances[1].device = KD_MATMUL;
        s.instances[1].consts = consts;
        s.instances[1].n_consts = FTX_MM_CONSTS;
        s.instances[1].algorithms = algorithms;
        s.instances[1].n_algorithms = cases[i].algorithms;
        if (!artifact_write(path, &s.parts, NULL, NULL, &d))
            fail_msg("%s", d.text);
        assert_int_equal(artifact_open(path, &a, &err), cases[i].message ? FTX_EFORMAT : FTX_OK);
        if (cases[i].message && !strstr(err.text, cases[i].message))
            fail_msg("case %zu: \"%s\", expected \"%s\"", i, err.text, cases[i].message);
        artifact_close(&a);
        small_end(&s);
    }
}

/* Sections: where they lie, what they are of, that none stands twice. */
static void test_sections(void **state)
{
    File f = file_of(true);
    const FtxSection *const facts = section_of(&f, FTX_SEC_FACTS, 0);
    const struct {
        uint32_t kind, target;
        const char *why;
        Edit edit;
    } cases[] = {
        {FTX_SEC_FACTS, 0, "of the unknown kind 0", F(FtxSection, kind, 0)},
        {FTX_SEC_FACTS, 0, "of the unknown kind 22", F(FtxSection, kind, FTX_SEC_CHAT + 1)},
        {FTX_SEC_FACTS, 0, "is for rank 1", F(FtxSection, rank, 1)},
        {FTX_SEC_FACTS, 0, "is not inside the file", F(FtxSection, offset, facts->offset + 8)},
        {FTX_SEC_FACTS, 0, "is not inside the file", F(FtxSection, offset, 0)},
        {FTX_SEC_FACTS, 0, "is not inside the file", F(FtxSection, offset, UINT64_MAX - 63)},
        {FTX_SEC_FACTS, 0, "bytes, its elements have", F(FtxSection, bytes, facts->bytes - 8)},
        {FTX_SEC_FACTS, 0, "belongs to target 900", F(FtxSection, target, 900)},
        {FTX_SEC_FACTS, 0, "is of plan 1", F(FtxSection, variant, 1)},
        {FTX_SEC_PROGRAMS, 901, "it has no programs", F(FtxSection, variant, 1)},
        {FTX_SEC_FACTS, 0, "no facts, or several", F(FtxSection, bytes, 0)},
        {FTX_SEC_STRINGS, 0, "is text without its end", F(FtxSection, bytes, 0)},
        {FTX_SEC_SPEC, 0, "are both the", F(FtxSection, kind, FTX_SEC_BUILD)},
        {FTX_SEC_PROGRAMS, 901, "it has no programs", F(FtxSection, bytes, 0)},
        {FTX_SEC_WEIGHTS, 0, "bytes of weights and asks for", F(FtxSection, bytes, 256)},
        {FTX_SEC_KERNELS, 901, "its kernel 0,", F(FtxSection, bytes, 0)},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        FtxSection *s = section_of(&f, cases[i].kind, cases[i].target);
        const FtxSection before = *s;
        Artifact a;
        FtxError err = {0};

        memcpy((char *)s + cases[i].edit.at, &cases[i].edit.value, cases[i].edit.bytes);
        small_seal(f.at, f.bytes);
        assert_int_equal(artifact_open_bytes(f.at, f.bytes, &a, &err), FTX_EFORMAT);
        if (!strstr(err.text, cases[i].why))
            fail_msg("case %zu: \"%s\"; expected one about %s", i, err.text, cases[i].why);
        *s = before;
    }
    free(f.at);
    small_end(&f.small);
}

/* Without stored weights the tables stand one after another, each at a multiple of 256: three, none a multiple. */
static void test_three_tables(void **state)
{
    const char *path = temp_path("three.ftx");
    Artifact a;
    FtxError err;
    Diag d = {0};
    Small s;

    (void)state;
    small_begin(&s);
    small_weight(&s, OP_ROPE_TABLE, NULL, 9, 4, DT_FP32, FTX_WEIGHT_TABLE);
    for (int i = 0; i < 3; i++)
        s.plans[i].head.space_bytes[FTX_SPACE_WEIGHTS] = s.packing.bytes;
    s.parts.checkpoint = NULL;
    if (!artifact_write(path, &s.parts, NULL, NULL, &d))
        fail_msg("%s", d.text);
    if (artifact_open(path, &a, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 1; i < a.n_weights; i++) { /* the last position's first pair: cos p, sin p */
        const double last = (double)a.weights[i].dim[0] - 1;

        if (a.weights[i].kind != FTX_WEIGHT_TABLE)
            continue;
        assert_int_equal((uintptr_t)artifact_weight(&a, i) % 256, (uintptr_t)a.tables % 256);
        assert_true(fabs(dtype_load(artifact_weight(&a, i), (size_t)last * 4, DT_FP32) - cos(last)) < 1e-6);
        assert_true(fabs(dtype_load(artifact_weight(&a, i), (size_t)last * 4 + 1, DT_FP32) - sin(last)) < 1e-6);
    }
    artifact_close(&a);
    small_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lies),         cmocka_unit_test(test_decode_ranges), cmocka_unit_test(test_sections),
        cmocka_unit_test(test_three_tables), cmocka_unit_test(test_large_tables),  cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_pages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
