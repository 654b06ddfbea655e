// ring.cuh - a ring of slots in shared memory that producer and consumer warps walk through.
//
//   slots      [STAGES] of BYTES each
//   mbarriers  full [STAGES][PARTS]: a part of the slot's data has landed     producers -> consumers
//              empty [STAGES]: the slot's data has been read                  consumers -> producers
//
// RingSlot is a place in the ring. `parity` is that of the phase to wait for; it changes each time around. A consumer
// starts with {0, 0}; a producer with {0, 1}: its first waits for `empty` return at once (device/mbarrier.cuh).
#pragma once
#include "device/mbarrier.cuh"

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

template <int STAGES, int BYTES, int PARTS = 1> struct Ring {
    typedef RingSlot<STAGES> Slot;
    u32 slots, barriers; // shared addresses

    DEVICE u32 data(int slot) const { return slots + slot * BYTES; }
    DEVICE u32 full(int slot, int part = 0) const { return barriers + 8 * (slot * PARTS + part); }
    DEVICE u32 empty(int slot) const { return barriers + 8 * STAGES * PARTS + 8 * slot; }
    DEVICE u32 end() const { return empty(STAGES); } // of the mbarriers
    DEVICE void wait_full(const Slot &slot, int part = 0) const { mbarrier_wait(full(slot.at, part), slot.parity); }
    DEVICE void wait_empty(const Slot &slot) const { mbarrier_wait(empty(slot.at), slot.parity); }
    // By one thread: the number of arrivals that complete a phase.
    DEVICE void init(int producers, int consumers) const
    {
        for (int i = 0; i < STAGES; i++) {
            for (int part = 0; part < PARTS; part++)
                mbarrier_init(full(i, part), producers);
            mbarrier_init(empty(i), consumers);
        }
    }
};
