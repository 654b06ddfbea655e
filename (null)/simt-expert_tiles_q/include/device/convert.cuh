// convert.cuh - element types on the host, by their bits; nearest, ties to even.
#pragma once

DEVICE float to_float(float f) { return f; }
DEVICE float to_float(bf16 h) { return __uint_as_float((u32)h.bits << 16); }
DEVICE float to_float(half h)
{
    const u32 sign = (u32)(h.bits & 0x8000) << 16, e = h.bits >> 10 & 31, m = h.bits & 1023;
    if (e == 0)
        return __uint_as_float(sign | __float_as_uint((float)m * 0x1p-24f));
    return __uint_as_float(sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13);
}

template <class T> DEVICE T from_float(float f);
template <> DEVICE float from_float<float>(float f) { return f; }
template <> DEVICE bf16 from_float<bf16>(float f)
{
    const u32 u = __float_as_uint(f);
    if (f != f)
        return bf16{0x7fff};
    return bf16{(u16)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
template <> DEVICE half from_float<half>(float f)
{
    const u32 u = __float_as_uint(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return half{0x7fff};
    if (a >= 0x477ff000)  // rounds to 2^16 or more
        return half{(u16)(sign | 0x7c00)};
    if (a < 0x38800000)   // denormal: the sum with 0.5 leaves the 2^-24 in its low bits
        return half{(u16)(sign | (__float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u))};
    return half{(u16)(sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13))};
}

template <class T> DEVICE u32 pack2(float lo, float hi)
{
    return from_float<T>(lo).bits | (u32)from_float<T>(hi).bits << 16;
}
template <class T> DEVICE float low(u32 w) { return to_float(T{(u16)w}); }
template <class T> DEVICE float high(u32 w) { return to_float(T{(u16)(w >> 16)}); }

// The products of two pairs, each rounded.
template <class T> DEVICE u32 mul2(u32 a, u32 b) { return pack2<T>(low<T>(a) * low<T>(b), high<T>(a) * high<T>(b)); }
