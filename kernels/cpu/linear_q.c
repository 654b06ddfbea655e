/* linear_q.c - y[M,N] = x[M,K] w[N,K]^T + b with quantised weights; activation, gate or residual as in linear.c.
 *
 *   w   tiles of 16 rows (runtime/base/packed.h) in the form r16x4: groups of GROUP elements of a row share a scale, and
 *       SCALES says what else a group has
 *   x   codes of 8 bits [M,K] with scales xs [M, K / XGROUP] and sums xt [M, K / 32] (quantise.c); without xs fp32 [M,K]
 *
 * Products and sums are those of quant_tile.h. Rows of x stay fp32 with fp8, with precision.compute = "fp32", and where no kernel
 * writes codes of them: behind a view. AMX multiplies many rows of codes (amx.h). */
//@ kernel  linear_q
//@ rank    220
//@ args    x[M,K] xs:int8_rows.scales(x) xt:int8_rows.sums(x) w[N,K] b[N]:fp32 r[M,N] -> y
//@ match   y = linear(x:int8_rows, w:r16x4, b?)         | KIND=0 GLU=0
//@ match   y = add(linear(x:int8_rows, w:r16x4, b?), r) | KIND=0 GLU=0
//@ match   y = act(linear(x:int8_rows, w:r16x4, b?))    | KIND=act.kind GLU=0
//@ match   y = glu(linear(x:int8_rows, w:r16x4, b?))    | KIND=glu.kind GLU=1
//@ match   y = linear(x, w:r16x4, b?)                 | KIND=0 GLU=0
//@ match   y = add(linear(x, w:r16x4, b?), r)         | KIND=0 GLU=0
//@ match   y = act(linear(x, w:r16x4, b?))            | KIND=act.kind GLU=0
//@ match   y = glu(linear(x, w:r16x4, b?))            | KIND=glu.kind GLU=1
//@ consts  N: N  K: K  W: type(w)  GROUP: group(w)  SCALES: scales(w)  XGROUP: param(xs)  ROWS_S: rows(x)
//@ fits    XGROUP == 0 || (!EXACT && XGROUP % GROUP == 0 && W != fp8)
//@ prefer  other if !EXACT && XGROUP == 0
//@ moves   N * K * (W == int4 ? 4 : 8) / 8
//@ flops   2 * T * N * K
//@ matmul  yes
#ifndef LEVEL
#define BODY "linear_q.c"
#define BODY_DOTS
#include "each.h"
#else
#include "tile.h"
#include "quant_tile.h"

/* Rows m0 .. m0+height of x times the tiles of weight rows n0 .. n0+count. */
static void AT(quant_block)(const LinearArgs *a, const QuantArgs *q, int64_t m0, int64_t height, int64_t n0,
                            int64_t count)
{
    float totals[QUANT_BLOCK_X][QUANT_MAX_TILES * QUANT_ROWS];

    AT(quant_totals)(a->N, q, m0, height, n0, totals);
    for (int64_t m = 0; m < height; m++)
        AT(linear_finish)(a, m0 + m, n0, count, totals[m]);
}

#if LANES == 16 || defined AMX_EMULATED
/* This thread's share of M rows. */
static void AT(amx_share)(const CpuCall *c, const LinearArgs *a, const QuantArgs *q, int64_t M)
{
    const int64_t blocks_w = (a->N + AMX_WIDTH - 1) / AMX_WIDTH, blocks_x = (M + AMX_BLOCK_X - 1) / AMX_BLOCK_X;
    int64_t first, last;

    cpu_share(c, blocks_w * blocks_x, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t n0 = at / blocks_x * AMX_WIDTH, block = at % blocks_x;
        const int64_t m0 = M * block / blocks_x, m1 = M * (block + 1) / blocks_x;

        _Alignas(64) float totals[AMX_BLOCK_X][AMX_WIDTH];

        AT(amx_totals)(a->N, q, m0, m1 - m0, n0, totals);
        for (int64_t m = m0; m < m1; m++)
            AT(linear_finish)(a, m, n0, a->N - n0 < AMX_WIDTH ? a->N - n0 : AMX_WIDTH, totals[m - m0]);
    }
}
#endif

static void AT(quant_arguments)(const CpuCall *c, LinearArgs *a, QuantArgs *q)
{
    *a = (LinearArgs){.b = c->arg[4],
                      .r = c->arg[5],
                      .y = c->arg[6],
                      .N = c->k[LINEAR_Q_N],
                      .K = c->k[LINEAR_Q_K],
                      .kind = c->k[LINEAR_Q_KIND],
                      .glu = c->k[LINEAR_Q_GLU] != 0};
    *q = AT(quant_weights)(a->K, c->k[LINEAR_Q_W], c->k[LINEAR_Q_GROUP], c->k[LINEAR_Q_SCALES], c->k[LINEAR_Q_XGROUP]);
    q->x = c->arg[0];
    q->xs = c->arg[1];
    q->xt = c->arg[2];
    q->w = c->arg[3];
}

void AT(linear_q)(const CpuCall *c)
{
    const int64_t M = c->k[LINEAR_Q_ROWS_S] ? c->S : c->T;
    int64_t first, last;
    LinearArgs a;
    QuantArgs q;

#if LANES == 16
    if (!__builtin_cpu_supports("avx512vnni")) {
        AT_LEVEL(linear_q, avx2)(c);
        return;
    }
#endif
    AT(quant_arguments)(c, &a, &q);

    const int64_t rows_w = QUANT_ROWS * QUANT_TILES(M);
    const int64_t blocks_w = (a.N + rows_w - 1) / rows_w, blocks_x = (M + QUANT_BLOCK_X - 1) / QUANT_BLOCK_X;

    cpu_share(c, blocks_w * blocks_x, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t n0 = at / blocks_x * rows_w, m0 = at % blocks_x * QUANT_BLOCK_X;

        AT(quant_block)
        (&a, &q, m0, M - m0 < QUANT_BLOCK_X ? M - m0 : QUANT_BLOCK_X, n0, a.N - n0 < rows_w ? a.N - n0 : rows_w);
    }
}

#if LANES == 16 && !defined AMX_EMULATED
/* The level amx: that of AVX-512 but for many rows of codes. */
void linear_q_amx(const CpuCall *c)
#elif defined AMX_EMULATED
static __attribute__((unused)) void AT(linear_q_amx)(const CpuCall *c) /* of the levels that a test uses */
#endif
#if LANES == 16 || defined AMX_EMULATED
{
    const int64_t M = c->k[LINEAR_Q_ROWS_S] ? c->S : c->T;
    LinearArgs a;
    QuantArgs q;

    AT(quant_arguments)(c, &a, &q);
    if (M >= AMX_LEAST_ROWS && q.xs)
        AT(amx_share)(c, &a, &q, M);
    else
        AT(linear_q)(c);
}
#endif
#endif
