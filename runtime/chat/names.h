/* names.h - which filters, tests, methods and functions there are: for the machine, and for the compiler. */
#ifndef FTX_CHAT_NAMES_H
#define FTX_CHAT_NAMES_H

#include <stddef.h>

/* A row of names.def. */
typedef struct ChatName {
    const char *name;
    const char *params; /* after the value, separated by blanks */
    int kind;           /* of a method's value: Kind */
} ChatName;

extern const ChatName chat_filters[], chat_tests[], chat_methods[], chat_globals[];
extern const size_t chat_n_filters, chat_n_tests, chat_n_methods, chat_n_globals;

int chat_filter(const char *name); /* its row; -1: there is none */
int chat_test(const char *name);
size_t chat_param_count(const char *params);
int chat_param_find(const char *params, const char *name, size_t n); /* -1: there is none */

/* What the argument of an instruction is. */
typedef enum ChatArg {
    CHAT_ARG_NOTHING,
    CHAT_ARG_CONST,
    CHAT_ARG_NAME, /* a constant that is a string */
    CHAT_ARG_COUNT,
    CHAT_ARG_JUMP,
    CHAT_ARG_FUNCTION,
    CHAT_ARG_FILTER,
    CHAT_ARG_TEST,
    CHAT_ARG_BINARY,
    CHAT_ARG_COMPARE
} ChatArg;
extern const ChatArg chat_args[]; /* by ChatOp */

#endif
