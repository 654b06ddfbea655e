/* request.c - checks a submitted request field by field and copies it into memory that was planned for it. */
#include <string.h>

#include "engine.h"
#include "../../kernels/device/mask.h"
#include "../base/sized.h"
#include "../base/utf8.h"

/* The defaults of the model's requests. */
static FtxRequest defaults(const FtxModel *model)
{
    const FtxDecode *d = &model->artifact.facts->decode;
    FtxRequest q = {.size = sizeof q, .forced_bos = d->forced_bos, .forced_eos = d->forced_eos};

#define DECODE(name, type, ...) q.name = d->name;
#include "../decode.def"
#undef DECODE
    return q;
}

FtxStatus ftx_request_fill(const FtxModel *model, FtxRequest *request, FtxError *err)
{
    const FtxRequest q = defaults(model);
    const FtxStatus s = sized_check("FtxRequest", request->size, err);

    if (!s)
        sized_write(request, request->size, &q, sizeof q);
    return s;
}

FtxStatus request_read(const FtxModel *model, const FtxRequest *from, FtxRequest *q, FtxError *err)
{
    *q = defaults(model);
    return sized_read("FtxRequest", from, q, sizeof *q, err);
}

/* --- settings ------------------------------------------------------------------------------------- */

static FtxStatus check_number(const char *field, float v, double low, double high, FtxError *err)
{
    if (v >= (float)low && v <= (float)high) /* false for NaN */
        return FTX_OK;
    return ftx_fail(err, FTX_EINVAL, "%s: expected %g to %g, found %g", field, low, high, (double)v);
}

static FtxStatus check_count(const char *field, int64_t v, int64_t low, int64_t high, FtxError *err)
{
    if (v >= low && v <= high)
        return FTX_OK;
    return ftx_fail(err, FTX_EINVAL, "%s: expected %lld to %lld, found %lld", field, (long long)low, (long long)high,
                    (long long)v);
}

static FtxStatus check_early(const char *field, int v, int64_t low, int64_t high, FtxError *err)
{
    if (v >= low && v <= high)
        return FTX_OK;
    return ftx_fail(err, FTX_EINVAL, "%s: expected false, true or never (FtxEarly), found %d", field, v);
}

/* A setting against its compiled maximum, which a field of the spec raises. */
static FtxStatus check_compiled(const char *field, int v, uint32_t most, const char *spec_field, FtxError *err)
{
    if (v <= (int)most)
        return FTX_OK;
    return ftx_fail(err, FTX_EINVAL,
                    "%s: expected 0 to %u, found %d: this artifact was compiled for at most %u; compile it again with "
                    "-D %s=%d",
                    field, most, v, most, spec_field, v);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static FtxStatus check_settings(const FtxEngine *e, const FtxRequest *q, FtxError *err)
{
    const FtxFacts *f = e->facts;
    const int longest = q->max_new && q->max_new < (int)f->context ? q->max_new : (int)f->context;
    FtxStatus s = FTX_OK;

#define CHECK_COUNT check_count
#define CHECK_NUMBER check_number
#define CHECK_EARLY check_early
#define DECODE(name, type, low, high, ...) \
    if (!s) \
        s = CHECK_##type(#name, q->name, low, high, err);
#include "../decode.def"
#undef DECODE
    if (!s)
        s = check_compiled("top_k", q->top_k, (uint32_t)f->decode.max_top_k, "decode.max_top_k", err);
    if (!s)
        s = check_compiled("samples", q->samples, e->slots, "limits.sequences", err);
    if (!s)
        s = check_compiled("beams", q->beams, f->beams > 1 ? f->beams : 1, "decode.width", err);
    if (!s)
        s = check_count("min_new", q->min_new, 0, longest, err);
    if (!s)
        s = check_count("max_prompt", q->max_prompt, 0, INT32_MAX, err);
    if (!s)
        s = check_count("forced_bos", q->forced_bos, -1, (int)f->vocab - 1, err);
    if (!s)
        s = check_count("forced_eos", q->forced_eos, -1, (int)f->vocab - 1, err);
    if (!s)
        s = check_count("deadline_ms", q->deadline_ms, 0, INT32_MAX, err);
    if (!s)
        s = check_count("top_logprobs", q->top_logprobs, 0, least(MOST_TOP, (int)f->vocab), err);
    if (!s)
        s = check_count("prompt_logprobs", q->prompt_logprobs, 0, 1, err);
    if (!s && q->prompt_logprobs && f->kind != FTX_MODEL_DECODER)
        return ftx_fail(err, FTX_EINVAL, "prompt_logprobs: the model reads a source, which has none");
    if (!s && q->prompt_logprobs && f->whole_prompts)
        return ftx_fail(err, FTX_EINVAL, "prompt_logprobs: the model sees a prompt whole, so its tokens have none");
    if (!s && q->beams > 1 && (q->top_logprobs || q->prompt_logprobs || q->mask))
        return ftx_fail(err, FTX_EINVAL, "top_logprobs, prompt_logprobs, mask: not with a beam search");
    if (!s && q->truncate != FTX_TRUNCATE_NONE && q->truncate != FTX_TRUNCATE_START && q->truncate != FTX_TRUNCATE_END)
        return ftx_fail(err, FTX_EINVAL, "truncate: expected none, start or end (FtxTruncate), found %d",
                        (int)q->truncate);
    return s;
}

static FtxStatus check_states(const FtxFacts *f, const FtxRequest *q, FtxError *err)
{
    if (q->states > FTX_STATES_TOKENS)
        return ftx_fail(err, FTX_EINVAL, "states: expected none, last, mean or tokens (FtxStates), found %zu",
                        q->states);
    if (!q->states)
        return FTX_OK;
    if (f->kind != FTX_MODEL_DECODER)
        return ftx_fail(err, FTX_EINVAL, "states: the model reads a source; only a decoder's are returned");
    if (!f->states)
        return ftx_fail(err, FTX_EINVAL,
                        "states: this artifact was compiled without them; compile it again with -D states=true");
    if (q->beams > 1 || q->samples > 1 || q->prompt_logprobs)
        return ftx_fail(err, FTX_EINVAL, "states: not with beams, several samples or prompt_logprobs");
    return FTX_OK;
}

/* No processor changes the logits, except the temperature. */
static bool is_plain(const Request *r, const FtxRequest *q)
{
    return q->repetition_penalty == 1.0f && q->presence_penalty == 0.0f && q->frequency_penalty == 0.0f &&
           q->no_repeat_ngram == 0 && q->min_new == 0 && q->bias_count == 0 && r->params.n_words == 0;
}

/* Processors only lower logits, so a token outside of the largest raw logits stays outside. */
static bool only_lowers(const FtxRequest *q)
{
    return q->repetition_penalty >= 1.0f && q->presence_penalty >= 0.0f && q->frequency_penalty >= 0.0f &&
           q->bias_count == 0;
}

/* FtxParams.top_needed: the next token depends only on this many largest raw logits and their ties. 0: on the whole
 * row. MANY stands for "rarely more". A forced id needs its log-probability whatever its rank, and typical sampling
 * needs all that top-k leaves: 0. */
static int needed_logits(const FtxFacts *f, const Request *r, const FtxRequest *q)
{
    enum { MANY = 128 };
    const bool plain = is_plain(r, q), typical = q->typical_p > 0.0f && q->typical_p < 1.0f;

    if (r->masked) /* segments are of logits before the mask */
        return 0;
    if (r->beam.width)
        return plain && r->beam.forced_bos < 0 && r->beam.forced_eos < 0 ? r->beam.width + r->params.n_ends : 0;
    if (q->temperature == 0.0f)
        return plain ? 1 : 0; /* many blocks search all logits faster than one a few */
    if (typical || q->top_k > MANY || q->top_k >= (int)f->vocab || !only_lowers(q))
        return 0;
    if (q->top_k == 0 &&
        (q->top_p < 1.0f || q->min_p == 0.0f)) /* segments give sums at the temperature, no log-probability */
        return plain && (q->temperature == 1.0f || !q->logprobs) ? MANY : 0;
    if (q->top_k == 0)
        return MANY;
    return !plain ? MANY : q->top_k == 1 ? 2 : q->top_k; /* 1 would lose ties */
}

static void fill_params(const FtxEngine *e, Request *r, const FtxRequest *q)
{
    r->params = (FtxParams){
        .temperature = r->beam.width ? 0.0f : q->temperature,
        .top_p = q->top_p,
        .min_p = q->min_p,
        .repetition = q->repetition_penalty,
        .presence = q->presence_penalty,
        .frequency = q->frequency_penalty,
        .top_k = q->top_k,
        .window = least(q->repetition_window, (int)e->facts->context),
        .ngram = least(q->no_repeat_ngram, (int)e->facts->context),
        .min_length = r->prompt + q->min_new,
        .n_ends = r->params.n_ends,
        .n_bias = r->params.n_bias,
        .n_words = r->params.n_words,
        .seed_low = (unsigned)q->seed,
        .seed_high = (unsigned)(q->seed >> 32),
        .sample = q->sample,
        .simple = (q->temperature == 0.0f || r->beam.width) && is_plain(r, q) && !r->masked,
        .typical_p = q->typical_p < 1.0f ? q->typical_p : 0.0f,
        .logits = r->masked ? FTX_LOGITS_MASKED : q->logits || e->nan || engine_reads_logits(r) || r->wants_prompt,
        .top_needed = needed_logits(e->facts, r, q),
    };
}

/* --- beams ---------------------------------------------------------------------------------------- */

static FtxStatus fill_beam(const FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    FtxStatus s;

    r->beam = (FtxBeam){0};
    r->n_found = 0;
    if (q->beams <= 1)
        return FTX_OK;
    s = check_count("beams", q->beams, 0, e->slots, err); /* each beam is a row of a step */
    if (!s)
        s = check_count("n_best", q->n_best, 0, q->beams, err);
    if (!s)
        s = check_count("beam_groups", q->beam_groups, 0, q->beams, err);
    if (s)
        return s;
    if (q->beam_groups > 1 && q->beams % q->beam_groups)
        return ftx_fail(err, FTX_EINVAL, "beam_groups: %d beams cannot be divided into %d groups of one size", q->beams,
                        q->beam_groups);
    if (q->stop_count)
        return ftx_fail(err, FTX_EINVAL, "stop: a beam search ends at ids, not at text: use stop_ids");
    r->n_best = q->n_best ? q->n_best : 1;
    r->beam = (FtxBeam){.width = q->beams,
                        .length_penalty = q->length_penalty,
                        .early = (int)q->early_stopping,
                        .forced_bos = q->prefix_count ? -1 : q->forced_bos,
                        .forced_eos = q->forced_eos,
                        .groups = q->beam_groups,
                        .diversity = q->beam_groups > 1 ? q->diversity_rate : 0.0f};
    return FTX_OK;
}

/* --- samples -------------------------------------------------------------------------------------- */

static FtxStatus fill_samples(Request *r, const FtxRequest *q, FtxError *err)
{
    const FtxStatus s = check_count("sample", q->sample, 0, INT32_MAX - q->samples, err);

    if (s)
        return s;
    if (q->samples > 1 && r->beam.width)
        return ftx_fail(err, FTX_EINVAL,
                        "samples: %d of a beam search, which draws nothing: n_best gives several texts", q->samples);
    if (q->samples > 1 && q->temperature == 0.0f)
        return ftx_fail(err, FTX_EINVAL, "samples: %d at temperature 0 would all be the same", q->samples);
    r->together = q->samples > 1 ? (uint32_t)q->samples : 1;
    return FTX_OK;
}

/* Makes r another sample of `leader`: copies its fields, keeps r's own arrays. */
void request_follow(const FtxEngine *e, Request *r, Request *leader, int sample)
{
    const FtxFacts *f = e->facts;
    const Request room = *r;

    *r = *leader;
    r->lane = room.lane;
    r->found = room.found;
    r->ids = memcpy(room.ids, leader->ids, (size_t)leader->prompt * sizeof *r->ids);
    r->source = room.source; /* only the leader's source is read */
    r->bias = room.bias;
    r->ends = memcpy(room.ends, leader->ends, (size_t)leader->params.n_ends * sizeof *r->ends);
    r->bad_words = room.bad_words;
    r->pages = room.pages;
    r->key = room.key;
    r->states_sum = room.states_sum;
    r->kept = room.kept;
    r->logits = room.logits;
    r->stream.text = room.stream.text;
    memcpy(room.bias, leader->bias, (size_t)leader->n_bias * sizeof *r->bias);
    if (f->bad_words)
        memcpy(room.bad_words, leader->bad_words, (size_t)leader->params.n_words * sizeof *r->bad_words);
    r->leader = leader;
    r->together = 0;
    r->wants_logits = r->wants_prompt = false;
    r->params.sample += sample;
}

/* --- the prompt ----------------------------------------------------------------------------------- */

/* Where the ids of a request go, and how many there may be. */
typedef struct Room {
    int32_t *ids;
    uint32_t most, vocab;
    const char *what; /* "the prompt" */
    uint32_t whole;   /* the context that prompt and new tokens share; 0: this limit is not the context's */
    FtxTruncate cut;
} Room;

static FtxStatus check_length(const Room *to, size_t n, FtxError *err)
{
    if (n == 0)
        return ftx_fail(err, FTX_EINVAL, "%s is empty: a model needs at least one token", to->what);
    if (n > to->most && to->whole)
        return ftx_fail(err, FTX_EFULL, "%s has %zu tokens; with one new token that exceeds the context of %u",
                        to->what, n, to->whole);
    if (n > to->most)
        return ftx_fail(err, FTX_EFULL, "%s has %zu tokens; at most %u fit", to->what, n, to->most);
    return FTX_OK;
}

static FtxStatus check_in(const Room *to, const char *field, size_t i, int32_t id, FtxError *err)
{
    if (id >= 0 && (uint32_t)id < to->vocab)
        return FTX_OK;
    return ftx_fail(err, FTX_EINVAL, "%s[%zu]: %d is no token id (0 to %u)", field, i, id, to->vocab - 1);
}

/* Drops bytes that will be truncated anyway: the scratch memory takes max_text bytes. */
static void shorten(TokenizerPair *t, size_t max_text)
{
    const size_t start = t->cut == TOKENIZER_CUT_START ? utf8_start(t->text, t->bytes, t->bytes - max_text) : 0;

    t->text += start;
    t->bytes = start ? t->bytes - start : utf8_end(t->text, max_text);
}

static FtxStatus fill_text(FtxEngine *e, const Room *to, const FtxRequest *q, int *count, FtxError *err)
{
    TokenizerPair text = {.text = q->text,
                          .bytes = q->text_bytes ? q->text_bytes : strlen(q->text),
                          .special = !q->no_bos,
                          .literal = q->literal,
                          .most = to->cut ? to->most : 0,
                          .cut = to->cut == FTX_TRUNCATE_START ? TOKENIZER_CUT_START : TOKENIZER_CUT_FIRST};
    const bool less = to->cut && text.bytes > e->max_text;
    size_t n;
    FtxStatus s;

    if (!e->model->tokenizer)
        return ftx_fail(err, FTX_EINVAL, "text: the artifact has no tokenizer: use ids");
    if (!text.bytes && e->facts->kind == FTX_MODEL_SEQ2SEQ) /* the tokenizer would still give a source's end */
        return ftx_fail(err, FTX_EINVAL, "text: it is empty");
    if (less)
        shorten(&text, e->max_text);
    if (text.bytes > e->max_text)
        return ftx_fail(err, FTX_EFULL,
                        "%s has %zu bytes; for %u tokens the engine takes %zu: tokenize it and pass ids", to->what,
                        text.bytes, to->most, e->max_text);
    s = tokenizer_encode_pair(e->model->tokenizer, e->scratch, &text, to->ids, NULL, to->most, &n, err);
    if (!s && less && n < to->most) /* the bytes left out may have held wanted tokens */
        return ftx_fail(err, FTX_EFULL, "%zu bytes of %s have only %zu tokens: tokenize it and pass ids", text.bytes,
                        to->what, n);
    if (!s)
        s = check_length(to, n, err);
    for (size_t i = 0; !s && i < n; i++)
        s = check_in(to, "text", i, to->ids[i], err);
    *count = s ? 0 : (int)n;
    return s;
}

static FtxStatus fill_ids(const Room *to, const int32_t *ids, size_t n, const char *field, int *count, FtxError *err)
{
    FtxStatus s;

    if (to->cut && n > to->most) {
        ids += to->cut == FTX_TRUNCATE_START ? n - to->most : 0;
        n = to->most;
    }
    s = check_length(to, n, err);
    for (size_t i = 0; i < n && !s; i++) {
        s = check_in(to, field, i, ids[i], err);
        to->ids[i] = ids[i];
    }
    *count = s ? 0 : (int)n;
    return s;
}

/* With a source, the output begins with the start token and the prefix. */
static FtxStatus fill_start(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    const FtxFacts *f = e->facts;
    const Room to = {r->ids + 1, f->context - 2, f->vocab, "prefix", 0, FTX_TRUNCATE_NONE};
    FtxStatus s = FTX_OK;
    int n = 0;

    if (q->prefix_count)
        s = fill_ids(&to, q->prefix, q->prefix_count, "prefix", &n, err);
    r->ids[0] = f->start;
    r->prompt = n + 1;
    if (!s && !r->beam.width && !n && q->forced_bos >= 0)
        r->ids[r->prompt++] = q->forced_bos;
    return s;
}

/* Room for a prompt or a source. */
static Room room_of(const FtxFacts *f, Request *r, const FtxRequest *q)
{
    const bool source = f->kind == FTX_MODEL_SEQ2SEQ;
    const uint32_t most = (uint32_t)q->max_prompt, fresh = q->max_new ? (uint32_t)q->max_new : 1;
    Room to = source ? (Room){r->source, f->source_context, f->source_vocab, "the source", 0, q->truncate}
                     : (Room){r->ids, f->context - 1, f->vocab, "the prompt", f->context, q->truncate};

    if (most && most < to.most) {
        to.most = most;
        to.whole = 0;
    } else if (q->truncate && !most && !source) {
        to.most = fresh < f->context ? f->context - fresh : 1;
    }
    if (f->whole_prompts && to.most > f->tokens) { /* it is read in one step */
        to.most = f->tokens;
        to.whole = 0;
    }
    return to;
}

static FtxStatus fill_prompt(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    const FtxFacts *f = e->facts;
    const bool source = f->kind == FTX_MODEL_SEQ2SEQ;
    const Room to = room_of(f, r, q);
    int *count = source ? &r->n_source : &r->prompt;
    FtxStatus s;

    r->n_source = 0;
    r->encoded = false;
    if (q->text && q->ids)
        return ftx_fail(err, FTX_EINVAL, "text and ids are both set: a prompt is one of them");
    if (q->prefix_count && (!source || !q->prefix))
        return ftx_fail(err, FTX_EINVAL, "prefix: %s",
                        source ? "it is NULL" : "the model reads no source, so a prefix is a prompt");
    if (q->text)
        s = fill_text(e, &to, q, count, err);
    else if (q->ids)
        s = fill_ids(&to, q->ids, q->ids_count, "ids", count, err);
    else
        return ftx_fail(err, FTX_EINVAL, "neither text nor ids is set: there is no prompt");
    return s || !source ? s : fill_start(e, r, q, err);
}

static FtxStatus fill_limit(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    const int room = (int)e->facts->context - r->prompt;
    const int fresh = q->max_new && q->max_new < room ? q->max_new : room;

    if (room < 1) /* a start token and the one that is forced after it may be all that fits */
        return ftx_fail(err, FTX_EFULL, "the first %d tokens are given, and the context of %u has no room for another",
                        r->prompt, e->facts->context);
    if (e->facts->whole_prompts && (uint32_t)r->prompt > e->facts->tokens)
        return ftx_fail(err, FTX_EFULL, "a prompt of %d tokens is read in one step, which takes %u (limits.tokens)",
                        r->prompt, e->facts->tokens);
    r->limit = r->prompt + fresh;
    /* The last token is returned and not fed, so it needs no place in the cache. */
    r->own_pages = ((uint32_t)r->limit - 1 + e->facts->kv_block - 1) / e->facts->kv_block;
    r->n_pages = r->own_pages;
    if (r->beam.width)
        r->n_pages += (uint32_t)(r->beam.width - 1) * beams_lane_pages(e, r);
    /* Each sample feeds the prompt's last token itself: its first new token is drawn from that row. */
    r->shared_pages = e->recurrent ? 0 : (uint32_t)(r->prompt - 1) / e->facts->kv_block;
    r->all_pages = r->n_pages + (r->together - 1) * (r->n_pages - r->shared_pages);
    if (r->all_pages > e->pages.all)
        return ftx_fail(err, FTX_EFULL,
                        "a prompt of %d and %d new tokens need %u KV pages of %u tokens; there are %u: ask for less, "
                        "or raise %s",
                        r->prompt, fresh, r->all_pages, e->facts->kv_block, e->pages.all, engine_more_pages(e));
    return FTX_OK;
}

FtxStatus request_fill(FtxEngine *e, Request *r, const FtxRequest *q, FtxError *err)
{
    FtxStatus s = check_settings(e, q, err);

    if (!s)
        s = check_states(e->facts, q, err);
    memset(&r->stream.decoder, 0, sizeof r->stream.decoder);
    r->stream.bytes = r->stream.out = r->stream.searched = r->stream.n_stops = 0;
    r->cancelled = r->has_logits = r->not_finite = false;
    r->fed = 0;
    r->keys = 0;
    r->preemptions = r->cached = 0;
    r->passed = 0;
    r->top = q->top_logprobs;
    r->wants_prompt = q->prompt_logprobs;
    r->states = (FtxStates)q->states;
    r->states_done = 0;
    r->mask = q->mask;
    r->mask_user = q->mask_user;
    r->asked = -1;
    r->priority = q->priority;
    r->deadline = q->deadline_ms * 1e-3;
    r->salt = q->cache_salt;
    r->forced_eos = q->forced_eos;
    if (!s)
        s = fill_beam(e, r, q, err);
    if (!s)
        s = fill_samples(r, q, err);
    if (!s)
        s = words_fill(e, r, q, err);
    if (!s)
        s = fill_prompt(e, r, q, err);
    if (!s)
        s = fill_limit(e, r, q, err);
    if (s)
        return s;
    fill_params(e, r, q);
    r->length = r->prompt;
    r->grows = e->overcommit && !r->beam.width && r->together == 1 && !r->wants_prompt;
    r->wants_logits = q->logits;
    r->wants_logprob = q->logprobs;
    r->user = q->user;
    return FTX_OK;
}
