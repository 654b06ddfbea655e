/* tile.h - products of a few rows of x with a few rows of w, for linear.c and experts.c: one tile, and its epilogue.
 *
 * Every output is summed in one order, whatever the tile: K is cut into chunks of LINEAR_KC; inside a chunk LANES partial
 * sums run over k, k + LANES, ... and are added by the tree of vsum4; chunks are added in order. Pairs of bf16 (bf16_pairs.h) are as
 * one element, in chunks as in elements. There is no include guard, since each.h includes a kernel's text once for each level. */
#ifndef LINEAR_ONCE
#define LINEAR_ONCE
enum {
    LINEAR_KC = 1024,    /* 6 rows of x: 24 KB, half of a 48 KB L1 */
    LINEAR_MAX_ROWS = 6, /* of a tile, over all levels */
    LINEAR_MAX_COLS = 8,
    LINEAR_BLOCK_W = 64, /* rows of w and of x in a piece of work */
    LINEAR_BLOCK_X = 48,
};

typedef enum LinearForm { /* of rows of x, as they are read */
                          LINEAR_PLAIN,
                          LINEAR_ROUNDED, /* to what bf16 can hold */
                          LINEAR_PAIRS    /* of bf16 */
} LinearForm;

typedef struct LinearArgs {
    const float *x, *b, *r;
    const char *w;
    float *y;
    int64_t N, K, type, kind;
    int glu;
    LinearForm form;
} LinearArgs;
#endif

#include "bf16_pairs.h"

/* A vector of a row of x, of w; `left` elements are before the end of the row. form and type are constants. */
ALWAYS_INLINE Vf AT(tile_x)(LinearForm form, const float *x, int64_t left)
{
    if (form == LINEAR_PAIRS)
        return AT(bf16_pairs)(x, left);

    const Vf v = left < LANES ? vload_n(x, left) : vload(x);

    return form == LINEAR_ROUNDED ? vround(v) : v;
}

ALWAYS_INLINE Vf AT(tile_w)(LinearForm form, int type, const char *w, int64_t left)
{
    if (form == LINEAR_PAIRS)
        return AT(bf16_pairs_of_w)(w, left);
    return left < LANES ? vload_as_n(w, type, left) : vload_as(w, type);
}

/* The elements of a vector, and a vector's product added to a sum. */
ALWAYS_INLINE int64_t AT(tile_wide)(LinearForm form)
{
    return form == LINEAR_PAIRS ? 2 * LANES : LANES;
}

ALWAYS_INLINE Vf AT(tile_add)(LinearForm form, Vf sum, Vf x, Vf w)
{
    return form == LINEAR_PAIRS ? AT(bf16_dot)(sum, x, w) : sum + x * w;
}

/* out[m][0..cols) (+)= x[m, k0..k1) . w[0..cols)[k0..k1) for `rows` rows; rows, cols, type and form are constants. Row m of x
 * begins at element at[m]; without `at` rows stand one after another.
 *
 * w is read once, so each iteration prefetches into L2 as many bytes of the next tile's rows as it reads. These are
 * contiguous; without this the hardware prefetcher has to follow `cols` short streams. */
ALWAYS_INLINE void AT(linear_tile)(int rows, int cols, int type, LinearForm form, const float *x, const int64_t *at,
                                   int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out, int64_t stride)
{
    const int64_t bytes = type == CPU_FP32 ? 4 : 2, wide = AT(tile_wide)(form);
    const int lines = (int)(cols * wide * bytes / 64);
    Vf sum[LINEAR_MAX_ROWS][LINEAR_MAX_COLS];
    int64_t k = k0;

#pragma GCC unroll 8
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 8
        for (int n = 0; n < cols; n++)
            sum[m][n] = vset(0.0f);
    for (; k + wide <= k1; k += wide) {
        const char *ahead = w[0] + cols * (K + k) * bytes;
        Vf v[LINEAR_MAX_COLS];
#pragma GCC unroll 8
        for (int n = 0; n < lines; n++)
            __builtin_prefetch(ahead + n * 64, 0, 2);
#pragma GCC unroll 8
        for (int n = 0; n < cols; n++)
            v[n] = AT(tile_w)(form, type, w[n] + k * bytes, wide);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            const Vf a = AT(tile_x)(form, x + (at ? at[m] : m * K) + k, wide);
#pragma GCC unroll 8
            for (int n = 0; n < cols; n++)
                sum[m][n] = AT(tile_add)(form, sum[m][n], a, v[n]);
        }
    }
    if (k < k1) {
        Vf v[LINEAR_MAX_COLS];
#pragma GCC unroll 8
        for (int n = 0; n < cols; n++)
            v[n] = AT(tile_w)(form, type, w[n] + k * bytes, k1 - k);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            const Vf a = AT(tile_x)(form, x + (at ? at[m] : m * K) + k, k1 - k);
#pragma GCC unroll 8
            for (int n = 0; n < cols; n++)
                sum[m][n] = AT(tile_add)(form, sum[m][n], a, v[n]);
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
 * latency of the multiply-add. `params`: what the functions take; `at`: as in linear_tile. */
#ifndef TILE_FUNCTION
#define TILE_FUNCTION(name, params, at, rows, cols, type, form) \
    static __attribute__((noinline)) void AT(name##_##type##_##rows) params \
    { \
        AT(linear_tile)(rows, cols, type, form, x, at, K, w, k0, k1, out, stride); \
    }
#define TILE_WIDE(name, params, at, type, form) \
    TILE_FUNCTION(name, params, at, 1, 8, type, form) \
    TILE_FUNCTION(name, params, at, 2, 8, type, form) \
    TILE_FUNCTION(name, params, at, 3, 4, type, form) \
    TILE_FUNCTION(name, params, at, 4, 4, type, form) \
    TILE_FUNCTION(name, params, at, 5, 4, type, form) \
    TILE_FUNCTION(name, params, at, 6, 4, type, form)
#define TILE_NARROW(name, params, at, type, form) \
    TILE_FUNCTION(name, params, at, 1, 8, type, form) TILE_FUNCTION(name, params, at, 2, 4, type, form)
/* The functions of a type with the columns of their tiles, by rows. */
#define TILE_ROW_WIDE(name, type) \
    { \
        {AT(name##_##type##_1), 8}, {AT(name##_##type##_2), 8}, {AT(name##_##type##_3), 4}, \
            {AT(name##_##type##_4), 4}, {AT(name##_##type##_5), 4}, \
        { \
            AT(name##_##type##_6), 4 \
        } \
    }
#define TILE_ROW_NARROW(name, type) \
    { \
        {AT(name##_##type##_1), 8}, \
        { \
            AT(name##_##type##_2), 4 \
        } \
    }
#endif
#undef TILE_FUNCTIONS
#undef TILE_FORM
#undef TILE_FORM_ROW
#undef TILE_TABLE
#if TILE_ROWS == 6
#define TILE_FUNCTIONS(name, params, at) \
    TILE_WIDE(name, params, at, CPU_FP32, LINEAR_PLAIN) \
    TILE_WIDE(name, params, at, CPU_FP16, LINEAR_PLAIN) TILE_WIDE(name, params, at, CPU_BF16, LINEAR_PLAIN)
/* Of bf16, with rows of x in a form. */
#define TILE_FORM(name, params, at, form) TILE_WIDE(name, params, at, CPU_BF16, form)
#define TILE_FORM_ROW(name) TILE_ROW_WIDE(name, CPU_BF16)
#define TILE_TABLE(name) \
    { \
        TILE_ROW_WIDE(name, CPU_FP32), TILE_ROW_WIDE(name, CPU_FP16), TILE_ROW_WIDE(name, CPU_BF16) \
    }
#else
#define TILE_FUNCTIONS(name, params, at) \
    TILE_NARROW(name, params, at, CPU_FP32, LINEAR_PLAIN) \
    TILE_NARROW(name, params, at, CPU_FP16, LINEAR_PLAIN) TILE_NARROW(name, params, at, CPU_BF16, LINEAR_PLAIN)
#define TILE_FORM(name, params, at, form) TILE_NARROW(name, params, at, CPU_BF16, form)
#define TILE_FORM_ROW(name) TILE_ROW_NARROW(name, CPU_BF16)
#define TILE_TABLE(name) \
    { \
        TILE_ROW_NARROW(name, CPU_FP32), TILE_ROW_NARROW(name, CPU_FP16), TILE_ROW_NARROW(name, CPU_BF16) \
    }
#endif

/* n elements from p on, of which a vector holds the first LANES. */
ALWAYS_INLINE Vf AT(linear_some)(const float *p, int64_t n)
{
    return n < LANES ? vload_n(p, n) : vload(p);
}

ALWAYS_INLINE void AT(linear_put)(float *p, Vf v, int64_t n)
{
    if (n < LANES)
        vstore_n(p, v, n);
    else
        vstore(p, v);
}

/* Finishes outputs n0 .. n0+count of row m, whose sums are s: bias, activation or gate, residual. */
static void AT(linear_finish)(const LinearArgs *a, int64_t m, int64_t n0, int64_t count, float *s)
{
    const float *b = a->b ? a->b + n0 : NULL, *r = a->r ? a->r + m * a->N + n0 : NULL;
    float *y = a->y + m * a->N + n0, gate[LINEAR_BLOCK_W];

    if (!a->glu) {
        for (int64_t i = 0; i < count; i += LANES) {
            Vf v = AT(linear_some)(s + i, count - i);

            if (b)
                v += AT(linear_some)(b + i, count - i);
            v = vact(v, a->kind);
            if (r)
                v += AT(linear_some)(r + i, count - i);
            AT(linear_put)(y + i, v, count - i);
        }
        return;
    }
    if (b)
        for (int64_t i = 0; i < count; i++)
            s[i] += b[i];
    y = a->y + m * (a->N / 2) + n0 / 2;
    count /= 2;
    for (int64_t i = 0; i < count; i++) {
        gate[i] = s[2 * i];
        s[i] = s[2 * i + 1];
    }
    for (int64_t i = 0; i < count; i += LANES)
        AT(linear_put)
    (y + i, vact(AT(linear_some)(gate + i, count - i), a->kind) * AT(linear_some)(s + i, count - i), count - i);
}
