/* attend_paged.c - causal attention of this step's tokens over the paged cache: decode rows and prompt chunks alike,
 * grouped queries, sliding window, soft cap.
 *
 *   q [T,H,E], y [T,H*E] fp32; k, v [page][G][BLOCK][E] of type KV (cached.h)
 *   y[t,h] = sum_j softmax_j(cap(scale * q[t,h] . k[j])) v[j],  j <= pos(t), j > pos(t) - window
 *
 * A piece of work is a few query vectors that read the same keys: the heads of one group for one or more neighbouring
 * tokens. It goes through its keys in blocks of ATTEND_KEYS with online softmax (Milakov & Gimelshein 2018). Rows of K
 * and V that are fp32 and whole vectors are read in place, others are converted into a buffer first.
 *
 * Blocks begin at multiples of ATTEND_KEYS, spans at multiples of SPAN positions. Each span has its own (max, sum,
 * value), and these are merged in order, so the bits of a result depend on the position alone. Where there are fewer
 * pieces than threads (decode rows only), the spans of a piece go to several threads; the last to finish merges them.
 *
 * A lane of a beam search reads positions of the prompt from lane 0's pages, later ones from the pages of the slot that
 * owns them: each position is looked up. */
//@ kernel  attend_paged
//@ rank    60
//@ args    q[T,H,E] $rows $pages $k $v $owner -> y
//@ match   y = attend_paged(q, _?)
//@ consts  H: H  G: attend_paged.kv_heads  E: E
//@ consts  SCALE: attend_paged.scale  WINDOW: attend_paged.window  SOFTCAP: attend_paged.softcap
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ consts  SPAN: round_up(max(256, ceil_div(CONTEXT, 32)), 32)
//@ consts  SPANS: ceil_div(CONTEXT, SPAN)  LENGTH: CONTEXT  BEAM: BEAMS
//@ fits    E <= 256
//@ scratch parts 16 * SPANS * min(ceil_div(H, G), 16) * (E + 2) * 4
//@ zeroed  ready 64
#ifndef LEVEL
#define BODY "attend_paged.c"
#include "each.h"
#else

#include "cached.h"

#ifndef ATTEND_ONCE
#define ATTEND_ONCE
enum {
    ATTEND_KEYS = 32,        /* of a block: 8 KB of keys at head_dim 64 */
    ATTEND_MAX_VECTORS = 16, /* query vectors of a piece of work */
    ATTEND_MAX_HEAD_DIM = 256,
    ATTEND_MAX_SPLIT = 16, /* pieces whose spans may go to several threads; as in the contract's scratch and zeroed */
};

typedef struct AttendArgs {
    const float *q;
    const FtxRow *rows;
    const int32_t *pages;
    const char *k, *v;
    const int32_t *owner; /* NULL: no beam search */
    float *y, *parts;
    int *ready;
    int64_t H, G, E, window, block, pages_of, kv, span, spans, context;
    float scale, softcap;
    int64_t group, heads_at_once, tokens_at_once;
} AttendArgs;

/* The query vectors [i0, i1) x [h0, h1): tokens of a row and heads of kv head g. */
typedef struct AttendPiece {
    int64_t row, g, i0, i1, h0, h1;
} AttendPiece;
#endif

typedef struct AT(AttendState) {
    float max[ATTEND_MAX_VECTORS], sum[ATTEND_MAX_VECTORS];
    float value[ATTEND_MAX_VECTORS][ATTEND_MAX_HEAD_DIM];
} AT(AttendState);

typedef struct AT(AttendWork) {
    float q[ATTEND_MAX_VECTORS][ATTEND_MAX_HEAD_DIM]; /* times scale, padded with zeros */
    int64_t pos[ATTEND_MAX_VECTORS];
    int64_t n, E, vectors; /* query vectors; head_dim, and in whole vectors */
    float score[ATTEND_MAX_VECTORS][ATTEND_KEYS];
    const float *key[ATTEND_KEYS], *val[ATTEND_KEYS];
    float wide_k[ATTEND_KEYS][ATTEND_MAX_HEAD_DIM], wide_v[ATTEND_KEYS][ATTEND_MAX_HEAD_DIM];
} AT(AttendWork);

#define ATTEND_TILE (TILE_ROWS == 6 ? 4 : 2)

/* score[q0..q0+rows) x [j..j+4) */
ALWAYS_INLINE void AT(attend_scores)(int rows, AT(AttendWork) * w, int64_t q0, int64_t j)
{
    Vf sum[4][4];

#pragma GCC unroll 4
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++)
            sum[m][n] = vset(0.0f);
    for (int64_t e = 0; e < w->vectors * LANES; e += LANES) {
        Vf key[4];
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++)
            key[n] = vload(w->key[j + n] + e);
#pragma GCC unroll 4
        for (int m = 0; m < rows; m++) {
            const Vf q = vload(w->q[q0 + m] + e);
#pragma GCC unroll 4
            for (int n = 0; n < 4; n++)
                sum[m][n] += q * key[n];
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < rows; m++) {
        const Quad s = vsum4(sum[m][0], sum[m][1], sum[m][2], sum[m][3]);

        memcpy(&w->score[q0 + m][j], &s, sizeof s);
    }
}

/* value[q0..q0+rows)[e..e+LANES*wide) += score . v over n keys */
ALWAYS_INLINE void AT(attend_values)(int rows, int wide, const AT(AttendWork) * w, AT(AttendState) * st, int64_t q0,
                                     int64_t e, int64_t n)
{
    Vf sum[4][4];

#pragma GCC unroll 4
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++)
            sum[m][i] = vload(st->value[q0 + m] + e + i * LANES);
    for (int64_t j = 0; j < n; j++) {
        Vf v[4];
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++)
            v[i] = vload(w->val[j] + e + i * LANES);
#pragma GCC unroll 4
        for (int m = 0; m < rows; m++) {
            const Vf p = vset(w->score[q0 + m][j]);
#pragma GCC unroll 4
            for (int i = 0; i < wide; i++)
                sum[m][i] += p * v[i];
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++)
            vstore(st->value[q0 + m] + e + i * LANES, sum[m][i]);
}

#define ATTEND_ROWS(rows, EACH) \
    switch (rows) { \
    case 1: EACH(1); break; \
    case 2: EACH(2); break; \
    case 3: EACH(3); break; \
    default: EACH(4); break; \
    }

static void AT(attend_all_scores)(AT(AttendWork) * w, int64_t keys)
{
    for (int64_t q = 0; q < w->n; q += ATTEND_TILE) {
        const int64_t rows = w->n - q < ATTEND_TILE ? w->n - q : ATTEND_TILE;

        for (int64_t j = 0; j < keys; j += 4) {
#define ATTEND_CALL(n) AT(attend_scores)(n, w, q, j)
            ATTEND_ROWS(rows, ATTEND_CALL)
#undef ATTEND_CALL
        }
    }
}

static void AT(attend_all_values)(const AT(AttendWork) * w, AT(AttendState) * st, int64_t keys)
{
    for (int64_t q = 0; q < w->n; q += ATTEND_TILE) {
        const int64_t rows = w->n - q < ATTEND_TILE ? w->n - q : ATTEND_TILE;
        int64_t i = 0;

        for (; i + 4 <= w->vectors; i += 4) {
#define ATTEND_CALL(n) AT(attend_values)(n, 4, w, st, q, i * LANES, keys)
            ATTEND_ROWS(rows, ATTEND_CALL)
#undef ATTEND_CALL
        }
        for (; i < w->vectors; i++) {
#define ATTEND_CALL(n) AT(attend_values)(n, 1, w, st, q, i * LANES, keys)
            ATTEND_ROWS(rows, ATTEND_CALL)
#undef ATTEND_CALL
        }
    }
}
#undef ATTEND_ROWS

/* The page of position p of a row. */
ALWAYS_INLINE int64_t AT(attend_page)(const AttendArgs *a, const FtxRow *row, int64_t p)
{
    int64_t slot = row->slot;

    if (a->owner && row->lane >= 0)
        slot = p < row->prompt ? a->rows[row->group].slot : a->owner[slot * a->context + p];
    return a->pages[slot * a->pages_of + p / a->block];
}

/* Pointers to keys and values [j0, j0 + n); the last key is repeated up to a multiple of four. */
static void AT(attend_gather)(const AttendArgs *a, AT(AttendWork) * w, const FtxRow *row, int64_t g, int64_t j0,
                              int64_t n)
{
    const int64_t rows = a->G * a->block, page_bytes = cached_page_bytes(rows, a->kv, a->E);
    const int direct = a->kv == CPU_FP32 && a->E % LANES == 0;
    const int lone = a->owner && row->lane >= 0; /* neighbours may be in different pages */
    int64_t j = 0;

    while (j < n) {
        const int64_t at = j0 + j, in_page = at % a->block;
        const int64_t whole = a->block - in_page < n - j ? a->block - in_page : n - j;
        const int64_t here = lone && at >= row->prompt          ? 1
                             : lone && at + whole > row->prompt ? row->prompt - at
                                                                : whole;
        const int64_t page = AT(attend_page)(a, row, at) * page_bytes, first = g * a->block + in_page;

        for (int64_t i = 0; i < here; i++, j++) {
            if (direct) {
                w->key[j] = (const float *)(a->k + page) + (first + i) * a->E;
                w->val[j] = (const float *)(a->v + page) + (first + i) * a->E;
            } else {
                AT(cached_get)(w->wide_k[j], a->k + page, rows, first + i, a->kv, a->E);
                AT(cached_get)(w->wide_v[j], a->v + page, rows, first + i, a->kv, a->E);
                w->key[j] = w->wide_k[j];
                w->val[j] = w->wide_v[j];
            }
        }
    }
    for (; j % 4; j++)
        w->key[j] = w->key[n - 1];
}

/* Adds one block of keys [j0, j0 + n) to the state: mask, running maximum, exponentials, values. */
static void AT(attend_block)(const AttendArgs *a, AT(AttendWork) * w, AT(AttendState) * st, int64_t j0, int64_t n)
{
    AT(attend_all_scores)(w, n);
    for (int64_t q = 0; q < w->n; q++) {
        float *s = w->score[q];
        const int64_t last = w->pos[q] - j0; /* the last key this query sees, in the block */
        const int64_t first = a->window && last - a->window + 1 > 0 ? last - a->window + 1 : 0;
        Vf top = vset(-__builtin_inff());

        if (a->softcap > 0.0f)
            for (int64_t j = 0; j < ATTEND_KEYS; j += LANES)
                vstore(s + j, vtanh(vload(s + j) / a->softcap) * a->softcap);
        for (int64_t j = 0; j < first && j < ATTEND_KEYS; j++)
            s[j] = -__builtin_inff();
        for (int64_t j = last + 1 < n ? (last < -1 ? 0 : last + 1) : n; j < ATTEND_KEYS; j++)
            s[j] = -__builtin_inff();
        for (int64_t j = 0; j < ATTEND_KEYS; j += LANES)
            top = vmax(top, vload(s + j));

        const float block_max = vmax_of(top);
        const float max = block_max > st->max[q] ? block_max : st->max[q];

        if (max == -__builtin_inff()) { /* the query has seen no key yet */
            memset(s, 0, ATTEND_KEYS * sizeof *s);
            continue;
        }
        Vf sum = {0};

        for (int64_t j = 0; j < ATTEND_KEYS; j += LANES) {
            const Vf p = vexp(vload(s + j) - max);

            vstore(s + j, p);
            sum += p;
        }
        const float fade = vexp(vset(st->max[q] - max))[0];

        st->sum[q] = st->sum[q] * fade + vsum(sum);
        if (fade != 1.0f)
            for (int64_t e = 0; e < w->vectors * LANES; e += LANES)
                vstore(st->value[q] + e, vload(st->value[q] + e) * fade);
        st->max[q] = max;
    }
    AT(attend_all_values)(w, st, n);
}

static void AT(attend_reset)(const AT(AttendWork) * w, AT(AttendState) * st)
{
    for (int64_t q = 0; q < w->n; q++) {
        st->max[q] = -__builtin_inff();
        st->sum[q] = 0.0f;
        memset(st->value[q], 0, (size_t)(w->vectors * LANES) * sizeof(float));
    }
}

/* The state of the keys [from, to), which are of one span. */
static void AT(attend_span)(const AttendArgs *a, AT(AttendWork) * w, AT(AttendState) * st, const AttendPiece *p,
                            int64_t from, int64_t to)
{
    AT(attend_reset)(w, st);
    for (int64_t j = from; j < to; j += ATTEND_KEYS) {
        const int64_t n = to - j < ATTEND_KEYS ? to - j : ATTEND_KEYS;

        AT(attend_gather)(a, w, &a->rows[p->row], p->g, j, n);
        AT(attend_block)(a, w, st, j, n);
    }
}

/* Adds a span (max, sum, value of query vector q) to the total. */
static void AT(attend_merge)(const AT(AttendWork) * w, AT(AttendState) * total, int64_t q, float span_max,
                             float span_sum, const float *value)
{
    const float max = span_max > total->max[q] ? span_max : total->max[q];

    if (span_max == -__builtin_inff())
        return;

    const float old = vexp(vset(total->max[q] - max))[0], add = vexp(vset(span_max - max))[0];

    total->max[q] = max;
    total->sum[q] = total->sum[q] * old + span_sum * add;
    for (int64_t e = 0; e < w->E; e++)
        total->value[q][e] = total->value[q][e] * old + value[e] * add;
}

static void AT(attend_write)(const AttendArgs *a, const AT(AttendWork) * w, const AT(AttendState) * st,
                             const AttendPiece *p)
{
    int64_t q = 0;

    for (int64_t i = p->i0; i < p->i1; i++)
        for (int64_t h = p->h0; h < p->h1; h++, q++) {
            float *y = a->y + ((a->rows[p->row].q_start + i) * a->H + h) * a->E;
            const float by = 1.0f / st->sum[q];

            for (int64_t e = 0; e < w->E; e++)
                y[e] = st->value[q][e] * by;
        }
}

static void AT(attend_load)(const AttendArgs *a, AT(AttendWork) * w, const AttendPiece *p)
{
    const FtxRow *row = &a->rows[p->row];

    w->n = 0;
    w->E = a->E;
    w->vectors = (a->E + LANES - 1) / LANES;
    for (int64_t i = p->i0; i < p->i1; i++)
        for (int64_t h = p->h0; h < p->h1; h++, w->n++) {
            const float *from = a->q + ((row->q_start + i) * a->H + h) * a->E;
            float *to = w->q[w->n];

            w->pos[w->n] = row->kv_len - row->q_len + i;
            for (int64_t e = 0; e < a->E; e++)
                to[e] = from[e] * a->scale;
            for (int64_t e = a->E; e < w->vectors * LANES; e++)
                to[e] = 0.0f;
        }
}

/* The first key that any query of the piece sees, rounded down to a block, and one past the last. */
static void AT(attend_range)(const AttendArgs *a, const AT(AttendWork) * w, int64_t *first, int64_t *end)
{
    const int64_t low = a->window ? w->pos[0] - a->window + 1 : 0;

    *first = low > 0 ? low / ATTEND_KEYS * ATTEND_KEYS : 0;
    *end = w->pos[w->n - 1] + 1;
}

static void AT(attend_piece)(const AttendArgs *a, const AttendPiece *p)
{
    AT(AttendWork) w;
    AT(AttendState) total, span;
    int64_t first, end;

    AT(attend_load)(a, &w, p);
    AT(attend_range)(a, &w, &first, &end);
    AT(attend_reset)(&w, &total);
    for (int64_t j = first; j < end;) {
        const int64_t next = (j / a->span + 1) * a->span, to = next < end ? next : end;

        AT(attend_span)(a, &w, &span, p, j, to);
        for (int64_t q = 0; q < w.n; q++)
            AT(attend_merge)(&w, &total, q, span.max[q], span.sum[q], span.value[q]);
        j = to;
    }
    AT(attend_write)(a, &w, &total, p);
}

/* One span of a piece, to a->parts; the thread that finishes a piece's last span merges all of them. */
static void AT(attend_one_span)(const AttendArgs *a, const AttendPiece *p, int64_t index, int64_t number)
{
    const int64_t stride = a->E + 2;
    AT(AttendWork) w;
    AT(AttendState) st;
    int64_t first, end;

    AT(attend_load)(a, &w, p);
    AT(attend_range)(a, &w, &first, &end);

    const int64_t from = number * a->span, to = from + a->span;
    const int64_t first_span = first / a->span, count = (end + a->span - 1) / a->span - first_span;

    if (number < first_span || from >= end)
        return;
    AT(attend_span)(a, &w, &st, p, from > first ? from : first, to < end ? to : end);

    float *out = a->parts + (index * a->spans + number) * a->heads_at_once * stride;

    for (int64_t q = 0; q < w.n; q++) {
        out[q * stride] = st.max[q];
        out[q * stride + 1] = st.sum[q];
        memcpy(out + q * stride + 2, st.value[q], (size_t)a->E * sizeof *out);
    }
    if (__atomic_add_fetch(&a->ready[index], 1, __ATOMIC_ACQ_REL) < count)
        return;
    __atomic_store_n(&a->ready[index], 0, __ATOMIC_RELAXED);
    AT(attend_reset)(&w, &st);
    for (int64_t s = first_span; s < first_span + count; s++) {
        const float *in = a->parts + (index * a->spans + s) * a->heads_at_once * stride;

        for (int64_t q = 0; q < w.n; q++)
            AT(attend_merge)(&w, &st, q, in[q * stride], in[q * stride + 1], in + q * stride + 2);
    }
    AT(attend_write)(a, &w, &st, p);
}

void AT(attend_paged)(const CpuCall *c)
{
    AttendArgs a = {.q = c->arg[0],
                    .rows = c->arg[1],
                    .pages = c->arg[2],
                    .k = c->arg[3],
                    .v = c->arg[4],
                    .owner = c->k[ATTEND_PAGED_BEAM] ? c->arg[5] : NULL,
                    .y = c->arg[6],
                    .parts = c->arg[7],
                    .ready = c->arg[8],
                    .context = c->k[ATTEND_PAGED_LENGTH],
                    .H = c->k[ATTEND_PAGED_H],
                    .G = c->k[ATTEND_PAGED_G],
                    .E = c->k[ATTEND_PAGED_E],
                    .window = c->k[ATTEND_PAGED_WINDOW],
                    .block = c->k[ATTEND_PAGED_BLOCK],
                    .pages_of = c->k[ATTEND_PAGED_PAGES],
                    .kv = c->k[ATTEND_PAGED_KV],
                    .span = c->k[ATTEND_PAGED_SPAN],
                    .spans = c->k[ATTEND_PAGED_SPANS],
                    .scale = (float)cpu_number(c, ATTEND_PAGED_SCALE),
                    .softcap = (float)cpu_number(c, ATTEND_PAGED_SOFTCAP)};

    a.group = a.H / a.G;
    a.heads_at_once = a.group < ATTEND_MAX_VECTORS ? a.group : ATTEND_MAX_VECTORS;
    a.tokens_at_once = ATTEND_MAX_VECTORS / a.heads_at_once;

    const int64_t subgroups = (a.group + a.heads_at_once - 1) / a.heads_at_once;
    const int64_t single = a.G * subgroups; /* pieces of one token */
    const int64_t pieces = single * c->S;   /* if all rows bring one token */
    const int split = c->T == c->S && pieces < c->threads && pieces <= ATTEND_MAX_SPLIT && a.spans > 1;
    int64_t at = 0;

    /* Piece i goes to thread i % threads: neighbouring pieces take about the same time. */
    for (int64_t row = 0; row < c->S; row++) {
        const int64_t n = a.rows[row].q_len;

        for (int64_t i = 0; i < n; i += a.tokens_at_once)
            for (int64_t j = 0; j < single; j++, at++) {
                const int64_t h = j / subgroups * a.group, sub = j % subgroups * a.heads_at_once;
                const int64_t rest = a.group - sub;
                const AttendPiece p = {.row = row,
                                       .g = j / subgroups,
                                       .i0 = i,
                                       .i1 = i + a.tokens_at_once < n ? i + a.tokens_at_once : n,
                                       .h0 = h + sub,
                                       .h1 = h + sub + (rest < a.heads_at_once ? rest : a.heads_at_once)};

                if (split) {
                    for (int64_t s = 0; s < a.spans; s++)
                        if ((at * a.spans + s) % c->threads == c->thread)
                            AT(attend_one_span)(&a, &p, at, s);
                } else if (at % c->threads == c->thread) {
                    AT(attend_piece)(&a, &p);
                }
            }
    }
}
#endif
