/* graph.c - graphs, their values, attributes and shapes. */
#include "ir.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

Graph *ir_graph_new(const char *name)
{
    Arena *keep = arena_open();
    Graph *g = arena_new(keep, Graph);

    g->keep = keep;
    g->scratch = arena_open();
    g->name = arena_strdup(keep, name);
    arena_push(keep, g->values); /* [0]: no value */
    return g;
}

void ir_graph_close(Graph *g)
{
    if (!g)
        return;
    arena_close(g->scratch);
    arena_close(g->keep); /* holds g itself */
}

Id ir_value_add(Graph *g, Op op, const Id args[IR_MAX_ARGS], Shape shape, DType type, Loc loc)
{
    Value *v = arena_push(g->keep, g->values);

    v->op = op;
    if (args)
        memcpy(v->args, args, sizeof v->args);
    v->shape = shape;
    v->type = type;
    v->loc = loc;
    return (Id)(g->values.n - 1);
}

/* --- attributes ------------------------------------------------------------------------------ */

/* The attribute `name` of v; a new one is inserted so that names stay sorted. */
static Attr *attr_place(Graph *g, Id id, const char *name)
{
    Value *v = ir_value(g, id);
    uint32_t at = 0;

    while (at < v->n_attrs && strcmp(v->attrs[at].name, name) < 0)
        at++;
    if (at < v->n_attrs && strcmp(v->attrs[at].name, name) == 0)
        return &v->attrs[at];
    v->attrs = arena_grow(g->keep, v->attrs, sizeof *v->attrs * v->n_attrs, sizeof *v->attrs * (v->n_attrs + 1));
    memmove(v->attrs + at + 1, v->attrs + at, sizeof *v->attrs * (v->n_attrs - at));
    v->n_attrs++;
    v->attrs[at] = (Attr){.name = arena_strdup(g->keep, name)};
    return &v->attrs[at];
}

void ir_attr_int(Graph *g, Id v, const char *name, int64_t i)
{
    Attr *a = attr_place(g, v, name);

    a->kind = ATTR_INT;
    a->i = i;
}

void ir_attr_float(Graph *g, Id v, const char *name, double f)
{
    Attr *a = attr_place(g, v, name);

    a->kind = ATTR_FLOAT;
    a->f = f;
}

void ir_attr_word(Graph *g, Id v, const char *name, const char *s)
{
    Attr *a = attr_place(g, v, name);

    a->kind = ATTR_WORD;
    a->s = arena_strdup(g->keep, s);
}

const Attr *ir_attr(const Value *v, const char *name)
{
    for (uint32_t i = 0; i < v->n_attrs; i++)
        if (strcmp(v->attrs[i].name, name) == 0)
            return &v->attrs[i];
    return NULL;
}

/* The declaration of an attribute in ops.def; a name that the op does not have is a bug of the caller. */
static AttrRule rule_of(const Value *v, const char *name, AttrKind kind)
{
    AttrRule rule = {.kind = kind};
    const bool known = ir_op_attr_named(v->op, name, &rule);

    assert(known && rule.kind == kind);
    (void)known;
    return rule;
}

int64_t ir_int(const Value *v, const char *name)
{
    const AttrRule rule = rule_of(v, name, ATTR_INT);
    const Attr *a = ir_attr(v, name);

    return a ? a->i : (int64_t)rule.f;
}

double ir_float(const Value *v, const char *name)
{
    const AttrRule rule = rule_of(v, name, ATTR_FLOAT);
    const Attr *a = ir_attr(v, name);

    return a ? a->f : rule.f;
}

/* A default is returned from `defaults`, since `rule` lives on the stack. The table has every default word of ops.def. */
const char *ir_word(const Value *v, const char *name)
{
    static const char *const defaults[] = {"none", "half", "all", "causal", ""};
    const AttrRule rule = rule_of(v, name, ATTR_WORD);
    const Attr *a = ir_attr(v, name);

    if (a)
        return a->s;
    for (size_t i = 0; i < LEN(defaults); i++)
        if (strcmp(defaults[i], rule.s) == 0)
            return defaults[i];
    assert(!"a default word of ops.def that ir_word does not know");
    return "";
}

/* --- shapes ---------------------------------------------------------------------------------- */

Shape ir_shape(uint32_t rank, Dim a, Dim b, Dim c)
{
    Shape s = {.rank = rank};
    const Dim dims[] = {a, b, c};

    for (uint32_t i = 0; i < rank && i < LEN(dims); i++)
        s.dim[i] = dims[i];
    return s;
}

Dim ir_const(int64_t n)
{
    return (Dim){DIM_CONST, n};
}

Dim ir_T(void)
{
    return (Dim){DIM_T, 1};
}

Dim ir_S(void)
{
    return (Dim){DIM_S, 1};
}

bool ir_shape_equal(Shape a, Shape b)
{
    if (a.rank != b.rank)
        return false;
    for (uint32_t i = 0; i < a.rank; i++)
        if (a.dim[i].kind != b.dim[i].kind || a.dim[i].n != b.dim[i].n)
            return false;
    return true;
}

int64_t ir_shape_elements(Shape s, int64_t T, int64_t S)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < s.rank; i++) {
        const Dim d = s.dim[i];

        n *= d.kind == DIM_T ? d.n * T : d.kind == DIM_S ? d.n * S : d.n;
    }
    return n;
}

const char *ir_shape_text(Arena *a, Shape s)
{
    char *text = arena_strdup(a, "[");

    for (uint32_t i = 0; i < s.rank; i++) {
        const Dim d = s.dim[i];
        const char *comma = i ? "," : "";

        if (d.kind == DIM_CONST)
            text = arena_printf(a, "%s%s%lld", text, comma, (long long)d.n);
        else if (d.n == 1)
            text = arena_printf(a, "%s%s%c", text, comma, d.kind == DIM_T ? 'T' : 'S');
        else
            text = arena_printf(a, "%s%s%c*%lld", text, comma, d.kind == DIM_T ? 'T' : 'S', (long long)d.n);
    }
    return arena_printf(a, "%s]", text);
}

/* --- liveness -------------------------------------------------------------------------------- */

uint32_t *ir_uses(const Graph *g)
{
    uint32_t *uses = arena_array(g->scratch, uint32_t, g->values.n);

    for (Id v = 1; v < g->values.n; v++)
        for (int i = 0; i < IR_MAX_ARGS; i++)
            if (ir_value(g, v)->args[i])
                uses[ir_value(g, v)->args[i]]++;
    if (g->output)
        uses[g->output]++;
    if (g->pooled)
        uses[g->pooled]++;
    if (g->states)
        uses[g->states]++;
    if (g->entry)
        uses[g->entry]++;
    return uses;
}

uint32_t *ir_readers(const Graph *g)
{
    uint32_t *n = ir_uses(g);

    for (Id v = (Id)g->values.n - 1; v > 0; v--)
        if (ir_op_is_view(ir_value(g, v)->op))
            n[ir_value(g, v)->args[0]] += n[v] - 1;
    return n;
}

bool *ir_after_entry(const Graph *g)
{
    bool *after = arena_array(g->scratch, bool, g->values.n);

    after[g->output] = after[g->pooled] = true;
    for (Id v = (Id)g->values.n - 1; v > 0; v--) {
        after[v] &= v != g->entry;
        for (int i = 0; after[v] && i < IR_MAX_ARGS; i++)
            after[ir_value(g, v)->args[i]] = true;
    }
    return after;
}

Id ir_layer_begin(const Graph *g, Id v)
{
    for (Id x = ir_value(g, v)->args[0]; x; x = ir_value(g, x)->args[0]) {
        const Op op = ir_value(g, x)->op;

        if (op == OP_ADD || op == OP_EMBED || op == OP_EMBED_PART)
            break;
        v = x;
    }
    return v;
}

bool *ir_encoder_side(const Graph *g)
{
    bool *side = arena_array(g->scratch, bool, g->values.n);

    for (Id v = (Id)g->values.n - 1; v > 0; v--) {
        const Op op = ir_value(g, v)->op;

        side[v] |= g->kind == FTX_MODEL_ENCODER || op == OP_CROSS_CACHE || op == OP_CROSS_APPEND;
        for (int i = 0; side[v] && i < IR_MAX_ARGS; i++)
            side[ir_value(g, v)->args[i]] = true;
    }
    return side;
}

Id ir_base(const Graph *g, Id v)
{
    while (ir_op_is_view(ir_value(g, v)->op))
        v = ir_value(g, v)->args[0];
    return v;
}

Id ir_logits(const Graph *g)
{
    const Value *out = ir_value(g, g->output);

    return out->op == OP_SAMPLE || out->op == OP_BEAM ? out->args[0] : 0;
}

void ir_sweep(Graph *g)
{
    bool *live = arena_array(g->scratch, bool, g->values.n);
    Id *now = arena_array(g->scratch, Id, g->values.n);
    Id n = 1;

    live[g->output] = live[g->logits] = live[g->pooled] = live[g->states] = live[g->entry] = true;
    for (Id v = (Id)g->values.n - 1; v > 0; v--)
        for (int i = 0; live[v] && i < IR_MAX_ARGS; i++)
            live[ir_value(g, v)->args[i]] = true;
    for (Id v = 1; v < g->values.n; v++) {
        Value *to = ir_value(g, n);

        if (!live[v])
            continue;
        now[v] = n++;
        *to = *ir_value(g, v);
        for (int i = 0; i < IR_MAX_ARGS; i++)
            to->args[i] = now[to->args[i]];
    }
    g->values.n = n;
    g->output = now[g->output];
    g->logits = now[g->logits];
    g->pooled = now[g->pooled];
    g->states = now[g->states];
    g->entry = now[g->entry];
}
