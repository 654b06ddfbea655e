/* panels.h - many rows of x times rows of w, for linear.c: rows of x are laid out in panels of PANEL_VECS vectors, and a tile
 * is the outputs of a panel and PANEL_ROWS rows of w.
 *
 * The sums are those of tile.h, bit by bit: in a chunk of K each output has LANES partial sums, over k, k + LANES, ...,
 * which are added by the tree of vsum4. There a vector holds all partial sums of one output; here it holds one partial sum
 * of LANES outputs, those of LANES rows of x with one row of w. So the registers hold LANES times as many outputs, and no
 * vector is added across. The chunk is gone through lane after lane, in the order in which the tree adds them; a sum that
 * waits for its other half is put aside.
 *
 * A panel holds some rows of a chunk of x as [lane][step of LANES columns][row]: 21 bytes of it a cycle come from L2 with
 * AVX-512. Elements of w are read where they lie, each for a whole vector: the rows of a tile stay in L1 (24 KB with
 * AVX-512) for all panels of x. There is no include guard, since each.h includes a kernel's text once for each level. */
#include "turn.h"

#if LANES == 16
#define PANEL_DEPTH 4 /* of the tree of sums */
#elif LANES == 8
#define PANEL_DEPTH 3
#else
#define PANEL_DEPTH 2
#endif

/* When the tree adds lane l, and which lane it adds then: neighbours at distance 2, 1, then 4 or 8, 4. */
ALWAYS_INLINE int AT(panel_place)(int l)
{
    return (l & 1) << 1 | (l & 2) >> 1 | (LANES == 16 ? (l & 4) << 1 | (l & 8) >> 1 : l & 4);
}

/* `count` columns of rows that begin at x, K apart, into a panel of `wide` rows (a multiple of LANES). Of rows beyond `rows`
 * the last one again; zeros behind the end of K. form: a constant. */
ALWAYS_INLINE void AT(panel_fill)(LinearForm form, const float *x, int64_t K, int64_t rows, int64_t wide, int64_t count,
                                  float *panel)
{
    const int64_t columns = AT(tile_wide)(form), steps = (count + columns - 1) / columns;

    for (int64_t first = 0; first < wide; first += LANES)
        for (int64_t j = 0; j < steps; j++) {
            const int64_t left = count - j * columns;
            Vf v[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                v[i] = AT(tile_x)(form, x + (first + i < rows ? first + i : rows - 1) * K + j * columns, left);
            AT(turn)(v);
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++)
                vstore(panel + (AT(panel_place)(l) * steps + j) * wide + first, v[l]);
        }
}

static __attribute__((noinline)) void AT(panel_of_x)(LinearForm form, const float *x, int64_t K, int64_t rows,
                                                     int64_t wide, int64_t count, float *panel)
{
    if (form == LINEAR_PLAIN)
        AT(panel_fill)(LINEAR_PLAIN, x, K, rows, wide, count, panel);
    else if (form == LINEAR_ROUNDED)
        AT(panel_fill)(LINEAR_ROUNDED, x, K, rows, wide, count, panel);
#if LANES == 16 || defined AMX_EMULATED
    else
        AT(panel_fill)(LINEAR_PAIRS, x, K, rows, wide, count, panel);
#endif
}

/* `count` elements of a row of w as fp32 or pairs, and zeros up to a whole vector. */
ALWAYS_INLINE void AT(panel_row)(LinearForm form, int type, const char *w, int64_t count, float *to)
{
    const int64_t bytes = type == CPU_FP32 ? 4 : 2, columns = AT(tile_wide)(form);

    for (int64_t k = 0; k < count; k += columns, to += LANES)
        vstore(to, AT(tile_w)(form, type, w + k * bytes, count - k));
}

static __attribute__((noinline)) void AT(panel_row_of_w)(LinearForm form, int64_t type, const char *w, int64_t count,
                                                         float *to)
{
    if (form == LINEAR_PAIRS) /* as they lie */
        AT(panel_row)(LINEAR_PAIRS, CPU_BF16, w, count, to);
    else if (type == CPU_FP32)
        AT(panel_row)(LINEAR_PLAIN, CPU_FP32, w, count, to);
    else if (type == CPU_FP16)
        AT(panel_row)(LINEAR_PLAIN, CPU_FP16, w, count, to);
    else
        AT(panel_row)(LINEAR_PLAIN, CPU_BF16, w, count, to);
}

/* out[n][m] (+)= the products of row n of w with row m of a panel of `vecs` vectors (a constant), in a chunk of K; form:
 * LINEAR_PAIRS or another, a constant; `stride` floats from row to row of out. Rows of w that are needed next, `ahead_row` bytes apart, are fetched into L2 meanwhile,
 * `ahead_step` bytes in a step. */
ALWAYS_INLINE void AT(panel_product)(LinearForm form, int vecs, int64_t steps, const float *x, const float *const *w,
                                     bool add, float *out, int64_t stride, const char *ahead, int64_t ahead_row,
                                     int64_t ahead_step)
{
    _Alignas(sizeof(Vf)) Vf waiting[PANEL_DEPTH][PANEL_ROWS][PANEL_VECS];
    int top = 0;

    for (int place = 0; place < LANES; place++) {
        const char *next = ahead + (place < PANEL_ROWS ? place : 0) * ahead_row;
        Vf sum[PANEL_ROWS][PANEL_VECS];
#pragma GCC unroll 16
        for (int n = 0; n < PANEL_ROWS; n++)
#pragma GCC unroll 4
            for (int m = 0; m < vecs; m++)
                sum[n][m] = vset(0.0f);
        for (int64_t j = 0, at = AT(panel_place)(place); j < steps; j++, at += LANES, x += vecs * LANES) {
            Vf v[PANEL_VECS];
#pragma GCC unroll 4
            for (int m = 0; m < vecs; m++)
                v[m] = vload(x + m * LANES);
            __builtin_prefetch(next, 0, 2);
            next += ahead_step;
#pragma GCC unroll 16
            for (int n = 0; n < PANEL_ROWS; n++) {
                const Vf a = AT(spread)(w[n] + at);
#pragma GCC unroll 4
                for (int m = 0; m < vecs; m++)
                    sum[n][m] = AT(tile_add)(form, sum[n][m], v[m], a);
            }
        }
        for (int whole = place; whole & 1; whole >>= 1) {
            top--;
#pragma GCC unroll 16
            for (int n = 0; n < PANEL_ROWS; n++)
#pragma GCC unroll 4
                for (int m = 0; m < vecs; m++)
                    sum[n][m] += waiting[top][n][m];
        }
        if (place < LANES - 1) {
#pragma GCC unroll 16
            for (int n = 0; n < PANEL_ROWS; n++)
#pragma GCC unroll 4
                for (int m = 0; m < vecs; m++)
                    waiting[top][n][m] = sum[n][m];
            top++;
            continue;
        }
#pragma GCC unroll 16
        for (int n = 0; n < PANEL_ROWS; n++)
#pragma GCC unroll 4
            for (int m = 0; m < vecs; m++) {
                float *to = out + n * stride + m * LANES;

                vstore(to, add ? vload(to) + sum[n][m] : sum[n][m]);
            }
    }
}

#define PANEL_PARAMS \
    (int64_t steps, const float *x, const float *const *w, bool add, float *out, int64_t stride, const char *ahead, \
     int64_t ahead_row, int64_t ahead_step)
#define PANEL_TILE(name, form, vecs) \
    static __attribute__((noinline)) void AT(name##_##vecs) PANEL_PARAMS \
    { \
        AT(panel_product)(form, vecs, steps, x, w, add, out, stride, ahead, ahead_row, ahead_step); \
    }
/* PANEL_VECS functions; PANEL_TABLE: by vectors, less one. */
#if PANEL_VECS == 2
#define PANEL_TILES(name, form) PANEL_TILE(name, form, 1) PANEL_TILE(name, form, 2)
#define PANEL_TABLE(name) \
    { \
        AT(name##_1), AT(name##_2) \
    }
#elif PANEL_VECS == 3
#define PANEL_TILES(name, form) PANEL_TILE(name, form, 1) PANEL_TILE(name, form, 2) PANEL_TILE(name, form, 3)
#define PANEL_TABLE(name) \
    { \
        AT(name##_1), AT(name##_2), AT(name##_3) \
    }
#else
#define PANEL_TILES(name, form) \
    PANEL_TILE(name, form, 1) PANEL_TILE(name, form, 2) PANEL_TILE(name, form, 3) PANEL_TILE(name, form, 4)
#define PANEL_TABLE(name) \
    { \
        AT(name##_1), AT(name##_2), AT(name##_3), AT(name##_4) \
    }
#endif
PANEL_TILES(panel_tile, LINEAR_PLAIN)
#if LANES == 16 || defined AMX_EMULATED
PANEL_TILES(panel_pairs, LINEAR_PAIRS)
#endif
static void(*const AT(panel_tiles)[][PANEL_VECS]) PANEL_PARAMS = {PANEL_TABLE(panel_tile), /* [1]: of pairs */
#if LANES == 16 || defined AMX_EMULATED
                                                                  PANEL_TABLE(panel_pairs)
#endif
};
#undef PANEL_PARAMS
#undef PANEL_TILE
#undef PANEL_TILES
#undef PANEL_TABLE
#undef PANEL_DEPTH
