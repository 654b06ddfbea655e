/* append_norm.c - append.c with a root-mean-square norm of each head of q and k before their rotation (Qwen3, Gemma 3).
 *
 *   x [T, (H + 2G) * E] fp32: queries, keys, values     q [T, H*E] fp32     qg, kg [E] fp32: gains of q and k
 *   table, cache: see append.c */
//@ kernel  append_norm
//@ rank    31
//@ args    x[T,N] t:fp32 qg[E]:fp32 kg[E]:fp32 $token $pages $k $v -> q
//@ match   q = append(x, t?, qg, kg)
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)  EPS: append.eps
//@ fits    E <= 512
//@ moves   T * (H + 2 * G) * E * 8
#ifndef LEVEL
#define BODY "append_norm.c"
#include "each.h"
#else

#include "cached.h"

/* y = g * x / sqrt(mean(x^2) + eps), then the pairs (2i, 2i+1), i < rot/2, rotated. */
static void AT(append_normed)(const float *x, const float *g, float eps, const float *turn, int64_t rot, int64_t E,
                              float *y)
{
    Vf sum = {0};
    float rest = 0.0f;
    int64_t i = 0;

    for (; i + LANES <= E; i += LANES)
        sum += vload(x + i) * vload(x + i);
    for (; i < E; i++)
        rest += x[i] * x[i];

    const float scale = 1.0f / __builtin_sqrtf((vsum(sum) + rest) / (float)E + eps);

    for (i = 0; i < E; i++)
        y[i] = x[i] * scale * g[i];
    for (i = 0; turn && i < rot; i += 2) {
        const float a = y[i], b = y[i + 1];

        y[i] = a * turn[i] - b * turn[i + 1];
        y[i + 1] = b * turn[i] + a * turn[i + 1];
    }
}

void AT(append_norm)(const CpuCall *c)
{
    const float *x = c->arg[0], *table = c->arg[1], *qg = c->arg[2], *kg = c->arg[3];
    const FtxToken *token = c->arg[4];
    const int32_t *pages = c->arg[5];
    char *k = c->arg[6], *v = c->arg[7];
    float *q = c->arg[8], key[512];
    const int64_t H = c->k[APPEND_NORM_H], G = c->k[APPEND_NORM_G], E = c->k[APPEND_NORM_E];
    const int64_t rot = c->k[APPEND_NORM_ROT], block = c->k[APPEND_NORM_BLOCK], type = c->k[APPEND_NORM_KV];
    const int64_t heads = H + 2 * G;
    const float eps = (float)cpu_number(c, APPEND_NORM_EPS);
    int64_t first, last;

    cpu_share(c, c->T * heads, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t t = at / heads, head = at % heads, pos = token[t].pos;
        const float *from = x + at * E, *turn = table ? table + pos * rot : NULL;

        if (head < H) {
            AT(append_normed)(from, qg, eps, turn, rot, E, q + (t * H + head) * E);
            continue;
        }
        const int64_t page = pages[token[t].slot * c->k[APPEND_NORM_PAGES] + pos / block];
        const int64_t g = head < H + G ? head - H : head - H - G;
        const int64_t to = page * cached_page_bytes(G * block, type, E), row = g * block + pos % block;

        if (head < H + G) {
            AT(append_normed)(from, kg, eps, turn, rot, E, key);
            cached_put(key, k + to, G * block, row, type, E);
        } else {
            cached_put(from, v + to, G * block, row, type, E);
        }
    }
}
#endif
