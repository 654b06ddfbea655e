// selective_scan.cuh - the state space of Mamba (Gu & Dao 2023, arXiv 2312.00752): a recurrence with one value for each head (the
// paper's channel), all of which share a key (B) and a query (C), and in which every key decays at a rate of its own.
//
//   dt = softplus(a + shift), at least LOW, at most HIGH > 0     decay[i] = exp(-exp(rate[i]) * dt)
//   s[i] = decay[i] * s[i] + k[i] * dt * v     y = SCALE * sum of s[i] * q[i]
//
//   q, k [T,KEY], v, y, a [T,H]; rate [H][KEY], shift [H] fp32
//   rows of q, k, v and a are PITCH elements apart and begin at element FROM, of which each has its own (C::Q, C::K ...)
//   state [slots][H][KEY] fp32: s of each sequence and head before its next token; zeros before its first one
//
// A block takes a sequence (blockIdx.x) and HEADS heads (y). Eight neighbouring lanes share a head, each with KEY / 8 of its keys in
// registers, while the sequence's tokens of this step follow one another. They come in tiles of TILE tokens through shared memory:
// q and k in fp32, dt and dt * v of each head; what the next tile needs is read from memory while this one is computed. The sums of
// y wait for eight tokens. The state is read before the previous kernel has ended. Sums have one order for any
// number of tokens. Of one token bound by memory, that of the state.
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"
#include "body/scan.cuh"

struct SelectiveScanArgs {
    const void *q, *k, *v, *a;
    const float *rate, *shift;
    const FtxStep *step;
    const FtxRow *rows;
    float *state;  // of the layer
    void *y;
};

template <class C> struct ScanShape {
    static constexpr int OWN = C::KEY / SCAN_LANES, RUN = vec_width<float>(OWN), RUNS = OWN / RUN; // keys of a lane
    static constexpr int HEADS = C::THREADS / SCAN_LANES;
    static_assert(C::TILE % SCAN_LANES == 0 && C::TILE * HEADS % C::THREADS == 0, "threads bring as many numbers each");
};

// Lane l of each eight gets the sum over them of v[l]: a lane gives away the half of its numbers that others will finish, three
// times. The order is that of warp_sum<8>, for every l.
DEVICE float scan_sums(float (&v)[SCAN_LANES])
{
#pragma unroll
    for (int m = SCAN_LANES / 2; m; m /= 2)
#pragma unroll
        for (int i = 0; i < m; i++) {
            const bool upper = lane_id() & m;
            const float kept = upper ? v[i + m] : v[i], given = upper ? v[i] : v[i + m];
            v[i] = kept + shuffle_xor(given, m);
        }
    return v[0];
}

struct alignas(8) ScanInput {
    float dt, u;  // of a token and head; u = dt * v
};

// What a thread brings of a tile: vectors of q and k, and dt and v of some tokens for one head.
template <class C> struct ScanPart {
    typedef ScanShape<C> P;
    typedef typename C::T T;
    static constexpr int VEC = least(scan_vec<T>(C::KEY, C::Q::PITCH, C::Q::FROM), scan_vec<T>(C::KEY, C::K::PITCH, C::K::FROM));
    static constexpr int N = ceil_div(C::TILE * C::KEY / VEC, C::THREADS);
    static constexpr int AT_ONCE = C::THREADS / P::HEADS, INPUTS = C::TILE / AT_ONCE; // tokens of all threads; of a thread
    Vec<T, VEC> q[N], k[N];
    float dt[INPUTS], v[INPUTS];

    static DEVICE int at(int i) { return (i * C::THREADS + threadIdx.x) * VEC; }
    static DEVICE int token(int i) { return threadIdx.x / P::HEADS + i * AT_ONCE; }

    // Tokens behind the last one are read as that one.
    DEVICE void read(const SelectiveScanArgs &a, int first, int end, int first_head)
    {
        const int h = least(first_head + (int)threadIdx.x % P::HEADS, C::H - 1);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int t = least(first + at(i) / C::KEY, end - 1);
            q[i] = load<VEC>(C::Q::row((const T *)a.q, t) + at(i) % C::KEY);
            k[i] = load<VEC>(C::K::row((const T *)a.k, t) + at(i) % C::KEY);
        }
#pragma unroll
        for (int i = 0; i < INPUTS; i++) {
            const int t = least(first + token(i), end - 1);
            v[i] = to_float(C::V::row((const T *)a.v, t)[h]);
            dt[i] = to_float(C::A::row((const T *)a.a, t)[h]);
        }
    }
    DEVICE void write(char *shared, float shift)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (at(i) < C::TILE * C::KEY) {
                store((float *)(shared + C::QUERIES_AT) + at(i), to_floats(q[i]));
                store((float *)(shared + C::KEYS_AT) + at(i), to_floats(k[i]));
            }
#pragma unroll
        for (int i = 0; i < INPUTS; i++) {
            const float step = scan_step<C>(dt[i] + shift);
            ((ScanInput *)(shared + C::INPUTS_AT))[token(i) * P::HEADS + threadIdx.x % P::HEADS] = ScanInput{step, step * v[i]};
        }
    }
};

// One token: the change of s, the lane's keys of its head, and its part of y. rate: of powers of two.
template <class C>
DEVICE float scan_token(const char *shared, int token, const Vec<float, ScanShape<C>::RUN> (&rate)[ScanShape<C>::RUNS],
                        Vec<float, ScanShape<C>::RUN> (&s)[ScanShape<C>::RUNS])
{
    typedef ScanShape<C> P;
    const int lane = threadIdx.x % SCAN_LANES;
    const ScanInput input = ((const ScanInput *)(shared + C::INPUTS_AT))[token * P::HEADS + threadIdx.x / SCAN_LANES];
    float y = 0.0f;
#pragma unroll
    for (int r = 0; r < P::RUNS; r++) {
        const int at = token * C::KEY + (r * SCAN_LANES + lane) * P::RUN;
        const Vec<float, P::RUN> q = load<P::RUN>((const float *)(shared + C::QUERIES_AT) + at);
        const Vec<float, P::RUN> k = load<P::RUN>((const float *)(shared + C::KEYS_AT) + at);
#pragma unroll
        for (int i = 0; i < P::RUN; i++) {
            s[r][i] = fmaf(k[i], input.u, __fmul_rn(exp2f(rate[r][i] * input.dt), s[r][i]));
            y = fmaf(s[r][i], q[i], y);
        }
    }
    return y;
}

template <class C> DEVICE void selective_scan(const SelectiveScanArgs &a) // C: T H KEY SCALE LOW HIGH THREADS TILE, regions; ONE: each sequence brings one token
{
    typedef ScanShape<C> P;
    typedef typename C::T T;
    launch_dependents();
    if ((int)blockIdx.x >= a.step->rows)
        return;
    char *shared = shared_memory();
    const int lane = threadIdx.x % SCAN_LANES, first_head = blockIdx.y * P::HEADS, at = first_head + threadIdx.x / SCAN_LANES;
    const int h = least(at, C::H - 1);  // lanes behind the last head compute with its rates, and write nothing
    const FtxRow row = a.rows[blockIdx.x];
    const int end = row.q_start + row.q_len;
    const float shift = a.shift[least(first_head + (int)threadIdx.x % P::HEADS, C::H - 1)];
    float *state = a.state + ((i64)row.slot * C::H + h) * C::KEY + lane * P::RUN;
    Vec<float, P::RUN> s[P::RUNS], rate[P::RUNS];
#pragma unroll
    for (int r = 0; r < P::RUNS; r++) {
        s[r] = row.kv_len == row.q_len || at >= C::H ? zeros<float, P::RUN>() : load<P::RUN>(state + r * SCAN_LANES * P::RUN);
        rate[r] = load<P::RUN>(a.rate + (i64)h * C::KEY + (r * SCAN_LANES + lane) * P::RUN);
#pragma unroll
        for (int i = 0; i < P::RUN; i++)
            rate[r][i] = -1.4426950408889634f * expf(rate[r][i]);
    }
    wait_for_previous();
    ScanPart<C> part;
    part.read(a, row.q_start, end, first_head);
    for (int first = row.q_start; first < end; first += C::TILE) {
        const int n = C::ONE ? 1 : least(C::TILE, end - first);
        part.write(shared, shift);
        block_sync();
        if (!C::ONE && first + C::TILE < end)
            part.read(a, first + C::TILE, end, first_head);
        for (int some = 0; some < n; some += SCAN_LANES) {
            float y[SCAN_LANES];
#pragma unroll
            for (int i = 0; i < SCAN_LANES; i++)
                y[i] = (C::ONE ? i == 0 : some + i < n) ? scan_token<C>(shared, some + i, rate, s) : 0.0f;
            const float sum = C::SCALE * scan_sums(y);
            if (some + lane < n && at < C::H)
                ((T *)a.y)[(i64)(first + some + lane) * C::H + h] = from_float<T>(sum);
        }
        block_sync();
    }
#pragma unroll
    for (int r = 0; r < P::RUNS; r++)
        if (at < C::H)
            store(state + r * SCAN_LANES * P::RUN, s[r]);
}
