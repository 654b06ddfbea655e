/* head_linear.c - a product for each head: y[t,h,:] = w_h x[t,h,:], w_h being rows h*N .. h*N+N-1 of w.
 *
 *   x [T,H,K], y [T,H,N] fp32; w [H*N,K] fp32, fp16 or bf16, row-major
 *
 * The products and their order are those of linear.c (tile.h). A piece of work is one head with a run of its columns, for
 * all tokens: a row of w is read once for TILE_ROWS tokens. */
//@ kernel  head_linear
//@ rank    125
//@ args    x[T,H,K] w[HN,K] -> y[T,H,N]
//@ match   y = head_linear(x, w)
//@ consts  H: H  N: N  K: K  W: type(w)
//@ moves   HN * K * sizeof(w)
//@ flops   2 * T * HN * K
//@ matmul  yes
#ifndef LEVEL
#define BODY "head_linear.c"
#include "each.h"
#else

#include "tile.h"

TILE_FUNCTIONS(head_linear,
               (const float *x, const int64_t *at, int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out,
                int64_t stride),
               at)

static const struct AT(HeadTile) {
    void (*run)(const float *x, const int64_t *at, int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out,
                int64_t stride);
    int cols;
} AT(head_tiles)[3][TILE_ROWS] = TILE_TABLE(head_linear);

/* Columns n0 .. n0+count of head h, for `rows` tokens from t on. */
static void AT(head_stripe)(const CpuCall *c, int64_t h, int64_t t, int64_t rows, int64_t n0, int64_t count)
{
    const int64_t H = c->k[HEAD_LINEAR_H], N = c->k[HEAD_LINEAR_N], K = c->k[HEAD_LINEAR_K], type = c->k[HEAD_LINEAR_W];
    const struct AT(HeadTile) *const tile = &AT(head_tiles)[type - 1][rows - 1];
    const int64_t row_bytes = K * cpu_type_bytes(type);
    const LinearArgs out = {.y = (float *)c->arg[2] + h * N, .N = H * N}; /* a token's outputs are H * N apart */
    float sums[LINEAR_MAX_ROWS][LINEAR_BLOCK_W];
    int64_t at[LINEAR_MAX_ROWS];

    for (int64_t m = 0; m < rows; m++)
        at[m] = ((t + m) * H + h) * K;
    for (int64_t n = 0; n < count; n += tile->cols) {
        const char *w[LINEAR_MAX_COLS]; /* past the end the last row again; these sums are not used */

        for (int64_t i = 0; i < tile->cols; i++)
            w[i] = (const char *)c->arg[1] + (h * N + n0 + (n + i < count ? n + i : count - 1)) * row_bytes;
        for (int64_t k = 0; k < K; k += LINEAR_KC)
            tile->run(c->arg[0], at, K, w, k, k + LINEAR_KC < K ? k + LINEAR_KC : K, &sums[0][n], LINEAR_BLOCK_W);
    }
    for (int64_t m = 0; m < rows; m++)
        AT(linear_finish)(&out, t + m, n0, count, sums[m]);
}

void AT(head_linear)(const CpuCall *c)
{
    const int64_t N = c->k[HEAD_LINEAR_N], columns = c->T <= TILE_ROWS ? 8 : LINEAR_BLOCK_W;
    const int64_t runs = (N + columns - 1) / columns;
    int64_t first, last;

    cpu_share(c, c->k[HEAD_LINEAR_H] * runs, &first, &last);
    for (int64_t piece = first; piece < last; piece++) {
        const int64_t n0 = piece % runs * columns;

        for (int64_t t = 0; t < c->T; t += TILE_ROWS)
            AT(head_stripe)
        (c, piece / runs, t, c->T - t < TILE_ROWS ? c->T - t : TILE_ROWS, n0, N - n0 < columns ? N - n0 : columns);
    }
}
#endif
