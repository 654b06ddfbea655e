// peer.cuh - memory that several GPUs write: 16-byte words to and from another GPU, and the clock that ends a wait.
#pragma once
#include "device/types.cuh"

// st.relaxed.sys: 16 bytes to this GPU's memory or another one's. They may arrive in parts and in any order, but each 4
// bytes at once.
DEVICE void store_peer(void *p, uint4_ v)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// ld.relaxed.sys: 16 bytes of this GPU's memory, into which another GPU may be writing.
DEVICE uint4_ load_peer(const void *p)
{
    uint4_ v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
// The same for 4 bytes.
DEVICE void store_peer_word(void *p, u32 v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE u32 load_peer_word(const void *p)
{
    u32 v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
// One word that the host writes, too.
DEVICE u32 load_system(const u32 *p)
{
    u32 v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEVICE void store_system(u32 *p, u32 v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }

// Nanoseconds; it moves on in steps of about a microsecond.
DEVICE u64 nanoseconds()
{
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

// A wait that lasts: whether it is this warp's turn to read the clock above and the host's memory, a microsecond each, one warp
// after another: if all of an H200 did so at once, a wait would last milliseconds. Once in 64 turns of 2^21 cycles (1 ms), its
// neighbours in the turns beside. `turn`: of the thread's last call.
DEVICE bool rare_turn(u32 &turn)
{
    u64 cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    const u32 now = (u32)(cycles >> 21), last = turn;
    turn = now;
    return now != last && (now + threadIdx.x / 32 + blockIdx.x) % 64 == 0;
}
