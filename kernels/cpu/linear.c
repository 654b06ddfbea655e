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
 * stays in the cache while blocks of LINEAR_BLOCK_X rows of x go past. */
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

#ifndef LINEAR_ONCE
#define LINEAR_ONCE
enum {
    LINEAR_KC = 1024,    /* 6 rows of x: 24 KB, half of a 48 KB L1 */
    LINEAR_MAX_ROWS = 6, /* of a tile, over all levels */
    LINEAR_MAX_COLS = 8,
    LINEAR_BLOCK_W = 64, /* rows of w and of x in a piece of work */
    LINEAR_BLOCK_X = 48,
};

typedef struct LinearArgs {
    const float *x, *b, *r;
    const char *w;
    float *y;
    int64_t N, K, type, kind;
    int glu;
} LinearArgs;
#endif

/* out[m][0..cols) (+)= x[m, k0..k1) . w[0..cols)[k0..k1) for `rows` rows; rows, cols and type are
 * constants. */
ALWAYS_INLINE void AT(linear_tile)(int rows, int cols, int type, const float *x, int64_t K, const char *const *w,
                                   int64_t k0, int64_t k1, float *out, int64_t stride)
{
    const int64_t bytes = type == CPU_FP32 ? 4 : 2;
    const int lines = (int)(cols * LANES * bytes / 64);
    Vf sum[LINEAR_MAX_ROWS][LINEAR_MAX_COLS];
    int64_t k = k0;

#pragma GCC unroll 8
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
        for (int n = 0; n < cols; n++)
            sum[m][n] = vset(0.0f);
    for (; k + LANES <= k1; k += LANES) {
        /* Prefetches as many bytes of the next tile's rows as this iteration reads. These are contiguous; without
         * this the hardware prefetcher has to follow `cols` short streams. */
        const char *ahead = w[0] + cols * (K + k) * bytes;
        Vf v[LINEAR_MAX_COLS];
#pragma GCC unroll 8
        for (int n = 0; n < lines; n++)
            __builtin_prefetch(ahead + n * 64, 0, 2);
#pragma GCC unroll 8
        for (int n = 0; n < cols; n++)
            v[n] = vload_as(w[n] + k * bytes, type);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            const Vf a = vload(x + m * K + k);
#pragma GCC unroll 8
            for (int n = 0; n < cols; n++)
                sum[m][n] += a * v[n];
        }
    }
    if (k < k1) {
        Vf v[LINEAR_MAX_COLS];
#pragma GCC unroll 8
        for (int n = 0; n < cols; n++)
            v[n] = vload_as_n(w[n] + k * bytes, type, k1 - k);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            const Vf a = vload_n(x + m * K + k, k1 - k);
#pragma GCC unroll 8
            for (int n = 0; n < cols; n++)
                sum[m][n] += a * v[n];
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
        for (int n = 0; n < cols; n += 4) {
            Quad s = vsum4(sum[m][n], sum[m][n + 1], sum[m][n + 2], sum[m][n + 3]), before;

            if (k0 > 0) {
                memcpy(&before, out + m * stride + n, sizeof before);
                s += before;
            }
            memcpy(out + m * stride + n, &s, sizeof s);
        }
}

/* The tiles of a level: as many outputs as registers hold, and with few rows enough independent sums to cover the
 * latency of the multiply-add. */
#define LINEAR_TILE(rows, cols, type) \
    static __attribute__((noinline)) void AT(linear_##type##_##rows)( \
        const float *x, int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out, int64_t stride) \
    { \
        AT(linear_tile)(rows, cols, type, x, K, w, k0, k1, out, stride); \
    }
#if TILE_ROWS == 6
#define LINEAR_TILES(type) \
    LINEAR_TILE(1, 8, type) \
    LINEAR_TILE(2, 8, type) \
    LINEAR_TILE(3, 4, type) LINEAR_TILE(4, 4, type) LINEAR_TILE(5, 4, type) LINEAR_TILE(6, 4, type)
#define LINEAR_ROW(type) \
    { \
        {AT(linear_##type##_1), 8}, {AT(linear_##type##_2), 8}, {AT(linear_##type##_3), 4}, \
            {AT(linear_##type##_4), 4}, {AT(linear_##type##_5), 4}, \
        { \
            AT(linear_##type##_6), 4 \
        } \
    }
#else
#define LINEAR_TILES(type) LINEAR_TILE(1, 8, type) LINEAR_TILE(2, 4, type)
#define LINEAR_ROW(type) \
    { \
        {AT(linear_##type##_1), 8}, \
        { \
            AT(linear_##type##_2), 4 \
        } \
    }
#endif
LINEAR_TILES(CPU_FP32)
LINEAR_TILES(CPU_FP16)
LINEAR_TILES(CPU_BF16)

static const struct AT(LinearTile) {
    void (*run)(const float *x, int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out, int64_t stride);
    int cols;
} AT(linear_tiles)[3][TILE_ROWS] = {LINEAR_ROW(CPU_FP32), LINEAR_ROW(CPU_FP16), LINEAR_ROW(CPU_BF16)};
#undef LINEAR_TILE
#undef LINEAR_TILES
#undef LINEAR_ROW

/* Finishes outputs n0 .. n0+count of row m, whose sums are s: bias, activation or gate, residual. */
static void AT(linear_finish)(const LinearArgs *a, int64_t m, int64_t n0, int64_t count, float *s)
{
    float gate[LINEAR_BLOCK_W];

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

/* Rows m0 .. m0+rows (one tile) times weight rows n0 .. n0+count. stream: goes through each weight row from end to end,
 * since it is read only once; else chunk by chunk of K, so that the chunk of x stays in L1. */
static void AT(linear_stripe)(const LinearArgs *a, int64_t m0, int64_t rows, int64_t n0, int64_t count, int stream)
{
    const struct AT(LinearTile) *const tile = &AT(linear_tiles)[a->type - 1][rows - 1];
    const int64_t row_bytes = a->K * cpu_type_bytes(a->type), step = stream ? a->K : LINEAR_KC;
    /* The last tile of the last block may be cut: BLOCK_W is a multiple of MAX_COLS. */
    float sums[LINEAR_MAX_ROWS][LINEAR_BLOCK_W];

    for (int64_t k0 = 0; k0 < a->K; k0 += step)
        for (int64_t n = 0; n < count; n += tile->cols) {
            const char *w[LINEAR_MAX_COLS]; /* past the end the last row again; these sums are not used */

            for (int64_t i = 0; i < tile->cols; i++)
                w[i] = a->w + (n0 + (n + i < count ? n + i : count - 1)) * row_bytes;
            for (int64_t k = k0; k < a->K && k < k0 + step; k += LINEAR_KC)
                tile->run(a->x + m0 * a->K, a->K, w, k, k + LINEAR_KC < a->K ? k + LINEAR_KC : a->K, &sums[0][n],
                          LINEAR_BLOCK_W);
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

            AT(linear_stripe)(&a, m_first + m0, m1 - m0, n0, count, M <= TILE_ROWS);
        }
    }
}
#endif
