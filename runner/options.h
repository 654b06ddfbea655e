/* options.h - command lines: one table says what a command takes, what help prints, what is parsed. */
#ifndef FTX_RUNNER_OPTIONS_H
#define FTX_RUNNER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum OptionKind { OPT_FLAG, OPT_TEXT, OPT_INT, OPT_SEED, OPT_NUMBER, OPT_LIST } OptionKind;

typedef struct Option {
    const char *name; /* "--top-k" */
    char letter;      /* 'o' for -o; 0: none */
    OptionKind kind;
    const char *arg; /* "K": what help calls the value */
    const char *help;
    size_t at;    /* offsetof the field in the command's options struct */
    size_t given; /* offsetof a bool that says it was there; 0: none (field 0 is never one) */
} Option;

/* OPT_FLAG bool, OPT_TEXT const char *, OPT_INT int, OPT_SEED uint64_t, OPT_NUMBER double, OPT_LIST TextList */
typedef struct TextList {
    const char *at[64];
    size_t n;
} TextList;

/* Fills `into`; arguments that are no options go to rest. False: the reason in `error`. */
bool options_parse(const Option *table, size_t n, int argc, char **argv, void *into, TextList *rest, char *error,
                   size_t error_bytes);
void options_help(const Option *table, size_t n);

/* A whole number of 32 bits at the beginning of a text; *end: what follows it. False: none is there. */
bool options_integer(const char *text, int32_t *value, const char **end);

/* "5,17,9": at most max numbers. False: not such a list. */
bool options_numbers(const char *text, int32_t *at, size_t max, size_t *n);

#endif
