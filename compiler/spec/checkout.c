/* checkout.c - a Hugging Face folder: its JSON files, and which file holds the weights.
 *
 * Here the files only become a Lua table; specs/lib/checkout.lua and specs/hf/ know what the fields mean. */
#include "reader.h"

#include <string.h>

#include "../../runtime/base/file.h"

enum { MAX_JSON = 16 << 20 };

/* Python writes Infinity, which is no JSON: outside of quotes a double near the largest takes its place. */
static void make_finite(char *json, size_t bytes)
{
    bool quoted = false;

    for (size_t i = 0; i < bytes; i++) {
        if (json[i] == '\\')
            i++;
        else if (json[i] == '"')
            quoted = !quoted;
        else if (!quoted && bytes - i >= strlen("Infinity") && memcmp(json + i, "Infinity", strlen("Infinity")) == 0)
            memcpy(json + i, "1.79e308", strlen("Infinity"));
    }
}

static bool read_json(const char *path, json_type type, Arena *keep, json_t **out, const char **text, Diag *d)
{
    FileMap map;
    FtxError err;
    json_error_t why;
    size_t bytes;
    char *json;

    if (file_map(path, &map, &err))
        return diag_error(d, (Loc){0}, "%s", err.text);
    if (map.bytes > MAX_JSON) {
        bytes = map.bytes;
        file_unmap(&map);
        return diag_error(d, (Loc){path, 0}, "the file is %zu bytes, %d are allowed", bytes, MAX_JSON);
    }
    *text = file_text(&map, &bytes);
    json = arena_strndup(keep, *text, bytes);
    *text = arena_strndup(keep, *text, bytes);
    file_unmap(&map);
    make_finite(json, bytes);
    *out = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!*out)
        return diag_error(d, (Loc){path, why.line > 0 ? why.line : 1}, "%s", why.text);
    if (json_typeof(*out) != type)
        return diag_error(d, (Loc){path, 1}, "%s",
                          type == JSON_OBJECT ? "an object was expected: {...}" : "a list was expected: [...]");
    return true;
}

static bool ends_with(const char *s, const char *end)
{
    return s && strlen(s) >= strlen(end) && strcmp(s + strlen(s) - strlen(end), end) == 0;
}

/* Appends { folder, path, config } of a linear layer of sentence-transformers. */
static bool read_dense(Checkout *c, const char *folder, Arena *keep, Diag *d)
{
    const char *path = arena_printf(keep, "%s%s/config.json", c->folder, folder), *text;
    json_t *config;

    if (!read_json(path, JSON_OBJECT, keep, &config, &text, d))
        return false;
    if (!c->dense)
        c->dense = json_array();
    json_array_append_new(c->dense, json_pack("{ss,ss,so}", "folder", folder, "path", path, "config", config));
    return true;
}

/* The files of sentence-transformers: the steps that make one vector of a text, and the settings of those that pool and
 * of linear layers. */
static bool read_modules(Checkout *c, Arena *keep, Diag *d)
{
    const char *text, *path = arena_printf(keep, "%smodules.json", c->folder), *folder, *type;
    const json_t *module;
    size_t i;

    if (!file_exists(path))
        return true;
    if (!read_json(path, JSON_ARRAY, keep, &c->modules, &text, d))
        return false;
    c->modules_path = path;
    json_array_foreach(c->modules, i, module)
    {
        type = json_string_value(json_object_get(module, "type"));
        folder = json_string_value(json_object_get(module, "path"));
        if (!ends_with(type, ".Dense") && (c->pooling || !ends_with(type, ".Pooling")))
            continue;
        if (!folder || !*folder || strchr(folder, '/') || folder[0] == '.')
            return diag_error(d, (Loc){path, 0}, "the path of module %zu is not the name of a folder", i);
        if (ends_with(type, ".Dense")) {
            if (!read_dense(c, folder, keep, d))
                return false;
            continue;
        }
        c->pooling_path = arena_printf(keep, "%s%s/config.json", c->folder, folder);
        if (!read_json(c->pooling_path, JSON_OBJECT, keep, &c->pooling, &text, d))
            return false;
    }
    return true;
}

/* The names of the tensors, for architectures that come with and without some: the header of a safetensors file,
 * or the index's map. NULL where the file is not right: compiler/weights says so when the weights are read. */
static bool read_names(const char *weights, json_t **names, Diag *d)
{
    const bool index = strcmp(weights + strlen(weights) - 5, ".json") == 0;
    json_t *root = NULL;
    uint64_t n = 0;
    FtxError err;
    FileMap map;

    if (file_map(weights, &map, &err))
        return diag_machine(d, "%s", err.text);
    for (int i = 7; i >= 0 && map.bytes > 8; i--)
        n = n << 8 | ((const unsigned char *)map.at)[i];
    if (index && map.bytes <= MAX_JSON)
        root = json_loadb(map.at, map.bytes, 0, NULL);
    else if (!index && map.bytes > 8 && n <= map.bytes - 8 && n <= MAX_JSON)
        root = json_loadb((const char *)map.at + 8, (size_t)n, 0, NULL);
    file_unmap(&map);
    *names = index ? json_incref(json_object_get(root, "weight_map")) : json_incref(root);
    json_decref(root);
    return true;
}

/* An adapter has no model of its own. */
static bool refuse_adapter(const char *folder, Arena *keep, Diag *d)
{
    const char *path = arena_printf(keep, "%sadapter_config.json", folder), *text, *base;
    json_t *adapter;

    if (!file_exists(path))
        return true;
    if (!read_json(path, JSON_OBJECT, keep, &adapter, &text, d))
        return false;
    base = json_string_value(json_object_get(adapter, "base_model_name_or_path"));
    base = base ? arena_printf(keep, " of %.200s", base) : "";
    json_decref(adapter);
    return diag_error(d, (Loc){folder, 0},
                      "an adapter%s, not a model; compile its model with the adapter: ftxc compile DIR --lora %s", base,
                      folder);
}

bool checkout_read(const char *folder, Arena *keep, Checkout *c, Diag *d)
{
    const char *weights = checkpoint_path(keep, folder);
    const char *config = "", *generation = NULL;

    *c = (Checkout){.folder = folder,
                    .config_path = arena_printf(keep, "%sconfig.json", folder),
                    .generation_path = arena_printf(keep, "%sgeneration_config.json", folder)};
    if (!file_exists(c->config_path) && !refuse_adapter(folder, keep, d))
        return false;
    if (!file_exists(c->config_path))
        return diag_error(d, (Loc){folder, 0}, "neither a spec (a Lua file) nor a checkout: it has no config.json");
    if (!read_json(c->config_path, JSON_OBJECT, keep, &c->config, &config, d))
        return false;
    if (file_exists(c->generation_path) &&
        !read_json(c->generation_path, JSON_OBJECT, keep, &c->generation, &generation, d))
        return false;
    if (!read_modules(c, keep, d))
        return false;
    if (weights != folder && !read_names(weights, &c->tensors, d))
        return false;
    c->text = generation ? arena_printf(keep, "%s\n%s", config, generation) : config;
    return true;
}

void checkout_drop(Checkout *c)
{
    json_decref(c->config);
    json_decref(c->generation);
    json_decref(c->modules);
    json_decref(c->pooling);
    json_decref(c->dense);
    json_decref(c->tensors);
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
        lua_pushlightuserdata(L, NULL); /* lib/hf.lua reads it as a missing field */
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

/* NAME and NAME_path, where there is such a file. */
static void set_file(lua_State *L, const char *name, const char *path, const json_t *j)
{
    if (!j)
        return;
    set_text(L, arena_printf(sandbox_of(L)->keep, "%s_path", name), path);
    push_json(L, j);
    lua_setfield(L, -2, name);
}

/* The names as a list; false where they are not known. */
static void push_names(lua_State *L, json_t *names)
{
    const char *name;
    lua_Integer n = 0;
    json_t *v;

    if (!json_is_object(names)) {
        lua_pushboolean(L, 0);
        return;
    }
    lua_newtable(L);
    json_object_foreach(names, name, v)
    {
        lua_pushstring(L, name);
        lua_rawseti(L, -2, ++n);
    }
}

/* { path, name, config_path, config, generation_path, generation, modules_path, modules, pooling_path, pooling,
 *   dense, weights, tensors, tokenizer, pickled } */
void checkout_push(lua_State *L, const Checkout *c)
{
    Arena *keep = sandbox_of(L)->keep;
    const char *weights = checkpoint_path(keep, c->folder);
    /* source.spm: Marian's, with vocab.json for both languages; ice_text.model: ChatGLM-6B's */
    const char *const tokenizers[] = {"tokenizer.json", "tekken.json", "source.spm", "tokenizer.model",
                                      "ice_text.model"};

    lua_newtable(L);
    set_text(L, "path", c->folder);
    set_text(L, "name", reader_of(L)->spec->name);
    set_file(L, "config", c->config_path, c->config);
    set_file(L, "generation", c->generation_path, c->generation);
    set_file(L, "modules", c->modules_path, c->modules);
    set_file(L, "pooling", c->pooling_path, c->pooling);
    if (c->dense)
        push_json(L, c->dense), lua_setfield(L, -2, "dense");
    if (weights != c->folder)
        set_text(L, "weights", weights + strlen(c->folder));
    push_names(L, c->tensors);
    lua_setfield(L, -2, "tensors");
    for (size_t i = LEN(tokenizers); i-- > 0;)
        if (file_exists(arena_printf(keep, "%s%s", c->folder, tokenizers[i])))
            set_text(L, "tokenizer", tokenizers[i]);
    lua_pushboolean(L, file_exists(arena_printf(keep, "%spytorch_model.bin", c->folder)) ||
                           file_exists(arena_printf(keep, "%spytorch_model.bin.index.json", c->folder)));
    lua_setfield(L, -2, "pickled");
}

const char *checkout_without_tokenizer(const char *folder, Arena *keep)
{
    static const char *const others[] = {"vocab.txt",    "vocab.json",     "merges.txt",
                                         "spiece.model", "target.spm",     "sentencepiece.bpe.model",
                                         "vocab.bpe",    "tiktoken.model", "qwen.tiktoken"};
    const char *found = "";

    for (size_t i = 0; i < LEN(others); i++)
        if (file_exists(arena_printf(keep, "%s/%s", folder, others[i])))
            found = arena_printf(keep, "%s%s%s", found, *found ? ", " : "", others[i]);
    if (!*found)
        return arena_printf(keep,
                            "%s: there is no tokenizer.json, so the model takes token ids and no text; copy it from "
                            "where the checkout came from",
                            folder);
    return arena_printf(
        keep,
        "%s: there is no tokenizer.json, so the model takes token ids and no text. To make one from %s: "
        "python3 -c 'from transformers import AutoTokenizer as T; "
        "T.from_pretrained(\"%s\").save_pretrained(\"%s\")'",
        folder, found, folder, folder);
}
