/* flash.h - attention of a few fp32 queries over a run of keys, a block of keys at a time, with online softmax (Milakov &
 * Gimelshein 2018): the state does not grow with the number of keys. Included by kernels, once for each level. */

#ifndef FLASH_ONCE
#define FLASH_ONCE
enum { FLASH_QUERIES = 4 /* as many as vsum4 adds */, FLASH_KEYS = 32, FLASH_E = 256 };
#endif

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

/* scores[i][j] = q[i] . k[j]; q scaled already. Rows of q are qs floats apart, those of k ks. */
static inline void AT(flash_scores)(const float *const q[FLASH_QUERIES], const float *k, int64_t ks, int n, int64_t E,
                                    float scores[FLASH_QUERIES][FLASH_KEYS])
{
    for (int j = 0; j < n; j++) {
        Vf sum[FLASH_QUERIES] = {{0}};

        for (int64_t e = 0; e < E; e += LANES) {
            const Vf key = AT(flash_load)(k + j * ks + e, E - e);

            for (int i = 0; i < FLASH_QUERIES; i++)
                sum[i] += AT(flash_load)(q[i] + e, E - e) * key;
        }

        const Quad dots = vsum4(sum[0], sum[1], sum[2], sum[3]);

        for (int i = 0; i < FLASH_QUERIES; i++)
            scores[i][j] = dots[i];
    }
    for (int i = 0; i < FLASH_QUERIES; i++)
        for (int j = n; j < FLASH_KEYS; j++)
            scores[i][j] = -3.4e38f;
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
    for (int64_t e = 0; e < E; e += LANES) {
        Vf y[FLASH_QUERIES];

        for (int i = 0; i < FLASH_QUERIES; i++)
            y[i] = AT(flash_load)(f->y[i] + e, E - e) * keep[i];
        for (int j = 0; j < n; j++) {
            const Vf value = AT(flash_load)(v + j * vs + e, E - e);

            for (int i = 0; i < FLASH_QUERIES; i++)
                y[i] += p[i][j] * value;
        }
        for (int i = 0; i < FLASH_QUERIES; i++)
            if (e + LANES <= E)
                vstore(f->y[i] + e, y[i]);
            else
                vstore_n(f->y[i] + e, y[i], E - e);
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
