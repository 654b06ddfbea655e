/* sums.c - precision.sums = "fixed": every value that is a sum is added in one order in all programs of a target, so that a
 * row has the same bits whatever is computed beside it.
 *
 * A contract states the order in which it adds in `sums` lines: a word and a number, "slices 2". Products with weights and norms
 * are sums, and each op for which any contract has such a line. What one launch computes together belongs to the order, too, since it is rounded once.
 *
 *   1. survey   all orders that kernels of each program can give to each value
 *   2. choose   an order that all programs have; of several the one for which fewest programs must take a kernel that its
 *               contract advises against, then the one with most values in a launch, then the first that was found. Programs
 *               of one token a sequence are looked at before the others, the smallest first
 *   3. select   takes only candidates that add in these orders (candidates.c)
 *
 * The kernels of the CPU have one order each for any number of rows, so there is nothing to choose. */
#include <assert.h>
#include <string.h>

#include "../../runtime/base/hash.h"
#include "lower.h"

enum { MAX_PROGRAMS = 64 }; /* bits of a set of programs */

/* An order that some kernel can give to a value, and the programs in which it can. */
typedef struct Known {
    Order order;
    uint32_t covered;           /* values that the launch computes */
    uint64_t programs, advised; /* sets; advised: in these without `prefer other` */
} Known;

typedef struct Survey {
    struct {
        Known *at;
        size_t n, cap;
    } known;
} Survey;

void sums_open(Lower *l)
{
    l->fixed = l->precision->fixed_sums && l->target.id != FTX_TARGET_CPU;
    l->is_sum[OP_LINEAR] = l->is_sum[OP_EXPERT_LINEAR] = l->is_sum[OP_EXPERT_SUM] = true;
    l->is_sum[OP_RMSNORM] = l->is_sum[OP_LAYERNORM] = true;
    l->orders = arena_array(l->keep, Order, l->g->values.n * SUMS_ROLES);
    for (size_t i = 0; i < l->catalog->n; i++)
        for (size_t k = 0; k < l->catalog->at[i]->sums.n; k++)
            l->is_sum[l->catalog->at[i]->sums.at[k].op] = true;
}

/* Whether v is rounded when it is written: rows that are chosen and views are not. */
static bool is_rounded(const Graph *g, Id v)
{
    const Op op = ir_value(g, v)->op;

    return op != OP_IDS && op != OP_SELECT_LAST && op != OP_SELECT_FIRST && !ir_op_is_view(op);
}

static uint32_t count_covered(const Lower *l, const Binding *b)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < b->n_covered; i++)
        n += is_rounded(l->g, b->covered[i]);
    return n;
}

/* The order in which a candidate adds a value of its op. sums NULL: its contract does not state one. */
static Order order_of(const Lower *l, const Candidate *x, Op op)
{
    const Contract *c = x->b.contract;
    Order o = {0};

    for (uint32_t i = 0; i < x->b.n_covered; i++)
        if (is_rounded(l->g, x->b.covered[i]))
            o.with += hash64(&x->b.covered[i], sizeof x->b.covered[i]);
    for (size_t i = 0; i < c->sums.n; i++)
        if (c->sums.at[i].op == op)
            o.sums = x->fit.sums[i];
    return o;
}

static bool same_order(const Order *a, const Order *b)
{
    return a->with == b->with && strcmp(a->sums, b->sums) == 0;
}

bool sums_agree(const Lower *l, const Candidate *x, const char **reason)
{
    for (uint32_t i = 0; i < x->b.n_covered; i++) {
        const Id v = x->b.covered[i];
        const Op op = ir_value(l->g, v)->op;
        const Order own = order_of(l, x, op), *all = &l->orders[v * SUMS_ROLES + x->b.contract->rows];

        if (!l->is_sum[op] || (own.sums && (!l->ordered || (all->sums && same_order(&own, all)))))
            continue;
        *reason = arena_printf(l->scratch, "%s:%d: precision.sums is fixed, and ", x->b.contract->loc.file,
                               x->b.contract->loc.line);
        *reason = own.sums ? arena_printf(l->scratch, "%sit adds %%%u as %s, all programs as %s%s", *reason, v,
                                          own.sums, all->sums ? all->sums : "nothing",
                                          own.with == all->with ? "" : " with other values in the launch")
                           : arena_printf(l->scratch, "%sno sums line states how it adds %s", *reason, ir_op_name(op));
        return false;
    }
    return true;
}

static Known *find_known(const Lower *l, Survey *s, const Order *o)
{
    Known *k;

    for (size_t i = 0; i < s->known.n; i++)
        if (same_order(&s->known.at[i].order, o))
            return &s->known.at[i];
    k = arena_push(l->keep, s->known);
    *k = (Known){.order = {arena_strdup(l->keep, o->sums), o->with}};
    return k;
}

static void note(const Lower *l, Survey *all, const Candidate *x, size_t program)
{
    for (uint32_t i = 0; i < x->b.n_covered; i++) {
        const Order o = order_of(l, x, ir_value(l->g, x->b.covered[i])->op);
        Known *k = o.sums ? find_known(l, &all[x->b.covered[i] * SUMS_ROLES + x->b.contract->rows], &o) : NULL;

        if (!k)
            continue;
        k->covered = count_covered(l, &x->b);
        k->programs |= UINT64_C(1) << program;
        k->advised |= (uint64_t)!x->fit.avoided << program;
    }
}

static void survey_program(Lower *l, size_t program, Survey *all)
{
    Program *p = &l->programs.at[program];
    const uint32_t *uses = ir_readers(l->g);

    for (Id v = 1; v < l->g->values.n; v++) {
        Candidates found = {0};

        if (ir_op_is_weight(ir_value(l->g, v)->op) || l->encoder[v] != p->facts.encode ||
            (p->facts.hidden && !l->after[v]))
            continue;
        select_candidates(l, p, uses, v, COMPUTE, false, &found);
        for (size_t i = 0; i < found.n; i++)
            note(l, all, &found.at[i], program);
    }
    p->fit_cache = NULL;
    arena_reset(l->scratch);
}

static int count_bits(uint64_t set)
{
    int n = 0;

    for (; set; set &= set - 1)
        n++;
    return n;
}

/* Whether a is a better order than b, for a value that the programs of `needed` compute. */
static bool is_better(const Known *a, const Known *b, uint64_t needed)
{
    const int lacks_a = count_bits(needed & ~a->programs), lacks_b = count_bits(needed & ~b->programs);
    const int avoided_a = count_bits(needed & ~a->advised), avoided_b = count_bits(needed & ~b->advised);

    return lacks_a != lacks_b       ? lacks_a < lacks_b
           : avoided_a != avoided_b ? avoided_a < avoided_b
                                    : a->covered > b->covered;
}

/* The best order for the programs of `needed`; NULL: there is none. */
static const Known *find_best(const Survey *s, uint64_t needed)
{
    const Known *best = s->known.n ? s->known.at : NULL;

    for (size_t i = 1; i < s->known.n; i++)
        if (is_better(&s->known.at[i], best, needed))
            best = &s->known.at[i];
    return best;
}

/* The programs of `needed` that must have an order and lack this one. */
static uint64_t lacking(const Lower *l, const Known *k, uint64_t needed)
{
    uint64_t set = needed & ~(k ? k->programs : 0);

    for (size_t i = 0; i < l->programs.n; i++)
        if (l->programs.at[i].optional)
            set &= ~(UINT64_C(1) << i);
    return set;
}

static int count_avoided(const Known *k, uint64_t needed)
{
    return count_bits(needed & ~k->advised);
}

/* No order is in all programs: says which program lacks the one that most have. */
static bool refuse(const Lower *l, Id v, const Known *best, uint64_t lacks, Diag *d)
{
    const Value *value = ir_value(l->g, v);
    size_t i = 0;

    while (i + 1 < l->programs.n && !(lacks >> i & 1))
        i++;
    return diag_error(
        d, value->loc,
        "precision.sums is fixed, but no order of sums of %%%u = %s is in all programs of %s: no kernel of "
        "program %s adds as %s; compile with -D precision.sums=free",
        v, ir_op_name(value->op), l->target.name, lower_program_name(&l->programs.at[i], l->scratch), best->order.sums);
}

/* Kernels that serve all rows of a step, or two that serve those of prompts and those that are generated (attention). */
static bool choose(Lower *l, Id v, const Survey *s, uint64_t prompts, Diag *d)
{
    Order *out = &l->orders[v * SUMS_ROLES];
    const Known *all, *decode, *prefill;
    uint64_t needed = 0;

    for (int role = 0; role < SUMS_ROLES; role++)
        for (size_t i = 0; i < s[role].known.n; i++)
            needed |= s[role].known.at[i].programs;
    if (!needed) /* no sum, or only computed with others */
        return true;
    all = find_best(&s[ROWS_ALL], needed);
    decode = find_best(&s[ROWS_DECODE], needed);
    prefill = find_best(&s[ROWS_PREFILL], needed & prompts);
    if (decode && prefill && !lacking(l, decode, needed) && !lacking(l, prefill, needed & prompts) &&
        (!all || lacking(l, all, needed) ||
         count_avoided(decode, needed) + count_avoided(prefill, needed & prompts) <= count_avoided(all, needed))) {
        out[ROWS_DECODE] = decode->order;
        out[ROWS_PREFILL] = prefill->order;
        return true;
    }
    if (!all && decode && !lacking(l, decode, needed))
        return refuse(l, v, prefill ? prefill : decode, lacking(l, prefill, needed & prompts), d);
    if (!all || lacking(l, all, needed))
        return refuse(l, v, all ? all : decode ? decode : prefill, lacking(l, all ? all : decode, needed), d);
    out[ROWS_ALL] = all->order;
    return true;
}

/* Whether some contract states how it adds the op of v; false: d says that none does. */
static bool is_stated(const Lower *l, Id v, Diag *d)
{
    const Value *value = ir_value(l->g, v);

    for (size_t i = 0; i < l->catalog->n; i++)
        for (size_t k = 0; k < l->catalog->at[i]->sums.n; k++)
            if (l->catalog->at[i]->sums.at[k].op == value->op)
                return true;
    return diag_error(d, value->loc,
                      "precision.sums is fixed, but no kernel for %s states in which order it adds %s (%%%u): compile "
                      "with -D precision.sums=free",
                      l->target.name, ir_op_name(value->op), v);
}

bool sums_choose(Lower *l, Diag *d)
{
    Survey *all = arena_array(l->keep, Survey, l->g->values.n * SUMS_ROLES);
    uint64_t prompts = 0;

    if (!l->fixed)
        return true;
    assert(l->programs.n <= MAX_PROGRAMS);
    for (Id v = 1; v < l->g->values.n; v++)
        if (l->is_sum[ir_value(l->g, v)->op] && !is_stated(l, v, d))
            return false;
    for (size_t i = 0; i < l->programs.n; i++)
        prompts |= (uint64_t)!l->programs.at[i].facts.decode << i;
    for (int decode = 1; decode >= 0; decode--)
        for (size_t i = 0; i < l->programs.n; i++)
            if (l->programs.at[i].facts.decode == decode)
                survey_program(l, i, all);
    for (Id v = 1; v < l->g->values.n; v++)
        if (!choose(l, v, &all[v * SUMS_ROLES], prompts, d))
            return false;
    l->ordered = true;
    return true;
}

void sums_print(const Lower *l, Id v, FILE *out)
{
    static const char *const whose[SUMS_ROLES] = {
        [ROWS_ALL] = "", [ROWS_DECODE] = " (generated tokens)", [ROWS_PREFILL] = " (prompts)"};

    for (int role = 0; l->fixed && role < SUMS_ROLES; role++)
        if (l->orders[v * SUMS_ROLES + (Id)role].sums)
            fprintf(out, "added in all programs as: %s%s\n", l->orders[v * SUMS_ROLES + (Id)role].sums, whose[role]);
}

const char *sums_text(const Lower *l, const Group *g)
{
    const char *list = "";

    for (uint32_t i = 0; l->fixed && i < g->b.n_covered; i++) {
        const char *sums = l->orders[g->b.covered[i] * SUMS_ROLES + g->b.contract->rows].sums;

        if (sums && !strstr(list, sums))
            list = arena_printf(l->keep, "%s, %s", list, sums);
    }
    return list;
}
