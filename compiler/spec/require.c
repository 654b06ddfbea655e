/* require.c - `require`: builtin modules, then files beside the spec, then those inside ftxc.
 *
 * `require "lib.config"` and `require "lib/config"` are the same. A name cannot lead out of the folder. */
#include "sandbox.h"

#include <string.h>

#include "../../runtime/base/file.h"
#include "../embed.h"

static const char LOADED[] = "ftx.loaded"; /* in the registry: a table from names to modules; false while one loads */

/* "lib.config" to "lib/config"; NULL: not a name, or one with "..". */
static const char *module_path(Arena *a, const char *name)
{
    char *path = arena_strdup(a, name);

    if (!name[0] || strlen(name) > 100 || name[0] == '/' || name[0] == '.' || strstr(name, "..") ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")])
        return NULL;
    for (char *p = path; *p; p++)
        if (*p == '.')
            *p = '/';
    return path;
}

static const EmbeddedFile *embedded_module(Arena *a, const char *path)
{
    const char *name = arena_printf(a, "specs/%s.lua", path);

    for (size_t i = 0; i < embedded_count; i++)
        if (strcmp(embedded_files[i].name, name) == 0)
            return &embedded_files[i];
    return NULL;
}

bool sandbox_module_exists(lua_State *L, const char *name)
{
    const Sandbox *s = sandbox_of(L);
    const char *path = module_path(s->keep, name);

    return path && (file_exists(arena_printf(s->keep, "%s%s.lua", s->folder, path)) || embedded_module(s->keep, path));
}

/* Leaves the module's function on the stack. */
static void load_module(lua_State *L, const char *name)
{
    Sandbox *s = sandbox_of(L);
    const char *path = module_path(s->keep, name);
    const char *file = path ? arena_printf(s->keep, "%s%s.lua", s->folder, path) : NULL;
    const EmbeddedFile *e;

    if (!path)
        sandbox_fail(L,
                     "require: '%.100s' is not the name of a module: letters, digits, '_', '-', and '.' or '/' between "
                     "folders",
                     name);
    if (file_exists(file)) {
        FileMap map;
        FtxError err;
        const char *text;
        size_t bytes;

        if (file_map(file, &map, &err))
            sandbox_fail(L, "require: %s", err.text);
        if (map.bytes > SANDBOX_TEXT) {
            file_unmap(&map);
            sandbox_fail(L, "require: %s is larger than %d bytes", file, SANDBOX_TEXT);
        }
        text = file_text(&map, &bytes);
        text = arena_strndup(s->keep, text, bytes);
        file_unmap(&map);
        sandbox_load(L, file, text, strlen(text));
        return;
    }
    e = embedded_module(s->keep, path);
    if (!e)
        sandbox_fail(L, "require: there is no module '%s': no file %s, and ftxc has no specs/%s.lua", name, file, path);
    sandbox_load(L, e->name, e->text, strlen(e->text));
}

void sandbox_require(lua_State *L, const char *name)
{
    lua_getfield(L, LUA_REGISTRYINDEX, LOADED);
    if (lua_getfield(L, -1, name) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, name);
        load_module(L, name);
        lua_call(L, 0, 1);
        if (lua_isnil(L, -1))
            sandbox_fail(L, "require: module '%s' returns nothing", name);
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, name);
    }
    if (lua_isboolean(L, -1) && !lua_toboolean(L, -1))
        sandbox_fail(L, "require: module '%s' requires itself", name);
    lua_remove(L, -2);
}

static int require(lua_State *L)
{
    if (lua_type(L, 1) != LUA_TSTRING)
        return sandbox_fail(L, "require: the name is a %s, it must be a text", luaL_typename(L, 1));
    sandbox_require(L, lua_tostring(L, 1));
    return 1;
}

void sandbox_modules(lua_State *L)
{
    lua_newtable(L);
    lua_setfield(L, LUA_REGISTRYINDEX, LOADED);
    lua_pushcfunction(L, require);
    lua_setglobal(L, "require");
}
