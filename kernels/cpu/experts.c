/* experts.c - linear layers of experts: each row with the matrices of the experts that it was routed to.
 *
 *   expert_linear   y [M,R*N]: for each of the R experts of a row x * w[expert]^T + b[expert], with activation or gate
 *   expert_sum      y [M,N]: the sum over them of weight * (x[part] * w[expert]^T + b[expert]), and a residual
 *
 *   x [M,K], of expert_sum [M,R*K], fp32; w [X*N,K] fp32, fp16 or bf16; b [X*N]; r [M,R2] the routes, with starts [X+1]
 *   and rows [M*R] the pairs row * R + i of each expert (form by_expert, route.c)
 *
 * A piece of work is a block of output columns, for all experts that are hit, one after the other: each of their rows of
 * w is read once. Each output is summed in the order of tile.h; expert_sum adds the experts of a row by their number. So
 * a row's bits do not depend on its neighbours. */
//@ kernel  expert_linear
//@ rank    310
//@ args    x[M,K] r[M,R2] starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 -> y
//@ match   y = expert_linear(x, r:by_expert, w, b?)      | KIND=0 GLU=0
//@ match   y = act(expert_linear(x, r:by_expert, w, b?)) | KIND=act.kind GLU=0
//@ match   y = glu(expert_linear(x, r:by_expert, w, b?)) | KIND=glu.kind GLU=1
//@ consts  X: expert_linear.experts  N: XN / X  K: K  R: R2 / 2  W: type(w)  ROWS_S: rows(x)
//@ fits    XN % X == 0 && (!GLU || N % 2 == 0)
//@ moves   min(M * R, X) * N * K * sizeof(w)
//@ flops   2 * M * R * N * K
//@ matmul  yes

//@ kernel  expert_sum
//@ rank    320
//@ args    x[M,RK] r[M,R2] starts:by_expert.starts(r) rows:by_expert.rows(r) w[XN,K] b[XN]:fp32 a -> y
//@ match   y = expert_sum(x, r:by_expert, w, b?)
//@ match   y = add(expert_sum(x, r:by_expert, w, b?), a)
//@ consts  X: expert_sum.experts  N: XN / X  K: K  R: R2 / 2  W: type(w)  ROWS_S: rows(x)
//@ fits    XN % X == 0 && RK == R * K
//@ moves   min(M * R, X) * N * K * sizeof(w)
//@ flops   2 * M * R * N * K
//@ matmul  yes
#ifndef LEVEL
#define BODY "experts.c"
#include "each.h"
#else

#include "tile.h"

#ifndef EXPERT_ONCE
#define EXPERT_ONCE
typedef struct ExpertArgs {
    const float *x, *b;
    const int32_t *routes, *starts, *rows;
    const char *w;
    int64_t M, X, N, K, R, type;
    bool parts; /* each expert of a row reads its own part of x */
} ExpertArgs;

/* What is read of a form lies in memory that other launches may have written; no number leads out of it. */
static inline int64_t expert_within(int64_t i, int64_t low, int64_t high)
{
    return i < low ? low : i > high ? high : i;
}
#endif

TILE_FUNCTIONS(expert,
               (const float *x, const int64_t *at, int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out,
                int64_t stride),
               at)

static const struct AT(ExpertTile) {
    void (*run)(const float *x, const int64_t *at, int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out,
                int64_t stride);
    int cols;
} AT(expert_tiles)[3][TILE_ROWS] = TILE_TABLE(expert);

/* Columns n0 .. n0+count of expert e, for a few of its pairs: sums without bias. stream: as in linear.c. */
static void AT(expert_stripe)(const ExpertArgs *a, int64_t e, const int64_t *pair, int64_t rows, int64_t n0,
                              int64_t count, bool stream, float sums[LINEAR_MAX_ROWS][LINEAR_BLOCK_W])
{
    const struct AT(ExpertTile) *const tile = &AT(expert_tiles)[a->type - 1][rows - 1];
    const int64_t row_bytes = a->K * cpu_type_bytes(a->type), step = stream ? a->K : LINEAR_KC;
    int64_t at[LINEAR_MAX_ROWS];

    for (int64_t m = 0; m < rows; m++)
        at[m] = (a->parts ? pair[m] : pair[m] / a->R) * a->K;
    for (int64_t k0 = 0; k0 < a->K; k0 += step)
        for (int64_t n = 0; n < count; n += tile->cols) {
            const char *w[LINEAR_MAX_COLS]; /* past the end the last row again; these sums are not used */

            for (int64_t i = 0; i < tile->cols; i++)
                w[i] = a->w + (e * a->N + n0 + (n + i < count ? n + i : count - 1)) * row_bytes;
            for (int64_t k = k0; k < a->K && k < k0 + step; k += LINEAR_KC)
                tile->run(a->x, at, a->K, w, k, k + LINEAR_KC < a->K ? k + LINEAR_KC : a->K, &sums[0][n],
                          LINEAR_BLOCK_W);
        }
}

/* The next pairs of expert e from *i on, at most one tile of them; 0: there are no more. */
static int64_t AT(expert_next)(const ExpertArgs *a, int64_t e, int64_t *i, int64_t pair[LINEAR_MAX_ROWS])
{
    const int64_t all = a->M * a->R, end = expert_within(a->starts[e + 1], 0, all);
    int64_t n = 0;

    for (; n < TILE_ROWS && *i < end; n++)
        pair[n] = expert_within(a->rows[(*i)++], 0, all - 1);
    return n;
}

/* Columns of a piece: few where there are few rows, so that threads have equal shares. */
static int64_t AT(expert_columns)(const ExpertArgs *a)
{
    return a->M <= TILE_ROWS ? 8 : a->M <= LINEAR_BLOCK_X || a->K > 4096 ? 32 : LINEAR_BLOCK_W;
}

void AT(expert_linear)(const CpuCall *c)
{
    const ExpertArgs a = {.x = c->arg[0],
                          .routes = c->arg[1],
                          .starts = c->arg[2],
                          .rows = c->arg[3],
                          .w = c->arg[4],
                          .b = c->arg[5],
                          .M = c->k[EXPERT_LINEAR_ROWS_S] ? c->S : c->T,
                          .X = c->k[EXPERT_LINEAR_X],
                          .N = c->k[EXPERT_LINEAR_N],
                          .K = c->k[EXPERT_LINEAR_K],
                          .R = c->k[EXPERT_LINEAR_R],
                          .type = c->k[EXPERT_LINEAR_W]};
    const int64_t columns = AT(expert_columns)(&a);
    LinearArgs out = {.y = c->arg[6], .N = a.N, .kind = c->k[EXPERT_LINEAR_KIND], .glu = c->k[EXPERT_LINEAR_GLU] != 0};
    int64_t first, last;

    cpu_share(c, (a.N + columns - 1) / columns, &first, &last);
    for (int64_t at = first; at < last; at++)
        for (int64_t e = 0; e < a.X; e++) {
            const int64_t n0 = at * columns, count = a.N - n0 < columns ? a.N - n0 : columns;
            float sums[LINEAR_MAX_ROWS][LINEAR_BLOCK_W];
            int64_t i = expert_within(a.starts[e], 0, a.M * a.R), pair[LINEAR_MAX_ROWS], n;

            out.b = a.b ? a.b + e * a.N : NULL;
            while ((n = AT(expert_next)(&a, e, &i, pair)) > 0) {
                AT(expert_stripe)(&a, e, pair, n, n0, count, a.M <= TILE_ROWS, sums);
                for (int64_t m = 0; m < n; m++)
                    AT(linear_finish)(&out, pair[m], n0, count, sums[m]);
            }
        }
}

void AT(expert_sum)(const CpuCall *c)
{
    const ExpertArgs a = {.x = c->arg[0],
                          .routes = c->arg[1],
                          .starts = c->arg[2],
                          .rows = c->arg[3],
                          .w = c->arg[4],
                          .b = c->arg[5],
                          .M = c->k[EXPERT_SUM_ROWS_S] ? c->S : c->T,
                          .X = c->k[EXPERT_SUM_X],
                          .N = c->k[EXPERT_SUM_N],
                          .K = c->k[EXPERT_SUM_K],
                          .R = c->k[EXPERT_SUM_R],
                          .type = c->k[EXPERT_SUM_W],
                          .parts = true};
    const int64_t columns = AT(expert_columns)(&a);
    const float *residual = c->arg[6];
    float *y = c->arg[7];
    int64_t first, last;

    cpu_share(c, (a.N + columns - 1) / columns, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t n0 = at * columns, count = a.N - n0 < columns ? a.N - n0 : columns;

        for (int64_t m = 0; m < a.M; m++)
            for (int64_t i = 0; i < count; i++)
                y[m * a.N + n0 + i] = residual ? residual[m * a.N + n0 + i] : 0.0f;
        for (int64_t e = 0; e < a.X; e++) {
            float sums[LINEAR_MAX_ROWS][LINEAR_BLOCK_W];
            int64_t i = expert_within(a.starts[e], 0, a.M * a.R), pair[LINEAR_MAX_ROWS], n;

            while ((n = AT(expert_next)(&a, e, &i, pair)) > 0) {
                AT(expert_stripe)(&a, e, pair, n, n0, count, a.M <= TILE_ROWS, sums);
                for (int64_t m = 0; m < n; m++) {
                    const int64_t row = pair[m] / a.R;
                    float weight;

                    memcpy(&weight, &a.routes[row * 2 * a.R + a.R + pair[m] % a.R], sizeof weight);
                    for (int64_t k = 0; k < count; k++)
                        y[row * a.N + n0 + k] += weight * (sums[m][k] + (a.b ? a.b[e * a.N + n0 + k] : 0.0f));
                }
            }
        }
    }
}
#endif
