/* parts.c - element by element, fp32: clamps, gates within limits, scales by position, parts of heads, weights of routes.
 *
 *   clamp              y[m,i] = x[m,i], at least LOW, at most HIGH
 *   xielu              y[m,i] = w[2] * x + softplus(w[0]) * x^2 for x > 0, else w[2] * x + (w[2] + softplus(w[1])) * (e^min(x, -1e-6) - 1 - x)
 *   glu_clamped        y[m,i] = g * sigmoid(ALPHA * g) * (u + 1): g = x[m,2i] at most LIMIT, u = x[m,2i+1] within +-LIMIT
 *   scale_by_position  y[t,i] = x[t,i] * (1 + BY * log(1 + floor((position + OFFSET) / EVERY)))
 *   slice_heads        y [T,H,E]: elements FROM .. FROM + E - 1 of each head of x [T,H,N]
 *   join_parts         y [T,H,A+B]: in each head the elements of a [T,H,A], then those of b [T,HB,B]; HB is H, or 1
 *   route_weights      y [M,C]: the last C numbers of each row of x [M,2C], which are the bits of fp32 */
//@ kernel  clamp
//@ rank    1010
//@ args    x[M,C] -> y
//@ match   y = clamp(x)
//@ consts  LOW: clamp.low  C: C  HIGH: clamp.high  ROWS_S: rows(x)
//@ moves   8 * T * C

//@ kernel  xielu
//@ rank    1015
//@ args    x[M,C] w[W]:fp32 -> y
//@ match   y = xielu(x, w)
//@ consts  C: C  ROWS_S: rows(x)
//@ moves   8 * T * C

//@ kernel  glu_clamped
//@ rank    1020
//@ args    x[M,2*F] -> y[M,F]
//@ match   y = glu_clamped(x)
//@ consts  ALPHA: glu_clamped.alpha  F: F  LIMIT: glu_clamped.limit  ROWS_S: rows(x)
//@ moves   12 * T * F

//@ kernel  scale_by_position
//@ rank    1030
//@ args    x[T,C] $token -> y
//@ match   y = scale_by_position(x)
//@ consts  C: C  BY: scale_by_position.by  EVERY: scale_by_position.every  OFFSET: scale_by_position.offset
//@ moves   8 * T * C

//@ kernel  slice_heads
//@ rank    1040
//@ args    x[T,H,N] -> y[T,H,E]
//@ match   y = slice_heads(x)
//@ consts  H: H  E: E  N: N  FROM: slice_heads.from
//@ moves   8 * T * H * E

//@ kernel  join_parts
//@ rank    1050
//@ args    a[T,H,A] b[T,HB,B] -> y[T,H,E]
//@ match   y = join_parts(a, b)
//@ consts  H: H  A: A  B: B  HB: HB
//@ moves   8 * T * H * E

//@ kernel  route_weights
//@ rank    1060
//@ args    r[M,R2] -> y[M,C]
//@ match   y = route_weights(r)
//@ consts  C: C  ROWS_S: rows(r)
//@ moves   8 * T * C
#ifndef LEVEL
#include <math.h>
#define BODY "parts.c"
#include "each.h"
#else

#ifndef PARTS_ONCE
#define PARTS_ONCE
static inline float part_within(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

/* log(1 + e^x) */
static inline float part_softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}
#endif

void AT(clamp)(const CpuCall *c)
{
    const float *x = c->arg[0], low = (float)cpu_number(c, CLAMP_LOW), high = (float)cpu_number(c, CLAMP_HIGH);
    float *y = c->arg[1];
    int64_t first, last;

    cpu_share(c, (c->k[CLAMP_ROWS_S] ? c->S : c->T) * c->k[CLAMP_C], &first, &last);
    for (int64_t i = first; i < last; i++)
        y[i] = part_within(x[i], low, high);
}

void AT(xielu)(const CpuCall *c)
{
    const float *x = c->arg[0], *w = c->arg[1], beta = w[2];
    const float up = part_softplus(w[0]), down = beta + part_softplus(w[1]);
    float *y = c->arg[2];
    int64_t first, last;

    cpu_share(c, (c->k[XIELU_ROWS_S] ? c->S : c->T) * c->k[XIELU_C], &first, &last);
    for (int64_t i = first; i < last; i += LANES) {
        const int64_t n = last - i < LANES ? last - i : LANES;
        const Vf v = vload_n(x + i, n), low = vselect(v < -1e-6f, v, vset(-1e-6f));

        vstore_n(y + i, v * beta + vselect(v > 0.0f, v * v * up, (vexp(low) - 1.0f - v) * down), n);
    }
}

void AT(glu_clamped)(const CpuCall *c)
{
    const float *x = c->arg[0], limit = (float)cpu_number(c, GLU_CLAMPED_LIMIT);
    const float alpha = (float)cpu_number(c, GLU_CLAMPED_ALPHA);
    float *y = c->arg[1];
    int64_t first, last;

    cpu_share(c, (c->k[GLU_CLAMPED_ROWS_S] ? c->S : c->T) * c->k[GLU_CLAMPED_F], &first, &last);
    for (int64_t i = first; i < last; i += LANES) {
        const int64_t n = last - i < LANES ? last - i : LANES;
        Vf g = {0}, u = {0};

        for (int64_t j = 0; j < n; j++) {
            g[j] = fminf(x[2 * (i + j)], limit);
            u[j] = part_within(x[2 * (i + j) + 1], -limit, limit);
        }
        vstore_n(y + i, g / (vexp(g * -alpha) + 1.0f) * (u + 1.0f), n);
    }
}

void AT(scale_by_position)(const CpuCall *c)
{
    const float *x = c->arg[0], by = (float)cpu_number(c, SCALE_BY_POSITION_BY);
    const FtxToken *token = c->arg[1];
    const int64_t C = c->k[SCALE_BY_POSITION_C];
    float *y = c->arg[2];
    int64_t first, last;

    cpu_share(c, c->T, &first, &last);
    for (int64_t t = first; t < last; t++) {
        const int64_t steps = (token[t].pos + c->k[SCALE_BY_POSITION_OFFSET]) / c->k[SCALE_BY_POSITION_EVERY];
        const float factor = by * logf((float)(steps + 1)) + 1.0f;

        for (int64_t i = 0; i < C; i++)
            y[t * C + i] = x[t * C + i] * factor;
    }
}

void AT(slice_heads)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const int64_t E = c->k[SLICE_HEADS_E];
    float *y = c->arg[1];
    int64_t first, last;

    cpu_share(c, c->T * c->k[SLICE_HEADS_H], &first, &last);
    for (int64_t h = first; h < last; h++)
        memcpy(y + h * E, x + h * c->k[SLICE_HEADS_N] + c->k[SLICE_HEADS_FROM], (size_t)E * sizeof *y);
}

void AT(join_parts)(const CpuCall *c)
{
    const float *a = c->arg[0], *b = c->arg[1];
    const int64_t H = c->k[JOIN_PARTS_H], A = c->k[JOIN_PARTS_A], B = c->k[JOIN_PARTS_B], HB = c->k[JOIN_PARTS_HB];
    float *y = c->arg[2];
    int64_t first, last;

    cpu_share(c, c->T * H, &first, &last);
    for (int64_t h = first; h < last; h++) {
        memcpy(y + h * (A + B), a + h * A, (size_t)A * sizeof *y);
        memcpy(y + h * (A + B) + A, b + (HB == 1 ? h / H : h) * B, (size_t)B * sizeof *y);
    }
}

void AT(route_weights)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const int64_t C = c->k[ROUTE_WEIGHTS_C];
    float *y = c->arg[1];
    int64_t first, last;

    cpu_share(c, c->k[ROUTE_WEIGHTS_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++)
        memcpy(y + m * C, x + m * 2 * C + C, (size_t)C * sizeof *y);
}
#endif
