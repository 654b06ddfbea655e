/* strip.c - a text without its comments.
 *
 * The key of a cached kernel is made of this, so that a new comment does not compile it again. Each comment becomes one
 * blank, as in C; blanks at the end of a line are removed. */
#include "catalog.h"

#include <ctype.h>
#include <string.h>

/* The end of the string or character that opens at p; the end of its line if nothing closes it. */
static const char *literal_end(const char *p)
{
    const char quote = *p++;

    while (*p && *p != quote && *p != '\n')
        p += p[0] == '\\' && p[1] ? 2 : 1;
    return p + (*p == quote);
}

/* The end of the comment that opens at p, before the newline if it is a // comment. */
static const char *comment_end(const char *p)
{
    if (p[1] == '*') {
        const char *end = strstr(p + 2, "*/");

        return end ? end + 2 : p + strlen(p);
    }
    while (*p && *p != '\n')
        p += p[0] == '\\' && p[1] ? 2 : 1;
    return p;
}

static size_t count_lines(const char *p, const char *end)
{
    size_t n = 0;

    for (; p < end; p++)
        n += *p == '\n';
    return n;
}

/* Ends a line of `out`: removes blanks at its end, and the line itself if it is empty, unless keep_empty. An empty line
 * after a backslash stays, since it ends a macro. */
static size_t end_line(char *out, size_t n, bool keep_empty)
{
    while (n > 0 && (out[n - 1] == ' ' || out[n - 1] == '\t'))
        n--;
    const bool empty = n == 0 || (out[n - 1] == '\n' && !(n > 1 && out[n - 2] == '\\'));
    if (keep_empty || !empty)
        out[n++] = '\n';
    return n;
}

const char *catalog_strip(const char *text, bool keep_lines, Arena *keep)
{
    char *out = arena_alloc(keep, strlen(text) + 2);
    const char *p = text;
    size_t n = 0;

    if (strstr(text, "R\"")) /* a text with a raw string is not stripped */
        return text;
    while (*p) {
        const char *end = p + 1;
        const bool separator = *p == '\'' && p > text && isalnum((unsigned char)p[-1]); /* 1'000 */

        if (*p == '\n') {
            n = end_line(out, n, keep_lines);
        } else if (p[0] == '/' && (p[1] == '/' || p[1] == '*')) {
            end = comment_end(p);
            out[n++] = ' ';
            for (size_t lines = keep_lines ? count_lines(p, end) : 0; lines > 0; lines--)
                n = end_line(out, n, true);
        } else {
            if (*p == '"' || (*p == '\'' && !separator))
                end = literal_end(p);
            memcpy(out + n, p, (size_t)(end - p));
            n += (size_t)(end - p);
        }
        p = end;
    }
    n = end_line(out, n, false);
    out[n] = '\0';
    return out;
}
