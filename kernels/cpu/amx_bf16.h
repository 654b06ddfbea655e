/* amx_bf16.h - rows of x, rounded to bf16, times weights of bf16 with the tile instructions of AMX, for linear.c.
 *
 * Weights are read as they lie: a register takes 16 of their rows by 32 k. Of x the pairs (k, k + 1) of 16 rows stand side by
 * side, so it is laid out anew, in the thread's scratch, and the products come out as [row of w][row of x]:
 *
 *                        left x (6)   right x (7)
 *     upper w (4)        sums 0       sums 1
 *     lower w (5)        sums 2       sums 3
 *
 * A unit of work is two tiles of w. A thread takes consecutive units; for each chunk of K it lays out x once and then goes
 * through its units. Sums wait in the scratch from chunk to chunk.
 *
 * Every output is summed in one order, by steps of 32 k as amx_dot_bf16 says, whatever M, the chunks and the thread. Behind the end
 * of K both operands are zero. So one row alone is multiplied by tiles, too.
 *
 * There is no include guard, since each.h includes a kernel's text once for each level. */
#include "amx_tiles.h"

#ifndef AMX_BF16_ONCE
#define AMX_BF16_ONCE
enum {
    AMX_STEP = 32,           /* k of a register */
    AMX_X = 128,             /* rows of x in a piece of work */
    AMX_UNIT = 32,           /* rows of w: two tiles */
    AMX_W_STEPS = 16,        /* of a unit before the next rows of x: 32 KB of weights stay in L1 */
    AMX_X_BYTES = 256 << 10, /* of a thread's scratch for x; the rest is for sums */
    AMX_X_BYTES_LEAST = (AMX_X / AMX_ROWS) * 1024,
    AMX_SUM_BYTES_LEAST = 2 * (AMX_X / AMX_ROWS) * 1024
};

typedef struct AmxRoom { /* for the pieces of a thread */
    char *x, *sums;
    int64_t x_bytes, sum_bytes;
} AmxRoom;

typedef struct AmxPiece { /* rows m0 .. m0+rows of x times units first .. last of w */
    int64_t m0, rows, first, last;
    int64_t tiles; /* of x */
    int64_t wide;  /* bytes of a row of a register of x: 64, for a single row of x 4 */
} AmxPiece;

_Static_assert(AMX_X_BYTES + AMX_SUM_BYTES_LEAST <= CPU_SCRATCH, "a thread's scratch");
#endif

/* Steps s0 .. s1 of the rows of a piece, as [tile][step][pair][row]. Of rows beyond the last it is taken again. */
static void AT(amx_lay_out_rows)(const LinearArgs *a, const AmxPiece *p, int64_t s0, int64_t s1, char *to)
{
    const int64_t rows_at_once = p->wide == 4 ? 1 : LANES;

    for (int64_t t = 0; t < p->tiles; t++)
        for (int64_t s = s0; s < s1; s++, to += 16 * p->wide)
            for (int64_t r = 0; r < p->wide / 4; r += rows_at_once)
                for (int64_t pair = 0; pair < 16; pair += LANES) {
                    const int64_t k = s * AMX_STEP + 2 * pair;
                    Vf v[LANES];

                    for (int64_t i = 0; i < rows_at_once; i++) {
                        const int64_t m = t * AMX_ROWS + r + i;
                        const float *row = a->x + (p->m0 + (m < p->rows ? m : p->rows - 1)) * a->K;

                        v[i] = k < a->K ? AT(bf16_pairs)(row + k, a->K - k) : vset(0.0f);
                    }
                    if (rows_at_once == 1) {
                        vstore((float *)(void *)to + pair, v[0]);
                        continue;
                    }
                    AT(turn)(v);
#pragma GCC unroll 16
                    for (int i = 0; i < LANES; i++)
                        vstore((float *)(void *)(to + (pair + i) * p->wide) + r, v[i]);
                }
}

/* Registers 0 to 3 += `steps` steps of two tiles of w, whose rows are w_stride bytes apart, and one tile of x or two. Of every
 * step `lines` lines of memory are prefetched from `next` on, stride bytes apart. */
ALWAYS_INLINE void AT(amx_steps)(bool both, const char *const *w, int64_t w_stride, const char *left, const char *right,
                                 int64_t wide, int64_t steps, const char *next, int64_t stride, int64_t lines)
{
    for (int64_t s = 0; s < steps; s++) {
        for (int64_t i = 0; i < lines; i++)
            __builtin_prefetch(next + i * stride + s * 64, 0, 2);
        amx_load(4, w[0] + s * 64, w_stride);
        amx_load(5, w[1] + s * 64, w_stride);
        amx_load(6, left + s * 16 * wide, wide);
        amx_dot_bf16(0, 4, 6);
        amx_dot_bf16(2, 5, 6);
        if (both) {
            amx_load(7, right + s * 16 * wide, wide);
            amx_dot_bf16(1, 4, 7);
            amx_dot_bf16(3, 5, 7);
        }
    }
}

/* The last tile of w begins earlier, so that it ends with the last row; some outputs are then computed twice. */
ALWAYS_INLINE int64_t AT(amx_tile_begins)(const LinearArgs *a, int64_t unit, int i)
{
    const int64_t n = unit * AMX_UNIT + i * AMX_ROWS, last = a->N < AMX_ROWS ? 0 : a->N - AMX_ROWS;

    return n < last ? n : last;
}

/* Steps c0 .. c1 of K, of which x holds s0 .. s1, of a unit: its sums are zero at first. */
static void AT(amx_unit)(const LinearArgs *a, const AmxPiece *p, int64_t unit, int64_t c0, int64_t c1, int64_t s0,
                         int64_t s1, const char *x, char *sums, const char *next)
{
    const int64_t stride = a->K * 2, whole = a->K / AMX_STEP < c1 ? a->K / AMX_STEP : c1, block = 16 * p->wide;
    const int64_t pairs = (p->tiles + 1) / 2, lines = (AMX_UNIT + pairs - 1) / pairs;
    char *const lower = sums + p->tiles * block;
    _Alignas(64) char rest[2][AMX_ROWS][64];
    const char *const w_rest[2] = {rest[0][0], rest[1][0]};
    const char *w[2];

    for (int i = 0; i < 2; i++)
        w[i] = a->w + AT(amx_tile_begins)(a, unit, i) * stride + c0 * 64;
    if (whole < c1) { /* the end of K, with zeros behind it */
        memset(rest, 0, sizeof rest);
        for (int i = 0; i < 2; i++)
            for (int64_t r = 0; r < AMX_ROWS && r < a->N; r++)
                memcpy(rest[i][r], w[i] + r * stride + (whole - c0) * 64, (size_t)(stride - whole * 64));
    }
    for (int64_t i = 0; i < p->tiles; i += 2) {
        const bool both = i + 1 < p->tiles;
        const char *left = x + (i * (s1 - s0) + c0 - s0) * block, *right = left + (s1 - s0) * block;

        if (c0 == 0) {
            amx_zero(0);
            amx_zero(2);
        } else {
            amx_load(0, sums + i * block, p->wide);
            amx_load(2, lower + i * block, p->wide);
        }
        if (both && c0 == 0) {
            amx_zero(1);
            amx_zero(3);
        } else if (both) {
            amx_load(1, sums + (i + 1) * block, p->wide);
            amx_load(3, lower + (i + 1) * block, p->wide);
        }
        if (both)
            AT(amx_steps)
        (true, w, stride, left, right, p->wide, whole - c0, next + i / 2 * lines * stride, stride, lines);
        else AT(amx_steps)(false, w, stride, left, right, p->wide, whole - c0, next + i / 2 * lines * stride, stride,
                           lines);
        left += (whole - c0) * block;
        right += (whole - c0) * block;
        if (whole < c1 && both)
            AT(amx_steps)(true, w_rest, 64, left, right, p->wide, 1, NULL, 0, 0);
        else if (whole < c1)
            AT(amx_steps)(false, w_rest, 64, left, right, p->wide, 1, NULL, 0, 0);
        amx_store(0, sums + i * block, p->wide);
        amx_store(2, lower + i * block, p->wide);
        if (both) {
            amx_store(1, sums + (i + 1) * block, p->wide);
            amx_store(3, lower + (i + 1) * block, p->wide);
        }
    }
}

/* Outputs of a unit from its sums, [tile of w][tile of x][row of w][row of x]. */
static void AT(amx_finish)(const LinearArgs *a, const AmxPiece *p, int64_t unit, const char *sums)
{
    const int64_t n = unit * AMX_UNIT, count = a->N - n < AMX_UNIT ? a->N - n : AMX_UNIT, block = 16 * p->wide;

    for (int64_t t = 0; t < p->tiles; t++) {
        const int64_t rows = p->rows - t * AMX_ROWS < AMX_ROWS ? p->rows - t * AMX_ROWS : AMX_ROWS;
        float out[AMX_ROWS][AMX_ROWS + AMX_UNIT]; /* before the outputs there may be those of the unit before */

        for (int i = 0; i < 2; i++) {
            const float *from = (const float *)(const void *)(sums + (i * p->tiles + t) * block);
            const int64_t at = AMX_ROWS + AT(amx_tile_begins)(a, unit, i) - n;

            if (p->wide == 4) {
                memcpy(&out[0][at], from, AMX_ROWS * sizeof *from);
                continue;
            }
            for (int64_t r = 0; r < AMX_ROWS; r += LANES)
                for (int64_t m = 0; m < AMX_ROWS; m += LANES) {
                    Vf v[LANES];
#pragma GCC unroll 16
                    for (int l = 0; l < LANES; l++)
                        v[l] = vload(from + (r + l) * AMX_ROWS + m);
                    AT(turn)(v);
#pragma GCC unroll 16
                    for (int l = 0; l < LANES; l++)
                        vstore(&out[m + l][at + r], v[l]);
                }
        }
        for (int64_t m = 0; m < rows; m++)
            AT(linear_finish)(a, p->m0 + t * AMX_ROWS + m, n, count, &out[m][AMX_ROWS]);
    }
}

static void AT(amx_piece)(const LinearArgs *a, const AmxPiece *p, const AmxRoom *room)
{
    const int64_t block = 16 * p->wide, all = (a->K + AMX_STEP - 1) / AMX_STEP,
                  most = room->x_bytes / (p->tiles * block);
    const int64_t at_once = p->tiles > 2 ? AMX_W_STEPS : all, stride = a->K * 2;
    AmxShape shape = {.palette = 1};

    for (int t = 0; t < 8; t++) {
        shape.rows[t] = (uint8_t)(t >= 6 ? 16 : a->N < AMX_ROWS ? a->N : AMX_ROWS);
        shape.bytes[t] = (uint16_t)(t == 4 || t == 5 ? 64 : p->wide);
    }
    amx_shape(&shape);
    for (int64_t s0 = 0; s0 < all; s0 += most) {
        const int64_t s1 = s0 + most < all ? s0 + most : all;

        AT(amx_lay_out_rows)(a, p, s0, s1, room->x);
        for (int64_t unit = p->first; unit < p->last; unit++) {
            char *sums = room->sums + (unit - p->first) * 2 * p->tiles * block;

            for (int64_t c0 = s0; c0 < s1; c0 += at_once) {
                const int64_t c1 = c0 + at_once < s1 ? c0 + at_once : s1;
                const int64_t k = c1 < s1 ? c1 : s0, u = c1 < s1 || unit + 1 == p->last ? unit : unit + 1;

                AT(amx_unit)
                (a, p, unit, c0, c1, s0, s1, room->x, sums, a->w + AT(amx_tile_begins)(a, u, 0) * stride + k * 64);
            }
            if (s1 == all)
                AT(amx_finish)(a, p, unit, sums);
        }
    }
    amx_release();
}

/* This thread's share of M rows. */
static void AT(amx_bf16_share)(const CpuCall *c, const LinearArgs *a, int64_t M)
{
    const int64_t units = (a->N + AMX_UNIT - 1) / AMX_UNIT, blocks = (M + AMX_X - 1) / AMX_X;
    _Alignas(64) char x[AMX_X_BYTES_LEAST], sums[AMX_SUM_BYTES_LEAST];
    AmxRoom room = {x, sums, sizeof x, sizeof sums};
    int64_t first, last;

    if (c->scratch)
        room = (AmxRoom){c->scratch, (char *)c->scratch + AMX_X_BYTES, AMX_X_BYTES, CPU_SCRATCH - AMX_X_BYTES};
    cpu_share(c, units * blocks, &first, &last);
    while (first < last) {
        const int64_t at = first / units, m0 = M * at / blocks, rows = M * (at + 1) / blocks - m0;
        AmxPiece p = {.m0 = m0, .rows = rows, .first = first % units, .tiles = (rows + AMX_ROWS - 1) / AMX_ROWS};

        p.wide = rows == 1 ? 4 : 64;

        const int64_t most = room.sum_bytes / (2 * p.tiles * 16 * p.wide), left = last - first;
        const int64_t of_block = units - p.first, count = left < of_block ? left : of_block;

        p.last = p.first + (count < most ? count : most);
        AT(amx_piece)(a, &p, &room);
        first += p.last - p.first;
    }
}
