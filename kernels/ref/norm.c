/* norm.c - RMSNorm (Zhang & Sennrich 2019) and LayerNorm (Ba et al. 2016) of each row, in double or in a
 * stated order. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_rmsnorm(RefTensor x, RefTensor g, double eps, int M, int C, float *y)
{
    for (int64_t m = 0; m < M; m++) {
        double sum = 0.0;

        for (int64_t i = 0; i < C; i++)
            sum += ref_at(x, m * C + i) * ref_at(x, m * C + i);
        for (int64_t i = 0; i < C; i++)
            y[m * C + i] = (float)(ref_at(g, i) * ref_at(x, m * C + i) / sqrt(sum / C + eps));
    }
}

void ref_layernorm(RefTensor x, RefTensor g, RefTensor b, double eps, int M, int C, float *y)
{
    for (int64_t m = 0; m < M; m++) {
        double sum = 0.0, square = 0.0;

        for (int64_t i = 0; i < C; i++)
            sum += ref_at(x, m * C + i);

        const double mean = sum / C;

        for (int64_t i = 0; i < C; i++)
            square += (ref_at(x, m * C + i) - mean) * (ref_at(x, m * C + i) - mean);
        for (int64_t i = 0; i < C; i++)
            y[m * C + i] =
                (float)(ref_at(g, i) * (ref_at(x, m * C + i) - mean) / sqrt(square / C + eps) + ref_at(b, i));
    }
}

enum { WARP = 32, MOST_LANES = 1024 };

/* Lanes of a warp: those `apart` from each other, then those at half the distance ... */
static float add_warp(float *lane, int apart)
{
    for (; apart; apart /= 2)
        for (int i = 0; i < apart; i++)
            lane[i] += lane[i + apart];
    return lane[0];
}

/* One warp that has the row to itself adds lanes 8, 4, 2 and 1 apart, last its halves; a block adds each warp's lanes 16, 8,
 * 4, 2 and 1 apart, then its warps in their order. */
static float add_lanes(float *lane, int lanes, bool alone)
{
    float sum = 0.0f;

    if (alone)
        return add_warp(lane, WARP / 4) + add_warp(lane + WARP / 2, WARP / 4);
    for (int w = 0; w < lanes; w += WARP)
        sum += add_warp(lane + w, WARP / 2);
    return sum;
}

/* The sum of a row, or of its squares around the mean: lane i adds vectors i, i + lanes, ... */
static float sum_row(RefTensor x, int64_t at, int C, int vec, int lanes, bool alone, const float *mean)
{
    float lane[MOST_LANES] = {0};

    for (int i = 0; i < C; i++) {
        const float f = (float)ref_at(x, at + i);
        float *to = &lane[i / vec % lanes];

        *to = mean ? fmaf(f - *mean, f - *mean, *to) : *to + f;
    }
    return add_lanes(lane, lanes, alone);
}

bool ref_norm_in_order(const char *order, RefTensor x, RefTensor g, RefTensor b, double eps, int M, int C, int vec,
                       float *y)
{
    const size_t word = strcspn(order, " ");
    const bool whole = strncmp(order, "embedding ", word + 1) == 0;
    const int lanes = atoi(order + word);

    if ((!whole && strncmp(order, "lanes ", word + 1) != 0 && strncmp(order, "heads ", word + 1) != 0) ||
        lanes < WARP || lanes > MOST_LANES || lanes % WARP)
        return false;
    while (C % vec)
        vec /= 2;
    for (int64_t m = 0; m < M; m++) {
        const bool alone = lanes == WARP && !whole;
        const float mean = b.p ? sum_row(x, m * C, C, vec, lanes, alone, NULL) / (float)C : 0.0f;
        const float scale = 1.0f / sqrtf(sum_row(x, m * C, C, vec, lanes, alone, &mean) / (float)C + (float)eps);

        for (int64_t i = 0; i < C; i++) {
            const float f = (float)ref_at(x, m * C + i), gain = (float)ref_at(g, i);

            y[m * C + i] = b.p ? fmaf((f - mean) * scale, gain, (float)ref_at(b, i)) : f * scale * gain;
        }
    }
    return true;
}
