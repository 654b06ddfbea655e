// few_check.cu - linear_attend on a GPU against plain loops in double: short texts one after another, with and without
// layer norm of the rows.
//
//     nvcc -O2 -std=c++17 -Ikernels -gencode arch=compute_90a,code=sm_90a -cudart static -o few_check tests/gpu/few_check.cu -ldl
//
// Rows after the last token are NaN. Each launch runs twice in a row and must give the same bits.
#include <cuda.h>
#include <dlfcn.h>

#include "linear_attend.cuh"
#include "check.h"

enum { TOKENS = 128 };
template <class X, int D_, int HEADS_, int BIAS_, int XSTAT_> struct Facts {
    using T = X;
    static constexpr int D = D_, HEADS = HEADS_, BIAS = BIAS_, X_STATS = XSTAT_, N = 3 * HEADS * 64;
    static constexpr float SCALE = 0.125f, EPS = 1e-5f;
    // The regions of shared memory.
    static constexpr int SLOTS = ceil_div(ceil_div(D, 64), 2), KEYS_AT = 0, QUERIES_AT = 16384, VALUES_AT = 20480;
    static constexpr int RESULTS_AT = 30720, SOFTMAX_AT = 49152, X_AT = most(SLOTS * 12288, 50176), SUMS_AT = X_AT;
    static constexpr int TEXTS_AT = X_AT + most(SLOTS * 8192, 12288), BARRIERS_AT = TEXTS_AT + 64;
    static constexpr int SHARED = BARRIERS_AT + (SLOTS + 6) * 8;
};
template <class C> __global__ void CLUSTER(8) __launch_bounds__(256, 1) few_kernel(const LinearAttendArgs a)
{
    linear_attend<C>(a);
}

template <class T> CUtensorMap tiled(const T *matrix, int rows, int columns, int tile_rows)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    const auto encode = (decltype(&cuTensorMapEncodeTiled))dlsym(driver, "cuTensorMapEncodeTiled");
    CUtensorMap m;
    const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[] = {2 * (cuuint64_t)columns};
    const cuuint32_t tile[] = {64, (cuuint32_t)tile_rows}, every[] = {1, 1};
    const auto type = std::is_same<T, half>::value ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (encode(&m, type, 2, (void *)matrix, size, stride, tile, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
        printf("no map\n"), exit(1);
    return m;
}

template <class T> std::vector<float> floats(const std::vector<T> &v)
{
    std::vector<float> f(v.size());
    for (size_t i = 0; i < v.size(); i++)
        f[i] = host_float(v[i]);
    return f;
}

// The attention of a head's tokens over their own texts: y [token][64] of q, k, v in double.
static void attend(const std::vector<double> &qkv, const std::vector<FtxRow> &rows, int heads, int h,
                   std::vector<double> &y)
{
    const size_t line = 3 * heads * 64;
    for (const FtxRow &r : rows)
        for (int i = r.q_start; i < r.q_start + r.q_len; i++) {
            std::vector<double> s(r.q_len);
            double top = -1e300, sum = 0;
            for (int j = 0; j < r.q_len; j++) {
                for (int e = 0; e < 64; e++)
                    s[j] += qkv[i * line + h * 64 + e] * qkv[(r.q_start + j) * line + (heads + h) * 64 + e];
                top = std::max(top, s[j] *= 0.125);
            }
            for (double &v : s)
                sum += v = exp(v - top);
            for (int e = 0; e < 64; e++) {
                double o = 0;
                for (int j = 0; j < r.q_len; j++)
                    o += s[j] * qkv[(r.q_start + j) * line + (2 * heads + h) * 64 + e];
                y[((size_t)i * heads + h) * 64 + e] = o / sum;
            }
        }
}

template <class C> int check(const std::vector<int> &length, uint64_t seed)
{
    using T = typename C::T;
    constexpr int D = C::D, N = C::N, A = C::HEADS * 64, PARTS = ceil_div(D, C::X_STATS ? C::X_STATS : D);
    Random rnd{seed};
    std::vector<FtxRow> rows(length.size());
    int tokens = 0;
    for (size_t i = 0; i < length.size(); i++) {
        rows[i].q_start = tokens;
        tokens += rows[i].q_len = length[i];
    }
    std::vector<T> x((size_t)TOKENS * D), w((size_t)N * D);
    std::vector<float> b(N), xs((size_t)TOKENS * PARTS * 2);
    for (T &v : x)
        v = host_round<T>(rnd.normal());
    for (T &v : w)
        v = host_round<T>(rnd.normal() / sqrtf(D) * 1.4f);
    for (float &v : b)
        v = rnd.normal();
    memset(x.data() + (size_t)tokens * D, 0xff, (size_t)(TOKENS - tokens) * D * 2);
    for (int m = 0; m < TOKENS; m++)
        for (int k = 0; k < D; k++) {
            float *part = &xs[(size_t)(m * PARTS + k / (C::X_STATS ? C::X_STATS : D)) * 2];
            const float v = host_float(x[(size_t)m * D + k]);
            part[0] += v;
            part[1] += v * v;
        }
    Device<T> dx(x), dw(w), dy((size_t)TOKENS * A);
    Device<float> db(b), dxs(xs);
    Device<FtxRow> dr(rows);
    Device<FtxStep> ds(1);
    Device<CUtensorMap> maps(2);
    FtxStep step = {};
    step.tokens = tokens;
    step.rows = (int)length.size();
    ds.put({step});
    maps.put({tiled(dx.p, TOKENS, D, 64), tiled(dw.p, N, D, 32)});
    LinearAttendArgs a = {};
    a.x = (const TensorMap *)maps.p;
    a.w = (const TensorMap *)(maps.p + 1);
    a.b = db.p;
    a.xs = dxs.p;
    a.step = ds.p;
    a.rows = dr.p;
    a.y = dy.p;
    std::vector<T> y;
    bool same = true;
    for (int i = 0; i < 3; i++) {
        dy.fill(0xff);
        for (int n = 0; n < 2; n++)
            launch(few_kernel<C>, dim3(C::HEADS * 8), 256, C::SHARED, a);
        CU(cudaDeviceSynchronize());
        const std::vector<T> now = dy.get();
        same = same && (i == 0 || memcmp(now.data(), y.data(), y.size() * sizeof(T)) == 0);
        y = now;
    }
    std::vector<double> qkv((size_t)tokens * N), ref((size_t)tokens * A);
    const std::vector<float> fx = floats(x), fw = floats(w);
    parallel(tokens, [&](int m) {
        double sum = 0, squares = 0;
        for (int k = 0; k < D; k++) {
            sum += fx[m * D + k];
            squares += (double)fx[m * D + k] * fx[m * D + k];
        }
        const double scale = C::X_STATS ? 1 / sqrt(squares / D - sum / D * sum / D + C::EPS) : 1;
        for (int n = 0; n < N; n++) {
            double s = 0;
            for (int k = 0; k < D; k++)
                s += (double)fx[m * D + k] * fw[n * D + k];
            qkv[(size_t)m * N + n] = s * scale + (C::BIAS ? b[n] : 0);
        }
    });
    parallel(C::HEADS, [&](int h) { attend(qkv, rows, C::HEADS, h, ref); });
    double error = 0, norm = 0;
    for (size_t i = 0; i < ref.size(); i++) {
        const double d = host_float(y[i]) - ref[i];
        error += d == d ? d * d : 1e9;
        norm += ref[i] * ref[i];
    }
    for (size_t i = ref.size(); i < y.size(); i++)
        same = same && y[i].bits == 0xffff;
    error = sqrt(error / norm);
    const bool good = same && error < (std::is_same<T, half>::value ? 2e-3 : 1.6e-2);
    printf("%s D %4d heads %2d bias %d parts of %2d, %2zu texts, %3d tokens: error %.1e%s%s\n",
           std::is_same<T, half>::value ? "fp16" : "bf16", D, C::HEADS, C::BIAS, C::X_STATS, rows.size(), tokens, error,
           same ? "" : " other bits or tokens", good ? "" : " WRONG");
    return !good;
}

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    int wrong = 0;
    for (const std::vector<int> &length : {std::vector<int>{128},
                                           {1},
                                           {64},
                                           {17},
                                           {127, 1},
                                           {1, 127},
                                           {33, 31, 64},
                                           {5, 60, 3, 2, 40},
                                           std::vector<int>(128, 1),
                                           std::vector<int>(16, 8)}) {
        wrong += check<Facts<half, 768, 12, 1, 24>>(length, length.size());
        wrong += check<Facts<bf16, 768, 12, 1, 0>>(length, length.size() + 7);
        wrong += check<Facts<half, 200, 2, 0, 0>>(length, length.size() + 9);
        wrong += check<Facts<half, 1024, 15, 1, 43>>(length, length.size() + 11);
    }
    puts(wrong ? "WRONG" : "ok");
    return wrong != 0;
}
