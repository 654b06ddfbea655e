/* rows.c - the row of the token before, those around a token; one row for each sequence, from its tokens [q_start, q_start + q_len): the first, the last, that of an id, the
 * mean.
 *
 *   x [T,C], y [S,C], of previous y [T,C], of neighbours y [T, C * COUNT], fp32
 *   previous      y[t,:] = x[t - 1, :], of the first token of a text w [1,C], which has any storage type
 *   neighbours    y[t, c * COUNT + k] = x[t + FROM - 64 + k, c], 0 outside of the text, with RING the rows of its other end
 *   select_first  y[s,:] = x[q_start, :]
 *   select_last   y[s,:] = x[q_start + q_len - 1, :]
 *   select_id     y[s,:] = x[t,:] of the first token with the id WANTED - 1, 0: with the largest; else t = q_start
 *   pool_mean     y[s,:] = sum of x[q_start .. q_start + q_len, :] / q_len */
//@ kernel  previous
//@ rank    185
//@ args    x[T,C] w[O,C] $rows $token -> y
//@ match   y = previous(x, w)
//@ consts  C: C  WT: type(w)
//@ moves   8 * T * C

//@ kernel  neighbours
//@ rank    187
//@ args    x[T,C] $rows $token -> y[T,N]
//@ match   y = neighbours(x)
//@ consts  C: C  FROM: neighbours.from + 64  COUNT: neighbours.count  RING: neighbours.ring
//@ moves   4 * T * (C + N)

//@ kernel  select_first
//@ rank    190
//@ args    x[T,C] $rows -> y[S,C]
//@ match   y = select_first(x)
//@ consts  C: C
//@ moves   8 * S * C

//@ kernel  select_last
//@ rank    200
//@ args    x[T,C] $rows -> y[S,C]
//@ match   y = select_last(x)
//@ consts  C: C
//@ moves   8 * S * C

//@ kernel  select_id
//@ rank    205
//@ args    x[T,C] $rows $token -> y[S,C]
//@ match   y = select_id(x)
//@ consts  C: C  WANTED: select_id.id + 1
//@ moves   8 * S * C

//@ kernel  pool_mean
//@ rank    150
//@ args    x[T,C] $rows -> y[S,C]
//@ match   y = pool_mean(x)
//@ consts  C: C
//@ moves   4 * T * C + 4 * S * C
#ifndef LEVEL
#define BODY "rows.c"
#include "each.h"
#else

/* The first or the last token of each sequence; its width is constant number `width`. */
ALWAYS_INLINE void AT(select_row)(const CpuCall *c, int width, int is_last)
{
    const float *x = c->arg[0];
    const FtxRow *rows = c->arg[1];
    float *y = c->arg[2];
    const int64_t C = c->k[width];
    int64_t first, last;

    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++) {
        const int64_t t = is_last ? rows[s].q_start + rows[s].q_len - 1 : rows[s].q_start;

        memcpy(y + s * C, x + t * C, (size_t)C * sizeof *y);
    }
}

void AT(previous)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const char *w = c->arg[1];
    const FtxRow *rows = c->arg[2];
    const FtxToken *token = c->arg[3];
    float *y = c->arg[4];
    const int64_t C = c->k[PREVIOUS_C], type = c->k[PREVIOUS_WT];
    int64_t first, last;

    cpu_share(c, c->T, &first, &last);
    for (int64_t t = first; t < last; t++) {
        if (t != rows[token[t].row].q_start) {
            memcpy(y + t * C, x + (t - 1) * C, (size_t)C * sizeof *y);
            continue;
        }
        for (int64_t i = 0; i < C; i += LANES) {
            const char *from = w + i * cpu_type_bytes(type);

            if (i + LANES <= C)
                vstore(y + t * C + i, vload_as(from, type));
            else
                vstore_n(y + t * C + i, vload_as_n(from, type, C - i), C - i);
        }
    }
}

void AT(neighbours)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const FtxRow *rows = c->arg[1];
    const FtxToken *token = c->arg[2];
    float *y = c->arg[3];
    const int64_t C = c->k[NEIGHBOURS_C], count = c->k[NEIGHBOURS_COUNT];
    int64_t first, last;

    cpu_share(c, c->T, &first, &last);
    for (int64_t t = first; t < last; t++) {
        const FtxRow *row = &rows[token[t].row];

        for (int64_t k = 0; k < count; k++) {
            int64_t at = t - row->q_start + c->k[NEIGHBOURS_FROM] - 64 + k;

            if (c->k[NEIGHBOURS_RING])
                at = (at % row->q_len + row->q_len) % row->q_len;
            const float *from = at >= 0 && at < row->q_len ? x + (row->q_start + at) * C : NULL;

            for (int64_t i = 0; i < C; i++)
                y[(t * C + i) * count + k] = from ? from[i] : 0.0f;
        }
    }
}

void AT(select_first)(const CpuCall *c)
{
    AT(select_row)(c, SELECT_FIRST_C, 0);
}

void AT(select_last)(const CpuCall *c)
{
    AT(select_row)(c, SELECT_LAST_C, 1);
}

void AT(select_id)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const FtxRow *rows = c->arg[1];
    const FtxToken *token = c->arg[2];
    float *y = c->arg[3];
    const int64_t C = c->k[SELECT_ID_C], wanted = c->k[SELECT_ID_WANTED] - 1;
    int64_t first, last;

    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++) {
        int64_t best = rows[s].q_start;

        for (int64_t t = best + 1; t < rows[s].q_start + rows[s].q_len; t++)
            if (wanted < 0 ? token[t].id > token[best].id : token[t].id == wanted && token[best].id != wanted)
                best = t;
        memcpy(y + s * C, x + best * C, (size_t)C * sizeof *y);
    }
}

void AT(pool_mean)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const FtxRow *rows = c->arg[1];
    float *y = c->arg[2];
    const int64_t C = c->k[POOL_MEAN_C];
    int64_t first, last;

    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++)
        for (int64_t i = 0; i < C; i += LANES) {
            const float *from = x + rows[s].q_start * C + i;
            Vf sum = {0};

            for (int t = 0; t < rows[s].q_len; t++)
                sum += i + LANES <= C ? vload(from + t * C) : vload_n(from + t * C, C - i);
            sum = sum / (float)rows[s].q_len;
            if (i + LANES <= C)
                vstore(y + s * C + i, sum);
            else
                vstore_n(y + s * C + i, sum, C - i);
        }
}
#endif
