/* bench_cpu.c - speed of the CPU's kernels at the shapes of real models: GB/s of weights for few rows,
 * GFLOP/s for many, microseconds for the rest. No test; it asserts nothing.
 *
 *     bench_cpu [threads] [part of a name]      default: 1, everything
 *
 * Weights of a measurement stand in a ring of at least 256 MB where they come from memory (1B shapes), and
 * as many copies as the model has layers where they live in the cache (fable). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/consts.h"
#include "kernels/cpu/cpu.h"
#include "runtime/base/dtype.h"
#include "runtime/base/packed.h"
#include "runtime/base/team.h"

static char *scratch;      /* [threads][CPU_SCRATCH] */
static const char *wanted; /* only measurements with this in their name */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *filled(size_t bytes, DType type)
{
    uint16_t *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    uint32_t r = 1;

    for (size_t i = 0; i < bytes / dtype_size(type); i++) {
        r = r * 1664525 + 1013904223;
        dtype_store(p, i, type, (float)(int32_t)r * 0x1p-36f);
    }
    return p;
}

typedef struct Load {
    CpuKernel *kernel;
    void *arg[12];
    int64_t k[16];
    int T, S;
    const char *ring; /* arg[walks] walks through copies at ring */
    int walks;
    size_t step, copies;
} Load;

/* TeamJob: one call of the kernel, as a launch of a step. */
static void call(void *user, int piece, int share, int shares)
{
    const Load *l = user;
    void *arg[12];

    memcpy(arg, l->arg, sizeof arg);
    if (l->ring)
        arg[l->walks] = (void *)(l->ring + (size_t)piece % l->copies * l->step);

    const CpuCall c = {.arg = arg,
                       .k = l->k,
                       .T = l->T,
                       .S = l->S,
                       .thread = share,
                       .threads = shares,
                       .scratch = scratch + (size_t)share * CPU_SCRATCH};
    l->kernel(&c);
}

/* Seconds of one call, the best of several batches. */
static double measure(Load *l, int threads)
{
    static Team *team;
    const int calls = l->copies > 1 ? (int)l->copies : 20;
    double best = 1e9;
    FtxError err;

    if (!team) {
        const Memory memory = memory_of(NULL);

        if (team_open(&memory, threads, &team, &err)) {
            fprintf(stderr, "%s\n", err.text);
            exit(2);
        }
    }
    for (int batch = 0; batch < 25; batch++) {
        const double start = seconds();

        team_run(team, call, l, calls);

        const double took = (seconds() - start) / calls;
        best = took < best ? took : best;
    }
    return best;
}

/* Of bf16 weights also the kernel that rounds x to bf16. */
static void linear(const char *name, int M, int N, int K, DType type, size_t copies, int glu, int threads)
{
    if (!strstr(name, wanted))
        return;

    const size_t bytes = (size_t)N * K * dtype_size(type);
    float *x = filled((size_t)M * K * 4, DT_FP32), *y = malloc((size_t)M * N * 4);
    char *w = filled(bytes * copies, type);
    Load l = {.kernel = cpu_kernel("linear"),
              .arg = {x, w, NULL, NULL, y},
              .T = M,
              .S = 1,
              .ring = w,
              .walks = 1,
              .step = bytes,
              .copies = copies,
              .k = {[LINEAR_N] = N,
                    [LINEAR_K] = K,
                    [LINEAR_W] = type,
                    [LINEAR_KIND] = glu ? 5 /* silu */ : 0,
                    [LINEAR_GLU] = glu}};
    const double s = measure(&l, threads);

    printf("%-22s %4d x %6d x %5d %s  %d threads  %9.1f us  %6.1f GB/s  %6.1f GFLOP/s\n", name, M, N, K,
           dtype_name(type), threads, s * 1e6, (double)bytes / s * 1e-9, 2.0 * M * N * K / s * 1e-9);
    if (type == DT_BF16) {
        const int64_t k[] = {
            [LINEAR_BF16_N] = N, [LINEAR_BF16_K] = K, [LINEAR_BF16_KIND] = glu ? 5 : 0, [LINEAR_BF16_GLU] = glu};

        l.kernel = cpu_kernel("linear_bf16");
        memcpy(l.k, k, sizeof k);

        const double rounded = measure(&l, threads);

        printf("%-22s %4d x %6d x %5d rounded  %d threads  %9.1f us  %6.1f GB/s  %6.1f GFLOP/s\n", name, M, N, K,
               threads, rounded * 1e6, (double)bytes / rounded * 1e-9, 2.0 * M * N * K / rounded * 1e-9);
    }
    free(x), free(y), free(w);
}

static void quantised(const char *name, int M, int N, int K, DType type, int group, PackedScales scales, size_t copies,
                      int threads)
{
    if (!strstr(name, wanted))
        return;

    const size_t bytes = packed_tiles((uint64_t)N) * packed_tile(type, (uint64_t)K, (uint64_t)group, scales);
    int8_t *x = filled((size_t)M * K, DT_BF16);
    float *xs = filled((size_t)M * K / 32, DT_FP32), *y = malloc((size_t)M * N * 4);
    int32_t *xt = filled((size_t)M * K / 8, DT_FP32);
    char *w = filled(bytes * copies, DT_BF16);
    Load l = {.kernel = cpu_kernel("linear_q"),
              .arg = {x, xs, xt, w, NULL, NULL, y},
              .T = M,
              .S = 1,
              .ring = w,
              .walks = 3,
              .step = bytes,
              .copies = copies,
              .k = {[LINEAR_Q_N] = N,
                    [LINEAR_Q_K] = K,
                    [LINEAR_Q_W] = type,
                    [LINEAR_Q_GROUP] = group,
                    [LINEAR_Q_SCALES] = scales,
                    [LINEAR_Q_XGROUP] = 128}};
    const double s = measure(&l, threads);

    printf("%-22s %4d x %6d x %5d %s groups of %3d%s  %d threads  %9.1f us  %6.1f GB/s  %7.1f GOP/s\n", name, M, N, K,
           dtype_name(type), group, scales == PACKED_FP32_MINIMA ? ", minima" : "", threads, s * 1e6,
           (double)bytes / s * 1e-9, 2.0 * M * N * K / s * 1e-9);
    free(x), free(xs), free(xt), free(y), free(w);
}

static void attend(const char *name, int T, int context, int H, int G, int E, int threads)
{
    if (!strstr(name, wanted))
        return;

    enum { BLOCK = 16 };
    const int pages = (context + BLOCK - 1) / BLOCK, span = context / 32 > 256 ? context / 32 : 256;
    const size_t n = (size_t)pages * BLOCK * G * E;
    int32_t *table = malloc(sizeof *table * pages);
    FtxRow row = {.q_start = 0, .q_len = T, .kv_len = context};
    const double scale = 0.125;
    int64_t scale_bits;
    Load l = {.kernel = cpu_kernel("attend_paged"), .T = T, .S = 1, .copies = 1};
    int ready[16] = {0};

    memcpy(&scale_bits, &scale, sizeof scale);
    for (int i = 0; i < pages; i++)
        table[i] = pages - 1 - i;
    const int64_t k[] = {[ATTEND_PAGED_H] = H,
                         [ATTEND_PAGED_G] = G,
                         [ATTEND_PAGED_E] = E,
                         [ATTEND_PAGED_SCALE] = scale_bits,
                         [ATTEND_PAGED_BLOCK] = BLOCK,
                         [ATTEND_PAGED_PAGES] = pages,
                         [ATTEND_PAGED_KV] = DT_FP32,
                         [ATTEND_PAGED_SPAN] = span,
                         [ATTEND_PAGED_SPANS] = (context + span - 1) / span,
                         [ATTEND_PAGED_LENGTH] = context,
                         [ATTEND_PAGED_BEAM] = 0};
    void *const arg[] = {filled((size_t)T * H * E * 4, DT_FP32),
                         &row,
                         table,
                         filled(n * 4, DT_FP32),
                         filled(n * 4, DT_FP32),
                         NULL,
                         malloc((size_t)T * H * E * 4),
                         malloc((size_t)16 * 64 * 16 * (E + 2) * 4),
                         ready};
    memcpy(l.k, k, sizeof k);
    memcpy(l.arg, arg, sizeof arg);

    const double s = measure(&l, threads), pairs = (double)T * context - (double)T * (T - 1) / 2;

    printf("%-22s %4d tokens at %5d, %2d/%d x %d  %d threads  %9.1f us  %6.1f GB/s  %6.1f GFLOP/s\n", name, T, context,
           H, G, E, threads, s * 1e6, (double)n * 8 / s * 1e-9, 4.0 * pairs * H * E / s * 1e-9);
    for (int i = 0; i < 8; i++)
        if (i != 1)
            free(arg[i]);
}

/* The gated delta rule of H heads [E, E], over T tokens of one sequence. */
static void recur(const char *name, int T, int H, int E, int threads)
{
    if (!strstr(name, wanted))
        return;

    const size_t n = (size_t)T * H * E * 4;
    FtxRow row = {.q_len = T, .kv_len = T + 1};
    const double unit = 1e-6, scale = 0.1;
    Load l = {.kernel = cpu_kernel("recur"),
              .T = T,
              .S = 1,
              .copies = 1,
              .k = {[RECUR_H] = H, [RECUR_G] = H, [RECUR_K] = E, [RECUR_V] = E},
              .arg = {filled(n, DT_FP32), filled(n, DT_FP32), filled(n, DT_FP32), filled((size_t)T * H * 4, DT_FP32),
                      filled((size_t)H * 4, DT_FP32), filled((size_t)H * 4, DT_FP32),
                      filled((size_t)T * H * 4, DT_FP32), &row, filled((size_t)H * E * E * 4, DT_FP32), malloc(n)}};

    memcpy(&l.k[RECUR_UNIT], &unit, sizeof unit);
    memcpy(&l.k[RECUR_SCALE], &scale, sizeof scale);

    const double s = measure(&l, threads);

    printf("%-22s %4d tokens, %2d x %d x %d  %d threads  %9.1f us  %6.1f GFLOP/s\n", name, T, H, E, E, threads, s * 1e6,
           7.0 * T * H * E * E / s * 1e-9);
    for (int i = 0; i < 10; i++)
        if (i != 7)
            free(l.arg[i]);
}

/* Mamba's state space of H channels with K keys, over T tokens of one sequence. */
static void scan(int T, int H, int K, int threads)
{
    if (!strstr("selective_scan", wanted))
        return;

    const size_t of_key = (size_t)T * K * 4, of_head = (size_t)T * H * 4;
    FtxRow row = {.q_len = T, .kv_len = T + 1};
    const double scale = 1;
    Load l = {.kernel = cpu_kernel("selective_scan"),
              .T = T,
              .S = 1,
              .copies = 1,
              .k = {[SELECTIVE_SCAN_H] = H, [SELECTIVE_SCAN_K] = K},
              .arg = {filled(of_key, DT_FP32), filled(of_key, DT_FP32), filled(of_head, DT_FP32),
                      filled(of_head, DT_FP32), filled((size_t)H * K * 4, DT_FP32), filled((size_t)H * 4, DT_FP32),
                      &row, filled((size_t)H * K * 4, DT_FP32), malloc(of_head)}};

    memcpy(&l.k[SELECTIVE_SCAN_SCALE], &scale, sizeof scale);

    const double s = measure(&l, threads);

    printf("%-22s %4d tokens, %d x %d  %d threads  %9.1f us\n", "selective_scan", T, H, K, threads, s * 1e6);
    for (int i = 0; i < 9; i++)
        if (i != 6)
            free(l.arg[i]);
}

static void norm(int T, int C, int threads)
{
    if (!strstr("rmsnorm", wanted))
        return;

    Load l = {.kernel = cpu_kernel("rmsnorm"),
              .T = T,
              .S = 1,
              .copies = 1,
              .k = {[RMSNORM_C] = C},
              .arg = {filled((size_t)T * C * 4, DT_FP32), filled((size_t)C * 4, DT_FP32), malloc((size_t)T * C * 4)}};

    printf("%-22s %4d x %d  %d threads  %9.2f us\n", "rmsnorm", T, C, threads, measure(&l, threads) * 1e6);
}

static void sample(const char *name, int V, FtxParams p, int threads)
{
    if (!strstr(name, wanted))
        return;

    static int32_t history[1024];
    static int ends[8], token[4];
    static FtxBias bias[8];
    static FtxOut out[8];
    int32_t y[1];
    FtxRow row = {.q_len = 1, .kv_len = 500, .emit = 1, .prompt = 10, .limit = 1 << 30};
    float *x = filled((size_t)V * 4, DT_FP32);
    Load l = {
        .kernel = cpu_kernel("sample"),
        .T = 1,
        .S = 1,
        .copies = 1,
        .k = {[SAMPLE_V] = V, [SAMPLE_CONTEXT] = 1024, [SAMPLE_SEQUENCES] = 1, [SAMPLE_ENDS] = 8, [SAMPLE_BIAS] = 8}};

    for (int i = 0; i < V; i++)
        x[i] *= 64.0f;
    for (int i = 0; i < 1024; i++)
        history[i] = i * 7919 % V;
    void *const arg[] = {x, &row, &p, ends, bias, token, history, out, y, malloc((size_t)V * 4), calloc((size_t)V, 4)};
    memcpy(l.arg, arg, sizeof arg);

    /* The row's length grows by one a call: 100 calls stay inside the history. */
    printf("%-22s V=%d  %d threads  %9.1f us\n", name, V, threads, measure(&l, threads) * 1e6);
    free(x), free(arg[9]), free(arg[10]);
}

/* The host's choice under a mask that allows every `every`-th id: of logits as a trained model has them, a few high above
 * many. In front of it, what it took the place of: -inf for the others, then `sample`. */
static void masked(const char *name, int V, int every, FtxParams p)
{
    enum { CALLS = 50 };
    static int32_t history[1024], ends[8];
    static FtxBias bias[8];
    static FtxToken token;
    static FtxOut out[8];
    const int words = (V + 31) / 32;
    int32_t y[1];
    FtxRow row = {.q_len = 1, .kv_len = 500, .emit = 1, .prompt = 10, .limit = 1 << 30};
    float *x = filled((size_t)(V + 32) * 4, DT_FP32), *logits = filled((size_t)V * 4, DT_FP32);
    void *room[4];
    uint32_t *bits = calloc((size_t)words, 4), *marks = calloc((size_t)V, 4);
    const int64_t k[] = {
        [SAMPLE_V] = V, [SAMPLE_CONTEXT] = 1024, [SAMPLE_SEQUENCES] = 1, [SAMPLE_ENDS] = 8, [SAMPLE_BIAS] = 8};
    double best[2] = {1e9, 1e9};

    if (!strstr(name, wanted))
        return;
    for (int i = 0; i < V; i++) /* uniform in -1 to 1, with a long tail above */
        x[i] = x[i] * 32.0f + (i % 977 == 0 ? 8.0f : 0.0f) + (i % 9973 == 0 ? 6.0f : 0.0f);
    for (int i = 0; i < 4; i++)
        room[i] = calloc((size_t)V + 32, 4);
    for (int i = 0; i < V; i += every)
        bits[i / 32] |= 1u << i % 32;
    void *const then[] = {logits, &row,    &p,  ends, bias,    token.id ? ends : NULL,
                          &token, history, out, y,    room[0], marks};
    void *const now[] = {x, &row, &p, ends, bias, NULL, history, bits, out, room[0], room[1], room[2], room[3], marks};

    for (int i = 0; i < CALLS; i++) {
        double at = seconds();

        for (int v = 0; v < V; v++)
            logits[v] = bits[v / 32] >> (v % 32) & 1 ? x[v] : -INFINITY;
        row.done = 0, row.kv_len = 500;
        cpu_kernel("sample")(&(CpuCall){.arg = then, .k = k, .T = 1, .S = 1, .threads = 1});
        best[0] = fmin(best[0], seconds() - at);
        row.kv_len = 500;
        at = seconds();
        cpu_kernel("sample_masked")(&(CpuCall){.arg = now, .k = k, .T = 1, .S = 1, .threads = 1});
        best[1] = fmin(best[1], seconds() - at);
    }
    printf("%-32s V=%d 1 in %-5d %9.1f us, before %9.1f\n", name, V, every, best[1] * 1e6, best[0] * 1e6);
    free(x), free(logits), free(bits), free(marks);
    for (int i = 0; i < 4; i++)
        free(room[i]);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1;

    wanted = argc > 2 ? argv[2] : "";
    scratch = aligned_alloc(64, (size_t)threads * CPU_SCRATCH);
    printf("%s\n", cpu_features());
    /* fable: what one token reads is 22 MB of weights */
    linear("fable qkv", 1, 640, 384, DT_BF16, 40, 0, threads);
    linear("fable o", 1, 384, 384, DT_BF16, 60, 0, threads);
    linear("fable gate/up", 1, 2048, 384, DT_BF16, 12, 1, threads);
    linear("fable down", 1, 384, 1024, DT_BF16, 24, 0, threads);
    linear("fable head", 1, 4096, 384, DT_BF16, 6, 0, threads);
    linear("fable qkv", 256, 640, 384, DT_BF16, 6, 0, threads);
    linear("fable o", 256, 384, 384, DT_BF16, 6, 0, threads);
    linear("fable gate/up", 256, 2048, 384, DT_BF16, 6, 1, threads);
    linear("fable down", 256, 384, 1024, DT_BF16, 6, 0, threads);
    /* Llama-3.2-1B: from memory */
    linear("1B qkv", 1, 3072, 2048, DT_BF16, 24, 0, threads);
    linear("1B gate/up", 1, 16384, 2048, DT_BF16, 5, 1, threads);
    linear("1B down", 1, 2048, 8192, DT_BF16, 10, 0, threads);
    linear("1B head", 1, 128256, 2048, DT_BF16, 1, 0, threads);
    linear("1B gate/up", 8, 16384, 2048, DT_BF16, 5, 1, threads);
    linear("1B qkv", 128, 3072, 2048, DT_BF16, 8, 0, threads);
    linear("1B gate/up", 128, 16384, 2048, DT_BF16, 2, 1, threads);
    linear("1B down", 128, 2048, 8192, DT_BF16, 4, 0, threads);
    linear("1B gate/up", 512, 16384, 2048, DT_BF16, 1, 1, threads);
    linear("1B gate/up", 128, 16384, 2048, DT_FP16, 1, 1, threads);
    linear("1B gate/up", 128, 16384, 2048, DT_FP32, 1, 1, threads);
    for (int M = 1; M <= 512; M *= 2)
        for (int i = 0; i < 5; i++)
            quantised("codes 1B qkv", M, 3072, 2048, i % 2 ? DT_INT4 : DT_INT8,
                      i == 4  ? 16
                      : i / 2 ? 32
                              : 128,
                      i == 3 ? PACKED_FP32_MINIMA : PACKED_FP16, 4, threads);
    quantised("codes 1B gate/up", 128, 16384, 2048, DT_INT4, 128, PACKED_FP16, 2, threads);
    quantised("codes 1B down", 128, 2048, 8192, DT_INT4, 128, PACKED_FP16, 4, threads);
    quantised("codes 1B down", 512, 2048, 8192, DT_INT4, 128, PACKED_FP16, 4, threads);
    attend("fable decode", 1, 128, 6, 2, 64, threads);
    attend("fable decode", 1, 1000, 6, 2, 64, threads);
    attend("fable prompt", 256, 256, 6, 2, 64, threads);
    attend("1B decode", 1, 1000, 32, 8, 64, threads);
    attend("1B prompt", 128, 128, 32, 8, 64, threads);
    recur("recur", 1, 16, 128, threads);
    recur("recur", 64, 16, 128, threads);
    scan(1, 5120, 16, threads);
    scan(64, 5120, 16, threads);
    norm(1, 384, threads);
    norm(256, 384, threads);
    sample("greedy", 4096, (FtxParams){.top_p = 1, .repetition = 1, .simple = 1}, threads);
    sample("fable's default", 4096, (FtxParams){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .repetition = 1.15f},
           threads);
    sample("top-p alone", 4096, (FtxParams){.temperature = 0.8f, .top_p = 0.95f, .repetition = 1}, threads);
    sample("greedy", 128256, (FtxParams){.top_p = 1, .repetition = 1, .simple = 1}, threads);
    sample("top-k 40, top-p", 128256, (FtxParams){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .repetition = 1},
           threads);
    sample("top-p alone", 128256, (FtxParams){.temperature = 0.8f, .top_p = 0.95f, .repetition = 1}, threads);
    for (int every = 1; every <= 10000; every *= 100) {
        const FtxParams base = {.top_p = 1.0f, .repetition = 1.0f};
        FtxParams q = base;

        q.simple = 1;
        masked("masked, greedy", 128256, every, q);
        q = base;
        q.temperature = 1.0f;
        masked("masked, temperature", 128256, every, q);
        q.top_p = 0.9f;
        masked("masked, top-p 0.9", 128256, every, q);
        q.top_k = 50;
        masked("masked, top-k 50, top-p 0.9", 128256, every, q);
        q.repetition = 1.1f;
        masked("masked, penalty, top-k, top-p", 128256, every, q);
    }
    return 0;
}
