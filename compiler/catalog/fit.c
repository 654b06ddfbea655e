/* fit.c - choose the constants of a match: the first candidate values for which every `fits` line holds. Then evaluate
 * the launch, the sizes of buffers, and what the cost model needs. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/base/hash.h"
#include "contract.h"

enum { MAX_TILE_ROWS = 256 }; /* of a TMA box */

/* What names mean while an expression of a contract is parsed. A dimension that is T or S is called live. */
typedef struct Scope {
    const Contract *c;
    const ProgramFacts *f; /* NULL: only the names are checked (contract_check) */
    const Binding *b;
    Const consts[CONTRACT_MAX_CONSTS]; /* by index of c->consts */
    bool have[CONTRACT_MAX_CONSTS];
    bool live;    /* T, S, SMS and live dimensions are variables of the launch */
    bool at_most; /* T, S and live dimensions have their largest values */
} Scope;

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

static int arg_find(const Contract *c, const char *name, size_t n)
{
    for (size_t i = 0; i < c->args.n; i++)
        if (strlen(c->args.at[i].name) == n && strncmp(c->args.at[i].name, name, n) == 0)
            return (int)i;
    return -1;
}

static int const_find(const Contract *c, const char *name, size_t n)
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
    const int k = const_find(s->c, x, n), i = arg_find(s->c, x, n);
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
    const int i = arg_find(s->c, x, n);
    int f = 0;

    while (f < FUNCTION_COUNT &&
           (strlen(names[f]) != (size_t)(open - name) || strncmp(names[f], name, (size_t)(open - name)) != 0))
        f++;
    if (f == FUNCTION_sizeof)
        return lookup_sizeof(s, x, n, value);
    if (f == FUNCTION_COUNT || i < 0 || (f == FUNCTION_columns && s->c->args.at[i].stats_of < 0))
        return false;
    if (!s->f)
        return true;

    const Id v = s->b->arg[i];

    switch ((Function)f) {
    case FUNCTION_has: *value = s->c->args.at[i].named >= 0 || v; break;
    case FUNCTION_type: *value = contract_arg_type(s->f, s->b, (size_t)i); break;
    case FUNCTION_rows: *value = v && ir_value(s->f->g, v)->shape.dim[0].kind == DIM_S; break;
    case FUNCTION_logits: *value = v && v == s->f->g->logits; break;
    case FUNCTION_columns: *value = v && s->f->stats ? s->f->stats[v].columns : 0; break;
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

/* op.attr: *value is the outermost covered value of that op; NULL: the match has none. */
static bool attribute(const Scope *s, const char *name, AttrRule *rule, const Value **value)
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

    if (!attribute(s, name, &rule, &v) || rule.kind == ATTR_FLOAT || strcmp(rule.name, "layer") == 0)
        return false;
    if (v && rule.kind == ATTR_INT)
        *out = ir_int(v, rule.name);
    if (v && rule.kind == ATTR_WORD)
        *out = word_number(ir_word(v, rule.name));
    return true;
}

static bool lookup_builtin(const Scope *s, const char *name, ExprKind *kind, int64_t *value)
{
    static const ProgramFacts no_facts;
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
    const int k = const_find(s->c, name, strlen(name));

    *kind = s->f ? EXPR_CONSTANT : EXPR_VARIABLE; /* while names are checked no value is known, so nothing is folded */
    *value = 0;
    if (k >= 0 && s->have[k]) {
        *value = s->consts[k].i;
        return s->c->consts.at[k].kind != CONST_FLOAT;
    }
    if (lookup_fixed(s, name, value))
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

static bool parse(Scope *s, const char *text, Expr *e, FtxError *err)
{
    char copy[512];

    if (strlen(text) >= sizeof copy) {
        ftx_fail(err, FTX_EINVAL, "expression longer than %zu characters", sizeof copy - 1);
        return false;
    }
    return expr_parse(without_dollar(text, copy), lookup, s, e, err) == FTX_OK;
}

static bool evaluate(Scope *s, const char *text, int64_t *value, FtxError *err)
{
    Expr e;

    return parse(s, text, &e, err) && expr_run(e.words, e.n, NULL, 0, value, err) == FTX_OK;
}

static bool set_const(Scope *s, size_t k, const char *text, FtxError *err)
{
    Const *out = &s->consts[k];
    AttrRule rule;
    const Value *v;

    out->name = s->c->consts.at[k].value.name;
    out->kind = s->c->consts.at[k].kind;
    out->i = 0;
    out->f = 0;
    if (out->kind != CONST_FLOAT)
        return !text || evaluate(s, text, &out->i, err);
    if (!text || !attribute(s, text, &rule, &v))
        return true;
    if (v && rule.kind == ATTR_FLOAT)
        out->f = ir_float(v, rule.name);
    return true;
}

/* The name of a type if `name` holds one, else NULL. */
static const char *type_text(const Scope *s, const char *name, int64_t value)
{
    const int k = const_find(s->c, name, strlen(name));

    if ((k < 0 || s->c->consts.at[k].kind != CONST_TYPE) && strncmp(name, "type(", 5) != 0)
        return NULL;
    return value > 0 && value <= DT_I32 ? dtype_name((DType)value) : NULL;
}

/* "C = 100, VEC = 8": the names of an expression with their values. */
static const char *values_of(Scope *s, const char *text, Arena *a)
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

            if (word_number(name) < 0 && !dtype_parse(name) && evaluate(s, name, &value, &err) && !strstr(out, shown)) {
                const char *type = type_text(s, name, value);

                out = type ? arena_printf(a, "%s%s%s%s", out, *out ? ", " : "", shown, type)
                           : arena_printf(a, "%s%s%s%lld", out, *out ? ", " : "", shown, (long long)value);
            }
        }
        at += n ? n : 1;
    }
    return out;
}

/* --- constants --------------------------------------------------------------------------------- */

static bool check_fits(Scope *s, Arena *a, const char **reason)
{
    for (size_t i = 0; i < s->c->fits.n; i++) {
        const NamedText *fit = &s->c->fits.at[i];
        int64_t holds = 0;
        FtxError err;

        if (!evaluate(s, fit->text, &holds, &err)) {
            *reason = arena_printf(a, "%s:%d: %s", fit->loc.file, fit->loc.line, err.text);
            return false;
        }
        if (!holds) {
            *reason = arena_printf(a, "%s:%d: fits %s (%s)", fit->loc.file, fit->loc.line, fit->text,
                                   values_of(s, fit->text, a));
            return false;
        }
    }
    return true;
}

/* Chooses the constants from index k on: depth first, in the order of the candidates, until all `fits` lines hold. */
static bool choose(Scope *s, size_t k, Arena *a, const char **reason)
{
    while (k < s->c->consts.n && s->c->consts.at[k].of_match)
        k++;
    if (k == s->c->consts.n)
        return check_fits(s, a, reason);

    const ContractConst *c = &s->c->consts.at[k];
    FtxError err;

    s->have[k] = false;
    if (!c->n_candidates) {
        if (!set_const(s, k, c->value.text, &err)) {
            *reason = arena_printf(a, "%s:%d: %s", c->value.loc.file, c->value.loc.line, err.text);
            return false;
        }
        s->have[k] = true;
        return choose(s, k + 1, a, reason);
    }
    for (size_t i = 0; i < c->n_candidates; i++) {
        s->consts[k] = (Const){c->value.name, c->kind, c->candidate[i], 0};
        s->have[k] = true;
        if (choose(s, k + 1, a, reason))
            return true;
    }
    s->have[k] = false;
    return false;
}

/* --- instances --------------------------------------------------------------------------------- */

/* linear__bf16_n640_k384_1f0c22aa: the family, the first constants for people, and a hash of all constants and of the
 * launch, so that different instances have different names. */
static const char *entry_name(const Instance *in, Arena *keep)
{
    char *facts = arena_strdup(keep, in->family), *shown = arena_printf(keep, "%s_", in->family);

    for (size_t i = 0; i < in->n_consts; i++) {
        const Const *c = &in->consts[i];
        char lower[32];
        size_t n = 0;

        for (; n < sizeof lower - 1 && c->name[n]; n++)
            lower[n] = (char)tolower((unsigned char)c->name[n]);
        lower[n] = 0;
        if (c->kind == CONST_FLOAT)
            facts = arena_printf(keep, "%s %s=%.17g", facts, c->name, c->f);
        else
            facts = arena_printf(keep, "%s %s=%lld", facts, c->name, (long long)c->i);
        if (strlen(shown) > 48 || c->kind == CONST_FLOAT || !c->i)
            continue;
        shown = c->kind == CONST_TYPE ? arena_printf(keep, "%s_%s", shown, dtype_name((DType)c->i))
                                      : arena_printf(keep, "%s_%s%lld", shown, lower, (long long)c->i);
    }
    facts = arena_printf(keep, "%s block=%u smem=%u", facts, in->block, in->smem);
    for (int i = 0; i < 3; i++)
        for (uint32_t k = 0; k < in->grid[i].n; k++)
            facts = arena_printf(keep, "%s%s%lld", facts, k ? "," : " grid=", (long long)in->grid[i].words[k]);
    return arena_printf(keep, "%s_%08x", shown, (unsigned)(hash64(facts, strlen(facts)) >> 32));
}

static bool expression_of(Scope *s, const NamedText *t, Expr *e, Arena *a, const char **reason)
{
    FtxError err;

    if (!t->text || parse(s, t->text, e, &err))
        return true;
    *reason = arena_printf(a, "%s:%d: %s", t->loc.file, t->loc.line, err.text);
    return false;
}

static bool number_of(Scope *s, const NamedText *t, int64_t low, int64_t high, int64_t *value, Arena *a,
                      const char **reason)
{
    FtxError err;

    *value = low;
    if (!t->text)
        return true;
    if (!evaluate(s, t->text, value, &err)) {
        *reason = arena_printf(a, "%s:%d: %s", t->loc.file, t->loc.line, err.text);
        return false;
    }
    if (*value >= low && *value <= high)
        return true;
    *reason = arena_printf(a, "%s:%d: %s is %lld, it must be %lld to %lld", t->loc.file, t->loc.line, t->name,
                           (long long)*value, (long long)low, (long long)high);
    return false;
}

static double run_at_most(const ProgramFacts *f, const Expr *e)
{
    const int64_t variables[VAR_COUNT] = {[VAR_T] = f->t_max, [VAR_S] = f->s_max, [VAR_SMS] = 128};
    int64_t value;

    if (!e->n || expr_run(e->words, e->n, variables, VAR_COUNT, &value, NULL) != FTX_OK)
        return -1;
    return (double)value;
}

static bool fix_launch(Scope *s, Instance *in, Fitted *out, Arena *a, const char **reason)
{
    const Contract *c = s->c;
    static const int64_t MAX_BYTES = INT64_C(1) << 46;
    int64_t block, smem;
    Expr flops = {0};

    s->live = true;
    for (int i = 0; i < 3; i++)
        if (!expression_of(s, &c->grid[i], &in->grid[i], a, reason))
            return false;
    if (!expression_of(s, &c->moves, &in->moves, a, reason) || !expression_of(s, &c->flops, &flops, a, reason))
        return false;
    s->live = false;
    if (!number_of(s, &c->block, 0, 1024, &block, a, reason) ||
        !number_of(s, &c->smem, 0, s->f->smem, &smem, a, reason))
        return false;
    in->block = (uint32_t)block;
    in->smem = (uint32_t)smem;
    out->moves = run_at_most(s->f, &in->moves);
    out->flops = run_at_most(s->f, &flops);
    s->at_most = true;
    for (size_t i = 0; i < c->scratch.n; i++)
        if (!number_of(s, &c->scratch.at[i], 0, MAX_BYTES, &out->scratch[i], a, reason))
            return false;
    for (size_t i = 0; i < c->zeroed.n; i++)
        if (!number_of(s, &c->zeroed.at[i], 0, MAX_BYTES, &out->zeroed[i], a, reason))
            return false;
    s->at_most = false;
    for (size_t i = 0; i < c->tiled.n; i++)
        if (!number_of(s, &c->tiled.at[i], 0, MAX_TILE_ROWS, &out->tiled[i], a, reason))
            return false;
    return number_of(s, &c->leaves, 0, INT32_MAX, &out->leaves, a, reason);
}

int64_t contract_arg_tiled(const Binding *b, const Fitted *fit, size_t i)
{
    const Contract *c = b->contract;

    for (size_t k = 0; k < c->tiled.n && b->arg[i]; k++)
        if (strcmp(c->tiled.at[k].name, c->args.at[i].name) == 0)
            return fit->tiled[k];
    return 0;
}

bool contract_fit(const ProgramFacts *f, const Binding *b, Arena *keep, Arena *scratch, Fitted *out,
                  const char **reason)
{
    const Contract *c = b->contract;
    const Loc loc = ir_value(f->g, b->root)->loc;
    Scope s = {.c = c, .f = f, .b = b};
    Instance *in;

    *out = (Fitted){0};
    for (size_t k = 0; k < c->consts.n; k++) {
        const char *text = NULL;
        FtxError err;

        if (!c->consts.at[k].of_match)
            continue;
        for (size_t i = 0; i < b->line->consts.n; i++)
            if (strcmp(b->line->consts.at[i].name, c->consts.at[k].value.name) == 0)
                text = b->line->consts.at[i].text;
        if (!set_const(&s, k, text, &err)) {
            *reason = arena_printf(scratch, "%s:%d: %s", b->line->loc.file, b->line->loc.line, err.text);
            return false;
        }
        s.have[k] = true;
    }
    if (!choose(&s, 0, scratch, reason))
        return false;
    out->instance = in = arena_new(keep, Instance);
    *in = (Instance){.contract = c,
                     .family = c->family,
                     .device = c->device,
                     .template_name = c->template_name,
                     .variant = c->variant,
                     .fixed = c->fixed.at,
                     .n_fixed = c->fixed.n,
                     .overlap = c->overlap,
                     .matmul = c->matmul,
                     .n_operands = (uint32_t)(c->operands + c->scratch.n + c->zeroed.n),
                     .n_consts = c->consts.n};
    in->consts = arena_array(keep, Const, c->consts.n);
    memcpy(in->consts, s.consts, sizeof *s.consts * c->consts.n);
    if (!fix_launch(&s, in, out, scratch, reason))
        return false;
    in->entry = entry_name(in, keep);
    in->note = loc.file ? arena_printf(keep, "for %%%u of %s:%d", b->root, loc.file, loc.line)
                        : arena_printf(keep, "for %%%u", b->root);
    return true;
}

/* --- checking ---------------------------------------------------------------------------------- */

/* Checks one expression; `s` says which names are known on its line. */
static bool check_text(Scope *s, const NamedText *t, Diag *d)
{
    Scope launch = *s;
    FtxError err = {0};
    Expr e;

    if (!t->text || parse(s, t->text, &e, &err))
        return true;
    launch.live = true;
    if (parse(&launch, t->text, &e, NULL))
        return diag_error(d, t->loc, "contract: expression \"%s\": %s known only at a launch", t->text,
                          s->at_most ? "SMS is" : "T, S and SMS are");
    return diag_error(d, t->loc, "contract: %s", err.text);
}

static bool check_texts(Scope *s, const NamedText *t, size_t n, Diag *d)
{
    for (size_t i = 0; i < n; i++)
        if (!check_text(s, &t[i], d))
            return false;
    return true;
}

/* Constants in the order in which contract_fit sets them: an expression may use those before it. */
static bool check_consts(Scope *s, Diag *d)
{
    const Contract *c = s->c;

    for (size_t k = 0; k < c->consts.n; k++) {
        const ContractConst *of = &c->consts.at[k];

        if (!of->of_match)
            continue;
        for (size_t i = 0; i < c->matches.n; i++)
            for (size_t n = 0; n < c->matches.at[i].consts.n; n++) {
                const NamedText *t = &c->matches.at[i].consts.at[n];

                if (strcmp(t->name, of->value.name) == 0 && of->kind != CONST_FLOAT && !check_text(s, t, d))
                    return false;
            }
        s->have[k] = true;
    }
    for (size_t k = 0; k < c->consts.n; k++) {
        const ContractConst *of = &c->consts.at[k];

        if (of->value.text && strstr(of->value.text, ".layer"))
            return diag_error(d, of->value.loc,
                              "contract: %s: the layer cannot be a constant; $k and $v are those of the layer",
                              of->value.name);
        if (!of->of_match && of->kind != CONST_FLOAT && !check_text(s, &of->value, d))
            return false;
        s->have[k] = true;
    }
    return true;
}

bool contract_check(const Contract *c, Diag *d)
{
    Scope s = {.c = c};

    if (!check_consts(&s, d) || !check_texts(&s, c->fits.at, c->fits.n, d) || !check_text(&s, &c->block, d) ||
        !check_text(&s, &c->smem, d))
        return false;
    for (size_t i = 0; i < c->tiled.n; i++) {
        const NamedText *t = &c->tiled.at[i];
        const int at = arg_find(c, t->name, strlen(t->name));

        if (at < 0 || c->args.at[at].named >= 0 || c->args.at[at].rank != 2)
            return diag_error(d, t->loc, "contract: tiled: %s is not an argument with two sizes", t->name);
    }
    if (!check_texts(&s, c->tiled.at, c->tiled.n, d) || !check_text(&s, &c->leaves, d))
        return false;
    s.at_most = true;
    if (!check_texts(&s, c->scratch.at, c->scratch.n, d) || !check_texts(&s, c->zeroed.at, c->zeroed.n, d))
        return false;
    s.at_most = false;
    s.live = true;
    return check_texts(&s, c->grid, LEN(c->grid), d) && check_text(&s, &c->moves, d) && check_text(&s, &c->flops, d);
}
