/* completion.c - /v1/completions and /v1/chat/completions: a request to jobs, their events to an answer.
 *
 *     JSON ─worker─▶ Completion: a Part for each prompt ─served_submit─▶ events ─engine's thread─▶ Choices ─▶ the answer
 *
 * After served_submit the completion belongs to the engine's thread. */
#include "completion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "prompt.h"
#include "response.h"
#include "../runner/command.h"
#include "../runtime/base/arena.h"

enum { MOST_PROMPTS = 256 };

static void free_completion(Completion *c)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        free(c->parts[i].ids);
        free(c->parts[i].logprobs);
        free(c->parts[i].tops);
        free(c->parts[i].text);
    }
    for (size_t i = 0; c->choices && i < c->n_parts * (size_t)c->n; i++) {
        message_free(&c->choices[i]);
        free(c->choices[i].ids);
        free(c->choices[i].logprobs);
        free(c->choices[i].tops);
        matcher_close(c->choices[i].matcher);
    }
    free(c->parts);
    free(c->choices);
    text_free(&c->forced);
    text_free(&c->head);
    grammar_free(&c->grammar);
    json_decref(c->root);
    exchange_release(c->x);
    free(c);
}

/* --- events: the engine's thread -------------------------------------------------------------------------- */

static void add_token(Completion *c, Choice *choice, int32_t id, float logprob, const FtxTop *top)
{
    const size_t tops = (size_t)c->top;

    if (choice->n_ids == choice->room) {
        choice->room = choice->room * 2 + 32;
        choice->ids = command_must(realloc(choice->ids, choice->room * sizeof *choice->ids));
        choice->logprobs = command_must(realloc(choice->logprobs, choice->room * sizeof *choice->logprobs));
        choice->tops = command_must(realloc(choice->tops, (choice->room * tops + 1) * sizeof *choice->tops));
    }
    if (tops && top)
        memcpy(choice->tops + choice->n_ids * tops, top, tops * sizeof *top);
    choice->ids[choice->n_ids] = id;
    choice->logprobs[choice->n_ids++] = logprob;
    c->new_tokens++;
}

static const char *word_of(FtxFinish finish)
{
    switch (finish) {
    case FTX_FINISH_LENGTH: return "length";
    case FTX_FINISH_CANCEL: return "cancel";
    case FTX_FINISH_ERROR: return "error";
    case FTX_FINISH_DEADLINE: return "deadline";
    case FTX_FINISH_NAN: return "nan";
    case FTX_RUNNING:
    case FTX_FINISH_END:
    case FTX_FINISH_STOP: break;
    }
    return "stop";
}

/* The last choice has ended. */
static void answer_all(Completion *c, FtxFinish finish)
{
    Text t = {0};

    c->answered = true;
    exchange_note(c->x, "model=%s prompt=%zu new=%zu finish=%s", c->m->name, c->prompt_tokens, c->new_tokens,
                  word_of(finish));
    if (c->stream) {
        if (c->responses)
            response_end(&t, c);
        else
            completion_print_end(&t, c);
        exchange_write(c->x, &t);
        exchange_end(c->x);
        text_free(&t);
    } else {
        if (c->responses)
            response_print(&t, c, true);
        else
            completion_print(&t, c);
        answer_json(c->x, &t);
    }
}

/* What a stream says of an event: tokens from `first` on are new. */
static void stream_event(Completion *c, int index, int32_t token, const char *text, size_t bytes, size_t first)
{
    Choice *choice = &c->choices[index];
    Text t = {0};

    if (!choice->begun && c->responses)
        response_start(&t, c);
    else if (!choice->begun)
        completion_print_start(&t, c, index);
    choice->begun = true;
    if (c->chat && message_parsed(c)) {
        message_stream(&t, c, index, token, text, bytes, &first);
    } else if (bytes) {
        completion_print_text(&t, c, index, text, bytes, first);
        first = SIZE_MAX;
    }
    if ((c->logprobs || c->return_ids) && choice->n_ids > first)
        completion_print_text(&t, c, index, "", 0, first);
    if (choice->done && !c->responses)
        completion_print_finish(&t, c, index);
    exchange_write(c->x, &t);
    exchange_flush(c->x);
    text_free(&t);
}

/* The whole request ends, with all its prompts. */
static void fail_all(Completion *c, const Fault *f)
{
    for (size_t i = 0; i < c->n_parts; i++)
        c->parts[i].job.dropped = true;
    if (!c->answered)
        answer_fault(c->x, f);
    c->answered = true;
}

static void refuse(Completion *c, const Fault *f)
{
    if (!c->answered)
        exchange_header(c->x, "x-should-retry: false");
    fail_all(c, f);
}

/* Log-probabilities of the prompt. */
static void take_prompt(Completion *c, Part *p, const FtxEvent *e)
{
    const size_t top = (size_t)c->top;

    memcpy(p->logprobs + e->prompt_first, e->prompt_logprobs, e->prompt_count * sizeof *p->logprobs);
    for (size_t i = 0; i < e->prompt_count && top; i++)
        memcpy(p->tops + (e->prompt_first + i) * top, e->prompt_top + i * 20, top * sizeof *p->tops);
}

static void take_event(Job *j, const FtxEvent *e, const FtxHypothesis *best)
{
    Part *p = (Part *)j;
    Completion *c = p->all;
    const int index = p->number * c->n + e->sample - j->request.sample;
    Choice *choice = &c->choices[index];
    const size_t first = choice->n_ids;
    Fault f = {0};

    if (j->new_tokens && e->prompt_tokens && !p->n_ids) { /* a translator's source: known now */
        p->n_ids = e->prompt_tokens;
        c->prompt_tokens += e->prompt_tokens;
    }
    if (e->prompt_count) {
        take_prompt(c, p, e);
        return;
    }
    if (!p->counted) /* once for each prompt, whatever its samples */
        c->cached_tokens += e->cached_tokens;
    p->counted = true;
    if (best)
        for (size_t i = 0; i < best->count; i++)
            add_token(c, choice, best->ids[i], best->logprobs ? best->logprobs[i] : 0.0f, NULL);
    else if (e->token >= 0)
        add_token(c, choice, e->token, e->logprob, e->top);
    choice->finish = e->finish;
    choice->done = e->finish != FTX_RUNNING;
    if (choice->matcher && choice->n_ids > first && !choice->done)
        matcher_follow(choice->matcher, e->token, choice->n_ids);
    if (fault_of_end(&f, e->finish)) {
        refuse(c, &f);
        return;
    }
    if (e->finish == FTX_FINISH_CANCEL) {
        exchange_note(c->x, "model=%s prompt=%zu new=%zu finish=cancel", c->m->name, c->prompt_tokens, c->new_tokens);
        return;
    }
    if (c->answered)
        return;
    if (c->stream)
        stream_event(c, index, e->token, e->text, e->text_bytes, first);
    else if (c->chat && message_parsed(c))
        message_take(c, index, e->token, e->text, e->text_bytes);
    else
        text_add(&choice->text, e->text, e->text_bytes);
    if (choice->done) {
        bool all = true;

        for (size_t i = 0; i < c->n_parts * (size_t)c->n; i++)
            all = all && c->choices[i].done;
        if (all)
            answer_all(c, e->finish);
    }
}

static void fail_part(Job *j, int status, const char *why)
{
    Fault f = {0};

    fault(&f, "", "%s", why);
    f.status = status;
    fail_all(((Part *)j)->all, &f);
}

static void free_part(Job *j)
{
    Completion *c = ((Part *)j)->all;

    if (--c->open_parts == 0)
        free_completion(c);
}

/* --- the request: a worker ---------------------------------------------------------------------------------- */

static bool read_prompts(Completion *c, Fault *f)
{
    json_t *prompt = body_field(c->root, "prompt");
    const json_t *first = json_array_get(prompt, 0);
    const bool list = json_is_array(prompt) && !json_is_integer(first);

    if (!json_is_string(prompt) && !json_array_size(prompt))
        return fault(f, "prompt", "prompt: expected a string, a list of strings, or token ids");
    if (list && json_array_size(prompt) > MOST_PROMPTS)
        return fault(f, "prompt", "prompt: at most %d in one request", MOST_PROMPTS);
    c->n_parts = list ? json_array_size(prompt) : 1;
    c->parts = command_must(calloc(c->n_parts, sizeof *c->parts));
    for (size_t i = 0; i < c->n_parts; i++) {
        Part *p = &c->parts[i];
        const json_t *v = list ? json_array_get(prompt, i) : prompt;

        if (!prompt_read(c->m, c->root, v, c->echo, p, f))
            return false;
    }
    return true;
}

/* Fields that both routes have. */
static bool read_flags(Completion *c, Fault *f)
{
    json_t *options = body_field(c->root, "stream_options");
    int64_t n = 1;
    const int most = c->m->info.sequences < 128 ? c->m->info.sequences : 128;

    if (!body_bool(c->root, "stream", &c->stream, f) || !body_count(c->root, "n", 1, most, &n, f) ||
        !body_bool(c->root, "return_token_ids", &c->return_ids, f))
        return false;
    c->n = (int)n;
    if (options && !c->stream)
        return fault(f, "stream_options", "stream_options: only with \"stream\": true");
    if (options && !json_is_object(options))
        return fault(f, "stream_options", "stream_options: expected an object");
    return body_bool(options, "include_usage", &c->usage, f) &&
           body_bool(options, "continuous_usage_stats", &c->usage_each, f);
}

/* Fields that ask for what is not done here; true and values beside the harmless one are refused. */
static bool refuse_others(const Completion *c, Fault *f)
{
    static const struct {
        const char *name, *why;
    } no[] = {
        {"suffix", "text is written after a prompt, not between two"},
        {"best_of", "ask for n texts and choose"},
        {"prompt_logprobs", "/v1/completions gives them with echo and logprobs"},
        {"chat_template", "the template is the model's; see chat_template_kwargs"},
        {"functions", "use tools"},
        {"function_call", "use tool_choice"},
        {"audio", "only text is written"},
        {"include_stop_str_in_output", "a stop string is never part of the text"},
        {"continue_final_message", "the answer is always a message of its own"},
    };

    for (size_t i = 0; i < LEN(no); i++) {
        const json_t *v = body_field(c->root, no[i].name);
        const bool same = strcmp(no[i].name, "best_of") == 0 && json_integer_value(v) == c->n;

        if (v && !json_is_false(v) && !same)
            return fault(f, no[i].name, "%s is not supported: %s", no[i].name, no[i].why);
    }
    return true;
}

static bool read_priority(const Server *s, const Completion *c, Fault *f)
{
    const json_t *v = body_field(c->root, "priority");

    return s->client_priority || !v || (json_is_number(v) && json_number_value(v) == 0.0) ||
           fault(f, "priority", "This server lets no client choose its priority (--client-priority)");
}

/* The grammar that texts must follow. */
static bool read_grammar(Completion *c, Fault *f)
{
    if (!grammar_read(c->root, &c->grammar, f))
        return false;
    if (c->grammar.type && !c->m->vocabulary)
        return fault(f, "response_format",
                     "Texts by a schema or grammar need llguidance: start the server with --grammar-lib");
    return true;
}

static bool mask_tokens(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    const Part *p = user;
    const Completion *c = p->all;
    const char *why;
    const bool goes_on =
        matcher_mask(c->choices[p->number * c->n + sample - p->job.request.sample].matcher, ids, count, bits, &why);

    if (why) /* the text ends with what there is: the client cannot tell */
        command_print("%s the grammar has failed after %zu tokens: %.300s\n", c->x->id, count, why);
    return goes_on;
}

/* A matcher for each choice. */
static bool open_matchers(Completion *c, Fault *f)
{
    for (size_t i = 0; c->grammar.type && i < c->n_parts * (size_t)c->n; i++) {
        c->choices[i].matcher = matcher_open(c->m->vocabulary, &c->grammar, f);
        if (!c->choices[i].matcher)
            return false;
    }
    for (size_t i = 0; c->grammar.type && i < c->n_parts; i++) {
        c->parts[i].job.request.mask = mask_tokens;
        c->parts[i].job.request.mask_user = &c->parts[i];
    }
    return true;
}

static bool read_logprobs(Completion *c, Fault *f)
{
    int64_t top = 0;

    if (c->chat) {
        if (!body_bool(c->root, "logprobs", &c->logprobs, f) || !body_count(c->root, "top_logprobs", 0, 20, &top, f))
            return false;
        if (body_field(c->root, "top_logprobs") && !c->logprobs)
            return fault(f, "top_logprobs", "top_logprobs: only with \"logprobs\": true");
    } else {
        c->logprobs = body_field(c->root, "logprobs") && !json_is_false(body_field(c->root, "logprobs"));
        if (c->logprobs && !body_count(c->root, "logprobs", 0, 20, &top, f))
            return false;
    }
    c->top = (int)top;
    return true;
}

/* The most new tokens of each part, from both spellings. */
static bool read_length(Completion *c, Fault *f)
{
    int64_t most = 0;
    const int context = c->m->info.context;

    if (!body_count(c->root, "max_tokens", 1, 1 << 20, &most, f) ||
        !body_count(c->root, "max_completion_tokens", 1, 1 << 20, &most, f))
        return false;
    for (size_t i = 0; i < c->n_parts; i++) {
        Part *p = &c->parts[i];
        const size_t prompt = p->n_ids;

        p->job.request.max_new = (int)most;
        if (prompt + (size_t)(most ? most : 1) > (size_t)context) {
            fault(f, c->chat ? "messages" : "prompt",
                  "This model's maximum context length is %d tokens; %zu tokens of the prompt and %lld of the answer: "
                  "the request exceeds the context window",
                  context, prompt, (long long)(most ? most : 1));
            f->code = "context_length_exceeded";
            return false;
        }
        if (!most || p->job.request.min_new <= p->job.request.max_new)
            continue;
        if (body_field(c->root, "min_tokens"))
            return fault(f, "min_tokens", "min_tokens: %d are more than max_tokens, %d", p->job.request.min_new,
                         p->job.request.max_new);
        p->job.request.min_new = p->job.request.max_new; /* it was the model's own */
    }
    return true;
}

/* The request to the engine of each part. */
static bool make_jobs(Completion *c, Fault *f)
{
    FtxRequest q = ftx_request_default(c->m->model);

    if (clock_gettime(CLOCK_REALTIME, &(struct timespec){0}) == 0) {
        struct timespec t;

        clock_gettime(CLOCK_REALTIME, &t);
        q.seed = (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15ull ^ (uint64_t)t.tv_sec;
    }
    if (!body_request(c->root, &c->m->info, &q, &c->lists, f))
        return false;
    if (c->n > 1 && (q.temperature == 0.0f || q.beams > 1))
        return fault(f, "n", "n: %d texts without randomness (temperature 0, or beams) would all be the same", c->n);
    q.samples = c->n;
    q.n_best = 1;
    q.logprobs = c->logprobs;
    q.top_logprobs = c->top;
    q.prompt_logprobs = c->logprobs && c->echo;
    q.fair_key = c->x->client;
    for (size_t i = 0; i < c->n_parts; i++) {
        Part *p = &c->parts[i];

        p->all = c;
        p->number = (int)i;
        p->job = (Job){.exchange = c->x, .request = q, .event = take_event, .fail = fail_part, .free = free_part};
        p->job.request.seed += i;
        p->job.prompt_tokens = p->n_ids;
        if (q.prompt_logprobs) {
            p->logprobs = command_must(calloc(p->n_ids + 1, sizeof *p->logprobs));
            p->tops = command_must(calloc(p->n_ids * (size_t)c->top + 1, sizeof *p->tops));
        }
        if (c->m->info.kind == FTX_MODEL_SEQ2SEQ && p->text) {
            p->job.request.text = p->text;
            p->job.request.text_bytes = p->text_bytes;
            if (!p->text_bytes)
                return fault(f, "prompt", "prompt: the text is empty");
        } else {
            p->job.request.ids = p->ids;
            p->job.request.ids_count = p->n_ids;
        }
        c->prompt_tokens += p->n_ids;
    }
    return read_length(c, f);
}

static bool submit(Completion *c, Fault *f)
{
    Job **jobs;
    bool done;

    c->choices = command_must(calloc(c->n_parts * (size_t)c->n, sizeof *c->choices));
    message_open(c);
    if (!open_matchers(c, f))
        return false;
    jobs = command_must(calloc(c->n_parts, sizeof *jobs));
    c->open_parts = c->n_parts;
    for (size_t i = 0; i < c->n_parts; i++)
        jobs[i] = &c->parts[i].job;
    if (c->stream) {
        completion_print_head(&c->head, c);
        exchange_stream(c->x);
    }
    done = server_submit(c->m, jobs, c->n_parts, f);
    free(jobs);
    return done;
}

static bool complete(Server *s, Exchange *x, json_t *root, bool chat, bool responses, Fault *f)
{
    Completion *c = command_must(calloc(1, sizeof *c));

    exchange_hold(x);
    c->x = x;
    c->root = json_incref(root);
    c->chat = chat;
    c->responses = responses;
    c->created = time(NULL);
    c->m = server_model(s, root, f);
    if (c->m && c->m->info.kind == FTX_MODEL_ENCODER)
        fault(f, "model", "`%.100s` is an encoder: it has /v1/embeddings or /v1/score", c->m->name);
    else if (c->m && read_flags(c, f) && refuse_others(c, f) && read_priority(s, c, f) && read_grammar(c, f) &&
             (chat || body_bool(root, "echo", &c->echo, f)) && read_logprobs(c, f)) {
        bool read;

        if (chat) {
            c->n_parts = 1;
            c->parts = command_must(calloc(1, sizeof *c->parts));
            read = message_read_tools(c, f) && prompt_chat(c->m, root, c->tools != TOOLS_NONE, c->parts, f) &&
                   message_begin(c, c->parts, !s->keep_reasoning, f);
        } else {
            read = read_prompts(c, f);
        }
        if (read && make_jobs(c, f) && submit(c, f))
            return true;
    }
    free_completion(c);
    return false;
}

static bool complete_text(Server *s, Exchange *x, json_t *root, Fault *f)
{
    return complete(s, x, root, false, false, f);
}

static bool complete_chat(Server *s, Exchange *x, json_t *root, Fault *f)
{
    return complete(s, x, root, true, false, f);
}

static bool complete_response(Server *s, Exchange *x, json_t *root, Fault *f)
{
    json_t *chat = response_to_chat(root, f);
    const bool done = chat && complete(s, x, chat, true, true, f);

    json_decref(chat);
    return done;
}

void route_completions(Server *s, Exchange *x)
{
    with_body(s, x, complete_text);
}

void route_responses(Server *s, Exchange *x)
{
    with_body(s, x, complete_response);
}

void route_chat(Server *s, Exchange *x)
{
    with_body(s, x, complete_chat);
}
