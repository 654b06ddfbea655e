// registers.cuh - the host has as many registers as a kernel wants.
#pragma once
#include "device/types.cuh"

template <int N> DEVICE void registers_give() { static_assert(N % 8 == 0 && N >= 24 && N <= 256, "as setmaxnreg"); }
template <int N> DEVICE void registers_take() { static_assert(N % 8 == 0 && N >= 24 && N <= 256, "as setmaxnreg"); }
