// tile_check.cu - linear_tile.cuh on the matrices of BERT in fp16: some results against sums in double, and the
// time of a product in a CUDA graph with programmatic edges, over the weights of 12 layers in turn.
//
//     nvcc -O2 -std=c++17 -Ikernels -gencode arch=compute_90a,code=sm_90a -cudart static \
//          -o tile_check tests/gpu/tile_check.cu -ldl
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "linear_tile.cuh"

static void expect(int code, const char *what, int line)
{
    if (code == 0)
        return;
    fprintf(stderr, "tile_check.cu:%d %s: %d\n", line, what, code);
    exit(1);
}
#define CK(x) expect((int)(x), #x, __LINE__)

enum { LAYERS = 12, MOST_ROWS = 50000, MOST = 4096, MAP = 128 };

template <int N_, int K_, int MT_, int NT_, int CM_, int CK_, int STAGES_, int WGS_, int ACT_, int RES_> struct Shape {
    using T = half;
    using OUT = half;
    static constexpr int N = N_, K = K_, MT = MT_, NT = NT_, CM = CM_, CN = 1, CK = CK_, STAGES = STAGES_, WGS = WGS_, ACT = ACT_, RES = RES_;
    static constexpr int BIAS = 1, ROWS_S = 0, PARTS = 0, SMEM = 232448;
};
template <class C> __global__ void __launch_bounds__(TileShape<C>::THREADS, 1) kernel(const TileArgs a)
{
#if __CUDA_ARCH__ >= 900
    linear_tile<C>(a);
#endif
}

static decltype(&cuTensorMapEncodeTiled) encode;
static cudaStream_t stream;
static half *x, *w, *r, *y;  // [MOST_ROWS, MOST], w [LAYERS, MOST, MOST]
static float *bias, *worst;
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

static const TensorMap *map(int at, const void *matrix, int rows, int columns, int tile_rows)
{
    CUtensorMap m;
    const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[] = {2 * (cuuint64_t)columns};
    const cuuint32_t tile[] = {64, (cuuint32_t)tile_rows}, every[] = {1, 1};
    CK(encode(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)matrix, size, stride, tile, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
              CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    CK(cudaMemcpy(maps + at * MAP, &m, sizeof m, cudaMemcpyHostToDevice));
    return (const TensorMap *)(maps + at * MAP);
}

template <class C> static void run(int M)
{
    typedef TileShape<C> P;
    const FtxStep s = {.tokens = M, .rows = M};
    const int groups = ceil_div(M, C::MT * C::CM) * ceil_div(C::N, C::NT);
    const int clusters = C::WGS == 2 ? least(groups, 132 / P::BLOCKS) : groups, runs = M > 10000 ? 6 : 36;
    const TensorMap *weights[LAYERS];
    cudaLaunchAttribute attrs[2] = {};
    cudaLaunchConfig_t c = {};
    float error, us = 1e9f;
    cudaEvent_t from, to;
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    attrs[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[0].val.programmaticStreamSerializationAllowed = 1;
    attrs[1].id = cudaLaunchAttributeClusterDimension;
    attrs[1].val.clusterDim = {(unsigned)P::BLOCKS, 1, 1};
    c.gridDim = dim3(clusters * P::BLOCKS);
    c.blockDim = dim3(P::THREADS);
    c.dynamicSmemBytes = P::BYTES;
    c.stream = stream;
    c.attrs = attrs;
    c.numAttrs = 2;
    CK(cudaFuncSetAttribute(kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES));
    CK(cudaMemcpy(step, &s, sizeof s, cudaMemcpyHostToDevice));
    CK(cudaMemset(worst, 0, 4));
    CK(cudaMemset(y, 0xff, (size_t)M * C::N * 2));
    for (int i = 0; i < LAYERS; i++)
        weights[i] = map(2 + i, w + (size_t)i * MOST * MOST, C::N, C::K, C::NT / C::CM);
    TileArgs a = {map(0, x, MOST_ROWS, C::K, C::MT), weights[0], bias, r, step, y};
    if (C::CK == 1)
        a.r = map(1, r, MOST_ROWS, C::N, C::MT);
    CK(cudaLaunchKernelEx(&c, kernel<C>, a));
    check<<<256, 256, 0, stream>>>(x, w, bias, r, y, M, C::N, C::K, C::ACT, C::RES, worst);
    CK(cudaStreamSynchronize(stream));
    CK(cudaMemcpy(&error, worst, 4, cudaMemcpyDeviceToHost));

    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < runs; i++) {
        a.w = weights[i % LAYERS];
        CK(cudaLaunchKernelEx(&c, kernel<C>, a));
    }
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
    printf("M %5d N %4d K %4d tile %3d x %3d cluster %d x %d stages %2d act %d res %d: %7.2f us %4.0f TFLOP/s error %.1e%s\n", M, C::N, C::K, C::MT,
           C::NT, C::CM, C::CK, C::STAGES, C::ACT, C::RES, us, 2.0 * M * C::N * C::K / us * 1e-6, error, error < 1e-3f ? "" : " WRONG");
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
    CK(cudaMalloc(&worst, 4));
    CK(cudaMalloc(&step, sizeof(FtxStep)));
    CK(cudaMalloc(&maps, (2 + LAYERS) * MAP));
    fill<<<rows / 256, 256>>>(x, rows, 1, 1.0f);
    fill<<<rows / 256, 256>>>(r, rows, 3, 1.0f);
    fill<<<weights / 256, 256>>>(w, weights, 2, 0.05f);
    fill_bias<<<MOST / 1024, 1024>>>(bias);
    CK(cudaDeviceSynchronize());
    for (int M : {2240, 4096}) {
        run<Shape<2304, 768, 128, 112, 2, 1, 5, 2, 0, 0>>(M);
        run<Shape<768, 768, 128, 112, 2, 1, 5, 2, 0, 1>>(M);
        run<Shape<3072, 768, 128, 112, 2, 1, 5, 2, 2, 0>>(M);
        run<Shape<768, 3072, 128, 112, 2, 1, 5, 2, 0, 1>>(M);
        run<Shape<2304, 768, 128, 128, 2, 1, 5, 2, 0, 0>>(M);
        run<Shape<768, 768, 128, 128, 2, 1, 5, 2, 0, 1>>(M);
        run<Shape<3072, 768, 128, 128, 2, 1, 5, 2, 2, 0>>(M);
        run<Shape<768, 3072, 128, 128, 2, 1, 5, 2, 0, 1>>(M);
    }
    for (int M : {128, 100}) {
        run<Shape<2304, 768, 64, 64, 1, 2, 6, 1, 0, 0>>(M);
        run<Shape<768, 768, 64, 64, 1, 2, 6, 1, 0, 1>>(M);
        run<Shape<3072, 768, 64, 64, 1, 1, 6, 1, 2, 0>>(M);
        run<Shape<768, 3072, 64, 64, 1, 4, 6, 1, 0, 1>>(M);
        run<Shape<3072, 768, 64, 64, 1, 1, 12, 1, 2, 0>>(M);
        run<Shape<3072, 768, 64, 96, 1, 1, 9, 1, 2, 0>>(M);
        run<Shape<768, 3072, 128, 32, 1, 4, 8, 1, 0, 1>>(M);
        run<Shape<768, 3072, 64, 64, 1, 4, 12, 1, 0, 1>>(M);
    }
    run<Shape<3072, 1024, 128, 128, 2, 1, 5, 2, 0, 0>>(49152);
    run<Shape<1024, 1024, 128, 128, 2, 1, 5, 2, 0, 1>>(49152);
    run<Shape<4096, 1024, 128, 128, 2, 1, 5, 2, 2, 0>>(49152);
    run<Shape<4096, 1024, 128, 112, 2, 1, 5, 2, 2, 0>>(49152);
    run<Shape<1024, 4096, 128, 128, 2, 1, 5, 2, 0, 1>>(49152);
    return 0;
}
