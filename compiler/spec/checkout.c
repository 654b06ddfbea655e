/* checkout.c - a Hugging Face folder: its JSON files, and which file holds the weights.
 *
 * What the fields mean stands in Lua (specs/lib/checkout.lua, specs/hf/): here they only become a
 * table. */
#include "reader.h"

#include <string.h>

#include "../../runtime/base/file.h"

enum { MAX_JSON = 16 << 20 };

static bool read_json(const char *path, Arena *keep, json_t **out, const char **text, Diag *d)
{
    FileMap map;
    FtxError err;
    json_error_t why;

    if (file_map(path, &map, &err))
        return diag_error(d, (Loc){0}, "%s", err.text);
    if (map.bytes > MAX_JSON) {
        file_unmap(&map);
        return diag_error(d, (Loc){path, 0}, "the file is %zu bytes, %d are allowed", map.bytes, MAX_JSON);
    }
    *text = arena_strndup(keep, map.at ? map.at : "", map.bytes);
    *out = json_loadb(map.at ? map.at : "", map.bytes, JSON_REJECT_DUPLICATES, &why);
    file_unmap(&map);
    if (!*out)
        return diag_error(d, (Loc){path, why.line > 0 ? why.line : 1}, "%s", why.text);
    if (!json_is_object(*out))
        return diag_error(d, (Loc){path, 1}, "an object was expected: {...}");
    return true;
}

bool checkout_read(const char *folder, Arena *keep, Checkout *c, Diag *d)
{
    const char *config = "", *generation = NULL;

    *c = (Checkout){.folder = folder,
                    .config_path = arena_printf(keep, "%sconfig.json", folder),
                    .generation_path = arena_printf(keep, "%sgeneration_config.json", folder)};
    if (!file_exists(c->config_path))
        return diag_error(d, (Loc){folder, 0}, "neither a spec (a Lua file) nor a checkout: it has no config.json");
    if (!read_json(c->config_path, keep, &c->config, &config, d))
        return false;
    if (file_exists(c->generation_path) && !read_json(c->generation_path, keep, &c->generation, &generation, d))
        return false;
    c->text = generation ? arena_printf(keep, "%s\n%s", config, generation) : config;
    return true;
}

void checkout_drop(Checkout *c)
{
    json_decref(c->config);
    json_decref(c->generation);
    *c = (Checkout){0};
}

static void push_json(lua_State *L, const json_t *j)
{
    const char *key;
    json_t *child;

    luaL_checkstack(L, 4, "JSON is too deep");
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        lua_createtable(L, 0, (int)json_object_size(j));
        json_object_foreach((json_t *)(uintptr_t)j, key, child)
        {
            push_json(L, child);
            lua_setfield(L, -2, key);
        }
        break;
    case JSON_ARRAY:
        lua_createtable(L, (int)json_array_size(j), 0);
        for (size_t i = 0; i < json_array_size(j); i++) {
            push_json(L, json_array_get(j, i));
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        break;
    case JSON_STRING: lua_pushlstring(L, json_string_value(j), json_string_length(j)); break;
    case JSON_INTEGER: lua_pushinteger(L, json_integer_value(j)); break;
    case JSON_REAL: lua_pushnumber(L, json_real_value(j)); break;
    case JSON_TRUE:
    case JSON_FALSE: lua_pushboolean(L, json_is_true(j)); break;
    case JSON_NULL:
        lua_pushlightuserdata(L, NULL); /* lib/hf.lua knows it */
        break;
    }
}

const char *checkpoint_path(Arena *keep, const char *path)
{
    const char *slash = path[0] && path[strlen(path) - 1] == '/' ? "" : "/";
    const char *one = arena_printf(keep, "%s%smodel.safetensors", path, slash);
    const char *index = arena_printf(keep, "%s.index.json", one);

    return file_exists(one) ? one : file_exists(index) ? index : path;
}

static void set_text(lua_State *L, const char *name, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

/* { path, name, config_path, config, generation_path, generation, weights, tokenizer, pickled } */
void checkout_push(lua_State *L, const Checkout *c)
{
    Arena *keep = sandbox_of(L)->keep;
    const char *weights = checkpoint_path(keep, c->folder);
    const char *const tokenizers[] = {"tokenizer.json", "source.spm"}; /* the latter is Marian's, for both sides */

    lua_newtable(L);
    set_text(L, "path", c->folder);
    set_text(L, "name", reader_of(L)->spec->name);
    set_text(L, "config_path", c->config_path);
    push_json(L, c->config);
    lua_setfield(L, -2, "config");
    if (c->generation) {
        set_text(L, "generation_path", c->generation_path);
        push_json(L, c->generation);
        lua_setfield(L, -2, "generation");
    }
    if (weights != c->folder)
        set_text(L, "weights", weights + strlen(c->folder));
    for (size_t i = LEN(tokenizers); i-- > 0;)
        if (file_exists(arena_printf(keep, "%s%s", c->folder, tokenizers[i])))
            set_text(L, "tokenizer", tokenizers[i]);
    lua_pushboolean(L, file_exists(arena_printf(keep, "%spytorch_model.bin", c->folder)) ||
                           file_exists(arena_printf(keep, "%spytorch_model.bin.index.json", c->folder)));
    lua_setfield(L, -2, "pickled");
}
