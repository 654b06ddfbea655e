/* lex.c - a template to texts and tokens, with trim_blocks and lstrip_blocks as transformers sets them.
 *
 *   "  {% if a -%}\n  x {{ b }}\n"   BLOCK if a CLOSE | DATA "x " | PRINT b CLOSE | DATA "\n" is cut at the end
 *
 * Blanks before a block tag vanish if the line has nothing else before it; so does the newline behind a block tag or a
 * comment. "-" next to a tag removes all white space on that side, "+" keeps what would vanish. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "../../runtime/base/utf8.h"

typedef struct Lexer {
    const char *file, *text; /* the text has "\n" for every end of a line */
    size_t n, at;
    int line;
    bool line_starts; /* what comes next begins a line */
    Tokens *out;
    Arena *keep;
    Diag *d;
} Lexer;

static bool lex_fail(const Lexer *x, const char *what)
{
    return diag_error(x->d, (Loc){x->file, x->line}, "chat template: %s", what);
}

static Token *put(Lexer *x, TokenKind kind, const char *text, size_t n)
{
    Token *t = arena_push(x->keep, *x->out);

    *t = (Token){.kind = kind, .line = x->line, .text = arena_strndup(x->keep, "", 0), .n = n};
    if (n) {
        char *copy = arena_alloc(x->keep, n + 1);

        memcpy(copy, text, n);
        t->text = copy;
    }
    return t;
}

static bool starts(const Lexer *x, const char *with)
{
    const size_t n = strlen(with);

    return x->n - x->at >= n && memcmp(x->text + x->at, with, n) == 0;
}

static void advance(Lexer *x, size_t n)
{
    for (; n > 0; n--)
        x->line += x->text[x->at++] == '\n';
}

/* Python's str.isspace */
static size_t space_at(const char *p, size_t n)
{
    size_t length;
    uint32_t code;

    if (!n || utf8_next((const unsigned char *)p, n, &length, &code) != UTF8_CHARACTER)
        return 0;
    return utf8_is_space(code) || (code >= 0x1c && code <= 0x1f) ? length : 0;
}

static void skip_space(Lexer *x)
{
    size_t n;

    while ((n = space_at(x->text + x->at, x->n - x->at)))
        advance(x, n);
}

static size_t trimmed(const char *p, size_t n)
{
    for (;;) {
        size_t back = 1;

        while (back < n && ((unsigned char)p[n - back] & 0xc0) == 0x80)
            back++;
        if (!n || !space_at(p + n - back, back))
            return n;
        n -= back;
    }
}

/* Bytes of a text before a block tag without the blanks that stand alone in its last line. */
static size_t without_indent(const Lexer *x, const char *p, size_t n)
{
    size_t from = n, at;

    while (from > 0 && p[from - 1] != '\n')
        from--;
    if (from == 0 && !x->line_starts)
        return n;
    for (at = from; at < n && space_at(p + at, n - at);)
        at += space_at(p + at, n - at);
    return at == n ? from : n;
}

/* The text up to the next tag. */
static void lex_data(Lexer *x)
{
    const size_t from = x->at;
    size_t end = x->at, n;

    while (end < x->n &&
           !(x->text[end] == '{' && end + 1 < x->n && strchr("{%#", x->text[end + 1]) && x->text[end + 1]))
        end++;
    n = end - from;
    if (end < x->n) {
        const char sign = end + 2 < x->n ? x->text[end + 2] : '\0';

        if (sign == '-')
            n = trimmed(x->text + from, n);
        else if (sign != '+' && x->text[end + 1] != '{')
            n = without_indent(x, x->text + from, n);
    }
    if (n)
        put(x, T_DATA, x->text + from, n);
    advance(x, end - from);
}

/* The end of a tag, `close`, with what vanishes behind it. */
static bool lex_close(Lexer *x, const char *close)
{
    const bool strip = starts(x, "-") && x->n - x->at > 2 && memcmp(x->text + x->at + 1, close, 2) == 0;
    const bool plus = *close != '}' && starts(x, "+") && x->n - x->at > 2 && memcmp(x->text + x->at + 1, close, 2) == 0;

    if (!strip && !plus && !starts(x, close))
        return false;
    advance(x, strip || plus ? 3 : 2);
    if (strip)
        skip_space(x);
    else if (!plus && *close != '}' && starts(x, "\n"))
        advance(x, 1);
    x->line_starts = x->text[x->at - 1] == '\n';
    return true;
}

static bool lex_comment(Lexer *x)
{
    const int line = x->line;

    advance(x, starts(x, "{#-") || starts(x, "{#+") ? 3 : 2);
    while (x->at < x->n) {
        if (lex_close(x, "#}"))
            return true;
        advance(x, 1);
    }
    x->line = line;
    return lex_fail(x, "a comment has no end");
}

/* --- inside of tags --------------------------------------------------------------------------------- */

static bool read_hex(const char *p, size_t n, size_t count, uint32_t *code)
{
    static const char digits[] = "0123456789abcdef";

    *code = 0;
    for (size_t i = 0; i < count; i++) {
        const char ch = i < n && p[i] >= 'A' && p[i] <= 'F' ? (char)(p[i] + 32) : i < n ? p[i] : '\0';
        const char *found = ch ? strchr(digits, ch) : NULL;

        if (!found)
            return false;
        *code = *code * 16 + (uint32_t)(found - digits);
    }
    return true;
}

/* One escape of Python behind the backslash at p[-1]; *used: its bytes. What is no escape keeps its backslash. */
static bool put_escape(Lexer *x, const char *p, size_t n, size_t *used, char *out, size_t *n_out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *found = strchr(from, *p);
    const size_t digits = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
    uint32_t code = 0;

    *used = 1;
    if (*p == '\n')
        return true;
    if (found) {
        out[(*n_out)++] = to[found - from];
        return true;
    }
    if (*p >= '0' && *p <= '7') {
        for (*used = 0; *used < 3 && *used < n && p[*used] >= '0' && p[*used] <= '7'; ++*used)
            code = code * 8 + (uint32_t)(p[*used] - '0');
    } else if (digits) {
        if (!read_hex(p + 1, n - 1, digits, &code))
            return lex_fail(x, "an escape in a string lacks digits");
        *used = 1 + digits;
    } else if (*p == 'N') {
        return lex_fail(x, "\\N in a string is not supported: write \\u and the number");
    } else {
        out[(*n_out)++] = '\\';
        *used = 0;
        return true;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return lex_fail(x, "an escape in a string is no character");
    *n_out += utf8_put(code, out + *n_out);
    return true;
}

static bool lex_string(Lexer *x)
{
    const char quote = x->text[x->at];
    size_t end = x->at + 1, n = 0;
    char *out;

    while (end < x->n && x->text[end] != quote)
        end += x->text[end] == '\\' ? 2 : 1;
    if (end >= x->n)
        return lex_fail(x, "a string has no end");
    out = arena_alloc(x->keep, end - x->at + 8);
    for (size_t i = x->at + 1; i < end;) {
        size_t used = 0;

        if (x->text[i] != '\\') {
            out[n++] = x->text[i++];
            continue;
        }
        if (!put_escape(x, x->text + i + 1, end - i - 1, &used, out, &n))
            return false;
        i += 1 + used;
    }
    put(x, T_STRING, out, n);
    advance(x, end + 1 - x->at);
    return true;
}

static bool is_name_char(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '_';
}

static bool is_digit(const Lexer *x, size_t at)
{
    return at < x->n && x->text[at] >= '0' && x->text[at] <= '9';
}

static size_t digits_from(const Lexer *x, size_t at)
{
    while (is_digit(x, at) || (at < x->n && x->text[at] == '_' && is_digit(x, at + 1)))
        at++;
    return at;
}

static bool lex_number(Lexer *x)
{
    size_t end = digits_from(x, x->at), n = 0;
    bool whole = true;
    char text[100], *stop;
    Token *t;

    if (end < x->n && x->text[end] == '.' && is_digit(x, end + 1)) {
        end = digits_from(x, end + 1);
        whole = false;
    }
    if (end < x->n && (x->text[end] | 0x20) == 'e' &&
        (is_digit(x, end + 1) ||
         (end + 1 < x->n && (x->text[end + 1] == '+' || x->text[end + 1] == '-') && is_digit(x, end + 2)))) {
        end = digits_from(x, end + 2);
        whole = false;
    }
    if (end - x->at >= sizeof text || (end < x->n && is_name_char(x->text[end])) ||
        (whole && x->text[x->at] == '0' && end - x->at > 1))
        return lex_fail(x, "a number that is not supported");
    for (size_t i = x->at; i < end; i++)
        if (x->text[i] != '_')
            text[n++] = x->text[i];
    text[n] = '\0';
    t = put(x, whole ? T_INTEGER : T_FLOAT, text, n);
    errno = 0;
    t->i = whole ? strtoll(text, &stop, 10) : 0;
    if (errno)
        return lex_fail(x, "an integer is beyond 64 bits");
    t->f = whole ? 0.0 : strtod(text, &stop);
    advance(x, end - x->at);
    return true;
}

static bool lex_token(Lexer *x)
{
    static const char *const operators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    const char ch = x->text[x->at];
    size_t end = x->at;

    if (ch == '"' || ch == '\'')
        return lex_string(x);
    if (ch >= '0' && ch <= '9')
        return lex_number(x);
    while (end < x->n && is_name_char(x->text[end]))
        end++;
    if (end > x->at) {
        put(x, T_NAME, x->text + x->at, end - x->at);
        advance(x, end - x->at);
        return true;
    }
    for (size_t i = 0; i < LEN(operators); i++)
        if (starts(x, operators[i])) {
            put(x, T_OPERATOR, operators[i], strlen(operators[i]));
            advance(x, strlen(operators[i]));
            return true;
        }
    return lex_fail(x, "a character that no expression has");
}

/* From behind "{{" or "{%" to behind its end. A closing mark inside of brackets is none. */
static bool lex_tag(Lexer *x, const char *close)
{
    char open[200];
    size_t depth = 0;

    for (;;) {
        const Token *t;

        skip_space(x);
        if (x->at == x->n)
            return lex_fail(x, "a tag has no end");
        if (depth == 0 && lex_close(x, close)) {
            put(x, T_CLOSE, close, 2);
            return true;
        }
        if (!lex_token(x))
            return false;
        t = &x->out->at[x->out->n - 1];
        if (t->kind != T_OPERATOR || t->n != 1)
            continue;
        if (strchr("([{", *t->text)) {
            if (depth == sizeof open)
                return lex_fail(x, "brackets are nested too deep");
            open[depth++] = *t->text == '(' ? ')' : *t->text == '[' ? ']' : '}';
        } else if (strchr(")]}", *t->text) && (depth == 0 || open[--depth] != *t->text)) {
            return lex_fail(x, "brackets do not match");
        }
    }
}

/* Every end of a line as "\n"; one at the very end is not part of the template. */
static void normalise(Lexer *x, const ChatSource *source)
{
    char *out = arena_alloc(x->keep, source->bytes + 1);
    size_t n = 0;

    for (size_t i = 0; i < source->bytes; i++) {
        if (source->text[i] == '\r' && i + 1 < source->bytes && source->text[i + 1] == '\n')
            continue;
        out[n++] = source->text[i] == '\r' ? '\n' : source->text[i];
    }
    n -= n && out[n - 1] == '\n';
    x->text = out;
    x->n = n;
}

bool lex(const ChatSource *source, Arena *keep, Tokens *tokens, Diag *d)
{
    Lexer x = {.file = source->file, .line = 1, .line_starts = true, .out = tokens, .keep = keep, .d = d};

    if (!utf8_valid(source->text, source->bytes))
        return lex_fail(&x, "is not UTF-8");
    normalise(&x, source);
    while (x.at < x.n) {
        lex_data(&x);
        if (x.at == x.n)
            break;
        if (x.text[x.at + 1] == '#') {
            if (!lex_comment(&x))
                return false;
            continue;
        }
        put(&x, x.text[x.at + 1] == '{' ? T_PRINT : T_BLOCK, x.text + x.at, 2);
        {
            const char *close = x.text[x.at + 1] == '{' ? "}}" : "%}";

            advance(&x, 2);
            if (starts(&x, "-") || starts(&x, "+"))
                advance(&x, 1);
            if (!lex_tag(&x, close))
                return false;
        }
    }
    put(&x, T_END, "", 0);
    return true;
}
