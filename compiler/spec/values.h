/* values.h - graph values as arguments and results of nn.*. Functions raise an error where something does not fit. */
#ifndef FTXC_SPEC_VALUES_H
#define FTXC_SPEC_VALUES_H

#include "reader.h"

/* Attributes of the operation that is being added. Their names are literals. */
typedef struct Attrs {
    Attr at[10];
    uint32_t n;
} Attrs;

void attrs_int(Attrs *a, const char *name, int64_t i);
void attrs_float(Attrs *a, const char *name, double f);
void attrs_word(Attrs *a, const char *name, const char *s);

/* As nn_value, but 0 for nil and for false, so that `c.bias and nn.weight(...)` can be passed on. */
Id value_maybe(lua_State *L, int i, const char *what);
/* The value in a field of the options at i, or 0. */
Id value_option(lua_State *L, int i, const char *name, const char *who);
int value_push(lua_State *L, Id id); /* the result of a builtin; returns 1 */
Value *value_at(lua_State *L, Id id);

/* Appends an operation to the graph. attrs may be NULL. */
Id value_add(lua_State *L, Op op, Id a, Id b, Id c, const Attrs *attrs);
/* The table of this op with these attributes, which all its readers share. */
Id value_table(lua_State *L, Op op, const Attrs *attrs);
Id value_add_shaped(lua_State *L, Op op, const Id args[IR_MAX_ARGS], const Attrs *attrs, Shape shape);

void value_open(lua_State *L, const luaL_Reg *operators); /* makes the metatable */

extern const luaL_Reg nn_attention[]; /* attention.c: the functions of nn.* about attention */
extern const luaL_Reg nn_recurrent[]; /* recurrent.c: those with a state of fixed size */
extern const luaL_Reg nn_mixtures[];  /* experts.c: those about experts */

/* The weight of this name, or 0: a name that is used twice is one weight. */
Id nn_known_weight(lua_State *L, const char *name);

#endif
