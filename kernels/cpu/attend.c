/* attend.c - attention as a graph says it, with whatever changes a score: for what the fused kernels do not compute.
 *
 *   y[i,h] = sum_j softmax_j(cap(SCALE * q[i,h] . k[j]) + bias[h, j - i] + slope[h] * (j - i)) v[j]
 *
 *   q, y [T,H,E] fp32. Where keys and values lie (PLACE):
 *     0  the layer's pages, [page][G][BLOCK][E] of type KV (cached.h): token i of a sequence sees keys j <= i
 *     1  rows of this step, keys and values [T,G,E] fp32: all of the token's text, or those up to it (CAUSAL)
 *     2  the source, [sources][G][SOURCE][E] of type SOURCE_KV: all of it
 *   WINDOW      0: no limit; else the last WINDOW keys up to i, without CAUSAL those at most WINDOW away
 *   bias        [H,SPAN] fp32, column j - i + SPAN/2, the nearest there is; slopes, sinks [H] fp32. Each may be absent
 *   sinks       a key more with this score and no value
 *   CHUNK       0: none; else a token sees its own run of CHUNK keys up to itself: runs begin at multiples of CHUNK
 *   PREFIX      a token of a sequence sees all of its prompt but the last TAIL tokens, too (prompt.h)
 *   ROUNDED     slopes are multiplied by j and by SCALE in place of j - i, with slope, j and their product as bf16 holds them
 *   by_query, by_key   [T,H,REACH], with PLACE 1: SCALE * (by_query[i,h,d] + by_key[j,h,d]) is added, d as the column of bias
 *
 * A piece of work is one head of one token; its keys are taken in blocks of ATTEND_BLOCK with online softmax (Milakov &
 * Gimelshein 2018), from the first one that it sees. So the bits of a result depend on the token's position alone. */
//@ kernel  attend
//@ rank    65
//@ args    q[T,H,E] keys[T,G,E] values[T,G,E] bias[H,P]:fp32 slopes[H]:fp32 sinks[H]:fp32 $rows $token $pages $k $v $cross_k $cross_v $owner by_query[T,H,N] by_key[T,H,N] -> y
//@ match   y = attend(q, keys, values?, bias, slopes?, sinks?)  | SPAN=P
//@ match   y = attend(q, keys, values?, -, slopes?, sinks?)
//@ match   y = attend(q, keys, values, -, -, -, by_query, by_key)  | REACH=N
//@ consts  H: H  G: G  E: E  SCALE: attend.scale  WINDOW: attend.window  SOFTCAP: attend.softcap
//@ consts  PLACE: has(values) ? 1 : attend.scope == source ? 2 : 0  CAUSAL: attend.scope == causal  SPAN: SPAN
//@ consts  BLOCK: BLOCK  PAGES: ceil_div(CONTEXT, BLOCK)  LENGTH: CONTEXT  SOURCE: SOURCE  KV: type($k)
//@ consts  SOURCE_KV: type($cross_k)  CHUNK: attend.chunk  ROUNDED: attend.rounded
//@ consts  PREFIX: attend.scope == prefix  TAIL: attend.tail  REACH: REACH
//@ fits    E <= 576 && attend.v_dim == 0
//@ moves   T * H * E * 8
#ifndef LEVEL
#define BODY "attend.c"
#include "each.h"
#else

#include "cached.h"
#include "prompt.h"

#ifndef GENERAL_ONCE
#define GENERAL_ONCE
enum { GENERAL_BLOCK = 32, GENERAL_HEAD_DIM = 576, GENERAL_PAGES = 0, GENERAL_ROWS, GENERAL_SOURCE };

/* x as bf16 holds it: rounded to nearest, ties to even. */
static inline float general_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &u, sizeof x);
    return x;
}
#endif

/* One head of one token. */
typedef struct AT(General) {
    const CpuCall *c;
    const FtxRow *row;
    int64_t h, g, i; /* i: index of the token in its sequence */
    float q[GENERAL_HEAD_DIM], y[GENERAL_HEAD_DIM];
    float most, sum;
} AT(General);

/* The key (which = 0) or value (1) of position j as fp32: as it lies, or copied to `room`, padded with zeros to whole
 * vectors. */
static const float *AT(general_row)(const AT(General) * a, int which, int64_t j, float *room)
{
    const CpuCall *c = a->c;
    const int64_t G = c->k[ATTEND_G], E = c->k[ATTEND_E], place = c->k[ATTEND_PLACE];
    const int64_t type = place == GENERAL_ROWS     ? CPU_FP32
                         : place == GENERAL_SOURCE ? c->k[ATTEND_SOURCE_KV]
                                                   : c->k[ATTEND_KV];
    const int64_t in_page = place == GENERAL_PAGES ? G * c->k[ATTEND_BLOCK] : 0;
    const FtxRow *row = a->row;
    const char *from = c->arg[(place == GENERAL_ROWS ? 1 : place == GENERAL_PAGES ? 9 : 11) + which];
    int64_t at; /* row of `from` */

    if (place == GENERAL_ROWS) {
        at = (row->q_start + j) * G + a->g;
    } else if (place == GENERAL_SOURCE) {
        at = (row->src_slot * G + a->g) * c->k[ATTEND_SOURCE] + j;
    } else {
        const FtxRow *rows = c->arg[6];
        const int32_t *pages = c->arg[8], *owner = c->arg[13];
        const int64_t block = c->k[ATTEND_BLOCK];
        int64_t slot = row->slot;

        if (owner && row->lane >= 0 && j != row->kv_len - 1) /* a lane of a beam search; its last token is its own */
            slot = j < row->prompt ? rows[row->group].slot : owner[slot * c->k[ATTEND_LENGTH] + j];
        from += pages[slot * c->k[ATTEND_PAGES] + j / block] * cached_page_bytes(in_page, type, E);
        at = a->g * block + j % block;
    }
    if (type == CPU_FP32 && E % LANES == 0)
        return (const float *)from + at * E;
    AT(cached_get)(room, from, in_page, at, type, E);
    return room;
}

/* The score of position j; s: q . k */
static float AT(general_score)(const AT(General) * a, int64_t j, float s)
{
    const CpuCall *c = a->c;
    const float cap = (float)cpu_number(c, ATTEND_SOFTCAP);
    const float *bias = c->arg[3], *slopes = c->arg[4];
    const int64_t half = c->k[ATTEND_SPAN] / 2, away = j - a->i, H = c->k[ATTEND_H], N = c->k[ATTEND_REACH];
    const float *of_query = c->arg[14], *of_key = c->arg[15];

    if (cap > 0.0f)
        s = vtanh(vset(s / cap))[0] * cap;
    if (of_query) {
        const int64_t d = (away < -(N / 2) ? -(N / 2) : away > N / 2 ? N / 2 : away) + N / 2, first = a->row->q_start;

        s += (of_query[((first + a->i) * H + a->h) * N + d] + of_key[((first + j) * H + a->h) * N + d]) *
             (float)cpu_number(c, ATTEND_SCALE);
    }
    if (bias)
        s += bias[a->h * c->k[ATTEND_SPAN] + (away < -half ? -half : away > half ? half : away) + half];
    if (slopes && c->k[ATTEND_ROUNDED])
        s += general_bf16(general_bf16(slopes[a->h]) * general_bf16((float)j)) * (float)cpu_number(c, ATTEND_SCALE);
    else if (slopes)
        s += slopes[a->h] * (float)away;
    return s;
}

/* Adds keys [j, j + n) to the state. */
static void AT(general_block)(AT(General) * a, int64_t j, int n)
{
    const int64_t E = a->c->k[ATTEND_E];
    float room[GENERAL_BLOCK][GENERAL_HEAD_DIM], s[GENERAL_BLOCK], most = a->most;
    const float *row[GENERAL_BLOCK];

    for (int i = 0; i < n; i++)
        row[i] = AT(general_row)(a, 0, j + i, room[i]);
    for (int i = n; i % 4; i++)
        row[i] = row[0];
    for (int i = 0; i < n; i += 4) {
        Vf sum[4] = {{0}};

        for (int64_t e = 0; e < E; e += LANES)
            for (int m = 0; m < 4; m++)
                sum[m] += vload(a->q + e) * vload(row[i + m] + e);
        const Quad dot = vsum4(sum[0], sum[1], sum[2], sum[3]);

        for (int m = 0; m < 4 && i + m < n; m++) {
            s[i + m] = AT(general_score)(a, j + i + m, dot[m]);
            most = s[i + m] > most ? s[i + m] : most;
        }
    }
    for (int i = n; i < GENERAL_BLOCK; i++)
        s[i] = most;
    for (int i = 0; i < GENERAL_BLOCK; i += LANES)
        vstore(s + i, vexp(vload(s + i) - most));
    const float fade = vexp(vset(a->most - most))[0];

    a->most = most;
    a->sum *= fade;
    for (int i = 0; i < n; i++) {
        a->sum += s[i];
        row[i] = AT(general_row)(a, 1, j + i, room[i]);
    }
    for (int64_t e = 0; e < E; e += LANES) {
        Vf y = vload(a->y + e) * fade;

        for (int i = 0; i < n; i++)
            y += vload(row[i] + e) * s[i];
        vstore(a->y + e, y);
    }
}

static void AT(general_token)(const CpuCall *c, int64_t t, int64_t h)
{
    const FtxRow *row = (const FtxRow *)c->arg[6] + ((const FtxToken *)c->arg[7])[t].row;
    const int64_t H = c->k[ATTEND_H], E = c->k[ATTEND_E], place = c->k[ATTEND_PLACE], window = c->k[ATTEND_WINDOW];
    const float *x = (const float *)c->arg[0] + (t * H + h) * E, *sinks = c->arg[5];
    const float scale = (float)cpu_number(c, ATTEND_SCALE);
    float *y = (float *)c->arg[16] + (t * H + h) * E;
    AT(General) a = {.c = c, .row = row, .h = h, .g = h / (H / c->k[ATTEND_G])};
    int64_t first = 0, last;

    a.i = t - row->q_start + (place == GENERAL_PAGES ? row->kv_len - row->q_len : 0);
    last = place == GENERAL_SOURCE                              ? row->src_len
           : place == GENERAL_PAGES || c->k[ATTEND_CAUSAL] != 0 ? a.i + 1
                                                                : row->q_len;
    if (c->k[ATTEND_PREFIX]) {
        const int64_t prefix = prompt_prefix(row, c->k[ATTEND_TAIL]);

        last = last > prefix ? last : prefix < row->kv_len ? prefix : row->kv_len;
    }
    if (window && place != GENERAL_SOURCE) {
        const bool behind = place == GENERAL_PAGES || c->k[ATTEND_CAUSAL] != 0;

        first = a.i - window + behind > 0 ? a.i - window + behind : 0;
        last = a.i + window + 1 < last ? a.i + window + 1 : last;
    }
    if (c->k[ATTEND_CHUNK] && first < a.i - a.i % c->k[ATTEND_CHUNK])
        first = a.i - a.i % c->k[ATTEND_CHUNK];
    for (int64_t e = 0; e < E; e++)
        a.q[e] = x[e] * scale;
    a.most = sinks ? sinks[h] : -__builtin_inff();
    a.sum = sinks ? 1.0f : 0.0f;
    for (int64_t j = first; j < last; j += GENERAL_BLOCK)
        AT(general_block)(&a, j, (int)(last - j < GENERAL_BLOCK ? last - j : GENERAL_BLOCK));
    for (int64_t e = 0; e < E; e++)
        y[e] = a.y[e] / a.sum;
}

void AT(attend)(const CpuCall *c)
{
    const int64_t H = c->k[ATTEND_H];
    int64_t first, last;

    cpu_share(c, c->T * H, &first, &last);
    for (int64_t at = first; at < last; at++)
        AT(general_token)(c, at / H, at % H);
}
#endif
