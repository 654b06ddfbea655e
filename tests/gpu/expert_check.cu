// expert_check.cu - expert_hopper with expert_add, and expert_few, on a GPU against plain sums, for the experts of Qwen3-30B-A3B:
// 2,048 columns, 128 experts of 768, 8 a row. Choices are even, or some experts have many times the rows of others.
//
//     nvcc -O2 -std=c++17 -Ikernels -gencode arch=compute_90a,code=sm_90a -cudart static -o expert_check tests/gpu/expert_check.cu -ldl
//
// With the argument `time` also microseconds of each launch and of all of a layer.
#include <cuda.h>
#include <dlfcn.h>

#include "expert_add.cuh"
#include "expert_few.cuh"
#include "expert_hopper.cuh"
#include "route.cuh"
#include "check.h"

enum { EXPERTS = 128, CHOICES = 8, HIDDEN = 2048, FFN = 768, MOST = 2048 };

struct Sizes {
    using T = bf16;
    using OUT = bf16;
    static constexpr int X = EXPERTS, R = CHOICES, BIAS = 0;
};
template <int N_, int K_, int SUM_> struct Many : Sizes {
    static constexpr int N = N_, K = K_, SUM = SUM_, GLU = !SUM_, ACT = SUM_ ? 0 : 5;
    static constexpr int STAGES = 6, SLOT_BYTES = 288 * 128, RING_AT = 0, BARRIERS_AT = STAGES * SLOT_BYTES, COUNT_AT = BARRIERS_AT + 128;
    static constexpr int TILES_AT = COUNT_AT + 8, PAIRS_AT = TILES_AT + 12 * (EXPERTS + MOST * CHOICES / 160), WEIGHTS_AT = round_up(PAIRS_AT + 2560, 8);
    static constexpr int SHARED = WEIGHTS_AT + SUM * 2560;
};
template <int N_, int K_, int SUM_> struct Few : Sizes {
    static constexpr int N = N_, K = K_, SUM = SUM_, GLU = !SUM_, ACT = SUM_ ? 0 : 5, RES = SUM_, COLUMNS = 16, NORM = 0, HELD = 0, ROWS = 0, X_ROW_BYTES = 0;
    static constexpr float EPS = 0.0f;
    static constexpr int CHUNK = SUM ? 768 : 1024, ROW_BYTES = 2 * CHUNK, SLOTS = SUM ? 4 : 3, SLOT_BYTES = (16 + 16 * SUM) * ROW_BYTES;
    static constexpr int BARRIERS_AT = 0, COUNT_AT = 128, SUMS_AT = 136, TILES_AT = SUMS_AT + 8192, PAIRS_AT = TILES_AT + 12 * (EXPERTS + 32);
    static constexpr int WEIGHTS_AT = PAIRS_AT + SUM * 2048, TOTAL_AT = WEIGHTS_AT + SUM * 2048, SCALES_AT = TOTAL_AT + SUM * 4096;
    static constexpr int X_AT = round_up(SCALES_AT, 16), RING_AT = round_up(X_AT, 128), SHARED = RING_AT + SLOTS * SLOT_BYTES;
};
struct Add {
    using T = bf16;
    static constexpr int N = HIDDEN, R = CHOICES, RES = 1, ROWS_S = 0, THREADS = 256;
};
struct Router {
    static constexpr int N = EXPERTS, K = CHOICES, SIGMOID = 0, CHOSEN = 0, RENORM = 1, GROUPS = 1, KEPT = 1, BEST_TWO = 0, BIAS = 0;
    static constexpr int SORTED = 1, ROWS_S = 0, THREADS = 1024, STAGED = 1;
    static constexpr float SCALE = 1.0f;
};
template <class C> __global__ void __launch_bounds__(384, 1) many(const ExpertArgs a) { expert_hopper<C>(a); }
template <class C> __global__ void __launch_bounds__(288, C::SUM ? 1 : 2) few(const ExpertArgs a) { expert_few<C>(a); }
__global__ void __launch_bounds__(256) add(const ExpertAddArgs a) { expert_add<Add>(a); }
__global__ void __launch_bounds__(1024) route_rows(const RouteArgs a) { route<Router>(a); }

static __device__ unsigned scramble(size_t i, unsigned seed)
{
    unsigned h = (unsigned)i * 2654435761u + seed;
    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    return h ^ h >> 16;
}
static __global__ void fill(bf16 *p, size_t n, unsigned seed, float by)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        p[i] = from_float<bf16>(((scramble(i, seed) & 0xffff) / 32768.0f - 1.0f) * by);
}
static __device__ float dot(const bf16 *x, const bf16 *w, int K) // by a warp
{
    float s = 0;
    for (int k = lane_id(); k < K; k += 32)
        s = fmaf(to_float(x[k]), to_float(w[k]), s);
    return warp_sum(s);
}
static __device__ void note(float error, float *worst)
{
    if (lane_id() == 0)
        atomicMax((int *)worst, __float_as_int(error < 1e30f ? error : 1e30f)); // NaN, too
}
// Every `step`-th output of gate and up, [pairs, FFN]; of the sum with its residual, [M, HIDDEN].
static __global__ void check_up(const bf16 *x, const bf16 *w, const int *routes, const bf16 *y, int M, int step, float *worst)
{
    const i64 i = (i64)(blockIdx.x * 8 + warp_id()) * step;
    const int pair = (int)(i / FFN), n = (int)(i % FFN), m = pair / CHOICES;
    if (pair >= M * CHOICES)
        return;
    const bf16 *rows = w + ((i64)routes[m * 2 * CHOICES + pair % CHOICES] * 2 * FFN + 2 * n) * HIDDEN;
    const float gate = dot(x + (i64)m * HIDDEN, rows, HIDDEN), up = dot(x + (i64)m * HIDDEN, rows + HIDDEN, HIDDEN);
    const float want = gate / (1 + expf(-gate)) * up;
    note(fabsf(want - to_float(y[i])) / (fabsf(want) + 0.05f), worst);
}
static __global__ void check_down(const bf16 *x, const bf16 *w, const int *routes, const bf16 *r, const bf16 *y, int M, int step, float *worst)
{
    const i64 i = (i64)(blockIdx.x * 8 + warp_id()) * step;
    const int m = (int)(i / HIDDEN), n = (int)(i % HIDDEN);
    if (m >= M)
        return;
    float want = to_float(r[i]), size = fabsf(want);
    for (int k = 0; k < CHOICES; k++) {
        const int *route = routes + m * 2 * CHOICES + k;
        const float part = __int_as_float(route[CHOICES]) * dot(x + ((i64)m * CHOICES + k) * FFN, w + ((i64)route[0] * HIDDEN + n) * FFN, FFN);
        want += part;
        size += fabsf(part);
    }
    note(fabsf(want - to_float(y[i])) / (size + 0.05f), worst);
}

static CUtensorMap tiled(const bf16 *matrix, size_t rows, int columns)
{
    const auto encode = (decltype(&cuTensorMapEncodeTiled))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuTensorMapEncodeTiled");
    CUtensorMap m;
    const cuuint64_t size[] = {(cuuint64_t)columns, rows}, stride[] = {2 * (cuuint64_t)columns};
    const cuuint32_t tile[] = {64, 128}, every[] = {1, 1};
    CU((cudaError_t)encode(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)matrix, size, stride, tile, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return m;
}

typedef std::function<void(cudaStream_t)> Launch;
typedef std::vector<Launch> Launches;

struct Check {
    Device<bf16> x{(size_t)MOST * HIDDEN}, r{(size_t)MOST * HIDDEN}, h{(size_t)MOST * CHOICES * FFN}, parts{(size_t)MOST * CHOICES * HIDDEN};
    Device<bf16> y{(size_t)MOST * HIDDEN}, up{(size_t)EXPERTS * 2 * FFN * HIDDEN}, down{(size_t)EXPERTS * HIDDEN * FFN};
    Device<float> logits{(size_t)MOST * EXPERTS}, worst{1};
    Device<int> routes{MOST * 2 * CHOICES}, starts{EXPERTS + 1}, rows{MOST * CHOICES};
    Device<u32> counts{EXPERTS + 1};
    Device<FtxStep> step{1};
    Device<CUtensorMap> maps{2};
    int M = 0, wrong = 0;
    bool timed;

    Check(bool timed_) : timed(timed_)
    {
        fill<<<1024, 256>>>(x.p, x.n, 1, 1.7f);
        fill<<<1024, 256>>>(r.p, r.n, 2, 1.0f);
        fill<<<1024, 256>>>(up.p, up.n, 3, 0.04f);
        fill<<<1024, 256>>>(down.p, down.n, 4, 0.06f);
        maps.put({tiled(up.p, (size_t)EXPERTS * 2 * FFN, HIDDEN), tiled(down.p, (size_t)EXPERTS * HIDDEN, FFN)});
        counts.fill(0);
        worst.fill(0);
    }
    Launch router()
    {
        return [this](cudaStream_t s) {
            launch(route_rows, dim3(std::min(132, (M + 31) / 32)), 1024, 4 * M * CHOICES, RouteArgs{logits.p, nullptr, step.p, routes.p, starts.p, rows.p, counts.p}, s);
        };
    }
    ExpertArgs args(const bf16 *from, const void *w, bf16 *to) { return {from, routes.p, starts.p, rows.p, w, nullptr, r.p, to}; }
    template <class C> Launch of_many(const bf16 *from, int map, bf16 *to)
    {
        return [=](cudaStream_t s) { launch(many<C>, dim3(132), 384, C::SHARED, args(from, maps.p + map, to), s); };
    }
    template <class C> Launch of_few(const bf16 *from, const bf16 *w, bf16 *to)
    {
        return [=](cudaStream_t s) { launch(few<C>, dim3(C::SUM ? C::N / 16 : 264), 288, C::SHARED, args(from, w, to), s); };
    }
    Launch sums()
    {
        return [this](cudaStream_t s) { launch(add, dim3(M), 256, 0, ExpertAddArgs{parts.p, r.p, step.p, y.p}, s); };
    }
    // Rows of random logits; uneven: the experts' logits differ, so that some are chosen far more often.
    void choose(int rows_now, bool uneven)
    {
        Random rnd{(uint64_t)rows_now * 2 + uneven};
        std::vector<float> l((size_t)rows_now * EXPERTS), of(EXPERTS);
        FtxStep now = {};
        M = rows_now;
        now.tokens = now.rows = M;
        step.put({now});
        for (float &v : of)
            v = uneven ? rnd.normal() : 0;
        for (size_t i = 0; i < l.size(); i++)
            l[i] = of[i % EXPERTS] + rnd.normal();
        CU(cudaMemcpy(logits.p, l.data(), l.size() * 4, cudaMemcpyHostToDevice));
        router()(0);
        CU(cudaDeviceSynchronize());
    }
    // rows has each pair once, with the expert that its row chose.
    void check_sorted()
    {
        const std::vector<int> e = routes.get(), at = starts.get(), list = rows.get();
        std::vector<bool> seen(M * CHOICES);
        bool good = at[0] == 0 && at[EXPERTS] == M * CHOICES;
        for (int i = 0, of = 0; i < M * CHOICES && good; i++) {
            while (of < EXPERTS && at[of + 1] <= i)
                of++;
            const int p = list[i];
            good = p >= 0 && p < M * CHOICES && !seen[p] && e[p / CHOICES * 2 * CHOICES + p % CHOICES] == of;
            if (good)
                seen[p] = true;
        }
        say("route", {router()}, good ? 0 : 1e30f, 0);
    }
    void say(const char *what, const Launches &all, float error, float bound)
    {
        wrong += !(error <= bound);
        printf("%4d rows %-20s error %.1e%s", M, what, error, error <= bound ? "" : " WRONG");
        if (timed)
            printf(" %7.1f us", time_graph(10, [&](int, cudaStream_t s) {
                       for (const Launch &l : all)
                           l(s);
                   }));
        puts("");
    }
    float worst_now()
    {
        const float e = worst.get()[0];
        worst.fill(0);
        return e;
    }
    void gate_and_up(const char *what, const Launch &l)
    {
        const int step_of = M / 128 | 1; // odd, so that all columns are met
        h.fill(0xff);
        l(0);
        check_up<<<(unsigned)((i64)M * CHOICES * FFN / step_of / 8 + 1), 256>>>(x.p, up.p, routes.p, h.p, M, step_of, worst.p);
        say(what, {l}, worst_now(), 1e-2f);
    }
    void down_and_sum(const char *what, const Launches &all)
    {
        const int step_of = M / 512 | 1;
        y.fill(0xff);
        parts.fill(0xff);
        for (const Launch &l : all)
            l(0);
        check_down<<<(unsigned)((i64)M * HIDDEN / step_of / 8 + 1), 256>>>(h.p, down.p, routes.p, r.p, y.p, M, step_of, worst.p);
        say(what, all, worst_now(), 1e-2f);
    }
    void run(int rows_now, bool uneven)
    {
        typedef Many<2 * FFN, HIDDEN, 0> ManyUp;
        typedef Many<HIDDEN, FFN, 1> ManyDown;
        typedef Few<2 * FFN, HIDDEN, 0> FewUp;
        typedef Few<HIDDEN, FFN, 1> FewDown;
        const Launch many_up = of_many<ManyUp>(x.p, 0, h.p), many_down = of_many<ManyDown>(h.p, 1, parts.p);
        printf("%s choices\n", uneven ? "uneven" : "even");
        choose(rows_now, uneven);
        check_sorted();
        gate_and_up("gate and up", many_up);
        down_and_sum("down, sums", {many_down, sums()});
        if (timed)
            say("all of a layer", {router(), many_up, many_down, sums()}, 0, 0);
        if (M > 64)
            return;
        gate_and_up("gate and up, few", of_few<FewUp>(x.p, up.p, h.p));
        down_and_sum("down, few", {of_few<FewDown>(h.p, down.p, y.p)});
        if (timed)
            say("a layer, down by few", {router(), many_up, of_few<FewDown>(h.p, down.p, y.p)}, 0, 0);
    }
};

int main(int argc, char **argv)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    Check c(argc > 1 && strcmp(argv[1], "time") == 0);
    for (int rows : {2048, 1999, 512, 128, 64, 16, 1})
        for (bool uneven : {false, true})
            c.run(rows, uneven);
    puts(c.wrong ? "WRONG" : "ok");
    return c.wrong != 0;
}
