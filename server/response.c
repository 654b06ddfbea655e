/* response.c - /v1/responses, the minimum: a request becomes one of a chat, and the answer is printed in its own form.
 *
 * The output is a message, if there is text before the first call, and the calls. Nothing is stored. */
#include "response.h"

#include <stdlib.h>
#include <string.h>

#include "../runner/command.h"
#include "../runtime/base/arena.h"

/* --- the request -------------------------------------------------------------------------------------------- */

/* Contents of a message: their parts have other names in a chat. */
static json_t *convert_content(json_t *content)
{
    json_t *parts, *part;
    size_t i;

    if (!json_is_array(content))
        return content ? json_incref(content) : json_null();
    parts = command_must(json_array());
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const bool text = type && (strcmp(type, "input_text") == 0 || strcmp(type, "output_text") == 0);
        json_t *one = json_pack("{s:s,s:O*}", "type",
                                text   ? "text"
                                : type ? type
                                       : "",
                                "text", json_object_get(part, "text"));

        json_array_append_new(parts, command_must(one));
    }
    return parts;
}

static json_t *convert_item(json_t *item)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    json_t *name = json_object_get(item, "name"), *arguments = json_object_get(item, "arguments"),
           *id = json_object_get(item, "call_id");

    if (type && strcmp(type, "function_call") == 0)
        return json_pack("{s:s,s:n,s:[{s:O?,s:s,s:{s:O?,s:O?}}]}", "role", "assistant", "content", "tool_calls", "id",
                         id, "type", "function", "function", "name", name, "arguments", arguments);
    if (type && strcmp(type, "function_call_output") == 0)
        return json_pack("{s:s,s:O?,s:o}", "role", "tool", "tool_call_id", id, "content",
                         convert_content(json_object_get(item, "output")));
    return json_pack("{s:O?,s:o}", "role", json_object_get(item, "role"), "content",
                     convert_content(json_object_get(item, "content")));
}

static bool convert_input(const json_t *root, json_t *messages, Fault *f)
{
    json_t *input = body_field(root, "input"), *instructions = body_field(root, "instructions"), *item;
    size_t i;

    if (instructions && !json_is_string(instructions))
        return fault(f, "instructions", "instructions: expected a string");
    if (instructions)
        json_array_append_new(messages, json_pack("{s:s,s:O}", "role", "system", "content", instructions));
    if (json_is_string(input))
        json_array_append_new(messages, json_pack("{s:s,s:O}", "role", "user", "content", input));
    else if (!json_is_array(input))
        return fault(f, "input", "input: expected a string or a list of items");
    json_array_foreach(input, i, item)
    {
        json_t *message = json_is_object(item) ? convert_item(item) : NULL;

        if (!message)
            return fault(f, "input", "input[%zu]: expected a message, a function_call or a function_call_output", i);
        json_array_append_new(messages, message);
    }
    return true;
}

/* Functions lie a level deeper in a chat. */
static json_t *convert_tool(json_t *tool)
{
    const char *type = json_string_value(json_object_get(tool, "type"));

    return json_pack("{s:s,s:O}", "type", type ? type : "", "function", tool);
}

static bool refuse_fields(const json_t *root, Fault *f)
{
    static const char *const no[] = {"previous_response_id", "background", "conversation", "prompt"};

    for (size_t i = 0; i < LEN(no); i++)
        if (body_field(root, no[i]) && !json_is_false(body_field(root, no[i])))
            return fault(f, no[i], "%s is not supported: nothing is stored", no[i]);
    return true;
}

/* text.format to response_format: what json_schema holds there stands beside the type here. */
static json_t *convert_format(json_t *format)
{
    return json_pack("{s:O?,s:O}", "type", json_object_get(format, "type"), "json_schema", format);
}

json_t *response_to_chat(const json_t *root, Fault *f)
{
    static const char *const same[] = {"model", "temperature", "top_p", "stream", "parallel_tool_calls", "seed"};
    json_t *chat = command_must(json_object()), *messages = command_must(json_array()), *tool;
    json_t *tools = body_field(root, "tools"), *choice = body_field(root, "tool_choice");
    size_t i;

    json_object_set_new(chat, "messages", messages);
    if (!refuse_fields(root, f) || !convert_input(root, messages, f)) {
        json_decref(chat);
        return NULL;
    }
    for (i = 0; i < LEN(same); i++)
        if (body_field(root, same[i]))
            json_object_set(chat, same[i], body_field(root, same[i]));
    if (body_field(root, "max_output_tokens"))
        json_object_set(chat, "max_completion_tokens", body_field(root, "max_output_tokens"));
    if (json_is_object(json_object_get(body_field(root, "text"), "format")))
        json_object_set_new(chat, "response_format",
                            command_must(convert_format(json_object_get(body_field(root, "text"), "format"))));
    if (json_array_size(tools))
        json_object_set_new(chat, "tools", command_must(json_array()));
    json_array_foreach(tools, i, tool)
        json_array_append_new(json_object_get(chat, "tools"), command_must(convert_tool(tool)));
    if (json_is_object(choice))
        json_object_set_new(chat, "tool_choice", command_must(convert_tool(choice)));
    else if (choice)
        json_object_set(chat, "tool_choice", choice);
    return chat;
}

/* --- the answer --------------------------------------------------------------------------------------------- */

static bool has_message(const Choice *choice)
{
    return choice->text.n || !choice->n_calls;
}

static void print_part(Text *t, const char *text, size_t bytes)
{
    text_put(t, "{\"type\":\"output_text\",\"text\":");
    text_json(t, text, bytes);
    text_put(t, ",\"annotations\":[]}");
}

/* An item of the output; done: with its content. */
static void print_item(Text *t, const Completion *c, const Call *call, bool done)
{
    const Choice *choice = &c->choices[0];
    const char *status = done ? "completed" : "in_progress";

    if (call) {
        text_printf(t, "{\"type\":\"function_call\",\"id\":\"fc_%s\",\"call_id\":\"%s\",\"status\":\"%s\",\"name\":",
                    call->id, call->id, status);
        text_json(t, call->name.at, call->name.n);
        text_put(t, ",\"arguments\":");
        text_json(t, call->args.at, done ? call->args.n : 0);
        text_put(t, "}");
        return;
    }
    text_put(t, "{\"type\":\"message\",\"id\":\"msg_");
    text_json_part(t, c->x->id, strlen(c->x->id));
    text_printf(t, "\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":[", status);
    if (done)
        print_part(t, choice->text.at, choice->text.n);
    text_put(t, "]}");
}

static void print_given(Text *t, const Completion *c, const char *name, const char *missing)
{
    const json_t *v = body_field(c->root, name);
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;

    text_printf(t, ",\"%s\":%s", name, text ? text : missing);
    free(text);
}

void response_print(Text *t, const Completion *c, bool done)
{
    const Choice *choice = &c->choices[0];
    const bool cut = done && choice->finish == FTX_FINISH_LENGTH;
    const char *forced =
        json_string_value(/* checked: letters, digits, _ and - */
                          json_object_get(json_object_get(body_field(c->root, "tool_choice"), "function"), "name"));

    text_put(t, "{\"id\":\"resp_");
    text_json_part(t, c->x->id, strlen(c->x->id));
    text_printf(
        t, "\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"error\":null,\"incomplete_details\":%s",
        (long long)c->created,
        !done ? "in_progress"
        : cut ? "incomplete"
              : "completed",
        cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    text_put(t, ",\"model\":");
    text_json(t, c->m->name, strlen(c->m->name));
    text_put(t, ",\"output\":[");
    if (done && has_message(choice))
        print_item(t, c, NULL, true);
    for (size_t i = 0; done && i < choice->n_calls; i++) {
        text_put(t, i || has_message(choice) ? "," : "");
        print_item(t, c, &choice->calls[i], true);
    }
    text_put(t, "]");
    print_given(t, c, "parallel_tool_calls", "true");
    print_given(t, c, "temperature", "null");
    print_given(t, c, "top_p", "null");
    if (forced)
        text_printf(t, ",\"tool_choice\":{\"type\":\"function\",\"name\":\"%s\"}", forced);
    else
        print_given(t, c, "tool_choice", "\"auto\"");
    text_put(t, ",\"tools\":[],\"usage\":");
    if (done)
        text_printf(t,
                    "{\"input_tokens\":%zu,\"input_tokens_details\":{\"cached_tokens\":%zu},\"output_tokens\":%zu,"
                    "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":%zu}",
                    c->prompt_tokens, c->cached_tokens, c->new_tokens, c->prompt_tokens + c->new_tokens);
    else
        text_put(t, "null");
    text_put(t, "}");
}

/* --- a stream ------------------------------------------------------------------------------------------------- */

/* The start of an event; the caller adds fields, each with a comma before it, and "}\n\n". */
static void begin_event(Text *t, Completion *c, const char *type)
{
    text_printf(t, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%zu", type, type,
                c->sequence++);
}

static void put_response(Text *t, Completion *c, const char *type, bool done)
{
    begin_event(t, c, type);
    text_put(t, ",\"response\":");
    response_print(t, c, done);
    text_put(t, "}\n\n");
}

static const Call *last_call(const Completion *c)
{
    const Choice *choice = &c->choices[0];

    return choice->n_calls ? &choice->calls[choice->n_calls - 1] : NULL;
}

static void put_item(Text *t, Completion *c, const char *type, bool done)
{
    begin_event(t, c, type);
    text_printf(t, ",\"output_index\":%zu,\"item\":", c->items - 1);
    print_item(t, c, last_call(c), done);
    text_put(t, "}\n\n");
}

/* An event about the content of the item that is open. */
static void begin_content(Text *t, Completion *c, const char *type)
{
    const Call *call = last_call(c);

    begin_event(t, c, type);
    text_printf(t, ",\"output_index\":%zu,\"item_id\":\"%s", c->items - 1, call ? "fc_" : "msg_");
    if (call)
        text_put(t, call->id);
    else
        text_json_part(t, c->x->id, strlen(c->x->id));
    text_put(t, call ? "\"" : "\",\"content_index\":0");
}

static void open_message(Text *t, Completion *c)
{
    c->items++;
    put_item(t, c, "output_item.added", false);
    begin_content(t, c, "content_part.added");
    text_put(t, ",\"part\":");
    print_part(t, "", 0);
    text_put(t, "}\n\n");
}

void response_close(Text *t, Completion *c)
{
    const Choice *choice = &c->choices[0];
    const Call *call = last_call(c);

    if (!c->items)
        return;
    begin_content(t, c, call ? "function_call_arguments.done" : "output_text.done");
    text_printf(t, ",\"%s\":", call ? "arguments" : "text");
    text_json(t, call ? call->args.at : choice->text.at, call ? call->args.n : choice->text.n);
    text_put(t, "}\n\n");
    if (!call) {
        begin_content(t, c, "content_part.done");
        text_put(t, ",\"part\":");
        print_part(t, choice->text.at, choice->text.n);
        text_put(t, "}\n\n");
    }
    put_item(t, c, "output_item.done", true);
}

void response_start(Text *t, Completion *c)
{
    put_response(t, c, "created", false);
    put_response(t, c, "in_progress", false);
}

void response_piece(Text *t, Completion *c, Piece piece, const char *text, size_t bytes)
{
    if (piece == PIECE_REASON)
        return;
    if (piece == PIECE_CALL) { /* the call is there, with its name */
        c->items++;
        put_item(t, c, "output_item.added", false);
        return;
    }
    if (!c->items)
        open_message(t, c);
    begin_content(t, c, piece == PIECE_ARGS ? "function_call_arguments.delta" : "output_text.delta");
    text_put(t, ",\"delta\":");
    text_json(t, text, bytes);
    text_put(t, "}\n\n");
}

void response_end(Text *t, Completion *c)
{
    if (!c->items)
        open_message(t, c);
    response_close(t, c);
    put_response(t, c, c->choices[0].finish == FTX_FINISH_LENGTH ? "incomplete" : "completed", true);
}
