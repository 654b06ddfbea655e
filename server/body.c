/* body.c - reads the JSON of a request: bounded depth, and each field with its range. */
#include "body.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runner/command.h"
#include "../runtime/base/arena.h"
#include "../runtime/base/hash.h"

bool fault(Fault *f, const char *param, const char *format, ...)
{
    va_list ap;

    f->status = 400;
    f->code = NULL;
    snprintf(f->param, sizeof f->param, "%s", param);
    va_start(ap, format);
    vsnprintf(f->why, sizeof f->why, format, ap);
    va_end(ap);
    return false;
}

bool fault_of_end(Fault *f, FtxFinish finish)
{
    if (finish == FTX_FINISH_DEADLINE) {
        fault(f, "deadline", "The request could not begin before its deadline");
        f->status = 503;
        f->code = "deadline_exceeded";
    } else if (finish == FTX_FINISH_NAN) {
        fault(f, "", "The model's numbers for this request are not finite");
        f->status = 500;
        f->code = "not_finite";
    }
    return finish == FTX_FINISH_DEADLINE || finish == FTX_FINISH_NAN;
}

/* Brackets that are open at once, at most; those in strings do not count. */
static size_t depth_of(const char *p, size_t n)
{
    size_t depth = 0, most = 0;
    bool text = false;

    for (size_t i = 0; i < n && most <= MOST_DEPTH; i++) {
        if (text && p[i] == '\\') {
            i++; /* a quote behind it ends no string */
        } else if (text) {
            text = p[i] != '"';
        } else if (p[i] == '"') {
            text = true;
        } else if (p[i] == '{' || p[i] == '[') {
            most = ++depth > most ? depth : most;
        } else if (p[i] == '}' || p[i] == ']') {
            depth -= depth > 0;
        }
    }
    return most;
}

json_t *body_parse(const char *text, size_t bytes, Fault *f)
{
    json_error_t error;
    json_t *root;

    if (depth_of(text, bytes) > MOST_DEPTH) {
        fault(f, "", "the body has more than %d nested objects and lists", MOST_DEPTH);
        return NULL;
    }
    root = json_loadb(bytes ? text : "", bytes, 0, &error);
    if (!root) {
        fault(f, "", "the body is no JSON: line %d, column %d: %s", error.line, error.column, error.text);
        return NULL;
    }
    if (json_is_object(root))
        return root;
    json_decref(root);
    fault(f, "", "the body must be a JSON object");
    return NULL;
}

json_t *body_field(const json_t *root, const char *name)
{
    json_t *v = json_object_get(root, name);

    return v && !json_is_null(v) ? v : NULL;
}

/* What was found, for messages. */
static void print_found(const json_t *v, char *out, size_t bytes)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));

    snprintf(out, bytes, "%.60s", text ? text : "something else");
    free(text);
}

bool body_number(const json_t *root, const char *name, double low, double high, double *out, Fault *f)
{
    const json_t *v = body_field(root, name);
    char found[80];

    if (!v)
        return true;
    print_found(v, found, sizeof found);
    if (!json_is_number(v) || !(json_number_value(v) >= low && json_number_value(v) <= high))
        return fault(f, name, "%s: expected a number from %g to %g, found %s", name, low, high, found);
    *out = json_number_value(v);
    return true;
}

bool body_count(const json_t *root, const char *name, int64_t low, int64_t high, int64_t *out, Fault *f)
{
    const json_t *v = body_field(root, name);
    char found[80];
    double x;

    if (!v)
        return true;
    print_found(v, found, sizeof found);
    x = json_number_value(v);
    if (!json_is_number(v) || (json_is_real(v) && (x != floor(x) || fabs(x) > 9e15)))
        return fault(f, name, "%s: expected a whole number, found %s", name, found);
    *out = json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)x;
    if (*out < low || *out > high)
        return fault(f, name, "%s: expected a whole number from %" PRId64 " to %" PRId64 ", found %s", name, low, high,
                     found);
    return true;
}

bool body_bool(const json_t *root, const char *name, bool *out, Fault *f)
{
    const json_t *v = body_field(root, name);

    if (!v)
        return true;
    if (!json_is_boolean(v))
        return fault(f, name, "%s: expected true or false", name);
    *out = json_is_true(v);
    return true;
}

bool body_text(const json_t *root, const char *name, const char **out, Fault *f)
{
    const json_t *v = body_field(root, name);

    if (!v)
        return true;
    if (!json_is_string(v))
        return fault(f, name, "%s: expected a string", name);
    *out = json_string_value(v);
    return true;
}

bool body_ids(const json_t *list, const char *name, int vocab, int32_t **ids, size_t *n, Fault *f)
{
    const json_t *v;
    size_t i;

    *n = json_array_size(list);
    *ids = command_must(calloc(*n + 1, sizeof **ids));
    json_array_foreach(list, i, v)
    {
        const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;

        if (id < 0 || id >= vocab) {
            free(*ids);
            *ids = NULL;
            return fault(f, name, "%s[%zu]: expected a token id from 0 to %d", name, i, vocab - 1);
        }
        (*ids)[i] = (int32_t)id;
    }
    return true;
}

/* --- the table of numbers ---------------------------------------------------------------------------------- */

typedef enum Kind { KIND_COUNT, KIND_NUMBER, KIND_SHARE, KIND_OFF, KIND_EARLY, KIND_HIDDEN } Kind;

static const struct Param {
    const char *name;
    Kind kind;
    size_t at;
    double low, high;
} params[] = {
#define PARAM(name, kind, field, low, high) {#name, KIND_##kind, offsetof(FtxRequest, field), low, high},
#include "params.def"
#undef PARAM
#define DECODE(name, kind, low, high, ...) {#name, KIND_##kind, offsetof(FtxRequest, name), low, high},
#include "../runtime/decode.def"
#undef DECODE
};

static bool is_repeated(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(params[k].name, params[i].name) == 0)
            return true;
    return false;
}

static bool read_early(const json_t *v, FtxEarly *early, Fault *f)
{
    if (json_is_boolean(v))
        *early = json_is_true(v) ? FTX_EARLY_TRUE : FTX_EARLY_FALSE;
    else if (json_is_string(v) && strcmp(json_string_value(v), "never") == 0)
        *early = FTX_EARLY_NEVER;
    else
        return fault(f, "early_stopping", "early_stopping: expected true, false or \"never\"");
    return true;
}

static bool read_param(const json_t *root, const struct Param *p, FtxRequest *q, Fault *f)
{
    char *at = (char *)q + p->at;
    int64_t count = 0;
    double x = 0.0;

    switch (p->kind) {
    case KIND_COUNT:
    case KIND_OFF:
        if (!body_count(root, p->name, p->kind == KIND_OFF ? -1 : (int64_t)p->low, (int64_t)p->high, &count, f))
            return false;
        *(int *)(void *)at = p->kind == KIND_OFF && count < 0 ? 0 : (int)count;
        return true;
    case KIND_NUMBER:
    case KIND_SHARE:
        if (!body_number(root, p->name, p->low, p->high, &x, f))
            return false;
        if (p->kind == KIND_SHARE && x <= p->low)
            return fault(f, p->name, "%s: expected a number above %g, up to %g, found %g", p->name, p->low, p->high, x);
        *(float *)(void *)at = (float)x;
        return true;
    case KIND_EARLY: return read_early(body_field(root, p->name), (FtxEarly *)(void *)at, f);
    case KIND_HIDDEN: break;
    }
    return true;
}

/* --- lists -------------------------------------------------------------------------------------------------- */

static bool read_stop(const json_t *root, FtxRequest *q, Lists *lists, Fault *f)
{
    json_t *v = body_field(root, "stop");
    const size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;

    if (n > MOST_STOPS)
        return fault(f, "stop", "stop: expected at most %d strings, found %zu", MOST_STOPS, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;

        if (!json_is_string(s) || !json_string_length(s) || json_string_length(s) > 255)
            return fault(f, "stop", "stop: expected strings of 1 to 255 bytes");
        lists->stop[i] = json_string_value(s);
    }
    q->stop = lists->stop;
    q->stop_count = n;
    return true;
}

static bool read_stop_ids(const json_t *root, const FtxModelInfo *info, FtxRequest *q, Lists *lists, Fault *f)
{
    const json_t *v = body_field(root, "stop_token_ids");
    int32_t *ids;
    size_t n;

    if (!v)
        return true;
    if (!json_is_array(v) || json_array_size(v) > MOST_STOP_IDS)
        return fault(f, "stop_token_ids", "stop_token_ids: expected a list of at most %d token ids", MOST_STOP_IDS);
    if (!body_ids(v, "stop_token_ids", info->vocab, &ids, &n, f))
        return false;
    if (ids)
        memcpy(lists->stop_ids, ids, n * sizeof *ids);
    free(ids);
    q->stop_ids = lists->stop_ids;
    q->stop_ids_count = n;
    return true;
}

static bool read_bias(const json_t *root, const FtxModelInfo *info, FtxRequest *q, Lists *lists, Fault *f)
{
    json_t *v = body_field(root, "logit_bias"), *number;
    const char *key;
    size_t n = 0;

    if (!v)
        return true;
    if (!json_is_object(v) || json_object_size(v) > MOST_BIAS)
        return fault(f, "logit_bias", "logit_bias: expected an object of at most %d token ids", MOST_BIAS);
    json_object_foreach(v, key, number)
    {
        char *end;
        const long id = strtol(key, &end, 10);

        if (end == key || *end || id < 0 || id >= info->vocab)
            return fault(f, "logit_bias", "logit_bias: \"%.40s\" is no token id from 0 to %d", key, info->vocab - 1);
        if (!json_is_number(number) || fabs(json_number_value(number)) > 100.0)
            return fault(f, "logit_bias", "logit_bias: of token %ld: expected a number from -100 to 100", id);
        lists->bias_ids[n] = (int32_t)id;
        lists->bias_values[n++] = (float)json_number_value(number);
    }
    q->bias_ids = lists->bias_ids;
    q->bias_values = lists->bias_values;
    q->bias_count = n;
    return true;
}

/* A text of the client; requests of another one share no pages of the KV cache. */
bool body_salt(const json_t *root, FtxRequest *q, Fault *f)
{
    const char *salt = NULL;

    if (!body_text(root, "cache_salt", &salt, f))
        return false;
    if (salt && !*salt)
        return fault(f, "cache_salt", "cache_salt: expected a string that is not empty");
    if (salt)
        q->cache_salt = hash128_seeded(salt, strlen(salt), 0).low;
    return true;
}

bool body_deadline(const json_t *root, FtxRequest *q, Fault *f)
{
    double seconds = 0.0;

    if (!body_number(root, "deadline", 0.001, 86400.0, &seconds, f))
        return false;
    q->deadline_ms = (int)(seconds * 1e3);
    return true;
}

bool body_request(const json_t *root, const FtxModelInfo *info, FtxRequest *q, Lists *lists, Fault *f)
{
    const json_t *seed = body_field(root, "seed");

    for (size_t i = 0; i < LEN(params); i++)
        if (body_field(root, params[i].name) && !is_repeated(i) && !read_param(root, &params[i], q, f))
            return false;
    if (seed && !json_is_integer(seed))
        return fault(f, "seed", "seed: expected a whole number of 64 bits");
    if (seed)
        q->seed = (uint64_t)json_integer_value(seed);
    return body_bool(root, "ignore_eos", &q->ignore_eos, f) && body_salt(root, q, f) && body_deadline(root, q, f) &&
           read_stop(root, q, lists, f) && read_stop_ids(root, info, q, lists, f) && read_bias(root, info, q, lists, f);
}
