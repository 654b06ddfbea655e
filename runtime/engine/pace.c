/* pace.c - the token budget of a step from a target time (FtxOptions.step_ms).
 *
 * When the engine opens it measures decode steps of 1, 2, 4 ... rows, and prompts of 16, 32, 64 ... tokens. A step takes as
 * long as its decode rows (one, if there is none), a constant more if it has parts of prompts, and a constant for each
 * token of these. */
#include "engine.h"

enum { PACE_CONTEXT = 256, PACE_TEXT = 16 /* tokens of the first prompt that is measured */ };

static double decode_us(const Pace *p, int rows)
{
    int i = 0;

    while (i < p->n && p->rows[i] < rows)
        i++;
    if (i == p->n) /* beyond the table */
        return p->decode_us[i - 1] * rows / p->rows[i - 1];
    if (i == 0)
        return p->decode_us[0];
    return p->decode_us[i - 1] +
           (p->decode_us[i] - p->decode_us[i - 1]) * (rows - p->rows[i - 1]) / (p->rows[i] - p->rows[i - 1]);
}

double pace_step_us(const Pace *p, int rows, int tokens)
{
    if (!p->n)
        return 0.0;
    return decode_us(p, rows ? rows : 1) + (tokens ? p->prompt_us + tokens * p->token_us : 0.0);
}

int pace_tokens(const Pace *p, int rows, int most)
{
    const double least = most / PACE_LEAST;
    double tokens;

    if (!p->n)
        return most;
    tokens = (p->target_us - decode_us(p, rows ? rows : 1) - p->prompt_us) / p->token_us;
    tokens = rows + (tokens > least ? tokens : least > 1.0 ? least : 1.0);
    return tokens < most ? (int)tokens : most;
}

int pace_runs(const Pace *p, int rows, int most)
{
    const double runs = p->n ? 0.25 * p->target_us / decode_us(p, rows) : most;

    return runs >= most ? most : runs > 2.0 ? (int)runs : most < 2 ? most : 2;
}

/* --- the table -------------------------------------------------------------------------------------------- */

/* The least time of a step of `sequences` times `tokens`, in microseconds. */
static FtxStatus time_of(FtxEngine *e, int sequences, int tokens, int context, double *us, FtxError *err)
{
    double median, most;

    return ftx_engine_bench(e, sequences, tokens, context, e->api->asynchronous ? 3 : 1, &median, us, &most, err);
}

/* The tokens that a sequence can have: with few pages these are fewer than the context. */
static int tokens_that_fit(const FtxEngine *e)
{
    const uint64_t room = (uint64_t)e->pages.n * e->facts->kv_block;

    return (int)(room < e->facts->context ? room : e->facts->context);
}

/* Decode steps up to the first that takes longer than the target, or needs more pages than there are. */
static FtxStatus time_decode(FtxEngine *e, Pace *p, FtxError *err)
{
    const int context = tokens_that_fit(e) / 2 < PACE_CONTEXT ? tokens_that_fit(e) / 2 : PACE_CONTEXT;
    const int slots = (int)e->slots < 1024 ? (int)e->slots : 1024;

    for (int rows = 1; p->n < PACE_SIZES; rows = 2 * rows < slots ? 2 * rows : slots) {
        const FtxStatus s = time_of(e, rows, 1, context, &p->decode_us[p->n], err);

        if (s)
            return s == FTX_EFULL && p->n ? FTX_OK : s;
        p->rows[p->n++] = rows;
        if (rows == slots || p->decode_us[p->n - 1] > p->target_us)
            return FTX_OK;
    }
    return FTX_OK;
}

/* Prompts of 16, 32, 64 ... tokens: the first takes a constant time more than a decode step, the others something for each
 * token. The last one takes so much longer than the target that the constant does not count. */
static FtxStatus time_prompt(FtxEngine *e, Pace *p, FtxError *err)
{
    const int most = (int)e->facts->tokens < tokens_that_fit(e) ? (int)e->facts->tokens : tokens_that_fit(e);
    const int first = PACE_TEXT < most ? PACE_TEXT : most;
    double first_us, us;
    FtxStatus s = time_of(e, 1, first, 0, &us, err);
    int tokens = first;

    for (first_us = us; !s && tokens < most && us < first_us + p->target_us;) {
        tokens = 2 * tokens < most ? 2 * tokens : most;
        s = time_of(e, 1, tokens, 0, &us, err);
    }
    if (s)
        return s;
    p->token_us = tokens > first && us > first_us ? (us - first_us) / (tokens - first) : us / tokens;
    p->prompt_us = first_us - first * p->token_us - p->decode_us[0];
    p->prompt_us = p->prompt_us > 0.0 ? p->prompt_us : 0.0;
    return FTX_OK;
}

FtxStatus pace_measure(FtxEngine *e, size_t step_ms, FtxError *err)
{
    Pace p = {.target_us = (double)step_ms * 1e3};
    FtxStatus s;

    if (!step_ms || e->facts->kind != FTX_MODEL_DECODER)
        return FTX_OK;
    s = time_decode(e, &p, err);
    if (!s)
        s = time_prompt(e, &p, err);
    if (s)
        return s;
    e->pace = p;
    model_log(
        e->model, 0,
        "steps of %zu ms: a row that decodes takes %.2f ms, %d take %.2f ms; a prompt %.2f ms more and %.4f ms a token",
        step_ms, p.decode_us[0] * 1e-3, p.rows[p.n - 1], p.decode_us[p.n - 1] * 1e-3, p.prompt_us * 1e-3,
        p.token_us * 1e-3);
    return FTX_OK;
}
