// fragment.cuh - small steps between two matrix products: a transpose, fast powers of two and quotients.
#pragma once
#include "device/types.cuh"

// movmatrix.trans: transposes an 8x8 matrix of 16-bit elements that the warp holds. Lane 4g+t passes elements 2t, 2t+1
// of row g and gets rows 2t, 2t+1 of column g.
DEVICE u32 transpose8x8(u32 pair)
{
    u32 r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(pair));
    return r;
}

// ex2.approx.ftz: 2^x to 2 ulp; 0 for -inf; denormal results are 0.
DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// a / b to 2 ulp; 0 for |b| above 2^126.
DEVICE float divide_fast(float a, float b) { return __fdividef(a, b); }

DEVICE float negative_infinity() { return __int_as_float((int)0xff800000u); }
