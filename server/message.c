/* message.c - the assistant's message: tools of the request, calls and reasoning in what is written. */
#include "message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prompt.h"
#include "response.h"
#include "../runner/command.h"
#include "../runtime/base/arena.h"

enum { MOST_TOOLS = 128, TAIL = 8 /* ids at the end of a prompt that can hold "<think>" */ };

static const char *const marks[MOST_MARKS] = {"<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]",
                                              "[ARGS]",      "<think>",      "</think>"};

/* The id of a text that is one token; -1: it is none. */
static int32_t single_token(const Served *m, const char *text)
{
    int32_t ids[8];
    size_t n = 0;

    if (!m->info.has_tokenizer || ftx_tokenize(m->model, text, strlen(text), 0, ids, LEN(ids), &n, NULL) || n != 1)
        return -1;
    return ids[0];
}

void message_marks(Served *m)
{
    m->tools = single_token(m, "[TOOL_CALLS]") >= 0     ? TOOLS_MISTRAL
               : single_token(m, "<|python_tag|>") >= 0 ? TOOLS_LLAMA
                                                        : TOOLS_HERMES;
    for (size_t i = 0; i < LEN(marks); i++) {
        const int32_t id = single_token(m, marks[i]);
        char text[80];
        size_t n = 0;

        m->mark_ids[i] = -1;
        if (id >= 0 && !ftx_detokenize(m->model, &id, 1, true, text, sizeof text, &n, NULL) && !n)
            m->mark_ids[i] = id;
    }
}

/* --- the request: a worker ---------------------------------------------------------------------------------- */

static bool check_name(const char *name)
{
    const size_t n = name ? strlen(name) : 0;

    return n && n <= 64 && strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static bool check_tools(json_t *tools, Fault *f)
{
    json_t *tool;
    size_t i;

    if (!json_is_array(tools) || json_array_size(tools) > MOST_TOOLS)
        return fault(f, "tools", "tools: expected a list of at most %d functions", MOST_TOOLS);
    json_array_foreach(tools, i, tool)
    {
        const char *type = json_string_value(json_object_get(tool, "type"));

        if (!type || strcmp(type, "function") != 0)
            return fault(f, "tools", "tools[%zu].type: only \"function\"", i);
        if (!check_name(name_of(tool)))
            return fault(f, "tools", "tools[%zu].function.name: expected 1 to 64 letters, digits, _ and -", i);
    }
    return true;
}

/* What a model writes before the name of a call, between name and arguments, by ToolStyle. */
static const struct {
    const char *before, *between;
} heads[] = {
    {"", ""},
    {"<tool_call>\n{\"name\": \"", "\", \"arguments\": "},
    {"{\"name\": \"", "\", \"parameters\": "},
    {"[TOOL_CALLS][{\"name\": \"", "\", \"arguments\": "},
};

static bool force(Completion *c, const char *name, json_t *tools, Fault *f)
{
    json_t *tool;
    size_t i;
    bool known = !name;

    json_array_foreach(tools, i, tool) known = known || strcmp(name, name_of(tool)) == 0;
    if (!known)
        return fault(f, "tool_choice", "tool_choice: no tool is called \"%.100s\"", name);
    text_put(&c->forced, heads[c->tools].before);
    if (name)
        text_printf(&c->forced, "%s%s", name, heads[c->tools].between);
    return true;
}

bool message_read_tools(Completion *c, Fault *f)
{
    json_t *tools = body_field(c->root, "tools"), *choice = body_field(c->root, "tool_choice");
    const char *word = json_is_string(choice) ? json_string_value(choice) : NULL, *name = name_of(choice);
    bool parallel = true;

    if (!body_bool(c->root, "parallel_tool_calls", &parallel, f))
        return false;
    c->one_call = !parallel;
    if (tools && !check_tools(tools, f))
        return false;
    if (json_array_size(tools) && !(word && strcmp(word, "none") == 0))
        c->tools = c->m->tools;
    if (!choice || (word && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0)))
        return true;
    if (!name && !(word && strcmp(word, "required") == 0))
        return fault(
            f, "tool_choice",
            "tool_choice: expected none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (!json_array_size(tools))
        return fault(f, "tool_choice", "tool_choice: there are no tools");
    if (c->grammar.type)
        return fault(f, "tool_choice", "tool_choice: an answer that must be a call cannot follow a grammar, too");
    return force(c, name, tools, f);
}

/* True if the prompt ends with <think>. */
static bool begins_reason(const Completion *c, const Part *p)
{
    const size_t n = p->n_ids < TAIL ? p->n_ids : TAIL, m = strlen("<think>");
    Text text = {0};
    Fault ignored;
    bool found = false;

    if (prompt_detokenize(c->m, p->ids + p->n_ids - n, n, false, &text, &ignored)) {
        while (text.n && strchr(" \n", text.at[text.n - 1]))
            text.n--;
        found = text.n >= m && memcmp(text.at + text.n - m, "<think>", m) == 0;
    }
    text_free(&text);
    return found;
}

bool message_begin(Completion *c, Part *p, bool reasons, Fault *f)
{
    int32_t *ids;
    size_t n;

    c->reasons = reasons && !c->forced.n && !c->grammar.type; /* a grammar rules the whole text */
    c->inside = c->reasons && begins_reason(c, p);
    if (!c->forced.n)
        return true;
    ids = NULL;
    if (!prompt_tokenize(c->m, false, c->forced.at, c->forced.n, &ids, &n, f))
        return false;
    p->ids = command_must(realloc(p->ids, (p->n_ids + n) * sizeof *p->ids));
    memcpy(p->ids + p->n_ids, ids, n * sizeof *ids);
    p->n_ids += n;
    free(ids);
    return true;
}

void message_open(Completion *c)
{
    for (size_t i = 0; i < c->n_parts * (size_t)c->n; i++)
        parser_open(&c->choices[i].parser, c->tools, c->reasons, c->inside);
}

void message_free(Choice *choice)
{
    for (size_t i = 0; i < choice->n_calls; i++) {
        text_free(&choice->calls[i].name);
        text_free(&choice->calls[i].args);
    }
    free(choice->calls);
    text_free(&choice->text);
    text_free(&choice->reason);
    parser_close(&choice->parser);
}

/* --- events: the engine's thread ------------------------------------------------------------------------------ */

bool message_parsed(const Completion *c)
{
    return c->tools != TOOLS_NONE || c->reasons || c->responses;
}

/* Nine letters and digits, as Mistral's templates want them, of the request's id and the call's place. */
static void make_id(const Completion *c, int index, size_t call, char *id)
{
    uint64_t h = 14695981039346656037u ^ ((uint64_t)index << 32 | call); /* FNV-1a */

    for (const char *p = c->x->id; *p; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    if (c->tools != TOOLS_MISTRAL) {
        memcpy(id, "call_", 5);
        id += 5;
    }
    for (int i = 0; i < 9; i++, h /= 36)
        id[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[h % 36];
    id[9] = '\0';
}

/* Where the pieces of an event go. */
typedef struct Sink {
    Completion *c;
    int index;
    Text *chunks; /* NULL: into the message */
    size_t *first;
} Sink;

static void take_piece(void *user, Piece piece, const char *text, size_t bytes)
{
    const Sink *s = user;
    Choice *choice = &s->c->choices[s->index];
    Call *call = choice->n_calls ? &choice->calls[choice->n_calls - 1] : NULL;

    if ((piece == PIECE_CALL || piece == PIECE_ARGS) && s->c->one_call && choice->parser.calls > 1)
        return;
    if (s->c->responses && piece == PIECE_TEXT && call)
        return; /* a message is one item, before the calls */
    if (piece == PIECE_CALL) {
        if (s->chunks && s->c->responses)
            response_close(s->chunks, s->c);
        choice->calls = command_must(realloc(choice->calls, (choice->n_calls + 1) * sizeof *call));
        call = &choice->calls[choice->n_calls];
        *call = (Call){0};
        make_id(s->c, s->index, choice->n_calls++, call->id);
    }
    if (s->chunks && !s->c->responses) {
        completion_print_piece(s->chunks, s->c, s->index, piece, choice->n_calls ? choice->n_calls - 1 : 0, text, bytes,
                               s->first);
        return;
    }
    switch (piece) {
    case PIECE_TEXT: text_add(&choice->text, text, bytes); break;
    case PIECE_REASON: text_add(&choice->reason, text, bytes); break;
    case PIECE_CALL: text_add(&call->name, text, bytes); break;
    case PIECE_ARGS: text_add(&call->args, text, bytes); break;
    }
    if (s->chunks)
        response_piece(s->chunks, s->c, piece, text, bytes);
}

/* The text of an event and, if its token is a mark that texts leave out, the mark. */
static void feed(Sink *s, int32_t token, const char *text, size_t bytes)
{
    Completion *c = s->c;
    Choice *choice = &c->choices[s->index];
    Text all = {0};

    if (!choice->fed)
        text_add(&all, c->forced.at, c->forced.n);
    choice->fed = true;
    text_add(&all, text, bytes);
    for (size_t i = 0; token >= 0 && i < LEN(marks); i++)
        if (c->m->mark_ids[i] == token)
            text_put(&all, marks[i]);
    parser_feed(&choice->parser, all.at, all.n, choice->done, take_piece, s);
    text_free(&all);
}

void message_take(Completion *c, int index, int32_t token, const char *text, size_t bytes)
{
    Sink s = {c, index, NULL, NULL};

    feed(&s, token, text, bytes);
}

void message_stream(Text *t, Completion *c, int index, int32_t token, const char *text, size_t bytes, size_t *first)
{
    Sink s = {c, index, t, first};

    feed(&s, token, text, bytes);
}
