/* rope.c - rotates pairs of values of each head by the token's position (RoPE). Su et al. 2021, eq. 15.
 *
 *   x, y [T,H,E] fp32; table [positions, ROT/2, 2] fp32: cos and sin
 *   HALF 1: pair i is values i and i + ROT/2; 0: values 2i and 2i + 1. Values from ROT on stay as they are.
 *   PREFIX, REST: the position is counted within the prompt without its last TAIL tokens, or behind it (prompt.h) */
//@ kernel  rope
//@ rank    36
//@ args    x[T,H,E] table[P,R,2]:fp32 $rows $token -> y
//@ match   y = rope(x, table)
//@ consts  H: H  E: E  ROT: 2 * R  HALF: rope.style == half
//@ consts  PREFIX: rope.count == prefix  REST: rope.count == rest  TAIL: rope.tail
//@ moves   T * H * E * 8
#ifndef LEVEL
#define BODY "rope.c"
#include "each.h"
#else

#include "prompt.h"

void AT(rope)(const CpuCall *c)
{
    const float *x = c->arg[0], *table = c->arg[1];
    const FtxRow *rows = c->arg[2];
    const FtxToken *token = c->arg[3];
    float *y = c->arg[4];
    const int64_t H = c->k[ROPE_H], E = c->k[ROPE_E], rot = c->k[ROPE_ROT], half = c->k[ROPE_HALF];
    int64_t first, last;

    cpu_share(c, c->T * H, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const FtxToken *now = &token[at / H];
        const int64_t pos = c->k[ROPE_PREFIX] ? prompt_prefix_position(&rows[now->row], now->pos, c->k[ROPE_TAIL])
                            : c->k[ROPE_REST] ? prompt_rest_position(&rows[now->row], now->pos, c->k[ROPE_TAIL])
                                              : now->pos;
        const float *turn = table + pos * rot, *from = x + at * E;
        float *to = y + at * E;

        for (int64_t i = 0; i < rot / 2; i++) {
            const int64_t one = half ? i : 2 * i, two = half ? i + rot / 2 : 2 * i + 1;
            const float a = from[one], b = from[two];

            to[one] = a * turn[2 * i] - b * turn[2 * i + 1];
            to[two] = b * turn[2 * i] + a * turn[2 * i + 1];
        }
        for (int64_t e = rot; e < E; e++)
            to[e] = from[e];
    }
}
#endif
