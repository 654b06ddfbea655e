/* why.c - `ftxc why`: which kernels could compute a value, what each would cost, and which is taken. */
#include <inttypes.h>
#include <string.h>

#include "lower.h"

static bool covers(const Binding *b, Id v)
{
    for (uint32_t i = 0; i < b->n_covered; i++)
        if (b->covered[i] == v)
            return true;
    return false;
}

/* Constants that a tuner may change: the value, all values, and the line that decided. */
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
        if (line)
            fprintf(out, "; %s:%d: prefer %s", line->loc.file, line->loc.line, line->text);
        else
            fputs("; the first that fits", out);
        fputs(t->reorders ? "; it changes the order of sums\n" : "\n", out);
    }
}

static void print_candidate(const Lower *l, const Candidate *c, const Program *p, FILE *out)
{
    const Group as_group = {.b = c->b};
    bool taken = false;

    for (size_t i = 0; i < p->groups.n; i++)
        taken |= p->groups.at[i].b.line == c->b.line && p->groups.at[i].b.root == c->b.root;
    const NamedText *line = c->fits ? c->fit.avoided : NULL;
    const char *avoided =
        line ? arena_printf(l->scratch, "  %s:%d: prefer other if %s", line->loc.file, line->loc.line, line->text) : "";

    if (!c->fits) {
        fprintf(out, "           no   %s  %s\n", lower_describe(l, &as_group, l->scratch), c->reason);
        return;
    }
    fprintf(out, "  %c %8.2f us  %s  %s%s\n", taken ? '*' : ' ', c->own_us, lower_describe(l, &as_group, l->scratch),
            c->fit.instance->entry, avoided);
    print_tuned(c, out);
}

/* Whether the match line matched and only a `fits` line refused: then the reason begins with the contract's file. */
static bool matched(const Candidate *c)
{
    return c->reason && strncmp(c->reason, c->b.contract->loc.file, strlen(c->b.contract->loc.file)) == 0;
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

        select_candidates(l, p, p->uses, root, root == v, &all);
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
                    "(a launch costs its bytes or its operations at the rates of %s, whichever takes longer, plus "
                    "%g us%s)\n",
                    lower_describe(l, &p->groups.at[i], l->scratch), t->gpu, t->launch_us, overlap);
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
    lower_open(&l, g, c, t, p, &packing, &plan);
    if (!stage_select(&l, d)) /* finds launch_norms, on which the choice in each program depends */
        return false;
    for (size_t i = 0; i < l.programs.n; i++) {
        if (!select_program(&l, &l.programs.at[i], d))
            return false;
        explain_program(&l, &l.programs.at[i], v, out);
        l.programs.at[i].fit_cache = NULL;
        arena_reset(l.scratch);
    }
    return true;
}
