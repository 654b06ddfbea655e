/* draw.c - tokens that the host chooses, and how large the sum of a row's probabilities is.
 *
 * Tokens are chosen here for requests with a mask, or with more biases than the artifact was compiled for. The device has
 * chosen a token, too; that one is ignored.
 *
 *   device   step N ─────────────────────────────▶│            │ step N + 1
 *   host     draw_ask: masks of the next tokens   │ logits, choose
 *
 * A mask depends on the tokens before alone, so masks are asked for while the device runs the step. Then the logits of
 * all these rows are copied and the rows divided among the threads. Logits of a row are not copied if a mask allows one
 * token alone and nobody wants its log-probability.
 *
 * A device with masks (DeviceApi.masks) applies those of rows whose log-probabilities nobody wants, and chooses their
 * tokens, too: flight.c. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "engine.h"
#include "../../kernels/cpu/consts.h"
#include "../../kernels/cpu/cpu.h"

enum { MOST_THREADS = 16 };

/* --- the engine's part ---------------------------------------------------------------------------------- */

/* The CPU's kernels may look 31 floats further than a row. */
static size_t padded(const FtxFacts *f)
{
    return (size_t)f->vocab + 32;
}

static uint32_t words_of(const FtxFacts *f)
{
    return (f->vocab + 31) / 32;
}

void draw_lay_out(Drawing *d, Carve *c, const FtxFacts *f, uint32_t slots, int threads)
{
    d->scratches = threads < MOST_THREADS ? threads : MOST_THREADS;
    d->row = carve(c, f->vocab, sizeof *d->row);
    d->z = carve(c, f->vocab, sizeof *d->z);
    d->marks = carve(c, f->vocab, sizeof *d->marks);
    d->item = carve(c, slots, sizeof *d->item);
    d->scratch = carve(c, (size_t)d->scratches, sizeof *d->scratch);
    for (int i = 0; i < d->scratches; i++) {
        DrawScratch none = {0}, *s = d->scratch ? &d->scratch[i] : &none;

        s->z = carve(c, padded(f), sizeof *s->z);
        s->values = carve(c, padded(f), sizeof *s->values);
        s->ids = carve(c, padded(f), sizeof *s->ids);
        s->best = carve(c, words_of(f), sizeof *s->best);
        s->marks = carve(c, f->vocab, sizeof *s->marks);
    }
    d->bits = carve(c, (size_t)slots * words_of(f), sizeof *d->bits);
    d->rows = carve(c, (size_t)slots * f->vocab + 32, sizeof *d->rows);
}

FtxStatus draw_open(FtxEngine *e, FtxError *err)
{
    Drawing *d = &e->draw;

    d->sample = cpu_kernel("sample");
    d->choose = cpu_kernel("sample_masked");
    if (e->facts->kind == FTX_MODEL_ENCODER)
        return FTX_OK;
    d->team = e->api->team ? e->api->team(e->session) : NULL;
    if (d->team || !e->api->asynchronous || d->scratches < 2)
        return FTX_OK;
    d->own_team = true;
    return team_open(&e->memory, d->scratches, &d->team, err);
}

void draw_close(FtxEngine *e)
{
    if (e->draw.own_team)
        team_close(e->draw.team);
}

/* --- the sum of probabilities ---------------------------------------------------------------------------- */

/* `sample` with neither a temperature nor a processor, which also says a log-probability. */
static double log_sum(const FtxEngine *e, const Request *r, const float *logits, float *z, uint32_t *marks)
{
    const int64_t k[] = {[SAMPLE_V] = e->facts->vocab,
                         [SAMPLE_CONTEXT] = e->facts->context,
                         [SAMPLE_SEQUENCES] = 1,
                         [SAMPLE_ENDS] = 0,
                         [SAMPLE_BIAS] = 0,
                         [SAMPLE_WORDS] = 0};
    FtxParams greedy = {.top_p = 1.0f, .repetition = 1.0f, .simple = 1};
    FtxRow row = {.q_len = 1, .kv_len = r->length, .emit = 1, .limit = r->limit};
    FtxToken token;
    FtxOut ring[FTX_OUT_RING];
    int32_t y;
    void *const arg[] = {(void *)logits, &row,   &greedy, r->ends, r->bias, r->bad_words,
                         &token,         r->ids, ring,    &y,      z,       marks};

    e->draw.sample(&(CpuCall){.arg = arg, .k = k, .T = 1, .S = 1, .thread = 0, .threads = 1});

    const FtxOut *out = &ring[r->length % FTX_OUT_RING];

    return (double)logits[out->token] - (double)out->logprob;
}

double draw_log_sum(FtxEngine *e, const Request *r)
{
    return log_sum(e, r, e->draw.row, e->draw.z, e->draw.marks);
}

/* --- tokens ------------------------------------------------------------------------------------------------ */

static uint32_t *mask_of(const FtxEngine *e, const Request *r)
{
    return e->draw.bits + (size_t)r->slot * words_of(e->facts);
}

/* How many ids are allowed: 0, 1 or 2 for more; *only: the first of them. */
static int count_allowed(const FtxFacts *f, const uint32_t *bits, int32_t *only)
{
    int n = 0;

    for (uint32_t w = 0; w < words_of(f) && n < 2; w++) {
        const uint32_t left = f->vocab - w * 32;
        const uint32_t word = left < 32 ? bits[w] & ((1u << left) - 1) : bits[w];

        if (word && !n)
            *only = (int32_t)(w * 32) + __builtin_ctz(word);
        n += __builtin_popcount(word);
    }
    return n < 2 ? n : 2;
}

static void ask(const FtxEngine *e, Request *r, int length, uint32_t *bits)
{
    memset(bits, 0, words_of(e->facts) * sizeof *bits);
    r->allowed = 0;
    if (r->mask(r->mask_user, r->params.sample, r->ids + r->prompt, (size_t)(length - r->prompt), bits))
        r->allowed = count_allowed(e->facts, bits, &r->only);
}

void draw_ask(FtxEngine *e, Request *r, int length)
{
    if (!r->mask || r->asked == length)
        return;
    r->asked = length;
    ask(e, r, length, mask_of(e, r));
}

/* Where no id is allowed, all are: the device's token is a finite choice then, and nobody takes it. */
void draw_mask(FtxEngine *e, Request *r, int length, int row)
{
    uint32_t *bits = e->masks + (size_t)row * words_of(e->facts);

    ask(e, r, length, bits);
    if (!r->allowed)
        memset(bits, 0xff, words_of(e->facts) * sizeof *bits);
}

/* Row i's logits, [vocab]. */
static float *logits_of(const FtxEngine *e, int i)
{
    return e->draw.rows + (size_t)i * e->facts->vocab;
}

static bool wants_sum(const Request *r)
{
    return r->wants_logprob || r->top;
}

static bool needs_logits(const Request *r)
{
    return !r->mask || r->allowed > 1 || (r->allowed == 1 && wants_sum(r));
}

/* Copies the logits of the rows that need them, neighbours together. */
static FtxStatus read_rows(FtxEngine *e, int n, FtxError *err)
{
    const size_t bytes = (size_t)e->facts->vocab * sizeof *e->draw.rows;
    const DrawItem *item = e->draw.item;
    FtxStatus s = FTX_OK;

    for (int i = 0, count; i < n && !s; i += count) {
        count = 1;
        if (!needs_logits(item[i].request))
            continue;
        while (i + count < n && item[i + count].row == item[i].row + count && needs_logits(item[i + count].request))
            count++;
        s = e->api->read(e->session, FTX_NAMED_logits, (size_t)item[i].row * bytes, logits_of(e, item[i].row),
                         (size_t)count * bytes, err);
    }
    return s;
}

/* Of the ids that `bits` allows (NULL: all), the next token of r behind its first `length` ones; out->token -1: all are banned. */
static void choose_id(const FtxEngine *e, const Request *r, int length, float *logits, uint32_t *bits,
                      const DrawScratch *s, FtxOut *out)
{
    const int64_t k[] = {[SAMPLE_V] = e->facts->vocab};
    FtxRow row = {.q_len = 1, .kv_len = length, .emit = 1, .prompt = r->prompt, .limit = r->limit};
    FtxParams params = r->params;
    void *const arg[] = {logits, &row, &params, r->ends,   r->bias, r->bad_words, r->ids,
                         bits,   out,  s->z,    s->values, s->ids,  s->best,      s->marks};

    params.n_bias = r->n_bias;
    e->draw.choose(&(CpuCall){.arg = arg, .k = k, .T = 1, .S = 1, .thread = 0, .threads = 1});
}

static void choose_token(const FtxEngine *e, DrawItem *item, const DrawScratch *s)
{
    const Request *r = item->request;
    float *logits = logits_of(e, item->row);
    FtxOut *out = item->out;

    out->token = -1;
    if (r->mask && !r->allowed)
        return;
    if (!needs_logits(r))
        logits[r->only] = 0.0f; /* any number: it is this one, or it is banned */
    choose_id(e, r, r->length, logits, r->mask ? mask_of(e, r) : NULL, s, out);
    if (wants_sum(r) && out->token >= 0)
        item->log_sum = log_sum(e, r, logits, s->z, s->marks);
}

/* Processors ban the id as the token behind the first `length` ones: it is not chosen though it alone is allowed. */
static bool is_banned(const FtxEngine *e, const Request *r, int length, int row, int32_t id)
{
    uint32_t *bits = mask_of(e, r); /* the host has no mask of a request whose masks the device applies */
    float *logits = logits_of(e, row);
    FtxOut out;

    for (uint32_t w = 0; w < words_of(e->facts); w++)
        bits[w] = w == (uint32_t)id / 32 ? 1u << id % 32 : 0;
    logits[id] = 0.0f; /* any number */
    choose_id(e, r, length, logits, bits, &e->draw.scratch[0], &out);
    return out.token < 0;
}

/* Processors may ban all that a mask allows: then all values are -infinity, and the device takes the first id, 0. */
bool draw_allows(const FtxEngine *e, const Request *r, int length, int row, int32_t id)
{
    const uint32_t *bits = e->masks + (size_t)row * words_of(e->facts);

    return r->allowed && bits[id / 32] >> id % 32 & 1 && (id > 0 || !is_banned(e, r, length, row, id));
}

typedef struct DrawJob {
    FtxEngine *e;
    int n;
    atomic_int next; /* item */
} DrawJob;

/* TeamJob: takes rows while there are some. */
static void choose_share(void *user, int piece, int share, int shares)
{
    DrawJob *job = user;

    (void)piece, (void)shares;
    for (int i; share < job->e->draw.scratches && (i = atomic_fetch_add(&job->next, 1)) < job->n;)
        choose_token(job->e, &job->e->draw.item[i], &job->e->draw.scratch[share]);
}

FtxStatus draw_rows(FtxEngine *e, int n, FtxError *err)
{
    DrawJob job = {.e = e, .n = n};
    FtxStatus s = read_rows(e, n, err);

    if (s)
        return s;
    atomic_init(&job.next, 0);
    if (e->draw.team && n > 1)
        team_run(e->draw.team, choose_share, &job, 1);
    else
        choose_share(&job, 0, 0, 1);
    return FTX_OK;
}

const float *draw_logits(const FtxEngine *e, int row)
{
    return logits_of(e, row);
}
