/* answers.c - the texts written from each prompt, printed in the order of the prompts. */
#include "answers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "json.h"
#include "stream.h"

Job *answers_job(const Answers *all, size_t i)
{
    return &all->jobs[i % all->window];
}

void answers_add(Answers *all, char *text, size_t bytes)
{
    Answer *answers = command_must(calloc((size_t)all->samples, sizeof *answers));

    *answers_job(all, all->read) = (Job){.text = text, .bytes = bytes, .answers = answers, .number = all->read + 1};
    all->read++;
}

void answers_refuse(Answers *all, Job *j, const char *reason)
{
    j->refusal = command_must(strdup(reason));
    j->done = all->samples;
    all->failed++;
    if (all->stream)
        stream_refuse(all, j);
}

static void end_all(const Answers *all, Job *j, FtxFinish finish)
{
    for (int i = 0; i < all->samples; i++)
        if (j->answers[i].finish == FTX_RUNNING) {
            j->answers[i].finish = finish;
            if (all->stream)
                stream_print(all, j, i, NULL, 0, finish);
        }
    j->done = all->samples;
    j->end = command_seconds();
}

void answers_empty(Answers *all, Job *j)
{
    end_all(all, j, FTX_FINISH_END);
}

void answers_end(Answers *all, FtxFinish finish)
{
    for (size_t i = all->printed; i < all->read; i++)
        if (answers_job(all, i)->done < all->samples)
            end_all(all, answers_job(all, i), finish);
}

static void drop_job(const Answers *all, Job *j)
{
    for (int i = 0; i < all->samples; i++) {
        free(j->answers[i].out);
        free(j->answers[i].ids);
        free(j->answers[i].logprobs);
    }
    free(j->answers);
    free(j->text);
    free(j->refusal);
    free(j->logits);
    json_decref(j->hypotheses);
    json_decref(j->states);
    requests_free(j->line);
    *j = (Job){0};
}

/* --- as objects ------------------------------------------------------------------------------------- */

const char *answers_finish_name(FtxFinish f)
{
    switch (f) {
    case FTX_RUNNING: return "running";
    case FTX_FINISH_END: return "end";
    case FTX_FINISH_LENGTH: return "length";
    case FTX_FINISH_STOP: return "stop";
    case FTX_FINISH_CANCEL: return "cancel";
    case FTX_FINISH_ERROR: return "error";
    case FTX_FINISH_DEADLINE: return "deadline";
    case FTX_FINISH_NAN: return "nan";
    }
    return "unknown";
}

static json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *numbers_json(const float *numbers, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, runner_json_number((double)numbers[i]));
    return list;
}

/* [{"ids", "logprobs", "text", "score", "logprob", "finish"}], best first */
static json_t *hypotheses_json(const Answers *all, const FtxHypothesis *h, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        json_t *o = json_object();

        json_object_set_new(o, "ids", ids_json(h[i].ids, h[i].count));
        json_object_set_new(o, "logprobs", numbers_json(h[i].logprobs, h[i].logprobs ? h[i].count : 0));
        if (all->info.has_tokenizer)
            json_object_set_new(o, "text", runner_json_text(h[i].text, h[i].text_bytes));
        json_object_set_new(o, "score", runner_json_number((double)h[i].score));
        json_object_set_new(o, "logprob", runner_json_number((double)h[i].logprob));
        json_object_set_new(o, "finish", json_string(answers_finish_name(h[i].finish)));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *answer_json(const Answers *all, const Answer *a)
{
    json_t *o = json_object();

    if (all->info.has_tokenizer)
        json_object_set_new(o, "text", runner_json_text(a->out ? a->out : "", a->out_bytes));
    json_object_set_new(o, "ids", ids_json(a->ids, a->n));
    json_object_set_new(o, "logprobs", numbers_json(a->logprobs, a->n));
    json_object_set_new(o, "finish", json_string(answers_finish_name(a->finish)));
    return o;
}

static json_t *timings_json(const Job *j)
{
    const size_t n = j->answers[0].n;
    json_t *t = json_object();

    json_object_set_new(t, "first_token_ms", j->first > 0.0 ? json_real((j->first - j->start) * 1e3) : json_null());
    json_object_set_new(t, "total_ms", j->start > 0.0 ? json_real((j->end - j->start) * 1e3) : json_null());
    json_object_set_new(t, "decode_tokens_per_second",
                        n > 1 && j->end > j->first ? json_real((double)(n - 1) / (j->end - j->first)) : json_null());
    return t;
}

/* "text" and "ids" of the object are those of the first sample. */
static void print_json(const Answers *all, const Job *j)
{
    json_t *o = answer_json(all, &j->answers[0]);

    json_object_set_new(o, "prompt_tokens", j->first > 0.0 ? json_integer(j->prompt_tokens) : json_null());
    if (all->shows_cached)
        json_object_set_new(o, "cached_tokens", json_integer(j->cached_tokens));
    if (all->draws)
        json_object_set_new(o, "seed", json_integer((json_int_t)j->seed));
    if (all->samples > 1) {
        json_t *samples = json_array();

        for (int i = 0; i < all->samples; i++) {
            json_t *one = answer_json(all, &j->answers[i]);

            json_object_set_new(one, "sample", json_integer(i));
            json_array_append_new(samples, one);
        }
        json_object_set_new(o, "samples", samples);
    }
    if (j->hypotheses)
        json_object_set(o, "hypotheses", j->hypotheses);
    if (j->logits) {
        json_t *l = json_array();

        for (int i = 0; i < all->info.vocab; i++)
            json_array_append_new(l, runner_json_number((double)j->logits[i]));
        json_object_set_new(o, "logits", l);
    }
    if (j->states)
        json_object_set(o, "states", j->states);
    json_object_set_new(o, "timings", timings_json(j));
    json_object_set_new(o, "device", json_string(all->info.device));
    runner_json_print(o);
}

/* --- as text ---------------------------------------------------------------------------------------- */

/* In a batch a refused prompt gets an empty line, or an object with the reason, so that answers keep their places. */
static void print_refusal(const Answers *all, const Job *j)
{
    if (!all->batch) {
        command_say(j->refusal);
        return;
    }
    command_print("%s: line %zu: %s\n", command_program, j->number, j->refusal);
    if (all->json)
        runner_json_print(json_pack("{so}", "error", runner_json_text(j->refusal, strlen(j->refusal))));
    else
        putchar('\n');
}

/* Texts that are written side by side are kept until they are finished; a single text is printed as it comes. */
static bool is_kept(const Answers *all)
{
    return all->json || all->batch || all->samples > 1;
}

/* With --batch each text has a line, else each sample has a heading. */
static void print_texts(const Answers *all, const Job *j)
{
    for (int i = 0; i < all->samples; i++) {
        const Answer *a = &j->answers[i];

        if (!all->batch)
            printf("--- %d ---\n", i);
        if (a->out_bytes)
            fwrite(a->out, 1, a->out_bytes, stdout);
        for (size_t k = 0; k < a->n && !all->info.has_tokenizer && !all->batch; k++)
            printf("%d ", a->ids[k]);
        if (all->batch || i + 1 < all->samples) /* the last newline is written when the run ends */
            putchar('\n');
    }
}

static void print_line(const Answers *all, const Job *j)
{
    const Answer *a = &j->answers[0];
    const LineAnswer answer = {.refusal = j->refusal,
                               .text = a->out,
                               .text_bytes = a->out_bytes,
                               .prompt_tokens = (size_t)j->prompt_tokens,
                               .new_tokens = a->n,
                               .finish = a->finish};

    requests_print(j->line, j->number, &all->info, &answer);
}

void answers_print(Answers *all)
{
    for (; all->printed < all->read && answers_job(all, all->printed)->done == all->samples; all->printed++) {
        Job *j = answers_job(all, all->printed);

        assert(j->answers); /* added, and not printed yet */
        if (all->stream) {
            /* everything has been printed */
        } else if (j->line) {
            print_line(all, j);
        } else if (j->refusal) {
            print_refusal(all, j);
        } else if (all->json) {
            print_json(all, j);
        } else if (is_kept(all)) {
            print_texts(all, j);
        }
        fflush(stdout);
        drop_job(all, j);
    }
}

/* --- events -------------------------------------------------------------------------------------------- */

static void keep_event(Answer *a, const FtxEvent *e)
{
    if (a->out_bytes + e->text_bytes + 1 > a->out_cap) {
        a->out_cap = (a->out_bytes + e->text_bytes + 1) * 2;
        a->out = command_must(realloc(a->out, a->out_cap));
    }
    if (e->text_bytes)
        memcpy(a->out + a->out_bytes, e->text, e->text_bytes);
    a->out_bytes += e->text_bytes;
    if (e->token >= 0) {
        if (a->n == a->cap) {
            a->cap = a->cap * 2 + 64;
            a->ids = command_must(realloc(a->ids, a->cap * sizeof *a->ids));
            a->logprobs = command_must(realloc(a->logprobs, a->cap * sizeof *a->logprobs));
        }
        a->ids[a->n] = e->token;
        a->logprobs[a->n++] = e->logprob;
    }
}

/* The ids of the job are those of the best hypothesis. */
static void take_hypotheses(Answers *all, Job *j, const FtxEvent *e)
{
    size_t n;
    const FtxHypothesis *h = ftx_engine_hypotheses(all->engine, e->request, &n);

    if (!h)
        return;
    all->tokens += h->count;
    for (size_t i = 0; i < h->count; i++)
        keep_event(j->answers, &(FtxEvent){.token = h->ids[i], .logprob = h->logprobs ? h->logprobs[i] : 0.0f});
    if (!all->info.has_tokenizer && !all->json && !all->batch)
        for (size_t i = 0; i < h->count; i++)
            printf("%d ", h->ids[i]);
    if (all->json)
        j->hypotheses = hypotheses_json(all, h, n);
}

/* A list of numbers for each row. */
static void take_states(const Answers *all, Job *j, const FtxEvent *e)
{
    j->states = j->states ? j->states : json_array();
    for (size_t i = 0; i < e->states_count; i++)
        json_array_append_new(j->states, numbers_json(e->states + i * all->info.states, all->info.states));
}

void answers_take(Answers *all, const FtxEvent *e)
{
    Job *j = e->user;
    Answer *a = &j->answers[e->sample];
    const float *logits;

    if (j->first == 0.0 && (e->token >= 0 || !e->states_count))
        j->first = command_seconds();
    if (e->states_count)
        take_states(all, j, e);
    j->prompt_tokens = (int)e->prompt_tokens;
    j->cached_tokens = (int)e->cached_tokens;
    all->tokens += e->token >= 0;
    if (e->hypotheses)
        take_hypotheses(all, j, e);
    if (is_kept(all)) {
        keep_event(a, e);
        if (all->stream && (e->text_bytes || e->finish != FTX_RUNNING))
            stream_print(all, j, e->sample, e->text, e->text_bytes, e->finish);
    } else if (all->info.has_tokenizer) {
        fwrite(e->text, 1, e->text_bytes, stdout);
        fflush(stdout);
    } else if (e->token >= 0) {
        printf("%d ", e->token);
        fflush(stdout);
    }
    if (all->logits && !j->logits && (logits = ftx_engine_logits(all->engine, e->request))) {
        j->logits = command_must(malloc((size_t)all->info.vocab * sizeof *logits));
        memcpy(j->logits, logits, (size_t)all->info.vocab * sizeof *logits);
    }
    if (e->finish != FTX_RUNNING) {
        j->done++;
        a->finish = e->finish;
        j->end = command_seconds();
        all->in_flight--;
        all->not_finite += e->finish == FTX_FINISH_NAN;
    }
}

void answers_close(Answers *all)
{
    for (; all->printed < all->read; all->printed++)
        drop_job(all, answers_job(all, all->printed));
    free(all->jobs);
}
