// beam_shape.cuh - the operands of the kernel `beam`, and what follows from the constants of an instance.
#pragma once
#include "device/io.h"
#include "body/few.cuh"
#include "body/lanes.cuh"

struct BeamTile {
    float top, sum; // sum of exp(x - top)
};
struct BeamArgs {
    const float *logits;
    const int *sampled;
    const FtxStep *step;
    FtxRow *rows;
    const FtxParams *params;
    const FtxBeam *beams;
    const int *ends;
    const FtxBias *bias;
    const int *bad_words;
    FtxToken *token;
    const int *history;
    int *owner;
    const int *group;
    FtxLane *lanes;
    int *hyps;
    float *logps;
    FtxOut *out;
    const FtxSegments *segments;
    int *y;
    BeamTile *tiles;  // [S][TILES]
    u64 *lists;       // [S][RANGES][MOST]: places of a block's best, then zeros
    BeamBest *best;   // [S][MOST + 1]: a row's best; the last entry is its shift: log-probability = logit + shift
    int *past;        // [S][CONTEXT]: all ids of a lane in their order
    u32 *counters;    // [S] blocks of the row that are done; zero between launches
    u32 *groups;      // [S] rows of the search that are done, at the row of lane 0; zero between launches
};

template <class K> struct BeamShape {
    static constexpr int THREADS = 512, WARPS = THREADS / 32, TILE = 512, RANGE = WARPS * TILE;
    static constexpr int TILES = K::TILES, MOST = K::MOST, TOPS = K::TOPS;
    static constexpr int RANGES = ceil_div(K::V, RANGE);
    static constexpr int MOVED = 4096; // owners that shared memory holds
    static constexpr int NARROW = least(K::WIDTH, MAX_TOP_NEEDED), FOUND = RowCandidates::MOST; // rows of a narrow search; candidates of a row
    static constexpr int FOUND_AT = round_up(NARROW * MAX_TOP_NEEDED * (int)sizeof(BeamEntry), 16);
    static constexpr int FEW_AT = FOUND_AT + NARROW * FOUND * 8; // segments of each warp
    static constexpr int OWNERS_AT = FEW_AT + WARPS * FewSegments::MOST * (int)sizeof(FtxSegment);
    static_assert(OWNERS_AT + MOVED * 4 <= K::SHARED, "a search by candidates needs no more than one by logits");
};
