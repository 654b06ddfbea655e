/* tuning.c - reads a tuning file: Lua that returns a table of entries (docs/tuning.md). */
#include <string.h>

#include "../../runtime/base/hash.h"
#include "sandbox.h"
#include "spec.h"

/* What is read is kept: a short program could make it larger than memory. */
enum { MAX_TEXT = 4096, MAX_ENTRIES = 1 << 14, MAX_ALGORITHMS = 1024 };

typedef struct TuningReader {
    const char *text;
    TuningFile *file;
    Tuning *into;
    lua_Integer entry; /* that is being read; 0: none */
} TuningReader;

static void fail(lua_State *L, const char *field, const char *expected) __attribute__((noreturn));
static void fail(lua_State *L, const char *field, const char *expected)
{
    const TuningReader *r = sandbox_of(L)->user;
    const Loc whole = {sandbox_of(L)->subject, 0};

    if (r->entry)
        sandbox_fail_at(L, whole, "entry %d: %s: expected %s, found %s", (int)r->entry, field, expected,
                        luaL_typename(L, -1));
    sandbox_fail_at(L, whole, "%s: expected %s, found %s", field, expected, luaL_typename(L, -1));
}

static const char *text_field(lua_State *L, int table, const char *field)
{
    const char *text;
    size_t n;

    lua_getfield(L, table, field);
    text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &n) : NULL;
    if (!text || strlen(text) != n || strpbrk(text, "\n\"\\"))
        fail(L, field, "a line of text");
    if (n > MAX_TEXT)
        fail(L, field, "at most 4096 bytes");
    text = arena_strdup(sandbox_of(L)->keep, text);
    lua_pop(L, 1);
    return text;
}

static bool flag_field(lua_State *L, int table, const char *field)
{
    bool on;

    lua_getfield(L, table, field);
    if (!lua_isboolean(L, -1) && !lua_isnil(L, -1))
        fail(L, field, "true or false");
    on = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return on;
}

/* 0: there is none. unit: of the number, for messages. */
static double number_field(lua_State *L, int table, const char *field, const char *unit)
{
    double number;

    lua_getfield(L, table, field);
    number = lua_isnil(L, -1) ? 0 : lua_tonumber(L, -1);
    if (!lua_isnil(L, -1) && (lua_type(L, -1) != LUA_TNUMBER || !(number > 0 && number < 1e12)))
        fail(L, field, unit);
    lua_pop(L, 1);
    return number;
}

/* In the order of the names: Lua's order of a table's fields follows from addresses. */
static void add_constant(lua_State *L, TuningEntry *e, const char *name, int64_t value)
{
    Arena *keep = sandbox_of(L)->keep;
    size_t at = e->use.n;

    arena_push(keep, e->use);
    for (; at > 0 && strcmp(e->use.at[at - 1].name, name) > 0; at--)
        e->use.at[at] = e->use.at[at - 1];
    e->use.at[at] = (TunedConst){arena_strdup(keep, name), value};
}

static void read_use(lua_State *L, int table, TuningEntry *e)
{
    lua_getfield(L, table, "use");
    if (e->avoid ? !lua_isnil(L, -1) : !lua_istable(L, -1))
        fail(L, "use", e->avoid ? "nothing beside avoid" : "a table of constants");
    lua_pushnil(L);
    while (!e->avoid && lua_next(L, -2)) {
        int whole = 0;
        const int64_t value = lua_tointegerx(L, -1, &whole);

        if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TNUMBER || !whole)
            fail(L, "use", "NAME = whole number");
        if (e->use.n == CONTRACT_MAX_CONSTS)
            fail(L, "use", "no more constants than a kernel has");
        add_constant(L, e, lua_tostring(L, -2), value);
        lua_pop(L, 1);
    }
    lua_settop(L, table);
}

static int64_t whole_at(lua_State *L, int table, lua_Integer i, const char *field, int64_t most)
{
    int whole = 0;
    int64_t value;

    lua_rawgeti(L, table, i);
    value = lua_tointegerx(L, -1, &whole);
    if (lua_type(L, -1) != LUA_TNUMBER || !whole || value < 0 || value > most)
        fail(L, field, "a whole number of 0 or more");
    lua_pop(L, 1);
    return value;
}

/* library = 130002, algorithms = { { 64, 128, 66, ... }, ... }: in place of use. */
static void read_algorithms(lua_State *L, int table, TuningEntry *e)
{
    Arena *keep = sandbox_of(L)->keep;
    int list;

    lua_getfield(L, table, "library");
    lua_getfield(L, table, "algorithms");
    list = lua_gettop(L);
    if (!lua_isnil(L, list)) {
        if (!lua_istable(L, list) || !lua_rawlen(L, list) || lua_rawlen(L, list) > MAX_ALGORITHMS || e->avoid)
            fail(L, "algorithms", e->avoid ? "nothing beside avoid" : "a list of 1 to 1024 algorithms");
        lua_insert(L, list - 1);
        if (lua_type(L, list) != LUA_TNUMBER || !lua_isinteger(L, list) || lua_tointeger(L, list) < 1)
            fail(L, "library", "cuBLASLt's version");
        *arena_push(keep, e->algorithms) = lua_tointeger(L, list);
        for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, list - 1); i++) {
            lua_rawgeti(L, list - 1, i);
            if (!lua_istable(L, -1) || lua_rawlen(L, -1) != FTX_MM_RECORD)
                fail(L, "algorithms", "lists of 11 numbers: rows from, to, and nine attributes");
            for (lua_Integer k = 1; k <= FTX_MM_RECORD; k++) {
                const int64_t word = whole_at(L, list + 1, k, "algorithms", UINT32_MAX);

                *arena_push(keep, e->algorithms) = word;
            }
            lua_pop(L, 1);
        }
    }
    lua_settop(L, table);
}

/* most = 48: of a border, in place of use. */
static int64_t rows_field(lua_State *L, int table)
{
    int64_t rows;
    int whole = 0;

    lua_getfield(L, table, "most");
    rows = lua_tointegerx(L, -1, &whole);
    if (lua_type(L, -1) != LUA_TNUMBER || !whole || rows < 1 || rows > INT32_MAX)
        fail(L, "most", "a whole number of rows");
    lua_pop(L, 1);
    return rows;
}

static void read_entry(lua_State *L, TuningReader *r)
{
    const int table = lua_gettop(L);
    TuningEntry e = {.file = r->file};

    if (!lua_istable(L, table))
        fail(L, "entries", "a table");
    e.kernel = text_field(L, table, "kernel");
    e.hash = text_field(L, table, "hash");
    e.program = text_field(L, table, "program");
    e.shape = text_field(L, table, "shape");
    e.avoid = flag_field(L, table, "avoid");
    e.us = number_field(L, table, "us", "microseconds");
    e.untuned_us = number_field(L, table, "untuned", "microseconds");
    if (strcmp(e.kernel, TUNING_BORDER) == 0) {
        e.most = rows_field(L, table);
    } else {
        read_algorithms(L, table, &e);
        if (!e.algorithms.n)
            read_use(L, table, &e);
    }
    *(TuningEntry *)arena_push(sandbox_of(L)->keep, r->into->entries) = e;
}

static int run_tuning(lua_State *L)
{
    TuningReader *r = sandbox_of(L)->user;

    sandbox_load(L, sandbox_of(L)->subject, r->text, strlen(r->text));
    lua_newtable(L); /* no names: the file is data */
    lua_setupvalue(L, -2, 1);
    lua_call(L, 0, 1);
    if (!lua_istable(L, -1))
        return sandbox_fail_at(L, (Loc){sandbox_of(L)->subject, 0},
                               "a tuning file returns a table, this one returned %s", luaL_typename(L, -1));
    r->file->device = text_field(L, 2, "gpu");
    lua_getfield(L, 2, "made");
    if (!lua_isnil(L, -1))
        r->file->made = text_field(L, 2, "made");
    lua_settop(L, 2);
    r->file->any_order = flag_field(L, 2, "any_order");
    r->file->rate = number_field(L, 2, "rate", "GB/s");
    lua_getfield(L, 2, "entries");
    if (!lua_istable(L, 3))
        fail(L, "entries", "a list");
    if (lua_rawlen(L, 3) > MAX_ENTRIES)
        fail(L, "entries", "at most 16384 entries");
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 3); i++) {
        r->entry = i;
        lua_rawgeti(L, 3, i);
        read_entry(L, r);
        lua_settop(L, 3);
    }
    return 0;
}

bool spec_read_tuning(const char *name, const char *text, Arena *keep, Tuning *into, Diag *d)
{
    TuningReader r = {.text = text, .file = arena_new(keep, TuningFile), .into = into};
    Sandbox box;
    bool ok;

    *r.file = (TuningFile){.name = arena_strdup(keep, name), .hash = hash64(text, strlen(text))};
    sandbox_open(&box, name, "", SANDBOX_SECONDS, keep, d);
    box.user = &r;
    ok = sandbox_call(&box, run_tuning, NULL);
    sandbox_close(&box);
    *(TuningFile **)arena_push(keep, into->files) = r.file;
    return ok;
}
