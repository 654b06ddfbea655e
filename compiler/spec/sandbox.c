/* sandbox.c - the bounded Lua state: memory, instructions, time, and how errors leave it.
 *
 * The allocator counts bytes and refuses a single block above 16 MB. So no instruction and no builtin takes
 * more than a few milliseconds, and a hook that reads the clock every hundred instructions is enough. A watchdog
 * thread ends the program if a builtin runs on all the same. Both read the wall clock first, because that is
 * quick, and then the time that the thread had on a processor, so that a busy machine ends no spec. Garbage is
 * not collected: a spec makes little of it, and the collector's work depends on addresses.
 *
 * Chunk names are "@\1N\1", where N is a number in `files`, because Lua shortens names to 60 characters. The
 * message handler puts the whole names in. */
#include "sandbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HOOK_EVERY = 100, MARK = '\1' };

static double seconds_on(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- memory ----------------------------------------------------------------------------------- */

struct SandboxBlock {
    SandboxBlock *next, *before;
    size_t bytes;
    size_t pad; /* what follows is aligned to 16 */
};

static void unlink_block(Sandbox *s, SandboxBlock *b)
{
    if (b->before)
        b->before->next = b->next;
    else
        s->blocks = b->next;
    if (b->next)
        b->next->before = b->before;
}

static void link_block(Sandbox *s, SandboxBlock *b)
{
    b->before = NULL;
    b->next = s->blocks;
    if (b->next)
        b->next->before = b;
    s->blocks = b;
}

static void *allocate(void *user, void *p, size_t old, size_t bytes)
{
    Sandbox *s = user;
    SandboxBlock *b = p ? (SandboxBlock *)p - 1 : NULL, *now;

    old = b ? b->bytes : 0; /* for a new block Lua passes its kind in `old` */
    if (bytes == 0) {
        if (b) {
            s->used_bytes -= old;
            unlink_block(s, b);
            free(b);
        }
        return NULL;
    }
    if (bytes > old && (bytes > SANDBOX_BLOCK || s->used_bytes - old + bytes > SANDBOX_MEMORY)) {
        const Loc here = s->lua ? sandbox_here(s->lua) : (Loc){0};

        if (here.file) /* none while Lua unwinds after an earlier refusal */
            s->refused = here;
        return NULL;
    }
    if (b)
        unlink_block(s, b);
    now = realloc(b, sizeof *b + bytes);
    if (!now)
        die("no memory");
    s->used_bytes += bytes - old;
    now->bytes = bytes;
    link_block(s, now);
    return now + 1;
}

/* --- time ------------------------------------------------------------------------------------- */

struct Watchdog {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t done;
    bool over;
    clockid_t clock; /* of the thread that is watched */
    double deadline; /* on it */
    char text[600];
};

static void *watch(void *user)
{
    Watchdog *w = user;
    struct timespec until;
    double left;

    pthread_mutex_lock(&w->mutex);
    while (!w->over) {
        left = w->deadline - seconds_on(w->clock);
        if (left <= 0) {
            if (write(STDERR_FILENO, w->text, strlen(w->text)) < 0)
                _exit(3);
            _exit(2);
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += (time_t)left + 1;
        pthread_cond_timedwait(&w->done, &w->mutex, &until);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static void watchdog_start(Sandbox *s)
{
    Watchdog *w = calloc(1, sizeof *w);
    pthread_condattr_t clock;

    if (!w)
        die("no memory");
    pthread_getcpuclockid(pthread_self(), &w->clock);
    w->deadline = seconds_on(w->clock) + 2 * s->seconds;
    snprintf(w->text, sizeof w->text, "ftxc: %.500s: the spec ran for more than %d s\n", s->subject, 2 * s->seconds);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->done, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&w->thread, NULL, watch, w)) {
        pthread_cond_destroy(&w->done);
        pthread_mutex_destroy(&w->mutex);
        free(w);
        diag_error(s->diag, (Loc){s->subject, 0}, "no thread could be started to watch the time that the spec takes");
        return;
    }
    s->watchdog = w;
}

static void watchdog_stop(Watchdog *w)
{
    pthread_mutex_lock(&w->mutex);
    w->over = true;
    pthread_cond_signal(&w->done);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

/* Leaves by longjmp and not by a Lua error, so that no handler of the spec (`local x <close>`) runs on. */
void sandbox_tick(lua_State *L, int instructions)
{
    Sandbox *s = sandbox_of(L);

    s->instructions += instructions;
    if (s->instructions > SANDBOX_INSTRUCTIONS)
        diag_error(s->diag, sandbox_here(L), "the spec still runs after %d million instructions: is this loop endless?",
                   SANDBOX_INSTRUCTIONS / 1000000);
    else if (seconds_on(CLOCK_MONOTONIC) > s->deadline && seconds_on(CLOCK_THREAD_CPUTIME_ID) > s->cpu_deadline)
        diag_error(s->diag, sandbox_here(L), "the spec still runs after %d s: is this loop endless?", s->seconds);
    else
        return;
    longjmp(s->out, 1);
}

static void on_count(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    sandbox_tick(L, HOOK_EVERY);
}

/* --- places and messages ------------------------------------------------------------------------ */

/* The number of a file in the list; it is added when new. */
static size_t file_number(Sandbox *s, const char *file)
{
    size_t i = 0;

    while (i < s->files.n && strcmp(s->files.at[i], file) != 0)
        i++;
    if (i == s->files.n)
        *arena_push(s->keep, s->files) = arena_strdup(s->keep, file);
    return i;
}

/* "\1N\1" to the file's name, and where it ends; NULL for anything else. */
static const char *marked_file(const Sandbox *s, const char *text, const char **end)
{
    char *stop;
    unsigned long i;

    if (text[0] != MARK)
        return NULL;
    i = strtoul(text + 1, &stop, 10);
    if (*stop != MARK || i >= s->files.n)
        return NULL;
    *end = stop + 1;
    return s->files.at[i];
}

/* The file and line of the function at a level of the stack; no file: a C function. */
static Loc place(lua_State *L, lua_Debug *ar)
{
    const char *file, *end;

    lua_getinfo(L, "Sl", ar);
    file = ar->source[0] == '@' ? marked_file(sandbox_of(L), ar->source + 1, &end) : NULL;
    return file && ar->currentline > 0 ? (Loc){file, ar->currentline} : (Loc){0};
}

Loc sandbox_here(lua_State *L)
{
    lua_Debug ar;
    Loc loc = {0};

    for (int level = 0; !loc.file && lua_getstack(L, level, &ar); level++)
        loc = place(L, &ar);
    return loc;
}

/* The outermost line. Lua counts levels from the innermost and walks to each, so visiting every level of a deep
 * recursion would take quadratic time. */
static Loc sandbox_start(lua_State *L)
{
    lua_Debug ar;
    Loc loc = {0};
    int low = 0, high = 1;

    while (lua_getstack(L, high, &ar))
        low = high, high *= 2;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;

        if (lua_getstack(L, middle, &ar))
            low = middle;
        else
            high = middle;
    }
    for (; !loc.file && low >= 0 && lua_getstack(L, low, &ar); low--)
        loc = place(L, &ar);
    return loc;
}

/* Pushes "\1N\1:line: text". */
static void push_marked(lua_State *L, Loc loc, const char *text)
{
    const int file = (int)file_number(sandbox_of(L), loc.file);

    if (loc.line)
        lua_pushfstring(L, "%c%d%c:%d: %s", MARK, file, MARK, loc.line, text);
    else
        lua_pushfstring(L, "%c%d%c: %s", MARK, file, MARK, text);
}

int sandbox_fail(lua_State *L, const char *format, ...)
{
    char text[1600];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    lua_pushstring(L, text); /* on_error adds the place */
    lua_error(L);
    abort(); /* it has not returned */
}

int sandbox_fail_at(lua_State *L, Loc loc, const char *format, ...)
{
    char text[1600];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    push_marked(L, loc, text);
    lua_error(L);
    abort(); /* it has not returned */
}

/* Copies text to `out` with the whole file names in place of "\1N\1". */
static void unmark(const Sandbox *s, const char *text, char *out, size_t room)
{
    size_t n = 0;

    while (*text && n + 1 < room) {
        const char *end, *file = marked_file(s, text, &end);

        if (file) {
            const int wrote = snprintf(out + n, room - n, "%s", file);

            n = wrote < 0 || (size_t)wrote >= room - n ? room - 1 : n + (size_t)wrote;
            text = end;
        } else {
            out[n++] = *text++;
        }
    }
    out[n] = 0;
}

/* The message handler of every call. Adds the place to a message that has none, and to a message about another
 * file the line of the user's file that led there. */
static int on_error(lua_State *L)
{
    Sandbox *s = sandbox_of(L);
    const Loc here = sandbox_here(L), from = sandbox_start(L);
    const char *end, *file;

    if (lua_type(L, 1) != LUA_TSTRING) {
        const char *what = lua_typename(L, lua_type(L, 1));

        lua_pushfstring(L, "error() was given a %s, it takes a text", what);
        lua_replace(L, 1);
    }
    if (!marked_file(s, lua_tostring(L, 1), &end)) {
        const char *of = here.file ? here.file : s->subject;

        push_marked(L, (Loc){of, here.line}, lua_tostring(L, 1));
        lua_replace(L, 1);
    }
    lua_settop(L, 1);
    file = marked_file(s, lua_tostring(L, 1), &end);
    if (strcmp(file, s->subject) == 0 || file[0] == '-')
        return 1;
    if (from.file && strcmp(from.file, s->subject) == 0)
        lua_pushfstring(L, " (from %s:%d)", from.file, from.line);
    else if (strncmp(file, s->folder, strlen(s->folder)) != 0)
        lua_pushfstring(L, " (reading %s)", s->subject);
    else
        return 1;
    lua_concat(L, 2);
    return 1;
}

/* --- the state ---------------------------------------------------------------------------------- */

void sandbox_load(lua_State *L, const char *file, const char *text, size_t bytes)
{
    char name[32];

    snprintf(name, sizeof name, "@%c%zu%c", MARK, file_number(sandbox_of(L), file), MARK);
    if (luaL_loadbufferx(L, text, bytes, name, "t") != LUA_OK)
        lua_error(L);
}

static int missing_name(lua_State *L)
{
    static const char *const absent[] = {
        "io",     "os",        "debug",   "load",  "loadstring", "loadfile",   "dofile", "next", "pcall",
        "xpcall", "coroutine", "package", "print", "warn",       "utf8",       "_G",     "_ENV", "collectgarbage",
        "find",   "match",     "gmatch",  "gsub",  "random",     "randomseed", "dump",   "pack", "unpack"};
    const char *of = lua_tostring(L, lua_upvalueindex(1));
    const char *name = sandbox_text(L, 2);
    const char *dot = of[0] ? "." : "";

    for (size_t i = 0; i < LEN(absent); i++)
        if (strcmp(name, absent[i]) == 0)
            return sandbox_fail(L,
                                "%s%s%s is not there: a spec runs without files, clock, randomness, text "
                                "patterns and loaded code",
                                of, dot, name);
    return sandbox_fail(L, of[0] ? "%s has no '%s'" : "%s'%s' is not defined here", of, name);
}

static int refuse_global(lua_State *L)
{
    return sandbox_fail(L, "'%s' would be a global: say `local %s`", sandbox_text(L, 2), sandbox_text(L, 2));
}

void sandbox_strict(lua_State *L, const char *name)
{
    lua_createtable(L, 0, 3);
    lua_pushstring(L, name);
    lua_pushcclosure(L, missing_name, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, refuse_global);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
}

static int furnish(lua_State *L)
{
    sandbox_library(L);
    sandbox_modules(L);
    lua_pushglobaltable(L);
    sandbox_strict(L, "");
    return 0;
}

void sandbox_open(Sandbox *s, const char *subject, const char *folder, int seconds, Arena *keep, Diag *d)
{
    lua_State *L;

    *s = (Sandbox){.subject = subject,
                   .folder = folder,
                   .keep = keep,
                   .diag = d,
                   .seconds = seconds,
                   .deadline = seconds_on(CLOCK_MONOTONIC) + seconds,
                   .cpu_deadline = seconds_on(CLOCK_THREAD_CPUTIME_ID) + seconds};
    L = lua_newstate(allocate, s);
    if (!L)
        die("no memory");
    *(Sandbox **)lua_getextraspace(L) = s;
    s->lua = L;
    lua_gc(L, LUA_GCSTOP);
    if (!sandbox_call(s, furnish, NULL))
        die("%s", d->text);
    watchdog_start(s);
    lua_sethook(L, on_count, LUA_MASKCOUNT, HOOK_EVERY);
}

/* Frees the blocks instead of calling lua_close: after a longjmp the Lua state is not consistent. */
void sandbox_close(Sandbox *s)
{
    if (s->watchdog)
        watchdog_stop(s->watchdog);
    for (SandboxBlock *b = s->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *s = (Sandbox){0};
}

bool sandbox_call(Sandbox *s, lua_CFunction f, void *argument)
{
    lua_State *L = s->lua;
    char text[sizeof s->diag->text];
    int status;

    if (s->diag->failed) /* the watchdog did not start */
        return false;
    if (setjmp(s->out)) /* sandbox_tick has set the reason */
        return false;
    lua_pushcfunction(L, on_error);
    lua_pushcfunction(L, f);
    lua_pushlightuserdata(L, argument);
    status = lua_pcall(L, 1, 0, -3);
    if (status == LUA_OK) {
        lua_pop(L, 1);
        return true;
    }
    if (status == LUA_ERRMEM)
        return diag_error(s->diag, s->refused.file ? s->refused : (Loc){s->subject, 0},
                          "the spec wants more memory than it may have: %d MB, and %d MB for one text or table",
                          SANDBOX_MEMORY >> 20, SANDBOX_BLOCK >> 20);
    unmark(s, lua_tostring(L, -1), text, sizeof text); /* on_error leaves a text, and so does Lua where that fails */
    return diag_error(s->diag, (Loc){0}, "%s", text);
}
