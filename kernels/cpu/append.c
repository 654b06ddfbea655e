/* append.c - splits a row [q | k | v]: queries and keys are rotated by their position (RoPE), keys and values are written
 * to the layer's pages, queries to q.
 *
 *   x [T, (H + 2G) * E] fp32: queries, keys, values     q [T, H*E] fp32
 *   table [positions, rot/2, 2] fp32: cos and sin. Pair i of a head is (2i, 2i+1), i < rot/2: the
 *   weights' rows were permuted for that when the model was compiled. No table: no rotation.
 *   cache: position p of slot s is row p % BLOCK of page pages[s][p / BLOCK], in
 *   k and v [page][G][BLOCK][E] of type KV (cached.h). */
//@ kernel  append
//@ rank    30
//@ args    x[T,N] t:fp32 $token $pages $k $v -> q
//@ match   q = append(x, t?)
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ moves   T * (H + 2 * G) * E * 8
#ifndef LEVEL
#define BODY "append.c"
#include "each.h"
#else

#include "cached.h"

static void AT(append_rotate)(float *y, const float *x, const float *turn, int64_t rot, int64_t E)
{
    int64_t i = 0;

    if (turn)
        for (; i < rot; i += 2) {
            const float cosine = turn[i], sine = turn[i + 1];
            const float a = x[i], b = x[i + 1];

            y[i] = a * cosine - b * sine;
            y[i + 1] = b * cosine + a * sine;
        }
    for (; i < E; i++)
        y[i] = x[i];
}

void AT(append)(const CpuCall *c)
{
    const float *x = c->arg[0], *table = c->arg[1];
    const FtxToken *token = c->arg[2];
    const int32_t *pages = c->arg[3];
    char *k = c->arg[4], *v = c->arg[5];
    float *q = c->arg[6];
    const int64_t H = c->k[APPEND_H], G = c->k[APPEND_G], E = c->k[APPEND_E], rot = c->k[APPEND_ROT];
    const int64_t block = c->k[APPEND_BLOCK], type = c->k[APPEND_KV], heads = H + 2 * G;
    float key[256];
    int64_t first, last;

    /* A piece of work is one head of one token, so that a single token has threads to share. */
    cpu_share(c, c->T * heads, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t t = at / heads, head = at % heads;
        const int64_t pos = token[t].pos;
        const float *from = x + at * E, *turn = table ? table + pos * rot : NULL;

        if (head < H) {
            AT(append_rotate)(q + (t * H + head) * E, from, turn, rot, E);
            continue;
        }
        const int64_t page = pages[token[t].slot * c->k[APPEND_PAGES] + pos / block];
        const int64_t g = head < H + G ? head - H : head - H - G;
        const int64_t to = page * cached_page_bytes(G * block, type, E), row = g * block + pos % block;

        if (head < H + G) {
            AT(append_rotate)(key, from, turn, rot, E);
            cached_put(key, k + to, G * block, row, type, E);
        } else {
            cached_put(from, v + to, G * block, row, type, E);
        }
    }
}
#endif
