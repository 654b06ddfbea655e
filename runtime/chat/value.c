/* value.c - memory of a rendering, and what Python says of values: truth, equality, order, text. */
#include "value.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "../base/utf8.h"

/* --- memory and errors --------------------------------------------------------------------------- */

enum { MOST_REASON = sizeof(((FtxError *)0)->text) };

static _Noreturn void leave_rendering(Chat *c, FtxStatus status, char *text)
{
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    if (c->line)
        c->status = ftx_fail(c->err, status, "line %d: %s", c->line, text);
    else
        c->status = ftx_fail(c->err, status, "%s", text);
    longjmp(c->escape, 1);
}

void chat_raise(Chat *c, const char *format, ...)
{
    char text[MOST_REASON];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    leave_rendering(c, FTX_EINVAL, text);
}

void chat_raise_status(Chat *c, FtxStatus status, const char *format, ...)
{
    char text[MOST_REASON];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    leave_rendering(c, status, text);
}

void *chat_alloc(Chat *c, size_t count, size_t bytes)
{
    size_t all;
    char *p = c->block + c->at;

    if (__builtin_mul_overflow(count, bytes, &all) || all > c->size - c->at)
        chat_raise_status(c, FTX_EFULL, "rendering needs more than %zu bytes of memory", c->size);
    c->at += (all + 15) / 16 * 16;
    if (c->at > c->size)
        c->at = c->size;
    chat_spend(c, all / 64);
    return p;
}

void chat_spend(Chat *c, size_t work)
{
    if (work >= c->steps)
        chat_raise_status(c, FTX_EFULL, "rendering takes too many steps");
    c->steps -= work;
}

/* The array of a growing list with room for one more. */
static void *grow(Chat *c, void *old, size_t n, size_t cap, size_t bytes)
{
    void *at = chat_alloc(c, cap, bytes);

    if (n)
        memcpy(at, old, n * bytes);
    return at;
}

void list_push(Chat *c, List *l, Value v)
{
    if (l->n == l->cap) {
        l->cap = l->cap * 2 + 4;
        l->at = grow(c, l->at, l->n, l->cap, sizeof *l->at);
    }
    l->at[l->n++] = v;
}

const Value *dict_find(Chat *c, const Dict *d, Value key)
{
    for (size_t i = 0; i < d->n; i++) {
        chat_spend(c, 1);
        if (value_same(c, d->keys[i], key))
            return &d->values[i];
    }
    return NULL;
}

void dict_set(Chat *c, Dict *d, Value key, Value v)
{
    Value *found;

    if (key.kind == V_LIST || key.kind == V_DICT)
        chat_raise(c, "unhashable type: '%s'", value_type(key));
    found = (Value *)dict_find(c, d, key);
    if (found) {
        *found = v;
        return;
    }
    if (d->n == d->cap) {
        d->cap = d->cap * 2 + 4;
        d->keys = grow(c, d->keys, d->n, d->cap, sizeof *d->keys);
        d->values = grow(c, d->values, d->n, d->cap, sizeof *d->values);
    }
    d->keys[d->n] = key;
    d->values[d->n++] = v;
}

Value value_text(Chat *c, const char *at, const unsigned char *user, size_t n)
{
    Text *t = chat_alloc(c, 1, sizeof *t);

    *t = (Text){n, at, user, false};
    return (Value){.kind = V_STRING, .as.text = t};
}

Value value_literal(Chat *c, const char *text)
{
    return value_text(c, text, NULL, strlen(text));
}

Value value_list(Chat *c, Kind kind, const List *list)
{
    List *l = chat_alloc(c, 1, sizeof *l);

    *l = *list;
    return (Value){.kind = kind, .as.list = l};
}

Value value_dict(Chat *c)
{
    return (Value){.kind = V_DICT, .as.dict = chat_alloc(c, 1, sizeof(Dict))};
}

/* --- texts that grow ------------------------------------------------------------------------------ */

static void make_room(Chat *c, Buffer *b, size_t n, bool user)
{
    if (n > b->cap - b->n) {
        const size_t cap = (b->n + n) * 2 + 32;

        b->at = grow(c, b->at, b->n, cap, 1);
        if (b->user)
            b->user = grow(c, b->user, b->n, cap, 1);
        b->cap = cap;
    }
    if (user && !b->user)
        b->user = chat_alloc(c, b->cap, 1);
}

void buffer_put(Chat *c, Buffer *b, const char *at, const unsigned char *user, size_t n)
{
    if (!n)
        return;
    make_room(c, b, n, user != NULL);
    memcpy(b->at + b->n, at, n);
    if (user)
        memcpy(b->user + b->n, user, n);
    b->n += n;
    chat_spend(c, n / 64);
}

void buffer_mark(Chat *c, Buffer *b, const char *at, size_t n, bool user)
{
    const size_t from = b->n;

    make_room(c, b, n, user);
    buffer_put(c, b, at, NULL, n);
    if (user)
        memset(b->user + from, 1, n);
}

void buffer_text(Chat *c, Buffer *b, const char *text)
{
    buffer_put(c, b, text, NULL, strlen(text));
}

Value buffer_value(Chat *c, const Buffer *b)
{
    return value_text(c, b->n ? b->at : "", b->user, b->n);
}

/* --- kinds ---------------------------------------------------------------------------------------- */

const char *value_type(Value v)
{
    static const char *const names[] = {"missing",   "Undefined",   "NoneType", "bool",   "int",
                                        "float",     "str",         "list",     "tuple",  "dict",
                                        "Namespace", "LoopContext", "Macro",    "method", "function"};

    return names[v.kind];
}

bool value_is_number(Value v)
{
    return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_FLOAT;
}

double value_number(Value v)
{
    return v.kind == V_FLOAT ? v.as.f : (double)v.as.i;
}

bool value_true(Value v)
{
    switch (v.kind) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE: return false;
    case V_BOOL:
    case V_INT: return v.as.i != 0;
    case V_FLOAT: return v.as.f != 0;
    case V_STRING: return v.as.text->n != 0;
    case V_LIST:
    case V_TUPLE: return v.as.list->n != 0;
    case V_DICT: return v.as.dict->n != 0;
    case V_LOOP:
    case V_NAMESPACE:
    case V_MACRO:
    case V_METHOD:
    case V_GLOBAL: break;
    }
    return true;
}

/* --- equality and order --------------------------------------------------------------------------- */

static void go_deeper(Chat *c, int deep)
{
    if (deep > CHAT_MOST_NESTING)
        chat_raise(c, "values are nested deeper than %d", CHAT_MOST_NESTING);
    chat_spend(c, 1);
}

/* Exact for all integers: a long double holds them. */
static int compare_numbers(Value a, Value b)
{
    const long double x = a.kind == V_FLOAT ? (long double)a.as.f : (long double)a.as.i;
    const long double y = b.kind == V_FLOAT ? (long double)b.as.f : (long double)b.as.i;

    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; /* 2: one is no number */
}

static int compare_texts(Chat *c, const Text *a, const Text *b)
{
    const size_t n = a->n < b->n ? a->n : b->n;
    const int order = n ? memcmp(a->at, b->at, n) : 0;

    chat_spend(c, n / 64);
    return order ? (order < 0 ? -1 : 1) : a->n < b->n ? -1 : a->n > b->n;
}

static bool same(Chat *c, Value a, Value b, int deep)
{
    go_deeper(c, deep);
    if (value_is_number(a) && value_is_number(b))
        return compare_numbers(a, b) == 0;
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE: return true;
    case V_STRING: return a.as.text->n == b.as.text->n && compare_texts(c, a.as.text, b.as.text) == 0;
    case V_LIST:
    case V_TUPLE:
        if (a.as.list->n != b.as.list->n)
            return false;
        for (size_t i = 0; i < a.as.list->n; i++)
            if (!same(c, a.as.list->at[i], b.as.list->at[i], deep + 1))
                return false;
        return true;
    case V_DICT:
        if (a.as.dict->n != b.as.dict->n)
            return false;
        for (size_t i = 0; i < a.as.dict->n; i++) {
            const Value *other = dict_find(c, b.as.dict, a.as.dict->keys[i]);

            if (!other || !same(c, a.as.dict->values[i], *other, deep + 1))
                return false;
        }
        return true;
    case V_GLOBAL: return a.as.i == b.as.i;
    case V_METHOD: return a.as.method->id == b.as.method->id && same(c, a.as.method->self, b.as.method->self, deep + 1);
    case V_BOOL:
    case V_INT:
    case V_FLOAT: /* above */
    case V_LOOP:
    case V_NAMESPACE:
    case V_MACRO: break;
    }
    return a.as.dict == b.as.dict;
}

bool value_same(Chat *c, Value a, Value b)
{
    return same(c, a, b, 0);
}

static void refuse_undefined(Chat *c, Value v)
{
    if (v.kind == V_UNDEFINED && v.as.text)
        chat_raise(c, "'%.*s' is undefined", (int)(v.as.text->n < 200 ? v.as.text->n : 200), v.as.text->at);
    if (v.kind == V_UNDEFINED)
        chat_raise(c, "a value is undefined");
}

static int order(Chat *c, Value a, Value b, int deep)
{
    go_deeper(c, deep);
    refuse_undefined(c, a);
    refuse_undefined(c, b);
    if (value_is_number(a) && value_is_number(b))
        return compare_numbers(a, b);
    if (a.kind == V_STRING && b.kind == V_STRING)
        return compare_texts(c, a.as.text, b.as.text);
    if (a.kind != b.kind || (a.kind != V_LIST && a.kind != V_TUPLE))
        chat_raise(c, "'<' not supported between instances of '%s' and '%s'", value_type(a), value_type(b));
    for (size_t i = 0; i < a.as.list->n && i < b.as.list->n; i++)
        if (!same(c, a.as.list->at[i], b.as.list->at[i], deep + 1))
            return order(c, a.as.list->at[i], b.as.list->at[i], deep + 1);
    return a.as.list->n < b.as.list->n ? -1 : a.as.list->n > b.as.list->n;
}

int value_order(Chat *c, Value a, Value b)
{
    return order(c, a, b, 0);
}

bool value_in(Chat *c, Value item, Value in)
{
    if (in.kind == V_STRING) {
        if (item.kind != V_STRING)
            chat_raise(c, "'in <string>' requires string as left operand, not %s", value_type(item));
        return text_find(c, in.as.text, item.as.text, 0) != SIZE_MAX;
    }
    if (in.kind == V_DICT) {
        if (item.kind == V_LIST || item.kind == V_DICT)
            chat_raise(c, "unhashable type: '%s'", value_type(item));
        return dict_find(c, in.as.dict, item) != NULL;
    }
    if (in.kind != V_LIST && in.kind != V_TUPLE && in.kind != V_UNDEFINED)
        chat_raise(c, "argument of type '%s' is not iterable", value_type(in));
    if (in.kind != V_UNDEFINED)
        for (size_t i = 0; i < in.as.list->n; i++)
            if (same(c, in.as.list->at[i], item, 0))
                return true;
    return false;
}

/* --- texts of values ------------------------------------------------------------------------------ */

/* The shortest digits that read back as the same number, as Python's repr writes them. */
static void put_float(Chat *c, Buffer *b, double x)
{
    char digits[40], out[64];
    int precision = 0, exponent;
    size_t n = 0;

    if (isnan(x) || isinf(x)) {
        buffer_text(c, b, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    do
        snprintf(digits, sizeof digits, "%.*e", precision++, fabs(x));
    while (strtod(digits, NULL) != fabs(x));
    exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (precision > 1) /* "d.ddd": the digits alone */
        memmove(digits + 1, digits + 2, (size_t)precision - 1);
    if (signbit(x))
        out[n++] = '-';
    if (exponent < -4 || exponent >= 16) {
        out[n++] = digits[0];
        if (precision > 1)
            out[n++] = '.';
        memcpy(out + n, digits + 1, (size_t)precision - 1);
        n += (size_t)precision - 1;
        n += (size_t)snprintf(out + n, sizeof out - n, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else {
        for (int i = exponent < 0 ? exponent : 0; i < precision || i <= exponent + 1; i++) {
            if (i == exponent + 1)
                out[n++] = '.';
            out[n++] = i >= 0 && i < precision ? digits[i] : '0';
        }
    }
    buffer_put(c, b, out, NULL, n);
}

static bool is_printable(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code == ' ';
    default: return true;
    }
}

static void repr_text(Chat *c, Buffer *b, const Text *t)
{
    const bool single = t->n && memchr(t->at, '\'', t->n) && !memchr(t->at, '"', t->n);
    const char quote = single ? '"' : '\'';

    buffer_put(c, b, &quote, NULL, 1);
    for (size_t i = 0, n; i < t->n; i += n) {
        const char *p = t->at + i;
        const uint32_t code = text_code(p, t->n - i);
        const bool user = t->user && t->user[i];
        char out[16];
        int length = 0;

        n = text_step(p, t->n - i);
        if (*p == quote || *p == '\\')
            length = snprintf(out, sizeof out, "\\%c", *p);
        else if (*p == '\n' || *p == '\r' || *p == '\t')
            length = snprintf(out, sizeof out, "\\%c", *p == '\n' ? 'n' : *p == '\r' ? 'r' : 't');
        else if (code < ' ' || code == 0x7f || (code > 0x7f && !is_printable(code)))
            length = snprintf(out, sizeof out, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
        buffer_mark(c, b, length ? out : p, length ? (size_t)length : n, user);
    }
    buffer_put(c, b, &quote, NULL, 1);
}

static void repr_dict(Chat *c, Buffer *b, const Dict *d, int deep)
{
    buffer_text(c, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            buffer_text(c, b, ", ");
        value_repr(c, b, d->keys[i], deep + 1);
        buffer_text(c, b, ": ");
        value_repr(c, b, d->values[i], deep + 1);
    }
    buffer_text(c, b, "}");
}

void value_repr(Chat *c, Buffer *b, Value v, int deep)
{
    char out[32];

    go_deeper(c, deep);
    switch (v.kind) {
    case V_MISSING:
    case V_UNDEFINED: buffer_text(c, b, "Undefined"); return;
    case V_NONE: buffer_text(c, b, "None"); return;
    case V_BOOL: buffer_text(c, b, v.as.i ? "True" : "False"); return;
    case V_INT:
        snprintf(out, sizeof out, "%" PRId64, v.as.i);
        buffer_text(c, b, out);
        return;
    case V_FLOAT: put_float(c, b, v.as.f); return;
    case V_STRING: repr_text(c, b, v.as.text); return;
    case V_LIST:
    case V_TUPLE:
        buffer_text(c, b, v.kind == V_LIST ? "[" : "(");
        for (size_t i = 0; i < v.as.list->n; i++) {
            if (i)
                buffer_text(c, b, ", ");
            value_repr(c, b, v.as.list->at[i], deep + 1);
        }
        buffer_text(c, b, v.kind == V_LIST ? "]" : v.as.list->n == 1 ? ",)" : ")");
        return;
    case V_DICT: repr_dict(c, b, v.as.dict, deep); return;
    case V_NAMESPACE:
    case V_LOOP:
    case V_MACRO:
    case V_METHOD:
    case V_GLOBAL: break;
    }
    chat_raise(c, "a %s has no text", value_type(v));
}

const Text *value_str(Chat *c, Value v)
{
    Buffer b = {0};

    if (v.kind == V_STRING)
        return v.as.text;
    if (v.kind != V_UNDEFINED)
        value_repr(c, &b, v, 0);
    return buffer_value(c, &b).as.text;
}

/* --- what a value contains ------------------------------------------------------------------------ */

List value_items(Chat *c, Value v)
{
    List l = {0};

    switch (v.kind) {
    case V_UNDEFINED: break;
    case V_LIST:
    case V_TUPLE: l = (List){v.as.list->at, v.as.list->n, v.as.list->n}; break;
    case V_DICT: l = (List){v.as.dict->keys, v.as.dict->n, v.as.dict->n}; break;
    case V_STRING:
        for (size_t i = 0, n; i < v.as.text->n; i += n) {
            n = text_step(v.as.text->at + i, v.as.text->n - i);
            list_push(c, &l, text_slice(c, v.as.text, i, i + n));
        }
        break;
    case V_MISSING:
    case V_NONE:
    case V_BOOL:
    case V_INT:
    case V_FLOAT:
    case V_NAMESPACE:
    case V_LOOP:
    case V_MACRO:
    case V_METHOD:
    case V_GLOBAL: chat_raise(c, "'%s' object is not iterable", value_type(v));
    }
    return l;
}

size_t value_length(Chat *c, Value v)
{
    if (v.kind == V_UNDEFINED)
        return 0;
    if (v.kind == V_STRING)
        return text_length(v.as.text);
    if (v.kind == V_LIST || v.kind == V_TUPLE)
        return v.as.list->n;
    if (v.kind != V_DICT)
        chat_raise(c, "object of type '%s' has no len()", value_type(v));
    return v.as.dict->n;
}
