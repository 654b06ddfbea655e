/* values.c - graph values in Lua: a userdata that holds an Id, and the operations that are added. */
#include "arguments.h"
#include "values.h"

#include <string.h>

static const char VALUE[] = "graph value"; /* the name of the metatable, also used in messages */

enum { MAX_VALUES = 200000 };

typedef struct Node {
    Id id;
} Node;

Id nn_value(lua_State *L, int i, const char *what)
{
    const Node *n = luaL_testudata(L, i, VALUE);

    if (reader_of(L)->finished)
        sandbox_fail(L, "%s: nothing can be added to the graph after ftx.model", what);
    if (!n)
        sandbox_fail(L, "%s must be a graph value, got %s", what, arg_found(L, i));
    return n->id;
}

Id value_maybe(lua_State *L, int i, const char *what)
{
    return lua_toboolean(L, i) ? nn_value(L, i, what) : 0;
}

Id value_option(lua_State *L, int i, const char *name, const char *who)
{
    Id id;

    if (!lua_istable(L, i))
        return 0;
    lua_getfield(L, i, name);
    lua_pushfstring(L, "%s: %s", who, name);
    id = value_maybe(L, -2, lua_tostring(L, -1));
    lua_pop(L, 2);
    return id;
}

int value_push(lua_State *L, Id id)
{
    Node *n = lua_newuserdatauv(L, sizeof *n, 0);

    n->id = id;
    luaL_setmetatable(L, VALUE);
    return 1;
}

Value *value_at(lua_State *L, Id id)
{
    return ir_value(reader_of(L)->graph, id);
}

void attrs_int(Attrs *a, const char *name, int64_t i)
{
    a->at[a->n++] = (Attr){.name = name, .kind = ATTR_INT, .i = i};
}

void attrs_float(Attrs *a, const char *name, double f)
{
    a->at[a->n++] = (Attr){.name = name, .kind = ATTR_FLOAT, .f = f};
}

void attrs_word(Attrs *a, const char *name, const char *s)
{
    a->at[a->n++] = (Attr){.name = name, .kind = ATTR_WORD, .s = s};
}

/* Raises the error of a Diag, if it has one. The message handler (sandbox.c) adds the place. */
static void check(lua_State *L, const Diag *d)
{
    if (d->failed)
        sandbox_fail(L, "%s", d->text);
}

Id value_add_shaped(lua_State *L, Op op, const Id args[IR_MAX_ARGS], const Attrs *attrs, Shape shape)
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

Id value_add(lua_State *L, Op op, Id a, Id b, Id c, const Attrs *attrs)
{
    static const Attrs none;

    return value_add_shaped(L, op, (Id[IR_MAX_ARGS]){a, b, c}, attrs ? attrs : &none, (Shape){0});
}

static bool attrs_same(const Value *v, const Attrs *a)
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

Id value_table(lua_State *L, Op op, const Attrs *attrs)
{
    const Graph *g = reader_of(L)->graph;

    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == op && attrs_same(ir_value(g, id), attrs))
            return id;
    return value_add(L, op, 0, 0, 0, attrs);
}

void value_open(lua_State *L, const luaL_Reg *operators)
{
    luaL_newmetatable(L, VALUE);
    luaL_setfuncs(L, operators, 0);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
