/* render.c - compiles and renders what comes as JSON lines on standard input, for jinja.py, which knows the answers.
 *
 *   {"templates": {"default": TEXT}, "tokens": {"bos_token": "<s>"}, "messages": [...], "tools": [...],
 *    "variables": {...}, "prompt": true, "name": TEXT, "time": N}
 *   -> {"text": TEXT, "users": [[FROM, TO] ...]}  or  {"error": TEXT, "compile": true} */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/chat/chat.h"
#include "runtime/chat/chat.h"

static void answer(json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT);

    puts(text ? text : "null");
    free(text);
    json_decref(o);
}

/* The bytes that are the users', as ranges. */
static json_t *users_of(const ChatText *t)
{
    json_t *list = json_array();
    size_t from = 0;

    for (size_t i = 0; t->user && i <= t->n; i++) {
        if (i < t->n && t->user[i])
            continue;
        if (i > from)
            json_array_append_new(list, json_pack("[I, I]", (json_int_t)from, (json_int_t)i));
        from = i + 1;
    }
    return list;
}

static void render(const json_t *q, const void *section, size_t bytes)
{
    char *messages = json_dumps(json_object_get(q, "messages"), JSON_ENCODE_ANY);
    char *tools = json_is_array(json_object_get(q, "tools")) ? json_dumps(json_object_get(q, "tools"), 0) : NULL;
    char *variables =
        json_object_get(q, "variables") ? json_dumps(json_object_get(q, "variables"), JSON_ENCODE_ANY) : NULL;
    FtxChat chat = FTX_CHAT_INIT;
    FtxError err = {FTX_OK, ""};
    ChatTable table;
    ChatText text = {0};
    void *block;
    size_t room;

    chat.json = messages;
    chat.tools = tools;
    chat.variables = variables;
    chat.template_name = json_string_value(json_object_get(q, "name"));
    chat.add_generation_prompt = json_is_true(json_object_get(q, "prompt"));
    chat.time = json_integer_value(json_object_get(q, "time"));
    room = chat_memory(&chat);
    block = calloc(1, room);
    if (!block || chat_open(section, bytes, &table, &err) || chat_render(&table, &chat, block, room, &text, &err))
        answer(json_pack("{s:s}", "error", err.text));
    else
        answer(json_pack("{s:s%, s:o}", "text", text.at, text.n, "users", users_of(&text)));
    free(block);
    free(messages);
    free(tools);
    free(variables);
}

static void run(const json_t *q)
{
    Arena *keep = arena_open();
    ChatSource sources[8];
    ChatToken tokens[8];
    size_t n = 0, n_tokens = 0, bytes;
    const char *key;
    json_t *v;
    void *section;
    Diag d = {0};

    json_object_foreach(json_object_get(q, "templates"), key, v) sources[n++] =
        (ChatSource){key, "template", json_string_value(v), json_string_length(v)};
    json_object_foreach(json_object_get(q, "tokens"), key, v) tokens[n_tokens++] =
        (ChatToken){key, json_string_value(v)};
    if (chat_compile(sources, n, tokens, n_tokens, keep, &section, &bytes, &d))
        render(q, section, bytes);
    else
        answer(json_pack("{s:s, s:b}", "error", d.text, "compile", 1));
    arena_close(keep);
}

int main(void)
{
    size_t cap = 0;
    char *line = NULL;

    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        json_t *q = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);

        if (!q)
            return 1;
        run(q);
        json_decref(q);
    }
    free(line);
    return 0;
}
