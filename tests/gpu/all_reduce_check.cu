// all_reduce_check.cu - all_reduce.cuh on two GPUs or more, or with all ranks on one: sums bit for bit as the host adds them,
// norms against double precision, -0.0, late ranks, an absent rank, a stop by the host; times beside NCCL's.
//
//     nvcc -O2 -std=c++17 -Ikernels -Itests/gpu -gencode arch=compute_90a,code=sm_90a -cudart static \
//          -o all_reduce_check tests/gpu/all_reduce_check.cu -ldl
//     NCCL_NVLS_ENABLE=0 ./all_reduce_check [check|time|all] [path of libnccl.so.2]
#include "all_reduce.cuh"
#include "check.h"

#include <dlfcn.h>
#include <atomic>
#include <chrono>

enum { MAX_RANKS = 4 };
static int gpus, failures;

template <class TYPE, class OUT_, int RANKS_, int C_, int NORM_, int RES_, int THREADS_> struct Of {
    using T = TYPE;
    using OUT = OUT_;
    static constexpr int RANKS = RANKS_, C = C_, NORM = NORM_, RES = RES_, THREADS = THREADS_, ROWS_S = 0;
    static constexpr float EPS = 1e-5f;
};
template <class K> __global__ void __launch_bounds__(K::THREADS) kernel(const AllReduceArgs a)
{
    all_reduce<K>(a);
}
__global__ void delay(long long ns)
{
    const u64 from = nanoseconds();
    while ((long long)(nanoseconds() - from) < ns)
        ;
}

__global__ void count_words(const uint4 *p, size_t n, u32 *left) // words that are not zero
{
    u32 some = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        some += (p[i].x != 0) + (p[i].y != 0) + (p[i].z != 0) + (p[i].w != 0);
    if (some)
        atomicAdd(left, some);
}

// A rank: its buffers on its GPU.
struct Rank {
    int gpu;
    cudaStream_t s;
    char *x, *r, *y, *left, *exchange;
    float *g, *c;
    FtxStep *step;
    FtxPeers *peers;
    FtxReport *report;
};
static std::vector<Rank> ranks;
static size_t share;

static void use(const Rank &k)
{
    CU(cudaSetDevice(k.gpu));
}
static void wait_all()
{
    for (Rank &k : ranks) {
        use(k);
        CU(cudaStreamSynchronize(k.s));
        CU(cudaGetLastError());
    }
}

static void tell(int n, int timeout_ms)
{
    for (int i = 0; i < n; i++) {
        FtxPeers p = {};
        p.rank = i, p.ranks = n, p.timeout_ms = timeout_ms, p.bytes = share * n, p.report = (unsigned long long)(uintptr_t)ranks[i].report;
        for (int j = 0; j < n; j++)
            p.exchange[j] = (unsigned long long)(uintptr_t)ranks[j].exchange;
        use(ranks[i]);
        CU(cudaMemcpy(ranks[i].peers, &p, sizeof p, cudaMemcpyHostToDevice));
        CU(cudaMemset(ranks[i].exchange, 0, sizeof(FtxExchange) + 3 * share * n));
        memset(ranks[i].report, 0, sizeof(FtxReport));
        CU(cudaDeviceSynchronize());
    }
}

static void open_ranks(int n, size_t bytes)
{
    share = bytes;
    CU(cudaGetDeviceCount(&gpus));
    for (int i = 0; i < n; i++) {
        Rank k = {};
        k.gpu = i % gpus;
        use(k);
        for (int j = 0; j < gpus && i < gpus; j++)
            if (j != k.gpu)
                CU(cudaDeviceEnablePeerAccess(j, 0));
        CU(cudaStreamCreateWithFlags(&k.s, cudaStreamNonBlocking));
        for (char **p : {&k.x, &k.r, &k.y})
            CU(cudaMalloc(p, 2 * bytes + 64));
        CU(cudaMalloc(&k.left, 4));
        CU(cudaMalloc(&k.exchange, sizeof(FtxExchange) + 3 * bytes * n));
        CU(cudaMalloc(&k.g, 65536));
        CU(cudaMalloc(&k.c, 65536));
        CU(cudaMalloc(&k.step, sizeof(FtxStep)));
        CU(cudaMalloc(&k.peers, sizeof(FtxPeers)));
        CU(cudaHostAlloc(&k.report, sizeof(FtxReport), cudaHostAllocPortable | cudaHostAllocMapped));
        ranks.push_back(k);
    }
}

template <class K> static int grid_of(int rows, int most)
{
    using A = AllReduce<K>;
    const long long pieces = K::NORM ? rows : ((long long)rows * K::C + A::PIECE - 1) / A::PIECE;
    return (int)std::min<long long>(pieces, most);
}

template <class K> static void run(int rank, int grid, bool overlap = true)
{
    const Rank &k = ranks[rank];
    const AllReduceArgs a = {k.x, k.r, k.g, k.c, k.peers, (FtxExchange *)k.exchange, k.step, k.y};
    launch(kernel<K>, dim3(grid), K::THREADS, 0, a, k.s, overlap);
}
static void set_rows(int n, int rows)
{
    for (int i = 0; i < n; i++) {
        FtxStep s = {};
        s.tokens = s.rows = rows;
        use(ranks[i]);
        CU(cudaMemcpy(ranks[i].step, &s, sizeof s, cudaMemcpyHostToDevice));
    }
}

// ---------------------------------------------------------------- correctness

template <class T> static T rounded(float f) // to nearest even; normal numbers
{
    if (sizeof(T) == 4) {
        T t;
        memcpy(&t, &f, 4);
        return t;
    }
    u32 b;
    memcpy(&b, &f, 4);
    u16 h;
    if (std::is_same<T, bf16>::value) {
        h = (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
    } else {
        const int e = (int)(b >> 23 & 255) - 127 + 15;
        u32 m = e > 0 ? b & 0x7fffff : 0;
        u32 v = e > 0 ? (u32)e << 23 | m : 0;
        h = (u16)((b >> 16 & 0x8000) | (v + 0xfff + (v >> 13 & 1)) >> 13);
    }
    T t;
    memcpy(&t, &h, 2);
    return t;
}
static float small_value(Random &rnd) // few bits, so that sums hit zeros and ties
{
    const int kind = rnd.below(8);
    return kind == 0 ? 0.0f : kind == 1 ? -0.0f : kind == 2 ? (float)(rnd.below(9) - 4) : (rnd.uniform() - 0.5f) * 8.0f;
}

template <class K> static void check(int rows, int most, unsigned seed, int rounds)
{
    most = K::RANKS <= gpus ? most : std::min(most, 40); // ranks of one GPU must find room beside each other
    using T = typename K::T;
    using O = typename K::OUT;
    const int n = K::RANKS;
    const size_t count = (size_t)rows * K::C;
    std::vector<std::vector<T>> x(n, std::vector<T>(count));
    std::vector<O> r(count);
    std::vector<float> g(K::C), c(K::C);
    Random rnd = {seed * 7919ull + K::C + rows};
    size_t wrong = 0, unlike = 0, left = 0;
    double worst = 0;

    for (int j = 0; j < K::C; j++)
        g[j] = rnd.uniform() + 0.5f, c[j] = rnd.uniform();
    set_rows(n, rows);
    for (int round = 0; round < rounds; round++) {
        for (auto &v : x)
            for (size_t j = 0; j < count; j++)
                v[j] = rounded<T>(small_value(rnd));
        for (size_t j = 0; j < count; j++)
            r[j] = rounded<O>(rnd.below(4) ? small_value(rnd) : -0.0f);
        for (int i = 0; i < n; i++) {
            use(ranks[i]);
            CU(cudaMemcpy(ranks[i].x, x[i].data(), count * sizeof(T), cudaMemcpyHostToDevice));
            CU(cudaMemcpy(ranks[i].r, r.data(), count * sizeof(O), cudaMemcpyHostToDevice));
            CU(cudaMemcpy(ranks[i].g, g.data(), K::C * 4, cudaMemcpyHostToDevice));
            CU(cudaMemcpy(ranks[i].c, c.data(), K::C * 4, cudaMemcpyHostToDevice));
            CU(cudaMemset(ranks[i].y, 0xff, count * sizeof(O) + 16));
            CU(cudaDeviceSynchronize());
        }
        // several exchanges in a row: buffers are used again while other ranks are late
        for (int again = 0; again < 5; again++)
            for (int i = 0; i < n; i++) {
                use(ranks[i]);
                if (rnd.below(3) == 0)
                    delay<<<1, 1, 0, ranks[i].s>>>(rnd.below(60000));
                run<K>(i, grid_of<K>(rows, most), n <= gpus && rnd.below(2));
            }
        wait_all();
        std::vector<O> y0;
        for (int i = 0; i < n; i++) {
            std::vector<O> y(count + 16 / sizeof(O)), sums(count);
            CU(cudaMemcpy(y.data(), ranks[i].y, y.size() * sizeof(O), cudaMemcpyDeviceToHost));
            for (size_t j = 0; j < 16; j++)
                wrong += ((unsigned char *)(y.data() + count))[j] != 0xff;
            for (size_t j = 0; j < count; j++) {
                float s = 0;
                for (int k = 0; k < n; k++) {
                    const size_t pair = sizeof(T) == 4 ? j : j ^ 1;
                    float v = host_float(x[k][j]);
                    // what is sent for -0.0: +0.0, where the pair is -0.0 too
                    if (v == 0 && std::signbit(v) && (pair >= count || (host_float(x[k][pair]) == 0 && std::signbit(host_float(x[k][pair])))))
                        v = pair >= count ? v : 0.0f;
                    s = k == 0 ? v : s + v;
                }
                if (K::RES)
                    s += host_float(r[j]);
                sums[j] = rounded<O>(s);
                wrong += !K::NORM && memcmp(&sums[j], &y[j], sizeof(O)) != 0;
            }
            y.resize(count);
            if (i == 0)
                y0 = y;
            unlike += memcmp(y.data(), y0.data(), count * sizeof(O)) != 0;
            for (int m = 0; m < rows && K::NORM; m++) {
                double mean = 0, var = 0;
                for (int j = 0; j < K::C && K::NORM == 2; j++)
                    mean += host_float(sums[(size_t)m * K::C + j]) / (double)K::C;
                for (int j = 0; j < K::C; j++)
                    var += pow(host_float(sums[(size_t)m * K::C + j]) - mean, 2) / K::C;
                for (int j = 0; j < K::C; j++) {
                    const double want = (host_float(sums[(size_t)m * K::C + j]) - mean) / sqrt(var + 1e-5) * g[j] + (K::NORM == 2 ? c[j] : 0);
                    worst = std::max(worst, fabs(want - host_float(y[(size_t)m * K::C + j])) / (fabs(want) + 1));
                    wrong += !(fabs(want) < 1e30) || std::isnan(host_float(y[(size_t)m * K::C + j]));
                }
            }
        }
    }
    for (int i = 0; i < n; i++) { // all words that came were cleared again
        FtxExchange h;
        use(ranks[i]);
        CU(cudaMemset(ranks[i].left, 0, 4));
        count_words<<<512, 256, 0, ranks[i].s>>>((const uint4 *)(ranks[i].exchange + sizeof h), 3 * share * n / 16, (u32 *)ranks[i].left);
        CU(cudaStreamSynchronize(ranks[i].s));
        u32 words;
        CU(cudaMemcpy(&words, ranks[i].left, 4, cudaMemcpyDeviceToHost));
        CU(cudaMemcpy(&h, ranks[i].exchange, sizeof h, cudaMemcpyDeviceToHost));
        left += words;
        left += h.arrived != 0 || h.stop != 0 || h.failed != 0;
    }
    const double limit = sizeof(O) == 4 ? 1e-5 : std::is_same<O, bf16>::value ? 4e-3 : 6e-4;
    const bool ok = !wrong && !unlike && !left && worst < limit;
    failures += !ok;
    printf("%s ranks %d  %s  C %5d rows %5d (%8zu bytes) norm %d residual %d grid %4d of %4d: wrong %zu, ranks that differ %zu, words left %zu, norm %.1e\n",
           ok ? "ok  " : "FAIL", n, sizeof(T) == 4 ? "fp32" : std::is_same<T, bf16>::value ? "bf16" : "fp16", K::C, rows, count * sizeof(T), K::NORM, K::RES,
           grid_of<K>(rows, most), K::THREADS, wrong, unlike, left, worst);
}

template <int R> static void check_ranks(unsigned seed)
{
    tell(R, 10000);
    check<Of<bf16, bf16, R, 4096, 0, 1, 256>>(1, 264, seed, 20);
    check<Of<bf16, bf16, R, 4096, 0, 0, 256>>(7, 264, seed, 5);
    check<Of<bf16, bf16, R, 4096, 0, 1, 256>>(64, 264, seed, 5);
    check<Of<bf16, bf16, R, 4096, 0, 1, 512>>(512, 132, seed, 2);
    check<Of<bf16, bf16, R, 4096, 0, 1, 256>>(2048, 264, seed, 1);
    check<Of<bf16, float, R, 100, 0, 1, 128>>(3, 264, seed, 10);
    check<Of<half, half, R, 2050, 0, 1, 128>>(33, 132, seed, 5);
    check<Of<float, float, R, 37, 0, 1, 128>>(5, 132, seed, 10);
    check<Of<float, float, R, 1024, 0, 0, 256>>(9, 3, seed, 5);
    check<Of<bf16, bf16, R, 4096, 1, 1, 512>>(1, 264, seed, 10);
    check<Of<bf16, bf16, R, 2048, 1, 1, 256>>(64, 20, seed, 5);
    check<Of<half, half, R, 768, 2, 1, 96>>(17, 264, seed, 5);
    check<Of<bf16, bf16, R, 8192, 1, 0, 512>>(40, 264, seed, 3);
    check<Of<float, float, R, 1000, 2, 1, 256>>(300, 264, seed, 3);
}

static double now_ms()
{
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Rank 1 does not come: rank 0 gives up at its deadline, later exchanges do not wait, the host can end a wait.
static void check_absent()
{
    using K = Of<bf16, bf16, 2, 4096, 1, 1, 512>;
    set_rows(2, 64);
    tell(2, 60);
    use(ranks[0]);
    double from = now_ms();
    run<K>(0, 64);
    CU(cudaStreamSynchronize(ranks[0].s));
    const double first = now_ms() - from;
    FtxExchange h;
    CU(cudaMemcpy(&h, ranks[0].exchange, sizeof h, cudaMemcpyDeviceToHost));
    bool ok = first > 55 && first < 300 && h.failed == 2 && h.stop && ranks[0].report->failed == 2 && ranks[0].report->written == 1;
    from = now_ms();
    for (int i = 0; i < 100; i++)
        run<K>(0, 64);
    CU(cudaStreamSynchronize(ranks[0].s));
    const double later = now_ms() - from;
    ok = ok && later < 50;
    printf("%s absent rank: first exchange ends after %.1f ms, failed %u, report %u; 100 later ones %.2f ms\n", ok ? "ok  " : "FAIL", first,
           h.failed, ranks[0].report->failed, later);
    failures += !ok;
    tell(2, 10000);
    use(ranks[0]);
    from = now_ms();
    run<K>(0, 64);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    *(volatile unsigned *)&ranks[0].report->stop = 1;
    CU(cudaStreamSynchronize(ranks[0].s));
    const double stopped = now_ms() - from;
    ok = stopped > 29 && stopped < 200;
    printf("%s stopped by the host after 30 ms: ends after %.2f ms\n", ok ? "ok  " : "FAIL", stopped);
    failures += !ok;
    tell(2, 10000);
}

// ---------------------------------------------------------------- times

static std::atomic<int> at_start;
static void meet(int n) // threads of all ranks
{
    at_start++;
    while (at_start % n)
        ;
}

// Microseconds of one of EACH launches: a graph on each rank, launched by a thread each; the median of 15 of the slowest rank.
static double time_ranks(int n, const std::function<void(int)> &one)
{
    const int EACH = 100, REPEAT = 15;
    std::vector<std::vector<float>> ms(n);
    std::vector<std::thread> threads;
    at_start = 0;
    for (int i = 0; i < n; i++)
        threads.emplace_back([&, i] {
            cudaGraph_t graph;
            cudaGraphExec_t exec;
            cudaEvent_t a, b;
            use(ranks[i]);
            CU(cudaStreamBeginCapture(ranks[i].s, cudaStreamCaptureModeThreadLocal));
            for (int j = 0; j < EACH; j++)
                one(i);
            CU(cudaStreamEndCapture(ranks[i].s, &graph));
            CU(cudaGraphInstantiate(&exec, graph, 0));
            CU(cudaEventCreate(&a));
            CU(cudaEventCreate(&b));
            for (int j = 0; j < REPEAT + 3; j++) {
                CU(cudaStreamSynchronize(ranks[i].s));
                meet(n);
                CU(cudaEventRecord(a, ranks[i].s));
                CU(cudaGraphLaunch(exec, ranks[i].s));
                CU(cudaEventRecord(b, ranks[i].s));
                CU(cudaStreamSynchronize(ranks[i].s));
                float t;
                CU(cudaEventElapsedTime(&t, a, b));
                if (j >= 3)
                    ms[i].push_back(t);
            }
            meet(n);
            CU(cudaGraphExecDestroy(exec));
            CU(cudaGraphDestroy(graph));
        });
    for (auto &t : threads)
        t.join();
    double worst = 0;
    for (auto &t : ms) {
        std::sort(t.begin(), t.end());
        worst = std::max(worst, (double)t[t.size() / 2]);
    }
    return worst * 1e3 / EACH;
}
template <class K> static double time_chain(int grid)
{
    return time_ranks(K::RANKS, [=](int i) { run<K>(i, grid); });
}

// NCCL, by its own names: a communicator for each rank, all in this process.
typedef struct ncclComm *ncclComm_t;
static int (*nccl_init)(ncclComm_t *, int, const int *);
static int (*nccl_all_reduce)(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
static int (*nccl_version)(int *);
static ncclComm_t comms[MAX_RANKS];

static bool open_nccl(const char *path, int n)
{
    void *l = dlopen(path, RTLD_NOW);
    if (!l) {
        printf("no NCCL: %s\n", dlerror());
        return false;
    }
    nccl_init = (decltype(nccl_init))dlsym(l, "ncclCommInitAll");
    nccl_all_reduce = (decltype(nccl_all_reduce))dlsym(l, "ncclAllReduce");
    nccl_version = (decltype(nccl_version))dlsym(l, "ncclGetVersion");
    int devices[MAX_RANKS] = {0, 1, 2, 3}, version = 0;
    nccl_version(&version);
    const int e = nccl_init(comms, n, devices);
    printf("NCCL %d: init %d\n", version, e);
    return e == 0;
}
static double time_nccl(int n, size_t count)
{
    std::vector<std::thread> first; // it connects; not in a capture
    for (int i = 0; i < n; i++)
        first.emplace_back([=] {
            use(ranks[i]);
            if (nccl_all_reduce(ranks[i].x, ranks[i].y, count, 9, 0, comms[i], ranks[i].s))
                exit(1);
            CU(cudaStreamSynchronize(ranks[i].s));
        });
    for (auto &t : first)
        t.join();
    return time_ranks(n, [=](int i) {
        if (nccl_all_reduce(ranks[i].x, ranks[i].y, count, 9 /* bf16 */, 0 /* sum */, comms[i], ranks[i].s))
            exit(1);
    });
}

template <int THREADS> static void time_variant(int rows)
{
    for (int most : {33, 66, 132, 264, 528}) {
        const int grid = grid_of<Of<bf16, bf16, 2, 4096, 0, 1, THREADS>>(rows, most);
        if (most > 33 && grid <= most / 2)
            break;
        printf("  %3d threads x %3d: %.2f", THREADS, grid, time_chain<Of<bf16, bf16, 2, 4096, 0, 1, THREADS>>(grid));
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    setvbuf(stdout, nullptr, _IOLBF, 0);
    open_ranks(MAX_RANKS, (size_t)32 << 20);
    cudaDeviceProp p;
    CU(cudaGetDeviceProperties(&p, 0));
    printf("%d x %s\n", gpus, p.name);
    if (strcmp(what, "time")) {
        check_ranks<2>(1);
        check_ranks<4>(2);
        check_absent();
        printf("%d failures\n", failures);
    }
    if (strcmp(what, "check")) {
        tell(2, 10000);
        const int row[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
        for (int rows : row) {
            set_rows(2, rows);
            printf("%6d KB, all_reduce + residual, us:", rows * 8);
            time_variant<128>(rows), time_variant<256>(rows), time_variant<512>(rows);
            printf("\n");
        }
        for (int rows : row) {
            set_rows(2, rows);
            printf("%6d KB, with RMS norm, us:", rows * 8);
            for (int most : {132, 264, 528})
                if (most == 132 || rows > most / 2)
                    printf("  %d blocks %.2f", std::min(rows, most), time_chain<Of<bf16, bf16, 2, 4096, 1, 1, 512>>(std::min(rows, most)));
            printf("\n");
        }
        if (argc > 2 && gpus > 1 && open_nccl(argv[2], 2))
            for (int rows : row)
                printf("%6d KB, NCCL alone, us: %.2f\n", rows * 8, time_nccl(2, (size_t)rows * 4096));
    }
    return failures != 0;
}
