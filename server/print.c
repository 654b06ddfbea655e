/* print.c - answers to requests for text, whole and as the chunks of a stream. */
#include <stdlib.h>
#include <string.h>

#include "completion.h"
#include "../runner/command.h"

static const char *reason(const Choice *c)
{
    return c->finish == FTX_FINISH_LENGTH ? "length" : c->n_calls ? "tool_calls" : "stop";
}

/* What every object begins with, up to the list of choices. */
static void print_head(Text *t, const Completion *c, const char *chunk)
{
    text_printf(t, "{\"id\":\"%s", c->chat ? "chatcmpl-" : "cmpl-");
    text_json_part(t, c->x->id, strlen(c->x->id));
    text_printf(t,
                "\",\"object\":\"%s%s\",\"created\":%lld,\"model\":", c->chat ? "chat.completion" : "text_completion",
                c->chat ? chunk : "", (long long)c->created);
    text_json(t, c->m->name, strlen(c->m->name));
    text_put(t, ",\"choices\":[");
}

/* The bytes of one token. */
static void token_text(const Completion *c, int32_t id, Text *out)
{
    bool special;
    size_t n;
    const char *bytes = ftx_token_bytes(c->m->model, id, &n, &special);

    out->n = 0;
    if (bytes)
        text_add(out, bytes, n);
}

static size_t count_characters(const Text *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += ((unsigned char)t->at[i] & 0xc0) != 0x80;
    return n;
}

/* "token":...,"logprob":...,"bytes":[...] */
static void print_token(Text *t, const Completion *c, int32_t id, float logprob, Text *token)
{
    token_text(c, id, token);
    text_put(t, "\"token\":");
    text_json(t, token->at, token->n);
    text_put(t, ",\"logprob\":");
    text_json_number(t, logprob);
    text_put(t, ",\"bytes\":[");
    for (size_t k = 0; k < token->n; k++)
        text_printf(t, "%s%u", k ? "," : "", (unsigned char)token->at[k]);
    text_put(t, "]");
}

static void print_chat_logprobs(Text *t, const Completion *c, const Choice *choice, size_t first)
{
    Text token = {0};

    text_put(t, "{\"content\":[");
    for (size_t i = first; i < choice->n_ids; i++) {
        text_put(t, i > first ? ",{" : "{");
        print_token(t, c, choice->ids[i], choice->logprobs[i], &token);
        text_put(t, ",\"top_logprobs\":[");
        for (int k = 0; k < c->top; k++) {
            const FtxTop *top = &choice->tops[i * (size_t)c->top + (size_t)k];

            text_put(t, k ? ",{" : "{");
            print_token(t, c, top->id, top->logprob, &token);
            text_put(t, "}");
        }
        text_put(t, "]}");
    }
    text_put(t, "],\"refusal\":null}");
    text_free(&token);
}

/* The four lists of a text's log-probabilities while they are made. */
typedef struct TextLogprobs {
    Text tokens, numbers, tops, offsets, token;
    size_t characters, n;
} TextLogprobs;

/* The likeliest tokens by their text, and the one that was chosen. Of equal texts the first stays. */
static void add_tops(TextLogprobs *l, const Completion *c, const FtxTop *top, int32_t id, float logprob)
{
    json_t *object = command_must(json_object());
    const char *name;
    json_t *number;
    bool first = true;

    for (int k = 0; k <= c->top; k++) {
        token_text(c, k < c->top ? top[k].id : id, &l->token);
        name = l->token.n ? l->token.at : "";
        if (!json_object_get(object, name)) /* no text that is invalid UTF-8 becomes a key: it is left out */
            json_object_set_new(object, name, json_real((double)(k < c->top ? top[k].logprob : logprob)));
    }
    text_put(&l->tops, "{");
    json_object_foreach(object, name, number)
    {
        text_put(&l->tops, first ? "" : ",");
        text_json(&l->tops, name, strlen(name));
        text_put(&l->tops, ":");
        text_json_number(&l->tops, json_real_value(number));
        first = false;
    }
    text_put(&l->tops, "}");
    json_decref(object);
}

static void add_logprob(TextLogprobs *l, const Completion *c, int32_t id, const float *logprob, const FtxTop *top)
{
    const char *comma = l->n++ ? "," : "";

    text_put(&l->tokens, comma);
    text_put(&l->numbers, comma);
    text_put(&l->tops, comma);
    if (logprob)
        text_json_number(&l->numbers, *logprob);
    else
        text_put(&l->numbers, "null"); /* of the first token of a prompt */
    if (logprob && c->top)
        add_tops(l, c, top, id, *logprob);
    else
        text_put(&l->tops, "null");
    token_text(c, id, &l->token);
    text_json(&l->tokens, l->token.at, l->token.n);
    text_printf(&l->offsets, "%s%zu", comma, l->characters);
    l->characters += count_characters(&l->token);
}

static void print_text_logprobs(Text *t, const Completion *c, Choice *choice, const Part *prompt, size_t first)
{
    const size_t top = (size_t)c->top;
    TextLogprobs l = {.characters = first || !prompt ? choice->characters : 0};

    for (size_t i = 0; prompt && i < prompt->n_ids; i++)
        add_logprob(&l, c, prompt->ids[i], i ? &prompt->logprobs[i] : NULL, prompt->tops + i * top);
    for (size_t i = first; i < choice->n_ids; i++)
        add_logprob(&l, c, choice->ids[i], &choice->logprobs[i], choice->tops + i * top);
    text_printf(t, "{\"tokens\":[%s],\"token_logprobs\":[%s],\"top_logprobs\":", l.n ? l.tokens.at : "",
                l.n ? l.numbers.at : "");
    if (c->top)
        text_printf(t, "[%s]", l.n ? l.tops.at : "");
    else
        text_put(t, "null");
    text_printf(t, ",\"text_offset\":[%s]}", l.n ? l.offsets.at : "");
    choice->characters = l.characters;
    text_free(&l.tokens);
    text_free(&l.numbers);
    text_free(&l.tops);
    text_free(&l.offsets);
    text_free(&l.token);
}

/* ,"logprobs":... of the tokens from `first` on; prompt, if not NULL: before them those of the prompt. */
static void print_logprobs(Text *t, const Completion *c, Choice *choice, const Part *prompt, size_t first)
{
    text_put(t, ",\"logprobs\":");
    if (!c->logprobs || (first > choice->n_ids && !prompt))
        text_put(t, "null");
    else if (c->chat)
        print_chat_logprobs(t, c, choice, first);
    else
        print_text_logprobs(t, c, choice, prompt, first);
}

static void print_ids(Text *t, const char *name, const int32_t *ids, size_t n)
{
    text_printf(t, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++)
        text_printf(t, "%s%d", i ? "," : "", ids[i]);
    text_put(t, "]");
}

static const Part *part_of(const Completion *c, int index)
{
    return &c->parts[index / c->n];
}

static void print_message(Text *t, const Choice *choice)
{
    text_put(t, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (choice->n_calls && !choice->text.n)
        text_put(t, "null");
    else
        text_json(t, choice->text.at, choice->text.n);
    text_put(t, ",\"refusal\":null");
    if (choice->reason.n) {
        text_put(t, ",\"reasoning_content\":");
        text_json(t, choice->reason.at, choice->reason.n);
    }
    for (size_t i = 0; i < choice->n_calls; i++) {
        const Call *call = &choice->calls[i];

        text_put(t, i ? "," : ",\"tool_calls\":[");
        text_printf(t, "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", call->id);
        text_json(t, call->name.at, call->name.n);
        text_put(t, ",\"arguments\":");
        text_json(t, call->args.at, call->args.n);
        text_put(t, "}}");
    }
    text_put(t, choice->n_calls ? "]}" : "}");
}

static void print_choice(Text *t, const Completion *c, int index)
{
    Choice *choice = &c->choices[index];
    const Part *p = part_of(c, index);

    text_printf(t, "%s{\"index\":%d,", index ? "," : "", index);
    if (c->chat) {
        print_message(t, choice);
    } else {
        text_put(t, "\"text\":\"");
        if (c->echo)
            text_json_part(t, p->text, p->text_bytes);
        text_json_part(t, choice->text.at, choice->text.n);
        text_put(t, "\"");
    }
    print_logprobs(t, c, choice, p->logprobs ? p : NULL, 0);
    text_printf(t, ",\"finish_reason\":\"%s\"", reason(choice));
    if (c->return_ids) {
        if (p->ids) /* a translator's text is tokenized by the engine */
            print_ids(t, "prompt_token_ids", p->ids, p->n_ids);
        print_ids(t, "token_ids", choice->ids, choice->n_ids);
    }
    text_put(t, "}");
}

void completion_print(Text *t, const Completion *c)
{
    print_head(t, c, "");
    for (int i = 0; i < (int)c->n_parts * c->n; i++)
        print_choice(t, c, i);
    text_put(t, "],\"usage\":");
    answer_usage(t, c->prompt_tokens, c->new_tokens, c->cached_tokens);
    text_put(t, "}");
}

/* --- chunks ----------------------------------------------------------------------------------------------- */

void completion_print_head(Text *t, const Completion *c)
{
    text_put(t, "data: ");
    print_head(t, c, ".chunk");
}

static void begin_chunk(Text *t, const Completion *c, int index)
{
    text_add(t, c->head.at, c->head.n);
    text_printf(t, "{\"index\":%d,", index);
}

static void end_chunk(Text *t, const Completion *c, Choice *choice, const Part *prompt, size_t first,
                      const char *finish)
{
    print_logprobs(t, c, choice, prompt, first);
    text_printf(t, ",\"finish_reason\":%s%s%s", finish ? "\"" : "", finish ? finish : "null", finish ? "\"" : "");
    if (c->return_ids && first < choice->n_ids)
        print_ids(t, "token_ids", choice->ids + first, choice->n_ids - first);
    text_put(t, "}]");
    if (c->usage_each) {
        text_put(t, ",\"usage\":");
        answer_usage(t, c->prompt_tokens, c->new_tokens, c->cached_tokens);
    } else if (c->usage) {
        text_put(t, ",\"usage\":null");
    }
    text_put(t, "}\n\n");
}

void completion_print_start(Text *t, const Completion *c, int index)
{
    const Part *p = part_of(c, index);

    if (!c->chat && !c->echo)
        return;
    begin_chunk(t, c, index);
    if (c->chat) {
        text_put(t, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    } else {
        text_put(t, "\"text\":");
        text_json(t, p->text, p->text_bytes);
    }
    end_chunk(t, c, &c->choices[index], p->logprobs ? p : NULL, SIZE_MAX, NULL);
}

void completion_print_text(Text *t, const Completion *c, int index, const char *text, size_t bytes, size_t first)
{
    begin_chunk(t, c, index);
    text_put(t, c->chat ? "\"delta\":{\"content\":" : "\"text\":");
    text_json(t, text, bytes);
    text_put(t, c->chat ? "}" : "");
    end_chunk(t, c, &c->choices[index], NULL, first, NULL);
}

void completion_print_piece(Text *t, const Completion *c, int index, Piece piece, size_t call, const char *text,
                            size_t bytes, size_t *first)
{
    Choice *choice = &c->choices[index];

    begin_chunk(t, c, index);
    switch (piece) {
    case PIECE_TEXT: text_put(t, "\"delta\":{\"content\":"); break;
    case PIECE_REASON: text_put(t, "\"delta\":{\"reasoning_content\":"); break;
    case PIECE_CALL:
        text_printf(t,
                    "\"delta\":{\"tool_calls\":[{\"index\":%zu,\"id\":\"%s\",\"type\":\"function\",\"function\":"
                    "{\"arguments\":\"\",\"name\":",
                    call, choice->calls[call].id);
        break;
    case PIECE_ARGS:
        text_printf(t, "\"delta\":{\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", call);
        break;
    }
    text_json(t, text, bytes);
    text_put(t, piece == PIECE_TEXT || piece == PIECE_REASON ? "}" : "}}]}");
    end_chunk(t, c, choice, NULL, *first, NULL);
    *first = SIZE_MAX;
}

void completion_print_finish(Text *t, const Completion *c, int index)
{
    begin_chunk(t, c, index);
    text_put(t, c->chat ? "\"delta\":{}" : "\"text\":\"\"");
    end_chunk(t, c, &c->choices[index], NULL, SIZE_MAX, reason(&c->choices[index]));
}

void completion_print_end(Text *t, const Completion *c)
{
    if (c->usage) {
        text_add(t, c->head.at, c->head.n);
        text_put(t, "],\"usage\":");
        answer_usage(t, c->prompt_tokens, c->new_tokens, c->cached_tokens);
        text_put(t, "}\n\n");
    }
    text_put(t, "data: [DONE]\n\n");
}
