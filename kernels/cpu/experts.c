/* experts.c - linear layers of experts: each row with the matrices of the experts that it was routed to.
 *
 *   expert_linear   y [M,R*N]: for each of the R experts of a row x * w[expert]^T + b[expert], with activation or gate
 *   expert_sum      y [M,N]: the sum over them of weight * (x[part] * w[expert]^T + b[expert]), and a residual
 *
 *   x [M,K], of expert_sum [M,R*K], fp32; w [X*N,K] fp32, fp16 or bf16; b [X*N]; r [M,R2] the routes, with starts [X+1]
 *   and rows [M*R] the pairs row * R + i of each expert (form by_expert, route.c)
 *
 * A thread has some of the output columns, of all experts. It takes the experts that are hit one after the other, so its rows of
 * an expert's matrix are read once and from end to end. Each output is summed in the order of tile.h; expert_sum adds the
 * experts of a row by their number. So a row's bits do not depend on its neighbours.
 *
 * expert_linear_bf16 and expert_sum_bf16 (precision.compute = "bf16") round x to bf16 as linear_bf16 does (linear.c). */
//@ kernel  expert_linear
//@ rank    310
//@ args    x[M,K] r[M,R2] starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 -> y
//@ match   y = expert_linear(x, r:by_expert, w, b?)      | KIND=0 GLU=0
//@ match   y = act(expert_linear(x, r:by_expert, w, b?)) | KIND=act.kind GLU=0
//@ match   y = glu(expert_linear(x, r:by_expert, w, b?)) | KIND=glu.kind GLU=1
//@ consts  X: expert_linear.experts  N: XN / X  K: K  R: R2 / 2  W: type(w)  ROWS_S: rows(x)
//@ fits    XN % X == 0 && (!GLU || N % 2 == 0) && (!BF16_ROWS || W != bf16)
//@ moves   min(M * R, X) * N * K * sizeof(w)
//@ flops   2 * M * R * N * K
//@ matmul  yes

//@ kernel  expert_sum
//@ rank    320
//@ args    x[M,RK] r[M,R2] starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a -> y
//@ match   y = expert_sum(x, r:by_expert, w, b?)
//@ match   y = add(expert_sum(x, r:by_expert, w, b?), a)
//@ consts  X: expert_sum.experts  N: XN / X  K: K  R: R2 / 2  W: type(w)  ROWS_S: rows(x)
//@ fits    XN % X == 0 && RK == R * K && (!BF16_ROWS || W != bf16)
//@ moves   min(M * R, X) * N * K * sizeof(w)
//@ flops   2 * M * R * N * K
//@ matmul  yes

//@ kernel  expert_linear_bf16
//@ rank    312
//@ args    x[M,K] r[M,R2] starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K]:bf16 b[XN]:fp32 -> y
//@ match   y = expert_linear(x, r:by_expert, w, b?)      | KIND=0 GLU=0
//@ match   y = act(expert_linear(x, r:by_expert, w, b?)) | KIND=act.kind GLU=0
//@ match   y = glu(expert_linear(x, r:by_expert, w, b?)) | KIND=glu.kind GLU=1
//@ consts  X: expert_linear.experts  N: XN / X  K: K  R: R2 / 2  ROWS_S: rows(x)
//@ fits    XN % X == 0 && (!GLU || N % 2 == 0) && BF16_ROWS
//@ moves   min(M * R, X) * N * K * 2
//@ flops   2 * M * R * N * K
//@ matmul  yes

//@ kernel  expert_sum_bf16
//@ rank    322
//@ args    x[M,RK] r[M,R2] starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K]:bf16 b[XN]:fp32 a -> y
//@ match   y = expert_sum(x, r:by_expert, w, b?)
//@ match   y = add(expert_sum(x, r:by_expert, w, b?), a)
//@ consts  X: expert_sum.experts  N: XN / X  K: K  R: R2 / 2  ROWS_S: rows(x)
//@ fits    XN % X == 0 && RK == R * K && BF16_ROWS
//@ moves   min(M * R, X) * N * K * 2
//@ flops   2 * M * R * N * K
//@ matmul  yes
#ifndef LEVEL
#define BODY "experts.c"
#include "each.h"
#else

#include "tile.h"
#include "experts.h"

#define EXPERT_PARAMS \
    (const float *x, const int64_t *at, int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out, \
     int64_t stride)
TILE_FUNCTIONS(expert, EXPERT_PARAMS, at)
TILE_FORM(expert_rounded, EXPERT_PARAMS, at, LINEAR_ROUNDED)
#if LANES == 16 || defined AMX_EMULATED
TILE_FORM(expert_pairs, EXPERT_PARAMS, at, LINEAR_PAIRS)
#endif

static const struct AT(ExpertTile) {
    void(*run) EXPERT_PARAMS;
    int cols;
} AT(expert_tiles)[3][TILE_ROWS] = TILE_TABLE(expert),
  AT(expert_form_tiles)[][TILE_ROWS] = {TILE_FORM_ROW(expert_rounded), /* from LINEAR_ROUNDED on */
#if LANES == 16 || defined AMX_EMULATED
                                        TILE_FORM_ROW(expert_pairs)
#endif
};
#undef EXPERT_PARAMS

/* Columns n0 .. n0+count of expert e, for a tile of its pairs: sums without bias. A whole row of w after the other where it is
 * read once (stream); else chunk by chunk of K, so that the chunk of x stays in L1. */
static void AT(expert_stripe)(const ExpertArgs *a, int64_t e, const int64_t *pair, int64_t rows, int64_t n0,
                              int64_t count, bool stream, float sums[LINEAR_MAX_ROWS][LINEAR_BLOCK_W])
{
    const LinearArgs *const l = &a->linear;
    const struct AT(ExpertTile) *const tile =
        l->form ? &AT(expert_form_tiles)[l->form - 1][rows - 1] : &AT(expert_tiles)[l->type - 1][rows - 1];
    const int64_t row_bytes = l->K * cpu_type_bytes(l->type);
    const int64_t chunk = l->form == LINEAR_PAIRS ? 2 * LINEAR_KC : LINEAR_KC, step = stream ? l->K : chunk;
    int64_t at[LINEAR_MAX_ROWS];

    for (int64_t m = 0; m < rows; m++)
        at[m] = (a->sum ? pair[m] : pair[m] / a->R) * l->K;
    for (int64_t k0 = 0; k0 < l->K; k0 += step)
        for (int64_t n = 0; n < count; n += tile->cols) {
            const char *w[LINEAR_MAX_COLS]; /* past the end the last row again; these sums are not used */

            for (int64_t i = 0; i < tile->cols; i++)
                w[i] = l->w + (e * l->N + n0 + (n + i < count ? n + i : count - 1)) * row_bytes;
            for (int64_t k = k0; k < l->K && k < k0 + step; k += chunk)
                tile->run(l->x, at, l->K, w, k, k + chunk < l->K ? k + chunk : l->K, &sums[0][n], LINEAR_BLOCK_W);
        }
}

/* Columns n0 .. n0+count of expert e, for all of its pairs. */
static void AT(expert_block)(const ExpertArgs *a, int64_t e, int64_t first, int64_t pairs, int64_t n0, int64_t count)
{
    const int64_t tiles = (pairs + TILE_ROWS - 1) / TILE_ROWS; /* of about equal height */

    for (int64_t i = 0; i < tiles; i++) {
        const int64_t from = pairs * i / tiles, rows = pairs * (i + 1) / tiles - from;
        float sums[LINEAR_MAX_ROWS][LINEAR_BLOCK_W];
        int64_t pair[LINEAR_MAX_ROWS];

        for (int64_t m = 0; m < rows; m++)
            pair[m] = expert_pair(a, first + from + m);
        AT(expert_stripe)(a, e, pair, rows, n0, count, tiles == 1, sums);
        for (int64_t m = 0; m < rows; m++)
            AT(expert_finish)(a, e, pair[m], n0, count, sums[m]);
    }
}

/* This thread's share: its columns of all experts. */
static void AT(expert_share)(const CpuCall *c, const ExpertArgs *a)
{
    const int64_t N = a->linear.N, block = a->linear.K > 4096 ? 32 : LINEAR_BLOCK_W;
    int64_t first, last, at, pairs;

    cpu_share(c, (N + LINEAR_MAX_COLS - 1) / LINEAR_MAX_COLS, &first, &last);
    first *= LINEAR_MAX_COLS;
    last = last * LINEAR_MAX_COLS < N ? last * LINEAR_MAX_COLS : N;
    AT(expert_begin)(a, first, last);
    for (int64_t e = 0; e < a->X; e++)
        if ((pairs = expert_pairs(a, e, &at)) > 0)
            for (int64_t n0 = first; n0 < last; n0 += block)
                AT(expert_block)(a, e, at, pairs, n0, last - n0 < block ? last - n0 : block);
}

void AT(expert_linear)(const CpuCall *c)
{
    AT(expert_share)
    (c, &(ExpertArgs){.linear = {.x = c->arg[0],
                                 .w = c->arg[4],
                                 .b = c->arg[5],
                                 .y = c->arg[6],
                                 .N = c->k[EXPERT_LINEAR_N],
                                 .K = c->k[EXPERT_LINEAR_K],
                                 .type = c->k[EXPERT_LINEAR_W],
                                 .kind = c->k[EXPERT_LINEAR_KIND],
                                 .glu = c->k[EXPERT_LINEAR_GLU] != 0},
                      .routes = c->arg[1],
                      .starts = c->arg[2],
                      .rows = c->arg[3],
                      .M = c->k[EXPERT_LINEAR_ROWS_S] ? c->S : c->T,
                      .X = c->k[EXPERT_LINEAR_X],
                      .R = c->k[EXPERT_LINEAR_R]});
}

void AT(expert_sum)(const CpuCall *c)
{
    AT(expert_share)
    (c, &(ExpertArgs){.linear = {.x = c->arg[0],
                                 .w = c->arg[4],
                                 .b = c->arg[5],
                                 .r = c->arg[6],
                                 .y = c->arg[7],
                                 .N = c->k[EXPERT_SUM_N],
                                 .K = c->k[EXPERT_SUM_K],
                                 .type = c->k[EXPERT_SUM_W]},
                      .routes = c->arg[1],
                      .starts = c->arg[2],
                      .rows = c->arg[3],
                      .M = c->k[EXPERT_SUM_ROWS_S] ? c->S : c->T,
                      .X = c->k[EXPERT_SUM_X],
                      .R = c->k[EXPERT_SUM_R],
                      .sum = true});
}

ALWAYS_INLINE ExpertArgs AT(expert_linear_bf16_arguments)(const CpuCall *c, LinearForm form)
{
    return (ExpertArgs){.linear = {.x = c->arg[0],
                                   .w = c->arg[4],
                                   .b = c->arg[5],
                                   .y = c->arg[6],
                                   .N = c->k[EXPERT_LINEAR_BF16_N],
                                   .K = c->k[EXPERT_LINEAR_BF16_K],
                                   .type = CPU_BF16,
                                   .kind = c->k[EXPERT_LINEAR_BF16_KIND],
                                   .glu = c->k[EXPERT_LINEAR_BF16_GLU] != 0,
                                   .form = form},
                        .routes = c->arg[1],
                        .starts = c->arg[2],
                        .rows = c->arg[3],
                        .M = c->k[EXPERT_LINEAR_BF16_ROWS_S] ? c->S : c->T,
                        .X = c->k[EXPERT_LINEAR_BF16_X],
                        .R = c->k[EXPERT_LINEAR_BF16_R]};
}

ALWAYS_INLINE ExpertArgs AT(expert_sum_bf16_arguments)(const CpuCall *c, LinearForm form)
{
    return (ExpertArgs){.linear = {.x = c->arg[0],
                                   .w = c->arg[4],
                                   .b = c->arg[5],
                                   .r = c->arg[6],
                                   .y = c->arg[7],
                                   .N = c->k[EXPERT_SUM_BF16_N],
                                   .K = c->k[EXPERT_SUM_BF16_K],
                                   .type = CPU_BF16,
                                   .form = form},
                        .routes = c->arg[1],
                        .starts = c->arg[2],
                        .rows = c->arg[3],
                        .M = c->k[EXPERT_SUM_BF16_ROWS_S] ? c->S : c->T,
                        .X = c->k[EXPERT_SUM_BF16_X],
                        .R = c->k[EXPERT_SUM_BF16_R],
                        .sum = true};
}

void AT(expert_linear_bf16)(const CpuCall *c)
{
    const ExpertArgs a = AT(expert_linear_bf16_arguments)(c, LINEAR_ROUNDED);

    AT(expert_share)(c, &a);
}

void AT(expert_sum_bf16)(const CpuCall *c)
{
    const ExpertArgs a = AT(expert_sum_bf16_arguments)(c, LINEAR_ROUNDED);

    AT(expert_share)(c, &a);
}

#if LANES == 16 && !defined AMX_EMULATED
#define EXPERT_LEVEL(name) void name##_avx512bf16
#elif defined AMX_EMULATED /* of the levels that a test uses */
#define EXPERT_LEVEL(name) static __attribute__((unused)) void AT(name##_avx512bf16)
#endif
#if LANES == 16 || defined AMX_EMULATED
EXPERT_LEVEL(expert_linear_bf16)(const CpuCall *c)
{
    const ExpertArgs a = AT(expert_linear_bf16_arguments)(c, LINEAR_PAIRS);

    AT(expert_share)(c, &a);
}

EXPERT_LEVEL(expert_sum_bf16)(const CpuCall *c)
{
    const ExpertArgs a = AT(expert_sum_bf16_arguments)(c, LINEAR_PAIRS);

    AT(expert_share)(c, &a);
}
#undef EXPERT_LEVEL
#endif
#endif
