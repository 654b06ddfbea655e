/* shard.c - cuts a model into the parts of several devices (ranks), each with some heads and some columns of each layer.
 *
 *   y = act(linear(x, w1, b1))    ->    y = act(linear(x, part(w1), part(b1)))
 *   z = linear(y, w2, b2)         ->    z = all_reduce(linear(y, part(w2, dim=1), part(b2, first=1)))
 *   embed(ids, w)                 ->    all_reduce(embed_part(ids, part(w)))      a large table: embedding_is_cut()
 *   sample(linear(x, w))          ->    sample(gather_logits(linear(x, part(w))))
 *
 * All ranks run one graph. A value of it is the same on all ranks; or split: each rank has a piece of the columns of [M,N],
 * of the heads of [T,H,E]; or partial: the value is the sum over the ranks. `rules` says for each op from which layouts of
 * its arguments which layout of its result follows; an argument in another layout is converted (all_gather, rank_slice),
 * partial sums are added at once (all_reduce). An op without a rule is computed by every rank.
 *
 * There is no search. Attention is split, as are linear layers whose result only goes, through ops that have a rule, to
 * attention, to the columns of another linear layer, or to the logits. Keys and values of fewer heads than ranks are
 * split into as many pieces as there are heads, each of which several ranks have.
 *
 * The columns of expert_linear are as many blocks as a row has experts, and a rank has a piece of each block. Ops on single
 * columns keep that order, and expert_sum reads it. No kernel makes it of a whole value, or a whole value of it: where that
 * would be needed, every rank computes all of the value, and the layouts are chosen again. */
#include <string.h>

#include "../../kernels/device/io.h"
#include "lower.h"
#include "rewrite.h"

enum { WHOLE_EMBEDDING = 1 << 20 }; /* elements of an embedding that is cut */

/* Layouts of arguments: s same; p split, of a weight its rows; c columns of a weight; f a weight on the first rank alone;
 * w a whole weight; h a gain or bias of heads: whole if it is one for all of them, else split. */
typedef struct ShardRule {
    Op op;
    const char *args;
    enum { SPLIT, PARTIAL } result;
} ShardRule;

static const ShardRule rules[] = {
    {OP_LINEAR, "pcf", PARTIAL},
    {OP_LINEAR, "spp", SPLIT},
    {OP_EXPERT_SUM, "pscf", PARTIAL},
    {OP_EXPERT_LINEAR, "sspp", SPLIT},
    {OP_ADD, "pp", SPLIT},
    {OP_MUL, "pp", SPLIT},
    {OP_SCALE, "p", SPLIT},
    {OP_ACT, "p", SPLIT},
    {OP_CLAMP, "p", SPLIT},
    {OP_XIELU, "pw", SPLIT},
    {OP_GLU, "p", SPLIT},
    {OP_GLU_CLAMPED, "p", SPLIT},
    {OP_SCALE_BY_POSITION, "p", SPLIT},
    {OP_SPLIT_HEADS, "p", SPLIT},
    {OP_JOIN_HEADS, "p", SPLIT},
    {OP_HEAD_LINEAR, "pp", SPLIT},
    {OP_SLICE_HEADS, "p", SPLIT},
    {OP_JOIN_PARTS, "pp", SPLIT},
    {OP_ROPE, "pw", SPLIT},
    {OP_RMSNORM, "ph", SPLIT},
    {OP_LAYERNORM, "phh", SPLIT},
    {OP_CACHE, "pp", SPLIT},
    {OP_CROSS_CACHE, "pp", SPLIT},
    {OP_ATTEND, "pppppppp", SPLIT},
    {OP_RECUR, "ppppppp", SPLIT},
};

typedef struct Shard {
    const Graph *g;
    int64_t ranks;
    /* of each value, [values.n] */
    const ShardRule **rule; /* NULL: every rank computes it */
    int64_t *pieces;        /* of the result; 1: it is the same on all ranks */
    int64_t *blocks;        /* of a split value: blocks of columns, of each of which a rank has a piece */
    bool *whole;            /* it cannot be split */
    bool again;             /* one more is whole */
    int64_t *want;          /* pieces that all readers can take; 0: nobody reads it */
    bool *drawn;            /* `sample` alone reads it */
    bool *padded;           /* columns of logits: the last piece may be shorter, the gathered value has no padding */
    Id *gathered;           /* the all_gather of the value in the new graph */
    Id at;                  /* the first value that cannot be cut; 0: all can */
    const char *why;
} Shard;

/* --- what readers can take ------------------------------------------------------------------------- */

static const ShardRule *rule_of(const Value *v, int result)
{
    for (size_t i = 0; i < LEN(rules); i++)
        if (rules[i].op == v->op && (int)rules[i].result == result && (!ir_op_is_norm(v->op) || v->shape.rank == 3))
            return &rules[i];
    return NULL;
}

/* The columns of rows, the heads of [T,H,E]. */
static int64_t columns_of(const Graph *g, Id v)
{
    return ir_value(g, v)->shape.rank > 1 ? ir_value(g, v)->shape.dim[1].n : 1;
}

static void ask(Shard *s, Id v, int64_t pieces, bool padded)
{
    if (!v || ir_op_is_weight(ir_value(s->g, v)->op))
        return;
    if (columns_of(s->g, v) == 1 || s->whole[v]) /* a factor for each row, one head for all */
        pieces = 1;
    if (s->want[v] && (s->want[v] != pieces || s->padded[v] != padded))
        pieces = 1;
    s->want[v] = pieces;
    s->padded[v] = padded && pieces > 1;
}

/* Pieces of keys and values of so many heads. */
static int64_t pieces_of_keys(const Shard *s, int64_t heads)
{
    return heads < s->ranks ? heads : s->ranks;
}

/* Each rank has as many heads of values of a recurrence as others, with the keys that they read. */
static bool recurrence_is_cut(const Shard *s, const Value *v)
{
    const int64_t keys = columns_of(s->g, v->args[0]);

    return v->shape.dim[1].n % s->ranks == 0 && (keys == 1 || keys % s->ranks == 0);
}

static void ask_arguments(Shard *s, Id id)
{
    const Value *v = ir_value(s->g, id);
    const ShardRule *follows = rule_of(v, SPLIT);
    const bool result = id == s->g->output || id == s->g->pooled || id == s->g->states || id == s->g->entry;

    if (result)
        ask(s, id, 1, false);
    for (int i = 0; i < IR_MAX_ARGS && v->args[i]; i++) {
        s->drawn[v->args[i]] = v->op == OP_SAMPLE && (!s->want[v->args[i]] || s->drawn[v->args[i]]);
        if (v->op == OP_SAMPLE || v->op == OP_BEAM)
            ask(s, v->args[i], i ? 1 : s->ranks, i == 0);
        else if (rule_of(v, PARTIAL))
            ask(s, v->args[i], i ? 1 : s->ranks, false);
        else if (v->op == OP_ATTEND)
            ask(s, v->args[i], i ? pieces_of_keys(s, columns_of(s->g, v->args[1])) : s->ranks, false);
        else if (v->op == OP_RECUR && !recurrence_is_cut(s, v))
            ask(s, v->args[i], 1, false);
        else if (!result && follows && follows->args[i] == 'p')
            ask(s, v->args[i], s->want[id] ? s->want[id] : 1, s->padded[id]);
        else
            ask(s, v->args[i], 1, false);
    }
}

/* --- layouts ----------------------------------------------------------------------------------------- */

static void refuse(Shard *s, Id v, const char *why)
{
    if (!s->at) {
        s->at = v;
        s->why = why;
    }
}

/* The largest group of codes of a weight that share a scale; 1: it is not stored as codes. */
static int64_t group_of(const Graph *g, Id w)
{
    const Value *v = ir_value(g, w);
    int64_t most = v->op == OP_WEIGHT && *ir_word(v, "codes") ? ir_int(v, "group") : 1;

    for (int i = 0; i < IR_MAX_ARGS && v->args[i]; i++)
        most = most > group_of(g, v->args[i]) ? most : group_of(g, v->args[i]);
    return most;
}

static bool keeps_blocks(Op op)
{
    return op == OP_ADD || op == OP_MUL || op == OP_SCALE || op == OP_ACT || op == OP_CLAMP || op == OP_XIELU ||
           op == OP_GLU || op == OP_GLU_CLAMPED || op == OP_SCALE_BY_POSITION;
}

/* The blocks of a value's columns, by those of its arguments. An argument whose blocks cannot stay is marked to be whole. */
static int64_t choose_blocks(Shard *s, const Value *v)
{
    int64_t blocks = 1, taken = 1; /* of the columns that it has; of those that it reads split */

    if (v->op == OP_EXPERT_LINEAR || v->op == OP_EXPERT_SUM)
        blocks = ir_value(s->g, v->args[1])->shape.dim[1].n / 2;
    if (v->op == OP_EXPERT_SUM)
        taken = blocks;
    for (int i = 0; keeps_blocks(v->op) && i < IR_MAX_ARGS && v->args[i]; i++) {
        const Id a = v->args[i];

        blocks = s->blocks[a] > blocks ? s->blocks[a] : blocks;
        if (!ir_op_is_weight(ir_value(s->g, a)->op) && columns_of(s->g, a) > 1)
            taken = i == 0 || s->blocks[a] == taken ? s->blocks[a] : 1;
    }
    for (int i = 0; i < IR_MAX_ARGS && v->args[i]; i++)
        if (s->pieces[v->args[i]] > 1 && s->blocks[v->args[i]] != taken)
            s->whole[v->args[i]] = s->again = true;
    return blocks;
}

/* The rule of a value and the pieces of its result, from those of its arguments. */
static void choose_layout(Shard *s, Id id)
{
    const Graph *g = s->g;
    const Value *v = ir_value(g, id);
    const ShardRule *sum = rule_of(v, PARTIAL), *split = rule_of(v, SPLIT);
    int64_t of = 1, blocks;

    s->pieces[id] = 1;
    s->blocks[id] = 1;
    blocks = choose_blocks(s, v);
    if (sum && s->pieces[v->args[0]] == s->ranks) {
        const Id w = v->args[v->op == OP_LINEAR ? 1 : 2];

        if (columns_of(g, w) % s->ranks)
            refuse(s, id, "columns of the weight");
        if (columns_of(g, w) / s->ranks % group_of(g, w))
            refuse(s, id, "elements of its weight that share a scale");
        s->rule[id] = sum;
        return;
    }
    if (v->op == OP_RECUR && !recurrence_is_cut(s, v))
        return;
    if (!split || s->whole[id] || id == g->output || id == g->pooled || id == g->states || id == g->entry)
        return;
    if (v->op == OP_ATTEND) {
        const int64_t heads = columns_of(g, v->args[1]), kv = pieces_of_keys(s, heads);

        if (heads % kv || s->ranks % kv)
            refuse(s, id, "heads of keys");
        of = s->ranks;
    } else if (v->op == OP_LINEAR || v->op == OP_EXPERT_LINEAR || v->op == OP_CACHE || v->op == OP_CROSS_CACHE) {
        of = s->want[id];
    } else {
        for (int i = 0; i < IR_MAX_ARGS && v->args[i]; i++)
            of = s->pieces[v->args[i]] > of ? s->pieces[v->args[i]] : of;
    }
    if (of <= 1)
        return;
    if (!s->padded[id] && columns_of(g, id) / (v->op == OP_EXPERT_LINEAR ? blocks : 1) % of)
        refuse(s, id, v->shape.rank == 3 ? "heads" : "columns");
    s->rule[id] = split;
    s->pieces[id] = of;
    s->blocks[id] = blocks;
}

static void choose_layouts(Shard *s, const Graph *g, int64_t ranks)
{
    const size_t n = g->values.n;
    Arena *a = g->scratch;

    *s = (Shard){.g = g,
                 .ranks = ranks,
                 .rule = arena_array(a, const ShardRule *, n),
                 .pieces = arena_array(a, int64_t, n),
                 .blocks = arena_array(a, int64_t, n),
                 .whole = arena_array(a, bool, n),
                 .want = arena_array(a, int64_t, n),
                 .drawn = arena_array(a, bool, n),
                 .padded = arena_array(a, bool, n),
                 .gathered = arena_array(a, Id, n)};
    do { /* as often as a value is found that must be whole */
        s->again = false;
        s->at = 0;
        memset(s->rule, 0, n * sizeof *s->rule);
        memset(s->want, 0, n * sizeof *s->want);
        memset(s->drawn, 0, n * sizeof *s->drawn);
        memset(s->padded, 0, n * sizeof *s->padded);
        for (Id v = (Id)n - 1; v > 0; v--)
            ask_arguments(s, v);
        for (Id v = 1; v < n; v++)
            choose_layout(s, v);
    } while (s->again);
}

/* --- the new graph ----------------------------------------------------------------------------------- */

static Id make_part(Rewrite *r, Id w, int64_t dim, int64_t of, int64_t stack, bool first)
{
    Attr attrs[4];
    uint32_t n = 0;

    if (of == 1)
        return r->map[w];
    if (dim)
        attrs[n++] = (Attr){.name = "dim", .kind = ATTR_INT, .i = dim};
    if (first)
        attrs[n++] = (Attr){.name = "first", .kind = ATTR_INT, .i = 1};
    attrs[n++] = (Attr){.name = "of", .kind = ATTR_INT, .i = of};
    if (stack > 1)
        attrs[n++] = (Attr){.name = "stack", .kind = ATTR_INT, .i = stack};
    return rewrite_make(r, OP_PART, r->map[w], 0, 0, attrs, n, rewrite_old(r, w)->loc);
}

/* The whole value on every rank; for `sample` what it needs of it. */
static Id gathered(Rewrite *r, const Shard *s, Id v)
{
    const Attr columns = {.name = "columns", .kind = ATTR_INT, .i = columns_of(s->g, v)};

    if (s->pieces[v] == 1)
        return r->map[v];
    if (!s->gathered[v])
        s->gathered[v] = rewrite_make(r, s->drawn[v] ? OP_GATHER_LOGITS : OP_ALL_GATHER, r->map[v], 0, 0, &columns, 1,
                                      rewrite_old(r, v)->loc);
    return s->gathered[v];
}

/* Argument i of a value in the layout that its rule asks for. */
static Id argument(Rewrite *r, const Shard *s, Id id, int i)
{
    const Value *v = rewrite_old(r, id);
    const Id a = v->args[i];
    const bool weight = a && ir_op_is_weight(rewrite_old(r, a)->op), experts = v->op == OP_EXPERT_LINEAR;
    const char layout = s->rule[id] ? s->rule[id]->args[i] : weight ? 'w' : 's';
    const int64_t of =
        v->op == OP_ATTEND && (i == 1 || i == 2) ? pieces_of_keys(s, columns_of(s->g, v->args[1])) : s->pieces[id];
    const Attr pieces = {.name = "of", .kind = ATTR_INT, .i = of};

    if (!a || layout == 'w' || (layout == 'h' && rewrite_old(r, a)->shape.rank == 1))
        return a ? r->map[a] : 0;
    if (layout == 'c' || layout == 'f')
        return make_part(r, a, layout == 'c', s->ranks, 1, layout == 'f');
    if (weight)
        return make_part(r, a, 0, of, experts ? ir_int(v, "experts") : s->blocks[id], false);
    if (layout == 's' || columns_of(s->g, a) == 1)
        return gathered(r, s, a);
    if (s->pieces[a] == of || (s->rule[id]->result == PARTIAL && s->pieces[a] == s->ranks) || of == 1)
        return r->map[a];
    return rewrite_make(r, OP_RANK_SLICE, gathered(r, s, a), 0, 0, &pieces, 1, v->loc);
}

/* Each rank has its rows of the table, unless it is so small that all of it costs less than an exchange, or positions or
 * types are added to its rows, which one kernel does. */
static bool embedding_is_cut(const Graph *g, const Value *v)
{
    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == OP_POSITIONS || ir_value(g, id)->op == OP_TYPES)
            return false;
    return ir_shape_elements(ir_value(g, v->args[1])->shape, 1, 1) >= WHOLE_EMBEDDING;
}

static Id cut_embedding(Rewrite *r, const Shard *s, const Value *v)
{
    const Id w = make_part(r, v->args[1], 0, s->ranks, 1, false);
    const Id part = rewrite_make(r, OP_EMBED_PART, r->map[v->args[0]], w, 0, NULL, 0, v->loc);

    ir_value(r->now, part)->type = v->type; /* not that of the ids */
    return rewrite_make(r, OP_ALL_REDUCE, part, 0, 0, NULL, 0, v->loc);
}

static Id shard_value(Rewrite *r, Id id)
{
    const Shard *s = r->user;
    const Value *v = rewrite_old(r, id);
    Id args[IR_MAX_ARGS], made;
    Attr attrs[16];
    bool other = s->rule[id] != NULL;

    if (ir_op_is_weight(v->op))
        return 0;
    if (v->op == OP_EMBED && embedding_is_cut(s->g, v))
        return cut_embedding(r, s, v);
    for (int i = 0; i < IR_MAX_ARGS; i++) {
        args[i] = v->args[i] ? argument(r, s, id, i) : 0;
        other |= args[i] != r->map[v->args[i]];
    }
    if (!other)
        return 0;
    for (uint32_t i = 0; i < v->n_attrs; i++) {
        attrs[i] = v->attrs[i];
        if (v->op == OP_SPLIT_HEADS && strcmp(attrs[i].name, "heads") == 0)
            attrs[i].i /= s->pieces[id];
    }
    made = rewrite_add(r, v->op, args, attrs, v->n_attrs, v->loc);
    return s->rule[id] && s->rule[id]->result == PARTIAL ? rewrite_make(r, OP_ALL_REDUCE, made, 0, 0, NULL, 0, v->loc)
                                                         : made;
}

/* "2, 4": the numbers of ranks into which the graph can be cut. */
static const char *numbers_that_work(const Graph *g)
{
    const char *list = "";
    Shard s;

    for (int64_t n = 2; n <= FTX_MAX_RANKS; n++) {
        choose_layouts(&s, g, n);
        if (!s.at)
            list = arena_printf(g->scratch, "%s%s%lld", list, *list ? ", " : "", (long long)n);
    }
    return *list ? list : "none above 1";
}

bool pass_shard(Graph *g, const Precision *p, Diag *d)
{
    Shard s;

    (void)p;
    if (ir_ranks(g) == 1)
        return true;
    choose_layouts(&s, g, ir_ranks(g));
    if (s.at) {
        const Value *v = ir_value(g, s.at);

        return diag_error(d, v->loc, "parallel is %lld, which does not divide the %s of %s %s; numbers that work: %s",
                          (long long)s.ranks, s.why, ir_op_name(v->op), ir_shape_text(g->scratch, v->shape),
                          numbers_that_work(g));
    }
    rewrite_run_with(g, shard_value, &s);
    return true;
}
