// recur.cuh - linear recurrences with a decay: the gated delta rule (Yang et al. 2024, arXiv 2412.06464) and the state space
// of Mamba-2 (Dao & Gu 2024, arXiv 2405.21060), where q is C and k is B.
//
//   dt = softplus(a + shift), at least LOW, at most HIGH > 0     decay = exp(-exp(rate) * dt)
//   S = decay * S + k u^T     y = S^T q     u = sigmoid(beta) * (v - decay * S^T k), without BETA dt * v
//
//   q, k [T,G,KEY], v, y [T,H,VALUE], a, beta [T,H]; head h has q and k of head h / (H / G); rate, shift [H] fp32
//   state [slots][H][KEY][VALUE] fp32: S of each sequence and head before its next token; zeros before its first one
//   rows of q, k, v, a and beta are PITCH elements apart and begin at element FROM, of which each has its own (C::Q, C::K ...)
//   UNIT > 0: q and k are divided by sqrt(sum of squares + UNIT) first; q is times SCALE
//
// A block takes a sequence (blockIdx.x), a head (y) and a run of columns of S (z), which stay in registers while the sequence's
// tokens of this step follow one another. Eight neighbouring lanes share COLUMNS columns, each with KEY / 8 rows of them.
//
//   tile    TILE tokens in shared memory: q and k with their lengths in fp32, v of the block's columns, gates. Eight lanes bring a
//           token; what the next tile needs is read from memory while this one is computed
//   token   S^T k and S^T q are summed at once, y = decay * S^T q + (k . q) u, so a token waits for one sum over eight lanes. The
//           sums of y wait for eight tokens (body/scan.cuh)
//
// S is read before the previous kernel has ended. Sums have one order for any number of tokens and COLUMNS. Of one token bound
// by memory, that of S; of many by the way from a token's u to the next one's, some 150 clocks.
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"
#include "body/scan.cuh"

struct RecurArgs {
    const void *q, *k, *v, *a;
    const float *rate, *shift;
    const void *beta;
    const FtxStep *step;
    const FtxRow *rows;
    float *state;  // of the layer
    void *y;
};

template <class C> struct RecurShape {
    static constexpr int OWN = C::KEY / SCAN_LANES;             // rows of S of a lane
    static constexpr int RUN = vec_width<float>(OWN);           // of which so many are neighbours
    static constexpr int WIDE = C::THREADS / SCAN_LANES * C::COLUMNS;  // columns of a block
    static constexpr int BRINGS = WIDE / SCAN_LANES;            // of v, a lane
    static_assert(C::TILE * SCAN_LANES == C::THREADS && C::TILE % SCAN_LANES == 0, "eight lanes bring a token");
    static_assert(C::VALUE % BRINGS == 0 && C::VALUE % (4 * C::COLUMNS) == 0, "a lane and a warp have all of their columns or none");
};

struct alignas(16) RecurGate {
    float decay, gain, both, none;  // gain of u: sigmoid(beta), or dt; both: k . q
};

template <class C> DEVICE RecurGate recur_gate(const RecurArgs &a, int t, int h)
{
    typedef typename C::T T;
    const float dt = scan_step<C>(to_float(C::A::row((const T *)a.a, t)[h]) + a.shift[h]);
    return RecurGate{expf(-expf(a.rate[h]) * dt),
                     C::BETA ? 1.0f / (1.0f + expf(-to_float(C::B::row((const T *)a.beta, t)[h]))) : dt, 0.0f, 0.0f};
}

// What a thread brings of a tile: of one token a part of q and k, and some columns of v.
template <class C> struct RecurPart {
    typedef RecurShape<C> P;
    typedef typename C::T T;
    static constexpr int VEC = least(scan_vec<T>(P::OWN, C::Q::PITCH, C::Q::FROM), scan_vec<T>(P::OWN, C::K::PITCH, C::K::FROM));
    static constexpr int V_VEC = scan_vec<T>(P::BRINGS, C::V::PITCH, C::V::FROM), N = P::OWN / VEC;
    Vec<T, VEC> q[N], k[N];
    Vec<T, V_VEC> v[P::BRINGS / V_VEC];
    RecurGate gate;

    static DEVICE int token() { return threadIdx.x / SCAN_LANES; }
    static DEVICE int at(int i) { return (i * SCAN_LANES + threadIdx.x % SCAN_LANES) * VEC; }
    static DEVICE int first_column() { return threadIdx.x % SCAN_LANES * P::BRINGS; }

    // Tokens behind the last one are read as that one.
    DEVICE void read(const RecurArgs &a, int first, int end, int h, int column)
    {
        const int t = least(first + token(), end - 1);
        const int key = h / (C::H / C::G) * C::KEY;
#pragma unroll
        for (int i = 0; i < N; i++) {
            q[i] = load<VEC>(C::Q::row((const T *)a.q, t) + key + at(i));
            k[i] = load<VEC>(C::K::row((const T *)a.k, t) + key + at(i));
        }
#pragma unroll
        for (int i = 0; i < P::BRINGS / V_VEC; i++)
            v[i] = column + first_column() < C::VALUE
                       ? load<V_VEC>(C::V::row((const T *)a.v, t) + h * C::VALUE + column + first_column() + i * V_VEC)
                       : zeros<T, V_VEC>();
        gate = recur_gate<C>(a, t, h);
    }
    DEVICE void write(char *shared)
    {
        float both = 0.0f, queries = 0.0f, keys = 0.0f;  // k . q, q . q, k . k
#pragma unroll
        for (int i = 0; i < C::KEY / SCAN_LANES; i++) {
            const float one = to_float(q[i / VEC][i % VEC]), other = to_float(k[i / VEC][i % VEC]);
            both = fmaf(one, other, both);
            queries = fmaf(one, one, queries);
            keys = fmaf(other, other, keys);
        }
        const float by_q = C::UNIT > 0.0f ? C::SCALE * rsqrtf(warp_sum<SCAN_LANES>(queries) + C::UNIT) : C::SCALE;
        const float by_k = C::UNIT > 0.0f ? rsqrtf(warp_sum<SCAN_LANES>(keys) + C::UNIT) : 1.0f;
        gate.both = warp_sum<SCAN_LANES>(both) * by_q * by_k;
        float *to_q = (float *)(shared + C::QUERIES_AT) + token() * C::KEY, *to_k = (float *)(shared + C::KEYS_AT) + token() * C::KEY;
#pragma unroll
        for (int i = 0; i < N; i++) {
            store(to_q + at(i), scaled(q[i], by_q));
            store(to_k + at(i), scaled(k[i], by_k));
        }
#pragma unroll
        for (int i = 0; i < P::BRINGS / V_VEC; i++)
            store((float *)(shared + C::VALUES_AT) + token() * P::WIDE + first_column() + i * V_VEC, to_floats(v[i]));
        if (threadIdx.x % SCAN_LANES == 0)
            ((RecurGate *)(shared + C::GATES_AT))[token()] = gate;
    }
    static DEVICE Vec<float, VEC> scaled(const Vec<T, VEC> &x, float by)
    {
        Vec<float, VEC> f = to_floats(x);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            f[i] *= by;
        return f;
    }
};

// One token of a tile, as a lane needs it.
template <class C> struct RecurToken {
    typedef RecurShape<C> P;
    Vec<float, P::RUN> q[P::OWN / P::RUN], k[P::OWN / P::RUN];
    Vec<float, C::COLUMNS> v;
    RecurGate gate;

    DEVICE void read(const char *shared, int token)
    {
        const int lane = threadIdx.x % SCAN_LANES;
#pragma unroll
        for (int i = 0; i < P::OWN / P::RUN; i++) {
            k[i] = load<P::RUN>((const float *)(shared + C::KEYS_AT) + token * C::KEY + (i * SCAN_LANES + lane) * P::RUN);
            q[i] = load<P::RUN>((const float *)(shared + C::QUERIES_AT) + token * C::KEY + (i * SCAN_LANES + lane) * P::RUN);
        }
        v = load<C::COLUMNS>((const float *)(shared + C::VALUES_AT) + token * P::WIDE + threadIdx.x / SCAN_LANES * C::COLUMNS);
        gate = ((const RecurGate *)(shared + C::GATES_AT))[token];
    }
    DEVICE float query(int i) const { return q[i / P::RUN][i % P::RUN]; }
    DEVICE float key(int i) const { return k[i / P::RUN][i % P::RUN]; }
};

// One token: the change of s, the lane's rows of the columns, and its part of y.
template <class C>
DEVICE Vec<float, C::COLUMNS> recur_token(const RecurToken<C> &token, Vec<float, C::COLUMNS> (&s)[C::KEY / SCAN_LANES])
{
    constexpr int OWN = C::KEY / SCAN_LANES;
    const RecurGate gate = token.gate;
    Vec<float, C::COLUMNS> y;
#pragma unroll
    for (int c = 0; c < C::COLUMNS; c++) {
        float found[2] = {0.0f, 0.0f}, read[2] = {0.0f, 0.0f};  // S^T k, S^T q, each as two sums
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            found[i % 2] = fmaf(s[i][c], token.key(i), found[i % 2]);
            read[i % 2] = fmaf(s[i][c], token.query(i), read[i % 2]);
        }
        float u = token.v[c];
        if (C::BETA)
            u = fmaf(-gate.decay, warp_sum<SCAN_LANES>(found[0] + found[1]), u);
        u *= gate.gain;
        y[c] = fmaf(gate.decay, read[0] + read[1], threadIdx.x % SCAN_LANES == 0 ? gate.both * u : 0.0f);
#pragma unroll
        for (int i = 0; i < OWN; i++)
            s[i][c] = fmaf(token.key(i), u, __fmul_rn(gate.decay, s[i][c]));
    }
    return y;
}

// C: T H G KEY VALUE BETA UNIT SCALE LOW HIGH THREADS TILE COLUMNS, regions; ONE: each sequence brings one token
template <class C> DEVICE void recur(const RecurArgs &a)
{
    typedef RecurShape<C> P;
    typedef typename C::T T;
    launch_dependents();
    if ((int)blockIdx.x >= a.step->rows)
        return;
    char *shared = shared_memory();
    const int lane = threadIdx.x % SCAN_LANES, h = blockIdx.y, first_column = blockIdx.z * P::WIDE;
    const int column = first_column + threadIdx.x / SCAN_LANES * C::COLUMNS;
    const bool mine = column < C::VALUE;  // so are all columns of the warp, or none
    const FtxRow row = a.rows[blockIdx.x];
    const int end = row.q_start + row.q_len;
    float *state = a.state + (((i64)row.slot * C::H + h) * C::KEY + lane * P::RUN) * C::VALUE + column;
    Vec<float, C::COLUMNS> s[P::OWN];
#pragma unroll
    for (int i = 0; i < P::OWN; i++)
        s[i] = row.kv_len == row.q_len || !mine ? zeros<float, C::COLUMNS>()
                                                : load<C::COLUMNS>(state + scan_row<P::RUN>(i) * C::VALUE);
    wait_for_previous();
    RecurPart<C> part;
    part.read(a, row.q_start, end, h, first_column);
    for (int first = row.q_start; first < end; first += C::TILE) {
        const int n = C::ONE ? 1 : least(C::TILE, end - first);
        part.write(shared);
        block_sync();
        if (!C::ONE && first + C::TILE < end)
            part.read(a, first + C::TILE, end, h, first_column);
        RecurToken<C> next;
        next.read(shared, 0);
        for (int some = 0; mine && some < n; some += SCAN_LANES) {
            float y[C::COLUMNS][SCAN_LANES];
#pragma unroll
            for (int i = 0; i < SCAN_LANES; i++) {
                Vec<float, C::COLUMNS> one = zeros<float, C::COLUMNS>();
                if (C::ONE ? i == 0 : some + i < n) {
                    const RecurToken<C> token = next;
                    if (!C::ONE)
                        next.read(shared, least(some + i + 1, C::TILE - 1));
                    one = recur_token<C>(token, s);
                }
#pragma unroll
                for (int c = 0; c < C::COLUMNS; c++)
                    y[c][i] = one[c];
            }
            Vec<float, C::COLUMNS> sum;
#pragma unroll
            for (int c = 0; c < C::COLUMNS; c++)
                sum[c] = scan_sums(y[c]);
            if (some + lane < n)
                store((T *)a.y + ((i64)(first + some + lane) * C::H + h) * C::VALUE + column, from_floats<T>(sum));
        }
        block_sync();
    }
#pragma unroll
    for (int i = 0; i < P::OWN; i++)
        if (mine)
            store(state + scan_row<P::RUN>(i) * C::VALUE, s[i]);
}
