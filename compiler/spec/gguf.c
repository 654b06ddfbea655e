/* gguf.c - a GGUF file's keys and the names of its tensors as one Lua table.
 *
 * specs/lib/gguf.lua knows what they mean. Arrays of the tokenizer stay here: compiler/tokenizer reads them. */
#include "reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/base/file.h"

enum {
    MAX_LIST = 4096,     /* elements of an array that Lua sees */
    MAX_CONTROL = 65536, /* control tokens */
    CONTROL = 3,         /* tokenizer.ggml.token_type */
};

static const char TOKENIZER[] = "tokenizer.";

static bool is_tokenizer_array(const GgufKey *k)
{
    return k->is_array && strncmp(k->name, TOKENIZER, sizeof TOKENIZER - 1) == 0;
}

/* The shortest decimal number that this fp32 number is: 1e-05 as a config.json has it, not 9.99999975e-06. */
static double shortest(float f)
{
    char text[40];

    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)f);
        if (strtof(text, NULL) == f)
            break;
    }
    return strtod(text, NULL);
}

static void push_element(lua_State *L, const GgufKey *k, uint64_t i)
{
    if (k->kind == GGUF_STRING)
        lua_pushlstring(L, k->texts[i].at, k->texts[i].n);
    else if (k->kind == GGUF_BOOL)
        lua_pushboolean(L, k->at[i]);
    else if (gguf_is_integer(k))
        lua_pushinteger(L, gguf_integer(k, i));
    else
        lua_pushnumber(L, k->kind == GGUF_F32 ? shortest((float)gguf_number(k, i)) : gguf_number(k, i));
}

static void push_key(lua_State *L, const GgufKey *k)
{
    if (!k->is_array) {
        push_element(L, k, 0);
        return;
    }
    if (k->n > MAX_LIST) { /* a text, so that an unknown key is refused, and a known one too */
        lua_pushfstring(L, "an array of %I elements", (lua_Integer)k->n);
        return;
    }
    lua_newtable(L);
    for (uint64_t i = 0; i < k->n; i++) {
        push_element(L, k, i);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

/* The ids of control tokens by their texts. */
static void push_control(lua_State *L, const Gguf *g)
{
    const GgufKey *tokens = gguf_key(g, "tokenizer.ggml.tokens"), *types = gguf_key(g, "tokenizer.ggml.token_type");
    uint64_t found = 0;

    lua_newtable(L);
    if (!tokens || !types || !tokens->is_array || !types->is_array || tokens->kind != GGUF_STRING ||
        !gguf_is_integer(types))
        return; /* compiler/tokenizer says what is wrong */
    for (uint64_t i = 0; i < tokens->n && i < types->n && found < MAX_CONTROL; i++)
        if (gguf_integer(types, i) == CONTROL) {
            lua_pushlstring(L, tokens->texts[i].at, tokens->texts[i].n);
            lua_pushinteger(L, (lua_Integer)i);
            lua_rawset(L, -3);
            found++;
        }
}

/* A short vector in fp32, such as rope_freqs.weight. */
static void push_vector(lua_State *L, const GgufTensor *t)
{
    float f;

    lua_newtable(L);
    for (int64_t i = 0; i < t->dim[0]; i++) {
        memcpy(&f, t->at + 4 * i, 4);
        lua_pushnumber(L, (lua_Number)f);
        lua_rawseti(L, -2, i + 1);
    }
}

static void set(lua_State *L, const char *name)
{
    lua_setfield(L, -2, name);
}

/* { path, file, name, keys, types, vectors, vocab, control }: types of tensors by their names; vectors: rope_*.weight;
 * vocab: rows of token_embd.weight; control: ids by texts */
void gguf_push(lua_State *L, const Gguf *g)
{
    const char *slash = strrchr(g->path, '/');
    int64_t vocab = 0;

    lua_newtable(L);
    lua_pushstring(L, g->path);
    set(L, "path");
    lua_pushstring(L, slash ? slash + 1 : g->path);
    set(L, "file");
    lua_pushstring(L, reader_of(L)->spec->name);
    set(L, "name");
    lua_newtable(L);
    for (size_t i = 0; i < g->keys.n; i++)
        if (!is_tokenizer_array(&g->keys.at[i])) {
            push_key(L, &g->keys.at[i]);
            set(L, g->keys.at[i].name);
        }
    set(L, "keys");
    lua_newtable(L);
    for (size_t i = 0; i < g->tensors.n; i++) {
        const GgufTensor *t = &g->tensors.at[i];

        lua_pushstring(L, t->type_name);
        set(L, t->name);
        if (strcmp(t->name, "token_embd.weight") == 0 && t->rank == 2)
            vocab = t->dim[1];
    }
    set(L, "types");
    lua_newtable(L);
    for (size_t i = 0; i < g->tensors.n; i++) {
        const GgufTensor *t = &g->tensors.at[i];

        if (strncmp(t->name, "rope_", 5) == 0 && t->rank == 1 && t->type == GGUF_TYPE_F32 && t->dim[0] <= MAX_LIST) {
            push_vector(L, t);
            set(L, t->name);
        }
    }
    set(L, "vectors");
    lua_pushinteger(L, vocab);
    set(L, "vocab");
    push_control(L, g);
    set(L, "control");
}

/* The keys for the artifact, a line each, without arrays and long texts. */
const char *gguf_keys_text(const Gguf *g, Arena *keep)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    if (!f)
        die("out of memory: the keys of %s", g->path);
    for (size_t i = 0; i < g->keys.n; i++) {
        const GgufKey *k = &g->keys.at[i];

        if (k->is_array || (k->kind == GGUF_STRING && k->texts[0].n > 200))
            continue;
        if (k->kind == GGUF_STRING)
            fprintf(f, "%s = %.*s\n", k->name, (int)k->texts[0].n, k->texts[0].at);
        else
            fprintf(f, "%s = %.9g\n", k->name, gguf_number(k, 0));
    }
    if (fclose(f))
        die("out of memory: the keys of %s", g->path);
    const char *kept = arena_strndup(keep, text, bytes);

    free(text);
    return kept;
}
