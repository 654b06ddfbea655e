/* by_distance.c - what linear layers make of an embedding of relative positions, by head and distance.
 *
 *   w [H*E,K], r [B,K], b [H*E]  ->  out [H*(2*reach+1), E]
 *   out[h*(2*reach+1) + reach + d] = rows h*E .. h*E+E-1 of w times r[bucket(-d) + B/2], plus b,  d = j - i of key j and token i
 *
 * He et al. 2021 (DeBERTa) and the code that came with it. Sums in double. */
#include <math.h>
#include <stdlib.h>

#include "rows.h"

/* The row of r for a token `away` behind the key. Computed in fp32, as torch does: the borders of buckets depend on how the
 * logarithm is rounded. */
static int64_t row_of(int64_t away, int64_t buckets, int64_t max_distance)
{
    const int64_t mid = buckets / 2, half = buckets ? buckets : max_distance, far = llabs(away);
    int64_t bucket = far;

    if (buckets && far > mid)
        bucket = (int64_t)ceilf(logf((float)far / (float)mid) /
                                logf((float)((double)(max_distance - 1) / (double)mid)) * (float)(mid - 1)) +
                 mid;
    bucket = half + (away < 0 ? -bucket : bucket);
    return bucket < 0 ? 0 : bucket < 2 * half ? bucket : 2 * half - 1;
}

static void multiply(const float *w, const float *r, const float *b, int64_t E, int64_t K, float *out)
{
    for (int64_t e = 0; e < E; e++) {
        double sum = (double)b[e];

        for (int64_t k = 0; k < K; k++)
            sum += (double)w[e * K + k] * (double)r[k];
        out[e] = (float)sum;
    }
}

void distance_heads_rows(const Source *s, const Value *v, int64_t from, int64_t count, float *out, Fault *fault)
{
    const int64_t E = row_elements(v), K = row_elements(ir_value(s->g, v->args[0])), reach = ir_int(v, "reach");
    const int64_t B = rows_count(ir_value(s->g, v->args[1])), P = 2 * reach + 1;
    float *r = rows_floats((B + E) * K + E), *w = r + B * K, *b = w + E * K;
    int64_t head = -1, last = -1;

    for (int64_t e = 0; e < E; e++)
        b[e] = 0.0F;
    rows_read(s, v->args[1], 0, B, r, fault);
    for (int64_t i = from; !fault->found && i < from + count; i++, out += E) {
        const int64_t at = row_of(reach - i % P, ir_int(v, "buckets"), ir_int(v, "max_distance"));

        if (i / P != head) {
            head = i / P;
            last = -1;
            rows_read(s, v->args[0], head * E, E, w, fault);
            if (v->args[2])
                rows_read(s, v->args[2], head * E, E, b, fault);
        }
        if (at == last) /* neighbours in one bucket */
            for (int64_t e = 0; e < E; e++)
                out[e] = out[e - E];
        else
            multiply(w, r + at * K, b, E, K, out);
        last = at;
    }
    free(r);
}
