/* small.h - a small artifact made by hand: three plans, five weights, no model. And a walk that
 * touches whatever a reader may touch in an artifact that was accepted. */
#ifndef TESTS_ARTIFACT_SMALL_H
#define TESTS_ARTIFACT_SMALL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/artifact/artifact.h"
#include "kernels/device/io.h"
#include "runtime/artifact/artifact.h"
#include "runtime/base/expr.h"
#include "runtime/base/hash.h"
#include "tests/temp.h"

typedef struct Small {
    Arena *keep;
    Spec spec;
    Packing packing;
    Plan plans[3]; /* cpu, sm_90a, compute_80 */
    Code codes[3];
    Instance instances[3];
    Const consts[2];
    ArtifactParts parts;
    Checkpoint *checkpoint;
} Small;

static const uint32_t small_targets[] = {FTX_TARGET_CPU, 901, 802};

static inline bool small_variable(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    (void)user;
    *kind = EXPR_VARIABLE;
    *value = name[0] == 'T' ? VAR_T : name[0] == 'S' && !name[1] ? VAR_S : VAR_SMS;
    return true;
}

static inline Expr small_expr(const char *text)
{
    Expr e;
    FtxError err;

    if (expr_parse(text, small_variable, NULL, &e, &err))
        fail_msg("%s", err.text);
    return e;
}

static inline void small_named(FtxPlan *p, const Spec *s, int i, FtxSpace space, uint64_t bytes)
{
    (void)s;
    p->named[i] = p->space_bytes[space];
    p->named_bytes[i] = bytes;
    p->space_bytes[space] += (bytes + 255) / 256 * 256;
}

static inline uint32_t small_string(Small *s, Plan *p, const char *text)
{
    *arena_push(s->keep, p->strings) = text;
    return (uint32_t)p->strings.n - 1;
}

static inline void small_plan(Small *s, int which)
{
    const Limits *l = &s->spec.graph->limits;
    const uint64_t S = (uint64_t)l->sequences, C = (uint64_t)l->context;
    const uint64_t cache = (uint64_t)l->kv_block * s->spec.kv_heads * s->spec.head_dim * 4;
    Plan *p = &s->plans[which];
    Instance *k = &s->instances[which];

    p->target = (Target){.id = small_targets[which], .name = which == 2 ? "compute_80" : which ? "sm_90a" : "cpu"};
    p->head.target = p->target.id;
    p->head.weight_type = DT_BF16;
    p->head.compute_type = DT_FP32;
    p->head.space_bytes[FTX_SPACE_WEIGHTS] = s->packing.bytes;
    p->head.space_bytes[FTX_SPACE_WORK] = 4096;
    p->head.lower_bound = 4096;
    small_named(&p->head, &s->spec, FTX_NAMED_step, FTX_SPACE_IO, 64);
    small_named(&p->head, &s->spec, FTX_NAMED_rows, FTX_SPACE_IO, sizeof(FtxRow) * S);
    small_named(&p->head, &s->spec, FTX_NAMED_params, FTX_SPACE_IO, sizeof(FtxParams) * S);
    small_named(&p->head, &s->spec, FTX_NAMED_ends, FTX_SPACE_IO, 4 * S * (uint64_t)l->end_ids);
    small_named(&p->head, &s->spec, FTX_NAMED_token, FTX_SPACE_IO, 16 * (uint64_t)l->tokens);
    small_named(&p->head, &s->spec, FTX_NAMED_bias, FTX_SPACE_IO, 8 * S * (uint64_t)l->logit_bias);
    small_named(&p->head, &s->spec, FTX_NAMED_pages, FTX_SPACE_STATE, 4 * S * (C / (uint64_t)l->kv_block));
    small_named(&p->head, &s->spec, FTX_NAMED_bad_words, FTX_SPACE_STATE, 4 * S * (uint64_t)l->bad_words);
    small_named(&p->head, &s->spec, FTX_NAMED_history, FTX_SPACE_STATE, 4 * S * C);
    small_named(&p->head, &s->spec, FTX_NAMED_k, FTX_SPACE_PAGES, cache);
    small_named(&p->head, &s->spec, FTX_NAMED_v, FTX_SPACE_PAGES, cache);
    *arena_push(s->keep, p->caches) = (FtxCache){.kv_heads = s->spec.kv_heads,
                                                 .k_dim = s->spec.head_dim,
                                                 .v_dim = s->spec.head_dim,
                                                 .type = DT_FP32,
                                                 .window = 6};
    small_named(&p->head, &s->spec, FTX_NAMED_logits, FTX_SPACE_STATE, 4 * S * s->spec.vocab);
    small_named(&p->head, &s->spec, FTX_NAMED_segments, FTX_SPACE_STATE,
                sizeof(FtxSegments) + S * FTX_SEGMENTS(s->spec.vocab) * sizeof(FtxSegment));
    small_named(&p->head, &s->spec, FTX_NAMED_out, FTX_SPACE_OUT, 16 * FTX_OUT_RING * S);

    *k = (Instance){.family = "linear",
                    .entry = "linear__small",
                    .consts = s->consts,
                    .n_consts = LEN(s->consts),
                    .n_operands = 3,
                    .device = which ? KD_CUDA : KD_CPU,
                    .block = 128,
                    .smem = 1024,
                    .overlap = true,
                    .matmul = true,
                    .grid = {small_expr("T /^ 8"), small_expr("1"), small_expr("min(S, SMS)")},
                    .moves = small_expr("T * 64 + 512")};
    *arena_push(s->keep, p->instances) = k;
    small_string(s, p, "");
    p->head.name = small_string(s, p, p->target.name);
    for (uint32_t bucket = 0; bucket <= 1; bucket++) {
        *arena_push(s->keep, p->programs) = (FtxProgram){.kind = bucket ? FTX_PROG_DECODE : FTX_PROG_STEP,
                                                         .bucket = bucket,
                                                         .first_launch = bucket * 2,
                                                         .n_launches = 2,
                                                         .work_bytes = 4096};
        for (uint32_t i = 0; i < 2; i++) {
            *arena_push(s->keep, p->launches) =
                (FtxLaunch){.first_operand = (uint32_t)p->operands.n,
                            .label = small_string(s, p, i ? "layer 0: down" : "layer 0: up")};
            *arena_push(s->keep, p->operands) = (FtxOperand){.space = FTX_SPACE_WEIGHTS, .offset = 256};
            *arena_push(s->keep, p->operands) = (FtxOperand){.space = FTX_SPACE_NULL};
            *arena_push(s->keep, p->operands) = (FtxOperand){.space = FTX_SPACE_WORK, .offset = i * 2048};
        }
        for (uint32_t i = 0; i < 2; i++)
            *arena_push(s->keep, p->buffers) = (FtxBuffer){.name = small_string(s, p, i ? "h" : "x"),
                                                           .space = FTX_SPACE_WORK,
                                                           .program = bucket,
                                                           .first = 0,
                                                           .last = i,
                                                           .offset = i * 2048,
                                                           .bytes = 2048};
    }
    if (which) {
        CodeImage *image = arena_new(s->keep, CodeImage);

        *image = (CodeImage){64, 40};
        s->codes[which] = (Code){.cubin = arena_alloc(s->keep, 128),
                                 .cubin_bytes = 128,
                                 .images = image,
                                 .source = "__global__ void linear__small(Args a) {}\n"};
    }
}

static inline void small_weight(Small *s, Op op, const char *name, int64_t rows, int64_t columns, DType type,
                                FtxWeightKind kind)
{
    const Id none[IR_MAX_ARGS] = {0};
    Shape shape = ir_shape(columns ? 2 : 1, ir_const(rows), ir_const(columns), ir_const(0));
    PackedWeight *w = arena_push(s->keep, s->packing.weights);

    if (op == OP_ROPE_TABLE)
        shape = ir_shape(3, ir_const(rows), ir_const(columns / 2), ir_const(2));
    w->value = ir_value_add(s->spec.graph, op, none, shape, DT_FP32, (Loc){0});
    if (op == OP_WEIGHT) {
        ir_attr_word(s->spec.graph, w->value, "name", name);
    } else {
        ir_attr_int(s->spec.graph, w->value, "rot", columns);
        ir_attr_float(s->spec.graph, w->value, "theta", 10000);
        ir_attr_int(s->spec.graph, w->value, "positions", rows);
    }
    w->type = type;
    w->kind = kind;
    w->offset = (s->packing.bytes + 255) / 256 * 256;
    w->bytes = (uint64_t)(rows * (columns ? columns : 1)) * dtype_size(type);
    s->packing.bytes = w->offset + w->bytes;
}

static inline void small_checkpoint(Small *s)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
                                 "\"g\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[128,160]}}";
    const uint64_t n = sizeof header - 1;
    const char *path = temp_path("small.safetensors");
    float data[40];
    FILE *f = fopen(path, "wb");
    Diag d = {0};

    assert_non_null(f);
    for (int i = 0; i < 40; i++)
        data[i] = (float)i / 8;
    fwrite(&n, 8, 1, f);
    fwrite(header, 1, n, f);
    fwrite(data, 1, sizeof data, f);
    fclose(f);
    if (!checkpoint_open(path, s->keep, &s->checkpoint, &d))
        fail_msg("%s", d.text);
}

static const int32_t small_words[] = {3, ~4, ~15};

static inline void small_begin(Small *s)
{
    *s = (Small){.keep = arena_open()};
    s->spec.name = "small";
    s->spec.text = "return ftx.model {}\n";
    s->spec.graph = ir_graph_new("small");
    s->spec.graph->limits = (Limits){.sequences = 2,
                                     .context = 8,
                                     .tokens = 4,
                                     .kv_block = 4,
                                     .kv_pages = 4,
                                     .logit_bias = 3,
                                     .end_ids = 4,
                                     .bad_words = 5};
    s->spec.vocab = 16;
    s->spec.hidden = 16;
    s->spec.layers = s->spec.kv_heads = 1;
    s->spec.heads = 2;
    s->spec.head_dim = 8;
    s->spec.n_ends = 1;
    s->spec.ends[0] = 2;
    s->spec.bad_words = small_words;
    s->spec.n_bad_words = LEN(small_words);
    s->spec.bos = s->spec.start = s->spec.pad = -1;
    s->spec.decode = (FtxDecode){.temperature = 1,
                                 .top_p = 1,
                                 .repetition_penalty = 1,
                                 .max_top_k = 50,
                                 .length_penalty = 1,
                                 .forced_bos = -1,
                                 .forced_eos = -1};
    s->consts[0] = (Const){.name = "N", .kind = CONST_INT, .i = 42};
    s->consts[1] = (Const){.name = "EPS", .kind = CONST_FLOAT, .f = 1e-5};
    small_checkpoint(s);
    small_weight(s, OP_WEIGHT, "a", 4, 8, DT_BF16, FTX_WEIGHT_MATRIX);
    small_weight(s, OP_ROPE_TABLE, NULL, 3, 4, DT_FP32, FTX_WEIGHT_TABLE);
    small_weight(s, OP_WEIGHT, "g", 8, 0, DT_FP32, FTX_WEIGHT_GAIN);
    small_weight(s, OP_ROPE_TABLE, NULL, 5, 4, DT_FP32, FTX_WEIGHT_TABLE);
    for (int i = 0; i < 3; i++)
        small_plan(s, i);
    s->parts = (ArtifactParts){.spec = &s->spec,
                               .packing = &s->packing,
                               .plans = s->plans,
                               .codes = s->codes,
                               .n_plans = 3,
                               .checkpoint = s->checkpoint,
                               .tokenizer = "tokens",
                               .tokenizer_bytes = 6,
                               .build = "ftxc test\n"};
}

static inline void small_end(Small *s)
{
    checkpoint_close(s->checkpoint);
    ir_graph_close(s->spec.graph);
    arena_close(s->keep);
}

/* Makes all checksums right again, so that the checks behind them are what is tested. */
static inline void small_seal(unsigned char *p, size_t n)
{
    FtxHeader *h = (FtxHeader *)p;
    FtxSection *s;

    if (h->sections_at > n || h->sections > (n - h->sections_at) / sizeof *s || h->sections_at % 8)
        return;
    s = (FtxSection *)(p + h->sections_at);
    for (uint32_t i = 0; i < h->sections; i++)
        if (s[i].offset <= n && s[i].bytes <= n - s[i].offset)
            s[i].checksum = hash64(p + s[i].offset, s[i].bytes);
    h->sections_checksum = hash64(s, h->sections * sizeof *s);
}

/* Touches every byte that an accepted artifact offers; the sum keeps the reads alive. */
static inline uint64_t small_walk(const Artifact *a)
{
    uint64_t sum = strlen(artifact_string(a, a->facts->name)) + strlen(a->spec) + strlen(a->build) +
                   hash64(a->tokenizer, a->tokenizer_bytes);

    for (uint32_t i = 0; i < a->n_weights; i++) {
        const void *p = artifact_weight(a, i);

        sum += strlen(artifact_string(a, a->weights[i].name)) + (p ? hash64(p, a->weights[i].bytes) : 0);
    }
    for (uint32_t i = 0; i < a->n_plans; i++) {
        const ArtifactPlan *p = &a->plans[i];
        const int64_t variables[VAR_COUNT] = {4, 2, 132};

        for (uint32_t k = 0; k < p->n_kernels; k++) {
            const FtxKernel *f = &p->kernels[k];
            int64_t value = 0;

            sum += strlen(artifact_string(a, f->family)) + strlen(artifact_string(a, f->entry));
            sum += hash64(p->consts + f->first_const, f->n_consts * sizeof *p->consts);
            for (int axis = 0; axis < 3; axis++)
                if (f->grid[axis][1])
                    expr_run(p->exprs + f->grid[axis][0], f->grid[axis][1], variables, VAR_COUNT, &value, NULL);
            if (f->kind == FTX_KERNEL_CUDA)
                sum += hash64((const char *)p->cubin + f->code_at, f->code_bytes);
            sum += (uint64_t)value;
        }
        for (uint32_t g = 0; g < p->n_programs; g++)
            for (uint32_t k = 0; k < p->programs[g].n_launches; k++) {
                const FtxLaunch *l = &p->launches[p->programs[g].first_launch + k];

                sum += strlen(artifact_string(a, l->label));
                for (uint32_t o = 0; o < p->kernels[l->kernel].n_operands; o++)
                    sum += p->operands[l->first_operand + o].offset;
            }
        for (uint32_t b = 0; b < p->n_buffers; b++)
            sum += strlen(artifact_string(a, p->buffers[b].name));
        sum += p->source ? strlen(p->source) : 0;
    }
    return sum;
}

#endif
