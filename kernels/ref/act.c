/* act.c - activations and gates, by their definitions. */
#include "ref.h"

#include <math.h>

double ref_act_of(double x, FtxAct kind)
{
    switch (kind) {
    case FTX_ACT_NONE: return x;
    case FTX_ACT_RELU: return x > 0.0 ? x : 0.0;
    case FTX_ACT_GELU_ERF: return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case FTX_ACT_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case FTX_ACT_QUICK_GELU: return x / (1.0 + exp(-1.702 * x));
    case FTX_ACT_SILU: return x / (1.0 + exp(-x));
    case FTX_ACT_TANH: return tanh(x);
    case FTX_ACT_RELU2: return x > 0.0 ? x * x : 0.0;
    case FTX_ACT_SIGMOID: return 1.0 / (1.0 + exp(-x));
    case FTX_ACT_COUNT: break;
    }
    return x;
}

static double ref_within(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

void ref_clamp(RefTensor x, double low, double high, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)ref_within(ref_at(x, i), low, high);
}

void ref_xielu(RefTensor x, RefTensor w, int64_t n, float *y)
{
    const double beta = ref_at(w, 2), up = log1p(exp(ref_at(w, 0))), down = beta + log1p(exp(ref_at(w, 1)));

    for (int64_t i = 0; i < n; i++) {
        const double a = ref_at(x, i);

        y[i] = (float)(beta * a + (a > 0.0 ? up * a * a : down * (expm1(fmin(a, -1e-6)) - a)));
    }
}

void ref_glu_clamped(RefTensor x, double alpha, double limit, int M, int F, float *y)
{
    for (int64_t i = 0; i < (int64_t)M * F; i++) {
        const double g = fmin(ref_at(x, 2 * i), limit), u = ref_within(ref_at(x, 2 * i + 1), -limit, limit);

        y[i] = (float)(g / (1.0 + exp(-alpha * g)) * (u + 1.0));
    }
}

void ref_scale_by_position(RefTensor x, const FtxToken *token, int T, int C, double by, int every, int offset, float *y)
{
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < C; i++)
            y[t * C + i] = (float)(ref_at(x, t * C + i) *
                                   (1.0 + by * log(1.0 + floor((double)(token[t].pos + offset) / (double)every))));
}

void ref_join_parts(RefTensor a, RefTensor b, int T, int H, int A, int HB, int B, float *y)
{
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t e = 0; e < A + B; e++)
                y[(t * H + h) * (A + B) + e] =
                    (float)(e < A ? ref_at(a, (t * H + h) * A + e) : ref_at(b, (t * HB + h % HB) * B + e - A));
}

void ref_act(RefTensor x, FtxAct kind, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)ref_act_of(ref_at(x, i), kind);
}

void ref_glu(RefTensor x, FtxAct kind, int M, int F, float *y)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < F; i++)
            y[m * F + i] = (float)(ref_act_of(ref_at(x, (m * F + i) * 2), kind) * ref_at(x, (m * F + i) * 2 + 1));
}
