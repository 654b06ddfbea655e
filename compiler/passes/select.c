/* select.c - which kernel computes which values: a covering problem over the catalog.
 *
 * A value with several readers must be written to memory, so such values cut the graph into trees. In a tree, the cost of
 * a value is the cost of its best match plus the costs of the values that the match reads: dynamic programming in the
 * order of computation (Aho & Johnson 1976; BURG selects instructions in this way). It is exact on trees.
 *
 * Norms are the exception: a norm with several readers may be launched once, or computed by each reader. The whole
 * graph is covered both ways and the cheaper cover is taken. Values are decided in the order of computation, so a
 * contract may ask what the producer of its input writes (row statistics, segments of logits).
 *
 * Candidates of the same cost: the contract with the lowest rank, then its first match line. The catalog is sorted by
 * rank, so the first candidate is kept. A candidate that its contract says to avoid (`prefer other`) loses to all others.
 *
 *   cost of a launch = max(bytes / bandwidth, operations / rate) + launch overhead
 *
 * The cost model only orders candidates; it does not predict times. */
#include <assert.h>
#include <string.h>

#include "../../runtime/base/hash.h"
#include "lower.h"

typedef struct Rates {
    double bytes_us, flops_us, launch_us;
} Rates;

/* What kernels reach of the rates of targets.def, in percent. Measured on an H200 (read 4.0 of 4.8 TB/s in a running model)
 * and taken to be so on all targets. LIBRARY: cuBLASLt; OURS: kernels without a `rate` line. */
enum { READ = 83, LIBRARY_FP32 = 75, LIBRARY_TENSOR = 61, OURS_FP32 = 45, OURS_TENSOR = 25 };

static Rates rates_of(const Lower *l, const Contract *c)
{
    const TargetFacts *t = target_facts(l->target);
    const bool library = c->device == KD_MATMUL, fp32 = l->compute == DT_FP32;
    const int share = c->rate ? (int)c->rate
                      : fp32  ? (library ? LIBRARY_FP32 : OURS_FP32)
                              : (library ? LIBRARY_TENSOR : OURS_TENSOR);

    return (Rates){.bytes_us = t->read_gbs * 1e3 * READ / 100,
                   .flops_us = (fp32 ? t->fp32_tflops : t->tensor_tflops) * 1e6 * share / 100,
                   .launch_us = c->overlap ? t->overlap_us : t->launch_us};
}

/* The memory traffic of a contract without a `moves` line: the size of all operands. */
static double operand_bytes(const Program *p, const Binding *b)
{
    double sum = 0;

    for (size_t i = 0; i < b->contract->operands; i++)
        if (b->arg[i] && b->contract->args.at[i].stats_of < 0)
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

/* The cost by which candidates are compared: one with a `prefer other` line that holds loses to any without. */
static double compared_cost(const Candidate *x)
{
    enum { AVOIDED_US = 1000000000 };

    return x->own_us + (x->fit.avoided ? AVOIDED_US : 0);
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
    int64_t at[640];
    size_t n;
} Key;

static void key_add(Key *k, int64_t word)
{
    assert(k->n < LEN(k->at)); /* 24 arguments of 4 sizes, 16 ops of 8 attributes */
    k->at[k->n++] = word;
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

    key_add(&f, (int64_t)(uintptr_t)b->line);
    key_add(&f, p->facts.segments);
    key_add(&f, p->facts.entry_waits);
    for (size_t i = 0; i < b->contract->args.n; i++) {
        const Value *v = ir_value(p->facts.g, b->arg[i]);

        key_add(&f, b->arg[i] ? (int64_t)v->type + 1 : 0);
        if (b->arg[i] && b->contract->args.at[i].stats_of >= 0)
            key_add(&f, p->facts.stats ? p->facts.stats[b->arg[i]].columns : 0);
        for (uint32_t k = 0; b->arg[i] && k < v->shape.rank; k++) {
            key_add(&f, v->shape.dim[k].kind);
            key_add(&f, v->shape.dim[k].n);
        }
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

void select_candidates(const Lower *l, Program *p, const uint32_t *uses, Id v, bool refused, Candidates *out)
{
    for (size_t i = 0; i < l->catalog->n; i++) {
        const Contract *c = l->catalog->at[i];

        for (size_t k = 0; k < c->matches.n && runs_on_target(l, c); k++) {
            if (c->matches.at[k].root->op != ir_value(l->g, v)->op)
                continue;
            for (uint32_t way = 0; way < match_ways(&c->matches.at[k]); way++) {
                Candidate x = {0};

                if (match_at(&p->facts, uses, c, &c->matches.at[k], way, v, &x.b, refused ? &x.reason : NULL,
                             l->scratch))
                    fit_candidate(l, p, &x);
                if (x.fits || refused)
                    *arena_push(l->scratch, *out) = x;
            }
        }
    }
}

/* --- the cover ----------------------------------------------------------------------------------- */

/* The best match with its root at a value. */
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
    uint32_t *uses;          /* the same in this cover: 1 for a norm that each of its readers computes */
    bool *must_launch;       /* norms that get a launch of their own, as earlier rounds found */
    Choice *best;            /* of each value */
} Cover;

/* Whether this program computes v. Weights and ids are given; values of the encoder are computed by encode programs. */
static bool is_computed(const Cover *c, Id v)
{
    const Op op = ir_value(c->l->g, v)->op;

    return !ir_op_is_weight(op) && op != OP_IDS && c->l->encoder[v] == c->p->facts.encode &&
           (!c->p->facts.hidden || c->l->after[v]);
}

/* Whether v is the root of a tree: every cover writes it to memory. */
static bool must_be_stored(const Cover *c, Id v)
{
    return c->uses[v] > 1 || v == c->l->g->output || v == c->l->g->pooled ||
           ir_value(c->l->g, v)->op == OP_CROSS_APPEND;
}

static bool is_norm(const Cover *c, Id v)
{
    const Op op = ir_value(c->l->g, v)->op;

    return op == OP_LAYERNORM || op == OP_RMSNORM;
}

/* Whether the readers of this norm may compute it themselves. */
static bool may_recompute(const Cover *c, Id v)
{
    return c->uses[v] < c->readers[v];
}

/* Whether a match computes a norm of v that other readers may compute, too. */
static bool recomputes_norm(const Cover *c, const Binding *b, Id v)
{
    for (uint32_t i = 0; i < b->n_covered; i++)
        if (b->covered[i] != b->root && is_norm(c, b->covered[i]) && may_recompute(c, b->covered[i]) &&
            ir_value(c->l->g, b->covered[i])->args[0] == v)
            return true;
    return false;
}

/* The cost of input v, as far as this match has to pay for it. Roots are paid for elsewhere. The input of a norm that
 * several readers compute is there for all of them: they pay for the norm alone. */
static double input_cost(const Cover *c, const Binding *b, Id v)
{
    const Id x = is_norm(c, v) ? ir_value(c->l->g, v)->args[0] : 0;

    if (must_be_stored(c, v) || recomputes_norm(c, b, v))
        return 0;
    if (x && may_recompute(c, v) && is_computed(c, x) && !must_be_stored(c, x))
        return c->best[v].us - c->best[x].us;
    return c->best[v].us;
}

/* The cost of all inputs of a match; false: no kernel computes *missing. */
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

/* ENTRY_WAITS of names.def, for the program whose launches have these roots. */
static bool entry_waits(const Cover *c, const bool *root)
{
    int n = 0;

    for (Id v = 1; v < c->l->g->values.n; v++)
        if (root[v] && n++ == 1)
            return constant_on(&c->best[v].one, "FIRST");
    return false;
}

/* LOGIT_SEGMENTS of names.def; the readers of the logits are chosen after their kernel. */
static bool writes_segments(const Cover *c)
{
    const Candidate *x = &c->best[c->l->g->logits].one;
    bool out = false;

    if (!c->l->g->logits || !c->best[c->l->g->logits].found)
        return false;
    for (size_t i = 0; i < x->b.contract->args.n; i++)
        out |= x->b.contract->args.at[i].out && x->b.contract->args.at[i].named == FTX_NAMED_segments;
    return out && constant_on(x, "SEGMENTS");
}

/* Columns of a block of the row statistics that the kernel chosen for v writes; 0: it writes none. */
static int64_t stats_columns(const Cover *c, Id v)
{
    const Choice *x = &c->best[v];

    return x->found && !x->pair ? x->one.fit.leaves : 0;
}

/* Whether candidate x for v is better than the best so far. If row statistics of v are wanted, a kernel that writes them
 * is preferred at any cost: what they save is saved by later launches. */
static bool is_better(const Cover *c, Id v, const Candidate *x, double us)
{
    const Choice *best = &c->best[v];
    const bool writes = x->fit.leaves > 0;

    if (best->found && c->p->facts.stats && c->p->facts.stats[v].wanted && writes != (stats_columns(c, v) > 0))
        return writes;
    return !best->found || us < best->us;
}

/* Sets best[v]. Rows of attention are served by one kernel, or by a decode and a prefill kernel together. */
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
        us += compared_cost(&all.at[i]);
        if (rows == ROWS_ALL || (rows == ROWS_DECODE && c->p->facts.decode)) {
            if (is_better(c, v, &all.at[i], us))
                *best = (Choice){.found = true, .us = us, .one = all.at[i]};
            continue;
        }
        for (size_t k = 0; k < all.n && rows == ROWS_DECODE; k++)
            if (all.at[k].b.contract->rows == ROWS_PREFILL && same_inputs(&all.at[i].b, &all.at[k].b) &&
                (!best->found || us + compared_cost(&all.at[k]) < best->us))
                *best = (Choice){.found = true,
                                 .us = us + compared_cost(&all.at[k]),
                                 .one = all.at[i],
                                 .two = all.at[k],
                                 .pair = true};
    }
}

static void want_stats(RowStats *stats, const Binding *b)
{
    for (size_t i = 0; i < b->contract->operands; i++)
        if (b->contract->args.at[i].stats_of >= 0 && !b->contract->args.at[i].out && b->arg[i])
            stats[b->arg[i]].wanted = true;
}

/* Asks for the row statistics that the chosen launches read, and for no others. */
static void want_read_stats(const Cover *c, const bool *root)
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

/* Adds the launch of a candidate to the program, without outputs for statistics that no launch reads. */
static void add_group(Cover *c, const Candidate *x)
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
        die("%s fitted when it was chosen, but not when it was added: %s", x->b.contract->family, reason);
}

/* Marks the roots of all launches that compute v. */
static void mark_launches(const Cover *c, Id v, bool *root)
{
    const Choice *x = &c->best[v];

    if (root[v] || !is_computed(c, v))
        return;
    root[v] = true;
    for (size_t i = 0; i < x->one.b.contract->args.n; i++)
        if (x->one.b.arg[i])
            mark_launches(c, x->one.b.arg[i], root);
}

/* --- a value without a kernel ---------------------------------------------------------------------- */

/* "no kernel for %5 = rmsnorm ... on sm_90a: closest came ...": the value, and the contracts that came closest. */
static bool report_missing(const Cover *c, Id v, Diag *d)
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
                      lower_program_name(c->p, l->scratch),
                      *near ? ": closest came " : ": no contract has a match line with this op as its root",
                      *near ? near + 2 : "");
}

/* --- both ways to compute norms --------------------------------------------------------------------- */

enum { FEW_ROWS = 8 };

/* Few rows: their norms are cheap enough to be computed by each reader. */
static bool is_small(const Program *p)
{
    return p->facts.bucket > 0 && p->facts.bucket <= FEW_ROWS;
}

/* The producer of v is chosen: record the row statistics that it writes. Without them, and with many rows, the norms of v
 * get a launch of their own. */
static void fix_stats(Cover *c, Id v)
{
    c->p->facts.stats[v].columns = stats_columns(c, v);
    for (Id n = v + 1; n < c->l->g->values.n && !c->p->facts.stats[v].columns && !is_small(c->p); n++)
        if (is_norm(c, n) && ir_value(c->l->g, n)->args[0] == v)
            c->uses[n] = c->readers[n];
}

/* Covers all trees: root[v] says which launches are taken, *us what they cost. d NULL: say nothing where it fails. */
static bool cover(Cover *c, bool *root, double *us, Diag *d)
{
    const Graph *g = c->l->g;

    for (Id v = 1; v < g->values.n; v++) {
        if (!is_computed(c, v))
            continue;
        choose(c, v);
        if (c->p->facts.stats && c->p->facts.stats[v].wanted)
            fix_stats(c, v);
        if (v == g->logits)
            c->p->facts.segments = writes_segments(c);
        if (!c->best[v].found && must_be_stored(c, v))
            return d && report_missing(c, v, d);
    }
    for (Id v = 1; v < g->values.n; v++)
        if (is_computed(c, v) && must_be_stored(c, v))
            mark_launches(c, v, root);
    *us = 0;
    for (Id v = 1; v < g->values.n; v++)
        if (root[v])
            *us += compared_cost(&c->best[v].one) + (c->best[v].pair ? compared_cost(&c->best[v].two) : 0);
    return true;
}

static Cover cover_new(const Lower *l, Program *p, const uint32_t *readers)
{
    Cover c = {.l = l, .p = p, .readers = readers};

    c.uses = arena_array(l->scratch, uint32_t, l->g->values.n);
    c.must_launch = arena_array(l->scratch, bool, l->g->values.n);
    c.best = arena_array(l->scratch, Choice, l->g->values.n);
    memcpy(c.uses, readers, sizeof *readers * l->g->values.n);
    return c;
}

/* Lets the readers of every norm compute it, but for those of must_launch, and asks for row statistics of its input. The
 * entry of an encoder keeps its buffer, since a caller may bring it. */
static void allow_recompute(Cover *c)
{
    const Graph *g = c->l->g;

    memset(c->p->facts.stats, 0, sizeof *c->p->facts.stats * g->values.n);
    memset(c->best, 0, sizeof *c->best * g->values.n);
    for (Id v = 1; v < g->values.n; v++)
        if (is_norm(c, v) && v != g->entry && c->readers[v]) {
            const Id x = ir_value(g, v)->args[0];

            c->uses[v] = c->must_launch[v] ? c->readers[v] : 1;
            c->p->facts.stats[x].wanted |= !c->must_launch[v] && !c->l->launch_norms[x];
        }
}

/* Covers the graph so that readers compute norms themselves. With few rows this is cheap; with many rows it is where the
 * producer of the norm's input writes row statistics. If one reader still needs the norm in memory, it is launched and
 * all read it: then the cover is made again, until no such norm is left. */
static bool cover_recomputing(Cover *c, bool *root, double *us)
{
    const Graph *g = c->l->g;
    bool all = false;

    c->p->facts.stats = arena_array(c->l->keep, RowStats, g->values.n);
    for (Id v = 1; v < g->values.n && !is_small(c->p); v++)
        c->must_launch[v] = is_norm(c, v) && c->l->launch_norms[ir_value(g, v)->args[0]];
    while (!all) {
        allow_recompute(c);
        memset(root, 0, sizeof *root * g->values.n);
        if (!cover(c, root, us, NULL))
            return false;
        all = true;
        for (Id v = 1; v < g->values.n && !is_small(c->p); v++)
            if (root[v] && is_norm(c, v) && may_recompute(c, v))
                c->must_launch[v] = !(all = false);
    }
    return true;
}

bool select_program(const Lower *l, Program *p, Diag *d)
{
    const Graph *g = l->g;
    const uint32_t *readers = ir_uses(g);
    Cover launched = cover_new(l, p, readers), recomputed = cover_new(l, p, readers), *c = &launched;
    bool *root = arena_array(l->scratch, bool, g->values.n), *other_root = arena_array(l->scratch, bool, g->values.n);
    double us = 0, other_us = 0;

    p->groups.n = 0;
    p->facts.segments = p->facts.entry_waits = false;
    p->facts.stats = NULL;
    if (!cover(&launched, root, &us, d))
        return false;
    if ((is_small(p) || p->facts.encode) && cover_recomputing(&recomputed, other_root, &other_us) && other_us < us) {
        c = &recomputed;
        root = other_root;
        want_read_stats(c, root);
    } else {
        p->facts.stats = NULL;
    }
    p->uses = c->uses;
    p->facts.segments = writes_segments(c);
    p->facts.entry_waits = entry_waits(c, root);
    for (Id v = 1; v < g->values.n; v++)
        if (root[v]) {
            add_group(c, &c->best[v].one);
            if (c->best[v].pair)
                add_group(c, &c->best[v].two);
        }
    return true;
}

/* Selects every program; an optional one is dropped where a value has no kernel for it. */
static bool select_programs(Lower *l, Diag *d)
{
    size_t n = 0;

    for (size_t i = 0; i < l->programs.n; i++) {
        Program *p = &l->programs.at[i];
        Diag ignored = {0};
        const bool found = select_program(l, p, p->optional ? &ignored : d);

        if (!found && !p->optional)
            return false;
        p->fit_cache = NULL;
        p->uses = NULL;
        if (found)
            l->programs.at[n++] = *p;
        arena_reset(l->scratch);
    }
    l->programs.n = n;
    return true;
}

/* --- weights with a folded norm --------------------------------------------------------------------- */

/* Which weights some launch reads unfolded. */
static bool *find_unfolded(const Lower *l)
{
    bool *unfolded = arena_array(l->scratch, bool, l->g->values.n);

    for (size_t i = 0; i < l->programs.n; i++)
        for (size_t k = 0; k < l->programs.at[i].groups.n; k++) {
            const Binding *b = &l->programs.at[i].groups.at[k].b;

            for (size_t a = 0; a < b->contract->operands; a++)
                unfolded[b->arg[a]] |= !contract_arg_fold(b, a).gain;
        }
    return unfolded;
}

/* The input of the norm that is folded into the weights of a launch. */
static Id folded_norm_input(const Lower *l, const Binding *b)
{
    for (uint32_t i = 0; i < b->n_covered; i++) {
        const Value *v = ir_value(l->g, b->covered[i]);

        if (v->op == OP_LAYERNORM && v->args[1] == b->arg[b->contract->folded.gain])
            return v->args[0];
    }
    die("%s: a folded gain without its norm", b->contract->family);
}

/* A weight is packed once, folded or not. Where some programs fold a norm into a weight and others read it unfolded, the
 * norm gets a launch in all programs. False: this was so, programs must be selected again. */
static bool unify_folds(Lower *l)
{
    const bool *unfolded = find_unfolded(l);
    bool unified = true;

    for (size_t i = 0; i < l->programs.n; i++)
        for (size_t k = 0; k < l->programs.at[i].groups.n; k++) {
            const Binding *b = &l->programs.at[i].groups.at[k].b;
            const size_t w = (size_t)b->contract->folded.matrix;

            if (contract_arg_fold(b, w).gain && unfolded[b->arg[w]])
                l->launch_norms[folded_norm_input(l, b)] = !(unified = false);
        }
    return unified;
}

bool stage_select(Lower *l, Diag *d)
{
    if (l->target.id == FTX_TARGET_CPU && l->compute != DT_FP32) /* activations of CPU kernels are fp32 */
        return diag_error(d, (Loc){0}, "precision.compute is %s, the CPU computes in fp32 only: leave it at auto",
                          dtype_name(l->compute));
    do
        if (!select_programs(l, d))
            return false;
    while (!unify_folds(l));
    return true;
}
