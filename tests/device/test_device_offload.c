/* test_device_offload.c - the CUDA device where layers' weights stay in host memory, on the fake driver: whenever a launch runs, the
 * bytes of each of its weights lie at the address that it got. */
#include "fake_driver.h"
#include "layered.h"
#include "runtime/device/offload.h"
#include "runtime/device/random.h"
#include "runtime/device/trace.h"

static Layered *model;
static int program_now, live_tokens; /* what the launches that run belong to; program_now -1: not looked at */
static uint32_t next_launch;
static int copied_before, looked_at, behind_copies;
static const unsigned char *expected; /* the weight block */

static CUdeviceptr matrix_of(const FtxOperand *o, CUdeviceptr p)
{
    return o->tile_rows ? ((const FakeDescriptor *)(uintptr_t)p)->matrix : p;
}

static void look_at(const FakeLaunch *l)
{
    const FtxProgram *p = &model->t.programs[program_now];
    const FtxLaunch *launch = &model->t.launches[p->first_launch + next_launch];
    const FtxOperand *o = &model->t.operands[launch->first_operand];
    const FtxKernel *k = &model->t.kernels[launch->kernel];

    assert_string_equal(l->kernel, k->kind == FTX_KERNEL_MATMUL ? "lt" : model->strings + k->entry);
    for (uint32_t i = 0; i < k->n_operands; i++) {
        uint64_t inside;
        const uint32_t w = o[i].space == FTX_SPACE_WEIGHTS ? offload_find(&model->t.artifact, o[i].offset, &inside)
                                                           : (uint32_t)WEIGHTS;

        if (w == WEIGHTS)
            continue;
        assert_true(fake_holds(matrix_of(&o[i], l->param[i]), model->weights[w].bytes));
        assert_memory_equal((void *)(uintptr_t)matrix_of(&o[i], l->param[i]), expected + o[i].offset,
                            model->weights[w].bytes);
        looked_at++;
    }
    if (fake.copied != copied_before) { /* kernels read weights before they wait for the one in front */
        assert_false(l->overlap);
        behind_copies++;
    }
    copied_before = fake.copied;
}

/* `random` as on a GPU, as far as the test has to know it: bytes of the weight's key. */
static void draw(const FakeLaunch *l)
{
    const FtxFill *f = (const FtxFill *)(uintptr_t)l->param[1];

    assert_true(fake_holds(l->param[0] + f->offset, f->elements * 2));
    memset((void *)(uintptr_t)(l->param[0] + f->offset), (int)(f->key & 255), f->elements * 2);
}

static bool has_nothing_to_do(const FtxLaunch *l)
{
    return l->kernel == L_QKV && live_tokens == 1;
}

static void execute(const FakeLaunch *l)
{
    const FtxProgram *p;

    if (strcmp(l->kernel, "random") == 0)
        draw(l);
    if (program_now < 0 || strcmp(l->kernel, "random") == 0)
        return;
    p = &model->t.programs[program_now];
    while (has_nothing_to_do(&model->t.launches[p->first_launch + next_launch]))
        next_launch = (next_launch + 1) % p->n_launches;
    look_at(l);
    next_launch = (next_launch + 1) % p->n_launches;
}

static void begin(Layered *l)
{
    model = l;
    expected = l->data;
    program_now = -1;
    looked_at = behind_copies = 0;
    fake.execute = execute;
    fake.late = true;
}

static FtxOptions with(int64_t gpu_layers, uint64_t gpu_memory)
{
    return (FtxOptions){.size = sizeof(FtxOptions), .threads = 2, .gpu_layers = gpu_layers, .gpu_memory = gpu_memory};
}

static void open_both(Layered *l, const FtxOptions *o, Device **d, Session **s)
{
    FtxError err = {0};
    uint32_t pages;

    must(device_cuda.open(&l->t.artifact, &l->t.plan, o, d, &err), &err);
    must(device_cuda.session_open(*d, 0, s, &pages, &err), &err);
}

static void run(Session *s, int program, int T, int S, int times)
{
    FtxError err = {0};

    live_tokens = model->t.programs[program].bucket ? (int)model->t.programs[program].bucket : T;
    program_now = program;
    next_launch = 0;
    copied_before = fake.copied;
    must(device_cuda.run(s, (uint32_t)program, T, S, times, &err), &err);
    must(device_cuda.wait(s, &err), &err);
    assert_int_equal(next_launch, 0);
    program_now = -1;
}

static void close_both(Layered *l, Device *d, Session *s)
{
    device_cuda.session_close(s);
    device_cuda.close(d);
    assert_int_equal(fake_open_things(), 0);
    free(l);
}

static int reset(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

/* --- steps ------------------------------------------------------------------------------------------ */

static FtxModelInfo told(const Device *d)
{
    FtxModelInfo info = {.weight_bytes = 1, .engine_bytes = 100};

    device_cuda.tell(d, &info);
    return info;
}

/* With each number of layers and many budgets, each program, as a graph, a chain of graphs and launch by launch: the weights are
 * there, and after open nothing is taken. */
static void every_launch_finds_its_weights(void **state)
{
    int copies = 0;

    (void)state;
    for (int turn = -1; turn < LAYERS + 4; turn++) {
        for (int tied = 0; tied < 2; tied++) {
            const FtxOptions o =
                turn < LAYERS + 1 ? with(turn, 0) : with(0, (uint64_t)20000 * (uint64_t)(turn - LAYERS + 2));
            Layered *l = layered(tied);
            Device *d;
            Session *s;

            fake_reset();
            begin(l);
            open_both(l, &o, &d, &s);
            const FtxModelInfo info = told(d);
            const int taken = fake.driver_calls_that_allocate;
            run(s, L_STEP_16, 9, 2, 1);
            run(s, L_STEP_ANY, 7, 2, 1);
            run(s, L_STEP_ANY, 1, 1, 2); /* qkv has nothing to do: down is the first behind the copy */
            run(s, L_DECODE_4, 3, 3, FTX_CHAIN + 2);
            assert_int_equal(fake.driver_calls_that_allocate, taken);
            assert_true(looked_at > 12 * 14);
            assert_int_equal(behind_copies, (int)info.host_layers * (1 + 1 + 2 + FTX_CHAIN + 2));
            copies += behind_copies;
            if (!turn) { /* all weights on the GPU, as without the option */
                assert_int_equal(info.weight_bytes, 1);
                assert_int_equal(info.engine_bytes, 100);
                assert_int_equal(info.host_weight_bytes, 0);
            }
            close_both(l, d, s);
        }
    }
    assert_true(copies > 0);
}

/* Launches of a layer behind its first one still overlap the ones before them. */
static void other_launches_overlap(void **state)
{
    Layered *l = layered(false);
    const FtxOptions o = with(3, 0);
    int apart = 0;
    Device *d;
    Session *s;

    (void)state;
    begin(l);
    open_both(l, &o, &d, &s);
    fake.n_run = 0;
    run(s, L_STEP_16, 9, 2, 1);
    assert_int_equal(fake.n_run, 2 + 2 * LAYERS);
    for (size_t i = 0; i < fake.n_run; i++) {
        const bool first = i == 0 || (i >= 1 + 2 * 3 && i < 1 + 2 * LAYERS && i % 2 == 1);

        assert_int_equal(fake.run[i].overlap, !first);
        apart += first;
    }
    assert_int_equal(apart, 1 + 3);
    close_both(l, d, s);
}

/* Two engines of a model, whose steps the GPU takes in any order, each have a staging area. */
static void engines_do_not_share_the_area(void **state)
{
    Layered *l = layered(false);
    const FtxOptions o = with(FTX_NO_GPU_LAYERS, 0);
    FtxError err = {0};
    Session *s, *other;
    uint32_t pages;
    Device *d;

    (void)state;
    begin(l);
    open_both(l, &o, &d, &s);
    must(device_cuda.session_open(d, 0, &other, &pages, &err), &err);
    fake.n_run = 0;
    run(s, L_DECODE_4, 3, 3, 1);
    run(other, L_DECODE_4, 3, 3, 1);
    const size_t n = fake.n_run / 2;
    for (size_t i = 0; i < n; i++)
        if (strcmp(fake.run[i].kernel, "down__x") == 0)
            assert_int_not_equal(fake.run[i].param[1], fake.run[n + i].param[1]);
    assert_int_equal(fake.run[0].param[1], fake.run[n].param[1]); /* rows in host memory: the same for both */
    device_cuda.session_close(other);
    close_both(l, d, s);
}

/* --- memory ----------------------------------------------------------------------------------------- */

/* What is taken on the GPU is what `tell` says, and no more than the budget. */
static void the_budget_is_the_gpus(void **state)
{
    Layered *l = layered(false);
    size_t whole;
    Device *d;
    Session *s;

    (void)state;
    begin(l);
    open_both(l, &(FtxOptions){.size = sizeof(FtxOptions), .threads = 1}, &d, &s);
    whole = ((size_t)1 << 36) - fake.free_bytes;
    device_cuda.session_close(s);
    device_cuda.close(d);
    for (uint64_t budget = 40000; budget < 90000; budget += 9000) {
        const FtxOptions o = with(0, budget);

        fake_reset();
        begin(l);
        open_both(l, &o, &d, &s);
        const FtxModelInfo info = told(d);
        const size_t taken = ((size_t)1 << 36) - fake.free_bytes;
        const uint64_t staging = info.engine_bytes - 100;

        assert_true(info.weight_bytes + staging <= budget);
        assert_true(taken <= whole - l->t.facts.weight_bytes + info.weight_bytes + staging + 4096);
        assert_int_equal(info.weight_bytes + info.host_weight_bytes, l->weights[UNREAD_WEIGHT].offset);
        assert_int_equal(info.copy_us > 0, info.copy_bytes > 0);
        device_cuda.session_close(s);
        device_cuda.close(d);
        assert_int_equal(fake_open_things(), 0);
    }
    free(l);
}

/* A copy of `staging` bytes takes 0.25 ms on the fake driver: the rest is arithmetic. */
static void the_time_of_copies_is_told(void **state)
{
    Layered *l = layered(false);
    const FtxOptions o = with(2, 0);
    Device *d;
    Session *s;

    (void)state;
    begin(l);
    open_both(l, &o, &d, &s);
    const FtxModelInfo info = told(d);
    const uint64_t staging = info.engine_bytes - 100;
    assert_int_equal(staging, room_of_layer(l, ODD));
    assert_int_equal(info.host_layers, LAYERS - 2);
    assert_true(info.copy_bytes > staging);
    assert_int_equal(info.copy_us, (uint64_t)((double)info.copy_bytes / ((double)staging / 250e-6) * 1e6));
    close_both(l, d, s);
}

/* Drawn weights are the same wherever they lie. */
static void drawn_weights_are_the_same(void **state)
{
    (void)state;
    for (int turn = -1; turn < 5; turn++) {
        Layered *l = layered(turn % 2);
        FtxOptions o = with(turn, 0);
        unsigned char *all = malloc(L_BYTES);
        Device *d;
        Session *s;

        fake_reset();
        begin(l);
        o.random_weights = 5;
        memcpy(all, l->data, L_BYTES);
        for (uint32_t i = 0; i < WEIGHTS; i++)
            if (l->weights[i].kind != FTX_WEIGHT_TABLE)
                memset(all + l->weights[i].offset, (int)(random_key(5, i) & 255), l->weights[i].bytes);
        expected = all;
        open_both(l, &o, &d, &s);
        run(s, L_STEP_16, 9, 2, 1);
        run(s, L_STEP_ANY, 7, 2, 1);
        close_both(l, d, s);
        free(all);
    }
}

/* A table of one layer goes with it, drawn weights or not. */
static void tables_of_a_layer_go(void **state)
{
    (void)state;
    for (int drawn = 0; drawn < 2; drawn++) {
        Layered *l = layered(false);
        FtxOptions o = with(FTX_NO_GPU_LAYERS, 0);
        unsigned char *all = malloc(L_BYTES);
        Device *d;
        Session *s;

        fake_reset();
        begin(l);
        o.random_weights = drawn ? 5 : 0;
        l->weights[of_layer(4) + 1].kind = FTX_WEIGHT_TABLE;
        memcpy(all, l->data, L_BYTES);
        for (uint32_t i = 0; drawn && i < WEIGHTS; i++)
            if (l->weights[i].kind != FTX_WEIGHT_TABLE)
                memset(all + l->weights[i].offset, (int)(random_key(5, i) & 255), l->weights[i].bytes);
        expected = all;
        open_both(l, &o, &d, &s);
        run(s, L_STEP_16, 9, 2, 1);
        close_both(l, d, s);
        free(all);
    }
}

static void what_does_not_fit_names_the_options(void **state)
{
    static const struct {
        size_t beyond; /* of what an engine and the reserve take */
        const char *text;
    } cases[] = {
        {112000,
         "; with gpu_memory (--gpu-memory) 0M they fit"}, /* the unread weight and the rows are not needed there */
        {70000, "; with gpu_layers (--gpu-layers) 2 the weights of the other 4 layers, 0.0 GB, stay in host memory and "
                "are copied"},
        {20000, " GB are free"},
        {0, " GB are free"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Layered *l = layered(false);
        const uint64_t reserve = ((uint64_t)1 << 37) / 50;
        FtxError err = {0};
        Device *d;

        fake_reset();
        begin(l);
        fake.free_bytes = 4096 + 4096 + 65536 + 4 * 256 + cases[i].beyond + (cases[i].beyond ? reserve : 0);
        l->t.facts.weight_bytes = (uint64_t)1 << 40;
        assert_int_equal(device_cuda.open(&l->t.artifact, &l->t.plan, NULL, &d, &err), FTX_EDEVICE);
        if (!strstr(err.text, cases[i].text))
            fail_msg("'%s' is not in '%s'", cases[i].text, err.text);
        assert_int_equal(strstr(err.text, "--gpu") != NULL, i < 2);
        assert_int_equal(fake_open_things(), 0);
        free(l);
    }
}

/* The staging area is asked for before an engine needs it. */
static void the_staging_area_must_fit(void **state)
{
    (void)state;
    for (int less = 0; less < 2; less++) {
        Layered *l = layered(false);
        const FtxOptions o = with(FTX_NO_GPU_LAYERS, 0);
        FtxError err = {0};
        Device *d;

        fake_reset();
        begin(l);
        fake.free_bytes = room_of(l, SHARED) + room_of(l, HEAD) + room_of_layer(l, ODD) - (size_t)less;
        assert_int_equal(device_cuda.open(&l->t.artifact, &l->t.plan, &o, &d, &err), less ? FTX_EDEVICE : FTX_OK);
        assert_true(!less || strstr(err.text, "the weights need 0.0 GB on the GPU"));
        device_cuda.close(d);
        free(l);
    }
}

/* --- watched ---------------------------------------------------------------------------------------- */

/* Copies have a row of their own among the kernels' times. */
static void copies_are_profiled_apart(void **state)
{
    (void)state;
    for (int offloaded = 0; offloaded < 2; offloaded++) {
        Layered *l = layered(false);
        const FtxOptions o = with(offloaded ? 2 : LAYERS, 0);
        const FtxProfile *rows;
        FtxError err = {0};
        double times[3];
        size_t n;
        Device *d;
        Session *s;

        fake_reset();
        begin(l);
        open_both(l, &o, &d, &s);
        must(device_cuda.profile(s, true, &rows, &n, &err), &err);
        run(s, L_STEP_16, 9, 2, 1);
        assert_int_equal(n, L_KERNELS + offloaded);
        assert_int_equal(rows[L_QKV].launches, LAYERS);
        assert_int_equal(rows[L_DOWN].launches, LAYERS);
        assert_float_equal(rows[L_DOWN].time_us, 250.0 * LAYERS, 0.01); /* 0.25 ms between two events */
        if (offloaded) {
            assert_string_equal(rows[L_KERNELS].kernel, "weights from the host");
            assert_int_equal(rows[L_KERNELS].launches, 4);
            assert_float_equal(rows[L_KERNELS].time_us, 250.0 * 4, 0.01);
        }
        must(device_cuda.time(s, L_STEP_16, 9, 2, 3, times, &err), &err);
        assert_float_equal(times[2], 250.0 * (2 + 2 * LAYERS + (offloaded ? 4 : 0)), 0.01);
        close_both(l, d, s);
    }
}

/* Copies are events of their own in a trace, by CUPTI and by CUDA events. */
static void copies_are_traced(void **state)
{
    static const Memory from_malloc;

    (void)state;
    for (int cupti = 0; cupti < 2; cupti++) {
        Layered *l = layered(false);
        const FtxOptions o = with(2, 0);
        FtxError err = {0};
        uint64_t bytes = 0;
        int copies = 0;
        Device *d;
        Session *s;
        Trace *t;

        fake_reset();
        begin(l);
        fake.cupti = cupti;
        open_both(l, &o, &d, &s);
        must(trace_open(&from_malloc, 200, NULL, NULL, &t, &err), &err);
        must(trace_enter(t, &device_cuda, s, &err), &err);
        must(t->api.run((Session *)t, L_STEP_ANY, 7, 2, 1, &err), &err);
        must(trace_leave(t, &err), &err);
        for (size_t i = 0; i < t->n; i++)
            if (t->event[i].track == TRACE_DEVICE && t->event[i].bytes) {
                assert_true(cupti || strcmp(t->event[i].name, "weights from the host") == 0);
                bytes += t->event[i].bytes;
                copies++;
            }
        assert_int_equal(copies, cupti ? 8 : 4); /* two pieces a layer: see test_offload */
        for (int n = 2; n < LAYERS; n++)
            bytes -= l->weights[of_layer(n)].bytes + l->weights[of_layer(n) + 2].bytes;
        assert_int_equal(bytes, 0);
        trace_close(t);
        close_both(l, d, s);
    }
}

/* --- failures --------------------------------------------------------------------------------------- */

static unsigned long closing_at; /* calls until the session closes */

static FtxStatus scenario(Layered *l, const FtxOptions *o, FtxError *err)
{
    const FtxProfile *rows;
    Device *d = NULL;
    Session *s = NULL;
    uint32_t pages;
    size_t n;
    FtxStatus status = device_cuda.open(&l->t.artifact, &l->t.plan, o, &d, err);

    if (!status)
        status = device_cuda.session_open(d, 0, &s, &pages, err);
    if (!status)
        status = device_cuda.run(s, L_STEP_ANY, 7, 2, 1, err);
    if (!status)
        status = device_cuda.run(s, L_DECODE_4, 3, 3, 1, err);
    if (!status)
        status = device_cuda.profile(s, true, &rows, &n, err);
    if (!status)
        status = device_cuda.run(s, L_STEP_16, 9, 2, 1, err);
    if (!status)
        status = device_cuda.wait(s, err);
    closing_at = fake.calls;
    device_cuda.session_close(s);
    device_cuda.close(d);
    return status;
}

static bool closes(const char *function)
{
    return strstr(function, "Destroy") || strstr(function, "Free") || strstr(function, "Unload") ||
           strstr(function, "Release") || strstr(function, "Pop");
}

/* Each call of the driver fails once, with stored and with drawn weights: it is told, and nothing stays open. */
static void every_call_may_fail(void **state)
{
    (void)state;
    for (int random = 0; random < 2; random++) {
        unsigned long loud = 0, n;

        for (n = 1;; n++) {
            Layered *l = layered(false);
            FtxOptions o = with(2, 0);
            FtxError err = {0};

            fake_reset();
            begin(l);
            fake.contexts = 1; /* the program's own: nothing goes with the device's */
            fake.fail_at = n;
            o.random_weights = random ? 5 : 0;
            o.threads = 1;
            const FtxStatus status = scenario(l, &o, &err);
            const bool all_done = fake.calls < n;
            free(l);
            if (all_done) {
                must(status, &err);
                break;
            }
            loud += status != FTX_OK;
            if (status && !strstr(err.text, ": CU"))
                fail_msg("call %lu (%s): no reason in '%s'", n, fake.failed, err.text);
            if (!status && !closes(fake.failed) && n <= closing_at)
                fail_msg("call %lu (%s) failed and nobody said so", n, fake.failed);
            if (strcmp(fake.failed, "fake_CtxPushCurrent") != 0 && fake_open_things() > 1)
                fail_msg("call %lu (%s): %d things stay open", n, fake.failed, fake_open_things() - 1);
        }
        assert_true(loud > 100);
        print_message("%lu calls, each failed once\n", n - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_launch_finds_its_weights, reset),
        cmocka_unit_test_setup(other_launches_overlap, reset),
        cmocka_unit_test_setup(engines_do_not_share_the_area, reset),
        cmocka_unit_test_setup(the_budget_is_the_gpus, reset),
        cmocka_unit_test_setup(the_time_of_copies_is_told, reset),
        cmocka_unit_test_setup(drawn_weights_are_the_same, reset),
        cmocka_unit_test_setup(tables_of_a_layer_go, reset),
        cmocka_unit_test_setup(what_does_not_fit_names_the_options, reset),
        cmocka_unit_test_setup(the_staging_area_must_fit, reset),
        cmocka_unit_test_setup(copies_are_profiled_apart, reset),
        cmocka_unit_test_setup(copies_are_traced, reset),
        cmocka_unit_test_setup(every_call_may_fail, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
