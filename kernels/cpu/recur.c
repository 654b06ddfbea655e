/* recur.c - linear recurrences with a decay: the gated delta rule (Yang et al. 2024, arXiv 2412.06464) and the state space of
 * Mamba-2 (Dao & Gu 2024, arXiv 2405.21060), where q is C and k is B.
 *
 *   dt = softplus(a + shift), at least LOW, at most HIGH > 0     decay = exp(-exp(rate) * dt)
 *   S = decay * S + k u^T     y = S^T q     u = sigmoid(beta) * (v - decay * S^T k), without beta dt * v
 *
 *   q, k [T,G,K], v, y [T,H,V], a, beta [T,H] fp32; head h has q and k of head h / (H / G); rate, shift [H] fp32
 *   state [slots][H][K][V] fp32: S of each sequence and head before its next token; zeros before its first one
 *   UNIT > 0: q and k are divided by sqrt(sum of squares + UNIT) first; q is times SCALE
 *
 * Columns of S do not depend on each other, so a piece of work is RECUR_VECS vectors of columns of one head of one sequence:
 * they are copied to the stack, which is as fast as the cache of the first level, and the sequence's tokens follow one
 * another. Each token reads S twice, once for y and u, y = decay * S^T q + (k . q) u, and once to change it. Sums over K
 * are those of even k plus those of odd k, each in order, for any number of tokens. */
//@ kernel  recur
//@ rank    1068
//@ args    q[T,G,K] k[T,G,K] v[T,H,V] a[T,H] rate[H]:fp32 shift[H]:fp32 beta[T,H] $rows $recurrent -> y[T,H,V]
//@ match   y = recur(q, k, v, a, rate, shift, beta?)
//@ consts  H: H  G: G  K: K  V: V  UNIT: recur.unit  SCALE: recur.scale  LOW: recur.low  HIGH: recur.high
//@ fits    H % G == 0 && K % 8 == 0 && K <= 256 && V % 8 == 0
//@ moves   8 * S * H * K * V + 8 * T * (G * K + H * V)
//@ flops   8 * T * H * K * V
#ifndef LEVEL
#define BODY "recur.c"
#include "each.h"
#else

#ifndef RECUR_ONCE
#define RECUR_ONCE
#include <math.h>

enum { RECUR_KEY = 256, RECUR_VECS = 2 };

/* What a token does to all columns of a head. */
typedef struct RecurToken {
    float decay, gain; /* of u: sigmoid(beta), or dt */
    float both;        /* k . q */
    float k[RECUR_KEY], q[RECUR_KEY];
} RecurToken;

static inline float recur_softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}
#endif

/* RECUR_VECS vectors of columns of one head: S, and the columns that there are from its first on. */
typedef struct AT(Recur) {
    const CpuCall *c;
    int64_t h, columns;
    Vf s[RECUR_KEY][RECUR_VECS];
} AT(Recur);

/* LANES elements of p, of which n are there, n also below 0 or above LANES. */
ALWAYS_INLINE Vf AT(recur_load)(const float *p, int64_t n)
{
    return n >= LANES ? vload(p) : n > 0 ? vload_n(p, n) : vset(0.0f);
}

ALWAYS_INLINE void AT(recur_store)(float *p, Vf x, int64_t n)
{
    if (n >= LANES)
        vstore(p, x);
    else if (n > 0)
        vstore_n(p, x, n);
}

/* q . q, k . k and q . k of n elements. */
static Quad AT(recur_products)(const float *q, const float *k, int64_t n)
{
    Vf queries = {0}, keys = {0}, both = {0};

    for (int64_t i = 0; i < n; i += LANES) {
        const Vf a = AT(recur_load)(q + i, n - i), b = AT(recur_load)(k + i, n - i);

        queries += a * a;
        keys += b * b;
        both += a * b;
    }
    return vsum4(queries, keys, both, both);
}

static void AT(recur_token)(const CpuCall *c, int64_t t, int64_t h, RecurToken *to)
{
    const int64_t H = c->k[RECUR_H], G = c->k[RECUR_G], K = c->k[RECUR_K];
    const float *q = (const float *)c->arg[0] + (t * G + h / (H / G)) * K;
    const float *k = (const float *)c->arg[1] + (t * G + h / (H / G)) * K;
    const float *a = c->arg[3], *rate = c->arg[4], *shift = c->arg[5], *beta = c->arg[6];
    const float unit = (float)cpu_number(c, RECUR_UNIT), low = (float)cpu_number(c, RECUR_LOW);
    const float high = (float)cpu_number(c, RECUR_HIGH);
    const Quad products = AT(recur_products)(q, k, K);
    float dt = fmaxf(recur_softplus(a[t * H + h] + shift[h]), low);
    float by_q = (float)cpu_number(c, RECUR_SCALE), by_k = 1.0f;

    if (unit > 0.0f) {
        by_q /= sqrtf(products[0] + unit);
        by_k /= sqrtf(products[1] + unit);
    }
    for (int64_t i = 0; i < K; i++) {
        to->q[i] = q[i] * by_q;
        to->k[i] = k[i] * by_k;
    }
    to->both = products[2] * by_q * by_k;
    dt = high > 0.0f ? fminf(dt, high) : dt;
    to->decay = expf(-expf(rate[h]) * dt);
    to->gain = beta ? 1.0f / (1.0f + expf(-beta[t * H + h])) : dt;
}

/* y and the change of S by one token. v, y: of the token's columns. */
ALWAYS_INLINE void AT(recur_step)(AT(Recur) * r, const RecurToken *token, const float *v, float *y)
{
    const int64_t K = r->c->k[RECUR_K];
    Vf found[2][RECUR_VECS] = {{{0}}}, read[2][RECUR_VECS] = {{{0}}}; /* S^T k and S^T q: of even k, of odd k */
    Vf u[RECUR_VECS];

    for (int64_t i = 0; i < K; i += 2)
        for (int odd = 0; odd < 2; odd++)
            for (int m = 0; m < RECUR_VECS; m++) {
                found[odd][m] += r->s[i + odd][m] * token->k[i + odd];
                read[odd][m] += r->s[i + odd][m] * token->q[i + odd];
            }
    for (int m = 0; m < RECUR_VECS; m++) {
        u[m] = AT(recur_load)(v + m * LANES, r->columns - m * LANES);
        if (r->c->arg[6])
            u[m] -= (found[0][m] + found[1][m]) * token->decay;
        u[m] *= token->gain;
        const Vf sum = (read[0][m] + read[1][m]) * token->decay + u[m] * token->both;

        AT(recur_store)(y + m * LANES, sum, r->columns - m * LANES);
    }
    for (int64_t i = 0; i < K; i++)
        for (int m = 0; m < RECUR_VECS; m++)
            r->s[i][m] = r->s[i][m] * token->decay + u[m] * token->k[i];
}

/* Columns from `column` on of the tokens of one sequence. */
static void AT(recur_columns)(AT(Recur) * r, const FtxRow *row, int64_t column)
{
    const CpuCall *c = r->c;
    const int64_t H = c->k[RECUR_H], K = c->k[RECUR_K], V = c->k[RECUR_V];
    float *state = (float *)c->arg[8] + (row->slot * H + r->h) * K * V + column;
    const float *v = (const float *)c->arg[2] + r->h * V + column;
    float *y = (float *)c->arg[9] + r->h * V + column;
    RecurToken token;

    r->columns = V - column;
    for (int64_t i = 0; i < K; i++)
        for (int m = 0; m < RECUR_VECS; m++)
            r->s[i][m] = row->kv_len == row->q_len ? vset(0.0f)
                                                   : AT(recur_load)(state + i * V + m * LANES, r->columns - m * LANES);
    for (int64_t t = row->q_start; t < row->q_start + row->q_len; t++) {
        AT(recur_token)(c, t, r->h, &token);
        AT(recur_step)(r, &token, v + t * H * V, y + t * H * V);
    }
    for (int64_t i = 0; i < K; i++)
        for (int m = 0; m < RECUR_VECS; m++)
            AT(recur_store)(state + i * V + m * LANES, r->s[i][m], r->columns - m * LANES);
}

void AT(recur)(const CpuCall *c)
{
    const int64_t step = RECUR_VECS * LANES, runs = (c->k[RECUR_V] + step - 1) / step;
    AT(Recur) r = {.c = c};
    int64_t first, last;

    /* Heads first, so that each thread has some of every sequence, of the longest, too. */
    cpu_share(c, c->k[RECUR_H] * runs * c->S, &first, &last);
    for (int64_t at = first; at < last; at++) {
        r.h = at / c->S / runs;
        AT(recur_columns)(&r, (const FtxRow *)c->arg[7] + at % c->S, at / c->S % runs * step);
    }
}
#endif
