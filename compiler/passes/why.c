/* why.c - `ftxc why`: which kernels could compute a value, what each would cost, and which is taken. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lower.h"
#include "../catalog/tuning.h"

static bool covers(const Binding *b, Id v)
{
    for (uint32_t i = 0; i < b->n_covered; i++)
        if (b->covered[i] == v)
            return true;
    return false;
}

static bool names(const TuningEntry *e, const char *constant)
{
    for (size_t i = 0; i < e->use.n; i++)
        if (strcmp(e->use.at[i].name, constant) == 0)
            return true;
    return false;
}

static void print_measured(const TuningEntry *e, FILE *out)
{
    fprintf(out, "; %s", e->file->name);
    if (e->us > 0)
        fprintf(out, ": %s takes %.2f us with it, %.2f us without", e->program, e->us, e->untuned_us);
}

/* Constants that a tuner may change: the value, all values, and the line or file that decided. */
static void print_tuned(const Candidate *c, FILE *out)
{
    const Contract *k = c->b.contract;

    for (size_t i = 0; i < k->consts.n; i++) {
        const ContractConst *t = &k->consts.at[i];
        const PreferLine *line = c->fit.decided[i];

        if (!t->n_values)
            continue;
        fprintf(out, "                 %s = %" PRId64 " of", t->value.name, c->fit.instance->consts[i].i);
        for (size_t n = 0; n < t->n_values; n++)
            fprintf(out, " %s", t->values[n]);
        if (c->fit.tuned && names(c->fit.tuned, t->value.name))
            print_measured(c->fit.tuned, out);
        else if (c->b.n_use && t->reorders)
            fputs("; the order of all programs", out);
        else if (line)
            fprintf(out, "; %s:%d: prefer %s", line->loc.file, line->loc.line, line->text);
        else
            fputs("; the first that fits", out);
        fputs(t->reorders ? "; it changes the order of sums\n" : "\n", out);
    }
}

/* Why a candidate that fits is not taken; "": it is. */
static const char *why_lost(const Lower *l, const Candidate *c, const Program *p)
{
    const Group *taken = NULL, *around = NULL;

    for (size_t i = 0; i < p->groups.n; i++) {
        const Group *g = &p->groups.at[i];

        if (g->b.root == c->b.root && g->b.line == c->b.line && g->b.gives == c->b.gives)
            return "";
        taken = g->b.root == c->b.root && g->b.gives == c->b.gives && !taken ? g : taken;
        around = covers(&g->b, c->b.root) ? g : around;
    }
    if (c->fit.tuned && c->fit.tuned->avoid)
        return arena_printf(l->scratch, "lost: %s: another kernel was measured to be faster", c->fit.tuned->file->name);
    if (c->fit.avoided)
        return arena_printf(l->scratch, "lost: %s:%d: prefer other if %s", c->fit.avoided->loc.file,
                            c->fit.avoided->loc.line, c->fit.avoided->text);
    if (!taken && (c->b.gives || (around && around->b.root == c->b.root)))
        return "lost: no launch reads the value in this form";
    if (!taken)
        return around ? arena_printf(l->scratch, "lost: the launch of %%%u computes this value too", around->b.root)
                      : "lost: no launch needs this value";
    if (c->own_us > taken->cost_us)
        return arena_printf(l->scratch, "lost: %.2f us more", c->own_us - taken->cost_us);
    if (c->own_us < taken->cost_us)
        return "lost: what it reads costs more";
    return c->b.contract == taken->b.contract ? "lost: the same cost, a later match line"
                                              : arena_printf(l->scratch, "lost: the same cost, rank %u after %u",
                                                             c->b.contract->rank, taken->b.contract->rank);
}

static void print_candidate(const Lower *l, const Candidate *c, const Program *p, FILE *out)
{
    const Group as_group = {.b = c->b};
    const char *lost, *form = "";

    if (!c->fits) {
        fprintf(out, "           no   %s  %s\n", lower_describe(l, &as_group, l->scratch), c->reason);
        return;
    }
    lost = why_lost(l, c, p);
    if (c->b.gives)
        form = arena_printf(l->scratch, " as %s", l->catalog->forms[c->b.gives].name);
    fprintf(out, "  %c %8.2f us  %s%s  %s%s%s\n", *lost ? ' ' : '*', c->own_us,
            lower_describe(l, &as_group, l->scratch), form, c->fit.instance->entry, *lost ? "  " : "", lost);
    print_tuned(c, out);
}

/* Whether the match line matched and only a `fits` line refused: then the reason begins with the contract's file. */
static bool matched(const Candidate *c)
{
    return c->reason && strncmp(c->reason, c->b.contract->loc.file, strlen(c->b.contract->loc.file)) == 0;
}

/* Those that compute v, and those that make one form of it from another. */
static void find_candidates(const Lower *l, Program *p, Id v, bool refused, Candidates *all)
{
    select_candidates(l, p, p->uses, v, COMPUTE, refused, all);
    select_candidates(l, p, p->uses, v, CONVERSIONS, false, all);
}

static void explain_program(const Lower *l, Program *p, Id v, FILE *out)
{
    const TargetFacts *t = target_facts(l->target);
    const char *overlap = "";

    if (t->overlap_us < t->launch_us)
        overlap = arena_printf(l->scratch, ", or %g if it overlaps the previous one", t->overlap_us);
    fprintf(out, "%s on %s\n", lower_program_name(p, l->scratch), l->target.name);
    for (Id root = v; root < l->g->values.n; root++) { /* matches with their root at v, then larger ones that cover v */
        Candidates all = {0};
        bool titled = false;

        find_candidates(l, p, root, root == v, &all);
        for (size_t i = 0; i < all.n; i++) {
            if ((root != v && !covers(&all.at[i].b, v)) || (!all.at[i].fits && !matched(&all.at[i])))
                continue;
            if (!titled)
                fprintf(out, "  as %%%u = %s\n", root, ir_op_name(ir_value(l->g, root)->op));
            titled = true;
            print_candidate(l, &all.at[i], p, out);
        }
    }
    for (size_t i = 0; i < p->groups.n; i++)
        if (covers(&p->groups.at[i].b, v))
            fprintf(out,
                    "  taken: %s; it is in the cheapest set of launches for the program "
                    "(a launch costs its bytes or its operations at the rates of %s%s, whichever takes longer, plus "
                    "%g us%s)\n",
                    lower_describe(l, &p->groups.at[i], l->scratch), t->gpu, t->measured ? "" : " (not measured by us)",
                    t->launch_us, overlap);
}

/* "no kernel for %5 = rmsnorm ... on sm_90a: closest came ...": the value, and the contracts that came closest. */
bool why_missing(const Lower *l, Program *p, const uint32_t *uses, Id v, Diag *d)
{
    Candidates all = {0};
    const Value *value;
    const char *near = "";
    int shown = 0;

    value = ir_value(l->g, v);
    select_candidates(l, p, uses, v, COMPUTE, true, &all);
    for (int matched = 1; matched >= 0; matched--) /* first those that match but do not fit */
        for (size_t i = 0; i < all.n && shown < 4; i++) {
            const Contract *k = all.at[i].b.contract;
            const bool tree = all.at[i].reason && strncmp(all.at[i].reason, k->loc.file, strlen(k->loc.file)) == 0;

            if (all.at[i].fits || !all.at[i].reason || tree != matched || strstr(near, all.at[i].reason))
                continue;
            near = matched ? arena_printf(l->scratch, "%s; %s", near, all.at[i].reason)
                           : arena_printf(l->scratch, "%s; %s:%d: %s", near, k->loc.file, all.at[i].b.line->loc.line,
                                          all.at[i].reason);
            shown++;
        }
    for (size_t i = 0; i < all.n && !shown; i++)
        if (all.at[i].fits && all.at[i].b.contract->rows != ROWS_ALL)
            near = arena_printf(l->scratch, "; %s serves %s rows only", all.at[i].b.contract->family,
                                all.at[i].b.contract->rows == ROWS_DECODE ? "decode" : "prefill");
    return diag_error(d, value->loc, "no kernel for %%%u = %s %s %s on %s (program %s)%s%s", v, ir_op_name(value->op),
                      ir_shape_text(l->scratch, value->shape), dtype_name(value->type), l->target.name,
                      lower_program_name(p, l->scratch),
                      *near ? ": closest came " : ": no contract has a match line with this op as its root",
                      *near ? near + 2 : "");
}

bool passes_why(const Graph *g, const Catalog *c, Target t, const Precision *p, Id v, FILE *out, Diag *d)
{
    const Value *value = ir_value(g, v);
    Packing packing = {0};
    Plan plan = {0};
    Lower l;

    fprintf(out, "%%%u = %s : %s", v, ir_op_name(value->op), ir_shape_text(g->scratch, value->shape));
    if (value->loc.file)
        fprintf(out, "  ; %s:%d", value->loc.file, value->loc.line);
    fputc('\n', out);
    if (ir_op_is_weight(value->op) || value->op == OP_IDS) {
        fputs(value->op == OP_IDS ? "token ids: the host writes them before each step\n"
                                  : "a weight: computed at compile time\n",
              out);
        return true;
    }
    if (ir_op_is_view(value->op)) {
        fprintf(out, "a view: it lies in the memory of %%%u\n", ir_base(g, v));
        return true;
    }
    if (apart_reason(g, v, g->scratch))
        fprintf(out, "computed in parts: %s\n", apart_reason(g, v, g->scratch));
    lower_open(&l, g, c, t, p, &packing, &plan);
    if (!stage_select(&l, d)) /* finds weight_forms, on which the choice in each program depends */
        return false;
    sums_print(&l, v, out);
    for (size_t i = 0; i < l.programs.n; i++) {
        if (!select_program(&l, &l.programs.at[i], d))
            return false;
        explain_program(&l, &l.programs.at[i], v, out);
        arena_reset(l.scratch);
    }
    return true;
}

/* --- for `ftxc page` ---------------------------------------------------------------------------------- */

typedef struct Teller {
    const Lower *l;
    Program *p;
    uint32_t program;
    bool *first; /* of each group: no group before it has its instance */
    void (*tell)(void *user, const Considered *x);
    void *user;
} Teller;

static void find_first(Teller *t)
{
    const Group *g = t->p->groups.at;

    t->first = arena_array(t->l->scratch, bool, t->p->groups.n);
    for (size_t i = 0; i < t->p->groups.n; i++) {
        t->first[i] = true;
        for (size_t k = 0; k < i && t->first[i]; k++)
            t->first[i] = strcmp(g[k].fit.instance->entry, g[i].fit.instance->entry) != 0;
    }
}

/* Whether the candidate is of interest for a group: it computes one of its values, or only a `fits` line refused it for
 * the same root. */
static bool competes(const Lower *l, const Candidate *x, const Group *g)
{
    if (!x->fits)
        return x->b.root == g->b.root && matched(x);
    for (uint32_t i = 0; i < g->b.n_covered; i++)
        if (ir_value(l->g, g->b.covered[i])->op != OP_IDS && covers(&x->b, g->b.covered[i]))
            return true;
    return false;
}

static void tell_candidate(const Teller *t, const Candidate *x, uint32_t launch)
{
    const Group as_group = {.b = x->b};
    char *tuned = NULL;
    size_t bytes;
    FILE *out = open_memstream(&tuned, &bytes);

    if (!out)
        die("out of memory");
    if (x->fits)
        print_tuned(x, out);
    if (fclose(out))
        die("out of memory");
    t->tell(t->user, &(Considered){.program = t->program,
                                   .launch = launch,
                                   .root = x->b.root,
                                   .fits = x->fits,
                                   .cost_us = x->own_us,
                                   .kernel = lower_describe(t->l, &as_group, t->l->scratch),
                                   .entry = x->fits ? x->fit.instance->entry : NULL,
                                   .reason = x->fits ? why_lost(t->l, x, t->p) : x->reason,
                                   .tuned = tuned});
    free(tuned);
}

static void tell_program(const Teller *t)
{
    for (Id root = 1; root < t->l->g->values.n; root++) {
        Candidates all = {0};
        bool refused = false;

        for (size_t k = 0; k < t->p->groups.n; k++)
            refused |= t->first[k] && t->p->groups.at[k].b.root == root;
        find_candidates(t->l, t->p, root, refused, &all);
        for (uint32_t k = 0; k < t->p->groups.n; k++)
            for (size_t i = 0; i < all.n; i++)
                if (t->first[k] && competes(t->l, &all.at[i], &t->p->groups.at[k]))
                    tell_candidate(t, &all.at[i], k);
    }
}

bool passes_considered(const Graph *g, const Catalog *c, Target t, const Precision *p,
                       void (*tell)(void *user, const Considered *x), void *user, Diag *d)
{
    Packing packing = {0};
    Plan plan = {0};
    Lower l;

    lower_open(&l, g, c, t, p, &packing, &plan);
    if (!stage_select(&l, d))
        return false;
    for (uint32_t i = 0; i < l.programs.n; i++) {
        Teller teller = {.l = &l, .p = &l.programs.at[i], .program = i, .tell = tell, .user = user};

        if (!select_program(&l, teller.p, d))
            return false;
        find_first(&teller);
        tell_program(&teller);
        arena_reset(l.scratch);
    }
    return true;
}

/* --- names -------------------------------------------------------------------------------------------- */

/* Whether a part of a name is another's; "*" stands for digits. */
static bool same_part(const char *part, size_t n, const char *of, size_t m)
{
    return n == 1 && *part == '*' ? m && strspn(of, "0123456789") >= m : n == m && strncmp(part, of, n) == 0;
}

bool lower_name_has(const char *whole, const char *name)
{
    while (*name) {
        const size_t n = strcspn(name, "."), m = strcspn(whole, ".");

        if (!*whole)
            return false;
        if (same_part(name, n, whole, m))
            name += n + (name[n] == '.');
        whole += m + (whole[m] == '.');
    }
    return true;
}

bool *passes_values_of(const Graph *g, const char *name, Arena *a)
{
    bool *of = arena_array(a, bool, g->values.n);

    for (Id v = 1; v < g->values.n; v++) {
        const Value *value = ir_value(g, v);

        of[v] = value->op == OP_WEIGHT && *name && lower_name_has(ir_word(value, "name"), name);
        for (int i = 0; i < IR_MAX_ARGS; i++)
            of[v] |= value->args[i] && ir_op_is_weight(ir_value(g, value->args[i])->op) && of[value->args[i]];
    }
    for (Id v = 1; v < g->values.n; v++)
        of[v] &= !ir_op_is_weight(ir_value(g, v)->op);
    return of;
}
