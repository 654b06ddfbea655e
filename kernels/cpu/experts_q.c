/* experts_q.c - linear layers of experts (experts.c) with quantised weights.
 *
 *   w   [X*N,K] in tiles of 16 rows as those of linear_q.c; N is a multiple of 16, so each expert has tiles of its own
 *   x   [M,K], of expert_sum_q [M,R*K]: codes of 8 bits with scales xs and sums xt (quantise.c), whose groups divide K, so those
 *       of an expert's part stand together; without xs fp32
 *
 * A thread has some tiles of output columns, of all experts. The rows of an expert are copied side by side into the thread's
 * scratch; one row alone, and every row where there is no scratch, is read where it lies. Products and sums are those of
 * quant_tile.h: a row's bits do not depend on its neighbours. */
//@ kernel  expert_linear_q
//@ rank    314
//@ args    x[M,K] xs:int8_rows.scales(x) xt:int8_rows.sums(x) r[M,R2] starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 -> y
//@ match   y = expert_linear(x:int8_rows, r:by_expert, w:r16x4, b?)      | KIND=0 GLU=0
//@ match   y = act(expert_linear(x:int8_rows, r:by_expert, w:r16x4, b?)) | KIND=act.kind GLU=0
//@ match   y = glu(expert_linear(x:int8_rows, r:by_expert, w:r16x4, b?)) | KIND=glu.kind GLU=1
//@ match   y = expert_linear(x, r:by_expert, w:r16x4, b?)                | KIND=0 GLU=0
//@ match   y = act(expert_linear(x, r:by_expert, w:r16x4, b?))           | KIND=act.kind GLU=0
//@ match   y = glu(expert_linear(x, r:by_expert, w:r16x4, b?))           | KIND=glu.kind GLU=1
//@ consts  X: expert_linear.experts  N: XN / X  K: K  R: R2 / 2  W: type(w)  GROUP: group(w)  SCALES: scales(w)  XGROUP: param(xs)  ROWS_S: rows(x)
//@ fits    XN % X == 0 && N % 16 == 0
//@ fits    XGROUP == 0 || (!EXACT && XGROUP % GROUP == 0 && K % XGROUP == 0 && W != fp8)
//@ prefer  other if !EXACT && XGROUP == 0
//@ moves   min(M * R, X) * N * K * (W == int4 ? 4 : 8) / 8
//@ flops   2 * M * R * N * K
//@ matmul  yes

//@ kernel  expert_sum_q
//@ rank    324
//@ args    x[M,RK] xs:int8_rows.scales(x) xt:int8_rows.sums(x) r[M,R2] starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a -> y
//@ match   y = expert_sum(x:int8_rows, r:by_expert, w:r16x4, b?)
//@ match   y = add(expert_sum(x:int8_rows, r:by_expert, w:r16x4, b?), a)
//@ match   y = expert_sum(x, r:by_expert, w:r16x4, b?)
//@ match   y = add(expert_sum(x, r:by_expert, w:r16x4, b?), a)
//@ consts  X: expert_sum.experts  N: XN / X  K: K  R: R2 / 2  W: type(w)  GROUP: group(w)  SCALES: scales(w)  XGROUP: param(xs)  ROWS_S: rows(x)
//@ fits    XN % X == 0 && RK == R * K && N % 16 == 0
//@ fits    XGROUP == 0 || (!EXACT && XGROUP % GROUP == 0 && K % XGROUP == 0 && W != fp8)
//@ prefer  other if !EXACT && XGROUP == 0
//@ moves   min(M * R, X) * N * K * (W == int4 ? 4 : 8) / 8
//@ flops   2 * M * R * N * K
//@ matmul  yes
#ifndef LEVEL
#define BODY "experts_q.c"
#define BODY_DOTS
#include "each.h"
#else
#include "tile.h"
#include "quant_tile.h"
#include "experts.h"

#ifndef EXPERT_Q_ONCE
#define EXPERT_Q_ONCE
enum { EXPERT_Q_TILES = 16 }; /* rows of an expert that are multiplied by tiles of AMX, as AMX_LEAST_ROWS */

typedef struct ExpertRows { /* of one expert: what the products read, and whose outputs they are */
    QuantArgs q;
    int64_t e, first, n; /* n rows of x from row `first` on */
    int64_t pair[QUANT_BLOCK_X];
} ExpertRows;

/* The row of x that a pair reads. */
static inline int64_t expert_row(const ExpertArgs *a, int64_t pair)
{
    return a->sum ? pair : pair / a->R;
}

/* Bytes of a row of x in scratch. */
static inline int64_t expert_row_bytes(const QuantArgs *q)
{
    return q->xs ? q->K + q->K / q->xgroup * 4 + q->K / 32 * 4 : q->K * 4;
}

/* Copies the rows of x of r->pair into `room`; r->q reads them there. */
static inline void expert_gather(const ExpertArgs *a, ExpertRows *r, char *room)
{
    const QuantArgs from = r->q;
    const int64_t bytes = from.xs ? from.K : from.K * 4, scales = from.xs ? from.K / from.xgroup : 0;
    float *const xs = (float *)(void *)(room + r->n * bytes);
    int32_t *const xt = (int32_t *)(void *)(xs + r->n * scales);

    for (int64_t i = 0; i < r->n; i++) {
        const int64_t row = expert_row(a, r->pair[i]);

        memcpy(room + i * bytes, from.x + row * bytes, (size_t)bytes);
        if (from.xs) {
            memcpy(xs + i * scales, from.xs + row * scales, (size_t)scales * sizeof *xs);
            memcpy(xt + i * (from.K / 32), from.xt + row * (from.K / 32), (size_t)(from.K / 32) * sizeof *xt);
        }
    }
    r->q.x = room;
    r->q.xs = from.xs ? xs : NULL;
    r->q.xt = xt;
    r->first = 0;
}
#endif

/* Columns [n0, n1) of some rows of an expert. */
static void AT(expert_q_columns)(const ExpertArgs *a, const ExpertRows *r, int64_t n0, int64_t n1, bool tiles)
{
    const int64_t width = QUANT_ROWS * QUANT_TILES(r->n);

#if LANES == 16 || defined AMX_EMULATED
    for (; tiles && n0 < n1; n0 += AMX_WIDTH) {
        _Alignas(64) float totals[QUANT_BLOCK_X][AMX_WIDTH];

        AT(amx_totals)(a->linear.N, &r->q, r->first, r->n, n0, totals);
        for (int64_t i = 0; i < r->n; i++)
            AT(expert_finish)(a, r->e, r->pair[i], n0, n1 - n0 < AMX_WIDTH ? n1 - n0 : AMX_WIDTH, totals[i]);
    }
#endif
    (void)tiles;
    for (; n0 < n1; n0 += width) {
        float totals[QUANT_BLOCK_X][QUANT_MAX_TILES * QUANT_ROWS];

        AT(quant_totals)(a->linear.N, &r->q, r->first, r->n, n0, totals);
        for (int64_t i = 0; i < r->n; i++)
            AT(expert_finish)(a, r->e, r->pair[i], n0, n1 - n0 < width ? n1 - n0 : width, totals[i]);
    }
}

/* This thread's share: its columns of all experts. tiles: many rows of codes are multiplied by those of AMX. */
static void AT(expert_q_share)(const CpuCall *c, const ExpertArgs *a, const QuantArgs *q, bool tiles)
{
    const int64_t fit = c->scratch ? CPU_SCRATCH / expert_row_bytes(q) : 1;
    const int64_t most = fit < 1 ? 1 : fit < QUANT_BLOCK_X ? fit : QUANT_BLOCK_X; /* rows at once */
    int64_t n0, n1, at, pairs;

    cpu_share(c, a->linear.N / QUANT_ROWS, &n0, &n1);
    n0 *= QUANT_ROWS;
    n1 *= QUANT_ROWS;
    AT(expert_begin)(a, n0, n1);
    for (int64_t e = 0; e < a->X && n0 < n1; e++)
        for (pairs = expert_pairs(a, e, &at); pairs > 0;) {
            ExpertRows r = {.q = *q, .e = e, .n = pairs < most ? pairs : most};

            r.q.w += e * (a->linear.N / QUANT_ROWS) * q->tile;
            for (int64_t i = 0; i < r.n; i++)
                r.pair[i] = expert_pair(a, at + i);
            if (r.n == 1)
                r.first = expert_row(a, r.pair[0]);
            else
                expert_gather(a, &r, c->scratch);
            AT(expert_q_columns)(a, &r, n0, n1, tiles && q->xs && r.n >= EXPERT_Q_TILES);
            at += r.n;
            pairs -= r.n;
        }
}

static void AT(expert_linear_q_any)(const CpuCall *c, bool tiles)
{
    const ExpertArgs a = {.linear = {.b = c->arg[7],
                                     .y = c->arg[8],
                                     .N = c->k[EXPERT_LINEAR_Q_N],
                                     .K = c->k[EXPERT_LINEAR_Q_K],
                                     .kind = c->k[EXPERT_LINEAR_Q_KIND],
                                     .glu = c->k[EXPERT_LINEAR_Q_GLU] != 0},
                          .routes = c->arg[3],
                          .starts = c->arg[4],
                          .rows = c->arg[5],
                          .M = c->k[EXPERT_LINEAR_Q_ROWS_S] ? c->S : c->T,
                          .X = c->k[EXPERT_LINEAR_Q_X],
                          .R = c->k[EXPERT_LINEAR_Q_R]};
    QuantArgs q = AT(quant_weights)(a.linear.K, c->k[EXPERT_LINEAR_Q_W], c->k[EXPERT_LINEAR_Q_GROUP],
                                    c->k[EXPERT_LINEAR_Q_SCALES], c->k[EXPERT_LINEAR_Q_XGROUP]);

    q.x = c->arg[0];
    q.xs = c->arg[1];
    q.xt = c->arg[2];
    q.w = c->arg[6];
    AT(expert_q_share)(c, &a, &q, tiles);
}

static void AT(expert_sum_q_any)(const CpuCall *c, bool tiles)
{
    const ExpertArgs a = {.linear = {.b = c->arg[7],
                                     .r = c->arg[8],
                                     .y = c->arg[9],
                                     .N = c->k[EXPERT_SUM_Q_N],
                                     .K = c->k[EXPERT_SUM_Q_K]},
                          .routes = c->arg[3],
                          .starts = c->arg[4],
                          .rows = c->arg[5],
                          .M = c->k[EXPERT_SUM_Q_ROWS_S] ? c->S : c->T,
                          .X = c->k[EXPERT_SUM_Q_X],
                          .R = c->k[EXPERT_SUM_Q_R],
                          .sum = true};
    QuantArgs q = AT(quant_weights)(a.linear.K, c->k[EXPERT_SUM_Q_W], c->k[EXPERT_SUM_Q_GROUP],
                                    c->k[EXPERT_SUM_Q_SCALES], c->k[EXPERT_SUM_Q_XGROUP]);

    q.x = c->arg[0];
    q.xs = c->arg[1];
    q.xt = c->arg[2];
    q.w = c->arg[6];
    AT(expert_q_share)(c, &a, &q, tiles);
}

void AT(expert_linear_q)(const CpuCall *c)
{
#if LANES == 16
    if (!__builtin_cpu_supports("avx512vnni")) {
        AT_LEVEL(expert_linear_q, avx2)(c);
        return;
    }
#endif
    AT(expert_linear_q_any)(c, false);
}

void AT(expert_sum_q)(const CpuCall *c)
{
#if LANES == 16
    if (!__builtin_cpu_supports("avx512vnni")) {
        AT_LEVEL(expert_sum_q, avx2)(c);
        return;
    }
#endif
    AT(expert_sum_q_any)(c, false);
}

#if LANES == 16 && !defined AMX_EMULATED
void expert_linear_q_amx(const CpuCall *c)
{
    AT(expert_linear_q_any)(c, true);
}

void expert_sum_q_amx(const CpuCall *c)
{
    AT(expert_sum_q_any)(c, true);
}
#elif defined AMX_EMULATED /* of the levels that a test uses */
static __attribute__((unused)) void AT(expert_linear_q_amx)(const CpuCall *c)
{
    AT(expert_linear_q_any)(c, true);
}

static __attribute__((unused)) void AT(expert_sum_q_amx)(const CpuCall *c)
{
    AT(expert_sum_q_any)(c, true);
}
#endif
#endif
