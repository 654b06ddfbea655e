/* experts.c - nn.stack, nn.route, nn.experts: mixtures of experts. */
#include "arguments.h"
#include "values.h"

#include <string.h>

/* nn.stack("layers.0.experts.*.w1.weight", {n, N, K}): the tensors of n experts as one weight [n*N, K], or of {n, N} as
 * [n*N]. A name without * is that of one tensor [n, N, K] or [n, N]. */
static int nn_stack(lua_State *L)
{
    const char *name = arg_word(L, 1, "stack: the name"), *star = strchr(name, '*');
    int64_t sizes[3] = {0};
    Shape shape = {0};
    Attrs attrs = {0};
    Id id;

    luaL_checkstack(L, 8, NULL);
    if (lua_type(L, 2) != LUA_TTABLE || lua_rawlen(L, 2) < 2 || lua_rawlen(L, 2) > 3)
        return sandbox_fail(L, "stack %s: the shape must be {n, N} or {n, N, K}, got %s", name,
                            lua_type(L, 2) == LUA_TTABLE ? "another table" : arg_found(L, 2));
    if (star && strchr(star + 1, '*'))
        return sandbox_fail(L, "stack %s: one * stands for the number of an expert, not two", name);
    shape.rank = (uint32_t)lua_rawlen(L, 2) - 1;
    for (uint32_t i = 0; i <= shape.rank; i++) {
        lua_rawgeti(L, 2, i + 1);
        lua_pushfstring(L, "stack %s: size %d", name, (int)i + 1);
        sizes[i] = arg_count(L, -2, 1, i ? MAX_SIZE : 1 << 20, lua_tostring(L, -1));
    }
    shape.dim[0] = ir_const(sizes[0] * sizes[1]);
    if (shape.rank == 2)
        shape.dim[1] = ir_const(sizes[2]);
    if (ir_shape_elements(shape, 1, 1) > INT64_C(1) << 40)
        return sandbox_fail(L, "stack %s: %s is more than 2^40 elements", name,
                            ir_shape_text(reader_of(L)->graph->scratch, shape));
    attrs_word(&attrs, "name", name);
    attrs_int(&attrs, "stack", sizes[0]);
    id = nn_known_weight(L, name);
    if (id && (ir_int(value_at(L, id), "stack") != sizes[0] || !ir_shape_equal(value_at(L, id)->shape, shape)))
        return sandbox_fail(L, "stack %s: it has another shape on line %d", name, value_at(L, id)->loc.line);
    return value_push(L, id ? id : value_add_shaped(L, OP_WEIGHT, (Id[IR_MAX_ARGS]){0}, &attrs, shape));
}

/* Whether the option `name` is the second of two words; missing: the first. */
static bool second_word(lua_State *L, const char *name, const char *first, const char *second, const char *who)
{
    const char *word = first;

    if (lua_getfield(L, 2, name) != LUA_TNIL) {
        lua_pushfstring(L, "%s: %s", who, name);
        word = arg_word(L, -2, lua_tostring(L, -1));
    }
    if (strcmp(word, first) != 0 && strcmp(word, second) != 0)
        sandbox_fail(L, "%s: %s must be \"%s\" or \"%s\", got \"%s\"", who, name, first, second, word);
    return strcmp(word, second) == 0;
}

static Id weight_option(lua_State *L, int i, const char *name, const char *who)
{
    const char *what = lua_pushfstring(L, "%s: %s", who, name);

    lua_getfield(L, i, name);
    return lua_toboolean(L, -1) ? nn_value(L, -1, what) : 0;
}

/* nn.route(logits, {k=, score=, order=, renorm=, bias=, groups=, groups_kept=, group_by=, scale=}) */
static int nn_route(lua_State *L)
{
    const Id logits = nn_value(L, 1, "route: logits");
    Attrs attrs = {0};
    int64_t groups, kept;
    double scale, near;

    luaL_checkstack(L, 24, NULL);
    if (!arg_options(L, 2, "k score order renorm bias groups groups_kept group_by scale near", "route"))
        return sandbox_fail(L, "route takes a table with the field k");
    attrs_int(&attrs, "k", arg_option_count(L, 2, "k", 1, MAX_SIZE, 0, "route"));
    if (!attrs.at[0].i)
        return sandbox_fail(L, "route: k is missing");
    if (second_word(L, "score", "softmax", "sigmoid", "route"))
        attrs_int(&attrs, "sigmoid", 1);
    if (second_word(L, "order", "score_topk", "topk_softmax", "route"))
        attrs_int(&attrs, "chosen", 1);
    if (arg_option_flag(L, 2, "renorm", "route"))
        attrs_int(&attrs, "renorm", 1);
    groups = arg_option_count(L, 2, "groups", 1, MAX_SIZE, 1, "route");
    kept = arg_option_count(L, 2, "groups_kept", 1, MAX_SIZE, groups, "route");
    if (groups > 1) {
        attrs_int(&attrs, "groups", groups);
        attrs_int(&attrs, "groups_kept", kept);
    }
    if (second_word(L, "group_by", "max", "sum2", "route") && groups > 1)
        attrs_int(&attrs, "best_two", 1);
    scale = arg_option_number(L, 2, "scale", 1, "route");
    if (scale != 1)
        attrs_float(&attrs, "scale", scale);
    near = arg_option_number(L, 2, "near", 0, "route");
    if (near != 0)
        attrs_float(&attrs, "near", near);
    return value_push(L, value_add(L, OP_ROUTE, logits, weight_option(L, 2, "bias", "route"), 0, &attrs));
}

/* nn.route_weights(routes): the weights of the chosen experts */
static int nn_route_weights(lua_State *L)
{
    return value_push(L, value_add(L, OP_ROUTE_WEIGHTS, nn_value(L, 1, "route_weights: routes"), 0, 0, NULL));
}

/* Gate and up, or what they are made of, as one weight whose rows are theirs in turn. The rows of gate_up are so already
 * (interleaved), or in each expert those of the gate, then those of up. */
static Id gate_and_up(lua_State *L, const char *gate, const char *up, const char *both, int64_t experts,
                      bool interleaved)
{
    const Id g = weight_option(L, 3, gate, "experts"), u = weight_option(L, 3, up, "experts");
    const Id gu = weight_option(L, 3, both, "experts");
    Attrs attrs = {0};
    int64_t rows;

    if (!gu && !g && !u)
        return 0;
    if (gu ? g || u : !g || !u)
        sandbox_fail(L, "experts: either %s and %s, or %s", gate, up, both);
    if (g)
        return value_add(L, OP_INTERLEAVE, g, u, 0, NULL);
    rows = value_at(L, gu)->shape.dim[0].n / experts;
    if (interleaved)
        return gu;
    attrs_int(&attrs, "head_dim", rows);
    attrs_int(&attrs, "rot", rows);
    return value_add(L, OP_PAIRS, gu, 0, 0, &attrs);
}

/* The rows of the gate of each expert, or of up (part 1): `name`, or those of gate_up. */
static Id one_of_two(lua_State *L, const char *name, int64_t experts, int64_t part)
{
    const Id own = weight_option(L, 3, name, "experts"), both = weight_option(L, 3, "gate_up", "experts");
    Attrs attrs = {0};
    int64_t rows;

    if (own || !both)
        return own;
    rows = value_at(L, both)->shape.dim[0].n / experts;
    attrs_int(&attrs, "from", part * (rows / 2));
    attrs_int(&attrs, "count", rows / 2);
    attrs_int(&attrs, "every", rows);
    return value_add(L, OP_ROWS, both, 0, 0, &attrs);
}

/* Columns from + 0 .. from + count - 1 of x. */
static Id columns(lua_State *L, Id x, int64_t from, int64_t count)
{
    Attrs attrs = {0};

    attrs_int(&attrs, "from", from);
    attrs_int(&attrs, "count", count);
    return value_add(L, OP_SLICE, x, 0, 0, &attrs);
}

/* weigh_input: down of kind(s * gate x) * (s * up x), where s is the weight of the row's expert. The products are linear, and
 * expert_sum brings the second s. */
static Id weighed(lua_State *L, Id x, Id routes, const Attrs *experts)
{
    static const char *const others[] = {"gate_bias",   "up_bias", "gate_up_bias", "down_bias",
                                         "interleaved", "alpha",   "limit"};
    const Id gate = one_of_two(L, "gate", experts->at[0].i, 0), up = one_of_two(L, "up", experts->at[0].i, 1);
    const int64_t k = value_at(L, routes)->shape.dim[1].n / 2;
    Attrs kind = {0};
    Id g, u, s, h = 0;
    int64_t width;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (lua_getfield(L, 3, others[i]) != LUA_TNIL)
            sandbox_fail(L, "experts: %s cannot stand beside weigh_input", others[i]);
    if (!gate || !up)
        sandbox_fail(L, "experts: %s is missing", gate ? "up" : "gate");
    lua_getfield(L, 3, "kind");
    attrs_word(&kind, "kind", arg_word(L, -1, "experts: kind"));
    g = value_add_shaped(L, OP_EXPERT_LINEAR, (Id[IR_MAX_ARGS]){x, routes, gate}, experts, (Shape){0});
    u = value_add_shaped(L, OP_EXPERT_LINEAR, (Id[IR_MAX_ARGS]){x, routes, up}, experts, (Shape){0});
    s = value_add(L, OP_ROUTE_WEIGHTS, routes, 0, 0, NULL);
    width = value_at(L, g)->shape.dim[1].n / k;
    for (int64_t i = 0; i < k; i++) {
        Id part = value_add(L, OP_MUL, columns(L, g, i * width, width), columns(L, s, i, 1), 0, NULL);

        part = value_add(L, OP_ACT, part, 0, 0, &kind);
        part = value_add(L, OP_MUL, part, columns(L, u, i * width, width), 0, NULL);
        h = h ? value_add(L, OP_JOIN, h, part, 0, NULL) : part;
    }
    return h;
}

/* nn.experts(x, routes, {gate=, up=, down=, kind=, ...}); without a gate: kind(up) */
static int nn_experts(lua_State *L)
{
    const Id x = nn_value(L, 1, "experts: x"), routes = nn_value(L, 2, "experts: routes");
    Attrs experts = {0}, kind = {0};
    bool interleaved, alone;
    Op gate = OP_GLU;
    Id w, b, down, h;

    luaL_checkstack(L, 64, NULL);
    if (!arg_options(L, 3,
                     "gate up gate_up down gate_bias up_bias gate_up_bias down_bias kind interleaved alpha limit "
                     "weigh_input",
                     "experts"))
        return sandbox_fail(L, "experts takes a table with the fields gate, up, down and kind");
    if (value_at(L, routes)->op != OP_ROUTE)
        return sandbox_fail(L, "experts: routes must be the result of nn.route");
    attrs_int(&experts, "experts", value_at(L, value_at(L, routes)->args[0])->shape.dim[1].n);
    down = weight_option(L, 3, "down", "experts");
    if (arg_option_flag(L, 3, "weigh_input", "experts")) {
        h = weighed(L, x, routes, &experts);
        if (!down)
            return sandbox_fail(L, "experts: down is missing");
        return value_push(L,
                          value_add_shaped(L, OP_EXPERT_SUM, (Id[IR_MAX_ARGS]){h, routes, down}, &experts, (Shape){0}));
    }
    interleaved = arg_option_flag(L, 3, "interleaved", "experts");
    alone = !weight_option(L, 3, "gate", "experts") && !weight_option(L, 3, "gate_up", "experts");
    if (alone) {
        w = weight_option(L, 3, "up", "experts");
        b = weight_option(L, 3, "up_bias", "experts");
        gate = OP_ACT;
    } else {
        w = gate_and_up(L, "gate", "up", "gate_up", experts.at[0].i, interleaved);
        b = gate_and_up(L, "gate_bias", "up_bias", "gate_up_bias", experts.at[0].i, interleaved);
    }
    if (!w || !down)
        return sandbox_fail(L, "experts: %s is missing", w ? "down" : "up");
    if (lua_getfield(L, 3, "limit") != LUA_TNIL) {
        if (alone)
            return sandbox_fail(L, "experts: limit is for experts with a gate");
        attrs_float(&kind, "limit", arg_number(L, -1, "experts: limit"));
        attrs_float(&kind, "alpha", arg_option_number(L, 3, "alpha", 1, "experts"));
        gate = OP_GLU_CLAMPED;
    } else {
        lua_getfield(L, 3, "kind");
        attrs_word(&kind, "kind", arg_word(L, -1, "experts: kind"));
    }
    h = value_add_shaped(L, OP_EXPERT_LINEAR, (Id[IR_MAX_ARGS]){x, routes, w, b}, &experts, (Shape){0});
    h = value_add(L, gate, h, 0, 0, &kind);
    return value_push(L,
                      value_add_shaped(L, OP_EXPERT_SUM,
                                       (Id[IR_MAX_ARGS]){h, routes, down, weight_option(L, 3, "down_bias", "experts")},
                                       &experts, (Shape){0}));
}

const luaL_Reg nn_mixtures[] = {
    {"stack", nn_stack},     {"route", nn_route}, {"route_weights", nn_route_weights},
    {"experts", nn_experts}, {NULL, NULL},
};
