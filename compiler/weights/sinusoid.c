/* sinusoid.c - the table of sinusoidal positions and the slopes of ALiBi, computed in double precision and rounded once.
 *
 *   angle[p, i] = p * theta^(-i / span)      i < dim / 2;  Vaswani et al. 2017: span = dim / 2
 *   half: row p is sin(angle[p, 0 ..]), cos(angle[p, 0 ..]);  neighbour: sin, cos, sin, cos ... */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

/* Press et al. 2022, and the code that came with it for heads that are no power of two. */
void alibi_rows(const Value *v, int64_t from, int64_t count, float *out)
{
    const int64_t heads = ir_int(v, "heads");
    const double most = ir_float(v, "most");
    const int64_t reach = ir_int(v, "reach");
    int64_t whole = 1;

    while (2 * whole <= heads)
        whole *= 2;
    for (int64_t h = from; h < from + count; h++) {
        const double slope = h < whole ? pow(2, -most * (double)(h + 1) / (double)whole)
                                       : pow(2, -most / 2 * (double)(2 * (h - whole) + 1) / (double)whole);

        if (!reach)
            *out++ = (float)slope;
        for (int64_t d = -reach; reach && d <= reach; d++)
            *out++ = (float)(-slope * (double)llabs(d));
    }
}

void sinusoid_rows(const Value *v, int64_t from, int64_t count, float *out)
{
    const int64_t dim = ir_int(v, "dim"), half = dim / 2;
    const int64_t span = ir_int(v, "span") ? ir_int(v, "span") : half;
    const bool halves = strcmp(ir_word(v, "style"), "half") == 0;

    for (int64_t p = 0; p < count; p++)
        for (int64_t i = 0; i < half; i++) {
            const double angle = (double)(from + p) / pow(ir_float(v, "theta"), (double)i / (double)span);
            float *row = out + p * dim;

            row[halves ? i : 2 * i] = (float)sin(angle);
            row[halves ? half + i : 2 * i + 1] = (float)cos(angle);
        }
}
