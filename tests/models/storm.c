/* storm.c - runs storms: requests alone, then all of them in random order; compares what each gave. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storm.h"

static void __attribute__((format(printf, 2, 3), noreturn)) storm_fail(const Storm *s, const char *form, ...)
{
    va_list args;

    va_start(args, form);
    fprintf(stderr, "%s: ", s->name);
    vfprintf(stderr, form, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(1); /* ends the process without freeing anything */
}

/* Keeps the first difference of a storm. */
static void __attribute__((format(printf, 2, 3))) differs(Storm *s, const char *form, ...)
{
    va_list args;

    if (s->text[0])
        return;
    va_start(args, form);
    vsnprintf(s->text, sizeof s->text, form, args);
    va_end(args);
}

/* --- results ------------------------------------------------------------------------------------------ */

static void __attribute__((format(printf, 3, 4))) log_add(StormLog *l, StormPart part, const char *form, ...)
{
    size_t *n = &l->n[part];
    va_list args;

    va_start(args, form);
    *n += (size_t)vsnprintf(l->at[part] + *n, *n < STORM_LOG_BYTES ? STORM_LOG_BYTES - *n : 0, form, args);
    va_end(args);
    if (*n >= STORM_LOG_BYTES)
        abort(); /* STORM_LOG_BYTES is too small */
}

static uint64_t text_sum(const char *at, size_t n)
{
    uint64_t sum = 14695981039346656037u; /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        sum = (sum ^ (uint8_t)at[i]) * 1099511628211u;
    return sum;
}

static uint64_t sum_of(uint64_t sum, const float *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &at[i], sizeof bits);
        sum = (sum ^ bits) * 1099511628211u;
    }
    return sum;
}

static void log_hypotheses(const Storm *s, const StormJob *j, StormLog *l, const FtxEvent *e)
{
    const int most = j->request.n_best ? j->request.n_best : 1;
    size_t n;
    const FtxHypothesis *h = ftx_engine_hypotheses(s->engine, e->request, &n);

    if (n != e->hypotheses || n > (size_t)most)
        storm_fail(s, "%zu hypotheses, an event says %zu, asked for were %d", n, e->hypotheses, most);
    for (size_t i = 0; i < n; i++) {
        log_add(l, STORM_TOKENS, "\n  %zu ids, finish %d:", h[i].count, (int)h[i].finish);
        log_add(l, STORM_NUMBERS, "\n  score %a, sum %a:", (double)h[i].score, (double)h[i].logprob);
        for (size_t k = 0; k < h[i].count; k++) {
            log_add(l, STORM_TOKENS, " %d", h[i].ids[k]);
            log_add(l, STORM_NUMBERS, " %a", h[i].logprobs ? (double)h[i].logprobs[k] : 0.0);
        }
    }
}

/* Logs a checksum of the prompt's logits, as soon as they exist. */
static void log_logits(const Storm *s, const StormJob *j, StormLog *l)
{
    const float *logits = j->with_logits ? ftx_engine_logits(s->engine, j->id) : NULL;
    uint64_t sum = 14695981039346656037u; /* FNV-1a */

    for (int i = 0; logits && i < s->info.vocab; i++) {
        uint32_t bits;

        memcpy(&bits, &logits[i], sizeof bits);
        sum = (sum ^ bits) * 1099511628211u;
    }
    log_add(l, STORM_NUMBERS, "logits %llx;", logits ? (unsigned long long)sum : 0);
}

/* Checksums of log-probabilities, a word for each token. */
static void log_tokens(StormLog *l, size_t first, const float *logprobs, const FtxTop *top, size_t n, size_t top_count)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t sum = 14695981039346656037u;

        for (size_t k = 0; k < top_count; k++) {
            sum = sum_of(sum, &top[i * 20 + k].logprob, 1);
            sum = (sum ^ (uint64_t)top[i * 20 + k].id) * 1099511628211u;
        }
        log_add(l, STORM_NUMBERS, " %zu:%a:%llx", first + i, (double)logprobs[i], (unsigned long long)sum);
    }
}

static void take_event(const Storm *s, const FtxEvent *e)
{
    StormJob *j = e->user;
    const int sample = e->sample - (j->request.samples > 1 ? j->request.sample : e->sample);
    StormLog *l;

    if (sample < 0 || sample >= j->samples || e->request != j->id)
        storm_fail(s, "an event of request %llu, sample %d, which nobody submitted", (unsigned long long)e->request,
                   e->sample);
    l = &j->log[sample];
    if (l->ended)
        storm_fail(s, "sample %d of a request has an event after its end", sample);
    if (e->finish == FTX_FINISH_CANCEL) {
        l->ended = l->cancelled = true;
        return;
    }
    if (e->prompt_count) {
        log_tokens(l, e->prompt_first, e->prompt_logprobs, e->prompt_top, e->prompt_count, e->top_count);
        return;
    }
    if (!l->begun && sample == 0)
        log_logits(s, j, l);
    l->begun = true;
    if (e->top_count)
        log_tokens(l, 0, &e->logprob, e->top, 1, e->top_count);
    log_add(l, STORM_TOKENS, " %d", e->token);
    log_add(l, STORM_NUMBERS, " %a", (double)e->logprob);
    if (e->text_bytes)
        log_add(l, STORM_TOKENS, " %llx", (unsigned long long)text_sum(e->text, e->text_bytes));
    if (e->finish != FTX_RUNNING) {
        log_add(l, STORM_TOKENS, " finish %d, %zu found", (int)e->finish, e->hypotheses);
        if (j->request.beams > 1)
            log_hypotheses(s, j, l, e);
        l->ended = true;
    }
}

/* Each page is free, or held by somebody; a free one may be cached. Each request is in one list. */
static void check_lists(const Storm *s)
{
    const FtxEngine *e = s->engine;
    const uint32_t idle = e->pages.prefix ? e->pages.prefix->idle : 0;
    uint32_t held = 0;

    for (uint32_t i = 0; i < e->pages.all; i++)
        held += e->pages.users[i] > 0;
    if (held + e->pages.n != e->pages.all || idle > e->pages.n)
        storm_fail(s, "%u pages are held, %u free, %u of these cached; there are %u", held, e->pages.n, idle,
                   e->pages.all);
    if (e->waiting.n + e->running.n + e->ending.n + e->unused.n != e->requests)
        storm_fail(s, "%u requests wait, %u run, %u end, %u are unused; there are %u", e->waiting.n, e->running.n,
                   e->ending.n, e->unused.n, e->requests);
}

/* One step. The array has room for exactly as many events as a step may return. */
static void step(const Storm *s)
{
    const size_t most = s->engine->facts->sequences;
    FtxEvent *events = malloc(most * sizeof *events); /* ASan reports a write past its end */
    FtxError err;
    size_t n;

    if (events)
        events->size = sizeof *events;
    if (!events || ftx_engine_step(s->engine, events, most, &n, &err))
        storm_fail(s, "step: %s", err.text);
    if (n > most)
        storm_fail(s, "%zu events, there was room for %zu", n, most);
    for (size_t i = 0; i < n; i++)
        take_event(s, &events[i]);
    free(events);
    check_lists(s);
}

static void finish(const Storm *s)
{
    for (int i = 0; ftx_engine_busy(s->engine); i++) {
        if (i == 20000)
            storm_fail(s, "the engine is busy for ever");
        step(s);
    }
}

/* Checks that every slot, page and source is free, and none is free twice. */
static void check_idle(const Storm *s)
{
    const FtxEngine *e = s->engine;

    if (e->waiting.n || e->running.n || e->ending.n || e->unused.n != e->requests)
        storm_fail(s, "%u requests of %u are unused at the end", e->unused.n, e->requests);
    if (e->free_slots != e->slots || e->pages.n != e->pages.all)
        storm_fail(s, "%u of %u slots and %u of %u pages are free at the end", e->free_slots, e->slots, e->pages.n,
                   e->pages.all);
    if (s->prefix && s->engine == s->cold && ftx_engine_stats(e).cached_tokens)
        storm_fail(s, "the engine without a prefix cache has taken tokens from one");
    for (uint32_t i = 0; i < e->pages.n; i++)
        if (e->pages.users[i])
            storm_fail(s, "page %u has users at the end", i);
    if (e->facts->sources != e->free_sources)
        storm_fail(s, "%u of %u sources are free at the end", e->free_sources, e->facts->sources);
    for (uint32_t i = 0; i < e->free_sources; i++)
        for (uint32_t k = 0; k < i; k++)
            if (e->free_source[i] == e->free_source[k])
                storm_fail(s, "source %d is free twice", e->free_source[i]);
}

/* --- scores and vectors -------------------------------------------------------------------------------- */

static FtxStatus score_sum(FtxEngine *e, const int32_t *ids, size_t n, uint64_t *sum, FtxError *err)
{
    float logprobs[STORM_IDS];
    const FtxStatus status = ftx_engine_score(e, ids, n, logprobs, err);

    *sum = status ? 0 : sum_of(1, logprobs, n - 1);
    return status;
}

/* Scores random ids: the same ids give the same log-probabilities at any time. While requests run, scoring is refused
 * and changes nothing. */
static void score(Storm *s, int seed)
{
    StormScore *alone = &s->score[seed % (int)(sizeof s->score / sizeof *s->score)];
    uint64_t state = (uint64_t)seed * 977u, sum;
    int32_t ids[STORM_IDS];
    const int most = s->info.context < STORM_IDS ? s->info.context : STORM_IDS;
    const size_t n = 2 + storm_roll(&state, (unsigned)most - 2);
    FtxError err;

    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)storm_roll(&state, (unsigned)s->info.vocab);

    const bool busy = ftx_engine_busy(s->engine);
    const FtxStatus status = score_sum(s->engine, ids, n, &sum, &err);

    if (busy != (status == FTX_EINVAL))
        storm_fail(s, "score of a %s engine: %d, %s", busy ? "busy" : "idle", (int)status, err.text);
    if (busy)
        return;
    if (!alone->known && score_sum(s->cold, ids, n, &alone->sum, &err))
        storm_fail(s, "score alone: %s", err.text);
    alone->known = true;
    s->counts.scores++;
    if (alone->sum != sum) {
        s->counts.other_scores++;
        differs(s, "score %d gives other log-probabilities than alone", seed);
    }
}

enum { TEXTS = 4 };

typedef struct Texts {
    int32_t ids[TEXTS][STORM_IDS], lengths[TEXTS];
    bool bad[TEXTS];
} Texts;

static void make_texts(const Storm *s, uint64_t *state, Texts *t)
{
    const int most = s->info.context < STORM_IDS ? s->info.context : STORM_IDS;

    for (int i = 0; i < TEXTS; i++) {
        t->lengths[i] = 1 + (int)storm_roll(state, (unsigned)most);
        for (int k = 0; k < t->lengths[i]; k++)
            t->ids[i][k] = (int32_t)storm_roll(state, (unsigned)s->info.vocab);
        t->bad[i] = storm_roll(state, 4) == 0;
        if (t->bad[i])
            t->ids[i][storm_roll(state, (unsigned)t->lengths[i])] = s->info.vocab;
    }
}

/* Encodes some texts in one call, packed or padded, some of them invalid; then each alone. */
static void encode(Storm *s, int seed)
{
    uint64_t state = (uint64_t)seed * 7919u;
    const size_t width = (size_t)s->info.pooled;
    const bool padded = storm_roll(&state, 2);
    const size_t stride = padded ? STORM_IDS : 0;
    float *together = calloc(TEXTS * width, sizeof *together), *alone = calloc(width, sizeof *alone);
    int32_t packed[TEXTS * STORM_IDS], tokens[TEXTS];
    FtxError errors[TEXTS], err;
    Texts t;
    size_t n = 0;

    make_texts(s, &state, &t);
    for (int i = 0; i < TEXTS; i++) {
        memcpy(packed + (padded ? (size_t)i * stride : n), t.ids[i], (size_t)t.lengths[i] * sizeof **t.ids);
        n += (size_t)t.lengths[i];
    }

    FtxEncode job = {.size = sizeof(FtxEncode),
                     .count = TEXTS,
                     .ids = packed,
                     .lengths = t.lengths,
                     .stride = stride,
                     .pooled = together,
                     .tokens = tokens,
                     .errors = errors};

    if (!together || !alone || ftx_engine_encode(s->engine, &job, &err))
        storm_fail(s, "encode: %s", err.text);
    for (int i = 0; i < TEXTS; i++) {
        const FtxEncode one = {
            .size = sizeof(FtxEncode), .count = 1, .ids = t.ids[i], .lengths = &t.lengths[i], .pooled = alone};

        if (t.bad[i] != (errors[i].status == FTX_EINVAL) || tokens[i] != (t.bad[i] ? 0 : t.lengths[i]))
            storm_fail(s, "text %d of %d: status %d, %d tokens", i, TEXTS, (int)errors[i].status, tokens[i]);
        if (t.bad[i])
            continue;
        if (ftx_engine_encode(s->cold, &one, &err))
            storm_fail(s, "encode alone: %s", err.text);
        s->counts.vectors++;
        if (memcmp(alone, together + (size_t)i * width, width * sizeof *alone) != 0) {
            s->counts.other_vectors++;
            differs(s, "text %d of %d (seed %d) has another vector than alone", i, TEXTS, seed);
        }
    }
    free(together);
    free(alone);
}

/* --- a storm -------------------------------------------------------------------------------------------- */

void storm_make(Storm *s, uint64_t seed)
{
    const bool encoder = s->info.kind == FTX_MODEL_ENCODER;
    uint64_t budgets = seed * 31u;
    int next = 0;

    s->dice = seed;
    for (int i = 0; i < STORM_JOBS && !encoder; i++)
        storm_make_job(s, &s->job[i]);
    for (int i = 0; i < STORM_ACTIONS; i++) {
        const unsigned kind = storm_roll(&s->dice, 100);
        StormAction a = {STORM_STEP, 0};

        if (encoder)
            a = (StormAction){STORM_ENCODE, (int)storm_roll(&s->dice, 1000)};
        else if (kind < 20 && next < STORM_JOBS)
            a = (StormAction){STORM_SUBMIT, next++};
        else if (kind < 27 && next)
            a = (StormAction){STORM_CANCEL, (int)storm_roll(&s->dice, (unsigned)next)};
        else if (kind < 30 && s->info.kind == FTX_MODEL_DECODER)
            a = (StormAction){STORM_SCORE, (int)storm_roll(&s->dice, 64)};
        else if (storm_roll(&budgets, 2))
            a.n = 1 + (int)storm_roll(&budgets, (unsigned)s->info.step_tokens);
        s->action[i] = a;
    }
}

static FtxStatus submit(const Storm *s, StormJob *j, StormLog *log)
{
    FtxError err = {FTX_OK, ""};
    const FtxStatus status = ftx_engine_submit(s->engine, &j->request, &j->id, &err);

    if (status != err.status || (status && !err.text[0]))
        storm_fail(s, "submit gives %d and says %d, \"%s\"", (int)status, (int)err.status, err.text);
    j->log = log;
    return status;
}

/* A step has about so many tokens from now on, and never fewer than an eighth of its most; 0: as many as fit. */
static void set_budget(const Storm *s, int tokens)
{
    s->engine->pace = (Pace){0};
    if (tokens)
        s->engine->pace = (Pace){.target_us = tokens, .token_us = 1.0, .decode_us = {1e-3}, .rows = {1}, .n = 1};
}

static void act(Storm *s, const StormAction *a)
{
    StormJob *j = &s->job[a->n % STORM_JOBS];

    switch (a->kind) {
    case STORM_SUBMIT: {
        const FtxStatus status = submit(s, j, j->got);

        j->submitted = status == FTX_OK;
        if (status != j->status && status != FTX_EFULL)
            storm_fail(s, "job %d: submit gives %d, alone %d", a->n, (int)status, (int)j->status);
        break;
    }
    case STORM_CANCEL:
        if (j->submitted)
            ftx_engine_cancel(s->engine, j->id, NULL);
        break;
    case STORM_STEP:
        set_budget(s, a->n);
        step(s);
        break;
    case STORM_SCORE: score(s, a->n); break;
    case STORM_ENCODE: encode(s, a->n); break;
    }
}

static bool part_differs(const StormLog *alone, const StormLog *got, StormPart part)
{
    return got->n[part] > alone->n[part] || memcmp(got->at[part], alone->at[part], got->n[part]) != 0 ||
           (!got->cancelled && got->n[part] != alone->n[part]);
}

static void compare(Storm *s, int i)
{
    const StormJob *j = &s->job[i];

    for (int k = 0; k < j->samples; k++) {
        const StormLog *alone = &j->alone[k], *got = &j->got[k];
        const bool tokens = part_differs(alone, got, STORM_TOKENS), numbers = part_differs(alone, got, STORM_NUMBERS);

        if (!got->ended)
            storm_fail(s, "job %d, sample %d has not ended", i, k);
        s->counts.samples++;
        s->counts.tokens += tokens;
        s->counts.numbers += numbers && !tokens;
        if (tokens || numbers)
            differs(s, "job %d, sample %d%s gave\n%.900s\n%.900s\nand alone\n%.900s\n%.900s", i, k,
                    got->cancelled ? " (cancelled)" : "", got->at[STORM_TOKENS], got->at[STORM_NUMBERS],
                    alone->at[STORM_TOKENS], alone->at[STORM_NUMBERS]);
    }
}

bool storm_run(Storm *s, uint64_t seed)
{
    s->text[0] = 0;
    storm_make(s, seed);
    s->engine = s->cold;
    set_budget(s, 0);
    for (int i = 0; i < STORM_ACTIONS; i++) /* first each request of the storm alone */
        if (s->action[i].kind == STORM_SUBMIT && !(s->left_out && s->left_out[i])) {
            StormJob *j = &s->job[s->action[i].n];

            j->status = submit(s, j, j->alone);
            finish(s);
            check_idle(s);
        }
    s->engine = s->warm;
    for (int i = 0; i < STORM_ACTIONS; i++)
        if (!(s->left_out && s->left_out[i]))
            act(s, &s->action[i]);
    finish(s);
    for (int i = 0; i < STORM_JOBS; i++)
        if (s->job[i].submitted)
            compare(s, i);
    check_idle(s);
    s->counts.storms++;
    return s->text[0] == 0;
}

void storm_open(Storm *s, const char *name, FtxModel *model, FtxModel *alone, unsigned pages, bool prefix)
{
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxError err;

    *s = (Storm){.name = name, .model = alone ? alone : model, .prefix = prefix};
    ftx_model_info(s->model, &s->info);
    s->job = calloc(STORM_JOBS, sizeof *s->job);
    options.kv_bytes = pages * model->artifact.facts->kv_block * s->info.kv_token_bytes;
    if (!s->job || ftx_engine_open(s->model, &options, &s->cold, &err))
        storm_fail(s, "%s", err.text);
    s->engine = s->warm = s->cold;
    if (options.kv_bytes && s->engine->pages.all >= model->artifact.facts->kv_pages)
        storm_fail(s, "no fewer pages than the limits use");
    options.prefix_cache = options.overcommit = prefix;
    if ((prefix || s->model != model) && ftx_engine_open(model, &options, &s->warm, &err))
        storm_fail(s, "%s", err.text);
}

void storm_close(Storm *s)
{
    if (s->warm != s->cold)
        ftx_engine_close(s->warm);
    ftx_engine_close(s->cold);
    free(s->job);
}

/* --- a storm that fails, in few actions ----------------------------------------------------------------- */

void storm_print_action(const StormAction *a)
{
    static const char *const names[] = {"submit job", "cancel job", "step", "score", "encode"};

    printf("  %s %d\n", names[a->kind], a->n);
}

int storm_shrink(bool (*fails)(void *user, const bool *left_out), void *user, bool *left_out)
{
    int left = 0;

    memset(left_out, 0, STORM_ACTIONS * sizeof *left_out);
    for (int chunk = STORM_ACTIONS / 2; chunk; chunk /= 2)
        for (int at = 0; at < STORM_ACTIONS; at += chunk) {
            bool before[STORM_ACTIONS];

            memcpy(before, left_out, sizeof before);
            for (int i = at; i < at + chunk && i < STORM_ACTIONS; i++)
                left_out[i] = true;
            if (!fails(user, left_out))
                memcpy(left_out, before, sizeof before);
        }
    for (int i = 0; i < STORM_ACTIONS; i++)
        left += !left_out[i];
    return left;
}
