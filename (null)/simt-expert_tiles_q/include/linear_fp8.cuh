// linear_fp8.cuh - linear layers of more than 64 rows with weights and rows of fp8 on sm_90a: wgmma with w in registers.
//
//   y[m,n] = epilogue(xs[m] * sum_k x[m,k] * w[n,k] + b[n])        epilogue: activation, GLU, residual, RoPE + cache (body/linear.cuh)
//   w[n,k] = scale[n, k / 128] * code[n,k]
//
//   x  [M, K]  codes in the form e4m3_rows (compiler/ir/forms.def), xs [M] their scales; ROWS rows are there
//   w  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def), groups of 128; K % 128 == 0
//   b  [N] fp32, r [M, N];  y [M, N] 16-bit; N % 8 == 0
//
// w is the first operand of the products, 64 rows of a warpgroup, a tile of each of its warps. A word of codes has two k of two
// rows, so two byte permutations make two registers; rows of x have their k in the order that this gives. The other operand are
// BLOCK_M rows of x, PART at a time. The matrix units add sums of e4m3 with few bits: after 128 k, a group, they are multiplied
// by its scale and added to sums of fp32. While one warpgroup does that, the products of the other run.
//
// A block has WARPGROUPS warpgroups that multiply and one that gives them its registers, whose first warp is the producer; and a ring of STAGES slots of 128 k, each
// [x: BLOCK_M rows of 128 bytes | codes, tile after tile], filled by bulk copies. It takes tiles first, first + blocks, ...; the
// producer requests the next one while the warpgroups write the last. Tiles with the same rows of w follow each other.
//
//   full[slot]   mbarrier: x and codes are in the slot        producer -> warpgroups
//   empty[slot]  mbarrier: all warps have read it             warpgroups -> producer
//
// Order of summation: 128 k after 128 k. It depends on K alone.
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/bytes.cuh"
#include "device/fp8.cuh"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/registers.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "body/linear.cuh"
#include "body/ring.cuh"

struct RowScales {
    const float *xs; // of the rows of x
};
struct LinearFp8Args : RowScales, LinearArgs {};

template <class C> struct Fp8Shape {
    static constexpr int TILES = C::WARPGROUPS * 4, TILE_N = TILES * 16; // tiles of w of a block; their rows
    static constexpr int PRODUCER = C::WARPGROUPS * 4, THREADS = C::WARPGROUPS * 128 + 128, STEPS = C::K / 128, PARTS = C::BLOCK_M / C::PART;
    static constexpr int X = C::BLOCK_M * 128, CODES = 2048; // bytes in a slot: of x, of a tile
    static constexpr int SCALE = C::SCALES == 2 ? 4 : 2;     // bytes
    static constexpr int SCALES_AT = C::K * 16, TILE = round_up(SCALES_AT + STEPS * 16 * SCALE, 64);
};

template <class C> using Fp8Ring = Ring<C::STAGES, C::SLOT_BYTES>;

// This block's work: tiles first, first + every, ...
template <class C> struct Fp8Work {
    int warp; // from a shuffle, so that the compiler knows it is the same in all lanes: descriptors need uniform registers
    int first, every, live, row_tiles, tiles;
    DEVICE Fp8Work(const FtxStep *step)
    {
        warp = shuffle(warp_id(), 0);
        first = blockIdx.x;
        every = gridDim.x;
        live = least(live_rows<C::ROWS_S>(step), C::M); // no kernel of a program writes it
        row_tiles = ceil_div(live, C::BLOCK_M);
        tiles = row_tiles * ceil_div(C::N, Fp8Shape<C>::TILE_N);
    }
    DEVICE int row(int i) const { return i % row_tiles * C::BLOCK_M; }     // first row of x
    DEVICE int tile(int i) const { return i / row_tiles * Fp8Shape<C>::TILES; } // first tile of w
    DEVICE int tiles_of(int i) const { return least(Fp8Shape<C>::TILES, ceil_div(C::N, 16) - tile(i)); }
    DEVICE int rows_of(int i) const { return least(C::BLOCK_M, round_up(live, 8) - row(i)); } // that are copied
};

// The producer: requests the codes of a step, a tile by each lane.
template <class C> DEVICE void fp8_copy_w(const LinearFp8Args &a, const Fp8Work<C> &at, int i, int s, int slot, const Fp8Ring<C> &ring)
{
    typedef Fp8Shape<C> P;
    warp_mbarrier_expect(ring.full(slot), at.rows_of(i) * 128 + at.tiles_of(i) * P::CODES);
    warp_sync();
    if (lane_id() < at.tiles_of(i))
        bulk_copy(ring.data(slot) + P::X + lane_id() * P::CODES, (const char *)a.w + (i64)(at.tile(i) + lane_id()) * P::TILE + s * P::CODES,
                  P::CODES, ring.full(slot));
}

// The producer keeps the ring full; the first steps of w are requested already.
template <class C> DEVICE void fp8_produce(const LinearFp8Args &a, const Fp8Work<C> &at, const Fp8Ring<C> &ring)
{
    typedef Fp8Shape<C> P;
    RingSlot<C::STAGES> slot = {0, 1};
    wait_for_previous();
#pragma unroll 1
    for (int i = at.first; i < at.tiles; i += at.every) {
#pragma unroll 1
        for (int s = 0; s < P::STEPS; s++) {
            if (i != at.first || s >= least(C::STAGES, P::STEPS)) {
                ring.wait_empty(slot);
                fp8_copy_w<C>(a, at, i, s, slot.at, ring);
            }
            if (lane_id() == 0)
                bulk_copy(ring.data(slot.at), (const char *)a.x + ((i64)s * C::ROWS + at.row(i)) * 128, at.rows_of(i) * 128, ring.full(slot.at));
            slot.next();
        }
    }
}

// The scale of row `row` of a tile in step s.
template <class C> DEVICE float fp8_scale(const char *tile, int s, int row)
{
    const char *at = tile + Fp8Shape<C>::SCALES_AT + (s * 16 + row) * Fp8Shape<C>::SCALE;
    return C::SCALES == 2 ? *(const float *)at : to_float(*(const half *)at);
}

// total = w * x^T of a tile, without the scales of x.
template <class C>
DEVICE void fp8_multiply(float (&total)[C::BLOCK_M / 2], const char *tile, int own, RingSlot<C::STAGES> &slot, const Fp8Ring<C> &ring)
{
    typedef Fp8Shape<C> P;
    const int g = lane_id() >> 2;
    float next[2] = {fp8_scale<C>(tile, 0, g), fp8_scale<C>(tile, 0, g + 8)};
#pragma unroll
    for (int i = 0; i < C::BLOCK_M / 2; i++)
        total[i] = 0.0f;
#pragma unroll 1
    for (int s = 0; s < P::STEPS; s++) {
        const float scale[2] = {next[0], next[1]};
        const int after = least(s + 1, P::STEPS - 1);
        const u32 codes = ring.data(slot.at) + P::X + own * P::CODES + lane_id() * 16;
        const u64 x = wgmma_descriptor(ring.data(slot.at), 0, 0);
        u32 w[4][4];
        next[0] = fp8_scale<C>(tile, after, g);
        next[1] = fp8_scale<C>(tile, after, g + 8);
        ring.wait_full(slot);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint4_ v = shared_load16(codes + i * 512);
            w[i][0] = permute(v.x, v.y, 0x6420);
            w[i][1] = permute(v.x, v.y, 0x7531);
            w[i][2] = permute(v.z, v.w, 0x6420);
            w[i][3] = permute(v.z, v.w, 0x7531);
        }
#pragma unroll
        for (int p = 0; p < P::PARTS; p++) {
            float d[C::PART / 2];
            wgmma_fence();
            WgmmaE4m3<C::PART>::set(d, w[0], wgmma_descriptor_at(x, p * C::PART, 0));
#pragma unroll
            for (int i = 1; i < 4; i++)
                WgmmaE4m3<C::PART>::add(d, w[i], wgmma_descriptor_at(x, p * C::PART, i));
            wgmma_commit();
            wgmma_wait<0>();
            if (p + 1 == P::PARTS && lane_id() == 0)
                mbarrier_arrive(ring.empty(slot.at));
#pragma unroll
            for (int j = 0; j < C::PART / 2; j++)
                total[p * (C::PART / 2) + j] = fmaf(scale[j / 2 % 2], d[j], total[p * (C::PART / 2) + j]);
        }
        slot.next();
    }
}

// The four values of four lanes 8 apart: value i of lane q and value q of lane i are exchanged.
DEVICE void fp8_transpose(float (&v)[4])
{
    const int q = lane_id() >> 3;
    const float a = shuffle_xor(q & 1 ? v[0] : v[1], 8), b = shuffle_xor(q & 1 ? v[2] : v[3], 8);
    const float q0 = q & 1 ? a : v[0], q1 = q & 1 ? v[1] : a, q2 = q & 1 ? b : v[2], q3 = q & 1 ? v[3] : b;
    const float c = shuffle_xor(q & 2 ? q0 : q2, 16), e = shuffle_xor(q & 2 ? q1 : q3, 16);
    v[0] = q & 2 ? c : q0;
    v[1] = q & 2 ? e : q1;
    v[2] = q & 2 ? q2 : c;
    v[3] = q & 2 ? q3 : e;
}

// Eight columns of a row that a lane finishes: of rows 8 * (4 * i + q) + 2t + odd of the tile, which are `row` for i = 0, columns 8h
// and on of the warp's 16. Lane 4g + t has columns g and g + 8 of its tile of w, for rows 2t and 2t + 1 of every 8 of x. Two lanes
// exchange values, so that each has two neighbouring columns of a row, then four lanes, of four times 8 rows.
template <class C> DEVICE Vec<float, 8> fp8_columns(const float (&total)[C::BLOCK_M / 2], int i, int h)
{
    const int odd = lane_id() >> 2 & 1;
    float first[4], second[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float v0 = total[(i * 4 + j) * 4 + h * 2], v1 = total[(i * 4 + j) * 4 + h * 2 + 1], other = shuffle_xor(odd ? v0 : v1, 4);
        first[j] = odd ? other : v0;
        second[j] = odd ? v1 : other;
    }
    fp8_transpose(first);
    fp8_transpose(second);
    Vec<float, 8> v;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[2 * j] = first[j];
        v[2 * j + 1] = second[j];
    }
    return v;
}

// {cos, sin} of the four pairs of columns n .. n + 7.
template <class C> DEVICE Vec<float, 8> fp8_angles(const AppendRow &row, int n)
{
    if constexpr (C::ROT % 8 == 0) { // also 0
        Vec<float, 8> cs;
#pragma unroll
        for (int i = 0; i < 8; i++)
            cs[i] = i % 2 ? 0.0f : 1.0f;
        return n / C::E < C::H + C::G && n % C::E < C::ROT ? load<8>(row.cs + n % C::E) : cs;
    } else {
        return append_angles<C, 4>(row, n);
    }
}

// Writes a tile. What is read from memory for some rows is read before any of them is written, since later reads may not pass stores.
template <class C> DEVICE void fp8_write(const LinearFp8Args &a, const float (&total)[C::BLOCK_M / 2], int row, int column, int live)
{
    typedef typename C::T T;
    constexpr int ALL = C::BLOCK_M / 32, ONCE = C::APPEND ? 2 : ALL % 4 ? ALL / 2 : 4; // rows of a lane; of which it reads at once
    row += (lane_id() >> 3) * 8 + (lane_id() & 3) * 2 + (lane_id() >> 2 & 1);
    float scale[ALL];
    AppendRow place[C::APPEND ? ALL : 1];
    Vec<float, 8> bias[C::BIAS ? 2 : 1];
#pragma unroll
    for (int i = 0; i < ALL; i++)
        scale[i] = row + i * 32 < live ? a.xs[row + i * 32] : 0.0f;
    if constexpr (C::APPEND) {
#pragma unroll
        for (int i = 0; i < ALL; i++)
            place[i] = append_row<C>(a.token[least(row + i * 32, live - 1)], a.pages, a.table);
    }
    if constexpr (C::BIAS) {
#pragma unroll
        for (int h = 0; h < 2; h++)
            bias[h] = column + h * 8 < C::N ? load<8>(a.b + column + h * 8) : zeros<float, 8>();
    }
#pragma unroll
    for (int begin = 0; begin < ALL; begin += ONCE) {
        Vec<T, 8> residual[C::RES ? ONCE * 2 : 1];
        Vec<float, 8> angles[C::APPEND ? ONCE * 2 : 1];
#pragma unroll
        for (int i = 0; i < ONCE * 2; i++) {
            const int m = row + (begin + i / 2) * 32, n = column + i % 2 * 8;
            if constexpr (C::RES)
                residual[i] = m < live && n < C::N ? load<8>((const T *)a.r + (i64)m * C::N + n) : zeros<T, 8>();
            if constexpr (C::APPEND)
                angles[i] = fp8_angles<C>(place[begin + i / 2], n);
        }
#pragma unroll
        for (int i = 0; i < ONCE * 2; i++) {
            const int m = row + (begin + i / 2) * 32, n = column + i % 2 * 8;
            Vec<float, 8> v = fp8_columns<C>(total, begin + i / 2, i % 2);
            if (m >= live || n >= C::N)
                continue;
#pragma unroll
            for (int k = 0; k < 8; k++)
                v[k] = C::BIAS ? fmaf(v[k], scale[begin + i / 2], bias[i % 2][k]) : v[k] * scale[begin + i / 2];
            if constexpr (C::APPEND) {
                append_pairs<C, 4>(AppendTo{a.k, a.v, a.y}, place[begin + i / 2], angles[i], m, n, v);
            } else if constexpr (C::GLU) {
                Vec<float, 4> y;
#pragma unroll
                for (int k = 0; k < 4; k++)
                    y[k] = activate<C::ACT>(v[2 * k]) * v[2 * k + 1];
                store((T *)a.y + (i64)m * (C::N / 2) + n / 2, from_floats<T>(y));
            } else {
#pragma unroll
                for (int k = 0; k < 8; k++)
                    v[k] = activate<C::ACT>(v[k]) + (C::RES ? to_float(residual[i][k]) : 0.0f);
                store((T *)a.y + (i64)m * C::N + n, from_floats<T>(v));
            }
        }
    }
}

template <class C> DEVICE void linear_fp8(const LinearFp8Args &a)
{
    typedef Fp8Shape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const Fp8Work<C> at(a.step);
    const Fp8Ring<C> ring = {shared_address(shared), shared_address(shared + C::BARRIERS_AT)};
    if (at.first >= at.tiles) {
        wait_for_previous();
        return;
    }
    if (at.warp == P::PRODUCER) {
        if (lane_id() == 0) {
            ring.init(1, P::PRODUCER);
            mbarrier_init_fence();
        }
        warp_sync();
#pragma unroll 1
        for (int s = 0; s < least(C::STAGES, P::STEPS); s++)
            fp8_copy_w<C>(a, at, at.first, s, s, ring);
    }
    block_sync();
    if (at.warp >= P::PRODUCER) {
        registers_give<24>();
        if (at.warp == P::PRODUCER)
            fp8_produce<C>(a, at, ring);
        return;
    }
    registers_take<C::WARPGROUPS == 2 ? 240 : 160>();
    RingSlot<C::STAGES> slot = {0, 0};
#pragma unroll 1
    for (int i = at.first; i < at.tiles; i += at.every) {
        const int own = least(at.warp, at.tiles_of(i) - 1); // beyond the last tile: that one again, and nothing is written
        const int column = (at.tile(i) + at.warp) * 16;
        float total[C::BLOCK_M / 2];
        fp8_multiply<C>(total, (const char *)a.w + (i64)(at.tile(i) + own) * P::TILE, own, slot, ring);
        wait_for_previous();
        fp8_write<C>(a, total, at.row(i), column, at.live);
    }
}
