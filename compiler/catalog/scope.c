/* scope.c - what the names of an expression mean: constants, sizes, attributes, facts of the program and of the target. */
#include "scope.h"

#include <ctype.h>
#include <string.h>

/* --- names ------------------------------------------------------------------------------------- */

static int64_t largest(const Scope *s, Dim d)
{
    return d.kind == DIM_T ? d.n * s->f->t_max : d.kind == DIM_S ? d.n * s->f->s_max : d.n;
}

static const Dim *dim_find(const Binding *b, const char *name, size_t n)
{
    for (uint32_t i = 0; i < b->n_dims; i++)
        if (strlen(b->dims[i].name) == n && strncmp(b->dims[i].name, name, n) == 0)
            return &b->dims[i].dim;
    return NULL;
}

/* Whether some argument of the contract has a size of that name. */
static bool dim_known(const Contract *c, const char *name, size_t n)
{
    for (size_t i = 0; i < c->args.n; i++)
        for (uint32_t k = 0; k < c->args.at[i].rank; k++)
            if (strlen(c->args.at[i].dims[k]) == n && strncmp(c->args.at[i].dims[k], name, n) == 0 &&
                !isdigit((unsigned char)*name))
                return true;
    return false;
}

/* Length of s without the ending; 0: s has another ending. */
static size_t without(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);

    return n > m && strcmp(s + n - m, end) == 0 ? n - m : 0;
}

static bool lookup_dim(const Scope *s, const char *name, ExprKind *kind, int64_t *value)
{
    const size_t max = without(name, "_MAX"), is_s = without(name, "_IS_S");
    const size_t n = max ? max : is_s ? is_s : strlen(name);
    const Dim *d;

    if (!dim_known(s->c, name, n))
        return false;
    if (!s->f)
        return true;
    d = dim_find(s->b, name, n);
    if (!d) /* a size of an argument that the match does not bind: 0 */
        return true;
    if (is_s) {
        *value = d->kind == DIM_S;
        return true;
    }
    if (max || s->at_most || d->kind == DIM_CONST) {
        *value = largest(s, *d);
        return true;
    }
    *kind = EXPR_VARIABLE;
    *value = d->kind == DIM_T ? VAR_T : VAR_S;
    return s->live && d->n == 1;
}

int scope_arg(const Contract *c, const char *name, size_t n)
{
    for (size_t i = 0; i < c->args.n; i++)
        if (strlen(c->args.at[i].name) == n && strncmp(c->args.at[i].name, name, n) == 0)
            return (int)i;
    return -1;
}

int scope_const(const Contract *c, const char *name, size_t n)
{
    for (size_t i = 0; i < c->consts.n; i++)
        if (strlen(c->consts.at[i].value.name) == n && strncmp(c->consts.at[i].value.name, name, n) == 0)
            return (int)i;
    return -1;
}

static bool lookup_fixed(const Scope *s, const char *name, int64_t *value)
{
    for (size_t i = 0; i < s->c->fixed.n; i++)
        if (strcmp(s->c->fixed.at[i].name, name) == 0) {
            *value = s->c->fixed.at[i].i;
            return true;
        }
    return false;
}

typedef enum Function {
#define FUNCTION(name, meaning) FUNCTION_##name,
#include "names.def"
#undef FUNCTION
    FUNCTION_COUNT
} Function;

/* sizeof(x): x is a constant that holds a type, a type, or an argument. */
static bool lookup_sizeof(const Scope *s, const char *x, size_t n, int64_t *value)
{
    const int k = scope_const(s->c, x, n), i = scope_arg(s->c, x, n);
    char word[16] = "";
    DType type;

    if (n < sizeof word)
        memcpy(word, x, n);
    type = dtype_parse(word);
    if (k >= 0 && s->c->consts.at[k].kind == CONST_TYPE)
        type = s->f ? (DType)s->consts[k].i : DT_FP32;
    else if (!type && i >= 0)
        type = s->f ? contract_arg_type(s->f, s->b, (size_t)i) : DT_FP32;
    *value = (int64_t)dtype_size(type);
    return type != DT_NONE;
}

/* An attribute of a quantised weight; 0: v is none. */
static int64_t quantised(const Scope *s, Id v, const char *attr)
{
    return ir_value(s->f->g, v)->op == OP_QUANTISE ? ir_int(ir_value(s->f->g, v), attr) : 0;
}

/* Elements of a row of v. */
static int64_t row_elements(const Scope *s, Id v)
{
    const Shape shape = ir_value(s->f->g, v)->shape;
    int64_t n = 1;

    for (uint32_t i = 1; i < shape.rank; i++)
        n *= shape.dim[i].n;
    return n;
}

/* "has(b)" and the other functions of names.def. */
static bool lookup_function(const Scope *s, const char *name, int64_t *value)
{
    static const char *const names[] = {
#define FUNCTION(name, meaning) #name,
#include "names.def"
#undef FUNCTION
    };
    const char *open = strchr(name, '('), *x = open + 1;
    const size_t n = strlen(x) - 1;
    const int i = scope_arg(s->c, x, n);
    int f = 0;

    while (f < FUNCTION_COUNT &&
           (strlen(names[f]) != (size_t)(open - name) || strncmp(names[f], name, (size_t)(open - name)) != 0))
        f++;
    if (f == FUNCTION_sizeof)
        return lookup_sizeof(s, x, n, value);
    if (f == FUNCTION_COUNT || i < 0)
        return false;
    if (!s->f)
        return true;

    const Id v = s->b->arg[i];

    switch ((Function)f) {
    case FUNCTION_has: *value = s->c->args.at[i].named >= 0 || v; break;
    case FUNCTION_type: *value = contract_arg_type(s->f, s->b, (size_t)i); break;
    case FUNCTION_rows: *value = v && ir_value(s->f->g, v)->shape.dim[0].kind == DIM_S; break;
    case FUNCTION_logits: *value = v && v == s->f->g->logits; break;
    case FUNCTION_param:
        *value = v ? facts_param(s->f, v, s->c->args.at[i].of >= 0 ? s->c->args.at[i].form : s->b->form[i]) : 0;
        break;
    case FUNCTION_pitch: *value = v ? row_elements(s, v) : 0; break;
    case FUNCTION_from:
        *value = s->b->columns[i] ? ir_int(ir_value(s->f->g, ir_base(s->f->g, s->b->columns[i])), "from") : 0;
        break;
    case FUNCTION_group: *value = quantised(s, v, "group"); break;
    case FUNCTION_scales: *value = quantised(s, v, "scales"); break;
    case FUNCTION_sizeof:
    case FUNCTION_COUNT: break;
    }
    return true;
}

/* The number of a word of names.def; -1: there is none. */
static int64_t word_number(const char *word)
{
    static const struct {
        const char *name;
        int64_t value;
    } words[] = {
#define WORD(name, value) {#name, value},
#include "names.def"
#undef WORD
    };

    for (size_t i = 0; i < LEN(words); i++)
        if (strcmp(words[i].name, word) == 0)
            return words[i].value;
    return -1;
}

bool scope_attribute(const Scope *s, const char *name, AttrRule *rule, const Value **value)
{
    const char *dot = strchr(name, '.');
    char word[24];
    Op op;

    *value = NULL;
    if (!dot || (size_t)(dot - name) >= sizeof word)
        return false;
    memcpy(word, name, (size_t)(dot - name));
    word[dot - name] = 0;
    op = ir_op_parse(word);
    if (!op || !ir_op_attr_named(op, dot + 1, rule))
        return false;
    for (uint32_t i = 0; s->f && !*value && i < s->b->n_covered; i++)
        if (ir_value(s->f->g, s->b->covered[i])->op == op)
            *value = ir_value(s->f->g, s->b->covered[i]);
    return true;
}

static bool lookup_attribute(const Scope *s, const char *name, int64_t *out)
{
    AttrRule rule;
    const Value *v;

    if (!scope_attribute(s, name, &rule, &v) || rule.kind == ATTR_FLOAT || strcmp(rule.name, "layer") == 0)
        return false;
    if (v && rule.kind == ATTR_INT)
        *out = ir_int(v, rule.name);
    if (v && rule.kind == ATTR_WORD)
        *out = word_number(ir_word(v, rule.name));
    return true;
}

static bool lookup_builtin(const Scope *s, const char *name, ExprKind *kind, int64_t *value)
{
    static const TargetFacts no_target;
    static const ProgramFacts no_facts = {.target = &no_target};
    static const Limits no_limits;
    const ProgramFacts *f = s->f ? s->f : &no_facts;
    const Limits *l = s->f ? &s->f->g->limits : &no_limits;
    const struct {
        const char *name;
        int64_t value;
    } names[] = {
#define NAME(name, value, meaning) {#name, value},
#include "names.def"
#undef NAME
    };
    static const char *const variables[VAR_COUNT] = {
#define LAUNCH(name, meaning) [VAR_##name] = #name,
#include "names.def"
#undef LAUNCH
    };

    for (size_t i = 0; i < LEN(names); i++)
        if (strcmp(names[i].name, name) == 0) {
            *value = names[i].value;
            return true;
        }
    for (int i = 0; i < CAPABILITY_COUNT; i++)
        if (strcmp(capability_names[i], name) == 0) {
            *value = f->target->capabilities >> i & 1;
            return true;
        }
    for (int i = 0; i < VAR_COUNT; i++) {
        if (strcmp(variables[i], name) != 0)
            continue;
        *kind = s->live ? EXPR_VARIABLE : EXPR_CONSTANT;
        *value = s->live ? i : i == VAR_T ? f->t_max : f->s_max;
        return s->live || (s->at_most && i != VAR_SMS);
    }
    *value = dtype_parse(name) ? (int64_t)dtype_parse(name) : word_number(name);
    return *value >= 0;
}

static bool lookup(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    const Scope *s = user;
    const int k = scope_const(s->c, name, strlen(name));

    *kind = s->f ? EXPR_CONSTANT : EXPR_VARIABLE; /* while names are checked no value is known, so nothing is folded */
    *value = 0;
    if (k >= 0 && s->have[k]) {
        *value = s->consts[k].i;
        return s->c->consts.at[k].kind != CONST_FLOAT;
    }
    if (lookup_fixed(s, name, value) || scope_shared(s, name, value))
        return true;
    if (strchr(name, '('))
        return lookup_function(s, name, value);
    if (strchr(name, '.'))
        return lookup_attribute(s, name, value);
    return lookup_dim(s, name, kind, value) || lookup_builtin(s, name, kind, value);
}

/* --- expressions ------------------------------------------------------------------------------- */

/* Without `$`, which only marks named buffers for the reader: type($k) is type(k). */
static const char *without_dollar(const char *text, char out[512])
{
    size_t n = 0;

    for (; *text && n < 511; text++)
        if (*text != '$')
            out[n++] = *text;
    out[n] = 0;
    return out;
}

bool scope_parse(Scope *s, const char *text, Expr *e, FtxError *err)
{
    char copy[512];

    if (strlen(text) >= sizeof copy) {
        ftx_fail(err, FTX_EINVAL, "expression longer than %zu characters", sizeof copy - 1);
        return false;
    }
    return expr_parse(without_dollar(text, copy), lookup, s, e, err) == FTX_OK;
}

bool scope_evaluate(Scope *s, const char *text, int64_t *value, FtxError *err)
{
    Expr e;

    return scope_parse(s, text, &e, err) && expr_run(e.words, e.n, NULL, 0, value, err) == FTX_OK;
}

/* The name of a type if `name` holds one, else NULL. */
static const char *type_text(const Scope *s, const char *name, int64_t value)
{
    const int k = scope_const(s->c, name, strlen(name));

    if ((k < 0 || s->c->consts.at[k].kind != CONST_TYPE) && strncmp(name, "type(", 5) != 0)
        return NULL;
    return value > 0 && value <= DT_FP8 ? dtype_name((DType)value) : NULL;
}

const char *scope_values(Scope *s, const char *text, Arena *a)
{
    const char *out = "";

    for (const char *at = text; *at;) {
        char name[64];
        size_t n = 0;
        int64_t value;
        FtxError err;

        while (isalnum((unsigned char)at[n]) || at[n] == '_' || at[n] == '.')
            n++;
        if (n && at[n] == '(') {
            const char *close = strchr(at, ')');
            const size_t m = close ? (size_t)(close - at) + 1 : n;

            if (close && islower((unsigned char)*at) && memchr(at, ',', m) == NULL)
                n = m;
        }
        if (n && n < sizeof name && isalpha((unsigned char)*at)) {
            memcpy(name, at, n);
            name[n] = 0;
            const char *shown = arena_printf(a, "%s = ", name);

            if (word_number(name) < 0 && !dtype_parse(name) && scope_evaluate(s, name, &value, &err) &&
                !strstr(out, shown)) {
                const char *type = type_text(s, name, value);

                out = type ? arena_printf(a, "%s%s%s%s", out, *out ? ", " : "", shown, type)
                           : arena_printf(a, "%s%s%s%lld", out, *out ? ", " : "", shown, (long long)value);
            }
        }
        at += n ? n : 1;
    }
    return out;
}
