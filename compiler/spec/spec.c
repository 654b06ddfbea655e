/* spec.c - the room's door: a spec file or a checkout's folder to a Spec.
 *
 * A spec file is run and returns what ftx.model gave it. A checkout is a table that the embedded
 * specs/lib/checkout.lua is called with; it calls ftx.model too. Either way ftx.model fills the
 * Spec (model.c). */
#include "reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../../runtime/base/file.h"
#include "../../runtime/artifact/ftx_format.h"

/* "a/b/c.lua" to "c", "a/b/" to "b", "." to the real name. */
static const char *base_name(Arena *keep, const char *path)
{
    char *real = realpath(path, NULL), *name, *dot;
    const char *last;

    last = real ? strrchr(real, '/') : NULL;
    name = arena_strdup(keep, last && last[1] ? last + 1 : "model");
    free(real);
    dot = strrchr(name, '.');
    if (dot && dot != name && strcmp(dot, ".lua") == 0)
        *dot = 0;
    return name;
}

static void open_builtins(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, "ftx.loaded");
    nn_open(L);
    lua_setfield(L, -2, "nn");
    ftx_open(L);
    lua_setfield(L, -2, "ftx");
    lua_pop(L, 1);
}

static int run_file(lua_State *L)
{
    Reader *r = reader_of(L);

    open_builtins(L);
    sandbox_load(L, r->spec->path, lua_touserdata(L, 1), strlen(lua_touserdata(L, 1)));
    lua_call(L, 0, 1);
    if (!r->finished)
        return sandbox_fail_at(L, (Loc){r->spec->path, 0}, "the spec must return ftx.model { ... }, it returned %s",
                               luaL_typename(L, -1));
    return 0;
}

static int run_checkout(lua_State *L)
{
    open_builtins(L);
    sandbox_require(L, "lib.checkout");
    checkout_push(L, lua_touserdata(L, 1));
    lua_call(L, 1, 0);
    return 0;
}

static bool is_artifact(const FileMap *map)
{
    return map->bytes >= sizeof FTX_MAGIC - 1 && memcmp(map->at, FTX_MAGIC, sizeof FTX_MAGIC - 1) == 0;
}

static bool copy_text(const FileMap *map, Loc loc, Arena *keep, const char **text, Diag *d)
{
    size_t bytes;
    const char *at = file_text(map, &bytes);

    if (is_artifact(map))
        return diag_error(d, loc, "a compiled model; a spec (a Lua file) or a checkout (a folder) is wanted here");
    if (memchr(at, 0, bytes < SANDBOX_TEXT ? bytes : SANDBOX_TEXT))
        return diag_error(d, loc, "the file is no text: it has a byte of value 0");
    if (map->bytes > SANDBOX_TEXT)
        return diag_error(d, loc, "the file is %zu bytes, a spec may have %d", map->bytes, SANDBOX_TEXT);
    *text = arena_strndup(keep, at, bytes);
    return true;
}

static bool read_text(const char *path, Arena *keep, const char **text, Diag *d)
{
    FileMap map;
    FtxError err;
    bool ok;

    if (file_map(path, &map, &err))
        return diag_machine(d, "%s", err.text);
    ok = copy_text(&map, (Loc){path, 0}, keep, text, d);
    file_unmap(&map);
    return ok;
}

/* The text for the artifact names what was changed on the command line. */
static const char *text_with_overrides(const Reader *r, const char *text, Arena *keep)
{
    for (size_t i = r->n_overrides; i-- > 0;)
        text = arena_printf(keep, "-- -D %s\n%s", r->overrides[i].text, text);
    return text;
}

static bool read_one(Reader *r, const char *path, Arena *keep, Diag *d)
{
    Spec *spec = r->spec;
    Checkout checkout = {0};
    const char *slash = strrchr(path, '/'), *text = "";
    bool ok;

    if (spec->checkout) {
        const char *at = path[strlen(path) - 1] == '/' ? path : arena_printf(keep, "%s/", path);

        ok = checkout_read(at, keep, &checkout, d);
        if (ok) {
            sandbox_open(&r->box, checkout.config_path, at, SANDBOX_SECONDS, keep, d);
            r->box.user = r;
            text = checkout.text;
            ok = sandbox_call(&r->box, run_checkout, &checkout);
        }
        checkout_drop(&checkout);
    } else {
        ok = read_text(path, keep, &text, d);
        if (ok) {
            const char *at = slash ? arena_strndup(keep, path, (size_t)(slash - path) + 1) : "";

            sandbox_open(&r->box, path, at, SANDBOX_SECONDS, keep, d);
            r->box.user = r;
            ok = sandbox_call(&r->box, run_file, (void *)(uintptr_t)text);
        }
    }
    spec->text = text_with_overrides(r, text, keep);
    sandbox_close(&r->box);
    return ok;
}

bool spec_read(const char *path, const Override *overrides, size_t n, Arena *keep, Spec *spec, Diag *d)
{
    Reader r = {.spec = spec, .overrides = overrides, .n_overrides = n};
    struct stat st;

    *spec = (Spec){.bos = -1, .start = -1, .pad = -1};
    if (!path[0] || stat(path, &st))
        return diag_machine(d, "%s%sno spec there: %s", path, path[0] ? ": " : "", strerror(path[0] ? errno : ENOENT));
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) /* reading a pipe would wait */
        return diag_error(d, (Loc){path, 0}, "neither a file nor a folder");
    spec->path = arena_strdup(keep, path);
    spec->checkout = S_ISDIR(st.st_mode);
    spec->name = base_name(keep, path);
    r.graph = ir_graph_new(spec->name);
    if (!read_one(&r, spec->path, keep, d)) {
        ir_graph_close(r.graph);
        spec->graph = NULL;
        return false;
    }
    spec->graph = r.graph;
    return true;
}
