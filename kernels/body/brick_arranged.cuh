// brick_arranged.cuh - the products of brick.cuh for rows of x that lie in the order of mma's second operand, and for scales that
// lie apart from the codes.
//
//   codes   of a brick in the form m16k16 (compiler/ir/forms.def); scales, zeros (or minima) of its groups, [GROUPS][16]
//   x       [BLOCK_M] rows of X_ROW_BYTES in shared memory; x_sums: of each group, [groups][BLOCK_M]
//
// Of every 32 k of a row of x lane 4 g + t reads the 16 bytes at 16 t of row g: k 2t, 2t + 1, 2t + 8, 2t + 9 and the same 16
// further on. Lanes that read one row read the same bytes.
//
//   C: as in brick.cuh
#pragma once
#include "body/brick.cuh"
#include "body/quad.cuh"

template <class C> struct ArrangedBrick : Brick<C> {
    typedef typename C::T T;
    typedef Brick<C> B;
    using B::BLOCK_K;
    using B::COLUMN_TILES;
    using B::PARTS;
    using B::expand;

    // Lane i of four has elements 8 i .. 8 i + 7 of 32 of a row of x; then 16 bytes of them in the order above.
    static DEVICE void arrange(uint4_ &x)
    {
        u32 v[4] = {x.x, x.y, x.z, x.w};
        quad_transpose(v);
        x = uint4_{v[0], v[1], v[2], v[3]};
    }

    static DEVICE float scale(const char *scales, int group, int row)
    {
        const char *at = scales + (group * 16 + row) * B::SCALE;
        return B::SCALE == 4 ? *(const float *)at : to_float(*(const half *)at);
    }
    static DEVICE float zero(const char *zeros, int group, int row)
    {
        const char *at = zeros + (group * 16 + row) * B::ZERO;
        return C::SCALES == 1 ? (float)*(const u8 *)at : C::SCALES == 3 ? 0.0f : C::BITS == 4 ? 8.0f : 128.0f;
    }
    static DEVICE float minimum(const char *zeros, int group, int row) { return *(const float *)(zeros + (group * 16 + row) * B::ZERO); }

    // Starts the sums of a group.
    static DEVICE void begin(float (&d)[PARTS][COLUMN_TILES][4], float (&s)[2], const char *scales, const char *zeros, const float *x_sums, int group)
    {
        const int g = lane_id() >> 2, t = lane_id() & 3;
        const float low = zero(zeros, group, g), high = zero(zeros, group, g + 8);
        s[0] = scale(scales, group, g);
        s[1] = scale(scales, group, g + 8);
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float x = -x_sums[group * C::BLOCK_M + ((j * 8 + 2 * t + e) & (C::BLOCK_M - 1))];
                d[0][j][e] = x * (Magic<T>::BASE + (C::BITS == 4 ? low : low / 16.0f));
                d[0][j][2 + e] = x * (Magic<T>::BASE + (C::BITS == 4 ? high : high / 16.0f));
                if (PARTS == 2)
                    d[PARTS - 1][j][e] = d[PARTS - 1][j][2 + e] = C::BITS == 4 ? 0.0f : x * Magic<T>::BASE;
            }
    }
    // Adds the finished sums of a group to total.
    static DEVICE void end(float (&total)[COLUMN_TILES][4], const float (&d)[PARTS][COLUMN_TILES][4], const float (&s)[2],
                           const char *zeros, const float *x_sums, int group)
    {
        const int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float last = d[PARTS - 1][j][e];
                const float sum = C::BITS == 8 ? fmaf(16.0f, d[0][j][e], last) : PARTS == 2 ? d[0][j][e] + last : last;
                total[j][e] = fmaf(s[e / 2], sum, total[j][e]);
                if (C::SCALES == 3)
                    total[j][e] = fmaf(-minimum(zeros, group, g + e / 2 * 8), x_sums[group * C::BLOCK_M + ((j * 8 + 2 * t + e % 2) & (C::BLOCK_M - 1))], total[j][e]);
            }
    }

    // total += brick * x. x, x_sums: from the brick's first k on; left: k of the rows from there on.
    static DEVICE void multiply(float (&total)[COLUMN_TILES][4], u32 codes, const char *scales, const char *zeros, u32 x, const float *x_sums, int left)
    {
        constexpr int ONCE = COLUMN_TILES <= 2 ? 128 : 32; // k of x that are loaded at once
        const int lane = lane_id();
        const u32 own = codes + lane * 16, rows = x + ((lane >> 2) & (C::BLOCK_M - 1)) * C::X_ROW_BYTES + (lane & 3) * 16;
        float d[PARTS][COLUMN_TILES][4], s[2];
        uint4_ w[128 / BLOCK_K], b[ONCE / 32][COLUMN_TILES];
#pragma unroll
        for (int k = 0; k < C::BRICK_K; k += 16) {
            if (C::K % C::BRICK_K && k >= left)
                break;
            if (k % 128 == 0)
#pragma unroll
                for (int i = 0; i < 128 / BLOCK_K; i++)
                    if (C::K % 128 == 0 || k + i * BLOCK_K < left)
                        w[i] = shared_load16(own + (k / BLOCK_K + i) * 512);
            if (k % C::GROUP == 0)
                begin(d, s, scales, zeros, x_sums, k / C::GROUP);
            if (k % ONCE == 0)
#pragma unroll
                for (int i = 0; i < ONCE / 32; i++)
#pragma unroll
                    for (int j = 0; j < COLUMN_TILES; j++)
                        if (C::K % 128 == 0 || ONCE == 32 || k + i * 32 < left)
                            b[i][j] = shared_load16(rows + j * 8 * C::X_ROW_BYTES + (k + i * 32) * 2);
            const uint4_ four = w[k % 128 / BLOCK_K];
            const u32 words[4] = {four.x, four.y, four.z, four.w};
            const int i = k % ONCE / 32, at = k % 32 / 8;
            const auto low = [&](int j) { return at ? b[i][j].z : b[i][j].x; };
            const auto high = [&](int j) { return at ? b[i][j].w : b[i][j].y; };
            if constexpr (C::BITS == 4) {
                u32 f[4];
                expand(f, words[k % 64 / 16]);
#pragma unroll
                for (int j = 0; j < COLUMN_TILES; j++)
                    mma<T>(d[k / 16 % PARTS][j], f[0], f[1], f[2], f[3], low(j), high(j));
            } else { // low and high nibbles of rows g and g + 8; then those 8 k further on
                u32 f[4], h[4];
                expand(f, words[at]);
                expand(h, words[at + 1]);
#pragma unroll
                for (int j = 0; j < COLUMN_TILES; j++)
                    mma<T>(d[0][j], f[1], f[3], h[1], h[3], low(j), high(j));
#pragma unroll
                for (int j = 0; j < COLUMN_TILES; j++)
                    mma<T>(d[1][j], f[0], f[2], h[0], h[2], low(j), high(j));
            }
            if ((k + 16) % C::GROUP == 0)
                end(total, d, s, zeros, x_sums, k / C::GROUP);
        }
    }
};
