/* facts.c - checks the facts of an artifact: sizes, ids, decoding defaults, bad words. */
#include "facts.h"

#include <inttypes.h>

#include "../../kernels/device/io.h"
#include "sizes.h"

/* Decoding defaults have the ranges of decode.def, as in a request. */
static FtxStatus check_decode(const FtxDecode *d, FtxError *err)
{
    const struct {
        const char *name;
        double value, low, high;
    } rows[] = {
#define DECODE(name, type, low, high, ...) {#name, (double)d->name, low, high},
#include "../decode.def"
#undef DECODE
        {"max_top_k", d->max_top_k, 0, INT32_MAX},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].value >= (double)(float)rows[i].low && rows[i].value <= rows[i].high)) /* NaN, too */
            return ftx_fail(err, FTX_EFORMAT, "its decoding default %s is %g, which is not from %g to %g", rows[i].name,
                            rows[i].value, rows[i].low, rows[i].high);
    return FTX_OK;
}

static FtxStatus check_bad_words(const Artifact *a, FtxError *err)
{
    const FtxFacts *f = a->facts;
    const uint32_t n = a->n_bad_words;

    if (n > f->bad_words)
        return ftx_fail(err, FTX_EFORMAT, "its bad words have %u ids, at most %u", n, f->bad_words);
    if (n && a->bad_words[n - 1] >= 0)
        return ftx_fail(err, FTX_EFORMAT, "its last bad word has no end");
    for (uint32_t i = 0; i < n; i++) {
        const int32_t id = a->bad_words[i] < 0 ? ~a->bad_words[i] : a->bad_words[i];

        if ((uint32_t)id >= f->vocab)
            return ftx_fail(err, FTX_EFORMAT, "id %d of its bad words is not below vocab %u", id, f->vocab);
    }
    return FTX_OK;
}

static FtxStatus check_numbers(const Artifact *a, FtxError *err)
{
    const FtxFacts *f = a->facts;
    const bool encoder = f->kind == FTX_MODEL_ENCODER;
    const struct {
        const char *name;
        uint32_t value, least;
    } ranges[] = {
        {"vocab", f->vocab, 1},
        {"hidden", f->hidden, 1},
        {"layers", f->layers, 1},
        {"heads", f->heads, 0}, /* 0: all layers are recurrent */
        {"context", f->context, 1},
        {"sequences", f->sequences, 1},
        {"tokens", f->tokens, 1},
        {"kv_block", f->kv_block, 1},
        {"kv_pages", f->kv_pages, encoder ? 0 : 1},
        {"logit_bias", f->logit_bias, 0},
        {"end_ids", f->end_ids, 0},
        {"bad_words", f->bad_words, 0},
        {"positions", f->positions, 0},
        {"pooled", f->pooled, 0},
        {"states", f->states, 0},
        {"types", f->types, 0},
        {"input", f->input, 0},
        {"labels", f->n_labels, 0},
        {"scoring", f->scoring, 0},
        {"beams", f->beams, 0},
        {"source_context", f->source_context, f->kind == FTX_MODEL_SEQ2SEQ},
        {"sources", f->sources, f->kind == FTX_MODEL_SEQ2SEQ},
        {"source_vocab", f->source_vocab, f->kind == FTX_MODEL_SEQ2SEQ},
    };
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {
        {"first id", f->bos},
        {"start id", f->start},
        {"padding id", f->pad},
        {"forced first id", f->decode.forced_bos},
        {"forced last id", f->decode.forced_eos},
    };

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < ranges[i].least || ranges[i].value > INT32_MAX)
            return ftx_fail(err, FTX_EFORMAT, "its %s is %u", ranges[i].name, ranges[i].value);
    if (f->ranks < 1 || f->ranks > FTX_MAX_RANKS)
        return ftx_fail(err, FTX_EFORMAT, "it is for %u ranks, which must be 1 to %d", f->ranks, FTX_MAX_RANKS);
    if (f->fixed_sums > 1)
        return ftx_fail(err, FTX_EFORMAT, "its fixed_sums is %u", f->fixed_sums);
    if (f->whole_prompts > 1)
        return ftx_fail(err, FTX_EFORMAT, "its whole_prompts is %u", f->whole_prompts);
    if (f->n_ends > FTX_MAX_ENDS)
        return ftx_fail(err, FTX_EFORMAT, "it has %u end ids, at most %d", f->n_ends, FTX_MAX_ENDS);
    for (uint32_t i = 0; i < f->n_ends; i++)
        if (f->ends[i] < 0 || (uint32_t)f->ends[i] >= f->vocab)
            return ftx_fail(err, FTX_EFORMAT, "its end id %d is not below vocab %u", f->ends[i], f->vocab);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id < -1 || (ids[i].id >= 0 && (uint32_t)ids[i].id >= f->vocab))
            return ftx_fail(err, FTX_EFORMAT, "its %s %d is not below vocab %u", ids[i].name, ids[i].id, f->vocab);
    if (f->kind > FTX_MODEL_SEQ2SEQ || (f->kind != FTX_MODEL_SEQ2SEQ && f->source_context) || (!encoder && f->pooled) ||
        (f->kind == FTX_MODEL_SEQ2SEQ && f->start < 0))
        return ftx_fail(err, FTX_EFORMAT,
                        "its kind %u, source_context %u, pooled %u and start id %d do not belong together", f->kind,
                        f->source_context, f->pooled, f->start);
    if (f->states && f->kind != FTX_MODEL_DECODER)
        return ftx_fail(err, FTX_EFORMAT, "its states of %u do not belong to kind %u", f->states, f->kind);
    if ((!encoder && (f->input || f->n_labels)) ||
        (f->n_labels && f->n_labels != (f->pooled ? f->pooled : f->hidden)) || f->scoring > FTX_SCORING_SOFTMAX)
        return ftx_fail(err, FTX_EFORMAT, "its input of %u, %u labels and scoring %u do not belong to a vector of %u",
                        f->input, f->n_labels, f->scoring, f->pooled ? f->pooled : f->hidden);
    if (!artifact_has_string(a, f->name) || !artifact_has_string(a, f->sidecar) || !artifact_has_string(a, f->labels))
        return ftx_fail(err, FTX_EFORMAT, "its names are not inside the strings");
    if (f->weight_bytes > MAX_SPACE)
        return ftx_fail(err, FTX_EFORMAT, "its weights would be %" PRIu64 " bytes", f->weight_bytes);
    return FTX_OK;
}

FtxStatus facts_check(const Artifact *a, FtxError *err)
{
    FtxStatus s = check_numbers(a, err);

    if (!s)
        s = check_decode(&a->facts->decode, err);
    return s ? s : check_bad_words(a, err);
}
