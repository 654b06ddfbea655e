// mbarrier.cuh - barriers that count arrivals and copied bytes, on the host.
#pragma once
#include "device/types.cuh"

DEVICE void mbarrier_init(u32 b, u32 arrivals) { simt_mbarrier_init(b, arrivals); }
DEVICE void mbarrier_init_fence() { simt_mbarrier_init_fence(); }
DEVICE void mbarrier_expect(u32 b, u32 bytes) { simt_mbarrier_arrive(b, bytes); }
DEVICE void mbarrier_arrive(u32 b) { simt_mbarrier_arrive(b, 0); }
DEVICE bool mbarrier_try(u32 b, u32 parity) { return simt_mbarrier_try(b, parity); }
DEVICE void mbarrier_wait(u32 b, u32 parity) { simt_mbarrier_wait(b, parity); }
