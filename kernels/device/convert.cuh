// convert.cuh - element types to fp32 and back. Included by types.cuh, which it needs.
#pragma once

DEVICE float to_float(float f) { return f; }
DEVICE float to_float(bf16 h) { return __uint_as_float((u32)h.bits << 16); }
DEVICE float to_float(half h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits));
    return f;
}

// cvt.rn: rounds to nearest, ties to even.
template <class T> DEVICE T from_float(float f);
template <> DEVICE float from_float<float>(float f) { return f; }
template <> DEVICE bf16 from_float<bf16>(float f)
{
    bf16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
    return h;
}
template <> DEVICE half from_float<half>(float f)
{
    half h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
    return h;
}

// cvt.rn.x2: two elements of a 16-bit type in one word, the first in the low half.
template <class T> DEVICE u32 pack2(float lo, float hi);
template <> DEVICE u32 pack2<bf16>(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
template <> DEVICE u32 pack2<half>(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
template <class T> DEVICE float low(u32 w);   // first element of a pair
template <class T> DEVICE float high(u32 w);  // second
template <> DEVICE float low<bf16>(u32 w) { return __uint_as_float(w << 16); }
template <> DEVICE float high<bf16>(u32 w) { return __uint_as_float(w & 0xffff0000u); }
template <> DEVICE float low<half>(u32 w) { return to_float(half{(u16)w}); }
template <> DEVICE float high<half>(u32 w) { return to_float(half{(u16)(w >> 16)}); }

// Products of two pairs of elements, each rounded once.
template <class T> DEVICE u32 mul2(u32 a, u32 b);
template <> DEVICE u32 mul2<bf16>(u32 a, u32 b)
{
    u32 r;  // a * b + -0: sm_80 has no bf16 multiply of its own
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
    return r;
}
template <> DEVICE u32 mul2<half>(u32 a, u32 b)
{
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
