// peer.cuh - memory that several GPUs write, on the host: stores arrive late, in halves and in any order (../peer.c).
#pragma once
#include "device/types.cuh"

DEVICE void store_peer(void *p, uint4_ v) { simt_peer_store(p, &v); }
DEVICE uint4_ load_peer(const void *p)
{
    uint4_ v;
    simt_peer_load(p, &v);
    return v;
}
DEVICE void store_peer_word(void *p, u32 v) { simt_peer_store_word(p, v); }
DEVICE u32 load_peer_word(const void *p) { return simt_peer_load_word(p); }
DEVICE u32 load_system(const u32 *p) { return simt_load(p, SIMT_RELAXED); }
DEVICE void store_system(u32 *p, u32 v) { simt_store(p, v, SIMT_RELAXED | SIMT_SYSTEM); }
DEVICE u64 nanoseconds() { return simt_clock(); }
DEVICE bool rare_turn(u32 &) { return true; }
