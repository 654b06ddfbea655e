// pairs.cuh - arithmetic on two elements of a 16-bit type in one word.
#pragma once
#include "device/types.cuh"

// lop3: a & b | c in one instruction, which the compiler makes two of where b and c are constants.
DEVICE u32 and_or(u32 a, u32 b, u32 c)
{
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

// lop3: (a ^ b) & c in one instruction.
DEVICE u32 xor_and(u32 a, u32 b, u32 c)
{
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0x28;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

// max.u16x2 (sm_90): the larger of each pair of integers without sign.
DEVICE u32 max2(u32 a, u32 b)
{
    u32 r = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm("max.u16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
#endif
    return r;
}

// fma.rn.x2: a * b + c of each pair, rounded once.
template <class T> DEVICE u32 fma2(u32 a, u32 b, u32 c);
template <> DEVICE u32 fma2<bf16>(u32 a, u32 b, u32 c)
{
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
template <> DEVICE u32 fma2<half>(u32 a, u32 b, u32 c)
{
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
