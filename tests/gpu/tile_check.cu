// tile_check.cu - linear_tile.cuh on the matrices of BERT in fp16: some results against sums in double, and times of one
// product, and of all products and norms of a layer, in a CUDA graph with programmatic dependent launch. Launches take
// the weights of 12 layers in turn, so that they come from memory as in a model; with few rows that decides the time.
//
//     nvcc -O2 -std=c++17 -Ikernels -gencode arch=compute_90a,code=sm_90a -cudart static \
//          -o tile_check tests/gpu/tile_check.cu -ldl
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "linear_tile.cuh"
#include "norm.cuh"

static void expect(int code, const char *what, int line)
{
    if (code == 0)
        return;
    fprintf(stderr, "tile_check.cu:%d %s: %d\n", line, what, code);
    exit(1);
}
#define CK(x) expect((int)(x), #x, __LINE__)

enum { LAYERS = 12, MOST_ROWS = 50000, MOST = 4096, MAP = 128, MAPS = 4096 };

template <int N_, int K_, int TILE_M_, int TILE_N_, int CLUSTER_M_, int SPLIT_K_, int STAGES_, int WARPGROUPS_, int ACT_,
          int RES_, int TILE_WARPGROUPS_ = 1>
struct Shape {
    using T = half;
    using OUT = half;
    static constexpr int N = N_, K = K_, TILE_M = TILE_M_, TILE_N = TILE_N_, CLUSTER_M = CLUSTER_M_, SPLIT_K = SPLIT_K_;
    static constexpr int STAGES = STAGES_, WARPGROUPS = WARPGROUPS_, TILE_WARPGROUPS = TILE_WARPGROUPS_;
    static constexpr int ACT = ACT_, RES = RES_, SMEM_EPILOGUE = WARPGROUPS_ == 2;
    static constexpr int BIAS = 1, ROWS_S = 0, SEGMENTS = 0, X_STATS = 0, R_STATS = 0, Y_STATS = 0;
    static constexpr float EPS = 1e-12f, R_EPS = 1e-12f;
    // The regions of shared memory, with room for what Normed and Between add.
    static constexpr int SLOT_BYTES = most((TILE_M + TILE_N) * 128, SPLIT_K == 1 && RES ? round_up(least(TILE_N, 128), 64) * TILE_M * 2 : 0);
    static constexpr int STAGING_AT = STAGES * SLOT_BYTES, VECTORS_AT = STAGING_AT + SMEM_EPILOGUE * 16384;
    static constexpr int BARRIERS_AT = VECTORS_AT + WARPGROUPS * TILE_N * 8, SHARED = BARRIERS_AT + (2 * STAGES + 1) * 8;
};
// The rows of x are normed by sums over COLUMNS columns each; or those of the residual, and sums of y's rows are written.
template <class S, int COLUMNS> struct Normed : S {
    static constexpr int X_STATS = COLUMNS;
};
template <class S, int COLUMNS> struct Between : S {
    static constexpr int R_STATS = COLUMNS, Y_STATS = least(S::TILE_N / S::SPLIT_K, 128);
};

static decltype(&cuTensorMapEncodeTiled) encode;
static cudaStream_t stream;
static half *x, *w, *r, *y; // [MOST_ROWS, MOST], w [LAYERS, MOST, MOST]
static float *bias, *gains, *worst, *xs, *rs, *ys;
static FtxStep *step;
static char *maps;

__device__ static unsigned scramble(size_t i, unsigned seed)
{
    unsigned h = (unsigned)i * 2654435761u + seed;
    h = (h ^ h >> 15) * 2246822519u;
    return h ^ h >> 13;
}
__global__ static void fill(half *p, size_t n, unsigned seed, float by)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n)
        p[i] = from_float<half>(((scramble(i, seed) & 0xffff) / 32768.0f - 1.0f) * by);
}
__global__ static void fill_bias(float *p)
{
    p[threadIdx.x + blockIdx.x * blockDim.x] = threadIdx.x / 512.0f - 1.0f;
}

// Row statistics of a matrix: sum and squares over `columns` columns each, by one thread each.
__global__ static void sum_parts(const half *x, float *sums, int M, int C, int columns)
{
    const int parts = ceil_div(C, columns), i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0, squares = 0;
    if (i >= M * parts)
        return;
    for (int n = i % parts * columns; n < least(C, (i % parts + 1) * columns); n++) {
        const float v = to_float(x[(size_t)(i / parts) * C + n]);
        sum += v;
        squares += v * v;
    }
    sums[i * 2] = sum;
    sums[i * 2 + 1] = squares;
}
// Largest difference between the row statistics a product wrote and those of its results, which are rounded.
__global__ static void check_parts(const float *a, const float *b, int n, float *worst)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float e = fabs(a[i] - b[i]) / (fabs(b[i]) + 16);
    if (i < n)
        atomicMax((int *)worst, __float_as_int(e < 1e30f ? e : 1e30f));
}

__device__ static double deviations(const half *row, int C, double *mean)
{
    double sum = 0, squares = 0;
    for (int k = 0; k < C; k++)
        sum += to_float(row[k]);
    for (int k = 0; k < C; k++)
        squares += (to_float(row[k]) - sum / C) * (to_float(row[k]) - sum / C);
    *mean = sum / C;
    return 1 / sqrt(squares / C);
}
// Checks 64 elements of the last rows, 64 of the last columns, the others anywhere.
__global__ static void check(const half *x, const half *w, const float *b, const half *r, const half *y, int M, int N,
                             int K, int act, int res, int normed, const float *gains, float *worst)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, h = scramble(i, 7);
    const int m = i < 64 ? M - 1 - i % least(M, 64) : h % M, n = i >= 64 && i < 128 ? N - 1 - i % 8 : (h >> 12) * 7 % N;
    double sum = 0, mean;
    for (int k = 0; k < K; k++)
        sum += (double)to_float(x[(size_t)m * K + k]) * to_float(w[(size_t)n * K + k]);
    if (normed && !res)
        sum *= deviations(x + (size_t)m * K, K, &mean);
    sum += b[n];
    if (act == 2)
        sum = 0.5 * sum * (1 + erf(sum * 0.70710678118654752));
    if (res && normed) {
        const double by = deviations(r + (size_t)m * N, N, &mean);
        sum += (to_float(r[(size_t)m * N + n]) - mean) * by * gains[n] + b[n];
    } else if (res)
        sum += to_float(r[(size_t)m * N + n]);
    const float e = fabs(sum - to_float(y[(size_t)m * N + n])) / (fabs(sum) + 1);
    atomicMax((int *)worst, __float_as_int(e < 1e30f ? e : 1e30f));
}
__global__ static void backwards(const float *b, float *c, int N)
{
    if (threadIdx.x < N)
        c[threadIdx.x] = b[N - 1 - threadIdx.x];
}

static const TensorMap *map(const void *matrix, int rows, int columns, int tile_rows)
{
    static int at;
    CUtensorMap m;
    const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[] = {2 * (cuuint64_t)columns};
    const cuuint32_t tile[] = {64, (cuuint32_t)tile_rows}, every[] = {1, 1};
    CK(encode(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)matrix, size, stride, tile, every,
              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    at = (at + 1) % MAPS;
    CK(cudaMemcpy(maps + at * MAP, &m, sizeof m, cudaMemcpyHostToDevice));
    return (const TensorMap *)(maps + at * MAP);
}

typedef std::function<void(int)> Launch; // of a layer's kernel

static cudaLaunchConfig_t config(cudaLaunchAttribute *attrs, int cluster, int grid, int block, int smem)
{
    cudaLaunchConfig_t c = {};
    attrs[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[0].val.programmaticStreamSerializationAllowed = 1;
    attrs[1].id = cudaLaunchAttributeClusterDimension;
    attrs[1].val.clusterDim = {(unsigned)cluster, 1, 1};
    c.gridDim = dim3(grid);
    c.blockDim = dim3(block);
    c.dynamicSmemBytes = smem;
    c.stream = stream;
    c.attrs = attrs;
    c.numAttrs = 2;
    return c;
}

// Microseconds of one launch, over `runs` rounds of `launches` in a graph.
static float time_of(const std::vector<Launch> &launches, int runs)
{
    float us = 1e9f;
    cudaEvent_t from, to;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < runs; i++)
        for (const Launch &l : launches)
            l(i % LAYERS);
    CK(cudaStreamEndCapture(stream, &graph));
    CK(cudaGraphInstantiate(&exec, graph, 0));
    CK(cudaEventCreate(&from));
    CK(cudaEventCreate(&to));
    for (int i = 0; i < 5; i++) {
        float ms;
        CK(cudaEventRecord(from, stream));
        CK(cudaGraphLaunch(exec, stream));
        CK(cudaEventRecord(to, stream));
        CK(cudaEventSynchronize(to));
        CK(cudaEventElapsedTime(&ms, from, to));
        us = std::min(us, ms * 1000 / runs);
    }
    CK(cudaGraphExecDestroy(exec));
    CK(cudaGraphDestroy(graph));
    return us;
}

template <class C> __global__ void __launch_bounds__(TileShape<C>::THREADS, 1) kernel(const TileNormArgs a)
{
#if __CUDA_ARCH__ >= 900
    linear_tile<C>(a);
#endif
}

static float worst_now()
{
    float error;
    CK(cudaStreamSynchronize(stream));
    CK(cudaMemcpy(&error, worst, 4, cudaMemcpyDeviceToHost));
    CK(cudaMemset(worst, 0, 4));
    return error;
}

// The product of M rows, checked; its launch for layer i.
template <class C> static Launch product(int M, float *error)
{
    typedef TileShape<C> P;
    const FtxStep s = {.tokens = M, .rows = M};
    const int groups = ceil_div(M, C::TILE_M * C::CLUSTER_M) * ceil_div(C::N, C::TILE_N);
    const int grid = P::CLUSTER_SIZE * (C::WARPGROUPS == 2 ? std::min(groups, 132 / P::CLUSTER_SIZE) : groups);
    std::vector<const TensorMap *> weights;
    TileNormArgs a;

    CK(cudaFuncSetAttribute(kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::SHARED));
    CK(cudaMemcpy(step, &s, sizeof s, cudaMemcpyHostToDevice));
    CK(cudaMemset(y, 0xff, (size_t)M * C::N * 2));
    for (int i = 0; i < LAYERS; i++)
        weights.push_back(map(w + (size_t)i * MOST * MOST, C::N, C::K, C::TILE_N / C::CLUSTER_M));
    (TileArgs &)a = TileArgs{map(x, MOST_ROWS, C::K, C::TILE_M), weights[0], bias, r, step, y};
    (TileNorms &)a = TileNorms{gains, bias, xs, rs};
    a.ys = ys;
    if (C::SPLIT_K == 1)
        a.r = map(r, MOST_ROWS, C::N, C::TILE_M);
    if (C::X_STATS)
        sum_parts<<<M, 256, 0, stream>>>(x, xs, M, C::K, C::X_STATS ? C::X_STATS : 1);
    if (C::R_STATS)
        sum_parts<<<M, 256, 0, stream>>>(r, rs, M, C::N, C::R_STATS ? C::R_STATS : 1);
    const Launch launch = [a, grid, weights](int layer) {
        TileNormArgs now = a;
        cudaLaunchAttribute attrs[2] = {};
        cudaLaunchConfig_t c = config(attrs, P::CLUSTER_SIZE, grid, P::THREADS, C::SHARED);
        now.w = weights[layer];
        CK(cudaLaunchKernelEx(&c, kernel<C>, now));
    };
    launch(0);
    check<<<16, 256, 0, stream>>>(x, w, bias, r, y, M, C::N, C::K, C::ACT, C::RES, C::X_STATS || C::R_STATS, gains, worst);
    *error = worst_now();
    if (C::Y_STATS) {
        constexpr int PARTS = ceil_div(C::N, C::Y_STATS ? C::Y_STATS : 1);
        const int n = M * PARTS * 2;
        sum_parts<<<M, 256, 0, stream>>>(y, rs, M, C::N, C::Y_STATS ? C::Y_STATS : 1);
        check_parts<<<(n + 255) / 256, 256, 0, stream>>>(ys, rs, n, worst);
        *error = std::max(*error, worst_now());
        sum_parts<<<M, 256, 0, stream>>>(r, rs, M, C::N, C::R_STATS ? C::R_STATS : 1);
    }
    return launch;
}

template <class C> static void say(const char *what)
{
    printf(" %s %d x %d cluster %d x %d stages %d%s", what, C::TILE_M, C::TILE_N, C::CLUSTER_M, C::SPLIT_K, C::STAGES,
           C::X_STATS   ? " x normed"
           : C::R_STATS ? " r normed"
                      : "");
}

template <class C> static void run(int M)
{
    float error;
    const Launch launch = product<C>(M, &error);
    const float us = time_of({launch}, M > 10000 ? 6 : 36);
    printf("M %5d N %4d K %4d", M, C::N, C::K);
    say<C>("");
    printf(" act %d res %d: %7.2f us %4.0f TFLOP/s error %.1e%s\n", C::ACT, C::RES, us,
           2.0 * M * C::N * C::K / us * 1e-6, error, error < 1e-3f ? "" : " WRONG");
}

// The layer norm after a product, for layers whose time includes it.
template <int N> struct NormShape {
    using T = half;
    using OUT = half;
    static constexpr int C = N, NORM = 2, LANES = 32, THREADS = 64, ROWS_S = 0, RES = 0;
    static constexpr float EPS = 1e-12f;
};
template <class K> __global__ void __launch_bounds__(K::THREADS) norm_kernel(const NormArgs a)
{
    norm<K>(a);
}
template <int N> static Launch layernorm(int M)
{
    return [M](int) {
        cudaLaunchAttribute attrs[2] = {};
        cudaLaunchConfig_t c = config(attrs, 1, (M + 1) / 2, 64, 0);
        CK(cudaLaunchKernelEx(&c, norm_kernel<NormShape<N>>, NormArgs{y, bias, gains, nullptr, step, y}));
    };
}

// The four products of a layer, with norm launches where the products do not include them.
template <class QKV, class OUT, class UP, class DOWN> static void layer(int M)
{
    float error[4];
    std::vector<Launch> all;
    all.push_back(product<QKV>(M, &error[0]));
    all.push_back(product<OUT>(M, &error[1]));
    if (!OUT::Y_STATS)
        all.push_back(layernorm<OUT::N>(M));
    all.push_back(product<UP>(M, &error[2]));
    all.push_back(product<DOWN>(M, &error[3]));
    if (!DOWN::Y_STATS)
        all.push_back(layernorm<DOWN::N>(M));
    const float us = time_of(all, M > 10000 ? 6 : 36);
    printf("layer without attention, M %5d:", M);
    say<OUT>("out");
    say<UP>("up");
    say<DOWN>("down");
    printf(" %7.2f us, errors %.1e %.1e %.1e %.1e\n", us, error[0], error[1], error[2], error[3]);
}

// A layer with norm launches, and one whose products include the norms.
template <class QKV, class OUT, class UP, class DOWN> static void both(int M)
{
    constexpr int OUTS = least(OUT::TILE_N / OUT::SPLIT_K, 128), DOWNS = least(DOWN::TILE_N / DOWN::SPLIT_K, 128);
    typedef Normed<QKV, DOWNS> Qkv;
    typedef Between<OUT, DOWNS> Out;
    typedef Normed<UP, OUTS> Up;
    typedef Between<DOWN, OUTS> Down;
    run<QKV>(M);
    run<Qkv>(M);
    run<OUT>(M);
    run<Out>(M);
    run<UP>(M);
    run<Up>(M);
    run<DOWN>(M);
    run<Down>(M);
    layer<QKV, OUT, UP, DOWN>(M);
    layer<Qkv, Out, Up, Down>(M);
}

int main()
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    const size_t rows = (size_t)MOST_ROWS * MOST, weights = (size_t)LAYERS * MOST * MOST;
    encode = driver ? (decltype(encode))dlsym(driver, "cuTensorMapEncodeTiled") : nullptr;
    CK(!encode);
    CK(cudaStreamCreate(&stream));
    for (half **p : {&x, &r, &y})
        CK(cudaMalloc(p, rows * 2));
    CK(cudaMalloc(&w, weights * 2));
    CK(cudaMalloc(&bias, MOST * 4));
    CK(cudaMalloc(&gains, MOST * 4));
    CK(cudaMalloc(&worst, 4));
    for (float **p : {&xs, &rs, &ys})
        CK(cudaMalloc(p, (size_t)MOST_ROWS * 64 * 4));
    CK(cudaMalloc(&step, sizeof(FtxStep)));
    CK(cudaMalloc(&maps, MAPS * MAP));
    fill<<<rows / 256, 256>>>(x, rows, 1, 1.0f);
    fill<<<rows / 256, 256>>>(r, rows, 3, 1.0f);
    fill<<<weights / 256, 256>>>(w, weights, 2, 0.05f);
    fill_bias<<<MOST / 1024, 1024>>>(bias);
    fill_bias<<<MOST / 1024, 1024>>>(gains);
    CK(cudaDeviceSynchronize());
    backwards<<<1, 1024, 0, stream>>>(bias, gains, 1024);
    CK(cudaMemset(worst, 0, 4));
    CK(cudaDeviceSynchronize());
    for (int M : {2240, 4096, 12288}) {
        typedef Shape<2304, 768, 128, 112, 2, 1, 5, 2, 0, 0> Qkv;
        typedef Shape<768, 768, 128, 112, 2, 1, 5, 2, 0, 1> Out;
        typedef Shape<3072, 768, 128, 112, 2, 1, 5, 2, 2, 0> Up;
        typedef Shape<768, 3072, 128, 112, 2, 1, 5, 2, 0, 1> Down;
        both<Qkv, Out, Up, Down>(M);
    }
    for (int M : {128, 100}) {
        typedef Shape<2304, 768, 64, 64, 1, 2, 6, 1, 0, 0> Qkv;
        typedef Shape<768, 768, 64, 48, 1, 1, 7, 1, 0, 1> Out;
        typedef Shape<3072, 768, 64, 48, 1, 1, 7, 1, 2, 0> Up;
        typedef Shape<768, 3072, 64, 64, 1, 4, 8, 1, 0, 1> Down;
        both<Qkv, Out, Up, Down>(M);
    }
    {
        typedef Shape<3072, 1024, 128, 128, 2, 1, 5, 2, 0, 0> Qkv;
        typedef Shape<1024, 1024, 128, 256, 2, 1, 4, 2, 0, 1, 2> Out;
        typedef Shape<4096, 1024, 128, 128, 2, 1, 5, 2, 2, 0> Up;
        typedef Shape<1024, 4096, 128, 256, 2, 1, 4, 2, 0, 1, 2> Down;
        both<Qkv, Out, Up, Down>(49152);
    }
    return 0;
}
