// order.cuh - floats as integers that compare the same, and 64-bit sums in shared memory.
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

// A value and its id as one integer that ranks them: a larger value is larger, of equal values the lower id.
DEVICE u64 place_of(float value, int id) { return (u64)order_key(value) << 32 | (u32)~id; }
DEVICE float place_value(u64 place) { return order_value((u32)(place >> 32)); }
DEVICE int place_id(u64 place) { return (int)~(u32)place; }

// Adds to a 64-bit integer in shared memory that is kept as two words, since 64-bit atomics are loops there. The sum of
// integers does not depend on the order of the threads.
DEVICE void shared_add64(u32 *low, u32 *high, u64 v)
{
    const u32 old = shared_atomic_add(low, (u32)v);
    const u32 up = (u32)(v >> 32) + (old + (u32)v < old);
    if (up)
        shared_atomic_add(high, up);
}
