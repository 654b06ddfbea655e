// attend_check.cu - attend_decode, attend_prefill and attend_prefill_hopper on a GPU against plain loops in double.
//
// One step with single tokens and prompt chunks, of lengths around the edges of pages, tiles and chunks. Pages are in
// random order, all that must not be read is NaN, outputs start poisoned. Each decode row is computed again alone, and
// all rows again by few blocks, by a block for each row and head set (SPREAD 1), and by equal ranges (SPREAD 2): the bits must be
// the same; so must those of attend_decode_norm be, against append_norm and attend_decode. With the argument `prompts` attention of
// prompts alone is timed; with `rows` single tokens of 65 to 512 rows, behind a kernel that streams weights.
#include "append_norm.cuh"
#include "attend_decode.cuh"
#include "attend_prefill.cuh"
#include "attend_prefill_hopper.cuh"
#include "body/normed_decode.cuh"
#include "check.h"
#include "regions.h"
#include "stream.h"
#include <cuda.h>
#include <dlfcn.h>

// The constants that the contracts choose for 227 KB of shared memory.
template <class X, class Y, int HEADS_, int KV_HEADS_, int E_, int BLOCK_, int WINDOW_ = 0, int SOFTCAP_ = 0, int ROWS_MAX = 64, int CONTEXT_ = 2048>
struct Facts {
    using T = X;
    using KV = Y;
    static constexpr int HEADS = HEADS_, KV_HEADS = KV_HEADS_, E = E_, BLOCK = BLOCK_, WINDOW = WINDOW_;
    static constexpr int CONTEXT = CONTEXT_, MAX_ROWS = ROWS_MAX, CHUNK = 256;
    static constexpr int MAX_CHUNKS = least(64, ceil_div(CONTEXT + 16, CHUNK));
    static constexpr float SCALE = 0.125f, SOFTCAP = SOFTCAP_;
    static constexpr bool CAUSAL = true;
};
template <class F, int W = 0> struct Warps {
    template <int N> using Try = DecodeRegions<F, N>;
    static constexpr bool fits(int warps, int slot, int shared) { return warps * slot <= 40000 && shared <= 227 * 1024 && (warps < 8 || (Try<8>::MATRIX && Try<8>::SET <= 8)); }
    static constexpr int BEST = W                                          ? W
                                : fits(8, Try<8>::SLOT_BYTES, Try<8>::SHARED) ? 8
                                : fits(4, Try<4>::SLOT_BYTES, Try<4>::SHARED) ? 4
                                                                              : 2;
};
template <class F, int W = 0, int SPREAD_ = 0> struct DecodeConfig : DecodeRegions<F, Warps<F, W>::BEST> {
    using R = DecodeRegions<F, Warps<F, W>::BEST>;
    static constexpr int BEAMS = 0, SPREAD = SPREAD_, REST = 0;
    static constexpr int BLOCKS = R::WARPS == 1 && R::SET <= 8 ? 16 : R::WARPS == 2 && R::SET <= 8 && F::E <= 64 ? 8 : R::WARPS == 4 && R::SET <= 8 && R::MATRIX ? 3 : 2;
};
template <class F> struct Tiles : F {
    static constexpr bool MATRIX = sizeof(typename F::T) == 2 && Same<typename F::T, typename F::KV>::value;
    static constexpr int ROWS = MATRIX ? (F::E <= 128 ? 128 : 64) : F::E <= 128 ? 64 : 32;
    static constexpr int KEYS = MATRIX && 2 * (64 + (ROWS + 256) * padded(round_up(F::E, 16) * 2)) + 2048 <= 227 * 1024 ? 64 : 32;
};
template <class F> struct PrefillConfig : FlashRegions<Tiles<F>> {
};
// Shapes that attend_prefill_hopper serves.
template <class F> constexpr bool HOPPER = Tiles<F>::MATRIX && (F::E == 64 || F::E == 96 || F::E == 128 || F::E == 256);
template <class F> struct PromptConfig : F {
    static constexpr int BOX = F::BLOCK % 64 == 0 ? 64 : F::BLOCK % 32 == 0 ? 32 : F::BLOCK % 16 == 0 ? 16 : 8;
    static constexpr int ALIGN = 8, WARPGROUPS = F::E <= 64 ? 3 : 2, KEYS = F::E > 128 ? 64 : 128, SLOTS = F::E <= 64 ? 8 : F::E > 128 ? 4 : 6;
    static constexpr int ACROSS = ceil_div(F::E, 64), ROWS = WARPGROUPS * 64, TILE_BYTES = KEYS * ACROSS * 128;
    static constexpr int RING_AT = ROWS * ACROSS * 128, BARRIERS_AT = RING_AT + SLOTS * TILE_BYTES;
    static constexpr int WORK_AT = BARRIERS_AT + SLOTS * 16 + 16, SHARED = WORK_AT + 64;
};
template <class C> __global__ void __launch_bounds__(C::WARPS * 32, C::BLOCKS) decode_kernel(const __grid_constant__ AttendDecodeArgs a) { attend_decode<C>(a); }
template <class C> __global__ void __launch_bounds__(128, 2) prefill_kernel(const __grid_constant__ AttendPrefillArgs a) { attend_prefill<C>(a); }
template <class C>
__global__ void __launch_bounds__(128 * (C::WARPGROUPS + 1), 1) prompt_kernel(const __grid_constant__ AttendPrefillHopperArgs a) { attend_prefill_hopper<C>(a); }

static int sms;

template <class F, int W = 0, int SPREAD = 0> void run_decode(AttendDecodeArgs a, int S, cudaStream_t s = 0, int most_blocks = 1 << 20)
{
    using C = DecodeConfig<F, W, SPREAD>;
    const int grid = SPREAD == 1 ? S * C::HEAD_SETS + std::min(C::BLOCKS * sms, most_blocks) : std::min({C::BLOCKS * sms, S * C::HEAD_SETS * F::MAX_CHUNKS, most_blocks});
    launch(decode_kernel<C>, dim3(grid), C::WARPS * 32, C::SHARED, a, s);
}
template <class F> void run_prefill(AttendPrefillArgs a, int T, int S, cudaStream_t s = 0)
{
    using C = PrefillConfig<F>;
    using D = FlashShape<C>;
    launch(prefill_kernel<C>, dim3(F::KV_HEADS, ceil_div(T * D::GROUP, C::ROWS) + S), 128, C::SHARED, a, s);
}
// TMA descriptors of layers of keys, then of values.
template <class F> struct Maps {
    int layers;
    Device<CUtensorMap> device;
    Maps(typename F::KV *k, typename F::KV *v, size_t layer, int n) : layers(n), device(2 * n)
    {
        static const auto encode = (decltype(&cuTensorMapEncodeTiled))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuTensorMapEncodeTiled");
        std::vector<CUtensorMap> maps(2 * n);
        const cuuint64_t size[] = {F::E, layer / F::E}, stride[] = {F::E * 2};
        const cuuint32_t tile[] = {64, PromptConfig<F>::BOX}, every[] = {1, 1};
        for (int i = 0; i < 2 * n; i++)
            if (encode(&maps[i], Same<typename F::KV, bf16>::value ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
                       (i < n ? k : v) + layer * (i % n), size, stride, tile, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)) {
                printf("no TMA descriptor\n");
                exit(1);
            }
        device.put(maps);
    }
    const TensorMap *keys(int i) const { return (const TensorMap *)(device.p + i); }
    const TensorMap *values(int i) const { return (const TensorMap *)(device.p + layers + i); }
};
template <class F> void run_prompt(AttendPrefillHopperArgs a, int T, int S, cudaStream_t s = 0)
{
    using C = PromptConfig<F>;
    const int pieces = F::KV_HEADS * (ceil_div(T * (F::HEADS / F::KV_HEADS), C::ROWS) + S);
    launch(prompt_kernel<C>, dim3(std::min(sms, pieces)), 128 * (C::WARPGROUPS + 1), C::SHARED, a, s);
}

template <class F, int W = 0> int check(const char *name, uint64_t seed)
{
    using T = typename F::T;
    using KV = typename F::KV;
    constexpr int H = F::HEADS, G = F::KV_HEADS, E = F::E, B = F::BLOCK, PER_SLOT = ceil_div(F::CONTEXT, B);
    Random rnd{seed};
    std::vector<int> decode = {1, 2, B - 1, B, B + 1, 63, 64, 65, 127, 128, 255, 256, 257, 300, 511, 512, 513, 777, 1025, 2048};
    std::vector<int> chunk = {2, 5, 17, 33, 64, 130, 47, 17}, before = {0, 1, 250, 0, 31, 300, 853, 316};
    const int dr = (int)decode.size(), S = dr + (int)chunk.size();
    std::vector<FtxRow> rows(S);
    std::vector<int> order(S), token_row;
    for (int i = 0; i < S; i++)
        order[i] = i;
    for (int i = S - 1; i > 0; i--)
        std::swap(order[i], order[rnd.below(i + 1)]);
    int T_ = 0;
    for (int r = 0; r < S; r++) {
        rows[r] = {};
        rows[r].q_start = T_;
        rows[r].q_len = r < dr ? 1 : chunk[r - dr];
        rows[r].kv_len = r < dr ? decode[r] : chunk[r - dr] + before[r - dr];
        rows[r].slot = order[r];
        for (int i = 0; i < rows[r].q_len; i++)
            token_row.push_back(r);
        T_ += rows[r].q_len;
    }
    // Pages: only those in use, in random order, one spare of NaN at 0.
    std::vector<int> pages(S * PER_SLOT, 0x7fffffff), numbers;
    int used = 0;
    for (auto &r : rows)
        used += (r.kv_len + B - 1) / B;
    for (int i = 0; i < used; i++)
        numbers.push_back(i + 1);
    for (int i = used - 1; i > 0; i--)
        std::swap(numbers[i], numbers[rnd.below(i + 1)]);
    const size_t elements = (size_t)(used + 1) * G * B * E;
    std::vector<KV> k(elements), v(elements);
    memset(k.data(), 0xff, elements * sizeof(KV));
    memset(v.data(), 0xff, elements * sizeof(KV));
    int next = 0;
    for (auto &r : rows) {
        for (int i = 0; i < (r.kv_len + B - 1) / B; i++)
            pages[r.slot * PER_SLOT + i] = numbers[next++];
        const int from = F::WINDOW ? std::max(0, r.kv_len - r.q_len - F::WINDOW + 1) / B * B : 0; // pages before stay NaN
        for (int p = from; p < r.kv_len; p++)
            for (int g = 0; g < G; g++)
                for (int e = 0; e < E; e++) {
                    const size_t at = (((size_t)pages[r.slot * PER_SLOT + p / B] * G + g) * B + p % B) * E + e;
                    k[at] = host_round<KV>(rnd.normal());
                    v[at] = host_round<KV>(rnd.normal());
                }
        if (F::WINDOW) // pages that left the window may be anything
            for (int i = 0; i < from / B; i++)
                pages[r.slot * PER_SLOT + i] = 0x7fffffff;
    }
    std::vector<T> q((size_t)T_ * H * E);
    for (auto &x : q)
        x = host_round<T>(rnd.normal() * 1.5f);

    Device<T> dq(q), dy(q.size());
    Device<KV> dk(k), dv(v);
    Device<int> dpages(pages);
    Device<FtxRow> drows(rows);
    FtxStep step = {};
    step.tokens = T_;
    step.rows = S;
    step.decode_rows = dr;
    Device<FtxStep> dstep(std::vector<FtxStep>{step});
    using D = DecodeConfig<F, W>;
    Device<float> partials((size_t)F::MAX_ROWS * D::HEAD_SETS * F::MAX_CHUNKS * D::PARTIAL);
    Device<u32> counters(F::MAX_ROWS * D::HEAD_SETS);
    dy.fill(0xff);
    partials.fill(0xff);
    counters.fill(0);
    const AttendDecodeArgs da = {dq.p, dstep.p, drows.p, dpages.p, dk.p, dv.p, dy.p, partials.p, counters.p};
    const AttendPrefillArgs pa = {dq.p, dstep.p, drows.p, dpages.p, dk.p, dv.p, dy.p};
    run_decode<F, W>(da, S);
    run_prefill<F>(pa, T_, S);
    CU(cudaDeviceSynchronize());
    const std::vector<T> y = dy.get();
    int wrong = 0;
    for (u32 c : counters.get())
        wrong += c != 0;
    std::vector<T> yh;
    if constexpr (HOPPER<F>) { // twice: the counters must be 0 again
        const Maps<F> maps(dk.p, dv.p, elements, 1);
        dy.fill(0xff);
        for (int i = 0; i < 2; i++)
            run_prompt<F>(AttendPrefillHopperArgs{dq.p, dstep.p, drows.p, dpages.p, maps.keys(0), maps.values(0), dy.p, counters.p}, T_, S);
        CU(cudaDeviceSynchronize());
        yh = dy.get();
        for (u32 c : counters.get())
            wrong += c != 0;
    }

    const double cap = F::SOFTCAP;
    // A block for each row and head set, one block and many for later pieces, dead blocks: the same bits.
    int moved = 0;
    for (int blocks : {1, 3, 1 << 20}) {
        dy.fill(0xff);
        run_decode<F, W, 1>(da, S + (blocks > 1), 0, blocks);
        CU(cudaDeviceSynchronize());
        const std::vector<T> spread = dy.get();
        moved += memcmp(spread.data(), y.data(), (size_t)dr * H * E * sizeof(T)) != 0;
    }
    if constexpr (D::SET * E <= D::WARPS * 128)
        for (int blocks : {1, 3, 7, 50, 1 << 20}) { // equal ranges of units
            dy.fill(0xff);
            partials.fill(0xff);
            run_decode<F, W, 2>(da, S, 0, blocks);
            CU(cudaDeviceSynchronize());
            const std::vector<T> dealt = dy.get();
            moved += memcmp(dealt.data(), y.data(), (size_t)dr * H * E * sizeof(T)) != 0;
        }
    for (u32 c : counters.get())
        wrong += c != 0;

    std::vector<double> error(T_ * H), error_hopper(T_ * H), norm(T_ * H);
    parallel(T_ * H, [&](int i) {
        const int t = i / H, h = i % H, g = h / (H / G);
        const FtxRow &r = rows[token_row[t]];
        const int pos = r.kv_len - r.q_len + t - r.q_start;
        const int from = F::WINDOW ? std::max(0, pos - F::WINDOW + 1) : 0;
        std::vector<double> s(pos + 1), o(E, 0.0);
        double top = -1e300, sum = 0;
        auto at = [&](int p) { return (((size_t)pages[r.slot * PER_SLOT + p / B] * G + g) * B + p % B) * E; };
        for (int p = from; p <= pos; p++) {
            double d = 0;
            for (int e = 0; e < E; e++)
                d += (double)host_float(q[((size_t)t * H + h) * E + e]) * host_float(k[at(p) + e]);
            d *= F::SCALE;
            if (cap > 0)
                d = cap * tanh(d / cap);
            s[p] = d;
            top = std::max(top, d);
        }
        for (int p = from; p <= pos; p++) {
            const double w = exp(s[p] - top);
            sum += w;
            for (int e = 0; e < E; e++)
                o[e] += w * host_float(v[at(p) + e]);
        }
        for (int e = 0; e < E; e++) {
            const size_t at_y = ((size_t)t * H + h) * E + e;
            const double ref = o[e] / sum, d = host_float(y[at_y]) - ref, dh = yh.empty() || t < dr ? 0.0 : host_float(yh[at_y]) - ref;
            error[i] += d == d ? d * d : 1e9;
            error_hopper[i] += dh == dh ? dh * dh : 1e9;
            norm[i] += ref * ref;
        }
    });
    double worst_decode = 0, worst_prefill = 0, worst_hopper = 0;
    for (int i = 0; i < T_ * H; i++) {
        double &w = i / H < dr ? worst_decode : worst_prefill;
        w = std::max(w, sqrt(error[i] / norm[i]));
        worst_hopper = std::max(worst_hopper, sqrt(error_hopper[i] / norm[i]));
    }
    // Tolerance. fp32: rounding of sums over 2048 keys; 16 bits: p and y are rounded to 8 (11) bits.
    const double limit = sizeof(T) == 4 ? 1e-5 : Same<T, bf16>::value || Same<KV, bf16>::value ? 8e-3 : 1.5e-3;
    wrong += !(worst_decode < limit) + !(worst_prefill < limit) + !(worst_hopper < limit);

    // Alone: the same bits.
    for (int r = 0; r < dr; r += 3) {
        FtxStep one = step;
        one.rows = one.decode_rows = 1;
        Device<FtxStep> dstep1(std::vector<FtxStep>{one});
        Device<FtxRow> drow1(std::vector<FtxRow>{rows[r]});
        Device<T> dy1((size_t)H * E);
        AttendDecodeArgs a1 = da;
        a1.q = dq.p + (size_t)r * H * E;
        a1.step = dstep1.p;
        a1.rows = drow1.p;
        a1.y = dy1.p;
        run_decode<F, W>(a1, 1);
        CU(cudaDeviceSynchronize());
        const std::vector<T> y1 = dy1.get();
        moved += memcmp(y1.data(), y.data() + (size_t)r * H * E, y1.size() * sizeof(T)) != 0;
    }
    // By few blocks, which take groups of chunks: the same bits.
    for (int blocks : {1, 5}) {
        run_decode<F, W>(da, S, 0, blocks);
        CU(cudaDeviceSynchronize());
        const std::vector<T> few = dy.get();
        moved += memcmp(few.data(), y.data(), (size_t)dr * H * E * sizeof(T)) != 0;
    }
    wrong += moved;
    printf("%-34s decode %.1e  prefill %.1e  hopper %.1e  limit %.1e  alone differs %d  %s\n", name, worst_decode, worst_prefill, worst_hopper, limit, moved, wrong ? "WRONG" : "");
    return wrong;
}
#define CHECK(...) wrong += check<Facts<__VA_ARGS__>>(#__VA_ARGS__, seed++)
#define CHECK_BY(WARPS, ...) wrong += check<Facts<__VA_ARGS__>, WARPS>(#WARPS " warps, " #__VA_ARGS__, seed++)

// Heads of q and k normed by append_norm before attend_decode, or by attend_decode_norm: the same bits of y and of the cache.
template <class F, int R> struct AppendNormConfig {
    using T = typename F::T;
    using OUT = T;
    using KV = T;
    static constexpr int H = F::HEADS, G = F::KV_HEADS, E = F::E, ROT = R, BLOCK = F::BLOCK, PAGES = ceil_div(F::CONTEXT, F::BLOCK);
    static constexpr int THREADS = 128, VEC = 8, LANES = least(32, pow2_at_least(ceil_div(E, VEC))), PER = 1, ONE_TYPE = 1;
    static constexpr float EPS = 1e-6f;
};
template <class F, int R> struct NormConfig : DecodeConfig<F> {
    using D = DecodeConfig<F>;
    static constexpr int ROT = R, NORMED_AT = round_up(D::SHARED, 16), SHARED = NORMED_AT + (D::SET * (F::E + 8) + 4 * F::E) * 2;
    static constexpr float EPS = 1e-6f;
};
template <class C> __global__ void __launch_bounds__(128) append_norm_kernel(const __grid_constant__ AppendNormArgs a) { append_norm<C>(a); }
template <class C>
__global__ void __launch_bounds__(C::WARPS * 32, C::BLOCKS) decode_norm_kernel(const __grid_constant__ AttendDecodeNormArgs a) { attend_decode<Normed<C>>(normed_args<C>(a)); }

template <class F, int R> int check_normed(const char *name, uint64_t seed)
{
    using T = typename F::T;
    using A = AppendNormConfig<F, R>;
    using N = NormConfig<F, R>;
    constexpr int H = F::HEADS, G = F::KV_HEADS, E = F::E, B = F::BLOCK, PER_SLOT = ceil_div(F::CONTEXT, B), WIDE = (H + 2 * G) * E;
    Random rnd{seed};
    const std::vector<int> length = {1, 2, B, B + 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300, 513, 777, 1025, 2048};
    const int S = (int)length.size();
    std::vector<FtxRow> rows(S);
    std::vector<FtxToken> tokens(S);
    std::vector<int> pages(S * PER_SLOT);
    for (size_t i = 0; i < pages.size(); i++)
        pages[i] = (int)i;
    for (size_t i = pages.size() - 1; i > 0; i--)
        std::swap(pages[i], pages[rnd.below((int)i + 1)]);
    for (int r = 0; r < S; r++) {
        rows[r] = {};
        rows[r].q_start = r, rows[r].q_len = 1, rows[r].kv_len = length[r], rows[r].slot = S - 1 - r, rows[r].lane = -1;
        tokens[r] = {0, length[r] - 1, r, S - 1 - r};
    }
    const size_t elements = pages.size() * G * B * E;
    std::vector<T> x((size_t)S * WIDE), k(elements), v(elements);
    for (auto *some : {&x, &k, &v})
        for (auto &e : *some)
            e = host_round<T>(rnd.normal());
    std::vector<float> qg(E), kg(E), table((size_t)F::CONTEXT * most(R, 1));
    for (int e = 0; e < E; e++)
        qg[e] = 1 + 0.3f * rnd.normal(), kg[e] = 1 + 0.3f * rnd.normal();
    for (size_t i = 0; i < table.size(); i++)
        table[i] = i % 2 ? sinf(i * 0.37f) : cosf((i + 1) * 0.37f);
    FtxStep step = {};
    step.tokens = step.rows = step.decode_rows = S;
    Device<T> dx(x), dq((size_t)S * H * E), dy(dq.n), k1(k), v1(v), k2(k), v2(v);
    Device<float> dqg(qg), dkg(kg), dtable(table), partials((size_t)F::MAX_ROWS * N::HEAD_SETS * F::MAX_CHUNKS * N::PARTIAL);
    Device<FtxStep> dstep(std::vector<FtxStep>{step});
    Device<FtxRow> drows(rows);
    Device<FtxToken> dtokens(tokens);
    Device<int> dpages(pages);
    Device<u32> counters(F::MAX_ROWS * N::HEAD_SETS);
    counters.fill(0);
    dy.fill(0xff);
    launch(append_norm_kernel<A>, dim3(S, ceil_div(H + 2 * G, A::THREADS / A::LANES)), A::THREADS, 0,
           AppendNormArgs{dx.p, dtable.p, dqg.p, dkg.p, dstep.p, dtokens.p, dpages.p, k1.p, v1.p, dq.p});
    run_decode<F>(AttendDecodeArgs{dq.p, dstep.p, drows.p, dpages.p, k1.p, v1.p, dy.p, partials.p, counters.p}, S);
    CU(cudaDeviceSynchronize());
    const std::vector<T> y = dy.get(), ck = k1.get(), cv = v1.get();
    int wrong = 0;
    double sum = 0;
    for (const T &e : y)
        sum += fabs(host_float(e));
    wrong += !(sum > 0 && sum < 1e30);
    wrong += !memcmp(ck.data(), k.data(), elements * sizeof(T));
    for (int blocks : {1 << 20, 5, 1}) {
        k2.put(k), v2.put(v);
        dy.fill(0xff);
        const int grid = std::min({N::BLOCKS * sms, S * N::HEAD_SETS * F::MAX_CHUNKS, blocks});
        launch(decode_norm_kernel<N>, dim3(grid), N::WARPS * 32, N::SHARED,
               AttendDecodeNormArgs{dx.p, dtable.p, dqg.p, dkg.p, dstep.p, drows.p, dpages.p, k2.p, v2.p, dy.p, partials.p, counters.p});
        CU(cudaDeviceSynchronize());
        const std::vector<T> y2 = dy.get(), k3 = k2.get(), v3 = v2.get();
        wrong += memcmp(y2.data(), y.data(), y.size() * sizeof(T)) != 0;
        wrong += memcmp(k3.data(), ck.data(), elements * sizeof(T)) != 0;
        wrong += memcmp(v3.data(), cv.data(), elements * sizeof(T)) != 0;
    }
    for (u32 c : counters.get())
        wrong += c != 0;
    printf("normed %-40s %d rows, other bits %d  %s\n", name, S, wrong, wrong ? "WRONG" : "");
    return wrong;
}
#define CHECK_NORMED(ROT, ...) wrong += check_normed<Facts<__VA_ARGS__>, ROT>(#ROT ", " #__VA_ARGS__, seed++)

template <class T> __global__ void fill_kernel(T *p, size_t n, u32 seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        u32 x = (u32)i * 2654435761u + seed;
        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        p[i] = from_float<T>(((float)(x >> 8) * 0x1p-24f - 0.5f) * 2.0f);
    }
}

// Decode: S rows at one length, over enough layers that the cache is cold; also a fixed
// small chunk of prompt rows.
template <class F, int W = 0> void time_decode(const char *name, int S, int length, int layers)
{
    using T = typename F::T;
    using D = DecodeConfig<F, W>;
    const int per_row = ceil_div(length, F::BLOCK), per_slot = ceil_div(F::CONTEXT, F::BLOCK);
    const size_t layer = (size_t)S * per_row * F::KV_HEADS * F::BLOCK * F::E;
    Device<T> k(layer * layers), v(layer * layers), q((size_t)S * F::HEADS * F::E), y(q.n);
    fill_kernel<<<1024, 256>>>(k.p, k.n, 1);
    fill_kernel<<<1024, 256>>>(v.p, v.n, 2);
    fill_kernel<<<1024, 256>>>(q.p, q.n, 3);
    std::vector<int> pages(S * per_slot, 0);
    std::vector<FtxRow> rows(S);
    Random rnd{7};
    std::vector<int> numbers(S * per_row);
    for (size_t i = 0; i < numbers.size(); i++)
        numbers[i] = (int)i;
    for (size_t i = numbers.size() - 1; i > 0; i--)
        std::swap(numbers[i], numbers[rnd.below((int)i + 1)]);
    for (int r = 0; r < S; r++) {
        rows[r] = {};
        rows[r].q_start = r;
        rows[r].q_len = 1;
        rows[r].kv_len = length;
        rows[r].slot = r;
        for (int i = 0; i < per_row; i++)
            pages[r * per_slot + i] = numbers[r * per_row + i];
    }
    FtxStep step = {};
    step.tokens = step.rows = step.decode_rows = S;
    Device<FtxStep> dstep(std::vector<FtxStep>{step});
    Device<FtxRow> drows(rows);
    Device<int> dpages(pages);
    Device<float> partials((size_t)F::MAX_ROWS * D::HEAD_SETS * F::MAX_CHUNKS * D::PARTIAL);
    Device<u32> counters(F::MAX_ROWS * D::HEAD_SETS);
    counters.fill(0);
    CU(cudaDeviceSynchronize());
    const int n = std::max(layers, 16);
    const double us = time_graph(n, [&](int i, cudaStream_t s) {
        const size_t at = layer * (i % layers);
        run_decode<F, W>(AttendDecodeArgs{q.p, dstep.p, drows.p, dpages.p, k.p + at, v.p + at, y.p, partials.p, counters.p}, S, s);
    });
    const double bytes = 2.0 * S * length * F::KV_HEADS * F::E * sizeof(T);
    printf("decode  %-22s rows %3d length %6d: %8.2f us  %6.0f GB/s  %4.1f %% of 4.6 TB/s\n", name, S, length, us, bytes / us * 1e-3, bytes / us * 1e-3 / 46);
}

// S rows of one length, or (0) of unlike ones: most below 256, each eighth up to 2,000 positions. The time of attention in a
// graph in which each launch stands between two that read weights.
template <class F, int W, int SPREAD> double time_rows(int S, int length, double &ideal)
{
    using T = typename F::T;
    using D = DecodeConfig<F, W, SPREAD>;
    constexpr int LAYERS = 16;
    constexpr size_t WEIGHTS = 50331648;
    const int per_slot = ceil_div(F::CONTEXT, F::BLOCK);
    Random rnd{7};
    std::vector<FtxRow> rows(F::MAX_ROWS);
    std::vector<int> pages(S * per_slot, 0), numbers;
    size_t positions = 0;
    for (int r = 0; r < S; r++) {
        rows[r].q_start = rows[r].slot = r;
        rows[r].q_len = 1;
        rows[r].kv_len = length ? length : 16 + rnd.below(rnd.below(8) ? 240 : 2000);
        positions += rows[r].kv_len;
        for (int i = 0; i < ceil_div(rows[r].kv_len, F::BLOCK); i++)
            numbers.push_back((int)numbers.size());
    }
    for (size_t i = numbers.size() - 1; i > 0; i--)
        std::swap(numbers[i], numbers[rnd.below((int)i + 1)]);
    for (int r = 0, n = 0; r < S; r++)
        for (int i = 0; i < ceil_div(rows[r].kv_len, F::BLOCK); i++)
            pages[r * per_slot + i] = numbers[n++];
    const size_t layer = numbers.size() * F::KV_HEADS * F::BLOCK * F::E;
    const int layers = std::min<int>(LAYERS, 1 + (int)((1ull << 30) / (layer * sizeof(T))));
    Device<T> k(layer * layers), v(layer * layers), q((size_t)S * F::HEADS * F::E), y(q.n);
    Device<uint4> weights(LAYERS * WEIGHTS / 16), out(1024);
    fill_kernel<<<1024, 256>>>(k.p, k.n, 1);
    fill_kernel<<<1024, 256>>>(v.p, v.n, 2);
    fill_kernel<<<1024, 256>>>(q.p, q.n, 3);
    weights.fill(1);
    FtxStep step = {};
    step.tokens = step.rows = step.decode_rows = S;
    Device<FtxStep> dstep(std::vector<FtxStep>{step});
    Device<FtxRow> drows(rows);
    Device<int> dpages(pages);
    Device<float> partials((size_t)F::MAX_ROWS * D::HEAD_SETS * F::MAX_CHUNKS * D::PARTIAL);
    Device<u32> counters(F::MAX_ROWS * D::HEAD_SETS);
    counters.fill(0);
    CU(cudaDeviceSynchronize());
    const auto stream = [&](int i, cudaStream_t s) {
        launch(stream_kernel, dim3(sms), 384, 200 * 1024, StreamArgs{weights.p + i % LAYERS * (WEIGHTS / 16), WEIGHTS / 16, out.p}, s);
    };
    const double both = time_graph(2 * LAYERS, [&](int i, cudaStream_t s) {
        const size_t at = layer * (i / 2 % layers);
        if (i % 2)
            run_decode<F, W, SPREAD>(AttendDecodeArgs{q.p, dstep.p, drows.p, dpages.p, k.p + at, v.p + at, y.p, partials.p, counters.p}, S, s);
        else
            stream(i / 2, s);
    });
    ideal = 2.0 * positions * F::KV_HEADS * F::E * sizeof(T) / 4.63e6;
    return 2 * both - time_graph(2 * LAYERS, stream);
}
template <int E> struct Many : Facts<bf16, bf16, 32, 8, E, 16, 0, 0, 512, 2304> {
    static constexpr int CHUNK = 512, MAX_CHUNKS = 5;
};
template <int E> void time_many(const char *name)
{
    using F = Many<E>;
    constexpr int W = E == 64 ? 1 : 4;
    printf("%s, us: bytes at 4.63 TB/s; contiguous units; a block for each row and head set\n", name);
    for (int S : {65, 128, 129, 192, 256, 512})
        for (int length : {128, 200, 512, 2048, 0}) {
            if (S == 512 && length > 512)
                continue;
            double ideal;
            const double base = time_rows<F, W, 0>(S, length, ideal), spread = time_rows<F, W, 1>(S, length, ideal);
            printf("rows %3d length %4d: %6.1f; %6.1f; %6.1f\n", S, length, ideal, base, spread);
            fflush(stdout);
        }
}

// S chunks of `length` tokens, each behind `before` others.
template <class F> void time_prefill(const char *name, int S, int length, int before = 0)
{
    using T = typename F::T;
    const int per_slot = ceil_div(F::CONTEXT, F::BLOCK), layers = S == 1 && length < 8192 ? 4 : 1;
    const size_t layer = (size_t)S * per_slot * F::KV_HEADS * F::BLOCK * F::E;
    Device<T> k(layer * layers), v(layer * layers), q((size_t)S * length * F::HEADS * F::E), y(q.n);
    fill_kernel<<<1024, 256>>>(k.p, k.n, 1);
    fill_kernel<<<1024, 256>>>(v.p, v.n, 2);
    fill_kernel<<<1024, 256>>>(q.p, q.n, 3);
    std::vector<int> pages(S * per_slot);
    for (size_t i = 0; i < pages.size(); i++)
        pages[i] = (int)((i * 7919) % pages.size());
    std::vector<FtxRow> rows(S);
    for (int r = 0; r < S; r++) {
        rows[r] = {};
        rows[r].q_start = r * length;
        rows[r].q_len = length;
        rows[r].kv_len = before + length;
        rows[r].slot = r;
    }
    FtxStep step = {};
    step.tokens = S * length;
    step.rows = S;
    Device<FtxStep> dstep(std::vector<FtxStep>{step});
    Device<FtxRow> drows(rows);
    Device<int> dpages(pages);
    Device<u32> counters(2);
    counters.fill(0);
    CU(cudaDeviceSynchronize());
    const double flops = 2.0 * S * F::HEADS * F::E * (double)length * (2.0 * before + length + 1);
    const auto print = [&](const char *kernel, double us) {
        printf("%-7s %-22s %3d x %6d behind %5d: %9.2f us  %6.1f TFLOP/s (causal)\n", kernel, name, S, length, before, us, flops / us * 1e-6);
    };
    print("prefill", time_graph(8, [&](int i, cudaStream_t s) {
              const size_t at = layer * (i % layers);
              run_prefill<F>(AttendPrefillArgs{q.p, dstep.p, drows.p, dpages.p, k.p + at, v.p + at, y.p}, S * length, S, s);
          }));
    if constexpr (HOPPER<F>) {
        const Maps<F> maps(k.p, v.p, layer, layers);
        print("hopper", time_graph(8, [&](int i, cudaStream_t s) {
                  const int l = i % layers;
                  run_prompt<F>(AttendPrefillHopperArgs{q.p, dstep.p, drows.p, dpages.p, maps.keys(l), maps.values(l), y.p, counters.p}, S * length, S, s);
              }));
    }
}

// Prompts of one head shape: 32,768 tokens of context.
template <int HEADS, int KV_HEADS, int E> void time_prompts(const char *name, const std::vector<int> &lengths)
{
    using F = Facts<bf16, bf16, HEADS, KV_HEADS, E, 16, 0, 0, 64, 32768>;
    for (int length : lengths)
        time_prefill<F>(name, 1, length);
    time_prefill<F>(name, 16, 512);
    time_prefill<F>(name, 64, 32);
    time_prefill<F>(name, 16, 64, 1024);
    time_prefill<F>(name, 1, 512, 7680);
}

int main(int argc, char **argv)
{
    sms = multiprocessors();
    const bool timing = argc > 1 && !strcmp(argv[1], "time");
    int wrong = 0;
    if (argc > 1 && !strcmp(argv[1], "profile")) { // for a profiler: one shape of each
        using Large = Facts<bf16, bf16, 32, 8, 128, 16, 0, 0, 64, 4096>;
        time_decode<Large>("8B", 64, 2048, 2);
        time_prefill<Large>("8B", 1, 2048);
    } else if (argc > 1 && !strcmp(argv[1], "rows")) {
        time_many<128>("heads of 128");
        time_many<64>("heads of 64");
    } else if (argc > 1 && !strcmp(argv[1], "prompts")) {
        time_prompts<32, 8, 128>("32/8 x 128", {16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 32768});
        time_prompts<32, 8, 64>("32/8 x 64", {64, 128, 512, 2048, 8192, 32768});
        time_prompts<32, 32, 96>("32/32 x 96", {128, 512, 2048, 8192});
        time_prompts<16, 8, 256>("16/8 x 256", {128, 512, 2048, 8192});
    } else if (!timing) {
        uint64_t seed = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
        CHECK(float, float, 2, 2, 16, 8);
        CHECK(float, float, 6, 2, 24, 16, 100);
        CHECK(float, float, 14, 2, 40, 24);
        CHECK(float, float, 16, 2, 64, 128);
        CHECK(float, float, 6, 2, 80, 16, 0, 20);
        CHECK(float, float, 3, 1, 96, 32);
        CHECK(float, float, 8, 1, 128, 64, 33);
        CHECK(float, float, 7, 1, 256, 16);
        CHECK(bf16, bf16, 2, 2, 16, 16);
        CHECK(bf16, bf16, 3, 1, 24, 8);
        CHECK(bf16, bf16, 14, 2, 40, 16, 64);
        CHECK(bf16, bf16, 8, 2, 64, 16);
        CHECK(bf16, bf16, 16, 2, 64, 24, 257);
        CHECK(bf16, bf16, 7, 1, 80, 128);
        CHECK(bf16, bf16, 3, 3, 96, 40);
        CHECK(bf16, bf16, 8, 2, 128, 64);
        CHECK(bf16, bf16, 24, 1, 128, 16);
        CHECK(bf16, bf16, 8, 1, 256, 16, 0, 30);
        CHECK(half, half, 2, 2, 16, 128, 5);
        CHECK(half, half, 3, 1, 24, 32, 0, 10);
        CHECK(half, half, 8, 1, 40, 8);
        CHECK(half, half, 12, 4, 64, 16);
        CHECK(half, half, 14, 2, 80, 8, 300);
        CHECK(half, half, 8, 8, 96, 16);
        CHECK(half, half, 16, 1, 128, 256);
        CHECK(half, half, 3, 1, 256, 64);
        CHECK(bf16, bf16, 4, 2, 64, 16, 98); // windows of several tiles of keys, whose edge cuts a tile
        CHECK(half, half, 4, 1, 64, 8, 105);
        CHECK(bf16, bf16, 4, 2, 128, 16, 112);
        CHECK(half, half, 2, 2, 64, 16, 600);
        CHECK(float, float, 2, 1, 32, 8, 105);
        CHECK(float, bf16, 8, 2, 64, 16);
        CHECK(bf16, half, 8, 2, 128, 16);
        CHECK_BY(2, bf16, bf16, 32, 8, 64, 16);
        CHECK_BY(2, bf16, bf16, 14, 2, 64, 16, 257);
        CHECK_BY(2, half, half, 12, 12, 64, 24);
        CHECK_BY(2, half, half, 14, 2, 40, 8, 0, 20);
        CHECK_BY(2, bf16, bf16, 8, 1, 32, 64);
        CHECK_BY(1, bf16, bf16, 32, 8, 64, 16);
        CHECK_BY(1, half, half, 14, 2, 40, 8, 300);
        CHECK_NORMED(128, bf16, bf16, 32, 4, 128, 16);
        CHECK_NORMED(64, bf16, bf16, 16, 8, 128, 16);
        CHECK_NORMED(64, half, half, 14, 2, 64, 24, 257);
        CHECK_NORMED(0, bf16, bf16, 32, 2, 96, 8);
        CHECK_NORMED(24, half, half, 3, 1, 24, 16, 0, 20);
        CHECK_NORMED(256, bf16, bf16, 8, 4, 256, 16, 512);
        printf(wrong ? "%d wrong\n" : "ok\n", wrong);
    } else {
        using Small = Facts<bf16, bf16, 32, 8, 64, 16, 0, 0, 64, 4096>;
        using Large = Facts<bf16, bf16, 32, 8, 128, 16, 0, 0, 64, 4096>;
        using Wide = Facts<bf16, bf16, 32, 8, 128, 64, 0, 0, 64, 4096>;
        using Long = Facts<bf16, bf16, 32, 8, 128, 16, 0, 0, 64, 131072>;
        for (int length : {128, 512, 2048, 4096}) {
            time_decode<Small>("1B", 1, length, 64);
            time_decode<Large>("8B", 1, length, 64);
        }
        time_decode<Small>("1B", 8, 128, 64);
        time_decode<Small>("1B", 64, 128, 16);
        time_decode<Small>("1B", 64, 2048, 8);
        time_decode<Large>("8B", 8, 128, 64);
        time_decode<Large>("8B", 64, 128, 16);
        time_decode<Large>("8B", 64, 2048, 4);
        time_decode<Wide>("8B pages of 64", 64, 2048, 4);
        time_decode<Long>("8B", 1, 131072, 2);
        time_prefill<Wide>("8B pages of 64", 1, 2048);
        time_prefill<Facts<float, float, 32, 8, 64, 16, 0, 0, 64, 4096>>("1B fp32", 1, 2048);
    }
    return wrong != 0;
}
