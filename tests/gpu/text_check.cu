// text_check.cu - attend_hopper (both variants) and attend_packed on a GPU against plain loops in double; with `time` the
// times of the shapes of docs/performance.md.
//
//     nvcc -O2 -std=c++17 -Ikernels -gencode arch=compute_90a,code=sm_90a -cudart static \
//          -o text_check tests/gpu/text_check.cu -ldl
//
// Texts of odd lengths follow one another; rows after the last one are NaN. In a second run each second text is NaN too,
// and the others must keep their bits.
#include <cuda.h>
#include <dlfcn.h>

#include "attend_hopper.cuh"
#include "attend_packed.cuh"
#include "check.h"
#include "regions.h"

enum { SEQUENCES_MAX = 200, POSITIONS = 1024 };
template <int ROT_ = 0, bool CAUSAL_ = false, int WINDOW_ = 0, int SPAN_ = 0, bool SLOPES_ = false, int CAP = 0> struct Change {
    static constexpr int SPLIT = 1, ROT = ROT_, WINDOW = WINDOW_, SPAN = SPAN_;
    static constexpr bool CAUSAL = CAUSAL_, SLOPES = SLOPES_;
    static constexpr float SOFTCAP = CAP;
};
struct Plain : Change<> {
    static constexpr int SPLIT = 0;
};
template <class X, int HEADS_, int KV_HEADS_, int E_, class M = Plain> struct Facts : M {
    using T = X;
    using KV = X;
    static constexpr int HEADS = HEADS_, KV_HEADS = KV_HEADS_, E = E_, SEQUENCES = SEQUENCES_MAX;
    static constexpr float SCALE = 0.125f;
    static constexpr int N = (HEADS + 2 * KV_HEADS) * E;
};
// The constants that the contracts choose.
template <class F, int BLOCKS_ = (F::E > 64 ? 2 : 5), int STAGES_ = 2> struct Hopper : TextRegions<F, STAGES_> {
    static constexpr int BLOCKS = BLOCKS_;
};
template <class F> struct Tiles : F {
    static constexpr int ROWS = 64, KEYS = 64, BLOCKS = 4;
};
template <class F> struct Packed : FlashRegions<Tiles<F>> {
};
template <class C> __global__ void __launch_bounds__(128, C::BLOCKS) hopper_kernel(const AttendHopperArgs a) { attend_hopper<C>(a); }
template <class C> __global__ void __launch_bounds__(128, C::BLOCKS) split_kernel(const AttendSplitArgs a) { attend_hopper<C>(a); }
template <class C> __global__ void __launch_bounds__(128, C::BLOCKS) packed_kernel(const __grid_constant__ AttendPackedArgs a) { attend_packed<C>(a); }

// Texts on the GPU, and what is computed from them.
template <class F> struct Texts {
    using T = typename F::T;
    std::vector<FtxRow> row;
    int tokens = 0, room;
    Device<T> x, y;
    Device<FtxRow> rows;
    Device<FtxStep> step;
    Device<CUtensorMap> map; // of x; of its queries, keys and values
    std::vector<float> turn, bias, slope; // body/scored.cuh
    Device<float> table, biases, slopes;

    static int total(const std::vector<int> &length)
    {
        int sum = 0;
        for (int n : length)
            sum += n;
        return sum;
    }
    explicit Texts(const std::vector<int> &length)
        : row(length.size()), room(total(length) + 77), x((size_t)room * F::N), y((size_t)room * F::HEADS * F::E), rows(SEQUENCES_MAX), step(1), map(4), turn((size_t)POSITIONS * F::ROT), bias((size_t)F::HEADS * F::SPAN), slope(F::HEADS),
          table(turn.size() + 1), biases(bias.size() + 1), slopes(slope.size())
    {
        Random rnd{7};
        const int half_ = std::max(1, F::ROT / 2); // pairs of a row of the table
        for (int i = 0; i < POSITIONS * F::ROT / 2; i++) {
            const double angle = i / half_ * pow(100.0, -(double)(i % half_) / half_);
            turn[2 * i] = (float)cos(angle);
            turn[2 * i + 1] = (float)sin(angle);
        }
        for (float &b : bias)
            b = rnd.normal();
        for (float &b : slope)
            b = 0.1f * rnd.uniform();
        table.put(turn);
        biases.put(bias);
        slopes.put(slope);
        for (size_t i = 0; i < length.size(); i++) {
            row[i] = {};
            row[i].q_start = tokens;
            row[i].q_len = row[i].kv_len = length[i];
            tokens += length[i];
        }
        std::vector<FtxRow> all = row;
        FtxRow wrong = {};
        wrong.q_start = wrong.q_len = wrong.kv_len = 1 << 29;
        all.resize(SEQUENCES_MAX, wrong);
        rows.put(all);
        FtxStep s = {};
        s.tokens = tokens;
        s.rows = (int)length.size();
        step.put({s});
        y.fill(0xff);
    }
    void tile()
    {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        const auto encode = (decltype(&cuTensorMapEncodeTiled))dlsym(driver, "cuTensorMapEncodeTiled");
        const int from[] = {0, 0, F::HEADS * F::E, (F::HEADS + F::KV_HEADS) * F::E, F::N};
        std::vector<CUtensorMap> m(4);
        for (int i = 0; i < 4; i++) {
            const cuuint64_t size[] = {(cuuint64_t)(i ? from[i + 1] - from[i] : F::N), (cuuint64_t)room}, stride[] = {2 * (cuuint64_t)F::N};
            const cuuint32_t tile[] = {64, 64}, every[] = {1, 1};
            if (encode(&m[i], CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, x.p + from[i], size, stride, tile, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
                printf("no map\n"), exit(1);
        }
        map.put(m);
    }
};

template <class C, class F> void run_hopper(Texts<F> &t, cudaStream_t s = 0)
{
    const auto map = [&](int i) { return (const TensorMap *)(t.map.p + i); };
    const dim3 grid(F::HEADS, ceil_div(t.tokens, 64) + (int)t.row.size());
    if constexpr (F::SPLIT)
        launch(split_kernel<C>, grid, 128, C::SHARED,
               AttendSplitArgs{map(1), map(2), map(3), t.table.p, t.biases.p, t.slopes.p, t.step.p, t.rows.p, t.y.p}, s);
    else
        launch(hopper_kernel<C>, grid, 128, C::SHARED, AttendHopperArgs{map(0), t.step.p, t.rows.p, t.y.p}, s);
}
template <class C, class F> void run_packed(Texts<F> &t, cudaStream_t s = 0)
{
    const AttendPackedArgs a = {t.x.p, t.step.p, t.rows.p, t.y.p};
    const int group = F::HEADS / F::KV_HEADS;
    launch(packed_kernel<C>, dim3(F::KV_HEADS, ceil_div(t.tokens * group, C::ROWS) + (int)t.row.size()), 128, C::SHARED, a, s);
}

template <class F> std::vector<typename F::T> draw(const Texts<F> &t, uint64_t seed)
{
    Random rnd{seed};
    std::vector<typename F::T> x((size_t)t.room * F::N);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = host_round<typename F::T>(rnd.normal() * 1.5f);
    memset(x.data() + (size_t)t.tokens * F::N, 0xff, (size_t)(t.room - t.tokens) * F::N * 2);
    return x;
}

// The queries and keys of a token, rotated and rounded as the kernel rounds them.
template <class F> void rotate(const Texts<F> &t, std::vector<typename F::T> &x)
{
    constexpr int HALF = F::ROT / 2; // 0: nothing is rotated
    for (const FtxRow &r : t.row)
        for (int i = 0; i < r.q_len; i++)
            for (int h = 0; h < F::HEADS + F::KV_HEADS; h++)
                for (int e = 0; e < HALF; e++) {
                    typename F::T *at = &x[(size_t)(r.q_start + i) * F::N + h * F::E + e];
                    const float *cs = &t.turn[((size_t)i * HALF + e) * 2], a = host_float(at[0]), b = host_float(at[HALF]);
                    at[0] = host_nearest<typename F::T>(fmaf(a, cs[0], -(b * cs[1])));
                    at[HALF] = host_nearest<typename F::T>(fmaf(a, cs[1], b * cs[0]));
                }
}

// A score with what changes it; minus infinity: query i does not see key j.
template <class F> double changed_score(const Texts<F> &t, double s, int h, int i, int j)
{
    const int away = j - i;
    if ((F::CAUSAL && away > 0) || (F::WINDOW && (F::CAUSAL ? -away >= F::WINDOW : abs(away) > F::WINDOW)))
        return -INFINITY;
    if constexpr (F::SOFTCAP > 0)
        s = F::SOFTCAP * tanh(s / F::SOFTCAP);
    if (F::SPAN)
        s += t.bias[(size_t)h * F::SPAN + std::max(0, std::min(F::SPAN - 1, away + F::SPAN / 2))];
    return F::SLOPES ? s + (double)t.slope[h] * away : s;
}

template <class C, class F> int check(const char *name, uint64_t seed)
{
    using T = typename F::T;
    constexpr int H = F::HEADS, G = F::KV_HEADS, E = F::E, N = F::N;
    std::vector<int> length = {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 257, 384, 383, 12, 70, 31, 32, 33, 15, 17, 320, 700};
    Random rnd{seed};
    for (int i = 0; i < 20; i++)
        length.push_back(1 + rnd.below(384));
    Texts<F> t(length);
    std::vector<T> x = draw(t, seed);
    t.x.put(x);
    t.tile();
    run_hopper<C>(t);
    CU(cudaDeviceSynchronize());
    const std::vector<T> y = t.y.get();
    const std::vector<T> drawn = x;
    rotate(t, x);
    std::vector<float> values(x.size());
    std::transform(x.begin(), x.end(), values.begin(), [](T v) { return host_float(v); });
    std::vector<double> error(t.row.size() * H), norm(t.row.size() * H);
    parallel((int)t.row.size() * H, [&](int job) {
        const FtxRow &r = t.row[job / H];
        const int h = job % H, g = h / (H / G);
        std::vector<double> s(r.q_len), o(E);
        auto at = [&](int token, int head) { return &values[(size_t)(r.q_start + token) * N + head * E]; };
        for (int i = 0; i < r.q_len; i++) {
            double top = -1e300, sum = 0;
            for (int j = 0; j < r.q_len; j++) {
                s[j] = 0;
                for (int e = 0; e < E; e++)
                    s[j] += (double)at(i, h)[e] * at(j, H + g)[e];
                s[j] = changed_score(t, s[j] * F::SCALE, h, i, j);
                top = std::max(top, s[j]);
            }
            std::fill(o.begin(), o.end(), 0.0);
            for (int j = 0; j < r.q_len; j++) {
                const double w = exp(s[j] - top);
                sum += w;
                for (int e = 0; e < E; e++)
                    o[e] += w * at(j, H + G + g)[e];
            }
            for (int e = 0; e < E; e++) {
                const double ref = o[e] / sum, d = host_float(y[((size_t)(r.q_start + i) * H + h) * E + e]) - ref;
                error[job] += d == d ? d * d : 1e9;
                norm[job] += ref * ref;
            }
        }
    });
    double worst = 0;
    for (size_t i = 0; i < error.size(); i++)
        worst = std::max(worst, sqrt(error[i] / norm[i]));
    x = drawn;
    // Each second text NaN, many times: the results of the others stay the same.
    for (size_t i = 0; i < t.row.size(); i += 2)
        memset(x.data() + (size_t)t.row[i].q_start * N, 0xff, (size_t)t.row[i].q_len * N * 2);
    t.x.put(x);
    size_t changed = 0;
    for (int k = 0; k < 20; k++) {
        t.y.fill(0xff);
        run_hopper<C>(t);
        const std::vector<T> z = t.y.get();
        for (size_t i = 0; i < t.row.size(); i++) {
            const size_t at = (size_t)t.row[i].q_start * H * E, n = (size_t)t.row[i].q_len * H * E;
            if (i % 2)
                changed += memcmp(&z[at], &y[at], n * 2) != 0;
        }
        for (size_t i = (size_t)t.tokens * H * E; i < z.size(); i++)
            changed += z[i].bits != 0xffff;
    }
    const double allowed = Same<T, half>::value ? 1e-3 : 8e-3;
    printf("%-56s of the norm %.1e, changed %zu%s\n", name, worst, changed, worst < allowed && !changed ? "" : " WRONG");
    return !(worst < allowed && !changed);
}
#define CHECK(X, H, G, E, ...) \
    wrong += check<Hopper<Facts<X, H, G, E, ##__VA_ARGS__>>, Facts<X, H, G, E, ##__VA_ARGS__>>(#X " " #H "/" #G " x " #E " " #__VA_ARGS__, seed)

template <class F> struct Timer {
    Texts<F> t;
    const char *name;
    double flops = 0;
    Timer(const char *n, const std::vector<int> &length) : t(length), name(n)
    {
        t.x.put(draw(t, 5));
        for (const FtxRow &r : t.row)
            flops += 4.0 * r.q_len * r.q_len * F::HEADS * F::E;
    }
    void say(const char *what, double us) { printf("%-28s %-24s %8.2f us %6.1f TFLOP/s\n", name, what, us, flops / us * 1e-6); }
};
template <class F> void time_both(const char *name, const std::vector<int> &length)
{
    Timer<F> s(name, length);
    s.say("attend_packed", time_graph(40, [&](int, cudaStream_t stream) { run_packed<Packed<F>>(s.t, stream); }));
    s.t.tile();
    s.say("attend_hopper", time_graph(40, [&](int, cudaStream_t stream) { run_hopper<Hopper<F>>(s.t, stream); }));
}

// `split`, with so many blocks an SM and tiles in flight.
template <class F, int BLOCKS, int STAGES> void time_one(Timer<F> &s)
{
    char what[40];
    snprintf(what, sizeof what, "split, %d blocks, %d tiles", BLOCKS, STAGES);
    s.say(what, time_graph(40, [&](int, cudaStream_t stream) { run_hopper<Hopper<F, BLOCKS, STAGES>>(s.t, stream); }));
}
template <class F> void time_split(const char *name, const std::vector<int> &length)
{
    Timer<F> s(name, length);
    s.t.tile();
    time_one<F, 5, 2>(s);
    time_one<F, 4, 2>(s);
    time_one<F, 5, 1>(s);
    time_one<F, 4, 3>(s);
}

// For a profiler: the two shapes that have targets.
static void profile(const std::vector<int> &ragged)
{
    Timer<Facts<half, 12, 12, 64>> base("", ragged);
    base.t.tile();
    run_hopper<Hopper<Facts<half, 12, 12, 64>>>(base.t);
    Timer<Facts<half, 16, 16, 64>> large("", std::vector<int>(128, 384));
    large.t.tile();
    run_hopper<Hopper<Facts<half, 16, 16, 64>>>(large.t);
    CU(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    int wrong = 0;
    std::vector<int> ragged;
    for (int i = 0; i < 32; i++)
        ragged.push_back(12 + 116 * i / 31);
    if (argc > 1 && !strcmp(argv[1], "profile"))
        return profile(ragged), 0;
    const uint64_t seed = argc > 1 && argv[1][0] < 'a' ? strtoull(argv[1], nullptr, 10) : 1;
    if (argc > 1 && !strcmp(argv[1], "time")) {
        using Base = Facts<half, 12, 12, 64>;
        using Large = Facts<half, 16, 16, 64>;
        time_both<Base>("base, 32, mean 70", ragged);
        time_both<Base>("base, 32 x 128", std::vector<int>(32, 128));
        time_both<Base>("base, 1 x 128", {128});
        time_both<Base>("base, 1 x 384", {384});
        time_both<Base>("base, 32 x 384", std::vector<int>(32, 384));
        time_both<Large>("large, 32, mean 70", ragged);
        time_both<Large>("large, 128 x 384", std::vector<int>(128, 384));
        time_both<Facts<half, 8, 8, 128>>("8 heads of 128, 32 x 384", std::vector<int>(32, 384));
        using Turned = Facts<bf16, 12, 12, 64, Change<64>>;
        using Near = Facts<bf16, 12, 12, 64, Change<64, false, 64>>;
        using Biased = Facts<bf16, 16, 16, 64, Change<0, false, 0, 257>>;
        using Apart = Facts<bf16, 12, 12, 64, Change<>>;
        time_split<Apart>("base, apart, 32 x 128", std::vector<int>(32, 128));
        time_split<Turned>("ModernBERT, 32 x 128", std::vector<int>(32, 128));
        time_split<Turned>("ModernBERT, 32, mean 70", ragged);
        time_split<Near>("ModernBERT, near, 32 x 128", std::vector<int>(32, 128));
        time_split<Near>("ModernBERT, near, mean 70", ragged);
        time_split<Near>("ModernBERT, near, 8 x 384", std::vector<int>(8, 384));
        time_split<Biased>("T5-large, 32 x 128", std::vector<int>(32, 128));
        time_split<Biased>("T5-large, 8 x 384", std::vector<int>(8, 384));
        return 0;
    }
    CHECK(half, 12, 12, 64);
    CHECK(half, 3, 3, 64);
    CHECK(half, 4, 2, 64);
    CHECK(half, 3, 1, 64);
    CHECK(bf16, 4, 4, 64);
    CHECK(bf16, 4, 1, 64);
    CHECK(half, 2, 2, 16);
    CHECK(half, 2, 1, 32);
    CHECK(bf16, 3, 3, 48);
    CHECK(half, 2, 2, 80);
    CHECK(bf16, 2, 2, 96);
    CHECK(half, 2, 2, 112);
    CHECK(half, 4, 2, 128);
    CHECK(bf16, 2, 1, 128);
    CHECK(bf16, 3, 3, 64, Change<64>);
    CHECK(half, 4, 2, 64, Change<64, false, 64>);
    CHECK(bf16, 2, 2, 64, Change<32, false, 20>);
    CHECK(bf16, 2, 2, 64, Change<0, false, 0, 257>);
    CHECK(half, 4, 4, 64, Change<0, false, 0, 65>);
    CHECK(half, 2, 1, 64, Change<0, false, 0, 9, true, 3>);
    CHECK(bf16, 2, 2, 48, Change<0, true, 0, 0, true>);
    CHECK(half, 2, 1, 16, Change<16, true>);
    CHECK(bf16, 2, 2, 32, Change<16, true, 70>);
    CHECK(bf16, 2, 1, 96, Change<96, false, 100, 0, false, 2>);
    CHECK(half, 2, 2, 80, Change<48, true, 1, 33>);
    CHECK(half, 2, 1, 112, Change<>);
    CHECK(bf16, 2, 1, 128, Change<128>);
    CHECK(half, 2, 2, 128, Change<128, true, 200, 257, true, 4>);
    printf(wrong ? "%d wrong\n" : "ok\n", wrong);
    return wrong != 0;
}
