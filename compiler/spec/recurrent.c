/* recurrent.c - nn.*: layers that keep a state of fixed size of each sequence. */
#include "arguments.h"
#include "values.h"

/* nn.convolve(x, w [, b]): of each column a sum over the token and those before it */
static int nn_convolve(lua_State *L)
{
    const Id x = nn_value(L, 1, "convolve: x"), w = nn_value(L, 2, "convolve: w");
    const Id b = value_maybe(L, 3, "convolve: b");
    Attrs attrs = {0};

    attrs_int(&attrs, "layer", reader_of(L)->recurrent++);
    return value_push(L, value_add(L, OP_CONVOLVE, x, w, b, &attrs));
}

/* nn.recur(q, k, v, a, {rate=, shift=, beta=, unit=0, scale=1, low=0, high=0}): one with a state [H,K,V] */
static int nn_recur(lua_State *L)
{
    static const char *const numbers[] = {"unit", "scale", "low", "high"};
    Reader *r = reader_of(L);
    Id args[IR_MAX_ARGS] = {nn_value(L, 1, "recur: q"), nn_value(L, 2, "recur: k"), nn_value(L, 3, "recur: v"),
                            nn_value(L, 4, "recur: a")};
    Attrs attrs = {0};
    Id id;

    lua_settop(L, 5);
    if (!arg_options(L, 5, "rate shift beta unit scale low high", "recur"))
        return sandbox_fail(L, "recur takes a table with the fields rate and shift");
    args[4] = value_option(L, 5, "rate", "recur");
    args[5] = value_option(L, 5, "shift", "recur");
    args[6] = value_option(L, 5, "beta", "recur");
    attrs_int(&attrs, "layer", r->recurrent);
    for (size_t i = 0; i < LEN(numbers); i++) {
        const double usual = i == 1 ? 1 : 0, is = arg_option_number(L, 5, numbers[i], usual, "recur");

        if (is != usual)
            attrs_float(&attrs, numbers[i], is);
    }
    id = value_add_shaped(L, OP_RECUR, args, &attrs, (Shape){0});
    r->recurrent++;
    return value_push(L, id);
}

const luaL_Reg nn_recurrent[] = {
    {"convolve", nn_convolve},
    {"recur", nn_recur},
    {NULL, NULL},
};
