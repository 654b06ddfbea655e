/* tools.c - finds tool calls and reasoning in a text as it is written.
 *
 *     START ─▶ REASON ─</think>─▶ TEXT ─mark─▶ CALL ─▶ BETWEEN ─mark, ',' or ';'─▶ CALL
 *                                             NAME ─▶ ARGS ─▶ BETWEEN       (Mistral's newer form)
 *
 * What is held back is at most the start of a mark, a name, or, where the name of a call comes behind its arguments, these. */
#include "tools.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/base/arena.h"

static const char think[] = "<think>", unthink[] = "</think>", tool_call[] = "<tool_call>",
                  untool_call[] = "</tool_call>", python_tag[] = "<|python_tag|>", tool_calls[] = "[TOOL_CALLS]",
                  args[] = "[ARGS]";

static const char *mark_of(ToolStyle style)
{
    switch (style) {
    case TOOLS_HERMES: return tool_call;
    case TOOLS_LLAMA: return python_tag;
    case TOOLS_MISTRAL: return tool_calls;
    case TOOLS_NONE: break;
    }
    return NULL;
}

void parser_open(Parser *p, ToolStyle style, bool reasons, bool inside)
{
    *p = (Parser){.style = style, .reasons = reasons, .state = reasons && inside ? PARSE_REASON : PARSE_START};
}

void parser_close(Parser *p)
{
    text_free(&p->held);
}

static size_t blanks(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && strchr(" \t\r\n", s[i]) && s[i])
        i++;
    return i;
}

/* Where `mark` begins in the held text; the start of one at its end counts. n: nowhere. *whole: all of it is there. */
static size_t find_mark(const Text *t, const char *mark, bool *whole)
{
    const size_t m = strlen(mark);

    for (size_t i = 0; t->at && i < t->n; i++) {
        const size_t n = t->n - i < m ? t->n - i : m;

        if (memcmp(t->at + i, mark, n) == 0) {
            *whole = n == m;
            return i;
        }
    }
    *whole = false;
    return t->n;
}

static void pass(Parser *p, Piece piece, size_t bytes, PieceSink sink, void *user)
{
    if (bytes)
        sink(user, piece, p->held.at, bytes);
    text_drop(&p->held, bytes);
}

/* --- a call as a JSON object -------------------------------------------------------------------------------- */

/* What a scan of an object has found; offsets into its text. */
typedef struct Scan {
    bool wrong;                    /* it is no object, or none of a call */
    size_t at;                     /* where it went wrong */
    size_t end;                    /* behind the object; 0: it is not whole */
    size_t name, name_end;         /* the string with its quotes; name_end 0: not whole */
    size_t value, value_end, seen; /* of the arguments; value_end 0: not whole; seen: up to where they are there */
} Scan;

/* The end of the JSON value at `at`: behind it. 0: it is not whole. */
static size_t value_end(const char *s, size_t n, size_t at)
{
    int depth = 0;
    bool text = false;

    for (size_t i = at; i < n; i++) {
        if (text) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                text = false;
            if (!text && !depth)
                return i + 1;
        } else if (s[i] == '"') {
            text = true;
        } else if (s[i] == '{' || s[i] == '[') {
            depth++;
        } else if (s[i] == '}' || s[i] == ']') {
            if (--depth == 0)
                return i + 1;
            if (depth < 0)
                return i; /* a number or a word ended before it */
        } else if (!depth && (s[i] == ',' || strchr(" \t\r\n", s[i]))) {
            return i;
        }
    }
    return 0;
}

static bool is_key(const char *s, size_t from, size_t to, const char *name)
{
    return to - from == strlen(name) + 2 && memcmp(s + from + 1, name, strlen(name)) == 0;
}

/* Reads members of the object as far as they are there. */
static Scan scan_object(const char *s, size_t n)
{
    Scan r = {0};
    size_t i = 1;

    for (;;) {
        size_t key, key_end, value, end;

        while (i < n && (strchr(" \t\r\n,", s[i])))
            i++;
        if (i == n)
            return r;
        if (s[i] == '}') {
            r.end = i + 1;
            r.wrong = !r.name_end;
            return r;
        }
        key = r.at = i;
        r.wrong = s[i] != '"';
        key_end = r.wrong ? 0 : value_end(s, n, i);
        if (!key_end)
            return r;
        i = key_end + blanks(s + key_end, n - key_end);
        if (i == n)
            return r;
        r.at = i;
        r.wrong = s[i] != ':';
        if (r.wrong)
            return r;
        value = i + 1 + blanks(s + i + 1, n - i - 1);
        end = value < n ? value_end(s, n, value) : 0;
        if (is_key(s, key, key_end, "name")) {
            r.at = value;
            r.wrong = value < n && s[value] != '"';
            r.name = value;
            r.name_end = r.wrong ? 0 : end;
        } else if (is_key(s, key, key_end, "arguments") || is_key(s, key, key_end, "parameters")) {
            r.value = value;
            r.value_end = end;
            r.seen = end ? end : n;
        }
        if (!end || r.wrong)
            return r;
        i = end;
    }
}

/* Passes on a JSON string's text. False: it is empty or no JSON. */
static bool pass_string(const char *s, size_t n, Piece piece, PieceSink sink, void *user)
{
    json_t *v = json_loadb(s, n, JSON_DECODE_ANY, NULL);
    const bool good = json_is_string(v) && json_string_length(v);

    if (good)
        sink(user, piece, json_string_value(v), json_string_length(v));
    json_decref(v);
    return good;
}

/* The object at the start of the held text. False: more is needed. */
static bool read_call(Parser *p, bool last, PieceSink sink, void *user)
{
    Scan r = scan_object(p->held.at, p->held.n);

    if (r.name_end && !p->named) {
        p->calls++;
        p->named = pass_string(p->held.at + r.name, r.name_end - r.name, PIECE_CALL, sink, user);
        p->calls -= !p->named;
        r.wrong = r.wrong || !p->named;
    }
    if ((r.wrong || (last && !r.end)) && !p->named) { /* no call: the brace is text, and so is what follows */
        pass(p, PIECE_TEXT, 1, sink, user);
        p->closed = false;
        p->state = PARSE_TEXT;
        return true;
    }
    if (p->named && r.seen > r.value && p->held.at[r.value] != '"' && r.seen - r.value > p->given) {
        sink(user, PIECE_ARGS, p->held.at + r.value + p->given, r.seen - r.value - p->given);
        p->given = r.seen - r.value;
    } else if (p->named && r.value_end && p->held.at[r.value] == '"' && !p->given) {
        pass_string(p->held.at + r.value, r.value_end - r.value, PIECE_ARGS, sink, user); /* JSON in a string */
        p->given = 1;
    }
    if (!r.end && !r.wrong)
        return false;
    if (p->named && !p->given)
        sink(user, PIECE_ARGS, "{}", 2);
    text_drop(&p->held, r.end ? r.end : r.at);
    p->state = PARSE_BETWEEN;
    return true;
}

/* --- states --------------------------------------------------------------------------------------------------- */

static void begin_call(Parser *p)
{
    p->state = PARSE_CALL;
    p->named = false;
    p->given = 0;
}

/* Text up to the mark of a call. */
static bool read_text(Parser *p, bool last, PieceSink sink, void *user)
{
    const char *mark = mark_of(p->style);
    bool whole = false;
    size_t at;

    if (p->closed) {
        text_drop(&p->held, blanks(p->held.at, p->held.n));
        p->closed = !p->held.n;
    }
    at = mark ? find_mark(&p->held, mark, &whole) : p->held.n;
    if (last && !whole)
        at = p->held.n;
    pass(p, PIECE_TEXT, at, sink, user);
    if (!whole)
        return false;
    text_drop(&p->held, strlen(mark));
    begin_call(p);
    return true;
}

/* Up to </think>. */
static bool read_reason(Parser *p, bool last, PieceSink sink, void *user)
{
    bool whole;
    size_t at = find_mark(&p->held, unthink, &whole);

    if (last && !whole)
        at = p->held.n;
    pass(p, PIECE_REASON, at, sink, user);
    if (!whole)
        return false;
    text_drop(&p->held, strlen(unthink));
    p->state = PARSE_START;
    p->reasons = false;
    p->closed = true;
    return true;
}

/* The first character decides: reasoning, Llama's bare call, or text. */
static bool read_start(Parser *p, bool last)
{
    const size_t skip = blanks(p->held.at, p->held.n);
    Text rest = {p->held.at, 0, 0};
    bool whole;

    if (!rest.at || (skip == p->held.n && !last))
        return false;
    rest.at += skip;
    rest.n = p->held.n - skip;
    if (p->reasons && rest.n && find_mark(&rest, think, &whole) == 0) {
        if (!whole && !last)
            return false;
        if (whole) {
            text_drop(&p->held, skip + strlen(think));
            p->state = PARSE_REASON;
            return true;
        }
    }
    if (p->style == TOOLS_LLAMA && rest.n && rest.at[0] == '{') {
        text_drop(&p->held, skip);
        begin_call(p);
    } else {
        p->state = PARSE_TEXT;
    }
    return true;
}

/* The start of a call: an object, or Mistral's list or name. */
static bool read_head(Parser *p, bool last, PieceSink sink, void *user)
{
    text_drop(&p->held, blanks(p->held.at, p->held.n));
    if (!p->held.n)
        return false;
    if (p->held.at[0] == '{')
        return read_call(p, last, sink, user);
    if (p->style == TOOLS_MISTRAL && p->held.at[0] == '[') {
        text_drop(&p->held, 1);
        return true;
    }
    p->state = p->style == TOOLS_MISTRAL ? PARSE_NAME : PARSE_TEXT;
    return true;
}

/* Mistral's name before [ARGS] or '{'. */
static bool read_name(Parser *p, bool last, PieceSink sink, void *user)
{
    bool whole;
    const size_t tag = find_mark(&p->held, args, &whole);
    const char *brace = memchr(p->held.at, '{', p->held.n);
    const size_t end = brace && (size_t)(brace - p->held.at) < tag ? (size_t)(brace - p->held.at) : tag;

    if (!whole && !brace) {
        if (last)
            pass(p, PIECE_TEXT, p->held.n, sink, user);
        return false;
    }
    p->calls++;
    sink(user, PIECE_CALL, p->held.at, end);
    text_drop(&p->held, end == tag && whole ? end + strlen(args) : end);
    p->given = 0;
    p->state = PARSE_ARGS;
    return true;
}

static bool read_args(Parser *p, PieceSink sink, void *user)
{
    size_t end;

    if (!p->given)
        text_drop(&p->held, blanks(p->held.at, p->held.n));
    end = p->held.n ? value_end(p->held.at, p->held.n, 0) : 0;
    if (p->held.n && (end ? end : p->held.n) > p->given) {
        sink(user, PIECE_ARGS, p->held.at + p->given, (end ? end : p->held.n) - p->given);
        p->given = end ? end : p->held.n;
    }
    if (!end)
        return false;
    text_drop(&p->held, end);
    p->state = PARSE_BETWEEN;
    return true;
}

/* Behind a call: its end mark, a separator, or text again. */
static bool read_between(Parser *p, bool last)
{
    bool whole;
    char c;

    p->closed = true;

    text_drop(&p->held, blanks(p->held.at, p->held.n));
    if (!p->held.n)
        return false;
    c = p->held.at[0];
    if (p->style == TOOLS_HERMES && find_mark(&p->held, untool_call, &whole) == 0) {
        if (!whole && !last)
            return false;
        text_drop(&p->held, whole ? strlen(untool_call) : p->held.n);
        p->state = PARSE_TEXT;
    } else if ((p->style == TOOLS_LLAMA && c == ';') || (p->style == TOOLS_MISTRAL && c == ',')) {
        text_drop(&p->held, 1);
        begin_call(p);
    } else if (p->style == TOOLS_MISTRAL && c == ']') {
        text_drop(&p->held, 1);
        p->state = PARSE_TEXT;
    } else {
        p->state = PARSE_TEXT;
    }
    return true;
}

void parser_feed(Parser *p, const char *text, size_t bytes, bool last, PieceSink sink, void *user)
{
    bool more = true;

    text_add(&p->held, text, bytes);
    while (more) {
        switch (p->state) {
        case PARSE_START: more = read_start(p, last); break;
        case PARSE_REASON: more = read_reason(p, last, sink, user); break;
        case PARSE_TEXT: more = read_text(p, last, sink, user); break;
        case PARSE_CALL: more = read_head(p, last, sink, user); break;
        case PARSE_NAME: more = read_name(p, last, sink, user); break;
        case PARSE_ARGS: more = read_args(p, sink, user); break;
        case PARSE_BETWEEN: more = read_between(p, last); break;
        }
    }
}
