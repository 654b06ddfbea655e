/* panels.h - many rows of x times rows of w, for linear.c: both are laid out in panels, of which tiles of PANEL_ROWS rows
 * and PANEL_COLS columns of outputs are made.
 *
 * The sums are those of tile.h, bit by bit: in a chunk of K each output has LANES partial sums, over k, k + LANES, ...,
 * which are added by the tree of vsum4. There a vector holds all partial sums of one output; here it holds one partial sum
 * of LANES outputs. So the registers hold LANES times as many outputs: fewer bytes are read for a product (19 a cycle from
 * L2 with AVX-512, where tile.h needs 21 to 53), weights of 16 bits are converted once for all rows, and no vector is added
 * across. The chunk is gone through lane after lane, in the order in which the tree adds them; a sum that waits for its
 * other half is put aside.
 *
 * A panel holds some rows of a chunk as [lane][step of LANES columns][row]. There is no include guard, since each.h
 * includes a kernel's text once for each level. */
#if LANES == 16
#define PANEL_DEPTH 4 /* of the tree of sums */
#elif LANES == 8
#define PANEL_DEPTH 3
#else
#define PANEL_DEPTH 2
#endif
#define PANEL_COLS (PANEL_VECS * LANES)

/* When the tree adds lane l: neighbours at distance 2, 1, then 4 or 8, 4. */
ALWAYS_INLINE int AT(panel_place)(int l)
{
    return (l & 1) << 1 | (l & 2) >> 1 | (LANES == 16 ? (l & 4) << 1 | (l & 8) >> 1 : l & 4);
}

ALWAYS_INLINE Vf AT(panel_all)(const float *p)
{
#if LANES == 16
    return (Vf)_mm512_set1_ps(*p);
#elif LANES == 8
    return (Vf)_mm256_broadcast_ss(p);
#else
    return (Vf){*p, *p, *p, *p};
#endif
}

/* v[i][j] and v[j][i] change places. */
ALWAYS_INLINE void AT(panel_turn)(Vf v[LANES])
{
#if LANES == 4
    const Vf a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), b = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
    const Vf c = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5), d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);

    v[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    v[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    v[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    v[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
#elif LANES == 8
    __m256 four[LANES]; /* four[4 i + c]: columns c and 4 + c of rows 4 i .. 4 i + 3 */

#pragma GCC unroll 2
    for (int i = 0; i < LANES; i += 4) {
        const __m256 a = _mm256_unpacklo_ps((__m256)v[i], (__m256)v[i + 1]);
        const __m256 b = _mm256_unpackhi_ps((__m256)v[i], (__m256)v[i + 1]);
        const __m256 c = _mm256_unpacklo_ps((__m256)v[i + 2], (__m256)v[i + 3]);
        const __m256 d = _mm256_unpackhi_ps((__m256)v[i + 2], (__m256)v[i + 3]);

        four[i] = _mm256_shuffle_ps(a, c, 0x44);
        four[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        four[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        four[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        v[c] = (Vf)_mm256_permute2f128_ps(four[c], four[4 + c], 0x20);
        v[4 + c] = (Vf)_mm256_permute2f128_ps(four[c], four[4 + c], 0x31);
    }
#else
    __m512 four[LANES]; /* four[4 i + c]: columns c, 4 + c, 8 + c and 12 + c of rows 4 i .. 4 i + 3 */

#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) {
        const __m512 a = _mm512_unpacklo_ps((__m512)v[i], (__m512)v[i + 1]);
        const __m512 b = _mm512_unpackhi_ps((__m512)v[i], (__m512)v[i + 1]);
        const __m512 c = _mm512_unpacklo_ps((__m512)v[i + 2], (__m512)v[i + 3]);
        const __m512 d = _mm512_unpackhi_ps((__m512)v[i + 2], (__m512)v[i + 3]);

        four[i] = _mm512_shuffle_ps(a, c, 0x44);
        four[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        four[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        four[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        const __m512 a = _mm512_shuffle_f32x4(four[c], four[4 + c], 0x88);
        const __m512 b = _mm512_shuffle_f32x4(four[c], four[4 + c], 0xdd);
        const __m512 d = _mm512_shuffle_f32x4(four[8 + c], four[12 + c], 0x88);
        const __m512 e = _mm512_shuffle_f32x4(four[8 + c], four[12 + c], 0xdd);

        v[c] = (Vf)_mm512_shuffle_f32x4(a, d, 0x88);
        v[4 + c] = (Vf)_mm512_shuffle_f32x4(b, e, 0x88);
        v[8 + c] = (Vf)_mm512_shuffle_f32x4(a, d, 0xdd);
        v[12 + c] = (Vf)_mm512_shuffle_f32x4(b, e, 0xdd);
    }
#endif
}

ALWAYS_INLINE const char *AT(panel_at)(const char *from, int64_t row_bytes, int64_t rows, int64_t row, int64_t step,
                                       int64_t bytes)
{
    return from + (row < rows ? row : rows - 1) * row_bytes + step * LANES * bytes;
}

/* `count` columns of rows that begin at `from`, row_bytes apart, into a panel of `wide` rows (a constant, as type is). Of
 * rows beyond `rows` the last one again; zeros behind the end of K. A panel of few rows takes several steps at once. */
ALWAYS_INLINE void AT(panel_fill)(int wide, int type, const char *from, int64_t row_bytes, int64_t rows, int64_t count,
                                  float *panel)
{
    const int64_t steps = (count + LANES - 1) / LANES, bytes = type == CPU_FP32 ? 4 : 2;
    const int at_once = wide < LANES ? LANES / wide : 1, height = wide < LANES ? wide : LANES;

    for (int64_t first = 0; first < wide; first += LANES)
        for (int64_t j = 0; j < steps; j += at_once) {
            const bool whole = (j + at_once) * LANES <= count;
            Vf v[LANES];
#pragma GCC unroll 16
            for (int i = 0; whole && i < LANES; i++)
                v[i] = vload_as(AT(panel_at)(from, row_bytes, rows, first + i % height, j + i / height, bytes), type);
            for (int i = 0; !whole && i < LANES; i++) {
                const char *p = AT(panel_at)(from, row_bytes, rows, first + i % height, j + i / height, bytes);
                const int64_t n = count - (j + i / height) * LANES; /* columns before the end of K */

                v[i] = vset(0.0f);
                for (int l = 0; l < LANES && l < n; l++)
                    v[i][l] = vload_as_n(p + l * bytes, type, 1)[0];
            }
            AT(panel_turn)(v);
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++) {
                float *to = panel + (AT(panel_place)(l) * steps + j) * wide + first;

                if (at_once == 1 || j + at_once <= steps)
                    vstore(to, v[l]);
                else
                    vstore_n(to, v[l], (steps - j) * wide % LANES);
            }
        }
}

static __attribute__((noinline)) void AT(panel_of_x)(const float *x, int64_t K, int64_t rows, int64_t count,
                                                     float *panel)
{
    AT(panel_fill)(PANEL_ROWS, CPU_FP32, (const char *)x, K * 4, rows, count, panel);
}

static __attribute__((noinline)) void AT(panel_of_w)(int64_t type, const char *w, int64_t row_bytes, int64_t rows,
                                                     int64_t count, float *panel)
{
    if (type == CPU_FP32)
        AT(panel_fill)(PANEL_COLS, CPU_FP32, w, row_bytes, rows, count, panel);
    else if (type == CPU_FP16)
        AT(panel_fill)(PANEL_COLS, CPU_FP16, w, row_bytes, rows, count, panel);
    else
        AT(panel_fill)(PANEL_COLS, CPU_BF16, w, row_bytes, rows, count, panel);
}

/* out (+)= the products of a panel of x and one of w, in a chunk of K; `stride` floats from row to row of out. */
static __attribute__((noinline)) void AT(panel_tile)(int64_t steps, const float *x, const float *w, bool add,
                                                     float *out, int64_t stride)
{
    Vf waiting[PANEL_DEPTH][PANEL_ROWS][PANEL_VECS];
    int top = 0;

    for (int place = 0; place < LANES; place++) {
        Vf sum[PANEL_ROWS][PANEL_VECS];
#pragma GCC unroll 16
        for (int m = 0; m < PANEL_ROWS; m++)
#pragma GCC unroll 4
            for (int n = 0; n < PANEL_VECS; n++)
                sum[m][n] = vset(0.0f);
        for (int64_t j = 0; j < steps; j++, x += PANEL_ROWS, w += PANEL_COLS) {
            Vf v[PANEL_VECS];
#pragma GCC unroll 4
            for (int n = 0; n < PANEL_VECS; n++)
                v[n] = vload(w + n * LANES);
#pragma GCC unroll 16
            for (int m = 0; m < PANEL_ROWS; m++) {
                const Vf a = AT(panel_all)(x + m);
#pragma GCC unroll 4
                for (int n = 0; n < PANEL_VECS; n++)
                    sum[m][n] += a * v[n];
            }
        }
        for (int whole = place; whole & 1; whole >>= 1) {
            top--;
#pragma GCC unroll 16
            for (int m = 0; m < PANEL_ROWS; m++)
#pragma GCC unroll 4
                for (int n = 0; n < PANEL_VECS; n++)
                    sum[m][n] += waiting[top][m][n];
        }
        if (place < LANES - 1) {
            memcpy(waiting[top++], sum, sizeof sum);
            continue;
        }
#pragma GCC unroll 16
        for (int m = 0; m < PANEL_ROWS; m++)
#pragma GCC unroll 4
            for (int n = 0; n < PANEL_VECS; n++) {
                float *to = out + m * stride + n * LANES;

                vstore(to, add ? vload(to) + sum[m][n] : sum[m][n]);
            }
    }
}
#undef PANEL_DEPTH
