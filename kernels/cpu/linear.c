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
 * (decode) this streams the weights once. Many rows go through panels.h: a piece of work is a block of outputs, for which
 * rows of x are laid out anew in the thread's scratch, and then rows of w are gone through, a few at a time.
 *
 * linear_bf16 (precision.compute = "bf16") rounds x to bf16 as it is read; products and sums are those of linear. With
 * AVX512_BF16 a pair of columns (2 k, 2 k + 1) stands in the place of an element of fp32 (bf16_pairs.h): the LANES sums run over
 * pairs k, k + LANES, ... of a chunk of LINEAR_KC pairs. AMX has sums of its own (amx_bf16.h). */
//@ kernel  linear
//@ rank    120
//@ args    x[M,K] w[N,K] b[N]:fp32 r[M,N] -> y
//@ match   y = linear(x, w, b?)         | KIND=0 GLU=0
//@ match   y = add(linear(x, w, b?), r) | KIND=0 GLU=0
//@ match   y = act(linear(x, w, b?))    | KIND=act.kind GLU=0
//@ match   y = glu(linear(x, w, b?))    | KIND=glu.kind GLU=1
//@ consts  N: N  K: K  W: type(w)  ROWS_S: rows(x)
//@ fits    !BF16_ROWS || W != bf16
//@ moves   N * K * sizeof(w)
//@ flops   2 * T * N * K
//@ matmul  yes

//@ kernel  linear_bf16
//@ rank    122
//@ args    x[M,K] w[N,K]:bf16 b[N]:fp32 r[M,N] -> y
//@ match   y = linear(x, w, b?)         | KIND=0 GLU=0
//@ match   y = add(linear(x, w, b?), r) | KIND=0 GLU=0
//@ match   y = act(linear(x, w, b?))    | KIND=act.kind GLU=0
//@ match   y = glu(linear(x, w, b?))    | KIND=glu.kind GLU=1
//@ consts  N: N  K: K  ROWS_S: rows(x)
//@ fits    BF16_ROWS
//@ moves   2 * N * K
//@ flops   2 * T * N * K
//@ matmul  yes
#ifndef LEVEL
#define BODY "linear.c"
#include "each.h"
#else

#include "tile.h"
#include "panels.h"

#ifndef LINEAR_BLOCKS_ONCE
#define LINEAR_BLOCKS_ONCE
enum {
    LINEAR_MANY_X = 128, /* rows of x and of w in a block of outputs, at most */
    LINEAR_MANY_W = 384,
    LINEAR_TILE_W = 8,     /* PANEL_ROWS, over all levels */
    LINEAR_LAYING_OUT = 8, /* what it costs to lay out an element of x, in outputs */
    LINEAR_READING = 2     /* what it costs to read an element of w from L2 or L3, likewise */
};

typedef struct LinearScratch {
    float x[LINEAR_MANY_X * LINEAR_KC], w[LINEAR_TILE_W][LINEAR_KC], sums[LINEAR_MANY_W][LINEAR_MANY_X];
} LinearScratch;

_Static_assert(sizeof(LinearScratch) <= CPU_SCRATCH, "a thread's scratch");
_Static_assert(LINEAR_KC % 16 == 0, "a chunk of K is whole vectors");

static inline int64_t linear_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}
#endif

#define LINEAR_PARAMS \
    (const float *x, int64_t K, const char *const *w, int64_t k0, int64_t k1, float *out, int64_t stride)
_Static_assert(LINEAR_MANY_X % LANES == 0 && LINEAR_MANY_W % PANEL_ROWS == 0 && PANEL_ROWS <= LINEAR_TILE_W,
               "blocks are whole tiles");
TILE_FUNCTIONS(linear, LINEAR_PARAMS, (const int64_t *)0)
TILE_FORM(linear_rounded, LINEAR_PARAMS, (const int64_t *)0, LINEAR_ROUNDED)
#if LANES == 16 || defined AMX_EMULATED
TILE_FORM(linear_pairs, LINEAR_PARAMS, (const int64_t *)0, LINEAR_PAIRS)
#endif

static const struct AT(LinearTile) {
    void(*run) LINEAR_PARAMS;
    int cols;
} AT(linear_tiles)[3][TILE_ROWS] = TILE_TABLE(linear),
  AT(linear_form_tiles)[][TILE_ROWS] = {TILE_FORM_ROW(linear_rounded), /* from LINEAR_ROUNDED on */
#if LANES == 16 || defined AMX_EMULATED
                                        TILE_FORM_ROW(linear_pairs)
#endif
};
#undef LINEAR_PARAMS

/* Columns of a chunk of K. */
static inline int64_t AT(linear_chunk)(const LinearArgs *a)
{
    return a->form == LINEAR_PAIRS ? 2 * LINEAR_KC : LINEAR_KC;
}

/* Rows m0 .. m0+rows (one tile) of M times weight rows n0 .. n0+count. Up to TILE_ROWS rows it goes through each weight
 * row from end to end, since it is read only once; else chunk by chunk of K, so that the chunk of x stays in L1. */
static void AT(linear_stripe)(const LinearArgs *a, int64_t M, int64_t m0, int64_t rows, int64_t n0, int64_t count)
{
    const struct AT(LinearTile) *const tile =
        a->form ? &AT(linear_form_tiles)[a->form - 1][rows - 1] : &AT(linear_tiles)[a->type - 1][rows - 1];
    const int64_t row_bytes = a->K * cpu_type_bytes(a->type), chunk = AT(linear_chunk)(a);
    const int64_t step = M <= TILE_ROWS ? a->K : chunk;
    /* The last tile of the last block may be cut: BLOCK_W is a multiple of MAX_COLS. */
    float sums[LINEAR_MAX_ROWS][LINEAR_BLOCK_W];

    for (int64_t k0 = 0; k0 < a->K; k0 += step)
        for (int64_t n = 0; n < count; n += tile->cols) {
            const char *w[LINEAR_MAX_COLS]; /* past the end the last row again; these sums are not used */

            for (int64_t i = 0; i < tile->cols; i++)
                w[i] = a->w + (n0 + (n + i < count ? n + i : count - 1)) * row_bytes;
            for (int64_t k = k0; k < a->K && k < k0 + step; k += chunk)
                tile->run(a->x + m0 * a->K, a->K, w, k, k + chunk < a->K ? k + chunk : a->K, &sums[0][n],
                          LINEAR_BLOCK_W);
        }
    for (int64_t m = 0; m < rows; m++)
        AT(linear_finish)(a, m0 + m, n0, count, sums[m]);
}

/* Rows of x and of w in a block, so that the slowest thread is done soon. */
static void AT(linear_cut)(int64_t M, int64_t N, int64_t threads, int64_t *rows_x, int64_t *rows_w)
{
    const int64_t least_x = (M + LINEAR_MANY_X - 1) / LINEAR_MANY_X, least_w = (N + LINEAR_MANY_W - 1) / LINEAR_MANY_W;
    int64_t best = INT64_MAX;

    for (int64_t blocks_x = least_x; blocks_x < least_x + 8; blocks_x++)
        for (int64_t blocks_w = least_w; blocks_w < least_w + 16; blocks_w++) {
            const int64_t x = linear_round_up((M + blocks_x - 1) / blocks_x, LANES);
            const int64_t w = linear_round_up((N + blocks_w - 1) / blocks_w, PANEL_ROWS);
            const int64_t blocks = ((M + x - 1) / x) * ((N + w - 1) / w);
            const int64_t cost =
                (blocks + threads - 1) / threads * (x * w + LINEAR_LAYING_OUT * x + LINEAR_READING * w);

            if (cost < best) {
                best = cost;
                *rows_x = x;
                *rows_w = w;
            }
        }
}

/* Rows of x in the panel that begins at row m of m .. m1. */
static inline int64_t AT(linear_panel)(int64_t m, int64_t m1)
{
    const int64_t rows = linear_round_up(m1 - m, LANES);

    return rows < PANEL_VECS * LANES ? rows : PANEL_VECS * LANES;
}

/* The products of PANEL_ROWS rows of w from n on with all panels of x. */
static void AT(linear_tiles_of)(const LinearArgs *a, int64_t rows_x, int64_t n, int64_t n1, int64_t k, int64_t count,
                                LinearScratch *s, float (*sums)[LINEAR_MANY_X])
{
    const int64_t bytes = cpu_type_bytes(a->type), row_bytes = a->K * bytes, columns = AT(tile_wide)(a->form);
    const int64_t steps = (count + columns - 1) / columns;
    const bool pairs = a->form == LINEAR_PAIRS;
    const bool in_place = (a->type == CPU_FP32 || (pairs && a->K % 2 == 0)) && count % columns == 0;
    const float *w[PANEL_ROWS];
    const char *ahead = a->w + (n + PANEL_ROWS < n1 ? n + PANEL_ROWS : n) * row_bytes + k * bytes;

    for (int64_t i = 0; i < PANEL_ROWS; i++) { /* past the end the last row again; these sums are not used */
        const char *row = a->w + (n + i < n1 ? n + i : n1 - 1) * row_bytes + k * bytes;

        w[i] = in_place ? (const float *)(const void *)row : s->w[i];
        if (!in_place)
            AT(panel_row_of_w)(a->form, a->type, row, count, s->w[i]);
    }
    for (int64_t m = 0, wide; m < rows_x; m += wide) {
        const float *x = s->x + m * steps * LANES;
        float *out = &sums[0][m];

        wide = AT(linear_panel)(m, rows_x);
        AT(panel_tiles)
        [pairs][wide / LANES - 1](steps, x, w, k > 0, out, LINEAR_MANY_X, ahead, row_bytes, columns * bytes);
        ahead = a->w + n * row_bytes + k * bytes; /* all of it is in the cache by now */
    }
}

/* As linear_finish without a gate, for rows m0 .. m0+rows (LANES at most) of columns n0 .. n0+count (likewise), whose sums are
 * v: a vector for each row. kind: a constant where that is worth it. */
ALWAYS_INLINE void AT(linear_end)(const LinearArgs *a, int64_t kind, int64_t m0, int64_t rows, int64_t n0,
                                  int64_t count, const Vf v[LANES])
{
    const Vf b = a->b ? AT(linear_some)(a->b + n0, count) : vset(0.0f);

    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = (m0 + i) * a->N + n0;
        Vf y = vact(a->b ? v[i] + b : v[i], kind);

        if (a->r)
            y += AT(linear_some)(a->r + at, count);
        AT(linear_put)(a->y + at, y, count);
    }
}

/* Finishes rows m0 .. m0+rows (LANES at most) of columns n0 .. n0+count, whose sums stand column by column. */
static void AT(linear_finish_many)(const LinearArgs *a, int64_t m0, int64_t rows, int64_t n0, int64_t count,
                                   const float *sums)
{
    float turned[LANES][LINEAR_BLOCK_W];

    for (int64_t n = 0; n < count; n += LANES) {
        const int64_t left = count - n;
        Vf v[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            v[i] = vload(sums + (n + i) * LINEAR_MANY_X);
        AT(turn)(v);
        if (a->glu) {
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                vstore(&turned[i][n], v[i]);
        } else if (a->kind == CPU_NONE) {
            AT(linear_end)(a, CPU_NONE, m0, rows, n0 + n, left, v);
        } else if (a->kind == CPU_GELU_ERF) {
            AT(linear_end)(a, CPU_GELU_ERF, m0, rows, n0 + n, left, v);
        } else {
            AT(linear_end)(a, a->kind, m0, rows, n0 + n, left, v);
        }
    }
    for (int64_t m = 0; a->glu && m < rows; m++)
        AT(linear_finish)(a, m0 + m, n0, count, turned[m]);
}

/* Outputs m0 .. m1 by n0 .. n1. laid_out: the only chunk of these rows of x is in scratch already. */
static void AT(linear_block)(const LinearArgs *a, int64_t m0, int64_t m1, int64_t n0, int64_t n1, bool laid_out,
                             LinearScratch *s)
{
    const int64_t chunk = AT(linear_chunk)(a), columns = AT(tile_wide)(a->form);

    for (int64_t k = 0; k < a->K; k += chunk) {
        const int64_t count = a->K - k < chunk ? a->K - k : chunk, steps = (count + columns - 1) / columns;

        for (int64_t m = m0, wide; m < m1 && !laid_out; m += wide) {
            wide = AT(linear_panel)(m, m1);
            AT(panel_of_x)
            (a->form, a->x + m * a->K + k, a->K, m1 - m, wide, count, s->x + (m - m0) * steps * LANES);
        }
        for (int64_t n = n0; n < n1; n += PANEL_ROWS)
            AT(linear_tiles_of)(a, m1 - m0, n, n1, k, count, s, &s->sums[n - n0]);
    }
    for (int64_t m = m0; m < m1; m += LANES)
        for (int64_t n = n0; n < n1; n += LINEAR_BLOCK_W)
            AT(linear_finish_many)
    (a, m, m1 - m < LANES ? m1 - m : LANES, n, n1 - n < LINEAR_BLOCK_W ? n1 - n : LINEAR_BLOCK_W,
     &s->sums[n - n0][m - m0]);
}

static void AT(linear_many)(const CpuCall *c, const LinearArgs *a, int64_t M)
{
    int64_t rows_x = LINEAR_MANY_X, rows_w = LINEAR_MANY_W, own = 0, in_scratch = -1;

    AT(linear_cut)(M, a->N, c->threads, &rows_x, &rows_w);

    const int64_t blocks_x = (M + rows_x - 1) / rows_x, blocks_w = (a->N + rows_w - 1) / rows_w;

    for (int64_t at; (at = cpu_take(c, blocks_x * blocks_w, &own)) >= 0;) {
        const int64_t m = at / blocks_w * rows_x, n = at % blocks_w * rows_w;

        AT(linear_block)
        (a, m, m + rows_x < M ? m + rows_x : M, n, n + rows_w < a->N ? n + rows_w : a->N, m == in_scratch, c->scratch);
        in_scratch = a->K <= AT(linear_chunk)(a) ? m : -1;
    }
}

static void AT(linear_rows)(const CpuCall *c, const LinearArgs *a, int64_t M)
{
    /* Weight rows of a piece of work: few where M is small, so that threads have equal shares and rows of w are read
     * from end to end. */
    const int64_t rows_w = M <= TILE_ROWS                       ? 8
                           : a->K > 8192                        ? 16
                           : M <= LINEAR_BLOCK_X || a->K > 4096 ? 32
                                                                : LINEAR_BLOCK_W;
    const int64_t blocks_w = (a->N + rows_w - 1) / rows_w, blocks_x = (M + LINEAR_BLOCK_X - 1) / LINEAR_BLOCK_X;
    int64_t first, last;

    cpu_share(c, blocks_w * blocks_x, &first, &last);
    for (int64_t at = first; at < last; at++) {
        const int64_t n0 = at / blocks_x * rows_w, m_first = at % blocks_x * LINEAR_BLOCK_X;
        const int64_t count = a->N - n0 < rows_w ? a->N - n0 : rows_w;
        const int64_t height = M - m_first < LINEAR_BLOCK_X ? M - m_first : LINEAR_BLOCK_X;
        const int64_t tiles = (height + TILE_ROWS - 1) / TILE_ROWS; /* of about equal height */

        for (int64_t i = 0; i < tiles; i++) {
            const int64_t m0 = height * i / tiles, m1 = height * (i + 1) / tiles;

            AT(linear_stripe)(a, M, m_first + m0, m1 - m0, n0, count);
        }
    }
}

#if LANES == 16 || defined AMX_EMULATED
#include "amx_bf16.h"
#endif

static void AT(linear_any)(const CpuCall *c, const LinearArgs *a, int64_t M)
{
    if (M >= (a->form == LINEAR_PAIRS ? 40
              : LANES == 16           ? 64
                                      : 24) &&
        c->scratch) /* from there on faster, as measured */
        AT(linear_many)(c, a, M);
    else
        AT(linear_rows)(c, a, M);
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

    AT(linear_any)(c, &a, c->k[LINEAR_ROWS_S] ? c->S : c->T);
}

ALWAYS_INLINE LinearArgs AT(linear_bf16_arguments)(const CpuCall *c)
{
    return (LinearArgs){.x = c->arg[0],
                        .w = c->arg[1],
                        .b = c->arg[2],
                        .r = c->arg[3],
                        .y = c->arg[4],
                        .N = c->k[LINEAR_BF16_N],
                        .K = c->k[LINEAR_BF16_K],
                        .type = CPU_BF16,
                        .kind = c->k[LINEAR_BF16_KIND],
                        .glu = c->k[LINEAR_BF16_GLU] != 0,
                        .form = LINEAR_ROUNDED};
}

void AT(linear_bf16)(const CpuCall *c)
{
    const LinearArgs a = AT(linear_bf16_arguments)(c);

    AT(linear_any)(c, &a, c->k[LINEAR_BF16_ROWS_S] ? c->S : c->T);
}

#if LANES == 16 && !defined AMX_EMULATED
#define LINEAR_LEVEL(level) void linear_bf16_##level
#elif defined AMX_EMULATED /* of the levels that a test uses */
#define LINEAR_LEVEL(level) static __attribute__((unused)) void AT(linear_bf16_##level)
#endif
#if LANES == 16 || defined AMX_EMULATED
LINEAR_LEVEL(avx512bf16)(const CpuCall *c)
{
    LinearArgs a = AT(linear_bf16_arguments)(c);

    a.form = LINEAR_PAIRS;
    AT(linear_any)(c, &a, c->k[LINEAR_BF16_ROWS_S] ? c->S : c->T);
}

LINEAR_LEVEL(amx)(const CpuCall *c)
{
    const LinearArgs a = AT(linear_bf16_arguments)(c);

    AT(amx_bf16_share)(c, &a, c->k[LINEAR_BF16_ROWS_S] ? c->S : c->T);
}
#undef LINEAR_LEVEL
#endif
#endif
