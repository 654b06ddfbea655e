/* op.c - the table of ops.def, and a reader of its declarations of arguments and attributes. */
#include "ir.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *args, *attrs, *result;
} ops[OP_COUNT] = {
    [OP_NONE] = {"none", "", "", ""},
#define OP(id, name, args, attrs, result) [OP_##id] = {name, args, attrs, result},
#include "ops.def"
#undef OP
};

Op ir_op_parse(const char *name)
{
    for (int op = 1; op < OP_COUNT; op++)
        if (strcmp(ops[op].name, name) == 0)
            return (Op)op;
    return OP_NONE;
}

const char *ir_op_name(Op op)
{
    return ops[op].name;
}

const char *ir_op_args(Op op)
{
    return ops[op].args;
}

const char *ir_op_attrs(Op op)
{
    return ops[op].attrs;
}

const char *ir_op_result(Op op)
{
    return ops[op].result;
}

bool ir_op_is_table(Op op)
{
    return op == OP_FILL || op == OP_ALIBI || op == OP_SINUSOID || op == OP_ROPE_TABLE;
}

bool ir_op_is_weight(Op op)
{
    return op == OP_WEIGHT || (op >= OP_TRANSPOSE && op <= OP_ROPE_TABLE);
}

bool ir_op_is_recurrent(Op op)
{
    return op == OP_CONVOLVE || op == OP_RECUR;
}

bool ir_op_is_norm(Op op)
{
    return op == OP_LAYERNORM || op == OP_RMSNORM;
}

bool ir_op_is_view(Op op)
{
    return op == OP_SPLIT_HEADS || op == OP_JOIN_HEADS;
}

/* Word i of a text separated by spaces; returns its length, 0: there are fewer. */
static size_t word(const char *text, int i, const char **at)
{
    for (;; i--) {
        text += strspn(text, " ");
        *at = text;
        text += strcspn(text, " ");
        if (i == 0 || text == *at)
            return (size_t)(text - *at);
    }
}

bool ir_op_arg(Op op, int i, char name[16], bool *optional)
{
    const char *at;
    const size_t n = word(ops[op].args, i, &at);
    const size_t name_bytes = strcspn(at, "[? ");

    if (!n || name_bytes >= 16)
        return false;
    memcpy(name, at, name_bytes);
    name[name_bytes] = 0;
    *optional = at[n - 1] == '?';
    return true;
}

bool ir_op_attr(Op op, int i, AttrRule *rule)
{
    char text[64], *colon, *equals;
    const char *at;
    const size_t n = word(ops[op].attrs, i, &at);

    if (!n || n >= sizeof text)
        return false;
    memcpy(text, at, n);
    text[n] = 0;
    colon = strchr(text, ':');
    *colon = 0;
    *rule = (AttrRule){.kind = colon[1] == 'i' ? ATTR_INT : colon[1] == 'f' ? ATTR_FLOAT : ATTR_WORD};
    strcpy(rule->name, text);
    equals = strchr(colon + 1, '=');
    rule->required = !equals;
    if (!equals)
        return true;
    if (rule->kind == ATTR_WORD)
        strcpy(rule->s, equals + 1);
    else
        rule->f = strtod(equals + 1, NULL);
    return true;
}

bool ir_op_attr_named(Op op, const char *name, AttrRule *rule)
{
    for (int i = 0; ir_op_attr(op, i, rule); i++)
        if (strcmp(rule->name, name) == 0)
            return true;
    return false;
}
