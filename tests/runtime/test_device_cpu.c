/* test_device_cpu.c - the CPU device on kernels made here: pointers, constants, order, threads, and
 * what it says of launches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"
#include "kernels/cpu/cpu.h"
#include "runtime/device/random.h"

/* --- kernels ------------------------------------------------------------------------------------------ */

/* y[i] = x[i + 1] + weight[i] + constant: reads what another thread wrote. x NULL: zeros. */
static void shift(const CpuCall *c)
{
    const float *x = c->arg[0], *w = c->arg[1];
    float *y = c->arg[2];
    const int64_t n = (int64_t)c->T * 8;
    int64_t own = 0;

    for (int64_t i; (i = cpu_take(c, n, &own)) >= 0;)
        y[i] = (x ? x[(i + 1) % n] : 0.0f) + w[i % 16] + (float)c->k[0];
}

/* y[5] = NaN, where the first id of the step is 13; infinity, where it is 14. An id from 1000 on says where NaN goes. */
static void spoil(const CpuCall *c)
{
    const int id = ((FtxToken *)c->arg[0])->id;
    float *y = c->arg[2];

    if (c->thread > 0)
        return;
    if (id == 13 || id == 14)
        y[5] = id == 13 ? NAN : INFINITY;
    if (id >= 1000)
        y[id - 1000] = NAN;
}

CpuKernel *cpu_kernel(const char *family)
{
    return strcmp(family, "shift") == 0 ? shift : strcmp(family, "spoil") == 0 ? spoil : NULL;
}

const CpuExtents *cpu_extents(const char *family)
{
    static const CpuExtents rows[] = {{"shift", "PLUS", "1", "? 4 * T * 8; 4 * 16; > 4 * T * 8;"},
                                      {"spoil", "", "1", "$token; 4; > 4 * T * 8;"}};

    return strcmp(family, "shift") == 0 ? &rows[0] : strcmp(family, "spoil") == 0 ? &rows[1] : NULL;
}

const char *cpu_features(void)
{
    return "none";
}
bool cpu_asked_known(void)
{
    return true;
}

/* --- a plan: six shifts between two buffers of WORK, then spoil ---------------------------------------- */

enum { LAUNCHES = 7, T_MAX = 20, HALF = T_MAX * 8 * 4 + 256 };

static const char strings[] = "\0shift\0spoil\0shift_1\0shift_10\0%1 shift\0layer 0: qkv";

static uint32_t text(const char *s)
{
    for (uint32_t i = 0; i < sizeof strings; i++)
        if (strcmp(strings + i, s) == 0)
            return i;
    return 0;
}

typedef struct Plan {
    FakeArtifact fake;
    FtxKernel kernel[3];
    int64_t consts[2];
    FtxProgram program[1];
    FtxLaunch launch[LAUNCHES];
    FtxOperand operand[LAUNCHES * 3];
    FtxBuffer buffer[1];
    FtxWeight weight[1];
    float weights[16];
} Plan;

static void make_plan(Plan *p)
{
    FakeSizes s = fake_sizes();
    ArtifactPlan *a = &p->fake.artifact.plans[0];

    memset(p, 0, sizeof *p);
    s.target = FTX_TARGET_CPU;
    s.sequences = s.tokens = T_MAX;
    fake_artifact(&p->fake, &s);
    p->consts[0] = 1;
    p->consts[1] = 10;
    for (uint32_t i = 0; i < 2; i++)
        p->kernel[i] = (FtxKernel){.kind = FTX_KERNEL_CPU,
                                   .family = text("shift"),
                                   .first_const = i,
                                   .n_consts = 1,
                                   .entry = text(i ? "shift_10" : "shift_1"),
                                   .n_operands = 3,
                                   .matmul = i};
    p->kernel[2] =
        (FtxKernel){.kind = FTX_KERNEL_CPU, .family = text("spoil"), .entry = text("spoil"), .n_operands = 3};
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        const uint32_t from = i % 2 ? 0 : HALF, to = i % 2 ? HALF : 0;

        p->launch[i] = (FtxLaunch){.kernel = i == 6 ? 2 : i % 2, .first_operand = 3 * i, .label = text("layer 0: qkv")};
        p->operand[3 * i] = (FtxOperand){.space = i ? FTX_SPACE_WORK : FTX_SPACE_NULL, .offset = from};
        p->operand[3 * i + 1] = (FtxOperand){.space = FTX_SPACE_WEIGHTS};
        p->operand[3 * i + 2] = (FtxOperand){.space = FTX_SPACE_WORK, .offset = to};
    }
    p->operand[0] = (FtxOperand){.space = FTX_SPACE_NULL};
    p->operand[18] = (FtxOperand){.space = FTX_SPACE_IO, .offset = p->fake.plan.named[FTX_NAMED_token]};
    p->operand[20] = p->operand[17]; /* spoil writes what the last shift wrote */
    p->buffer[0] = (FtxBuffer){
        .name = text("%1 shift"), .space = FTX_SPACE_WORK, .first = 6, .last = 6, .offset = HALF, .bytes = HALF};
    p->program[0] = (FtxProgram){.kind = FTX_PROG_STEP, .n_launches = LAUNCHES};
    p->fake.plan.space_bytes[FTX_SPACE_WORK] = 2 * HALF;
    p->fake.plan.space_bytes[FTX_SPACE_WEIGHTS] = p->fake.facts.weight_bytes = sizeof p->weights;
    p->fake.plan.compute_type = DT_FP32;
    p->weight[0] = (FtxWeight){.type = DT_FP32, .rank = 1, .dim = {16}, .bytes = sizeof p->weights};
    for (int i = 0; i < 16; i++)
        p->weights[i] = (float)i;
    *a = (ArtifactPlan){.head = &p->fake.plan,
                        .kernels = p->kernel,
                        .consts = p->consts,
                        .programs = p->program,
                        .launches = p->launch,
                        .operands = p->operand,
                        .buffers = p->buffer,
                        .n_kernels = 3,
                        .n_consts = 2,
                        .n_programs = 1,
                        .n_launches = LAUNCHES,
                        .n_operands = 3 * LAUNCHES,
                        .n_buffers = 1};
    p->fake.artifact.strings = strings;
    p->fake.artifact.weights = p->weight;
    p->fake.artifact.n_weights = 1;
    p->fake.artifact.weight_data = p->weights;
}

/* What the kernels make of it, one after another. */
static void expect(const float *weights, int T, float *y)
{
    float x[T_MAX * 8] = {0};
    const int n = T * 8;

    for (int launch = 0; launch < 6; launch++) {
        for (int i = 0; i < n; i++)
            y[i] = x[(i + 1) % n] + weights[i % 16] + (launch % 2 ? 10.0f : 1.0f);
        memcpy(x, y, (size_t)n * sizeof *x);
    }
}

static int log_lines;
static char log_last[300];

static void log_line(void *user, int level, const char *line)
{
    (void)user, (void)level;
    log_lines++;
    snprintf(log_last, sizeof log_last, "%s", line);
}

typedef struct Bed {
    Plan plan;
    Device *device;
    Session *session;
} Bed;

static void open_bed(Bed *b, const FtxOptions *o)
{
    FtxError err = {FTX_OK, ""};
    uint32_t pages;
    const Artifact *a = &b->plan.fake.artifact;

    if (device_cpu.open(a, &a->plans[0], o, &b->device, &err) ||
        device_cpu.session_open(b->device, 0, &b->session, &pages, &err))
        fail_msg("%s", err.text);
}

static void close_bed(Bed *b)
{
    device_cpu.session_close(b->session);
    device_cpu.close(b->device);
}

/* The buffer that the last shift wrote, through the only window there is: a named buffer. */
static const float *result(Bed *b)
{
    const char *io = device_cpu.io(b->session);

    return (const float *)(io + (b->plan.fake.plan.space_bytes[FTX_SPACE_IO] + 63) / 64 * 64 + HALF);
}

static void set_first_id(Bed *b, int id)
{
    FtxToken *t = (FtxToken *)((char *)device_cpu.io(b->session) + b->plan.fake.plan.named[FTX_NAMED_token]);

    t->id = id;
}

static void test_runs(void **state)
{
    static const int threads[] = {1, 2, 3};
    static Bed b;

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        make_plan(&b.plan);
        open_bed(&b, &(FtxOptions){.size = sizeof(FtxOptions), .threads = threads[k]});
        for (int round = 0; round < 200; round++) {
            const int T = 1 + round % T_MAX;
            float y[T_MAX * 8];
            FtxError err;

            assert_int_equal(device_cpu.run(b.session, 0, T, T, 1, &err), FTX_OK);
            expect(b.plan.weights, T, y);
            assert_memory_equal(result(&b), y, (size_t)T * 8 * sizeof *y);
        }
        close_bed(&b);
    }
}

static void test_random_weights(void **state)
{
    static Bed b;
    float weights[16], y[T_MAX * 8];

    (void)state;
    make_plan(&b.plan);
    b.plan.fake.artifact.weight_data = NULL;
    random_fill(&b.plan.fake.artifact, 0, 5, 0, 16, weights);
    open_bed(&b, &(FtxOptions){.size = sizeof(FtxOptions), .threads = 2, .random_weights = 5});
    assert_int_equal(device_cpu.run(b.session, 0, 3, 3, 1, NULL), FTX_OK);
    expect(weights, 3, y);
    assert_memory_equal(result(&b), y, 3 * 8 * sizeof *y);
    close_bed(&b);
}

static void test_watched(void **state)
{
    static Bed b;
    FtxProfile *rows;
    const FtxProfile *rows_again;
    FtxError err;
    Trace *trace;
    size_t n;

    (void)state;
    make_plan(&b.plan);
    setenv("FTX_NAN", "1", 1);
    open_bed(&b, &(FtxOptions){.size = sizeof(FtxOptions), .threads = 2});
    unsetenv("FTX_NAN");
    assert_int_equal(trace_open(&(Memory){{0}}, 2, log_line, NULL, &trace, &err), FTX_OK);
    trace->runs = 9;
    assert_int_equal(device_cpu.trace(b.session, trace, &err), FTX_OK);
    assert_int_equal(device_cpu.profile(b.session, true, (const FtxProfile **)&rows, &n, &err), FTX_OK);
    assert_int_equal(n, 3);
    log_lines = 0;
    for (int i = 0; i < 5; i++)
        assert_int_equal(device_cpu.run(b.session, 0, 20, 20, 1, &err), FTX_OK);
    assert_int_equal(log_lines, 5 * LAUNCHES);
    assert_non_null(strstr(log_last, "launch layer 0: qkv: spoil T=20 S=20: "));
    assert_int_equal(device_cpu.trace(b.session, NULL, &err), FTX_OK);
    assert_int_equal(trace->n, 2);
    assert_int_equal(trace->dropped, 5 * LAUNCHES - 2);
    assert_string_equal(trace->event[1].kernel, "shift_10");
    assert_int_equal(trace->event[1].run, 9);
    assert_int_equal(trace->event[1].track, TRACE_DEVICE);
    assert_true(trace->event[0].to <= trace->event[1].from && trace->event[1].from < trace->event[1].to);
    trace_close(trace);
    assert_int_equal(rows[0].launches, 15);
    assert_int_equal(rows[1].launches, 15);
    assert_true(rows[1].matmul && !rows[0].matmul && rows[0].time_us > 0.0);
    assert_string_equal(rows[1].kernel, "shift_10");
    set_first_id(&b, 13);
    assert_int_equal(device_cpu.run(b.session, 0, 20, 20, 1, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "layer 0: qkv (spoil): element 5 is not a finite number");
    set_first_id(&b, 14);
    assert_int_equal(device_cpu.run(b.session, 0, 20, 20, 1, &err), FTX_EDEVICE);
    set_first_id(&b, 1);
    rows[0].launches = 0;
    assert_int_equal(device_cpu.run(b.session, 0, 20, 20, 2, &err), FTX_OK);
    assert_int_equal(rows[0].launches, 6);
    assert_int_equal(device_cpu.profile(b.session, false, &rows_again, &n, &err), FTX_OK);
    assert_int_equal(device_cpu.run(b.session, 0, 20, 20, 1, &err), FTX_OK);
    assert_int_equal(rows[0].launches, 6);
    close_bed(&b);
}

/* A program of the last launch alone. */
static void test_later_program(void **state)
{
    static Bed b;
    FtxError err;

    (void)state;
    make_plan(&b.plan);
    b.plan.program[0].first_launch = LAUNCHES - 1;
    b.plan.program[0].n_launches = 1;
    b.plan.buffer[0].first = b.plan.buffer[0].last = 0;
    setenv("FTX_NAN", "1", 1);
    open_bed(&b, &(FtxOptions){.size = sizeof(FtxOptions), .threads = 2});
    unsetenv("FTX_NAN");
    set_first_id(&b, 13);
    assert_int_equal(device_cpu.run(b.session, 0, 20, 20, 1, &err), FTX_EDEVICE);
    assert_non_null(strstr(err.text, "(spoil)"));
    close_bed(&b);
}

/* The logits of each live row are looked at, those of other rows are not. */
static void test_watched_logits(void **state)
{
    enum { ROWS = 3 };
    static Bed b;
    FtxError err;
    char text[100];

    (void)state;
    make_plan(&b.plan);
    b.plan.operand[20] =
        (FtxOperand){.space = FTX_SPACE_STATE, .offset = b.plan.fake.plan.named[FTX_NAMED_logits]}; /* of spoil */
    const int last = ROWS * (int)b.plan.fake.facts.vocab - 1;
    setenv("FTX_NAN", "1", 1);
    open_bed(&b, &(FtxOptions){.size = sizeof(FtxOptions), .threads = 2});
    unsetenv("FTX_NAN");
    set_first_id(&b, 1000 + last + 1);
    assert_int_equal(device_cpu.run(b.session, 0, 20, ROWS, 1, &err), FTX_OK);
    set_first_id(&b, 1000 + last);
    assert_int_equal(device_cpu.run(b.session, 0, 20, ROWS, 1, &err), FTX_EDEVICE);
    snprintf(text, sizeof text, "layer 0: qkv (spoil): element %d is not a finite number", last);
    assert_string_equal(err.text, text);
    close_bed(&b);
}

static void test_copies(void **state)
{
    const int32_t pages[4] = {4, 3, 2, 1};
    static Bed b;
    int32_t back[4];
    FtxError err;

    (void)state;
    make_plan(&b.plan);
    open_bed(&b, &(FtxOptions){.size = sizeof(FtxOptions), .threads = 1});
    const size_t room = b.plan.fake.plan.named_bytes[FTX_NAMED_pages];

    assert_int_equal(device_cpu.write(b.session, FTX_NAMED_pages, 16, pages, sizeof pages, &err), FTX_OK);
    assert_int_equal(device_cpu.read(b.session, FTX_NAMED_pages, 0, back, sizeof back, &err), FTX_OK);
    assert_memory_not_equal(back, pages, sizeof pages);
    assert_int_equal(device_cpu.read(b.session, FTX_NAMED_pages, 16, back, sizeof back, &err), FTX_OK);
    assert_memory_equal(back, pages, sizeof pages);
    assert_int_equal(device_cpu.write(b.session, FTX_NAMED_pages, room - 15, pages, 16, &err), FTX_EINVAL);
    assert_int_equal(device_cpu.write(b.session, FTX_NAMED_pages, room - 8, pages, 16, &err), FTX_EINVAL);
    assert_int_equal(device_cpu.read(b.session, FTX_NAMED_pages, room + 1, back, 0, &err), FTX_EINVAL);
    close_bed(&b);
    device_cpu.session_close(NULL);
    device_cpu.close(NULL);
}

static size_t most_bytes, given;

static void *take_few(void *user, size_t bytes, size_t align)
{
    void *p = NULL;

    (void)user;
    if (bytes > most_bytes || posix_memalign(&p, align < sizeof p ? sizeof p : align, bytes))
        return NULL;
    given += bytes;
    return p;
}

static void give_back(void *user, void *p, size_t bytes)
{
    (void)user;
    given -= p ? bytes : 0;
    free(p);
}

/* An allocator that has too little for random weights. */
static void test_no_room_for_weights(void **state)
{
    const FtxAllocator few = {take_few, give_back, NULL};
    const FtxOptions o = {.size = sizeof(FtxOptions), .threads = 1, .allocator = &few, .random_weights = 1};
    static Plan p;
    Device *d;
    FtxError err;

    (void)state;
    make_plan(&p);
    p.fake.plan.space_bytes[FTX_SPACE_WEIGHTS] = p.fake.facts.weight_bytes = 1 << 20;
    most_bytes = (1 << 20) - 1;
    assert_int_equal(device_cpu.open(&p.fake.artifact, &p.fake.artifact.plans[0], &o, &d, &err), FTX_ENOMEM);
    assert_non_null(strstr(err.text, "random weights"));
    assert_null(d);
    assert_int_equal(given, 0);
    most_bytes++;
    assert_int_equal(device_cpu.open(&p.fake.artifact, &p.fake.artifact.plans[0], &o, &d, &err), FTX_OK);
    device_cpu.close(d);
    assert_int_equal(given, 0);
}

static void test_kernel_missing(void **state)
{
    static Plan p;
    Device *d;
    FtxError err;

    (void)state;
    make_plan(&p);
    p.kernel[1].family = text("shift_10");
    assert_int_equal(device_cpu.open(&p.fake.artifact, &p.fake.artifact.plans[0], NULL, &d, &err), FTX_EVERSION);
    assert_non_null(strstr(err.text, "'shift_10'"));
    assert_null(d);
    make_plan(&p);
    p.kernel[1].kind = FTX_KERNEL_CUDA;
    assert_int_equal(device_cpu.open(&p.fake.artifact, &p.fake.artifact.plans[0], NULL, &d, &err), FTX_EVERSION);
    make_plan(&p);
    p.fake.artifact.weight_data = NULL;
    assert_int_equal(device_cpu.open(&p.fake.artifact, &p.fake.artifact.plans[0], NULL, &d, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "holds no weights"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),           cmocka_unit_test(test_random_weights),
        cmocka_unit_test(test_watched),        cmocka_unit_test(test_watched_logits),
        cmocka_unit_test(test_copies),         cmocka_unit_test(test_no_room_for_weights),
        cmocka_unit_test(test_kernel_missing), cmocka_unit_test(test_later_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
