/* beam.c - one step of beam search: of all continuations of a search's lanes the best, as in Hugging Face's generate
 * (kernels/ref/beam.c has it in plain loops).
 *
 * A group is one search: `width` neighbouring rows, one a lane; in the step that ends the prompt only the row of lane 0.
 * Of each row the best width + ends continuations are found, more are never needed. The thread that finishes the group's
 * last row merges them. The best that do not end become the lanes of the next step. No keys and values are copied for
 * that; a table says where each position of a lane is, and a lane takes over its parent's row of it:
 *
 *   owner[slot][p], p >= prompt    the slot whose pages and history hold position p of this lane
 *
 * Continuations that end become hypotheses, one a slot, ids in hyps, scores in lanes, until the host fetches them. A
 * subgroup is a diverse group of lanes; without diversity there is one, of all lanes.
 *
 *   x [S,V] fp32, read only. s [S]: what `sample` chose for rows that are no search; copied to y.
 *   z [S,V] fp32: processed log-probabilities. past [S,CONTEXT]: all ids of a lane in their order. */
//@ kernel  beam
//@ rank    70
//@ args    x[S,V] s $rows $params $beams $ends $bias $bad_words $token $history $owner $group $lanes $hyps $logps $out -> y
//@ match   y = beam(x, s)
//@ consts  V: V  CONTEXT: CONTEXT  SEQUENCES: SEQUENCES  ENDS: END_IDS  BIAS: LOGIT_BIAS  WIDTH: BEAMS  WORDS: BAD_WORDS
//@ scratch z 4 * S_MAX * V
//@ scratch past 4 * S_MAX * CONTEXT
//@ scratch best 8 * S_MAX * (WIDTH + ENDS + 1)
//@ zeroed  marks 4 * S_MAX * V
//@ zeroed  arrived 4 * S_MAX
//@ moves   8 * S * V
#ifndef LEVEL
#define BODY "beam.c"
#include "each.h"
#else

#include "tail.h"

#ifndef BEAM_ONCE
#define BEAM_ONCE
enum { BEAM_MAX_WIDTH = 64 };

/* A continuation. Those of a row are in order, id -1 behind the last. The row's very last entry is its shift, in
 * `total`: log-probability = logit + shift. */
typedef struct BeamBest {
    float total;
    int32_t id;
} BeamBest;

typedef struct BeamArgs {
    const float *x;
    FtxRow *rows;
    const FtxParams *params;
    const FtxBeam *beams;
    const int32_t *ends;
    const FtxBias *bias;
    const int32_t *bad_words;
    FtxToken *token;
    const int32_t *history;
    int32_t *owner;
    const int32_t *group;
    FtxLane *lanes;
    int32_t *hyps;
    float *logps;
    FtxOut *out;
    int32_t *y;
    float *z;
    int32_t *past;
    BeamBest *best;
    uint32_t *marks;
    int32_t *arrived;
    int64_t V, context, sequences, n_ends, n_bias, width, n_words,
        each; /* entries of a row in `best`, the shift included */
} BeamArgs;

/* A search in this step. */
typedef struct BeamGroup {
    int64_t row; /* of lane 0 */
    const FtxBeam *beam;
    const int32_t *slots; /* of the lanes */
    int length, prompt, limit;
    int lanes; /* lanes that have a row: 1 in the step that ends the prompt */
} BeamGroup;

static BeamArgs beam_args(const CpuCall *c)
{
    BeamArgs a = {c->arg[0],
                  c->arg[2],
                  c->arg[3],
                  c->arg[4],
                  c->arg[5],
                  c->arg[6],
                  c->arg[7],
                  c->arg[8],
                  c->arg[9],
                  c->arg[10],
                  c->arg[11],
                  c->arg[12],
                  c->arg[13],
                  c->arg[14],
                  c->arg[15],
                  c->arg[16],
                  c->arg[17],
                  c->arg[18],
                  c->arg[19],
                  c->arg[20],
                  c->arg[21],
                  c->k[BEAM_V],
                  c->k[BEAM_CONTEXT],
                  c->k[BEAM_SEQUENCES],
                  c->k[BEAM_ENDS],
                  c->k[BEAM_BIAS],
                  c->k[BEAM_WIDTH],
                  c->k[BEAM_WORDS],
                  0};

    a.each = a.width + a.n_ends + 1;
    return a;
}

static BeamGroup beam_group(const BeamArgs *a, int64_t s)
{
    const int64_t row = a->rows[s].group;
    const FtxRow *r = &a->rows[row];

    return (BeamGroup){.row = row,
                       .beam = &a->beams[row],
                       .slots = a->group + r->slot * a->width,
                       .length = r->kv_len,
                       .prompt = r->prompt,
                       .limit = r->limit,
                       .lanes = r->kv_len == r->prompt ? 1 : a->beams[row].width};
}

/* Lanes [first, first + size): a diverse group, or all lanes. */
typedef struct BeamSubgroup {
    int first, size;
} BeamSubgroup;

/* The only id that may follow; -1: any. */
static int32_t beam_forced(const BeamGroup *g)
{
    if (g->beam->forced_bos >= 0 && g->length == g->prompt)
        return g->beam->forced_bos;
    return g->length + 1 == g->limit ? g->beam->forced_eos : -1;
}

/* The ids of a lane's sequence from position `from` on, in order. */
static void beam_past(const BeamArgs *a, const BeamGroup *g, int slot, int from, int32_t *to)
{
    const int32_t *owner = a->owner + slot * a->context;

    for (int p = from; p < g->length; p++)
        to[p - from] = a->history[(p < g->prompt ? g->slots[0] : owner[p]) * a->context + p];
}

/* The log-probability of an id after a row, under the raw logits. */
static float beam_logp(const BeamArgs *a, const BeamGroup *g, int row, int32_t id)
{
    return a->x[(g->row + row) * a->V + id] + a->best[(g->row + row + 1) * a->each - 1].total;
}

static int beam_ends(const BeamArgs *a, const BeamGroup *g, int32_t id)
{
    for (int i = 0; i < a->params[g->row].n_ends; i++)
        if (a->ends[g->row * a->n_ends + i] == id)
            return 1;
    return 0;
}

/* Stores a hypothesis of a subgroup in a free place, or in place of a worse one. */
static void beam_keep(const BeamArgs *a, const BeamGroup *g, const BeamSubgroup *sub, int parent, const BeamBest *b,
                      int end)
{
    const int n = g->length + 1 - g->prompt;
    const float score = b->total / __builtin_powf((float)n, g->beam->length_penalty);
    const int32_t *owner = a->owner + g->slots[parent] * a->context;
    FtxLane *worst = NULL;
    int32_t *ids = NULL;
    float *logps = NULL;

    if (b->total == -__builtin_inff())
        return;
    for (int i = sub->first; i < sub->first + sub->size; i++) {
        FtxLane *l = &a->lanes[g->slots[i]];

        if (worst && (worst->hyp_length == 0 || (l->hyp_length && l->hyp_score >= worst->hyp_score)))
            continue;
        worst = l;
        ids = a->hyps + g->slots[i] * a->context;
        logps = a->logps + (a->sequences + g->slots[i]) * a->context;
    }
    if (worst->hyp_length && worst->hyp_score >= score)
        return;
    worst->hyp_score = score;
    worst->hyp_sum = b->total;
    worst->hyp_length = n;
    worst->hyp_end = end;
    beam_past(a, g, g->slots[parent], g->prompt, ids);
    ids[n - 1] = b->id;
    for (int p = g->prompt; p < g->length; p++)
        logps[p - g->prompt] = a->logps[owner[p] * a->context + p];
    logps[n - 1] = beam_logp(a, g, parent, b->id);
}

/* Whether a subgroup is over; best: the total of its best running lane. */
static int beam_over(const BeamArgs *a, const BeamGroup *g, const BeamSubgroup *sub, float best)
{
    const FtxBeam *b = g->beam;
    const int far = b->early == 2 && b->length_penalty > 0.0f;
    const int n = (far ? g->limit : g->length + 1) - g->prompt;
    float worst = __builtin_inff();
    int found = 0;

    for (int i = sub->first; i < sub->first + sub->size; i++) {
        const FtxLane *l = &a->lanes[g->slots[i]];

        if (!l->hyp_length)
            continue;
        found++;
        worst = l->hyp_score < worst ? l->hyp_score : worst;
    }
    return g->length + 1 >= g->limit || (b->early == 1 && found == sub->size) ||
           !(best / __builtin_powf((float)n, b->length_penalty) > (found == sub->size ? worst : -1e9f));
}

/* How the best hypothesis ends: 1 with an end id, else 2. */
static int beam_finish(const BeamArgs *a, const BeamGroup *g)
{
    const FtxLane *first = NULL;

    for (int i = 0; i < g->beam->width; i++) {
        const FtxLane *l = &a->lanes[g->slots[i]];

        if (l->hyp_length && (!first || l->hyp_score > first->hyp_score))
            first = l;
    }
    return first && first->hyp_end ? 1 : 2;
}

/* Lane i goes on from parent[i] with next[i]: its owners are the parent's, the new position is its own. */
static void beam_permute(const BeamArgs *a, const BeamGroup *g, const int *parent, const BeamBest *next)
{
    int32_t from[BEAM_MAX_WIDTH];

    for (int p = g->prompt; p < g->length; p++) {
        for (int i = 0; i < g->beam->width; i++)
            from[i] = a->owner[g->slots[parent[i]] * a->context + p];
        for (int i = 0; i < g->beam->width; i++)
            a->owner[g->slots[i] * a->context + p] = from[i];
    }
    for (int i = 0; i < g->beam->width; i++) {
        a->owner[g->slots[i] * a->context + g->length] = g->slots[i];
        a->logps[g->slots[i] * a->context + g->length] = beam_logp(a, g, parent[i], next[i].id);
    }
}

static void beam_publish(const BeamArgs *a, const BeamGroup *g, const BeamBest *next, int done, int broken)
{
    FtxOut *o = &a->out[(g->length % FTX_OUT_RING) * a->sequences + g->row];

    for (int i = 0; i < g->beam->width; i++) {
        FtxLane *l = &a->lanes[g->slots[i]];

        l->score = next[i].total;
        l->token = next[i].id;
        if (i >= g->lanes)
            continue; /* the lane has no row yet: row + i is another sequence's */
        a->y[g->row + i] = next[i].id;
        if (done) {
            a->rows[g->row + i].done = 1;
        } else {
            a->token[g->row + i] = (FtxToken){next[i].id, g->length, (int)g->row + i, g->slots[i]};
            a->rows[g->row + i].kv_len = g->length + 1;
        }
    }
    o->token = broken ? -1 : next[0].id;
    o->logprob = next[0].total;
    o->finish = done ? beam_finish(a, g) : 0;
    __atomic_store_n(&o->length, g->length, __ATOMIC_RELEASE);
}

/* --- merging rows ------------------------------------------------------------------------------ */

/* Where a merge of rows stands in one of them: its entries are taken best first. */
typedef struct BeamHead {
    int at;     /* entries before it are taken */
    int best;   /* index of the best that is not taken; -1: none */
    float left; /* its total less the diversity penalty */
    float last; /* the same of the entry taken last, and its id */
    int32_t last_id;
} BeamHead;

typedef struct BeamChoice {
    BeamBest next[BEAM_MAX_WIDTH]; /* by lane; total -inf: the lane does not run */
    int parent[BEAM_MAX_WIDTH];
} BeamChoice;

/* The total of a continuation less the diversity penalty: `diversity` for each lane of an earlier subgroup that takes
 * its id in this step. Called several times for one entry, with equal results each time: fmaf leaves the compiler no
 * choice of contraction. */
static float beam_left(const BeamGroup *g, const BeamSubgroup *sub, const BeamChoice *c, const BeamBest *b)
{
    int n = 0;

    for (int i = 0; i < sub->first; i++)
        n += c->next[i].total > -__builtin_inff() && c->next[i].id == b->id;
    return n && beam_forced(g) < 0 ? __builtin_fmaf(-g->beam->diversity, (float)n, b->total) : b->total;
}

static int beam_behind(const BeamHead *h, float left, int32_t id)
{
    return left < h->last || (left == h->last && id > h->last_id);
}

/* The row's best entry after the one taken last. Entries are sorted by their totals, which the penalty only lowers: the
 * scan stops at the first total below the best found. */
static void beam_find(const BeamArgs *a, const BeamGroup *g, const BeamSubgroup *sub, const BeamChoice *c, int row,
                      BeamHead *h)
{
    const BeamBest *b = a->best + (g->row + row) * a->each;
    const int n = g->beam->width + a->params[g->row].n_ends;

    while (h->at < n && b[h->at].id >= 0 && !beam_behind(h, beam_left(g, sub, c, &b[h->at]), b[h->at].id))
        h->at++;
    h->best = -1;
    for (int i = h->at; i < n && b[i].id >= 0 && !(h->best >= 0 && b[i].total < h->left); i++) {
        const float left = beam_left(g, sub, c, &b[i]);

        if (!beam_behind(h, left, b[i].id) ||
            (h->best >= 0 && (left < h->left || (left == h->left && b[i].id > b[h->best].id))))
            continue;
        h->best = i;
        h->left = left;
    }
}

/* The next lanes and new hypotheses of one subgroup; whether there was any continuation. */
static int beam_choose(const BeamArgs *a, const BeamGroup *g, const BeamSubgroup *sub, BeamChoice *c)
{
    const int last = g->length + 1 >= g->limit, rows = g->lanes == 1 ? 1 : sub->size;
    const int from = g->lanes == 1 ? 0 : sub->first;
    BeamHead head[BEAM_MAX_WIDTH];
    int running = 0, rank = 0;

    for (int i = 0; i < rows; i++) {
        head[i] = (BeamHead){.last = __builtin_inff()};
        beam_find(a, g, sub, c, from + i, &head[i]);
    }
    for (; running < sub->size || rank < sub->size; rank++) {
        BeamHead *h = NULL;
        int row = 0;

        for (int i = 0; i < rows; i++)
            if (head[i].best >= 0 && (!h || head[i].left > h->left)) {
                h = &head[i];
                row = from + i;
            }
        if (!h)
            break;

        const BeamBest best = {h->left, a->best[(g->row + row) * a->each + h->best].id};
        const int end = beam_ends(a, g, best.id);

        if ((last || end) && rank < sub->size)
            beam_keep(a, g, sub, row, &best, end);
        if (!end && running < sub->size) {
            c->parent[sub->first + running] = row;
            c->next[sub->first + running++] = best;
        }
        h->last = best.total;
        h->last_id = best.id;
        beam_find(a, g, sub, c, row, h);
    }
    for (; running < sub->size; running++) { /* fewer continuations than lanes */
        c->parent[sub->first + running] = 0;
        c->next[sub->first + running] = (BeamBest){-__builtin_inff(), 0};
    }
    return rank > 0;
}

/* Merges the best of all rows of the group; subgroups choose one after another. A subgroup that is over stops here: its
 * lanes counted for the penalty of later subgroups in this step. */
static void beam_merge(const BeamArgs *a, const BeamGroup *g)
{
    const int subgroups = g->beam->groups > 1 ? g->beam->groups : 1, size = g->beam->width / subgroups;
    BeamChoice c;
    int found = 0, done = 1;

    if (g->lanes == 1)
        for (int i = 0; i < g->beam->width; i++)
            a->lanes[g->slots[i]].hyp_length = 0;
    for (int k = 0; k < subgroups; k++)
        found |= beam_choose(a, g, &(BeamSubgroup){k * size, size}, &c);
    for (int k = 0; k < subgroups; k++) {
        const BeamSubgroup sub = {k * size, size};

        if (!beam_over(a, g, &sub, c.next[sub.first].total))
            done = 0;
        else if (subgroups > 1)
            for (int i = sub.first; i < sub.first + size; i++)
                c.next[i].total = -__builtin_inff();
    }
    beam_permute(a, g, c.parent, c.next);
    beam_publish(a, g, c.next, done, !found);
}
#endif

/* The at most n best of z[i], best first, then id -1; their totals are score + (z[i] + shift). */
static void AT(beam_top)(const float *z, int64_t V, float shift, float score, BeamBest *best, int64_t n)
{
    float low = -__builtin_inff();
    int64_t have = 0;

    for (int64_t base = 0; base < V; base += LANES) {
        const int64_t lanes = V - base < LANES ? V - base : LANES;

        if (lanes == LANES && !AT(sample_any)(vload(z + base), low))
            continue;
        for (int64_t i = base; i < base + lanes; i++) {
            int64_t at = have;

            if (!(z[i] > low))
                continue;
            for (at = have < n ? have++ : n - 1; at > 0 && best[at - 1].total < z[i]; at--)
                best[at] = best[at - 1];
            best[at] = (BeamBest){z[i], (int32_t)i};
            if (have == n)
                low = best[n - 1].total;
        }
    }
    for (int64_t i = 0; i < have; i++)
        best[i].total = score + (best[i].total + shift);
    if (have < n)
        best[have].id = -1;
}

static void AT(beam_row)(const BeamArgs *a, const BeamGroup *g, int64_t s)
{
    const float *x = a->x + s * a->V;
    const FtxRow *row = &a->rows[s];
    const int64_t lane = s - g->row, n = g->beam->width + a->params[g->row].n_ends;
    const float score = g->lanes == 1 ? 0.0f : a->lanes[g->slots[lane]].score;
    const int32_t forced = beam_forced(g);
    BeamBest *best = a->best + s * a->each;
    int64_t where;
    const float max = AT(sample_max)(x, a->V, &where);
    const float shift = (float)-AT(sample_logsumexp)(x, a->V, max);

    best[a->each - 1].total = shift;
    best[0].id = -1;
    if (score == -__builtin_inff() || !(shift - shift == 0.0f)) /* the lane does not run, or shift is not finite */
        return;
    if (forced >= 0) {
        best[0] = (BeamBest){score, forced};
        best[1].id = -1;
    } else if (a->params[g->row].simple) {
        AT(beam_top)(x, a->V, shift, score, best, n);
    } else {
        SampleRow r = {.z = a->z + s * a->V,
                       .marks = a->marks + s * a->V,
                       .row = row,
                       .p = &a->params[g->row],
                       .ends = a->ends + g->row * a->n_ends,
                       .bias = a->bias + g->row * a->n_bias,
                       .bad_words = a->bad_words + g->slots[0] * a->n_words,
                       .history = a->past + s * a->context,
                       .V = a->V};

        for (int64_t i = 0; i < a->V; i++)
            r.z[i] = x[i] + shift;
        beam_past(a, g, row->slot, 0, a->past + s * a->context);
        sample_penalties(&r);
        AT(beam_top)(r.z, a->V, 0.0f, score, best, n);
    }
}

void AT(beam)(const CpuCall *c)
{
    const BeamArgs a = beam_args(c);
    const int32_t *sampled = c->arg[1];
    int64_t first, last;

    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++) {
        const FtxRow *row = &a.rows[s];

        if (!a.beams[s].width) {
            a.y[s] = sampled[s];
            continue;
        }
        if (!a.beams[s].emit || row->done)
            continue;

        const BeamGroup g = beam_group(&a, s);

        AT(beam_row)(&a, &g, s);
        if (__atomic_add_fetch(&a.arrived[g.row], 1, __ATOMIC_ACQ_REL) < g.lanes)
            continue;
        a.arrived[g.row] = 0;
        beam_merge(&a, &g);
    }
}
#endif
