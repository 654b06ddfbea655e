/* words.c - what a request says of single tokens and words: biases, end ids, bad words, stop strings. Each is checked, then
 * copied. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "../base/utf8.h"

/* --- ids ------------------------------------------------------------------------------------------ */

static FtxStatus check_id(const FtxEngine *e, const char *field, size_t i, int32_t id, FtxError *err)
{
    if (id >= 0 && id < (int32_t)e->facts->vocab)
        return FTX_OK;
    return ftx_fail(err, FTX_EINVAL, "%s[%zu]: %d is no token id (0 to %u)", field, i, id, e->facts->vocab - 1);
}

static FtxStatus fill_bias(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    const FtxFacts *f = e->facts;
    const uint32_t most = r->beam.width || f->logit_bias > MOST_BIAS_ENTRIES ? f->logit_bias : MOST_BIAS_ENTRIES;

    if (q->bias_count > most)
        return ftx_fail(err, FTX_EINVAL, "bias_count: expected at most %u, found %zu%s", most, q->bias_count,
                        most < MOST_BIAS_ENTRIES ? " (a beam search: the spec's limits.logit_bias)" : "");
    if (q->bias_count && (!q->bias_ids || !q->bias_values))
        return ftx_fail(err, FTX_EINVAL, "bias_ids or bias_values is NULL");
    for (size_t i = 0; i < q->bias_count; i++) {
        const FtxStatus s = check_id(e, "bias_ids", i, q->bias_ids[i], err);

        if (s)
            return s;
        if (isnan(q->bias_values[i]) || q->bias_values[i] == INFINITY)
            return ftx_fail(err, FTX_EINVAL, "bias_values[%zu]: expected a number or -infinity, found %g", i,
                            (double)q->bias_values[i]);
        r->bias[i] = (FtxBias){q->bias_ids[i], q->bias_values[i]};
    }
    r->n_bias = (int)q->bias_count;
    r->params.n_bias = q->bias_count > f->logit_bias ? 0 : r->n_bias;
    r->masked = q->mask && e->masks && q->bias_count <= f->logit_bias && !q->logits && !q->logprobs &&
                !q->top_logprobs && !q->prompt_logprobs;
    r->on_host = (q->mask && !r->masked) || q->bias_count > f->logit_bias;
    return FTX_OK;
}

static FtxStatus fill_ends(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    const FtxFacts *f = e->facts;
    const uint32_t own = q->ignore_eos ? 0 : f->n_ends;

    if (q->stop_ids_count > f->end_ids - own)
        return ftx_fail(err, FTX_EINVAL,
                        "stop_ids_count: %zu beside %u end ids of the model, but the spec's limits.end_ids is %u",
                        q->stop_ids_count, own, f->end_ids);
    if (q->stop_ids_count && !q->stop_ids)
        return ftx_fail(err, FTX_EINVAL, "stop_ids is NULL");
    memcpy(r->ends, f->ends, own * sizeof *r->ends);
    for (size_t i = 0; i < q->stop_ids_count; i++) {
        const FtxStatus s = check_id(e, "stop_ids", i, q->stop_ids[i], err);

        if (s)
            return s;
        r->ends[own + i] = q->stop_ids[i];
    }
    r->params.n_ends = (int)(own + q->stop_ids_count);
    return FTX_OK;
}

/* --- stop strings --------------------------------------------------------------------------------- */

static FtxStatus fill_stops(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    if (q->stop_count == 0)
        return FTX_OK;
    if (!e->model->tokenizer)
        return ftx_fail(err, FTX_EINVAL, "stop: the artifact has no tokenizer, so there is no text to stop at");
    if (q->stop_count > MAX_STOPS)
        return ftx_fail(err, FTX_EINVAL, "stop_count: at most %d stop strings, found %zu", MAX_STOPS, q->stop_count);
    for (size_t i = 0; i < q->stop_count; i++) {
        const char *stop = q->stop ? q->stop[i] : NULL;
        const size_t n = stop ? strlen(stop) : 0;

        if (n == 0 || n >= STOP_BYTES || !utf8_valid(stop, n))
            return ftx_fail(err, FTX_EINVAL, "stop[%zu]: expected 1 to %d bytes of UTF-8, found %zu%s", i,
                            STOP_BYTES - 1, n, n && n < STOP_BYTES ? " that are not" : "");
        memcpy(r->stream.stop[i], stop, n);
        r->stream.stop_bytes[i] = (uint16_t)n;
    }
    r->stream.n_stops = (uint32_t)q->stop_count;
    return FTX_OK;
}

/* --- bad words ------------------------------------------------------------------------------------- */

static bool is_end(const Request *r, int32_t id)
{
    for (int i = 0; i < r->params.n_ends; i++)
        if (r->ends[i] == id)
            return true;
    return false;
}

/* The ids of a bad word's text. */
typedef struct WordIds {
    int32_t at[WORD_TOKENS];
    size_t n;
} WordIds;

/* Adds a word. An end id alone is ignored, as in Hugging Face. */
static FtxStatus add_word(const FtxEngine *e, Request *r, const char *field, const int32_t *ids, size_t n,
                          FtxError *err)
{
    const uint32_t most = e->facts->bad_words, own = e->model->artifact.n_bad_words;
    int32_t *to = r->bad_words + r->params.n_words;

    if (n == 1 && is_end(r, ids[0]))
        return FTX_OK;
    if (n > most - (uint32_t)r->params.n_words)
        return ftx_fail(err, FTX_EINVAL,
                        "%s: with it there are %zu ids of bad words, but the spec's limits.bad_words "
                        "is %u",
                        field, (uint32_t)r->params.n_words - own + n, most - own);
    memcpy(to, ids, n * sizeof *to);
    to[n - 1] = ~to[n - 1];
    r->params.n_words += (int)n;
    return FTX_OK;
}

static FtxStatus add_id_words(const FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    const uint32_t most = e->facts->bad_words - e->model->artifact.n_bad_words;
    const int32_t *ids = q->bad_ids;
    char field[40];
    FtxStatus s = FTX_OK;

    if (q->bad_count && (!q->bad_ids || !q->bad_lengths))
        return ftx_fail(err, FTX_EINVAL, "bad_ids or bad_lengths is NULL");
    for (size_t i = 0; i < q->bad_count && !s; ids += q->bad_lengths[i++]) {
        if (q->bad_lengths[i] < 1 || q->bad_lengths[i] > most)
            return ftx_fail(err, FTX_EINVAL,
                            "bad_lengths[%zu]: expected 1 to %u ids, the spec's limits.bad_words, found %zu", i, most,
                            q->bad_lengths[i]);
        for (size_t k = 0; k < q->bad_lengths[i] && !s; k++)
            s = check_id(e, "bad_ids", (size_t)(ids - q->bad_ids) + k, ids[k], err);
        snprintf(field, sizeof field, "bad_lengths[%zu]", i);
        if (!s)
            s = add_word(e, r, field, ids, q->bad_lengths[i], err);
    }
    return s;
}

/* Tokenizes a bad word as a text that begins with it, or after a space. */
static FtxStatus word_ids(FtxEngine *e, size_t i, const char *text, bool space, WordIds *to, FtxError *err)
{
    char bytes[WORD_BYTES + 1] = " ";
    const size_t n = strlen(text);
    FtxStatus s;

    memcpy(bytes + space, text, n);
    s = tokenizer_encode(e->model->tokenizer, e->scratch, bytes, n + space, false, to->at, WORD_TOKENS, &to->n, err);
    if (s)
        return ftx_context(err, s, "bad_words[%zu]", i);
    if (to->n == 0 || to->n > WORD_TOKENS)
        return ftx_fail(err, FTX_EINVAL, "bad_words[%zu]: \"%s\" is %zu tokens, expected 1 to %d", i, text, to->n,
                        WORD_TOKENS);
    for (size_t k = 0; k < to->n && !s; k++)
        s = check_id(e, "bad_words", i, to->at[k], err);
    return s;
}

static FtxStatus add_text_words(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    WordIds begins, within;
    char field[40];
    FtxStatus s = FTX_OK;

    if (q->bad_words_count && !e->model->tokenizer)
        return ftx_fail(err, FTX_EINVAL, "bad_words: the artifact has no tokenizer: use bad_ids");
    for (size_t i = 0; i < q->bad_words_count && !s; i++) {
        const char *text = q->bad_words && q->bad_words[i] ? q->bad_words[i] : "";

        text += strspn(text, " ");
        if (!*text || strlen(text) >= WORD_BYTES || !utf8_valid(text, strlen(text)))
            return ftx_fail(err, FTX_EINVAL, "bad_words[%zu]: expected 1 to %d bytes of UTF-8 after its spaces", i,
                            WORD_BYTES - 1);
        snprintf(field, sizeof field, "bad_words[%zu]", i);
        s = word_ids(e, i, text, false, &begins, err);
        if (!s)
            s = word_ids(e, i, text, true, &within, err);
        if (!s)
            s = add_word(e, r, field, begins.at, begins.n, err);
        if (!s && (within.n != begins.n || memcmp(within.at, begins.at, within.n * sizeof *within.at) != 0))
            s = add_word(e, r, field, within.at, within.n, err);
    }
    return s;
}

/* Adds the model's bad words and the request's. */
static FtxStatus fill_words(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    const Artifact *a = &e->model->artifact;
    FtxStatus s;

    if (a->n_bad_words)
        memcpy(r->bad_words, a->bad_words, a->n_bad_words * sizeof *r->bad_words);
    r->params.n_words = (int)a->n_bad_words;
    s = add_id_words(e, r, q, err);
    return s ? s : add_text_words(e, r, q, err);
}

FtxStatus words_fill(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    FtxStatus s = fill_bias(e, r, q, err);

    if (!s)
        s = fill_ends(e, r, q, err);
    if (!s)
        s = fill_words(e, r, q, err);
    return s ? s : fill_stops(e, r, q, err);
}
