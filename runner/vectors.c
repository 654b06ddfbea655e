/* vectors.c - runs an encoder: texts in; vectors, cosine similarities, or classes out.
 *
 * The vector of a text is the pooled one, or, if the model has no pooling, the mean of its tokens' vectors. A classifier
 * without a vector of a text has classes for each token. */
#include "vectors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "json.h"

typedef struct Vectors {
    FtxModel *model;
    FtxModelInfo info;
    size_t count, tokens;
    int32_t *lengths, *ids;        /* [count], [tokens] */
    float *hidden, *pooled, *mean; /* [tokens][hidden], [count][pooled], [count][hidden] */
    FtxError *errors;
} Vectors;

/* Zeroed memory, also for n = 0. */
static void *room(size_t n, size_t size)
{
    return command_must(calloc(n ? n : 1, size));
}

static void take_means(Vectors *v)
{
    const size_t D = (size_t)v->info.hidden;
    const float *x = v->hidden;

    v->mean = room(v->count * D, sizeof *v->mean);
    for (size_t i = 0; i < v->count; i++)
        for (int32_t t = 0; t < v->lengths[i]; t++, x += D)
            for (size_t d = 0; d < D; d++)
                v->mean[i * D + d] += x[d] / (float)v->lengths[i];
}

static const float *vector(const Vectors *v, size_t i, size_t *n)
{
    *n = (size_t)(v->pooled ? v->info.pooled : v->info.hidden);
    return (v->pooled ? v->pooled : v->mean) + i * *n;
}

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;

    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

/* The beginning of a text and of its second sentence. */
static void print_text(const VectorsJob *job, size_t i)
{
    const char *const sentences[] = {job->text ? job->text[i] : NULL, job->pair ? job->pair[i] : NULL};

    for (int k = 0; k < 2 && sentences[k]; k++)
        printf("%s%.60s%s", k ? " | " : "", sentences[k], strlen(sentences[k]) > 60 ? "..." : "");
    putchar('\n');
}

/* --- a classifier ------------------------------------------------------------------------------------- */

typedef struct Score {
    int label;
    double score;
} Score;

/* Descending, NaN last. */
static int by_score(const void *a, const void *b)
{
    const Score *x = a, *y = b;

    if (isnan(x->score) || isnan(y->score))
        return !!isnan(x->score) - !!isnan(y->score);
    return x->score != y->score ? (x->score > y->score ? -1 : 1) : x->label - y->label;
}

/* The classes of the vector x [info.labels], of a text or a token, in their order; [info.labels]; the caller frees them. */
static Score *score(const Vectors *v, const float *x)
{
    const size_t n = (size_t)v->info.labels;
    Score *s = room(n, sizeof *s);
    double most = -INFINITY, sum = 0.0;

    for (size_t k = 0; k < n; k++)
        most = fmax(most, (double)x[k]);
    for (size_t k = 0; k < n; k++)
        sum += exp((double)x[k] - most);
    for (size_t k = 0; k < n; k++) {
        const double z = (double)x[k];

        s[k] = (Score){(int)k, v->info.scoring == FTX_SCORING_SOFTMAX   ? exp(z - most) / sum
                               : v->info.scoring == FTX_SCORING_SIGMOID ? 1.0 / (1.0 + exp(-z))
                                                                        : z};
    }
    return s;
}

/* The likeliest first. */
static Score *ranked(const Vectors *v, const float *x)
{
    Score *s = score(v, x);

    qsort(s, (size_t)v->info.labels, sizeof *s, by_score);
    return s;
}

static void print_label(const Vectors *v, Score s, char end)
{
    size_t bytes;
    const char *name = ftx_model_label(v->model, s.label, &bytes);

    printf("%.*s %.6g%c", (int)bytes, name, s.score, end);
}

static json_t *labels_json(const Vectors *v, size_t i)
{
    json_t *list = json_array();
    Score *s = ranked(v, v->pooled + i * (size_t)v->info.labels);

    for (int k = 0; k < v->info.labels; k++) {
        size_t bytes;
        const char *name = ftx_model_label(v->model, s[k].label, &bytes);

        json_array_append_new(list, json_pack("{so,so}", "label", runner_json_text(name, bytes), "score",
                                              runner_json_number(s[k].score)));
    }
    free(s);
    return list;
}

/* One text: a line for each class. Several: a line for each text with its likeliest class. */
static void print_labels(const Vectors *v, const VectorsJob *job)
{
    const bool apart = v->count > 1 || job->lines;

    for (size_t i = 0; i < v->count; i++) {
        Score *s;

        if (v->errors[i].status) {
            printf("-\n");
            continue;
        }
        s = ranked(v, v->pooled + i * (size_t)v->info.labels);
        for (int k = 0; k < (apart ? 1 : v->info.labels); k++) {
            print_label(v, s[k], apart ? '\t' : '\n');
            if (apart)
                print_text(job, i);
        }
        free(s);
    }
}

/* --- a classifier of tokens ----------------------------------------------------------------------------- */

/* The text of a token; its id, if there is no tokenizer. */
static json_t *token_json(const Vectors *v, int32_t id)
{
    size_t bytes;
    const char *text = ftx_token_bytes(v->model, id, &bytes, &(bool){false});

    return text ? runner_json_text(text, bytes) : json_integer(id);
}

/* [{ token, id, labels: { NAME: score } }] of n tokens, the first in row `at`. */
static json_t *token_labels_json(const Vectors *v, size_t at, int32_t n)
{
    json_t *list = json_array();

    for (size_t t = at; t < at + (size_t)n; t++) {
        Score *s = score(v, v->hidden + t * (size_t)v->info.labels);
        json_t *scores = json_object();

        for (int k = 0; k < v->info.labels; k++) {
            size_t bytes;
            const char *name = ftx_model_label(v->model, k, &bytes);

            char *key = command_must(strndup(name, bytes));

            json_object_set_new(scores, key, runner_json_number(s[k].score));
            free(key);
        }
        json_array_append_new(
            list, json_pack("{so,si,so}", "token", token_json(v, v->ids[t]), "id", (int)v->ids[t], "labels", scores));
        free(s);
    }
    return list;
}

/* A line for each token: its text as JSON and its likeliest class, or all numbers that are no scores; an empty line
 * between texts. */
static void print_token_labels(const Vectors *v)
{
    const bool scores = v->info.scoring != FTX_SCORING_NONE;
    size_t at = 0;

    for (size_t i = 0; i < v->count; i++) {
        if (i)
            putchar('\n');
        if (v->errors[i].status)
            printf("-\n");
        for (const size_t end = at + (size_t)v->lengths[i]; at < end; at++) {
            const float *x = v->hidden + at * (size_t)v->info.labels;
            Score *s = scores ? ranked(v, x) : score(v, x);
            json_t *token = token_json(v, v->ids[at]);
            char *text = command_must(json_dumps(token, JSON_ENCODE_ANY));

            printf("%s\t", text);
            for (int k = 0, n = scores ? 1 : v->info.labels; k < n; k++)
                print_label(v, s[k], k + 1 < n ? '\t' : '\n');
            free(text);
            json_decref(token);
            free(s);
        }
    }
}

/* --- output ------------------------------------------------------------------------------------ */

static json_t *floats(const float *x, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, runner_json_number((double)x[i]));
    return list;
}

static void print_json(const Vectors *v)
{
    const size_t D = (size_t)v->info.hidden;
    size_t at = 0;

    for (size_t i = 0; i < v->count; at += (size_t)v->lengths[i++]) {
        json_t *o = json_object();

        if (v->errors[i].status) {
            json_object_set_new(o, "error", runner_json_text(v->errors[i].text, strlen(v->errors[i].text)));
        } else {
            json_object_set_new(o, "tokens", json_integer(v->lengths[i]));
        }
        if (!v->errors[i].status && !v->pooled && v->info.labels) {
            json_object_set_new(o, "labels", token_labels_json(v, at, v->lengths[i]));
        } else if (!v->errors[i].status) {
            json_object_set_new(o, "first", floats(v->hidden + at * D, D));
            json_object_set_new(o, "mean", floats(v->mean + i * D, D));
            json_object_set_new(o, "pooled",
                                v->pooled ? floats(v->pooled + i * (size_t)v->info.pooled, (size_t)v->info.pooled)
                                          : json_null());
            if (v->pooled && v->info.labels)
                json_object_set_new(o, "labels", labels_json(v, i));
        }
        json_object_set_new(o, "device", json_string(v->info.device));
        runner_json_print(o);
    }
}

static void print_vector(const Vectors *v)
{
    size_t n;
    const float *x = vector(v, 0, &n);

    for (size_t i = 0; i < n; i++)
        printf("%s%.6g", i ? " " : "", (double)x[i]);
    putchar('\n');
}

/* A row for each text: its cosine with every text, then its beginning. */
static void print_similarities(const Vectors *v, const VectorsJob *job)
{
    for (size_t i = 0; i < v->count; i++) {
        for (size_t k = 0; k < v->count; k++) {
            size_t n;
            const float *a = vector(v, i, &n), *b = vector(v, k, &n);

            if (v->errors[i].status || v->errors[k].status)
                printf("      - ");
            else
                printf("%7.4f ", cosine(a, b, n));
        }
        putchar(' ');
        print_text(job, i);
    }
}

/* --- the call ------------------------------------------------------------------------------------- */

/* Tokens of all texts, for the size of `hidden`. A text that cannot be tokenized gets its error later. */
static size_t count_tokens(FtxModel *model, const VectorsJob *job)
{
    const unsigned flags = FTX_TOKENIZE_SPECIAL | (job->literal ? FTX_TOKENIZE_LITERAL : 0);
    size_t sum = job->text ? 0 : job->n_ids;

    for (size_t i = 0; job->text && i < job->count; i++) {
        const char *const sentences[] = {job->text[i], job->pair ? job->pair[i] : NULL};

        for (int k = 0; k < 2; k++) {
            const size_t *bytes = k ? job->pair_bytes : job->text_bytes;
            size_t n;

            if (sentences[k] && !ftx_tokenize(model, sentences[k], bytes[i], flags, NULL, 0, &n, NULL))
                sum += n;
        }
    }
    return sum;
}

static bool say_errors(const Vectors *v, const VectorsJob *job)
{
    bool failed = false;

    for (size_t i = 0; i < v->count; i++) {
        if (!v->errors[i].status)
            continue;
        failed = true;
        if (v->count > 1 || job->lines)
            command_print("%s: text %zu: %s\n", command_program, job->before + i + 1, v->errors[i].text);
        else
            command_say(v->errors[i].text);
    }
    return failed;
}

static void print_all(Vectors *v, const VectorsJob *job)
{
    take_means(v);
    if (job->json)
        print_json(v);
    else if (v->info.labels && v->pooled)
        print_labels(v, job);
    else if (v->info.labels)
        print_token_labels(v);
    else if (v->count > 1)
        print_similarities(v, job);
    else
        print_vector(v);
    fflush(stdout);
}

int vectors_run(FtxModel *model, FtxEngine *engine, const VectorsJob *job)
{
    Vectors v = {.model = model, .count = job->text ? job->count : 1, .tokens = count_tokens(model, job)};
    const int32_t length = (int32_t)job->n_ids;
    const double start = command_seconds();
    FtxError err = {FTX_OK, ""};
    bool failed = false;
    FtxStatus s;

    ftx_model_info(model, &v.info);
    v.lengths = room(v.count, sizeof *v.lengths);
    v.errors = room(v.count, sizeof *v.errors);
    v.hidden = room(v.tokens * (size_t)v.info.hidden, sizeof *v.hidden);
    v.ids = room(v.tokens, sizeof *v.ids);
    if (v.info.pooled)
        v.pooled = room(v.count * (size_t)v.info.pooled, sizeof *v.pooled);
    s = ftx_engine_encode(engine,
                          &(FtxEncode){.size = sizeof(FtxEncode),
                                       .count = v.count,
                                       .text = job->text,
                                       .text_bytes = job->text_bytes,
                                       .pair = job->text ? job->pair : NULL,
                                       .pair_bytes = job->pair_bytes,
                                       .truncate = job->text ? job->truncate : FTX_TRUNCATE_NONE,
                                       .literal = job->text && job->literal,
                                       .ids = job->text ? NULL : job->ids,
                                       .types = job->text ? NULL : job->types,
                                       .lengths = &length,
                                       .hidden = v.hidden,
                                       .hidden_rows = v.tokens,
                                       .pooled = v.pooled,
                                       .tokens = v.lengths,
                                       .text_ids = v.ids,
                                       .errors = v.errors},
                          &err);
    if (s)
        command_say(err.text);
    else
        failed = say_errors(&v, job);
    if (!s && (v.count > 1 || job->lines || !failed)) {
        print_all(&v, job);
        if (!job->quiet) {
            size_t tokens = 0;

            for (size_t i = 0; i < v.count; i++)
                tokens += (size_t)v.lengths[i];
            command_print("[%s: %zu texts, %zu tokens in %.3f s; %s]\n", v.info.name, v.count, tokens,
                          command_seconds() - start, v.info.device);
        }
    }
    free(v.lengths);
    free(v.errors);
    free(v.ids);
    free(v.hidden);
    free(v.pooled);
    free(v.mean);
    return s ? (int)command_exit(s) : failed ? EXIT_MISTAKE : EXIT_DONE;
}
