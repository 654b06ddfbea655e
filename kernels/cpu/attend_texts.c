/* attend_texts.c - attention within texts whose queries, keys and values are apart, with what changes a score.
 *
 *   y[i,h] = sum_j softmax_j(cap(SCALE * q[i,h] . k[j]) + bias[h, j - i] + slope[h] * (j - i)) v[j]
 *
 *   q, y [T,H,E], keys, values [T,G,E], all fp32. WINDOW, CAUSAL, bias and slopes are those of attend.c
 *
 * A piece of work is one head of a few queries, which share the keys that any of them sees; a key that one of them does not
 * see has a weight of at most e^-80 there. Its time is proportional to these keys, so threads take equal shares of their sum. */
//@ kernel  attend_texts
//@ rank    64
//@ args    q[T,H,E] keys[T,G,E] values[T,G,E] bias[H,P]:fp32 slopes[H]:fp32 $rows -> y
//@ match   y = attend(q, keys, values, bias, slopes?)  | SPAN=P
//@ match   y = attend(q, keys, values, -, slopes?)
//@ consts  H: H  G: G  E: E  SCALE: attend.scale  WINDOW: attend.window  SOFTCAP: attend.softcap
//@ consts  CAUSAL: attend.scope == causal  SPAN: SPAN
//@ fits    E <= 256 && attend.chunk == 0 && attend.rounded == 0
//@ moves   T * H * E * 8
#ifndef LEVEL
#define BODY "attend_texts.c"
#include "each.h"
#else

#include "flash.h"

#ifndef ATTEND_TEXTS_ONCE
#define ATTEND_TEXTS_ONCE
/* Keys [first, last) of a text of n tokens that query i sees. */
typedef struct TextKeys {
    int64_t first, last;
} TextKeys;

static inline TextKeys text_keys(const CpuCall *c, int64_t i, int64_t n)
{
    const int64_t window = c->k[ATTEND_TEXTS_WINDOW], causal = c->k[ATTEND_TEXTS_CAUSAL] != 0;
    TextKeys keys = {0, causal ? i + 1 : n};

    if (window && i - window + causal > 0)
        keys.first = i - window + causal;
    if (window && i + window + 1 < keys.last)
        keys.last = i + window + 1;
    return keys;
}

/* Keys that queries [from, from + FLASH_QUERIES) of the text see together. */
static inline TextKeys text_union(const CpuCall *c, const FtxRow *row, int64_t from)
{
    const int64_t to = from + FLASH_QUERIES < row->q_len ? from + FLASH_QUERIES : row->q_len;

    return (TextKeys){text_keys(c, from, row->q_len).first, text_keys(c, to - 1, row->q_len).last};
}
#endif

/* LANES biases of the distances from `away` on; bias: that of distance 0, the table reaches `half` to both sides. */
static inline Vf AT(text_bias)(const float *bias, int64_t half, int64_t away)
{
    Vf b = {0};

    if (away >= -half && away + LANES - 1 <= half)
        return vload(bias + away);
    for (int l = 0; l < LANES; l++)
        b[l] = bias[away + l < -half ? -half : away + l > half ? half : away + l];
    return b;
}

/* Scores of query i and the n keys from j on, from their products. */
static void AT(text_scores)(const CpuCall *c, int64_t h, int64_t i, TextKeys seen, int64_t j, int n,
                            float p[FLASH_KEYS])
{
    const float scale = (float)cpu_number(c, ATTEND_TEXTS_SCALE), cap = (float)cpu_number(c, ATTEND_TEXTS_SOFTCAP);
    const float *bias = c->arg[3], *slopes = c->arg[4];
    const int64_t span = c->k[ATTEND_TEXTS_SPAN];

    for (int at = 0; at < FLASH_KEYS; at += LANES) {
        Vf s = vload(p + at) * scale;

        if (cap > 0.0f)
            s = vtanh(s / cap) * cap;
        if (bias)
            s += AT(text_bias)(bias + h * span + span / 2, span / 2, j + at - i);
        for (int l = 0; slopes && l < LANES; l++)
            s[l] += slopes[h] * (float)(j + at + l - i);
        vstore(p + at, s);
    }
    for (int64_t at = 0; at < n; at++)
        if (j + at < seen.first || j + at >= seen.last)
            p[at] = -3.4e38f;
}

/* Queries [from, from + FLASH_QUERIES) of a text, head h. */
static void AT(text_piece)(const CpuCall *c, const FtxRow *row, int64_t h, int64_t from)
{
    const int64_t H = c->k[ATTEND_TEXTS_H], G = c->k[ATTEND_TEXTS_G], E = c->k[ATTEND_TEXTS_E];
    const int64_t key = (row->q_start * G + h / (H / G)) * E, n = row->q_len - from;
    const float *k = (const float *)c->arg[1] + key, *v = (const float *)c->arg[2] + key, *q[FLASH_QUERIES];
    float *y = (float *)c->arg[6] + ((row->q_start + from) * H + h) * E, p[FLASH_QUERIES][FLASH_KEYS];
    const TextKeys all = text_union(c, row, from);
    TextKeys seen[FLASH_QUERIES];
    FlashState f;

    for (int i = 0; i < FLASH_QUERIES; i++) {
        q[i] = (const float *)c->arg[0] + ((row->q_start + from + (i < n ? i : 0)) * H + h) * E;
        seen[i] = text_keys(c, from + (i < n ? i : 0), row->q_len);
    }
    AT(flash_begin)(&f, E);
    for (int64_t j = all.first; j < all.last; j += FLASH_KEYS) {
        const int m = all.last - j < FLASH_KEYS ? (int)(all.last - j) : FLASH_KEYS;

        AT(flash_scores)(q, k + j * G * E, G * E, m, E, p);
        for (int i = 0; i < FLASH_QUERIES; i++)
            AT(text_scores)(c, h, from + (i < n ? i : 0), seen[i], j, m, p[i]);
        AT(flash_weigh)(&f, p, 1.0f, v + j * G * E, G * E, m, E);
    }
    for (int i = 0; i < FLASH_QUERIES && i < n; i++)
        AT(flash_end)(&f, i, E, y + i * H * E);
}

void AT(attend_texts)(const CpuCall *c)
{
    const FtxRow *rows = c->arg[5];
    const int64_t H = c->k[ATTEND_TEXTS_H];
    int64_t cost = 0, first, last;

    for (int s = 0; s < c->S; s++)
        for (int64_t from = 0; from < rows[s].q_len; from += FLASH_QUERIES) {
            const TextKeys all = text_union(c, &rows[s], from);

            cost += H * (all.last - all.first);
        }
    cpu_share(c, cost, &first, &last);
    cost = 0;
    for (int s = 0; s < c->S && cost < last; s++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t from = 0; from < rows[s].q_len; from += FLASH_QUERIES) {
                const TextKeys all = text_union(c, &rows[s], from);

                if (cost >= first && cost < last) /* a piece goes to the thread whose share it begins in */
                    AT(text_piece)(c, &rows[s], h, from);
                cost += all.last - all.first;
            }
}
#endif
