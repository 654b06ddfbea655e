/* spec.c - reads a spec file, a checkout's folder or a GGUF file into a Spec. Start here.
 *
 * A spec file is run, and must return what ftx.model returns. For a checkout specs/lib/checkout.lua is called with
 * a table of the folder's files, and calls ftx.model; for a GGUF file specs/lib/gguf.lua makes such a table of its keys.
 * In all cases ftx.model (model.c) fills the Spec. */
#include "fields.h"

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
    else
        name[gguf_stem(name)] = 0;
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

static int run_gguf(lua_State *L)
{
    open_builtins(L);
    sandbox_require(L, "lib.gguf");
    gguf_push(L, lua_touserdata(L, 1));
    lua_call(L, 1, 0);
    return 0;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool begins(const FileMap *map, const char *with)
{
    return map->bytes >= strlen(with) && memcmp(map->at, with, strlen(with)) == 0;
}

/* Files that are part of a model, or a model in another form. NULL: none of these. */
static const char *other_file(const FileMap *map, const char *path)
{
    if (begins(map, FTX_MAGIC))
        return "a compiled model; ftxc run and ftxc show take it";
    if (begins(map, "PK\3\4"))
        return "a pickled checkpoint, which ftxc does not read; save the model as safetensors and compile its folder";
    if (ends_with(path, ".safetensors") || ends_with(path, ".safetensors.index.json"))
        return "weights alone; compile the folder of the checkout, which has a config.json beside them";
    if (ends_with(path, ".gguf"))
        return "not a GGUF file: its first four bytes are not GGUF";
    if (ends_with(path, ".json"))
        return "a file of a checkout; compile the folder that it is in";
    return NULL;
}

static bool copy_text(const FileMap *map, Loc loc, Arena *keep, const char **text, Diag *d)
{
    size_t bytes;
    const char *at = file_text(map, &bytes), *other = other_file(map, loc.file);

    if (other)
        return diag_error(d, loc, "%s", other);
    if (memchr(at, 0, bytes < SANDBOX_TEXT ? bytes : SANDBOX_TEXT))
        return diag_error(d, loc, "not a text file: it has a byte of value 0");
    if (map->bytes > SANDBOX_TEXT)
        return diag_error(d, loc, "the file is %zu bytes, a spec may have %d", map->bytes, SANDBOX_TEXT);
    *text = arena_strndup(keep, at, bytes);
    return true;
}

/* The text of a spec file, or what a GGUF file and the other files of its model have, which stays in `maps`. */
static bool read_file(Spec *spec, FileMaps *maps, Arena *keep, const char **text, Gguf *gguf, Diag *d)
{
    FileMap *map = arena_push(keep, *maps);
    FtxError err;

    if (file_map(spec->path, map, &err))
        return diag_machine(d, "%s", err.text);
    spec->gguf = gguf_begins(map->at, map->bytes);
    if (!spec->gguf)
        return copy_text(map, (Loc){spec->path, 0}, keep, text, d);
    if (!gguf_read(spec->path, map->at, map->bytes, keep, gguf, d) || !gguf_join(gguf, keep, maps, d))
        return false;
    *text = gguf_keys_text(gguf, keep);
    return true;
}

/* The text for the artifact, with a line for each -D before it. */
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
    Gguf gguf = {0};
    FileMaps maps = {0};
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
        ok = read_file(spec, &maps, keep, &text, &gguf, d);
        if (ok) {
            const char *at = slash ? arena_strndup(keep, path, (size_t)(slash - path) + 1) : "";

            sandbox_open(&r->box, path, at, SANDBOX_SECONDS, keep, d);
            r->box.user = r;
            ok = spec->gguf ? sandbox_call(&r->box, run_gguf, &gguf)
                            : sandbox_call(&r->box, run_file, (void *)(uintptr_t)text);
        }
        for (size_t i = 0; i < maps.n; i++)
            file_unmap(&maps.at[i]);
    }
    spec->text = text_with_overrides(r, text, keep);
    sandbox_close(&r->box);
    return ok;
}

/* "meta-llama/Llama-3.2-1B": two names of letters, digits, '-', '_' and '.', and no Lua file. */
static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    const char *const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    return slash && slash > path && slash[1] && path[0] != '.' && !ends_with(path, ".lua") &&
           path + strspn(path, allowed) == slash && !slash[1 + strspn(slash + 1, allowed)];
}

static bool nothing_there(const char *path, Diag *d)
{
    const int why = path[0] ? errno : ENOENT;

    if (why == ENOENT && is_hub_name(path))
        return diag_machine(
            d,
            "%s: there is no such file or folder. If it is a model of the Hugging Face hub, download it "
            "first: hf download %s --local-dir %s, then ftxc compile %s",
            path, path, strchr(path, '/') + 1, strchr(path, '/') + 1);
    return diag_machine(d, "%s%sno spec there: %s", path, path[0] ? ": " : "", strerror(why));
}

bool spec_read(const char *path, const Override *overrides, size_t n, Arena *keep, Spec *spec, Diag *d)
{
    Reader r = {.spec = spec, .overrides = overrides, .n_overrides = n};
    struct stat st;

    *spec = (Spec){.bos = -1, .start = -1, .pad = -1};
    if (!path[0] || stat(path, &st))
        return nothing_there(path, d);
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
    if (spec->checkout && !spec->tokenizer && !field_override(&r, "tokenizer"))
        spec->note = checkout_without_tokenizer(spec->path, keep);
    return true;
}
