// mask.cuh - logits of ids that a row's mask does not allow become -infinity, in the rows that have a mask (device/mask.h).
//
//   logits [S, V] fp32     masks [S, V / 32]
//
// A warp takes 32 words of a mask, one a lane, and goes through them: its 32 lanes write neighbouring logits.
// Blocks of other rows end at once, but not before the previous kernel has: `sample`, which may have started already,
// waits for this kernel alone.
#pragma once
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/l2.cuh"
#include "device/mask.h"
#include "device/pdl.cuh"
#include "device/warp.cuh"

struct MaskArgs {
    float *logits;
    const FtxStep *step;
    const FtxParams *params;
    const u32 *masks;
};

template <class K> // K: V THREADS
DEVICE void mask(const MaskArgs &a)
{
    constexpr int WORDS = FTX_MASK_WORDS(K::V);
    const int row = blockIdx.y;
    launch_dependents();
    const bool masked = row < a.step->rows && a.params[row].logits == FTX_LOGITS_MASKED; // written between programs only
    wait_for_previous();
    if (!masked)
        return;
    float *logits = a.logits + (i64)row * K::V;
    for (int base = blockIdx.x * K::THREADS + warp_id() * 32; base < WORDS; base += gridDim.x * K::THREADS) {
        const u32 word = base + lane_id() < WORDS ? load_l2_scalar(a.masks + (i64)row * WORDS + base + lane_id()) : 0;
        for (int i = 0; i < 32; i++) {
            const bool allowed = shuffle(word, i) >> lane_id() & 1;
            const int id = (base + i) * 32 + lane_id();
            if (!allowed && id < K::V)
                logits[id] = negative_infinity();
        }
    }
}
