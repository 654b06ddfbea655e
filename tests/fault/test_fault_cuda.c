/* test_fault_cuda.c - real artifacts for sm_90a on a driver whose n-th call fails, for every n, with a driver error or
 * out of memory; on a GPU that stops answering; without host memory. Each time the caller gets a status and a message,
 * and nothing stays open. Models: a decoder with beams, an encoder, a decoder with a source and beams.
 *
 * The fake driver (tests/device) runs no kernel. In place of the sampler and the beam search this file writes a result
 * for each row, so that requests finish. */
#include <stdio.h>
#include <string.h>

#include "life.h"

#ifdef FTX_HAVE_CUDA
#include "kernels/device/io.h"
#include "runtime/artifact/artifact.h"
#include "tests/device/fake_driver.h"
#include "tests/skip.h"

static const struct {
    const char *spec, *defines;
} models[] = {
    {"tiny-llama", "-D precision.weights=bf16 -D limits.tokens=100 -D limits.sequences=4 -D decode.width=2"},
    {"tiny-bert", ""},
    {"tiny-marian", "-D limits.sequences=4 -D decode.width=2"},
};
enum { MODELS = sizeof models / sizeof *models };

/* The one under test. */
static char path[1000];
static Artifact artifact;
static const ArtifactPlan *plan;

/* --- the sampler and the beams -------------------------------------------------------------------- */

/* The address of a memory space, computed from the operands of a launch of this kernel. */
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

/* A row's next token; finish: 0, or 2 at its limit. */
static void advance(FtxOut *out, FtxRow *row, FtxToken *token, int i)
{
    const int n = row->kv_len, next = n % (int)artifact.facts->vocab;

    out[(size_t)(n % FTX_OUT_RING) * artifact.facts->sequences + (size_t)i] =
        (FtxOut){next, -1.0f, n + 1 >= row->limit ? 2 : 0, n};
    row->done = n + 1 >= row->limit ? 2 : 0;
    if (row->done)
        return;
    row->kv_len++;
    *token = (FtxToken){next, n, i, row->slot};
}

/* Writes two tokens for each slot whose search is over. */
static void put_hypotheses(const FakeLaunch *l)
{
    char *state = space_of(l, FTX_SPACE_STATE);

    for (uint32_t i = 0; state && i < artifact.facts->sequences; i++) {
        FtxLane *lanes = (FtxLane *)(void *)(state + plan->head->named[FTX_NAMED_lanes]);

        lanes[i] = (FtxLane){.token = 1, .hyp_score = -(float)i, .hyp_length = 2};
    }
}

static void decide(const FakeLaunch *l)
{
    const bool beams = strncmp(l->kernel, "beam_", 5) == 0, sample = strncmp(l->kernel, "sample_", 7) == 0;
    char *out = space_of(l, FTX_SPACE_OUT), *io = space_of(l, FTX_SPACE_IO);
    const uint64_t *named = plan->head->named;

    if ((!beams && !sample) || !out || !io)
        return;
    const FtxStep *step = (FtxStep *)(void *)(io + named[FTX_NAMED_step]);
    const FtxBeam *beam = beams ? (const FtxBeam *)(void *)(io + named[FTX_NAMED_beams]) : NULL;
    FtxRow *row = (FtxRow *)(void *)(io + named[FTX_NAMED_rows]);
    for (int i = 0; i < step->rows; i++)
        if (!row[i].done && (beams ? beam[i].emit : row[i].emit))
            advance((FtxOut *)(void *)(out + named[FTX_NAMED_out]), &row[i],
                    (FtxToken *)(void *)(io + named[FTX_NAMED_token]) + i, i);
    if (beams)
        put_hypotheses(l);
}

/* --- tests ---------------------------------------------------------------------------------------- */

static void name_artifact(int i)
{
    snprintf(path, sizeof path, "%s/test-fault-%s.ftx", getenv("FTX_BUILD"), models[i].spec);
}

static int compile(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        char command[3000];

        name_artifact(i);
        snprintf(command, sizeof command, "%s compile tests/models/%s -o %s -q -t sm_90a %s", getenv("FTXC"),
                 models[i].spec, path, models[i].defines);
        if (system(command) != 0) /* no NVRTC here */
            return FTX_REQUIRE_NVRTC ? -1 : 0;
    }
    return 0;
}

static void use(int i)
{
    FtxError err;

    name_artifact(i);
    if (artifact_open(path, &artifact, &err))
        SKIP("%s", err.text);
    plan = artifact_plan(&artifact, 901, "");
    assert_non_null(plan);
}

static unsigned long calls_when_closing;

static void note_calls(void)
{
    calls_when_closing = fake.calls;
}

static void start(void)
{
    fake_reset();
    fake.execute = decide;
    life_closes = note_calls;
}

static FtxStatus live_once(Ledger *ledger, FtxError *err)
{
    return life(path, FTX_DEVICE_CUDA, 1, ledger, err);
}

/* Calls that release something: their errors are not reported. */
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
        if (!s && !closes(fake.failed) && n <= calls_when_closing)
            fail_msg("call %lu (%s) failed and nobody said so", n, fake.failed);
        told += s != FTX_OK;
    }
}

static void every_call_fails(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        use(i);
        print_message("%s: %lu calls told\n", models[i].spec, fail_every_call(CUDA_ERROR_ILLEGAL_ADDRESS, 1, ": CU"));
        artifact_close(&artifact);
    }
}

static void memory_runs_out_at_every_call(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        use(i);
        assert_true(fail_every_call(CUDA_ERROR_OUT_OF_MEMORY, 1, ": CU") > 100);
        artifact_close(&artifact);
    }
}

static void fail_every_block(void)
{
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

static void no_host_memory(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        use(i);
        fail_every_block();
        artifact_close(&artifact);
    }
}

/* While opening, in the middle, at a late step: waiting ends with an error, and closing does not wait. */
static void hang_at_five_places(void)
{
    unsigned long all;
    Ledger ledger = {0};
    FtxError err;

    start();
    assert_int_equal(live_once(&ledger, &err), FTX_OK);
    all = fake.calls;
    for (int part = 0; part < 5; part++) {
        start();
        fake.hang_at = all * (unsigned long)(part * 17 + 1) / 100;
        assert_int_equal(live_once(&ledger, &err), FTX_EDEVICE);
        if (!strstr(err.text, "the GPU has not answered for"))
            fail_msg("%s", err.text);
        assert_int_equal(ledger.live, 0); /* host memory; that of the GPU is not released */
    }
}

static void a_gpu_stops_to_answer(void **state)
{
    (void)state;
    setenv("FTX_PATIENCE", "1", 1);
    for (int i = 0; i < MODELS; i++) {
        use(i);
        hang_at_five_places();
        artifact_close(&artifact);
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

    return cmocka_run_group_tests(tests, compile, NULL);
}

#else
int main(void)
{
    return 0; /* built without the CUDA parts: tests/device says so */
}
#endif
