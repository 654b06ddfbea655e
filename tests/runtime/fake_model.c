/* fake_model.c - the model that the device for tests computes, and an artifact of it: fake.h says what they are. */
#include <string.h>

#include "fake.h"
#include "runtime/base/dtype.h"
#include "kernels/device/mask.h"

/* --- the model ------------------------------------------------------------------------------------ */

static uint32_t hash_ids(const int32_t *ids, int n)
{
    uint32_t h = 2166136261u;

    for (int i = 0; i < n; i++)
        h = (h ^ ((uint32_t)ids[i] + 77u * (uint32_t)i)) * 16777619u;
    return h ^ h >> 15;
}

int32_t fake_next(const int32_t *ids, int n, uint64_t seed, uint32_t vocab, const int32_t *ends, int n_ends,
                  int min_length)
{
    uint32_t token = (hash_ids(ids, n) ^ (uint32_t)seed ^ (uint32_t)(seed >> 32) * 31u) % vocab;

    for (int i = 0; i < n_ends && n < min_length; i++)
        if ((int32_t)token == ends[i]) {
            token = (token + 1) % vocab;
            i = -1;
        }
    return (int32_t)token;
}

uint64_t fake_seed(uint64_t seed, int sample)
{
    return seed + (uint64_t)sample * 1000003u;
}

uint64_t fake_words(uint64_t seed, const int32_t *words, int n)
{
    return n ? seed + (uint64_t)hash_ids(words, n) * 7919u : seed;
}

float fake_logit(const int32_t *ids, int n, uint32_t token)
{
    return (float)((hash_ids(ids, n) + token * 2654435761u) >> 12 & 0xffff) * 0x1p-12f;
}

float fake_state(const int32_t *ids, int n, uint32_t column)
{
    return (float)((hash_ids(ids, n) + column * 40503u) >> 8 & 0xfff);
}

/* --- artifact ------------------------------------------------------------------------------------- */

FakeSizes fake_sizes(void)
{
    return (FakeSizes){.vocab = 61,
                       .context = 40,
                       .sequences = 4,
                       .tokens = 20,
                       .kv_block = 4,
                       .kv_pages = 30,
                       .logit_bias = 2,
                       .end_ids = 4,
                       .bad_words = 8,
                       .max_top_k = 10,
                       .n_ends = 1,
                       .ends = {7},
                       .decode_programs = true,
                       .tokenizer = true,
                       .target = 900};
}

static void fake_plan(FakeArtifact *f, const FakeSizes *s)
{
    const FtxFacts *a = &f->facts;
    const uint64_t S = a->sequences, T = a->tokens, C = a->context, B = a->kv_block, V = a->vocab;
    const uint64_t bytes[FTX_NAMED_COUNT] = {
        [FTX_NAMED_step] = 64,
        [FTX_NAMED_rows] = sizeof(FtxRow) * S,
        [FTX_NAMED_params] = sizeof(FtxParams) * S,
        [FTX_NAMED_ends] = 4 * S * a->end_ids,
        [FTX_NAMED_bias] = 8 * S * a->logit_bias,
        [FTX_NAMED_token] = 16 * T,
        [FTX_NAMED_pages] = 4 * S * ((C + B - 1) / B),
        [FTX_NAMED_history] = 4 * S * C,
        [FTX_NAMED_bad_words] = 4 * S * a->bad_words,
        [FTX_NAMED_k] = 4 * B,
        [FTX_NAMED_v] = 0,
        [FTX_NAMED_logits] = 4 * S * V,
        [FTX_NAMED_hidden] = 4 * T * a->states,
        [FTX_NAMED_out] = sizeof(FtxOut) * FTX_OUT_RING * S,
        [FTX_NAMED_mask] = s->masks ? 4 * S * FTX_MASK_WORDS(V) : 0,
        [FTX_NAMED_recurrent] = s->snapshots ? 16 * S : 0,
        [FTX_NAMED_snapshots] = 16 * s->snapshots,
    };
    static const uint32_t space[FTX_NAMED_COUNT] = {
#define NAMED(name, where, size, what) FTX_SPACE_##where,
#include "runtime/artifact/named.def"
#undef NAMED
    };

    for (int i = 0; i < FTX_NAMED_COUNT; i++) {
        uint64_t *at = &f->plan.space_bytes[space[i]];

        f->plan.named[i] = *at;
        f->plan.named_bytes[i] = bytes[i];
        *at += (bytes[i] + 63) / 64 * 64;
    }
}

void fake_artifact(FakeArtifact *f, const FakeSizes *s)
{
    static const FtxCache state = {.kv_heads = 1, .k_dim = 1, .v_dim = 4, .type = DT_FP32, .recurrent = 1};
    Artifact *a = &f->artifact;
    ArtifactPlan *p = &a->plans[0];

    memset(f, 0, sizeof *f);
    f->facts = (FtxFacts){.vocab = s->vocab,
                          .context = s->context,
                          .sequences = s->sequences,
                          .tokens = s->tokens,
                          .kv_block = s->kv_block,
                          .kv_pages = s->kv_pages,
                          .logit_bias = s->logit_bias,
                          .end_ids = s->end_ids,
                          .bad_words = s->bad_words + s->n_words,
                          .n_ends = s->n_ends,
                          .fixed_sums = s->fixed_sums,
                          .whole_prompts = s->whole_prompts,
                          .states = s->states,
                          .bos = -1,
                          .start = -1,
                          .pad = -1,
                          .decode = {
#define DECODE(name, type, low, high, missing, ...) .name = missing,
#include "runtime/decode.def"
#undef DECODE
                              .max_top_k = (int32_t)s->max_top_k, .forced_bos = -1, .forced_eos = -1}};
    f->facts.decode.temperature = 0.0f;
    memcpy(f->facts.ends, s->ends, sizeof s->ends);
    f->plan.target = s->target;
    fake_plan(f, s);
    p->caches = &state;
    p->n_caches = s->snapshots > 0;
    f->program[0] = (FtxProgram){.kind = FTX_PROG_STEP, .bucket = 0};
    f->program[1] = (FtxProgram){.kind = FTX_PROG_STEP, .bucket = 16};
    p->n_programs = 2;
    for (uint32_t bucket = 1; s->decode_programs && bucket < 2 * s->sequences; bucket *= 2)
        f->program[p->n_programs++] = (FtxProgram){.kind = FTX_PROG_DECODE, .bucket = bucket};
    p->head = &f->plan;
    p->programs = f->program;
    a->facts = &f->facts;
    a->strings = "\0cpu\0sm_90";
    f->plan.name = s->target ? 5 : 1;
    a->n_plans = 1;
    a->bad_words = s->words;
    a->n_bad_words = s->n_words;
    a->tokenizer = s->tokenizer ? "tables" : NULL;
}

FtxStatus fake_model(FakeArtifact *f, const FtxOptions *o, FtxModel **model, FtxError *err)
{
    Artifact copy = f->artifact;

    return model_on(fake.asynchronous ? &device_cuda : &fake_device, &copy, 0, "", o, model, err);
}
