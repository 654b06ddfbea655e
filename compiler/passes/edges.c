/* edges.c - which launch of a program keeps the later ones back until the previous step is done.
 *
 * With programmatic dependent launch a kernel may start while the one before it runs. Kernels read before their wait what
 * earlier steps wrote (cached keys, rows), so one of the first launches must start its dependents only after its own wait:
 * it holds. A contract says with `holds` whether an instance does, and with the constant FREE_DEPENDENTS that it need not.
 * The first launch holds, unless the next one does: that reads nothing but weights before its wait, so the two overlap. */
#include "lower.h"

static bool free_dependents(const Lower *l, const Program *p, Group *g, Diag *d)
{
    ProgramFacts facts = p->facts;
    const char *reason;

    facts.free_dependents = true;
    return contract_fit(&facts, &g->b, l->keep, l->scratch, &g->fit, &reason) ||
           diag_error(d, g->b.contract->loc, "contract: %s fits only if FREE_DEPENDENTS is 0: %s",
                      g->b.contract->family, reason);
}

bool stage_edges(Lower *l, Diag *d)
{
    for (size_t i = 0; i < l->programs.n; i++) {
        Program *p = &l->programs.at[i];

        for (size_t k = 0; k + 1 < p->groups.n; k++)
            if (p->groups.at[k].fit.holds && p->groups.at[k + 1].fit.holds &&
                !free_dependents(l, p, &p->groups.at[k], d))
                return false;
    }
    return true;
}
