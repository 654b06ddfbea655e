/* select.c - which kernel computes which values: a covering problem over the catalog.
 *
 * Values that several others read must be written to memory, so they cut the graph into trees.
 * In a tree the cheapest cover of a value is that of the cheapest match with its root there, plus
 * the covers of what the match reads: dynamic programming in the order of computation (Aho &
 * Johnson 1976; Burg and its kin do this for instructions). Exact on trees, and the cuts are no
 * choice, but for norms, which may be computed again by each who reads them: both ways are costed.
 * Choices are made in the order of computation, so a kernel may ask what the one before it leaves.
 * Equal costs: the contract with the lower rank, then its first match line; the catalog is sorted by rank.
 *
 *   cost of a launch = bytes / bandwidth, or operations / rate if that is more, + a stage
 *
 * The figures below only rank candidates; `ftxc tune` will replace them by times. */
#include <assert.h>
#include <string.h>

#include "../../runtime/base/hash.h"
#include "lower.h"

typedef struct Rates {
    double bytes_us, flops_us, stage_us;
} Rates;

/* H200: 4.0 TB/s read in place, an edge of a graph 1.9 us, a programmatic one 0.6, and about as much
 * again to fill and drain (measures of 2026). The CPU's are those of two cores. */
static Rates rates_of(const Lower *l, const Contract *c)
{
    const bool wide = l->compute == DT_FP32;
    const double rate = c->rate ? (double)c->rate * 1e6 : wide ? 30e6 : 250e6;

    if (c->device == KD_CPU)
        return (Rates){20e3, 100e3, 5};
    if (c->device == KD_MATMUL)
        return (Rates){4e6, wide ? 50e6 : 600e6, 2.5};
    return (Rates){4e6, rate, c->overlap ? 1.2 : 2.5};
}

/* Bytes of the operands, where a contract does not say what it moves. */
static double operand_bytes(const Program *p, const Binding *b)
{
    double sum = 0;

    for (size_t i = 0; i < b->contract->operands; i++)
        if (b->arg[i] && b->contract->args.at[i].stats_of < 0)
            sum += (double)ir_shape_elements(ir_value(p->facts.g, b->arg[i])->shape, p->facts.t_max, p->facts.s_max) *
                   (double)dtype_size(contract_arg_type(&p->facts, b, i));
    return sum;
}

static double own_cost(const Lower *l, const Program *p, const Binding *b, const Fitted *fit)
{
    const Rates r = rates_of(l, b->contract);
    const double moves = (fit->moves >= 0 ? fit->moves : operand_bytes(p, b)) / r.bytes_us;
    const double flops = fit->flops > 0 ? fit->flops / r.flops_us : 0;

    return (moves > flops ? moves : flops) + r.stage_us;
}

static bool serves(const Lower *l, const Contract *c)
{
    return (c->device == KD_CPU) == (l->target.id == FTX_TARGET_CPU);
}

/* --- answers that layers share ------------------------------------------------------------------- */

/* Whether a match fits, and with which constants, follows from the line, from shapes and types of
 * what it binds, and from attributes of the ops, never from which layer it is: asked once. */
typedef struct Fits {
    struct Known {
        Hash128 key;
        bool used, fits;
        Fitted fit;
        const char *reason;
        double own_us;
    } at[1024];
    size_t n;
} Fits;

typedef struct Facts {
    int64_t at[640];
    size_t n;
} Facts;

static void fact(Facts *f, int64_t word)
{
    assert(f->n < LEN(f->at)); /* 24 arguments of 4 sizes, 16 ops of 8 attributes */
    f->at[f->n++] = word;
}

static int64_t word_of(const Attr *a)
{
    int64_t bits = a->i;

    if (a->kind == ATTR_FLOAT)
        memcpy(&bits, &a->f, sizeof bits);
    return a->kind == ATTR_WORD ? (int64_t)hash64(a->s, strlen(a->s)) : bits;
}

static Hash128 key_of(const Program *p, const Binding *b)
{
    Facts f = {.n = 0};

    fact(&f, (int64_t)(uintptr_t)b->line);
    fact(&f, p->facts.segments);
    fact(&f, p->facts.entry_waits);
    for (size_t i = 0; i < b->contract->args.n; i++) {
        const Value *v = ir_value(p->facts.g, b->arg[i]);

        fact(&f, b->arg[i] ? (int64_t)v->type + 1 : 0);
        if (b->arg[i] && b->contract->args.at[i].stats_of >= 0)
            fact(&f, p->facts.stats ? p->facts.stats[b->arg[i]].columns : 0);
        for (uint32_t k = 0; b->arg[i] && k < v->shape.rank; k++) {
            fact(&f, v->shape.dim[k].kind);
            fact(&f, v->shape.dim[k].n);
        }
    }
    for (uint32_t i = 0; i < b->n_covered; i++) {
        const Value *v = ir_value(p->facts.g, b->covered[i]);

        fact(&f, v->op);
        fact(&f, b->covered[i] == p->facts.g->logits);
        for (uint32_t k = 0; k < v->n_attrs; k++)
            if (strcmp(v->attrs[k].name, "layer") != 0) {
                fact(&f, (int64_t)hash64(v->attrs[k].name, strlen(v->attrs[k].name)));
                fact(&f, word_of(&v->attrs[k]));
            }
    }
    return hash128(f.at, f.n * sizeof *f.at);
}

static void fit(const Lower *l, Program *p, Candidate *x)
{
    const Hash128 key = key_of(p, &x->b);
    struct Known *k = NULL;

    if (!p->fits)
        p->fits = arena_new(l->scratch, Fits);
    for (size_t i = key.low % LEN(p->fits->at); p->fits->n < LEN(p->fits->at) / 2; i = (i + 1) % LEN(p->fits->at)) {
        k = &p->fits->at[i];
        if (!k->used || (k->key.low == key.low && k->key.high == key.high))
            break;
    }
    if (!k || !k->used) {
        struct Known new = {.key = key, .used = true};

        new.fits = contract_fit(&p->facts, &x->b, l->scratch, l->scratch, &new.fit, &new.reason);
        new.own_us = new.fits ? own_cost(l, p, &x->b, &new.fit) : 0;
        if (k) {
            *k = new;
            p->fits->n++;
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

void select_candidates(const Lower *l, Program *p, const uint32_t *uses, Id v, bool near, Candidates *out)
{
    for (size_t i = 0; i < l->catalog->n; i++) {
        const Contract *c = l->catalog->at[i];

        for (size_t k = 0; k < c->matches.n && serves(l, c); k++) {
            if (c->matches.at[k].root->op != ir_value(l->g, v)->op)
                continue;
            for (uint32_t way = 0; way < match_ways(&c->matches.at[k]); way++) {
                Candidate x = {0};

                if (match_at(&p->facts, uses, c, &c->matches.at[k], way, v, &x.b, near ? &x.reason : NULL, l->scratch))
                    fit(l, p, &x);
                if (x.fits || near)
                    *arena_push(l->scratch, *out) = x;
            }
        }
    }
}

/* --- the covering -------------------------------------------------------------------------------- */

typedef struct Choice {
    bool found;
    double us;          /* of the whole tree below */
    Candidate one, two; /* two: the prefill kernel beside a decode kernel */
    bool pair;
    Id missing; /* not found: a value that a match would read and nobody computes */
} Choice;

typedef struct Cover {
    const Lower *l;
    Program *p;
    const uint32_t *readers; /* of each value, as the graph has it */
    uint32_t *uses;          /* as the cover has it: 1 for a norm that each of its readers computes again */
    bool *launched;          /* norms that the cover before this one could not do without */
    Choice *best;            /* of each value */
} Cover;

/* By this program: what a value of the other side is, is known by the time it runs. */
static bool is_computed(const Cover *c, Id v)
{
    const Op op = ir_value(c->l->g, v)->op;

    return !ir_op_is_weight(op) && op != OP_IDS && c->l->encoder[v] == c->p->facts.encode &&
           (!c->p->facts.hidden || c->l->after[v]);
}

/* Written to memory whatever is chosen. */
static bool must_stand(const Cover *c, Id v)
{
    return c->uses[v] > 1 || v == c->l->g->output || v == c->l->g->pooled ||
           ir_value(c->l->g, v)->op == OP_CROSS_APPEND;
}

static bool is_norm(const Cover *c, Id v)
{
    const Op op = ir_value(c->l->g, v)->op;

    return op == OP_LAYERNORM || op == OP_RMSNORM;
}

/* Whether several readers of a norm may each compute it. */
static bool is_shared(const Cover *c, Id v)
{
    return c->uses[v] < c->readers[v];
}

/* Whether a match computes a norm of v that others may compute too. */
static bool norms_again(const Cover *c, const Binding *b, Id v)
{
    for (uint32_t i = 0; i < b->n_covered; i++)
        if (b->covered[i] != b->root && is_norm(c, b->covered[i]) && is_shared(c, b->covered[i]) &&
            ir_value(c->l->g, b->covered[i])->args[0] == v)
            return true;
    return false;
}

/* What the tree below an input costs that is not a tree of its own. What a shared norm is made of is there for all of
 * its readers, whichever way they read it: they pay for the norm alone. */
static double input_cost(const Cover *c, const Binding *b, Id v)
{
    const Id x = is_norm(c, v) ? ir_value(c->l->g, v)->args[0] : 0;

    if (must_stand(c, v) || norms_again(c, b, v))
        return 0;
    if (x && is_shared(c, v) && is_computed(c, x) && !must_stand(c, x))
        return c->best[v].us - c->best[x].us;
    return c->best[v].us;
}

/* What the trees below the inputs of a match cost; false: one of them has no cover. */
static bool inputs_cost(const Cover *c, const Binding *b, double *us, Id *missing)
{
    *us = 0;
    for (size_t i = 0; i < b->contract->args.n; i++) {
        const Id v = b->arg[i];
        bool again = false;

        if (!v || v == b->root || !is_computed(c, v))
            continue;
        if (!c->best[v].found) {
            *missing = v;
            return false;
        }
        for (size_t k = 0; k < i; k++)
            again |= b->arg[k] == v;
        if (!again)
            *us += input_cost(c, b, v);
    }
    return true;
}

static bool same_inputs(const Binding *a, const Binding *b)
{
    if (a->n_covered != b->n_covered)
        return false;
    for (uint32_t i = 0; i < a->n_covered; i++)
        if (a->covered[i] != b->covered[i])
            return false;
    return true;
}

/* Whether the instance has a constant of this name that is not 0. */
static bool constant_on(const Candidate *x, const char *name)
{
    for (size_t i = 0; i < x->fit.instance->n_consts; i++)
        if (strcmp(x->fit.instance->consts[i].name, name) == 0)
            return x->fit.instance->consts[i].i != 0;
    return false;
}

/* Of the program whose groups have these roots. */
static bool entry_waits(const Cover *c, const bool *root)
{
    int n = 0;

    for (Id v = 1; v < c->l->g->values.n; v++)
        if (root[v] && n++ == 1)
            return constant_on(&c->best[v].one, "FIRST");
    return false;
}

/* Whether the kernel chosen for the logits leaves segments of them: who reads them is chosen after it. */
static bool leaves_segments(const Cover *c)
{
    const Candidate *x = &c->best[c->l->g->logits].one;
    bool out = false;

    if (!c->l->g->logits || !c->best[c->l->g->logits].found)
        return false;
    for (size_t i = 0; i < x->b.contract->args.n; i++)
        out |= x->b.contract->args.at[i].out && x->b.contract->args.at[i].named == FTX_NAMED_segments;
    return out && constant_on(x, "SEGMENTS");
}

/* What is left of v's statistics by the kernel chosen for it. */
static int64_t columns_left(const Cover *c, Id v)
{
    const Choice *x = &c->best[v];

    return x->found && !x->pair ? x->one.fit.leaves : 0;
}

/* Whether a kernel for v is to be preferred to the best so far: where statistics are wanted one that leaves them is, for
 * what they save comes later. */
static bool is_better(const Cover *c, Id v, const Candidate *x, double us)
{
    const Choice *best = &c->best[v];
    const bool leaves = x->fit.leaves > 0;

    if (best->found && c->p->facts.stats && c->p->facts.stats[v].wanted && leaves != (columns_left(c, v) > 0))
        return leaves;
    return !best->found || us < best->us;
}

static void choose(Cover *c, Id v)
{
    Choice *best = &c->best[v];
    Candidates all = {0};

    select_candidates(c->l, c->p, c->uses, v, false, &all);
    for (size_t i = 0; i < all.n; i++) {
        const RowsServed rows = all.at[i].b.contract->rows;
        Id missing;
        double us;

        if (!inputs_cost(c, &all.at[i].b, &us, &missing)) {
            best->missing = missing;
            continue;
        }
        us += all.at[i].own_us;
        if (rows == ROWS_ALL || (rows == ROWS_DECODE && c->p->facts.decode)) {
            if (is_better(c, v, &all.at[i], us))
                *best = (Choice){.found = true, .us = us, .one = all.at[i]};
            continue;
        }
        for (size_t k = 0; k < all.n && rows == ROWS_DECODE; k++)
            if (all.at[k].b.contract->rows == ROWS_PREFILL && same_inputs(&all.at[i].b, &all.at[k].b) &&
                (!best->found || us + all.at[k].own_us < best->us))
                *best = (Choice){
                    .found = true, .us = us + all.at[k].own_us, .one = all.at[i], .two = all.at[k], .pair = true};
    }
}

static void want_stats(RowStats *stats, const Binding *b)
{
    for (size_t i = 0; i < b->contract->operands; i++)
        if (b->contract->args.at[i].stats_of >= 0 && !b->contract->args.at[i].out && b->arg[i])
            stats[b->arg[i]].wanted = true;
}

/* Statistics are left of what somebody reads them of. */
static void want_what_is_read(const Cover *c, const bool *root)
{
    RowStats *stats = c->p->facts.stats;

    for (Id v = 1; v < c->l->g->values.n; v++)
        stats[v].wanted = false;
    for (Id v = 1; v < c->l->g->values.n; v++)
        if (root[v]) {
            want_stats(stats, &c->best[v].one.b);
            if (c->best[v].pair)
                want_stats(stats, &c->best[v].two.b);
        }
}

/* Fixes a candidate for good: its instance moves to memory that stays. */
static void take(Cover *c, const Candidate *x)
{
    Group *g = arena_push(c->l->keep, c->p->groups);
    const char *reason;

    g->b = x->b;
    for (size_t i = 0; i < x->b.contract->operands; i++)
        if (x->b.contract->args.at[i].out && x->b.contract->args.at[i].stats_of >= 0 && x->b.arg[i] &&
            !c->p->facts.stats[x->b.arg[i]].wanted)
            g->b.arg[i] = 0;
    g->cost_us = x->own_us;
    if (!contract_fit(&c->p->facts, &g->b, c->l->keep, c->l->scratch, &g->fit, &reason))
        die("a kernel fitted once and then not: %s", reason);
}

/* Marks the roots of the cheapest cover of v's tree. */
static void mark(const Cover *c, Id v, bool *root)
{
    const Choice *x = &c->best[v];

    if (root[v] || !is_computed(c, v))
        return;
    root[v] = true;
    for (size_t i = 0; i < x->one.b.contract->args.n; i++)
        if (x->one.b.arg[i])
            mark(c, x->one.b.arg[i], root);
}

/* --- what is missing ------------------------------------------------------------------------------- */

/* "no kernel for rmsnorm on sm_90a ...": the value, and the contracts that came closest. */
static bool refuse(const Cover *c, Id v, Diag *d)
{
    const Lower *l = c->l;
    Candidates all = {0};
    const Value *value;
    const char *near = "";
    int shown = 0;

    while (!c->best[v].found && c->best[v].missing && c->best[v].missing != v)
        v = c->best[v].missing;
    value = ir_value(l->g, v);
    select_candidates(l, c->p, c->uses, v, true, &all);
    for (int fitted = 1; fitted >= 0; fitted--) /* whose tree stands in the graph come first */
        for (size_t i = 0; i < all.n && shown < 4; i++) {
            const Contract *k = all.at[i].b.contract;
            const bool tree = all.at[i].reason && strncmp(all.at[i].reason, k->loc.file, strlen(k->loc.file)) == 0;

            if (all.at[i].fits || !all.at[i].reason || tree != fitted || strstr(near, all.at[i].reason))
                continue;
            near = fitted ? arena_printf(l->scratch, "%s; %s", near, all.at[i].reason)
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
                      lower_program_name(c->p, l->scratch),
                      *near ? ": closest came " : ": no contract has it outermost", *near ? near + 2 : "");
}

enum { FEW_ROWS = 8 };

static bool is_small(const Program *p)
{
    return p->facts.bucket > 0 && p->facts.bucket <= FEW_ROWS;
}

/* v has its kernel: norms of many rows that cannot be had from what it leaves are computed once. */
static void leave(Cover *c, Id v)
{
    c->p->facts.stats[v].columns = columns_left(c, v);
    for (Id n = v + 1; n < c->l->g->values.n && !c->p->facts.stats[v].columns && !is_small(c->p); n++)
        if (is_norm(c, n) && ir_value(c->l->g, n)->args[0] == v)
            c->uses[n] = c->readers[n];
}

/* The cheapest cover of every tree. roots and their costs come back. */
static bool cover(Cover *c, bool *root, double *us, Diag *d)
{
    const Graph *g = c->l->g;

    for (Id v = 1; v < g->values.n; v++) {
        if (!is_computed(c, v))
            continue;
        choose(c, v);
        if (c->p->facts.stats && c->p->facts.stats[v].wanted)
            leave(c, v);
        if (v == g->logits)
            c->p->facts.segments = leaves_segments(c);
        if (!c->best[v].found && must_stand(c, v))
            return d && refuse(c, v, d);
    }
    for (Id v = 1; v < g->values.n; v++)
        if (is_computed(c, v) && must_stand(c, v))
            mark(c, v, root);
    *us = 0;
    for (Id v = 1; v < g->values.n; v++)
        if (root[v])
            *us += c->best[v].one.own_us + (c->best[v].pair ? c->best[v].two.own_us : 0);
    return true;
}

static Cover cover_new(const Lower *l, Program *p, const uint32_t *readers)
{
    Cover c = {.l = l, .p = p, .readers = readers};

    c.uses = arena_array(l->scratch, uint32_t, l->g->values.n);
    c.launched = arena_array(l->scratch, bool, l->g->values.n);
    c.best = arena_array(l->scratch, Choice, l->g->values.n);
    memcpy(c.uses, readers, sizeof *readers * l->g->values.n);
    return c;
}

/* Norms that may be computed again, and what they are norms of. Not the entry of an encoder: what is given in place of
 * ids has a buffer. */
static void share_norms(Cover *c)
{
    const Graph *g = c->l->g;

    memset(c->p->facts.stats, 0, sizeof *c->p->facts.stats * g->values.n);
    memset(c->best, 0, sizeof *c->best * g->values.n);
    for (Id v = 1; v < g->values.n; v++)
        if (is_norm(c, v) && v != g->entry && c->readers[v]) {
            const Id x = ir_value(g, v)->args[0];

            c->uses[v] = c->launched[v] ? c->readers[v] : 1;
            c->p->facts.stats[x].wanted |= !c->launched[v] && !c->l->plain[x];
        }
}

/* A norm of few rows is cheap: kernels that hold them may each compute it again, as if every reader had one of its own.
 * A norm between two layers of a post-norm model then needs no launch, if all who read it do so. Of many rows a norm
 * is cheap where who writes its input leaves statistics of it; one that a reader wants written is read by all then. */
static bool cover_again(Cover *c, bool *root, double *us)
{
    const Graph *g = c->l->g;
    bool all = false;

    c->p->facts.stats = arena_array(c->l->keep, RowStats, g->values.n);
    for (Id v = 1; v < g->values.n && !is_small(c->p); v++)
        c->launched[v] = is_norm(c, v) && c->l->plain[ir_value(g, v)->args[0]];
    while (!all) {
        share_norms(c);
        memset(root, 0, sizeof *root * g->values.n);
        if (!cover(c, root, us, NULL))
            return false;
        all = true;
        for (Id v = 1; v < g->values.n && !is_small(c->p); v++)
            if (root[v] && is_norm(c, v) && is_shared(c, v))
                c->launched[v] = !(all = false);
    }
    return true;
}

bool select_program(const Lower *l, Program *p, Diag *d)
{
    const Graph *g = l->g;
    const uint32_t *readers = ir_uses(g);
    Cover once = cover_new(l, p, readers), again = cover_new(l, p, readers), *c = &once;
    bool *root = arena_array(l->scratch, bool, g->values.n), *more = arena_array(l->scratch, bool, g->values.n);
    double us = 0, other = 0;

    p->groups.n = 0;
    p->facts.segments = p->facts.entry_waits = false;
    p->facts.stats = NULL;
    if (!cover(&once, root, &us, d))
        return false;
    if ((is_small(p) || p->facts.encode) && cover_again(&again, more, &other) && other < us) {
        c = &again;
        root = more;
        want_what_is_read(c, root);
    } else {
        p->facts.stats = NULL;
    }
    p->uses = c->uses;
    p->facts.segments = leaves_segments(c);
    p->facts.entry_waits = entry_waits(c, root);
    for (Id v = 1; v < g->values.n; v++)
        if (root[v]) {
            take(c, &c->best[v].one);
            if (c->best[v].pair)
                take(c, &c->best[v].two);
        }
    return true;
}

/* Programs that must be there, and those that could be had. */
static bool select_programs(Lower *l, Diag *d)
{
    size_t n = 0;

    for (size_t i = 0; i < l->programs.n; i++) {
        Program *p = &l->programs.at[i];
        Diag unsaid = {0};
        const bool found = select_program(l, p, p->optional ? &unsaid : d);

        if (!found && !p->optional)
            return false;
        p->fits = NULL;
        p->uses = NULL;
        if (found)
            l->programs.at[n++] = *p;
        arena_reset(l->scratch);
    }
    l->programs.n = n;
    return true;
}

/* Which weights some group reads as they are. */
static bool *find_plain(const Lower *l)
{
    bool *plain = arena_array(l->scratch, bool, l->g->values.n);

    for (size_t i = 0; i < l->programs.n; i++)
        for (size_t k = 0; k < l->programs.at[i].groups.n; k++) {
            const Binding *b = &l->programs.at[i].groups.at[k].b;

            for (size_t a = 0; a < b->contract->operands; a++)
                plain[b->arg[a]] |= !contract_arg_fold(b, a).gain;
        }
    return plain;
}

/* What the norm is of whose gain a group has in its weights. */
static Id normed(const Lower *l, const Binding *b)
{
    for (uint32_t i = 0; i < b->n_covered; i++) {
        const Value *v = ir_value(l->g, b->covered[i]);

        if (v->op == OP_LAYERNORM && v->args[1] == b->arg[b->contract->folded.gain])
            return v->args[0];
    }
    die("%s: a gain without its norm", b->contract->family);
}

/* A weight is packed plain or folded, not twice: what is normed by some programs' weights and by launches in others is
 * normed by launches in all. True: there was none. */
static bool agree(Lower *l)
{
    const bool *plain = find_plain(l);
    bool all = true;

    for (size_t i = 0; i < l->programs.n; i++)
        for (size_t k = 0; k < l->programs.at[i].groups.n; k++) {
            const Binding *b = &l->programs.at[i].groups.at[k].b;
            const size_t w = (size_t)b->contract->folded.matrix;

            if (contract_arg_fold(b, w).gain && plain[b->arg[w]])
                l->plain[normed(l, b)] = !(all = false);
        }
    return all;
}

bool stage_select(Lower *l, Diag *d)
{
    if (l->target.id == FTX_TARGET_CPU && l->compute != DT_FP32) /* its kernels read and write nothing else */
        return diag_error(d, (Loc){0}, "precision.compute is %s, the CPU computes in fp32 only: leave it at auto",
                          dtype_name(l->compute));
    do
        if (!select_programs(l, d))
            return false;
    while (!agree(l));
    return true;
}
