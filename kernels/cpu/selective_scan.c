/* selective_scan.c - the state space of Mamba (Gu & Dao 2023, arXiv 2312.00752): a recurrence with one value for each head (the
 * paper's channel), all of which share a key (B) and a query (C), and in which every key decays at a rate of its own.
 *
 *   dt = softplus(a + shift), at least LOW, at most HIGH > 0     decay[i] = exp(-exp(rate[i]) * dt)
 *   s[i] = decay[i] * s[i] + k[i] * dt * v     y = SCALE * sum of s[i] * q[i]
 *
 *   q, k [T,K], v, y, a [T,H] fp32; rate [H][K], shift [H] fp32
 *   state [slots][H][K] fp32: s of each sequence and head before its next token; zeros before its first one
 *
 * A piece of work is LANES heads of one sequence, a head in each lane: their states and rates are turned to [K][LANES] on the stack,
 * and the sequence's tokens follow one another. Sums over K are in order, for any number of tokens. */
//@ kernel  selective_scan
//@ rank    1069
//@ args    q[T,1,K] k[T,1,K] v[T,H,1] a[T,H] rate[H,K]:fp32 shift[H]:fp32 $rows $recurrent -> y[T,H,1]
//@ match   y = recur(q, k, v, a, rate, shift)
//@ consts  H: H  K: K  SCALE: recur.scale  LOW: recur.low  HIGH: recur.high
//@ fits    K % 8 == 0 && K <= 256
//@ moves   8 * S * H * K + 8 * T * (K + H)
//@ flops   6 * T * H * K
#ifndef LEVEL
#define BODY "selective_scan.c"
#include "each.h"
#else

#ifndef SELECTIVE_SCAN_ONCE
#define SELECTIVE_SCAN_ONCE
#include <math.h>

enum { SCAN_KEY = 256 };

static inline float scan_softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}
#endif

/* n heads, a lane each, from head h on: states and -exp(rate), both [K]. */
typedef struct AT(Scan) {
    const CpuCall *c;
    int64_t h, n;
    Vf s[SCAN_KEY], rate[SCAN_KEY];
} AT(Scan);

/* Element i of each lane's head; from [n][K]. */
ALWAYS_INLINE Vf AT(scan_gather)(const float *from, int64_t K, int64_t i, int64_t n)
{
    Vf x = {0};

    for (int64_t l = 0; l < n; l++)
        x[l] = from[l * K + i];
    return x;
}

static Vf AT(scan_dt)(const AT(Scan) * r, int64_t t)
{
    const CpuCall *c = r->c;
    const float *a = (const float *)c->arg[3] + t * c->k[SELECTIVE_SCAN_H] + r->h;
    const float *shift = (const float *)c->arg[5] + r->h;
    const float low = (float)cpu_number(c, SELECTIVE_SCAN_LOW), high = (float)cpu_number(c, SELECTIVE_SCAN_HIGH);
    Vf dt = {0};

    for (int64_t l = 0; l < r->n; l++) {
        const float x = fmaxf(scan_softplus(a[l] + shift[l]), low);

        dt[l] = high > 0.0f ? fminf(x, high) : x;
    }
    return dt;
}

static void AT(scan_token)(AT(Scan) * r, int64_t t)
{
    const CpuCall *c = r->c;
    const int64_t H = c->k[SELECTIVE_SCAN_H], K = c->k[SELECTIVE_SCAN_K];
    const float *q = (const float *)c->arg[0] + t * K, *k = (const float *)c->arg[1] + t * K;
    const Vf dt = AT(scan_dt)(r, t), u = dt * vload_n((const float *)c->arg[2] + t * H + r->h, r->n);
    Vf y = {0};

    for (int64_t i = 0; i < K; i++) {
        r->s[i] = r->s[i] * vexp(r->rate[i] * dt) + u * k[i];
        y += r->s[i] * q[i];
    }
    vstore_n((float *)c->arg[8] + t * H + r->h, y * (float)cpu_number(c, SELECTIVE_SCAN_SCALE), r->n);
}

static void AT(scan_heads)(AT(Scan) * r, const FtxRow *row)
{
    const CpuCall *c = r->c;
    const int64_t H = c->k[SELECTIVE_SCAN_H], K = c->k[SELECTIVE_SCAN_K];
    const float *rate = (const float *)c->arg[4] + r->h * K;
    float *state = (float *)c->arg[7] + (row->slot * H + r->h) * K;

    r->n = H - r->h < LANES ? H - r->h : LANES;
    for (int64_t i = 0; i < K; i++) {
        r->s[i] = row->kv_len == row->q_len ? vset(0.0f) : AT(scan_gather)(state, K, i, r->n);
        r->rate[i] = -vexp(AT(scan_gather)(rate, K, i, r->n));
    }
    for (int64_t t = row->q_start; t < row->q_start + row->q_len; t++)
        AT(scan_token)(r, t);
    for (int64_t i = 0; i < K; i++)
        for (int64_t l = 0; l < r->n; l++)
            state[l * K + i] = r->s[i][l];
}

void AT(selective_scan)(const CpuCall *c)
{
    const int64_t runs = (c->k[SELECTIVE_SCAN_H] + LANES - 1) / LANES;
    AT(Scan) r = {.c = c};
    int64_t first, last;

    /* Heads first, so that each thread has some of every sequence, of the longest, too. */
    cpu_share(c, runs * c->S, &first, &last);
    for (int64_t at = first; at < last; at++) {
        r.h = at / c->S * LANES;
        AT(scan_heads)(&r, (const FtxRow *)c->arg[6] + at % c->S);
    }
}
#endif
