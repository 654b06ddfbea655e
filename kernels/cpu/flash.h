/* flash.h - attention of a few fp32 queries over a run of keys, a block of keys at a time, with online softmax (Milakov &
 * Gimelshein 2018): the state does not grow with the number of keys. Included by kernels, once for each level. */

#ifndef FLASH_ONCE
#define FLASH_ONCE
enum { FLASH_QUERIES = 4 /* as many as vsum4 adds */, FLASH_KEYS = 32, FLASH_E = 256 };
#endif

#undef FLASH_VECS
#define FLASH_VECS (LANES == 16 ? 4 : 2)

#define FlashState AT(FlashStateType)
typedef struct FlashState {
    float most[FLASH_QUERIES], sum[FLASH_QUERIES];
    float y[FLASH_QUERIES][FLASH_E]; /* not yet divided by sum */
} FlashState;

static inline void AT(flash_begin)(FlashState *f, int64_t E)
{
    for (int i = 0; i < FLASH_QUERIES; i++) {
        f->most[i] = -3.4e38f;
        f->sum[i] = 0.0f;
        memset(f->y[i], 0, (size_t)E * sizeof(float));
    }
}

ALWAYS_INLINE Vf AT(flash_load)(const float *p, int64_t n)
{
    return n < LANES ? vload_n(p, n) : vload(p);
}

/* scores[i][j] = q[i] . k[j] for `keys` keys (a constant) from j on. */
ALWAYS_INLINE void AT(flash_dots)(const float *const q[FLASH_QUERIES], const float *k, int64_t ks, int j, int keys,
                                  int64_t E, float scores[FLASH_QUERIES][FLASH_KEYS])
{
    Vf sum[2][FLASH_QUERIES] = {{{0}}};

#pragma GCC unroll 4
    for (int64_t e = 0; e < E; e += LANES) {
        Vf key[2];
#pragma GCC unroll 2
        for (int l = 0; l < keys; l++)
            key[l] = AT(flash_load)(k + (j + l) * ks + e, E - e);
#pragma GCC unroll 4
        for (int i = 0; i < FLASH_QUERIES; i++) {
            const Vf part = AT(flash_load)(q[i] + e, E - e);
#pragma GCC unroll 2
            for (int l = 0; l < keys; l++)
                sum[l][i] += part * key[l];
        }
    }
#pragma GCC unroll 2
    for (int l = 0; l < keys; l++) {
        const Quad dots = vsum4(sum[l][0], sum[l][1], sum[l][2], sum[l][3]);

        for (int i = 0; i < FLASH_QUERIES; i++)
            scores[i][j + l] = dots[i];
    }
}

ALWAYS_INLINE void AT(flash_all_dots)(const float *const q[FLASH_QUERIES], const float *k, int64_t ks, int n, int64_t E,
                                      float scores[FLASH_QUERIES][FLASH_KEYS])
{
    int j = 0;

    for (; j + 2 <= n; j += 2)
        AT(flash_dots)(q, k, ks, j, 2, E, scores);
    if (j < n)
        AT(flash_dots)(q, k, ks, j, 1, E, scores);
}

/* scores[i][j] = q[i] . k[j]; q scaled already. Rows of q are qs floats apart, those of k ks. Heads of 64, the most common, have
 * code of their own. */
static inline void AT(flash_scores)(const float *const q[FLASH_QUERIES], const float *k, int64_t ks, int n, int64_t E,
                                    float scores[FLASH_QUERIES][FLASH_KEYS])
{
    if (E == 64)
        AT(flash_all_dots)(q, k, ks, n, 64, scores);
    else
        AT(flash_all_dots)(q, k, ks, n, E, scores);
    for (int i = 0; i < FLASH_QUERIES; i++)
        for (int j = n; j < FLASH_KEYS; j++)
            scores[i][j] = -3.4e38f;
}

/* y = y * keep + p v for the columns of `vecs` vectors (a constant) from e on, of which `left` are there; FLASH_VECS vectors are
 * sums enough to cover the latency of the multiply-add, and no more than registers hold. */
ALWAYS_INLINE void AT(flash_add)(FlashState *f, float p[FLASH_QUERIES][FLASH_KEYS], const float keep[FLASH_QUERIES],
                                 const float *v, int64_t vs, int n, int64_t e, int vecs, int64_t left)
{
    Vf y[FLASH_QUERIES][FLASH_VECS];

#pragma GCC unroll 4
    for (int i = 0; i < FLASH_QUERIES; i++)
#pragma GCC unroll 4
        for (int l = 0; l < vecs; l++)
            y[i][l] = AT(flash_load)(f->y[i] + e + l * LANES, left) * keep[i];
    for (int j = 0; j < n; j++) {
        Vf value[FLASH_VECS];
#pragma GCC unroll 4
        for (int l = 0; l < vecs; l++)
            value[l] = AT(flash_load)(v + j * vs + l * LANES, left);
#pragma GCC unroll 4
        for (int i = 0; i < FLASH_QUERIES; i++)
#pragma GCC unroll 4
            for (int l = 0; l < vecs; l++)
                y[i][l] += p[i][j] * value[l];
    }
#pragma GCC unroll 4
    for (int i = 0; i < FLASH_QUERIES; i++)
#pragma GCC unroll 4
        for (int l = 0; l < vecs; l++)
            if (left >= LANES)
                vstore(f->y[i] + e + l * LANES, y[i][l]);
            else
                vstore_n(f->y[i] + e, y[i][l], left);
}

/* Adds n <= FLASH_KEYS values, whose scores are scale * p. */
static inline void AT(flash_weigh)(FlashState *f, float p[FLASH_QUERIES][FLASH_KEYS], float scale, const float *v,
                                   int64_t vs, int n, int64_t E)
{
    float keep[FLASH_QUERIES];

    for (int i = 0; i < FLASH_QUERIES; i++) {
        Vf sum = {0}, top = vset(f->most[i]);
        int whole = 0; /* keys in whole vectors */

        for (; whole + LANES <= n; whole += LANES)
            top = vmax(vload(p[i] + whole) * scale, top);

        float most = vmax_of(top);

        for (int j = whole; j < n; j++)
            most = p[i][j] * scale > most ? p[i][j] * scale : most;
        for (int j = 0; j < FLASH_KEYS; j += LANES) {
            const Vf x = vload(p[i] + j) * scale - most;
            const Vf e = vexp(vmax(x, vset(-80.0f)));

            vstore(p[i] + j, e);
            sum += j + LANES <= n ? e : vset(0.0f);
            for (int l = 0; j + LANES > n && l < LANES && j + l < n; l++)
                sum[0] += p[i][j + l];
        }
        keep[i] = __builtin_expf(f->most[i] - most);
        f->sum[i] = f->sum[i] * keep[i] + vsum(sum);
        f->most[i] = most;
    }
    for (int64_t e = 0; e < E;)
        if (e + FLASH_VECS * LANES <= E) {
            AT(flash_add)(f, p, keep, v + e, vs, n, e, FLASH_VECS, FLASH_VECS * LANES);
            e += FLASH_VECS * LANES;
        } else {
            AT(flash_add)(f, p, keep, v + e, vs, n, e, 1, E - e);
            e += LANES;
        }
}

/* Adds n <= FLASH_KEYS keys and values. */
static inline void AT(flash_keys)(FlashState *f, const float *const q[FLASH_QUERIES], float scale, const float *k,
                                  int64_t ks, const float *v, int64_t vs, int n, int64_t E)
{
    float p[FLASH_QUERIES][FLASH_KEYS];

    AT(flash_scores)(q, k, ks, n, E, p);
    AT(flash_weigh)(f, p, scale, v, vs, n, E);
}

static inline void AT(flash_end)(const FlashState *f, int i, int64_t E, float *y)
{
    for (int64_t e = 0; e < E; e++)
        y[e] = f->y[i][e] / f->sum[i];
}
