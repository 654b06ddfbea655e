/* amx.h - many rows of codes of 8 bits times quantised weights with the tile instructions of AMX, for quant_tile.h.
 *
 * The processor multiplies two registers (amx_tiles.h): A has 16 rows of x by 64 k, B
 * the 16 rows of a tile of w by 64 k, and a vector of the form r16x4 is a row of B as it stands.
 *
 *                     left tile of w (6)    right tile of w (7)
 *     upper x (4)     sums 0                sums 1
 *     lower x (5)     sums 2                sums 3
 *
 * The codes of both tiles of w are laid out as signed bytes first, a panel of AMX_KC elements for all rows of x of a piece: 4-bit
 * codes less their zeros, 8-bit codes less 128. So the sums of a group are those of quant_tile.h, or differ by a multiple of the
 * sum of x (`more`). They are exact, scales are applied as there, and so the bits are the same.
 *
 * While the tiles multiply some groups, the vector units do the rest, a part behind each product of registers (AmxWork): the sums
 * of the groups before are added to the totals, the next panel is laid out, the one behind it fetched from memory.
 *
 * There is no include guard, since each.h includes a kernel's text once for each level. */
#include "amx_tiles.h"

#ifndef AMX_ONCE
#define AMX_ONCE
enum {
    AMX_KC = 256,       /* elements of a row of a panel: two tiles of w take 8 KB */
    AMX_GROUPS = 4,     /* whose sums are added to the totals at once */
    AMX_BLOCK_X = 128,  /* rows of x in a piece of work */
    AMX_WIDTH = 32,     /* rows of w in a piece of work: two tiles */
    AMX_LEAST_ROWS = 16 /* of x; fewer are left to the vector instructions */
};

typedef struct AmxPanel {                  /* of two tiles of w, by [AMX_KC / 4] and by groups */
    int64_t g0, groups;                    /* its first group, and how many */
    uint8_t (*codes)[AMX_KC * QUANT_ROWS]; /* [2] */
    _Alignas(64) float scales[AMX_KC / 16][AMX_WIDTH], minima[AMX_KC / 16][AMX_WIDTH];
    _Alignas(64) int32_t more[AMX_KC / 16][AMX_WIDTH]; /* times the sum of x, is added to the sums */
} AmxPanel;

typedef struct AmxSums { /* of groups of a panel from its g-th on, for up to 2 * AMX_ROWS rows of x from m on */
    const AmxPanel *panel;
    int64_t g, groups, m, rows;
    const float *xs[AMX_GROUPS]; /* scales of row m */
    _Alignas(64) int32_t sum[AMX_GROUPS][2 * AMX_ROWS][AMX_WIDTH];
} AmxSums;

typedef struct AmxWork { /* what is done beside the tiles' products, and how much behind each */
    const QuantArgs *q;
    const uint8_t *w[2];        /* tiles */
    float (*totals)[AMX_WIDTH]; /* of the rows of q->x */
    const AmxSums *before;      /* is added from `row` on, `rows` at a time */
    int64_t row, rows;
    AmxPanel *next; /* is laid out from `part` on, `parts` at a time */
    int64_t part, parts;
    const uint8_t *ahead[2]; /* of the tiles; is fetched, `lines` of 64 bytes at a time */
    int64_t lines;
} AmxWork;

/* Bytes of a row of a register. */
static inline int64_t amx_bytes(const QuantArgs *q)
{
    return q->group < 64 ? q->group : 64;
}

/* Rows of x are multiplied by up to 2 * AMX_ROWS at once; parts of about equal height. */
static inline int64_t amx_pairs(int64_t height)
{
    return (height + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS);
}

static inline int64_t amx_first(int64_t height, int64_t pair)
{
    return height * pair / amx_pairs(height);
}

/* to [height * K] = codes of rows [m0, m0 + height) of x in the order in which they are multiplied: by panels, pairs, registers,
 * rows. In rows of K the lines of a register share few sets of the processor's cache. */
static __attribute__((unused)) void amx_turn(const QuantArgs *q, int64_t m0, int64_t height, char *to)
{
    const int64_t bytes = amx_bytes(q);

    for (int64_t k0 = 0; k0 < q->K; k0 += AMX_KC)
        for (int64_t i = 0; i < amx_pairs(height); i++)
            for (int64_t k = k0; k < k0 + AMX_KC && k < q->K; k += bytes)
                for (int64_t m = amx_first(height, i); m < amx_first(height, i + 1); m++, to += bytes)
                    for (int64_t b = 0; b < bytes; b += 16)
                        memcpy(to + b, q->x + (m0 + m) * q->K + k + b, 16);
}
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

/* A part of a panel: a group of one of the tiles of w. */
ALWAYS_INLINE void AT(amx_lay_out)(const QuantArgs *q, const uint8_t *const *w, AmxPanel *p, int64_t part)
{
    enum { PARTS = AT(QUANT_PARTS) };
    const int64_t vector = QUANT_ROWS * 4, i = part / 2, g = p->g0 + i;
    const uint8_t *tile = w[part % 2];

    for (int t = 0; t < PARTS; t++) {
        const int64_t lane = t * LANES * 4, at = part % 2 * QUANT_ROWS + t * LANES;
        const Vi zeros = AT(quant_zeros)(q, tile, g, t), more = (Vi){0} + 128 - zeros;
        const AT(AmxBytes) less = (AT(AmxBytes))(q->bits == 8 ? (Vu){0} + 0x80808080 : (Vu)zeros * 0x01010101);
        const uint8_t *from = tile + g * q->group * q->bits / 32 * vector + lane;
        uint8_t *to = p->codes[part % 2] + i * q->group / 4 * vector + lane;

        vstore(&p->scales[i][at], AT(quant_scales)(q, tile, g, t));
        if (q->have_minima)
            vstore(&p->minima[i][at], AT(quant_minima)(q, tile, g, t));
        memcpy(&p->more[i][at], &more, sizeof more);
        for (int64_t k = 0; k < q->group; k += 8, to += 2 * vector) {
            const Vi codes = AT(quant_load)(from);
            const Vi upper = q->bits == 4 ? AT(quant_upper)(codes) : AT(quant_load)(from + vector);
            const Vi first = (Vi)((AT(AmxBytes))(q->bits == 4 ? codes & 0x0f0f0f0f : codes) - less);
            const Vi second = (Vi)((AT(AmxBytes))upper - less);

            memcpy(to, &first, sizeof first);
            memcpy(to + vector, &second, sizeof second);
            from += q->bits == 4 ? vector : 2 * vector;
        }
    }
}

/* totals of rows [from, to) of s += the sums of `groups` groups from the i-th on, times their scales. groups and offsets, which
 * says that the form has minima or that `more` is not 0, are constants. */
ALWAYS_INLINE void AT(amx_add)(bool offsets, int groups, const QuantArgs *q, const AmxSums *s, int64_t i, int64_t from,
                               int64_t to, float (*totals)[AMX_WIDTH])
{
    enum { VECTORS = 2 * AT(QUANT_PARTS) };
    const int64_t x_groups = q->K / q->xgroup, g0 = s->g + i;
    const AmxPanel *p = s->panel;
    Vf scales[AMX_GROUPS][VECTORS];

#pragma GCC unroll 4
    for (int g = 0; g < groups; g++)
#pragma GCC unroll 16
        for (int t = 0; t < VECTORS; t++)
            scales[g][t] = vload(&p->scales[g0 + g][t * LANES]);
    for (int64_t m = from; m < to; m++) {
        float *const out = totals[s->m + m];
        Vf total[VECTORS];

#pragma GCC unroll 16
        for (int t = 0; t < VECTORS; t++)
            total[t] = vload(out + t * LANES);
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) {
            const Vf scale = AT(quant_one)(s->xs[i + g] + m * x_groups);
            int32_t of_x = 0;

            if (offsets)
                AT(quant_sums)(1, q, s->m + m, p->g0 + g0 + g, &of_x);
#pragma GCC unroll 16
            for (int t = 0; t < VECTORS; t++) {
                Vi sum = AT(quant_load)((const uint8_t *)&s->sum[i + g][m][t * LANES]);

                if (offsets && q->bits == 8)
                    sum += AT(quant_load)((const uint8_t *)&p->more[g0 + g][t * LANES]) * of_x;
                total[t] = AT(quant_fma)(__builtin_convertvector(sum, Vf), scales[g][t] * scale, total[t]);
                if (offsets && q->have_minima)
                    total[t] = AT(quant_fma)(vload(&p->minima[g0 + g][t * LANES]), -scale * (float)of_x, total[t]);
            }
        }
#pragma GCC unroll 16
        for (int t = 0; t < VECTORS; t++)
            vstore(out + t * LANES, total[t]);
    }
}

/* The same for all groups of s. */
static __attribute__((noinline)) void AT(amx_add_rows)(const QuantArgs *q, const AmxSums *s, int64_t from, int64_t to,
                                                       float (*totals)[AMX_WIDTH])
{
    const bool offsets = q->have_minima || (q->bits == 8 && q->have_zeros);

    if (!offsets && s->groups == 4) {
        AT(amx_add)(false, 4, q, s, 0, from, to, totals);
        return;
    }
    if (!offsets && s->groups == 2) {
        AT(amx_add)(false, 2, q, s, 0, from, to, totals);
        return;
    }
    for (int64_t i = 0; i < s->groups; i++)
        if (offsets)
            AT(amx_add)(true, 1, q, s, i, from, to, totals);
        else
            AT(amx_add)(false, 1, q, s, i, from, to, totals);
}

/* The part that is done behind a product. */
ALWAYS_INLINE void AT(amx_work)(AmxWork *work)
{
    const int64_t rows = work->before->rows - work->row, parts = work->next ? work->next->groups * 2 - work->part : 0;

    if (rows > 0)
        AT(amx_add_rows)
    (work->q, work->before, work->row, work->row + (rows < work->rows ? rows : work->rows), work->totals);
    work->row += work->rows;
    for (int64_t i = 0; i < work->lines; i++) {
        __builtin_prefetch(work->ahead[0] + i * 64, 0, 2);
        __builtin_prefetch(work->ahead[1] + i * 64, 0, 2);
    }
    work->ahead[0] += work->lines * 64;
    work->ahead[1] += work->lines * 64;
    for (int64_t i = 0; i < work->parts && i < parts; i++)
        AT(amx_lay_out)(work->q, work->w, work->next, work->part++);
}

/* s->sum = the products of s->groups groups of the panel and rows of x, by registers 0 to 3. x: the codes of the first row; a
 * row further is `stride` bytes, a register's k further `step`. */
static void AT(amx_multiply)(const QuantArgs *q, const char *x, int64_t stride, int64_t step, AmxSums *s, AmxWork *work)
{
    const int64_t bytes = amx_bytes(q), upper = s->rows > AMX_ROWS ? (s->rows + 1) / 2 : s->rows;
    const uint8_t *left = s->panel->codes[0] + s->g * q->group * QUANT_ROWS;
    const uint8_t *right = s->panel->codes[1] + s->g * q->group * QUANT_ROWS;
    const bool lower = s->rows > upper;

    for (int64_t g = 0; g < s->groups; g++) {
        amx_zero(0);
        amx_zero(1);
        if (lower) {
            amx_zero(2);
            amx_zero(3);
        }
        for (int64_t k = 0; k < q->group; k += bytes) {
            amx_load(6, left, 64);
            amx_load(7, right, 64);
            amx_load(4, x, stride);
            amx_dot(0, 4, 6);
            amx_dot(1, 4, 7);
            if (lower) {
                amx_load(5, x + upper * stride, stride);
                amx_dot(2, 5, 6);
                amx_dot(3, 5, 7);
            }
            left += bytes * QUANT_ROWS;
            right += bytes * QUANT_ROWS;
            x += step;
            AT(amx_work)(work);
        }
        amx_store(0, &s->sum[g][0][0], sizeof **s->sum);
        amx_store(1, &s->sum[g][0][AMX_ROWS], sizeof **s->sum);
        if (lower) {
            amx_store(2, &s->sum[g][upper][0], sizeof **s->sum);
            amx_store(3, &s->sum[g][upper][AMX_ROWS], sizeof **s->sum);
        }
    }
}

/* Says where the panel of elements from k0 on lies; nothing is laid out. */
static inline void AT(amx_panel)(const QuantArgs *q, int64_t k0, AmxPanel *p, uint8_t (*codes)[AMX_KC * QUANT_ROWS])
{
    p->g0 = k0 / q->group;
    p->groups = (q->K - k0 < AMX_KC ? q->K - k0 : AMX_KC) / q->group;
    p->codes = codes;
}

/* Shares out what is done beside `steps` products of the panel of elements from k0 on: the next panel, if there is one, and
 * the bytes of the panel behind it, or of the next two tiles' first ones. */
static inline void AT(amx_plan)(AmxWork *work, int64_t k0, int64_t steps, AmxPanel *next)
{
    const QuantArgs *q = work->q;
    const int64_t bytes = AMX_KC * 2 * q->bits, at = k0 * 2 * q->bits + 2 * bytes; /* of a tile's codes */

    work->next = k0 + AMX_KC < q->K ? next : NULL;
    work->part = 0;
    work->parts = work->next ? (next->groups * 2 + steps - 1) / steps : 0;
    work->lines = (bytes / 64 + steps - 1) / steps;
    for (int i = 0; i < 2; i++)
        work->ahead[i] = work->w[i] + (at < q->scales ? at : at - q->scales + 2 * q->tile);
}

/* totals = rows m0 .. m0+height of x, AMX_BLOCK_X at most, times two tiles of w: weight rows n0 .. n0+AMX_WIDTH of N.
 * turned: what amx_turn made of these rows; NULL: they are read where they stand. */
static void AT(amx_totals)(int64_t N, const QuantArgs *q, const char *turned, int64_t m0, int64_t height, int64_t n0,
                           float totals[][AMX_WIDTH])
{
    const int64_t pairs = amx_pairs(height), bytes = amx_bytes(q), x_groups = q->K / q->xgroup;
    _Alignas(64) uint8_t codes[2][2][AMX_KC * QUANT_ROWS];
    AmxPanel panels[3]; /* the one before, whose sums are added; the one that is multiplied; the next */
    AmxSums sums[2];
    QuantArgs rows = *q;
    AmxWork work = {.q = &rows, .totals = totals};
    int64_t shaped[2] = {-1, -1};
    int now = 0;

    rows.x += m0 * q->K;
    rows.xs += m0 * x_groups;
    rows.xt += m0 * (q->K / 32);
    for (int64_t i = 0; i < 2; i++) { /* past the end the last tile again; these sums are not used */
        const int64_t n = n0 + i * QUANT_ROWS;

        work.w[i] = q->w + (n < N ? n : N - 1) / QUANT_ROWS * q->tile;
    }
    memset(totals, 0, (size_t)height * sizeof *totals);
    sums[1].rows = 0;
    AT(amx_panel)(&rows, 0, &panels[0], codes[0]);
    for (int64_t part = 0; part < panels[0].groups * 2; part++)
        AT(amx_lay_out)(&rows, work.w, &panels[0], part);
    for (int64_t k0 = 0, c = 0; k0 < q->K; k0 += AMX_KC, c++) {
        AmxPanel *const panel = &panels[c % 3], *const next = &panels[(c + 1) % 3];
        const int64_t width = panel->groups * q->group;

        AT(amx_panel)(&rows, k0 + AMX_KC, next, codes[(c + 1) % 2]);
        AT(amx_plan)(&work, k0, pairs * (width / bytes), next);
        for (int64_t i = 0; i < pairs; i++) {
            const int64_t m = amx_first(height, i), count = amx_first(height, i + 1) - m;
            const int64_t upper = count > AMX_ROWS ? (count + 1) / 2 : count, lower = count - upper;
            const int64_t stride = turned ? bytes : q->K, step = turned ? count * bytes : bytes;
            const char *x = turned ? turned + k0 * height + m * width : rows.x + m * q->K + k0;

            if (shaped[0] != upper || shaped[1] != lower) {
                AT(amx_registers)(upper, lower, bytes);
                shaped[0] = upper;
                shaped[1] = lower;
            }
            for (int64_t g = 0; g < panel->groups; g += AMX_GROUPS, now = !now) {
                AmxSums *s = &sums[now];

                s->panel = panel;
                s->g = g;
                s->groups = panel->groups - g < AMX_GROUPS ? panel->groups - g : AMX_GROUPS;
                s->m = m;
                s->rows = count;
                for (int64_t j = 0; j < s->groups; j++)
                    s->xs[j] = rows.xs + m * x_groups + (panel->g0 + g + j) * q->group / q->xgroup;
                work.before = &sums[!now];
                work.row = 0;
                work.rows = (work.before->rows * bytes + s->groups * q->group - 1) / (s->groups * q->group);
                AT(amx_multiply)(&rows, x + g * q->group / bytes * step, stride, step, s, &work);
            }
        }
    }
    AT(amx_add_rows)(&rows, &sums[!now], 0, sums[!now].rows, totals);
    amx_release();
}
