/* linear.c - y[M,N] = x[M,K] w[N,K]^T + b, and what may follow at once: activation, gate, residual.
 *
 *   x [M,K] fp32; w [N,K] fp32, fp16 or bf16, row-major; b [N], r [M,N], y fp32
 *   y is [M,N/2] with GLU: columns 2i and 2i+1 are gate and value
 *
 * Every output is summed in one order, whatever M, the tile it falls into, or the thread: K is cut
 * into chunks of KC; inside a chunk LANES partial sums run over k, k + LANES, ...; they meet in the
 * tree of vsum4; chunks add up in turn. So a row's bits do not depend on its neighbours.
 *
 * Both operands are read along k, as they lie. A tile of TILE_ROWS x 4 outputs lives in
 * registers (6 x 4 with 32 of them): a weight vector is widened once for all rows of the tile. For
 * a few rows (decode) that is a plain stream over the weights. For many, a block of weight
 * rows (ROWS_W, at most half a 1 MB L2) is kept while x passes by in blocks of ROWS_X. */
//@ kernel  linear
//@ device  cpu
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

#ifndef LINEAR_ONCE
#define LINEAR_ONCE
enum { LINEAR_N, LINEAR_K, LINEAR_W, LINEAR_ROWS_S, LINEAR_KIND, LINEAR_GLU };
enum {
    KC = 1024,    /* 6 rows of x: 24 KB, half of a 48 KB L1 */
    COLS = 4,     /* of a tile */
    MAX_ROWS = 6, /* of a tile, over all levels */
    ROWS_W = 64,
    ROWS_X = 48,
};

typedef struct LinearArgs {
    const float *x, *b, *r;
    const char *w;
    float *y;
    int64_t N, K, type, kind;
    int glu;
} LinearArgs;
#endif

/* out[m][0..3] (+)= x[m, k0..k1) . w[0..3][k0..k1) for `rows` rows; rows and type are constants. */
ALWAYS_INLINE void AT(linear_tile)(int rows, int type, const float *x, int64_t K, const char *const w[COLS],
                                   int64_t k0, int64_t k1, float *out, int64_t stride)
{
    const int64_t bytes = type == CPU_FP32 ? 4 : 2;
    Vf sum[MAX_ROWS][COLS];
    int64_t k = k0;

#pragma GCC unroll 8
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
        for (int n = 0; n < COLS; n++)
            sum[m][n] = vset(0.0f);
    for (; k + LANES <= k1; k += LANES) {
        Vf v[COLS];
#pragma GCC unroll 8
        for (int n = 0; n < COLS; n++)
            v[n] = vload_as(w[n] + k * bytes, type);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            const Vf a = vload(x + m * K + k);
#pragma GCC unroll 8
            for (int n = 0; n < COLS; n++)
                sum[m][n] += a * v[n];
        }
    }
    if (k < k1) {
        Vf v[COLS];
#pragma GCC unroll 8
        for (int n = 0; n < COLS; n++)
            v[n] = vload_as_n(w[n] + k * bytes, type, k1 - k);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            const Vf a = vload_n(x + m * K + k, k1 - k);
#pragma GCC unroll 8
            for (int n = 0; n < COLS; n++)
                sum[m][n] += a * v[n];
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
        Quad s = vsum4(sum[m][0], sum[m][1], sum[m][2], sum[m][3]), before;

        if (k0 > 0) {
            memcpy(&before, out + m * stride, sizeof before);
            s += before;
        }
        memcpy(out + m * stride, &s, sizeof s);
    }
}

#define TILE(rows, type) \
    static __attribute__((noinline)) void AT(linear_tile_##type##_##rows)(const float *x, int64_t K, const char *const w[COLS], \
                                                    int64_t k0, int64_t k1, float *out, int64_t stride) \
    { \
        AT(linear_tile)(rows, type, x, K, w, k0, k1, out, stride); \
    }
TILE(1, CPU_FP32) TILE(2, CPU_FP32) TILE(1, CPU_FP16) TILE(2, CPU_FP16) TILE(1, CPU_BF16) TILE(2, CPU_BF16)
#if TILE_ROWS == 6
TILE(3, CPU_FP32) TILE(4, CPU_FP32) TILE(5, CPU_FP32) TILE(6, CPU_FP32)
TILE(3, CPU_FP16) TILE(4, CPU_FP16) TILE(5, CPU_FP16) TILE(6, CPU_FP16)
TILE(3, CPU_BF16) TILE(4, CPU_BF16) TILE(5, CPU_BF16) TILE(6, CPU_BF16)
#define TILES(type) {AT(linear_tile_##type##_1), AT(linear_tile_##type##_2), AT(linear_tile_##type##_3), \
                     AT(linear_tile_##type##_4), AT(linear_tile_##type##_5), AT(linear_tile_##type##_6)}
#else
#define TILES(type) {AT(linear_tile_##type##_1), AT(linear_tile_##type##_2)}
#endif

typedef void AT(LinearTile)(const float *x, int64_t K, const char *const w[COLS], int64_t k0, int64_t k1, float *out,
                            int64_t stride);
static AT(LinearTile) *const AT(linear_tiles)[3][TILE_ROWS] = {TILES(CPU_FP32), TILES(CPU_FP16), TILES(CPU_BF16)};
#undef TILE
#undef TILES

/* Row m of x, outputs n0 .. n0+count, whose sums stand in s: bias, activation or gate, residual. */
static void AT(linear_finish)(const LinearArgs *a, int64_t m, int64_t n0, int64_t count, float *s)
{
    float gate[ROWS_W];

    if (a->b)
        for (int64_t i = 0; i < count; i++)
            s[i] += a->b[n0 + i];
    if (a->glu) {
        float *y = a->y + m * (a->N / 2) + n0 / 2;

        count /= 2;
        for (int64_t i = 0; i < count; i++) {
            gate[i] = s[2 * i];
            s[i] = s[2 * i + 1];
        }
        for (int64_t i = 0; i < count; i += LANES)
            if (i + LANES <= count)
                vstore(y + i, vact(vload(gate + i), a->kind) * vload(s + i));
            else
                vstore_n(y + i, vact(vload_n(gate + i, count - i), a->kind) * vload_n(s + i, count - i), count - i);
        return;
    }
    float *y = a->y + m * a->N + n0;

    for (int64_t i = 0; a->kind && i < count; i += LANES)
        if (i + LANES <= count)
            vstore(s + i, vact(vload(s + i), a->kind));
        else
            vstore_n(s + i, vact(vload_n(s + i, count - i), a->kind), count - i);
    if (a->r)
        for (int64_t i = 0; i < count; i++)
            y[i] = s[i] + a->r[m * a->N + n0 + i];
    else
        memcpy(y, s, (size_t)count * sizeof *y);
}

/* Rows m0 .. m0+rows (one tile) against weight rows n0 .. n0+count. */
static void AT(linear_stripe)(const LinearArgs *a, int64_t m0, int64_t rows, int64_t n0, int64_t count)
{
    AT(LinearTile) *const tile = AT(linear_tiles)[a->type - 1][rows - 1];
    const int64_t row_bytes = a->K * cpu_type_bytes(a->type);
    float sums[MAX_ROWS][ROWS_W]; /* count is at most ROWS_W, a multiple of COLS but at the end */

    for (int64_t k = 0; k < a->K; k += KC) {
        const int64_t end = k + KC < a->K ? k + KC : a->K;

        for (int64_t n = 0; n < count; n += COLS) {
            const char *w[COLS]; /* past the last row the last one again; such sums are dropped */

            for (int64_t i = 0; i < COLS; i++)
                w[i] = a->w + (n0 + (n + i < count ? n + i : count - 1)) * row_bytes;
            tile(a->x + m0 * a->K, a->K, w, k, end, &sums[0][n], ROWS_W);
        }
    }
    for (int64_t m = 0; m < rows; m++)
        AT(linear_finish)(a, m0 + m, n0, count, sums[m]);
}

void AT(linear)(const CpuCall *c)
{
    const LinearArgs a = {.x = c->arg[0], .w = c->arg[1], .b = c->arg[2], .r = c->arg[3], .y = c->arg[4],
                          .N = c->k[LINEAR_N], .K = c->k[LINEAR_K], .type = c->k[LINEAR_W],
                          .kind = c->k[LINEAR_KIND], .glu = c->k[LINEAR_GLU] != 0};
    const int64_t M = c->k[LINEAR_ROWS_S] ? c->S : c->T;
    /* Weight rows of a piece of work: few where there are few rows, so that threads share evenly
     * and rows of W are read from end to end. */
    const int64_t rows_w = M <= TILE_ROWS ? 8 : a.K > 8192 ? 16 : M <= ROWS_X ? 32 : ROWS_W;
    const int64_t blocks_w = (a.N + rows_w - 1) / rows_w, blocks_x = (M + ROWS_X - 1) / ROWS_X;
    int64_t first, last;

    cpu_share(c, blocks_w * blocks_x, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t n0 = at / blocks_x * rows_w, m_first = at % blocks_x * ROWS_X;
        const int64_t count = a.N - n0 < rows_w ? a.N - n0 : rows_w;
        const int64_t height = M - m_first < ROWS_X ? M - m_first : ROWS_X;
        const int64_t tiles = (height + TILE_ROWS - 1) / TILE_ROWS; /* of about equal height */

        for (int64_t i = 0; i < tiles; i++) {
            const int64_t m0 = height * i / tiles, m1 = height * (i + 1) / tiles;

            AT(linear_stripe)(&a, m_first + m0, m1 - m0, n0, count);
        }
    }
}
#endif
