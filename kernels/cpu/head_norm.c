/* head_norm.c - root-mean-square norm and layer norm of each head of a token.
 *
 *   x, y [T,H,E] fp32; g, b [E] fp32, or [H,E] where each head has its own (OWN_G, OWN_B): head h reads from h * E on
 *   LAYER 0: y = g * x / sqrt(mean(x^2) + EPS)      1: y = g * (x - mean) / sqrt(var + EPS) + b
 *
 * Summed in fp32, LANES partial sums and a tree. */
//@ kernel  head_norm
//@ rank    38
//@ args    x[T,H,E] g[E]:fp32 b[E]:fp32 og[H,E]:fp32 ob[H,E]:fp32 -> y
//@ match   y = rmsnorm(x, g)            | LAYER=0 OWN_G=0 OWN_B=0 EPS=rmsnorm.eps
//@ match   y = rmsnorm(x, og)           | LAYER=0 OWN_G=1 OWN_B=0 EPS=rmsnorm.eps
//@ match   y = layernorm(x, g, b)       | LAYER=1 OWN_G=0 OWN_B=0 EPS=layernorm.eps
//@ match   y = layernorm(x, og, b)      | LAYER=1 OWN_G=1 OWN_B=0 EPS=layernorm.eps
//@ match   y = layernorm(x, og, ob)     | LAYER=1 OWN_G=1 OWN_B=1 EPS=layernorm.eps
//@ consts  H: H  E: E  LAYER: LAYER  OWN_G: OWN_G  OWN_B: OWN_B  EPS: EPS
//@ moves   T * H * E * 8
#ifndef LEVEL
#define BODY "head_norm.c"
#include "each.h"
#else

/* The sum of (x - mean)^power over a head, power 1 or 2. */
static float AT(head_sum)(const float *x, int64_t E, float mean, int power)
{
    Vf sum = {0};
    float rest = 0.0f;
    int64_t i = 0;

    for (; i + LANES <= E; i += LANES) {
        const Vf d = vload(x + i) - mean;

        sum += power == 1 ? d : d * d;
    }
    for (; i < E; i++)
        rest += power == 1 ? x[i] - mean : (x[i] - mean) * (x[i] - mean);
    return vsum(sum) + rest;
}

void AT(head_norm)(const CpuCall *c)
{
    const int own_g = c->k[HEAD_NORM_OWN_G] != 0, own_b = c->k[HEAD_NORM_OWN_B] != 0;
    const int layer = c->k[HEAD_NORM_LAYER] != 0;
    const float *x = c->arg[0], *gain = c->arg[own_g ? 3 : 1], *shift = c->arg[own_b ? 4 : 2];
    float *y = c->arg[5];
    const int64_t H = c->k[HEAD_NORM_H], E = c->k[HEAD_NORM_E];
    const float eps = (float)cpu_number(c, HEAD_NORM_EPS);
    int64_t first, last;

    cpu_share(c, c->T * H, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const float *from = x + at * E, *g = gain + (own_g ? at % H * E : 0);
        const float *b = layer ? shift + (own_b ? at % H * E : 0) : NULL;
        const float mean = layer ? AT(head_sum)(from, E, 0.0f, 1) / (float)E : 0.0f;
        const float scale = 1.0f / __builtin_sqrtf(AT(head_sum)(from, E, mean, 2) / (float)E + eps);

        for (int64_t i = 0; i < E; i++)
            y[at * E + i] = (from[i] - mean) * scale * g[i] + (b ? b[i] : 0.0f);
    }
}
#endif
