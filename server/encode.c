/* encode.c - encoders: /v1/embeddings, /v1/score, /v1/rerank.
 *
 * /v1/embeddings of a decoder: states.c. The texts of a request are one job, which runs while nothing else does on that engine. A score is the class of a pair of
 * texts under a classifier, or the cosine of two vectors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encode.h"
#include "../runner/command.h"
#include "../runtime/base/arena.h"

typedef enum Kind { EMBED, SCORE, RERANK } Kind;

typedef struct Encode {
    Job job; /* first */
    Exchange *x;
    Served *m;
    Kind kind;
    json_t *root; /* holds the texts */
    bool base64, documents;
    int64_t top;  /* results of a ranking */
    size_t count; /* texts of the engine's job */
    const char **text, **pair;
    size_t *text_bytes, *pair_bytes;
    int32_t *ids, *lengths, *tokens;
    size_t n_ids;
    float *pooled; /* [count][pooled] */
    int64_t max_tokens;
    size_t left;    /* without a classifier: of `count` texts the first `left` are text_1 or the query */
    size_t results; /* scores */
} Encode;

static void free_encode(Job *j)
{
    Encode *e = (Encode *)j;

    free(e->text);
    free(e->pair);
    free(e->text_bytes);
    free(e->pair_bytes);
    free(e->ids);
    free(e->lengths);
    free(e->tokens);
    free(e->pooled);
    json_decref(e->root);
    exchange_release(e->x);
    free(e);
}

/* --- answers ----------------------------------------------------------------------------------------------- */

static void print_base64(Text *t, const void *p, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = p;

    for (size_t i = 0; i < bytes; i += 3) {
        const size_t n = bytes - i < 3 ? bytes - i : 3;
        const uint32_t v = (uint32_t)at[i] << 16 | (n > 1 ? (uint32_t)at[i + 1] << 8 : 0) | (n > 2 ? at[i + 2] : 0u);
        const char four[4] = {digits[v >> 18], digits[v >> 12 & 63], n > 1 ? digits[v >> 6 & 63] : '=',
                              n > 2 ? digits[v & 63] : '='};

        text_add(t, four, sizeof four);
    }
}

void encode_print(Text *t, const float *vectors, size_t count, size_t width, bool base64)
{
    for (size_t i = 0; i < count; i++) {
        const float *v = vectors + i * width;

        text_printf(t, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":%s", i ? "," : "", i,
                    base64 ? "\"" : "[");
        if (base64)
            print_base64(t, v, width * sizeof *v);
        for (size_t k = 0; !base64 && k < width; k++) {
            text_put(t, k ? "," : "");
            text_json_number(t, v[k]);
        }
        text_put(t, base64 ? "\"}" : "]}");
    }
}

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0.0, aa = 0.0, bb = 0.0;

    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0.0 && bb > 0.0 ? ab / sqrt(aa * bb) : 0.0;
}

/* Of a classifier with one class its probability; of more the last one's, which is "relevant" or "entailment" by custom. */
static double class_score(const Served *m, const float *v)
{
    const int n = m->info.labels;
    double sum = 0.0, most = v[0];

    if (n == 1 || m->info.scoring == FTX_SCORING_SIGMOID)
        return 1.0 / (1.0 + exp(-(double)v[n - 1]));
    for (int i = 1; i < n; i++)
        most = fmax(most, v[i]);
    for (int i = 0; i < n; i++)
        sum += exp(v[i] - most);
    return exp(v[n - 1] - most) / sum;
}

static double score_of(const Encode *e, size_t i)
{
    const size_t width = (size_t)e->m->info.pooled;

    if (e->m->info.labels)
        return class_score(e->m, e->pooled + i * width);
    return cosine(e->pooled + (e->left == 1 ? 0 : i) * width, e->pooled + (e->left + i) * width, width);
}

typedef struct Rank {
    size_t index;
    double score;
} Rank;

/* The best first; of equals the first given. */
static int compare(const void *a, const void *b)
{
    const Rank *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static void print_ranking(Text *t, const Encode *e)
{
    Rank *ranks = command_must(calloc(e->results, sizeof *ranks));
    const json_t *documents = body_field(e->root, "documents");

    for (size_t i = 0; i < e->results; i++)
        ranks[i] = (Rank){i, score_of(e, i)};
    qsort(ranks, e->results, sizeof *ranks, compare);
    for (size_t i = 0; i < e->results && (int64_t)i < e->top; i++) {
        const json_t *text = json_array_get(documents, ranks[i].index);

        text_printf(t, "%s{\"index\":%zu,", i ? "," : "", ranks[i].index);
        if (e->documents) {
            text_put(t, "\"document\":{\"text\":");
            text_json(t, json_string_value(text), json_string_length(text));
            text_put(t, "},");
        }
        text_put(t, "\"relevance_score\":");
        text_json_number(t, ranks[i].score);
        text_put(t, "}");
    }
    free(ranks);
}

static void answer(Encode *e)
{
    size_t tokens = 0;
    Text t = {0};

    for (size_t i = 0; i < e->count; i++)
        tokens += (size_t)e->tokens[i];
    e->job.prompt_tokens = tokens;
    text_printf(&t, "{\"id\":\"%s-", e->kind == EMBED ? "embd" : e->kind == SCORE ? "score" : "rerank");
    text_json_part(&t, e->x->id, strlen(e->x->id));
    text_printf(&t, "\",%s\"model\":", e->kind == RERANK ? "" : "\"object\":\"list\",");
    text_json(&t, e->m->name, strlen(e->m->name));
    text_printf(&t, ",\"%s\":[", e->kind == RERANK ? "results" : "data");
    if (e->kind == EMBED)
        encode_print(&t, e->pooled, e->count, (size_t)e->m->info.pooled, e->base64);
    else if (e->kind == RERANK)
        print_ranking(&t, e);
    for (size_t i = 0; e->kind == SCORE && i < e->results; i++) {
        text_printf(&t, "%s{\"index\":%zu,\"object\":\"score\",\"score\":", i ? "," : "", i);
        text_json_number(&t, score_of(e, i));
        text_put(&t, "}");
    }
    text_printf(&t, "],\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", tokens, tokens);
    exchange_note(e->x, "model=%s texts=%zu tokens=%zu", e->m->name, e->count, tokens);
    answer_json(e->x, &t);
}

/* --- the engine's thread ----------------------------------------------------------------------------------- */

static FtxStatus run_encode(Job *j, FtxEngine *engine, FtxError *err)
{
    Encode *e = (Encode *)j;
    FtxEncode job = FTX_ENCODE_INIT;
    FtxStatus s;

    job.count = e->count;
    job.text = e->text;
    job.text_bytes = e->text_bytes;
    job.pair = e->pair;
    job.pair_bytes = e->pair_bytes;
    job.ids = e->ids;
    job.lengths = e->lengths;
    job.pooled = e->pooled;
    job.tokens = e->tokens;
    job.truncate = e->max_tokens ? FTX_TRUNCATE_LONGEST : FTX_TRUNCATE_NONE;
    job.max_tokens = (int)e->max_tokens;
    s = ftx_engine_encode(engine, &job, err);
    if (!s)
        answer(e);
    return s;
}

static void fail_encode(Job *j, int status, const char *why)
{
    Fault f = {0};

    fault(&f, "", "%s", why);
    f.status = status;
    answer_fault(((Encode *)j)->x, &f);
}

/* --- requests: a worker -------------------------------------------------------------------------------------- */

static void make_room(Encode *e, size_t count)
{
    e->text = command_must(calloc(count, sizeof *e->text));
    e->pair = command_must(calloc(count, sizeof *e->pair));
    e->text_bytes = command_must(calloc(count, sizeof *e->text_bytes));
    e->pair_bytes = command_must(calloc(count, sizeof *e->pair_bytes));
    e->lengths = command_must(calloc(count, sizeof *e->lengths));
    e->tokens = command_must(calloc(count, sizeof *e->tokens));
    e->pooled = command_must(calloc(count * (size_t)e->m->info.pooled, sizeof *e->pooled));
}

/* Adds ids of one text to those of all. */
static bool add_ids(Encode *e, const json_t *list, Fault *f)
{
    int32_t *ids;
    size_t n;

    if (!json_array_size(list))
        return fault(f, "input", "input: a text without tokens");
    if (!body_ids(list, "input", e->m->info.vocab, &ids, &n, f))
        return false;
    e->ids = command_must(realloc(e->ids, (e->n_ids + n) * sizeof *e->ids));
    memcpy(e->ids + e->n_ids, ids, n * sizeof *ids);
    free(ids);
    e->n_ids += n;
    e->lengths[e->count++] = (int32_t)n;
    return true;
}

bool encode_format(const json_t *root, int width, bool *base64, Fault *f)
{
    const char *format = "float";
    int64_t dimensions = width;

    if (!body_text(root, "encoding_format", &format, f) || !body_count(root, "dimensions", 1, 1 << 20, &dimensions, f))
        return false;
    *base64 = strcmp(format, "base64") == 0;
    if (!*base64 && strcmp(format, "float") != 0)
        return fault(f, "encoding_format", "encoding_format: expected float or base64");
    return dimensions == width ||
           fault(f, "dimensions", "dimensions: this model's vectors have %d, and no others", width);
}

static bool read_input(Encode *e, Fault *f)
{
    json_t *input = body_field(e->root, "input");
    const json_t *first = json_array_get(input, 0);
    const bool list = json_is_array(input) && !json_is_integer(first), texts = json_is_string(list ? first : input);
    const size_t n = list ? json_array_size(input) : 1;

    if (!encode_format(e->root, e->m->info.pooled, &e->base64, f))
        return false;
    if (!input || !n || n > MOST_TEXTS || (!texts && !json_is_array(list ? first : input)))
        return fault(f, "input", "input: expected a string, token ids, or a list of 1 to %d of them", MOST_TEXTS);
    make_room(e, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = list ? json_array_get(input, i) : input;

        if (texts ? !json_is_string(v) : !json_is_array(v))
            return fault(f, "input", "input[%zu]: strings and token ids may not be mixed", i);
        if (texts) {
            e->text[e->count] = json_string_value(v);
            e->text_bytes[e->count++] = json_string_length(v);
        } else if (!add_ids(e, v, f)) {
            return false;
        }
    }
    if (!texts) {
        free(e->text);
        e->text = NULL;
    }
    free(e->pair);
    e->pair = NULL;
    return true;
}

/* A string, or a list of them. */
static bool read_texts(const json_t *root, const char *name, const json_t **all, size_t *n, Fault *f)
{
    *all = body_field(root, name);
    *n = json_is_array(*all) ? json_array_size(*all) : 1;
    for (size_t i = 0; i < *n; i++)
        if (!json_is_string(json_is_array(*all) ? json_array_get(*all, i) : *all))
            return fault(f, name, "%s: expected a string, or a list of strings", name);
    if (!*n || *n > MOST_TEXTS)
        return fault(f, name, "%s: expected 1 to %d texts", name, MOST_TEXTS);
    return true;
}

static void set_text(const char **text, size_t *bytes, const json_t *all, size_t i)
{
    const json_t *v = json_is_array(all) ? json_array_get(all, json_array_size(all) == 1 ? 0 : i) : all;

    *text = json_string_value(v);
    *bytes = json_string_length(v);
}

/* Pairs of texts: one with each of many, or as many with as many. */
static bool read_pairs(Encode *e, Fault *f)
{
    const bool rank = e->kind == RERANK;
    const json_t *one, *two;
    size_t n, m;

    if (!read_texts(e->root, rank ? "query" : "text_1", &one, &n, f) ||
        !read_texts(e->root, rank ? "documents" : "text_2", &two, &m, f))
        return false;
    if (n != 1 && (n != m || rank))
        return fault(f, rank ? "query" : "text_1", "%s: expected one text%s", rank ? "query" : "text_1",
                     rank ? "" : ", or as many as text_2 has");
    if (rank && !json_is_array(two))
        return fault(f, "documents", "documents: expected a list of strings");
    e->top = (int64_t)m;
    e->documents = true;
    if (!body_count(e->root, "top_n", 0, MOST_TEXTS, &e->top, f) ||
        !body_bool(e->root, "return_documents", &e->documents, f))
        return false;
    e->results = m;
    e->left = n;
    make_room(e, n + m);
    if (e->m->info.labels) {
        for (e->count = 0; e->count < m; e->count++) {
            set_text(&e->text[e->count], &e->text_bytes[e->count], one, e->count);
            set_text(&e->pair[e->count], &e->pair_bytes[e->count], two, e->count);
        }
        return true;
    }
    for (size_t i = 0; i < n; i++, e->count++)
        set_text(&e->text[e->count], &e->text_bytes[e->count], one, i);
    for (size_t i = 0; i < m; i++, e->count++)
        set_text(&e->text[e->count], &e->text_bytes[e->count], two, i);
    return true;
}

static bool encode(Server *s, Exchange *x, json_t *root, Kind kind, Fault *f)
{
    Encode *e = command_must(calloc(1, sizeof *e));
    Job *job = &e->job;

    exchange_hold(x);
    e->x = x;
    e->root = json_incref(root);
    e->kind = kind;
    e->m = server_model(s, root, f);
    e->job = (Job){.exchange = x, .run = run_encode, .fail = fail_encode, .free = free_encode};
    if (e->m && kind == EMBED && e->m->info.states) {
        const bool done = states_embed(x, e->m, root, f);

        free_encode(&e->job);
        return done;
    }
    if (e->m && (e->m->info.kind != FTX_MODEL_ENCODER || !e->m->info.pooled))
        fault(f, "model", "`%.100s` is no encoder with a vector for a text%s", e->m->name,
              e->m->info.kind == FTX_MODEL_DECODER && kind == EMBED
                  ? "; a decoder has them if it is compiled with -D states=true"
                  : "");
    else if (e->m && kind == EMBED && e->m->info.labels)
        fault(f, "model", "`%.100s` is a classifier: it has /v1/score and /v1/rerank", e->m->name);
    else if (e->m && body_count(root, "truncate_prompt_tokens", 1, 1 << 24, &e->max_tokens, f) &&
             (kind == EMBED ? read_input(e, f) : read_pairs(e, f)) && server_submit(e->m, &job, 1, f))
        return true;
    free_encode(&e->job);
    return false;
}

static bool encode_texts(Server *s, Exchange *x, json_t *root, Fault *f)
{
    return encode(s, x, root, EMBED, f);
}

static bool encode_pairs(Server *s, Exchange *x, json_t *root, Fault *f)
{
    return encode(s, x, root, SCORE, f);
}

static bool encode_documents(Server *s, Exchange *x, json_t *root, Fault *f)
{
    return encode(s, x, root, RERANK, f);
}

void route_embeddings(Server *s, Exchange *x)
{
    with_body(s, x, encode_texts);
}

void route_score(Server *s, Exchange *x)
{
    with_body(s, x, encode_pairs);
}

void route_rerank(Server *s, Exchange *x)
{
    with_body(s, x, encode_documents);
}
