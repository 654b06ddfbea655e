/* select.c - which kernel computes which values: a covering problem over the catalog.
 *
 * Values that several others read must be written to memory, so they cut the graph into trees.
 * In a tree the cheapest cover of a value is that of the cheapest match with its root there, plus
 * the covers of what the match reads: dynamic programming in the order of computation (Aho &
 * Johnson 1976; Burg and its kin do this for instructions). Exact on trees, and the cuts are no
 * choice, but for norms, which may be computed again by each who reads them: both ways are costed.
 * Equal costs: the contract that comes first in the catalog.
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

    for (size_t i = 0; i < b->contract->args.n; i++)
        if (b->arg[i])
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
    int64_t at[512];
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
    fact(&f, p->facts.parts);
    fact(&f, p->facts.entry_waits);
    for (size_t i = 0; i < b->contract->args.n; i++) {
        const Value *v = ir_value(p->facts.g, b->arg[i]);

        fact(&f, b->arg[i] ? (int64_t)v->type + 1 : 0);
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
    const uint32_t *uses;
    Choice *best; /* of each value */
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
        if (!again && !must_stand(c, v))
            *us += c->best[v].us;
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

/* Whether the kernel chosen for the logits leaves parts of them: who reads them is chosen after it. */
static bool leaves_parts(const Cover *c)
{
    const Candidate *x = &c->best[c->l->g->logits].one;
    bool out = false;

    if (!c->l->g->logits || !c->best[c->l->g->logits].found)
        return false;
    for (size_t i = 0; i < x->b.contract->args.n; i++)
        out |= x->b.contract->args.at[i].out && x->b.contract->args.at[i].named == FTX_NAMED_parts;
    return out && constant_on(x, "PARTS");
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
            if (!best->found || us < best->us)
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

/* Fixes a candidate for good: its instance moves to memory that stays. */
static void take(Cover *c, const Candidate *x)
{
    Group *g = arena_push(c->l->keep, c->p->groups);
    const char *reason;

    g->b = x->b;
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

/* The cheapest cover of every tree; uses: how many read a value. roots and their costs come back. */
static bool cover(Cover *c, bool *root, double *us, Diag *d)
{
    const Graph *g = c->l->g;

    for (Id v = 1; v < g->values.n; v++) {
        if (!is_computed(c, v))
            continue;
        choose(c, v);
        if (v == g->logits)
            c->p->facts.parts = leaves_parts(c);
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

static Cover cover_new(const Lower *l, Program *p, const uint32_t *uses)
{
    return (Cover){.l = l, .p = p, .uses = uses, .best = arena_array(l->scratch, Choice, l->g->values.n)};
}

enum { FEW_ROWS = 8 };

/* A norm of few rows is cheap: kernels that hold them may each compute it again, as if every reader had one
 * of its own. A norm between two layers of a post-norm model then needs no launch, if all who read it do so.
 * Not the entry of an encoder: what is given in place of ids has a buffer. */
static const uint32_t *uses_of_norms(const Lower *l, const uint32_t *uses)
{
    uint32_t *own = arena_array(l->scratch, uint32_t, l->g->values.n);

    for (Id v = 1; v < l->g->values.n; v++) {
        const Op op = ir_value(l->g, v)->op;

        own[v] = uses[v] && v != l->g->entry && (op == OP_LAYERNORM || op == OP_RMSNORM) ? 1 : uses[v];
    }
    return own;
}

bool select_program(const Lower *l, Program *p, Diag *d)
{
    const Graph *g = l->g;
    const uint32_t *uses = ir_uses(g);
    Cover once = cover_new(l, p, uses), again = cover_new(l, p, uses_of_norms(l, uses)), *c = &once;
    bool *root = arena_array(l->scratch, bool, g->values.n), *more = arena_array(l->scratch, bool, g->values.n);
    double us = 0, other = 0;

    if (!cover(&once, root, &us, d))
        return false;
    if (p->facts.bucket > 0 && p->facts.bucket <= FEW_ROWS && cover(&again, more, &other, NULL) && other < us) {
        c = &again;
        root = more;
    }
    p->facts.parts = leaves_parts(c);
    p->facts.entry_waits = entry_waits(c, root);
    for (Id v = 1; v < g->values.n; v++)
        if (root[v]) {
            take(c, &c->best[v].one);
            if (c->best[v].pair)
                take(c, &c->best[v].two);
        }
    return true;
}

bool stage_select(Lower *l, Diag *d)
{
    if (l->target.id == FTX_TARGET_CPU && l->compute != DT_FP32) /* its kernels read and write nothing else */
        return diag_error(d, (Loc){0}, "precision.compute is %s, the CPU computes in fp32 only: leave it at auto",
                          dtype_name(l->compute));
    size_t n = 0;

    for (size_t i = 0; i < l->programs.n; i++) {
        Program *p = &l->programs.at[i];
        Diag unsaid = {0};
        const bool found = select_program(l, p, p->optional ? &unsaid : d);

        if (!found && !p->optional)
            return false;
        p->fits = NULL;
        if (found)
            l->programs.at[n++] = *p;
        arena_reset(l->scratch);
    }
    l->programs.n = n;
    return true;
}
