// last_part.cuh - the end of expert_sum where each expert has its columns from another warp: the last one adds a row's parts.
#pragma once
#include "device/atomic.cuh"
#include "body/experts.cuh"

// Adds the parts of those rows whose last part is this warp's: a lane for each column.
template <class C> DEVICE void add_last_part(const ExpertSumArgs &a, int n, const int *rows, int count)
{
    typedef typename C::T T;
    typedef typename C::OUT O;
    constexpr int GROUPS = ceil_div(C::N, C::COLUMNS);
    warp_sync();
    for (int from = 0; from < count; from += 32) {
        const int m = rows[least(from + lane_id(), count - 1)] / C::R;
        bool last = false;
        if (from + lane_id() < count) {
            u32 *arrived = &a.arrived[m * GROUPS + n / C::COLUMNS];
            last = atomic_add_acq_rel(arrived, 1) + 1 == C::R;
            if (last)
                *arrived = 0;
        }
        warp_sync();
        for (u32 whole = warp_ballot(last); whole; whole &= whole - 1) {
            const int row = shuffle(m, __ffs(whole) - 1), at = n + lane_id();
            if (lane_id() >= C::COLUMNS || at >= C::N)
                continue;
            float sum = 0.0f;
#pragma unroll
            for (int k = 0; k < C::R; k++)
                sum += a.parts[((i64)row * C::R + k) * C::N + at];
            if (C::RES)
                sum += to_float(((const T *)a.r)[(i64)row * C::N + at]);
            ((O *)a.y)[(i64)row * C::N + at] = from_float<O>(sum);
        }
    }
}
