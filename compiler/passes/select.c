/* select.c - which kernel computes which values, and in which form each is written: a covering problem over the catalog.
 *
 * A value with several readers must be written to memory, so such values cut the graph into trees. In a tree, the cost of
 * a value in a form is the cost of its best match plus the costs of the values that the match reads, each in the form in
 * which it is read: dynamic programming in the order of computation (Aho & Johnson 1976; forms are what BURG calls
 * nonterminals, a contract that converts one form into another is a chain rule: Proebsting 1995). It is exact on trees.
 * The launches are then taken from the outputs backwards.
 *
 * A norm with several readers may be launched once, or left to its readers, each of which computes it again. Both covers are
 * made and the cheaper is taken. A norm that some reader still needs in memory is launched for all (Koes & Goldstein 2008).
 *
 * Of candidates of the same cost the first is kept: the catalog is sorted by rank, a contract's match lines as they stand.
 * One that its contract says to avoid (`prefer other`) loses to all others. */
#include <string.h>

#include "lower.h"

/* The best way to a value in one form. */
typedef struct Choice {
    bool found;
    double us;          /* of the whole tree: this launch and all below it */
    Candidate one, two; /* two: the prefill kernel beside a decode kernel */
    bool pair;
    Id missing; /* not found: an input of some match that no kernel computes */
} Choice;

typedef struct Cover {
    const Lower *l;
    Program *p;
    const uint32_t *readers; /* of each value in the graph */
    uint32_t *uses;          /* the same in this cover: 1 for a norm that is left to its readers */
    bool defers;             /* norms with several readers may be left to them */
    bool *launches;          /* norms that have a launch all the same */
    Choice *best;            /* [values.n][n_forms] */
    Choice *converted;       /* the same, by conversions alone */
    int64_t *params;         /* ProgramFacts.params */
    uint32_t *taken;         /* of each value the forms in which it is written, as bits */
    double us;
} Cover;

static Choice *best_of(const Cover *c, Id v, uint32_t form)
{
    return &c->best[v * c->l->catalog->n_forms + form];
}

/* Whether v is a quantised weight: it lies in memory in its packed forms, and a conversion can write its plain values. */
static bool is_packed(const Cover *c, Id v)
{
    return ir_value(c->l->g, v)->op == OP_QUANTISE;
}

/* Whether a kernel of this program may compute v: an encoder's values are those of encode programs, a view has no kernel. */
static bool is_computed(const Cover *c, Id v)
{
    const Op op = ir_value(c->l->g, v)->op;

    return is_packed(c, v) || (!ir_op_is_weight(op) && !ir_op_is_view(op) && op != OP_IDS &&
                               c->l->encoder[v] == c->p->facts.encode && (!c->p->facts.hidden || c->l->after[v]));
}

/* Whether v must be there behind the program's last launch, or before a launch that does not name it: a cache, masked
 * logits of a GPU. */
static bool is_result(const Cover *c, Id v)
{
    const Op op = ir_value(c->l->g, v)->op;

    return v == c->l->g->output || v == c->l->g->pooled || v == c->l->g->states || op == OP_CACHE ||
           op == OP_CROSS_CACHE || op == OP_CROSS_APPEND || (op == OP_MASK && c->l->target.id != FTX_TARGET_CPU);
}

/* Whether every cover writes v to memory. */
static bool must_be_stored(const Cover *c, Id v)
{
    return c->uses[v] > 1 || is_result(c, v);
}

/* --- norms that are left to their readers ------------------------------------------------------------ */

/* Few rows are normalised by each reader at no cost that could be measured. */
static bool is_small(const Program *p)
{
    return p->facts.bucket > 0 && p->facts.bucket <= 8;
}

static bool is_norm(const Cover *c, Id v)
{
    return ir_op_is_norm(ir_value(c->l->g, v)->op);
}

/* Whether norm v is left to its readers. Many rows: only if its input is written in a form that spares each of them a pass
 * over the rows. The entry of an encoder keeps its buffer, since a caller may bring it. */
static bool is_deferred(const Cover *c, Id v)
{
    const Id x = ir_value(c->l->g, v)->args[0];
    bool helps = is_small(c->p);

    for (uint32_t f = 1; f < c->l->catalog->n_forms; f++)
        helps |= !c->l->catalog->forms[f].instead && facts_param(&c->p->facts, x, f) > 0;
    return c->defers && helps && is_norm(c, v) && c->readers[v] > 1 && !c->launches[v] && v != c->l->g->entry;
}

/* Whether a match computes a norm of v that other readers compute, too. */
static bool recomputes_norm(const Cover *c, const Binding *b, Id v)
{
    for (uint32_t i = 0; i < b->n_covered; i++)
        if (b->covered[i] != b->root && is_norm(c, b->covered[i]) &&
            c->uses[b->covered[i]] < c->readers[b->covered[i]] && ir_value(c->l->g, b->covered[i])->args[0] == v)
            return true;
    return false;
}

/* --- costs ------------------------------------------------------------------------------------------- */

/* The cost of reading v in a form, as far as this match has to pay for it. Roots are paid for elsewhere, but for what the
 * form costs more than the plain value. The input of a norm that several readers compute is there for all of them: they
 * pay for the norm alone. */
static double input_cost(const Cover *c, const Binding *b, Id v, uint32_t form)
{
    const double us = best_of(c, v, form)->us, plain = best_of(c, v, 0)->found ? best_of(c, v, 0)->us : us;
    const Id x = is_norm(c, v) && c->uses[v] < c->readers[v] ? ir_value(c->l->g, v)->args[0] : 0;

    if (must_be_stored(c, v) || recomputes_norm(c, b, v))
        return us - plain;
    return x && is_computed(c, x) && !must_be_stored(c, x) ? us - best_of(c, x, 0)->us : us;
}

/* The cost of all inputs of a match; false: no kernel computes *missing. */
static bool inputs_cost(const Cover *c, const Binding *b, double *us, Id *missing)
{
    *us = 0;
    for (size_t i = 0; i < b->contract->args.n; i++) {
        const ContractArg *a = &b->contract->args.at[i];
        const Id v = ir_base(c->l->g, b->arg[i]);
        bool again = false;

        if (!v || a->out || a->of >= 0 || !is_computed(c, v))
            continue;
        if (!best_of(c, v, b->form[i])->found) {
            *missing = v;
            return false;
        }
        for (size_t k = 0; k < i; k++)
            again |= ir_base(c->l->g, b->arg[k]) == v && b->form[k] == b->form[i];
        if (!again)
            *us += v == b->root ? best_of(c, v, b->form[i])->us : input_cost(c, b, v, b->form[i]);
    }
    return true;
}

/* --- the cover: each value in each form --------------------------------------------------------------- */

static bool keep_cheaper(Choice *best, const Choice *x)
{
    if (best->found && best->us <= x->us)
        return false;
    *best = *x;
    return true;
}

/* Rows of attention are served by one kernel, or by a decode and a prefill kernel together. */
static void keep_best(Cover *c, Id v, const Candidates *all)
{
    for (size_t i = 0; i < all->n; i++) {
        const Candidate *x = &all->at[i];
        const RowsServed rows = x->b.contract->rows;
        Choice *best = best_of(c, v, x->b.gives);
        Id missing;
        double us;

        if (!inputs_cost(c, &x->b, &us, &missing)) {
            best->missing = missing;
            continue;
        }
        us += candidate_cost(x);
        if (rows == ROWS_ALL || (rows == ROWS_DECODE && c->p->facts.decode)) {
            keep_cheaper(best, &(Choice){.found = true, .us = us, .one = *x});
            continue;
        }
        for (size_t k = 0; k < all->n && rows == ROWS_DECODE; k++) {
            const Candidate *y = &all->at[k];

            if (y->b.contract->rows == ROWS_PREFILL && candidate_same_inputs(&x->b, &y->b))
                keep_cheaper(
                    best, &(Choice){.found = true, .us = us + candidate_cost(y), .one = *x, .two = *y, .pair = true});
        }
    }
}

static void set_params(Cover *c, Id v)
{
    for (uint32_t f = 1; f < c->l->catalog->n_forms; f++)
        c->params[v * CONTRACT_MAX_FORMS + f] = best_of(c, v, f)->found ? best_of(c, v, f)->one.fit.param : 0;
}

/* Forms of v that come from other forms of v, until none becomes cheaper. */
static void convert(Cover *c, Id v)
{
    bool cheaper = true;

    for (int round = 0; cheaper && round < CONTRACT_MAX_FORMS; round++) {
        Candidates all = {0};

        cheaper = false;
        select_candidates(c->l, c->p, c->uses, v, CONVERSIONS, false, &all);
        for (size_t i = 0; i < all.n; i++) {
            Choice x = {.found = true, .one = all.at[i]};
            Id missing;

            if (!inputs_cost(c, &x.one.b, &x.us, &missing))
                continue;
            x.us += candidate_cost(&x.one);
            keep_cheaper(&c->converted[v * c->l->catalog->n_forms + x.one.b.gives], &x);
            cheaper |= keep_cheaper(best_of(c, v, x.one.b.gives), &x);
        }
        set_params(c, v);
    }
}

/* --- which launches are taken -------------------------------------------------------------------------- */

/* The forms in which v is to be written, as bits: not plain, if another one has the plain value, too. */
static uint32_t forms_of(const Cover *c, Id v)
{
    bool has_plain = false;

    for (uint32_t f = 1; f < c->l->catalog->n_forms; f++)
        has_plain |= c->taken[v] >> f & 1 && !c->l->catalog->forms[f].instead && best_of(c, v, f)->one.b.n_covered;
    return has_plain ? c->taken[v] & ~1u : c->taken[v];
}

/* Where v is computed in another form already, a conversion may be cheaper than to compute it twice. Readers were compiled
 * for the number of the form, so the conversion must give the same. */
static void prefer_conversions(const Cover *c, Id v)
{
    for (uint32_t f = 0; f < c->l->catalog->n_forms; f++) {
        const Choice *x = &c->converted[v * c->l->catalog->n_forms + f];
        const uint32_t from = x->found ? x->one.b.form[x->one.b.line->root->arg] : f;
        Choice *best = best_of(c, v, f);

        if (from != f && (c->taken[v] >> f & c->taken[v] >> from & 1) != 0 && best_of(c, v, from)->one.b.n_covered &&
            x->one.own_us < best->us && x->one.fit.param == best->one.fit.param)
            *best = *x;
    }
}

static void take_inputs(const Cover *c, const Candidate *x)
{
    for (size_t i = 0; x->b.contract && i < x->b.contract->args.n;
         i++) { /* none: the form in which a weight is packed */
        const ContractArg *a = &x->b.contract->args.at[i];
        const Id v = ir_base(c->l->g, x->b.arg[i]);

        if (v && !a->out && a->of < 0 && is_computed(c, v))
            c->taken[v] |= 1u << x->b.form[i];
    }
}

/* Takes the launches that write v in the forms that later launches read, and says in which forms these read others. */
static void take(Cover *c, Id v)
{
    uint32_t left, done = 0;

    prefer_conversions(c, v);
    while ((left = forms_of(c, v) & ~done) != 0)
        for (uint32_t f = 0; f < c->l->catalog->n_forms; f++) {
            const Choice *x = best_of(c, v, f);

            if (!(left >> f & 1))
                continue;
            done |= 1u << f;
            take_inputs(c, &x->one);
            c->us += candidate_cost(&x->one) + (x->pair ? candidate_cost(&x->two) : 0);
        }
    c->taken[v] = forms_of(c, v);
}

/* Covers all trees. False: *missing, which must be stored, has no kernel. */
static bool cover(Cover *c, Id *missing)
{
    const Graph *g = c->l->g;
    const size_t forms = c->l->catalog->n_forms;

    memset(c->best, 0, sizeof *c->best * g->values.n * forms);
    memset(c->converted, 0, sizeof *c->converted * g->values.n * forms);
    memset(c->params, 0, sizeof *c->params * g->values.n * CONTRACT_MAX_FORMS);
    memset(c->taken, 0, sizeof *c->taken * g->values.n);
    c->us = 0;
    c->p->facts.params = c->params;
    for (Id v = 1; v < g->values.n; v++)
        c->params[v * CONTRACT_MAX_FORMS] = 1;
    for (Id v = 1; v < g->values.n; v++) {
        Candidates all = {0};

        if (ir_op_is_view(ir_value(g, v)->op)) /* a match may go through it */
            c->uses[v] = c->readers[v];
        if (!is_computed(c, v))
            continue;
        c->uses[v] = is_deferred(c, v) ? 1 : c->readers[v];
        select_candidates(c->l, c->p, c->uses, v, COMPUTE, false, &all);
        keep_best(c, v, &all);
        for (uint32_t f = 0; f < forms && is_packed(c, v); f++)
            best_of(c, v, f)->found = c->p->facts.packed >> f & 1;
        set_params(c, v);
        convert(c, v);
        *missing = v;
        if (!best_of(c, v, 0)->found && is_result(c, v))
            return false;
    }
    for (Id v = (Id)g->values.n - 1; v > 0; v--) {
        if (is_computed(c, v) && is_result(c, v))
            c->taken[v] |= 1;
        take(c, v);
    }
    return true;
}

static Cover cover_new(const Lower *l, Program *p, const uint32_t *readers)
{
    const size_t n = l->g->values.n, forms = l->catalog->n_forms;

    return (Cover){.l = l,
                   .p = p,
                   .readers = readers,
                   .uses = arena_array(l->scratch, uint32_t, n),
                   .launches = arena_array(l->scratch, bool, n),
                   .best = arena_array(l->scratch, Choice, n * forms),
                   .converted = arena_array(l->scratch, Choice, n * forms),
                   .params = arena_array(l->scratch, int64_t, n * CONTRACT_MAX_FORMS),
                   .taken = arena_array(l->scratch, uint32_t, n)};
}

/* The cover in which norms are left to their readers. With many rows, those that some reader needs in memory are launched
 * for all: a second pass. */
static bool cover_deferring(Cover *c)
{
    bool all = true, shared = false;
    Id missing;

    c->defers = true;
    for (Id v = 1; v < c->l->g->values.n; v++)
        shared |= is_norm(c, v) && c->readers[v] > 1;
    if (!shared || !cover(c, &missing))
        return false;
    for (Id v = 1; v < c->l->g->values.n && !is_small(c->p); v++)
        if (is_deferred(c, v) && c->taken[v])
            c->launches[v] = !(all = false);
    return all || cover(c, &missing);
}

/* --- the program's launches ---------------------------------------------------------------------------- */

static void add_group(Cover *c, const Candidate *x)
{
    Group *g = arena_push(c->l->keep, c->p->groups);
    const char *reason;

    g->b = x->b;
    g->cost_us = x->own_us;
    if (!contract_fit(&c->p->facts, &g->b, c->l->keep, c->l->scratch, &g->fit, &reason))
        die("%s fitted when it was chosen, but not when it was added: %s", x->b.contract->family, reason);
}

/* Adds the launches that write v in a form, a conversion behind those that write what it reads. */
static void add_form(Cover *c, Id v, uint32_t form)
{
    const Choice *x = best_of(c, v, form);

    if (!(c->taken[v] >> form & 1) || !x->one.b.contract)
        return;
    c->taken[v] &= ~(1u << form);
    for (uint32_t f = 0; f < c->l->catalog->n_forms && !x->one.b.n_covered; f++)
        add_form(c, v, f);
    add_group(c, &x->one);
    if (x->pair)
        add_group(c, &x->two);
}

bool select_program(const Lower *l, Program *p, Diag *d)
{
    const uint32_t *readers = ir_readers(l->g);
    Cover launched = cover_new(l, p, readers), deferred = cover_new(l, p, readers), *c = &launched;
    Id missing = 0;
    bool found;

    p->fit_cache = NULL;
    p->groups.n = 0;
    found = cover(&launched, &missing);
    if (cover_deferring(&deferred) && (!found || deferred.us < launched.us))
        c = &deferred;
    else if (!found) {
        while (!best_of(c, missing, 0)->found && best_of(c, missing, 0)->missing)
            missing = best_of(c, missing, 0)->missing;
        return why_missing(l, p, c->uses, missing, d);
    }
    p->uses = c->uses;
    p->facts.params = arena_array(l->keep, int64_t, l->g->values.n * CONTRACT_MAX_FORMS);
    memcpy(p->facts.params, c->params, sizeof *c->params * l->g->values.n * CONTRACT_MAX_FORMS);
    for (Id v = 1; v < l->g->values.n; v++)
        for (uint32_t f = 0; f < l->catalog->n_forms; f++)
            add_form(c, v, f);
    return true;
}
