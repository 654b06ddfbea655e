/* model.c - ftx.*: ftx.model makes the Spec of a table; the others serve specs, families and checkouts. */
#include "fields.h"
#include "settings.h"
#include "values.h"

#include <math.h>
#include <string.h>

#include "../../runtime/base/file.h"

/* --- the graph -------------------------------------------------------------------------------------- */

/* Whether an attend reads the source. */
static bool reads_source(const Value *v)
{
    return v->op == OP_ATTEND && strcmp(ir_word(v, "scope"), "source") == 0;
}

/* Counts a layer by its attention. Layers may differ in their heads. */
static void add_layer(Spec *spec, const Graph *g, const Value *attend)
{
    const Shape q = attend->shape, k = ir_value(g, attend->args[1])->shape;
    const uint32_t heads = (uint32_t)q.dim[1].n, kv_heads = (uint32_t)k.dim[1].n, head_dim = (uint32_t)k.dim[2].n;

    spec->heads = heads > spec->heads ? heads : spec->heads;
    spec->kv_heads = spec->layers && spec->kv_heads != kv_heads ? 0 : kv_heads;
    spec->head_dim = spec->layers && spec->head_dim != head_dim ? 0 : head_dim;
    spec->layers++;
}

/* Layers of a model with recurrent states: one may have several, or one beside attention. */
static uint32_t count_layers(const Graph *g)
{
    bool *begins = arena_array(g->scratch, bool, g->values.n);
    uint32_t n = 0;

    for (Id id = 1; id < g->values.n; id++) {
        const Op op = ir_value(g, id)->op;
        const Id first = op == OP_ATTEND || ir_op_is_recurrent(op) ? ir_layer_begin(g, id) : 0;

        n += first && !begins[first];
        begins[first] = true;
    }
    return n;
}

/* Reads the sizes of an encoder from its operations. */
static void read_encoder_facts(lua_State *L)
{
    const Graph *g = reader_of(L)->graph;
    Spec *spec = reader_of(L)->spec;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id), *x = ir_value(g, v->args[0]);

        if (v->op == OP_EMBED)
            spec->vocab = (uint32_t)ir_value(g, v->args[1])->shape.dim[0].n;
        if (v->op == OP_TYPES)
            spec->types = (uint32_t)x->shape.dim[0].n;
        if (v->op == OP_ATTEND)
            add_layer(spec, g, v);
    }
    spec->hidden = (uint32_t)ir_value(g, g->output)->shape.dim[1].n;
    spec->pooled = g->pooled ? (uint32_t)ir_value(g, g->pooled)->shape.dim[1].n : 0;
    spec->input = g->entry ? (uint32_t)ir_value(g, g->entry)->shape.dim[1].n : 0;
    spec->positions = settings_positions(g, true);
    if (!spec->layers || !spec->vocab)
        sandbox_fail(L, "graph has no %s: an encoder embeds ids and attends to all of a text in every layer",
                     spec->vocab ? "attend_full" : "embed");
}

/* For a model with a source: its vocabulary, and the check that each layer of the decoder reads it once. */
static void read_source_facts(lua_State *L)
{
    const Reader *r = reader_of(L);
    const Graph *g = r->graph;
    Spec *spec = r->spec;
    const bool *side = ir_encoder_side(g);
    int64_t reads = 0;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id), *x = ir_value(g, v->args[0]);

        if (v->op == OP_EMBED && side[id])
            spec->source_vocab = (uint32_t)ir_value(g, v->args[1])->shape.dim[0].n;
        if (v->op == OP_TYPES)
            spec->types = (uint32_t)x->shape.dim[0].n;
        reads += reads_source(v);
    }
    if (reads != r->sources || reads != spec->layers)
        sandbox_fail(L, "graph has %d layers, %d sources for them and %d reads of those; each layer has one of each",
                     (int)spec->layers, (int)r->sources, (int)reads);
}

/* Reads the sizes of the model from its operations. */
static void read_facts(lua_State *L)
{
    Reader *r = reader_of(L);
    Graph *g = r->graph;
    Spec *spec = r->spec;
    int64_t caches = 0, recurrent = 0;

    if (g->kind == FTX_MODEL_ENCODER) {
        read_encoder_facts(L);
        return;
    }

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);
        const Shape s = v->shape;

        if (v->op == OP_EMBED && (!spec->hidden || g->kind == FTX_MODEL_SEQ2SEQ)) /* the source's comes first */
            spec->hidden = (uint32_t)s.dim[1].n;
        if (v->op == OP_SAMPLE)
            spec->vocab = (uint32_t)ir_value(g, v->args[0])->shape.dim[1].n;
        caches += v->op == OP_CACHE;
        if (v->op == OP_ATTEND && ir_value(g, v->args[1])->op == OP_CACHE)
            add_layer(spec, g, v);
        recurrent += ir_op_is_recurrent(v->op);
    }
    spec->positions = settings_positions(g, false);
    spec->states = g->states ? (uint32_t)ir_value(g, g->states)->shape.dim[1].n : 0;
    if (!(spec->layers || recurrent) || !spec->hidden)
        sandbox_fail(L, "graph has no %s: a decoder embeds ids and attends to a cache in every layer",
                     spec->hidden ? "attend" : "embed");
    if (caches != r->layers) /* ir_sweep has removed the others */
        sandbox_fail(L, "graph has %d caches, of which attends read %d; each must be read", (int)r->layers,
                     (int)caches);
    if (recurrent != r->recurrent)
        sandbox_fail(L, "graph has %d recurrent states, of which %d are those of its output; each must be",
                     (int)r->recurrent, (int)recurrent);
    if (recurrent)
        spec->layers = count_layers(g);
    if (g->kind == FTX_MODEL_SEQ2SEQ)
        read_source_facts(L);
}

/* The row of a table of positions at which those of a text begin. */
static int64_t first_row(const Graph *g, Id table)
{
    int64_t first = 0;

    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);

        if (v->op == OP_POSITIONS && v->args[0] == table && ir_int(v, "offset") > first)
            first = ir_int(v, "offset");
    }
    return first;
}

/* Sets the length of the tables of positions, which follows from the limits. */
static void size_tables(Graph *g)
{
    const int64_t longest = g->limits.context > g->limits.source ? g->limits.context : g->limits.source;

    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_ROPE_TABLE || ir_value(g, id)->op == OP_SINUSOID) {
            const int64_t n = longest + first_row(g, id);

            ir_attr_int(g, id, "positions", n);
            ir_value(g, id)->shape.dim[0] = ir_const(n);
        }
}

/* The fields pooling and normalize, which replace the family's vector of a text. */
static void read_pooling(lua_State *L, int t)
{
    Graph *g = reader_of(L)->graph;
    const char *kind = field_text(L, t, "pooling");

    if (!kind || strcmp(kind, "model") == 0)
        kind = NULL;
    else if (strcmp(kind, "none") == 0)
        g->pooled = 0;
    else if (strcmp(kind, "first") == 0)
        g->pooled = nn_apply(L, OP_SELECT_FIRST, g->output);
    else if (strcmp(kind, "last") == 0)
        g->pooled = nn_apply(L, OP_SELECT_LAST, g->output);
    else if (strcmp(kind, "mean") == 0)
        g->pooled = nn_apply(L, OP_POOL_MEAN, g->output);
    else
        field_refuse(L, "pooling", "one of model, first, last, mean, none", (lua_pushstring(L, kind), -1));
    if (field_flag(L, t, "normalize")) {
        if (!g->pooled)
            sandbox_fail(L, "normalize: there is no pooled vector; pooling = \"mean\" makes one");
        g->pooled = nn_apply(L, OP_NORMALIZE, g->pooled);
    }
}

/* Whether each row of the result depends only on the same row of argument 0. */
static bool is_row_wise(Op op)
{
    return op == OP_RMSNORM || op == OP_LAYERNORM || op == OP_LINEAR || op == OP_SCALE || op == OP_ACT;
}

/* What v is where it is computed for each token, not for a sequence's last one. */
static Id of_tokens(lua_State *L, Id v)
{
    Graph *g = reader_of(L)->graph;
    const Value from = *ir_value(g, v);
    Attrs attrs = {.n = from.n_attrs};
    Id x;

    if (from.shape.dim[0].kind == DIM_T)
        return v;
    if (from.op == OP_SELECT_LAST)
        return from.args[0];
    if (!is_row_wise(from.op))
        sandbox_fail(L,
                     "states: the head reads what %s makes of each sequence, and only the rows of norm, linear, scale "
                     "and act are known for each token",
                     ir_op_name(from.op));
    x = of_tokens(L, from.args[0]);
    for (uint32_t i = 0; i < from.n_attrs; i++)
        attrs.at[i] = from.attrs[i];
    return value_add(L, from.op, x, from.args[1], from.args[2], &attrs);
}

/* The field states: what the head reads is a result, too, of each token of a step. */
static void read_states(lua_State *L, int t)
{
    Graph *g = reader_of(L)->graph;
    Id head = g->logits;

    if (!field_flag(L, t, "states"))
        return;
    while (head && ir_value(g, head)->op != OP_LINEAR)
        head = is_row_wise(ir_value(g, head)->op) ? ir_value(g, head)->args[0] : 0;
    if (!head)
        sandbox_fail(L, "states: the logits are not made by a linear, which would read the states");
    g->states = of_tokens(L, ir_value(g, head)->args[0]);
}

/* limits.masks: GPUs apply the masks of grammars. */
static void read_masks(lua_State *L, int t)
{
    Graph *g = reader_of(L)->graph;

    if (!field_flag(L, t, "limits.masks"))
        return;
    if (field_count(L, t, "parallel") > 1)
        sandbox_fail(L, "limits.masks: not with parallel; the host applies the masks of several ranks");
    g->output = nn_mask(L, g->output);
}

static int ftx_model(lua_State *L)
{
    Reader *r = reader_of(L);
    Graph *g = r->graph;
    Diag d = {0};

    if (!lua_istable(L, 1))
        return sandbox_fail(L, "ftx.model takes a table, got %s", lua_gettop(L) ? field_shown(L, 1) : "nothing");
    if (r->finished)
        return sandbox_fail(L, "ftx.model was called twice; a spec describes one model");
    lua_settop(L, 1);
    fields_override(L, 1);
    fields_check(L, 1, "");
    field_push(L, 1, "graph");
    if (!luaL_testudata(L, -1, "graph value"))
        field_refuse(L, "graph", field_expected(L, "graph"), -1);
    g->output = nn_value(L, -1, "graph");
    if (g->kind == FTX_MODEL_ENCODER) {
        read_pooling(L, 1);
    } else if (ir_value(g, g->output)->op != OP_SAMPLE) {
        return sandbox_fail(L, "graph must end with nn.sample(logits), it ends with %s",
                            ir_op_name(ir_value(g, g->output)->op));
    } else {
        g->logits = ir_value(g, g->output)->args[0];
        g->kind = r->sources ? FTX_MODEL_SEQ2SEQ : FTX_MODEL_DECODER;
    }
    fields_fit(L, 1);
    if (g->kind != FTX_MODEL_ENCODER)
        read_masks(L, 1);
    if (g->kind == FTX_MODEL_DECODER)
        read_states(L, 1);
    ir_sweep(g);
    read_facts(L);
    settings_limits(L, 1);
    if (g->limits.beams > 1)
        g->output = nn_beam(L, g->output);
    size_tables(g);
    settings_read(L, 1);
    if (!ir_verify(g, &d))
        return sandbox_fail(L, "%s", d.text);
    r->finished = true;
    lua_pushboolean(L, 1);
    return 1;
}

/* --- decode --------------------------------------------------------------------------------------------- */

static bool is_of_draws(const char *key)
{
    static const char *const keys[] = {"temperature", "top_p", "top_k", "min_p", "typical_p", "samples"};

    for (size_t i = 0; i < LEN(keys); i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static int strategy(lua_State *L, const char *name)
{
    Arena *a = sandbox_of(L)->keep;

    if (lua_isnoneornil(L, 1)) {
        lua_settop(L, 0);
        lua_newtable(L);
    }
    if (!lua_istable(L, 1))
        return sandbox_fail(L, "ftx.%s takes a table, got %s", name, field_shown(L, 1));
    lua_settop(L, 1);
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        const char *path = arena_printf(a, "decode.%.100s", key);

        if (!field_exists(path))
            return sandbox_fail(L, "ftx.%s: there is no field '%s'; the fields are: %s", name, sandbox_text(L, -2),
                                fields_names(a, "decode."));
        if (strcmp(name, "beam") != 0 && strcmp(key, "beams") == 0)
            return sandbox_fail(L, "ftx.%s has no beams; ftx.beam has", name);
        if (strcmp(name, "sample") != 0 && is_of_draws(key))
            return sandbox_fail(L, "ftx.%s takes the most likely %s and has no %s; ftx.sample has it", name,
                                strcmp(name, "greedy") == 0 ? "token" : "texts", key);
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

/* width: the number of beams */
static int ftx_beam(lua_State *L)
{
    strategy(L, "beam");
    if (lua_getfield(L, 1, "width") == LUA_TNIL)
        return sandbox_fail(L, "ftx.beam: width is missing; it must be %s", field_expected(L, "decode.width"));
    lua_settop(L, 1);
    return 1;
}

/* --- for families and checkouts --------------------------------------------------------------------------- */

/* ftx.refuse(file, reason): reports a mistake in a file that is not Lua */
static int ftx_refuse(lua_State *L)
{
    return sandbox_fail_at(L, (Loc){luaL_checkstring(L, 1), 0}, "%s", luaL_checkstring(L, 2));
}

/* ftx.override("graph.layers"): the text that -D gives it, or nil */
static int ftx_override(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1), *text = field_override(reader_of(L), path);

    if (text)
        lua_pushstring(L, text + strlen(path) + 1);
    else
        lua_pushnil(L);
    fields_took(L, path);
    return 1;
}

/* ftx.has("hf/LlamaForCausalLM"): whether there is such a module */
static int ftx_has(lua_State *L)
{
    lua_pushboolean(L, sandbox_module_exists(L, luaL_checkstring(L, 1)));
    return 1;
}

/* ftx.range("decode.top_k"): the least and the most that a field may be, and whether it is a whole number */
static int ftx_range(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    double low, high;
    bool whole;

    if (!field_exists(path))
        return sandbox_fail(L, "ftx.range: a model has no field '%s'", path);
    whole = field_range(path, &low, &high);
    lua_pushnumber(L, low);
    lua_pushnumber(L, high);
    lua_pushboolean(L, whole);
    return 3;
}

int ftx_open(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"model", ftx_model},       {"sample", ftx_sample}, {"greedy", ftx_greedy},
        {"beam", ftx_beam},         {"refuse", ftx_refuse}, {"has", ftx_has},
        {"override", ftx_override}, {"range", ftx_range},   {NULL, NULL},
    };

    luaL_newlib(L, functions);
    sandbox_strict(L, "ftx");
    return 1;
}
