/* nn.c - nn.*: each function appends one operation to the graph, or the few that it stands for.
 *
 * What the rule of an operation (ir/infer.c) refuses becomes an error at the line that called the function. */
#include "arguments.h"
#include "values.h"

#include <string.h>

/* --- weights -------------------------------------------------------------------------------------- */

Id nn_known_weight(lua_State *L, const char *name)
{
    const Graph *g = reader_of(L)->graph;

    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_WEIGHT && strcmp(ir_word(ir_value(g, id), "name"), name) == 0)
            return id;
    return 0;
}

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
    id = nn_known_weight(L, name);
    if (id && !ir_shape_equal(value_at(L, id)->shape, shape)) {
        Arena *a = reader_of(L)->graph->scratch;

        return sandbox_fail(L, "weight %s: the shape is %s here and %s on line %d", name, ir_shape_text(a, shape),
                            ir_shape_text(a, value_at(L, id)->shape), value_at(L, id)->loc.line);
    }
    if (id)
        return value_push(L, id);
    attrs_word(&attrs, "name", name);
    return value_push(L, value_add_shaped(L, OP_WEIGHT, (Id[IR_MAX_ARGS]){0}, &attrs, shape));
}

/* nn.transpose(w [, stack]): stack: w has so many matrices one after another, each is transposed */
static int nn_transpose(lua_State *L)
{
    const Id w = nn_value(L, 1, "transpose: w");
    const int64_t stack = lua_isnoneornil(L, 2) ? 1 : arg_count(L, 2, 1, MAX_SIZE, "transpose: stack");
    Attrs attrs = {0};

    if (stack > 1)
        attrs_int(&attrs, "stack", stack);
    return value_push(L, value_add(L, OP_TRANSPOSE, w, 0, 0, &attrs));
}

/* nn.rows(w, from, count [, every]): from counts from 0, in each block of `every` rows */
static int nn_rows(lua_State *L)
{
    const Id w = nn_value(L, 1, "rows: w");
    Attrs attrs = {0};

    attrs_int(&attrs, "from", arg_count(L, 2, 0, MAX_SIZE, "rows: from"));
    attrs_int(&attrs, "count", arg_count(L, 3, 1, MAX_SIZE, "rows: count"));
    if (!lua_isnoneornil(L, 4))
        attrs_int(&attrs, "every", arg_count(L, 4, 1, MAX_SIZE, "rows: every"));
    return value_push(L, value_add(L, OP_ROWS, w, 0, 0, &attrs));
}

/* nn.repeat_rows(w, times): each row so many times */
static int nn_repeat_rows(lua_State *L)
{
    const Id w = nn_value(L, 1, "repeat_rows: w");
    Attrs attrs = {0};

    attrs_int(&attrs, "times", arg_count(L, 2, 1, MAX_SIZE, "repeat_rows: times"));
    return value_push(L, value_add(L, OP_REPEAT, w, 0, 0, &attrs));
}

/* nn.norm_rows(w, g, b, eps) */
static int nn_norm_rows(lua_State *L)
{
    Attrs attrs = {0};

    attrs_float(&attrs, "eps", arg_number(L, 4, "norm_rows: eps"));
    return value_push(L, value_add(L, OP_NORM_ROWS, nn_value(L, 1, "norm_rows: w"), nn_value(L, 2, "norm_rows: g"),
                                   nn_value(L, 3, "norm_rows: b"), &attrs));
}

/* nn.unit_rows(w) */
static int nn_unit_rows(lua_State *L)
{
    return value_push(L, value_add(L, OP_UNIT_ROWS, nn_value(L, 1, "unit_rows: w"), 0, 0, NULL));
}

static int nn_concat(lua_State *L)
{
    return value_push(L, value_add(L, OP_CONCAT, nn_value(L, 1, "concat: the first weight"),
                                   nn_value(L, 2, "concat: the second weight"),
                                   value_maybe(L, 3, "concat: the third weight"), NULL));
}

/* nn.plus(w, by) */
static int nn_plus(lua_State *L)
{
    const Id w = nn_value(L, 1, "plus: w");
    Attrs attrs = {0};

    attrs_float(&attrs, "by", arg_number(L, 2, "plus: by"));
    return value_push(L, value_add(L, OP_PLUS, w, 0, 0, &attrs));
}

/* nn.checkpoint { prefixes = {"model."}, unused = {"*.inv_freq"} ... }: how checkpoints may differ */
static int nn_checkpoint(lua_State *L)
{
    Spec *spec = reader_of(L)->spec;
    Arena *keep = sandbox_of(L)->keep;
    const struct {
        const char *name;
        NameList *list;
    } lists[] = {{"prefixes", &spec->prefixes}, {"renamed", &spec->renamed}, {"unused", &spec->ignored},
                 {"stored", &spec->stored},     {"paired", &spec->paired},   {"heads", &spec->head_names},
                 {"copies", &spec->copies},     {"folders", &spec->folders}};

    luaL_checkstack(L, 8, NULL);
    if (!arg_options(L, 1, "prefixes renamed unused copies stored paired heads folders", "checkpoint"))
        return 0;
    for (size_t which = 0; which < LEN(lists); which++) {
        if (lua_getfield(L, 1, lists[which].name) == LUA_TNIL)
            continue;
        if (lua_type(L, -1) != LUA_TTABLE)
            return sandbox_fail(L, "checkpoint: %s must be a list of names", lists[which].name);
        if (lists[which].list == &spec->renamed && lua_rawlen(L, -1) % 2)
            return sandbox_fail(L, "checkpoint: renamed must be a list of pairs: a name's end, and its older form");
        if (lists[which].list == &spec->copies && lua_rawlen(L, -1) % 2)
            return sandbox_fail(L, "checkpoint: copies must be a list of pairs: a tensor's name, and the weight's");
        if (lists[which].list == &spec->stored && lua_rawlen(L, -1) % 2)
            return sandbox_fail(L, "checkpoint: stored must be a list of pairs: a tensor's name, and the weight's");
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
            return value_push(L, id);
    return value_push(L, value_add(L, OP_IDS, 0, 0, 0, NULL));
}

static int nn_embed(lua_State *L)
{
    return value_push(L, value_add(L, OP_EMBED, nn_value(L, 1, "embed: ids"), nn_value(L, 2, "embed: w"), 0, NULL));
}

/* nn.positions(w [, offset]) */
static int nn_positions(lua_State *L)
{
    const Id w = nn_value(L, 1, "positions: w");
    const int64_t offset = lua_isnoneornil(L, 2) ? 0 : arg_count(L, 2, 0, MAX_SIZE, "positions: offset");
    Attrs attrs = {0};

    if (offset)
        attrs_int(&attrs, "offset", offset);
    return value_push(L, value_add(L, OP_POSITIONS, w, 0, 0, &attrs));
}

/* nn.types(w): the row of each token's type, which tells the texts of a pair apart */
static int nn_types(lua_State *L)
{
    return value_push(L, value_add(L, OP_TYPES, nn_value(L, 1, "types: w"), 0, 0, NULL));
}

/* nn.sinusoid {dim=, theta=, span=, style=}: a table for nn.positions. ftx.model sets its length. Equal options
 * share a table. */
static int nn_sinusoid(lua_State *L)
{
    Attrs attrs = {0};
    double theta;

    luaL_checkstack(L, 8, NULL);
    if (!arg_options(L, 1, "dim theta span style", "sinusoid"))
        return sandbox_fail(L, "sinusoid takes a table with the field dim");
    attrs_int(&attrs, "dim", arg_option_count(L, 1, "dim", 2, MAX_SIZE, 0, "sinusoid"));
    theta = arg_option_number(L, 1, "theta", 10000, "sinusoid");
    if (theta <= 0)
        return sandbox_fail(L, "sinusoid: theta is %g, it must be positive", theta);
    attrs_float(&attrs, "theta", theta);
    if (arg_option_count(L, 1, "span", 0, MAX_SIZE, 0, "sinusoid"))
        attrs_int(&attrs, "span", arg_option_count(L, 1, "span", 0, MAX_SIZE, 0, "sinusoid"));
    if (lua_getfield(L, 1, "style") != LUA_TNIL)
        attrs_word(&attrs, "style", arg_word(L, -1, "sinusoid: style"));
    attrs_int(&attrs, "positions", 1 << 20); /* any offset of nn.positions is below */
    return value_push(L, value_table(L, OP_SINUSOID, &attrs));
}

static int nn_linear(lua_State *L)
{
    return value_push(L, value_add(L, OP_LINEAR, nn_value(L, 1, "linear: x"), nn_value(L, 2, "linear: w"),
                                   value_maybe(L, 3, "linear: b"), NULL));
}

static int nn_add(lua_State *L)
{
    return value_push(L, value_add(L, OP_ADD, nn_value(L, 1, "add: a"), nn_value(L, 2, "add: b"), 0, NULL));
}

/* Whether a value is a vector of factors, or has one factor for each row. */
static bool is_factor(const Value *v)
{
    return ir_op_is_weight(v->op) || (v->shape.rank == 2 && v->shape.dim[1].n == 1);
}

/* nn.mul(a, b): factors of rows or columns may stand on either side */
static int nn_mul(lua_State *L)
{
    const Id a = nn_value(L, 1, "mul: a"), b = nn_value(L, 2, "mul: b");
    const bool swap = is_factor(value_at(L, a)) && !is_factor(value_at(L, b));

    return value_push(L, value_add(L, OP_MUL, swap ? b : a, swap ? a : b, 0, NULL));
}

/* nn.slice(x, from, count): from counts from 0; of heads, elements of each */
static int nn_slice(lua_State *L)
{
    const Id x = nn_value(L, 1, "slice: x");
    Attrs attrs = {0};

    attrs_int(&attrs, "from", arg_count(L, 2, 0, MAX_SIZE, "slice: from"));
    attrs_int(&attrs, "count", arg_count(L, 3, 1, MAX_SIZE, "slice: count"));
    return value_push(L, value_add(L, value_at(L, x)->shape.rank == 3 ? OP_SLICE_HEADS : OP_SLICE, x, 0, 0, &attrs));
}

static int nn_join(lua_State *L)
{
    const Id a = nn_value(L, 1, "join: a"), b = nn_value(L, 2, "join: b");

    return value_push(L, value_add(L, value_at(L, a)->shape.rank == 3 ? OP_JOIN_PARTS : OP_JOIN, a, b, 0, NULL));
}

static int nn_scale(lua_State *L)
{
    const Id x = nn_value(L, 1, "scale: x");
    Attrs attrs = {0};

    attrs_float(&attrs, "by", arg_number(L, 2, "scale: by"));
    return value_push(L, value_add(L, OP_SCALE, x, 0, 0, &attrs));
}

/* nn.xielu(x, w) */
static int nn_xielu(lua_State *L)
{
    return value_push(L, value_add(L, OP_XIELU, nn_value(L, 1, "xielu: x"), nn_value(L, 2, "xielu: w"), 0, NULL));
}

/* nn.clamp(x, low, high) */
static int nn_clamp(lua_State *L)
{
    const Id x = nn_value(L, 1, "clamp: x");
    Attrs attrs = {0};

    attrs_float(&attrs, "low", arg_number(L, 2, "clamp: low"));
    attrs_float(&attrs, "high", arg_number(L, 3, "clamp: high"));
    return value_push(L, value_add(L, OP_CLAMP, x, 0, 0, &attrs));
}

/* nn.scale_by_position(x, {by=, every=, offset=}) */
static int nn_scale_by_position(lua_State *L)
{
    const Id x = nn_value(L, 1, "scale_by_position: x");
    Attrs attrs = {0};
    int64_t offset;

    luaL_checkstack(L, 8, NULL);
    if (!arg_options(L, 2, "by every offset", "scale_by_position"))
        return sandbox_fail(L, "scale_by_position takes a table with the fields by and every");
    attrs_float(&attrs, "by", arg_option_number(L, 2, "by", 0, "scale_by_position"));
    attrs_int(&attrs, "every", arg_option_count(L, 2, "every", 0, MAX_SIZE, 0, "scale_by_position"));
    offset = arg_option_count(L, 2, "offset", 0, MAX_SIZE, 0, "scale_by_position");
    if (offset)
        attrs_int(&attrs, "offset", offset);
    return value_push(L, value_add(L, OP_SCALE_BY_POSITION, x, 0, 0, &attrs));
}

static void set_eps(lua_State *L, Attrs *attrs, int i, const char *what)
{
    const double eps = arg_number(L, i, what);

    if (eps < 0 || eps > 1)
        sandbox_fail(L, "%s must be from 0 to 1, got %s", what, arg_found(L, i));
    attrs_float(attrs, "eps", eps);
}

/* A norm's gain or shift: argument i, or for each element of x a number: argument i or `missing`. */
static Id norm_vector(lua_State *L, int i, Id x, double missing, const char *what)
{
    const Shape shape = value_at(L, x)->shape;
    Attrs attrs = {0};

    if (lua_type(L, i) == LUA_TNUMBER)
        missing = arg_number(L, i, what);
    else if (lua_toboolean(L, i))
        return nn_value(L, i, what);
    attrs_int(&attrs, "count", shape.rank ? shape.dim[shape.rank - 1].n : 0);
    attrs_float(&attrs, "value", missing);
    return value_table(L, OP_FILL, &attrs);
}

/* nn.rmsnorm(x, g, eps): g may be nil or false */
static int nn_rmsnorm(lua_State *L)
{
    const Id x = nn_value(L, 1, "rmsnorm: x"), g = norm_vector(L, 2, x, 1, "rmsnorm: g");
    Attrs attrs = {0};

    set_eps(L, &attrs, 3, "rmsnorm: eps");
    return value_push(L, value_add(L, OP_RMSNORM, x, g, 0, &attrs));
}

/* nn.layernorm(x, g, b, eps): g and b may be nil or false */
static int nn_layernorm(lua_State *L)
{
    const Id x = nn_value(L, 1, "layernorm: x"), g = norm_vector(L, 2, x, 1, "layernorm: g");
    const Id b = norm_vector(L, 3, x, 0, "layernorm: b");
    Attrs attrs = {0};

    set_eps(L, &attrs, 4, "layernorm: eps");
    return value_push(L, value_add(L, OP_LAYERNORM, x, g, b, &attrs));
}

/* nn.act(x, "silu"); "identity" returns x */
static int nn_act(lua_State *L)
{
    const Id x = nn_value(L, 1, "act: x");
    const char *kind = arg_word(L, 2, "act: kind");
    Attrs attrs = {0};

    if (strcmp(kind, "identity") == 0)
        return value_push(L, x);
    attrs_word(&attrs, "kind", kind);
    return value_push(L, value_add(L, OP_ACT, x, 0, 0, &attrs));
}

/* nn.glu(gate, up, kind) = kind(gate) * up */
static int nn_glu(lua_State *L)
{
    const Id gate = nn_value(L, 1, "glu: gate"), up = nn_value(L, 2, "glu: up");
    Attrs attrs = {0};

    attrs_word(&attrs, "kind", arg_word(L, 3, "glu: kind"));
    return value_push(L, value_add(L, OP_MUL, value_add(L, OP_ACT, gate, 0, 0, &attrs), up, 0, NULL));
}

/* nn.previous(x, first) */
static int nn_previous(lua_State *L)
{
    return value_push(
        L, value_add(L, OP_PREVIOUS, nn_value(L, 1, "previous: x"), nn_value(L, 2, "previous: first"), 0, NULL));
}

/* nn.neighbours(x, { from, count, ring }) */
static int nn_neighbours(lua_State *L)
{
    const Id x = nn_value(L, 1, "neighbours: x");
    Attrs attrs = {0};

    if (!arg_options(L, 2, "from count ring", "neighbours"))
        return sandbox_fail(L, "neighbours takes a table with the fields from and count");
    attrs_int(&attrs, "from", (int64_t)arg_option_number(L, 2, "from", 0, "neighbours"));
    attrs_int(&attrs, "count", arg_option_count(L, 2, "count", 0, MAX_SIZE, 0, "neighbours"));
    if (arg_option_flag(L, 2, "ring", "neighbours"))
        attrs_int(&attrs, "ring", 1);
    return value_push(L, value_add(L, OP_NEIGHBOURS, x, 0, 0, &attrs));
}

static int nn_select_first(lua_State *L)
{
    return value_push(L, value_add(L, OP_SELECT_FIRST, nn_value(L, 1, "select_first: x"), 0, 0, NULL));
}

/* nn.select_id(x [, id]): without id the row of the largest */
static int nn_select_id(lua_State *L)
{
    const Id x = nn_value(L, 1, "select_id: x");
    Attrs attrs = {0};

    lua_settop(L, 2);
    if (!lua_isnil(L, 2))
        attrs_int(&attrs, "id", arg_count(L, 2, 0, INT32_MAX, "select_id: id"));
    return value_push(L, value_add(L, OP_SELECT_ID, x, 0, 0, &attrs));
}

static int nn_pool_mean(lua_State *L)
{
    return value_push(L, value_add(L, OP_POOL_MEAN, nn_value(L, 1, "pool_mean: x"), 0, 0, NULL));
}

static int nn_normalize(lua_State *L)
{
    return value_push(L, value_add(L, OP_NORMALIZE, nn_value(L, 1, "normalize: x"), 0, 0, NULL));
}

/* nn.row_rms(x [, {centred=, inverse=, floor=}]) */
static int nn_row_rms(lua_State *L)
{
    const Id x = nn_value(L, 1, "row_rms: x");
    Attrs attrs = {0};
    double floor;

    luaL_checkstack(L, 8, NULL);
    if (!arg_options(L, 2, "centred inverse floor", "row_rms"))
        return value_push(L, value_add(L, OP_ROW_RMS, x, 0, 0, NULL));
    if (arg_option_flag(L, 2, "centred", "row_rms"))
        attrs_int(&attrs, "centred", 1);
    if (arg_option_flag(L, 2, "inverse", "row_rms"))
        attrs_int(&attrs, "inverse", 1);
    floor = arg_option_number(L, 2, "floor", 0, "row_rms");
    if (floor != 0)
        attrs_float(&attrs, "floor", floor);
    return value_push(L, value_add(L, OP_ROW_RMS, x, 0, 0, &attrs));
}

Id nn_apply(lua_State *L, Op op, Id x)
{
    return value_add(L, op, x, 0, 0, NULL);
}

/* nn.vectors(hidden [, pooled]): the end of an encoder: a vector for each token, and perhaps one for each text */
static int nn_vectors(lua_State *L)
{
    Reader *r = reader_of(L);
    const Id hidden = nn_value(L, 1, "vectors: hidden"), pooled = value_maybe(L, 2, "vectors: pooled");

    r->graph->kind = FTX_MODEL_ENCODER;
    r->graph->pooled = pooled;
    return value_push(L, hidden);
}

/* nn.embedded(h): marks an encoder's hidden states before the first layer, which a caller may give in place of ids */
static int nn_embedded(lua_State *L)
{
    Reader *r = reader_of(L);
    const Id h = nn_value(L, 1, "embedded: h");

    if (r->graph->entry)
        return sandbox_fail(L, "embedded: it was called before; a graph has one such value");
    r->graph->entry = h;
    return value_push(L, h);
}

static int nn_select_last(lua_State *L)
{
    return value_push(L, value_add(L, OP_SELECT_LAST, nn_value(L, 1, "select_last: x"), 0, 0, NULL));
}

static int nn_sample(lua_State *L)
{
    return value_push(L, value_add(L, OP_SAMPLE, nn_value(L, 1, "sample: logits"), 0, 0, NULL));
}

Id nn_mask(lua_State *L, Id sample)
{
    const Id logits = value_at(L, sample)->args[0];

    return value_add(L, OP_SAMPLE, logits, value_add(L, OP_MASK, logits, 0, 0, NULL), 0, NULL);
}

Id nn_beam(lua_State *L, Id sample)
{
    return value_add(L, OP_BEAM, value_at(L, sample)->args[0], sample, 0, NULL);
}

/* nn.width(x): the last size */
static int nn_width(lua_State *L)
{
    const Shape shape = value_at(L, nn_value(L, 1, "width: x"))->shape;

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
    const Value *v = value_at(L, nn_value(L, 1, "a graph value"));

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
        {"repeat_rows", nn_repeat_rows},
        {"plus", nn_plus},
        {"unit_rows", nn_unit_rows},
        {"norm_rows", nn_norm_rows},
        {"checkpoint", nn_checkpoint},
        {"ids", nn_ids},
        {"embed", nn_embed},
        {"positions", nn_positions},
        {"linear", nn_linear},
        {"add", nn_add},
        {"mul", nn_mul},
        {"slice", nn_slice},
        {"join", nn_join},
        {"scale", nn_scale},
        {"clamp", nn_clamp},
        {"scale_by_position", nn_scale_by_position},
        {"rmsnorm", nn_rmsnorm},
        {"layernorm", nn_layernorm},
        {"act", nn_act},
        {"glu", nn_glu},
        {"types", nn_types},
        {"sinusoid", nn_sinusoid},
        {"select_first", nn_select_first},
        {"pool_mean", nn_pool_mean},
        {"normalize", nn_normalize},
        {"row_rms", nn_row_rms},
        {"embedded", nn_embedded},
        {"vectors", nn_vectors},
        {"select_last", nn_select_last},
        {"select_id", nn_select_id},
        {"previous", nn_previous},
        {"neighbours", nn_neighbours},
        {"xielu", nn_xielu},
        {"sample", nn_sample},
        {"width", nn_width},
        {NULL, NULL},
    };
    static const luaL_Reg operators[] = {
        {"__add", nn_add}, {"__mul", multiply}, {"__tostring", describe}, {"__index", no_field}, {NULL, NULL},
    };

    value_open(L, operators);
    luaL_newlib(L, functions);
    luaL_setfuncs(L, nn_attention, 0);
    luaL_setfuncs(L, nn_recurrent, 0);
    luaL_setfuncs(L, nn_mixtures, 0);
    sandbox_strict(L, "nn");
    return 1;
}
