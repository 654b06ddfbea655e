// check.h - what the GPU checks share: memory, random values, launches in graphs, timing.
//
// Each check is a program of its own, not part of the build: `nvcc -std=c++17 -O2 -I kernels
// -gencode arch=compute_90a,code=sm_90a -o x tests/gpu/x.cu`. They end with "ok" or a count of
// what was wrong; with the argument `time` they time the shapes of docs/performance.md.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#define CU(call) \
    do { \
        cudaError_t e_ = (call); \
        if (e_ != cudaSuccess) { \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); \
            exit(1); \
        } \
    } while (0)

struct Random { // splitmix64
    uint64_t s;
    uint64_t next()
    {
        uint64_t z = s += 0x9E3779B97F4A7C15ull;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        return z ^ z >> 31;
    }
    int below(int n) { return (int)(next() % (uint64_t)n); }
    float uniform() { return (float)(next() >> 40) * 0x1p-24f; } // [0, 1)
    float normal()
    {
        const float u = uniform() + 0x1p-25f, v = uniform();
        return sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
    }
};

template <class T> struct Device { // an array on the device
    T *p = nullptr;
    size_t n = 0;
    explicit Device(size_t count) : n(count) { CU(cudaMalloc(&p, n * sizeof(T))); }
    explicit Device(const std::vector<T> &v) : Device(v.size()) { put(v); }
    Device(const Device &) = delete;
    ~Device() { cudaFree(p); }
    void put(const std::vector<T> &v) { CU(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice)); }
    void fill(int byte) { CU(cudaMemset(p, byte, n * sizeof(T))); }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        CU(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

// bf16 and half of device/types.cuh on the host.
inline float host_float(float f)
{
    return f;
}
inline float host_float(bf16 h)
{
    const uint32_t b = (uint32_t)h.bits << 16;
    float f;
    memcpy(&f, &b, 4);
    return f;
}
inline float host_float(half h)
{
    const int e = h.bits >> 10 & 31, m = h.bits & 1023;
    const float f = e == 0 ? ldexpf((float)m, -24) : e == 31 ? (m ? NAN : INFINITY) : ldexpf((float)(m + 1024), e - 25);
    return h.bits & 0x8000 ? -f : f;
}
template <class T> T host_round(float f); // towards zero: inputs only
template <> inline float host_round<float>(float f)
{
    return f;
}
template <> inline bf16 host_round<bf16>(float f)
{
    uint32_t b;
    memcpy(&b, &f, 4);
    return bf16{(u16)(b >> 16)};
}
template <> inline half host_round<half>(float f)
{
    const float a = fabsf(f);
    if (a < 0x1p-14f)
        return half{(u16)((f < 0 ? 0x8000 : 0) | (int)(a * 0x1p24f))};
    int e;
    const int m = (int)(frexpf(a, &e) * 2048.0f) - 1024;
    return half{(u16)((f < 0 ? 0x8000 : 0) | (e + 14) << 10 | m)};
}

template <class T> T host_nearest(float f);
template <> inline bf16 host_nearest<bf16>(float f)
{
    uint32_t b;
    memcpy(&b, &f, 4);
    return bf16{(u16)((b + 0x7fff + (b >> 16 & 1)) >> 16)};
}
template <> inline half host_nearest<half>(float f)
{
    int e = -13;
    if (fabsf(f) >= 0x1p-14f)
        frexpf(f, &e);
    return host_round<half>(ldexpf(nearbyintf(ldexpf(f, 11 - e)), e - 11));
}

inline void parallel(int n, const std::function<void(int)> &f)
{
    const int threads = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> all;
    for (int t = 0; t < threads; t++)
        all.emplace_back([=, &f] {
            for (int i = t; i < n; i += threads)
                f(i);
        });
    for (auto &t : all)
        t.join();
}

template <class Args>
void launch(void (*kernel)(Args), dim3 grid, int block, int smem, Args args, cudaStream_t s = 0, bool overlap = true)
{
    CU(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    cudaLaunchAttribute a = {};
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = dim3(block);
    c.dynamicSmemBytes = smem;
    c.stream = s;
    c.attrs = &a;
    c.numAttrs = overlap ? 1 : 0;
    CU(cudaLaunchKernelEx(&c, kernel, args));
}

// Microseconds of a launch: n launches in one graph, the median of 9 replays after 2 that are not timed.
inline double time_graph(int n, const std::function<void(int, cudaStream_t)> &one,
                         const std::function<void()> &before = nullptr)
{
    cudaStream_t s;
    CU(cudaStreamCreate(&s));
    CU(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < n; i++)
        one(i, s);
    cudaGraph_t g;
    cudaGraphExec_t x;
    CU(cudaStreamEndCapture(s, &g));
    CU(cudaGraphInstantiate(&x, g, 0));
    cudaEvent_t a, b;
    CU(cudaEventCreate(&a));
    CU(cudaEventCreate(&b));
    std::vector<float> ms;
    for (int i = 0; i < 11; i++) {
        if (before)
            before();
        CU(cudaEventRecord(a, s));
        CU(cudaGraphLaunch(x, s));
        CU(cudaEventRecord(b, s));
        CU(cudaStreamSynchronize(s));
        float t;
        CU(cudaEventElapsedTime(&t, a, b));
        if (i > 1)
            ms.push_back(t);
    }
    CU(cudaGraphExecDestroy(x));
    CU(cudaGraphDestroy(g));
    CU(cudaStreamDestroy(s));
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2] * 1e3 / n;
}

inline int multiprocessors()
{
    cudaDeviceProp p;
    CU(cudaGetDeviceProperties(&p, 0));
    return p.multiProcessorCount;
}
