// order.cuh - values as integers in the same order, and sums that do not depend on an order.
#pragma once
#include "device/atomic.cuh"
#include "device/types.cuh"

// a < b exactly if order_key(a) < order_key(b); for values other than NaN and -0.
DEVICE u32 order_key(float f)
{
    const u32 b = __float_as_uint(f);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}
DEVICE float order_value(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// A value with its id in one word: greater values first, of equal ones the lower id.
DEVICE u64 place_of(float value, int id) { return (u64)order_key(value) << 32 | (u32)~id; }
DEVICE float place_value(u64 place) { return order_value((u32)(place >> 32)); }
DEVICE int place_id(u64 place) { return (int)~(u32)place; }

// Adds to a 64-bit sum in shared memory that is kept as two words; atomics of 64 bits are loops
// there, and integers make the sum independent of who comes first.
DEVICE void shared_add64(u32 *low, u32 *high, u64 v)
{
    const u32 old = shared_atomic_add(low, (u32)v);
    const u32 up = (u32)(v >> 32) + (old + (u32)v < old);
    if (up)
        shared_atomic_add(high, up);
}
