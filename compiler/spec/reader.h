/* reader.h - the state of one reading of a spec, and the files of this room that work on it. */
#ifndef FTXC_SPEC_READER_H
#define FTXC_SPEC_READER_H

#include <jansson.h>

#include "sandbox.h"
#include "spec.h"
#include "../gguf/gguf.h"

typedef struct Reader {
    Sandbox box;
    Spec *spec;
    Graph *graph;
    const Override *overrides;
    size_t n_overrides;
    const char *asked; /* paths whose -D families have read, a line each */
    int64_t layers;    /* caches made so far; several layers may read one */
    int64_t sources;   /* cross caches made so far */
    int64_t recurrent; /* recurrent states made so far */
    bool finished;     /* ftx.model was called */
} Reader;

static inline Reader *reader_of(lua_State *L)
{
    return sandbox_of(L)->user;
}

/* nn.c and values.c. nn_open leaves the module on the stack. */
int nn_open(lua_State *L);
Id nn_value(lua_State *L, int i, const char *what); /* raises an error if it is none */
Id nn_apply(lua_State *L, Op op, Id x);             /* adds an operation with one argument */
Id nn_mask(lua_State *L, Id sample);                /* adds a sample of the same logits, behind their masks */
Id nn_beam(lua_State *L, Id sample);                /* adds a beam search of the logits that `sample` samples */

/* model.c */
int ftx_open(lua_State *L);

/* checkout.c: the folder's files as one Lua table. Files are read before Lua runs, so that an error of Lua leaves
 * none open. */
typedef struct Checkout {
    const char *folder;      /* "dir/" */
    const char *config_path; /* "dir/config.json" */
    const char *generation_path;
    const char *modules_path, *pooling_path;
    json_t *config, *generation, *modules, *pooling; /* NULL: there is no such file */
    json_t *dense;    /* of the linear layers in modules: [{ folder, path, config }]; NULL: there are none */
    json_t *tensors;  /* an object whose keys are the names of all tensors, or NULL */
    const char *text; /* config.json and generation_config.json, for the artifact */
} Checkout;

bool checkout_read(const char *folder, Arena *keep, Checkout *c, Diag *d);
void checkout_drop(Checkout *c);
void checkout_push(lua_State *L, const Checkout *c); /* the table that specs/lib/checkout.lua gets */

/* A line for the user: what lies in a folder in place of tokenizer.json, and how to make one. */
const char *checkout_without_tokenizer(const char *folder, Arena *keep);

/* gguf.c: a GGUF file as the table that specs/lib/gguf.lua gets, and its keys as lines for the artifact. */
void gguf_push(lua_State *L, const Gguf *g);
const char *gguf_keys_text(const Gguf *g, Arena *keep);

/* The file that holds the weights of `path`: itself, or of a folder model.safetensors or its index. */
const char *checkpoint_path(Arena *keep, const char *path);

#endif
