/* texts.c - ops of encoders: attention over whole texts and over sources, pooling to one vector a text. In double. */
#include "ref.h"

#include <math.h>

void ref_attend_rows(RefTensor q, int64_t at, RefTensor k, RefTensor v, int64_t from, int64_t stride, int n, int E,
                     double scale, float *y)
{
    double most = -INFINITY, total = 0.0, sum[256] = {0};

    for (int pass = 0; pass < 2; pass++)
        for (int j = 0; j < n; j++) {
            double s = 0.0;

            for (int e = 0; e < E; e++)
                s += ref_at(q, at + e) * ref_at(k, from + j * stride + e);
            if (pass == 0) {
                most = fmax(most, s * scale);
                continue;
            }
            s = exp(s * scale - most);
            total += s;
            for (int e = 0; e < E; e++)
                sum[e] += s * ref_at(v, from + j * stride + e);
        }
    for (int e = 0; e < E; e++)
        y[e] = (float)(sum[e] / total);
}

void ref_attend_packed(const float *x, const FtxRow *rows, int S, int H, int G, int E, double scale, float *y)
{
    const int64_t N = (int64_t)(H + 2 * G) * E;

    for (int s = 0; s < S; s++)
        for (int i = 0; i < rows[s].q_len; i++)
            for (int h = 0; h < H; h++) {
                const int64_t first = rows[s].q_start * N, key = first + (int64_t)(H + h / (H / G)) * E;
                const RefTensor values = {x + (int64_t)G * E, DT_FP32};

                ref_attend_rows((RefTensor){x, DT_FP32}, first + i * N + (int64_t)h * E, (RefTensor){x, DT_FP32},
                                values, key, N, rows[s].q_len, E, scale,
                                y + ((int64_t)(rows[s].q_start + i) * H + h) * E);
            }
}

void ref_pool_mean(RefTensor x, const FtxRow *rows, int S, int C, float *y)
{
    for (int s = 0; s < S; s++)
        for (int i = 0; i < C; i++) {
            double sum = 0.0;

            for (int t = 0; t < rows[s].q_len; t++)
                sum += ref_at(x, (int64_t)(rows[s].q_start + t) * C + i);
            y[(int64_t)s * C + i] = (float)(sum / rows[s].q_len);
        }
}

/* y [T, C * count]: element c of the rows t + from, t + from + 1 ... of a text, then element c + 1. */
void ref_neighbours(RefTensor x, const FtxRow *rows, int S, int C, int from, int count, bool ring, float *y)
{
    for (int s = 0; s < S; s++)
        for (int t = 0; t < rows[s].q_len; t++)
            for (int c = 0; c < C; c++)
                for (int k = 0; k < count; k++) {
                    int at = t + from + k;

                    while (ring && at < 0)
                        at += rows[s].q_len;
                    while (ring && at >= rows[s].q_len)
                        at -= rows[s].q_len;
                    y[((int64_t)(rows[s].q_start + t) * C + c) * count + k] =
                        at < 0 || at >= rows[s].q_len ? 0.0f
                                                      : (float)ref_at(x, (int64_t)(rows[s].q_start + at) * C + c);
                }
}

void ref_normalize(RefTensor x, double eps, int M, int C, float *y)
{
    for (int64_t m = 0; m < M; m++) {
        double sum = 0.0;

        for (int i = 0; i < C; i++)
            sum += ref_at(x, m * C + i) * ref_at(x, m * C + i);
        for (int i = 0; i < C; i++)
            y[m * C + i] = (float)(ref_at(x, m * C + i) / fmax(sqrt(sum), eps));
    }
}

void ref_row_rms(RefTensor x, bool centred, bool inverse, double floor, int M, int C, float *y)
{
    for (int64_t m = 0; m < M; m++) {
        double mean = 0.0, sum = 0.0;

        for (int i = 0; centred && i < C; i++)
            mean += ref_at(x, m * C + i) / C;
        for (int i = 0; i < C; i++)
            sum += (ref_at(x, m * C + i) - mean) * (ref_at(x, m * C + i) - mean);
        sum = sqrt(fmax(sum / C, floor));
        y[m] = (float)(inverse ? 1.0 / sum : sum);
    }
}
