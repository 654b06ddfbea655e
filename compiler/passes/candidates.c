/* candidates.c - the kernels that could compute a value, and what each would cost.
 *
 *   cost of a launch = max(bytes / bandwidth, operations / rate) + launch overhead
 *
 * The cost model only orders candidates; it does not predict times. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/base/hash.h"
#include "lower.h"

typedef struct Rates {
    double bytes_us, flops_us, launch_us;
} Rates;

static Rates rates_of(const Lower *l, const Contract *c)
{
    const TargetFacts *t = target_facts(l->target);
    const bool library = c->device == KD_MATMUL, fp32 = l->compute == DT_FP32;
    const int share = c->rate ? (int)c->rate
                      : fp32  ? (library ? t->shares.library_fp32 : t->shares.ours_fp32)
                              : (library ? t->shares.library_tensor : t->shares.ours_tensor);

    return (Rates){.bytes_us = t->read_gbs * 1e3 * t->shares.read / 100,
                   .flops_us = (fp32 ? t->fp32_tflops : t->tensor_tflops) * 1e6 * share / 100,
                   .launch_us = c->overlap ? t->overlap_us : t->launch_us};
}

/* The memory traffic of a contract without a `moves` line: the size of all operands. */
static double operand_bytes(const Program *p, const Binding *b)
{
    double sum = 0;

    for (size_t i = 0; i < b->contract->operands; i++)
        if (b->arg[i] && b->contract->args.at[i].of < 0)
            sum += (double)ir_shape_elements(ir_value(p->facts.g, b->arg[i])->shape, p->facts.t_max, p->facts.s_max) *
                   (double)dtype_size(contract_arg_type(&p->facts, b, i));
    return sum;
}

/* The cost of one launch, without that of its inputs. */
static double launch_cost(const Lower *l, const Program *p, const Binding *b, const Fitted *fit)
{
    const Rates r = rates_of(l, b->contract);
    const double moves = (fit->moves >= 0 ? fit->moves : operand_bytes(p, b)) / r.bytes_us;
    const double flops = fit->flops > 0 ? fit->flops / r.flops_us : 0;

    return (moves > flops ? moves : flops) + r.launch_us;
}

double candidate_cost(const Candidate *x)
{
    enum { AVOIDED_US = 1000000000 };

    return x->own_us + (x->fit.avoided ? AVOIDED_US : 0);
}

bool candidate_same_inputs(const Binding *a, const Binding *b)
{
    if (a->n_covered != b->n_covered || a->gives != b->gives)
        return false;
    for (uint32_t i = 0; i < a->n_covered; i++)
        if (a->covered[i] != b->covered[i])
            return false;
    return true;
}

static bool runs_on_target(const Lower *l, const Contract *c)
{
    return (c->device == KD_CPU) == (l->target.id == FTX_TARGET_CPU);
}

/* --- the cache of fits --------------------------------------------------------------------------- */

/* Layers are alike: whether a match fits, and with which constants, depends on its match line, on the shapes and types
 * of its arguments and on the attributes of its ops, not on the layer. Each combination is evaluated once a program. */
typedef struct FitCache {
    struct Known {
        Hash128 key;
        bool used, fits;
        Fitted fit;
        const char *reason;
        double own_us;
    } at[1024];
    size_t n;
} FitCache;

typedef struct Key {
    int64_t at[1024];
    size_t n;
} Key;

static void key_add(Key *k, int64_t word)
{
    assert(k->n < LEN(k->at)); /* 64 arguments of 4 sizes, 16 ops of 8 attributes */
    k->at[k->n++] = word;
}

static void key_add_shape(Key *k, const Shape *s)
{
    key_add(k, s ? s->rank : 0);
    for (uint32_t i = 0; s && i < s->rank; i++) {
        key_add(k, s->dim[i].kind);
        key_add(k, s->dim[i].n);
    }
}

static int64_t attr_word(const Attr *a)
{
    int64_t bits = a->i;

    if (a->kind == ATTR_FLOAT)
        memcpy(&bits, &a->f, sizeof bits);
    return a->kind == ATTR_WORD ? (int64_t)hash64(a->s, strlen(a->s)) : bits;
}

static Hash128 key_of(const Program *p, const Binding *b)
{
    Key f = {.n = 0};

    for (size_t i = 0; i < b->n_use; i++)
        key_add(&f, b->use[i].value);

    key_add(&f, (int64_t)(uintptr_t)b->line);
    for (size_t i = 0; i < b->contract->args.n; i++) {
        const Value *v = ir_value(p->facts.g, b->arg[i]);

        key_add(&f, b->arg[i] ? (int64_t)v->type + 1 : 0);
        key_add(&f, b->form[i]);
        key_add(&f, b->arg[i] ? facts_param(&p->facts, b->arg[i], b->form[i]) : 0);
        key_add(&f, v->op == OP_QUANTISE ? ir_int(v, "scales") : 0);
        key_add_shape(&f, b->arg[i] ? &v->shape : NULL);
        key_add_shape(&f, b->columns[i] ? &ir_value(p->facts.g, b->columns[i])->shape : NULL);
        key_add(&f, b->columns[i] ? ir_int(ir_value(p->facts.g, ir_base(p->facts.g, b->columns[i])), "from") : 0);
    }
    for (uint32_t i = 0; i < b->n_covered; i++) {
        const Value *v = ir_value(p->facts.g, b->covered[i]);

        key_add(&f, v->op);
        key_add(&f, b->covered[i] == p->facts.g->logits);
        for (uint32_t k = 0; k < v->n_attrs; k++)
            if (strcmp(v->attrs[k].name, "layer") != 0) {
                key_add(&f, (int64_t)hash64(v->attrs[k].name, strlen(v->attrs[k].name)));
                key_add(&f, attr_word(&v->attrs[k]));
            }
    }
    return hash128(f.at, f.n * sizeof *f.at);
}

static void fit_candidate(const Lower *l, Program *p, Candidate *x)
{
    const Hash128 key = key_of(p, &x->b);
    struct Known *k = NULL;

    if (!p->fit_cache)
        p->fit_cache = arena_new(l->scratch, FitCache);
    for (size_t i = key.low % LEN(p->fit_cache->at); p->fit_cache->n < LEN(p->fit_cache->at) / 2;
         i = (i + 1) % LEN(p->fit_cache->at)) {
        k = &p->fit_cache->at[i];
        if (!k->used || (k->key.low == key.low && k->key.high == key.high))
            break;
    }
    if (!k || !k->used) {
        struct Known new = {.key = key, .used = true};

        new.fits = contract_fit(&p->facts, &x->b, l->scratch, l->scratch, &new.fit, &new.reason);
        new.own_us = new.fits ? launch_cost(l, p, &x->b, &new.fit) : 0;
        if (k) {
            *k = new;
            p->fit_cache->n++;
        } else {
            k = arena_new(l->scratch, struct Known);
            *k = new;
        }
    }
    x->fits = k->fits;
    x->fit = k->fit;
    x->reason = k->fits ? x->reason : k->reason;
    x->own_us = k->own_us;
}

/* Whether a weight may stand in the artifact both with a norm folded into it and without: vectors, and matrices of at most
 * 8 MB in 16 bits, so that small models take more memory rather than launches. */
static bool may_be_packed_twice(const Lower *l, Id weight)
{
    return ir_shape_elements(ir_value(l->g, weight)->shape, 0, 0) <= 4 << 20;
}

/* Whether the programs selected before read a weight in another form than this match does, and it is packed once. */
static bool is_packed_otherwise(const Lower *l, const Binding *b, const char **reason)
{
    for (size_t i = 0; i < b->contract->operands; i++) {
        const Fold fold = contract_arg_fold(b, i);
        const WeightForm *w = &l->weight_forms[b->arg[i]];
        const bool folds = fold.gain || fold.matrix;

        if (!b->arg[i] ||
            (l->unfolded ? !folds
                         : !w->known || memcmp(&w->fold, &fold, sizeof fold) == 0 || may_be_packed_twice(l, b->arg[i])))
            continue;
        *reason = arena_printf(l->scratch, "other programs read %%%u %s a norm folded into it", b->arg[i],
                               folds ? "without" : "with");
        return true;
    }
    return false;
}

/* --- precision.sums = "fixed" ------------------------------------------------------------------- */

/* The next values of the constants of order lines, which are numbers; false: there are none. */
static bool next_order(Binding *b, size_t *places)
{
    const bool first = !b->n_use;
    bool carry = !first;

    b->n_use = 0;
    for (size_t i = 0; i < b->contract->consts.n; i++) {
        const ContractConst *k = &b->contract->consts.at[i];

        if (!k->reorders)
            continue;
        places[i] = first ? 0 : places[i] + carry;
        carry = carry && places[i] == k->n_values;
        places[i] = carry ? 0 : places[i];
        b->use[b->n_use++] = (TunedConst){k->value.name, strtoll(k->values[places[i]], NULL, 10)};
    }
    return b->n_use && !carry;
}

/* A match with the constants that are chosen as always, then with each choice of those of order lines: all that add in the
 * orders of l; while these are chosen, all. */
static void try_orders(const Lower *l, Program *p, const Candidate *match, bool refused, Candidates *out)
{
    size_t places[CONTRACT_MAX_CONSTS] = {0}, found = 0;
    Binding b = match->b;
    Candidate first = {0};

    do {
        Candidate x = {.b = b};

        fit_candidate(l, p, &x);
        x.fits = x.fits && sums_agree(l, &x, &x.reason);
        if (!b.n_use)
            first = x;
        if (x.fits && !(found++ && l->ordered))
            *arena_push(l->scratch, *out) = x;
    } while (next_order(&b, places));
    if (!found && refused)
        *arena_push(l->scratch, *out) = first;
}

static void try_line(const Lower *l, Program *p, const uint32_t *uses, const Contract *c, const MatchLine *line, Id v,
                     uint32_t form, bool refused, Candidates *out)
{
    for (uint32_t way = 0; way < match_ways(line); way++) {
        Candidate x = {0};

        if (match_at(&p->facts, uses, c, line, way, v, form, &x.b, refused ? &x.reason : NULL, l->scratch) &&
            !is_packed_otherwise(l, &x.b, &x.reason)) {
            if (l->fixed) {
                try_orders(l, p, &x, refused, out);
                continue;
            }
            fit_candidate(l, p, &x);
        }
        if (x.fits || refused)
            *arena_push(l->scratch, *out) = x;
    }
}

void select_candidates(const Lower *l, Program *p, const uint32_t *uses, Id v, CandidateKind kind, bool refused,
                       Candidates *out)
{
    const Op root = kind == CONVERSIONS ? OP_NONE : ir_value(l->g, v)->op;

    for (size_t i = 0; i < l->catalog->n; i++) {
        const Contract *c = l->catalog->at[i];

        for (size_t k = 0; k < c->matches.n && runs_on_target(l, c); k++)
            for (uint32_t form = 0; form < l->catalog->n_forms && c->matches.at[k].root->op == root; form++)
                if (contract_gives(c, form))
                    try_line(l, p, uses, c, &c->matches.at[k], v, form, refused, out);
    }
}
