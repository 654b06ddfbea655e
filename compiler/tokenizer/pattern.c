/* pattern.c - from Oniguruma's and Rust's regular expressions to PCRE2's.
 *
 * Most of their syntax is equal. What differs is written out, so that neither an option nor the version of PCRE2's
 * tables decides what a space or a letter is:
 *
 *   \s  Unicode White_Space     \d  \p{Nd}     \w  letters, marks, digits, connectors
 *   \h  a hexadecimal digit     \v  U+000B     (?m:  the dot takes line ends: (?s:, not in Rust's
 *
 * In Rust's syntax words have joiners, too; ^ and $ are the ends of the text (in Oniguruma's those of lines, for which
 * the runtime compiles), and {2}+ keeps what it has matched (in Oniguruma's it repeats).
 *
 * What has no counterpart is refused: word boundaries, negated classes inside classes, `&&`. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

#define SPACES \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define JOINERS "\\x{200c}\\x{200d}"
#define HEX "0-9A-Fa-f"

typedef struct Text {
    Arena *keep;
    char *at;
    size_t n, cap;
    bool rust;
} Text;

static void put(Text *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        t->cap = (t->n + n) * 2 + 64;
        t->at = arena_grow(t->keep, t->at, t->n, t->cap);
    }
    memcpy(t->at + t->n, s, n);
    t->n += n;
    t->at[t->n] = '\0';
}

static void puts_text(Text *t, const char *s)
{
    put(t, s, strlen(s));
}

/* Writes a set such as \\s, inside a class or as a class. */
static bool put_set(Text *t, const char *set, bool negated, bool in_class)
{
    if (in_class && negated)
        return false;
    if (!in_class)
        puts_text(t, negated ? "[^" : "[");
    puts_text(t, set);
    if (!in_class)
        puts_text(t, "]");
    return true;
}

/* p points behind "\p" or "\P", to {L}, {^L} or {Han}. Names of one or two letters are general categories in both
 * syntaxes; longer ones are read as scripts. */
static const char *put_property(Text *t, const char *p, bool negated)
{
    const char *end = *p == '{' ? strchr(p, '}') : NULL;
    size_t n;

    if (!end)
        return NULL;
    p++;
    if (*p == '^') {
        negated = !negated;
        p++;
    }
    n = (size_t)(end - p);
    if (n == 0 || n > 40)
        return NULL;
    puts_text(t, negated ? "\\P{" : "\\p{");
    if (n > 2)
        puts_text(t, "sc:");
    put(t, p, n);
    puts_text(t, "}");
    return end + 1;
}

/* p points behind the backslash. NULL: this escape has no counterpart. */
static const char *put_escape(Text *t, const char *p, bool in_class)
{
    const char c = *p;
    bool ok = true;

    switch (c) {
    case '\0': return NULL;
    case 'S':
        if (in_class) {
            puts_text(t, "\\P{White_Space}");
            break;
        } /* fall through */
    case 's': ok = put_set(t, SPACES, c == 'S', in_class); break;
    case 'w':
    case 'W': ok = put_set(t, t->rust ? WORDS JOINERS : WORDS, c == 'W', in_class); break;
    case 'h':
    case 'H': ok = put_set(t, HEX, c == 'H', in_class); break;
    case 'd': puts_text(t, "\\p{Nd}"); break;
    case 'D': puts_text(t, "\\P{Nd}"); break;
    case 'p':
    case 'P': return put_property(t, p + 1, c == 'P');
    case 'v': puts_text(t, "\\x{b}"); break;
    case 'u':
        for (int i = 1; i <= 4; i++)
            if (!isxdigit((unsigned char)p[i]))
                return NULL;
        puts_text(t, "\\x{");
        put(t, p + 1, 4);
        puts_text(t, "}");
        return p + 5;
    case 'b':
        if (!in_class)
            return NULL;
        puts_text(t, "\\x{8}");
        break;
    default:
        if (isalnum((unsigned char)c) && !strchr(in_class ? "rntfaex01234567" : "rntfaexAzZGKRX123456789", c))
            return NULL;
        put(t, p - 1, 2);
        break;
    }
    return ok ? p + 1 : NULL;
}

/* p points behind the bracket. A class inside the class adds its characters: these are written without its brackets,
 * unless a '-' beside them would make a range. NULL: the class has no counterpart. */
static const char *put_class(Text *t, const char *p)
{
    size_t depth = 0;

    puts_text(t, "[");
    if (*p == '^') {
        puts_text(t, "^");
        p++;
    }
    if (*p == ']')
        return NULL;
    while (*p && (*p != ']' || depth)) {
        if (p[0] == p[1] && strchr(t->rust ? "&-~" : "&", *p))
            return NULL; /* sets less others */
        if (*p == '\\') {
            p = put_escape(t, p + 1, true);
            if (!p)
                return NULL;
        } else if (*p == '[') {
            if (strchr("^:-]", p[1]) || p[-1] == '-')
                return NULL;
            depth++;
            p++;
        } else if (*p == ']') {
            if (p[-1] == '-' || p[1] == '-')
                return NULL;
            depth--;
            p++;
        } else {
            put(t, p++, 1);
        }
    }
    if (!*p)
        return NULL;
    puts_text(t, "]");
    return p + 1;
}

/* p points behind "(?", to options up to ':' or ')'. Ruby's m is PCRE2's s. */
static const char *put_options(Text *t, const char *p)
{
    const char *end = p + strspn(p, t->rust ? "isx-" : "imx-");

    puts_text(t, "(?");
    if (*end != ':' && *end != ')')
        return t->rust && isalpha((unsigned char)*p) ? NULL : p; /* look-around, atomic or non-capturing group: equal */
    for (; p < end; p++)
        put(t, *p == 'm' ? "s" : p, 1);
    return p;
}

/* How often the innermost part of a pattern is repeated by nested counts: (a{10}){10} is a hundred times a. Few
 * characters could ask for a match that takes seconds, so more than MOST_REPEATS are refused. */
enum { MOST_REPEATS = 10000, MOST_DEPTH = 250 };

typedef struct Repeats {
    long inside[MOST_DEPTH + 1]; /* by open groups: the most repeats of a part of the group */
    long last;                   /* of the last atom */
    size_t depth;
    const char *count_end; /* the '}' of the last count */
} Repeats;

/* Takes the character at p into account; it is neither escaped nor in a class. False: too many. */
static bool count_repeats(Repeats *r, const char *p)
{
    long times = 1;

    if (r->count_end && p <= r->count_end)
        return true;
    if (*p == '(') {
        if (r->depth == MOST_DEPTH)
            return false;
        r->inside[++r->depth] = 1;
    } else if (*p == ')' && r->depth) {
        r->last = r->inside[r->depth--];
    } else if (*p == '{' && isdigit((unsigned char)p[1])) {
        const char *comma = p + 1 + strspn(p + 1, "0123456789");

        r->count_end = strchr(p, '}');
        times = strtol(*comma == ',' && isdigit((unsigned char)comma[1]) ? comma + 1 : p + 1, NULL, 10);
        if (times > MOST_REPEATS)
            return false;
        r->last *= times ? times : 1;
    } else if (!strchr("?*+}", *p)) {
        r->last = 1;
    }
    if (r->inside[r->depth] < r->last)
        r->inside[r->depth] = r->last;
    return r->last <= MOST_REPEATS;
}

bool pattern_translate(const char *pattern, PatternSyntax syntax, Loc loc, Arena *keep, const char **out, Diag *d)
{
    Text t = {.keep = keep, .rust = syntax == PATTERN_RUST};
    Repeats repeats = {.inside = {1}, .last = 1};
    const char *p = pattern;

    puts_text(&t, "");
    while (*p) {
        const char *next;

        if (!count_repeats(&repeats, p))
            return diag_error(d, loc,
                              "its pre-tokenizer's pattern repeats a part more than %d times, at character %td, which "
                              "is not supported",
                              MOST_REPEATS, p - pattern + 1);
        if (*p == '\\') {
            next = put_escape(&t, p + 1, false);
        } else if (*p == '[') {
            next = put_class(&t, p + 1);
        } else if (p[0] == '(' && p[1] == '?') {
            next = put_options(&t, p + 2);
        } else if (p[0] == '}' && p[1] == '+' && !t.rust) {
            next = NULL; /* a possessive quantifier in PCRE2, two quantifiers in Ruby */
        } else if (t.rust && (*p == '^' || *p == '$')) {
            puts_text(&t, *p == '^' ? "\\A" : "\\z");
            next = p + 1;
        } else {
            put(&t, p, 1);
            next = p + 1;
        }
        if (!next)
            return diag_error(d, loc,
                              "its pre-tokenizer's pattern has, at character %td, \"%.20s\", which is not supported",
                              p - pattern + 1, p);
        p = next;
    }
    *out = t.at;
    return true;
}

const char *pattern_quote(const char *text, Arena *keep)
{
    Text t = {.keep = keep};

    puts_text(&t, "");
    for (; *text; text++) {
        if ((unsigned char)*text < 0x80 && !isalnum((unsigned char)*text))
            puts_text(&t, "\\");
        put(&t, text, 1);
    }
    return t.at;
}
