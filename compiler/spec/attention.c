/* attention.c - nn.*: heads, rotary positions, caches, attention. */
#include "arguments.h"
#include "values.h"

#include <math.h>
#include <string.h>

static int nn_split_heads(lua_State *L)
{
    const Id x = nn_value(L, 1, "split_heads: x");
    Attrs attrs = {0};

    attrs_int(&attrs, "heads", arg_count(L, 2, 1, 65536, "split_heads: heads"));
    return value_push(L, value_add(L, OP_SPLIT_HEADS, x, 0, 0, &attrs));
}

static int nn_join_heads(lua_State *L)
{
    return value_push(L, value_add(L, OP_JOIN_HEADS, nn_value(L, 1, "join_heads: x"), 0, 0, NULL));
}

/* The list freqs in field -1 as the text that a rope_table keeps: "1 0.5 0.25". */
static const char *freqs_text(lua_State *L, int64_t n)
{
    const int list = lua_gettop(L);
    luaL_Buffer b;

    if (lua_type(L, list) != LUA_TTABLE || (int64_t)lua_rawlen(L, list) != n)
        sandbox_fail(L, "rope: freqs must be a list of %lld numbers, one for each pair of dim", (long long)n);
    luaL_buffinit(L, &b);
    for (int64_t i = 0; i < n; i++) {
        char text[32];

        lua_rawgeti(L, list, i + 1);
        snprintf(text, sizeof text, "%s%.17g", i ? " " : "", arg_number(L, -1, "rope: a number of freqs"));
        lua_pop(L, 1);
        luaL_addstring(&b, text);
    }
    luaL_pushresult(&b);
    return lua_tostring(L, -1);
}

/* Options of a rope_table: dim, amplitude, and freqs or theta and scaling = {kind, factor, low, high, original}.
 * ftx.model sets its length. */
static void rope_attrs(lua_State *L, int i, int64_t head_dim, Attrs *attrs)
{
    static const char *const kinds[] = {"none", "linear", "llama3"};
    const char *kind = "none";
    const int64_t dim = arg_option_count(L, i, "dim", 2, head_dim, head_dim, "rope");
    const double theta = arg_option_number(L, i, "theta", 10000, "rope");
    const double amplitude = arg_option_number(L, i, "amplitude", 1, "rope");

    if (dim % 2)
        sandbox_fail(L, "rope: dim is %lld, it must be even", (long long)dim);
    if (theta <= 0)
        sandbox_fail(L, "rope: theta is %g, it must be positive", theta);
    if (amplitude <= 0)
        sandbox_fail(L, "rope: amplitude is %g, it must be positive", amplitude);
    attrs_int(attrs, "rot", dim);
    attrs_int(attrs, "positions", 1);
    if (amplitude != 1)
        attrs_float(attrs, "amplitude", amplitude);
    if (lua_getfield(L, i, "freqs") != LUA_TNIL) {
        attrs_word(attrs, "freqs", freqs_text(L, dim / 2));
        if (lua_getfield(L, i, "theta") != LUA_TNIL || lua_getfield(L, i, "scaling") != LUA_TNIL)
            sandbox_fail(L, "rope: freqs stands in place of theta and scaling; give one of them");
        return;
    }
    attrs_float(attrs, "theta", theta);
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
    attrs_word(attrs, "scaling", kind);
    attrs_float(attrs, "factor", arg_option_number(L, i, "factor", 0, "rope: scaling"));
    if (attrs->at[attrs->n - 1].f < 1)
        sandbox_fail(L, "rope: scaling.factor is %g, it must be 1 or more", attrs->at[attrs->n - 1].f);
    if (strcmp(kind, "llama3") == 0) {
        const double low = arg_option_number(L, i, "low", 1, "rope: scaling");
        const double high = arg_option_number(L, i, "high", 4, "rope: scaling");

        if (low <= 0 || high <= low)
            sandbox_fail(L, "rope: scaling.low is %g and high %g, they must be positive and low < high", low, high);
        attrs_float(attrs, "low", low);
        attrs_float(attrs, "high", high);
        attrs_int(attrs, "original", arg_option_count(L, i, "original", 1, MAX_SIZE, 0, "rope: scaling"));
        if (!attrs->at[attrs->n - 1].i)
            sandbox_fail(L, "rope: scaling.original is missing: the context of the training before the scaling");
    }
}

/* nn.rope(x, {theta=, dim=, scaling=, freqs=, amplitude=, style="half", count="all", tail=0}): layers with equal options
 * share a table */
static int nn_rope(lua_State *L)
{
    const Graph *g = reader_of(L)->graph;
    const Id x = nn_value(L, 1, "rope: x");
    const Shape shape = value_at(L, x)->shape;
    Attrs table = {0}, attrs = {0};
    int64_t tail;

    lua_settop(L, 2);
    if (shape.rank != 3)
        return sandbox_fail(L, "rope: x is %s, it must be [T,heads,head_dim]: split_heads gives that",
                            ir_shape_text(g->scratch, shape));
    if (lua_isnil(L, 2))
        lua_newtable(L), lua_replace(L, 2); /* all defaults */
    arg_options(L, 2, "theta dim scaling style freqs amplitude count tail", "rope");
    rope_attrs(L, 2, shape.dim[2].n, &table);
    if (lua_getfield(L, 2, "style") != LUA_TNIL)
        attrs_word(&attrs, "style", arg_word(L, -1, "rope: style"));
    if (lua_getfield(L, 2, "count") != LUA_TNIL)
        attrs_word(&attrs, "count", arg_word(L, -1, "rope: count"));
    tail = arg_option_count(L, 2, "tail", 0, MAX_SIZE, 0, "rope");
    if (tail)
        attrs_int(&attrs, "tail", tail);
    return value_push(L, value_add(L, OP_ROPE, x, value_table(L, OP_ROPE_TABLE, &table), 0, &attrs));
}

static void check_head_dim(lua_State *L, const char *who, Shape shape)
{
    const int64_t head_dim = shape.rank == 3 ? shape.dim[2].n : 0;

    if (head_dim % 8 || head_dim < 16 || head_dim > 576)
        sandbox_fail(L, "%s: head_dim is %lld, it must be a multiple of 8 from 16 to 576", who, (long long)head_dim);
}

/* nn.cache(k, v): the cache of the next layer; nn.cache(k [, count]): the first `count` elements of a key are its value */
static int nn_cache(lua_State *L)
{
    Reader *r = reader_of(L);
    const Id k = nn_value(L, 1, "cache: k");
    const bool inside = lua_isnoneornil(L, 2) || lua_type(L, 2) == LUA_TNUMBER;
    const Id v = inside ? 0 : nn_value(L, 2, "cache: v");
    const Shape shape = value_at(L, k)->shape;
    const int64_t elements = shape.rank == 3 ? shape.dim[2].n : 1;
    Attrs attrs = {0};
    Id id;

    attrs_int(&attrs, "layer", r->layers);
    if (inside)
        attrs_int(&attrs, "v_dim",
                  lua_isnoneornil(L, 2) ? elements : arg_count(L, 2, 1, elements, "cache: elements of a value"));
    id = value_add(L, OP_CACHE, k, v, 0, &attrs);
    check_head_dim(L, "cache", value_at(L, k)->shape);
    r->layers++;
    return value_push(L, id);
}

/* nn.head_linear(x, w): each head of x with a matrix of its own */
static int nn_head_linear(lua_State *L)
{
    return value_push(
        L, value_add(L, OP_HEAD_LINEAR, nn_value(L, 1, "head_linear: x"), nn_value(L, 2, "head_linear: w"), 0, NULL));
}

/* nn.cross_cache(k, v): keys and values of the source for the next layer of the decoder */
static int nn_cross_cache(lua_State *L)
{
    Reader *r = reader_of(L);
    const Id k = nn_value(L, 1, "cross_cache: k"), v = nn_value(L, 2, "cross_cache: v");
    Attrs attrs = {0};

    check_head_dim(L, "cross_cache", value_at(L, k)->shape);
    attrs_int(&attrs, "layer", r->sources++);
    return value_push(L, value_add(L, OP_CROSS_CACHE, k, v, 0, &attrs));
}

/* The options at i, and the op. args: q, k and v. names: the options that this function has. */
static int add_attend(lua_State *L, int i, const char *who, const char *names, const char *scope, Id args[IR_MAX_ARGS],
                      Attrs *attrs)
{
    const Shape q = value_at(L, args[0])->shape;
    const double usual = q.rank == 3 ? 1 / sqrt((double)q.dim[2].n) : 1;
    double scale = usual, softcap = 0;
    int64_t window = 0, chunk = 0, tail = 0;
    bool rounded = false;

    lua_settop(L, i);
    luaL_checkstack(L, 16, NULL);
    if (arg_options(L, i, names, who)) {
        scale = arg_option_number(L, i, "scale", usual, who);
        softcap = arg_option_number(L, i, "softcap", 0, who);
        window = arg_option_count(L, i, "window", 0, MAX_SIZE, 0, who);
        if (lua_getfield(L, i, "causal") != LUA_TNIL && lua_toboolean(L, -1))
            scope = "causal";
        chunk = arg_option_count(L, i, "chunk", 0, MAX_SIZE, 0, who);
        rounded = lua_getfield(L, i, "rounded") != LUA_TNIL && lua_toboolean(L, -1);
        if (lua_getfield(L, i, "prefix") != LUA_TNIL && lua_toboolean(L, -1))
            scope = "prefix";
        tail = arg_option_count(L, i, "tail", 0, MAX_SIZE, 0, who);
        lua_pop(L, 3);
    }
    args[3] = value_option(L, i, "bias", who);
    args[4] = value_option(L, i, "slopes", who);
    args[5] = value_option(L, i, "sinks", who);
    args[6] = value_option(L, i, "by_query", who);
    args[7] = value_option(L, i, "by_key", who);
    attrs_float(attrs, "scale", scale);
    if (strcmp(scope, "causal") != 0)
        attrs_word(attrs, "scope", scope);
    if (window)
        attrs_int(attrs, "window", window);
    if (softcap != 0)
        attrs_float(attrs, "softcap", softcap);
    if (chunk)
        attrs_int(attrs, "chunk", chunk);
    if (rounded)
        attrs_int(attrs, "rounded", 1);
    if (tail)
        attrs_int(attrs, "tail", tail);
    return value_push(L, value_add_shaped(L, OP_ATTEND, args, attrs, (Shape){0}));
}

/* nn.attend(q, cache, {scale=, window=, chunk=, prefix=, tail=, softcap=, bias=, slopes=, rounded=, sinks=}): scale
 * 1/sqrt(head_dim), window, chunk and tail in tokens */
static int nn_attend(lua_State *L)
{
    Id args[IR_MAX_ARGS] = {nn_value(L, 1, "attend: q"), nn_value(L, 2, "attend: the cache")};
    Attrs attrs = {0};

    if (value_at(L, args[1])->op != OP_CACHE)
        return sandbox_fail(L, "attend: the second argument is the result of %s, it must be that of cache",
                            ir_op_name(value_at(L, args[1])->op));
    attrs_int(&attrs, "layer", ir_int(value_at(L, args[1]), "layer"));
    if (ir_int(value_at(L, args[1]), "v_dim"))
        attrs_int(&attrs, "v_dim", ir_int(value_at(L, args[1]), "v_dim"));
    return add_attend(L, 3, "attend", "scale window chunk prefix tail softcap bias slopes rounded sinks", "causal",
                      args, &attrs);
}

/* nn.attend_full(q, k, v, {scale=, causal=, window=, chunk=, softcap=, bias=, slopes=, rounded=, sinks=, by_query=, by_key=}):
 * every token sees all of its text */
static int nn_attend_full(lua_State *L)
{
    Id args[IR_MAX_ARGS] = {nn_value(L, 1, "attend_full: q"), nn_value(L, 2, "attend_full: k"),
                            nn_value(L, 3, "attend_full: v")};
    Attrs attrs = {0};

    check_head_dim(L, "attend_full", value_at(L, args[0])->shape);
    return add_attend(L, 4, "attend_full",
                      "scale causal window chunk softcap bias slopes rounded sinks by_query by_key", "full", args,
                      &attrs);
}

/* nn.attend_cross(q, cross, {scale=, softcap=, sinks=}) */
static int nn_attend_cross(lua_State *L)
{
    Id args[IR_MAX_ARGS] = {nn_value(L, 1, "attend_cross: q"), nn_value(L, 2, "attend_cross: the source")};
    Attrs attrs = {0};

    if (value_at(L, args[1])->op != OP_CROSS_CACHE)
        return sandbox_fail(L, "attend_cross: the second argument is the result of %s, it must be that of cross_cache",
                            ir_op_name(value_at(L, args[1])->op));
    attrs_int(&attrs, "layer", ir_int(value_at(L, args[1]), "layer"));
    return add_attend(L, 3, "attend_cross", "scale softcap sinks", "source", args, &attrs);
}

/* nn.alibi(heads [, most [, reach]]): slopes for attend; with reach a bias for it, the same on both sides */
static int nn_alibi(lua_State *L)
{
    Attrs attrs = {0};

    attrs_int(&attrs, "heads", arg_count(L, 1, 1, 65536, "alibi: heads"));
    if (!lua_isnoneornil(L, 2) && arg_number(L, 2, "alibi: most") != 8)
        attrs_float(&attrs, "most", arg_number(L, 2, "alibi: most"));
    if (!lua_isnoneornil(L, 3))
        attrs_int(&attrs, "reach", arg_count(L, 3, 1, MAX_SIZE, "alibi: reach"));
    return value_push(L, value_table(L, OP_ALIBI, &attrs));
}

/* nn.distance_bias(w, {max_distance=128, causal=false}): a bias for attend, of a table with a row for each bucket */
static int nn_distance_bias(lua_State *L)
{
    const Id w = nn_value(L, 1, "distance_bias: w");
    Attrs attrs = {0};

    lua_settop(L, 2);
    if (arg_options(L, 2, "max_distance causal", "distance_bias")) {
        attrs_int(&attrs, "max_distance", arg_option_count(L, 2, "max_distance", 2, MAX_SIZE, 128, "distance_bias"));
        if (lua_getfield(L, 2, "causal") != LUA_TNIL && lua_toboolean(L, -1))
            attrs_int(&attrs, "causal", 1);
    }
    return value_push(L, value_add(L, OP_DISTANCE_BIAS, w, 0, 0, &attrs));
}

/* nn.distance_heads(w, b?, r, {heads=, max_distance=, buckets=0, reach=}): a matrix for head_linear, of r through w and b */
static int nn_distance_heads(lua_State *L)
{
    const Id w = nn_value(L, 1, "distance_heads: w"), b = value_maybe(L, 2, "distance_heads: b");
    const Id r = nn_value(L, 3, "distance_heads: r");
    static const char *const counts[] = {"heads", "max_distance", "reach"};
    Attrs attrs = {0};
    int64_t buckets;

    lua_settop(L, 4);
    if (!arg_options(L, 4, "heads max_distance buckets reach", "distance_heads"))
        return sandbox_fail(L, "distance_heads: the options heads, max_distance and reach must be given");
    for (size_t k = 0; k < LEN(counts); k++)
        attrs_int(&attrs, counts[k], arg_option_count(L, 4, counts[k], 1, MAX_SIZE, 1, "distance_heads"));
    buckets = arg_option_count(L, 4, "buckets", 0, MAX_SIZE, 0, "distance_heads");
    if (buckets)
        attrs_int(&attrs, "buckets", buckets);
    return value_push(L, value_add(L, OP_DISTANCE_HEADS, w, r, b, &attrs));
}

const luaL_Reg nn_attention[] = {
    {"alibi", nn_alibi},
    {"distance_bias", nn_distance_bias},
    {"distance_heads", nn_distance_heads},
    {"split_heads", nn_split_heads},
    {"join_heads", nn_join_heads},
    {"head_linear", nn_head_linear},
    {"rope", nn_rope},
    {"cache", nn_cache},
    {"attend", nn_attend},
    {"attend_full", nn_attend_full},
    {"cross_cache", nn_cross_cache},
    {"attend_cross", nn_attend_cross},
    {NULL, NULL},
};
