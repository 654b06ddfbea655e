// top_p_check.cu - `sample` with top-p alone against a full sort: cub::DeviceSegmentedSort sorts each row, sums in double
// over it give the nucleus, and the draw goes through it by id.
//
// A token may differ where the edge of the nucleus or the uniform number is within rounding (2e-6 of the whole mass) of
// a cumulative weight. Such cases are counted apart and must be rare.
#define CUDA_NO_HALF // the name is ours
#include "sample.cuh"
#include "check.h"
#include "regions.h"
#include <cub/device/device_segmented_sort.cuh>

template <int V_> struct Limits {
    static constexpr int V = V_, CONTEXT = 64, SEQUENCES = 64, LOGIT_BIAS = 4, BAD_WORDS = 4, END_IDS = 4, SEGMENTS = 0, BLOCKS = 1;
};
template <int V> using Config = SampleRegions<Limits<V>>;
template <class C> __global__ void __launch_bounds__(512, C::BLOCKS) sample_kernel(const __grid_constant__ SampleArgs a) { sample<C>(a); }

__global__ void make_places(const float *x, u64 *place, int V, long n)
{
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        place[i] = place_of(x[i] + 0.0f, (int)(i % V));
}
__global__ void make_uniform(const FtxParams *p, u32 *u, int length, int n)
{
    const int i = threadIdx.x;
    if (i < n)
        u[i] = philox(uint4_{(u32)length, (u32)p[i].sample, 0, 0}, p[i].seed_low, p[i].seed_high).x >> 8;
}

// The token that the uniform number `u` draws from the nucleus of mass `share` of a sorted row.
static int choose(const u64 *place, int V, double share, double u)
{
    const auto value = [&](int i) {
        const u32 key = (u32)(place[i] >> 32), bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
        float f;
        memcpy(&f, &bits, 4);
        return (double)f;
    };
    double all = 0, sum = 0, kept = 0;
    for (int i = 0; i < V; i++)
        all += exp(value(i) - value(0));
    std::vector<std::pair<int, double>> nucleus;
    for (int i = 0; i < V && (i == 0 || kept < share * all); i++) {
        const double w = exp(value(i) - value(0));
        kept += w;
        nucleus.push_back({(int)~(u32)place[i], w});
    }
    std::sort(nucleus.begin(), nucleus.end());
    for (const auto &n : nucleus) {
        sum += n.second;
        if (sum > u * kept)
            return n.first;
    }
    return nucleus.back().first;
}

template <class C> int check(uint64_t seed, int sms)
{
    constexpr int V = C::V, S = C::SEQUENCES, LENGTH = 7;
    const float shares[] = {1e-6f, 0.1f, 0.5f, 0.75f, 0.9f, 0.95f, 0.999f, 0.99999f};
    Random rnd{seed};
    std::vector<float> logits((size_t)S * V);
    std::vector<FtxParams> params(S);
    std::vector<FtxRow> rows(S);
    std::vector<int> offsets(S + 1);
    for (int i = 0; i < S; i++) {
        const int shape = i / 8 % 8;
        offsets[i + 1] = (i + 1) * V;
        rows[i] = {};
        rows[i].kv_len = LENGTH;
        rows[i].slot = i;
        rows[i].emit = rows[i].q_len = 1;
        rows[i].limit = C::CONTEXT;
        params[i] = {};
        params[i].temperature = params[i].repetition = 1.0f;
        params[i].top_p = shares[i % 8];
        params[i].seed_low = (u32)rnd.next();
        params[i].seed_high = (u32)rnd.next();
        for (int k = 0; k < V; k++) {
            float x = rnd.normal() * 3.0f;
            x = shape == 1 ? floorf(x) : shape == 2 ? 1.25f : shape == 3 ? x * 0.02f : shape == 4 ? x * 12.0f
                : shape == 5 ? (rnd.below(2) ? 0.0f : -0.0f) : shape == 6 ? -logf((float)(k % 997 + 1)) : x;
            logits[(size_t)i * V + k] = shape == 7 && rnd.below(3) ? -INFINITY : x;
        }
    }
    FtxStep step = {};
    step.tokens = step.rows = S;
    Device<FtxStep> dstep(std::vector<FtxStep>{step});
    Device<FtxRow> drows(rows);
    Device<FtxParams> dparams(params);
    Device<int> dends(S * C::END_IDS), dwords(S * C::BAD_WORDS), dhistory(S * C::CONTEXT), dy(S), doffsets(offsets);
    Device<FtxBias> dbias(S * C::LOGIT_BIAS);
    Device<float> dlogits(logits), dvalues((size_t)S * V);
    Device<FtxToken> dtoken(S);
    Device<FtxOut> dout((size_t)FTX_OUT_RING * S);
    Device<SampleTile> dtiles((size_t)S * C::TILES);
    Device<u32> dcounters(S), du(S);
    Device<u64> place((size_t)S * V), sorted((size_t)S * V);
    dcounters.fill(0);
    const SampleArgs a = {dlogits.p, dstep.p, drows.p, dparams.p, dends.p, dbias.p, dwords.p, dtoken.p, dhistory.p, dout.p, nullptr, dy.p, dtiles.p, dvalues.p, dcounters.p};
    launch(sample_kernel<C>, dim3(std::min((V + 8191) / 8192, std::max(1, 2 * sms / S)), S), 512, C::SHARED, a);
    make_places<<<(unsigned)(((size_t)S * V + 255) / 256), 256>>>(dlogits.p, place.p, V, (long)S * V);
    make_uniform<<<1, S>>>(dparams.p, du.p, LENGTH, S);
    size_t bytes = 0;
    CU(cub::DeviceSegmentedSort::SortKeysDescending(nullptr, bytes, place.p, sorted.p, S * V, S, doffsets.p, doffsets.p + 1));
    Device<char> room(bytes);
    CU(cub::DeviceSegmentedSort::SortKeysDescending(room.p, bytes, place.p, sorted.p, S * V, S, doffsets.p, doffsets.p + 1));
    CU(cudaDeviceSynchronize());

    const std::vector<u64> order = sorted.get();
    const std::vector<int> y = dy.get();
    const std::vector<u32> u = du.get();
    std::vector<int> bad(S, 0), near(S, 0);
    parallel(S, [&](int i) {
        const u64 *row = order.data() + (size_t)i * V;
        const double share = params[i].top_p, at = u[i] * 0x1p-24;
        if (y[i] == choose(row, V, share, at))
            return;
        bool border = false;
        for (double d : {-2e-6, 0.0, 2e-6})
            for (double e : {-2e-6, 0.0, 2e-6})
                border = border || y[i] == choose(row, V, share + d, at + e);
        (border ? near : bad)[i] = 1;
        if (!border)
            printf("V %d row %d: token %d, the sort says %d (top-p %g)\n", V, i, y[i], choose(row, V, share, at), share);
    });
    int wrong = 0, close = 0;
    for (int i = 0; i < S; i++) {
        wrong += bad[i];
        close += near[i];
    }
    printf("V %6d seed %llu: %d wrong, %d at a border of %d\n", V, (unsigned long long)seed, wrong, close, S);
    return wrong + (close > S / 8);
}

int main()
{
    const int sms = multiprocessors();
    int wrong = 0;
    for (uint64_t seed = 1; seed <= 3; seed++)
        wrong += check<Config<30000>>(seed, sms) + check<Config<50257>>(seed, sms) + check<Config<128256>>(seed, sms);
    printf(wrong ? "%d wrong\n" : "ok\n", wrong);
    return wrong != 0;
}
