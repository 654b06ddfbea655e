/* keys_attend.c - causal attention over a cache of keys whose first V elements are their values.
 *
 *   y[i,h] = sum_j softmax_j(cap(SCALE * q[i,h] . k[j])) k[j][:V],  j <= i, j > i - WINDOW
 *
 *   q [T,H,E], y [T,H,V] fp32; k [page][G][BLOCK][E] of type KV (cached.h); sinks [H] fp32 as in attend.c, may be absent
 *
 * With V = E this is attention whose values are its keys. Latent attention (lib/latent.lua) has G = 1, so many heads read
 * one key: a piece of work is up to KEYS_HEADS heads of one token that read the same keys, which are converted once for
 * all of them and once for both uses. Keys are taken in blocks of KEYS_BLOCK with online softmax (Milakov & Gimelshein
 * 2018) from the first one that the token sees, so the bits of a result depend on the token's position alone. */
//@ kernel  keys_attend
//@ rank    66
//@ args    q[T,H,E] keys[T,G,E] sinks[H]:fp32 $rows $token $pages $k $owner -> y[T,H,V]
//@ match   y = attend(q, keys, -, -, -, sinks?)
//@ consts  H: H  G: G  E: E  V: V  SCALE: attend.scale  WINDOW: attend.window  SOFTCAP: attend.softcap
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  LENGTH: CONTEXT  KV: type($k)
//@ fits    E <= 576 && attend.v_dim > 0
//@ moves   T * H * (E + V) * 4
#ifndef LEVEL
#define BODY "keys_attend.c"
#include "each.h"
#else

#include "cached.h"

#ifndef KEYS_ONCE
#define KEYS_ONCE
enum { KEYS_BLOCK = 32, KEYS_HEADS = 8, KEYS_HEAD_DIM = 576 };
#endif

/* Heads h .. h + n - 1 of one token. */
typedef struct AT(Keys) {
    const CpuCall *c;
    const FtxRow *row;
    int64_t h, n, g;
    float q[KEYS_HEADS][KEYS_HEAD_DIM], y[KEYS_HEADS][KEYS_HEAD_DIM];
    float most[KEYS_HEADS], sum[KEYS_HEADS];
    float room[KEYS_BLOCK][KEYS_HEAD_DIM]; /* keys as fp32, padded with zeros to whole vectors */
    const float *key[KEYS_BLOCK];
} AT(Keys);

/* The key of position j: as it lies, or copied to `room`. */
static const float *AT(keys_row)(const AT(Keys) * a, int64_t j, float *room)
{
    const CpuCall *c = a->c;
    const int64_t G = c->k[KEYS_ATTEND_G], E = c->k[KEYS_ATTEND_E], type = c->k[KEYS_ATTEND_KV];
    const int64_t block = c->k[KEYS_ATTEND_BLOCK];
    const FtxRow *rows = c->arg[3];
    const int32_t *pages = c->arg[5], *owner = c->arg[7];
    int64_t slot = a->row->slot;

    if (owner && a->row->lane >= 0 && j != a->row->kv_len - 1) /* a lane of a beam search; its last token is its own */
        slot = j < a->row->prompt ? rows[a->row->group].slot : owner[slot * c->k[KEYS_ATTEND_LENGTH] + j];

    const char *page = (const char *)c->arg[6] +
                       pages[slot * c->k[KEYS_ATTEND_PAGES] + j / block] * cached_page_bytes(G * block, type, E);
    const int64_t at = a->g * block + j % block;

    if (type == CPU_FP32 && E % LANES == 0)
        return (const float *)page + at * E;
    AT(cached_get)(room, page, G * block, at, type, E);
    return room;
}

/* The scores of head h for n keys, and what they do to its maximum and its sum; s: at last their exponentials. */
static void AT(keys_scores)(AT(Keys) * a, int64_t h, int n, float *s)
{
    const int64_t E = a->c->k[KEYS_ATTEND_E];
    const float cap = (float)cpu_number(a->c, KEYS_ATTEND_SOFTCAP);
    float most = a->most[h];

    for (int i = 0; i < n; i += 4) {
        Vf sum[4] = {{0}};

        for (int64_t e = 0; e < E; e += LANES)
            for (int m = 0; m < 4; m++)
                sum[m] += vload(a->q[h] + e) * vload(a->key[i + m] + e);
        const Quad dot = vsum4(sum[0], sum[1], sum[2], sum[3]);

        for (int m = 0; m < 4 && i + m < n; m++) {
            s[i + m] = cap > 0.0f ? vtanh(vset(dot[m] / cap))[0] * cap : dot[m];
            most = s[i + m] > most ? s[i + m] : most;
        }
    }
    for (int i = n; i < KEYS_BLOCK; i++)
        s[i] = most;
    for (int i = 0; i < KEYS_BLOCK; i += LANES)
        vstore(s + i, vexp(vload(s + i) - most));
    const float fade = vexp(vset(a->most[h] - most))[0];

    a->most[h] = most;
    a->sum[h] *= fade;
    for (int i = 0; i < n; i++)
        a->sum[h] += s[i];
    for (int64_t e = 0; e < a->c->k[KEYS_ATTEND_V]; e += LANES)
        vstore(a->y[h] + e, vload(a->y[h] + e) * fade);
}

/* Adds keys [j, j + n) to the state of all heads. */
static void AT(keys_block)(AT(Keys) * a, int64_t j, int n)
{
    float s[KEYS_HEADS][KEYS_BLOCK];

    for (int i = 0; i < n; i++)
        a->key[i] = AT(keys_row)(a, j + i, a->room[i]);
    for (int i = n; i % 4; i++)
        a->key[i] = a->key[0];
    for (int64_t h = 0; h < a->n; h++)
        AT(keys_scores)(a, h, n, s[h]);
    for (int64_t e = 0; e < a->c->k[KEYS_ATTEND_V]; e += LANES)
        for (int64_t h = 0; h < a->n; h++) {
            Vf y = vload(a->y[h] + e);

            for (int i = 0; i < n; i++)
                y += vload(a->key[i] + e) * s[h][i];
            vstore(a->y[h] + e, y);
        }
}

static void AT(keys_heads)(AT(Keys) * a, int64_t t)
{
    const CpuCall *c = a->c;
    const int64_t H = c->k[KEYS_ATTEND_H], E = c->k[KEYS_ATTEND_E], V = c->k[KEYS_ATTEND_V];
    const int64_t window = c->k[KEYS_ATTEND_WINDOW];
    const float *x = (const float *)c->arg[0] + (t * H + a->h) * E, *sinks = c->arg[2];
    const float scale = (float)cpu_number(c, KEYS_ATTEND_SCALE);
    float *y = (float *)c->arg[8] + (t * H + a->h) * V;

    a->row = (const FtxRow *)c->arg[3] + ((const FtxToken *)c->arg[4])[t].row;

    const int64_t last = t - a->row->q_start + a->row->kv_len - a->row->q_len + 1;

    memset(a->q, 0, sizeof a->q);
    memset(a->y, 0, sizeof a->y);
    for (int64_t h = 0; h < a->n; h++) {
        for (int64_t e = 0; e < E; e++)
            a->q[h][e] = x[h * E + e] * scale;
        a->most[h] = sinks ? sinks[a->h + h] : -__builtin_inff();
        a->sum[h] = sinks ? 1.0f : 0.0f;
    }
    for (int64_t j = window && last > window ? last - window : 0; j < last; j += KEYS_BLOCK)
        AT(keys_block)(a, j, (int)(last - j < KEYS_BLOCK ? last - j : KEYS_BLOCK));
    for (int64_t h = 0; h < a->n; h++)
        for (int64_t e = 0; e < V; e++)
            y[h * V + e] = a->y[h][e] / a->sum[h];
}

void AT(keys_attend)(const CpuCall *c)
{
    const int64_t G = c->k[KEYS_ATTEND_G], each = c->k[KEYS_ATTEND_H] / G, runs = (each + KEYS_HEADS - 1) / KEYS_HEADS;
    AT(Keys) a = {.c = c};
    int64_t first, last;

    cpu_share(c, c->T * G * runs, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t from = at % runs * KEYS_HEADS;

        a.g = at / runs % G;
        a.h = a.g * each + from;
        a.n = each - from < KEYS_HEADS ? each - from : KEYS_HEADS;
        AT(keys_heads)(&a, at / runs / G);
    }
}
#endif
