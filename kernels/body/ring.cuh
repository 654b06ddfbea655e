// ring.cuh - a place in a ring of slots in shared memory that producer and consumer warps walk through.
//
// Each slot has two mbarriers: `full` (data has landed) and `empty` (data has been read). `parity` is that of the phase
// to wait for; it changes each time around. A consumer starts with {0, 0}; a producer with {0, 1}: its first waits for
// `empty` return at once (device/mbarrier.cuh).
#pragma once
#include "device/types.cuh"

template <int STAGES> struct RingSlot {
    int at;
    u32 parity;
    DEVICE void next()
    {
        if (++at == STAGES) {
            at = 0;
            parity ^= 1;
        }
    }
    DEVICE int before() const { return at ? at - 1 : STAGES - 1; } // the slot before this one
    DEVICE void skip(int steps)
    {
        at += steps;
        parity ^= at / STAGES & 1;
        at %= STAGES;
    }
};
