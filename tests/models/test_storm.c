/* test_storm.c - random sequences of actions ("storms"): requests of every kind are submitted, cancelled and stepped
 * in random order, and the result of each equals, bit for bit, that of the request alone.
 *
 *   seed -> 24 requests, and a list of actions: submit, cancel, step, score, encode
 *        -> each request alone on an idle engine -> the storm -> compare -> check that all slots and pages are free
 *
 * Only the CPU guarantees equal bits. On a GPU (FTX_TEST_DEVICE=cuda) the kernels for few and for many rows sum in
 * different orders, so the last bits may differ.
 *
 * A storm that fails is repeated with fewer and fewer actions until none can be left out (delta debugging,
 * Zeller 2002), and the remaining actions are printed. Storms run in child processes.
 *
 *   FTX_STORM_SECONDS=20   time for all models together     FTX_STORM_SEED=17   only this storm, of every model
 *   FTX_STORM_THREADS=1    2: two engines of one model run storms in two threads (for ThreadSanitizer) */
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "golden.h"
#include "runtime/engine/engine.h"

enum { JOBS = 24, ACTIONS = 220, MAX_IDS = 48, MOST_SAMPLES = 4, LOG_BYTES = 20000, TEXTS = 4 };

static const struct {
    const char *spec, *name, *defines;
    unsigned pages; /* KV pages, set by FtxOptions.kv_bytes; 0: the default */
    bool prefix;    /* with FtxOptions.prefix_cache and overcommit; each request alone runs without them */
} models[] = {
    {"tests/models/tiny-llama", "storm-llama",
     "-D limits.sequences=4 -D limits.context=48 -D limits.tokens=12 -D kv.block_size=8 "
     "-D decode.width=3",
     16, false},
    {"tests/models/tiny-llama", "storm-llama-prefix",
     "-D limits.sequences=4 -D limits.context=48 -D limits.tokens=12 -D kv.block_size=8 "
     "-D decode.width=3",
     16, true},
    {"tests/models/tiny-llama", "storm-llama-int8",
     "-D limits.sequences=4 -D limits.context=48 -D limits.tokens=12 -D kv.block_size=8 "
     "-D decode.width=3 -D precision.kv=int8",
     16, true},
    {"tests/models/tiny-mistral", "storm-mistral",
     "-D limits.sequences=3 -D limits.context=40 -D limits.tokens=40 -D kv.block_size=8 -D kv.pages=12", 0, false},
    {"tests/models/tiny-gpt2", "storm-gpt2",
     "-D limits.sequences=5 -D limits.context=48 -D limits.tokens=9 -D kv.block_size=16 "
     "-D decode.width=2",
     9, false},
    {"tests/models/tiny-gpt2", "storm-gpt2-prefix",
     "-D limits.sequences=5 -D limits.context=48 -D limits.tokens=9 -D kv.block_size=8", 16, true},
    {"tests/models/tiny-bart", "storm-bart",
     "-D limits.sequences=6 -D limits.context=32 -D limits.source=24 -D limits.tokens=26 -D limits.sources=3 "
     "-D kv.block_size=8 -D decode.width=3",
     0, false},
    {"tests/models/tiny-marian", "storm-marian",
     "-D limits.sequences=4 -D limits.context=24 -D limits.source=16 -D limits.tokens=40 -D kv.block_size=8 "
     "-D decode.width=2",
     10, false},
    {"tests/models/tiny-bert", "storm-bert", "-D limits.sequences=4 -D limits.context=32 -D limits.tokens=40", 0,
     false},
};

/* The result of one sample as text. Equal texts mean that the results are equal bit for bit. */
typedef struct Log {
    char at[LOG_BYTES];
    size_t n;
    bool begun, ended, cancelled;
} Log;

typedef struct Job {
    FtxRequest request;
    int32_t ids[MAX_IDS], stop_ids[2], bias_ids[2], bad_ids[4], prefix[4];
    float bias[2];
    size_t bad_lengths[2];
    int samples;
    uint64_t id;
    bool submitted, with_logits;
    FtxStatus status; /* of the submit on the idle engine */
    Log alone[MOST_SAMPLES], got[MOST_SAMPLES];
    Log *log; /* events are written here: alone or got */
} Job;

typedef enum ActionKind { SUBMIT, CANCEL, STEP, SCORE, ENCODE } ActionKind;

typedef struct Action {
    ActionKind kind;
    int n; /* SUBMIT, CANCEL: index of the job. SCORE, ENCODE: seed of the input */
} Action;

typedef struct Storm {
    const char *name;
    FtxModel *model;
    FtxModelInfo info;
    FtxEngine *engine, *warm, *cold; /* the one in use; that of the storm; that of each request alone */
    bool prefix;
    uint64_t dice;
    Job *job; /* [JOBS] */
    Action action[ACTIONS];
    const bool *left_out; /* [ACTIONS], or NULL */
} Storm;

static void __attribute__((format(printf, 2, 3), noreturn)) storm_fail(const Storm *s, const char *form, ...)
{
    va_list args;

    va_start(args, form);
    fprintf(stderr, "%s: ", s->name);
    vfprintf(stderr, form, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(1); /* ends the child without freeing anything */
}

/* --- random numbers -------------------------------------------------------------------------------- */

static unsigned roll(uint64_t *state, unsigned sides)
{
    *state += 0x9e3779b97f4a7c15u; /* splitmix64, Steele et al. 2014 */

    uint64_t z = *state;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ z >> 31) % sides);
}

static unsigned dice(Storm *s, unsigned sides)
{
    return roll(&s->dice, sides);
}

static bool rarely(Storm *s, unsigned sides)
{
    return dice(s, sides) == 0;
}

static int32_t any_id(Storm *s)
{
    return (int32_t)dice(s, (unsigned)s->info.vocab);
}

/* --- requests --------------------------------------------------------------------------------------- */

static void set_sampling(Storm *s, FtxRequest *q)
{
    static const int top_k[] = {0, 0, 1, 3, 8, 20, 50};
    static const float top_p[] = {1.0f, 1.0f, 0.95f, 0.5f, 0.1f};

    q->temperature = rarely(s, 3) ? 0.0f : 0.3f + 0.1f * (float)dice(s, 20);
    q->top_k = top_k[dice(s, 7)] < s->info.max_top_k ? top_k[dice(s, 7)] : s->info.max_top_k;
    if (q->top_k > s->info.max_top_k)
        q->top_k = s->info.max_top_k;
    q->top_p = top_p[dice(s, 5)];
    q->min_p = rarely(s, 4) ? 0.05f : 0.0f;
    q->typical_p = rarely(s, 6) ? 0.7f : 1.0f;
    if (rarely(s, 3))
        q->samples = 1 + (int)dice(s, (unsigned)(s->info.sequences < MOST_SAMPLES ? s->info.sequences : MOST_SAMPLES));
    q->sample = rarely(s, 5) ? 3 : 0;
}

static void set_beams(Storm *s, FtxRequest *q)
{
    q->beams = 2 + (int)dice(s, (unsigned)s->info.max_beams - 1);
    q->n_best = (int)dice(s, (unsigned)q->beams + 1);
    q->length_penalty = 0.5f * (float)((int)dice(s, 5) - 1);
    q->early_stopping = (FtxEarly)dice(s, 3);
    if (rarely(s, 3)) {
        q->beam_groups = q->beams;
        q->diversity_rate = 0.5f;
    }
}

static void set_processors(Storm *s, Job *j)
{
    FtxRequest *q = &j->request;

    q->repetition_penalty = rarely(s, 3) ? 1.3f : 1.0f;
    q->repetition_window = rarely(s, 2) ? 1 + (int)dice(s, 6) : 0;
    q->presence_penalty = rarely(s, 4) ? 0.4f : 0.0f;
    q->frequency_penalty = rarely(s, 4) ? -0.2f : 0.0f;
    q->no_repeat_ngram = rarely(s, 4) ? 1 + (int)dice(s, 3) : 0;
    for (int i = 0; i < 2; i++) {
        j->bias_ids[i] = any_id(s);
        j->bias[i] = rarely(s, 2) ? 4.0f : -3.0f;
    }
    q->bias_ids = j->bias_ids;
    q->bias_values = j->bias;
    q->bias_count = rarely(s, 3) ? 1 + dice(s, 2) : 0;
    for (int i = 0; i < 4; i++)
        j->bad_ids[i] = any_id(s);
    j->bad_lengths[0] = 1 + dice(s, 2);
    j->bad_lengths[1] = 1;
    q->bad_ids = j->bad_ids;
    q->bad_lengths = j->bad_lengths;
    q->bad_count = rarely(s, 4) ? 1 + dice(s, 2) : 0;
}

/* Most prompts begin with a part of one of three texts, some with a whole one. */
static void share_beginning(Storm *s, Job *j)
{
    const unsigned text = dice(s, 3);
    const size_t n = dice(s, (unsigned)s->info.context - 6);

    if (j->request.ids_count < n)
        j->request.ids_count = n + dice(s, 6);
    for (size_t i = 0; i < n; i++)
        j->ids[i] = (int32_t)((i * 7 + text * 31) % (unsigned)s->info.vocab);
    j->request.cache_salt = rarely(s, 6);
}

/* A grammar: the token before and the number of tokens decide which may follow; after some texts none may. */
static bool allow(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    const int vocab = *(const int *)user;
    const unsigned last = count ? (unsigned)ids[count - 1] : (unsigned)sample;

    for (int id = 0; id < vocab; id++)
        if (((unsigned)id * 7 + last * 13 + (unsigned)count) % 5 < 2)
            bits[id / 32] |= 1u << id % 32;
    return count < 5 || last % 8;
}

static void set_wishes(Storm *s, FtxRequest *q)
{
    q->priority = (int)dice(s, 3) - 1;
    q->fair_key = dice(s, 3);
    if (q->beams > 1)
        return;
    q->top_logprobs = rarely(s, 3) ? (int)dice(s, 21) : 0;
    q->prompt_logprobs = s->info.kind == FTX_MODEL_DECODER && rarely(s, 5);
    q->mask = rarely(s, 5) ? allow : NULL;
    q->mask_user = &s->info.vocab;
}

/* Makes a random request, which now and then is invalid. */
static void make_job(Storm *s, Job *j)
{
    const bool reads = s->info.kind == FTX_MODEL_SEQ2SEQ;
    const unsigned room = (unsigned)(reads ? s->info.source_context : s->info.context - 1);
    FtxRequest *q = &j->request;

    memset(j, 0, sizeof *j);
    *q = ftx_request_default(s->model);
    q->ids = j->ids;
    q->ids_count = 1 + dice(s, rarely(s, 3) ? room : 9);
    for (size_t i = 0; i < q->ids_count; i++)
        j->ids[i] = any_id(s);
    if (s->prefix)
        share_beginning(s, j);
    q->max_new = (int)dice(s, 12);
    if (q->max_new == 0 && !rarely(s, 4))
        q->max_new = 1;
    q->min_new = q->max_new > 2 && rarely(s, 3) ? 2 : 0;
    q->seed = dice(s, 1000);
    q->beams = 1;
    q->n_best = 0;
    q->ignore_eos = rarely(s, 4);
    for (int i = 0; i < 2; i++)
        j->stop_ids[i] = any_id(s);
    q->stop_ids = j->stop_ids;
    q->stop_ids_count = dice(s, 3);
    if (reads && rarely(s, 3)) {
        for (int i = 0; i < 4; i++)
            j->prefix[i] = any_id(s);
        q->prefix = j->prefix;
        q->prefix_count = 1 + dice(s, 4);
    }
    set_processors(s, j);
    if (s->info.max_beams > 1 && rarely(s, 3))
        set_beams(s, q);
    else
        set_sampling(s, q);
    q->logprobs = rarely(s, 2);
    q->logits = j->with_logits = rarely(s, 4);
    set_wishes(s, q);
    if (rarely(s, 15)) { /* invalid: it is refused and must not affect others */
        const int mistake = (int)dice(s, 4);

        q->top_k = mistake == 0 ? s->info.max_top_k + 1 : q->top_k;
        q->max_new = mistake == 1 ? -1 : q->max_new;
        j->ids[0] = mistake == 2 ? s->info.vocab : j->ids[0];
        q->beams = mistake == 3 ? s->info.max_beams + 1 : q->beams;
    }
    j->samples = q->samples > 1 ? q->samples : 1;
    q->user = j;
}

/* --- results ------------------------------------------------------------------------------------------ */

static void __attribute__((format(printf, 2, 3))) log_add(Log *l, const char *form, ...)
{
    va_list args;

    va_start(args, form);
    l->n += (size_t)vsnprintf(l->at + l->n, l->n < LOG_BYTES ? LOG_BYTES - l->n : 0, form, args);
    va_end(args);
    if (l->n >= LOG_BYTES)
        abort(); /* LOG_BYTES is too small */
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

static void log_hypotheses(const Storm *s, const Job *j, Log *l, const FtxEvent *e)
{
    const int most = j->request.n_best ? j->request.n_best : 1;
    size_t n;
    const FtxHypothesis *h = ftx_engine_hypotheses(s->engine, e->request, &n);

    if (n != e->hypotheses || n > (size_t)most)
        storm_fail(s, "%zu hypotheses, an event says %zu, asked for were %d", n, e->hypotheses, most);
    for (size_t i = 0; i < n; i++) {
        log_add(l, "\n  %zu ids, score %a, sum %a, finish %d:", h[i].count, (double)h[i].score, (double)h[i].logprob,
                (int)h[i].finish);
        for (size_t k = 0; k < h[i].count; k++)
            log_add(l, " %d %a", h[i].ids[k], h[i].logprobs ? (double)h[i].logprobs[k] : 0.0);
    }
}

/* Logs a checksum of the prompt's logits, as soon as they exist. */
static void log_logits(const Storm *s, const Job *j, Log *l)
{
    const float *logits = j->with_logits ? ftx_engine_logits(s->engine, j->id) : NULL;
    uint64_t sum = 14695981039346656037u; /* FNV-1a */

    for (int i = 0; logits && i < s->info.vocab; i++) {
        uint32_t bits;

        memcpy(&bits, &logits[i], sizeof bits);
        sum = (sum ^ bits) * 1099511628211u;
    }
    log_add(l, "logits %llx;", logits ? (unsigned long long)sum : 0);
}

/* Checksums of log-probabilities, a word for each token. */
static void log_tokens(Log *l, size_t first, const float *logprobs, const FtxTop *top, size_t n, size_t top_count)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t sum = 14695981039346656037u;

        for (size_t k = 0; k < top_count; k++) {
            sum = sum_of(sum, &top[i * 20 + k].logprob, 1);
            sum = (sum ^ (uint64_t)top[i * 20 + k].id) * 1099511628211u;
        }
        log_add(l, " %zu:%a:%llx", first + i, (double)logprobs[i], (unsigned long long)sum);
    }
}

static void take_event(const Storm *s, const FtxEvent *e)
{
    Job *j = e->user;
    const int sample = e->sample - (j->request.samples > 1 ? j->request.sample : e->sample);
    Log *l;

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
    log_add(l, " %d/%a", e->token, (double)e->logprob);
    if (e->finish != FTX_RUNNING) {
        log_add(l, " finish %d, %zu found", (int)e->finish, e->hypotheses);
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
    const size_t most = (size_t)s->info.sequences;
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

/* Scores random ids: the same ids give the same log-probabilities at any time. While requests run, scoring is refused
 * and changes nothing. */
static void score(const Storm *s, int seed)
{
    static const int known = 64;
    static uint64_t first[64];
    uint64_t dice_state = (uint64_t)seed * 977u, sum = 1;
    int32_t ids[MAX_IDS];
    float logprobs[MAX_IDS];
    const size_t n = 2 + roll(&dice_state, (unsigned)s->info.context - 2);
    FtxError err;

    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)roll(&dice_state, (unsigned)s->info.vocab);

    const bool busy = ftx_engine_busy(s->engine);
    const FtxStatus status = ftx_engine_score(s->engine, ids, n, logprobs, &err);

    if (busy != (status == FTX_EINVAL))
        storm_fail(s, "score of a %s engine: %d, %s", busy ? "busy" : "idle", (int)status, err.text);
    if (busy)
        return;
    sum = sum_of(sum, logprobs, n - 1);
    if (seed >= known)
        return;
    if (!__atomic_load_n(&first[seed], __ATOMIC_RELAXED))
        __atomic_store_n(&first[seed], sum, __ATOMIC_RELAXED);
    if (first[seed] != sum)
        storm_fail(s, "score %d gives other log-probabilities than before", seed);
}

typedef struct Texts {
    int32_t ids[TEXTS][MAX_IDS], lengths[TEXTS];
    bool bad[TEXTS];
} Texts;

static void make_texts(const Storm *s, uint64_t *state, Texts *t)
{
    for (int i = 0; i < TEXTS; i++) {
        t->lengths[i] = 1 + (int)roll(state, (unsigned)s->info.context);
        for (int k = 0; k < t->lengths[i]; k++)
            t->ids[i][k] = (int32_t)roll(state, (unsigned)s->info.vocab);
        t->bad[i] = roll(state, 4) == 0;
        if (t->bad[i])
            t->ids[i][roll(state, (unsigned)t->lengths[i])] = s->info.vocab;
    }
}

/* Encodes some texts in one call, packed or padded, some of them invalid; then each alone. */
static void encode(const Storm *s, int seed)
{
    uint64_t state = (uint64_t)seed * 7919u;
    const size_t width = (size_t)s->info.pooled;
    const bool padded = roll(&state, 2);
    const size_t stride = padded ? MAX_IDS : 0;
    float *together = calloc(TEXTS * width, sizeof *together), *alone = calloc(width, sizeof *alone);
    int32_t packed[TEXTS * MAX_IDS], tokens[TEXTS];
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
        if (ftx_engine_encode(s->engine, &one, &err))
            storm_fail(s, "encode alone: %s", err.text);
        if (memcmp(alone, together + (size_t)i * width, width * sizeof *alone) != 0)
            storm_fail(s, "text %d of %d has another vector than alone", i, TEXTS);
    }
    free(together);
    free(alone);
}

/* --- a storm -------------------------------------------------------------------------------------------- */

static void make_storm(Storm *s, uint64_t seed)
{
    const bool encoder = s->info.kind == FTX_MODEL_ENCODER;
    int next = 0;

    s->dice = seed;
    for (int i = 0; i < JOBS && !encoder; i++)
        make_job(s, &s->job[i]);
    for (int i = 0; i < ACTIONS; i++) {
        const unsigned kind = dice(s, 100);
        Action a = {STEP, 0};

        if (encoder)
            a = (Action){ENCODE, (int)dice(s, 1000)};
        else if (kind < 20 && next < JOBS)
            a = (Action){SUBMIT, next++};
        else if (kind < 27 && next)
            a = (Action){CANCEL, (int)dice(s, (unsigned)next)};
        else if (kind < 30 && s->info.kind == FTX_MODEL_DECODER)
            a = (Action){SCORE, (int)dice(s, 64)};
        s->action[i] = a;
    }
}

static FtxStatus submit(const Storm *s, Job *j, Log *log)
{
    FtxError err = {FTX_OK, ""};
    const FtxStatus status = ftx_engine_submit(s->engine, &j->request, &j->id, &err);

    if (status != err.status || (status && !err.text[0]))
        storm_fail(s, "submit gives %d and says %d, \"%s\"", (int)status, (int)err.status, err.text);
    j->log = log;
    return status;
}

static void act(const Storm *s, const Action *a)
{
    Job *j = &s->job[a->n % JOBS];

    switch (a->kind) {
    case SUBMIT: {
        const FtxStatus status = submit(s, j, j->got);

        j->submitted = status == FTX_OK;
        if (status != j->status && status != FTX_EFULL)
            storm_fail(s, "job %d: submit gives %d, alone %d", a->n, (int)status, (int)j->status);
        break;
    }
    case CANCEL:
        if (j->submitted)
            ftx_engine_cancel(s->engine, j->id, NULL);
        break;
    case STEP: step(s); break;
    case SCORE: score(s, a->n); break;
    case ENCODE: encode(s, a->n); break;
    }
}

static void compare(const Storm *s, int i)
{
    const Job *j = &s->job[i];

    for (int k = 0; k < j->samples; k++) {
        const Log *alone = &j->alone[k], *got = &j->got[k];

        if (!got->ended)
            storm_fail(s, "job %d, sample %d has not ended", i, k);
        if (got->n > alone->n || memcmp(got->at, alone->at, got->n) != 0 || (!got->cancelled && got->n != alone->n))
            storm_fail(s, "job %d, sample %d%s gave\n%s\nand alone\n%s", i, k, got->cancelled ? " (cancelled)" : "",
                       got->at, alone->at);
    }
}

static void run_storm(Storm *s, uint64_t seed)
{
    make_storm(s, seed);
    s->engine = s->cold;
    for (int i = 0; i < ACTIONS; i++) /* first each request of the storm alone */
        if (s->action[i].kind == SUBMIT && !(s->left_out && s->left_out[i])) {
            Job *j = &s->job[s->action[i].n];

            j->status = submit(s, j, j->alone);
            finish(s);
            check_idle(s);
        }
    s->engine = s->warm;
    for (int i = 0; i < ACTIONS; i++)
        if (!(s->left_out && s->left_out[i]))
            act(s, &s->action[i]);
    finish(s);
    for (int i = 0; i < JOBS; i++)
        if (s->job[i].submitted)
            compare(s, i);
    check_idle(s);
}

/* --- processes -------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct Shared { /* memory shared with the child process */
    uint64_t seed, storms;
    bool left_out[ACTIONS];
} Shared;

static int threads_wanted(void)
{
    const char *n = getenv("FTX_STORM_THREADS");

    return n ? atoi(n) : 1;
}

/* The model's row of models[]. */
static size_t row_of(const Storm *s)
{
    size_t i = 0;

    while (strcmp(models[i].name, s->name) != 0)
        i++;
    return i;
}

static void open_storm(Storm *s, const char *name, FtxModel *model)
{
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxError err;

    *s = (Storm){.name = name, .model = model};
    ftx_model_info(model, &s->info);
    s->job = calloc(JOBS, sizeof *s->job);
    s->prefix = models[row_of(s)].prefix;
    options.kv_bytes = models[row_of(s)].pages * model->artifact.facts->kv_block * s->info.kv_token_bytes;
    if (!s->job || ftx_engine_open(model, &options, &s->engine, &err))
        storm_fail(s, "%s", err.text);
    s->warm = s->cold = s->engine;
    options.prefix_cache = options.overcommit = 1;
    if (s->prefix && ftx_engine_open(model, &options, &s->warm, &err))
        storm_fail(s, "%s", err.text);
    if (options.kv_bytes && s->engine->pages.all >= model->artifact.facts->kv_pages)
        storm_fail(s, "no fewer pages than the limits use");
}

static void close_storm(Storm *s)
{
    if (s->prefix)
        ftx_engine_close(s->warm);
    ftx_engine_close(s->cold);
    free(s->job);
}

typedef struct Beside {
    const char *name;
    FtxModel *model;
    uint64_t seed;
} Beside;

static void *storm_beside(void *user)
{
    const Beside *b = user;
    Storm s;

    open_storm(&s, b->name, b->model);
    run_storm(&s, b->seed);
    close_storm(&s);
    return NULL;
}

static FtxModel *open_model(const char *name)
{
    const FtxOptions options = {
        .size = sizeof(FtxOptions), .device = golden_on_cuda() ? FTX_DEVICE_CUDA : FTX_DEVICE_CPU, .threads = 1};
    char path[1000];
    FtxModel *model;
    FtxError err;

    golden_path(name, path, sizeof path);
    if (ftx_model_open(path, &options, &model, &err)) {
        fprintf(stderr, "%s: %s\n", path, err.text);
        _exit(1);
    }
    return model;
}

/* Runs storms with seeds shared->seed, + 1, ...: at most `count`, at least one, none begun after time `until`. Runs in
 * a child process. */
static void storms(const char *name, Shared *shared, uint64_t count, double until, const bool *left_out)
{
    FtxModel *model = open_model(name);
    Storm s;

    open_storm(&s, name, model);
    s.left_out = left_out;
    for (uint64_t i = 0; i < count && (i == 0 || now() < until); i++, shared->seed++) {
        Beside beside = {name, model, shared->seed + 1000003u};
        pthread_t thread;
        const bool two = threads_wanted() > 1;

        if (two && pthread_create(&thread, NULL, storm_beside, &beside))
            storm_fail(&s, "no thread");
        run_storm(&s, shared->seed);
        if (two)
            pthread_join(thread, NULL);
        shared->storms++;
    }
    close_storm(&s);
    ftx_model_close(model);
}

/* Whether these storms fail in a child process. quiet: hides the child's messages. */
static bool fails(const char *name, Shared *shared, uint64_t count, double until, const bool *left_out, bool quiet)
{
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        if (quiet && !freopen("/dev/null", "w", stderr))
            _exit(1);
        storms(name, shared, count, until, left_out);
        exit(0); /* not _exit(): the leak checker runs at exit */
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return status != 0;
}

static void print_action(const Action *a)
{
    static const char *const names[] = {"submit job", "cancel job", "step", "score", "encode"};

    print_message("  %s %d\n", names[a->kind], a->n);
}

/* Runs `work` in a child process. The parent never opens a model, since the CUDA driver, once initialised, cannot be
 * used after fork(). */
static void in_child(void (*work)(const void *user), const void *user)
{
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        work(user);
        exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

static void compile_model(const void *user)
{
    const size_t i = *(const size_t *)user;

    ftx_model_close(golden_open(models[i].spec, models[i].name, models[i].defines));
}

typedef struct Left {
    const char *name;
    uint64_t seed;
    const bool *left_out;
} Left;

static void print_left(const void *user)
{
    const Left *l = user;
    FtxModel *model = open_model(l->name);
    Storm s;

    open_storm(&s, l->name, model);
    make_storm(&s, l->seed);
    for (int i = 0; i < ACTIONS; i++)
        if (!l->left_out[i])
            print_action(&s.action[i]);
    close_storm(&s);
    ftx_model_close(model);
}

/* Leaves out halves, quarters ... of the actions while the storm still fails; prints the remaining ones. */
static void shrink(const char *name, Shared *shared, uint64_t seed)
{
    const Left left = {name, seed, shared->left_out};
    int n = 0;

    memset(shared->left_out, 0, sizeof shared->left_out);
    for (int chunk = ACTIONS / 2; chunk; chunk /= 2)
        for (int at = 0; at < ACTIONS; at += chunk) {
            bool before[ACTIONS];

            memcpy(before, shared->left_out, sizeof before);
            for (int i = at; i < at + chunk && i < ACTIONS; i++)
                shared->left_out[i] = true;
            shared->seed = seed;
            if (!fails(name, shared, 1, 0.0, shared->left_out, true))
                memcpy(shared->left_out, before, sizeof before);
        }
    print_message("%s: storm %llu fails with these actions alone:\n", name, (unsigned long long)seed);
    in_child(print_left, &left);
    for (int i = 0; i < ACTIONS; i++)
        n += !shared->left_out[i];
    shared->seed = seed;
    fails(name, shared, 1, 0.0, shared->left_out, false);
    fail_msg("%s: FTX_STORM_SEED=%llu repeats it; %d actions of %d are needed", name, (unsigned long long)seed, n,
             ACTIONS);
}

static void storm_all(void **state)
{
    const char *seconds = getenv("FTX_STORM_SECONDS"), *only = getenv("FTX_STORM_SEED");
    const double each = (seconds ? atof(seconds) : 12.0) / (sizeof models / sizeof *models);
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(shared != MAP_FAILED);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        in_child(compile_model, &i);
        *shared = (Shared){.seed = only ? strtoull(only, NULL, 10) : 1};
        if (fails(models[i].name, shared, only ? 1 : UINT64_MAX, now() + each, NULL, false))
            shrink(models[i].name, shared, shared->seed);
        assert_true(shared->storms > 0);
        print_message("%s: %llu storms, from seed %s\n", models[i].name, (unsigned long long)shared->storms,
                      only ? only : "1");
    }
    munmap(shared, sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(storm_all)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
