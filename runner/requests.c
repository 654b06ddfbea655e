/* requests.c - lines of OpenAI's batches to requests, and answers to such lines.
 *
 *   {"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 9}}
 *   {"id": "batch_req_1", "custom_id": "a", "response": {"status_code": 200, "body": {...}}, "error": null} */
#include "requests.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "json.h"
#include "../runtime/base/arena.h"

typedef struct Reading {
    const FtxModel *model;
    LineRequest *l;
    FtxRequest *q;
    char *why;
    size_t why_bytes;
} Reading;

static bool refuse(const Reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool refuse(const Reading *r, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(r->why, r->why_bytes, format, ap);
    va_end(ap);
    return false;
}

/* --- values ------------------------------------------------------------------------------------------------ */

static bool take_int(const Reading *r, const char *name, const json_t *v, int32_t *to)
{
    const json_int_t n = json_integer_value(v);

    if (!json_is_integer(v) || n < INT32_MIN || n > INT32_MAX)
        return refuse(r, "%s: expected a whole number of 32 bits", name);
    *to = (int32_t)n;
    return true;
}

static bool take_float(const Reading *r, const char *name, const json_t *v, float *to)
{
    *to = (float)json_number_value(v);
    return json_is_number(v) || refuse(r, "%s: expected a number", name);
}

static bool take_early(const Reading *r, const char *name, const json_t *v, FtxEarly *to)
{
    const char *word = json_string_value(v);

    if (!json_is_boolean(v) && (!word || strcmp(word, "never") != 0))
        return refuse(r, "%s: expected true, false or \"never\"", name);
    *to = word ? FTX_EARLY_NEVER : json_is_true(v) ? FTX_EARLY_TRUE : FTX_EARLY_FALSE;
    return true;
}

static bool take_prompt(const Reading *r, const json_t *v)
{
    const size_t n = json_array_size(v);

    r->q->text = json_string_value(v);
    r->q->text_bytes = json_string_length(v);
    if (r->q->text)
        return r->q->text_bytes || refuse(r, "prompt: it is empty");
    if (!n)
        return refuse(r, "prompt: expected a text or a list of token ids");
    r->l->ids = command_must(realloc(r->l->ids, n * sizeof *r->l->ids));
    for (size_t i = 0; i < n; i++)
        if (!take_int(r, "prompt", json_array_get(v, i), &r->l->ids[i]))
            return false;
    r->q->ids = r->l->ids;
    r->q->ids_count = n;
    return true;
}

static bool take_messages(const Reading *r, const json_t *v)
{
    char *text = command_must(json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY));
    FtxChat chat = FTX_CHAT_INIT;
    FtxError err = {0};
    size_t room, n = 0;
    FtxStatus s;

    chat.json = text;
    chat.add_generation_prompt = true;
    do { /* the first time for the number of ids */
        room = n;
        r->l->ids = command_must(realloc(r->l->ids, (room + 1) * sizeof *r->l->ids));
        s = ftx_chat(r->model, &chat, r->l->ids, room, &n, &err);
    } while (!s && n > room);
    free(text);
    r->l->chat = true;
    r->q->ids = r->l->ids;
    r->q->ids_count = n;
    return !s || refuse(r, "messages: %s", err.text);
}

/* A text or a list of texts. */
static bool take_stop(const Reading *r, const json_t *v)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;

    if (n > LEN(r->l->stop))
        return refuse(r, "stop: expected at most %zu texts, found %zu", LEN(r->l->stop), n);
    for (size_t i = 0; i < n; i++) {
        r->l->stop[i] = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!r->l->stop[i])
            return refuse(r, "stop: expected a text or a list of texts");
    }
    r->q->stop = r->l->stop;
    r->q->stop_count = n;
    return true;
}

static bool take_stop_ids(const Reading *r, const json_t *v)
{
    const size_t n = json_array_size(v);

    if (!json_is_array(v) || n > LEN(r->l->stop_ids))
        return refuse(r, "stop_token_ids: expected a list of at most %zu token ids", LEN(r->l->stop_ids));
    for (size_t i = 0; i < n; i++)
        if (!take_int(r, "stop_token_ids", json_array_get(v, i), &r->l->stop_ids[i]))
            return false;
    r->q->stop_ids = r->l->stop_ids;
    r->q->stop_ids_count = n;
    return true;
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* submit checks the ranges. */
static bool take_field(const Reading *r, const char *name, const json_t *v)
{
    static const char *const ignored[] = {"model", "user", "metadata", "stream", "stream_options", "store"};
    static const char *const ones[] = {"n", "best_of", "samples", "n_best"};
    FtxRequest *q = r->q;

    if (json_is_null(v) || is_one_of(name, ignored, LEN(ignored)))
        return true;
    if (is_one_of(name, ones, LEN(ones)))
        return json_integer_value(v) == 1 || refuse(r, "%s: a line has one answer", name);
    if (strcmp(name, "prompt") == 0)
        return take_prompt(r, v);
    if (strcmp(name, "messages") == 0)
        return take_messages(r, v);
    if (strcmp(name, "max_tokens") == 0 || strcmp(name, "max_completion_tokens") == 0)
        return take_int(r, name, v, &q->max_new);
    if (strcmp(name, "stop") == 0)
        return take_stop(r, v);
    if (strcmp(name, "stop_token_ids") == 0)
        return take_stop_ids(r, v);
    if (strcmp(name, "seed") == 0) {
        q->seed = (uint64_t)json_integer_value(v);
        return json_is_integer(v) || refuse(r, "seed: expected a whole number");
    }
    if (strcmp(name, "ignore_eos") == 0) {
        q->ignore_eos = json_is_true(v);
        return json_is_boolean(v) || refuse(r, "ignore_eos: expected true or false");
    }
#define TAKE_COUNT take_int
#define TAKE_NUMBER take_float
#define TAKE_EARLY take_early
#define DECODE(field, type, ...) \
    if (strcmp(name, #field) == 0) \
        return TAKE_##type(r, name, v, &q->field);
#include "../runtime/decode.def"
#undef DECODE
    return refuse(r, "%.100s: no such field, or not in a batch", name);
}

/* --- lines ---------------------------------------------------------------------------------------------------- */

static bool is_given(const json_t *body, const char *name)
{
    const json_t *v = json_object_get(body, name);

    return v && !json_is_null(v);
}

static bool read_line(const Reading *r, const char *line, size_t bytes)
{
    json_error_t error;
    const char *name;
    json_t *body, *v;

    r->l->root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(r->l->root))
        return refuse(r, "expected a JSON object%s%s", r->l->root ? "" : ": ", r->l->root ? "" : error.text);
    r->l->id = json_string_value(json_object_get(r->l->root, "custom_id"));
    body = json_object_get(r->l->root, "body");
    if (!json_is_object(body))
        return refuse(r, "body: expected a JSON object");
    if (!is_given(body, "prompt") == !is_given(body, "messages"))
        return refuse(r, "body: expected either prompt or messages");
    json_object_foreach(body, name, v) if (!take_field(r, name, v)) return false;
    if (!is_given(body, "min_new") && r->q->max_new > 0 && r->q->min_new > r->q->max_new)
        r->q->min_new = r->q->max_new; /* the model's own gives way */
    return true;
}

LineRequest *requests_read(const FtxModel *model, const char *line, size_t bytes, FtxRequest *q, char *why,
                           size_t why_bytes)
{
    LineRequest *l = command_must(calloc(1, sizeof *l));

    *why = '\0';
    read_line(&(Reading){model, l, q, why, why_bytes}, line, bytes);
    return l;
}

void requests_free(LineRequest *l)
{
    if (l) {
        json_decref(l->root);
        free(l->ids);
    }
    free(l);
}

/* --- answers -------------------------------------------------------------------------------------------------- */

static json_t *usage_of(const LineAnswer *a)
{
    return json_pack("{sI sI sI}", "prompt_tokens", (json_int_t)a->prompt_tokens, "completion_tokens",
                     (json_int_t)a->new_tokens, "total_tokens",
                     (json_int_t)a->prompt_tokens + (json_int_t)a->new_tokens);
}

static const char *reason_of(const LineAnswer *a)
{
    return a->finish == FTX_FINISH_LENGTH ? "length" : "stop";
}

static json_t *body_of(const LineRequest *l, const FtxModelInfo *info, const LineAnswer *a)
{
    json_t *text = runner_json_text(a->text ? a->text : "", a->text_bytes);
    json_t *choice = l->chat ? json_pack("{si s{ss so}}", "index", 0, "message", "role", "assistant", "content", text)
                             : json_pack("{si so}", "index", 0, "text", text);

    json_object_set_new(choice, "finish_reason", json_string(reason_of(a)));
    return json_pack("{ss ss s[o] so}", "object", l->chat ? "chat.completion" : "text_completion", "model", info->name,
                     "choices", choice, "usage", usage_of(a));
}

static bool was_stopped(const LineAnswer *a)
{
    return a->finish == FTX_FINISH_CANCEL || a->finish == FTX_FINISH_ERROR || a->finish == FTX_FINISH_NAN;
}

static json_t *error_of(FtxFinish finish)
{
    const bool failed = finish == FTX_FINISH_ERROR, nan = finish == FTX_FINISH_NAN;

    return json_pack("{ss ss}", "code",
                     failed ? "device_failed"
                     : nan  ? "not_finite"
                            : "batch_cancelled",
                     "message",
                     failed ? "the device has failed"
                     : nan  ? "the logits are not finite numbers"
                            : "the run was stopped");
}

void requests_print(const LineRequest *l, size_t number, const FtxModelInfo *info, const LineAnswer *a)
{
    const bool stopped = was_stopped(a);
    char id[40];
    json_t *body;

    snprintf(id, sizeof id, "batch_req_%zu", number);
    body = a->refusal ? json_pack("{s{so ss}}", "error", "message", runner_json_text(a->refusal, strlen(a->refusal)),
                                  "type", "invalid_request_error")
           : stopped  ? NULL
                      : body_of(l, info, a);
    runner_json_print(
        json_pack("{ss ss? so so}", "id", id, "custom_id", l->id, "response",
                  body ? json_pack("{si so}", "status_code", a->refusal ? 400 : 200, "body", body) : json_null(),
                  "error", stopped && !a->refusal ? error_of(a->finish) : json_null()));
}

void requests_print_piece(const LineRequest *l, size_t number, const FtxModelInfo *info, const LineAnswer *piece)
{
    const bool last = piece->finish != FTX_RUNNING;
    json_t *text = runner_json_text(piece->text ? piece->text : "", piece->text_bytes), *choice, *o;
    char id[40];

    if (was_stopped(piece)) {
        json_decref(text);
        requests_print(l, number, info, piece);
        return;
    }
    choice = l->chat ? json_pack("{si s{so}}", "index", 0, "delta", "content", text)
                     : json_pack("{si so}", "index", 0, "text", text);
    json_object_set_new(choice, "finish_reason", last ? json_string(reason_of(piece)) : json_null());
    snprintf(id, sizeof id, "batch_req_%zu", number);
    o = json_pack("{ss ss? ss ss s[o]}", "id", id, "custom_id", l->id, "object",
                  l->chat ? "chat.completion.chunk" : "text_completion", "model", info->name, "choices", choice);
    if (last)
        json_object_set_new(o, "usage", usage_of(piece));
    runner_json_print(o);
}
