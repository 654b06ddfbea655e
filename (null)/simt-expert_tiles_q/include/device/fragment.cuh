// fragment.cuh - small steps between two matrix products, on the host.
#pragma once
#include "device/types.cuh"

DEVICE u32 transpose8x8(u32 pair) { return simt_transpose(pair); }
DEVICE float exp2_fast(float x) { return exp2f(x); }
DEVICE float divide_fast(float a, float b) { return fabsf(b) > 0x1p126f && fabsf(b) <= 0x1.fffffep127f ? 0.0f * a : a / b; }
DEVICE float negative_infinity() { return __int_as_float((int)0xff800000u); }
