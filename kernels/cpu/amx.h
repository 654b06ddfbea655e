/* amx.h - many rows of codes of 8 bits times quantised weights with the tile instructions of AMX, for quant_tile.h.
 *
 * The processor multiplies two registers (amx_tiles.h): A has 16 rows of x by 64 k, B
 * the 16 rows of a tile of w by 64 k, and a vector of the form r16x4 is a row of B as it stands.
 *
 *                     left tile of w (6)    right tile of w (7)
 *     upper x (4)     sums 0                sums 1
 *     lower x (5)     sums 2                sums 3
 *
 * The codes of both tiles of w are laid out as signed bytes first, AMX_KC elements for all rows of x of a piece: 4-bit codes
 * less their zeros, 8-bit codes less 128. So the sums of a group are those of quant_tile.h, or differ by a multiple of the sum
 * of x (`more`). They are exact, scales are applied as there, and so the bits are the same.
 *
 * While the tiles multiply a group, the vector units add the sums of the group before to the totals, and the codes that are laid
 * out next are fetched from memory.
 *
 * There is no include guard, since each.h includes a kernel's text once for each level. */
#include "amx_tiles.h"

#ifndef AMX_ONCE
#define AMX_ONCE
enum {
    AMX_KC = 512,       /* elements of a row that are laid out at once: two tiles of w take 16 KB */
    AMX_BLOCK_X = 128,  /* rows of x in a piece of work */
    AMX_WIDTH = 32,     /* rows of w in a piece of work: two tiles */
    AMX_LEAST_ROWS = 16 /* of x; fewer are left to the vector instructions */
};

typedef struct AmxSums { /* of one group, for up to 2 * AMX_ROWS rows of x from m on */
    int64_t m, rows, g;
    _Alignas(64) int32_t sum[2 * AMX_ROWS][AMX_WIDTH];
} AmxSums;

typedef struct AmxPanel { /* two tiles of w, by [AMX_KC / 4] and by groups */
    _Alignas(64) uint8_t codes[2][AMX_KC * QUANT_ROWS];
    _Alignas(64) float scales[AMX_KC / 16][AMX_WIDTH], minima[AMX_KC / 16][AMX_WIDTH];
    _Alignas(64) int32_t more[AMX_KC / 16][AMX_WIDTH]; /* times the sum of x, is added to the sums */
    bool have_more;
} AmxPanel;
#endif

typedef uint8_t AT(AmxBytes) __attribute__((vector_size(LANES * 4)));

static void AT(amx_registers)(int64_t upper, int64_t lower, int64_t bytes)
{
    AmxShape s = {.palette = 1};

    for (int t = 0; t < 8; t++) {
        const bool below = t == 2 || t == 3 || t == 5;
        const int64_t rows = t >= 6 ? bytes / 4 : below ? lower : upper;

        s.rows[t] = (uint8_t)rows;
        s.bytes[t] = (uint16_t)(!rows ? 0 : t == 4 || t == 5 ? bytes : 64);
    }
    amx_shape(&s);
}

/* Elements [k0, k0 + count) of two tiles of w. */
static void AT(amx_lay_out)(const QuantArgs *q, const uint8_t *const *w, int64_t k0, int64_t count, AmxPanel *p)
{
    enum { PARTS = AT(QUANT_PARTS) };
    const int64_t vector = QUANT_ROWS * 4;

    p->have_more = q->bits == 8 && (q->have_zeros || q->have_minima);
    for (int t = 0; t < 2 * PARTS; t++) {
        const uint8_t *tile = w[t / PARTS];
        const int64_t lane = t % PARTS * LANES * 4;

        for (int64_t g = 0; g < count / q->group; g++) {
            const Vi zeros = AT(quant_zeros)(q, tile, k0 / q->group + g, t % PARTS);
            const AT(AmxBytes) less = (AT(AmxBytes))(q->bits == 8 ? (Vu){0} + 0x80808080 : (Vu)zeros * 0x01010101);
            const Vi more = (Vi){0} + 128 - zeros;
            uint8_t *to = p->codes[t / PARTS] + g * q->group / 4 * vector + lane;

            vstore(&p->scales[g][t * LANES], AT(quant_scales)(q, tile, k0 / q->group + g, t % PARTS));
            if (q->have_minima)
                vstore(&p->minima[g][t * LANES], AT(quant_minima)(q, tile, k0 / q->group + g, t % PARTS));
            if (p->have_more)
                memcpy(&p->more[g][t * LANES], &more, sizeof more);
            for (int64_t k = k0 + g * q->group; k < k0 + (g + 1) * q->group; k += q->bits == 4 ? 8 : 4) {
                const Vi codes = AT(quant_load)(tile + k * q->bits / 32 * vector + lane);
                const Vi first = (Vi)((AT(AmxBytes))(q->bits == 4 ? codes & 0x0f0f0f0f : codes) - less);
                const Vi second = (Vi)((AT(AmxBytes))AT(quant_upper)(codes) - less);

                memcpy(to, &first, sizeof first);
                to += vector;
                if (q->bits == 4) {
                    memcpy(to, &second, sizeof second);
                    to += vector;
                }
            }
        }
    }
}

/* Fetches a step's share of the codes that are laid out after those from k0 on: the next ones of both tiles of w, or the first
 * ones of the two tiles behind them. step: of `steps`. */
static inline void AT(amx_fetch)(const QuantArgs *q, const uint8_t *const *w, int64_t k0, int64_t step, int64_t steps)
{
    const int64_t next = (k0 + AMX_KC) * 2 * q->bits, bytes = AMX_KC * 2 * q->bits; /* of a tile */
    const int64_t lines = (bytes / 64 + steps - 1) / steps, from = next < q->scales ? next : 2 * q->tile;

    for (int64_t at = from + step * lines * 64; at < from + (step + 1) * lines * 64; at += 64) {
        __builtin_prefetch(w[0] + at, 0, 2);
        __builtin_prefetch(w[1] + at, 0, 2);
    }
}

/* Registers 0 to 3 = a group's products: codes of x from `upper` on, and from `lower` on if it is not NULL. */
ALWAYS_INLINE void AT(amx_multiply)(const QuantArgs *q, const char *upper, const char *lower, const uint8_t *left,
                                    const uint8_t *right)
{
    const int64_t bytes = q->group < 64 ? q->group : 64;

    amx_zero(0);
    amx_zero(1);
    if (lower) {
        amx_zero(2);
        amx_zero(3);
    }
    for (int64_t k = 0; k < q->group; k += bytes) {
        amx_load(6, left + k * QUANT_ROWS, 64);
        amx_load(7, right + k * QUANT_ROWS, 64);
        amx_load(4, upper + k, q->K);
        amx_dot(0, 4, 6);
        amx_dot(1, 4, 7);
        if (lower) {
            amx_load(5, lower + k, q->K);
            amx_dot(2, 5, 6);
            amx_dot(3, 5, 7);
        }
    }
}

/* totals += a group's sums times its scales; g0: the first group of the panel; offsets: the form has minima or `more`. */
ALWAYS_INLINE void AT(amx_add)(bool offsets, const QuantArgs *q, const AmxPanel *p, const AmxSums *s, int64_t g0,
                               float (*totals)[AMX_WIDTH])
{
    enum { VECTORS = 2 * AT(QUANT_PARTS) };
    const int64_t g = s->g - g0, x_groups = q->K / q->xgroup;
    const float *xs = q->xs + s->m * x_groups + s->g * q->group / q->xgroup;

    for (int64_t m = 0; m < s->rows; m++) {
        const Vf scale = vset(xs[m * x_groups]);
        int32_t of_x = 0;
        float *to = totals[m];

        if (offsets)
            AT(quant_sums)(1, q, s->m + m, s->g, &of_x);

#pragma GCC unroll 16
        for (int t = 0; t < VECTORS; t++) {
            Vi sum = AT(quant_load)((const uint8_t *)&s->sum[m][t * LANES]);

            if (offsets && p->have_more)
                sum += AT(quant_load)((const uint8_t *)&p->more[g][t * LANES]) * of_x;

            Vf total = AT(quant_fma)(__builtin_convertvector(sum, Vf), vload(&p->scales[g][t * LANES]) * scale,
                                     vload(to + t * LANES));
            if (offsets && q->have_minima)
                total = AT(quant_fma)(vload(&p->minima[g][t * LANES]), -scale * (float)of_x, total);
            vstore(to + t * LANES, total);
        }
    }
}

static __attribute__((noinline)) void AT(amx_add_plain)(const QuantArgs *q, const AmxPanel *p, const AmxSums *s,
                                                        int64_t g0, float (*totals)[AMX_WIDTH])
{
    AT(amx_add)(false, q, p, s, g0, totals);
}

static __attribute__((noinline)) void AT(amx_add_offsets)(const QuantArgs *q, const AmxPanel *p, const AmxSums *s,
                                                          int64_t g0, float (*totals)[AMX_WIDTH])
{
    AT(amx_add)(true, q, p, s, g0, totals);
}

/* totals = rows m0 .. m0+height of x, AMX_BLOCK_X at most, times two tiles of w: weight rows n0 .. n0+AMX_WIDTH of N. */
static void AT(amx_totals)(int64_t N, const QuantArgs *q, int64_t m0, int64_t height, int64_t n0,
                           float totals[][AMX_WIDTH])
{
    const bool offsets = q->have_minima || (q->bits == 8 && q->have_zeros);
    const int64_t pairs = (height + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS), K = q->K;
    int64_t shaped[2] = {-1, -1};
    const uint8_t *w[2]; /* past the end the last tile again; these sums are not used */
    AmxPanel panel;
    AmxSums s;

    for (int64_t i = 0; i < 2; i++) {
        const int64_t n = n0 + i * QUANT_ROWS;

        w[i] = q->w + (n < N ? n : N - 1) / QUANT_ROWS * q->tile;
    }
    memset(totals, 0, (size_t)height * sizeof *totals);
    for (int64_t k0 = 0; k0 < K; k0 += AMX_KC) {
        const int64_t width = K - k0 < AMX_KC ? K - k0 : AMX_KC, g0 = k0 / q->group, groups = width / q->group;

        AT(amx_lay_out)(q, w, k0, width, &panel);
        s.rows = 0;
        for (int64_t i = 0; i < pairs; i++) { /* of about equal height */
            const int64_t m = height * i / pairs, rows = height * (i + 1) / pairs - m;
            const int64_t upper = rows > AMX_ROWS ? (rows + 1) / 2 : rows, lower = rows - upper;

            if (shaped[0] != upper || shaped[1] != lower) {
                AT(amx_registers)(upper, lower, q->group < 64 ? q->group : 64);
                shaped[0] = upper;
                shaped[1] = lower;
            }
            for (int64_t g = 0; g < groups; g++) {
                const char *x = q->x + (m0 + m) * K + k0 + g * q->group;
                const int64_t at = g * q->group * QUANT_ROWS;

                AT(amx_multiply)(q, x, lower ? x + upper * K : NULL, panel.codes[0] + at, panel.codes[1] + at);
                AT(amx_fetch)(q, w, k0, i * groups + g, pairs * groups);
                if (s.rows)
                    (offsets ? AT(amx_add_offsets) : AT(amx_add_plain))(q, &panel, &s, g0, totals + (s.m - m0));
                amx_store(0, &s.sum[0][0], sizeof *s.sum);
                amx_store(1, &s.sum[0][AMX_ROWS], sizeof *s.sum);
                if (lower) {
                    amx_store(2, &s.sum[upper][0], sizeof *s.sum);
                    amx_store(3, &s.sum[upper][AMX_ROWS], sizeof *s.sum);
                }
                s.m = m0 + m;
                s.rows = rows;
                s.g = g0 + g;
            }
        }
        (offsets ? AT(amx_add_offsets) : AT(amx_add_plain))(q, &panel, &s, g0, totals + (s.m - m0));
    }
    amx_release();
}
