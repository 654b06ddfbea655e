/* encode.c - texts to vectors: ftx_engine_encode.
 *
 *   text 0 | text 1 | text 2        packed one after another, as many as a step has tokens and rows
 *   ───────┴────────┴───────▶ program encode ─▶ $hidden [T,D], $pooled [S,POOL] ─▶ the caller's arrays
 *
 * Nothing is padded: a padded batch is packed on its way in and spread on its way out. Kernels see a
 * text by itself, so its vectors do not depend on its neighbours. */
#include <string.h>

#include "engine.h"

typedef struct Pack {
    FtxEngine *engine;
    const FtxEncode *job;
    int rows, tokens;
    size_t first;            /* text of row 0 */
    size_t given;            /* ids of all texts before the next one, in a packed job */
    size_t done;             /* rows of `hidden` filled before this pack */
    size_t text_of[1 << 12]; /* by row */
} Pack;

static const FtxRow *rows_of(const FtxEngine *e)
{
    return engine_io(e, FTX_NAMED_rows);
}

/* --- one text ------------------------------------------------------------------------------------- */

static FtxStatus check_ids(const FtxEngine *e, const int32_t *ids, const int32_t *types, size_t n, FtxError *err)
{
    const uint32_t kinds = e->facts->types ? e->facts->types : 1;

    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->facts->vocab)
            return ftx_fail(err, FTX_EINVAL, "ids[%zu]: %d is no token id (0 to %u)", i, ids[i], e->facts->vocab - 1);
        if (types && (types[i] < 0 || (uint32_t)types[i] >= kinds))
            return ftx_fail(err, FTX_EINVAL, "types[%zu]: %d, the model has types 0 to %u", i, types[i], kinds - 1);
    }
    return FTX_OK;
}

/* The tokens of text i to `ids`, and how many. */
static FtxStatus read_text(const Pack *p, size_t i, int32_t *ids, size_t *n, FtxError *err)
{
    FtxEngine *e = p->engine;
    const char *text = p->job->text[i];
    const size_t bytes = !text ? 0 : p->job->text_bytes ? p->job->text_bytes[i] : strlen(text);
    FtxStatus s;

    if (!e->model->tokenizer)
        return ftx_fail(err, FTX_EINVAL, "text: the artifact has no tokenizer: use ids");
    if (bytes == 0)
        return ftx_fail(err, FTX_EINVAL, "text: it is empty");
    if (bytes > e->max_text)
        return ftx_fail(err, FTX_EINVAL, "text: %zu bytes, at most %zu can have %u tokens (limits.context)", bytes,
                        e->max_text, e->facts->context);
    s = tokenizer_encode(e->model->tokenizer, e->scratch, text, bytes, true, ids, e->facts->context, n, err);
    if (s)
        return s;
    if (*n > e->facts->context)
        return ftx_fail(err, FTX_EINVAL, "text: %zu tokens, at most %u fit (limits.context)", *n, e->facts->context);
    if (*n == 0)
        return ftx_fail(err, FTX_EINVAL, "text: it has no tokens");
    return check_ids(e, ids, NULL, *n, err);
}

static FtxStatus read_ids(const Pack *p, size_t i, size_t at, int32_t *ids, size_t *n, FtxError *err)
{
    const FtxEncode *job = p->job;
    const FtxEngine *e = p->engine;

    if (job->lengths[i] < 1 || (uint32_t)job->lengths[i] > e->facts->context)
        return ftx_fail(err, FTX_EINVAL, "lengths: %d, expected 1 to %u (limits.context)", job->lengths[i],
                        e->facts->context);
    *n = (size_t)job->lengths[i];
    if (job->stride && *n > job->stride)
        return ftx_fail(err, FTX_EINVAL, "lengths: %zu, rows are %zu apart (stride)", *n, job->stride);
    memcpy(ids, job->ids + at, *n * sizeof *ids);
    return check_ids(e, ids, job->types ? job->types + at : NULL, *n, err);
}

/* --- a step ------------------------------------------------------------------------------------------ */

static FtxStatus run_pack(Pack *p, FtxError *err)
{
    FtxEngine *e = p->engine;
    FtxStatus s;
    uint32_t program;

    if (!schedule_program(&e->encode, p->tokens, &program))
        return ftx_fail(err, FTX_EFORMAT, "plan: no program encodes %d tokens", p->tokens);
    *(FtxStep *)engine_io(e, FTX_NAMED_step) = (FtxStep){.tokens = p->tokens, .rows = p->rows};
    s = e->api->upload(e->session, schedule_live_bytes(e, p->tokens), err);
    if (!s)
        s = e->api->run(e->session, program, p->tokens, p->rows, err);
    return s ? s : e->api->wait(e->session, err);
}

static FtxStatus take_hidden(const Pack *p, FtxError *err)
{
    const FtxEncode *job = p->job;
    FtxEngine *e = p->engine;
    const size_t D = e->facts->hidden, row = D * sizeof(float);
    const FtxRow *rows = rows_of(e);
    FtxStatus s = FTX_OK;

    if (!job->stride)
        return e->api->read(e->session, FTX_NAMED_hidden, 0, job->hidden + p->done * D, (size_t)p->tokens * row, err);
    for (int i = 0; i < p->rows && !s; i++) {
        float *to = job->hidden + p->text_of[i] * job->stride * D;

        s = e->api->read(e->session, FTX_NAMED_hidden, (size_t)rows[i].q_start * row, to, (size_t)rows[i].q_len * row,
                         err);
        memset(to + (size_t)rows[i].q_len * D, 0, (job->stride - (size_t)rows[i].q_len) * row);
    }
    return s;
}

static FtxStatus take_pooled(const Pack *p, FtxError *err)
{
    FtxEngine *e = p->engine;
    const size_t P = e->facts->pooled, row = P * sizeof(float);
    FtxStatus s = FTX_OK;

    for (int i = 0, n; i < p->rows && !s; i += n) { /* runs of neighbours */
        for (n = 1; i + n < p->rows && p->text_of[i + n] == p->text_of[i] + (size_t)n; n++)
            ;
        s = e->api->read(e->session, FTX_NAMED_pooled, (size_t)i * row, p->job->pooled + p->text_of[i] * P,
                         (size_t)n * row, err);
    }
    return s;
}

static FtxStatus flush(Pack *p, FtxError *err)
{
    FtxStatus s = FTX_OK;

    if (p->rows == 0)
        return FTX_OK;
    if (p->job->hidden && !p->job->stride && p->done + (size_t)p->tokens > p->job->hidden_rows)
        return ftx_fail(err, FTX_EINVAL, "hidden_rows: room for %zu tokens, texts up to number %zu have %zu",
                        p->job->hidden_rows, p->text_of[p->rows - 1], p->done + (size_t)p->tokens);
    s = run_pack(p, err);
    if (!s && p->job->hidden)
        s = take_hidden(p, err);
    if (!s && p->job->pooled)
        s = take_pooled(p, err);
    p->done += (size_t)p->tokens;
    p->rows = p->tokens = 0;
    return s;
}

/* Text i, whose ids stand in `ids`, joins the pack; types: NULL, all 0. */
static void join(Pack *p, size_t i, const int32_t *ids, const int32_t *types, int n)
{
    FtxToken *token = (FtxToken *)engine_io(p->engine, FTX_NAMED_token) + p->tokens;

    ((FtxRow *)engine_io(p->engine, FTX_NAMED_rows))[p->rows] = (FtxRow){
        .q_start = p->tokens,
        .q_len = n,
        .kv_len = n,
        .slot = p->rows,
        .src_len = n,
        .src_slot = p->rows,
        .group = p->rows,
    };
    for (int k = 0; k < n; k++)
        token[k] = (FtxToken){ids[k], k, p->rows, types ? types[k] : 0};
    p->text_of[p->rows++] = i;
    p->tokens += n;
}

/* --- the call ------------------------------------------------------------------------------------------ */

static FtxStatus check_job(const FtxEngine *e, const FtxEncode *job, FtxError *err)
{
    if (e->dead.status)
        return ftx_fail(err, e->dead.status, "%s", e->dead.text);
    if (e->facts->kind != FTX_MODEL_ENCODER)
        return ftx_fail(err, FTX_EINVAL, "the model is no encoder: it writes text, see ftx_engine_submit");
    if (!job || (!job->text && !job->ids) || (job->text && job->ids))
        return ftx_fail(err, FTX_EINVAL, "encode: expected either text or ids");
    if (job->ids && !job->lengths)
        return ftx_fail(err, FTX_EINVAL, "lengths: missing, ids need the number of each text's tokens");
    if (job->pooled && !e->facts->pooled)
        return ftx_fail(err, FTX_EINVAL,
                        "pooled: the model gives a vector a token only; -D pooling=mean when it is "
                        "compiled makes one a text");
    if (job->types && !job->ids)
        return ftx_fail(err, FTX_EINVAL, "types: they go with ids");
    return FTX_OK;
}

/* The next text; a mistake in it is its own if the caller has room for that. */
static FtxStatus take_text(Pack *p, size_t i, FtxError *err)
{
    const FtxEncode *job = p->job;
    FtxEngine *e = p->engine;
    int32_t *ids = e->request[0].ids; /* [context], and nobody's: an encoder has no requests */
    const size_t at = job->stride ? i * job->stride : p->given;
    FtxError why = {FTX_OK, ""};
    size_t n = 0;
    FtxStatus s = job->text ? read_text(p, i, ids, &n, &why) : read_ids(p, i, at, ids, &n, &why);

    if (job->ids && !job->stride)
        p->given += job->lengths[i] > 0 ? (size_t)job->lengths[i] : 0;
    if (!s && job->text && job->stride && n > job->stride)
        s = ftx_fail(&why, FTX_EINVAL, "text: %zu tokens, rows of hidden are %zu apart (stride)", n, job->stride);
    if (job->tokens)
        job->tokens[i] = s ? 0 : (int32_t)n;
    if (job->errors)
        job->errors[i] = why;
    if (s)
        return job->errors ? FTX_OK : ftx_fail(err, s, "text %zu: %s", i, why.text);
    if ((uint32_t)p->rows == e->slots || p->tokens + (int)n > (int)e->facts->tokens)
        s = flush(p, err);
    if (!s)
        join(p, i, ids, job->types ? job->types + at : NULL, (int)n);
    return s;
}

FtxStatus ftx_engine_encode(FtxEngine *e, const FtxEncode *job, FtxError *err)
{
    Pack p = {.engine = e, .job = job};
    FtxStatus s = check_job(e, job, err);

    for (size_t i = 0; i < (s ? 0 : job->count) && !s; i++)
        s = take_text(&p, i, err);
    return s ? s : flush(&p, err);
}
