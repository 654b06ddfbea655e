/* test_fault_cuda.c - a real artifact for sm_90a on a driver that fails: the n-th call, for every n,
 * with an error of the driver and with one of memory; a GPU that stops to answer; no host memory.
 * Each time the caller gets a status and a reason, and nothing stays open.
 *
 * The driver is that of tests/device. It runs no kernel; in place of the sampler this file writes
 * a result for every row, so that requests come to their end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/ftx.h"

#ifdef FTX_HAVE_CUDA
#include "kernels/device/io.h"
#include "runtime/artifact.h"
#include "tests/device/fake_driver.h"

static char path[1000];
static Artifact artifact;
static const ArtifactPlan *plan;

/* --- the sampler --------------------------------------------------------------------------------- */

/* Where a space begins, from the operands of a launch of this kernel. */
static char *space_of(const FakeLaunch *l, FtxSpace space)
{
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        const FtxKernel *k = &plan->kernels[plan->launches[i].kernel];

        if (strcmp(artifact_string(&artifact, k->entry), l->kernel) != 0)
            continue;
        for (uint32_t o = 0; o < k->n_operands; o++) {
            const FtxOperand *op = &plan->operands[plan->launches[i].first_operand + o];

            if (op->space == space)
                return (char *)(uintptr_t)(l->param[o] - op->offset);
        }
    }
    return NULL;
}

static void sample(const FakeLaunch *l)
{
    char *out = space_of(l, FTX_SPACE_OUT), *io = space_of(l, FTX_SPACE_IO);
    const uint64_t *named = plan->head->named;

    if (!out || !io)
        return;
    const FtxStep *step = (FtxStep *)(void *)(io + named[FTX_NAMED_step]);
    FtxRow *row = (FtxRow *)(void *)(io + named[FTX_NAMED_rows]);
    FtxToken *token = (FtxToken *)(void *)(io + named[FTX_NAMED_token]);
    for (int i = 0; i < step->rows; i++) {
        const int n = row[i].kv_len, next = n % (int)artifact.facts->vocab;
        FtxOut *o =
            (FtxOut *)(void *)(out + named[FTX_NAMED_out]) + (size_t)(n % FTX_OUT_RING) * artifact.facts->sequences + i;

        if (!row[i].emit || row[i].done)
            continue;
        *o = (FtxOut){next, -1.0f, n + 1 >= row[i].limit ? 2 : 0, n};
        row[i].done = o->finish;
        if (row[i].done)
            continue;
        row[i].kv_len++;
        token[i] = (FtxToken){next, n, i, row[i].slot};
    }
}

/* --- one life ------------------------------------------------------------------------------------- */

typedef struct Ledger { /* an embedder's allocator */
    int calls, fail_at, live;
} Ledger;

static void *ledger_alloc(void *user, size_t bytes, size_t align)
{
    Ledger *l = user;
    void *p = NULL;

    if (++l->calls == l->fail_at || posix_memalign(&p, align < sizeof p ? sizeof p : align, bytes))
        return NULL;
    l->live++;
    return p;
}

static void ledger_release(void *user, void *p, size_t bytes)
{
    Ledger *l = user;

    (void)bytes;
    l->live--;
    free(p);
}

static FtxStatus submit(FtxEngine *e, const FtxModel *m, int tokens, FtxError *err)
{
    int32_t ids[100];
    FtxRequest q = ftx_request_default(m);

    for (int i = 0; i < tokens; i++)
        ids[i] = i + 1;
    q.ids = ids;
    q.ids_count = (size_t)tokens;
    q.max_new = 9;
    q.ignore_eos = true;
    q.logits = tokens == 5;
    return ftx_engine_submit(e, &q, NULL, err);
}

/* Opens, answers three requests, closes. */
static FtxStatus live_once(Ledger *ledger, FtxError *err)
{
    const FtxAllocator allocator = {ledger_alloc, ledger_release, ledger};
    const FtxOptions o = {.device = FTX_DEVICE_CUDA, .threads = 1, .allocator = &allocator};
    static const int prompts[] = {90, 5, 1};
    FtxModel *m = NULL;
    FtxEngine *e = NULL;
    FtxEvent ev[16];
    size_t n, finished = 0;
    FtxStatus s;

    *err = (FtxError){FTX_OK, ""};
    s = ftx_model_open(path, &o, &m, err);
    if (!s)
        s = ftx_engine_open(m, NULL, &e, err);
    for (size_t i = 0; i < 3 && !s; i++)
        s = submit(e, m, prompts[i], err);
    while (!s && ftx_engine_busy(e)) {
        s = ftx_engine_step(e, ev, 16, &n, err);
        for (size_t i = 0; i < n; i++)
            finished += ev[i].finish != FTX_RUNNING;
    }
    if (!s)
        assert_int_equal(finished, 3);
    ftx_engine_close(e);
    ftx_model_close(m);
    return s;
}

/* --- tests ---------------------------------------------------------------------------------------- */

static int compile(void **state)
{
    char command[3000];
    FtxError err;

    (void)state;
    snprintf(path, sizeof path, "%s/test-fault-cuda.ftx", getenv("FTX_BUILD"));
    snprintf(command, sizeof command,
             "%s compile tests/models/tiny-llama -o %s -q -t sm_90a -D precision.weights=bf16 -D limits.tokens=100 "
             "-D limits.sequences=3",
             getenv("FTXC"), path);
    if (system(command) != 0 || artifact_open(path, &artifact, &err)) /* no NVRTC here */
        return FTX_REQUIRE_NVRTC ? -1 : 0;
    plan = artifact_plan(&artifact, 901);
    return plan ? 0 : -1;
}

static int discard(void **state)
{
    (void)state;
    artifact_close(&artifact);
    return 0;
}

static void start(void)
{
    if (!plan)
        skip();
    fake_reset();
    fake.execute = sample;
}

/* Those that close have nobody to tell. */
static bool closes(const char *function)
{
    static const char *const words[] = {"Destroy", "Free", "Unload", "Release", "Pop"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(function, words[i]))
            return true;
    return false;
}

static unsigned long fail_every_call(CUresult with, unsigned long step, const char *word)
{
    unsigned long told = 0;

    for (unsigned long n = 1;; n += step) {
        Ledger ledger = {0};
        FtxError err;

        start();
        fake.fail_at = n;
        fake.fail_with = with;
        const FtxStatus s = live_once(&ledger, &err);
        if (fake_open_things() || ledger.live)
            fail_msg("call %lu (%s): %d things stay open, %d blocks", n, fake.failed, fake_open_things(), ledger.live);
        if (fake.calls < n) {
            if (s)
                fail_msg("%s", err.text);
            return told;
        }
        if (s && !strstr(err.text, word) && !strstr(err.text, "CUBLAS_STATUS"))
            fail_msg("call %lu (%s): no reason in \"%s\"", n, fake.failed, err.text);
        if (!s && !closes(fake.failed) && fake.calls - n > 60) /* closing begins with a wait */
            fail_msg("call %lu (%s) failed and nobody said so", n, fake.failed);
        told += s != FTX_OK;
    }
}

static void every_call_fails(void **state)
{
    (void)state;
    start();
    print_message("%lu calls, each failed once\n", fail_every_call(CUDA_ERROR_ILLEGAL_ADDRESS, 1, ": CU"));
}

static void memory_runs_out_at_every_call(void **state)
{
    (void)state;
    start();
    assert_true(fail_every_call(CUDA_ERROR_OUT_OF_MEMORY, 1, ": CU") > 100);
}

static void no_host_memory(void **state)
{
    (void)state;
    for (int n = 1;; n++) {
        Ledger ledger = {.fail_at = n};
        FtxError err;

        start();
        const FtxStatus s = live_once(&ledger, &err);
        assert_int_equal(ledger.live, 0);
        assert_int_equal(fake_open_things(), 0);
        if (ledger.calls < n) {
            assert_int_equal(s, FTX_OK);
            assert_true(n > 4);
            return;
        }
        assert_int_equal(s, FTX_ENOMEM);
        assert_non_null(strstr(err.text, "memory"));
    }
}

/* While opening, in the middle, at a late step: whoever waits gives up, and closing waits no more. */
static void a_gpu_stops_to_answer(void **state)
{
    unsigned long all;
    Ledger ledger = {0};
    FtxError err;

    (void)state;
    start();
    assert_int_equal(live_once(&ledger, &err), FTX_OK);
    all = fake.calls;
    setenv("FTX_PATIENCE", "1", 1);
    for (int part = 0; part < 5; part++) {
        start();
        fake.hang_at = all * (unsigned long)(part * 17 + 1) / 100;
        assert_int_equal(live_once(&ledger, &err), FTX_EDEVICE);
        if (!strstr(err.text, "the GPU has not answered for"))
            fail_msg("%s", err.text);
        assert_int_equal(ledger.live, 0); /* of the host; what the GPU has it keeps */
    }
    unsetenv("FTX_PATIENCE");
    fake_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails),
        cmocka_unit_test(memory_runs_out_at_every_call),
        cmocka_unit_test(no_host_memory),
        cmocka_unit_test(a_gpu_stops_to_answer),
    };

    return cmocka_run_group_tests(tests, compile, discard);
}

#else
int main(void)
{
    return 0; /* built without the CUDA parts: tests/device says so */
}
#endif
