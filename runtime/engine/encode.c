/* encode.c - texts to vectors: ftx_engine_encode.
 *
 *   text 0 | text 1 | text 2        packed one after another, as many as a step has tokens and rows
 *   ───────┴────────┴───────▶ program encode ─▶ $hidden [T,D], $pooled [S,POOL] ─▶ the caller's arrays
 *   hidden states ─▶ $input ─▶ program hidden ──┘
 *
 * With on_device the caller's hidden states and vectors are memory of the GPU, and are copied there.
 *
 * Nothing is padded: a padded batch is packed before a step and spread after it. Kernels treat each text by itself,
 * so its vectors do not depend on the texts beside it. */
#include <string.h>

#include "engine.h"
#include "../base/dtype.h"
#include "../base/sized.h"
#include "../base/utf8.h"

typedef struct Pack {
    FtxEngine *engine;
    const FtxEncode *job;
    int rows, tokens;
    size_t first;                      /* text of row 0 */
    size_t given;                      /* ids or hidden states of all texts before the next one, in a packed job */
    size_t done;                       /* rows of `hidden` filled before this pack */
    size_t text_of[FTX_MAX_SEQUENCES]; /* by row */
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

/* The most tokens of a text, and the field that sets it. */
static size_t most_tokens(const Pack *p, const char **field)
{
    const FtxEncode *job = p->job;
    size_t most = p->engine->facts->context;

    *field = "limits.context";
    if (job->max_tokens && (size_t)job->max_tokens < most) {
        most = (size_t)job->max_tokens;
        *field = "max_tokens";
    }
    if (job->stride && job->stride < most) {
        most = job->stride;
        *field = "stride";
    }
    return most;
}

/* Shortens a text of more than max_text bytes, for which there is no scratch memory, if it will be truncated anyway.
 * *less: it was shortened. */
static FtxStatus fit_text(const Pack *p, const char *what, const char *text, size_t *bytes, bool *less, FtxError *err)
{
    const size_t most = p->engine->max_text;

    if (*bytes <= most)
        return FTX_OK;
    if (!p->job->truncate)
        return ftx_fail(err, FTX_EINVAL, "%s: %zu bytes, at most %zu can have %u tokens (limits.context)", what, *bytes,
                        most, p->engine->facts->context);
    *bytes = utf8_end(text, most);
    *less = true;
    return FTX_OK;
}

static FtxStatus find_text(const Pack *p, const char *what, const char *const *texts, const size_t *bytes, size_t i,
                           const char **text, size_t *n, bool *less, FtxError *err)
{
    *text = texts[i];
    if (!*text)
        return ftx_fail(err, FTX_EINVAL, "%s: it is NULL", what);
    *n = bytes ? bytes[i] : strlen(*text);
    return fit_text(p, what, *text, n, less, err);
}

/* Writes the tokens of text i and their types, and how many there are. */
static FtxStatus read_text(const Pack *p, size_t i, int32_t *ids, int32_t *types, size_t *n, FtxError *err)
{
    static const TokenizerCut cuts[] = {
        [FTX_TRUNCATE_FIRST] = TOKENIZER_CUT_FIRST, [FTX_TRUNCATE_SECOND] = TOKENIZER_CUT_SECOND};
    const FtxEncode *job = p->job;
    FtxEngine *e = p->engine;
    const char *field;
    const size_t most = most_tokens(p, &field);
    TokenizerPair pair = {
        .special = true, .literal = job->literal, .most = job->truncate ? most : 0, .cut = cuts[job->truncate]};
    bool less = false;
    FtxStatus s;

    if (!e->model->tokenizer)
        return ftx_fail(err, FTX_EINVAL, "text: the artifact has no tokenizer: use ids");
    s = find_text(p, "text", job->text, job->text_bytes, i, &pair.text, &pair.bytes, &less, err);
    if (!s && job->pair && job->pair[i])
        s = find_text(p, "pair", job->pair, job->pair_bytes, i, &pair.other, &pair.other_bytes, &less, err);
    if (!s)
        s = tokenizer_encode_pair(e->model->tokenizer, e->scratch, &pair, ids, types, e->facts->context, n, err);
    if (s)
        return s;
    if (*n > most)
        return ftx_fail(err, FTX_EINVAL, "text: %zu tokens, at most %zu fit (%s)", *n, most, field);
    if (less && *n < most) /* the bytes left out may have held wanted tokens */
        return ftx_fail(err, FTX_EINVAL, "text: its first %zu bytes have only %zu tokens: use ids", e->max_text, *n);
    if (*n == 0)
        return ftx_fail(err, FTX_EINVAL, "text: it has no tokens");
    return check_ids(e, ids, e->facts->types ? types : NULL, *n, err);
}

static FtxStatus read_length(const Pack *p, size_t i, size_t *n, FtxError *err)
{
    const FtxEncode *job = p->job;
    const FtxEngine *e = p->engine;

    if (job->lengths[i] < 1 || (uint32_t)job->lengths[i] > e->facts->context)
        return ftx_fail(err, FTX_EINVAL, "lengths: %d, expected 1 to %u (limits.context)", job->lengths[i],
                        e->facts->context);
    *n = (size_t)job->lengths[i];
    if (job->stride && *n > job->stride)
        return ftx_fail(err, FTX_EINVAL, "lengths: %zu, rows are %zu apart (stride)", *n, job->stride);
    return FTX_OK;
}

static FtxStatus read_ids(const Pack *p, size_t i, size_t at, int32_t *ids, int32_t *types, size_t *n, FtxError *err)
{
    const FtxEncode *job = p->job;
    const FtxStatus s = read_length(p, i, n, err);

    if (s)
        return s;
    memcpy(ids, job->ids + at, *n * sizeof *ids);
    if (job->types)
        memcpy(types, job->types + at, *n * sizeof *types);
    else
        memset(types, 0, *n * sizeof *types);
    return check_ids(p->engine, ids, job->types ? types : NULL, *n, err);
}

/* Writes the hidden states [n, input] of a text, which are at row `row` of the caller's, in the compute type after those
 * of earlier texts. */
static FtxStatus write_input(const Pack *p, size_t row, size_t n, FtxError *err)
{
    char piece[1 << 14]; /* of at most 64 KiB: DeviceApi.write */
    const FtxEngine *e = p->engine;
    const DType type = (DType)e->plan->compute_type;
    const size_t size = dtype_size(type), width = e->facts->input, all = n * width;
    const float *from = p->job->input + row * width;
    FtxStatus s = FTX_OK;

    if (p->job->on_device) /* it has the compute type there */
        return e->api->copy_in(e->session, FTX_NAMED_input, (size_t)p->tokens * width * size,
                               (const char *)(const void *)p->job->input + row * width * size, all * size, err);
    for (size_t at = 0, m; at < all && !s; at += m) {
        m = all - at < sizeof piece / size ? all - at : sizeof piece / size;
        for (size_t i = 0; i < m; i++)
            dtype_store(piece, i, type, from[at + i]);
        s = e->api->write(e->session, FTX_NAMED_input, ((size_t)p->tokens * width + at) * size, piece, m * size, err);
    }
    return s;
}

/* --- a step ------------------------------------------------------------------------------------------ */

static FtxStatus run_pack(Pack *p, FtxError *err)
{
    FtxEngine *e = p->engine;
    const uint32_t program = schedule_found_program(p->job->input ? &e->hidden : &e->encode, p->tokens);
    FtxStatus s;

    *(FtxStep *)engine_io(e, FTX_NAMED_step) = (FtxStep){.tokens = p->tokens, .rows = p->rows};
    s = e->api->upload(e->session, schedule_live_bytes(e, p->tokens, 0), err);
    if (!s)
        s = e->api->run(e->session, program, p->tokens, p->rows, 1, err);
    return s ? s : e->api->wait(e->session, err);
}

/* Copies results to the caller's array. */
static FtxStatus copy_result(const Pack *p, int named, size_t offset, float *to, size_t bytes, FtxError *err)
{
    const FtxEngine *e = p->engine;

    return p->job->on_device ? e->api->copy_out(e->session, named, offset, to, bytes, err)
                             : e->api->read(e->session, named, offset, to, bytes, err);
}

/* Sets n tokens of the caller's hidden states, from token `at` of text i on, to zero. */
static FtxStatus clear_hidden(const Pack *p, size_t i, size_t at, size_t n, FtxError *err)
{
    const FtxEngine *e = p->engine;
    const size_t D = e->facts->hidden;
    float *to = p->job->hidden + (i * p->job->stride + at) * D;

    if (p->job->on_device)
        return e->api->clear(e->session, to, n * D * sizeof *to, err);
    memset(to, 0, n * D * sizeof *to);
    return FTX_OK;
}

static FtxStatus take_hidden(const Pack *p, FtxError *err)
{
    const FtxEncode *job = p->job;
    const FtxEngine *e = p->engine;
    const size_t D = e->facts->hidden, row = D * sizeof(float);
    const FtxRow *rows = rows_of(e);
    FtxStatus s = FTX_OK;

    if (!job->stride)
        return copy_result(p, FTX_NAMED_hidden, 0, job->hidden + p->done * D, (size_t)p->tokens * row, err);
    for (int i = 0; i < p->rows && !s; i++) {
        const size_t n = (size_t)rows[i].q_len;

        s = copy_result(p, FTX_NAMED_hidden, (size_t)rows[i].q_start * row,
                        job->hidden + p->text_of[i] * job->stride * D, n * row, err);
        if (!s)
            s = clear_hidden(p, p->text_of[i], n, job->stride - n, err);
    }
    return s;
}

static FtxStatus take_pooled(const Pack *p, FtxError *err)
{
    const size_t P = p->engine->facts->pooled, row = P * sizeof(float);
    FtxStatus s = FTX_OK;

    for (int i = 0, n; i < p->rows && !s; i += n) { /* runs of neighbours */
        for (n = 1; i + n < p->rows && p->text_of[i + n] == p->text_of[i] + (size_t)n; n++)
            ;
        s = copy_result(p, FTX_NAMED_pooled, (size_t)i * row, p->job->pooled + p->text_of[i] * P, (size_t)n * row, err);
    }
    return s;
}

/* Refuses more rows than the caller has room for; text: the last one that has some. */
static FtxStatus check_rows(const Pack *p, size_t rows, size_t text, FtxError *err)
{
    if (p->job->stride || rows <= p->job->hidden_rows)
        return FTX_OK;
    return ftx_fail(err, FTX_EINVAL, "hidden_rows: room for %zu tokens, texts up to number %zu have %zu",
                    p->job->hidden_rows, text, rows);
}

/* Gives the caller the ids of text i, which comes next. */
static FtxStatus give_ids(const Pack *p, size_t i, const int32_t *ids, size_t n, FtxError *err)
{
    const size_t at = p->job->stride ? i * p->job->stride : p->done + (size_t)p->tokens;
    const FtxStatus s = check_rows(p, at + n, i, err);

    if (!s)
        memcpy(p->job->text_ids + at, ids, n * sizeof *ids);
    return s;
}

static FtxStatus flush(Pack *p, FtxError *err)
{
    FtxStatus s = FTX_OK;

    if (p->rows == 0)
        return FTX_OK;
    if (p->job->hidden)
        s = check_rows(p, p->done + (size_t)p->tokens, p->text_of[p->rows - 1], err);
    if (!s)
        s = run_pack(p, err);
    if (!s && p->job->hidden)
        s = take_hidden(p, err);
    if (!s && p->job->pooled)
        s = take_pooled(p, err);
    p->done += (size_t)p->tokens;
    p->rows = p->tokens = 0;
    return s;
}

/* Adds text i to the pack: its ids and their types, or its hidden states. */
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
        token[k] = (FtxToken){ids ? ids[k] : 0, k, p->rows, ids ? types[k] : 0};
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
    if (!!job->text + !!job->ids + !!job->input != 1)
        return ftx_fail(err, FTX_EINVAL, "encode: expected one of text, ids and input");
    if (!job->text && !job->lengths)
        return ftx_fail(err, FTX_EINVAL, "lengths: missing, %s need the number of each text's tokens",
                        job->ids ? "ids" : "hidden states");
    if (job->input && !e->facts->input)
        return ftx_fail(err, FTX_EINVAL, "input: the model takes no hidden states; nn.embedded in its spec says where");
    if (!job->text && (job->pair || job->truncate || job->max_tokens || job->literal))
        return ftx_fail(err, FTX_EINVAL, "%s: only for texts",
                        job->pair       ? "pair"
                        : job->literal  ? "literal"
                        : job->truncate ? "truncate"
                                        : "max_tokens");
    if (job->truncate < FTX_TRUNCATE_NONE || job->truncate > FTX_TRUNCATE_SECOND)
        return ftx_fail(err, FTX_EINVAL, "truncate: expected none, longest, first or second (FtxTruncate), found %d",
                        (int)job->truncate);
    if (job->max_tokens < 0 || (uint32_t)job->max_tokens > e->facts->context)
        return ftx_fail(err, FTX_EINVAL, "max_tokens: %d, expected 1 to %u (limits.context)", job->max_tokens,
                        e->facts->context);
    if (job->pooled && !e->facts->pooled)
        return ftx_fail(err, FTX_EINVAL,
                        "pooled: the model gives a vector a token only; -D pooling=mean when it is "
                        "compiled makes one a text");
    if (job->types && !job->ids)
        return ftx_fail(err, FTX_EINVAL, "types: only with ids");
    if (job->text_ids && job->input)
        return ftx_fail(err, FTX_EINVAL, "text_ids: hidden states have none");
    if (job->on_device && !e->api->owns)
        return ftx_fail(err, FTX_EINVAL, "on_device: the model runs on the CPU, whose arrays are the host's");
    if (job->stream && !job->on_device)
        return ftx_fail(err, FTX_EINVAL, "stream: only with on_device");
    return FTX_OK;
}

static FtxStatus read_one(const Pack *p, size_t i, size_t at, int32_t *ids, int32_t *types, size_t *n, FtxError *err)
{
    return p->job->text    ? read_text(p, i, ids, types, n, err)
           : p->job->input ? read_length(p, i, n, err)
                           : read_ids(p, i, at, ids, types, n, err);
}

/* Takes the next text. With job->errors a wrong text does not end the call. */
static FtxStatus take_text(Pack *p, size_t i, FtxError *err)
{
    const FtxEncode *job = p->job;
    FtxEngine *e = p->engine;
    int32_t *ids = e->request[0].ids, *types = e->request[1].ids; /* [context]; an encoder has no requests */
    const size_t at = job->stride ? i * job->stride : p->given;
    FtxError why = {FTX_OK, ""};
    size_t n = 0;
    FtxStatus s = read_one(p, i, at, ids, types, &n, &why);

    if (!job->text && !job->stride)
        p->given += job->lengths[i] > 0 ? (size_t)job->lengths[i] : 0;
    if (job->tokens)
        job->tokens[i] = s ? 0 : (int32_t)n;
    if (job->errors)
        job->errors[i] = why;
    if (s && !job->errors)
        return ftx_fail(err, s, "text %zu: %s", i, why.text);
    if (s) /* the whole row is padding */
        return job->hidden && job->stride ? clear_hidden(p, i, 0, job->stride, err) : FTX_OK;
    if ((uint32_t)p->rows == e->slots || p->tokens + (int)n > (int)e->facts->tokens)
        s = flush(p, err);
    if (!s && job->input)
        s = write_input(p, at, n, err);
    if (!s && job->text_ids)
        s = give_ids(p, i, ids, n, err);
    if (!s)
        join(p, i, job->input ? NULL : ids, types, (int)n);
    return s;
}

/* Lets the session begin after the caller's work on its arrays. */
static FtxStatus enter_device(const FtxEngine *e, const FtxEncode *job, FtxError *err)
{
    const struct {
        const char *field;
        const void *at;
    } arrays[] = {{"input", job->input}, {"hidden", job->hidden}, {"pooled", job->pooled}};
    FtxStatus s = FTX_OK;

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && !s; i++)
        if (arrays[i].at)
            s = e->api->owns(e->session, arrays[i].field, arrays[i].at, err);
    return s ? s : e->api->follow(e->session, job->stream, err);
}

FtxStatus ftx_engine_encode(FtxEngine *e, const FtxEncode *from, FtxError *err)
{
    FtxEncode job = FTX_ENCODE_INIT;
    Pack p = {.engine = e, .job = &job};
    FtxStatus s = from ? sized_read("FtxEncode", from, &job, sizeof job, err)
                       : ftx_fail(err, FTX_EINVAL, "ftx_engine_encode: job is NULL");

    if (!s)
        s = check_job(e, &job, err);
    if (!s && job.on_device)
        s = enter_device(e, &job, err);
    if (s)
        return s;
    for (size_t i = 0; !s && i < job.count; i++)
        s = take_text(&p, i, err);
    if (!s)
        s = flush(&p, err);
    if (job.on_device) { /* also after a mistake: the arrays are the caller's again */
        const FtxStatus waited = e->api->wait(e->session, s ? NULL : err);

        s = s ? s : waited;
    }
    return s;
}
