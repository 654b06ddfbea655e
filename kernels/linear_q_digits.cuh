// linear_q_digits.cuh - linear layers of up to 32 rows with weights of int4 and int8 on sm_90a: wgmma on integers, rows of x as digits.
//
//   y[m,n] = epilogue(sum_k x[m,k] * w[n,k] + b[n])        epilogue: activation, GLU, residual, RoPE + cache (body/linear.cuh)
//   w[n,k] = scale[n, k / GROUP] * (code[n,k] - zero[n, k / GROUP])
//   x[m,k] = unit[m, k / 128] * (256 * high[m,k] + low[m,k])
//
//   x  [M, K]  digits in the form digit_rows (compiler/ir/forms.def), units [K / 128][M]; M is 8, 16 or 32, K % STEP_K == 0
//   w  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def), without minima
//   b  [N] fp32, r [M, N];  y [M, N] 16-bit or fp32, with DIGITS also digits
//
// What limits it: instructions. Codes of 4 bits become integers of 8 bits by three instructions for eight of them, where numbers
// of 16 bits take eleven. A row of x is two columns of the second operand, so a sum needs four instructions at the end of a group, not
// one: up to 32 rows that is less (linear_q_hopper.cuh for more).
//
// Work, copies and sums of a block: body/coded_tiles.cuh. Each slot has [x: STEP_K / 128 panels | codes, tile after tile]; the producer
// also copies x's units of the slice, which `scales` waits for. In a warpgroup the products of one group run while its warps
// add the sums of the group before (LATER) and load the codes of the next.
//
// Order of summation: exact within a group; groups in order; then the parts of steps, then the slices in order. It depends on N and K
// alone: a row has the same bits for 5 to 32 rows.
#pragma once
#include "device/bytes.cuh"
#include "device/pdl.cuh"
#include "device/registers.cuh"
#include "device/wgmma_s8.cuh"
#include "body/coded_tiles.cuh"
#include "body/digit_rows.cuh"

struct RowUnits {
    const float *units; // of the rows of x
};
struct LinearDigitArgs : RowUnits, LinearArgs {
    float *y_units; // of the rows of y, if they are digits, too
};

template <class C> struct DigitShape : CodedLayer<C> {
    typedef CodedLayer<C> B;
    static constexpr int THREADS = B::WORKERS + (C::GIVES ? 128 : 32); // GIVES: the producer is a warpgroup that gives its registers
    static constexpr int PANEL = C::BLOCK_M * 2;                    // rows of digits of 128 k
    static constexpr int PART_GROUPS = B::PART_K / C::GROUP;        // groups of a warpgroup in a step
    static constexpr int WORDS = C::GROUP * C::BITS / 64;           // of a lane's codes of a group
    static_assert(B::PART_K % 128 == 0 && C::K % C::STEP_K == 0 && 128 % C::GROUP == 0, "steps, panels and groups are whole");
};

// The producer keeps the ring full; the first steps of w are requested already.
template <class C> DEVICE void digit_produce(const LinearDigitArgs &a, const CodedWork<C> &at, const CodedRing<C> &ring, char *shared, u32 scales)
{
    typedef DigitShape<C> P;
    RingSlot<C::STAGES> slot = {0, 1};
    wait_for_previous();
    if (lane_id() == 0 && at.s1 > at.s0)
        bulk_copy(shared_address(shared + C::UNITS_AT), a.units + (i64)at.s0 * (C::STEP_K / 128) * C::BLOCK_M, at.slice() / 128 * C::BLOCK_M * 4, scales);
#pragma unroll 1
    for (int s = at.s0; s < at.s1; s++) {
        if (s - at.s0 >= at.ahead()) {
            ring.wait_empty(slot);
            coded_copy_w<C>(a, at, s, slot.at, ring, P::X);
        }
        if (lane_id() == 0)
            bulk_copy(ring.data(slot.at), (const char *)a.x + (i64)s * P::X, P::X, ring.full(slot.at));
        slot.next();
    }
}

// The codes of a group as integers with sign, UP times as large: the first operands of its products of 32 k. A word of int4 has four
// k of an upper row in its low nibbles, the same of a lower row in its high ones; 16 * (code - 8) is a nibble with its highest bit
// turned. With zeros the bytes are code - zero: nothing is carried, since 128 + code - zero is never negative.
template <class C> struct DigitCodes {
    typedef DigitShape<C> P;
    static constexpr int ZERO = P::Q::ZERO;
    static constexpr float UP = C::BITS == 4 && !ZERO ? 16.0f : 1.0f;
    u32 words[P::WORDS];

    DEVICE void load(u32 codes, int k) // k: from the block's first one on
    {
        const u32 from = codes + k / P::Q::BLOCK_K * 512 + (P::WORDS == 2 ? k % P::Q::BLOCK_K / 4 : 0);
        if constexpr (P::WORDS == 2) {
            const Vec<float, 2> v = shared_load8(from);
            words[0] = __float_as_uint(v[0]);
            words[1] = __float_as_uint(v[1]);
        } else {
#pragma unroll
            for (int i = 0; i < P::WORDS / 4; i++) {
                const uint4_ v = shared_load16(from + i * 512);
                words[4 * i] = v.x;
                words[4 * i + 1] = v.y;
                words[4 * i + 2] = v.z;
                words[4 * i + 3] = v.w;
            }
        }
    }
    // What is added to the codes of rows g and g + 8 of a group: 128 - zero.
    static DEVICE void offsets(u32 (&o)[2], const char *zeros, int group, int g)
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
            o[i] = ZERO ? 0x80808080u - *(const u8 *)(zeros + group * 16 + g + i * 8) * 0x01010101u : 0;
    }
    DEVICE void operand(u32 (&a)[4], int i, const u32 (&o)[2]) const // of product i
    {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if constexpr (C::BITS == 8) {
                const u32 v = words[4 * i + 2 * j], w = words[4 * i + 2 * j + 1];
                a[2 * j] = permute(v, w, 0x6240) ^ 0x80808080u;
                a[2 * j + 1] = permute(v, w, 0x7351) ^ 0x80808080u;
            } else if constexpr (ZERO == 1) {
                const u32 w = words[2 * i + j];
                a[2 * j] = ((w & 0x0f0f0f0fu) + o[0]) ^ 0x80808080u;
                a[2 * j + 1] = ((w >> 4 & 0x0f0f0f0fu) + o[1]) ^ 0x80808080u;
            } else {
                const u32 w = words[2 * i + j];
                a[2 * j] = xor_and(w << 4, 0x80808080u, 0xf0f0f0f0u);
                a[2 * j + 1] = xor_and(w, 0x80808080u, 0xf0f0f0f0u);
            }
        }
    }
};

// total = w * x^T over this warpgroup's part of the block's K.
template <class C> DEVICE void digit_multiply(float (&total)[C::BLOCK_M / 2], const CodedWork<C> &at, const CodedRing<C> &ring, const char *shared, u32 scales)
{
    typedef DigitShape<C> P;
    typedef Codes<C> Q;
    constexpr int SUMS = C::BLOCK_M / 2, PRODUCTS = C::GROUP / 32, STEP_GROUPS = C::STEP_K / C::GROUP;
    const int tile = at.warp / 4 % P::ROWS * 4 + at.warp % 4, part = at.warp / 4 / P::ROWS, g = lane_id() >> 2;
    const int own = tile < at.tiles ? tile : 0; // beyond the last tile the sums of another one, which nobody reads
    const char *tile_scales = shared + C::SCALES_OF_AT + own * P::SCALES + part * P::PART_GROUPS * 16 * Q::SCALE; // of the step's first group
    const char *tile_zeros = shared + C::ZEROS_OF_AT + own * P::ZEROS + part * P::PART_GROUPS * 16 * Q::ZERO;
    const float *units = (const float *)(shared + C::UNITS_AT) + part * (P::PART_K / 128) * C::BLOCK_M + (lane_id() & 3) * 2;
    int left = at.s1 - at.s0; // steps
    RingSlot<C::STAGES> slot = {0, 0};
    DigitCodes<C> codes;
    u32 w[PRODUCTS][4];
    int d[C::BLOCK_M], v[SUMS];
    Vec<float, 2> unit[SUMS / 4];
    float scale[2] = {0.0f, 0.0f}; // unit, scale: of v
    u32 codes_at = 0;
    u64 x = 0;
    const auto begin_step = [&] {
        ring.wait_full(slot);
        codes_at = ring.data(slot.at) + P::X + own * P::CODES + part * P::PART_K / Q::BLOCK_K * 512 + lane_id() * 16;
        x = wgmma_descriptor(ring.data(slot.at), part * P::PART_K / 128 * P::PANEL, 0);
    };
    const auto expand = [&](int group) { // of the step's part
        u32 offset[2];
        codes.offsets(offset, tile_zeros, group, g);
#pragma unroll
        for (int i = 0; i < PRODUCTS; i++)
            codes.operand(w[i], i, offset);
    };
    const auto multiply = [&](int group) {
        const int k = group * C::GROUP, row = k / 128 * P::PANEL;
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < PRODUCTS; i++)
            if (i == 0)
                WgmmaS8<P::PANEL>::set(d, w[0], wgmma_descriptor_at(x, row, k % 128 / 32));
            else
                WgmmaS8<P::PANEL>::add(d, w[i], wgmma_descriptor_at(x, row, k % 128 / 32 + i));
        wgmma_commit();
    };
    const auto join = [&] {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            v[i] = d[i] * 256 + d[SUMS + i];
    };
    const auto load_factors = [&](int group) {
        scale[0] = Q::scale(tile_scales, group, g);
        scale[1] = Q::scale(tile_scales, group, g + 8);
#pragma unroll
        for (int j = 0; j < SUMS / 4; j++)
            unit[j] = ::load<2>(units + group * C::GROUP / 128 * C::BLOCK_M + j * 8);
    };
    const auto add = [&] {
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            total[i] = fmaf(scale[i / 2 % 2] * unit[i / 4][i % 2], (float)v[i], total[i]);
    };
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        total[i] = 0.0f;
        v[i] = d[i] = d[SUMS + i] = 0;
        unit[i / 4] = zeros<float, 2>();
    }
    if (left == 0) // a slice may have no step
        return;
    mbarrier_wait(scales, 0);
    begin_step();
    codes.load(codes_at, 0);
    expand(0);
    multiply(0);
    const auto finish = [&](int group, bool on) { // whose products run; on: there is another group
        const bool ends = group + 1 == P::PART_GROUPS;
        const int next = ends ? 0 : group + 1, now = slot.at;
        if (C::LATER)
            add();
        load_factors(group);
        if (on && ends) {
            slot.next();
            begin_step();
        }
        if (on && C::LATER)
            codes.load(codes_at, next * C::GROUP);
        join();
        if (!C::LATER)
            add();
        if (!on)
            return;
        if (!C::LATER) // before there are no registers for them
            codes.load(codes_at, next * C::GROUP);
        if (ends) {
            if (lane_id() == 0)
                mbarrier_arrive(ring.empty(now));
            tile_scales += STEP_GROUPS * 16 * Q::SCALE;
            tile_zeros += STEP_GROUPS * 16 * Q::ZERO;
            units += C::STEP_K / 128 * C::BLOCK_M;
        }
        expand(next);
        multiply(next);
    };
#pragma unroll 1
    for (; left > 1; left--)
#pragma unroll
        for (int group = 0; group < P::PART_GROUPS; group++)
            finish(group, true);
#pragma unroll
    for (int group = 0; group < P::PART_GROUPS; group++)
        finish(group, group + 1 < P::PART_GROUPS);
    if (C::LATER)
        add();
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        total[i] *= 1.0f / DigitCodes<C>::UP;
}

// GLU, a panel of digits for each block: a warp finishes all 128 of a row, a lane four of them.
template <class C> DEVICE void digit_finish_rows(const LinearDigitArgs &a, const CodedWork<C> &at, const float *sums, int live)
{
    typedef DigitShape<C> P;
    typedef DigitPanel<C::M> To;
    static_assert(C::GLU && C::TILE_N == 256 && P::SUMS == 1, "a block has the columns of a panel");
    const int u = lane_id() >> 2, t = lane_id() & 3;
    Vec<float, 4> bias[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        bias[h] = C::BIAS ? load<4>(a.b + at.tile * 16 + (u * 16 + h * 8 + t * 2) * 2) : zeros<float, 4>();
#pragma unroll 1
    for (int m = warp_id(); m < live; m += P::PRODUCER) {
        float v[2][2]; // of columns 2t, 2t + 1; 2t + 8, 2t + 9
        u32 top = 0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const Vec<float, 4> s = load<4>(sums + (u * 4 + h * 2 + t / 2) * P::SUM + m * 8 + t % 2 * 4);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                v[h][e] = activate<C::ACT>(s[2 * e] + bias[h][2 * e]) * (s[2 * e + 1] + bias[h][2 * e + 1]);
                const u32 bits = __float_as_uint(v[h][e]) & 0x7fffffffu;
                top = bits > top ? bits : top;
            }
        }
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const u32 other = shuffle_xor(top, d);
            top = other > top ? other : top;
        }
        const DigitUnit unit(top);
        const DigitWords words(v[0][0], v[1][0], v[0][1], v[1][1], unit);
        char *to = (char *)a.y + (i64)(at.tile / 16) * To::BYTES + To::at(m, u) + t * 4;
        *(u32 *)to = words.high;
        *(u32 *)(to + To::LOW) = words.low;
        if (lane_id() == 0)
            a.y_units[at.tile / 16 * C::M + m] = unit.unit;
    }
}

template <class C> DEVICE void linear_q_digits(const LinearDigitArgs &a)
{
    typedef DigitShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const CodedWork<C> at;
    const CodedRing<C> ring = {shared_address(shared), shared_address(shared + C::BARRIERS_AT)};
    const u32 arrived = ring.end(), scales = arrived + 8;
    int *places = (int *)(shared + C::PLACES_AT);
    if (at.warp == P::PRODUCER)
        coded_begin<C>(a, at, ring, shared, arrived, scales, C::BLOCK_M);
    block_sync();

    if (at.warp >= P::PRODUCER) {
        if constexpr (C::GIVES)
            registers_give<24>();
        if (at.warp == P::PRODUCER) {
            digit_produce<C>(a, at, ring, shared, scales);
            if constexpr (C::APPEND)
                for (int m = lane_id(); m < least(live_rows<C::ROWS_S>(a.step), C::M); m += 32)
                    linear_find_place<C>(a, m, places);
        }
        block_sync();
        if (C::CLUSTER_SIZE > 1) {
            cluster_arrive();
            cluster_wait();
        }
        return;
    }
    if constexpr (C::GIVES)
        registers_take<C::TAKE>();
    float total[C::BLOCK_M / 2];
    digit_multiply<C>(total, at, ring, shared, scales);
    wait_for_previous();
    block_sync(); // all warps have read the ring, which now receives the sums
    if (C::CLUSTER_SIZE > 1) {
        cluster_arrive();
        cluster_wait();
    }
    coded_send_sums<C>(total, at, (float *)shared, arrived);
    const int live = least(live_rows<C::ROWS_S>(a.step), C::M);
    if constexpr (C::DIGITS) {
        named_barrier_sync(1, P::WORKERS);
        digit_finish_rows<C>(a, at, (const float *)shared, live);
    } else {
        coded_finish<C, P::WORKERS>(a, at, (const float *)shared, places, arrived, live);
    }
}
