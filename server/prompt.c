/* prompt.c - prompts of a request: texts, ids and conversations to the ids of a part. */
#include "prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runner/command.h"
#include "../runtime/base/arena.h"

enum { MOST_MESSAGES = 4096 };

/* What the runtime refuses is the request's fault, unless memory is. */
static bool refused(const FtxError *err, const char *param, Fault *f)
{
    fault(f, param, "%s", err->text);
    if (err->status != FTX_EINVAL && err->status != FTX_EFULL)
        f->status = 500;
    return false;
}

bool prompt_tokenize(const Served *m, bool special, const char *text, size_t bytes, int32_t **ids, size_t *n, Fault *f)
{
    size_t room = bytes + 16;
    FtxError err;

    *ids = NULL;
    for (*n = 0;;) {
        *ids = command_must(realloc(*ids, room * sizeof **ids));
        if (ftx_tokenize(m->model, text, bytes, special ? FTX_TOKENIZE_SPECIAL : 0, *ids, room, n, &err)) {
            free(*ids);
            *ids = NULL;
            return refused(&err, "prompt", f);
        }
        if (*n <= room)
            return true;
        room = *n;
    }
}

bool prompt_detokenize(const Served *m, const int32_t *ids, size_t n, bool skip_special, Text *text, Fault *f)
{
    FtxError err;
    char *at = NULL;
    size_t room = n * 8 + 16, bytes = 0;

    do {
        room = bytes > room ? bytes : room;
        at = command_must(realloc(at, room));
        if (ftx_detokenize(m->model, ids, n, skip_special, at, room, &bytes, &err)) {
            free(at);
            return refused(&err, "tokens", f);
        }
    } while (bytes > room);
    text_add(text, at, bytes);
    free(at);
    return true;
}

/* Only the last ids of a prompt that is too long, if the request says so. */
static bool truncate_ids(const json_t *root, Part *p, Fault *f)
{
    int64_t most = (int64_t)p->n_ids;

    if (!body_count(root, "truncate_prompt_tokens", 1, 1 << 24, &most, f))
        return false;
    if ((int64_t)p->n_ids > most) {
        memmove(p->ids, p->ids + p->n_ids - most, (size_t)most * sizeof *p->ids);
        p->n_ids = (size_t)most;
    }
    return true;
}

bool prompt_read(const Served *m, const json_t *root, const json_t *v, bool keep_text, Part *p, Fault *f)
{
    const bool source = m->info.kind == FTX_MODEL_SEQ2SEQ;
    bool special = true;

    if (!body_bool(root, "add_special_tokens", &special, f))
        return false;
    if (json_is_string(v)) {
        if (keep_text || source) {
            p->text_bytes = json_string_length(v);
            p->text = command_must(malloc(p->text_bytes + 1));
            memcpy(p->text, json_string_value(v), p->text_bytes + 1);
        }
        if (!source && !prompt_tokenize(m, special, json_string_value(v), json_string_length(v), &p->ids, &p->n_ids, f))
            return false;
    } else if (json_is_array(v)) {
        Text text = {0};

        if (!body_ids(v, "prompt", m->info.vocab, &p->ids, &p->n_ids, f))
            return false;
        if (keep_text) {
            if (!prompt_detokenize(m, p->ids, p->n_ids, true, &text, f))
                return false;
            p->text = text.at;
            p->text_bytes = text.n;
        }
    } else {
        return fault(f, "prompt", "prompt: expected a string, a list of strings, or token ids");
    }
    if (!p->n_ids && !source)
        return fault(f, "prompt", "prompt: there is no token in it");
    return truncate_ids(root, p, f);
}

/* --- conversations ----------------------------------------------------------------------------------------- */

/* A content in parts becomes one text: templates expect a string. */
static bool join_parts(json_t *message, json_t *parts, size_t number, Fault *f)
{
    Text text = {0};
    json_t *part, *joined;
    char where[100];
    size_t i;

    json_array_foreach(parts, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *s = json_object_get(part, "text");

        if (!type || strcmp(type, "text") != 0 || !json_is_string(s)) {
            text_free(&text);
            snprintf(where, sizeof where, "messages[%zu].content[%zu].type", number, i);
            return fault(f, where, "%s: only parts {\"type\": \"text\", \"text\": \"...\"} are read", where);
        }
        text_put(&text, i ? "\n" : "");
        text_add(&text, json_string_value(s), json_string_length(s));
    }
    joined = command_must(json_stringn(text.n ? text.at : "", text.n));
    text_free(&text);
    json_object_set_new(message, "content", joined);
    return true;
}

/* Templates expect the arguments of a call as an object; clients send them as JSON in a string. */
static void open_arguments(json_t *message)
{
    json_t *call;
    size_t i;

    json_array_foreach(json_object_get(message, "tool_calls"), i, call)
    {
        json_t *function = json_object_get(call, "function"), *text = json_object_get(function, "arguments"), *value;
        Fault f;

        if (!json_is_string(text))
            continue;
        value = body_parse(json_string_value(text), json_string_length(text), &f);
        if (value)
            json_object_set_new(function, "arguments", value);
    }
}

static bool check_message(json_t *message, size_t i, Fault *f)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    char where[60];
    bool known = false;

    snprintf(where, sizeof where, "messages[%zu].role", i);
    for (size_t k = 0; role && k < LEN(roles); k++)
        known = known || strcmp(role, roles[k]) == 0;
    if (!known)
        return fault(f, where, "%s: expected system, developer, user, assistant or tool", where);
    snprintf(where, sizeof where, "messages[%zu].content", i);
    if (json_is_array(content))
        return join_parts(message, content, i, f);
    if (json_is_string(content) || (strcmp(role, "assistant") == 0 && json_object_get(message, "tool_calls"))) {
        open_arguments(message);
        return true;
    }
    return fault(f, where, "%s: expected a string, or a list of parts", where);
}

/* What a template may be given beside messages and tools. */
static json_t *read_variables(const json_t *root, Fault *f)
{
    static const char *const names[] = {"enable_thinking", "reasoning_effort", "documents", "thinking"};
    json_t *given = body_field(root, "chat_template_kwargs"), *all = command_must(json_object()), *v;
    const char *key;

    for (size_t i = 0; i < LEN(names); i++)
        if (body_field(root, names[i]))
            json_object_set(all, names[i], body_field(root, names[i]));
    if (given && !json_is_object(given)) {
        fault(f, "chat_template_kwargs", "chat_template_kwargs: expected an object");
        json_decref(all);
        return NULL;
    }
    json_object_foreach(given, key, v)
    {
        bool known = false;

        for (size_t i = 0; i < LEN(names); i++)
            known = known || strcmp(key, names[i]) == 0;
        if (!known) {
            fault(f, "chat_template_kwargs",
                  "chat_template_kwargs: \"%.60s\": only enable_thinking, reasoning_effort, thinking and documents",
                  key);
            json_decref(all);
            return NULL;
        }
        json_object_set(all, key, v);
    }
    return all;
}

static bool render(const Served *m, FtxChat *chat, Part *p, Fault *f)
{
    FtxError err;
    size_t room = 0;
    FtxStatus s;

    do { /* the first time for the number of ids */
        room = p->n_ids;
        p->ids = command_must(realloc(p->ids, (room + 1) * sizeof *p->ids));
        s = ftx_chat(m->model, chat, p->ids, room, &p->n_ids, &err);
    } while (!s && p->n_ids > room);
    if (s)
        return refused(&err, "messages", f);
    return p->n_ids ? true : fault(f, "messages", "messages: the template made an empty prompt of them");
}

bool prompt_chat(const Served *m, const json_t *root, bool with_tools, Part *p, Fault *f)
{
    json_t *messages = body_field(root, "messages"), *message, *variables,
           *tools = with_tools ? body_field(root, "tools") : NULL;
    FtxChat chat = FTX_CHAT_INIT;
    char *texts[3] = {0};
    size_t i;
    bool done;

    if (!m->info.has_chat)
        return fault(f, "model", "`%.100s` has no chat template: use /v1/completions", m->name);
    if (!json_is_array(messages) || !json_array_size(messages) || json_array_size(messages) > MOST_MESSAGES)
        return fault(f, "messages", "messages: expected a list of 1 to %d messages", MOST_MESSAGES);
    json_array_foreach(messages, i, message)
    {
        if (!check_message(message, i, f))
            return false;
    }
    chat.add_generation_prompt = true;
    if (!body_bool(root, "add_generation_prompt", &chat.add_generation_prompt, f))
        return false;
    variables = read_variables(root, f);
    if (!variables)
        return false;
    texts[0] = command_must(json_dumps(messages, JSON_COMPACT | JSON_REAL_PRECISION(17)));
    texts[1] = command_must(json_dumps(variables, JSON_COMPACT | JSON_REAL_PRECISION(17)));
    texts[2] = tools ? command_must(json_dumps(tools, JSON_COMPACT | JSON_REAL_PRECISION(17))) : NULL;
    json_decref(variables);
    chat.json = texts[0];
    chat.variables = texts[1];
    chat.tools = texts[2];
    done = render(m, &chat, p, f);
    for (i = 0; i < LEN(texts); i++)
        free(texts[i]);
    return done && truncate_ids(root, p, f);
}
