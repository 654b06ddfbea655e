/* states.c - /v1/embeddings of a decoder: states of its last layer, behind the final norm.
 *
 * Each text is a request to the engine (FtxRequest.states) like those for text, so it runs beside them, uses their prefix
 * cache and is cancelled as they are. It writes one token, which nobody reads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "encode.h"
#include "prompt.h"
#include "../runner/command.h"

typedef struct Vectors {
    Exchange *x;
    Served *m;
    bool base64, normalize;
    bool answered;            /* a refusal, or all of it */
    struct VectorPart *parts; /* [count] */
    float *vectors;           /* [count][m->info.states] */
    size_t count, open, done, tokens, cached;
} Vectors;

typedef struct VectorPart {
    Part part; /* first: its ids and job */
    Vectors *all;
} VectorPart;

static void free_vectors(Vectors *v)
{
    for (size_t i = 0; v->parts && i < v->count; i++)
        free(v->parts[i].part.ids);
    free(v->parts);
    free(v->vectors);
    exchange_release(v->x);
    free(v);
}

static void free_part(Job *j)
{
    Vectors *v = ((VectorPart *)j)->all;

    if (--v->open == 0)
        free_vectors(v);
}

/* --- the engine's thread ----------------------------------------------------------------------------------- */

static void fail_all(Vectors *v, const Fault *f)
{
    for (size_t i = 0; i < v->count; i++)
        v->parts[i].part.job.dropped = true;
    if (!v->answered)
        answer_fault(v->x, f);
    v->answered = true;
}

static void fail_part(Job *j, int status, const char *why)
{
    Fault f = {0};

    fault(&f, "", "%s", why);
    f.status = status;
    fail_all(((VectorPart *)j)->all, &f);
}

/* Copies a row of states, as a vector of length 1 if that is asked for. */
static void take_vector(const Vectors *v, float *to, const float *from)
{
    const size_t width = v->m->info.states;
    double sum = 0.0;

    for (size_t i = 0; i < width; i++)
        sum += (double)from[i] * from[i];
    for (size_t i = 0; i < width; i++)
        to[i] = v->normalize && sum > 0.0 ? (float)(from[i] / sqrt(sum)) : from[i];
}

static void answer(Vectors *v)
{
    Text t = {0};

    v->answered = true;
    text_put(&t, "{\"id\":\"embd-");
    text_json_part(&t, v->x->id, strlen(v->x->id));
    text_put(&t, "\",\"object\":\"list\",\"model\":");
    text_json(&t, v->m->name, strlen(v->m->name));
    text_put(&t, ",\"data\":[");
    encode_print(&t, v->vectors, v->count, v->m->info.states, v->base64);
    text_printf(&t, "],\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu", v->tokens, v->tokens);
    text_printf(&t, ",\"prompt_tokens_details\":{\"cached_tokens\":%zu}}}", v->cached);
    exchange_note(v->x, "model=%s texts=%zu tokens=%zu", v->m->name, v->count, v->tokens);
    answer_json(v->x, &t);
}

static void take_event(Job *j, const FtxEvent *e, const FtxHypothesis *best)
{
    VectorPart *p = (VectorPart *)j;
    Vectors *v = p->all;
    Fault f = {0};

    (void)best;
    if (e->finish == FTX_FINISH_CANCEL || e->finish == FTX_FINISH_ERROR || v->answered)
        return;
    if (fault_of_end(&f, e->finish)) {
        exchange_header(v->x, "x-should-retry: false");
        fail_all(v, &f);
        return;
    }
    if (e->states_count)
        take_vector(v, v->vectors + (size_t)p->part.number * v->m->info.states, e->states);
    if (e->finish == FTX_RUNNING)
        return;
    v->cached += e->cached_tokens;
    if (++v->done == v->count)
        answer(v);
}

/* --- the request: a worker ---------------------------------------------------------------------------------- */

static bool read_pooling(const json_t *root, FtxRequest *q, Fault *f)
{
    const char *pooling = "last";

    if (!body_text(root, "pooling", &pooling, f))
        return false;
    q->states = strcmp(pooling, "mean") == 0 ? FTX_STATES_MEAN : FTX_STATES_LAST;
    return q->states == FTX_STATES_MEAN || strcmp(pooling, "last") == 0 ||
           fault(f, "pooling", "pooling: expected last or mean");
}

static bool read_text(const Vectors *v, const json_t *root, const json_t *text, Part *p, Fault *f)
{
    const int context = v->m->info.context;

    Fault why = {0};

    if (!prompt_read(v->m, root, text, false, p, &why)) {
        const size_t named = strncmp(why.why, "prompt", 6) == 0 ? 6 : 0;

        *f = why;
        if (named) /* it is `input` here */
            fault(f, "input", "input[%d]%.600s", p->number, why.why + named);
        f->status = why.status;
        return false;
    }
    if (p->n_ids < (size_t)context) /* one token is written */
        return true;
    fault(f, "input", "input[%d]: %zu tokens; this model takes at most %d", p->number, p->n_ids, context - 1);
    f->code = "context_length_exceeded";
    return false;
}

static bool read_texts(Vectors *v, const json_t *root, const FtxRequest *q, Fault *f)
{
    const json_t *input = body_field(root, "input"), *first = json_array_get(input, 0);
    const bool list = json_is_array(input) && !json_is_integer(first);
    const size_t n = list ? json_array_size(input) : 1;

    if (!input || !n || n > MOST_TEXTS ||
        (!json_is_string(list ? first : input) && !json_is_array(list ? first : input)))
        return fault(f, "input", "input: expected a string, token ids, or a list of 1 to %d of them", MOST_TEXTS);
    v->parts = command_must(calloc(n, sizeof *v->parts));
    for (v->count = 0; v->count < n;) {
        const json_t *text = list ? json_array_get(input, v->count) : input;
        VectorPart *p = &v->parts[v->count];

        p->all = v;
        p->part.number = (int)v->count++;
        if (json_typeof(text) != json_typeof(list ? first : input))
            return fault(f, "input", "input[%d]: strings and token ids may not be mixed", p->part.number);
        if (!read_text(v, root, text, &p->part, f))
            return false;
        p->part.job = (Job){.exchange = v->x, .request = *q, .event = take_event, .fail = fail_part, .free = free_part};
        p->part.job.request.ids = p->part.ids;
        p->part.job.request.ids_count = p->part.n_ids;
        p->part.job.prompt_tokens = p->part.n_ids;
        v->tokens += p->part.n_ids;
    }
    return true;
}

static bool submit(Vectors *v, Fault *f)
{
    Job **jobs = command_must(calloc(v->count, sizeof *jobs));
    bool done;

    v->vectors = command_must(calloc(v->count * v->m->info.states, sizeof *v->vectors));
    v->open = v->count;
    for (size_t i = 0; i < v->count; i++)
        jobs[i] = &v->parts[i].part.job;
    done = server_submit(v->m, jobs, v->count, f);
    free(jobs);
    return done;
}

bool states_embed(Exchange *x, Served *m, const json_t *root, Fault *f)
{
    Vectors *v = command_must(calloc(1, sizeof *v));
    FtxRequest q = ftx_request_default(m->model);

    exchange_hold(x);
    *v = (Vectors){.x = x, .m = m, .normalize = true};
    q.max_new = q.samples = q.beams = 1; /* whatever the model does by itself */
    q.min_new = 0;
    q.temperature = 0.0f;
    q.ignore_eos = true;
    q.fair_key = x->client;
    if (encode_format(root, (int)m->info.states, &v->base64, f) && body_bool(root, "normalize", &v->normalize, f) &&
        read_pooling(root, &q, f) && body_salt(root, &q, f) && body_deadline(root, &q, f) &&
        read_texts(v, root, &q, f) && submit(v, f))
        return true;
    free_vectors(v);
    return false;
}
