/* names.c - the tables that names.def makes: which names a template may use, and their parameters. */
#include "value.h"

#include <string.h>

#define FILTER(name, function, params) {#name, params, V_MISSING},
const ChatName chat_filters[] = {
#include "names.def"
};
#define TEST(name, function, params) {#name, params, V_MISSING},
const ChatName chat_tests[] = {
#include "names.def"
};
#define METHOD(kind, name, params) {#name, params, V_##kind},
const ChatName chat_methods[] = {
#include "names.def"
};
#define GLOBAL(name) {#name, "", V_MISSING},
const ChatName chat_globals[] = {
#include "names.def"
};
#define OP(name, arg, what) CHAT_ARG_##arg,
const ChatArg chat_args[] = {
#include "ops.def"
};
#undef OP
const size_t chat_n_filters = sizeof chat_filters / sizeof *chat_filters;
const size_t chat_n_tests = sizeof chat_tests / sizeof *chat_tests;
const size_t chat_n_methods = sizeof chat_methods / sizeof *chat_methods;
const size_t chat_n_globals = sizeof chat_globals / sizeof *chat_globals;

static int find_name(const ChatName *rows, size_t n, int kind, const Text *name)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].kind == kind && strlen(rows[i].name) == name->n && memcmp(rows[i].name, name->at, name->n) == 0)
            return (int)i;
    return -1;
}

static int find_word(const ChatName *rows, size_t n, const char *name)
{
    const Text t = {strlen(name), name, NULL, false};

    return find_name(rows, n, V_MISSING, &t);
}

int chat_filter(const char *name)
{
    return find_word(chat_filters, chat_n_filters, name);
}

int chat_test(const char *name)
{
    return find_word(chat_tests, chat_n_tests, name);
}

int filter_find(const Text *name)
{
    return find_name(chat_filters, chat_n_filters, V_MISSING, name);
}

int test_find(const Text *name)
{
    return find_name(chat_tests, chat_n_tests, V_MISSING, name);
}

int method_find(Kind kind, const Text *name)
{
    return find_name(chat_methods, chat_n_methods, kind, name);
}

size_t chat_param_count(const char *params)
{
    size_t n = *params != '\0';

    for (; *params; params++)
        n += *params == ' ';
    return n;
}

int chat_param_find(const char *params, const char *name, size_t n)
{
    for (int i = 0; *params; i++) {
        const size_t length = strcspn(params, " ");

        if (length == n && memcmp(params, name, n) == 0)
            return i;
        params += length + (params[length] == ' ');
    }
    return -1;
}
