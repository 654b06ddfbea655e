/* attend_packed.c - attention of every token over all tokens of its own text: y = softmax(scale q k^T) v.
 *
 *   x [T, (H + 2G) * E] fp32: queries, keys, values of each token     y [T, H*E] fp32
 *
 * Texts of any lengths are packed one after another (rows[s].q_start, q_len), without padding, and a result does not
 * depend on the other texts. A piece of work is one head of a few queries. Its time is proportional to the keys of its
 * text, so threads take equal shares of that sum. */
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

#ifndef ATTEND_PACKED_ONCE
#define ATTEND_PACKED_ONCE
#endif
#include "flash.h"

/* Queries [from, from + n) of a text, head h. */
static void AT(packed_piece)(const CpuCall *c, const FtxRow *row, int64_t h, int from, int n)
{
    const int64_t H = c->k[ATTEND_PACKED_H], G = c->k[ATTEND_PACKED_G], E = c->k[ATTEND_PACKED_E], N = (H + 2 * G) * E;
    const float *x = (const float *)c->arg[0] + row->q_start * N;
    const float *k = x + (H + h / (H / G)) * E, *v = k + G * E, *q[FLASH_QUERIES];
    float *y = (float *)c->arg[2] + row->q_start * H * E;
    const float scale = (float)cpu_number(c, ATTEND_PACKED_SCALE);
    FlashState f;

    for (int i = 0; i < FLASH_QUERIES; i++)
        q[i] = x + (from + (i < n ? i : 0)) * N + h * E;
    AT(flash_begin)(&f, E);
    for (int j = 0; j < row->q_len; j += FLASH_KEYS)
        AT(flash_keys)
    (&f, q, scale, k + j * N, N, v + j * N, N, row->q_len - j < FLASH_KEYS ? row->q_len - j : FLASH_KEYS, E);
    for (int i = 0; i < n; i++)
        AT(flash_end)(&f, i, E, y + ((from + i) * H + h) * E);
}

void AT(attend_packed)(const CpuCall *c)
{
    const FtxRow *rows = c->arg[1];
    const int64_t H = c->k[ATTEND_PACKED_H];
    int64_t cost = 0, first, last;

    for (int s = 0; s < c->S; s++)
        cost += H * ((rows[s].q_len + FLASH_QUERIES - 1) / FLASH_QUERIES) * rows[s].q_len;
    cpu_share(c, cost, &first, &last);
    cost = 0;
    for (int s = 0; s < c->S && cost < last; s++)
        for (int64_t h = 0; h < H; h++)
            for (int from = 0; from < rows[s].q_len; from += FLASH_QUERIES, cost += rows[s].q_len)
                if (cost >= first && cost < last) /* a piece goes to the thread whose share it begins in */
                    AT(packed_piece)
    (c, &rows[s], h, from, rows[s].q_len - from < FLASH_QUERIES ? rows[s].q_len - from : FLASH_QUERIES);
}
#endif
