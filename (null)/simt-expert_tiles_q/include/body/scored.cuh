// scored.cuh - what may change a score in attention of texts by tiles of 64 queries and 64 keys: windows, biases, rotation.
//
//   score of query i and key j of a text: cap(SCALE * q[i] . k[j]) + bias[h, j - i] + slope[h] * (j - i)
//
//   CAUSAL    query i sees keys up to i
//   WINDOW    0: no limit; else the keys at most WINDOW away, with CAUSAL the last WINDOW of those up to i
//   SOFTCAP   0: none; else cap(s) = SOFTCAP * tanh(s / SOFTCAP)
//   bias      [H, SPAN] fp32, column j - i + SPAN/2, the nearest there is; SPAN 0: none
//   slopes    [H] fp32; SLOPES 0: none
//   ROT       0: none; else the first ROT values of queries and keys are rotated, i and i + ROT/2 together, by row i or j of
//             table [positions][ROT/2] {cos, sin}
//
// The scores of a tile lie as wgmma.cuh says: warp w of the block has rows 16w .. 16w + 15, lane 4g + t of it columns
// 8n + 2t and 8n + 2t + 1 of rows g and g + 8. `away`: the position of the tile's first key less that of its first query.
#pragma once
#include "device/convert.cuh"
#include "device/fragment.cuh"
#include "device/shared.cuh"
#include "device/warp.cuh"

// CHANGED: score_tile makes exponents of 2 of the scores. HIDDEN: mask_unseen masks keys.
template <class K> struct Scores {
    static constexpr bool CHANGED = K::SPAN > 0 || K::SLOPES || K::SOFTCAP > 0.0f, HIDDEN = K::CAUSAL || K::WINDOW > 0;
};

// The keys that the queries from `first` on see, in tiles of 64 from `begin` on. The first tile has a key for each query.
struct Seen { int begin, end; };
template <class K> DEVICE Seen find_seen(int first, int len)
{
    Seen seen = {0, len};
    if (K::WINDOW > 0)
        seen = {most(0, first - K::WINDOW + K::CAUSAL), least(len, first + 64 + K::WINDOW)};
    if (K::CAUSAL)
        seen.end = least(len, first + 64);
    return seen;
}

// --- biases ----------------------------------------------------------------------------------------

// The head's biases times log2(e), with the first and the last 127 times more: whatever tile of keys is taken, its 127
// distances lie side by side.
template <class K> DEVICE void spread_bias(float *to, const float *bias)
{
    for (int i = threadIdx.x; i < K::SPAN + 254; i += 128)
        to[i] = bias[blockIdx.x * K::SPAN + most(0, least(K::SPAN - 1, i - 127))] * 1.4426950408889634f;
}

// Scores become exponents of 2. bias: what spread_bias left.
template <class K> DEVICE void score_tile(float (&s)[32], const float *bias, const float *slopes, int away)
{
    constexpr float LOG2E_ = 1.4426950408889634f;
    constexpr int FAR = K::SPAN / 2 + 64; // from here on all biases of a tile are equal
    const int from = 2 * (lane_id() & 3) - warp_id() * 16 - (lane_id() >> 2); // column 0 less row 0 of this lane
    const float *b = bias + most(-FAR, least(FAR, away)) + from + K::SPAN / 2 + 127;
    const float slope = K::SLOPES ? slopes[blockIdx.x] * LOG2E_ : 0.0f, start = slope * (float)(away + from);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int distance = n * 8 + i % 2 - i / 2 * 8; // less `away + from`
            float x = s[4 * n + i] * (K::SCALE * LOG2E_);
            if (K::SOFTCAP > 0.0f)
                x = K::SOFTCAP * LOG2E_ * tanhf(s[4 * n + i] * (K::SCALE / (K::SOFTCAP > 0.0f ? K::SOFTCAP : 1.0f)));
            if (K::SPAN > 0)
                x += b[distance];
            if (K::SLOPES)
                x += fmaf(slope, (float)distance, start);
            s[4 * n + i] = x;
        }
}

// --- windows ---------------------------------------------------------------------------------------

// Masks the keys that CAUSAL and WINDOW hide.
template <class K> DEVICE void mask_unseen(float (&s)[32], int away)
{
    constexpr int BEFORE = K::WINDOW > 0 ? K::WINDOW - K::CAUSAL : 1 << 30, AFTER = K::CAUSAL ? 0 : K::WINDOW;
    if (away >= 63 - BEFORE && away <= AFTER - 63)
        return; // each query sees all
    const int from = away + 2 * (lane_id() & 3) - warp_id() * 16 - (lane_id() >> 2);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int distance = from + n * 8 + i % 2 - i / 2 * 8;
            if (distance > AFTER || distance < -BEFORE)
                s[4 * n + i] = negative_infinity();
        }
}

// --- rotation --------------------------------------------------------------------------------------

// Rotates 64 rows of a head in shared memory, the first at `position` of a text of `len` tokens. A thread has two pairs of a
// row at a time, so that a warp reads the table line by line.
template <class K> DEVICE void rotate_rows(char *tile, const float *table, int position, int len)
{
    typedef typename K::T T;
    constexpr int LANES = K::ROT / 4, ROWS = 128 / LANES, ONCE = 2; // threads of a row; rows at a time; how often at once
    const int at = threadIdx.x / LANES, lane = threadIdx.x % LANES, live = least(64, len - position);
    const int first = ROWS % 8 ? at : (at & ~5) | (at & 1) << 2 | (at >> 2 & 1); // rows of a warp lie in different banks
    const int u = lane / 4, v = u + K::ROT / 16;                                 // units of 16 bytes
    table += position * K::ROT + lane * 4;
#pragma unroll 1
    for (int i = at < ROWS ? first : 64; i < live; i += ONCE * ROWS) {
        Vec<float, 4> turn[ONCE];
#pragma unroll
        for (int k = 0; k < ONCE; k++)
            if (i + k * ROWS < live)
                turn[k] = load<4>(table + (i + k * ROWS) * K::ROT);
#pragma unroll
        for (int k = 0; k < ONCE; k++) {
            const int r = i + k * ROWS;
            if (r >= live)
                break;
            u32 *one = (u32 *)(tile + u / 8 * 64 * 128 + r * 128 + (u % 8 ^ (r & 7)) * 16 + lane % 4 * 4);
            u32 *two = (u32 *)(tile + v / 8 * 64 * 128 + r * 128 + (v % 8 ^ (r & 7)) * 16 + lane % 4 * 4);
            const float x0 = low<T>(*one), x1 = high<T>(*one), y0 = low<T>(*two), y1 = high<T>(*two);
            *one = pack2<T>(fmaf(x0, turn[k][0], -__fmul_rn(y0, turn[k][1])), fmaf(x1, turn[k][2], -__fmul_rn(y1, turn[k][3])));
            *two = pack2<T>(fmaf(x0, turn[k][1], __fmul_rn(y0, turn[k][0])), fmaf(x1, turn[k][3], __fmul_rn(y1, turn[k][2])));
        }
    }
}
