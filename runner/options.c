/* options.c - parses command lines and prints help, both from one table of options for each command. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

enum { LEFT = 30, WIDTH = 110 }; /* columns of help */

static const Option *find_long(const Option *table, size_t n, const char *word, size_t length)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(table[i].name, word, length) == 0 && table[i].name[length] == '\0')
            return &table[i];
    return NULL;
}

static const Option *find_letter(const Option *table, size_t n, char letter)
{
    for (size_t i = 0; i < n; i++)
        if (table[i].letter == letter)
            return &table[i];
    return NULL;
}

bool options_integer(const char *text, int32_t *value, const char **end)
{
    char *after;
    long v;

    errno = 0;
    v = strtol(text, &after, 10);
    if (after == text || errno || v < INT32_MIN || v > INT32_MAX)
        return false;
    *value = (int32_t)v;
    *end = after;
    return true;
}

/* 64 bits, signed or not. */
static bool parse_seed(const char *text, uint64_t *seed)
{
    char *end;

    errno = 0;
    *seed = strchr(text, '-') ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10);
    return end != text && !*end && !errno;
}

/* "512", "64K", "1.5G": bytes, at least 1; units are powers of 1024. */
static bool parse_bytes(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    const double number = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    const double value = unit ? ldexp(number, 10 * (int)(unit - units + 1)) : number;

    *bytes = value >= 1.0 && value < 9e18 ? (uint64_t)value : 0;
    return end != text && *bytes && !end[unit != NULL];
}

static bool parse_number(const char *text, double *number)
{
    char *end;

    errno = 0;
    *number = strtod(text, &end);
    return end != text && !*end && (!errno || fabs(*number) < 1.0); /* too small for a double is 0 */
}

static bool store(const Option *o, const char *value, void *into, char *error, size_t bytes)
{
    char *field = (char *)into + o->at;
    const char *end = "";
    TextList *list;
    bool number = true;

    switch (o->kind) {
    case OPT_FLAG: *(bool *)field = true; break;
    case OPT_TEXT: *(const char **)field = value; break;
    case OPT_INT: number = options_integer(value, (int *)field, &end) && !*end; break;
    case OPT_SEED: number = parse_seed(value, (uint64_t *)field); break;
    case OPT_BYTES:
        if (!parse_bytes(value, (uint64_t *)field)) {
            snprintf(error, bytes, "%s: expected bytes (512M, 4G), found \"%.100s\"", o->name, value);
            return false;
        }
        break;
    case OPT_NUMBER: number = parse_number(value, (double *)field); break;
    case OPT_LIST:
        list = (TextList *)field;
        if (list->n == sizeof list->at / sizeof *list->at) {
            snprintf(error, bytes, "%s: given more than %zu times", o->name, list->n);
            return false;
        }
        list->at[list->n++] = value;
        break;
    }
    if (!number) {
        snprintf(error, bytes, "%s: expected a %snumber%s, found \"%.100s\"", o->name,
                 o->kind == OPT_NUMBER ? "" : "whole ", o->kind == OPT_INT ? " of 32 bits" : "", value);
        return false;
    }
    if (o->given)
        *(bool *)((char *)into + o->given) = true;
    return true;
}

bool options_parse(const Option *table, size_t n, int argc, char **argv, void *into, TextList *rest, char *error,
                   size_t error_bytes)
{
    bool only_rest = false;

    for (int i = 0; i < argc; i++) {
        const char *word = argv[i], *value = NULL;
        const Option *o = NULL;

        if (only_rest || word[0] != '-' || word[1] == '\0') {
            if (rest->n == sizeof rest->at / sizeof *rest->at) {
                snprintf(error, error_bytes, "more than %zu arguments", sizeof rest->at / sizeof *rest->at);
                return false;
            }
            rest->at[rest->n++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_rest = true;
            continue;
        }
        if (word[1] == '-') {
            const char *equals = strchr(word, '=');

            o = find_long(table, n, word, equals ? (size_t)(equals - word) : strlen(word));
            value = equals ? equals + 1 : NULL;
        } else {
            o = find_letter(table, n, word[1]);
            value = word[2] ? word + 2 : NULL;
        }
        if (!o) {
            snprintf(error, error_bytes, "unknown option %.100s", word);
            return false;
        }
        if (o->kind == OPT_FLAG && value) {
            snprintf(error, error_bytes, "%.100s: %s takes no value", word, o->name);
            return false;
        }
        if (o->kind != OPT_FLAG && !value) {
            if (i + 1 == argc) {
                snprintf(error, error_bytes, "%s needs a value (%s)", o->name, o->arg);
                return false;
            }
            value = argv[++i];
        }
        if (!store(o, value, into, error, error_bytes))
            return false;
    }
    return true;
}

/* Prints text behind column LEFT, in lines of at most WIDTH columns. */
static void print_wrapped(const char *text)
{
    while (strlen(text) > WIDTH - LEFT) {
        size_t n = WIDTH - LEFT;

        while (n > 1 && text[n] != ' ')
            n--;
        printf("%.*s\n%*s", (int)n, text, LEFT, "");
        text += n + strspn(text + n, " ");
    }
    printf("%s\n", text);
}

void options_help(const Option *table, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const Option *o = &table[i];
        int column = o->letter ? printf("  -%c, ", o->letter) : printf("      ");

        column += printf("%s%s%s  ", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        printf("%*s", column < LEFT ? LEFT - column : 0, "");
        print_wrapped(o->help);
    }
}

bool options_numbers(const char *text, int32_t *at, size_t max, size_t *n)
{
    *n = 0;
    for (const char *p = text, *end;; p = end + 1) {
        if (*n == max || !options_integer(p, &at[*n], &end))
            return false;
        ++*n;
        while (*end == ' ')
            end++;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
    }
}

bool options_list(const char *text, int32_t **at, size_t *n)
{
    size_t most = 1;

    for (const char *p = text; *p; p++)
        most += *p == ',';
    *at = command_must(calloc(most, sizeof **at));
    return options_numbers(text, *at, most, n);
}
