/* test_device_failures.c - the CUDA device where something is wrong: an artifact's mistakes, a full GPU, every call
 * of the driver made to fail once, a GPU that does not answer. */
#include "world.h"

static void refused(World *w, FtxStatus status, const char *text)
{
    Device *d;
    Session *s = NULL;
    uint32_t pages;
    FtxError err = {0};
    FtxStatus got = device_cuda.open(&w->t.artifact, &w->t.plan, &one_thread, &d, &err);

    if (!got)
        got = device_cuda.session_open(d, 0, &s, &pages, &err);
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
    w = world(), strcpy(w->code[1], "linear__x 3");
    refused(w, FTX_EFORMAT, "linear__x takes 24 bytes of parameters, not a struct of 4 pointers");
    w = world(), strcpy(w->code[1], "linear__y 4");
    refused(w, FTX_EDEVICE, "finding linear__x in its code: CUDA_ERROR_UNKNOWN");
    w = world(), strcpy(w->code[1], "garbage");
    refused(w, FTX_EDEVICE, "loading linear__x: no such code: CUDA_ERROR_UNKNOWN");
    w = world(), w->t.kernels[LINEAR].block = 2048;
    refused(w, FTX_EFORMAT, "linear__x runs in blocks of at most 1024 threads, not of 2048");
    w = world(), w->t.kernels[LINEAR].block = 0;
    refused(w, FTX_EFORMAT, "linear__x runs in blocks of at most 1024 threads, not of 0");
    w = world(), w->t.kernels[LINEAR].smem = 300000;
    refused(w, FTX_EDEVICE, "300000 bytes of shared memory for linear__x");
    w = world(), w->t.kernels[EMBED].kind = FTX_KERNEL_CPU;
    refused(w, FTX_EFORMAT, "embed__x is no kernel for a GPU");
    w = world(), w->t.kernels[MATMUL].n_operands = 4;
    refused(w, FTX_EFORMAT, "matmul has 7 constants and 4 operands, not 7 and 5");
    w = world(), w->t.consts[FTX_MM_ACT] = FTX_ACT_SILU;
    refused(w, FTX_EFORMAT, "layer 0: up: cuBLASLt has no activation 5");
    w = world(), w->t.consts[FTX_MM_ACT] = FTX_ACT_RELU;
    refused(w, FTX_EFORMAT, "no activation with a residual");
    w = world(), w->t.consts[FTX_MM_TYPE_W] = DT_I32;
    refused(w, FTX_EFORMAT, "no matrix product of bf16 and i32 into bf16");
    w = world(), w->t.consts[FTX_MM_K] = 13;
    refused(w, FTX_EDEVICE, "cuBLASLt has no algorithm for [M,13] x [128,13]^T in bf16: CUBLAS_STATUS_NOT_SUPPORTED");
    w = world(), w->t.operands[w->t.launches[4].first_operand + 4].offset += 8;
    refused(w, FTX_EFORMAT, "layer 0: up: operand 4 is not at a multiple of 16 bytes");
    w = world(), w->t.artifact.weight_data = NULL;
    refused(w, FTX_EINVAL, "the artifact holds no weights");
    w = world(), fake.free_bytes = 1000;
    refused(w, FTX_EDEVICE, "the weights need 0.0 GB on the GPU");
    w = world(), setenv("FTX_PATIENCE", "2 s", 1);
    refused(w, FTX_EINVAL, "FTX_PATIENCE is \"2 s\": expected a whole number from 0 to 1000000");
    unsetenv("FTX_PATIENCE");
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
    uint32_t pages;
    FtxStatus status = device_cuda.open(&w->t.artifact, &w->t.plan, &one_thread, &d, err);

    if (!status)
        status = device_cuda.session_open(d, 0, &s, &pages, err);
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

/* What `ftxc tune` measures: each call that fails is told, and nothing stays, also where another keeps the context, so that its
 * end frees nothing. */
static void rate_may_fail(void **state)
{
    const CudaDriver *cu;
    unsigned long n, loud = 0;
    FtxError err = {0};
    CUcontext kept;
    double rate;

    (void)state;
    assert_int_equal(cuda_driver(&cu, &err), FTX_OK);
    assert_int_equal(device_cuda_rate(0, 1000, &rate, &err), FTX_OK);
    assert_true(rate > 2.0 * 1000 * 7 / 1e6 && rate < 2.0 * 1000 * 8 / 0.25e6 * 1.001); /* 8 copies of 1,000 bytes */
    assert_int_equal(fake_open_things(), 0);
    for (n = 1;; n++) {
        fake_reset();
        assert_int_equal(cu->cuDevicePrimaryCtxRetain(&kept, 0), CUDA_SUCCESS);
        fake.fail_at = fake.calls + n;
        const FtxStatus status = device_cuda_rate(0, 1000, &rate, &err);
        if (!fake.failed)
            break;
        assert_true(status || may_pass(fake.failed));
        loud += status != FTX_OK;
        if (status)
            assert_non_null(strstr(err.text, "CUDA_ERROR_UNKNOWN"));
        assert_int_equal(fake_open_things(), 1); /* the context */
    }
    assert_true(loud >= 30);
    fake_reset();
}

/* What `ftxc doctor` asks: each call that fails is told, and no context stays. */
static void facts_may_fail(void **state)
{
    unsigned long n, loud = 0;
    CudaFacts f;
    FtxError err = {0};

    (void)state;
    assert_int_equal(device_cuda_facts(0, &f, &err), FTX_OK);
    assert_int_equal(f.sms, 132);
    assert_int_equal(f.memory_mhz, 3201);
    assert_int_equal(f.target, 901);
    assert_int_equal(fake_open_things(), 0);
    for (n = 1;; n++) {
        fake_reset();
        fake.fail_at = n;
        const FtxStatus status = device_cuda_facts(0, &f, &err);
        if (!fake.failed)
            break;
        loud += status != FTX_OK;
        if (status)
            assert_non_null(strstr(err.text, "CUDA_ERROR_UNKNOWN"));
        assert_int_equal(fake_open_things(), 0);
    }
    assert_true(loud >= 5);
}

static void every_call_may_fail(void **state)
{
    unsigned long n, loud = 0;

    (void)state;
    for (n = 1;; n++) {
        World *w = world();
        FtxError err = {0};

        fake_reset();
        fake.late = true;
        fake.contexts = 1; /* the program's own: nothing goes with the device's */
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
        assert_int_equal(fake.contexts, 1);
        if (strcmp(fake.failed, "fake_CtxPushCurrent") != 0 && fake_open_things() > 1)
            fail_msg("call %lu (%s): %d things stay open", n, fake.failed, fake_open_things() - 1);
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

/* A GPU that is given up is not asked again, and nothing of it is closed: that would wait. */
static void a_lost_gpu_is_left_alone(void **state)
{
    World *w = world();
    FtxError err = {0};
    Device *d;
    Session *s;

    (void)state;
    setenv("FTX_PATIENCE", "1", 1);
    open_both(w, &one_thread, &d, &s);
    unsetenv("FTX_PATIENCE");
    must(device_cuda.run(s, STEP_16, 1, 1, 1, &err), &err);
    fake.hang_at = fake.calls;
    assert_int_equal(device_cuda.wait(s, &err), FTX_EDEVICE);
    const unsigned long asked = fake.asked;
    const int open = fake_open_things();
    assert_int_equal(device_cuda.wait(s, &err), FTX_EDEVICE);
    assert_non_null(strstr(err.text, "the GPU has not answered for 1 s"));
    device_cuda.session_close(s);
    device_cuda.close(d);
    assert_int_equal(fake.asked, asked);
    assert_int_equal(fake_open_things(), open);
    free(w);
}

/* --- code for another GPU ------------------------------------------------------------------------- */

static void code_without_a_binary_is_no_device(void **state)
{
    World *w = world();
    FtxError err;
    Device *d = NULL;

    (void)state;
    fake.fail_with = CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (fake.fail_at = 1; !fake.failed || strcmp(fake.failed, "fake_ModuleLoadDataEx") != 0; fake.fail_at++) {
        fake.calls = 0;
        assert_int_not_equal(device_cuda.open(&w->t.artifact, &w->t.plan, &one_thread, &d, &err), FTX_OK);
    }
    assert_int_equal(err.status, FTX_ENODEVICE);
    assert_non_null(strstr(err.text, "loading embed__x"));
    assert_int_equal(fake_open_things(), 0);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(mistakes_are_named, reset),
        cmocka_unit_test_setup(facts_may_fail, reset),
        cmocka_unit_test_setup(rate_may_fail, reset),
        cmocka_unit_test_setup(every_call_may_fail, reset),
        cmocka_unit_test_setup(a_hang_is_noticed, reset),
        cmocka_unit_test_setup(a_lost_gpu_is_left_alone, reset),
        cmocka_unit_test_setup(code_without_a_binary_is_no_device, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
