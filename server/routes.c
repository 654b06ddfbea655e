/* routes.c - which path is answered by whom; refusals; the routes that need no engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"
#include "../runner/command.h"
#include "../runtime/base/arena.h"

static const Route routes[] = {
    {"GET", "/health", route_health, true, true},
    {"GET", "/ping", route_health, true, true},
    {"GET", "/version", route_version, false, true},
    {"GET", "/metrics", route_metrics, false, true},
    {"GET", "/v1/models", route_models, false, true},
    {"GET", "/v1/models/", route_models, false, true},
    {"POST", "/v1/completions", route_completions, false, false},
    {"POST", "/v1/chat/completions", route_chat, false, false},
    {"POST", "/v1/responses", route_responses, false, false},
    {"POST", "/v1/embeddings", route_embeddings, false, false},
    {"POST", "/v1/score", route_score, false, false},
    {"POST", "/score", route_score, false, false},
    {"POST", "/v1/rerank", route_rerank, false, false},
    {"POST", "/rerank", route_rerank, false, false},
    {"POST", "/tokenize", route_tokenize, false, false},
    {"POST", "/detokenize", route_detokenize, false, false},
};

static bool is_path(const Route *r, Slice path)
{
    const size_t n = strlen(r->path);

    return slice_is(path, r->path) || (r->path[n - 1] == '/' && path.n > n && strncmp(path.at, r->path, n) == 0);
}

const Route *route_find(Slice method, Slice path, const char **other)
{
    *other = NULL;
    for (size_t i = 0; i < LEN(routes); i++) {
        if (!is_path(&routes[i], path))
            continue;
        if (slice_is(method, routes[i].method) || (slice_is(method, "HEAD") && strcmp(routes[i].method, "GET") == 0))
            return &routes[i];
        *other = routes[i].method;
    }
    return NULL;
}

/* --- answers ----------------------------------------------------------------------------------------------- */

static const char *type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 429: return "rate_limit_error";
    case 500:
    case 503: return "server_error";
    default: return "invalid_request_error";
    }
}

static void print_fault(Text *t, const Fault *f)
{
    text_put(t, "{\"error\":{\"message\":");
    text_json(t, f->why, strlen(f->why));
    text_printf(t, ",\"type\":\"%s\",\"param\":", type_of(f->status));
    if (f->param[0])
        text_json(t, f->param, strlen(f->param));
    else
        text_put(t, "null");
    text_put(t, ",\"code\":");
    if (f->code)
        text_json(t, f->code, strlen(f->code));
    else
        text_put(t, "null");
    text_put(t, "}}");
}

void answer_fault(Exchange *x, const Fault *f)
{
    Text t = {0};

    exchange_note(x, "refused: %s", f->why);
    print_fault(&t, f);
    if (f->retry)
        exchange_header(x, "Retry-After: %d", f->retry);
    if (f->status == 401)
        exchange_header(x, "WWW-Authenticate: Bearer");
    if (!exchange_answer(x, f->status, "application/json", &t)) { /* the head says 200: the error is an event */
        t.n = 0;
        text_put(&t, "data: ");
        print_fault(&t, f);
        text_put(&t, "\n\ndata: [DONE]\n\n");
        exchange_write(x, &t);
        exchange_end(x);
    }
    text_free(&t);
}

void answer_json(Exchange *x, Text *body)
{
    exchange_answer(x, 200, "application/json", body);
    text_free(body);
}

void answer_usage(Text *t, size_t prompt_tokens, size_t new_tokens, size_t cached_tokens)
{
    text_printf(t,
                "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
                "\"prompt_tokens_details\":{\"cached_tokens\":%zu}}",
                prompt_tokens, new_tokens, prompt_tokens + new_tokens, cached_tokens);
}

void with_body(Server *s, Exchange *x, bool (*run)(Server *s, Exchange *x, json_t *root, Fault *f))
{
    Fault f = {0};
    json_t *root = body_parse(x->body.at, x->body.n, &f);

    if (!root || !run(s, x, root, &f))
        answer_fault(x, &f);
    json_decref(root);
}

Served *server_model(Server *s, const json_t *root, Fault *f)
{
    const char *name = NULL;

    if (!body_text(root, "model", &name, f))
        return NULL;
    for (size_t i = 0; i < s->n_models; i++)
        if (!name || strcmp(s->models[i].name, name) == 0)
            return &s->models[i];
    fault(f, "model", "The model `%.100s` does not exist; GET /v1/models names those that are served", name);
    f->status = 404;
    f->code = "model_not_found";
    return NULL;
}

bool server_submit(Served *m, Job *const *jobs, size_t n, Fault *f)
{
    int retry;
    const int status = served_submit(m, jobs, n, &retry);

    if (!status)
        return true;
    metrics_refused(&m->metrics);
    if (status == 429) {
        fault(f, "", "The queue is full. Try again in %d s", retry);
        f->code = "queue_full";
        f->retry = retry;
    } else {
        fault(f, "", "The device of this model has failed; the server must be started again");
        f->code = "device_failed";
    }
    f->status = status;
    return false;
}

/* --- routes without an engine ------------------------------------------------------------------------------- */

void route_health(Server *s, Exchange *x)
{
    Text t = {0};
    bool alive = !atomic_load(&s->draining);

    for (size_t i = 0; i < s->n_models; i++)
        alive = served_alive(&s->models[i]) && alive;
    exchange_answer(x, alive ? 200 : 503, "text/plain", &t);
}

void route_version(Server *s, Exchange *x)
{
    Text t = {0};

    (void)s;
    text_printf(&t, "{\"version\":\"ftxc %s\"}", ftx_version());
    answer_json(x, &t);
}

static void print_model(Text *t, const Server *s, const Served *m)
{
    text_put(t, "{\"id\":");
    text_json(t, m->name, strlen(m->name));
    text_printf(t, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"ftxc\",\"max_model_len\":%d}",
                (long long)s->started, m->info.context);
}

void route_models(Server *s, Exchange *x)
{
    const char *name = strlen(x->path) > strlen("/v1/models/") ? x->path + strlen("/v1/models/") : NULL;
    Fault f = {0};
    Text t = {0};

    if (name) {
        json_t *root = json_pack("{s:s}", "model", name);
        const Served *m = server_model(s, root, &f);

        json_decref(root);
        if (!m) {
            answer_fault(x, &f);
            return;
        }
        print_model(&t, s, m);
    } else {
        text_put(&t, "{\"object\":\"list\",\"data\":[");
        for (size_t i = 0; i < s->n_models; i++) {
            text_put(&t, i ? "," : "");
            print_model(&t, s, &s->models[i]);
        }
        text_put(&t, "]}");
    }
    answer_json(x, &t);
}

void route_metrics(Server *s, Exchange *x)
{
    MetricsRow *rows = command_must(calloc(s->n_models, sizeof *rows));
    Text t = {0};

    for (size_t i = 0; i < s->n_models; i++) {
        Served *m = &s->models[i];

        rows[i] = (MetricsRow){
            .model = m->name, .metrics = &m->metrics, .context = m->info.context, .kv_tokens = m->info.kv_tokens};
        served_load(m, &rows[i].waiting, &rows[i].stats);
    }
    metrics_print(&t, rows, s->n_models, http_connections(s->http));
    free(rows);
    exchange_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", &t);
    text_free(&t);
}
