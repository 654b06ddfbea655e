// registers.cuh - registers that a warpgroup gives to others of its block (sm_90a).
//
// A kernel starts with the same number of registers in every thread. All warps of a warpgroup call one of these at once,
// at the start of its role; N is a multiple of 8 from 24 to 256.
#pragma once
#include "device/types.cuh"

// setmaxnreg.dec, setmaxnreg.inc: from here on the warp has N registers a thread. `take` waits until others gave enough.
template <int N> DEVICE void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DEVICE void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
