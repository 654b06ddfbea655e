// codes_check.cu - attend_decode_codes on a GPU against plain loops in double: int8 and fp8, heads of 128 and 64.
//
// Single tokens of 1 to 64 rows, of lengths around the edges of chunks and groups, all of one length, and unlike ones. Pages are in
// random order, rows beyond the step's have lengths too, outputs start poisoned. Few blocks and many, and a row alone must give the
// same bits; so must contiguous units and a block for each row and head set (SPREAD 0 and 1). With the argument `rows` launches are timed behind a kernel that
// streams weights.
#include "attend_decode.cuh"
#include "body/coded_decode.cuh"
#include "check.h"
#include "stream.h"

enum { HEADS = 32, KV_HEADS = 8, BLOCK = 16, CONTEXT = 2304, MAX_ROWS = 64, PAGES = CONTEXT / BLOCK, ROWS = KV_HEADS * BLOCK };
static int sms;

// The constants that the contract chooses, and those that a tuning file may choose.
template <int E_, bool FP8_, int STAGES_, int BLOCKS_, int CHUNK_, int SPREAD_> struct Config {
    using T = bf16;
    using OUT = bf16;
    using KV = Code;
    static constexpr int HEADS = ::HEADS, KV_HEADS = ::KV_HEADS, E = E_, ROT = 0, BLOCK = ::BLOCK, CONTEXT = ::CONTEXT;
    static constexpr int MAX_ROWS = ::MAX_ROWS, WINDOW = 0, CHUNK = CHUNK_, MAX_CHUNKS = least(64, ceil_div(CONTEXT + 16, CHUNK));
    static constexpr float SCALE = 0.125f, SOFTCAP = 0, EPS = 0;
    static constexpr int WARPS = 4, STAGES = STAGES_, BLOCKS = BLOCKS_, BEAMS = 0, SPREAD = SPREAD_, REST = SPREAD == 2 ? CHUNK / 2 : 0;
    static constexpr bool MATRIX = true, FP8 = FP8_, APPEND = false, NORM = false;
    static constexpr int SET = 4, HEAD_SETS = 8, PARTIAL = round_up(SET * (E + 2), 4), TILE = 16;
    static constexpr int PITCH = E % 128 == 0 ? E : round_up(E, 32) + 16, SLOT_BYTES = round_up(2 * 16 * PITCH + 64, 128);
    static constexpr int MERGE_PITCH = E + 4, RING_AT = 0, MERGE_AT = WARPS * STAGES * SLOT_BYTES, QUERY_AT = 0;
    static constexpr int STATS_AT = MERGE_AT + WARPS * SET * MERGE_PITCH * 4, BEFORE_AT = STATS_AT + WARPS * 2 * SET * 4;
    static constexpr int ARRIVED_AT = BEFORE_AT + (SPREAD ? 0 : (MAX_ROWS + 1) * 4), UNIT_AT = ARRIVED_AT + 20, SHARED = UNIT_AT + 12;
};
template <class C> __global__ void __launch_bounds__(C::WARPS * 32, C::BLOCKS) codes_kernel(const __grid_constant__ AttendDecodeCodesArgs a)
{
    attend_decode<Coded<C>>(coded_args<C>(a));
}
template <class C> void run(AttendDecodeCodesArgs a, int S, cudaStream_t s, int most_blocks)
{
    const int blocks = std::min(C::BLOCKS * sms, most_blocks);
    launch(codes_kernel<C>, dim3(C::SPREAD == 1 ? S * C::HEAD_SETS + blocks : std::min(blocks, S * C::HEAD_SETS * C::MAX_CHUNKS)), C::WARPS * 32, C::SHARED, a, s);
}
struct Variant {
    const char *name;
    int E, fp8, order; // order: of sums
    void (*run)(AttendDecodeCodesArgs, int, cudaStream_t, int);
};
#define VARIANT(E, FP8, STAGES, BLOCKS, CHUNK, SPREAD) \
    {(FP8 ? "fp8, heads of " #E ", " #STAGES " stages, " #BLOCKS " blocks, chunks of " #CHUNK ", SPREAD " #SPREAD : "int8, heads of " #E ", " #STAGES " stages, " #BLOCKS " blocks, chunks of " #CHUNK ", SPREAD " #SPREAD), E, FP8, 2 * CHUNK + (SPREAD == 2), run<Config<E, FP8, STAGES, BLOCKS, CHUNK, SPREAD>>}
static const Variant variants[] = {
    VARIANT(128, false, 3, 3, 512, 0), VARIANT(128, false, 2, 4, 512, 1), VARIANT(128, false, 2, 4, 512, 2), VARIANT(128, false, 3, 3, 512, 2),
    VARIANT(128, false, 3, 3, 256, 0), VARIANT(128, false, 3, 3, 256, 2), VARIANT(128, true, 3, 3, 512, 0),  VARIANT(128, true, 2, 4, 512, 2),
    VARIANT(128, true, 3, 3, 512, 2),  VARIANT(64, false, 3, 4, 512, 0),  VARIANT(64, false, 2, 4, 512, 2),  VARIANT(64, true, 2, 4, 512, 2),
};

// Codes and scales of all rows; fp8 without NaN.
static std::vector<unsigned char> random_cache(Random &rnd, size_t pages, int E, bool fp8)
{
    std::vector<unsigned char> c(pages * ROWS * (E + 2));
    for (size_t page = 0; page < pages; page++) {
        unsigned char *p = &c[page * ROWS * (E + 2)];
        for (int i = 0; i < ROWS * E; i += 8) {
            const uint64_t x = rnd.next() & (fp8 ? 0xf7f7f7f7f7f7f7f7ull : ~0ull);
            memcpy(p + i, &x, 8);
        }
        for (int i = 0; i < ROWS; i++) {
            const half scale = host_round<half>((fp8 ? 0.004f : 0.015f) * (1.0f + rnd.uniform()));
            memcpy(p + ROWS * E + i * 2, &scale, 2);
        }
    }
    return c;
}
static float number(int code, bool fp8)
{
    const int e = code >> 3 & 15, m = code & 7;
    const float f = e ? ldexpf((float)(m + 8), e - 10) : ldexpf((float)m, -9);
    return !fp8 ? (float)(signed char)code : code & 128 ? -f : f;
}

struct Rows { // a step and its caches
    int S, E, layers;
    bool fp8;
    size_t layer; // bytes of the keys of one
    std::vector<FtxRow> rows;
    std::vector<int> pages;
    std::vector<unsigned char> hk, hv; // of layer 0
    std::vector<bf16> hq;
    Device<unsigned char> k, v;
    Device<bf16> q, y;
    Device<FtxStep> step;
    Device<FtxRow> drows;
    Device<int> dpages;
    Device<float> partials;
    Device<u32> counters;

    static size_t pages_of(const std::vector<int> &lengths)
    {
        size_t n = 0;
        for (int l : lengths)
            n += (l + BLOCK - 1) / BLOCK;
        return n;
    }
    Rows(const std::vector<int> &lengths, int E_, bool fp8_, int layers_)
        : S((int)lengths.size()), E(E_), layers(layers_), fp8(fp8_), layer(pages_of(lengths) * ROWS * (E_ + 2)), rows(MAX_ROWS),
          pages(MAX_ROWS * PAGES, 0x7fffffff), hq((size_t)S * HEADS * E_), k(layer * layers_), v(layer * layers_), q(hq.size()),
          y(hq.size()), step(1), drows(MAX_ROWS), dpages(pages.size()), partials((size_t)MAX_ROWS * KV_HEADS * 10 * 4 * (E_ + 2)),
          counters(MAX_ROWS * KV_HEADS)
    {
        Random rnd{(uint64_t)S * 7919 + E + fp8};
        std::vector<int> numbers(pages_of(lengths));
        for (size_t i = 0; i < numbers.size(); i++)
            numbers[i] = (int)i;
        for (size_t i = numbers.size() - 1; i > 0; i--)
            std::swap(numbers[i], numbers[rnd.below((int)i + 1)]);
        size_t next = 0;
        for (int r = 0; r < MAX_ROWS; r++) {
            rows[r] = {};
            rows[r].q_start = rows[r].slot = r;
            rows[r].q_len = 1;
            rows[r].kv_len = r < S ? lengths[r] : 777; // of an earlier step
            for (int i = 0; r < S && i < (lengths[r] + BLOCK - 1) / BLOCK; i++)
                pages[r * PAGES + i] = numbers[next++];
        }
        hk = random_cache(rnd, numbers.size(), E, fp8);
        hv = random_cache(rnd, numbers.size(), E, fp8);
        for (int i = 0; i < layers; i++) {
            CU(cudaMemcpy(k.p + i * layer, hk.data(), layer, cudaMemcpyHostToDevice));
            CU(cudaMemcpy(v.p + i * layer, hv.data(), layer, cudaMemcpyHostToDevice));
        }
        for (auto &x : hq)
            x = host_round<bf16>(rnd.normal());
        q.put(hq);
        FtxStep s = {};
        s.tokens = s.rows = s.decode_rows = S;
        step.put({s});
        drows.put(rows);
        dpages.put(pages);
        counters.fill(0);
    }
    AttendDecodeCodesArgs args(int l) const
    {
        return {q.p, nullptr, nullptr, nullptr, step.p, drows.p, dpages.p, k.p + layer * l, v.p + layer * l, nullptr, y.p, partials.p, counters.p};
    }
    std::vector<bf16> result(const Variant &x, int bucket, int blocks)
    {
        y.fill(0xff);
        partials.fill(0xff);
        x.run(args(0), bucket, 0, blocks);
        CU(cudaDeviceSynchronize());
        return y.get();
    }
    // Of each (row, head): ||y - reference||, and ||reference||.
    double error(const std::vector<bf16> &result) const
    {
        std::vector<double> errors(S * HEADS);
        parallel(S * HEADS, [&](int i) {
            const int r = i / HEADS, g = i % HEADS / (HEADS / KV_HEADS), n = rows[r].kv_len;
            std::vector<double> w(n), o(E, 0.0);
            double top = -1e300, sum = 0, wrong = 0, norm = 0;
            const auto value = [&](const std::vector<unsigned char> &c, int p, int e) {
                const unsigned char *page = &c[(size_t)pages[r * PAGES + p / BLOCK] * ROWS * (E + 2)];
                const int row = g * BLOCK + p % BLOCK;
                half scale;
                memcpy(&scale, page + ROWS * E + row * 2, 2);
                return (double)host_float(scale) * number(page[row * E + e], fp8);
            };
            for (int p = 0; p < n; p++) {
                double d = 0;
                for (int e = 0; e < E; e++)
                    d += (double)host_float(hq[(size_t)i * E + e]) * value(hk, p, e);
                w[p] = d * 0.125;
                top = std::max(top, w[p]);
            }
            for (int p = 0; p < n; p++) {
                const double x = exp(w[p] - top);
                sum += x;
                for (int e = 0; e < E; e++)
                    o[e] += x * value(hv, p, e);
            }
            for (int e = 0; e < E; e++) {
                const double d = host_float(result[(size_t)i * E + e]) - o[e] / sum;
                wrong += d == d ? d * d : 1e9;
                norm += o[e] / sum * (o[e] / sum);
            }
            errors[i] = sqrt(wrong / norm);
        });
        return *std::max_element(errors.begin(), errors.end());
    }
};

static int check(const char *what, const std::vector<int> &lengths, int E, bool fp8)
{
    Rows s(lengths, E, fp8, 1);
    int wrong = 0;
    std::vector<bf16> same; // of the variant before, used if its order of sums is the same
    const Variant *before = nullptr;
    for (const Variant &x : variants) {
        if (x.E != E || x.fp8 != fp8)
            continue;
        const std::vector<bf16> y = s.result(x, s.S, 1 << 20);
        const double error = s.error(y);
        const auto differ = [&](const std::vector<bf16> &z, size_t at) { return memcmp(z.data(), y.data() + at, z.size() * 2) != 0; };
        int moved = before && before->order == x.order && differ(same, 0), left = 0;
        for (int blocks : {1, 3, 5, 37, 100, 300})
            moved += differ(s.result(x, blocks == 5 ? MAX_ROWS : s.S, blocks), 0);
        for (u32 c : s.counters.get())
            left += c != 0;
        for (int r = 0; r < s.S; r += 5) { // alone
            FtxStep one = {};
            one.tokens = one.rows = one.decode_rows = 1;
            Device<FtxStep> step(std::vector<FtxStep>{one});
            Device<FtxRow> row(std::vector<FtxRow>(MAX_ROWS, s.rows[r]));
            Device<bf16> y1((size_t)HEADS * E);
            AttendDecodeCodesArgs a = s.args(0);
            a.q = s.q.p + (size_t)r * HEADS * E;
            a.step = step.p;
            a.rows = row.p;
            a.y = y1.p;
            x.run(a, r % 2 ? 1 : MAX_ROWS, 0, 1 << 20);
            CU(cudaDeviceSynchronize());
            moved += differ(y1.get(), (size_t)r * HEADS * E);
        }
        const bool bad = !(error < 4e-3) || moved || left; // y is rounded to 8 bits, queries and weights to 11
        if (bad || s.S == MAX_ROWS)
            printf("%-12s %2d rows, %s: error %.1e, %d differ, %d counters %s\n", what, s.S, x.name, error, moved, left, bad ? "WRONG" : "");
        wrong += bad;
        same = y;
        before = &x;
    }
    return wrong;
}

// 0: most below 256 positions, each eighth up to 2,000; below 0: up to so many.
static std::vector<int> lengths_of(int S, int length)
{
    Random rnd{7};
    std::vector<int> lengths(S);
    for (int &l : lengths)
        l = length > 0 ? length : length < 0 ? 1 + rnd.below(-length) : 16 + rnd.below(rnd.below(8) ? 240 : 2000);
    return lengths;
}
static void time_rows(int E, bool fp8)
{
    constexpr int LAYERS = 16;
    constexpr size_t WEIGHTS = 50331648;
    Device<uint4> weights(LAYERS * WEIGHTS / 16), out(1024);
    weights.fill(1);
    const auto stream = [&](int i, cudaStream_t s) {
        launch(stream_kernel, dim3(sms), 384, 200 * 1024, StreamArgs{weights.p + i % LAYERS * (WEIGHTS / 16), WEIGHTS / 16, out.p}, s);
    };
    for (const Variant &x : variants)
        if (x.E == E && x.fp8 == fp8)
            printf("%s\n", x.name);
    for (int length : {2049, 513, 129, 0, -2200})
        for (int S : {9, 16, 20, 33, 40, 48, 64}) {
            const std::vector<int> lengths = lengths_of(S, length);
            const size_t layer = Rows::pages_of(lengths) * ROWS * (E + 2);
            Rows s(lengths, E, fp8, std::min<int>(LAYERS, 1 + (int)((1ull << 30) / layer)));
            const double alone = time_graph(2 * LAYERS, stream);
            printf("%2d x %5d, us: bytes at 4.63 TB/s %5.1f;", S, length, 2.0 * layer / 4.63e6);
            for (const Variant &x : variants)
                if (x.E == E && x.fp8 == fp8)
                    printf(" %5.1f", 2 * time_graph(2 * LAYERS, [&](int i, cudaStream_t st) {
                               if (i % 2)
                                   x.run(s.args(i / 2 % s.layers), S, st, 1 << 20);
                               else
                                   stream(i / 2, st);
                           }) - alone);
            printf("\n");
            fflush(stdout);
        }
}

int main(int argc, char **argv)
{
    sms = multiprocessors();
    int wrong = 0;
    for (int E : {128, 64})
        for (bool fp8 : {false, true}) {
            if (argc > 1 && !strcmp(argv[1], "rows")) {
                time_rows(E, fp8);
                continue;
            }
            for (int S : {1, 9, 33, 64}) {
                static const int edges[] = {1, 15, 16, 17, 255, 383, 385, 511, 768, 769, 1023, 1024, 1025, 2047, 2048, 2049, 2304};
                std::vector<int> at(S);
                for (int r = 0; r < S; r++)
                    at[r] = edges[r % 17];
                wrong += check("edges", at, E, fp8);
                wrong += check("one length", lengths_of(S, S == 64 ? 1025 : 2049), E, fp8);
                wrong += check("unlike", lengths_of(S, -CONTEXT), E, fp8);
                wrong += check("mostly short", lengths_of(S, 0), E, fp8);
            }
        }
    printf(wrong ? "%d wrong\n" : "ok\n", wrong);
    return wrong != 0;
}
