/* attend_packed.c - attention of every token over all tokens of its own text: y = softmax(scale q k^T) v.
 *
 *   x [T, (H + 2G) * E] fp32: queries, keys, values of each token     y [T, H*E] fp32
 *
 * Texts of any lengths are packed one after another (rows[s].q_start, q_len), without padding, and a result does not
 * depend on the other texts. Keys are taken in blocks of PACKED_KEYS with online softmax (Milakov & Gimelshein 2018).
 *
 * A piece of work is one head of up to PACKED_VECS * LANES queries, which are laid out anew as [E][query]: a vector holds one
 * element, one score or one element of the result of LANES queries. So both products are tiles of PACKED_ROWS keys (or elements
 * of values) times PACKED_VECS vectors, in which an element that is read where it lies meets whole vectors, and no vector is
 * added across. A query's sums run over E and over keys in order, whatever piece it falls into. Threads take equal shares of
 * the keys of all pieces. */
//@ kernel  attend_packed
//@ rank    50
//@ args    x[T,N] $rows -> y
//@ match   y = attend_packed(x)
//@ consts  H: attend_packed.heads  G: attend_packed.kv_heads  E: attend_packed.head_dim  SCALE: attend_packed.scale
//@ moves   T * (2 * H + 2 * G) * E * 4
//@ flops   4 * T * T_MAX * H * E
#ifndef LEVEL
#define BODY "attend_packed.c"
#include "each.h"
#else

#include "turn.h"

#ifndef ATTEND_PACKED_ONCE
#define ATTEND_PACKED_ONCE
enum { PACKED_KEYS = 64, PACKED_E = 256, PACKED_SUM = 64 /* products added one after another */, PACKED_VECS = 2 };
#endif

#undef PACKED_ROWS
#define PACKED_ROWS (LANES == 16 ? 8 : 4)

#define PackedState AT(PackedStateType)
typedef struct PackedState {
    Vf q[PACKED_E][PACKED_VECS], p[PACKED_KEYS][PACKED_VECS], y[PACKED_E][PACKED_VECS]; /* y: not yet divided by sum */
    Vf most[PACKED_VECS], sum[PACKED_VECS];
} PackedState;

/* out[r] = keep * out[r] + sum of w[r * row + i * step] * x[i] for `rows` rows (a constant) and n elements of each, in vectors of
 * queries, of which `vecs` (a constant) are in use. Without keep: the sum, which is added to out[r] if `add`. */
ALWAYS_INLINE void AT(packed_tile)(int vecs, int rows, int64_t n, const float *w, int64_t row, int64_t step,
                                   Vf (*x)[PACKED_VECS], const Vf *keep, bool add, Vf (*out)[PACKED_VECS])
{
    Vf sum[PACKED_ROWS][PACKED_VECS];

#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int m = 0; m < vecs; m++)
            sum[r][m] = keep ? out[r][m] * keep[m] : vset(0.0f);
    for (int64_t i = 0; i < n; i++, w += step)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const Vf a = AT(spread)(w + r * row);
#pragma GCC unroll 2
            for (int m = 0; m < vecs; m++)
                sum[r][m] += a * x[i][m];
        }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int m = 0; m < vecs; m++)
            out[r][m] = add ? out[r][m] + sum[r][m] : sum[r][m];
}

/* The same for any number of rows. */
ALWAYS_INLINE void AT(packed_product)(int vecs, int64_t rows, int64_t n, const float *w, int64_t row, int64_t step,
                                      Vf (*x)[PACKED_VECS], const Vf *keep, bool add, Vf (*out)[PACKED_VECS])
{
    int64_t r = 0;

    for (; r + PACKED_ROWS <= rows; r += PACKED_ROWS)
        AT(packed_tile)(vecs, PACKED_ROWS, n, w + r * row, row, step, x, keep, add, out + r);
    for (; r < rows; r++)
        AT(packed_tile)(vecs, 1, n, w + r * row, row, step, x, keep, add, out + r);
}

/* Adds n <= PACKED_KEYS keys and values, whose rows are `stride` floats apart. */
ALWAYS_INLINE void AT(packed_keys)(int vecs, PackedState *s, const float *k, const float *v, int64_t stride, int64_t n,
                                   int64_t E)
{
    Vf keep[PACKED_VECS];

    for (int64_t e = 0; e < E; e += PACKED_SUM)
        AT(packed_product)
    (vecs, n, E - e < PACKED_SUM ? E - e : PACKED_SUM, k + e, stride, 1, s->q + e, NULL, e > 0, s->p);
#pragma GCC unroll 2
    for (int m = 0; m < vecs; m++) {
        Vf most = s->most[m], sum;

        for (int64_t j = 0; j < n; j++)
            most = vmax(s->p[j][m], most);
        keep[m] = vexp(s->most[m] - most);
        sum = s->sum[m] * keep[m];
        for (int64_t j = 0; j < n; j++) {
            s->p[j][m] = vexp(s->p[j][m] - most);
            sum += s->p[j][m];
        }
        s->most[m] = most;
        s->sum[m] = sum;
    }
    AT(packed_product)(vecs, E, n, v, 1, stride, s->p, keep, false, s->y);
}

/* One head of n queries: vecs (a constant) vectors at most. x: the text's first row; q, k, v, y: the head's elements of the first
 * query, of the first key, of the first value and of the first result. */
ALWAYS_INLINE void AT(packed_run)(int vecs, const float *q, const float *k, const float *v, int64_t stride,
                                  int64_t keys, int64_t n, int64_t E, float scale, float *y, int64_t y_stride)
{
    PackedState s;

#pragma GCC unroll 2
    for (int m = 0; m < vecs; m++) {
        s.most[m] = vset(-3.4e38f);
        s.sum[m] = vset(0.0f);
        for (int64_t e = 0; e < E; e += LANES) {
            Vf t[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) { /* of queries beyond the last the last one again */
                const float *row = q + (m * LANES + i < n ? m * LANES + i : n - 1) * stride + e;

                t[i] = (E - e < LANES ? vload_n(row, E - e) : vload(row)) * scale;
            }
            AT(turn)(t);
            for (int i = 0; i < LANES && e + i < E; i++)
                s.q[e + i][m] = t[i];
        }
    }
    for (int64_t e = 0; e < E; e++)
#pragma GCC unroll 2
        for (int m = 0; m < vecs; m++)
            s.y[e][m] = vset(0.0f);
    for (int64_t j = 0; j < keys; j += PACKED_KEYS)
        AT(packed_keys)
    (vecs, &s, k + j * stride, v + j * stride, stride, keys - j < PACKED_KEYS ? keys - j : PACKED_KEYS, E);
#pragma GCC unroll 2
    for (int m = 0; m < vecs; m++) {
        const Vf part = 1.0f / s.sum[m];

        for (int64_t e = 0; e < E; e += LANES) {
            Vf t[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                t[i] = e + i < E ? s.y[e + i][m] * part : part;
            AT(turn)(t);
            for (int i = 0; i < LANES && m * LANES + i < n; i++)
                if (E - e < LANES)
                    vstore_n(y + (m * LANES + i) * y_stride + e, t[i], E - e);
                else
                    vstore(y + (m * LANES + i) * y_stride + e, t[i]);
        }
    }
}

/* Queries [from, from + n) of a text, head h. */
static void AT(packed_piece)(const CpuCall *c, const FtxRow *row, int64_t h, int64_t from, int64_t n)
{
    const int64_t H = c->k[ATTEND_PACKED_H], G = c->k[ATTEND_PACKED_G], E = c->k[ATTEND_PACKED_E], N = (H + 2 * G) * E;
    const float *x = (const float *)c->arg[0] + row->q_start * N, *q = x + from * N + h * E;
    const float *k = x + (H + h / (H / G)) * E, *v = k + G * E;
    float *y = (float *)c->arg[2] + ((row->q_start + from) * H + h) * E;
    const float scale = (float)cpu_number(c, ATTEND_PACKED_SCALE);

    if (n <= LANES)
        AT(packed_run)(1, q, k, v, N, row->q_len, n, E, scale, y, H * E);
    else if (E == 64) /* the most common */
        AT(packed_run)(2, q, k, v, N, row->q_len, n, 64, scale, y, H * E);
    else
        AT(packed_run)(2, q, k, v, N, row->q_len, n, E, scale, y, H * E);
}

void AT(attend_packed)(const CpuCall *c)
{
    const FtxRow *rows = c->arg[1];
    const int64_t H = c->k[ATTEND_PACKED_H];
    /* Smaller pieces where a thread would get only a few. */
    const int64_t queries = c->T * H < 8 * PACKED_VECS * LANES * c->threads ? LANES : PACKED_VECS * LANES;
    int64_t cost = 0, first, last;

    for (int s = 0; s < c->S; s++)
        cost += H * ((rows[s].q_len + queries - 1) / queries) * rows[s].q_len;
    cpu_share(c, cost, &first, &last);
    cost = 0;
    for (int s = 0; s < c->S && cost < last; s++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t from = 0; from < rows[s].q_len; from += queries, cost += rows[s].q_len)
                if (cost >= first && cost < last) /* a piece goes to the thread whose share it begins in */
                    AT(packed_piece)
    (c, &rows[s], h, from, rows[s].q_len - from < queries ? rows[s].q_len - from : queries);
}
#endif
