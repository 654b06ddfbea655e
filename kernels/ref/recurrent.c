/* recurrent.c - ops that keep a state of all tokens so far. */
#include "ref.h"

/* Row `at` of the chunk of a sequence; at < 0: of the tokens before it, of which the state has the last `kept`, and the first
 * chunk none. */
static double row_at(RefTensor x, const FtxRow *row, int at, const float *state, int kept, int C, int c)
{
    if (at >= 0)
        return ref_at(x, (int64_t)(row->q_start + at) * C + c);
    return row->kv_len == row->q_len ? 0.0 : (double)state[(kept + at) * C + c];
}

void ref_convolve(RefTensor x, RefTensor w, RefTensor b, const FtxRow *rows, int S, int C, int taps, float *state,
                  float *y)
{
    const int kept = taps - 1;

    for (int s = 0; s < S; s++)
        for (int c = 0; c < C; c++) {
            float *of = state + (int64_t)rows[s].slot * kept * C;
            float last[16];

            for (int t = 0; t < rows[s].q_len; t++) {
                double sum = 0;

                for (int j = 0; j < taps; j++)
                    sum += ref_at(w, (int64_t)c * taps + kept - j) * row_at(x, &rows[s], t - j, of, kept, C, c);
                y[(int64_t)(rows[s].q_start + t) * C + c] = (float)(sum + (b.p ? ref_at(b, c) : 0.0));
            }
            for (int k = 0; k < kept; k++)
                last[k] = (float)row_at(x, &rows[s], rows[s].q_len - kept + k, of, kept, C, c);
            for (int k = 0; k < kept; k++)
                of[k * C + c] = last[k];
        }
}
