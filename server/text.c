/* text.c - a text that grows, and JSON printed into it. */
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runner/command.h"
#include "../runtime/base/utf8.h"

static void make_room(Text *t, size_t bytes)
{
    if (t->cap - t->n > bytes)
        return;
    t->cap = t->n + bytes + t->cap / 2 + 128;
    t->at = command_must(realloc(t->at, t->cap));
}

void text_add(Text *t, const void *p, size_t bytes)
{
    make_room(t, bytes);
    if (bytes)
        memcpy(t->at + t->n, p, bytes);
    t->n += bytes;
    t->at[t->n] = '\0';
}

void text_put(Text *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_printf(Text *t, const char *format, ...)
{
    const size_t mostly = 128; /* bytes that are enough for nearly all */
    va_list ap, again;
    int n;

    make_room(t, mostly);
    va_start(ap, format);
    va_copy(again, ap);
    n = vsnprintf(t->at + t->n, t->cap - t->n, format, ap);
    va_end(ap);
    if (n > 0 && (size_t)n >= t->cap - t->n) {
        make_room(t, (size_t)n);
        vsnprintf(t->at + t->n, (size_t)n + 1, format, again);
    }
    t->n += n > 0 ? (size_t)n : 0;
    va_end(again);
}

void text_drop(Text *t, size_t bytes)
{
    t->n -= bytes;
    if (bytes)
        memmove(t->at, t->at + bytes, t->n + 1);
}

void text_free(Text *t)
{
    free(t->at);
    *t = (Text){0};
}

void text_json_part(Text *t, const char *s, size_t bytes)
{
    size_t length;

    for (size_t i = 0; i < bytes; i += length) {
        const unsigned char c = (unsigned char)s[i];
        uint32_t code;

        if (utf8_next((const unsigned char *)s + i, bytes - i, &length, &code) != UTF8_CHARACTER)
            text_put(t, UTF8_REPLACEMENT);
        else if (c == '"' || c == '\\')
            text_printf(t, "\\%c", c);
        else if (c == '\n')
            text_put(t, "\\n");
        else if (c < ' ' || c == 0x7f)
            text_printf(t, "\\u%04x", c);
        else
            text_add(t, s + i, length);
    }
}

void text_json(Text *t, const char *s, size_t bytes)
{
    text_put(t, "\"");
    text_json_part(t, s, bytes);
    text_put(t, "\"");
}

void text_json_number(Text *t, double x)
{
    if (isfinite(x))
        text_printf(t, "%.9g", x);
    else
        text_put(t, "null");
}
