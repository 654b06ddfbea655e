/* print.c - answers to requests for text, whole and as the chunks of a stream. */
#include <stdlib.h>
#include <string.h>

#include "completion.h"

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

/* The text of one token. */
static void token_text(const Completion *c, int32_t id, Text *out)
{
    char small[128];
    size_t n = 0;

    out->n = 0;
    if (!ftx_detokenize(c->m->model, &id, 1, false, small, sizeof small, &n, NULL))
        text_add(out, small, n < sizeof small ? n : sizeof small);
}

static size_t count_characters(const Text *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += ((unsigned char)t->at[i] & 0xc0) != 0x80;
    return n;
}

static void print_chat_logprobs(Text *t, const Completion *c, const Choice *choice, size_t first)
{
    Text token = {0};

    text_put(t, "{\"content\":[");
    for (size_t i = first; i < choice->n_ids; i++) {
        token_text(c, choice->ids[i], &token);
        text_put(t, i > first ? ",{\"token\":" : "{\"token\":");
        text_json(t, token.at, token.n);
        text_put(t, ",\"logprob\":");
        text_json_number(t, choice->logprobs[i]);
        text_put(t, ",\"bytes\":[");
        for (size_t k = 0; k < token.n; k++)
            text_printf(t, "%s%u", k ? "," : "", (unsigned char)token.at[k]);
        text_put(t, "],\"top_logprobs\":[]}");
    }
    text_put(t, "],\"refusal\":null}");
    text_free(&token);
}

static void print_text_logprobs(Text *t, const Completion *c, Choice *choice, size_t first)
{
    Text token = {0}, offsets = {0}, numbers = {0};
    size_t at = first ? choice->characters : 0;

    text_put(t, "{\"tokens\":[");
    for (size_t i = first; i < choice->n_ids; i++) {
        const char *comma = i > first ? "," : "";

        token_text(c, choice->ids[i], &token);
        text_put(t, comma);
        text_json(t, token.at, token.n);
        text_put(&numbers, comma);
        text_json_number(&numbers, choice->logprobs[i]);
        text_printf(&offsets, "%s%zu", comma, at);
        at += count_characters(&token);
    }
    text_printf(t, "],\"token_logprobs\":[%s],\"top_logprobs\":null,\"text_offset\":[%s]}", numbers.n ? numbers.at : "",
                offsets.n ? offsets.at : "");
    choice->characters = at;
    text_free(&token);
    text_free(&numbers);
    text_free(&offsets);
}

/* ,"logprobs":... of the tokens from `first` on. */
static void print_logprobs(Text *t, const Completion *c, Choice *choice, size_t first)
{
    text_put(t, ",\"logprobs\":");
    if (!c->logprobs || first > choice->n_ids)
        text_put(t, "null");
    else if (c->chat)
        print_chat_logprobs(t, c, choice, first);
    else
        print_text_logprobs(t, c, choice, first);
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
    print_logprobs(t, c, choice, 0);
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

static void begin_chunk(Text *t, const Completion *c, int index)
{
    text_put(t, "data: ");
    print_head(t, c, ".chunk");
    text_printf(t, "{\"index\":%d,", index);
}

static void end_chunk(Text *t, const Completion *c, Choice *choice, size_t first, const char *finish)
{
    print_logprobs(t, c, choice, first);
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
    end_chunk(t, c, &c->choices[index], SIZE_MAX, NULL);
}

void completion_print_text(Text *t, const Completion *c, int index, const char *text, size_t bytes, size_t first)
{
    begin_chunk(t, c, index);
    text_put(t, c->chat ? "\"delta\":{\"content\":" : "\"text\":");
    text_json(t, text, bytes);
    text_put(t, c->chat ? "}" : "");
    end_chunk(t, c, &c->choices[index], first, NULL);
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
    end_chunk(t, c, choice, *first, NULL);
    *first = SIZE_MAX;
}

void completion_print_finish(Text *t, const Completion *c, int index)
{
    begin_chunk(t, c, index);
    text_put(t, c->chat ? "\"delta\":{}" : "\"text\":\"\"");
    end_chunk(t, c, &c->choices[index], SIZE_MAX, reason(&c->choices[index]));
}

void completion_print_end(Text *t, const Completion *c)
{
    if (c->usage) {
        text_put(t, "data: ");
        print_head(t, c, ".chunk");
        text_put(t, "],\"usage\":");
        answer_usage(t, c->prompt_tokens, c->new_tokens, c->cached_tokens);
        text_put(t, "}\n\n");
    }
    text_put(t, "data: [DONE]\n\n");
}
