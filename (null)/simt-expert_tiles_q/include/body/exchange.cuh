// exchange.cuh - how the ranks of a tensor-parallel model hand each other vectors of 16 bytes: one store, no flag.
//
//   FtxExchange of a rank       three buffers, exchange n uses buffer n % 3; a buffer has a share for each rank
//   send     rank s stores vector v into share s of every other rank's buffer
//   receive  a rank polls its own memory until vector v of share s is there, and stores zeros in its place
//   words    4 bytes in place of 16, for kernels whose threads have finished no more; the rank sends to itself, too
//
// A zero word says "not there". So a word is sent XOR -0.0 (for 16 bits a pair of them), and -0.0 itself, which would
// become zero, is sent as +0.0. Each 4 bytes carry their own flag: it does not matter in which parts and in which order the
// vector arrives. A buffer is all zeros when its exchange ends; a rank reaches exchange n + 1 only when all others have
// started exchange n, so they have ended exchange n - 1 and cleared its buffer.
//
// GPUs of several processes do not reach each other's memory. There NCCL has brought what all ranks send, as x has it, into
// the first buffer before the kernel begins (peers->reserved). Nothing is sent, no word is a flag and none is cleared.
//
// A wait ends after peers->timeout_ms, or when the host says `stop`. From then on the rank waits for nobody, sends nothing,
// and takes zeros for what has not arrived. The host looks at the report before it takes a token.
#pragma once
#include "device/atomic.cuh"
#include "device/barrier.cuh"
#include "device/io.h"
#include "device/peer.cuh"
#include "device/types.cuh"

template <class T> struct Wire { static constexpr u32 FLIP = 0x80008000u; }; // a pair of -0.0
template <> struct Wire<float> { static constexpr u32 FLIP = 0x80000000u; };

template <class T> DEVICE u32 wire_word(u32 w)
{
    const u32 sent = w ^ Wire<T>::FLIP;
    return sent ? sent : Wire<T>::FLIP;
}
template <class T> DEVICE uint4_ to_wire(uint4_ v) { return uint4_{wire_word<T>(v.x), wire_word<T>(v.y), wire_word<T>(v.z), wire_word<T>(v.w)}; }
template <class T> DEVICE uint4_ from_wire(uint4_ v)
{
    return uint4_{v.x ^ Wire<T>::FLIP, v.y ^ Wire<T>::FLIP, v.z ^ Wire<T>::FLIP, v.w ^ Wire<T>::FLIP};
}
DEVICE bool has_arrived(uint4_ v) { return v.x && v.y && v.z && v.w; }
DEVICE bool has_arrived(u32 v) { return v != 0; }
DEVICE void poll_peer(const char *from, uint4_ &v) { v = load_peer(from); }
DEVICE void poll_peer(const char *from, u32 &v) { v = load_peer_word(from); }

// What a thread knows of the running exchange.
template <int RANKS> struct Exchange {
    const FtxPeers *peers;
    FtxExchange *own;
    u64 base[RANKS]; // of each rank's FtxExchange
    u64 share;       // bytes of a rank in a buffer
    u64 at;          // of the running buffer, from base
    int rank;
    u32 count;
    bool stopped;
    bool gathered;

    // Reads what no kernel writes.
    DEVICE Exchange(const FtxPeers *peers, FtxExchange *own) : peers(peers), own(own)
    {
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            base[r] = peers->exchange[r];
        share = peers->bytes / RANKS;
        rank = peers->rank;
        gathered = peers->reserved != 0;
    }
    // After the wait for the previous kernel.
    DEVICE void begin()
    {
        count = load_system(&own->count);
        stopped = gathered || load_system(&own->stop) != 0; // sends nothing
        at = sizeof(FtxExchange) + (gathered ? 0 : (u64)(count % FTX_EXCHANGES) * share * RANKS);
    }
    // All threads, once: the last block that has read the count moves it on, by a thread that has begun. A release would wait
    // for what was sent.
    DEVICE void counted(u32 thread = 0) const
    {
        block_sync();
        if (threadIdx.x == thread && atomic_add_relaxed(&own->arrived, 1) == gridDim.x - 1) {
            store_system(&own->arrived, 0);
            store_system(&own->count, count + 1);
        }
    }
    // The same where an exchange by NCCL takes two launches: the first prepares what NCCL brings to the others.
    DEVICE void turn(bool second) const
    {
        block_sync();
        if (threadIdx.x == 0 && atomic_add_relaxed(&own->arrived, 1) == gridDim.x - 1) {
            store_system(&own->arrived, 0);
            store_system(&own->reserved[0], !second);
            if (second)
                store_system(&own->count, count + 1);
        }
    }
    DEVICE void send(i64 v, uint4_ word) const
    {
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (r != rank && !stopped)
                store_peer((char *)base[r] + at + (u64)rank * share + v * 16, word);
    }
    // Vector v of every rank, as sent, of elements of type T; all[rank] is not touched.
    template <class T> DEVICE void receive(i64 v, uint4_ (&all)[RANKS])
    {
        char *from = (char *)own + at + v * 16;
        if (gathered) {
#pragma unroll
            for (int r = 0; r < RANKS; r++)
                if (r != rank)
                    all[r] = to_wire<T>(load_peer(from + r * share));
            return;
        }
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (r != rank)
                all[r] = load_peer(from + r * share);
#pragma unroll
        for (int r = 0; r < RANKS; r++) {
            if (r == rank)
                continue;
            if (!has_arrived(all[r]))
                all[r] = wait<uint4_>(from + r * share, r);
            store_peer(from + r * share, uint4_{0, 0, 0, 0});
        }
    }
    // Word w of this rank's part, two numbers of type T, to all ranks and into its own share.
    template <class T> DEVICE void send_word(i64 w, u32 word) const
    {
        const u64 to = at + (u64)rank * share + w * 4;
        if (gathered)
            store_system((u32 *)((char *)own + to), word);
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (!stopped)
                store_peer_word((char *)base[r] + to, wire_word<T>(word));
    }
    // Word w of every rank. kept: `mine` is what this thread has sent as word w.
    template <class T> DEVICE void receive_word(i64 w, u32 (&all)[RANKS], bool kept, u32 mine)
    {
        char *from = (char *)own + at + w * 4;
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            all[r] = kept && r == rank && !gathered ? wire_word<T>(mine) : load_peer_word(from + r * share);
#pragma unroll
        for (int r = 0; r < RANKS && !gathered; r++) {
            if (!has_arrived(all[r]))
                all[r] = wait<u32>(from + r * share, r);
            store_peer_word(from + r * share, 0);
            all[r] ^= Wire<T>::FLIP;
        }
    }
    // Vector v of one other rank.
    DEVICE uint4_ receive_from(i64 v, int r)
    {
        char *from = (char *)own + at + r * share + v * 16;
        uint4_ word = load_peer(from);
        if (!has_arrived(word))
            word = wait<uint4_>(from, r);
        store_peer(from, uint4_{0, 0, 0, 0});
        return word;
    }

private:
    // Polls for a vector or a word of rank r.
    template <class W> DEVICE W wait(const char *from, int r)
    {
        const u64 limit = (u64)(u32)peers->timeout_ms * 1000000;
        FtxReport *report = (FtxReport *)peers->report;
        u64 since = 0;
        u32 turn = 0;
        for (u32 polls = 1; !stopped; polls++) {
            W v;
            poll_peer(from, v);
            if (has_arrived(v))
                return v;
            if (polls % 64)
                continue;
            if (load_system(&own->stop))
                stop();
            if (!rare_turn(turn))
                continue;
            const u64 now = nanoseconds();
            since = since ? since : now;
            if (report && load_system(&report->stop))
                stop();
            else if (limit && now - since > limit && stop())
                blame(r, report);
        }
        return W{};
    }
    // True for the first thread that stops the rank.
    DEVICE bool stop()
    {
        stopped = true;
        return atomic_add_relaxed(&own->stop, 1) == 0;
    }
    // The host reads the report while kernels run.
    DEVICE void blame(int r, FtxReport *report) const
    {
        store_system(&own->step, count);
        store_system(&own->failed, 1 + r);
        if (report)
            store_relaxed16_system(report, uint4_{1u + r, count, 0, 1});
    }
};
