/* read.c - finds the chat templates of a model beside its tokenizer or in its GGUF file, and the tokens that they name. */
#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "../gguf/gguf.h"
#include "../../runtime/base/file.h"

typedef struct Found {
    struct {
        ChatSource *at;
        size_t n, cap;
    } sources;
    struct {
        ChatToken *at;
        size_t n, cap;
    } tokens;
    const char *folder; /* with its last '/', or "" */
    Arena *keep;
    Diag *d;
} Found;

static bool ends_in(const char *text, const char *with)
{
    const size_t n = strlen(text), m = strlen(with);

    return n > m && strcmp(text + n - m, with) == 0;
}

/* A template; a later one of the same name takes the place of an earlier. */
static void add_source(Found *f, const char *name, const char *file, const char *text, size_t bytes)
{
    ChatSource *to = NULL;

    for (size_t i = 0; i < f->sources.n; i++)
        if (strcmp(f->sources.at[i].name, name) == 0)
            to = &f->sources.at[i];
    if (!to)
        to = arena_push(f->keep, f->sources);
    *to = (ChatSource){arena_strdup(f->keep, name), file, arena_strndup(f->keep, text, bytes), bytes};
}

/* A file's bytes; *text stays NULL if there is none. */
static bool read_file(Found *f, const char *path, const char **text, size_t *bytes)
{
    FileMap map;
    FtxError err;

    *text = NULL;
    if (!file_exists(path))
        return true;
    if (file_map(path, &map, &err))
        return diag_machine(f->d, "%s", err.text);
    *bytes = map.bytes;
    *text = arena_strndup(f->keep, map.at, map.bytes);
    file_unmap(&map);
    return true;
}

static void read_tokens(Found *f, const json_t *root)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)root, key, v)
    {
        const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);

        if (text && ends_in(key, "_token"))
            *arena_push(f->keep, f->tokens) = (ChatToken){arena_strdup(f->keep, key), arena_strdup(f->keep, text)};
    }
}

/* "chat_template": a text, or a list of { name, template }. */
static bool read_config(Found *f, const char *path, bool tokens)
{
    const char *text;
    const json_t *templates;
    json_t *root;
    size_t n;

    if (!read_file(f, path, &text, &n) || !text)
        return !f->d->failed;
    root = json_loadb(text, n, 0, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        return diag_error(f->d, (Loc){path, 0}, "is no JSON object");
    }
    if (tokens)
        read_tokens(f, root);
    templates = json_object_get(root, "chat_template");
    if (json_is_string(templates))
        add_source(f, "default", path, json_string_value(templates), json_string_length(templates));
    for (size_t i = 0; i < json_array_size(templates); i++) {
        const json_t *name = json_object_get(json_array_get(templates, i), "name");
        const json_t *one = json_object_get(json_array_get(templates, i), "template");

        if (json_is_string(name) && json_is_string(one))
            add_source(f, json_string_value(name), path, json_string_value(one), json_string_length(one));
    }
    json_decref(root);
    return true;
}

static bool read_template(Found *f, const char *name, const char *path)
{
    const char *text;
    size_t n;

    if (!read_file(f, path, &text, &n))
        return false;
    if (text)
        add_source(f, name, path, text, n);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* additional_chat_templates/NAME.jinja, in the order of their names. */
static bool read_more(Found *f)
{
    const char *folder = arena_printf(f->keep, "%sadditional_chat_templates", f->folder);
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    struct {
        const char **at;
        size_t n, cap;
    } names = {0};
    bool ok = true;

    while (dir && (entry = readdir(dir))) /* cppcheck-suppress readdirCalled */
        if (ends_in(entry->d_name, ".jinja"))
            *arena_push(f->keep, names) = arena_strdup(f->keep, entry->d_name);
    if (dir)
        closedir(dir);
    if (names.n)
        qsort(names.at, names.n, sizeof *names.at, by_name);
    for (size_t i = 0; i < names.n && ok; i++)
        ok = read_template(f, arena_strndup(f->keep, names.at[i], strlen(names.at[i]) - strlen(".jinja")),
                           arena_printf(f->keep, "%s/%s", folder, names.at[i]));
    return ok;
}

/* --- a GGUF file --------------------------------------------------------------------------------- */

static bool add_key_token(Found *f, const Gguf *g, const char *name)
{
    const GgufKey *tokens = gguf_key(g, "tokenizer.ggml.tokens");
    int32_t id = -1;

    if (!gguf_id(g, arena_printf(f->keep, "tokenizer.ggml.%s_token_id", name), &id, f->d))
        return false;
    if (id >= 0 && tokens && tokens->texts && (uint64_t)id < tokens->n)
        *arena_push(f->keep, f->tokens) = (ChatToken){
            arena_printf(f->keep, "%s_token", name), arena_strndup(f->keep, tokens->texts[id].at, tokens->texts[id].n)};
    return true;
}

/* tokenizer.chat_template, and tokenizer.chat_template.NAME */
static bool read_keys(Found *f, const char *path, const FileMap *map)
{
    static const char key[] = "tokenizer.chat_template";
    Gguf g = {0};

    if (!gguf_read(path, map->at, map->bytes, f->keep, &g, f->d) || !add_key_token(f, &g, "bos") ||
        !add_key_token(f, &g, "eos"))
        return false;
    for (size_t i = 0; i < g.keys.n; i++) {
        const GgufKey *k = &g.keys.at[i];
        const char *name = k->name + sizeof key - 1;

        if (strncmp(k->name, key, sizeof key - 1) == 0 && (!*name || *name == '.') && !k->is_array &&
            k->kind == GGUF_STRING)
            add_source(f, *name ? name + 1 : "default", path, k->texts[0].at, k->texts[0].n);
    }
    return true;
}

/* Whether the tokenizer's file is GGUF; then its templates are read. */
static bool read_gguf(Found *f, const char *path, bool *is_gguf)
{
    FileMap map;
    FtxError err;
    bool ok = true;

    if (!file_exists(path))
        return true;
    if (file_map(path, &map, &err))
        return diag_machine(f->d, "%s", err.text);
    *is_gguf = gguf_begins(map.at, map.bytes);
    if (*is_gguf)
        ok = read_keys(f, path, &map);
    file_unmap(&map);
    return ok;
}

/* The files beside a tokenizer. */
static bool read_beside(Found *f)
{
    return read_config(f, arena_printf(f->keep, "%stokenizer_config.json", f->folder), true) &&
           read_config(f, arena_printf(f->keep, "%schat_template.json", f->folder), false) &&
           read_template(f, "default", arena_printf(f->keep, "%schat_template.jinja", f->folder)) && read_more(f);
}

bool chat_read(const char *tokenizer, Arena *keep, void **section, size_t *bytes, const char **note, Diag *d)
{
    const char *slash = strrchr(tokenizer, '/');
    Found f = {.keep = keep, .d = d};
    Diag why = {0};
    bool is_gguf = false;

    *section = NULL;
    *note = NULL;
    f.folder = slash ? arena_strndup(keep, tokenizer, (size_t)(slash + 1 - tokenizer)) : "";
    if (!read_gguf(&f, tokenizer, &is_gguf) || (!is_gguf && !read_beside(&f)))
        return false;
    if (f.sources.n && !chat_compile(f.sources.at, f.sources.n, f.tokens.at, f.tokens.n, keep, section, bytes, &why))
        *note = arena_printf(keep, "%s; the artifact has no chat template (docs/chat.md says what templates may use)",
                             why.text);
    return true;
}
