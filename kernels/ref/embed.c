/* embed.c - token and position embedding. */
#include "ref.h"

void ref_embed(const FtxToken *token, int T, RefTensor w, RefTensor p, int offset, int D, int32_t *history, int context,
               float *y)
{
    for (int t = 0; t < T; t++) {
        history[(int64_t)token[t].slot * context + token[t].pos] = token[t].id;
        for (int i = 0; i < D; i++) {
            double sum = ref_at(w, (int64_t)token[t].id * D + i);

            if (p.p)
                sum += ref_at(p, (int64_t)(token[t].pos + offset) * D + i);
            y[(int64_t)t * D + i] = (float)sum;
        }
    }
}

void ref_select_last(RefTensor x, const FtxRow *rows, int S, int C, float *y)
{
    for (int s = 0; s < S; s++)
        for (int i = 0; i < C; i++)
            y[(int64_t)s * C + i] = (float)ref_at(x, (int64_t)(rows[s].q_start + rows[s].q_len - 1) * C + i);
}
