// tile_check.cu - linear_tile.cuh on the matrices of BERT in fp16: some results against sums in double, and the
// times of a product, and of a layer's products and norms, in a CUDA graph with programmatic edges, over the weights
// of 12 layers in turn. What few rows take in a model shows there alone: its weights come from memory.
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

template <int N_, int K_, int MT_, int NT_, int CM_, int CK_, int STAGES_, int WGS_, int ACT_, int RES_, int CN_ = 1, int NORM_ = 0,
          int TEAM_ = 1>
struct Shape {
    using T = half;
    using OUT = half;
    static constexpr int N = N_, K = K_, MT = MT_, NT = NT_, CM = CM_, CN = CN_, CK = CK_, STAGES = STAGES_, WGS = WGS_;
    static constexpr int ACT = ACT_, RES = RES_, NORM = NORM_, TEAM = TEAM_, STAGED = WGS_ == 2 && !NORM_;
    static constexpr int BIAS = 1, ROWS_S = 0, PARTS = 0, SMEM = 232448;
    static constexpr float EPS = 1e-12f;
};
// Rows normed: the product, its residual and the layer norm in one.
template <int N, int K, int MT, int NT, int STAGES> using Normed = Shape<N, K, MT, NT, 1, 1, STAGES, 2, 0, 1, N / NT, 2>;

static decltype(&cuTensorMapEncodeTiled) encode;
static cudaStream_t stream;
static half *x, *w, *r, *y;  // [MOST_ROWS, MOST], w [LAYERS, MOST, MOST]
static float *bias, *gains, *worst;
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
__global__ static void fill_bias(float *p) { p[threadIdx.x + blockIdx.x * blockDim.x] = threadIdx.x / 512.0f - 1.0f; }

// 64 elements of the last rows, 64 of the last columns, the others anywhere.
__global__ static void check(const half *x, const half *w, const float *b, const half *r, const half *y, int M, int N, int K, int act, int res,
                             float *worst)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, h = scramble(i, 7);
    const int m = i < 64 ? M - 1 - i % least(M, 64) : h % M, n = i >= 64 && i < 128 ? N - 1 - i % 8 : (h >> 12) * 7 % N;
    double sum = b[n];
    for (int k = 0; k < K; k++)
        sum += (double)to_float(x[(size_t)m * K + k]) * to_float(w[(size_t)n * K + k]);
    if (act == 2)
        sum = 0.5 * sum * (1 + erf(sum * 0.70710678118654752));
    if (res)
        sum += to_float(r[(size_t)m * N + n]);
    const float e = fabs(sum - to_float(y[(size_t)m * N + n])) / (fabs(sum) + 1);
    atomicMax((int *)worst, __float_as_int(e < 1e30f ? e : 1e30f));
}

// The same with rows normed: a block takes one of the last 32 rows or one anywhere, all columns.
__global__ static void check_normed(const half *x, const half *w, const float *b, const half *r, const half *y, int M, int N, int K, float *worst)
{
    __shared__ double row[1024];
    const int m = blockIdx.x < 32 ? M - 1 - blockIdx.x % least(M, 32) : scramble(blockIdx.x, 7) % M;
    double mean = 0, squares = 0;
    for (int n = threadIdx.x; n < N; n += blockDim.x) {
        double sum = b[n] + to_float(r[(size_t)m * N + n]);
        for (int k = 0; k < K; k++)
            sum += (double)to_float(x[(size_t)m * K + k]) * to_float(w[(size_t)n * K + k]);
        row[n] = sum;
    }
    __syncthreads();
    for (int n = 0; n < N; n++)
        mean += row[n] / N;
    for (int n = 0; n < N; n++)
        squares += (row[n] - mean) * (row[n] - mean) / N;
    for (int n = threadIdx.x; n < N; n += blockDim.x) {
        const double v = (row[n] - mean) / sqrt(squares + 1e-12) * b[n] + b[N - 1 - n];
        const float e = fabs(v - to_float(y[(size_t)m * N + n])) / (fabs(v) + 1);
        atomicMax((int *)worst, __float_as_int(e < 1e30f ? e : 1e30f));
    }
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
    CK(encode(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)matrix, size, stride, tile, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
              CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    at = (at + 1) % MAPS;
    CK(cudaMemcpy(maps + at * MAP, &m, sizeof m, cudaMemcpyHostToDevice));
    return (const TensorMap *)(maps + at * MAP);
}

typedef std::function<void(int)> Launch;  // of a layer's kernel

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

// us of one of `launches`, over `runs` rounds of them in a graph.
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

template <class C> struct ArgsOf { typedef typename std::conditional<(C::NORM > 0), TileNormArgs, TileArgs>::type Type; };
template <class C> __global__ void __launch_bounds__(TileShape<C>::THREADS, 1) kernel(const typename ArgsOf<C>::Type a)
{
#if __CUDA_ARCH__ >= 900
    linear_tile<C>(a);
#endif
}

// The product of M rows, checked; its launch for layer i.
template <class C> static Launch product(int M, float *error)
{
    typedef TileShape<C> P;
    typedef typename ArgsOf<C>::Type Args;
    const FtxStep s = {.tokens = M, .rows = M};
    const int groups = ceil_div(M, C::MT * C::CM) * ceil_div(C::N, C::NT * C::CN);
    std::vector<const TensorMap *> weights;
    cudaLaunchAttribute attrs[2] = {};
    cudaLaunchConfig_t c = config(attrs, P::BLOCKS, P::BLOCKS, P::THREADS, P::BYTES);
    int clusters = 132 / P::BLOCKS;
    Args a;

    CK(cudaFuncSetAttribute(kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES));
    CK(cudaFuncSetAttribute(kernel<C>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    if (C::NORM)
        CK(cudaOccupancyMaxActiveClusters(&clusters, kernel<C>, &c));
    if (C::NORM)
        clusters = std::min(clusters, 132 * 7 / 8 / P::BLOCKS);
    const int grid = P::BLOCKS * (C::WGS == 2 ? std::min(groups, clusters) : groups);
    CK(cudaMemcpy(step, &s, sizeof s, cudaMemcpyHostToDevice));
    CK(cudaMemset(worst, 0, 4));
    CK(cudaMemset(y, 0xff, (size_t)M * C::N * 2));
    for (int i = 0; i < LAYERS; i++)
        weights.push_back(map(w + (size_t)i * MOST * MOST, C::N, C::K, C::NT / C::CM));
    (TileArgs &)a = TileArgs{map(x, MOST_ROWS, C::K, P::BOX), weights[0], bias, r, step, y};
    if (C::CK == 1)
        a.r = map(r, MOST_ROWS, C::N, C::MT);
    if constexpr (C::NORM) {
        backwards<<<1, 1024, 0, stream>>>(bias, gains, C::N);
        a.g = bias;
        a.c = gains;
    }
    const Launch launch = [a, grid, weights](int layer) {
        Args now = a;
        cudaLaunchAttribute attrs[2] = {};
        cudaLaunchConfig_t c = config(attrs, P::BLOCKS, grid, P::THREADS, P::BYTES);
        now.w = weights[layer];
        CK(cudaLaunchKernelEx(&c, kernel<C>, now));
    };
    launch(0);
    if (C::NORM)
        check_normed<<<64, 256, 0, stream>>>(x, w, bias, r, y, M, C::N, C::K, worst);
    else
        check<<<256, 256, 0, stream>>>(x, w, bias, r, y, M, C::N, C::K, C::ACT, C::RES, worst);
    CK(cudaStreamSynchronize(stream));
    CK(cudaMemcpy(error, worst, 4, cudaMemcpyDeviceToHost));
    return launch;
}

template <class C> static void run(int M)
{
    float error;
    const Launch launch = product<C>(M, &error);
    const float us = time_of({launch}, M > 10000 ? 6 : 36);
    printf("M %5d N %4d K %4d tile %3d x %3d cluster %d x %d x %d stages %2d act %d res %d norm %d: %7.2f us %4.0f TFLOP/s error %.1e%s\n", M, C::N, C::K,
           C::MT, C::NT, C::CM, C::CN, C::CK, C::STAGES, C::ACT, C::RES, C::NORM, us, 2.0 * M * C::N * C::K / us * 1e-6, error,
           error < 1e-3f ? "" : " WRONG");
}

// The layer norm behind a product, for layers in whose time it is.
template <int N> struct NormShape {
    using T = half;
    using OUT = half;
    static constexpr int C = N, NORM = 2, LANES = 32, THREADS = 64, ROWS_S = 0;
    static constexpr float EPS = 1e-12f;
};
template <class K> __global__ void __launch_bounds__(K::THREADS) norm_kernel(const NormArgs a) { norm<K>(a); }
template <int N> static Launch layernorm(int M)
{
    return [M](int) {
        cudaLaunchAttribute attrs[2] = {};
        cudaLaunchConfig_t c = config(attrs, 1, (M + 1) / 2, 64, 0);
        CK(cudaLaunchKernelEx(&c, norm_kernel<NormShape<N>>, NormArgs{y, bias, gains, step, y}));
    };
}

template <class C> static void say(const char *what)
{
    printf(" %s %d x %d cluster %d x %d x %d stages %d%s", what, C::MT, C::NT, C::CM, C::CN, C::CK, C::STAGES, C::NORM ? " normed" : "");
}

// A layer's four products, norms where they are not in them.
template <class QKV, class OUT, class UP, class DOWN> static void layer(int M)
{
    float error[4];
    std::vector<Launch> all;
    all.push_back(product<QKV>(M, &error[0]));
    all.push_back(product<OUT>(M, &error[1]));
    if (!OUT::NORM)
        all.push_back(layernorm<OUT::N>(M));
    all.push_back(product<UP>(M, &error[2]));
    all.push_back(product<DOWN>(M, &error[3]));
    if (!DOWN::NORM)
        all.push_back(layernorm<DOWN::N>(M));
    const float us = time_of(all, M > 10000 ? 6 : 36);
    printf("layer without attention, M %5d:", M);
    say<OUT>("out");
    say<UP>("up");
    say<DOWN>("down");
    printf(" %7.2f us, errors %.1e %.1e\n", us, error[1], error[3]);
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
    CK(cudaMalloc(&step, sizeof(FtxStep)));
    CK(cudaMalloc(&maps, MAPS * MAP));
    fill<<<rows / 256, 256>>>(x, rows, 1, 1.0f);
    fill<<<rows / 256, 256>>>(r, rows, 3, 1.0f);
    fill<<<weights / 256, 256>>>(w, weights, 2, 0.05f);
    fill_bias<<<MOST / 1024, 1024>>>(bias);
    fill_bias<<<MOST / 1024, 1024>>>(gains);
    CK(cudaDeviceSynchronize());
    for (int M : {2240, 4096, 12288}) {
        typedef Shape<2304, 768, 128, 112, 2, 1, 5, 2, 0, 0> Qkv;
        typedef Shape<768, 768, 128, 112, 2, 1, 5, 2, 0, 1> Out;
        typedef Shape<3072, 768, 128, 112, 2, 1, 5, 2, 2, 0> Up;
        typedef Shape<768, 3072, 128, 112, 2, 1, 5, 2, 0, 1> Down;
        run<Qkv>(M);
        run<Out>(M);
        run<Normed<768, 768, 64, 256, 5>>(M);
        run<Up>(M);
        run<Down>(M);
        run<Normed<768, 3072, 64, 256, 5>>(M);
        layer<Qkv, Out, Up, Down>(M);
        layer<Qkv, Normed<768, 768, 64, 256, 5>, Up, Down>(M);
        layer<Qkv, Normed<768, 768, 64, 256, 5>, Up, Normed<768, 3072, 64, 256, 5>>(M);
    }
    for (int M : {128, 100}) {
        typedef Shape<2304, 768, 64, 64, 1, 2, 6, 1, 0, 0> Qkv;
        typedef Shape<768, 768, 64, 64, 1, 2, 6, 1, 0, 1> Out;
        typedef Shape<3072, 768, 64, 96, 1, 1, 9, 1, 2, 0> Up;
        typedef Shape<768, 3072, 64, 96, 1, 4, 8, 1, 0, 1> Down;
        run<Qkv>(M);
        run<Out>(M);
        run<Up>(M);
        run<Down>(M);
        layer<Qkv, Out, Up, Shape<768, 3072, 128, 32, 1, 4, 8, 1, 0, 1>>(M);
        layer<Qkv, Out, Up, Down>(M);
    }
    {
        typedef Shape<3072, 1024, 128, 128, 2, 1, 5, 2, 0, 0> Qkv;
        typedef Shape<1024, 1024, 128, 128, 2, 1, 5, 2, 0, 1> Out;
        typedef Shape<4096, 1024, 128, 128, 2, 1, 5, 2, 2, 0> Up;
        typedef Shape<1024, 4096, 128, 128, 2, 1, 5, 2, 0, 1> Down;
        run<Qkv>(49152);
        run<Out>(49152);
        run<Normed<1024, 1024, 64, 256, 5>>(49152);
        run<Up>(49152);
        run<Down>(49152);
        layer<Qkv, Out, Up, Down>(49152);
        layer<Qkv, Normed<1024, 1024, 64, 256, 5>, Up, Down>(49152);
    }
    return 0;
}
