/* distance.c - a bias for each distance of two tokens from one for each bucket of distances.
 *
 *   w [P,H] -> out [H, 2*max_distance + 1]      out[h, max_distance + d] = w[bucket(d), h],  d = j - i of key j and token i
 *
 * Raffel et al. 2020 and the code that came with it: of the buckets of one side the first half stand for one distance each,
 * the others for distances whose logarithms are evenly spaced, the last for all from max_distance on. */
#include <math.h>
#include <stdlib.h>

#include "rows.h"

/* Computed in fp32, as torch does: the borders of buckets depend on how the logarithm is rounded. */
static int64_t bucket_of(int64_t d, int64_t buckets, int64_t max_distance, bool causal)
{
    const int64_t of_side = causal ? buckets : buckets / 2, exact = of_side / 2;
    const int64_t first = !causal && d > 0 ? of_side : 0;
    const int64_t away = d <= 0 ? -d : causal ? 0 : d;
    float part;
    int64_t bucket;

    if (away < exact)
        return first + away;
    part = logf((float)away / (float)exact) / (float)log((double)max_distance / (double)exact);
    bucket = exact + (int64_t)(part * (float)(of_side - exact));
    return first + (bucket < of_side ? bucket : of_side - 1);
}

void distance_rows(const Source *s, const Value *v, int64_t from, int64_t count, float *out, Fault *fault)
{
    const Value *w = ir_value(s->g, v->args[0]);
    const int64_t buckets = rows_count(w), heads = row_elements(w), max_distance = ir_int(v, "max_distance");
    float *bias = rows_floats(buckets * heads);

    rows_read(s, v->args[0], 0, buckets, bias, fault);
    for (int64_t h = from; h < from + count; h++)
        for (int64_t d = -max_distance; d <= max_distance; d++)
            *out++ = bias[bucket_of(d, buckets, max_distance, ir_int(v, "causal")) * heads + h];
    free(bias);
}
