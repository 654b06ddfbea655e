// linear_check.cu - runs the instances that linear_check.py wrote: each variant of linear against loops in double; the
// same bits for any number of rows; times of Llama's linear layers in CUDA graphs with programmatic dependent launch.
//
//     python3 tests/gpu/linear_check.py DIR
//     nvcc -O2 -std=c++17 -Ikernels -Itests/gpu -gencode arch=compute_90a,code=sm_90a -cudart static \
//          -o DIR/linear_check tests/gpu/linear_check.cu DIR/part*.cu -ldl
//     DIR/linear_check [check|time|all|order] [part of a sequence's name]
//
// order: instances of `linear_check.py DIR order`. Rows must have the same bits in all kernels that state the same order.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "linear_check.h"
#include "body/linear.cuh"
#include "linear_q_digits.cuh"

static void expect_ok(cudaError_t e, const char *what, int line)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "linear_check.cu:%d %s: %s\n", line, what, cudaGetErrorString(e));
    exit(1);
}
#define CK(x) expect_ok((cudaError_t)(x), #x, __LINE__)

extern const Instance part0[], part1[], part2[], part3[];
extern const int part0_count, part1_count, part2_count, part3_count;

enum { MAX_M = 64, MANY = 512, TOKENS = 192, DIGIT_BYTES = 1 << 20, CONTEXT = 256, BLOCK = 16, PAGES = CONTEXT / BLOCK, GUARD = 4096 };
static cudaStream_t stream;
static unsigned seed;
static bool ordered; // all kernels of a problem get the same rows

static float to_f(unsigned short h, int type)
{
    if (type == 3) {
        unsigned u = (unsigned)h << 16;
        float f;
        memcpy(&f, &u, 4);
        return f;
    }
    const int e = h >> 10 & 31, m = h & 1023;
    const float v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(1024 + m, e - 25) : ldexpf(m, -24);
    return h & 0x8000 ? -v : v;
}
static unsigned short from_f(float f, int type)  // normal numbers only
{
    unsigned u;
    memcpy(&u, &f, 4);
    if (type == 3)
        return (u + 0x7fff + (u >> 16 & 1)) >> 16;
    const int e = (int)(u >> 23 & 255) - 127 + 15;
    if (e <= 0)
        return u >> 16 & 0x8000;
    unsigned m = (u & 0x7fffff) + 0xfff + (u >> 13 & 1);
    return (u >> 16 & 0x8000) + ((unsigned)e << 10) + (m >> 13);
}
static size_t size_of(int type) { return type == 1 ? 4 : 2; }

struct Buffer {  // on both sides
    std::vector<char> host;
    char *device = nullptr;
    void make(size_t bytes) { host.assign(bytes, (char)0xff); CK(cudaMalloc(&device, bytes + GUARD)); CK(cudaMemset(device, 0xff, bytes + GUARD)); }
    void up() { if (host.size()) CK(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice)); }
    void down() { CK(cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDeviceToHost)); }
    void poison() { CK(cudaMemset(device, 0xff, host.size() + GUARD)); }
    bool guarded()
    {
        std::vector<unsigned char> g(GUARD);
        CK(cudaMemcpy(g.data(), device + host.size(), GUARD, cudaMemcpyDeviceToHost));
        for (unsigned char c : g)
            if (c != 0xff)
                return false;
        return true;
    }
    void set(size_t i, int type, float f) { if (type == 1) ((float *)host.data())[i] = f; else ((unsigned short *)host.data())[i] = from_f(f, type); }
    float get(size_t i, int type) const { return type == 1 ? ((const float *)host.data())[i] : to_f(((const unsigned short *)host.data())[i], type); }
    void close() { if (device) CK(cudaFree(device)); device = nullptr; }
};

// out[m][n] = sum in double; one thread an output.
static __global__ void reference(const double *x, const void *w, int type, double *out, int M, int N, int K)
{
    const int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
    if (n >= N)
        return;
    double s = 0;
    for (int k = 0; k < K; k++) {
        const size_t i = (size_t)n * K + k;
        const float v = type == 1 ? ((const float *)w)[i] : type == 3 ? to_float(((const bf16 *)w)[i]) : to_float(((const half *)w)[i]);
        s += x[(size_t)m * K + k] * v;
    }
    out[(size_t)m * N + n] = s;
}

// Rows of x as digits (compiler/ir/forms.def); one thread a panel of a row.
static __global__ void plain_digits(const void *x, int type, signed char *y, float *units, int rows, int K, int M)
{
    const int at = blockIdx.x * blockDim.x + threadIdx.x, m = at / (K / 128), p = at % (K / 128);
    if (m >= rows)
        return;
    float v[128], largest = 0;
    int power = 0;
    for (int k = 0; k < 128; k++) {
        const size_t i = (size_t)m * K + p * 128 + k;
        v[k] = type == 3 ? to_float(((const bf16 *)x)[i]) : to_float(((const half *)x)[i]);
        largest = fmaxf(largest, fabsf(v[k]));
    }
    power = frexpf(largest, &power) >= 0.9921875f ? power : power - 1;
    units[p * M + m] = ldexpf(1.0f, power - 14);
    for (int k = 0; k < 128; k++) {
        const int n = (int)rintf(ldexpf(v[k], 14 - power)), low = (n + 128 & 255) - 128;
        const int to = (k / 16 ^ (m & 7)) * 16 + k % 8 / 2 * 4 + k % 2 * 2 + k % 16 / 8;
        y[((size_t)p * 2 * M + m) * 128 + to] = (n - low) / 256;
        y[((size_t)(p * 2 + 1) * M + m) * 128 + to] = low;
    }
}

static double activation(int kind, double x)
{
    switch (kind) {
    case 1: return x > 0 ? x : 0;
    case 2: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case 3: return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case 4: return x / (1 + exp(-1.702 * x));
    case 5: return x / (1 + exp(-x));
    }
    return x;
}

// TMA descriptors. The host makes them; send_maps() copies them to the device, before the launches run.
enum { MAPS = 1 << 14, MAP = 128 };
static decltype(&cuTensorMapEncodeTiled) encode;
static char *device_maps;
static std::vector<CUtensorMap> host_maps;
static std::map<std::tuple<const void *, int, int, int, int>, int> map_of;

static const void *find_map(const void *matrix, int rows, int columns, int tile_rows, int type)
{
    int &at = map_of[{matrix, rows, columns, tile_rows, type}];
    if (at == 0) {
        const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[] = {2 * (cuuint64_t)columns};
        const cuuint32_t tile[] = {64, (cuuint32_t)tile_rows}, every[] = {1, 1};
        CUtensorMap m;
        CK(encode(&m, type == 3 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)matrix, size, stride,
                  tile, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
        host_maps.push_back(m);
        at = (int)host_maps.size();
        CK(at > MAPS);
    }
    return device_maps + (size_t)(at - 1) * MAP;
}
static void send_maps()
{
    CK(cudaMemcpy(device_maps, host_maps.data(), host_maps.size() * MAP, cudaMemcpyHostToDevice));
}
static void forget_maps()
{
    host_maps.clear();
    map_of.clear();
}
// The arguments as the kernel takes them.
static LinearArgs mapped(const Instance &i, LinearArgs a)
{
    if (i.tile_x)
        a.x = find_map(a.x, i.last ? TOKENS : i.m, i.k, i.tile_x, i.x);
    if (i.tile_w)
        a.w = find_map(a.w, i.n, i.k, i.tile_w, i.x);
    return a;
}

static signed char *digits; // of x, and their units
static float *digit_units;

static void launch(const Instance &i, LinearArgs a, bool overlap)
{
    a = mapped(i, a);
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(i.grid, i.grid_y);
    c.blockDim = dim3(i.block);
    c.dynamicSmemBytes = i.smem;
    c.stream = stream;
    cudaLaunchAttribute at[1];
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    if (overlap) {
        c.attrs = at;
        c.numAttrs = 1;
    }
    LinearHeadArgs head = {}; // no parts: these heads are not of logits
    (LinearArgs &)head = a;
    const bool head_args = strcmp(i.family, "linear_head") == 0 || strcmp(i.family, "linear_hopper_head") == 0 || strcmp(i.family, "linear_q_bulk_head") == 0 || strcmp(i.family, "linear_q_head") == 0;
    const bool of_digits = strstr(i.family, "digits");
    LinearDigitArgs digit_args = {};
    (LinearArgs &)digit_args = a;
    digit_args.units = digit_units;
    void *args[] = {of_digits ? (void *)&digit_args : head_args ? (void *)&head : (void *)&a};
    CK(cudaLaunchKernelExC(&c, i.kernel, args));
}

static void prepare(const Instance &i)
{
    cudaFuncAttributes fa;
    CK(cudaFuncGetAttributes(&fa, i.kernel));
    if (fa.localSizeBytes) /* no failure: such constants are tried here, and what a plan takes is tests/gates' to refuse */
        printf("note %s #%d spills or has a stack: %zu bytes\n", i.family, i.id, fa.localSizeBytes);
    CK(cudaFuncSetAttribute(i.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, i.smem));
    CK(cudaFuncSetAttribute(i.kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
}

static std::string key_of(const Instance &i)
{
    char s[200];
    snprintf(s, sizeof s, "%sx%d y%d kv%d n%d k%d norm%d b%d act%d glu%d res%d app%d/%d/%d/%d/%d last%d codes%d/%d/%d", i.m > MAX_M && !ordered ? "many " : "", i.x, i.y, i.kv, i.n, i.k,
             i.norm, i.bias, i.act, i.glu, i.res, i.append, i.H, i.G, i.E, i.ROT, i.last, i.bits, i.group, i.scales);
    return s;
}

// Draws quantised weights: tiles in the form m16k16 (compiler/ir/forms.def, runtime/base/packed.h), and the same as numbers.
static size_t tile_of(const Instance &i)
{
    const int scale = i.scales >= 2 ? 4 : 2, zero = i.scales == 1 ? 1 : i.scales == 3 ? 4 : 0;
    return (i.k * 2 * i.bits + i.k / i.group * 16 * (scale + zero) + 63) / 64 * 64;
}
static void draw_codes(const Instance &i, Buffer &tiles, Buffer &numbers, std::mt19937 &rng)
{
    const int N = i.n, K = i.k, groups = K / i.group, top = 1 << i.bits, span = i.bits == 4 ? 64 : 32, word = i.bits;
    const int scale_bytes = i.scales >= 2 ? 4 : 2;
    const size_t tile = tile_of(i), scales = (size_t)K * 2 * i.bits, zeros = scales + (size_t)groups * 16 * scale_bytes;
    tiles.make((N + 15) / 16 * tile), numbers.make((size_t)N * K * 4);
    memset(tiles.host.data(), 0, tiles.host.size());
    for (int n = 0; n < N; n++) {
        unsigned char *to = (unsigned char *)tiles.host.data() + n / 16 * tile;
        for (int q = 0; q < groups; q++) {
            const size_t at = (size_t)q * 16 + n % 16;
            float scale = (0.5f + (rng() >> 8) / 33554432.0f) * sqrtf(12.0f / K) / top, minimum = 0;
            int zero = i.scales == 1 ? (int)(rng() % top) : top / 2;
            if (i.scales >= 2)
                memcpy(to + scales + at * 4, &scale, 4);
            else {
                const unsigned short h = from_f(scale, 2);
                memcpy(to + scales + at * 2, &h, 2), scale = to_f(h, 2);
            }
            if (i.scales == 1)
                to[zeros + at] = zero;
            if (i.scales == 3)
                zero = 0, minimum = scale * (top * 0.4f + rng() % 7), memcpy(to + zeros + at * 4, &minimum, 4);
            for (int k = q * i.group; k < (q + 1) * i.group; k++) {
                const int code = (int)(rng() % top), block = k / span * span, left = std::min(span, K - block);
                const int lane = n % 8 * 4 + k % 8 / 2, j = k % 16 / 8 * 2 + n % 16 / 8, odd = k % 2;
                unsigned char *c = to + (size_t)block * 2 * i.bits + (lane * (left / 16) + (k - block) / 16) * word;
                if (i.bits == 4)
                    c[j / 2 + 2 * odd] |= code << (j % 2 * 4);
                else
                    c[j / 2 * 4 + j % 2 + 2 * odd] = code;
                numbers.set((size_t)n * K + k, 1, scale * (code - zero) - minimum);
            }
        }
    }
}

struct Problem {  // inputs and the reference of one key
    Buffer x, w, numbers, g, c, b, r, table, step, token, rows, pages, k, v, y;
    std::vector<double> want, want_k;  // outputs; and for append the values of k then v by row
    int out = 0;
    std::map<int, std::vector<char>> first;  // bits of a row; Hopper's form has an order of sums for each size of clusters
};

static void make(Problem &p, const Instance &i)
{
    std::mt19937 rng(seed ^ (unsigned)std::hash<std::string>()(key_of(i)));
    std::uniform_real_distribution<float> u(-1, 1);
    const int MAX = i.m > MAX_M || ordered ? MANY : MAX_M, N = i.n, K = i.k, T = i.last ? TOKENS : MAX;
    p.x.make((size_t)T * K * size_of(i.x));
    for (int t = 0; t < T; t++) {
        const float shift = 0.5f * u(rng), scale = 0.3f + fabsf(u(rng));
        for (int k = 0; k < K; k++)
            p.x.set((size_t)t * K + k, i.x, shift + scale * u(rng));
    }
    if (i.bits)
        draw_codes(i, p.w, p.numbers, rng);
    else {
        p.w.make((size_t)N * K * size_of(i.x));
        const float ws = sqrtf(3.0f / K);
        for (size_t j = 0; j < (size_t)N * K; j++)
            p.w.set(j, i.x, ws * ((int)(rng() >> 8) / 8388608.0f - 1.0f));
    }
    const Buffer &numbers = i.bits ? p.numbers : p.w;
    const int type = i.bits ? 1 : i.x; // of these
    p.g.make(K * 4), p.c.make(K * 4), p.b.make(N * 4), p.r.make((size_t)MAX * N * size_of(i.x));
    for (int k = 0; k < K; k++)
        p.g.set(k, 1, 1 + 0.3f * u(rng)), p.c.set(k, 1, 0.3f * u(rng));
    for (int n = 0; n < N; n++)
        p.b.set(n, 1, u(rng));
    for (size_t j = 0; j < (size_t)MAX * N; j++)
        p.r.set(j, i.x, u(rng));
    const int rot = i.append ? i.ROT / 2 : 0;
    p.table.make((size_t)CONTEXT * rot * 8 + 8);
    for (int q = 0; q < CONTEXT; q++)
        for (int e = 0; e < rot; e++) {
            const double f = q * pow(10000.0, -2.0 * e / i.ROT);
            p.table.set((q * rot + e) * 2, 1, (float)cos(f)), p.table.set((q * rot + e) * 2 + 1, 1, (float)sin(f));
        }
    p.step.make(sizeof(FtxStep)), p.token.make(sizeof(FtxToken) * std::max<int>(T, TOKENS)), p.rows.make(sizeof(FtxRow) * MAX), p.pages.make(4 * MAX * PAGES);
    std::vector<int> order(MAX * PAGES);
    for (size_t j = 0; j < order.size(); j++)
        order[j] = (int)j;
    std::shuffle(order.begin(), order.end(), rng);
    memcpy(p.pages.host.data(), order.data(), order.size() * 4);
    FtxToken *token = (FtxToken *)p.token.host.data();
    for (int t = 0; t < MAX; t++)
        token[t] = {1, (int)(rng() % CONTEXT), t, (t * 37 + 5) % MAX};
    FtxRow *row = (FtxRow *)p.rows.host.data();
    for (int s = 0, at = 0; s < MAX; s++) {
        row[s].q_start = at;
        row[s].q_len = 1 + (int)(rng() % 3);
        at += row[s].q_len;
    }
    p.out = i.append ? i.H * i.E : i.glu ? N / 2 : N;
    p.y.make((size_t)MAX * p.out * size_of(i.y));
    const size_t cache = i.append ? (size_t)MAX * PAGES * i.G * BLOCK * i.E * size_of(i.kv) : 16;
    p.k.make(cache), p.v.make(cache);
    for (Buffer *d : {&p.x, &p.w, &p.numbers, &p.g, &p.c, &p.b, &p.r, &p.table, &p.step, &p.token, &p.rows, &p.pages})
        d->up();
    CK(cudaDeviceSynchronize());  // a copy of ordinary memory may still be under way

    std::vector<double> xn((size_t)MAX * K);
    for (int m = 0; m < MAX; m++) {
        const size_t at = (size_t)(i.last ? row[m].q_start + row[m].q_len - 1 : m) * K;
        double mean = 0, var = 0;
        for (int k = 0; k < K; k++)
            mean += p.x.get(at + k, i.x);
        mean = i.norm == 2 ? mean / K : 0;
        for (int k = 0; k < K; k++)
            var += pow(p.x.get(at + k, i.x) - mean, 2);
        const double scale = i.norm ? 1 / sqrt(var / K + 1e-5) : 1;
        for (int k = 0; k < K; k++) {
            double v = (p.x.get(at + k, i.x) - mean) * scale;
            if (i.norm)
                v = v * p.g.get(k, 1) + (i.norm == 2 ? p.c.get(k, 1) : 0);
            xn[(size_t)m * K + k] = v;
        }
    }
    double *dx, *dy;
    CK(cudaMalloc(&dx, xn.size() * 8)), CK(cudaMalloc(&dy, (size_t)MAX * N * 8));
    CK(cudaMemcpy(dx, xn.data(), xn.size() * 8, cudaMemcpyHostToDevice));
    CK(cudaDeviceSynchronize());
    reference<<<dim3((N + 127) / 128, MAX), 128, 0, stream>>>(dx, numbers.device, type, dy, MAX, N, K);
    CK(cudaStreamSynchronize(stream));
    std::vector<double> s((size_t)MAX * N);
    CK(cudaMemcpy(s.data(), dy, s.size() * 8, cudaMemcpyDeviceToHost));
    CK(cudaFree(dx)), CK(cudaFree(dy));
    for (int probe = 0; probe < 3; probe++) {  // the device's loop against the host's
        const int m = (int)(rng() % MAX), n = (int)(rng() % N);
        double v = 0;
        for (int k = 0; k < K; k++)
            v += xn[(size_t)m * K + k] * numbers.get((size_t)n * K + k, type);
        if (fabs(v - s[(size_t)m * N + n]) > 1e-9 * (1 + fabs(v)))
            printf("FAIL reference %g %g\n", v, s[(size_t)m * N + n]);
    }
    p.want.assign((size_t)MAX * p.out, 0);
    p.want_k.assign(i.append ? (size_t)MAX * 2 * i.G * i.E : 0, 0);
    for (int m = 0; m < MAX; m++) {
        double *v = &s[(size_t)m * N];
        for (int n = 0; n < N && i.bias; n++)
            v[n] += p.b.get(n, 1);
        if (i.append) {
            for (int h = 0; h < i.H + i.G; h++)
                for (int e = 0; e < rot; e++) {
                    const double f = token[m].pos * pow(10000.0, -2.0 * e / i.ROT), a = v[h * i.E + 2 * e], b = v[h * i.E + 2 * e + 1];
                    v[h * i.E + 2 * e] = a * cos(f) - b * sin(f), v[h * i.E + 2 * e + 1] = a * sin(f) + b * cos(f);
                }
            for (int n = 0; n < N; n++)
                if (n < p.out)
                    p.want[(size_t)m * p.out + n] = v[n];
                else
                    p.want_k[(size_t)m * 2 * i.G * i.E + n - p.out] = v[n];
        } else if (i.glu) {
            for (int n = 0; n < p.out; n++)
                p.want[(size_t)m * p.out + n] = activation(i.act, v[2 * n]) * v[2 * n + 1];
        } else {
            for (int n = 0; n < N; n++)
                p.want[(size_t)m * N + n] = activation(i.act, v[n]) + (i.res ? p.r.get((size_t)m * N + n, i.x) : 0);
        }
    }
}

static int failures;

static void check(Problem &p, const Instance &i)
{
    const int live = std::max(1, i.m - (i.m > 4 ? 3 : 0));  // some rows of the bucket are not alive
    FtxStep step = {};
    step.tokens = i.last ? TOKENS : live;
    step.rows = live;
    CK(cudaMemcpy(p.step.device, &step, sizeof step, cudaMemcpyHostToDevice));
    p.y.poison(), p.k.poison(), p.v.poison();
    CK(cudaDeviceSynchronize());
    LinearArgs a = {p.x.device, p.w.device, i.norm ? (float *)p.g.device : nullptr, i.norm == 2 ? (float *)p.c.device : nullptr,
                    i.bias ? (float *)p.b.device : nullptr, i.res ? p.r.device : nullptr, i.append && i.ROT ? (float *)p.table.device : nullptr,
                    (FtxStep *)p.step.device, (FtxToken *)p.token.device, (FtxRow *)p.rows.device, (int *)p.pages.device,
                    p.k.device, p.v.device, p.y.device};
    prepare(i);
    if (strstr(i.family, "digits")) { // rows that are not alive have what an earlier step left
        CK(cudaMemset(digits, 0x7f, DIGIT_BYTES)), CK(cudaMemset(digit_units, 0xff, DIGIT_BYTES));
        plain_digits<<<(live * (i.k / 128) + 63) / 64, 64, 0, stream>>>(a.x, i.x, digits, digit_units, live, i.k, i.m);
        a.x = digits;
    }
    mapped(i, a);
    send_maps();
    launch(i, a, true);
    CK(cudaStreamSynchronize(stream));
    CK(cudaGetLastError());
    p.y.down(), p.k.down(), p.v.down();
    double e = 0, s = 0, worst = 0;
    int same = 0, other = 0;
    auto compare = [&](double got, double want) {
        if (!(fabs(got) < 1e30))
            got = 1e30;  // NaN: not written
        e += (got - want) * (got - want), s += want * want;
        worst = std::max(worst, fabs(got - want));
    };
    const FtxToken *token = (const FtxToken *)p.token.host.data();
    const int *pages = (const int *)p.pages.host.data();
    for (int m = 0; m < live; m++) {
        std::vector<char> bits(p.y.host.begin() + (size_t)m * p.out * size_of(i.y), p.y.host.begin() + (size_t)(m + 1) * p.out * size_of(i.y));
        for (int n = 0; n < p.out; n++)
            compare(p.y.get((size_t)m * p.out + n, i.y), p.want[(size_t)m * p.out + n]);
        for (int n = 0; i.append && n < 2 * i.G * i.E; n++) {
            const int g = n / i.E % i.G, page = pages[token[m].slot * PAGES + token[m].pos / BLOCK];
            const Buffer &c = n < i.G * i.E ? p.k : p.v;
            const size_t at = (((size_t)page * i.G + g) * BLOCK + token[m].pos % BLOCK) * i.E + n % i.E;
            compare(c.get(at, i.kv), p.want_k[(size_t)m * 2 * i.G * i.E + n]);
            bits.insert(bits.end(), c.host.begin() + at * size_of(i.kv), c.host.begin() + (at + 1) * size_of(i.kv));
        }
        const bool own = strstr(i.family, "hopper") || strstr(i.family, "swapped") || strstr(i.family, "batch");
        const bool bulk = strstr(i.family, "bulk"), many = strncmp(i.family, "linear_q", 8) == 0 && i.m > 8; // linear_q.cuh: orders
        std::vector<char> &first = p.first[(strstr(i.family, "digits") ? 22 : own ? i.cluster : bulk ? 20 : many ? 21 : 0) * MANY + m];
        if (first.empty())
            first = bits;
        else if (first == bits)
            same++;
        else
            other++;
    }
    const double rel = sqrt(e / s), limit = i.x == 1 ? 2e-6 : i.x == 2 ? 1.2e-3 : 8e-3;
    const bool ok = rel < limit && other == 0 && p.y.guarded() && p.k.guarded() && p.v.guarded();
    failures += !ok;
    printf("%s %-18s M %2d live %2d  %-62s rel %.2e worst %.2e  rows of equal bits %d, other %d\n", ok ? "ok  " : "FAIL", i.family, i.m, live,
           key_of(i).c_str(), rel, worst, same, other);
}

// ---------------------------------------------------------------- time

static __global__ void fill(bf16 *p, size_t n, float scale)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        u64 h = i * 0x9E3779B97F4A7C15ull;
        h ^= h >> 29;
        h *= 0xBF58476D1CE4E5B9ull;
        p[i] = from_float<bf16>(scale * ((int)(h >> 40) / 8388608.0f - 1.0f));
    }
}

static double median(std::vector<double> t)
{
    std::sort(t.begin(), t.end());
    return t[t.size() / 2];
}

struct Chain {
    char *pool, *act[4];
    size_t pool_bytes;
    float *g, *table;
    FtxStep *step;
    FtxToken *token;
    FtxRow *rows;
    int *pages;
    char *k, *v;
};

// Microseconds of one replay: `repeat` times the given kernels, each launch with its own weights.
static double time_chain(Chain &c, const std::vector<Instance> &list, int repeat, bool overlap, double *bytes)
{
    FtxStep step = {};
    step.tokens = step.rows = list[0].live;
    CK(cudaMemcpy(c.step, &step, sizeof step, cudaMemcpyHostToDevice));
    size_t at = 0;
    *bytes = 0;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int l = 0; l < repeat; l++)
        for (size_t s = 0; s < list.size(); s++) {
            const Instance &i = list[s];
            const size_t size = i.bits ? (i.n + 15) / 16 * tile_of(i) : (size_t)i.n * i.k * size_of(i.x);
            if (at + size > c.pool_bytes)
                at = 0;
            // 0 h, 1 q, 2 h after attention, 3 middle
            static const int in[] = {0, 1, 2, 3}, out[] = {1, 2, 3, 0}, residual[] = {0, 0, 0, 2};
            const bool four = list.size() == 4;
            LinearArgs a = {c.act[four ? in[s] : 0], c.pool + at, c.g, c.g, c.g, c.act[four ? residual[s] : 2], c.table, c.step, c.token, c.rows,
                            c.pages, c.k, c.v, c.act[four ? out[s] : 1]};
            launch(i, a, overlap);
            at += (size + 255) / 256 * 256;
            *bytes += size;
        }
    CK(cudaStreamEndCapture(stream, &graph));
    CK(cudaGraphInstantiate(&exec, graph, 0));
    send_maps();
    cudaEvent_t t0, t1;
    CK(cudaEventCreate(&t0)), CK(cudaEventCreate(&t1));
    std::vector<double> t;
    for (int r = 0; r < 13; r++) {
        CK(cudaEventRecord(t0, stream));
        CK(cudaGraphLaunch(exec, stream));
        CK(cudaEventRecord(t1, stream));
        CK(cudaEventSynchronize(t1));
        float ms;
        CK(cudaEventElapsedTime(&ms, t0, t1));
        if (r >= 2)
            t.push_back(ms * 1e3);
    }
    CK(cudaGetLastError());
    CK(cudaGraphExecDestroy(exec)), CK(cudaGraphDestroy(graph));
    return median(t);
}

static void timings(const std::vector<Instance> &all, const char *only)
{
    Chain c;
    c.pool_bytes = (size_t)14 << 30;
    CK(cudaMalloc(&c.pool, c.pool_bytes));
    fill<<<4096, 256, 0, stream>>>((bf16 *)c.pool, c.pool_bytes / 2, 0.03f);
    for (char *&p : c.act) {
        CK(cudaMalloc(&p, 64 << 20));
        fill<<<1024, 256, 0, stream>>>((bf16 *)p, 32 << 20, 1.0f);
    }
    CK(cudaMalloc(&c.g, 1 << 20)), CK(cudaMalloc(&c.table, 1 << 20)), CK(cudaMalloc(&c.step, 64)), CK(cudaMalloc(&c.token, MANY * sizeof(FtxToken)));
    CK(cudaMalloc(&c.rows, MANY * sizeof(FtxRow))), CK(cudaMalloc(&c.pages, 65536)), CK(cudaMalloc(&c.k, 64 << 20)), CK(cudaMalloc(&c.v, 64 << 20));
    std::vector<float> ones(1 << 18, 1.0f);
    CK(cudaMemcpy(c.g, ones.data(), 1 << 20, cudaMemcpyHostToDevice)), CK(cudaMemcpy(c.table, ones.data(), 1 << 20, cudaMemcpyHostToDevice));
    std::vector<FtxToken> token(MANY);
    std::vector<FtxRow> row(MANY);
    std::vector<int> pages(64 * PAGES);
    for (int t = 0; t < MANY; t++) {
        token[t] = {1, 100 + t % 64 + t / 64, t, t % 64}; // 64 caches are enough
        row[t].q_start = t, row[t].q_len = 1;
    }
    for (size_t b = 0; b < pages.size(); b++)
        pages[b] = (int)b;
    CK(cudaMemcpy(c.token, token.data(), token.size() * sizeof(FtxToken), cudaMemcpyHostToDevice)), CK(cudaMemcpy(c.rows, row.data(), row.size() * sizeof(FtxRow), cudaMemcpyHostToDevice));
    CK(cudaMemcpy(c.pages, pages.data(), pages.size() * 4, cudaMemcpyHostToDevice));
    CK(cudaStreamSynchronize(stream));
    std::vector<std::string> names;
    std::map<std::string, std::vector<Instance>> by;
    for (const Instance &i : all)
        if (*i.seq && strstr(i.seq, only)) {
            if (!by.count(i.seq))
                names.push_back(i.seq);
            by[i.seq].push_back(i);
            prepare(i);
        }
    for (const std::string &name : names) {
        const std::vector<Instance> &list = by[name];
        double bytes;
        if (list.size() == 4) {
            const int layers = list[0].k == 2048 ? 16 : 32;
            const double plain = time_chain(c, list, layers, false, &bytes);
            const double t = time_chain(c, list, layers, true, &bytes), again = time_chain(c, list, layers, true, &bytes);
            printf("%-16s %8.1f us (again %.1f, plain edges %.1f)  %.0f GB/s  %.1f %% of 4.6 TB/s\n", name.c_str(), t, again, plain, bytes / t * 1e-3, bytes / t * 1e-3 / 46);
        }
        for (const Instance &i : list) {
            const double t = time_chain(c, {i}, 48, true, &bytes) / 48;
            printf("    %-18s n %6d k %5d rows %3d  %7.2f us  %5.0f GB/s   grid %d block %d smem %d %s\n", i.family, i.n, i.k, i.live, t, bytes / 48 / t * 1e-3,
                   i.grid, i.block, i.smem, i.note);
        }
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    const std::string what = argc > 1 ? argv[1] : "all";
    setvbuf(stdout, nullptr, _IOLBF, 0);
    seed = argc > 3 ? (unsigned)atoi(argv[3]) : std::random_device()();
    cudaDeviceProp pr;
    CK(cudaGetDeviceProperties(&pr, 0));
    CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CK(cudaMalloc(&device_maps, (size_t)MAPS * MAP));
    CK(cudaMalloc(&digits, DIGIT_BYTES)), CK(cudaMalloc(&digit_units, DIGIT_BYTES)), CK(cudaMemset(digit_units, 0, DIGIT_BYTES));
    encode = (decltype(encode))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuTensorMapEncodeTiled");
    CK(!encode);
    printf("%s, %d SMs, seed %u\n", pr.name, pr.multiProcessorCount, seed);
    ordered = what == "order";
    std::vector<Instance> all;
    all.insert(all.end(), part0, part0 + part0_count), all.insert(all.end(), part1, part1 + part1_count);
    all.insert(all.end(), part2, part2 + part2_count), all.insert(all.end(), part3, part3 + part3_count);
    std::sort(all.begin(), all.end(), [](const Instance &a, const Instance &b) { return a.id < b.id; });
    if (what != "time") {
        std::vector<std::string> keys;
        for (const Instance &i : all)
            if (!*i.seq && std::find(keys.begin(), keys.end(), key_of(i)) == keys.end())
                keys.push_back(key_of(i));
        for (const std::string &key : keys) {
            Problem p;
            for (const Instance &i : all)
                if (!*i.seq && key_of(i) == key) {
                    if (p.out == 0)
                        make(p, i);
                    check(p, i);
                }
            for (Buffer *d : {&p.x, &p.w, &p.numbers, &p.g, &p.c, &p.b, &p.r, &p.table, &p.step, &p.token, &p.rows, &p.pages, &p.k, &p.v, &p.y})
                d->close();
            forget_maps();
        }
        printf("%d failures\n", failures);
    }
    if (what != "check" && !ordered)
        timings(all, argc > 2 ? argv[2] : "");
    return failures != 0;
}
