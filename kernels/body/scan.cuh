// scan.cuh - what the kernels of recurrences share: eight neighbouring lanes have the keys of a state between them.
//
// Keys lie in runs of RUN neighbours: lane l has runs l, l + 8, l + 16 ... Inputs may be slices of wider rows.
#pragma once
#include "device/types.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"
#include "device/io.h"

constexpr int SCAN_LANES = 8;

// Where element i of a lane lies behind its first one.
template <int RUN> DEVICE i64 scan_row(int i) { return i / RUN * SCAN_LANES * RUN + i % RUN; }

// Elements of a vector of n that stand in rows `pitch` apart, from element `from` on.
template <class T> constexpr DEVICE int scan_vec(int n, int pitch, int from)
{
    int vec = vec_width<T>(n);
    while ((pitch | from) % vec)
        vec /= 2;
    return vec;
}

// Rows that lie in those of a wider matrix.
template <int PITCH_, int FROM_> struct ScanRows {
    static constexpr int PITCH = PITCH_, FROM = FROM_;
    template <class T> static DEVICE const T *row(const T *x, int t) { return x + (i64)t * PITCH + FROM; }
};

// The length of a time step: softplus(x), at least LOW, at most HIGH > 0.
template <class C> DEVICE float scan_step(float x)
{
    const float dt = fmaxf(x > 20.0f ? x : log1pf(expf(x)), C::LOW);
    return C::HIGH > 0.0f ? fminf(dt, C::HIGH) : dt;
}
