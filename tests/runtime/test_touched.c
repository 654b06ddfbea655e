/* test_touched.c - each CPU kernel touches the bytes that kernels/cpu/extents.def says: no byte outside, and the last ones.
 *
 * Models run on the CPU device, with a guard around each kernel. It computes the sizes of the operands for the live
 * tokens and rows, copies each operand into memory of just that size, and calls the kernel twice: once with each
 * operand's end at a page that cannot be read, once with its start behind such a page. Both calls must write the same,
 * and nothing but operands that extents.def calls written. In a further call one operand is 4 bytes shorter: the kernel
 * must run into the page. Each level of the processor is called, and threads one after another: no kernel can tell. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "kernels/cpu/consts.h"
#include "kernels/cpu/cpu.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cpu/extents.h"
#include "runtime/ftx.h"
#include "tests/temp.h"

enum { PAGE = 1 << 16, ROOM = 16 << 20, THREADS = 20, SHORTER = 4, FAMILIES = 64, ANY = 4 << 10 };

typedef enum End { AT_END, AT_START } End;

/* What was seen of a family's operands. */
typedef struct Family {
    const char *name;
    unsigned long calls;
    bool reached[EXTENT_OPERANDS]; /* its last bytes were touched */
    bool sized[EXTENT_OPERANDS];   /* its size is an expression, and was not 0 */
} Family;

static Family families[FAMILIES];

static Artifact artifact; /* of the model that runs */
static char *slot[EXTENT_OPERANDS];
static sigjmp_buf before;
static volatile sig_atomic_t may_fault;
static const char *running;
static const Extent *sizes;
static char *placed[EXTENT_OPERANDS];

static void on_fault(int signal, siginfo_t *info, void *context)
{
    const char *at = info->si_addr;

    (void)signal, (void)context;
    if (may_fault)
        siglongjmp(before, 1);
    for (int i = 0; i < EXTENT_OPERANDS; i++)
        if (at >= slot[i] && at < slot[i] + ROOM + 2 * PAGE)
            fprintf(stderr, "%s: operand %d has %llu bytes, byte %td was touched\n", running, i,
                    (unsigned long long)sizes[i].bytes, at - placed[i]);
    _exit(1);
}

/* For one test: cmocka has a handler of its own for each. */
static void catch_faults(void)
{
    const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};

    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
}

static Family *family_of(const char *name)
{
    Family *f = families;

    while (f->name && strcmp(f->name, name) != 0)
        f++;
    assert_true(f < families + FAMILIES);
    f->name = name;
    return f;
}

/* --- one call ----------------------------------------------------------------------------------------- */

static bool encodes(const char *family, const CpuCall *c)
{
    return strcmp(family, "cross_append") == 0 || strcmp(family, "cross_cache") == 0 ||
           (strcmp(family, "embed") == 0 && c->k[EMBED_ENCODE]) ||
           (strcmp(family, "attend") == 0 && c->k[ATTEND_PLACE] == 1);
}

/* The sizes of the operands of a call; a plan of this one launch, with as many tokens as the call has. */
static uint32_t sizes_of(const char *family, const CpuCall *c, Extent *e)
{
    const CpuExtents *row = cpu_extents(family);
    FtxKernel kernel = {.kind = FTX_KERNEL_CPU, .n_consts = *row->constants != '\0'};
    FtxOperand operand[EXTENT_OPERANDS] = {{0}};
    FtxProgram program = {.kind = encodes(family, c) ? FTX_PROG_ENCODE : FTX_PROG_STEP, .bucket = (uint32_t)c->T};
    const FtxLaunch launch = {0};
    ArtifactPlan plan = *artifact_plan(&artifact, FTX_TARGET_CPU, "");
    Artifact a = artifact;
    FtxError err;

    for (const char *at = row->constants; *at; at++)
        kernel.n_consts += *at == ' ';
    for (const char *at = row->operands; *at; at++)
        kernel.n_operands += *at == ';';
    for (uint32_t i = 0; i < kernel.n_operands; i++)
        operand[i].space = c->arg[i] ? FTX_SPACE_WORK : FTX_SPACE_NULL;
    a.strings = family;
    a.strings_bytes = strlen(family) + 1;
    plan.kernels = &kernel;
    plan.consts = c->k;
    plan.operands = operand;
    if (extents_of(&a, &plan, &program, &launch, e, &err))
        fail_msg("%s: %s", family, err.text);
    for (uint32_t i = 0; i < kernel.n_operands; i++)
        if (e[i].named == FTX_NAMED_k || e[i].named == FTX_NAMED_v)
            e[i].bytes *= artifact.facts->kv_pages; /* of one page */
    return kernel.n_operands;
}

/* Operand i in memory of `bytes`, between two pages that cannot be read; where it had more, the last are in the page. */
static char *place(uint32_t i, const void *from, uint64_t bytes, uint64_t shorter, End end)
{
    char *first = slot[i] + PAGE, *at = end == AT_START ? first : first + ROOM - bytes + shorter;

    assert_true(bytes <= ROOM);
    memcpy(at, from, bytes - shorter);
    return at;
}

/* Calls the kernel on copies of its operands; operand `shorter` lacks its last bytes. */
static void call_on_copies(CpuKernel *kernel, const CpuCall *c, const Extent *e, uint32_t n, End end, uint32_t shorter)
{
    void *arg[EXTENT_OPERANDS];
    CpuCall copy = *c;
    int32_t taken = 0;

    for (uint32_t i = 0; i < n; i++) {
        placed[i] = c->arg[i] ? place(i, c->arg[i], e[i].bytes, i == shorter ? SHORTER : 0, end) : NULL;
        arg[i] = placed[i];
    }
    copy.arg = arg;
    copy.threads = THREADS;
    copy.taken = &taken;
    for (copy.thread = 0; copy.thread < THREADS; copy.thread++)
        kernel(&copy);
}

/* Whether the kernel touches the last bytes of operand i. */
static bool reaches(CpuKernel *kernel, const CpuCall *c, const Extent *e, uint32_t n, uint32_t i)
{
    if (sigsetjmp(before, 1)) {
        may_fault = 0;
        return true;
    }
    may_fault = 1;
    call_on_copies(kernel, c, e, n, AT_END, i);
    may_fault = 0;
    return false;
}

CpuKernel *__real_cpu_kernel(const char *family);

/* Whether the name, of one letter, stands in the text, up to its ';'. */
static bool names(const char *text, char name)
{
    for (const char *at = text; *at != ';'; at++)
        if (*at == name && (at[-1] == ' ' || at[-1] == '(') && (at[1] == ' ' || at[1] == ';'))
            return true;
    return false;
}

/* Whether the call shows how large operand i is: several rows, or other tokens than rows, where its size depends on it. */
static bool tells_size(const char *family, const CpuCall *c, uint32_t i)
{
    const char *text = cpu_extents(family)->operands;

    for (; i > 0; i--)
        text = strchr(text, ';') + 1;
    return !((names(text, 'S') && c->S == 1) || ((names(text, 'T') || names(text, 'M')) && c->T == c->S));
}

/* Two calls of one kernel; the second's results are left in `placed`. */
static void guard_one(const char *family, CpuKernel *kernel, const CpuCall *c, const Extent *e, uint32_t n)
{
    Family *f = family_of(family);
    char *first[EXTENT_OPERANDS];

    for (uint32_t i = 0; i < n; i++) {
        f->sized[i] |= !e[i].whole && e[i].bytes;
        if (!e[i].whole && e[i].bytes && !f->reached[i] && tells_size(family, c, i))
            f->reached[i] = reaches(kernel, c, e, n, i);
    }
    call_on_copies(kernel, c, e, n, AT_END, n);
    for (uint32_t i = 0; i < n; i++) { /* the second call must not write over what the first has left */
        first[i] = slot[i] + PAGE + ROOM / 2;
        assert_true(e[i].bytes <= ROOM / 4);
        if (c->arg[i])
            memcpy(first[i], placed[i], e[i].bytes);
        if (c->arg[i] && !e[i].written && memcmp(c->arg[i], first[i], e[i].bytes) != 0)
            fail_msg("%s writes operand %u", family, i);
    }
    call_on_copies(kernel, c, e, n, AT_START, n);
    for (uint32_t i = 0; i < n; i++)
        if (c->arg[i] && e[i].written && memcmp(first[i], placed[i], e[i].bytes) != 0)
            fail_msg("%s: operand %u depends on what is not its operands'", family, i);
}

/* One call at each level of the processor; the last gives the results. */
static void guard(const char *family, const CpuCall *c)
{
#if defined __aarch64__
    static const char *const levels[] = {"plain", "dotprod", "i8mm"};
#else
    static const char *const levels[] = {"plain", "avx2", "avx512", "avx512bf16", "amx"};
#endif
    Extent e[EXTENT_OPERANDS];
    const uint32_t n = sizes_of(family, c, e);

    running = family;
    sizes = e;
    family_of(family)->calls++;
    for (size_t k = 0; k < sizeof levels / sizeof *levels; k++) {
        setenv("FTX_CPU", levels[k], 1);
        guard_one(family, __real_cpu_kernel(family), c, e, n);
    }
    unsetenv("FTX_CPU");
    for (uint32_t i = 0; i < n; i++)
        if (c->arg[i] && e[i].written)
            memcpy(c->arg[i], placed[i], e[i].bytes);
}

#define EXTENTS(family, constants, condition, operands) \
    static void guard_##family(const CpuCall *c) \
    { \
        guard(#family, c); \
    }
#include "kernels/cpu/extents.def"
#undef EXTENTS

CpuKernel *__wrap_cpu_kernel(const char *family);

CpuKernel *__wrap_cpu_kernel(const char *family)
{
#define EXTENTS(name, constants, condition, operands) \
    if (strcmp(family, #name) == 0) \
        return guard_##name;
#include "kernels/cpu/extents.def"
#undef EXTENTS
    return NULL;
}

/* --- models -------------------------------------------------------------------------------------------- */

/* As many rows as there can be, each to the end of its context, so that all pages are used. */
static void generate(FtxModel *m, FtxEngine *e, const FtxModelInfo *info, int beams)
{
    const int reads = info->source_context, max_new = reads ? info->context - 1 : info->context / 5;
    const int prompt = reads ? reads : beams ? 1 : info->context - max_new; /* two searches begin in one step */
    const int n = beams ? info->sequences / beams : info->sequences;
    int32_t ids[512];
    FtxEvent event[64] = {{.size = sizeof(FtxEvent)}};
    FtxError err;

    for (int i = 0; i < n; i++) {
        FtxRequest r = ftx_request_default(m);

        for (int k = 0; k < prompt; k++)
            ids[k] = (k * 7 + i * 31) % (info->vocab - 1);
        ids[0] = info->vocab - 1;
        r.ids = ids;
        r.ids_count = (size_t)prompt;
        r.max_new = r.min_new = max_new - 3;
        if (reads) {
            r.prefix = ids;
            r.prefix_count = 3;
        }
        r.temperature = beams ? 0.0f : 0.7f;
        r.top_k = beams ? 0 : 5;
        r.top_p = r.typical_p = beams ? 1.0f : 0.9f;
        r.repetition_penalty = 1.2f;
        r.presence_penalty = 0.5f;
        r.no_repeat_ngram = 3;
        r.beams = r.n_best = beams ? beams : 1;
        r.bias_ids = ids;
        r.bias_values = (const float[]){0.5f};
        r.bias_count = 1;
        if (ftx_engine_submit(e, &r, NULL, &err))
            fail_msg("%s", err.text);
    }
    while (ftx_engine_busy(e)) {
        size_t got;

        if (ftx_engine_step(e, event, 64, &got, &err))
            fail_msg("%s", err.text);
    }
}

static void encode(FtxEngine *e, const FtxModelInfo *info)
{
    static float hidden[1 << 16], pooled[1 << 12];
    int32_t ids[512], types[512], lengths[64];
    const int n = info->sequences, all = info->step_tokens;
    FtxEncode job = {.size = sizeof job, .count = (size_t)n, .ids = ids, .lengths = lengths, .hidden = hidden};
    FtxError err;

    for (int i = 0; i < n; i++)
        lengths[i] = i < n - 1 ? 1 + i : all - (n - 1) * n / 2; /* together all tokens of a step */
    assert_true(lengths[n - 1] <= info->context);
    for (int i = 0; i < all; i++) {
        ids[i] = i ? i % info->vocab : info->vocab - 1;
        types[i] = info->types ? (i + 1) % info->types : 0;
    }
    job.types = info->types ? types : NULL;
    job.pooled = info->pooled ? pooled : NULL;
    job.hidden_rows = (size_t)all;
    if (ftx_engine_encode(e, &job, &err))
        fail_msg("%s", err.text);
}

static const struct {
    const char *name, *overrides;
    int beams;
} models[] = {
    {"models/tiny-llama", "-D limits.sequences=8 -D limits.context=304 -D limits.tokens=64", 0},
    {"models/tiny-mistral", "-D limits.sequences=6 -D limits.context=48 -D limits.tokens=16 -D decode.width=3", 3},
    {"models/tiny-gpt2", "-D limits.sequences=3 -D limits.context=48 -D limits.tokens=16 -D precision.kv=bf16", 0},
    {"models/tiny-llama",
     "-D limits.sequences=3 -D limits.context=48 -D limits.tokens=16 -D precision.weights=int4 -D precision.group=32",
     0},
    {"models/tiny-llama", "-D limits.sequences=3 -D limits.context=48 -D limits.tokens=16 -D precision.kv=int8", 0},
    {"models/tiny-llama",
     "-D limits.sequences=3 -D limits.context=48 -D limits.tokens=16 -D precision.weights=bf16 -D "
     "precision.compute=bf16",
     0},
    {"models/tiny-mistral",
     "-D limits.sequences=6 -D limits.context=48 -D limits.tokens=16 -D decode.width=3 -D precision.kv=fp8", 3},
    {"models/tiny-bert", "-D limits.sequences=4 -D limits.context=32 -D limits.tokens=32", 0},
    {"models/tiny-distilbert", "-D limits.sequences=4 -D limits.context=32 -D limits.tokens=32", 0},
    {"models/tiny-marian", "-D limits.sequences=8 -D limits.context=32 -D limits.tokens=32 -D decode.width=4", 4},
    {"runtime/touched/decoder.lua", "--no-weights", 0},
    {"runtime/touched/decoder.lua", "--no-weights -D limits.sequences=3 -D decode.width=3", 3},
    {"runtime/touched/decoder.lua", "--no-weights -D precision.kv=int8", 0},
    {"runtime/touched/experts.lua", "--no-weights -D precision.weights=bf16 -D precision.compute=bf16", 0},
    {"runtime/touched/experts.lua", "--no-weights -D precision.weights=int8 -D precision.group=32", 0},
    {"runtime/touched/translator.lua", "--no-weights", 0},
    {"models/recurrent.lua", "--no-weights", 0},
    {"models/recurrent/recur.lua", "--no-weights -D limits.context=48 -D limits.tokens=16", 0},
    {"models/tiny-bart", "-D limits.sequences=2 -D limits.context=32 -D limits.tokens=32 -D precision.weights=fp16", 0},
};

static void run_model(const char *path, int beams)
{
    const FtxOptions o = {.size = sizeof o, .device = FTX_DEVICE_CPU, .threads = 1, .random_weights = 7};
    FtxModelInfo info;
    FtxModel *m = NULL;
    FtxEngine *e = NULL;
    FtxError err;

    if (artifact_open(path, &artifact, &err) || ftx_model_open(path, &o, &m, &err) || ftx_engine_open(m, &o, &e, &err))
        fail_msg("%s", err.text);
    ftx_model_info(m, &info);
    if (info.kind == FTX_MODEL_ENCODER)
        encode(e, &info);
    else
        generate(m, e, &info, beams);
    ftx_engine_close(e);
    ftx_model_close(m);
    artifact_close(&artifact);
}

static void test_models(void **state)
{
    (void)state;
    catch_faults();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char *path = temp_path("touched.ftx");
        char command[700];

        snprintf(command, sizeof command, "%s compile tests/%s -t cpu -q -o %s %s", getenv("FTXC"), models[i].name,
                 path, models[i].overrides);
        assert_int_equal(system(command), 0);
        run_model(path, models[i].beams);
    }
}

/* --- kernels that these models do not have -------------------------------------------------------------- */

static void call(const char *family, const int64_t *k, int T, int S)
{
    const char *operands = cpu_extents(family)->operands;
    static float values[4 * ANY];
    FtxRow rows[2] = {{.q_len = 3}, {.q_start = 3, .q_len = 1}};
    FtxToken token[ANY / sizeof(FtxToken)] = {{.pos = 1}, {.id = 1, .pos = 2}, {.id = 2, .pos = 9}, {.pos = 3}};
    void *arg[4] = {values, values + ANY, values + 2 * ANY, values + 3 * ANY};
    const CpuCall c = {.arg = arg, .k = k, .T = T, .S = S, .threads = 1};

    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = (float)(i % 17) - 8.0f;
    if (strcmp(family, "positions") == 0)
        token[2].pos = (int)artifact.facts->context - 1;
    if (strstr(operands, "$rows"))
        arg[1] = rows;
    if (strstr(operands, "$token"))
        arg[strstr(operands, "$rows") ? 2 : 1] = token;
    guard(family, &c);
}

/* Kernels of ranks: rank 1 of two; rank 0 has brought its part. The artifact becomes one for two ranks. */
static void call_exchange(const char *family, const int64_t *k)
{
    enum { BYTES = 4 << 10, PART = BYTES / 2 / sizeof(float) };
    static _Alignas(64) char own[sizeof(FtxExchange) + 3 * BYTES], other[sizeof(FtxExchange) + 3 * BYTES];
    static float x[ANY], y[ANY];
    static FtxFacts facts;
    static FtxPlan head;
    FtxPeers peers = {.rank = 1, .ranks = 2, .timeout_ms = 1000, .bytes = BYTES};
    const bool slice = strcmp(family, "rank_slice") == 0;
    void *arg[4] = {x, slice ? NULL : (void *)&peers, slice ? (void *)&peers : own, y};
    const CpuCall c = {.arg = arg, .k = k, .T = 4, .S = 2, .threads = 1};
    const Artifact one = artifact;

    peers.exchange[0] = (uintptr_t)other;
    peers.exchange[1] = (uintptr_t)own;
    memset(own, 0, sizeof own);
    ((FtxExchange *)(void *)other)->count = 1;
    for (size_t i = 0; i < ANY; i++)
        x[i] = (float)(i % 17) - 8.0f;
    for (size_t i = 0; i < PART; i++)
        ((float *)(void *)(other + sizeof(FtxExchange)))[i] = (float)i;
    facts = *artifact.facts;
    head = *artifact_plan(&artifact, FTX_TARGET_CPU, "")->head;
    facts.ranks = 2;
    head.exchange = BYTES;
    head.named_bytes[FTX_NAMED_peers] = sizeof peers;
    head.named_bytes[FTX_NAMED_exchange] = sizeof own;
    artifact.facts = &facts;
    for (uint32_t i = 0; i < artifact.n_plans; i++)
        artifact.plans[i].head = &head;
    guard(family, &c);
    if (strcmp(family, "all_reduce") == 0)
        assert_true(y[20] == 20.0f + x[20]);
    if (strcmp(family, "all_gather") == 0) /* row 1 begins with that of rank 0 */
        assert_true(y[k[1]] == (float)k[0] && y[k[1] + k[0]] == x[k[0]]);
    if (slice)
        assert_true(y[0] == x[k[0] / 2]);
    artifact = one;
}

/* The same for the kernels of ranks that read a step: ids, and logits of which few are sent. */
static void call_part(const char *family)
{
    enum { BYTES = 16 << 10, C = 40, V = 80, D = 21 };
    static _Alignas(64) char own[sizeof(FtxExchange) + 3 * BYTES], other[sizeof(FtxExchange) + 3 * BYTES];
    static float x[ANY], y[ANY], z[ANY];
    static int32_t history[ANY], words[ANY], ends[ANY];
    static FtxBias bias[ANY];
    static FtxFacts facts;
    static FtxPlan head;
    const bool gather = strcmp(family, "gather_logits") == 0;
    FtxRow rows[8] = {{.emit = 1, .kv_len = 3}, {.emit = 1, .kv_len = 2, .slot = 1}};
    FtxParams params[8] = {{.logits = 1}, {.temperature = 1.0f, .top_p = 1.0f, .top_k = 2, .presence = 1.0f}};
    FtxToken token[ANY / sizeof(FtxToken)] = {{.id = V - 1}, {.id = C + 2, .pos = 1}, {.id = C, .pos = 2}, {.id = 3}};
    FtxPeers peers = {.rank = 1, .ranks = 2, .timeout_ms = 1000, .bytes = BYTES};
    void *of_gather[] = {x, rows, params, ends, bias, words, history, &peers, own, y, z};
    void *of_embed[] = {x, token, history, &peers, y};
    const Artifact one = artifact;
    int64_t k[6];

    facts = *artifact.facts;
    facts.vocab = V;
    facts.ranks = 2;
    head = *artifact_plan(&artifact, FTX_TARGET_CPU, "")->head;
    head.exchange = BYTES;
    head.named_bytes[FTX_NAMED_peers] = sizeof peers;
    head.named_bytes[FTX_NAMED_exchange] = sizeof own;
    memcpy(k,
           gather ? (int64_t[]){C, V, facts.context, facts.end_ids, facts.logit_bias, facts.bad_words}
                  : (int64_t[]){C, D, DT_FP32, facts.context, 0, 0},
           sizeof k);
    peers.exchange[0] = (uintptr_t)other;
    peers.exchange[1] = (uintptr_t)own;
    memset(own, 0, sizeof own);
    ((FtxExchange *)(void *)other)->count = 1; /* it has sent no logit: 0 stands for all */
    for (size_t i = 0; i < ANY; i++)
        x[i] = (float)(i % 17) - 8.0f;
    artifact.facts = &facts;
    for (uint32_t i = 0; i < artifact.n_plans; i++)
        artifact.plans[i].head = &head;
    guard(family, &(CpuCall){.arg = gather ? of_gather : of_embed, .k = k, .T = 4, .S = gather ? 2 : 1, .threads = 1});
    if (gather)
        assert_true(y[C - 1] == 0.0f && y[C] == x[0] && y[V + C + 10] == 8.0f && y[V + C] != x[C]);
    else
        assert_true(y[0] == x[(V - 1 - C) * D] && y[D] == x[2 * D] && y[3 * D] == 0.0f);
    artifact = one;
}

static void test_other_kernels(void **state)
{
    int64_t eps;
    FtxError err;
    const char *path = temp_path("touched.ftx"); /* of the last model: its rows are as many as those of `call` */

    (void)state;
    catch_faults();
    memcpy(&eps, &(double){1e-5}, sizeof eps);
    if (artifact_open(path, &artifact, &err))
        fail_msg("%s", err.text);
    for (int rows_s = 0; rows_s < 2; rows_s++) {
        call("add", (const int64_t[]){21, rows_s}, 4, 2);
        call("mul", (const int64_t[]){21, rows_s}, 4, 2);
        call("mul_by", (const int64_t[]){21, rows_s, 0}, 4, 2);
        call("mul_by", (const int64_t[]){21, rows_s, 1}, 4, 2);
        call("slice", (const int64_t[]){7, 21, 14, rows_s}, 4, 2);
        call("join", (const int64_t[]){8, 13, rows_s}, 4, 2);
        call("scale", (const int64_t[]){21, eps, rows_s}, 4, 2);
        call("clamp", (const int64_t[]){eps, 21, eps, rows_s}, 4, 2);
        call("glu_clamped", (const int64_t[]){eps, 21, eps, rows_s}, 4, 2);
        call("xielu", (const int64_t[]){21, rows_s}, 4, 2);
        call("route_weights", (const int64_t[]){21, rows_s}, 4, 2);
        call("row_rms", (const int64_t[]){21, rows_s, rows_s, eps, rows_s}, 4, 2);
        call("normalize", (const int64_t[]){21, eps, rows_s}, 4, 2);
        call("act", (const int64_t[]){21, FTX_ACT_SILU, rows_s}, 4, 2);
        call("glu", (const int64_t[]){21, FTX_ACT_SILU, rows_s}, 4, 2);
        call_exchange("all_reduce", (const int64_t[]){21, rows_s});
        call_exchange("all_gather", (const int64_t[]){21, 40, rows_s});
        call_exchange("rank_slice", (const int64_t[]){24, 2, rows_s});
    }
    call_part("gather_logits");
    call_part("embed_part");
    call("scale_by_position", (const int64_t[]){21, eps, 4, 1}, 4, 2);
    call("positions", (const int64_t[]){21, DT_BF16, 2, 0}, 4, 2);
    call("slice_heads", (const int64_t[]){3, 4, 7, 3}, 4, 2);
    call("join_parts", (const int64_t[]){3, 4, 5, 1}, 4, 2);
    call("join_parts", (const int64_t[]){3, 4, 5, 3}, 4, 2);
    call("pool_mean", (const int64_t[]){21}, 4, 2);
    call("select_last", (const int64_t[]){21}, 4, 2);
    call("select_first", (const int64_t[]){21}, 4, 2);
    call("select_id", (const int64_t[]){21, 0}, 4, 2);
    call("select_id", (const int64_t[]){21, 3}, 4, 2);
    artifact_close(&artifact);
}

/* --- what was seen --------------------------------------------------------------------------------------- */

/* Operands whose last bytes no call touches, with the reason. */
static const struct {
    const char *family;
    uint32_t operand;
    const char *why;
} unreached[] = {
    {"append", 1, "nothing follows the last position of a context, so no token stands there"},
    {"append", 4, "the same"},
    {"append", 5, "the same"},
    {"append_norm", 1, "the same"},
    {"append_norm", 6, "the same"},
    {"append_norm", 7, "the same"},
    {"attend", 9, "the same"},
    {"attend", 10, "the same"},
    {"attend_paged", 3, "the same"},
    {"attend_paged", 4, "the same"},
    {"keys_attend", 6, "the same"},
    {"cache_keys", 3, "the same"},
    {"cache", 4, "the same"},
    {"cache", 5, "the same"},
    {"rope", 1, "the same"},
    {"route", 5, "of a cache line for the count of threads only the count is used"},
    {"beam", 18, "the same"},
    {"expert_linear", 1, "of a choice only the expert is read; its weight is expert_sum's"},
    {"expert_linear_bf16", 1, "the same"},
    {"expert_linear_q", 3, "the same"},
    {"previous", 0, "no token stands behind the last one of a step, whose row it would be"},
    {"beam", 19, "of a row's last entry only the first half is used, its shift"},
};

static bool is_unreached(const char *family, uint32_t operand)
{
    for (size_t i = 0; i < sizeof unreached / sizeof *unreached; i++)
        if (strcmp(unreached[i].family, family) == 0 && unreached[i].operand == operand)
            return true;
    return false;
}

static void test_all_was_seen(void **state)
{
    static const char *const names[] = {
#define EXTENTS(family, constants, condition, operands) #family,
#include "kernels/cpu/extents.def"
#undef EXTENTS
    };
    int wrong = 0;

    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const Family *f = family_of(names[k]);

        if (!f->calls)
            print_error("%s was not called\n", names[k]);
        wrong += !f->calls;
        for (uint32_t i = 0; i < EXTENT_OPERANDS; i++)
            if (f->sized[i] && f->reached[i] == is_unreached(names[k], i)) {
                print_error("%s: the last bytes of operand %u %s\n", names[k], i,
                            f->reached[i] ? "are touched after all" : "are never touched");
                wrong++;
            }
    }
    assert_int_equal(wrong, 0);
}

static int make_slots(void **state)
{
    (void)state;
    for (int i = 0; i < EXTENT_OPERANDS; i++) {
        slot[i] = mmap(NULL, ROOM + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (slot[i] == MAP_FAILED || mprotect(slot[i] + PAGE, ROOM, PROT_READ | PROT_WRITE))
            return -1;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_other_kernels),
        cmocka_unit_test(test_all_was_seen),
    };

    return cmocka_run_group_tests(tests, make_slots, NULL);
}
