/* convolve.c - of each column a sum over a token and those before it in its sequence.
 *
 *   x, y [T,C] fp32; w [C,TAPS], b [C] of any storage type; b may be absent
 *   y[t,c] = b[c] + sum of w[c, TAPS-1-j] * x[t-j, c], from the oldest row to the newest
 *   $recurrent [slots][TAPS-1][C]: the last rows of x of the sequence. They are 0 before its first token.
 *
 * A share is some columns of a sequence, with all its tokens. So a prompt in chunks has the bits of the whole. */
//@ kernel  convolve
//@ rank    188
//@ args    x[T,C] w[C,TAPS] b[C] $rows $recurrent -> y
//@ match   y = convolve(x, w, b?)
//@ consts  C: C  TAPS: TAPS  WT: type(w)  BT: type(b)
//@ moves   8 * T * C + sizeof(w) * C * TAPS
#ifndef LEVEL
#define BODY "convolve.c"
#include "each.h"
#else

#ifndef CONVOLVE_ONCE
#define CONVOLVE_ONCE

enum { COLUMNS = 64, MOST_TAPS = 16 };

/* Some columns of a sequence. Rows are counted from the first of its chunk: past[kept + i] is row i < 0. */
typedef struct Columns {
    const float *x; /* row 0 */
    int64_t C, n, kept;
    float past[MOST_TAPS - 1][COLUMNS];
    float w[MOST_TAPS][COLUMNS], b[COLUMNS]; /* w[k]: of the row kept - k before */
} Columns;

static inline const float *column_row(const Columns *s, int64_t i)
{
    return i < 0 ? s->past[s->kept + i] : s->x + i * s->C;
}
#endif

/* Elements at, at + stride, ... of w. */
static void AT(spread)(const char *w, int64_t type, int64_t at, int64_t stride, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        const Vf one = vload_as_n(w + (at + i * stride) * cpu_type_bytes(type), type, 1);

        vstore_n(to + i, one, 1);
    }
}

static void AT(convolve_columns)(const Columns *s, int64_t tokens, float *y)
{
    const float *row[MOST_TAPS];

    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t k = 0; k <= s->kept; k++)
            row[k] = column_row(s, t - s->kept + k);
        for (int64_t i = 0; i < s->n; i += LANES) {
            const int64_t n = s->n - i < LANES ? s->n - i : LANES;
            Vf sum = {0};

            for (int64_t k = 0; k <= s->kept; k++)
                sum += vload(s->w[k] + i) * (n < LANES ? vload_n(row[k] + i, n) : vload(row[k] + i));
            vstore_n(y + t * s->C + i, sum + vload(s->b + i), n);
        }
    }
}

void AT(convolve)(const CpuCall *c)
{
    const FtxRow *rows = c->arg[3];
    const int64_t C = c->k[CONVOLVE_C], taps = c->k[CONVOLVE_TAPS], kept = taps - 1;
    const int64_t blocks = (C + COLUMNS - 1) / COLUMNS;
    int64_t first, last;

    cpu_share(c, c->S * blocks, &first, &last);
    for (int64_t piece = first; piece < last; piece++) {
        const FtxRow *row = &rows[piece / blocks];
        const int64_t from = piece % blocks * COLUMNS, at = row->q_start * C + from;
        float *state = (float *)c->arg[4] + row->slot * kept * C + from;
        Columns s = {.x = (const float *)c->arg[0] + at, .C = C, .kept = kept};

        s.n = C - from < COLUMNS ? C - from : COLUMNS;
        for (int64_t k = 0; k < taps; k++)
            AT(spread)(c->arg[1], c->k[CONVOLVE_WT], from * taps + k, taps, s.n, s.w[k]);
        if (c->arg[2])
            AT(spread)(c->arg[2], c->k[CONVOLVE_BT], from, 1, s.n, s.b);
        for (int64_t k = 0; k < kept && row->kv_len > row->q_len; k++)
            memcpy(s.past[k], state + k * C, (size_t)s.n * sizeof *state);
        AT(convolve_columns)(&s, row->q_len, (float *)c->arg[5] + at);
        for (int64_t k = 0; k < kept; k++)
            memcpy(state + k * C, column_row(&s, row->q_len - kept + k), (size_t)s.n * sizeof *state);
    }
}
#endif
