/* test_device_cuda.c - the CUDA device over a driver that writes everything down: what is loaded,
 * copied and launched, in which order and with which edges; every call made to fail once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/device.h"

#ifdef FTX_HAVE_CUDA
#include "fake_driver.h"
#include "runtime/base/dtype.h"
#include "runtime/base/expr.h"
#include "kernels/device/io.h"
#include "runtime/random.h"

/* --- a plan by hand: three programs of four kernels ---------------------------------------------
 */

enum { EMBED, LINEAR, MATMUL, SAMPLE, RANDOM, KERNELS };
enum { STEP_16, STEP_ANY, DECODE_4, PROGRAMS };
enum { TOKENS = 200, SEQUENCES = 4, N = 128, K = 64, WEIGHT_BYTES = 20480, TABLE_BYTES = 512 };

static const char strings[] = "\0embed__x\0linear__x\0matmul\0sample__x\0embedding\0layer 0: up\0head\0%12\0random\0";
enum {
    STR_EMBED = 1,
    STR_LINEAR = 10,
    STR_MATMUL = 20,
    STR_SAMPLE = 27,
    STR_LABEL0 = 37,
    STR_LABEL1 = 47,
    STR_LABEL2 = 59,
    STR_VALUE = 64,
    STR_RANDOM = 68
};

typedef struct World {
    Artifact artifact;
    ArtifactPlan plan;
    FtxFacts facts;
    FtxPlan head;
    FtxKernel kernels[KERNELS];
    int64_t consts[FTX_MM_CONSTS];
    FtxProgram programs[PROGRAMS];
    FtxLaunch launches[9];
    FtxOperand operands[64];
    int64_t exprs[64];
    uint32_t n_exprs, n_operands;
    char code[4][64];
    FtxWeight weights[3];
    char weight_data[WEIGHT_BYTES];
    char log[4000];
} World;

static bool variable(void *user, const char *name, ExprKind *kind, int64_t *value)
{
    (void)user;
    *kind = EXPR_VARIABLE;
    *value = !strcmp(name, "T") ? VAR_T : !strcmp(name, "S") ? VAR_S : VAR_SMS;
    return true;
}

static void grid(World *w, int kernel, int direction, const char *text)
{
    Expr e;

    assert_int_equal(expr_parse(text, variable, NULL, &e, NULL), FTX_OK);
    w->kernels[kernel].grid[direction][0] = w->n_exprs;
    w->kernels[kernel].grid[direction][1] = e.n;
    memcpy(&w->exprs[w->n_exprs], e.words, e.n * sizeof *e.words);
    w->n_exprs += e.n;
}

static void operand(World *w, FtxSpace space, uint64_t offset)
{
    w->operands[w->n_operands++] = (FtxOperand){.space = space, .offset = offset};
}

static void launch(World *w, int at, uint32_t kernel, uint32_t label)
{
    w->launches[at] = (FtxLaunch){.kernel = kernel, .first_operand = w->n_operands, .label = label};
}

static void embed(World *w, int at)
{
    launch(w, at, EMBED, STR_LABEL0);
    operand(w, FTX_SPACE_IO, 512);
    operand(w, FTX_SPACE_WEIGHTS, 0);
    operand(w, FTX_SPACE_WORK, 0);
}

static void sample(World *w, int at)
{
    launch(w, at, SAMPLE, STR_LABEL2);
    operand(w, FTX_SPACE_STATE, 1024);
    operand(w, FTX_SPACE_OUT, 0);
}

static void make_kernels(World *w)
{
    static const struct {
        uint32_t entry, kind, flags, operands, block, smem;
    } rows[KERNELS] = {
        {STR_EMBED, FTX_KERNEL_CUDA, FTX_KERNEL_OVERLAP, 3, 64, 0},
        {STR_LINEAR, FTX_KERNEL_CUDA, FTX_KERNEL_OVERLAP, 4, 256, 100000},
        {STR_MATMUL, FTX_KERNEL_MATMUL, 0, 5, 0, 0},
        {STR_SAMPLE, FTX_KERNEL_CUDA, FTX_KERNEL_OVERLAP, 2, 1024, 0},
        {STR_RANDOM, FTX_KERNEL_CUDA, 0, 2, 256, 0}, /* in no program */
    };
    static const int64_t consts[FTX_MM_CONSTS] = {0, N, K, DT_BF16, DT_BF16, DT_BF16, 0};
    static const char *const code[4] = {"embed__x 3", "linear__x 4", "sample__x 2", "random 2"};

    for (int i = 0; i < KERNELS; i++) {
        const int image = i > MATMUL ? i - 1 : i;

        w->kernels[i] = (FtxKernel){.kind = rows[i].kind,
                                    .family = rows[i].entry,
                                    .entry = rows[i].entry,
                                    .flags = rows[i].flags,
                                    .n_operands = rows[i].operands,
                                    .block = rows[i].block,
                                    .smem = rows[i].smem};
        if (rows[i].kind == FTX_KERNEL_CUDA) {
            w->kernels[i].code_at = (uint32_t)image * 64;
            w->kernels[i].code_bytes = 32;
        }
    }
    for (int i = 0; i < 4; i++)
        strcpy(w->code[i], code[i]);
    w->kernels[MATMUL].n_consts = FTX_MM_CONSTS;
    w->kernels[MATMUL].matmul = 1;
    memcpy(w->consts, consts, sizeof consts);
    grid(w, EMBED, 0, "T");
    grid(w, LINEAR, 0, "min(SMS, 16)");
    grid(w, LINEAR, 1, "ceil_div(T, 8)");
    grid(w, SAMPLE, 0, "S");
    grid(w, RANDOM, 0, "SMS * 8");
}

static void make_programs(World *w)
{
    for (int p = 0; p < PROGRAMS; p++) {
        const int first = 3 * p;

        w->programs[p] = (FtxProgram){.kind = p == DECODE_4 ? FTX_PROG_DECODE : FTX_PROG_STEP,
                                      .bucket = p == STEP_16    ? 16
                                                : p == DECODE_4 ? 4
                                                                : 0,
                                      .first_launch = (uint32_t)first,
                                      .n_launches = 3};
        embed(w, first);
        launch(w, first + 1, p == STEP_ANY ? MATMUL : LINEAR, STR_LABEL1);
        operand(w, FTX_SPACE_WORK, 0);
        operand(w, FTX_SPACE_WEIGHTS, 256);
        if (p == STEP_ANY) {
            operand(w, FTX_SPACE_WEIGHTS, 16384);
            operand(w, FTX_SPACE_WORK, 65536);
        } else {
            operand(w, FTX_SPACE_NULL, 0);
        }
        operand(w, FTX_SPACE_WORK, 131072);
        sample(w, first + 2);
    }
}

static World *world(void)
{
    World *w = calloc(1, sizeof *w);

    w->facts = (FtxFacts){.sequences = SEQUENCES, .tokens = TOKENS, .weight_bytes = WEIGHT_BYTES};
    w->head.target = 901;
    w->head.space_bytes[FTX_SPACE_STATE] = 8192;
    w->head.space_bytes[FTX_SPACE_IO] = 4096;
    w->head.space_bytes[FTX_SPACE_WORK] = 200000;
    w->head.space_bytes[FTX_SPACE_OUT] = 512;
    w->head.named[FTX_NAMED_pages] = 2048;
    w->head.named_bytes[FTX_NAMED_pages] = 4096;
    w->head.named_bytes[FTX_NAMED_out] = 512;
    make_kernels(w);
    make_programs(w);
    w->weights[0] =
        (FtxWeight){.type = DT_BF16, .rank = 2, .dim = {N, K}, .kind = FTX_WEIGHT_MATRIX, .bytes = 2 * N * K};
    w->weights[1] =
        (FtxWeight){.type = DT_FP32, .rank = 1, .dim = {K}, .kind = FTX_WEIGHT_GAIN, .offset = 16640, .bytes = 4 * K};
    w->weights[2] = (FtxWeight){.type = DT_FP32,
                                .rank = 1,
                                .dim = {TABLE_BYTES / 4},
                                .kind = FTX_WEIGHT_TABLE,
                                .offset = 17408,
                                .bytes = TABLE_BYTES};
    for (int i = 0; i < WEIGHT_BYTES; i++)
        w->weight_data[i] = (char)(i * 7 + i / 256);
    w->plan = (ArtifactPlan){.head = &w->head,
                             .kernels = w->kernels,
                             .consts = w->consts,
                             .programs = w->programs,
                             .launches = w->launches,
                             .operands = w->operands,
                             .exprs = w->exprs,
                             .n_kernels = KERNELS,
                             .n_consts = FTX_MM_CONSTS,
                             .n_programs = PROGRAMS,
                             .n_launches = 9,
                             .n_operands = w->n_operands,
                             .n_exprs = w->n_exprs,
                             .cubin = w->code,
                             .cubin_bytes = sizeof w->code};
    w->artifact = (Artifact){.facts = &w->facts,
                             .strings = strings,
                             .strings_bytes = sizeof strings,
                             .weights = w->weights,
                             .n_weights = 3,
                             .weight_data = w->weight_data};
    return w;
}

static const FtxOptions one_thread = {.threads = 1};

static void must(FtxStatus s, const FtxError *err)
{
    if (s)
        fail_msg("%s", err->text);
}

static void open_both(World *w, const FtxOptions *o, Device **d, Session **s)
{
    FtxError err = {0};

    must(device_cuda.open(&w->artifact, &w->plan, o, d, &err), &err);
    must(device_cuda.session_open(*d, s, &err), &err);
    assert_int_equal(fake.pushed, 0);
}

static void close_both(World *w, Device *d, Session *s)
{
    device_cuda.session_close(s);
    device_cuda.close(d);
    assert_int_equal(fake_open_things(), 0);
    free(w);
}

static const FakeLaunch *last_runs(size_t n)
{
    assert_true(fake.n_run >= n);
    return &fake.run[fake.n_run - n];
}

/* --- tests ---------------------------------------------------------------------------------------- */

static int reset(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

static void probe_names_the_target(void **state)
{
    uint32_t target;
    FtxError err;

    (void)state;
    assert_int_equal(device_cuda_probe(0, &target, &err), FTX_OK);
    assert_int_equal(target, 901);
    fake.cc = 86;
    assert_int_equal(device_cuda_probe(0, &target, &err), FTX_OK);
    assert_int_equal(target, 860);
    assert_int_equal(device_cuda_probe(3, &target, &err), FTX_ENODEVICE);
    assert_string_equal(err.text, "no GPU 3: there is 1, counted from 0");
    fake.gpus = 0;
    assert_int_equal(device_cuda_probe(0, &target, &err), FTX_ENODEVICE);
    assert_string_equal(err.text, "the CUDA driver sees no GPU");
}

static void code_must_be_for_the_gpu(void **state)
{
    static const struct {
        uint32_t target;
        int cc;
        bool fits;
    } rows[] = {{901, 90, true},  {901, 100, false}, {901, 80, false}, {800, 86, true},  {800, 80, true},
                {860, 80, false}, {890, 90, false},  {802, 120, true}, {902, 89, false}, {902, 90, true}};
    World *w = world();

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Device *d;
        FtxError err = {0};

        w->head.target = rows[i].target;
        fake.cc = rows[i].cc;
        const FtxStatus s = device_cuda.open(&w->artifact, &w->plan, &one_thread, &d, &err);
        assert_int_equal(s, rows[i].fits ? FTX_OK : FTX_ENODEVICE);
        if (s)
            assert_non_null(strstr(err.text, "compute capability"));
        device_cuda.close(d);
        assert_int_equal(fake_open_things(), 0);
    }
    free(w);
}

static void weights_arrive(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    const CUdeviceptr weights = last_runs(3)[0].param[1];
    assert_memory_equal((void *)(uintptr_t)weights, w->weight_data, WEIGHT_BYTES);
    close_both(w, d, s);
}

static FtxFill fills[4];
static int n_fills;

static void note_fill(const FakeLaunch *l)
{
    if (strcmp(l->kernel, "random") == 0 && n_fills < 4)
        fills[n_fills++] = *(const FtxFill *)(uintptr_t)l->param[1];
}

/* One launch of `random` for the matrix, one for the gains; what the kernel writes is for tests/simt. */
static void random_weights_are_drawn_there(void **state)
{
    const FtxOptions o = {.threads = 3, .random_weights = 77};
    World *w = world();
    FtxError err = {0};
    Device *d;
    Session *s;

    (void)state;
    n_fills = 0;
    fake.execute = note_fill;
    open_both(w, &o, &d, &s);
    must(device_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    const char *weights = (const char *)(uintptr_t)last_runs(3)[0].param[1];
    for (int i = 0; i < 2; i++) {
        assert_string_equal(fake.run[i].kernel, "random");
        assert_int_equal(fake.run[i].grid[0] % 8, 0);
        assert_true((const char *)(uintptr_t)fake.run[i].param[0] == weights);
    }
    assert_int_equal(n_fills, 2);
    assert_memory_equal(
        &fills[0],
        (&(FtxFill){
            .elements = N * K, .key = random_key(77, 0), .scale = random_scale(&w->weights[0]), .type = FTX_FILL_BF16}),
        sizeof *fills);
    assert_memory_equal(&fills[1],
                        (&(FtxFill){.offset = 16640,
                                    .elements = K,
                                    .key = random_key(77, 1),
                                    .scale = 1,
                                    .type = FTX_FILL_FP32,
                                    .constant = 1}),
                        sizeof *fills);
    assert_memory_equal(weights + 17408, w->weight_data + 17408, TABLE_BYTES);
    assert_int_equal(weights[16384], 0); /* between two weights */
    close_both(w, d, s);

    w = world();
    w->plan.n_kernels = RANDOM;
    assert_int_equal(device_cuda.open(&w->artifact, &w->plan, &o, &d, &err), FTX_EFORMAT);
    assert_non_null(strstr(err.text, "random weights"));
    free(w);
}

/* A bucket's program is one graph, its grids those of the bucket; kernels that may overlap have a
 * programmatic edge, but for a program's first. */
static void buckets_run_as_graphs(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    assert_int_equal(fake.execs, 3); /* the decode program's chain is the third */
    assert_int_equal(fake.graphs, 0);
    fake.n_run = 0;
    must(device_cuda.run(s, STEP_16, 3, 2, 1, NULL), NULL);
    assert_int_equal(fake.n_run, 3);
    const FakeLaunch *l = last_runs(3);
    assert_string_equal(l[0].kernel, "embed__x");
    assert_string_equal(l[1].kernel, "linear__x");
    assert_string_equal(l[2].kernel, "sample__x");
    assert_true(l[0].in_graph && l[1].in_graph && l[2].in_graph);
    assert_false(l[0].overlap);
    assert_true(l[1].overlap && l[2].overlap);
    assert_int_equal(l[0].grid[0], 16);
    assert_int_equal(l[1].grid[0], 16);
    assert_int_equal(l[1].grid[1], 2);
    assert_int_equal(l[1].grid[2], 1);
    assert_int_equal(l[1].block, 256);
    assert_int_equal(l[1].smem, 100000);
    assert_int_equal(l[2].grid[0], SEQUENCES);
    /* the operands: spaces and offsets, a NULL for what is absent */
    assert_int_equal(l[1].n_params, 4);
    assert_int_equal(l[1].param[0], l[0].param[2]);
    assert_int_equal(l[1].param[1], l[0].param[1] + 256);
    assert_int_equal(l[1].param[2], 0);
    assert_int_equal(l[1].param[3], l[0].param[2] + 131072);
    assert_true(fake_holds(l[1].param[3], 200000 - 131072));
    assert_ptr_equal((void *)(uintptr_t)l[2].param[1], device_cuda.out(s));
    must(device_cuda.run(s, DECODE_4, 4, 4, 1, NULL), NULL);
    assert_int_equal(last_runs(3)[0].grid[0], 4);
    close_both(w, d, s);
}

/* Several runs of a decode program: FTX_CHAIN in one graph, only the first of which waits for all that came before. */
static void decode_programs_run_as_chains(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    fake.n_run = 0;
    must(device_cuda.run(s, DECODE_4, 4, 4, 2 * FTX_CHAIN + 1, NULL), NULL);
    assert_int_equal(fake.n_run, 3 * (2 * FTX_CHAIN + 1));
    for (int run = 0; run < 2 * FTX_CHAIN + 1; run++) {
        const FakeLaunch *l = &fake.run[3 * run];

        assert_string_equal(l[0].kernel, "embed__x");
        assert_true(l[0].in_graph && l[0].overlap == (run % FTX_CHAIN != 0));
        assert_true(l[1].overlap && l[2].overlap);
    }
    fake.n_run = 0;
    must(device_cuda.run(s, STEP_16, 3, 2, FTX_CHAIN, NULL), NULL); /* no decode program */
    assert_int_equal(fake.n_run, 3 * FTX_CHAIN);
    for (int run = 0; run < FTX_CHAIN; run++)
        assert_false(fake.run[3 * run].overlap);
    must(device_cuda.run(s, STEP_ANY, 100, 3, 2, NULL), NULL);
    assert_int_equal(fake.n_run, 3 * FTX_CHAIN + 6);
    close_both(w, d, s);
}

/* Without a bucket the grids follow T and S; the matrix product takes exactly T rows. */
static void exact_programs_follow_T(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    const FakeLaunch *l;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.run(s, STEP_ANY, 100, 3, 1, NULL), NULL);
    l = last_runs(3);
    assert_false(l[0].in_graph || l[0].overlap);
    assert_int_equal(l[0].grid[0], 100);
    assert_string_equal(l[1].kernel, "lt");
    assert_int_equal(l[1].m, 100);
    assert_int_equal(l[1].n, N);
    assert_int_equal(l[1].k, K);
    assert_true(l[1].beta == 1.0f);
    assert_int_equal(l[1].param[0], l[0].param[2]);
    assert_int_equal(l[1].param[1], l[0].param[1] + 256);
    assert_int_equal(l[1].param[2], l[0].param[1] + 16384);
    assert_int_equal(l[1].param[3], l[0].param[2] + 65536);
    assert_int_equal(l[1].param[4], l[0].param[2] + 131072);
    assert_int_equal(l[2].grid[0], 3);
    assert_true(l[2].overlap);
    must(device_cuda.run(s, STEP_ANY, 17, 1, 1, NULL), NULL);
    assert_int_equal(last_runs(3)[0].grid[0], 17);
    assert_int_equal(last_runs(2)[0].m, 17);
    close_both(w, d, s);
}

static void older_gpus_do_not_overlap(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    fake.cc = 80;
    w->head.target = 800;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, NULL), NULL);
    for (int i = 0; i < 3; i++)
        assert_false(last_runs(3)[i].overlap);
    close_both(w, d, s);
}

static void copies_reach_their_places(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    FtxError err = {0};
    char row[128], back[128];

    (void)state;
    open_both(w, &one_thread, &d, &s);
    for (int i = 0; i < 20000; i++) { /* around the ring more than once */
        memset(row, i, sizeof row);
        must(device_cuda.write(s, FTX_NAMED_pages, (size_t)(i % 32) * 128, row, sizeof row, &err), &err);
    }
    must(device_cuda.read(s, FTX_NAMED_pages, 19999 % 32 * 128, back, sizeof back, &err), &err);
    assert_memory_equal(back, row, sizeof row);
    assert_int_equal(device_cuda.write(s, FTX_NAMED_pages, 4000, row, 128, &err), FTX_EINVAL);
    assert_string_equal(err.text, "bytes 4000 to 4128 of $pages are outside of it");
    assert_int_equal(device_cuda.write(s, FTX_NAMED_out, 0, row, 4, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.read(s, FTX_NAMED_pages, SIZE_MAX, row, 2, &err), FTX_EINVAL);
    /* the step's data: what io() holds, to where the kernels look */
    memset(device_cuda.io(s), 0x5A, 4096);
    must(device_cuda.upload(s, 600, &err), &err);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, &err), &err);
    const char *token = (const char *)(uintptr_t)last_runs(3)[0].param[0]; /* at 512 of IO */
    assert_int_equal(token[87], 0x5A);
    assert_int_equal(token[88], 0);
    assert_int_equal(device_cuda.upload(s, 5000, &err), FTX_EINVAL);
    close_both(w, d, s);
}

static void state_is_zero_at_open(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    char page[4096];

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.read(s, FTX_NAMED_pages, 0, page, sizeof page, NULL), NULL);
    for (size_t i = 0; i < sizeof page; i++)
        assert_int_equal(page[i], 0);
    for (size_t i = 0; i < 512; i++)
        assert_int_equal(((const char *)device_cuda.out(s))[i], 0);
    close_both(w, d, s);
}

/* From open to close nothing is allocated on the device, pinned or not. */
static void steps_allocate_nothing(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    char row[128] = "";

    (void)state;
    open_both(w, &one_thread, &d, &s);
    const int before = fake.driver_calls_that_allocate, events = fake.events, execs = fake.execs;
    for (int i = 0; i < 100; i++) {
        must(device_cuda.write(s, FTX_NAMED_pages, 0, row, sizeof row, NULL), NULL);
        must(device_cuda.upload(s, 1000, NULL), NULL);
        must(device_cuda.run(s, (uint32_t)i % PROGRAMS, 1 + i % 4, 1, 1, NULL), NULL);
        must(device_cuda.wait(s, NULL), NULL);
    }
    assert_int_equal(fake.driver_calls_that_allocate, before);
    assert_int_equal(fake.events, events);
    assert_int_equal(fake.execs, execs);
    close_both(w, d, s);
}

static void wrong_runs_are_refused(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    FtxError err;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    fake.n_run = 0;
    assert_int_equal(device_cuda.run(s, STEP_16, 17, 1, 1, &err), FTX_EINVAL);
    assert_string_equal(err.text, "17 tokens in 1 rows do not fit a program for 16 and 4");
    assert_int_equal(device_cuda.run(s, STEP_ANY, TOKENS + 1, 1, 1, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.run(s, STEP_ANY, 0, 1, 1, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.run(s, STEP_ANY, 9, SEQUENCES + 1, 1, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.run(s, PROGRAMS, 1, 1, 1, &err), FTX_EINVAL);
    assert_int_equal(fake.n_run, 0);
    close_both(w, d, s);
}

static void profile_and_time(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    const FtxProfile *rows;
    size_t n;
    double times[150];

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.profile(s, true, &rows, &n, NULL), NULL);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, NULL), NULL);
    must(device_cuda.run(s, STEP_ANY, 50, 1, 1, NULL), NULL);
    assert_false(last_runs(1)->in_graph);
    assert_int_equal(n, KERNELS);
    assert_string_equal(rows[EMBED].kernel, "embed__x");
    assert_int_equal(rows[EMBED].launches, 2);
    assert_true(rows[EMBED].time_us == 500.0);
    assert_int_equal(rows[LINEAR].launches, 1);
    assert_int_equal(rows[MATMUL].launches, 1);
    assert_true(rows[MATMUL].matmul && !rows[LINEAR].matmul);
    fake.n_run = 0;
    must(device_cuda.time(s, DECODE_4, 4, 4, 150, times, NULL), NULL);
    assert_int_equal(fake.n_run, 150 * 3);
    assert_true(last_runs(1)->in_graph); /* the profiler stands aside */
    for (int i = 0; i < 150; i++)
        assert_true(times[i] == 250.0);
    assert_int_equal(rows[EMBED].launches, 2);
    must(device_cuda.profile(s, false, &rows, &n, NULL), NULL);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, NULL), NULL);
    assert_true(last_runs(1)->in_graph);
    close_both(w, d, s);
}

static void keep_log(void *user, int level, const char *text)
{
    World *w = user;
    const size_t n = strlen(w->log);

    (void)level;
    snprintf(w->log + n, sizeof w->log - n, "%s\n", text);
}

static void trace_and_sync_name_launches(void **state)
{
    World *w = world();
    const FtxOptions o = {.threads = 1, .log = keep_log, .log_user = w};
    Device *d;
    Session *s;
    FtxError err;

    (void)state;
    setenv("FTX_TRACE", "1", 1);
    setenv("FTX_SYNC", "1", 1);
    open_both(w, &o, &d, &s);
    unsetenv("FTX_TRACE");
    unsetenv("FTX_SYNC");
    must(device_cuda.run(s, STEP_ANY, 20, 2, 1, NULL), NULL);
    assert_string_equal(w->log, "launch embedding: embed__x T=20 S=2 grid 20,1,1\n"
                                "launch layer 0: up: matmul T=20 S=2\n"
                                "launch head: sample__x T=20 S=2 grid 2,1,1\n");
    for (unsigned long n = 1; n < 20; n++) { /* until it is the wait that fails */
        fake.fail_at = fake.calls + n;
        if (device_cuda.run(s, STEP_16, 1, 1, 1, &err) && !strcmp(fake.failed, "fake_StreamQuery"))
            break;
    }
    assert_string_equal(err.text, "in embedding (embed__x): CUDA_ERROR_UNKNOWN (made to fail)");
    close_both(w, d, s);
}

/* Values and logits are looked at after each launch; scratch and leftovers are not. */
static void nan_is_found(void **state)
{
    static const FtxBuffer buffers[] = {
        {.name = STR_VALUE,
         .space = FTX_SPACE_WORK,
         .program = STEP_16,
         .first = 1,
         .offset = 131072,
         .bytes = 16 * 256},
        {.name = STR_LABEL1, .space = FTX_SPACE_WORK, .program = STEP_16, .first = 1, .offset = 4096, .bytes = 4096},
    };
    World *w = world();
    Device *d;
    Session *s;
    FtxError err = {0};

    (void)state;
    w->plan.buffers = buffers;
    w->plan.n_buffers = 2;
    w->head.compute_type = DT_BF16;
    w->head.named[FTX_NAMED_logits] = 1024;
    w->facts.vocab = 100;
    setenv("FTX_NAN", "1", 1);
    open_both(w, &one_thread, &d, &s);
    unsetenv("FTX_NAN");
    must(device_cuda.run(s, STEP_16, 8, 4, 1, &err), &err);
    uint16_t *value = (uint16_t *)(uintptr_t)last_runs(2)[0].param[3];
    float *logits = (float *)(uintptr_t)last_runs(1)[0].param[0];
    value[8 * 128] = 0x7fc0; /* not live */
    value[-63488] = 0x7fc0;  /* scratch */
    logits[400] = NAN;       /* the fifth row's */
    must(device_cuda.run(s, STEP_16, 8, 4, 1, &err), &err);
    logits[399] = INFINITY;
    assert_int_equal(device_cuda.run(s, STEP_16, 8, 4, 1, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "head (sample__x): element 399 is not a finite number");
    value[700] = 0x7f80;
    assert_int_equal(device_cuda.run(s, STEP_16, 8, 4, 1, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "layer 0: up (linear__x): element 700 is not a finite number");
    close_both(w, d, s);
}

/* --- mistakes in an artifact, and a full GPU ------------------------------------------------------ */

static void refused(World *w, FtxStatus status, const char *text)
{
    Device *d;
    Session *s = NULL;
    FtxError err = {0};
    FtxStatus got = device_cuda.open(&w->artifact, &w->plan, &one_thread, &d, &err);

    if (!got)
        got = device_cuda.session_open(d, &s, &err);
    if (!strstr(err.text, text))
        fail_msg("'%s' is not in '%s'", text, err.text);
    assert_int_equal(got, status);
    assert_null(s);
    device_cuda.close(d);
    assert_int_equal(fake_open_things(), 0);
    free(w);
}

static void mistakes_are_named(void **state)
{
    World *w;

    (void)state;
    w = world(), strcpy(w->code[1], "linear__x 5");
    refused(w, FTX_EFORMAT, "linear__x takes 40 bytes of parameters, not a struct of 4 pointers");
    w = world(), strcpy(w->code[1], "linear__y 4");
    refused(w, FTX_EDEVICE, "finding linear__x in its code: CUDA_ERROR_UNKNOWN");
    w = world(), strcpy(w->code[1], "garbage");
    refused(w, FTX_EDEVICE, "loading linear__x: no such code: CUDA_ERROR_UNKNOWN");
    w = world(), w->kernels[LINEAR].block = 2048;
    refused(w, FTX_EFORMAT, "linear__x runs in blocks of at most 1024 threads, not of 2048");
    w = world(), w->kernels[LINEAR].smem = 300000;
    refused(w, FTX_EDEVICE, "300000 bytes of shared memory for linear__x");
    w = world(), w->kernels[EMBED].kind = FTX_KERNEL_CPU;
    refused(w, FTX_EFORMAT, "embed__x is no kernel for a GPU");
    w = world(), w->consts[FTX_MM_ACT] = FTX_ACT_SILU;
    refused(w, FTX_EFORMAT, "layer 0: up: cuBLASLt has no activation 5");
    w = world(), w->consts[FTX_MM_ACT] = FTX_ACT_RELU;
    refused(w, FTX_EFORMAT, "no activation with a residual");
    w = world(), w->consts[FTX_MM_TYPE_W] = DT_I32;
    refused(w, FTX_EFORMAT, "no matrix product of bf16 and i32 into bf16");
    w = world(), w->consts[FTX_MM_K] = 13;
    refused(w, FTX_EDEVICE, "cuBLASLt has no algorithm for [M,13] x [128,13]^T in bf16: CUBLAS_STATUS_NOT_SUPPORTED");
    w = world(), w->operands[w->launches[4].first_operand + 4].offset += 4;
    refused(w, FTX_EFORMAT, "layer 0: up: operand 4 stands at no multiple of 16 bytes");
    w = world(), w->artifact.weight_data = NULL;
    refused(w, FTX_EINVAL, "the artifact holds no weights");
    w = world(), fake.free_bytes = 1000;
    refused(w, FTX_EDEVICE, "the weights need 0.0 GB on the GPU");
}

/* --- every call fails once ------------------------------------------------------------------------ */

static FtxStatus scenario(World *w, FtxError *err)
{
    const FtxProfile *rows;
    char row[64] = "";
    double times[2];
    size_t n;
    Device *d = NULL;
    Session *s = NULL;
    FtxStatus status = device_cuda.open(&w->artifact, &w->plan, &one_thread, &d, err);

    if (!status)
        status = device_cuda.session_open(d, &s, err);
    for (int i = 0; i < 2 * 130 && !status; i++)
        status = device_cuda.write(s, FTX_NAMED_pages, 0, w->weight_data, 4096, err);
    if (!status)
        status = device_cuda.upload(s, 64, err);
    for (uint32_t p = 0; p < PROGRAMS && !status; p++)
        status = device_cuda.run(s, p, 4, 2, 1, err);
    if (!status)
        status = device_cuda.time(s, STEP_16, 4, 2, 2, times, err);
    if (!status)
        status = device_cuda.profile(s, true, &rows, &n, err);
    if (!status)
        status = device_cuda.run(s, STEP_ANY, 4, 2, 1, err);
    if (!status)
        status = device_cuda.read(s, FTX_NAMED_pages, 0, row, sizeof row, err);
    device_cuda.session_close(s);
    device_cuda.close(d);
    return status;
}

/* Calls whose failure nobody has to hear of: those that close. */
static bool may_pass(const char *function)
{
    static const char *const words[] = {"Destroy", "Free", "Unload", "Release", "Pop"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(function, words[i]))
            return true;
    return false;
}

static void every_call_may_fail(void **state)
{
    unsigned long n, loud = 0;

    (void)state;
    for (n = 1;; n++) {
        World *w = world();
        FtxError err = {0};

        fake_reset();
        fake.fail_at = n;
        const FtxStatus status = scenario(w, &err);
        const bool all_done = fake.calls < n;
        if (all_done) {
            must(status, &err);
            free(w);
            break;
        }
        if (status) {
            loud++;
            if (!strstr(err.text, ": CU"))
                fail_msg("call %lu (%s): no reason in '%s'", n, fake.failed, err.text);
        } else if (!may_pass(fake.failed) && fake.calls - n > 40) { /* the last calls close */
            fail_msg("call %lu (%s) failed and nobody said so", n, fake.failed);
        }
        assert_int_equal(fake_open_things(), 0);
        free(w);
    }
    assert_true(loud > 100);
    print_message("%lu calls, each failed once\n", n - 1);
}

/* From each call on the device does not answer: whoever waits is told, and closing waits no more. */
static void a_hang_is_noticed(void **state)
{
    unsigned long n, told = 0;

    (void)state;
    setenv("FTX_PATIENCE", "1", 1);
    for (n = 40;; n += 170) { /* each costs a second */
        World *w = world();
        FtxError err = {0};

        fake_reset();
        fake.hang_at = n;
        const FtxStatus status = scenario(w, &err);
        const bool all_done = fake.calls < n;
        free(w);
        if (all_done)
            break;
        if (status) {
            told++;
            assert_int_equal(status, FTX_EDEVICE);
            assert_non_null(strstr(err.text, "the GPU has not answered for"));
        }
    }
    unsetenv("FTX_PATIENCE");
    assert_true(told >= 4);
    fake_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(probe_names_the_target, reset),
        cmocka_unit_test_setup(code_must_be_for_the_gpu, reset),
        cmocka_unit_test_setup(weights_arrive, reset),
        cmocka_unit_test_setup(random_weights_are_drawn_there, reset),
        cmocka_unit_test_setup(buckets_run_as_graphs, reset),
        cmocka_unit_test_setup(decode_programs_run_as_chains, reset),
        cmocka_unit_test_setup(exact_programs_follow_T, reset),
        cmocka_unit_test_setup(older_gpus_do_not_overlap, reset),
        cmocka_unit_test_setup(copies_reach_their_places, reset),
        cmocka_unit_test_setup(state_is_zero_at_open, reset),
        cmocka_unit_test_setup(steps_allocate_nothing, reset),
        cmocka_unit_test_setup(wrong_runs_are_refused, reset),
        cmocka_unit_test_setup(profile_and_time, reset),
        cmocka_unit_test_setup(trace_and_sync_name_launches, reset),
        cmocka_unit_test_setup(nan_is_found, reset),
        cmocka_unit_test_setup(mistakes_are_named, reset),
        cmocka_unit_test_setup(every_call_may_fail, reset),
        cmocka_unit_test_setup(a_hang_is_noticed, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else /* built without CUDA: the device is there and says so */

static void says_that_it_is_not_there(void **state)
{
    Artifact a = {0};
    ArtifactPlan p = {0};
    Device *d;
    uint32_t target;
    FtxError err;

    (void)state;
    assert_int_equal(device_cuda.open(&a, &p, NULL, &d, &err), FTX_ENODEVICE);
    assert_string_equal(err.text, "this runtime was built without the CUDA parts");
    assert_int_equal(device_cuda_probe(0, &target, &err), FTX_ENODEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_that_it_is_not_there)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
