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
//   tile    TILE tokens in shared memory: q and k with their lengths in fp32, v of the block's columns, gates. Four more warps bring
//           them, one tile ahead; eight lanes bring a token
//   token   S^T k and S^T q are summed at once, y = decay * S^T q + (k . q) u, so a token waits for one sum over eight lanes.
//           Each lane keeps y of one of eight tokens
//   ONE     each sequence has one token: the warps that compute bring it
//
// S is read before the previous kernel has ended. Sums have one order for any number of tokens and COLUMNS. Of one token bound
// by memory, that of S; of many by what a warp issues and waits for in each (docs/decisions/041-recurrent-states.md).
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
    static constexpr int WARPS = C::TILE * SCAN_LANES / 32;     // that compute, and that bring tokens
    static constexpr int WIDE = C::TILE * C::COLUMNS;           // columns of a block
    static constexpr int BRINGS = WIDE / SCAN_LANES;            // of v, a lane
    static constexpr int PITCH = C::KEY + 4;                    // floats from token to token: no bank conflicts
    static_assert(C::TILE % SCAN_LANES == 0, "lanes have whole sums of y");
    static_assert(C::VALUE % BRINGS == 0 && C::VALUE % (4 * C::COLUMNS) == 0, "a lane and a warp have all of their columns or none");
};

struct alignas(16) RecurGate {
    float decay, gain, both, none;  // gain of u: sigmoid(beta), or dt; both: k . q
};

// What a thread brings of a tile: of one token a part of q and k, and some columns of v.
template <class C> struct RecurPart {
    typedef RecurShape<C> P;
    typedef typename C::T T;
    static constexpr int VEC = least(scan_vec<T>(P::OWN, C::Q::PITCH, C::Q::FROM), scan_vec<T>(P::OWN, C::K::PITCH, C::K::FROM));
    static constexpr int V_VEC = scan_vec<T>(P::BRINGS, C::V::PITCH, C::V::FROM), N = P::OWN / VEC;
    Vec<T, VEC> q[N], k[N];
    Vec<T, V_VEC> v[P::BRINGS / V_VEC];
    float a, beta, rate, shift;

    static DEVICE int token() { return threadIdx.x / SCAN_LANES % C::TILE; }
    static DEVICE int at(int i) { return (i * SCAN_LANES + threadIdx.x % SCAN_LANES) * VEC; }
    static DEVICE int first_column() { return threadIdx.x % SCAN_LANES * P::BRINGS; }

    DEVICE void fetch(const RecurArgs &args, int h)
    {
        rate = expf(args.rate[h]);
        shift = args.shift[h];
    }
    // Tokens behind the last one are read as that one.
    DEVICE void read(const RecurArgs &args, int first, int end, int h, int column)
    {
        const int t = least(first + token(), end - 1);
        const int key = h / (C::H / C::G) * C::KEY;
#pragma unroll
        for (int i = 0; i < N; i++) {
            q[i] = load<VEC>(C::Q::row((const T *)args.q, t) + key + at(i));
            k[i] = load<VEC>(C::K::row((const T *)args.k, t) + key + at(i));
        }
#pragma unroll
        for (int i = 0; i < P::BRINGS / V_VEC; i++)
            v[i] = column + first_column() < C::VALUE
                       ? load<V_VEC>(C::V::row((const T *)args.v, t) + h * C::VALUE + column + first_column() + i * V_VEC)
                       : zeros<T, V_VEC>();
        this->a = to_float(C::A::row((const T *)args.a, t)[h]);
        beta = C::BETA ? to_float(C::B::row((const T *)args.beta, t)[h]) : 0.0f;
    }
    DEVICE void write(char *shared) const
    {
        const float dt = scan_step<C>(a + shift);
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
        const RecurGate gate = {expf(-rate * dt), C::BETA ? 1.0f / (1.0f + expf(-beta)) : dt,
                                warp_sum<SCAN_LANES>(both) * by_q * by_k, 0.0f};
        float *to_q = (float *)(shared + C::QUERIES_AT) + token() * P::PITCH;
        float *to_k = (float *)(shared + C::KEYS_AT) + token() * P::PITCH;
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

// One token of a tile, as a lane needs it; q is read where it is used, since nothing waits for it.
template <class C> struct RecurToken {
    typedef RecurShape<C> P;
    Vec<float, P::RUN> k[P::OWN / P::RUN];
    Vec<float, C::COLUMNS> v;
    RecurGate gate;

    DEVICE void read(const char *shared, int token)
    {
        const int lane = threadIdx.x % SCAN_LANES;
#pragma unroll
        for (int i = 0; i < P::OWN / P::RUN; i++)
            k[i] = load<P::RUN>((const float *)(shared + C::KEYS_AT) + token * P::PITCH + (i * SCAN_LANES + lane) * P::RUN);
        v = load<C::COLUMNS>((const float *)(shared + C::VALUES_AT) + token * P::WIDE + threadIdx.x / SCAN_LANES * C::COLUMNS);
        gate = ((const RecurGate *)(shared + C::GATES_AT))[token];
    }
    DEVICE float key(int i) const { return k[i / P::RUN][i % P::RUN]; }
};

// One token: the change of s, the lane's rows of the columns, and y.
template <class C>
DEVICE Vec<float, C::COLUMNS> recur_token(const RecurToken<C> &token, const float *query, Vec<float, C::COLUMNS> (&s)[C::KEY / SCAN_LANES])
{
    typedef RecurShape<C> P;
    const RecurGate gate = token.gate;
    Vec<float, P::RUN> q[P::OWN / P::RUN];
    Vec<float, C::COLUMNS> y;
#pragma unroll
    for (int i = 0; i < P::OWN / P::RUN; i++)
        q[i] = load<P::RUN>(query + (i * SCAN_LANES + threadIdx.x % SCAN_LANES) * P::RUN);
#pragma unroll
    for (int c = 0; c < C::COLUMNS; c++) {
        float found[2] = {0.0f, 0.0f}, read[2] = {0.0f, 0.0f};  // S^T k, S^T q, each as two sums
#pragma unroll
        for (int i = 0; i < P::OWN; i++) {
            found[i % 2] = fmaf(s[i][c], token.key(i), found[i % 2]);
            read[i % 2] = fmaf(s[i][c], q[i / P::RUN][i % P::RUN], read[i % 2]);
        }
        float u = token.v[c];
        if (C::BETA)
            u = fmaf(-gate.decay, warp_sum<SCAN_LANES>(found[0] + found[1]), u);
        u *= gate.gain;
        y[c] = fmaf(gate.decay, warp_sum<SCAN_LANES>(read[0] + read[1]), gate.both * u);
#pragma unroll
        for (int i = 0; i < P::OWN; i++)
            s[i][c] = fmaf(token.key(i), u, __fmul_rn(gate.decay, s[i][c]));
    }
    return y;
}

// Up to TILE tokens, from t on: S, and y of the warp's columns.
template <class C>
DEVICE void recur_tile(const RecurArgs &a, const char *shared, int t, int n, int h, int column,
                       Vec<float, C::COLUMNS> (&s)[C::KEY / SCAN_LANES])
{
    typedef typename C::T T;
    const int lane = threadIdx.x % SCAN_LANES;
    constexpr bool AHEAD = !C::ONE && C::COLUMNS == 1;  // a token is read while the one before is computed; two columns leave no registers
    RecurToken<C> token[2];
    token[0].read(shared, 0);
    for (int some = 0; some < n; some += SCAN_LANES) {
        Vec<float, C::COLUMNS> y = zeros<float, C::COLUMNS>();  // of eight tokens, each in its lane
#pragma unroll
        for (int i = 0; i < SCAN_LANES; i++) {
            if (C::ONE ? i > 0 : some + i >= n)
                break;
            if (AHEAD)
                token[(i + 1) % 2].read(shared, least(some + i + 1, C::TILE - 1));
            else if (!C::ONE)
                token[0].read(shared, some + i);
            const float *q = (const float *)(shared + C::QUERIES_AT) + (some + i) * RecurShape<C>::PITCH;
            const Vec<float, C::COLUMNS> one = recur_token<C>(token[AHEAD ? i % 2 : 0], q, s);
            if (lane == i)
                y = one;
        }
        if (some + lane < n)
            store((T *)a.y + ((i64)(t + some + lane) * C::H + h) * C::VALUE + column, from_floats<T>(y));
    }
}

// Brings the tiles of a row, each while the one before it is computed.
template <class C> DEVICE void recur_bring(const RecurArgs &a, char *shared, const FtxRow &row, int h, int column)
{
    RecurPart<C> part;
    const int end = row.q_start + row.q_len;
    part.fetch(a, h);
    wait_for_previous();
    part.read(a, row.q_start, end, h, column);
    for (int first = row.q_start, tile = 0; first < end; first += C::TILE, tile++) {
        part.write(shared + tile % 2 * C::BUFFER);
        if (!C::ONE && first + C::TILE < end)
            part.read(a, first + C::TILE, end, h, column);
        block_sync();
    }
}

// C: T H G KEY VALUE BETA UNIT SCALE LOW HIGH TILE COLUMNS ONE, rows of the inputs, regions, BUFFER: bytes of a tile
template <class C> DEVICE void recur(const RecurArgs &a)
{
    typedef RecurShape<C> P;
    launch_dependents();
    if ((int)blockIdx.x >= a.step->rows)
        return;
    char *shared = shared_memory();
    const int lane = threadIdx.x % SCAN_LANES, h = blockIdx.y, first_column = blockIdx.z * P::WIDE;
    const FtxRow row = a.rows[blockIdx.x];
    if (!C::ONE && warp_id() >= P::WARPS) {
        recur_bring<C>(a, shared, row, h, first_column);
        return;
    }
    const int column = first_column + threadIdx.x / SCAN_LANES * C::COLUMNS, end = row.q_start + row.q_len;
    const bool mine = column < C::VALUE;  // so are all columns of the warp, or none
    float *state = a.state + (((i64)row.slot * C::H + h) * C::KEY + lane * P::RUN) * C::VALUE + column;
    Vec<float, C::COLUMNS> s[P::OWN];
#pragma unroll
    for (int i = 0; i < P::OWN; i++)
        s[i] = row.kv_len == row.q_len || !mine ? zeros<float, C::COLUMNS>()
                                                : load<C::COLUMNS>(state + scan_row<P::RUN>(i) * C::VALUE);
    if (C::ONE)
        recur_bring<C>(a, shared, row, h, first_column);
    else
        block_sync();
    for (int first = row.q_start, tile = 0; first < end; first += C::TILE, tile++) {
        if (mine)
            recur_tile<C>(a, shared + tile % 2 * C::BUFFER, first, C::ONE ? 1 : least(C::TILE, end - first), h, column, s);
        if (!C::ONE && first + C::TILE < end)
            block_sync();
    }
#pragma unroll
    for (int i = 0; i < P::OWN; i++)
        if (mine)
            store(state + scan_row<P::RUN>(i) * C::VALUE, s[i]);
}
