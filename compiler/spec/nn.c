/* nn.c - nn.*: each function appends one operation to the graph, or the few that it stands for.
 *
 * A graph value in Lua is a userdata that holds its Id. What the rule of an operation (ir/infer.c) refuses becomes
 * an error at the line that called the function. */
#include "arguments.h"
#include "reader.h"

#include <math.h>
#include <string.h>

static const char VALUE[] = "graph value"; /* the name of the metatable, also used in messages */

enum { MAX_VALUES = 200000 };
#define MAX_SIZE INT32_MAX

typedef struct Node {
    Id id;
} Node;

/* --- values ------------------------------------------------------------------------------------- */

Id nn_value(lua_State *L, int i, const char *what)
{
    const Node *n = luaL_testudata(L, i, VALUE);

    if (reader_of(L)->finished)
        sandbox_fail(L, "%s: nothing can be added to the graph after ftx.model", what);
    if (!n)
        sandbox_fail(L, "%s must be a graph value, got %s", what, arg_found(L, i));
    return n->id;
}

/* An optional value: nil, or false (so that `c.bias and nn.weight(...)` can be passed on). */
static Id maybe_value(lua_State *L, int i, const char *what)
{
    return lua_toboolean(L, i) ? nn_value(L, i, what) : 0;
}

static int push(lua_State *L, Id id)
{
    Node *n = lua_newuserdatauv(L, sizeof *n, 0);

    n->id = id;
    luaL_setmetatable(L, VALUE);
    return 1;
}

static Value *value(lua_State *L, Id id)
{
    return ir_value(reader_of(L)->graph, id);
}

/* Attributes of the operation that is being added. Their names are literals. */
typedef struct Attrs {
    Attr at[8];
    uint32_t n;
} Attrs;

static void set_int(Attrs *a, const char *name, int64_t i)
{
    a->at[a->n++] = (Attr){.name = name, .kind = ATTR_INT, .i = i};
}

static void set_float(Attrs *a, const char *name, double f)
{
    a->at[a->n++] = (Attr){.name = name, .kind = ATTR_FLOAT, .f = f};
}

static void set_word(Attrs *a, const char *name, const char *s)
{
    a->at[a->n++] = (Attr){.name = name, .kind = ATTR_WORD, .s = s};
}

/* Raises the error of a Diag, if it has one. The message handler (sandbox.c) adds the place. */
static void check(lua_State *L, const Diag *d)
{
    if (d->failed)
        sandbox_fail(L, "%s", d->text);
}

static Id add_shaped(lua_State *L, Op op, const Id args[IR_MAX_ARGS], const Attrs *attrs, Shape shape)
{
    Graph *g = reader_of(L)->graph;
    Diag d = {0};
    DType type = DT_NONE;
    Id id;

    if (reader_of(L)->finished)
        sandbox_fail(L, "%s: nothing can be added to the graph after ftx.model", ir_op_name(op));
    if (g->values.n > MAX_VALUES)
        sandbox_fail(L, "the graph has more than %d values", MAX_VALUES);
    ir_infer(g, op, args, attrs->at, attrs->n, DT_NONE, (Loc){0}, &shape, &type, &d);
    check(L, &d);
    id = ir_value_add(g, op, args, shape, type, sandbox_here(L));
    for (uint32_t i = 0; i < attrs->n; i++) {
        const Attr *a = &attrs->at[i];

        if (a->kind == ATTR_INT)
            ir_attr_int(g, id, a->name, a->i);
        else if (a->kind == ATTR_FLOAT)
            ir_attr_float(g, id, a->name, a->f);
        else
            ir_attr_word(g, id, a->name, a->s);
    }
    return id;
}

static Id add(lua_State *L, Op op, Id a, Id b, Id c, const Attrs *attrs)
{
    static const Attrs none;

    return add_shaped(L, op, (Id[IR_MAX_ARGS]){a, b, c}, attrs ? attrs : &none, (Shape){0});
}

/* The weight of this name, or 0: a name that is used twice is one weight. */
static Id known_weight(lua_State *L, const char *name)
{
    const Graph *g = reader_of(L)->graph;

    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_WEIGHT && strcmp(ir_word(ir_value(g, id), "name"), name) == 0)
            return id;
    return 0;
}

/* --- weights -------------------------------------------------------------------------------------- */

/* nn.weight("name", {N, K}) */
static int nn_weight(lua_State *L)
{
    const char *name = arg_word(L, 1, "weight: the name");
    Shape shape = {0};
    Attrs attrs = {0};
    Id id;

    if (lua_type(L, 2) != LUA_TTABLE || lua_rawlen(L, 2) < 1 || lua_rawlen(L, 2) > 2)
        return sandbox_fail(L, "weight %s: the shape must be {N} or {N, K}, got %s", name,
                            lua_type(L, 2) == LUA_TTABLE ? "another table" : arg_found(L, 2));
    shape.rank = (uint32_t)lua_rawlen(L, 2);
    for (uint32_t i = 0; i < shape.rank; i++) {
        lua_rawgeti(L, 2, i + 1);
        lua_pushfstring(L, "weight %s: size %d", name, (int)i + 1);
        shape.dim[i] = ir_const(arg_count(L, -2, 1, MAX_SIZE, lua_tostring(L, -1)));
    }
    if (ir_shape_elements(shape, 1, 1) > INT64_C(1) << 40)
        return sandbox_fail(L, "weight %s: %s is more than 2^40 elements", name,
                            ir_shape_text(reader_of(L)->graph->scratch, shape));
    id = known_weight(L, name);
    if (id && !ir_shape_equal(value(L, id)->shape, shape)) {
        Arena *a = reader_of(L)->graph->scratch;

        return sandbox_fail(L, "weight %s: the shape is %s here and %s on line %d", name, ir_shape_text(a, shape),
                            ir_shape_text(a, value(L, id)->shape), value(L, id)->loc.line);
    }
    if (id)
        return push(L, id);
    set_word(&attrs, "name", name);
    return push(L, add_shaped(L, OP_WEIGHT, (Id[IR_MAX_ARGS]){0}, &attrs, shape));
}

static int nn_transpose(lua_State *L)
{
    return push(L, add(L, OP_TRANSPOSE, nn_value(L, 1, "transpose: w"), 0, 0, NULL));
}

/* nn.rows(w, from, count): from counts from 0 */
static int nn_rows(lua_State *L)
{
    const Id w = nn_value(L, 1, "rows: w");
    Attrs attrs = {0};

    set_int(&attrs, "from", arg_count(L, 2, 0, MAX_SIZE, "rows: from"));
    set_int(&attrs, "count", arg_count(L, 3, 1, MAX_SIZE, "rows: count"));
    return push(L, add(L, OP_ROWS, w, 0, 0, &attrs));
}

static int nn_concat(lua_State *L)
{
    return push(L,
                add(L, OP_CONCAT, nn_value(L, 1, "concat: the first weight"),
                    nn_value(L, 2, "concat: the second weight"), maybe_value(L, 3, "concat: the third weight"), NULL));
}

/* nn.checkpoint { prefixes = {"model."}, unused = {"*.inv_freq"} ... }: how checkpoints may differ */
static int nn_checkpoint(lua_State *L)
{
    Spec *spec = reader_of(L)->spec;
    Arena *keep = sandbox_of(L)->keep;
    const struct {
        const char *name;
        NameList *list;
    } lists[] = {{"prefixes", &spec->prefixes},
                 {"renamed", &spec->renamed},
                 {"unused", &spec->ignored},
                 {"heads", &spec->head_names}};

    luaL_checkstack(L, 8, NULL);
    if (!arg_options(L, 1, "prefixes renamed unused heads", "checkpoint"))
        return 0;
    for (size_t which = 0; which < LEN(lists); which++) {
        if (lua_getfield(L, 1, lists[which].name) == LUA_TNIL)
            continue;
        if (lua_type(L, -1) != LUA_TTABLE)
            return sandbox_fail(L, "checkpoint: %s must be a list of names", lists[which].name);
        if (lists[which].list == &spec->renamed && lua_rawlen(L, -1) % 2)
            return sandbox_fail(L, "checkpoint: renamed must be a list of pairs: a name's end, and its older form");
        for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++, lua_pop(L, 1)) {
            *arena_push(keep, *lists[which].list) = arena_strdup(keep, arg_word(L, -1, "checkpoint: a name"));
            if (i > 1000)
                return sandbox_fail(L, "checkpoint: more than 1000 names");
        }
        lua_pop(L, 1);
    }
    return 0;
}

/* --- activations ------------------------------------------------------------------------------------ */

static int nn_ids(lua_State *L)
{
    const Graph *g = reader_of(L)->graph;

    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_IDS)
            return push(L, id);
    return push(L, add(L, OP_IDS, 0, 0, 0, NULL));
}

static int nn_embed(lua_State *L)
{
    return push(L, add(L, OP_EMBED, nn_value(L, 1, "embed: ids"), nn_value(L, 2, "embed: w"), 0, NULL));
}

/* nn.positions(w [, offset]) */
static int nn_positions(lua_State *L)
{
    const Id w = nn_value(L, 1, "positions: w");
    const int64_t offset = lua_isnoneornil(L, 2) ? 0 : arg_count(L, 2, 0, MAX_SIZE, "positions: offset");
    Attrs attrs = {0};

    if (offset)
        set_int(&attrs, "offset", offset);
    return push(L, add(L, OP_POSITIONS, w, 0, 0, &attrs));
}

/* nn.types(w): the row of each token's type, which tells the texts of a pair apart */
static int nn_types(lua_State *L)
{
    return push(L, add(L, OP_TYPES, nn_value(L, 1, "types: w"), 0, 0, NULL));
}

static bool same_attrs(const Value *v, const Attrs *a);

/* nn.sinusoid {dim=, theta=, span=, style=}: a table for nn.positions. ftx.model sets its length. Equal options
 * share a table. */
static int nn_sinusoid(lua_State *L)
{
    const Graph *g = reader_of(L)->graph;
    Attrs attrs = {0};
    double theta;

    luaL_checkstack(L, 8, NULL);
    if (!arg_options(L, 1, "dim theta span style", "sinusoid"))
        return sandbox_fail(L, "sinusoid takes a table with the field dim");
    set_int(&attrs, "dim", arg_option_count(L, 1, "dim", 2, MAX_SIZE, 0, "sinusoid"));
    theta = arg_option_number(L, 1, "theta", 10000, "sinusoid");
    if (theta <= 0)
        return sandbox_fail(L, "sinusoid: theta is %g, it must be positive", theta);
    set_float(&attrs, "theta", theta);
    if (arg_option_count(L, 1, "span", 0, MAX_SIZE, 0, "sinusoid"))
        set_int(&attrs, "span", arg_option_count(L, 1, "span", 0, MAX_SIZE, 0, "sinusoid"));
    if (lua_getfield(L, 1, "style") != LUA_TNIL)
        set_word(&attrs, "style", arg_word(L, -1, "sinusoid: style"));
    set_int(&attrs, "positions", 1);
    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_SINUSOID && same_attrs(ir_value(g, id), &attrs))
            return push(L, id);
    return push(L, add(L, OP_SINUSOID, 0, 0, 0, &attrs));
}

static int nn_linear(lua_State *L)
{
    return push(L, add(L, OP_LINEAR, nn_value(L, 1, "linear: x"), nn_value(L, 2, "linear: w"),
                       maybe_value(L, 3, "linear: b"), NULL));
}

static int nn_add(lua_State *L)
{
    return push(L, add(L, OP_ADD, nn_value(L, 1, "add: a"), nn_value(L, 2, "add: b"), 0, NULL));
}

static int nn_mul(lua_State *L)
{
    return push(L, add(L, OP_MUL, nn_value(L, 1, "mul: a"), nn_value(L, 2, "mul: b"), 0, NULL));
}

static int nn_scale(lua_State *L)
{
    const Id x = nn_value(L, 1, "scale: x");
    Attrs attrs = {0};

    set_float(&attrs, "by", arg_number(L, 2, "scale: by"));
    return push(L, add(L, OP_SCALE, x, 0, 0, &attrs));
}

static void set_eps(lua_State *L, Attrs *attrs, int i, const char *what)
{
    const double eps = arg_number(L, i, what);

    if (eps < 0 || eps > 1)
        sandbox_fail(L, "%s must be from 0 to 1, got %s", what, arg_found(L, i));
    set_float(attrs, "eps", eps);
}

static int nn_rmsnorm(lua_State *L)
{
    const Id x = nn_value(L, 1, "rmsnorm: x"), g = nn_value(L, 2, "rmsnorm: g");
    Attrs attrs = {0};

    set_eps(L, &attrs, 3, "rmsnorm: eps");
    return push(L, add(L, OP_RMSNORM, x, g, 0, &attrs));
}

static int nn_layernorm(lua_State *L)
{
    const Id x = nn_value(L, 1, "layernorm: x"), g = nn_value(L, 2, "layernorm: g"), b = nn_value(L, 3, "layernorm: b");
    Attrs attrs = {0};

    set_eps(L, &attrs, 4, "layernorm: eps");
    return push(L, add(L, OP_LAYERNORM, x, g, b, &attrs));
}

/* nn.act(x, "silu"); "identity" returns x */
static int nn_act(lua_State *L)
{
    const Id x = nn_value(L, 1, "act: x");
    const char *kind = arg_word(L, 2, "act: kind");
    Attrs attrs = {0};

    if (strcmp(kind, "identity") == 0)
        return push(L, x);
    set_word(&attrs, "kind", kind);
    return push(L, add(L, OP_ACT, x, 0, 0, &attrs));
}

/* nn.glu(gate, up, kind) = kind(gate) * up */
static int nn_glu(lua_State *L)
{
    const Id gate = nn_value(L, 1, "glu: gate"), up = nn_value(L, 2, "glu: up");
    Attrs attrs = {0};

    set_word(&attrs, "kind", arg_word(L, 3, "glu: kind"));
    return push(L, add(L, OP_MUL, add(L, OP_ACT, gate, 0, 0, &attrs), up, 0, NULL));
}

static int nn_split_heads(lua_State *L)
{
    const Id x = nn_value(L, 1, "split_heads: x");
    Attrs attrs = {0};

    set_int(&attrs, "heads", arg_count(L, 2, 1, 65536, "split_heads: heads"));
    return push(L, add(L, OP_SPLIT_HEADS, x, 0, 0, &attrs));
}

static int nn_join_heads(lua_State *L)
{
    return push(L, add(L, OP_JOIN_HEADS, nn_value(L, 1, "join_heads: x"), 0, 0, NULL));
}

/* Options of a rope_table: theta, dim, scaling = {kind, factor, low, high, original}. ftx.model sets its length. */
static void rope_attrs(lua_State *L, int i, int64_t head_dim, Attrs *attrs)
{
    static const char *const kinds[] = {"none", "linear", "llama3"};
    const char *kind = "none";
    const int64_t dim = arg_option_count(L, i, "dim", 2, head_dim, head_dim, "rope");
    const double theta = arg_option_number(L, i, "theta", 10000, "rope");

    if (dim % 2)
        sandbox_fail(L, "rope: dim is %lld, it must be even", (long long)dim);
    if (theta <= 0)
        sandbox_fail(L, "rope: theta is %g, it must be positive", theta);
    set_int(attrs, "rot", dim);
    set_float(attrs, "theta", theta);
    set_int(attrs, "positions", 1);
    if (lua_getfield(L, i, "scaling") == LUA_TNIL)
        return;
    i = lua_gettop(L);
    arg_options(L, i, "kind factor low high original", "rope: scaling");
    lua_getfield(L, i, "kind");
    kind = arg_word(L, -1, "rope: scaling.kind");
    for (size_t k = 0; k <= LEN(kinds); k++) {
        if (k == LEN(kinds))
            sandbox_fail(L, "rope: scaling.kind is \"%s\", it must be none, linear or llama3", kind);
        if (strcmp(kind, kinds[k]) == 0)
            break;
    }
    if (strcmp(kind, "none") == 0)
        return;
    set_word(attrs, "scaling", kind);
    set_float(attrs, "factor", arg_option_number(L, i, "factor", 0, "rope: scaling"));
    if (attrs->at[attrs->n - 1].f < 1)
        sandbox_fail(L, "rope: scaling.factor is %g, it must be 1 or more", attrs->at[attrs->n - 1].f);
    if (strcmp(kind, "llama3") == 0) {
        const double low = arg_option_number(L, i, "low", 1, "rope: scaling");
        const double high = arg_option_number(L, i, "high", 4, "rope: scaling");

        if (low <= 0 || high <= low)
            sandbox_fail(L, "rope: scaling.low is %g and high %g, they must be positive and low < high", low, high);
        set_float(attrs, "low", low);
        set_float(attrs, "high", high);
        set_int(attrs, "original", arg_option_count(L, i, "original", 1, MAX_SIZE, 0, "rope: scaling"));
        if (!attrs->at[attrs->n - 1].i)
            sandbox_fail(L, "rope: scaling.original is missing: the context of the training before the scaling");
    }
}

static bool same_attrs(const Value *v, const Attrs *a)
{
    if (v->n_attrs != a->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const Attr *b = ir_attr(v, a->at[i].name);

        if (!b || b->kind != a->at[i].kind || b->i != a->at[i].i || b->f != a->at[i].f ||
            (b->kind == ATTR_WORD && strcmp(b->s, a->at[i].s) != 0))
            return false;
    }
    return true;
}

/* nn.rope(x, {theta=, dim=, scaling=, style="half"}): layers with equal options share a table */
static int nn_rope(lua_State *L)
{
    const Graph *g = reader_of(L)->graph;
    const Id x = nn_value(L, 1, "rope: x");
    const Shape shape = value(L, x)->shape;
    Attrs table = {0}, attrs = {0};
    Id found_table = 0;

    lua_settop(L, 2);
    if (shape.rank != 3)
        return sandbox_fail(L, "rope: x is %s, it must be [T,heads,head_dim]: split_heads gives that",
                            ir_shape_text(g->scratch, shape));
    if (lua_isnil(L, 2))
        lua_newtable(L), lua_replace(L, 2); /* all defaults */
    arg_options(L, 2, "theta dim scaling style", "rope");
    rope_attrs(L, 2, shape.dim[2].n, &table);
    for (Id id = 1; id < g->values.n && !found_table; id++)
        if (ir_value(g, id)->op == OP_ROPE_TABLE && same_attrs(ir_value(g, id), &table))
            found_table = id;
    if (!found_table)
        found_table = add(L, OP_ROPE_TABLE, 0, 0, 0, &table);
    if (lua_getfield(L, 2, "style") != LUA_TNIL)
        set_word(&attrs, "style", arg_word(L, -1, "rope: style"));
    return push(L, add(L, OP_ROPE, x, found_table, 0, &attrs));
}

/* nn.cache(k, v): the cache of the next layer */
static int nn_cache(lua_State *L)
{
    Reader *r = reader_of(L);
    const Id k = nn_value(L, 1, "cache: k"), v = nn_value(L, 2, "cache: v");
    const Shape shape = value(L, k)->shape;
    Attrs attrs = {0};
    Id id;

    set_int(&attrs, "layer", r->layers);
    id = add(L, OP_CACHE, k, v, 0, &attrs);
    if (shape.dim[2].n % 8 || shape.dim[2].n < 16 || shape.dim[2].n > 256)
        return sandbox_fail(L, "cache: head_dim is %lld, it must be a multiple of 8 from 16 to 256",
                            (long long)shape.dim[2].n);
    r->layers++;
    return push(L, id);
}

/* nn.attend(q, cache, {scale=, window=, softcap=}): scale 1/sqrt(head_dim), window in tokens */
static int nn_attend(lua_State *L)
{
    const Id q = nn_value(L, 1, "attend: q"), cache = nn_value(L, 2, "attend: the cache");
    const Shape shape = value(L, q)->shape;
    Attrs attrs = {0};
    double scale, softcap = 0;
    int64_t window = 0;

    lua_settop(L, 3);
    if (value(L, cache)->op != OP_CACHE)
        return sandbox_fail(L, "attend: the second argument is the result of %s, it must be that of cache",
                            ir_op_name(value(L, cache)->op));
    scale = shape.rank == 3 ? 1 / sqrt((double)shape.dim[2].n) : 1;
    if (arg_options(L, 3, "scale window softcap", "attend")) {
        scale = arg_option_number(L, 3, "scale", scale, "attend");
        softcap = arg_option_number(L, 3, "softcap", 0, "attend");
        window = arg_option_count(L, 3, "window", 0, MAX_SIZE, 0, "attend");
    }
    set_int(&attrs, "layer", ir_int(value(L, cache), "layer"));
    set_float(&attrs, "scale", scale);
    if (window)
        set_int(&attrs, "window", window);
    if (softcap != 0)
        set_float(&attrs, "softcap", softcap);
    return push(L, add(L, OP_ATTEND, q, cache, 0, &attrs));
}

static void check_head_dim(lua_State *L, const char *who, Shape shape)
{
    const int64_t head_dim = shape.rank == 3 ? shape.dim[2].n : 0;

    if (head_dim % 8 || head_dim < 16 || head_dim > 256)
        sandbox_fail(L, "%s: head_dim is %lld, it must be a multiple of 8 from 16 to 256", who, (long long)head_dim);
}

/* The option of attention without a cache. */
static double attend_scale(lua_State *L, int i, Shape q, const char *who)
{
    const double scale = q.rank == 3 ? 1 / sqrt((double)q.dim[2].n) : 1;

    lua_settop(L, i);
    return arg_options(L, i, "scale", who) ? arg_option_number(L, i, "scale", scale, who) : scale;
}

/* nn.attend_full(q, k, v, {scale=}): every token sees all of its text */
static int nn_attend_full(lua_State *L)
{
    const Id q = nn_value(L, 1, "attend_full: q"), k = nn_value(L, 2, "attend_full: k");
    const Id v = nn_value(L, 3, "attend_full: v");
    Attrs attrs = {0};

    check_head_dim(L, "attend_full", value(L, q)->shape);
    set_float(&attrs, "scale", attend_scale(L, 4, value(L, q)->shape, "attend_full"));
    return push(L, add(L, OP_ATTEND_FULL, q, k, v, &attrs));
}

/* nn.cross_cache(k, v): keys and values of the source for the next layer of the decoder */
static int nn_cross_cache(lua_State *L)
{
    Reader *r = reader_of(L);
    const Id k = nn_value(L, 1, "cross_cache: k"), v = nn_value(L, 2, "cross_cache: v");
    Attrs attrs = {0};

    check_head_dim(L, "cross_cache", value(L, k)->shape);
    set_int(&attrs, "layer", r->sources++);
    return push(L, add(L, OP_CROSS_CACHE, k, v, 0, &attrs));
}

/* nn.attend_cross(q, cross, {scale=}) */
static int nn_attend_cross(lua_State *L)
{
    const Id q = nn_value(L, 1, "attend_cross: q"), cross = nn_value(L, 2, "attend_cross: the source");
    Attrs attrs = {0};

    if (value(L, cross)->op != OP_CROSS_CACHE)
        return sandbox_fail(L, "attend_cross: the second argument is the result of %s, it must be that of cross_cache",
                            ir_op_name(value(L, cross)->op));
    set_int(&attrs, "layer", ir_int(value(L, cross), "layer"));
    set_float(&attrs, "scale", attend_scale(L, 3, value(L, q)->shape, "attend_cross"));
    return push(L, add(L, OP_ATTEND_SOURCE, q, cross, 0, &attrs));
}

static int nn_select_first(lua_State *L)
{
    return push(L, add(L, OP_SELECT_FIRST, nn_value(L, 1, "select_first: x"), 0, 0, NULL));
}

static int nn_pool_mean(lua_State *L)
{
    return push(L, add(L, OP_POOL_MEAN, nn_value(L, 1, "pool_mean: x"), 0, 0, NULL));
}

static int nn_normalize(lua_State *L)
{
    return push(L, add(L, OP_NORMALIZE, nn_value(L, 1, "normalize: x"), 0, 0, NULL));
}

Id nn_apply(lua_State *L, Op op, Id x)
{
    return add(L, op, x, 0, 0, NULL);
}

/* nn.vectors(hidden [, pooled]): the end of an encoder: a vector for each token, and perhaps one for each text */
static int nn_vectors(lua_State *L)
{
    Reader *r = reader_of(L);
    const Id hidden = nn_value(L, 1, "vectors: hidden"), pooled = maybe_value(L, 2, "vectors: pooled");

    r->graph->kind = FTX_MODEL_ENCODER;
    r->graph->pooled = pooled;
    return push(L, hidden);
}

/* nn.embedded(h): marks an encoder's hidden states before the first layer, which a caller may give in place of ids */
static int nn_embedded(lua_State *L)
{
    Reader *r = reader_of(L);
    const Id h = nn_value(L, 1, "embedded: h");

    if (r->graph->entry)
        return sandbox_fail(L, "embedded: it was called before; a graph has one such value");
    r->graph->entry = h;
    return push(L, h);
}

static int nn_select_last(lua_State *L)
{
    return push(L, add(L, OP_SELECT_LAST, nn_value(L, 1, "select_last: x"), 0, 0, NULL));
}

static int nn_sample(lua_State *L)
{
    return push(L, add(L, OP_SAMPLE, nn_value(L, 1, "sample: logits"), 0, 0, NULL));
}

Id nn_beam(lua_State *L, Id sample)
{
    return add(L, OP_BEAM, value(L, sample)->args[0], sample, 0, NULL);
}

/* nn.width(x): the last size */
static int nn_width(lua_State *L)
{
    const Shape shape = value(L, nn_value(L, 1, "width: x"))->shape;

    lua_pushinteger(L, shape.rank ? shape.dim[shape.rank - 1].n : 0);
    return 1;
}

/* --- operators ---------------------------------------------------------------------------------------- */

/* a * b: of two values, or of a value and a number */
static int multiply(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TNUMBER)
        lua_insert(L, 1);
    return lua_type(L, 2) == LUA_TNUMBER ? nn_scale(L) : nn_mul(L);
}

static int describe(lua_State *L)
{
    const Graph *g = reader_of(L)->graph;
    const Value *v = value(L, nn_value(L, 1, "a graph value"));

    lua_pushfstring(L, "%s %s", ir_op_name(v->op), ir_shape_text(g->scratch, v->shape));
    return 1;
}

static int no_field(lua_State *L)
{
    return sandbox_fail(L, "a graph value has no field '%s'; nn.width(x) gives its last size", sandbox_text(L, 2));
}

int nn_open(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"weight", nn_weight},
        {"transpose", nn_transpose},
        {"rows", nn_rows},
        {"concat", nn_concat},
        {"checkpoint", nn_checkpoint},
        {"ids", nn_ids},
        {"embed", nn_embed},
        {"positions", nn_positions},
        {"linear", nn_linear},
        {"add", nn_add},
        {"mul", nn_mul},
        {"scale", nn_scale},
        {"rmsnorm", nn_rmsnorm},
        {"layernorm", nn_layernorm},
        {"act", nn_act},
        {"glu", nn_glu},
        {"split_heads", nn_split_heads},
        {"join_heads", nn_join_heads},
        {"rope", nn_rope},
        {"cache", nn_cache},
        {"attend", nn_attend},
        {"types", nn_types},
        {"sinusoid", nn_sinusoid},
        {"attend_full", nn_attend_full},
        {"cross_cache", nn_cross_cache},
        {"attend_cross", nn_attend_cross},
        {"select_first", nn_select_first},
        {"pool_mean", nn_pool_mean},
        {"normalize", nn_normalize},
        {"embedded", nn_embedded},
        {"vectors", nn_vectors},
        {"select_last", nn_select_last},
        {"sample", nn_sample},
        {"width", nn_width},
        {NULL, NULL},
    };
    static const luaL_Reg operators[] = {
        {"__add", nn_add}, {"__mul", multiply}, {"__tostring", describe}, {"__index", no_field}, {NULL, NULL},
    };

    luaL_newmetatable(L, VALUE);
    luaL_setfuncs(L, operators, 0);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    sandbox_strict(L, "nn");
    return 1;
}
