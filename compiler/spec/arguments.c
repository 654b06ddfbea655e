/* arguments.c - checked arguments of builtins: numbers, words, tables of options. */
#include "arguments.h"

#include <math.h>
#include <string.h>

enum { MAX_NAME = 300 };

/* The argument at i, for messages: "nil", "the number 3". */
const char *arg_found(lua_State *L, int i)
{
    switch (lua_type(L, i)) {
    case LUA_TNONE:
    case LUA_TNIL: return "nil";
    case LUA_TNUMBER: return lua_pushfstring(L, "the number %s", sandbox_text(L, i));
    case LUA_TSTRING: return lua_pushfstring(L, "\"%s\"", lua_tostring(L, i));
    case LUA_TUSERDATA: return "a graph value";
    default: return lua_pushfstring(L, "a %s", luaL_typename(L, i));
    }
}

int64_t arg_count(lua_State *L, int i, int64_t low, int64_t high, const char *what)
{
    int whole;
    const lua_Integer n = lua_type(L, i) == LUA_TNUMBER ? lua_tointegerx(L, i, &whole) : (whole = 0, 0);

    if (!whole || n < low || n > high)
        sandbox_fail(L, "%s must be a whole number from %lld to %lld, got %s", what, (long long)low, (long long)high,
                     arg_found(L, i));
    return n;
}

double arg_number(lua_State *L, int i, const char *what)
{
    if (lua_type(L, i) != LUA_TNUMBER || !isfinite(lua_tonumber(L, i)))
        sandbox_fail(L, "%s must be a finite number, got %s", what, arg_found(L, i));
    return lua_tonumber(L, i);
}

const char *arg_word(lua_State *L, int i, const char *what)
{
    if (lua_type(L, i) != LUA_TSTRING || !lua_tostring(L, i)[0] || lua_rawlen(L, i) > MAX_NAME ||
        strlen(lua_tostring(L, i)) != lua_rawlen(L, i))
        sandbox_fail(L, "%s must be a text of 1 to %d characters, got %s", what, MAX_NAME,
                     lua_type(L, i) == LUA_TSTRING ? "one that is not" : arg_found(L, i));
    return lua_tostring(L, i);
}

/* Checks the table of options at i, whose fields must be words of `known` ("scale window"). False: no table. */
bool arg_options(lua_State *L, int i, const char *known, const char *who)
{
    if (lua_isnoneornil(L, i))
        return false;
    if (lua_type(L, i) != LUA_TTABLE)
        sandbox_fail(L, "%s: options must be a table, got %s", who, arg_found(L, i));
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        const char *at = strstr(known, key);
        const size_t n = strlen(key);

        while (at && n && !((at == known || at[-1] == ' ') && (at[n] == ' ' || !at[n])))
            at = strstr(at + 1, key);
        if (!at || !n)
            sandbox_fail(L, "%s has no option '%s'; it has: %s", who, sandbox_text(L, -2), known);
    }
    return true;
}

double arg_option_number(lua_State *L, int i, const char *name, double missing, const char *who)
{
    double f = missing;

    if (lua_getfield(L, i, name) != LUA_TNIL) {
        lua_pushfstring(L, "%s: %s", who, name);
        f = arg_number(L, -2, lua_tostring(L, -1));
    }
    return f;
}

int64_t arg_option_count(lua_State *L, int i, const char *name, int64_t low, int64_t high, int64_t missing,
                         const char *who)
{
    int64_t n = missing;

    if (lua_getfield(L, i, name) != LUA_TNIL) {
        lua_pushfstring(L, "%s: %s", who, name);
        n = arg_count(L, -2, low, high, lua_tostring(L, -1));
    }
    return n;
}

bool arg_option_flag(lua_State *L, int i, const char *name, const char *who)
{
    const int type = lua_getfield(L, i, name);

    if (type != LUA_TNIL && type != LUA_TBOOLEAN)
        sandbox_fail(L, "%s: %s must be true or false, got %s", who, name, arg_found(L, -1));
    return lua_toboolean(L, -1);
}
