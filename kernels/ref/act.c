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
