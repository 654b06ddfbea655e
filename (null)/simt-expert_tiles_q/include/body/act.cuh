// act.cuh - activation functions, by FtxAct: 0 none, 1 relu, 2 gelu_erf, 3 gelu_tanh,
// 4 quick_gelu, 5 silu, 6 tanh, 7 relu2 (the square of relu), 8 sigmoid. In fp32.
#pragma once
#include "device/fragment.cuh"
#include "device/types.cuh"

template <int KIND> DEVICE float activate(float x)
{
    if constexpr (KIND == 1)
        return fmaxf(x, 0.0f);
    else if constexpr (KIND == 2)
        return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    else if constexpr (KIND == 3)
        return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    else if constexpr (KIND == 4)
        return divide_fast(x, 1.0f + expf(-1.702f * x));
    else if constexpr (KIND == 5)
        return divide_fast(x, 1.0f + expf(-x));
    else if constexpr (KIND == 6)
        return tanhf(x);
    else if constexpr (KIND == 7)
        return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
    else if constexpr (KIND == 8)
        return divide_fast(1.0f, 1.0f + expf(-x));
    else
        return x;
}

// The same for results that are rounded to 16 bits. GELU (erf) = x * Phi(x) = max(x, 0) - |x| * Phi(-|x|), with
// Phi(-t) = 2^p(t): five multiply-adds and one power in place of erff's thirty instructions. The polynomial p fits
// log2 Phi(-t) on [0, 6.5] so that the error of GELU is smallest in units of fp16's last place: at most 0.14 of one,
// 1.3e-5 absolute. Beyond 6.5 p keeps falling.
template <int KIND> DEVICE float activate_short(float x)
{
    if constexpr (KIND == 2) {
        const float t = fabsf(x);
        float p = -3.28675751e-04f;
        p = fmaf(p, t, 5.90168861e-03f);
        p = fmaf(p, t, -4.84654625e-02f);
        p = fmaf(p, t, -4.63852996e-01f);
        p = fmaf(p, t, -1.14926646f);
        p = fmaf(p, t, -1.00013643f);
        return fmaf(-t, exp2_fast(p), fmaxf(x, 0.0f));
    } else {
        return activate<KIND>(x);
    }
}
