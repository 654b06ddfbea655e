/* model.c - ftx.*: the table of a model, what -D changes in it, and the checks that follow.
 *
 * Every field stands once, in `fields`: its path, what it may be, and its default. -D, the check
 * for unknown fields and the messages all read that table. */
#include "reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/base/file.h"

typedef enum Kind {
    COUNT,  /* a whole number in low..high */
    NUMBER, /* a finite number in low..high */
    TEXT,
    TYPE,   /* fp32 fp16 bf16; `low` 1: or auto */
    IDS,    /* a token id or a list of them */
    GRAPH,
} Kind;

typedef struct Field {
    const char *path;
    Kind kind;
    double low, high;
    double missing; /* numbers: the default */
    bool required;
} Field;

enum { MAX_TOP_K = 1024, MAX_ID = INT32_MAX };

static const Field fields[] = {
    {"name", TEXT, 0, 0, 0, false},
    {"graph", GRAPH, 0, 0, 0, true},
    {"weights", TEXT, 0, 0, 0, false},
    {"tokenizer", TEXT, 0, 0, 0, false},
    {"bos", COUNT, -1, MAX_ID, -1, false},
    {"eos", IDS, 0, MAX_ID, 0, false},
    {"precision.weights", TYPE, 0, 0, DT_BF16, false},
    {"precision.compute", TYPE, 1, 0, DT_NONE, false},
    {"precision.kv", TYPE, 1, 0, DT_NONE, false},
    {"limits.sequences", COUNT, 1, 4096, 16, false},
    {"limits.context", COUNT, 1, 1 << 20, 0, true},
    {"limits.tokens", COUNT, 1, 1 << 16, 512, false},
    {"limits.logit_bias", COUNT, 0, 65536, 32, false},
    {"limits.end_ids", COUNT, 1, 256, 16, false},
    {"kv.block_size", COUNT, 8, 256, 16, false},
    {"kv.pages", COUNT, 1, 1 << 24, 0, false},
    {"decode.temperature", NUMBER, 0, 100, 1, false},
    {"decode.top_k", COUNT, 0, MAX_TOP_K, 0, false},
    {"decode.top_p", NUMBER, 0, 1, 1, false},
    {"decode.min_p", NUMBER, 0, 1, 0, false},
    {"decode.repetition_penalty", NUMBER, 0.01, 100, 1, false},
    {"decode.repetition_window", COUNT, 0, 1 << 20, 0, false},
    {"decode.presence_penalty", NUMBER, -100, 100, 0, false},
    {"decode.frequency_penalty", NUMBER, -100, 100, 0, false},
    {"decode.no_repeat_ngram", COUNT, 0, 1 << 20, 0, false},
    {"decode.min_new", COUNT, 0, 1 << 20, 0, false},
    {"decode.max_new", COUNT, 0, 1 << 20, 0, false},
    {"decode.max_top_k", COUNT, 1, MAX_TOP_K, 64, false},
};

/* --- fields by path --------------------------------------------------------------------------- */

static const Field *field_named(const char *path)
{
    for (size_t i = 0; i < LEN(fields); i++)
        if (strcmp(fields[i].path, path) == 0)
            return &fields[i];
    return NULL;
}

/* "context, sequences": the fields of a group ("limits."; "": of the model), for messages. */
static const char *names_of(Arena *a, const char *group)
{
    const size_t n = strlen(group);
    const char *list = "", *last = "";

    for (size_t i = 0; i < LEN(fields); i++) {
        const char *name = fields[i].path + n;
        const size_t bytes = strcspn(name, ".");

        if (strncmp(fields[i].path, group, n) != 0 || (strncmp(last, name, bytes) == 0 && !last[bytes]))
            continue;
        last = arena_strndup(a, name, bytes);
        list = arena_printf(a, "%s%s%s", list, list[0] ? ", " : "", last);
    }
    return list;
}

/* The last -D of a path, or NULL. */
static const char *override_of(const Reader *r, const char *path)
{
    const size_t n = strlen(path);

    for (size_t i = r->n_overrides; i-- > 0;)
        if (strncmp(r->overrides[i].text, path, n) == 0 && r->overrides[i].text[n] == '=')
            return r->overrides[i].text;
    return NULL;
}

static const char *shown(lua_State *L, int i)
{
    switch (lua_type(L, i)) {
    case LUA_TNIL:
        return "nothing";
    case LUA_TNUMBER:
        return lua_pushfstring(L, "%s", sandbox_text(L, i));
    case LUA_TSTRING:
        return lua_pushfstring(L, "\"%s\"", lua_tostring(L, i));
    case LUA_TBOOLEAN:
        return lua_toboolean(L, i) ? "true" : "false";
    case LUA_TUSERDATA:
        return "a graph value";
    default:
        return lua_pushfstring(L, "a %s", luaL_typename(L, i));
    }
}

/* Raises: about -D where the value came from there, else about the line of ftx.model. */
static int refuse(lua_State *L, const char *path, const char *expected, int i)
{
    const char *by = override_of(reader_of(L), path);

    if (by)
        return sandbox_fail_in(L, arena_printf(sandbox_of(L)->keep, "-D %.200s", by), "%s must be %s", path, expected);
    return sandbox_fail(L, "%s must be %s, got %s", path, expected, shown(L, i));
}

static const char *range_text(Arena *a, const Field *f)
{
    switch (f->kind) {
    case COUNT:
        return arena_printf(a, "a whole number from %.0f to %.0f", f->low, f->high);
    case NUMBER:
        return arena_printf(a, "a number from %g to %g", f->low, f->high);
    case TEXT:
        return "a text";
    case TYPE:
        return f->low != 0 ? "one of auto, fp32, fp16, bf16" : "one of fp32, fp16, bf16";
    case IDS:
        return "a token id or a list of up to 8";
    case GRAPH:
        return "what a family gives, as in graph = llama { ... }";
    }
    return "";
}

/* Pushes the value at a path of the table at t; nil where a group is missing. */
static void push_field(lua_State *L, int t, const char *path)
{
    const char *dot = strchr(path, '.');

    if (!dot) {
        lua_getfield(L, t, path);
        return;
    }
    lua_pushlstring(L, path, (size_t)(dot - path));
    lua_gettable(L, t);
    if (lua_istable(L, -1))
        lua_getfield(L, -1, dot + 1);
    else
        lua_pushnil(L);
    lua_remove(L, -2);
}

/* A number field, checked, or its default. */
static double get_number(lua_State *L, int t, const char *path)
{
    const Field *f = field_named(path);
    Arena *a = sandbox_of(L)->keep;
    double x;

    push_field(L, t, path);
    if (lua_isnil(L, -1)) {
        if (f->required)
            sandbox_fail(L, "%s is missing; it must be %s", path, range_text(a, f));
        lua_pop(L, 1);
        return f->missing;
    }
    x = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : NAN;
    if (!isfinite(x) || x < f->low || x > f->high || (f->kind == COUNT && x != floor(x)))
        refuse(L, path, range_text(a, f), -1);
    lua_pop(L, 1);
    return x;
}

static int64_t get_count(lua_State *L, int t, const char *path)
{
    return (int64_t)get_number(L, t, path);
}

static DType get_type(lua_State *L, int t, const char *path)
{
    const Field *f = field_named(path);
    const char *s;
    DType type;

    push_field(L, t, path);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return (DType)f->missing;
    }
    s = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    if (f->low != 0 && strcmp(s, "auto") == 0)
        type = DT_NONE;
    else if ((type = dtype_parse(s)), type != DT_FP32 && type != DT_FP16 && type != DT_BF16)
        refuse(L, path, range_text(sandbox_of(L)->keep, f), -1);
    lua_pop(L, 1);
    return type;
}

static const char *get_text(lua_State *L, int t, const char *path)
{
    const char *s = NULL;

    push_field(L, t, path);
    if (!lua_isnil(L, -1)) {
        if (lua_type(L, -1) != LUA_TSTRING || strlen(lua_tostring(L, -1)) != lua_rawlen(L, -1) ||
            lua_rawlen(L, -1) > 4000)
            refuse(L, path, "a text", -1);
        s = arena_strdup(sandbox_of(L)->keep, lua_tostring(L, -1));
    }
    lua_pop(L, 1);
    return s;
}

/* Every key of the table at t is a field of the group, and every group a table. */
static void check_names(lua_State *L, int t, const char *group)
{
    Arena *a = sandbox_of(L)->keep;

    for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        const char *path = key ? arena_printf(a, "%s%.100s", group, key) : "";
        const char *inner = arena_printf(a, "%s.", path);

        if (key && (field_named(path) || (strcmp(group, "decode.") == 0 && strcmp(key, "strategy") == 0)))
            continue;
        if (!key || group[0] || !names_of(a, inner)[0])
            sandbox_fail(L, "%.*s has no field '%s'; the fields are: %s",
                         group[0] ? (int)strlen(group) - 1 : 9, group[0] ? group : "ftx.model",
                         sandbox_text(L, -2), names_of(a, group));
        if (!lua_istable(L, -1))
            sandbox_fail(L, "%s must be a table with the fields %s, got %s", key, names_of(a, inner), shown(L, -1));
        check_names(L, lua_gettop(L), inner);
    }
}

/* --- overrides ------------------------------------------------------------------------------------ */

/* Pushes the list of "1,2,3", or of "" none; false for anything else. */
static bool push_ids(lua_State *L, const char *text)
{
    lua_newtable(L);
    for (lua_Integer i = 1; *text; i++) {
        char *end;
        const long long id = strtoll(text, &end, 10);

        if (end == text || (*end && *end != ','))
            return false;
        lua_pushinteger(L, id);
        lua_rawseti(L, -2, i);
        text = *end ? end + 1 : end;
    }
    return true;
}

/* Pushes the value of a -D as its field wants it. */
static void push_override(lua_State *L, const Field *f, const char *text)
{
    const char *what = range_text(sandbox_of(L)->keep, f);
    char *end;

    switch (f->kind) {
    case COUNT:
    case NUMBER: {
        const double x = strtod(text, &end);

        if (end == text || *end)
            refuse(L, f->path, what, 0);
        lua_pushnumber(L, x);
        return;
    }
    case TEXT:
    case TYPE:
        lua_pushstring(L, text);
        return;
    case IDS:
        if (!push_ids(L, text))
            refuse(L, f->path, "token ids: 1 or 1,2,3", 0);
        return;
    case GRAPH:
        return; /* refused by the caller */
    }
}

static void apply_overrides(lua_State *L, int t)
{
    const Reader *r = reader_of(L);
    Arena *a = r->box.keep;

    for (size_t i = 0; i < r->n_overrides; i++) {
        const char *text = r->overrides[i].text, *equals = strchr(text, '=');
        const char *whole = arena_printf(a, "-D %.200s", text);
        const char *path = equals ? arena_strndup(a, text, (size_t)(equals - text)) : text;
        const char *dot = strchr(path, '.');
        const Field *f = field_named(path);
        const char *group = dot ? arena_strndup(a, path, (size_t)(dot - path) + 1) : "";

        if (!equals)
            sandbox_fail_in(L, whole, "field=value was expected, as in -D limits.context=256");
        if (!f && dot && names_of(a, group)[0])
            sandbox_fail_in(L, whole, "%.*s has no field '%s'; the fields are: %s", (int)(dot - path), path, dot + 1,
                            names_of(a, group));
        if (!f)
            sandbox_fail_in(L, whole, "a model has no field '%s'; the fields are: %s", path, names_of(a, ""));
        if (f->kind == GRAPH)
            sandbox_fail_in(L, whole, "the graph is what the spec computes; -D cannot give one");
        lua_pushvalue(L, t);
        if (dot) {
            lua_pushlstring(L, path, (size_t)(dot - path));
            if (lua_gettable(L, t) != LUA_TTABLE) {
                lua_pop(L, 1);
                lua_newtable(L);
                lua_pushlstring(L, path, (size_t)(dot - path));
                lua_pushvalue(L, -2);
                lua_settable(L, t);
            }
        }
        push_override(L, f, equals + 1);
        lua_setfield(L, -2, dot ? dot + 1 : path);
        lua_settop(L, t);
    }
}

/* --- parts of the Spec ------------------------------------------------------------------------------ */

static void read_limits(lua_State *L, int t)
{
    Reader *r = reader_of(L);
    Limits *l = &r->graph->limits;
    int64_t needed;

    l->sequences = get_count(L, t, "limits.sequences");
    l->context = get_count(L, t, "limits.context");
    l->tokens = get_count(L, t, "limits.tokens");
    l->logit_bias = get_count(L, t, "limits.logit_bias");
    l->end_ids = get_count(L, t, "limits.end_ids");
    l->kv_block = get_count(L, t, "kv.block_size");
    l->kv_pages = get_count(L, t, "kv.pages");
    if (l->tokens < l->sequences) {
        lua_pushinteger(L, l->tokens);
        refuse(L, "limits.tokens",
               lua_pushfstring(L, "at least limits.sequences (%I): a step brings one token of each", l->sequences), -2);
    }
    if (l->kv_block % 8) {
        lua_pushinteger(L, l->kv_block);
        refuse(L, "kv.block_size", "a multiple of 8 from 8 to 256", -1);
    }
    needed = (l->context + l->kv_block - 1) / l->kv_block;
    if (!l->kv_pages)
        l->kv_pages = l->sequences * needed;
    if (l->kv_pages < needed) {
        lua_pushinteger(L, l->kv_pages);
        refuse(L, "kv.pages",
               lua_pushfstring(L, "at least %I: one sequence of limits.context tokens needs as many", needed), -2);
    }
    if (r->spec->positions && l->context > r->spec->positions) {
        lua_pushinteger(L, l->context);
        refuse(L, "limits.context", lua_pushfstring(L, "at most %d: the model has so many learned positions",
                                                    (int)r->spec->positions), -2);
    }
}

static void read_precision(lua_State *L, int t)
{
    Precision *p = &reader_of(L)->spec->precision;

    p->weights = get_type(L, t, "precision.weights");
    p->compute = get_type(L, t, "precision.compute");
    p->kv = get_type(L, t, "precision.kv");
}

static void read_decode(lua_State *L, int t)
{
    FtxDecode *c = &reader_of(L)->spec->decode;
    const int64_t context = reader_of(L)->graph->limits.context;

    c->temperature = (float)get_number(L, t, "decode.temperature");
    push_field(L, t, "decode");
    if (!lua_istable(L, -1)) /* nothing said: greedy */
        c->temperature = 0;
    else if (lua_getfield(L, -1, "strategy") == LUA_TSTRING && strcmp(lua_tostring(L, -1), "greedy") == 0 &&
             !override_of(reader_of(L), "decode.temperature"))
        c->temperature = 0;
    c->top_k = (int32_t)get_count(L, t, "decode.top_k");
    c->top_p = (float)get_number(L, t, "decode.top_p");
    c->min_p = (float)get_number(L, t, "decode.min_p");
    c->repetition = (float)get_number(L, t, "decode.repetition_penalty");
    c->window = (int32_t)get_count(L, t, "decode.repetition_window");
    c->presence = (float)get_number(L, t, "decode.presence_penalty");
    c->frequency = (float)get_number(L, t, "decode.frequency_penalty");
    c->ngram = (int32_t)get_count(L, t, "decode.no_repeat_ngram");
    c->min_new = (int32_t)get_count(L, t, "decode.min_new");
    c->max_new = (int32_t)get_count(L, t, "decode.max_new");
    push_field(L, t, "decode.max_top_k");
    c->max_top_k = (int32_t)get_count(L, t, "decode.max_top_k");
    if (lua_isnil(L, -1) && c->max_top_k < c->top_k)
        c->max_top_k = c->top_k;
    if (c->top_k > c->max_top_k) {
        lua_pushinteger(L, c->top_k);
        refuse(L, "decode.top_k", lua_pushfstring(L, "at most decode.max_top_k (%d)", (int)c->max_top_k), -2);
    }
    if (c->max_new && c->min_new > c->max_new) {
        lua_pushinteger(L, c->min_new);
        refuse(L, "decode.min_new", lua_pushfstring(L, "at most decode.max_new (%d)", (int)c->max_new), -2);
    }
    if (c->min_new > context) {
        lua_pushinteger(L, c->min_new);
        refuse(L, "decode.min_new", lua_pushfstring(L, "at most limits.context (%I)", (lua_Integer)context), -2);
    }
}

static void read_ends(lua_State *L, int t)
{
    Spec *spec = reader_of(L)->spec;
    const char *what = range_text(sandbox_of(L)->keep, field_named("eos"));

    spec->bos = (int32_t)get_count(L, t, "bos");
    if (spec->bos >= (int64_t)spec->vocab) {
        lua_pushinteger(L, spec->bos);
        refuse(L, "bos", lua_pushfstring(L, "below the vocabulary's size %d", (int)spec->vocab), -2);
    }
    push_field(L, t, "eos");
    if (lua_isnil(L, -1))
        return;
    if (lua_type(L, -1) == LUA_TNUMBER) {
        lua_createtable(L, 1, 0);
        lua_insert(L, -2);
        lua_rawseti(L, -2, 1);
    }
    if (!lua_istable(L, -1) || lua_rawlen(L, -1) > FTX_MAX_ENDS)
        refuse(L, "eos", what, -1);
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, -1); i++) {
        int whole;
        lua_Integer id;

        lua_rawgeti(L, -1, i);
        id = lua_tointegerx(L, -1, &whole);
        if (!whole || lua_type(L, -1) != LUA_TNUMBER || id < 0 || id >= (lua_Integer)spec->vocab)
            refuse(L, "eos", lua_pushfstring(L, "token ids from 0 to %d", (int)spec->vocab - 1), -2);
        spec->ends[spec->n_ends++] = (int32_t)id;
        lua_pop(L, 1);
    }
    if ((int64_t)spec->n_ends > reader_of(L)->graph->limits.end_ids) {
        lua_pushinteger(L, reader_of(L)->graph->limits.end_ids);
        refuse(L, "limits.end_ids", lua_pushfstring(L, "at least %d, the number of eos ids", (int)spec->n_ends), -2);
    }
}

/* A path of the spec is relative to its folder, one of -D to where the user is. */
static const char *read_path(lua_State *L, int t, const char *field)
{
    const Reader *r = reader_of(L);
    Arena *keep = r->box.keep;
    const char *s = get_text(L, t, field), *path = s;

    if (!s || !s[0]) /* -D weights= : none */
        return NULL;
    if (s[0] != '/' && !override_of(r, field))
        path = arena_printf(keep, "%s%s", r->box.folder, s);
    if (strcmp(field, "weights") == 0)
        path = checkpoint_path(keep, path);
    if (!file_exists(path)) {
        lua_pushstring(L, path);
        refuse(L, field, "a file that is there", -1);
    }
    return path;
}

/* --- the graph -------------------------------------------------------------------------------------- */

/* Sets the facts of the decoder from its ops. All layers must have caches of one form. */
static void read_facts(lua_State *L)
{
    Reader *r = reader_of(L);
    Graph *g = r->graph;
    Spec *spec = r->spec;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);
        const Shape s = v->shape;

        if (v->op == OP_EMBED)
            spec->hidden = (uint32_t)s.dim[1].n;
        if (v->op == OP_SAMPLE)
            spec->vocab = (uint32_t)ir_value(g, v->args[0])->shape.dim[1].n;
        if (v->op == OP_ATTEND) {
            const Shape k = ir_value(g, v->args[1])->shape;

            if (spec->layers && (s.dim[1].n != spec->heads || k.dim[1].n != spec->kv_heads ||
                                 s.dim[2].n != spec->head_dim))
                sandbox_fail_in(L, v->loc.file, "line %d: this layer has %d heads, %d kv_heads, head_dim %d, the "
                                "first has %u, %u, %u; all layers must be alike", v->loc.line, (int)s.dim[1].n,
                                (int)k.dim[1].n, (int)s.dim[2].n, spec->heads, spec->kv_heads, spec->head_dim);
            spec->heads = (uint32_t)s.dim[1].n;
            spec->kv_heads = (uint32_t)k.dim[1].n;
            spec->head_dim = (uint32_t)s.dim[2].n;
            spec->layers++;
        }
        if (v->op == OP_POSITIONS) {
            const int64_t rows = ir_value(g, v->args[0])->shape.dim[0].n - ir_int(v, "offset");

            if (!spec->positions || rows < spec->positions)
                spec->positions = (uint32_t)rows;
        }
    }
    if (!spec->layers || !spec->hidden)
        sandbox_fail(L, "graph has no %s: a decoder embeds ids and attends to a cache in every layer",
                     spec->hidden ? "attend" : "embed");
    if (spec->layers != r->layers)
        sandbox_fail(L, "graph has %d caches and %d attends; each layer has one of each", (int)r->layers,
                     (int)spec->layers);
}

/* Tables of rotations are as long as a sequence may be, which only the limits say. */
static void size_rope_tables(Graph *g)
{
    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_ROPE_TABLE) {
            ir_attr_int(g, id, "positions", g->limits.context);
            ir_value(g, id)->shape.dim[0] = ir_const(g->limits.context);
        }
}

/* Pages are addressed by kernels in 64 bits; this only stops what no machine has. */
static void check_cache_bytes(lua_State *L)
{
    const Spec *spec = reader_of(L)->spec;
    const Limits *l = &reader_of(L)->graph->limits;
    const double gb = 8.0 * spec->layers * (double)l->kv_pages * (double)l->kv_block * spec->kv_heads *
                      spec->head_dim / (1 << 30);

    if (gb > 4096)
        sandbox_fail(L, "the cache of keys and values would take %.0f GB in fp32, at most 4096 are allowed; lower "
                     "limits.sequences, limits.context or kv.pages", gb);
}

static int ftx_model(lua_State *L)
{
    Reader *r = reader_of(L);
    Graph *g = r->graph;
    const char *name;
    Diag d = {0};

    if (!lua_istable(L, 1))
        return sandbox_fail(L, "ftx.model takes a table, got %s", lua_gettop(L) ? shown(L, 1) : "nothing");
    if (r->finished)
        return sandbox_fail(L, "ftx.model was called twice; a spec is one model");
    lua_settop(L, 1);
    apply_overrides(L, 1);
    check_names(L, 1, "");
    push_field(L, 1, "graph");
    if (!luaL_testudata(L, -1, "graph value"))
        refuse(L, "graph", range_text(r->box.keep, field_named("graph")), -1);
    g->output = nn_value(L, -1, "graph");
    if (ir_value(g, g->output)->op != OP_SAMPLE)
        return sandbox_fail(L, "graph must end with nn.sample(logits), it ends with %s",
                            ir_op_name(ir_value(g, g->output)->op));
    g->logits = ir_value(g, g->output)->args[0];
    ir_sweep(g);
    read_facts(L);
    read_limits(L, 1);
    size_rope_tables(g);
    check_cache_bytes(L);
    read_precision(L, 1);
    read_decode(L, 1);
    read_ends(L, 1);
    name = get_text(L, 1, "name");
    if (name) {
        if (!name[0] || strlen(name) > 200 || strpbrk(name, "\n\r\t"))
            refuse(L, "name", "one line of 1 to 200 characters", (push_field(L, 1, "name"), -1));
        r->spec->name = name;
        g->name = arena_strdup(g->keep, name);
    }
    r->spec->weights = read_path(L, 1, "weights");
    if (r->checkout && !r->spec->weights && !override_of(r, "weights"))
        return sandbox_fail_in(L, r->box.folder, "the checkout has no model.safetensors and no "
                               "model.safetensors.index.json; -D weights= makes a model with random weights");
    r->spec->tokenizer = read_path(L, 1, "tokenizer");
    if (!ir_verify(g, &d))
        return sandbox_fail(L, "%s", d.text);
    r->finished = true;
    lua_pushboolean(L, 1);
    return 1;
}

/* --- decode --------------------------------------------------------------------------------------------- */

static int strategy(lua_State *L, const char *name)
{
    Arena *a = sandbox_of(L)->keep;

    if (lua_isnoneornil(L, 1)) {
        lua_settop(L, 0);
        lua_newtable(L);
    }
    if (!lua_istable(L, 1))
        return sandbox_fail(L, "ftx.%s takes a table, got %s", name, shown(L, 1));
    lua_settop(L, 1);
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        const char *path = arena_printf(a, "decode.%.100s", key);

        if (!field_named(path))
            return sandbox_fail(L, "ftx.%s: there is no field '%s'; the fields are: %s", name, sandbox_text(L, -2),
                                names_of(a, "decode."));
        if (strcmp(name, "greedy") == 0 && (strcmp(key, "temperature") == 0 || strcmp(key, "top_p") == 0 ||
                                            strcmp(key, "top_k") == 0 || strcmp(key, "min_p") == 0))
            return sandbox_fail(L, "ftx.greedy takes the most likely token: %s means nothing there; ftx.sample has it",
                                key);
    }
    lua_pushstring(L, name);
    lua_setfield(L, 1, "strategy");
    return 1;
}

static int ftx_sample(lua_State *L)
{
    return strategy(L, "sample");
}

static int ftx_greedy(lua_State *L)
{
    return strategy(L, "greedy");
}

/* --- for families and checkouts --------------------------------------------------------------------------- */

/* ftx.refuse(file, reason): a mistake in a file that is not Lua */
static int ftx_refuse(lua_State *L)
{
    return sandbox_fail_in(L, luaL_checkstring(L, 1), "%s", luaL_checkstring(L, 2));
}

/* ftx.has("hf/LlamaForCausalLM"): is there such a module */
static int ftx_has(lua_State *L)
{
    lua_pushboolean(L, sandbox_module_exists(L, luaL_checkstring(L, 1)));
    return 1;
}

int ftx_open(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"model", ftx_model}, {"sample", ftx_sample}, {"greedy", ftx_greedy},
        {"refuse", ftx_refuse}, {"has", ftx_has}, {NULL, NULL},
    };

    luaL_newlib(L, functions);
    sandbox_strict(L, "ftx");
    return 1;
}
