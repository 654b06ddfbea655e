/* types.c - does a kernel know the type of all that it reads and writes?
 *
 * Each argument that a match line binds must have a type in `args`, as TYPE or type(other), or give it to the kernel by a
 * constant type(argument). Otherwise the match would take a value of any type, and the kernel read or write it as another. */
#include <string.h>

#include "contract.h"

/* Whether the tree binds the argument to a value whose type does not follow from its form: a packed form has its own. */
static bool binds(const Catalog *all, const Pattern *p, int arg)
{
    bool found = !p->op && p->arg == arg && !all->forms[p->form].packed;

    for (int i = 0; p->op && i < IR_MAX_ARGS; i++)
        found |= p->sub[i] && binds(all, p->sub[i], arg);
    return found;
}

static bool is_type_of(const char *text, const char *arg)
{
    const size_t n = strlen(arg);

    return text && strncmp(text, "type(", 5) == 0 && strncmp(text + 5, arg, n) == 0 && strcmp(text + 5 + n, ")") == 0;
}

/* Whether a constant of the contract or of the match line holds the type of the argument. */
static bool has_constant(const Contract *c, const MatchLine *line, const char *arg)
{
    bool found = false;

    for (size_t i = 0; i < c->consts.n; i++)
        found |= is_type_of(c->consts.at[i].value.text, arg);
    for (size_t i = 0; i < line->consts.n; i++)
        found |= is_type_of(line->consts.at[i].text, arg);
    return found;
}

bool catalog_check_types(const Catalog *all, Diag *d)
{
    for (size_t n = 0; n < all->n; n++) {
        const Contract *c = all->at[n];

        for (size_t m = 0; c->device != KD_CPU && m < c->matches.n; m++)
            for (size_t i = 0; i < c->args.n; i++) {
                const ContractArg *a = &c->args.at[i];
                const MatchLine *line = &c->matches.at[m];

                if (!a->type && !a->type_of && (line->out == (int)i || binds(all, line->root, (int)i)) &&
                    !has_constant(c, line, a->name))
                    return diag_error(d, a->loc,
                                      "contract: %s: %s has no type; give it one, as %s:TYPE or %s:type(OTHER), or a "
                                      "constant type(%s)",
                                      c->family, a->name, a->name, a->name, a->name);
            }
    }
    return true;
}
