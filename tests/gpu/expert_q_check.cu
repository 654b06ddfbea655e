// expert_q_check.cu - expert_q and expert_q_hopper on a GPU against loops in double: types of codes, groups, norm, gate and sum, rows of
// 1 to 64 and of prompts; then us of a layer's two launches in a CUDA graph with programmatic dependent launch, shapes of Qwen3-30B-A3B.
//
//     nvcc -O2 -std=c++17 -Ikernels -gencode arch=compute_90a,code=sm_90a -cudart static -o expert_q_check tests/gpu/expert_q_check.cu
//     ./expert_q_check [check|time]
//
// Weights come from a pool of layers, so that they are read from memory as in a model.
#include "expert_add.cuh"
#include "expert_q.cuh"
#include "expert_q_hopper.cuh"
#include "body/e4m3.cuh"
#include "check.h"

enum { INT4, INT8, FP8_CODES };

// TYPE of the codes; MAX: rows of the program; SUM: expert_sum with a residual, else a gate, with a norm before it if NORM.
template <class X_, int TYPE_, int GROUP_, int SCALES_, int X__, int R_, int N_, int K_, int MAX_, int SUM_, int NORM_, int BLOCK_M_,
          int CHAINS_, int STAGES_ = 0, int BLOCKS_ = 0, int BRICK_K_ = 128>
struct Facts {
    using T = X_;
    using OUT = X_;
    static constexpr int TYPE = TYPE_, GROUP = GROUP_, SCALES = SCALES_, X = X__, R = R_, N = N_, K = K_, MAX = MAX_, SUM = SUM_, NORM = NORM_;
    static constexpr int BITS = TYPE == INT4 ? 4 : 8, BIAS = 1, ACT = SUM ? 0 : 5, GLU = !SUM, RES = SUM, COLUMNS = 16, THREADS = 256;
    static constexpr float EPS = 1e-6f;
    static constexpr int BLOCK_M = BLOCK_M_, M = BLOCK_M, CHAINS = CHAINS_, BRICK_K = BRICK_K_, PAIRS_MAX = MAX * R;
    static constexpr int BRICKS = ceil_div(K, BRICK_K), X_ROW_BYTES = BRICKS * BRICK_K * 2 + 16;
    static constexpr int SLOT_BYTES = BRICK_K * 2 * BITS + 16 * BRICK_K / GROUP * (SCALES == 0 ? 2 : SCALES == 1 ? 3 : SCALES == 2 ? 4 : 8);
    static constexpr int STAGES = STAGES_ ? STAGES_ : 1 + ceil_div(32768, 8 * SLOT_BYTES);
    static constexpr int COUNT_AT = 0, TILES_AT = 16, PAIRS_AT = TILES_AT + round_up(12 * (least(PAIRS_MAX, X) + PAIRS_MAX / BLOCK_M), 16);
    static constexpr int WEIGHTS_AT = PAIRS_AT + round_up(PAIRS_MAX * 4, 16), SCALES_OF_AT = WEIGHTS_AT + 128, SQUARES_AT = SCALES_OF_AT + 128;
    static constexpr int X_SUMS_AT = SQUARES_AT + round_up(BLOCK_M * ceil_div(K, 256) * 4, 16);
    static constexpr int X_AT = X_SUMS_AT + round_up(BRICKS * (BRICK_K / GROUP) * BLOCK_M * 4, 16), SUMS_AT = X_AT + BLOCK_M * X_ROW_BYTES;
    static constexpr int RING_AT = round_up(SUMS_AT + 2 * 8 * BLOCK_M * 80, 128), SHARED = RING_AT + 8 * STAGES * SLOT_BYTES;
    static constexpr int BLOCKS_PER_SM = BLOCKS_ ? BLOCKS_ : SHARED <= 115712 ? 2 : 1, BYTES = 233472 / BLOCKS_PER_SM / 128 * 128 - 1024;
    static_assert(SHARED <= BYTES, "");
    static constexpr i64 TILE = Codes<E4m3Codes<Facts>>::TILE, WEIGHT = (i64)X * N / 16 * TILE;
};
// The same for expert_q_hopper; SUM: the parts of expert_sum, which expert_add adds.
template <class X_, int TYPE_, int GROUP_, int SCALES_, int X__, int R_, int N_, int K_, int MAX_, int SUM_, int BRICK_K_ = 128, int AHEAD_ = 4>
struct Many {
    using T = X_;
    using OUT = X_;
    static constexpr int TYPE = TYPE_, GROUP = GROUP_, SCALES = SCALES_, X = X__, R = R_, N = N_, K = K_, MAX = MAX_, SUM = SUM_, NORM = 0;
    static constexpr int BITS = TYPE == INT4 ? 4 : 8, BIAS = 1, ACT = SUM ? 0 : 5, GLU = !SUM, BRICK_K = BRICK_K_, BLOCK_M = 8, M = 8;
    static constexpr float EPS = 0;
    static constexpr int AHEAD = AHEAD_, SLOT_BYTES = 288 * 128, BRICK_BYTES = BRICK_K * 2 * BITS + 16 * BRICK_K / GROUP * (SCALES == 0 ? 2 : SCALES == 1 ? 3 : SCALES == 2 ? 4 : 8);
    static constexpr int TILES = 12 * (least(MAX * R, X) + MAX * R / 160), BESIDE = 8 * AHEAD * BRICK_BYTES + 1000 + TILES + 640 * 4 + SUM * 640 * 4;
    static constexpr int STAGES = least(6, (232448 - BESIDE) / SLOT_BYTES), RING_AT = 0, CODES_AT = STAGES * SLOT_BYTES;
    static constexpr int BARRIERS_AT = CODES_AT + 8 * AHEAD * BRICK_BYTES, COUNT_AT = BARRIERS_AT + 96 + 64 * AHEAD, TILES_AT = COUNT_AT + 8;
    static constexpr int PAIRS_AT = TILES_AT + TILES, WEIGHTS_AT = round_up(PAIRS_AT + 640 * 4, 8), SHARED = STAGES * SLOT_BYTES + BESIDE;
    static constexpr i64 TILE = Codes<E4m3Codes<Many>>::TILE, WEIGHT = (i64)X * N / 16 * TILE;
};
template <class C> struct Add {
    using T = typename C::T;
    static constexpr int N = C::N, R = C::R, RES = 1, ROWS_S = 0, THREADS = 256;
};
template <class F> struct Floats : F {}; // codes of fp8
template <class F> struct Brick<Floats<F>> : E4m3Brick<Floats<F>> {};
template <class F> struct Codes<Floats<F>> : E4m3Fragments<Floats<F>> {};

template <class C> __global__ void __launch_bounds__(256, C::BLOCKS_PER_SM) linear_kernel(const ExpertArgs a) { expert_q<C>(a); }
template <class C> __global__ void __launch_bounds__(256, C::BLOCKS_PER_SM) sum_kernel(const ExpertSumArgs a) { expert_q<C>(a); }
template <class C> __global__ void __launch_bounds__(512, 1) many_kernel(const ExpertArgs a) { expert_q_hopper<C>(a); }
template <class C> __global__ void __launch_bounds__(256) add_kernel(const ExpertAddArgs a) { expert_add<C>(a); }

template <class C, class = void> struct IsMany { static constexpr bool IS = false; };
template <class C> struct IsMany<C, decltype((void)C::AHEAD)> { static constexpr bool IS = true; };

// M: rows of the step. Parts of expert_q_hopper are of 16 bits, in the same place.
template <class C> void run(const ExpertSumArgs &a, const FtxStep *step, int M, cudaStream_t s = 0)
{
    if constexpr (IsMany<C>::IS) {
        ExpertArgs now = a;
        if (C::SUM)
            now.y = a.parts;
        launch(many_kernel<C>, dim3(multiprocessors()), 512, C::SHARED, now, s);
        if (C::SUM)
            launch(add_kernel<Add<C>>, dim3((M * C::N / 8 + 255) / 256), 256, 0, ExpertAddArgs{a.parts, a.r, step, a.y}, s);
    } else if constexpr (C::SUM)
        launch(sum_kernel<C>, dim3(C::BLOCKS_PER_SM * multiprocessors()), 256, C::BYTES, a, s);
    else
        launch(linear_kernel<C>, dim3(C::BLOCKS_PER_SM * multiprocessors()), 256, C::BYTES, (ExpertArgs)a, s);
}

// Where code [r,k] of a tile stands (compiler/ir/forms.def): its byte, and the bits below it.
static int64_t place(bool four, int64_t K, int64_t r, int64_t k, int *shift)
{
    const int64_t span = four ? 64 : 32, block = k / span, words = (K - block * span < span ? K % span : span) / 16;
    const int64_t lane = 4 * (r % 8) + k % 8 / 2, number = r / 8 + 2 * (k % 16 / 8), odd = k % 2;
    *shift = four ? (int)(4 * number + 16 * odd) % 8 : 0;
    return four ? block * 512 + (lane * words + k % span / 16) * 4 + (4 * number + 16 * odd) / 8
                : block * 512 + ((lane * words + k % span / 16) * 2 + number / 2) * 4 + number % 2 + 2 * odd;
}

struct Routes { // of M rows
    std::vector<int> routes, starts, rows;
};
static Routes choose(int M, int X, int R, Random &rnd, bool skewed)
{
    Routes r = {std::vector<int>((size_t)M * 2 * R), std::vector<int>((size_t)X + 1), {}};
    std::vector<std::vector<int>> of(X);
    for (int m = 0; m < M; m++)
        for (int i = 0; i < R; i++) {
            int e;
            bool again;
            do {
                e = skewed && rnd.below(2) ? rnd.below(std::min(X, R + 2)) : rnd.below(X);
                again = false;
                for (int j = 0; j < i; j++)
                    again |= r.routes[(size_t)m * 2 * R + j] == e;
            } while (again);
            const float weight = rnd.uniform();
            r.routes[(size_t)m * 2 * R + i] = e;
            memcpy(&r.routes[(size_t)m * 2 * R + R + i], &weight, 4);
            of[e].push_back(m * R + i);
        }
    for (int e = 0; e < X; e++) {
        r.starts[e + 1] = r.starts[e] + (int)of[e].size();
        r.rows.insert(r.rows.end(), of[e].begin(), of[e].end());
    }
    return r;
}

// y[pair, n] = x[pair,:] . w[n,:] * (NORM: the row's scale) + b[n] of a pair's expert, by loops in double; a warp for each number.
template <class C> __global__ void products(const typename C::T *x, const float *w, const float *b, const float *g, const int *routes, float *y)
{
    const int pair = blockIdx.y, n = blockIdx.x * 8 + warp_id(), m = pair / C::R, e = routes[m * 2 * C::R + pair % C::R];
    const typename C::T *in = x + (i64)(C::SUM ? pair : m) * C::K;
    double s = 0, squares = 0;
    for (int k = lane_id(); k < C::K && n < C::N; k += 32) {
        const double v = to_float(in[k]);
        squares += v * v;
        s += v * (C::NORM ? g[k] : 1.0f) * w[((i64)e * C::N + n) * C::K + k];
    }
    for (int i = 16; i; i /= 2) {
        s += __shfl_xor_sync(~0u, s, i);
        squares += __shfl_xor_sync(~0u, squares, i);
    }
    if (n < C::N && lane_id() == 0)
        y[(i64)pair * C::N + n] = (float)(s * (C::NORM ? rsqrt(squares / C::K + (double)C::EPS) : 1.0) + b[e * C::N + n]);
}

template <class C> int check(int M, uint64_t seed, bool skewed)
{
    typedef typename C::T T;
    Random rnd{seed};
    const int X = C::X, N = C::N, K = C::K, R = C::R;
    const Routes routes = choose(M, X, R, rnd, skewed);
    std::vector<unsigned char> w((size_t)C::WEIGHT);
    std::vector<float> values((size_t)X * N * K), b((size_t)X * N), g(K);
    parallel(X * N / 16, [&](int64_t of) { // the rows of a tile
        Random rnd{seed << 32 | (uint64_t)of};
        for (int64_t n = of * 16; n < of * 16 + 16; n++) {
            float scale = 0, zero = 0;
            unsigned char *tile = &w[n / 16 * C::TILE];
            for (int64_t k = 0; k < K; k++) {
                const int at = (int)(k / C::GROUP * 16 + n % 16), any = rnd.below(C::BITS == 4 ? 16 : 256), code = C::TYPE == FP8_CODES && any % 128 == 127 ? any - 1 : any;
                int shift;
                if (k % C::GROUP == 0) {
                    unsigned char *scales = tile + K * 2 * C::BITS, *zeros = scales + K / C::GROUP * 16 * (C::SCALES >= 2 ? 4 : 2);
                    const half h = host_round<half>((rnd.uniform() + 0.3f) / sqrtf((float)K) / (C::TYPE == FP8_CODES ? 187.0f : C::TYPE == INT8 ? 74.0f : 4.6f));
                    const unsigned char z = (unsigned char)(C::SCALES == 1 ? rnd.below(C::BITS == 4 ? 16 : 256) : C::BITS == 4 ? 8 : 128);
                    scale = host_float(h) * (C::SCALES >= 2 ? 1.0001f : 1.0f);
                    zero = C::SCALES == 3 ? scale * 7.3f : (float)z;
                    memcpy(scales + at * (C::SCALES >= 2 ? 4 : 2), C::SCALES >= 2 ? (const void *)&scale : &h, C::SCALES >= 2 ? 4 : 2);
                    if (C::SCALES == 1)
                        zeros[at] = z;
                    if (C::SCALES == 3)
                        memcpy(zeros + at * 4, &zero, 4);
                }
                unsigned char *to = tile + place(C::BITS == 4, K, n % 16, k, &shift);
                *to = (unsigned char)(*to | code << shift);
                const int e = code >> 3 & 15, f = code & 7;
                const float number = (code & 128 ? -1.0f : 1.0f) * (e ? ldexpf(1 + f / 8.0f, e - 7) : ldexpf(f / 8.0f, -6));
                values[n * K + k] = C::TYPE == FP8_CODES ? scale * number : C::SCALES == 3 ? scale * code - zero : scale * (code - zero);
            }
        }
    });
    const int rows_of_x = C::SUM ? C::MAX * R : C::MAX, width = C::SUM ? N : R * N / 2;
    std::vector<T> x((size_t)rows_of_x * K), r((size_t)C::MAX * N);
    for (T &v : x)
        v = host_round<T>(rnd.normal());
    for (T &v : r)
        v = host_round<T>(rnd.normal());
    for (float &v : b)
        v = rnd.normal() * 0.2f;
    for (float &v : g)
        v = host_float(host_round<T>(1 + 0.3f * rnd.normal()));
    std::vector<int> all(C::MAX * R, -1), ways((size_t)C::MAX * 2 * R, -1);
    std::copy(routes.rows.begin(), routes.rows.end(), all.begin());
    std::copy(routes.routes.begin(), routes.routes.end(), ways.begin());
    Device<unsigned char> dw(w);
    Device<T> dx(x), dr(r), dy((size_t)C::MAX * width);
    Device<float> db(b), dg(g), parts((size_t)C::MAX * R * N);
    Device<int> droutes(ways), dstarts(routes.starts), drows(all);
    Device<u32> arrived((size_t)C::MAX * N / 16);
    ExpertSumArgs a = {};
    a.x = dx.p;
    a.routes = droutes.p;
    a.starts = dstarts.p;
    a.rows = drows.p;
    a.w = dw.p;
    a.b = db.p;
    a.r = C::SUM ? (const void *)dr.p : dg.p;
    a.y = dy.p;
    a.parts = parts.p;
    a.arrived = arrived.p;
    arrived.fill(0);
    FtxStep now_step = {};
    now_step.tokens = now_step.rows = M;
    const Device<FtxStep> step(std::vector<FtxStep>{now_step});
    std::vector<T> y;
    bool same = true;
    for (int i = 0; i < 4; i++) {
        dy.fill(0xff);
        run<C>(a, step.p, M);
        run<C>(a, step.p, M);
        CU(cudaDeviceSynchronize());
        const std::vector<T> now = dy.get();
        same = same && (i == 0 || memcmp(now.data(), y.data(), y.size() * sizeof(T)) == 0);
        y = now;
    }
    for (u32 v : arrived.get())
        same = same && v == 0;
    std::vector<double> errors(M), norms(M);
    const Device<float> dvalues(values), dproducts((size_t)M * R * N);
    products<C><<<dim3((N + 7) / 8, M * R), 256>>>(dx.p, dvalues.p, db.p, dg.p, droutes.p, dproducts.p);
    const std::vector<float> product = dproducts.get();
    parallel(M, [&](int m) {
        std::vector<double> row(width);
        for (int i = 0; i < R; i++) {
            const float *of = &product[((size_t)m * R + i) * N];
            float weight;
            memcpy(&weight, &routes.routes[(size_t)m * 2 * R + R + i], 4);
            for (int n = 0; n < N; n++)
                if (C::SUM)
                    row[n] += (double)weight * of[n];
                else if (n % 2)
                    row[(size_t)i * N / 2 + n / 2] = of[n - 1] / (1 + exp(-(double)of[n - 1])) * of[n];
        }
        for (int n = 0; n < width; n++) {
            const double want = row[n] + (C::SUM ? host_float(r[(size_t)m * N + n]) : 0), d = host_float(y[(size_t)m * width + n]) - want;
            errors[m] += d == d ? d * d : 1e9;
            norms[m] += want * want;
        }
    });
    double error = 0, norm = 0;
    for (int m = 0; m < M; m++)
        error += errors[m], norm += norms[m];
    for (size_t i = (size_t)M * width; i < y.size(); i++)
        same = same && y[i].bits == 0xffff;
    error = sqrt(error / norm);
    const bool good = same && error < (std::is_same<T, half>::value ? 1e-3 : 8e-3);
    printf("%s type %d group %3d scales %d X %3d R %d N %4d K %5d sum %d norm %d, rows %2d of %2d, %d at once: error %.1e%s%s\n",
           std::is_same<T, half>::value ? "fp16" : "bf16", C::TYPE, C::GROUP, C::SCALES, X, R, N, K, C::SUM, C::NORM, M, C::MAX, C::BLOCK_M,
           error, same ? "" : " other bits or rows", good ? "" : " WRONG");
    return !good;
}

// --- times ---------------------------------------------------------------------------------------

enum { LAYERS = 12 };

__global__ static void fill_tiles(u32 *w, i64 tile, i64 codes, i64 words, u32 scale)
{
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < words; i += (i64)gridDim.x * blockDim.x) {
        u32 h = (u32)i * 2654435761u;
        h = (h ^ h >> 15) * 2246822519u;
        w[i] = i * 4 % tile < codes ? h ^ h >> 13 : scale;
    }
}

template <class U, class D> void time_layer(const char *what, int M = U::MAX)
{
    static unsigned char *pool;
    static const void *filled;
    const i64 layer = U::WEIGHT + D::WEIGHT;
    if (!pool)
        CU(cudaMalloc(&pool, LAYERS * (i64)(620 << 20)));
    if (filled != (const void *)time_layer<U, D>)
        for (int l = 0; l < LAYERS; l++) {
            fill_tiles<<<2048, 256>>>((u32 *)(pool + l * layer), U::TILE, U::K * 2 * U::BITS, U::WEIGHT / 4, U::SCALES >= 2 ? 0x3c000000u : 0x20002000u);
            fill_tiles<<<2048, 256>>>((u32 *)(pool + l * layer + U::WEIGHT), D::TILE, D::K * 2 * D::BITS, D::WEIGHT / 4, D::SCALES >= 2 ? 0x3c000000u : 0x20002000u);
        }
    filled = (const void *)time_layer<U, D>;
    Random rnd{7};
    std::vector<bf16> x((size_t)M * U::K);
    for (bf16 &v : x)
        v = host_round<bf16>(rnd.normal());
    Device<bf16> dx(x), dh((size_t)M * U::R * D::K), dy((size_t)M * D::N);
    Device<float> b(std::vector<float>((size_t)U::X * std::max(U::N, D::N))), g(std::vector<float>(U::K, 1.0f)), parts((size_t)M * U::R * D::N);
    Device<u32> arrived((size_t)M * D::N / 16);
    arrived.fill(0);
    FtxStep now_step = {};
    now_step.tokens = now_step.rows = M;
    const Device<FtxStep> step(std::vector<FtxStep>{now_step});
    std::vector<int> routes, starts, rows;
    for (int l = 0; l < LAYERS; l++) {
        const Routes r = choose(M, U::X, U::R, rnd, false);
        routes.insert(routes.end(), r.routes.begin(), r.routes.end());
        starts.insert(starts.end(), r.starts.begin(), r.starts.end());
        rows.insert(rows.end(), r.rows.begin(), r.rows.end());
    }
    Device<int> droutes(routes), dstarts(starts), drows(rows);
    const auto one = [&](int i, cudaStream_t s, bool up, bool down) {
        const int l = i % LAYERS;
        ExpertSumArgs a = {};
        a.routes = droutes.p + (i64)l * M * 2 * U::R;
        a.starts = dstarts.p + l * (U::X + 1);
        a.rows = drows.p + (i64)l * M * U::R;
        a.b = b.p;
        a.parts = parts.p;
        a.arrived = arrived.p;
        if (up) {
            a.x = dx.p;
            a.w = pool + l * layer;
            a.r = g.p;
            a.y = dh.p;
            run<U>(a, step.p, M, s);
        }
        if (down) {
            a.x = dh.p;
            a.w = pool + l * layer + U::WEIGHT;
            a.r = dx.p;
            a.y = dy.p;
            run<D>(a, step.p, M, s);
        }
    };
    const double both = time_graph(4 * LAYERS, [&](int i, cudaStream_t s) { one(i, s, true, true); });
    const double up = time_graph(4 * LAYERS, [&](int i, cudaStream_t s) { one(i, s, true, false); });
    const double down = time_graph(4 * LAYERS, [&](int i, cudaStream_t s) { one(i, s, false, true); });
    double hit = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int e = 0; e < U::X; e++)
            hit += starts[l * (U::X + 1) + e + 1] > starts[l * (U::X + 1) + e] ? 1.0 / LAYERS : 0;
    printf("%-34s rows %4d: both %6.1f us, gate and up %6.1f, down %6.1f; %5.1f experts hit, %6.1f us at 4.5 TB/s\n", what, M, both, up, down, hit,
           hit / U::X * (double)layer / 4.5e6);
}

template <int TYPE, int MAX, int BLOCK_M, int STAGES = 0, int BLOCKS = 0> void time_qwen(const char *what)
{
    typedef Facts<bf16, TYPE, 128, 0, 128, 8, 1536, 2048, MAX, 0, (MAX <= 8), BLOCK_M, 2, STAGES, BLOCKS> U;
    typedef Facts<bf16, TYPE, 128, 0, 128, 8, 2048, 768, MAX, 1, 0, BLOCK_M, 1, STAGES, BLOCKS> D;
    if constexpr (TYPE == FP8_CODES)
        time_layer<Floats<U>, Floats<D>>(what);
    else
        time_layer<U, D>(what);
}

template <int TYPE, int BRICK_K = 128, int AHEAD = 4> void time_many(const char *what)
{
    typedef Many<bf16, TYPE, 128, 0, 128, 8, 1536, 2048, 2048, 0, BRICK_K, AHEAD> U;
    typedef Many<bf16, TYPE, 128, 0, 128, 8, 2048, 768, 2048, 1, BRICK_K, AHEAD> D;
    for (int M : {64, 128, 256, 512, 1024, 2048})
        if constexpr (TYPE == FP8_CODES)
            time_layer<Floats<U>, Floats<D>>(what, M);
        else
            time_layer<U, D>(what, M);
}

int main(int n, char **words)
{
    const char *part = n > 1 ? words[1] : "all";
    int wrong = 0;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (strcmp(part, "time") != 0) {
        wrong += check<Facts<bf16, INT4, 128, 0, 128, 8, 1536, 2048, 1, 0, 1, 1, 8>>(1, 1, false);
        wrong += check<Facts<bf16, INT4, 128, 0, 128, 8, 2048, 768, 1, 1, 0, 1, 2>>(1, 2, false);
        wrong += check<Facts<bf16, INT4, 128, 0, 32, 8, 256, 2048, 8, 0, 1, 8, 8>>(7, 3, true);
        wrong += check<Facts<bf16, INT4, 128, 0, 32, 8, 256, 768, 8, 1, 0, 8, 2>>(8, 4, true);
        wrong += check<Facts<bf16, INT4, 128, 0, 32, 8, 256, 2048, 64, 0, 0, 8, 8>>(61, 5, true);
        wrong += check<Facts<bf16, INT4, 128, 0, 32, 8, 256, 768, 64, 1, 0, 8, 2>>(64, 6, true);
        wrong += check<Facts<half, INT4, 32, 1, 32, 8, 64, 2880, 16, 0, 0, 8, 8>>(15, 7, true);
        wrong += check<Facts<half, INT4, 64, 2, 8, 2, 128, 704, 4, 1, 0, 4, 4>>(3, 8, true);
        wrong += check<Facts<bf16, INT4, 32, 3, 8, 2, 128, 1408, 8, 1, 0, 8, 4>>(8, 9, true);
        wrong += check<Facts<half, INT4, 16, 0, 8, 2, 128, 64, 2, 0, 1, 2, 1>>(2, 10, false);
        wrong += check<Facts<bf16, INT8, 128, 0, 8, 2, 128, 2048, 8, 0, 1, 8, 8, 4>>(8, 11, true);
        wrong += check<Facts<bf16, INT8, 32, 1, 60, 4, 64, 1408, 32, 1, 0, 8, 4, 4>>(29, 12, true);
        wrong += check<Facts<half, INT8, 64, 3, 8, 2, 64, 512, 16, 1, 0, 8, 4, 4>>(16, 13, true);
        wrong += check<Floats<Facts<bf16, FP8_CODES, 128, 0, 8, 2, 128, 2048, 8, 0, 1, 8, 8, 4>>>(5, 14, true);
        wrong += check<Floats<Facts<half, FP8_CODES, 32, 2, 8, 2, 64, 2880, 4, 1, 0, 4, 8, 4>>>(4, 15, true);
        wrong += check<Floats<Facts<bf16, FP8_CODES, 64, 0, 32, 4, 64, 768, 64, 1, 0, 8, 2, 4>>>(64, 16, true);
        wrong += check<Many<bf16, INT4, 128, 0, 16, 8, 256, 2048, 2048, 0>>(2048, 19, false);
        wrong += check<Many<bf16, INT4, 128, 0, 16, 8, 400, 768, 2048, 1>>(1999, 20, true);
        wrong += check<Many<bf16, INT4, 64, 0, 16, 4, 256, 2048, 257, 0>>(257, 21, true);
        wrong += check<Many<bf16, INT4, 32, 1, 16, 4, 400, 768, 512, 1>>(512, 22, true);
        wrong += check<Many<half, INT4, 32, 1, 32, 8, 64, 2880, 300, 0>>(299, 23, true);
        wrong += check<Many<bf16, INT4, 64, 3, 8, 2, 144, 704, 200, 1>>(200, 24, false);
        wrong += check<Many<bf16, INT8, 128, 0, 8, 2, 208, 2048, 300, 0>>(299, 25, true);
        wrong += check<Many<half, INT8, 32, 1, 8, 2, 144, 448, 150, 1>>(150, 26, true);
        wrong += check<Floats<Many<bf16, FP8_CODES, 128, 0, 8, 2, 208, 1024, 300, 0>>>(300, 27, true);
        wrong += check<Floats<Many<half, FP8_CODES, 32, 2, 8, 2, 144, 2880, 150, 1>>>(149, 28, false);
        puts(wrong ? "WRONG" : "ok");
    }
    if (strcmp(part, "check") != 0) {
        time_qwen<INT4, 1, 1>("int4");
        time_qwen<INT4, 8, 8>("int4");
        time_qwen<INT4, 64, 8>("int4");
        time_many<INT4>("int4 many");
        time_many<INT8>("int8 many");
        time_many<FP8_CODES>("fp8 many");
    }
    return wrong != 0;
}
