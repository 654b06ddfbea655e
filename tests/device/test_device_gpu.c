/* test_device_gpu.c - the CUDA device on a real GPU: code, weights, graphs with programmatic
 * edges, matrix products of cuBLASLt, results by polling. Skipped where there is no GPU.
 *
 * The kernels are toys of this file, compiled by NVRTC for the GPU at hand:
 *
 *   token ids -> gather rows of w -> double -> (linear by a plain loop | cuBLASLt) -> store */
#include "tables.h"

#include <math.h>
#include <time.h>

#include "compiler/instantiate/parts.h"
#include "runtime/device/random.h"
#include "tests/skip.h"

const char *catalog_text(const char *name) /* the texts are in this file */
{
    (void)name;
    return NULL;
}

size_t catalog_headers(const char *const **names, const char *const **texts)
{
    *names = *texts = NULL;
    return 0;
}

static const char source[] =
    "#if TYPE == 1\n"
    "typedef float E; __device__ float get(E e) { return e; } __device__ E put(float f) { return "
    "f; }\n"
    "#elif TYPE == 3\n"
    "typedef unsigned short E;\n"
    "__device__ float get(E e) { return __uint_as_float((unsigned)e << 16); }\n"
    "__device__ E put(float f) { E e; asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(e) : \"f\"(f)); "
    "return e; }\n"
    "#else\n"
    "typedef unsigned short E;\n"
    "__device__ float get(E e) { float f; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(e)); "
    "return f; }\n"
    "__device__ E put(float f) { E e; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(e) : \"f\"(f)); "
    "return e; }\n"
    "#endif\n"
    "__device__ void wait()\n{\n#if __CUDA_ARCH__ >= 900\n"
    "    asm volatile(\"griddepcontrol.launch_dependents;\\ngriddepcontrol.wait;\" ::: "
    "\"memory\");\n#endif\n}\n"
    "struct Token { int id, pos, row, slot; };\n"
    "struct Gather { const Token *token; const E *w; E *x; };\n"
    "extern \"C\" __global__ void gather(Gather a)\n{\n"
    "    for (int k = threadIdx.x; k < K; k += blockDim.x)\n"
    "        a.x[blockIdx.x * K + k] = a.w[(long)a.token[blockIdx.x].id * K + k];\n}\n"
    "struct Twice { const E *x; E *y; };\n"
    "extern \"C\" __global__ void twice(Twice a)\n{\n    wait();\n"
    "    for (int k = threadIdx.x; k < K; k += blockDim.x)\n"
    "        a.y[blockIdx.x * K + k] = put(2.0f * get(a.x[blockIdx.x * K + k]));\n}\n"
    "struct Linear { const E *x, *w, *b, *r; E *y; };\n"
    "extern \"C\" __global__ void linear(Linear a)\n{\n    extern __shared__ float row[];\n    "
    "wait();\n"
    "    for (int k = threadIdx.x; k < K; k += blockDim.x) row[k] = get(a.x[blockIdx.x * K + k]);\n"
    "    __syncthreads();\n"
    "    for (int n = threadIdx.x; n < N; n += blockDim.x) {\n        float sum = 0;\n"
    "        for (int k = 0; k < K; k++) sum += row[k] * get(a.w[(long)n * K + k]);\n"
    "        if (a.b) sum += get(a.b[n]);\n        if (a.r) sum += get(a.r[blockIdx.x * N + n]);\n"
    "        a.y[blockIdx.x * N + n] = put(sum);\n    }\n}\n"
    "struct Out { int token; float logprob; int finish, length; };\n"
    "struct Store { const E *y; float *logits; Out *out; };\n"
    "extern \"C\" __global__ void store(Store a)\n{\n    wait();\n"
    "    for (int n = threadIdx.x; n < N; n += blockDim.x)\n"
    "        a.logits[blockIdx.x * N + n] = get(a.y[blockIdx.x * N + n]);\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x == 0) {\n        a.out[blockIdx.x].token = (int)blockIdx.x;\n        "
    "__threadfence_system();\n"
    "        *(volatile int *)&a.out[blockIdx.x].length = 7;\n    }\n}\n";

enum { GATHER, TWICE, LINEAR, STORE, LT, KERNELS };
enum { BUCKET, BUCKET_LT, EXACT, CHAIN, PROGRAMS };
enum { N = 384, K = 256, V = 512, TOKENS = 200, ROWS = TOKENS, CHAIN_LENGTH = 200, BUCKET_ROWS = 16 };

static const char strings[] = "\0gather\0twice\0linear\0store\0matmul\0a launch\0";
enum { STR_GATHER = 1, STR_TWICE = 8, STR_LINEAR = 14, STR_STORE = 21, STR_MATMUL = 27, STR_LABEL = 34 };

typedef struct World {
    Tables t;
    Bytes code;
    DType type;
    bool bias, residual;
    FtxAct act;
    uint64_t at_x, at_y, at_z; /* in WORK */
} World;

static void enqueue(World *w, uint32_t kernel)
{
    launch(&w->t, kernel, STR_LABEL);
    switch (kernel) {
    case GATHER:
        operand(&w->t, FTX_SPACE_IO, w->t.head.named[FTX_NAMED_token]);
        operand(&w->t, FTX_SPACE_WEIGHTS, w->t.weights[0].offset);
        operand(&w->t, FTX_SPACE_WORK, w->at_x);
        return;
    case TWICE:
        operand(&w->t, FTX_SPACE_WORK, w->at_x);
        operand(&w->t, FTX_SPACE_WORK, w->at_y);
        return;
    case STORE:
        operand(&w->t, FTX_SPACE_WORK, w->at_z);
        operand(&w->t, FTX_SPACE_STATE, 0);
        operand(&w->t, FTX_SPACE_OUT, 0);
        return;
    default:
        operand(&w->t, FTX_SPACE_WORK, w->at_y);
        operand(&w->t, FTX_SPACE_WEIGHTS, w->t.weights[1].offset);
        operand(&w->t, w->bias ? FTX_SPACE_WEIGHTS : FTX_SPACE_NULL, w->t.weights[2].offset);
        operand(&w->t, w->residual ? FTX_SPACE_WEIGHTS : FTX_SPACE_NULL,
                w->t.weights[0].offset); /* [.., K] read as [.., N] */
        operand(&w->t, FTX_SPACE_WORK, w->at_z);
    }
}

static void program(World *w, int p, uint32_t bucket, uint32_t linear)
{
    w->t.programs[p] =
        (FtxProgram){.kind = FTX_PROG_STEP, .bucket = bucket, .first_launch = w->t.n_launches, .n_launches = 4};
    enqueue(w, GATHER);
    enqueue(w, TWICE);
    enqueue(w, linear);
    enqueue(w, STORE);
}

static uint64_t weight(World *w, int i, uint64_t rows, uint64_t columns, FtxWeightKind kind, uint64_t at)
{
    w->t.weights[i] = (FtxWeight){.type = w->type,
                                  .rank = 2,
                                  .dim = {rows, columns},
                                  .kind = kind,
                                  .offset = at,
                                  .bytes = rows * columns * dtype_size(w->type)};
    return at + (w->t.weights[i].bytes + 255) / 256 * 256;
}

static void kernel(World *w, int i, uint32_t entry, uint32_t flags, uint32_t operands)
{
    w->t.kernels[i] = (FtxKernel){.kind = i == LT ? FTX_KERNEL_MATMUL : FTX_KERNEL_CUDA,
                                  .family = entry,
                                  .entry = entry,
                                  .flags = flags,
                                  .n_operands = operands,
                                  .block = 128,
                                  .code_bytes = (uint32_t)w->code.bytes,
                                  .smem = i == LINEAR ? 4 * K : 0};
    grid(&w->t, i, 0, "T");
}

static Bytes compile(uint32_t target, DType type)
{
    char text[sizeof source + 200];
    Bytes b;

    snprintf(text, sizeof text, "#define TYPE %d\n#define K %d\n#define N %d\n%s", (int)type, K, N, source);
    if (!nvrtc_version())
        fail_msg("%s", nvrtc_missing());
    if (!nvrtc_compile(text, (Target){.id = target, .name = ""}, &b))
        fail_msg("%s", (const char *)b.at);
    return b;
}

/* overlap: the chain's kernels, too. */
static World *world(uint32_t target, DType type, FtxAct act, bool bias, bool residual, bool overlap)
{
    World *w = calloc(1, sizeof *w);
    const uint32_t flag = overlap ? FTX_KERNEL_OVERLAP : 0;

    w->type = type, w->act = act, w->bias = bias, w->residual = residual;
    w->code = compile(target, type);
    w->t.facts = (FtxFacts){.sequences = ROWS, .tokens = TOKENS};
    w->t.facts.weight_bytes = weight(w, 0, V, K, FTX_WEIGHT_MATRIX, 0);
    w->t.facts.weight_bytes = weight(w, 1, N, K, FTX_WEIGHT_MATRIX, w->t.facts.weight_bytes);
    w->t.facts.weight_bytes = weight(w, 2, 1, N, FTX_WEIGHT_MATRIX, w->t.facts.weight_bytes);
    w->t.head.target = target;
    w->at_y = TOKENS * K * 4, w->at_z = 2 * w->at_y;
    w->t.head.space_bytes[FTX_SPACE_STATE] = ROWS * N * 4;
    w->t.head.space_bytes[FTX_SPACE_IO] = 64 + TOKENS * sizeof(FtxToken);
    w->t.head.space_bytes[FTX_SPACE_WORK] = w->at_z + TOKENS * N * 4;
    w->t.head.space_bytes[FTX_SPACE_OUT] = ROWS * sizeof(FtxOut);
    w->t.head.named[FTX_NAMED_token] = 64;
    w->t.head.named_bytes[FTX_NAMED_logits] = ROWS * N * 4;
    w->t.head.named_bytes[FTX_NAMED_out] = ROWS * sizeof(FtxOut);
    kernel(w, GATHER, STR_GATHER, 0, 3);
    kernel(w, TWICE, STR_TWICE, flag, 2);
    kernel(w, LINEAR, STR_LINEAR, flag, 5);
    kernel(w, STORE, STR_STORE, flag, 3);
    kernel(w, LT, STR_MATMUL, 0, 5);
    w->t.kernels[LT].n_consts = FTX_MM_CONSTS;
    memcpy(w->t.consts, (int64_t[FTX_MM_CONSTS]){0, N, K, type, type, type, act}, FTX_MM_CONSTS * sizeof *w->t.consts);
    program(w, BUCKET, BUCKET_ROWS, LINEAR);
    program(w, BUCKET_LT, BUCKET_ROWS, LT);
    program(w, EXACT, 0, LT);
    w->t.programs[CHAIN] =
        (FtxProgram){.kind = FTX_PROG_STEP, .bucket = 1, .first_launch = w->t.n_launches, .n_launches = CHAIN_LENGTH};
    for (int i = 0; i < CHAIN_LENGTH; i++)
        enqueue(w, TWICE);
    join_tables(&w->t, KERNELS, PROGRAMS, w->code.at, w->code.bytes, strings, sizeof strings);
    return w;
}

static void drop(World *w)
{
    free((void *)(uintptr_t)w->code.at);
    free((void *)(uintptr_t)w->t.artifact.weight_data);
    free(w);
}

static double rounded(double v, DType t)
{
    float f;

    dtype_store(&f, 0, t, (float)v);
    return dtype_load(&f, 0, t);
}

/* Element [row, n] of the result, in double, from the same rounded inputs. */
static double expected(const World *w, const char *weights, int id, int row, int n)
{
    const void *rows = weights, *matrix = weights + w->t.weights[1].offset, *bias = weights + w->t.weights[2].offset;
    double sum = 0;

    for (int k = 0; k < K; k++)
        sum += rounded(2.0 * dtype_load(rows, (size_t)id * K + k, w->type), w->type) *
               dtype_load(matrix, (size_t)n * K + k, w->type);
    if (w->bias)
        sum += dtype_load(bias, (size_t)n, w->type);
    if (w->act == FTX_ACT_RELU)
        sum = sum > 0 ? sum : 0;
    if (w->act == FTX_ACT_GELU_TANH)
        sum = 0.5 * sum * (1 + tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
    if (w->residual)
        sum += dtype_load(rows, (size_t)row * N + n, w->type);
    return sum;
}

/* Runs a program on T tokens; the relative error of what it stores. */
static double run_and_compare(const World *w, const char *weights, Session *s, uint32_t p, int T)
{
    FtxToken *token = (void *)((char *)device_cuda.io(s) + 64);
    float *got = malloc(sizeof(float) * ROWS * N);
    double error = 0, size = 0;
    FtxError err;

    for (int t = 0; t < T; t++)
        token[t] = (FtxToken){.id = (t * 37 + T) % V};
    must(device_cuda.upload(s, 64 + (size_t)T * sizeof *token, &err), &err);
    must(device_cuda.run(s, p, T, T, 1, &err), &err);
    const volatile FtxOut *out = device_cuda.out(s);
    for (time_t from = time(NULL); out[T - 1].length != 7 && time(NULL) - from < 10;)
        continue; /* the host sees results without a wait */
    assert_int_equal(out[T - 1].length, 7);
    must(device_cuda.read(s, FTX_NAMED_logits, 0, got, sizeof(float) * (size_t)T * N, &err), &err);
    for (int t = 0; t < T; t++) {
        for (int n = 0; n < N; n++) {
            const double e = expected(w, weights, token[t].id, t, n);

            error += (e - got[t * N + n]) * (e - got[t * N + n]);
            size += e * e;
        }
        assert_int_equal(out[t].token, t);
    }
    memset(device_cuda.io(s), 0, 64);
    free(got);
    return sqrt(error / size);
}

static void need_gpu(uint32_t *target)
{
    FtxError err;

    if (device_cuda_probe(0, target, &err))
        SKIP("%s", err.text);
}

/* Every type, epilogue and way to run: against sums in double. The bound is the rounding of what
 * is stored: half a unit of bf16 is 2^-9. */
static void products_are_right(void **state)
{
    static const struct {
        DType type;
        FtxAct act;
        bool bias, residual;
        double bound;
    } rows[] = {
        {DT_FP32, FTX_ACT_NONE, false, false, 1e-6},      {DT_FP32, FTX_ACT_NONE, true, true, 1e-6},
        {DT_FP32, FTX_ACT_GELU_TANH, true, false, 1e-5},  {DT_BF16, FTX_ACT_NONE, false, false, 3e-3},
        {DT_BF16, FTX_ACT_NONE, true, true, 3e-3},        {DT_BF16, FTX_ACT_RELU, true, false, 3e-3},
        {DT_BF16, FTX_ACT_GELU_TANH, false, false, 3e-3}, {DT_FP16, FTX_ACT_NONE, true, true, 5e-4},
    };
    static const int Ts[] = {1, 16, 17, 64, 65, 131, TOKENS};
    uint32_t target;

    (void)state;
    need_gpu(&target);
    for (size_t i = 0; i < LEN(rows); i++) {
        World *w = world(target, rows[i].type, rows[i].act, rows[i].bias, rows[i].residual, true);
        char *weights = calloc(1, w->t.facts.weight_bytes);
        double worst = 0;
        Device *d;
        Session *s;
        FtxError err;
        uint32_t pages;

        for (uint32_t k = 0; k < 3; k++)
            random_fill(&w->t.artifact, k, 5, 0, w->t.weights[k].bytes / dtype_size(w->type),
                        weights + w->t.weights[k].offset);
        w->t.artifact.weight_data = weights;
        must(device_cuda.open(&w->t.artifact, &w->t.plan, NULL, &d, &err), &err);
        must(device_cuda.session_open(d, 0, &s, &pages, &err), &err);
        for (size_t t = 0; t < LEN(Ts); t++) {
            const double e = run_and_compare(w, weights, s, EXACT, Ts[t]);

            worst = e > worst ? e : worst;
        }
        const double in_graph = run_and_compare(w, weights, s, BUCKET_LT, 9);
        const double plain = rows[i].act ? 0 : run_and_compare(w, weights, s, BUCKET, 11);
        print_message("%s act %d bias %d residual %d: cuBLASLt %.2g, in a graph %.2g, plain loop %.2g\n",
                      dtype_name(rows[i].type), (int)rows[i].act, rows[i].bias, rows[i].residual, worst, in_graph,
                      plain);
        assert_true(worst < rows[i].bound && in_graph < rows[i].bound && plain < rows[i].bound);
        device_cuda.session_close(s);
        device_cuda.close(d);
        drop(w);
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Figures for people: what an edge costs, and that profiling and timing work. */
static void edges_are_timed(void **state)
{
    uint32_t target;
    double times[200];

    (void)state;
    need_gpu(&target);
    for (int overlap = 0; overlap < 2; overlap++) {
        World *w = world(target, DT_BF16, FTX_ACT_NONE, false, false, overlap);
        const FtxProfile *rows;
        size_t n;
        Device *d;
        Session *s;
        FtxError err;
        uint32_t pages;

        w->t.artifact.weight_data = calloc(1, w->t.facts.weight_bytes);
        must(device_cuda.open(&w->t.artifact, &w->t.plan, NULL, &d, &err), &err);
        must(device_cuda.session_open(d, 0, &s, &pages, &err), &err);
        must(device_cuda.time(s, CHAIN, 1, 1, 200, times, &err), &err);
        qsort(times, 200, sizeof *times, by_value);
        print_message("%s: a chain of %d small kernels %.1f us (%.2f us each), least %.1f\n", device_cuda.describe(d),
                      CHAIN_LENGTH, times[100], times[100] / CHAIN_LENGTH, times[0]);
        assert_true(times[0] > 0);
        must(device_cuda.profile(s, true, &rows, &n, &err), &err);
        for (int i = 0; i < 20; i++)
            must(device_cuda.run(s, EXACT, TOKENS, TOKENS, 1, &err), &err);
        for (size_t i = 0; i < n; i++)
            print_message("  %-8s %3llu launches %.2f us each\n", rows[i].kernel, (unsigned long long)rows[i].launches,
                          rows[i].launches ? rows[i].time_us / (double)rows[i].launches : 0.0);
        assert_int_equal(rows[GATHER].launches, 20);
        assert_true(rows[LT].time_us > 0);
        device_cuda.session_close(s);
        device_cuda.close(d);
        drop(w);
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* FTX_TEST_GB: how large a block to time copying with (default 0.25). */
static void large_weights_arrive(void **state)
{
    const char *asked = getenv("FTX_TEST_GB");
    const uint64_t more = (uint64_t)((asked ? atof(asked) : 0.25) * 1e9) / 512 * 256;
    uint32_t target;

    (void)state;
    need_gpu(&target);
    World *w = world(target, DT_BF16, FTX_ACT_NONE, false, false, true);
    Device *d;
    Session *s;
    FtxError err;
    uint32_t pages;

    w->t.weights[2].dim[0] = more / N; /* the bias grows into a large matrix */
    w->t.weights[2].bytes = w->t.weights[2].dim[0] * N * 2;
    w->t.facts.weight_bytes = w->t.weights[2].offset + w->t.weights[2].bytes;
    char *weights = malloc(w->t.facts.weight_bytes);
    for (uint64_t i = 0; i < w->t.facts.weight_bytes / 2; i++)
        ((uint16_t *)(void *)weights)[i] = bf16_from_float((float)((int)(i * 2654435761u >> 20 & 255) - 128) / 128);
    w->t.artifact.weight_data = weights;
    const double from = now();
    must(device_cuda.open(&w->t.artifact, &w->t.plan, NULL, &d, &err), &err);
    const double opened = now();
    must(device_cuda.session_open(d, 0, &s, &pages, &err), &err);
    print_message("%.2f GB: open %.3f s, session %.3f s\n", (double)w->t.facts.weight_bytes * 1e-9, opened - from,
                  now() - opened);
    assert_true(run_and_compare(w, weights, s, EXACT, 70) < 3e-3);
    device_cuda.session_close(s);
    device_cuda.close(d);
    drop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(edges_are_timed),
        cmocka_unit_test(large_weights_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
