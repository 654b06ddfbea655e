// regions.h - what the contracts of attention and of sampling compute for their kernels (templates/): sizes, and the regions of
// shared memory. The device checks fix constants by themselves, so they add these.
#pragma once
#include "device/types.cuh"

DEVICE constexpr int padded(int line)
{
    return line % 128 == 0 ? line : round_up(line, 32) + 16;
}

// F: T KV E ROWS KEYS
template <class F> struct FlashRegions : F {
    static constexpr bool MATRIX = sizeof(typename F::T) == 2 && Same<typename F::T, typename F::KV>::value;
    static constexpr int ALIGN = 8, COLUMNS = round_up(F::E, MATRIX ? 16 : 32),
                         PITCH = padded(COLUMNS * (int)sizeof(typename F::KV));
    static constexpr int Q_PITCH = MATRIX ? PITCH : COLUMNS * 4 + 16, P_PITCH = F::ROWS / 4 + 4;
    static constexpr int TILES_AT = F::ROWS * Q_PITCH, WEIGHTS_AT = TILES_AT + (MATRIX ? 4 : 2) * F::KEYS * PITCH;
    static constexpr int PIECE_AT = WEIGHTS_AT + (MATRIX ? 0 : 4 * F::KEYS * P_PITCH * 4), SHARED = PIECE_AT + 64;
};

// F: T KV HEADS KV_HEADS E MAX_ROWS
template <class F, int WARPS_> struct DecodeRegions : F {
    static constexpr int WARPS = WARPS_, STAGES = 2, GROUP = F::HEADS / F::KV_HEADS;
    static constexpr bool MATRIX = sizeof(typename F::T) == 2 && Same<typename F::T, typename F::KV>::value;
    static constexpr int SET = least(GROUP, MATRIX &&F::E <= 128 ? 16 : 8),
                         HEAD_SETS = F::KV_HEADS * ceil_div(GROUP, SET);
    static constexpr int PARTIAL = round_up(SET * (F::E + 2), 4), TILE = MATRIX || F::E <= 64 ? 16
                                                                         : F::E <= 128        ? 8
                                                                                              : 4;
    static constexpr int PITCH = padded(round_up(F::E, 16) * (int)sizeof(typename F::KV)),
                         SLOT_BYTES = 2 * TILE * PITCH;
    static constexpr int MERGE_PITCH = round_up(F::E, 16) + 4, RING_AT = 0, MERGE_AT = WARPS * STAGES * SLOT_BYTES;
    static constexpr int STATS_AT = MERGE_AT + WARPS * SET * MERGE_PITCH * 4, QUERY_AT = STATS_AT + WARPS * 2 * SET * 4;
    static constexpr int BEFORE_AT = QUERY_AT + (MATRIX ? 0 : SET * F::E * 4),
                         ARRIVED_AT = BEFORE_AT + (F::MAX_ROWS + 1) * 4;
    static constexpr int UNIT_AT = ARRIVED_AT + 20, SHARED = UNIT_AT + 12;
};

// F: V LOGIT_BIAS
template <class F> struct SampleRegions : F {
    static constexpr int TILES = ceil_div(F::V, 512), FACTS_AT = 0, ROOM_AT = 0;
    static constexpr int SHARED =
        most(32768 + 4 * F::LOGIT_BIAS, 16384 + most(24576, 6 * ceil_div(F::V, 96) + 7344) + 8 * TILES + 320);
};

// F: E SPAN
template <class F, int STAGES_ = 2> struct TextRegions : F {
    static constexpr int STAGES = STAGES_, TILE_BYTES = ceil_div(F::E, 64) * 64 * 128, QUERIES_AT = 0,
                         RING_AT = TILE_BYTES;
    static constexpr int BARRIERS_AT = RING_AT + STAGES * 2 * TILE_BYTES, BIAS_AT = BARRIERS_AT + STAGES * 3 * 8;
    static constexpr int SHARED = BIAS_AT + (F::SPAN > 0 ? (F::SPAN + 254) * 4 : 0);
};
