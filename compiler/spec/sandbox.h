/* sandbox.h - one Lua state that runs a stranger's text: bounded, without files, always the same.
 *
 * Behind the door of compiler/spec. A builtin that raises holds nothing but memory of arenas:
 * an error leaves by longjmp. */
#ifndef FTXC_SPEC_SANDBOX_H
#define FTXC_SPEC_SANDBOX_H

#include <setjmp.h>
#include <stdint.h>

#include <lauxlib.h>
#include <lua.h>

#include "../../runtime/base/arena.h"
#include "../../runtime/base/diag.h"

/* What a spec may take. A real one needs 1 MB and 20 ms. */
enum {
    SANDBOX_MEMORY = 256 << 20,      /* bytes in all */
    SANDBOX_BLOCK = 16 << 20,        /* bytes of one string or table: so no operation takes long */
    SANDBOX_TEXT = 1 << 20,          /* bytes of one Lua file */
    SANDBOX_INSTRUCTIONS = 50000000, /* of the virtual machine: less than 1 s */
    SANDBOX_SECONDS = 5,             /* wall clock; after twice as long the watchdog ends the program */
};

typedef struct SandboxBlock SandboxBlock;
typedef struct Watchdog Watchdog;

typedef struct Sandbox {
    lua_State *lua;
    Arena *keep;
    Diag *diag;
    void *user;          /* whose builtins run in here */
    const char *folder;  /* modules are looked for here first */
    const char *subject; /* the file the user gave; a message about another file names it too */
    struct {
        const char **at;
        size_t n, cap;
    } files; /* chunk names are numbers in this list */

    SandboxBlock *blocks;
    size_t used_bytes;
    Loc refused; /* where memory was refused last */
    int64_t instructions;
    int seconds;                   /* allowed */
    double deadline, cpu_deadline; /* in seconds: on the wall, monotonic; of this thread on a processor */
    Watchdog *watchdog;
    jmp_buf out; /* time is up: leaves Lua for good */
} Sandbox;

void sandbox_open(Sandbox *s, const char *subject, const char *folder, int seconds, Arena *keep, Diag *d);
void sandbox_close(Sandbox *s);

/* Calls f with `argument` as its light userdata, protected. False: diag has the reason. */
bool sandbox_call(Sandbox *s, lua_CFunction f, void *argument);

/* Loads a text that says it is `file` and leaves its function on the stack, or raises. */
void sandbox_load(lua_State *L, const char *file, const char *text, size_t bytes);

static inline Sandbox *sandbox_of(lua_State *L)
{
    return *(Sandbox **)lua_getextraspace(L);
}

/* The innermost line of Lua that runs, and raising an error there. */
Loc sandbox_here(lua_State *L);
int sandbox_fail(lua_State *L, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* Raises an error that is about another place, or, without a line, about a file or a -D. */
int sandbox_fail_at(lua_State *L, Loc loc, const char *format, ...) __attribute__((noreturn, format(printf, 3, 4)));
/* For builtins that loop: counts instructions, and ends the spec if its time is over. */
void sandbox_tick(lua_State *L, int instructions);

/* The table on the top raises for names that it lacks. */
void sandbox_strict(lua_State *L, const char *name);

/* stdlib.c: what remains of Lua's library, and what replaces the rest. */
void sandbox_library(lua_State *L);
/* Pushes what `tostring` gives: no addresses. */
const char *sandbox_text(lua_State *L, int i);

/* require.c: `require`, and whether a module is there. */
void sandbox_modules(lua_State *L);
bool sandbox_module_exists(lua_State *L, const char *name);
void sandbox_require(lua_State *L, const char *name); /* pushes the module */

#endif
