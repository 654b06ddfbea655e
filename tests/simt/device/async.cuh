// async.cuh - asynchronous copies on the host: they land as late as allowed.
#pragma once
#include "device/types.cuh"

DEVICE void copy16(u32 to, const void *from, int bytes = 16) { simt_copy(to, from, bytes, 16 - bytes); }
DEVICE void copy16_evict_first(u32 to, const void *from) { simt_copy(to, from, 16, 0); }
DEVICE void copy4(u32 to, const void *from, int bytes = 4) { simt_copy(to, from, bytes, 4 - bytes); }
DEVICE void copy_commit() { simt_copy_commit(); }
template <int PENDING> DEVICE void copy_wait() { simt_copy_wait(PENDING); }
DEVICE void copy_arrive(u32 mbarrier) { simt_copy_arrive(mbarrier); }
DEVICE void bulk_copy(u32 to, const void *from, u32 bytes, u32 mbarrier) { simt_bulk_copy(to, from, bytes, mbarrier); }
DEVICE void async_proxy_fence() { simt_async_proxy_fence(); }
