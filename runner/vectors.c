/* vectors.c - an encoder runs: texts in; vectors, or how near they are, out.
 *
 * A text's vector is the pooled one; where the model has none, the mean of its tokens' vectors. */
#include "vectors.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"

typedef struct Vectors {
    FtxModelInfo info;
    size_t count, tokens;
    int32_t *lengths;
    float *hidden, *pooled, *mean; /* [tokens][hidden], [count][pooled], [count][hidden] */
    FtxError *errors;
} Vectors;

static void *must(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    if (!p) {
        command_say("out of memory");
        exit(EXIT_BUG);
    }
    return p;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void take_means(Vectors *v)
{
    const size_t D = (size_t)v->info.hidden;
    const float *x = v->hidden;

    v->mean = must(v->count * D, sizeof *v->mean);
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

/* --- output ------------------------------------------------------------------------------------ */

static json_t *floats(const float *x, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, isfinite(x[i]) ? json_real((double)x[i]) : json_null());
    return list;
}

static void print_json(const Vectors *v)
{
    const size_t D = (size_t)v->info.hidden;
    size_t at = 0;

    for (size_t i = 0; i < v->count; at += (size_t)v->lengths[i++]) {
        json_t *o = json_object();
        char *line;

        if (v->errors[i].status) {
            json_object_set_new(o, "error", json_string(v->errors[i].text));
        } else {
            json_object_set_new(o, "tokens", json_integer(v->lengths[i]));
            json_object_set_new(o, "first", floats(v->hidden + at * D, D));
            json_object_set_new(o, "mean", floats(v->mean + i * D, D));
            json_object_set_new(o, "pooled",
                                v->pooled ? floats(v->pooled + i * (size_t)v->info.pooled, (size_t)v->info.pooled)
                                          : json_null());
        }
        json_object_set_new(o, "device", json_string(v->info.device));
        line = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
        puts(line ? line : "");
        free(line);
        json_decref(o);
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

/* A row a text: its cosine with each, then its beginning. */
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
        printf(" %.60s%s\n", job->text[i], strlen(job->text[i]) > 60 ? "..." : "");
    }
}

/* --- the call ------------------------------------------------------------------------------------- */

/* Room for the hidden states is known once the texts are tokens. */
static FtxStatus count_tokens(FtxModel *model, const VectorsJob *job, Vectors *v, FtxError *err)
{
    FtxStatus s = FTX_OK;

    if (!job->text)
        v->tokens = job->n_ids;
    for (size_t i = 0; job->text && i < job->count && !s; i++) {
        size_t n;

        s = ftx_tokenize(model, job->text[i], strlen(job->text[i]), true, NULL, 0, &n, err);
        v->tokens += s ? 0 : n;
    }
    return s;
}

int vectors_run(FtxModel *model, FtxEngine *engine, const VectorsJob *job)
{
    Vectors v = {.count = job->text ? job->count : 1};
    const int32_t length = (int32_t)job->n_ids;
    FtxEncode encode = {.count = v.count, .text = job->text, .ids = job->text ? NULL : job->ids, .lengths = &length};
    const double start = seconds();
    FtxError err = {FTX_OK, ""};
    FtxStatus s;
    bool failed = false;

    ftx_model_info(model, &v.info);
    s = count_tokens(model, job, &v, &err);
    v.lengths = must(v.count, sizeof *v.lengths);
    v.errors = must(v.count, sizeof *v.errors);
    v.hidden = must(v.tokens * (size_t)v.info.hidden, sizeof *v.hidden);
    if (v.info.pooled)
        v.pooled = must(v.count * (size_t)v.info.pooled, sizeof *v.pooled);
    encode.hidden = v.hidden;
    encode.hidden_rows = v.tokens;
    encode.pooled = v.pooled;
    encode.tokens = v.lengths;
    encode.errors = v.errors;
    if (!s)
        s = ftx_engine_encode(engine, &encode, &err);
    if (s)
        command_say(err.text);
    for (size_t i = 0; i < v.count && !s; i++)
        if (v.errors[i].status) {
            failed = true;
            if (v.count > 1)
                fprintf(stderr, "%s: text %zu: %s\n", command_program, i + 1, v.errors[i].text);
            else
                command_say(v.errors[i].text);
        }
    if (!s && (v.count > 1 || !failed)) {
        take_means(&v);
        if (job->json)
            print_json(&v);
        else if (v.count > 1)
            print_similarities(&v, job);
        else
            print_vector(&v);
        if (!job->quiet)
            fprintf(stderr, "[%s: %zu texts, %zu tokens in %.3f s; %s]\n", v.info.name, v.count, v.tokens,
                    seconds() - start, v.info.device);
    }
    free(v.lengths);
    free(v.errors);
    free(v.hidden);
    free(v.pooled);
    free(v.mean);
    return s == FTX_EINVAL || failed ? EXIT_MISTAKE : s ? EXIT_FAILED : EXIT_DONE;
}
