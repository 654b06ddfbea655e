/* match.c - does the tree of a match line match the graph, with its root at a given value?
 *
 * add and mul are commutative: a line with n of them is tried in 2^n ways, each a plain comparison of trees without
 * backtracking. Inner values must have no reader outside the tree, since the kernel does not write them. */
#include <string.h>

#include "contract.h"

typedef struct Matcher {
    const ProgramFacts *f;
    const uint32_t *uses;
    const Contract *c;
    uint32_t way;
    Binding *b;
    const char **reason;
    Arena *scratch;
} Matcher;

#define refuse(m, ...) ((m)->reason ? (void)(*(m)->reason = arena_printf((m)->scratch, __VA_ARGS__)) : (void)0)

/* How many add and mul the tree has. */
static uint32_t commutative_ops(const Pattern *p)
{
    uint32_t n = p->op == OP_ADD || p->op == OP_MUL;

    for (int i = 0; p->op && i < IR_MAX_ARGS; i++)
        n += p->sub[i] ? commutative_ops(p->sub[i]) : 0;
    return n;
}

uint32_t match_ways(const MatchLine *line)
{
    return 1u << commutative_ops(line->root);
}

/* Whether nothing but the tree needs v in memory. */
static bool needs_no_buffer(const Matcher *m, Id v)
{
    const Graph *g = m->f->g;

    if (ir_value(g, v)->op == OP_IDS)
        return true;      /* the host writes ids */
    if (v == g->logits) { /* the host may read them: the kernel must have $logits among its outputs */
        for (size_t i = 0; i < m->c->args.n; i++)
            if (m->c->args.at[i].named == FTX_NAMED_logits && m->c->args.at[i].out)
                return m->uses[v] == 1;
        return false;
    }
    return m->uses[v] == 1 && v != g->output;
}

/* Adds v to the covered values, once: a norm that two values of the tree read is visited twice. */
static bool add_covered(Binding *b, Id v)
{
    for (uint32_t i = 0; i < b->n_covered; i++)
        if (b->covered[i] == v)
            return true;
    if (b->n_covered == CONTRACT_MAX_COVERED)
        return false;
    b->covered[b->n_covered++] = v;
    return true;
}

/* Whether v has the attributes of the other values of its op in the tree: expressions name them by the op. */
static bool attributes_agree(const Matcher *m, const Value *v)
{
    AttrRule rule;

    for (uint32_t i = 0; i < m->b->n_covered; i++) {
        const Value *other = ir_value(m->f->g, m->b->covered[i]);

        for (int k = 0; other->op == v->op && ir_op_attr(v->op, k, &rule); k++)
            if (rule.kind == ATTR_WORD    ? strcmp(ir_word(v, rule.name), ir_word(other, rule.name)) != 0
                : rule.kind == ATTR_FLOAT ? ir_float(v, rule.name) != ir_float(other, rule.name)
                                          : ir_int(v, rule.name) != ir_int(other, rule.name)) {
                refuse(m, "the values of %s differ in %s", ir_op_name(v->op), rule.name);
                return false;
            }
    }
    return true;
}

/* Whether the kernel can read an argument in the rows of a wider value: its constants ask how wide these are. */
static bool reads_columns(const Contract *c, int arg)
{
    char pitch[64];

    snprintf(pitch, sizeof pitch, "pitch(%.50s)", c->args.at[arg].name);
    for (size_t i = 0; i < c->consts.n; i++)
        if (c->consts.at[i].value.text && strstr(c->consts.at[i].value.text, pitch))
            return true;
    return false;
}

/* The value in whose rows the argument lies: that of which it is a slice, if the kernel reads it there, or the argument itself. */
static Id wider(const Matcher *m, int arg, Id id)
{
    const Value *base = ir_value(m->f->g, ir_base(m->f->g, id));

    return base->op == OP_SLICE && reads_columns(m->c, arg) ? base->args[0] : id;
}

static bool match_tree(Matcher *m, const Pattern *p, Id id, bool root)
{
    const Value *v = ir_value(m->f->g, id);

    if (!p->op && p->arg < 0)
        return true;
    if (!p->op) {
        const Id from = wider(m, p->arg, id),
                 before = m->b->columns[p->arg] ? m->b->columns[p->arg] : m->b->arg[p->arg];

        if (before && before != id) {
            refuse(m, "%s would have to be both %%%u and %%%u", m->c->args.at[p->arg].name, before, id);
            return false;
        }
        if (v->op == OP_IDS) {
            refuse(m, "ids are not in a buffer of their own, but in $token");
            return false;
        }
        if (!facts_param(m->f, from, p->form)) {
            refuse(m, "%%%u is not written as %s", id, p->form_name);
            return false;
        }
        m->b->arg[p->arg] = from;
        m->b->columns[p->arg] = from != id ? id : 0;
        m->b->form[p->arg] = (uint8_t)p->form;
        return true;
    }
    if (v->op != p->op) {
        refuse(m, "%%%u is the result of %s, not of %s", id, ir_op_name(v->op), ir_op_name(p->op));
        return false;
    }
    if (!root && !needs_no_buffer(m, id)) {
        refuse(m, "%%%u = %s has other readers", id, ir_op_name(v->op));
        return false;
    }
    if (!attributes_agree(m, v) || !add_covered(m->b, id))
        return false;
    bool swapped = false;

    if (p->op == OP_ADD || p->op == OP_MUL) {
        swapped = m->way & 1;
        m->way >>= 1;
    }
    for (int i = 0; i < IR_MAX_ARGS; i++) {
        const Pattern *sub = p->sub[i];
        const Id arg = v->args[swapped && i < 2 ? 1 - i : i];

        if (!sub && arg) {
            refuse(m, "%%%u = %s has an argument that the match line lacks", id, ir_op_name(v->op));
            return false;
        }
        if (sub && !arg && !sub->optional) {
            refuse(m, "%%%u = %s lacks an argument of the match line", id, ir_op_name(v->op));
            return false;
        }
        if (sub && arg && !match_tree(m, sub, arg, false))
            return false;
    }
    return true;
}

/* Reduces a shape to `rank` sizes by multiplying the last ones. */
static bool collapse(Shape *s, uint32_t rank)
{
    if (s->rank < rank || rank == 0)
        return false;
    for (; s->rank > rank; s->rank--) {
        if (s->dim[s->rank - 1].kind != DIM_CONST)
            return false;
        s->dim[s->rank - 2].n *= s->dim[s->rank - 1].n;
    }
    return true;
}

static bool is_name(const char *s)
{
    return s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")] == 0 &&
           (s[0] < '0' || s[0] > '9');
}

static Dim *dim_find(Binding *b, const char *s)
{
    for (uint32_t i = 0; i < b->n_dims; i++)
        if (strcmp(b->dims[i].name, s) == 0)
            return &b->dims[i].dim;
    return NULL;
}

static bool lookup_dim(void *user, const char *s, ExprKind *kind, int64_t *value)
{
    const Dim *d = dim_find(user, s);

    *kind = EXPR_CONSTANT;
    *value = d ? d->n : 0;
    return d && d->kind == DIM_CONST;
}

/* Binds the sizes of one argument, or compares them with those bound before. names: only sizes that are plain names; they
 * are bound first, so that 2*F may stand before F. */
static bool match_sizes(Matcher *m, const ContractArg *a, Id id, bool names)
{
    Shape s = ir_value(m->f->g, id)->shape;

    if (!a->shaped)
        return true;
    if (ir_op_is_weight(ir_value(m->f->g, id)->op) ? s.rank != a->rank : !collapse(&s, a->rank)) {
        refuse(m, "%s is %s, it must have %u sizes", a->name, ir_shape_text(m->scratch, ir_value(m->f->g, id)->shape),
               a->rank);
        return false;
    }
    for (uint32_t i = 0; i < a->rank; i++) {
        Dim *d = dim_find(m->b, a->dims[i]);
        Expr e;
        int64_t n = -1;

        if (is_name(a->dims[i]) != names)
            continue;
        if (names && !d) {
            if (m->b->n_dims == CONTRACT_MAX_DIMS)
                return false;
            m->b->dims[m->b->n_dims].name = a->dims[i];
            m->b->dims[m->b->n_dims++].dim = s.dim[i];
            continue;
        }
        if (names && d->kind == s.dim[i].kind && d->n == s.dim[i].n)
            continue;
        if (!names && s.dim[i].kind == DIM_CONST && expr_parse(a->dims[i], lookup_dim, m->b, &e, NULL) == FTX_OK &&
            expr_run(e.words, e.n, NULL, 0, &n, NULL) == FTX_OK && n == s.dim[i].n)
            continue;
        refuse(m, "%s is %s, its size %s differs from the other arguments", a->name,
               ir_shape_text(m->scratch, ir_value(m->f->g, id)->shape), a->dims[i]);
        return false;
    }
    return true;
}

DType contract_arg_type(const ProgramFacts *f, const Binding *b, size_t i)
{
    const ContractArg *a = &b->contract->args.at[i];

    if (a->named == FTX_NAMED_k || a->named == FTX_NAMED_v)
        return f->kv;
    if (a->named == FTX_NAMED_cross_k || a->named == FTX_NAMED_cross_v)
        return f->cross_kv;
    if (a->named == FTX_NAMED_logits || a->named == FTX_NAMED_hidden || a->named == FTX_NAMED_pooled ||
        a->named == FTX_NAMED_recurrent)
        return DT_FP32;
    if (a->named >= 0)
        return DT_I32;
    if (a->type)
        return a->type;
    if (a->type_of)
        for (size_t k = 0; k < b->contract->args.n; k++)
            if (strcmp(b->contract->args.at[k].name, a->type_of) == 0)
                return contract_arg_type(f, b, k);
    if (b->arg[i] && ir_value(f->g, b->arg[i])->op == OP_QUANTISE && !b->form[i])
        return f->compute;
    return b->arg[i] ? ir_value(f->g, b->arg[i])->type : DT_FP32;
}

/* `folded`: matrix, bias, gain and shift must all be weights; without a bias nothing could take the shift. */
static bool can_fold(Matcher *m)
{
    const Contract *c = m->c;
    const int needed[] = {c->folded.matrix, c->folded.bias, c->folded.gain, c->folded.shift};

    for (size_t i = 0; i < LEN(needed) && c->folded.gain && m->b->arg[c->folded.gain]; i++)
        if (!ir_op_is_weight(ir_value(m->f->g, m->b->arg[needed[i]])->op)) {
            refuse(m, "%s is not a weight: the norm cannot be folded", c->args.at[needed[i]].name);
            return false;
        }
    return true;
}

int64_t facts_param(const ProgramFacts *f, Id v, uint32_t form)
{
    if (ir_value(f->g, v)->op == OP_QUANTISE)
        return f->packed >> form & 1 ? ir_int(ir_value(f->g, v), "group")
               : form || !f->params  ? 0
                                     : f->params[v * CONTRACT_MAX_FORMS];
    if (!f->params || ir_op_is_weight(ir_value(f->g, v)->op))
        return form == 0;
    return f->params[v * CONTRACT_MAX_FORMS + form];
}

bool contract_gives(const Contract *c, uint32_t form)
{
    bool out = !form && !c->no_plain;

    for (size_t i = 0; i < c->gives.n; i++)
        out |= c->gives.at[i].form == form;
    return out;
}

/* A companion is bound if its argument is read or written in the form to which it belongs. */
static void bind_companions(Binding *b)
{
    for (size_t i = 0; i < b->contract->args.n; i++) {
        const ContractArg *a = &b->contract->args.at[i];

        if (a->of >= 0 && b->form[a->of] == a->form)
            b->arg[i] = b->arg[a->of];
    }
}

bool match_at(const ProgramFacts *f, const uint32_t *uses, const Contract *c, const MatchLine *line, uint32_t way, Id v,
              uint32_t gives, Binding *b, const char **reason, Arena *scratch)
{
    Matcher m = {f, uses, c, way, b, reason, scratch};

    *b = (Binding){.contract = c, .line = line, .root = v, .gives = gives};
    if (!match_tree(&m, line->root, v, true))
        return false;
    if (line->out >= 0) {
        b->arg[line->out] = v;
        b->form[line->out] = (uint8_t)gives;
    }
    for (int names = 1; names >= 0; names--)
        for (size_t i = 0; i < c->args.n; i++)
            if (b->arg[i] && !match_sizes(&m, &c->args.at[i], b->columns[i] ? b->columns[i] : b->arg[i], names))
                return false;
    for (size_t i = 0; i < c->args.n; i++) {
        const ContractArg *a = &c->args.at[i];
        const Value *value = ir_value(f->g, b->arg[i]);

        if (b->arg[i] && value->op == OP_QUANTISE && !b->form[i] && !a->out && c->overlap && !c->waits) {
            refuse(&m, "%%%u is unpacked by the launch before, and this kernel may read weights before that ends",
                   b->arg[i]);
            return false;
        }
        if (!b->arg[i] || ir_op_is_weight(value->op) || value->type == contract_arg_type(f, b, i))
            continue;
        refuse(&m, "%s is %s, it must be %s", a->name, dtype_name(value->type), dtype_name(contract_arg_type(f, b, i)));
        return false;
    }
    bind_companions(b);
    return can_fold(&m);
}

Fold contract_arg_fold(const Binding *b, size_t i)
{
    const Contract *c = b->contract;

    if (!c->folded.gain || !b->arg[c->folded.gain])
        return (Fold){0};
    if (i == (size_t)c->folded.matrix)
        return (Fold){.gain = b->arg[c->folded.gain]};
    if (i == (size_t)c->folded.bias)
        return (Fold){.matrix = b->arg[c->folded.matrix], .shift = b->arg[c->folded.shift]};
    return (Fold){0};
}
