/* server.h - what the routes share: the models, answers in JSON, refusals. */
#ifndef FTX_SERVER_SERVER_H
#define FTX_SERVER_SERVER_H

#include <time.h>

#include "body.h"
#include "http.h"
#include "model.h"
#include "workers.h"

typedef struct Server {
    Served *models; /* [n_models]; the first is taken where a request names none */
    size_t n_models;
    Http *http;
    Workers *workers;
    char **keys; /* [n_keys]; none: everybody may ask */
    size_t n_keys;
    atomic_bool draining;
    ToolStyle tools;                       /* NONE: as the model's vocabulary suggests */
    const struct GrammarLibrary *grammars; /* NULL: none */
    bool keep_reasoning;                   /* what stands in <think> stays in the text */
    bool client_priority;                  /* requests may have a priority */
    const char *cors;                      /* NULL: no header */
    char header[300];                      /* lines of every answer */
    bool quiet;
    double drain_seconds;
    time_t started;
    int notify; /* a socket for systemd; -1: none yet */
} Server;

/* One route: who answers which path. */
typedef struct Route {
    const char *method, *path; /* a path that ends in '/' also stands for all that begin so */
    void (*run)(Server *s, Exchange *x);
    bool open;  /* without a key */
    bool quick; /* runs in the I/O thread; else in a worker */
} Route;

/* The route of a path. NULL: none; *other: the method that it has there, or NULL. */
const Route *route_find(Slice method, Slice path, const char **other);

void answer_fault(Exchange *x, const Fault *f);
void answer_json(Exchange *x, Text *body); /* 200; frees the text */

/* The model that a request names. NULL: the reason is in f. */
Served *server_model(Server *s, const json_t *root, Fault *f);
/* served_submit; a refusal is in f. */
bool server_submit(Served *m, Job *const *jobs, size_t n, Fault *f);

/* The keys and values of every usage object. */
void answer_usage(Text *t, size_t prompt_tokens, size_t new_tokens, size_t cached_tokens);

/* Runs in a worker: `run` gets the parsed body. What it refuses is answered. */
void with_body(Server *s, Exchange *x, bool (*run)(Server *s, Exchange *x, json_t *root, Fault *f));

/* --- the routes ------------------------------------------------------------------------------------------- */

void route_health(Server *s, Exchange *x);
void route_version(Server *s, Exchange *x);
void route_models(Server *s, Exchange *x);
void route_metrics(Server *s, Exchange *x);
void route_completions(Server *s, Exchange *x);
void route_chat(Server *s, Exchange *x);
void route_responses(Server *s, Exchange *x);
void route_embeddings(Server *s, Exchange *x);
void route_score(Server *s, Exchange *x);
void route_rerank(Server *s, Exchange *x);
void route_tokenize(Server *s, Exchange *x);
void route_detokenize(Server *s, Exchange *x);

#endif
