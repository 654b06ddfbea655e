/* append.c - take apart the product with the joined Q, K, V weights: queries and keys are rotated by
 * their position, keys and values go to the pages of the layer, queries go on.
 *
 *   x [T, (H + 2G) * E] fp32: queries, keys, values     q [T, H*E] fp32
 *   table [positions, rot/2, 2] fp32: cos and sin. Pair i of a head is (2i, 2i+1), i < rot/2: the
 *   weights' rows were permuted for that when the model was compiled. No table: no rotation.
 *   cache: position p of slot s is row p % BLOCK of page pages[s][p / BLOCK], in
 *   k and v [page][G][BLOCK][E] of type KV. */
//@ kernel  append
//@ device  cpu
//@ args    x[T,N] t:fp32 $token $pages $k $v -> q
//@ match   q = append(x, t?)
//@ consts  H: append.heads  G: append.kv_heads  E: append.head_dim  ROT: append.rot
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  KV: type($k)
//@ moves   T * (H + 2 * G) * E * 8
#ifndef LEVEL
#define BODY "append.c"
#include "each.h"
#else

#ifndef APPEND_ONCE
#define APPEND_ONCE
enum { APPEND_H, APPEND_G, APPEND_E, APPEND_ROT, APPEND_BLOCK, APPEND_PAGES, APPEND_KV };

/* Nearest, ties to even; NaN stays NaN. */
static inline uint16_t append_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    if (f != f)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline uint16_t append_fp16(float f)
{
    uint32_t u, sign;

    memcpy(&u, &f, sizeof u);
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (u >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (u < 0x38800000) { /* subnormal: adding 0.5 leaves units of 2^-24 in the low bits, rounded */
        float a;

        memcpy(&a, &u, sizeof a);
        a += 0.5f;
        memcpy(&u, &a, sizeof u);
        return (uint16_t)(sign | (u - 0x3f000000));
    }
    u -= 112u << 23;
    return (uint16_t)(sign | (u + 0xfff + (u >> 13 & 1)) >> 13);
}
#endif

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

static void AT(append_store)(char *cache, int64_t at, int64_t type, const float *x, int64_t E)
{
    if (type == CPU_FP32) {
        memcpy(cache + at * 4, x, (size_t)E * 4);
        return;
    }
    uint16_t *to = (uint16_t *)cache + at;

    for (int64_t i = 0; i < E; i++)
        to[i] = type == CPU_BF16 ? append_bf16(x[i]) : append_fp16(x[i]);
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
        const int64_t to = ((page * G + g) * block + pos % block) * E;

        if (head < H + G) {
            AT(append_rotate)(key, from, turn, rot, E);
            AT(append_store)(k, to, type, key, E);
        } else {
            AT(append_store)(v, to, type, from, E);
        }
    }
}
#endif
