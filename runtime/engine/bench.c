/* bench.c - times a program with made-up state: ftx_engine_bench, ftx_engine_bench_mixed.
 *
 * Made-up sequences have pages of their own; the cache holds whatever is there. A decode program advances its rows
 * by itself, so runs follow one another as in real use, each with one more token of context. Where the context or
 * the pages end, the rows start again. A prompt is run from its first chunk to its last. A mixed step is run from the
 * same state each time. An encoder gets whole texts. */
#include "engine.h"

enum { MAX_REPEAT = 1000, SOURCE = 32 /* tokens of a made-up source */ };

typedef struct Bench {
    FtxEngine *engine;
    Request *request[1024];
    int sequences, tokens, context;
    int prompt; /* tokens of one more sequence, which begins; 0: there is none */
    int room;   /* tokens that the pages of a sequence hold */
} Bench;

/* Why an engine cannot be timed, or FTX_OK. */
static FtxStatus check_idle(const FtxEngine *e, int repeat, FtxError *err)
{
    if (e->dead.status)
        return ftx_fail(err, e->dead.status, "%s", e->dead.text);
    if (engine_busy(e))
        return ftx_fail(err, FTX_EINVAL, "requests wait or run: bench needs the engine for itself");
    if (repeat < 1 || repeat > MAX_REPEAT)
        return ftx_fail(err, FTX_EINVAL, "repeat: expected 1 to %d, found %d", MAX_REPEAT, repeat);
    return FTX_OK;
}

static FtxStatus check_bench(const FtxEngine *e, int sequences, int tokens, int context, FtxError *err)
{
    const FtxFacts *f = e->facts;
    const uint32_t most = e->facts->sources && e->facts->sources < e->slots ? e->facts->sources : e->slots;

    if (sequences < 1 || (uint32_t)sequences > most || sequences > 1024)
        return ftx_fail(err, FTX_EINVAL, "sequences: expected 1 to %u, found %d", most, sequences);
    if (f->kind == FTX_MODEL_ENCODER) {
        if (tokens < 1 || (uint32_t)tokens > f->context || context < 0 || context > tokens ||
            (int64_t)sequences * (context ? context : tokens) > (int64_t)f->tokens)
            return ftx_fail(err, FTX_EINVAL,
                            "%d texts of %d tokens (%d in the mean) exceed the context of %u or the %u "
                            "tokens of a step",
                            sequences, tokens, context ? context : tokens, f->context, f->tokens);
        return FTX_OK;
    }
    if (tokens < 1 || context < 0)
        return ftx_fail(err, FTX_EINVAL, "expected 1 token or more after 0 or more");
    if ((int64_t)tokens + context > (int64_t)f->context)
        return ftx_fail(err, FTX_EINVAL, "%d tokens after %d exceed the context of %u", tokens, context, f->context);
    return FTX_OK;
}

/* A mixed step: as many decode rows as there are slots but one, and a prompt. */
static FtxStatus check_mixed(const FtxEngine *e, int sequences, int context, int prompt, FtxError *err)
{
    const FtxFacts *f = e->facts;

    if (f->kind != FTX_MODEL_DECODER)
        return ftx_fail(err, FTX_EINVAL, "only decoders have steps in which some sequences decode beside a prompt");
    if (sequences < 1 || (uint32_t)sequences >= e->slots || sequences > 1023)
        return ftx_fail(err, FTX_EINVAL, "sequences beside a prompt: expected 1 to %u, found %d", e->slots - 1,
                        sequences);
    if (prompt < 1 || context < 0)
        return ftx_fail(err, FTX_EINVAL, "expected a prompt of 1 token or more, and a context of 0 or more");
    if (context >= (int)f->context || prompt > (int)f->context)
        return ftx_fail(err, FTX_EINVAL, "1 token after %d, or a prompt of %d, exceeds the context of %u", context,
                        prompt, f->context);
    if ((int64_t)sequences + prompt > (int64_t)f->tokens)
        return ftx_fail(err, FTX_EINVAL, "%d sequences and %d tokens of a prompt exceed the %u tokens of a step",
                        sequences, prompt, f->tokens);
    return FTX_OK;
}

/* Tokens that the i-th sequence has after the step. */
static int tokens_of(const Bench *b, int i)
{
    return i == b->sequences ? b->prompt : b->context + b->tokens;
}

/* Makes the sequences up. Those of a series of decode steps share all pages, so that they can grow; in a mixed step
 * each has what it needs. */
static FtxStatus place(Bench *b, FtxError *err)
{
    FtxEngine *e = b->engine;
    const uint32_t block = e->facts->kv_block;
    const uint32_t share = e->pages.n / (uint32_t)b->sequences;
    const uint32_t most = share < e->pages_of_sequence ? share : e->pages_of_sequence;
    const uint32_t of_prompt = ((uint32_t)b->prompt + block - 1) / block;
    const uint32_t mixed = ((uint32_t)(b->context + b->tokens) + block - 1) / block;
    FtxStatus s = FTX_OK;

    b->room = (int)((uint64_t)most * block < e->facts->context ? most * block : e->facts->context);
    if (b->tokens + b->context > b->room ||
        (b->prompt && (uint64_t)mixed * (uint32_t)b->sequences + of_prompt > e->pages.n))
        return ftx_fail(err, FTX_EFULL,
                        "%d sequences of %d tokens%s need more than the %u KV pages of %u tokens: raise %s",
                        b->sequences, b->tokens + b->context, b->prompt ? " and a prompt" : "", e->pages.all, block,
                        engine_more_pages(e));
    for (int i = 0; i < b->sequences + (b->prompt > 0) && !s; i++) {
        const uint32_t pages = i == b->sequences ? of_prompt : b->prompt ? mixed : most;
        Request *r = list_last(&e->unused, (uint32_t)i);

        b->request[i] = r;
        r->id = 0;
        r->wants_logits = false;
        r->params = (FtxParams){.top_p = 1.0f, .repetition = 1.0f, .simple = 1, .logits = e->nan, .top_needed = 1};
        r->limit = (int)e->facts->context; /* reached by the last run of a series, if at all */
        r->prompt = tokens_of(b, i);
        for (int k = 0; k < r->prompt; k++)
            r->ids[k] = (int32_t)(((uint32_t)k * 7919u + (uint32_t)i * 104729u) % e->facts->vocab);
        r->beam = (FtxBeam){0};
        r->n_source = e->facts->source_context < SOURCE ? (int)e->facts->source_context : SOURCE;
        r->n_pages = r->own_pages = pages;
        s = schedule_place(e, r, err);
    }
    return s ? s : schedule_tell(e, err);
}

static void leave(Bench *b)
{
    for (int i = b->sequences - (b->prompt == 0); i >= 0; i--)
        schedule_release(b->engine, b->request[i]);
}

/* Times `runs` runs in which every row brings `count` tokens from position `from` on; the prompt beside them, all. */
static FtxStatus measure(Bench *b, int from, int count, int runs, double *times, FtxError *err)
{
    FtxEngine *e = b->engine;
    const int prompt = count == 1 ? from : from + count; /* one token: a generated one */
    Flight *f = &e->flight;
    FtxStatus s = e->api->wait(e->session, err);

    if (s)
        return s;
    for (int i = 0; i < b->sequences; i++) {
        f->row[i] = (Row){.request = b->request[i], .first = i * count, .count = count, .from = from, .emit = true};
        b->request[i]->prompt = prompt; /* NOLINT(clang-analyzer-core.NullDereference): all are placed */
    }
    f->rows = b->sequences;
    f->tokens = b->sequences * count;
    if (b->prompt) {
        f->row[f->rows++] =
            (Row){.request = b->request[b->sequences], .first = f->tokens, .count = b->prompt, .emit = true};
        f->tokens += b->prompt;
    }
    s = schedule_write(e, err);
    if (!s)
        s = schedule_send(e, err);
    if (!s)
        s = e->api->time(e->session, f->program, f->tokens, f->rows, runs, times, err);
    if (!s)
        s = e->api->wait(e->session, err);
    f->pending = false;
    return s;
}

static FtxStatus measure_decode(Bench *b, int repeat, double *times, FtxError *err)
{
    const int left = b->room - b->context - 1;
    const int most = b->engine->decode.n && left > 1 ? left : 1;
    FtxStatus s = measure(b, b->context, 1, 1, times, err); /* warm */

    for (int done = 0, n; done < repeat && !s; done += n) {
        n = repeat - done < most ? repeat - done : most;
        s = measure(b, b->context, 1, n, times + done, err);
    }
    return s;
}

static FtxStatus measure_prompt(Bench *b, int repeat, double *times, FtxError *err)
{
    const int chunk = (int)b->engine->facts->tokens / b->sequences;
    FtxStatus s = FTX_OK;

    for (int i = -1; i < repeat && !s; i++) { /* -1: warm */
        double all = 0.0, part;

        for (int at = 0, n; at < b->tokens && !s; at += n) {
            n = b->tokens - at < chunk ? b->tokens - at : chunk;
            s = measure(b, b->context + at, n, 1, &part, err);
            all += s ? 0.0 : part;
        }
        if (i >= 0)
            times[i] = all;
    }
    return s;
}

static FtxStatus measure_mixed(Bench *b, int repeat, double *times, FtxError *err)
{
    FtxStatus s = measure(b, b->context, 1, 1, times, err); /* warm */

    for (int i = 0; i < repeat && !s; i++)
        s = measure(b, b->context, 1, 1, times + i, err);
    return s;
}

/* Times texts whose lengths go in equal steps from 2 * mean - tokens to tokens; mean 0: all as long. */
static FtxStatus measure_texts(Bench *b, int repeat, double *times, FtxError *err)
{
    FtxEngine *e = b->engine;
    FtxRow *rows = engine_io(e, FTX_NAMED_rows);
    FtxToken *token = engine_io(e, FTX_NAMED_token);
    FtxStep *step = engine_io(e, FTX_NAMED_step);
    const int mean = b->context ? b->context : b->tokens, least = 2 * mean > b->tokens ? 2 * mean - b->tokens : 1;
    uint32_t program;
    FtxStatus s = e->api->wait(e->session, err);

    *step = (FtxStep){.rows = b->sequences};
    for (int i = 0; i < b->sequences; i++) {
        const int n = least + (b->tokens - least) * (2 * i + 1) / (2 * b->sequences);

        if (step->tokens + n > (int)e->facts->tokens)
            return ftx_fail(err, FTX_EINVAL, "%d texts have more than the %u tokens of a step", b->sequences,
                            e->facts->tokens);
        rows[i] = (FtxRow){
            .q_start = step->tokens, .q_len = n, .kv_len = n, .slot = i, .src_len = n, .src_slot = i, .group = i};
        for (int k = 0; k < n; k++)
            token[step->tokens++] =
                (FtxToken){(int)(((uint32_t)k * 7919u + (uint32_t)i * 104729u) % e->facts->vocab), k, i, 0};
    }
    program = schedule_found_program(&e->encode, step->tokens);
    if (!s)
        s = e->api->upload(e->session, schedule_live_bytes(e, step->tokens, 0), err);
    if (!s) /* warm */
        s = e->api->time(e->session, program, step->tokens, b->sequences, 1, times, err);
    if (!s)
        s = e->api->time(e->session, program, step->tokens, b->sequences, repeat, times, err);
    return s ? s : e->api->wait(e->session, err);
}

/* Insertion sort: at most a thousand values, and qsort may allocate. */
static void sort(double *v, int n)
{
    for (int i = 1; i < n; i++) {
        const double x = v[i];
        int k = i;

        for (; k && v[k - 1] > x; k--)
            v[k] = v[k - 1];
        v[k] = x;
    }
}

static void report(double *times, int n, double *median_us, double *least_us, double *most_us)
{
    sort(times, n);
    *median_us = n % 2 ? times[n / 2] : 0.5 * (times[n / 2 - 1] + times[n / 2]);
    *least_us = times[0];
    *most_us = times[n - 1];
}

/* Times what is made up for decode steps, prompts or a mixed step. */
static FtxStatus run(Bench *b, int repeat, double *median_us, double *least_us, double *most_us, FtxError *err)
{
    double times[MAX_REPEAT];
    FtxStatus s = place(b, err);

    if (s)
        return s;
    s = b->prompt        ? measure_mixed(b, repeat, times, err)
        : b->tokens == 1 ? measure_decode(b, repeat, times, err)
                         : measure_prompt(b, repeat, times, err);
    leave(b);
    b->engine->flight = (Flight){.row = b->engine->flight.row};
    if (!s)
        report(times, repeat, median_us, least_us, most_us);
    return s;
}

FtxStatus ftx_engine_bench(FtxEngine *e, int sequences, int tokens, int context, int repeat, double *median_us,
                           double *least_us, double *most_us, FtxError *err)
{
    double times[MAX_REPEAT];
    Bench b = {.engine = e, .sequences = sequences, .tokens = tokens, .context = context};
    FtxStatus s = check_idle(e, repeat, err);

    if (!s)
        s = check_bench(e, sequences, tokens, context, err);
    if (s || e->facts->kind != FTX_MODEL_ENCODER)
        return s ? s : run(&b, repeat, median_us, least_us, most_us, err);
    s = measure_texts(&b, repeat, times, err);
    if (!s)
        report(times, repeat, median_us, least_us, most_us);
    return s;
}

FtxStatus ftx_engine_bench_mixed(FtxEngine *e, int sequences, int context, int prompt, int repeat, double *median_us,
                                 double *least_us, double *most_us, FtxError *err)
{
    Bench b = {.engine = e, .sequences = sequences, .tokens = 1, .context = context, .prompt = prompt};
    FtxStatus s = check_idle(e, repeat, err);

    if (!s)
        s = check_mixed(e, sequences, context, prompt, err);
    return s ? s : run(&b, repeat, median_us, least_us, most_us, err);
}
