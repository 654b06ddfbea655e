/* append.c - neighbour-pair RoPE (Su et al. 2021, eq. 15) and the write into paged K and V. */
#include "ref.h"

#include <math.h>

void ref_rope_table(int positions, int rot, double theta, float *table)
{
    for (int pos = 0; pos < positions; pos++)
        for (int i = 0; i < rot / 2; i++) {
            const double angle = pos * pow(theta, -2.0 * i / rot);

            table[(int64_t)pos * rot + 2 * i] = (float)cos(angle);
            table[(int64_t)pos * rot + 2 * i + 1] = (float)sin(angle);
        }
}

/* Element e of a head that starts at x[at], rotated. */
static double turned(RefTensor x, int64_t at, int e, const float *turn, int rot)
{
    if (!turn || e >= rot)
        return ref_at(x, at + e);

    const double a = ref_at(x, at + e / 2 * 2), b = ref_at(x, at + e / 2 * 2 + 1);
    const double cosine = turn[e / 2 * 2], sine = turn[e / 2 * 2 + 1];

    return e % 2 ? b * cosine + a * sine : a * cosine - b * sine;
}

void ref_append(RefTensor x, const float *table, const FtxToken *token, int T, int H, int rot, const RefCache *cache,
                float *q)
{
    const int G = cache->G, E = cache->E;

    for (int64_t t = 0; t < T; t++) {
        const int pos = token[t].pos;
        const float *turn = table ? table + (int64_t)pos * rot : NULL;
        const int64_t in = t * (H + 2 * G) * E;
        const int64_t page = cache->pages[(int64_t)token[t].slot * cache->pages_of + pos / cache->block];

        for (int h = 0; h < H; h++)
            for (int e = 0; e < E; e++)
                q[(t * H + h) * E + e] = (float)turned(x, in + h * E, e, turn, rot);
        for (int g = 0; g < G; g++) {
            const int64_t row = (int64_t)g * cache->block + pos % cache->block;
            float k[512], v[512];

            for (int e = 0; e < E; e++) {
                k[e] = (float)turned(x, in + (H + g) * E, e, turn, rot);
                v[e] = (float)ref_at(x, in + (H + G + g) * E + e);
            }
            ref_cache(cache, cache->k, page, row, k);
            ref_cache(cache, cache->v, page, row, v);
        }
    }
}

int ref_prefix(const FtxRow *row, int tail)
{
    return row->prompt <= tail ? 1 : row->prompt - tail;
}

void ref_count(const FtxRow *rows, const FtxToken *token, int T, int tail, bool rest, FtxToken *to)
{
    for (int t = 0; t < T; t++) {
        const int prefix = ref_prefix(&rows[token[t].row], tail), pos = token[t].pos;

        to[t] = token[t];
        if (rest)
            to[t].pos = pos < prefix ? 0 : pos - prefix + 1;
        else if (pos >= prefix)
            to[t].pos = prefix - 1;
    }
}

void ref_rope(RefTensor x, const float *table, const FtxToken *token, int T, int H, int E, int rot, int half, float *y)
{
    for (int64_t i = 0; i < (int64_t)T * H; i++) {
        const float *turn = table + (int64_t)token[i / H].pos * rot;

        for (int e = 0; e < E; e++)
            y[i * E + e] = (float)ref_at(x, i * E + e);
        for (int p = 0; p < rot / 2; p++) {
            const int64_t one = i * E + (half ? p : 2 * p), two = i * E + (half ? p + rot / 2 : 2 * p + 1);
            const double a = ref_at(x, one), b = ref_at(x, two), cosine = turn[2 * p], sine = turn[2 * p + 1];

            y[one] = (float)(a * cosine - b * sine);
            y[two] = (float)(b * cosine + a * sine);
        }
    }
}
