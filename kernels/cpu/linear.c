/* linear.c - y[M,N] = x[M,K] w[N,K]^T + b, with activation, gate or residual where the graph has one.
 *
 *   x [M,K] fp32; w [N,K] fp32, fp16 or bf16, row-major; b [N], r [M,N], y fp32
 *   y is [M,N/2] with GLU: columns 2i and 2i+1 are gate and value
 *
 * Every output is summed in one order, whatever M, the tile it falls into, or the thread: K is cut into chunks of
 * LINEAR_KC; inside a chunk LANES partial sums run over k, k + LANES, ... and are added by the tree of vsum4; chunks are
 * added in order. So a row's bits do not depend on its neighbours.
 *
 * Both operands are row-major and read along k. A tile of TILE_ROWS x 4 outputs is in registers (6 x 4 where there are 32
 * of them; 1 x 8 for one row), so a vector of weights is converted to fp32 once for all rows of the tile. With few rows
 * (decode) this streams the weights once. With many, a block of weight rows (LINEAR_BLOCK_W, at most half of a 1 MB L2)
 * stays in the cache while blocks of LINEAR_BLOCK_X rows of x go past; what comes next is fetched meanwhile (1,024 rows of
 * BERT-base on one core: 118 to 134 GFLOP/s of 178). */
//@ kernel  linear
//@ rank    120
//@ args    x[M,K] w[N,K] b[N]:fp32 r[M,N] -> y
//@ match   y = linear(x, w, b?)         | KIND=0 GLU=0
//@ match   y = add(linear(x, w, b?), r) | KIND=0 GLU=0
//@ match   y = act(linear(x, w, b?))    | KIND=act.kind GLU=0
//@ match   y = glu(linear(x, w, b?))    | KIND=glu.kind GLU=1
//@ consts  N: N  K: K  W: type(w)  ROWS_S: rows(x)
//@ moves   N * K * sizeof(w)
//@ flops   2 * T * N * K
//@ matmul  yes
#ifndef LEVEL
#define BODY "linear.c"
#include "each.h"
#else

#include "tile.h"

#ifndef LINEAR_PARAMS
#define LINEAR_PARAMS \
    (const float *x, int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out, int64_t stride, \
     const char *next)
#endif
TILE_FUNCTIONS(linear_few, LINEAR_PARAMS, (const int64_t *)0, next, 1)
TILE_FUNCTIONS(linear_many, LINEAR_PARAMS, (const int64_t *)0, next, 0)

static const struct AT(LinearTile) {
    void(*run) LINEAR_PARAMS;
    int cols;
} AT(linear_few)[3][TILE_ROWS] = TILE_TABLE(linear_few), AT(linear_many)[3][TILE_ROWS] = TILE_TABLE(linear_many);

/* Rows m0 .. m0+rows (one tile) of M times weight rows n0 .. n0+count. Up to TILE_ROWS rows it goes through each weight
 * row from end to end, since it is read only once; else chunk by chunk of K, so that the chunk of x stays in L1. With more
 * rows than a block each tile fetches the next tile of x and some rows of the next block of w. */
static void AT(linear_stripe)(const LinearArgs *a, int64_t M, int64_t m0, int64_t rows, int64_t n0, int64_t count)
{
    const struct AT(LinearTile) *const tile =
        &(M <= LINEAR_BLOCK_X ? AT(linear_few) : AT(linear_many))[a->type - 1][rows - 1];
    const int64_t bytes = cpu_type_bytes(a->type), row_bytes = a->K * bytes, step = M <= TILE_ROWS ? a->K : LINEAR_KC;
    const char *next_x = (const char *)(a->x + (m0 + rows) * a->K),
               *next_w = a->w + (n0 + count + m0 % count) * row_bytes;
    /* The last tile of the last block may be cut: BLOCK_W is a multiple of MAX_COLS. */
    float sums[LINEAR_MAX_ROWS][LINEAR_BLOCK_W];

    for (int64_t k0 = 0; k0 < a->K; k0 += step)
        for (int64_t n = 0; n < count; n += tile->cols) {
            const int64_t i_next = n / tile->cols; /* rows of x, then rows of w */
            const char *next =
                i_next < rows ? next_x + (i_next * a->K + k0) * 4 : next_w + (i_next - rows) * row_bytes + k0 * bytes;
            const char *w[LINEAR_MAX_COLS]; /* past the end the last row again; these sums are not used */

            for (int64_t i = 0; i < tile->cols; i++)
                w[i] = a->w + (n0 + (n + i < count ? n + i : count - 1)) * row_bytes;
            for (int64_t k = k0; k < a->K && k < k0 + step; k += LINEAR_KC)
                tile->run(a->x + m0 * a->K, a->K, w, k, k + LINEAR_KC < a->K ? k + LINEAR_KC : a->K, &sums[0][n],
                          LINEAR_BLOCK_W, next);
        }
    for (int64_t m = 0; m < rows; m++)
        AT(linear_finish)(a, m0 + m, n0, count, sums[m]);
}

void AT(linear)(const CpuCall *c)
{
    const LinearArgs a = {.x = c->arg[0],
                          .w = c->arg[1],
                          .b = c->arg[2],
                          .r = c->arg[3],
                          .y = c->arg[4],
                          .N = c->k[LINEAR_N],
                          .K = c->k[LINEAR_K],
                          .type = c->k[LINEAR_W],
                          .kind = c->k[LINEAR_KIND],
                          .glu = c->k[LINEAR_GLU] != 0};
    const int64_t M = c->k[LINEAR_ROWS_S] ? c->S : c->T;
    /* Weight rows of a piece of work: few where M is small, so that threads have equal shares and rows of w are read
     * from end to end. */
    const int64_t rows_w = M <= TILE_ROWS                      ? 8
                           : a.K > 8192                        ? 16
                           : M <= LINEAR_BLOCK_X || a.K > 4096 ? 32
                                                               : LINEAR_BLOCK_W;
    const int64_t blocks_w = (a.N + rows_w - 1) / rows_w, blocks_x = (M + LINEAR_BLOCK_X - 1) / LINEAR_BLOCK_X;
    int64_t first, last;

    cpu_share(c, blocks_w * blocks_x, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t n0 = at / blocks_x * rows_w, m_first = at % blocks_x * LINEAR_BLOCK_X;
        const int64_t count = a.N - n0 < rows_w ? a.N - n0 : rows_w;
        const int64_t height = M - m_first < LINEAR_BLOCK_X ? M - m_first : LINEAR_BLOCK_X;
        const int64_t tiles = (height + TILE_ROWS - 1) / TILE_ROWS; /* of about equal height */

        for (int64_t i = 0; i < tiles; i++) {
            const int64_t m0 = height * i / tiles, m1 = height * (i + 1) / tiles;

            AT(linear_stripe)(&a, M, m_first + m0, m1 - m0, n0, count);
        }
    }
}
#endif
