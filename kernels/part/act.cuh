// act.cuh - activation functions, by FtxAct: 0 none, 1 relu, 2 gelu_erf, 3 gelu_tanh,
// 4 quick_gelu, 5 silu, 6 tanh. In fp32.
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
    else
        return x;
}
