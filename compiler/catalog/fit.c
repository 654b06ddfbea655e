/* fit.c - choose the constants of a match: of those of `tune` lines the values that `prefer` lines name, else the first for
 * which every `fits` line holds and, if there are such values, no `prefer other` line. Then evaluate the launch, the sizes of
 * buffers, and what the cost model needs. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/base/hash.h"
#include "scope.h"
#include "tuning.h"

enum { MAX_TILE_ROWS = 256 }; /* of a TMA box */

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
        return !text || scope_evaluate(s, text, &out->i, err);
    if (!text || !scope_attribute(s, text, &rule, &v))
        return true;
    if (v && rule.kind == ATTR_FLOAT)
        out->f = ir_float(v, rule.name);
    return true;
}

/* --- constants --------------------------------------------------------------------------------- */

static bool fail_at(Loc loc, const FtxError *err, Arena *a, const char **reason)
{
    *reason = arena_printf(a, "%s:%d: %s", loc.file, loc.line, err->text);
    return false;
}

/* The first `prefer other` line that holds; *line NULL: none does. */
static bool find_avoided(Scope *s, const NamedText **line, Arena *a, const char **reason)
{
    *line = NULL;
    for (size_t i = 0; i < s->c->prefer_other.n && !*line; i++) {
        const NamedText *t = &s->c->prefer_other.at[i];
        int64_t holds = 0;
        FtxError err;

        if (!scope_evaluate(s, t->text, &holds, &err))
            return fail_at(t->loc, &err, a, reason);
        *line = holds ? t : NULL;
    }
    return true;
}

static bool check_fits(Scope *s, Arena *a, const char **reason)
{
    const NamedText *avoided = NULL;

    for (size_t i = 0; i < s->c->fits.n; i++) {
        const NamedText *fit = &s->c->fits.at[i];
        int64_t holds = 0;
        FtxError err;

        if (!scope_evaluate(s, fit->text, &holds, &err))
            return fail_at(fit->loc, &err, a, reason);
        if (!holds) {
            *reason = arena_printf(a, "%s:%d: fits %s (%s)", fit->loc.file, fit->loc.line, fit->text,
                                   scope_values(s, fit->text, a));
            return false;
        }
    }
    return !s->unavoided || (find_avoided(s, &avoided, a, reason) && !avoided);
}

/* The first prefer line for constant k that holds, and the value it gives; *line NULL: there is none. */
static bool find_preferred(Scope *s, size_t k, const PreferLine **line, const char **value, Arena *a,
                           const char **reason)
{
    const char *name = s->c->consts.at[k].value.name;

    *line = NULL;
    for (size_t i = 0; i < s->c->prefer.n && !*line; i++) {
        const PreferLine *p = &s->c->prefer.at[i];
        int64_t holds = 1;
        FtxError err;

        *value = NULL;
        for (size_t n = 0; n < p->values.n; n++)
            if (strcmp(p->values.at[n].name, name) == 0)
                *value = p->values.at[n].text;
        if (*value && p->when.text && !scope_evaluate(s, p->when.text, &holds, &err))
            return fail_at(p->loc, &err, a, reason);
        *line = *value && holds ? p : NULL;
    }
    return true;
}

static bool choose(Scope *s, size_t k, Arena *a, const char **reason);

static const TunedConst *given_value(const Scope *s, const char *name)
{
    for (size_t i = 0; i < s->n_use; i++)
        if (strcmp(s->use[i].name, name) == 0)
            return &s->use[i];
    return NULL;
}

/* Tries the values of a tuned constant: the one that is given or that of a prefer line alone, or all in their order. */
static bool choose_tuned(Scope *s, size_t k, Arena *a, const char **reason)
{
    const ContractConst *c = &s->c->consts.at[k];
    const char *const *values = c->values, *preferred = NULL;
    const TunedConst *given = given_value(s, c->value.name);
    size_t n = c->n_values;

    if (s->places) {
        values = &c->values[s->places[k]];
        n = 1;
    } else if (given) {
        *reason = arena_printf(a, "%s:%d: tune: %lld is not a value of %s", c->value.loc.file, c->value.loc.line,
                               (long long)given->value, c->value.name);
    } else if (!find_preferred(s, k, &s->decided[k], &preferred, a, reason)) {
        return false;
    } else if (s->decided[k]) {
        values = &preferred;
        n = 1;
    }
    for (size_t i = 0; i < n; i++) {
        FtxError err;

        s->have[k] = false;
        s->consts[k] = (Const){c->value.name, c->kind, 0, 0};
        if (!scope_evaluate(s, values[i], &s->consts[k].i, &err))
            return fail_at(c->value.loc, &err, a, reason);
        if (given && s->consts[k].i != given->value)
            continue;
        s->have[k] = true;
        if (choose(s, k + 1, a, reason))
            return true;
    }
    s->have[k] = false;
    return false;
}

/* Chooses the constants from index k on: depth first, in the order of the values, until all `fits` lines hold. */
static bool choose(Scope *s, size_t k, Arena *a, const char **reason)
{
    FtxError err;

    while (k < s->c->consts.n && s->c->consts.at[k].of_match)
        k++;
    if (k == s->c->consts.n)
        return check_fits(s, a, reason);

    const ContractConst *c = &s->c->consts.at[k];

    if (c->n_values)
        return choose_tuned(s, k, a, reason);
    s->have[k] = false;
    if (!set_const(s, k, c->value.text, &err))
        return fail_at(c->value.loc, &err, a, reason);
    s->have[k] = true;
    return choose(s, k + 1, a, reason);
}

/* Whether the target has all capabilities of the `needs` line. */
static bool has_needs(const ProgramFacts *f, const Contract *c, Arena *a, const char **reason)
{
    for (int i = 0; i < CAPABILITY_COUNT; i++)
        if ((c->needs.capabilities & ~f->target->capabilities) >> i & 1) {
            *reason = arena_printf(a, "%s:%d: needs %s, which %s lacks", c->needs.loc.file, c->needs.loc.line,
                                   capability_names[i], f->target->name);
            return false;
        }
    return true;
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
    for (size_t i = 0; i < in->n_regions; i++)
        facts = arena_printf(keep, "%s %s=%lld", facts, in->regions[i].name, (long long)in->regions[i].i);
    facts = arena_printf(keep, "%s block=%u smem=%u", facts, in->block, in->smem);
    for (int i = 0; i < 3; i++)
        for (uint32_t k = 0; k < in->grid[i].n; k++)
            facts = arena_printf(keep, "%s%s%lld", facts, k ? "," : " grid=", (long long)in->grid[i].words[k]);
    return arena_printf(keep, "%s_%08x", shown, (unsigned)(hash64(facts, strlen(facts)) >> 32));
}

static bool expression_of(Scope *s, const NamedText *t, Expr *e, Arena *a, const char **reason)
{
    FtxError err;

    if (!t->text || scope_parse(s, t->text, e, &err))
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
    if (!scope_evaluate(s, t->text, value, &err)) {
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
    const int64_t variables[VAR_COUNT] = {[VAR_T] = f->t_max, [VAR_S] = f->s_max, [VAR_SMS] = f->target->sms};
    int64_t value;

    if (!e->n || expr_run(e->words, e->n, variables, VAR_COUNT, &value, NULL) != FTX_OK)
        return -1;
    return (double)value;
}

/* The number of the form in which the root is to be written. */
static bool fix_form(Scope *s, Fitted *out, Arena *a, const char **reason)
{
    out->param = 1;
    for (size_t i = 0; i < s->c->gives.n; i++) {
        const GivesLine *g = &s->c->gives.at[i];

        if (g->form != s->b->gives)
            continue;
        if (!number_of(s, &g->param, 0, INT32_MAX, &out->param, a, reason))
            return false;
        if (out->param)
            return true;
        *reason = arena_printf(a, "%s:%d: gives: %s is 0", g->param.loc.file, g->param.loc.line, g->param.text);
        return false;
    }
    return true;
}

static bool fix_holds(Scope *s, Fitted *out, Arena *a, const char **reason)
{
    int64_t holds = 0;

    if (!number_of(s, &s->c->holds, 0, 1, &holds, a, reason))
        return false;
    out->holds = holds != 0;
    return true;
}

static bool fix_sums(Scope *s, Fitted *out, Arena *keep, Arena *a, const char **reason)
{
    for (size_t i = 0; i < s->c->sums.n; i++) {
        const NamedText *t = &s->c->sums.at[i].order;
        int64_t n;

        if (!number_of(s, t, 0, INT32_MAX, &n, a, reason))
            return false;
        out->sums[i] = arena_printf(keep, "%s %lld", t->name, (long long)n);
    }
    return true;
}

static bool fix_launch(Scope *s, Instance *in, Fitted *out, Arena *keep, Arena *a, const char **reason)
{
    const Contract *c = s->c;
    static const int64_t MAX_BYTES = INT64_C(1) << 46;
    const int64_t most = s->f->target->smem;
    int64_t block, smem, shared;
    Expr flops = {0};
    FtxError err;

    s->live = true;
    for (int i = 0; i < 3; i++)
        if (!expression_of(s, &c->grid[i], &in->grid[i], a, reason))
            return false;
    if (!expression_of(s, &c->moves, &in->moves, a, reason) || !expression_of(s, &c->flops, &flops, a, reason))
        return false;
    s->live = false;
    if (!scope_regions(s, keep, in, &err))
        return fail_at(c->shared.at[0].bytes.loc, &err, a, reason);
    shared = in->n_regions ? in->regions[in->n_regions - 1].i : 0;
    if (shared > most) {
        *reason = arena_printf(a, "%s:%d: the regions of shared memory take %lld bytes, a block may have %lld",
                               c->shared.at[0].bytes.loc.file, c->shared.at[0].bytes.loc.line, (long long)shared,
                               (long long)most);
        return false;
    }
    if (!number_of(s, &c->block, 0, 1024, &block, a, reason) || !number_of(s, &c->smem, shared, most, &smem, a, reason))
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
    return fix_form(s, out, a, reason) && fix_holds(s, out, a, reason) && fix_sums(s, out, keep, a, reason);
}

int64_t contract_arg_tiled(const Binding *b, const Fitted *fit, size_t i)
{
    const Contract *c = b->contract;

    for (size_t k = 0; k < c->tiled.n && (b->arg[i] || c->args.at[i].named >= 0); k++)
        if (strcmp(c->tiled.at[k].name, c->args.at[i].name) == 0)
            return fit->tiled[k];
    return 0;
}

static bool fit(Scope s, Arena *keep, Arena *scratch, Fitted *out, const char **reason)
{
    const ProgramFacts *f = s.f;
    const Binding *b = s.b;
    const Contract *c = s.c;
    const Loc loc = ir_value(f->g, b->root)->loc;
    Instance *in;

    *out = (Fitted){0};
    if (!has_needs(f, c, scratch, reason))
        return false;
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
    s.unavoided = !s.places && c->prefer_other.n > 0;
    if (!choose(&s, 0, scratch, reason)) {
        if (!s.unavoided)
            return false;
        s.unavoided = false;
        if (!choose(&s, 0, scratch, reason))
            return false;
    }
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
    out->decided = arena_array(keep, const PreferLine *, c->consts.n);
    memcpy(out->decided, s.decided, sizeof *s.decided * c->consts.n);
    if (!fix_launch(&s, in, out, keep, scratch, reason) || !find_avoided(&s, &out->avoided, scratch, reason))
        return false;
    in->entry = entry_name(in, keep);
    in->note = loc.file ? arena_printf(keep, "for %%%u of %s:%d", b->root, loc.file, loc.line)
                        : arena_printf(keep, "for %%%u", b->root);
    return true;
}

bool contract_fit_with(const ProgramFacts *f, const Binding *b, const TunedConst *use, size_t n, Arena *keep,
                       Arena *scratch, Fitted *out, const char **reason)
{
    return fit((Scope){.c = b->contract, .f = f, .b = b, .use = use, .n_use = n}, keep, scratch, out, reason);
}

bool contract_fit_at(const ProgramFacts *f, const Binding *b, const size_t *places, Arena *keep, Arena *scratch,
                     Fitted *out, const char **reason)
{
    return fit((Scope){.c = b->contract, .f = f, .b = b, .places = places}, keep, scratch, out, reason);
}

bool contract_fit(const ProgramFacts *f, const Binding *b, Arena *keep, Arena *scratch, Fitted *out,
                  const char **reason)
{
    if (!contract_fit_with(f, b, b->use, b->n_use, keep, scratch, out, reason))
        return false;
    if (!b->n_use)
        tuning_follow(f, b, keep, scratch, out);
    return true;
}

/* --- checking ---------------------------------------------------------------------------------- */

/* Checks one expression; `s` says which names are known on its line. */
static bool check_text(Scope *s, const NamedText *t, Diag *d)
{
    Scope launch = *s;
    FtxError err = {0};
    Expr e;

    if (!t->text || scope_parse(s, t->text, &e, &err))
        return true;
    launch.live = true;
    if (scope_parse(&launch, t->text, &e, NULL))
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

/* The values of a tuned constant and the conditions that decide between them use constants that stand before it. */
static bool check_tuned(Scope *s, const ContractConst *k, Diag *d)
{
    for (size_t i = 0; i < k->n_values; i++)
        if (!check_text(s, &(NamedText){k->value.name, k->values[i], k->value.loc}, d))
            return false;
    for (size_t i = 0; i < s->c->prefer.n; i++)
        for (size_t n = 0; n < s->c->prefer.at[i].values.n; n++)
            if (strcmp(s->c->prefer.at[i].values.at[n].name, k->value.name) == 0 &&
                !check_text(s, &s->c->prefer.at[i].when, d))
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
        if (!check_tuned(s, of, d))
            return false;
        s->have[k] = true;
    }
    return true;
}

static bool check_regions(Scope *s, Diag *d)
{
    bool ok = true;

    s->sizing = true;
    for (size_t i = 0; i < s->c->shared.n && ok; i++)
        ok = check_text(s, &s->c->shared.at[i].bytes, d);
    s->sizing = false;
    return ok;
}

static bool is_paged(int named)
{
    return named == FTX_NAMED_k || named == FTX_NAMED_v;
}

bool contract_check(const Contract *c, Diag *d)
{
    Scope s = {.c = c};

    if (!check_consts(&s, d) || !check_regions(&s, d) || !check_texts(&s, c->fits.at, c->fits.n, d) ||
        !check_texts(&s, c->prefer_other.at, c->prefer_other.n, d) || !check_text(&s, &c->block, d) ||
        !check_text(&s, &c->smem, d))
        return false;
    for (size_t i = 0; i < c->tiled.n; i++) {
        const NamedText *t = &c->tiled.at[i];
        const int at = scope_arg(c, t->name, strlen(t->name));

        if (at < 0 || (c->args.at[at].named < 0 ? c->args.at[at].rank < 2 : !is_paged(c->args.at[at].named)))
            return diag_error(
                d, t->loc, "contract: tiled: %s is neither an argument with two or more sizes nor $k or $v", t->name);
    }
    for (size_t i = 0; i < c->gives.n; i++)
        if (!check_text(&s, &c->gives.at[i].param, d))
            return false;
    for (size_t i = 0; i < c->sums.n; i++)
        if (!check_text(&s, &c->sums.at[i].order, d))
            return false;
    if (!check_texts(&s, c->tiled.at, c->tiled.n, d) || !check_text(&s, &c->holds, d))
        return false;
    s.at_most = true;
    if (!check_texts(&s, c->scratch.at, c->scratch.n, d) || !check_texts(&s, c->zeroed.at, c->zeroed.n, d))
        return false;
    s.at_most = false;
    s.live = true;
    return check_texts(&s, c->grid, LEN(c->grid), d) && check_text(&s, &c->moves, d) && check_text(&s, &c->flops, d);
}
