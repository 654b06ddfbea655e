/* text.c - strings of chat templates, by characters (code points), as Python's str has them. */
#include "value.h"

#include <string.h>

#include <utf8proc.h>

#include "../base/utf8.h"

size_t text_step(const char *p, size_t n)
{
    size_t length;
    uint32_t code;

    utf8_next((const unsigned char *)p, n, &length, &code);
    return length;
}

uint32_t text_code(const char *p, size_t n)
{
    size_t length;
    uint32_t code = 0xfffd;

    utf8_next((const unsigned char *)p, n, &length, &code);
    return code;
}

size_t text_length(const Text *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += ((unsigned char)t->at[i] & 0xc0) != 0x80;
    return n;
}

bool text_is_space(uint32_t code)
{
    return (code >= 0x1c && code <= 0x1f) || utf8_is_space(code);
}

size_t text_find(Chat *c, const Text *t, const Text *what, size_t from)
{
    const char *found;

    if (from > t->n)
        return SIZE_MAX;
    if (!what->n)
        return from;
    found = memmem(t->at + from, t->n - from, what->at, what->n);
    chat_spend(c, (found ? (size_t)(found - t->at) - from : t->n - from) / 64 + 1);
    return found ? (size_t)(found - t->at) : SIZE_MAX;
}

Value text_slice(Chat *c, const Text *t, size_t from, size_t to)
{
    return value_text(c, t->at + from, t->user ? t->user + from : NULL, to - from);
}

Value text_at(Chat *c, const Text *t, int64_t index)
{
    const int64_t n = (int64_t)text_length(t);
    size_t at = 0;

    if (index < 0)
        index += n;
    if (index < 0 || index >= n)
        return value_of(V_UNDEFINED);
    chat_spend(c, t->n / 64);
    for (; index > 0; index--)
        at += text_step(t->at + at, t->n - at);
    return text_slice(c, t, at, at + text_step(t->at + at, t->n - at));
}

/* Whether the character at byte i is one to strip. */
static bool is_stripped(const Text *t, size_t i, size_t n, const Text *chars)
{
    if (!chars)
        return text_is_space(text_code(t->at + i, n));
    return n && memmem(chars->at, chars->n, t->at + i, n);
}

static size_t step_back(const Text *t, size_t at)
{
    size_t n = 1;

    while (n < at && ((unsigned char)t->at[at - n] & 0xc0) == 0x80)
        n++;
    return n;
}

Value text_trim(Chat *c, const Text *t, const Text *chars, bool left, bool right)
{
    size_t from = 0, to = t->n;

    while (left && from < to && is_stripped(t, from, text_step(t->at + from, to - from), chars))
        from += text_step(t->at + from, to - from);
    while (right && to > from && is_stripped(t, to - step_back(t, to), step_back(t, to), chars))
        to -= step_back(t, to);
    chat_spend(c, (from + t->n - to) / 8);
    return text_slice(c, t, from, to);
}

static void put_slice(Chat *c, Buffer *b, const Text *t, size_t from, size_t to)
{
    buffer_put(c, b, t->at + from, t->user ? t->user + from : NULL, to - from);
}

Value text_replace(Chat *c, const Text *t, const Text *old, const Text *with, int64_t most)
{
    Buffer b = {0};
    size_t at = 0;

    for (int64_t i = 0; most < 0 || i < most; i++) {
        size_t found = text_find(c, t, old, at);

        if (!old->n && i > 0) /* an empty text is found before each character and at the end */
            found = at < t->n ? at + text_step(t->at + at, t->n - at) : SIZE_MAX;
        if (found == SIZE_MAX)
            break;
        put_slice(c, &b, t, at, found);
        put_slice(c, &b, with, 0, with->n);
        at = found + old->n;
        chat_spend(c, 1);
    }
    put_slice(c, &b, t, at, t->n);
    return buffer_value(c, &b);
}

/* --- split ---------------------------------------------------------------------------------------- */

static void reverse(List *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        const Value v = l->at[i];

        l->at[i] = l->at[l->n - 1 - i];
        l->at[l->n - 1 - i] = v;
    }
}

static size_t find_last(Chat *c, const Text *t, const Text *what, size_t end)
{
    for (size_t at = end; at >= what->n; at--) {
        if (memcmp(t->at + at - what->n, what->at, what->n) == 0)
            return at - what->n;
        if (at % 8 == 0)
            chat_spend(c, 1);
    }
    return SIZE_MAX;
}

static void split_text_at(Chat *c, const Text *t, const Text *between, int64_t most, List *l)
{
    size_t at = 0, found;

    while ((most < 0 || (int64_t)l->n < most) && (found = text_find(c, t, between, at)) != SIZE_MAX) {
        list_push(c, l, text_slice(c, t, at, found));
        at = found + between->n;
    }
    list_push(c, l, text_slice(c, t, at, t->n));
}

static void split_text_at_last(Chat *c, const Text *t, const Text *between, int64_t most, List *l)
{
    size_t end = t->n, found;

    while ((most < 0 || (int64_t)l->n < most) && (found = find_last(c, t, between, end)) != SIZE_MAX) {
        list_push(c, l, text_slice(c, t, found + between->n, end));
        end = found;
    }
    list_push(c, l, text_slice(c, t, 0, end));
    reverse(l);
}

static void split_words(Chat *c, const Text *t, int64_t most, List *l)
{
    Text rest = *t;

    for (;;) {
        size_t to = 0;

        rest = *text_trim(c, &rest, NULL, true, false).as.text;
        if (!rest.n)
            return;
        if (most >= 0 && (int64_t)l->n >= most) {
            list_push(c, l, text_slice(c, &rest, 0, rest.n));
            return;
        }
        while (to < rest.n && !text_is_space(text_code(rest.at + to, rest.n - to)))
            to += text_step(rest.at + to, rest.n - to);
        list_push(c, l, text_slice(c, &rest, 0, to));
        rest = *text_slice(c, &rest, to, rest.n).as.text;
    }
}

static void split_last_words(Chat *c, const Text *t, int64_t most, List *l)
{
    Text rest = *t;

    for (;;) {
        size_t from;

        rest = *text_trim(c, &rest, NULL, false, true).as.text;
        if (!rest.n)
            break;
        if (most >= 0 && (int64_t)l->n >= most) {
            list_push(c, l, text_slice(c, &rest, 0, rest.n));
            break;
        }
        for (from = rest.n; from > 0; from -= step_back(&rest, from))
            if (is_stripped(&rest, from - step_back(&rest, from), step_back(&rest, from), NULL))
                break;
        list_push(c, l, text_slice(c, &rest, from, rest.n));
        rest = *text_slice(c, &rest, 0, from).as.text;
    }
    reverse(l);
}

Value text_split(Chat *c, const Text *t, const Text *at, int64_t most, bool from_right)
{
    List l = {0};

    if (at && !at->n)
        chat_raise(c, "empty separator");
    if (at && from_right)
        split_text_at_last(c, t, at, most, &l);
    else if (at)
        split_text_at(c, t, at, most, &l);
    else if (from_right)
        split_last_words(c, t, most, &l);
    else
        split_words(c, t, most, &l);
    return value_list(c, V_LIST, &l);
}

static bool ends_line(uint32_t code)
{
    return (code >= '\n' && code <= '\r') || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

Value text_lines(Chat *c, const Text *t, bool keep_ends)
{
    List l = {0};
    size_t from = 0;

    for (size_t i = 0, n; i < t->n; i += n) {
        n = text_step(t->at + i, t->n - i);
        if (!ends_line(text_code(t->at + i, t->n - i)))
            continue;
        if (t->at[i] == '\r' && i + 1 < t->n && t->at[i + 1] == '\n')
            n++;
        list_push(c, &l, text_slice(c, t, from, keep_ends ? i + n : i));
        from = i + n;
    }
    if (from < t->n)
        list_push(c, &l, text_slice(c, t, from, t->n));
    return value_list(c, V_LIST, &l);
}

/* --- upper and lower case --------------------------------------------------------------------------- */

/* Characters whose case has the length of one character; U+00DF is the exception that texts have. */
static void put_case(Chat *c, Buffer *b, const Text *t, size_t i, TextCase how)
{
    const size_t n = text_step(t->at + i, t->n - i);
    const utf8proc_int32_t code = (utf8proc_int32_t)text_code(t->at + i, t->n - i);
    char out[4];
    size_t length = 2;

    if (code == 0xdf && how != TEXT_LOWER)
        memcpy(out, how == TEXT_UPPER ? "SS" : "Ss", 2);
    else
        length = utf8_put((uint32_t)(how == TEXT_UPPER   ? utf8proc_toupper(code)
                                     : how == TEXT_LOWER ? utf8proc_tolower(code)
                                                         : utf8proc_totitle(code)),
                          out);
    if (length == n && memcmp(out, t->at + i, n) == 0)
        put_slice(c, b, t, i, i + n);
    else
        buffer_mark(c, b, out, length, t->user && t->user[i]);
}

static bool is_cased(uint32_t code)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)code);

    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

Value text_case(Chat *c, const Text *t, TextCase how)
{
    Buffer b = {0};
    bool start = true;

    for (size_t i = 0, n; i < t->n; i += n) {
        const uint32_t code = text_code(t->at + i, t->n - i);
        TextCase here = how;

        n = text_step(t->at + i, t->n - i);
        if (how == TEXT_FILTER_TITLE) {
            here = start ? TEXT_UPPER : TEXT_LOWER;
            start = text_is_space(code) || (code < 0x80 && code && strchr("-({[<", (int)code));
        } else if (how == TEXT_TITLE || how == TEXT_CAPITAL) {
            here = start ? TEXT_TITLE : TEXT_LOWER;
            start = how == TEXT_TITLE && !is_cased(code);
        }
        put_case(c, &b, t, i, here);
        chat_spend(c, 1);
    }
    return buffer_value(c, &b);
}

Value text_join(Chat *c, const Text *between, const List *items)
{
    Buffer b = {0};

    for (size_t i = 0; i < items->n; i++) {
        const Text *t = value_str(c, items->at[i]);

        if (i)
            put_slice(c, &b, between, 0, between->n);
        put_slice(c, &b, t, 0, t->n);
    }
    return buffer_value(c, &b);
}
