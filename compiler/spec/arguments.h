/* arguments.h - checked arguments of builtins. Each raises an error where the argument does not fit.
 *
 * i: the argument's stack index. what: what messages call it ("rows: from"). who: the function ("rope"). */
#ifndef FTXC_SPEC_ARGUMENTS_H
#define FTXC_SPEC_ARGUMENTS_H

#include "sandbox.h"

#define MAX_SIZE INT32_MAX /* of a dimension */

const char *arg_found(lua_State *L, int i); /* for messages: "nil", "the number 3" */
int64_t arg_count(lua_State *L, int i, int64_t low, int64_t high, const char *what);
double arg_number(lua_State *L, int i, const char *what);    /* finite */
const char *arg_word(lua_State *L, int i, const char *what); /* 1 to 300 bytes */

/* A table whose fields are words of `known` ("scale window"). False: there is no argument. */
bool arg_options(lua_State *L, int i, const char *known, const char *who);

/* A field of that table; `missing` where it is not there. Leaves values on the stack. */
double arg_option_number(lua_State *L, int i, const char *name, double missing, const char *who);
int64_t arg_option_count(lua_State *L, int i, const char *name, int64_t low, int64_t high, int64_t missing,
                         const char *who);
bool arg_option_flag(lua_State *L, int i, const char *name, const char *who); /* false where it is not there */

#endif
