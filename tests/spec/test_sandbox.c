/* test_sandbox.c - specs that run too long, take too much memory, or try to reach files: each ends soon with a message
 * at its line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/spec/sandbox.h"

typedef struct Text {
    const char *lua;
    const char *message; /* a part of the message; NULL: the spec succeeds */
} Text;

static int run_text(lua_State *L)
{
    const char *lua = lua_touserdata(L, 1);

    sandbox_load(L, "t.lua", lua, strlen(lua));
    lua_call(L, 0, 0);
    return 0;
}

/* For cases that do not test the time limit: the machine may be busy. */
enum { PATIENCE = 100 };

static void run_all(const Text *texts, size_t n, int seconds)
{
    for (size_t i = 0; i < n; i++) {
        Arena *keep = arena_open();
        Sandbox s;
        Diag d = {0};
        bool ok;

        sandbox_open(&s, "t.lua", "", seconds, keep, &d);
        ok = sandbox_call(&s, run_text, (void *)(uintptr_t)texts[i].lua);
        sandbox_close(&s);
        assert_int_equal(ok, !d.failed);
        if (ok != !texts[i].message || (!ok && !strstr(d.text, texts[i].message)))
            fail_msg("%s\n  expected %s\n  got      %s", texts[i].lua,
                     texts[i].message ? texts[i].message : "no mistake", ok ? "no mistake" : d.text);
        arena_close(keep);
    }
}

static void test_time(void **state)
{
    static const Text texts[] = {
        {"while true do end", "t.lua:1: the spec still runs"},
        {"local function f() return f() end f()", "t.lua:1: the spec still runs"},
        {"::a:: goto a", "t.lua:1: the spec still runs"},
        {"local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]", "stack overflow"},
        {"local t = setmetatable({}, {__eq = function() while true do end end})\nreturn t == setmetatable({}, "
         "getmetatable(t))",
         "t.lua:1: the spec still runs"},
        {"local t = setmetatable({}, {__len = function() return 1e15 end}) table.insert(t, 1, 1)", "has a metatable"},
        {"local t = setmetatable({}, {__len = function() return 1e15 end}) table.concat(t)", "has a metatable"},
        {"local m = {} local t = setmetatable({}, m)\nm.__close = function() local u <close> = t while true do end "
         "end\n"
         "local v <close> = t\nwhile true do end",
         "t.lua:4: the spec still runs"},
        {"local t = {} for i = 1, 3e5 do t[i] = -i end\nlocal n = 0\nwhile true do table.sort(t) n = n + 1 end",
         "the spec still runs"},
        {"for i = 1, 3e8 do local x = i end", "the spec still runs after 50 million instructions"},
        {"assert((''):rep(1 << 62) == '' and (''):rep(1 << 62, '') == '' and (''):rep(3, 'x') == 'xx')", NULL},
        {"return (''):rep('x')", "t.lua:1: bad argument"},
    };
    /* few instructions that take long: the clock ends them */
    static const Text slow = {
        "local a, b = ('x'):rep(1 << 20), ('x'):rep(1 << 20, '')\nwhile true do local c = a < b end",
        "t.lua:2: the spec still runs after 1 s: is this loop endless?"};

    (void)state;
    run_all(texts, LEN(texts), SANDBOX_SECONDS);
    run_all(&slow, 1, 1);
}

static void test_memory(void **state)
{
    static const Text texts[] = {
        {"local s = ('x'):rep(1 << 30)", "t.lua:1: the spec wants more memory"},
        {"local s = ('x'):rep(1 << 62)", "t.lua:1: "},
        {"local s = ('x'):rep(1 << 23, 'yy')", "t.lua:1: the spec wants more memory"},
        {"local t = {} for i = 1, 1e5 do t[i] = ('x'):rep(100000) .. i end", "wants more memory"},
        {"local t = {} for i = 1, 150 do t[i] = ('x'):rep(1 << 20) end", NULL}, /* what is freed counts no longer */
        {"return table.unpack({}, 1, 1e7)", "t.lua:1: too many results to unpack"},
        {"local s = 'x' for i = 1, 23 do s = s .. s end error(s)", "xxxx"},
        {"local t = {} for i = 1, 1000 do t[i] = ('x'):rep(1 << 20) end return table.concat(t)", "wants more memory"},
        {"return string.format('%q', ('\\n'):rep(12 << 20))", "wants more memory"},
        {"local function f() return 1 + f() end f()", "t.lua:1: stack overflow"},
        {"local t = {} t[1] = t local function f(x) return f(x[1]) .. '' end f(t)", "stack overflow"},
    };

    (void)state;
    run_all(texts, LEN(texts), PATIENCE);
}

static void test_ways_out(void **state)
{
    static const Text texts[] = {
        {"return io.open('/etc/passwd')", "t.lua:1: io is not there"},
        {"return require('io')", "t.lua:1: require: there is no module 'io'"},
        {"return package.loaded", "package is not there"},
        {"return debug.getregistry()", "debug is not there"},
        {"return load('return 1')", "load is not there"},
        {"return ('x').find", "string.find is not there"},
        {"return getmetatable('').__index.gsub", "attempt to index a boolean value"},
        {"return getmetatable(string).__index", "attempt to index a boolean value"},
        {"string.find = 1", "would be a global"},
        {"setmetatable(string, nil)", "protected metatable"},
        {"_ENV.x = 1", "'x' would be a global"},
        {"return coroutine.wrap(function() end)", "coroutine is not there"},
        {"return string.format('%p', {})", "print an address"},
        {"return require('../x')", "is not the name of a module"},
        {"return require('/etc/x')", "is not the name of a module"},
        {"return require(7)", "the name is a number"},
        {"error('\\1' .. '0' .. '\\1')", ""},
        {"error('\\1' .. '1' .. '\\1')", "t.lua:1: "}, /* there is no second file */
        {"error('a\\0b')", "t.lua:1: a"},
        {"return string.format('%-10p', {})", "print an address"},
        {"return setmetatable({}, {__close = function() end})", "setmetatable: a spec has no __close"},
        {"error()", "error() was given a nil"},
        {"error(setmetatable({}, {__tostring = function() while true do end end}))", "error() was given a table"},
        {"\27Lua", "t.lua"},
        {"return 1 + nil", "t.lua:1: attempt to perform arithmetic on a nil value"},
        {"local t = {} for k in pairs({[t] = 1}) do end", "keys of type table have no order"},
        {"for k in pairs(3) do end", "pairs: a table was expected"},
        {"table.sort(3)", "t.lua:1: sort: a table was expected, got number"},
        {"table.sort({}, 3)", "t.lua:1: sort: the second argument is a number, it must be a function"},
        {"local a <close> = nil local b <const> = 3", NULL},
        {"return math.floor(2.5) + #'abc' + math.max(1, 2)", NULL},
    };

    (void)state;
    run_all(texts, LEN(texts), PATIENCE);
}

/* Names of files are put into a message as far as there is room, its end too. */
static void test_long_messages(void **state)
{
    char lua[200];
    Diag d;

    (void)state;
    for (size_t n = sizeof d.text - 40; n <= sizeof d.text + 2; n++) {
        const Text text = {lua, "t.lua:1: xxx"};

        snprintf(lua, sizeof lua, "error(('x'):rep(%zu) .. '\\1' .. '0' .. '\\1' .. 'yyyyyyyy')", n);
        run_all(&text, 1, PATIENCE);
    }
}

static int load_and_mark(lua_State *L)
{
    const int files = *(const int *)lua_touserdata(L, 1);
    char name[40], text[80];

    for (int i = 0; i < files; i++) {
        snprintf(name, sizeof name, "a file of the number %d.lua", i);
        sandbox_load(L, name, "", 0);
    }
    snprintf(text, sizeof text, "error('\\001%d\\001: x')", files);
    sandbox_load(L, "a file of the number 0.lua", text, strlen(text));
    lua_call(L, 0, 0);
    return 0;
}

/* The mark of the file behind the last is a text as any other, however many files there are. */
static void test_marks(void **state)
{
    (void)state;
    for (int files = 1; files <= 40; files++) {
        Arena *keep = arena_open();
        Sandbox s;
        Diag d = {0};

        sandbox_open(&s, "t.lua", "", PATIENCE, keep, &d);
        assert_false(sandbox_call(&s, load_and_mark, &files));
        sandbox_close(&s);
        assert_non_null(strstr(d.text, "a file of the number 0.lua:1: "));
        arena_close(keep);
    }
}

/* What differs from the usual Lua; more of it in tests/spec/good/language.lua. */
static void test_order(void **state)
{
    static const Text texts[] = {
        {"local t = {} for i = 1, 20 do t[i] = {i % 3, i} end table.sort(t, function(a, b) return a[1] < b[1] end)\n"
         "for i = 2, 20 do local a, b = t[i - 1], t[i] assert(a[1] < b[1] or a[1] == b[1] and a[2] < b[2]) end",
         NULL},
        {"for n = 1, 9 do local t = {} for i = 1, n do t[i] = n - i end table.sort(t)\n"
         "for i = 1, n do assert(t[i] == i - 1) end end",
         NULL},
        {"local s = '' for k in pairs({ab = 1, abc = 1, a = 1}) do s = s .. k .. ' ' end assert(s == 'a ab abc ')",
         NULL},
        {"local t, n = {a = 1, b = 2, c = 3}, 0 for k in pairs(t) do n = n + 1 t.b, t.c = nil end assert(n == 1)",
         NULL},
        {"assert(tostring(0 / 0) == 'nan' and tostring(-(0 / 0)) == 'nan')", NULL},
        {"assert(string.format('%s %s', {}, 1) == 'table 1')", NULL},
    };

    (void)state;
    run_all(texts, LEN(texts), PATIENCE);
}

/* A builtin that neither the hook nor the bounds can stop is ended by the watchdog, with the program. */
static int stay_in_c(lua_State *L)
{
    for (volatile bool forever = true; forever;)
        (void)L;
    return 0;
}

static void test_watchdog(void **state)
{
    char text[200] = "";
    int pipes[2], status;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        Arena *keep = arena_open();
        Sandbox s;
        Diag d = {0};

        dup2(pipes[1], STDERR_FILENO);
        sandbox_open(&s, "t.lua", "", 1, keep, &d);
        sandbox_call(&s, stay_in_c, NULL);
        _exit(0);
    }
    close(pipes[1]);
    assert_true(read(pipes[0], text, sizeof text - 1) > 0);
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 2);
    assert_string_equal(text, "ftxc: t.lua: the spec ran for more than 2 s\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time),     cmocka_unit_test(test_memory),        cmocka_unit_test(test_ways_out),
        cmocka_unit_test(test_watchdog), cmocka_unit_test(test_long_messages), cmocka_unit_test(test_order),
        cmocka_unit_test(test_marks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
