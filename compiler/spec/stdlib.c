/* stdlib.c - the part of Lua's library that a spec has.
 *
 * Left out: functions that read files or the clock, load code, catch errors, or can run long inside one call
 * (patterns). Replaced: functions whose results differ from run to run. These are `pairs` (Lua's order depends
 * on hashes), `table.sort` (Lua picks pivots by the clock) and `tostring` (it prints addresses). */
#include "sandbox.h"

#include <lualib.h>
#include <string.h>

enum { TURN = 20 }; /* instructions that one iteration of a loop in C counts as */

const char *sandbox_text(lua_State *L, int i)
{
    const int type = lua_type(L, i);
    const bool named = luaL_getmetafield(L, i, "__tostring") != LUA_TNIL;

    if (named)
        lua_pop(L, 1);
    if (type == LUA_TNUMBER && lua_tonumber(L, i) != lua_tonumber(L, i))
        return lua_pushliteral(L, "nan"); /* the sign of a NaN differs between processors */
    if (named || (type != LUA_TTABLE && type != LUA_TFUNCTION && type != LUA_TUSERDATA && type != LUA_TLIGHTUSERDATA &&
                  type != LUA_TTHREAD))
        return luaL_tolstring(L, i, NULL);
    return lua_pushstring(L, lua_typename(L, type));
}

static int to_string(lua_State *L)
{
    luaL_checkany(L, 1);
    sandbox_text(L, 1);
    return 1;
}

/* string.format without addresses. Upvalue: Lua's own string.format. */
static int format(lua_State *L)
{
    const char *f = luaL_checkstring(L, 1);
    const int n = lua_gettop(L);

    while ((f = strchr(f, '%'))) {
        f += 1 + strspn(f + 1, "-+ #0123456789.");
        if (*f == 'p')
            return sandbox_fail(L, "format: %%p would print an address");
        if (*f)
            f++;
    }
    for (int i = 2; i <= n; i++)
        if (lua_type(L, i) >= LUA_TTABLE) {
            sandbox_text(L, i);
            lua_replace(L, i);
        }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

/* string.rep: an empty text, which Lua would append as often as asked, up to 2^63 times, stays empty. Upvalue: Lua's
 * own string.rep. */
static int rep(lua_State *L)
{
    size_t text, between;

    luaL_checklstring(L, 1, &text);
    luaL_optlstring(L, 3, "", &between);
    if (!text && !between) {
        luaL_checkinteger(L, 2);
        lua_pushliteral(L, "");
        return 1;
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
}

/* --- order -------------------------------------------------------------------------------------- */

/* Whether the value at index i comes before that at j. f: index of a comparison function; 0: the order of keys
 * in `pairs`; a negative number: `<`. */
enum { BY_KEY = 0, BY_LESS = -1 };

static int key_rank(lua_State *L, int i)
{
    switch (lua_type(L, i)) {
    case LUA_TNUMBER: return 0;
    case LUA_TSTRING: return 1;
    case LUA_TBOOLEAN: return 2;
    default: return sandbox_fail(L, "pairs: keys of type %s have no order", luaL_typename(L, i));
    }
}

static bool before(lua_State *L, int i, int j, int by)
{
    bool less;

    if (by == BY_LESS)
        return lua_compare(L, i, j, LUA_OPLT);
    if (by == BY_KEY) {
        const int a = key_rank(L, i), b = key_rank(L, j);
        size_t an, bn;
        const char *at, *bt;
        int order;

        if (a != b)
            return a < b;
        if (a == 0)
            return lua_compare(L, i, j, LUA_OPLT);
        if (a == 2)
            return lua_toboolean(L, i) < lua_toboolean(L, j);
        at = lua_tolstring(L, i, &an);
        bt = lua_tolstring(L, j, &bn);
        order = memcmp(at, bt, an < bn ? an : bn);
        return order ? order < 0 : an < bn;
    }
    lua_pushvalue(L, by);
    lua_pushvalue(L, i);
    lua_pushvalue(L, j);
    lua_call(L, 2, 1);
    less = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return less;
}

/* Merge sort of t[1..n], bottom up. Stable; which elements are compared does not depend on the clock. */
static void sort(lua_State *L, int t, lua_Integer n, int by)
{
    int from = t, to;

    lua_createtable(L, (int)n, 0);
    to = lua_gettop(L);
    for (lua_Integer run = 1; run < n; run *= 2) {
        for (lua_Integer low = 1; low <= n; low += 2 * run) {
            const lua_Integer middle = low + run < n + 1 ? low + run : n + 1;
            const lua_Integer high = low + 2 * run < n + 1 ? low + 2 * run : n + 1;
            lua_Integer a = low, b = middle;

            for (lua_Integer k = low; k < high; k++) {
                bool second = a == middle;

                sandbox_tick(L, TURN);
                if (!second && b < high) {
                    lua_rawgeti(L, from, a);
                    lua_rawgeti(L, from, b);
                    second = before(L, lua_gettop(L), lua_gettop(L) - 1, by);
                    lua_pop(L, 2);
                }
                lua_rawgeti(L, from, second ? b++ : a++);
                lua_rawseti(L, to, k);
            }
        }
        from = from == t ? to : t;
        to = from == t ? lua_gettop(L) : t;
    }
    for (lua_Integer k = 1; from != t && k <= n; k++) {
        lua_rawgeti(L, from, k);
        lua_rawseti(L, t, k);
    }
    lua_pop(L, 1);
}

/* Raises an error for a table with a metatable: its metamethods could make a loop in C endless. */
static lua_Integer plain_table(lua_State *L, const char *who)
{
    if (lua_type(L, 1) != LUA_TTABLE)
        sandbox_fail(L, "%s: a table was expected, got %s", who, luaL_typename(L, 1));
    if (lua_getmetatable(L, 1))
        sandbox_fail(L, "%s: the table has a metatable, it must have none", who);
    return (lua_Integer)lua_rawlen(L, 1);
}

static int table_sort(lua_State *L)
{
    const lua_Integer n = plain_table(L, "sort");
    const bool given = !lua_isnoneornil(L, 2);

    if (given && lua_type(L, 2) != LUA_TFUNCTION)
        return sandbox_fail(L, "sort: the second argument is a %s, it must be a function", luaL_typename(L, 2));
    lua_settop(L, 2);
    sort(L, 1, n, given ? 2 : BY_LESS);
    return 0;
}

/* table.insert, remove, concat, unpack for tables without a metatable. Upvalues: Lua's function, its name. */
static int plain(lua_State *L)
{
    plain_table(L, lua_tostring(L, lua_upvalueindex(2)));
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* --- pairs -------------------------------------------------------------------------------------- */

/* The iterator of pairs. Upvalues: the keys in order, their number, how many were visited. */
static int pairs_step(lua_State *L)
{
    const lua_Integer n = lua_tointeger(L, lua_upvalueindex(2));
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(3));

    for (i++; i <= n; i++) {
        sandbox_tick(L, TURN);
        lua_rawgeti(L, lua_upvalueindex(1), i);
        lua_pushvalue(L, -1);
        if (lua_rawget(L, 1) != LUA_TNIL) {
            lua_pushinteger(L, i);
            lua_replace(L, lua_upvalueindex(3));
            return 2;
        }
        lua_pop(L, 2);
    }
    lua_pushnil(L);
    return 1;
}

static int pairs(lua_State *L)
{
    lua_Integer n = 0;

    if (lua_type(L, 1) != LUA_TTABLE)
        return sandbox_fail(L, "pairs: a table was expected, got %s", luaL_typename(L, 1));
    lua_settop(L, 1);
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        key_rank(L, -2);
        lua_pushvalue(L, -2);
        lua_rawseti(L, 2, ++n);
    }
    sort(L, 2, n, BY_KEY);
    lua_pushinteger(L, n);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, pairs_step, 3);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

/* __gc and __mode act when the collector runs, which differs from run to run; __close could outlive the time. */
static int set_metatable(lua_State *L)
{
    static const char *const refused[] = {"__gc", "__mode", "__close"};

    for (size_t i = 0; lua_type(L, 2) == LUA_TTABLE && i < LEN(refused); i++) {
        lua_pushstring(L, refused[i]);
        if (lua_rawget(L, 2) != LUA_TNIL)
            return sandbox_fail(L, "setmetatable: a spec has no %s", refused[i]);
        lua_pop(L, 1);
    }
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 2, 1);
    return 1;
}

/* --- the tables of names -------------------------------------------------------------------------- */

/* Moves the names of a list from the table at `from` to the one on the top. */
static void take(lua_State *L, int from, const char *const *names)
{
    for (; *names; names++) {
        lua_getfield(L, from, *names);
        lua_setfield(L, -2, *names);
    }
}

/* The field `name` of the table on the top becomes f(its old value, name). */
static void wrap(lua_State *L, const char *name, lua_CFunction f)
{
    lua_getfield(L, -1, name);
    lua_pushstring(L, name);
    lua_pushcclosure(L, f, 2);
    lua_setfield(L, -2, name);
}

static void open_one(lua_State *L, const char *name, lua_CFunction open, const char *const *names)
{
    luaL_requiref(L, name, open, 0);
    lua_newtable(L);
    take(L, lua_gettop(L) - 1, names);
    lua_remove(L, -2);
}

void sandbox_library(lua_State *L)
{
    static const char *const base[] = {"assert", "error",  "getmetatable", "ipairs",   "rawequal", "rawget", "rawlen",
                                       "rawset", "select", "setmetatable", "tonumber", "type",     NULL};
    static const char *const strings[] = {"byte", "char",    "format", "len",   "lower",
                                          "rep",  "reverse", "sub",    "upper", NULL};
    static const char *const tables[] = {"concat", "insert", "remove", "unpack", "pack", NULL};
    static const char *const maths[] = {"abs", "ceil", "cos", "exp",        "floor",      "fmod", "huge",
                                        "log", "max",  "min", "maxinteger", "mininteger", "modf", "pi",
                                        "sin", "sqrt", "tan", "type",       "tointeger",  "ult",  NULL};
    int all;

    luaL_requiref(L, "_G", luaopen_base, 0); /* fills the globals */
    all = lua_gettop(L);
    lua_newtable(L); /* the new globals */
    take(L, all, base);
    wrap(L, "setmetatable", set_metatable);
    lua_pushcfunction(L, pairs);
    lua_setfield(L, -2, "pairs");
    lua_pushcfunction(L, to_string);
    lua_setfield(L, -2, "tostring");

    open_one(L, "string", luaopen_string, strings);
    wrap(L, "format", format);
    wrap(L, "rep", rep);
    sandbox_strict(L, "string");
    lua_pushliteral(L, "");
    lua_getmetatable(L, -1);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index"); /* ("x"):rep(3) */
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 2);
    lua_setfield(L, -2, "string");

    open_one(L, "table", luaopen_table, tables);
    wrap(L, "concat", plain);
    wrap(L, "insert", plain);
    wrap(L, "remove", plain);
    wrap(L, "unpack", plain);
    lua_pushcfunction(L, table_sort);
    lua_setfield(L, -2, "sort");
    sandbox_strict(L, "table");
    lua_setfield(L, -2, "table");

    open_one(L, "math", luaopen_math, maths);
    sandbox_strict(L, "math");
    lua_setfield(L, -2, "math");

    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_pop(L, 1);
}
