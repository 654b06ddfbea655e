/* sandbox.h - a Lua state that runs untrusted text: bounded, without files, the same result every time.
 *
 * Private to compiler/spec. An error leaves a builtin by longjmp, so a builtin that may raise one holds no
 * memory outside of arenas and no open file. */
#ifndef FTXC_SPEC_SANDBOX_H
#define FTXC_SPEC_SANDBOX_H

#include <setjmp.h>
#include <stdint.h>

#include <lauxlib.h>
#include <lua.h>

#include "../../runtime/base/arena.h"
#include "../../runtime/base/diag.h"

/* Bounds. The specs of the tree need 1 MB and 20 ms. */
enum {
    SANDBOX_MEMORY = 256 << 20,      /* bytes in all */
    SANDBOX_BLOCK = 16 << 20,        /* bytes of one string or table, so that no operation takes long */
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
    void *user;          /* for the builtins: their Reader */
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
    double deadline, cpu_deadline; /* in seconds: of the monotonic clock; of this thread on a processor */
    Watchdog *watchdog;
    jmp_buf out; /* taken when the time is over */
} Sandbox;

void sandbox_open(Sandbox *s, const char *subject, const char *folder, int seconds, Arena *keep, Diag *d);
void sandbox_close(Sandbox *s);

/* Calls f with `argument` as a light userdata, in protected mode. False: diag has the reason. */
bool sandbox_call(Sandbox *s, lua_CFunction f, void *argument);

/* Loads a text under the name `file` and leaves its function on the stack, or raises an error. */
void sandbox_load(lua_State *L, const char *file, const char *text, size_t bytes);

static inline Sandbox *sandbox_of(lua_State *L)
{
    return *(Sandbox **)lua_getextraspace(L);
}

/* The innermost line of Lua that runs; raising an error there. */
Loc sandbox_here(lua_State *L);
int sandbox_fail(lua_State *L, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* Raises an error about another place; loc without a line: about a file or a -D as a whole. */
int sandbox_fail_at(lua_State *L, Loc loc, const char *format, ...) __attribute__((noreturn, format(printf, 3, 4)));
/* For builtins with loops: counts so many instructions, and ends the spec if its time is over. */
void sandbox_tick(lua_State *L, int instructions);

/* Makes the table on the top of the stack raise an error for names that it lacks. */
void sandbox_strict(lua_State *L, const char *name);

/* stdlib.c: the part of Lua's library that a spec has. */
void sandbox_library(lua_State *L);
/* Pushes what `tostring` gives: no addresses. */
const char *sandbox_text(lua_State *L, int i);

/* require.c: `require`, and whether a module is there. */
void sandbox_modules(lua_State *L);
bool sandbox_module_exists(lua_State *L, const char *name);
void sandbox_require(lua_State *L, const char *name); /* pushes the module */

#endif
