/* json.c - JSON to values and back. Texts that are read belong to the users; what is written looks like Python's
 * json.dumps. */
#include "value.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/utf8.h"

typedef struct Json {
    Chat *c;
    const char *what, *text;
    size_t at, n;
} Json;

static _Noreturn void refuse(const Json *j, const char *why)
{
    chat_raise(j->c, "%s: %s at byte %zu", j->what, why, j->at);
}

static void skip_blanks(Json *j)
{
    while (j->at < j->n && strchr(" \t\r\n", j->text[j->at]) && j->text[j->at])
        j->at++;
}

static int peek(Json *j)
{
    skip_blanks(j);
    return j->at < j->n ? (unsigned char)j->text[j->at] : -1;
}

static bool take_char(Json *j, char ch)
{
    if (peek(j) != (unsigned char)ch)
        return false;
    j->at++;
    return true;
}

/* Four hexadecimal digits. */
static uint32_t read_hex(Json *j)
{
    uint32_t code = 0;

    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef", *found = NULL;

        if (j->at < j->n && j->text[j->at])
            found = strchr(digits, j->text[j->at] | 0x20);
        if (!found || (j->text[j->at] < 'A' && j->text[j->at] > '9') || j->text[j->at] < '0')
            refuse(j, "\\u needs four hexadecimal digits");
        code = code << 4 | (uint32_t)(found - digits); /* cppcheck-suppress nullPointerArithmetic */
        j->at++;
    }
    return code;
}

/* What follows a backslash, as UTF-8. Half of a surrogate pair becomes U+FFFD. */
static size_t read_escape(Json *j, char out[4])
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char ch = j->at < j->n ? j->text[j->at++] : '\0';
    const char *found = ch ? strchr(from, ch) : NULL;
    uint32_t code;

    if (found) {
        *out = to[found - from];
        return 1;
    }
    if (ch != 'u')
        refuse(j, "an escape that JSON does not have");
    code = read_hex(j);
    if (code >= 0xd800 && code < 0xdc00 && j->at + 1 < j->n && j->text[j->at] == '\\' && j->text[j->at + 1] == 'u') {
        const size_t before = j->at;
        uint32_t low;

        j->at += 2;
        low = read_hex(j);
        if (low >= 0xdc00 && low < 0xe000)
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        else
            j->at = before;
    }
    return utf8_put(code >= 0xd800 && code < 0xe000 ? 0xfffd : code, out);
}

static Value read_string(Json *j)
{
    Buffer b = {0};

    j->at++;
    for (;;) {
        const size_t from = j->at;
        char out[4];

        while (j->at < j->n && j->text[j->at] != '"' && j->text[j->at] != '\\' && (unsigned char)j->text[j->at] >= ' ')
            j->at++;
        buffer_mark(j->c, &b, j->text + from, j->at - from, true);
        if (j->at == j->n || (unsigned char)j->text[j->at] < ' ')
            refuse(j, "a string without its end");
        if (j->text[j->at++] == '"')
            return buffer_value(j->c, &b);
        buffer_mark(j->c, &b, out, read_escape(j, out), true);
    }
}

static Value read_number(Json *j)
{
    const size_t from = j->at;
    const char *digits;
    char text[64];
    bool whole = true;
    long long i;
    char *end;

    while (j->at < j->n && strchr("+-0123456789.eE", j->text[j->at]) && j->text[j->at])
        whole &= !strchr(".eE", j->text[j->at++]);
    if (j->at == from || j->at - from >= sizeof text)
        refuse(j, "no value");
    memcpy(text, j->text + from, j->at - from);
    text[j->at - from] = '\0';
    digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9' || (digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9'))
        refuse(j, "no number of JSON");
    if (!whole) {
        const char *point = strchr(digits, '.');
        const double f = strtod(text, &end);

        if (*end || (point && (point[1] < '0' || point[1] > '9')))
            refuse(j, "no number of JSON");
        return value_float(f);
    }
    errno = 0;
    i = strtoll(text, &end, 10);
    if (*end || errno)
        refuse(j, *end ? "no number of JSON" : "an integer beyond 64 bits");
    return value_int(i);
}

static Value read_value(Json *j, int deep);

static Value read_list(Json *j, int deep)
{
    List l = {0};

    j->at++;
    if (take_char(j, ']'))
        return value_list(j->c, V_LIST, &l);
    do
        list_push(j->c, &l, read_value(j, deep + 1));
    while (take_char(j, ','));
    if (!take_char(j, ']'))
        refuse(j, "a list without its ]");
    return value_list(j->c, V_LIST, &l);
}

static Value read_object(Json *j, int deep)
{
    const Value v = value_dict(j->c);

    j->at++;
    if (take_char(j, '}'))
        return v;
    do {
        Value key;

        if (peek(j) != '"')
            refuse(j, "a key is missing");
        key = read_string(j);
        if (!take_char(j, ':'))
            refuse(j, "a : is missing");
        dict_set(j->c, v.as.dict, key, read_value(j, deep + 1));
    } while (take_char(j, ','));
    if (!take_char(j, '}'))
        refuse(j, "an object without its }");
    return v;
}

static bool take_word(Json *j, const char *word)
{
    const size_t n = strlen(word);

    if (j->n - j->at < n || memcmp(j->text + j->at, word, n) != 0)
        return false;
    j->at += n;
    return true;
}

static Value read_value(Json *j, int deep)
{
    const int ch = peek(j);

    chat_spend(j->c, 1);
    if (deep > CHAT_MOST_NESTING)
        refuse(j, "values are nested too deep");
    if (ch == '"')
        return read_string(j);
    if (ch == '[')
        return read_list(j, deep);
    if (ch == '{')
        return read_object(j, deep);
    if (take_word(j, "null"))
        return value_of(V_NONE);
    if (take_word(j, "true"))
        return value_bool(true);
    if (take_word(j, "false"))
        return value_bool(false);
    return read_number(j);
}

Value json_read(Chat *c, const char *what, const char *text, size_t n)
{
    Json j = {c, what, text, 0, n};
    Value v;

    if (!utf8_valid(text, n))
        chat_raise(c, "%s: is not UTF-8", what);
    v = read_value(&j, 0);
    if (peek(&j) != -1)
        refuse(&j, "more than one value");
    return v;
}

/* --- writing -------------------------------------------------------------------------------------- */

static void write_string(Chat *c, Buffer *b, const Text *t, bool ascii)
{
    static const char escapes[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";

    buffer_text(c, b, "\"");
    for (size_t i = 0, n; i < t->n; i += n) {
        const uint32_t code = text_code(t->at + i, t->n - i);
        const char *found = code && code < 0x80 ? strchr(escapes, (int)code) : NULL;
        char out[16];
        int length = 0;

        n = text_step(t->at + i, t->n - i);
        if (found)
            length = snprintf(out, sizeof out, "\\%c", letters[found - escapes]);
        else if (code >= 0x10000 && ascii)
            length = snprintf(out, sizeof out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                              0xdc00 + ((code - 0x10000) & 0x3ff));
        else if (code < ' ' || (ascii && code >= 0x7f))
            length = snprintf(out, sizeof out, "\\u%04x", code);
        buffer_mark(c, b, length ? out : t->at + i, length ? (size_t)length : n, t->user && t->user[i]);
    }
    buffer_text(c, b, "\"");
}

static void write_break(Chat *c, Buffer *b, const JsonForm *form, int deep)
{
    if (!form->indent)
        return;
    buffer_text(c, b, "\n");
    for (int i = 0; i < deep; i++)
        buffer_put(c, b, form->indent->at, form->indent->user, form->indent->n);
}

/* Keys are texts or become such, as in Python. */
static void write_key(Chat *c, Buffer *b, Value key, const JsonForm *form)
{
    Buffer text = {0};

    if (key.kind == V_STRING) {
        write_string(c, b, key.as.text, form->ascii);
        return;
    }
    if (key.kind == V_TUPLE)
        chat_raise(c, "keys must be str, int, float, bool or None, not tuple");
    json_write(c, &text, key, form, 0);
    buffer_text(c, b, "\"");
    buffer_put(c, b, text.at, text.user, text.n);
    buffer_text(c, b, "\"");
}

/* The places of a dict's keys in the order in which they are written. */
static size_t *key_order(Chat *c, const Dict *d, bool sorted)
{
    size_t *places = chat_alloc(c, d->n, sizeof *places);

    for (size_t i = 0; i < d->n; i++) {
        size_t at = i;

        for (; sorted && at > 0 && value_order(c, d->keys[i], d->keys[places[at - 1]]) < 0; at--)
            places[at] = places[at - 1];
        places[at] = i;
    }
    return places;
}

static void write_dict(Chat *c, Buffer *b, const Dict *d, const JsonForm *form, int deep)
{
    const size_t *places = key_order(c, d, form->sort);

    buffer_text(c, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            buffer_put(c, b, form->comma->at, form->comma->user, form->comma->n);
        write_break(c, b, form, deep + 1);
        write_key(c, b, d->keys[places[i]], form);
        buffer_put(c, b, form->colon->at, form->colon->user, form->colon->n);
        json_write(c, b, d->values[places[i]], form, deep + 1);
    }
    if (d->n)
        write_break(c, b, form, deep);
    buffer_text(c, b, "}");
}

static void write_list(Chat *c, Buffer *b, const List *l, const JsonForm *form, int deep)
{
    buffer_text(c, b, "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            buffer_put(c, b, form->comma->at, form->comma->user, form->comma->n);
        write_break(c, b, form, deep + 1);
        json_write(c, b, l->at[i], form, deep + 1);
    }
    if (l->n)
        write_break(c, b, form, deep);
    buffer_text(c, b, "]");
}

void json_write(Chat *c, Buffer *b, Value v, const JsonForm *form, int deep)
{
    chat_spend(c, 1);
    if (deep > CHAT_MOST_NESTING)
        chat_raise(c, "values are nested deeper than %d", CHAT_MOST_NESTING);
    switch (v.kind) {
    case V_NONE: buffer_text(c, b, "null"); return;
    case V_BOOL: buffer_text(c, b, v.as.i ? "true" : "false"); return;
    case V_FLOAT:
        if (isnan(v.as.f) || isinf(v.as.f)) {
            buffer_text(c, b, isnan(v.as.f) ? "NaN" : v.as.f < 0 ? "-Infinity" : "Infinity");
            return;
        }
        value_repr(c, b, v, 0);
        return;
    case V_INT: value_repr(c, b, v, 0); return;
    case V_STRING: write_string(c, b, v.as.text, form->ascii); return;
    case V_LIST:
    case V_TUPLE: write_list(c, b, v.as.list, form, deep); return;
    case V_DICT: write_dict(c, b, v.as.dict, form, deep); return;
    case V_MISSING:
    case V_UNDEFINED:
    case V_NAMESPACE:
    case V_LOOP:
    case V_MACRO:
    case V_METHOD:
    case V_GLOBAL: break;
    }
    chat_raise(c, "Object of type %s is not JSON serializable", value_type(v));
}
