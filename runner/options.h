/* options.h - parses command lines and prints help, both from one table of options for each command. */
#ifndef FTX_RUNNER_OPTIONS_H
#define FTX_RUNNER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum OptionKind { OPT_FLAG, OPT_TEXT, OPT_INT, OPT_SEED, OPT_BYTES, OPT_NUMBER, OPT_LIST } OptionKind;

typedef struct Option {
    const char *name; /* "--top-k" */
    char letter;      /* 'o' for -o; 0: none */
    OptionKind kind;
    const char *arg; /* "K": what help calls the value */
    const char *help;
    size_t at;    /* offsetof the field in the command's options struct */
    size_t given; /* offsetof a bool that becomes true if the option is given; 0: none (no such bool is at 0) */
} Option;

/* OPT_FLAG bool, OPT_TEXT const char *, OPT_INT int, OPT_SEED uint64_t, OPT_BYTES uint64_t ("4G"), OPT_NUMBER double,
 * OPT_LIST TextList */
typedef struct TextList {
    const char *at[64];
    size_t n;
} TextList;

/* Fills `into`; other arguments go to rest. False: the reason is in `error`. */
bool options_parse(const Option *table, size_t n, int argc, char **argv, void *into, TextList *rest, char *error,
                   size_t error_bytes);
void options_help(const Option *table, size_t n);

/* Reads a 32-bit whole number at the beginning of a text; *end: what follows it. False: there is none. */
bool options_integer(const char *text, int32_t *value, const char **end);

/* Reads a list like "5,17,9" of at most max numbers. False: the text is not such a list. */
bool options_numbers(const char *text, int32_t *at, size_t max, size_t *n);

/* The same for any length; the caller frees *at, also after false. */
bool options_list(const char *text, int32_t **at, size_t *n);

#endif
