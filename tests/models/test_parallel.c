/* test_parallel.c - a model on two ranks of the CPU whose second rank fails, comes late, gets another step or has other room:
 * requests end with an error that names the rank, nothing hangs, and the model can be opened again. */
#include <time.h>

#include "golden.h"
#include "kernels/device/io.h"
#include "runtime/device/group/group.h"
#include "runtime/base/hash.h"
#include "runtime/engine/model.h"

enum { TOKENS = 12 };

/* The CPU, but for what a test wants of rank 1. */
static struct {
    Session *second; /* rank 1's, once it has joined */
    int opened;      /* sessions */
    int runs;        /* of rank 1 */
    int fail_at, sleep_at, seconds;
    bool refuse_open, refuse_join, no_join, few_pages, change, stale;
    char last[256];        /* the step block before */
    bool second_checks;    /* it is rank 1 whose exchange has failed */
    int check_at, stopped; /* from this run on an exchange of rank 0 has failed; ranks that were told to stop */
} fault;

static FtxStatus faulty_session_open(Device *d, uint64_t kv_bytes, Session **out, uint32_t *pages, FtxError *err)
{
    const int n = fault.opened++;
    FtxStatus s;

    if (n == 1 && fault.refuse_open)
        return ftx_fail(err, FTX_ENOMEM, "no room");
    s = device_cpu.session_open(d, kv_bytes, out, pages, err);
    if (!s && n == 1 && fault.few_pages)
        *pages = 40; /* the 16 sequences need one each */
    return s;
}

static FtxStatus faulty_join(Session *s, int rank, int ranks, Session *const *all, FtxError *err)
{
    if (rank == 1)
        fault.second = s;
    if (rank == 1 && fault.refuse_join)
        return ftx_fail(err, FTX_EDEVICE, "no way to the others");
    return device_cpu.join(s, rank, ranks, all, err);
}

static FtxStatus faulty_upload(Session *s, size_t bytes, FtxError *err)
{
    char *io = device_cpu.io(s), kept[sizeof fault.last];

    if (s == fault.second) {
        memcpy(kept, io, sizeof kept);
        if (fault.change && fault.runs == 2)
            io[sizeof(FtxStep) + 5] ^= 1;
        if (fault.stale && fault.runs == 2)
            memcpy(io, fault.last, sizeof fault.last);
        memcpy(fault.last, kept, sizeof kept);
    }
    return device_cpu.upload(s, bytes, err);
}

static FtxStatus faulty_run(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    if (s == fault.second) {
        const int n = ++fault.runs;

        if (n == fault.fail_at)
            return ftx_fail(err, FTX_EDEVICE, "the lights went out");
        if (n == fault.sleep_at)
            nanosleep(&(struct timespec){.tv_sec = fault.seconds}, NULL);
    }
    return device_cpu.run(s, program, T, S, times, err);
}

static FtxStatus faulty_check(Session *s, FtxError *err)
{
    if ((s == fault.second) != fault.second_checks)
        return FTX_OK;
    return fault.check_at && fault.runs >= fault.check_at ? ftx_fail(err, FTX_EDEVICE, "nobody came") : FTX_OK;
}

static void faulty_stop(Session *s)
{
    fault.stopped++;
    device_cpu.stop(s);
}

static FtxStatus faulty_open(const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, Device **out,
                             FtxError *err)
{
    static DeviceApi faulty;

    faulty = device_cpu;
    faulty.session_open = faulty_session_open;
    faulty.join = fault.no_join ? NULL : faulty_join;
    faulty.upload = faulty_upload;
    faulty.run = faulty_run;
    faulty.check = faulty_check;
    faulty.stop = faulty_stop;
    return group_open(&faulty, a, plan, o, out, err);
}

static FtxStatus open_faulty(FtxModel **model, FtxError *err)
{
    static DeviceApi api;
    char path[1000];
    Artifact a;

    api = device_group_cpu;
    api.open = faulty_open;
    golden_path("parallel", path, sizeof path);
    assert_int_equal(artifact_open(path, &a, err), FTX_OK);
    return model_on(&api, &a, 0, "", NULL, model, err);
}

/* Compiled once; the tokens of the model without faults. */
static GoldenAnswer expected;

/* Runs a greedy request to its end, or to the error of the engine. */
static FtxStatus generate(FtxModel *model, GoldenAnswer *answer, FtxError *err)
{
    static const int32_t prompt[] = {5, 9, 100, 31, 7};
    FtxEvent events[64] = {FTX_EVENT_INIT};
    FtxRequest r = ftx_request_default(model);
    FtxEngine *engine;
    FtxStatus s = ftx_engine_open(model, NULL, &engine, err);
    size_t n;

    *answer = (GoldenAnswer){0};
    if (s)
        return s;
    r.ids = prompt;
    r.ids_count = sizeof prompt / sizeof *prompt;
    r.temperature = 0.0f;
    r.max_new = TOKENS;
    r.ignore_eos = true;
    r.user = answer;
    s = ftx_engine_submit(engine, &r, NULL, err);
    while (!s && ftx_engine_busy(engine)) {
        s = ftx_engine_step(engine, events, 64, &n, err);
        for (size_t i = 0; !s && i < n; i++)
            golden_take(answer, &events[i]);
    }
    if (s) { /* and nothing can be begun any more */
        FtxError again;

        assert_int_equal(ftx_engine_submit(engine, &r, NULL, &again), s);
    }
    ftx_engine_close(engine);
    return s;
}

/* A model with the faults that are set. */
static FtxStatus run_faulty(GoldenAnswer *answer, FtxError *err)
{
    FtxModel *model;
    FtxStatus s = open_faulty(&model, err);

    if (s)
        return s;
    s = generate(model, answer, err);
    ftx_model_close(model);
    return s;
}

static void same_tokens(const GoldenAnswer *answer)
{
    assert_int_equal(answer->n, TOKENS);
    assert_memory_equal(answer->ids, expected.ids, sizeof answer->ids);
}

/* The run fails with this text, in less than `seconds`; then the model works. */
static void check_fails(const char *text, double seconds)
{
    GoldenAnswer answer;
    struct timespec from, to;
    FtxError err;

    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_int_not_equal(run_faulty(&answer, &err), FTX_OK);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (!strstr(err.text, text))
        fail_msg("the error is \"%s\"", err.text);
    assert_true((double)(to.tv_sec - from.tv_sec) < seconds);
    memset(&fault, 0, sizeof fault);
    assert_int_equal(run_faulty(&answer, &err), FTX_OK);
    same_tokens(&answer);
    memset(&fault, 0, sizeof fault);
}

static int compile_once(void **state)
{
    FtxModel *one = golden_open("tests/models/tiny-llama", "parallel-one", "");
    FtxModel *two = golden_open("tests/models/tiny-llama", "parallel", "-D parallel=2");
    GoldenAnswer of_two;
    FtxError err;

    (void)state;
    if (generate(one, &expected, &err) || generate(two, &of_two, &err))
        return -1;
    same_tokens(&of_two);
    ftx_model_close(one);
    ftx_model_close(two);
    return 0;
}

static int no_faults(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof fault);
    return 0;
}

static void fails(void **state)
{
    (void)state;
    fault.fail_at = 3;
    check_fails("rank 1: the lights went out", 8);
    fault.fail_at = 1;
    check_fails("rank 1: the lights went out", 8);
}

/* A device finds out while its programs run (a GPU): no token is taken, and all ranks are told to stop. */
static void noticed(void **state)
{
    GoldenAnswer answer;
    FtxError err;

    (void)state;
    fault.check_at = 4;
    assert_int_equal(run_faulty(&answer, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "rank 0: nobody came");
    assert_int_equal(answer.n, 3);
    assert_memory_equal(answer.ids, expected.ids, 3 * sizeof *answer.ids);
    assert_int_equal(fault.stopped, 2);
    memset(&fault, 0, sizeof fault);
    fault.check_at = 2;
    check_fails("rank 0: nobody came", 8);
    fault.check_at = 3;
    fault.second_checks = true;
    check_fails("rank 1: nobody came", 8);
}

static void late(void **state)
{
    GoldenAnswer answer;
    FtxError err;

    (void)state;
    fault.sleep_at = 3;
    fault.seconds = 1;
    assert_int_equal(run_faulty(&answer, &err), FTX_OK);
    same_tokens(&answer);
    setenv("FTX_PEER_TIMEOUT", "1", 1);
    fault.runs = fault.opened = 0;
    fault.seconds = 4;
    check_fails("rank 0: rank 1 did not come within 1 s", 20);
    setenv("FTX_PEER_TIMEOUT", "soon", 1);
    assert_int_equal(run_faulty(&answer, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "FTX_PEER_TIMEOUT"));
    unsetenv("FTX_PEER_TIMEOUT");
}

static void wrong_step(void **state)
{
    (void)state;
    fault.change = true;
    check_fails("rank 1: its step 3 has the hash ", 8);
    fault.stale = true;
    check_fails("it expects step 3, and rank 0 has composed step 3", 8);
}

static void refused(void **state)
{
    (void)state;
    fault.refuse_open = true;
    check_fails("rank 1: no room", 8);
    fault.refuse_join = true;
    check_fails("rank 1: no way to the others", 8);
    fault.no_join = true;
    check_fails("the artifact was compiled for 2 ranks (parallel=2), cpu runs one", 8);
}

/* All ranks have as many pages as the one with the fewest. */
static void pages(void **state)
{
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info = {.size = sizeof(FtxModelInfo)};
    FtxError err;

    (void)state;
    fault.few_pages = true;
    assert_int_equal(open_faulty(&model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(model, NULL, &engine, &err), FTX_OK);
    assert_int_equal(ftx_model_describe(model, &info), FTX_OK);
    assert_int_equal(info.kv_tokens, 40 / 2 * 16); /* two ranks share the machine's memory */
    assert_int_equal(fault.opened, 4);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

/* Another number of devices than of ranks; the same device twice; a rank that is alone. */
static void wrong_devices(void **state)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    GoldenAnswer answer;
    FtxModel *model;
    FtxError err;
    char path[1000];
    Artifact a;

    (void)state;
    golden_path("parallel", path, sizeof path);
    o.device = FTX_DEVICE_CPU;
    o.device_count = 3;
    o.devices[1] = 1, o.devices[2] = 2;
    assert_int_equal(ftx_model_open(path, &o, &model, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "options.devices has 3 devices, the artifact is for 2"));
    o.device_count = 2;
    o.devices[0] = 1;
    assert_int_equal(ftx_model_open(path, &o, &model, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "options.devices[1] is 1"));
    setenv("FTX_SHARED_GPU", "1", 1);
    assert_int_equal(ftx_model_open(path, &o, &model, &err), FTX_OK);
    ftx_model_close(model);
    o.devices[0] = -1;
    assert_int_equal(ftx_model_open(path, &o, &model, &err), FTX_EINVAL);
    unsetenv("FTX_SHARED_GPU");
    o.devices[0] = 4, o.devices[1] = 3;
    assert_int_equal(ftx_model_open(path, &o, &model, &err), FTX_OK);
    assert_int_equal(generate(model, &answer, &err), FTX_OK);
    same_tokens(&answer);
    ftx_model_close(model);
    assert_int_equal(artifact_open(path, &a, &err), FTX_OK);
    assert_int_equal(model_on(&device_cpu, &a, 0, "", NULL, &model, &err), FTX_OK);
    assert_int_equal(generate(model, &answer, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "has not joined"));
    ftx_model_close(model);
}

/* --- files that lie ------------------------------------------------------------------------------------ */

static char *file; /* the artifact in memory */
static size_t file_bytes;

static FtxSection *section_of(uint32_t kind, uint32_t rank)
{
    FtxHeader *h = (FtxHeader *)(void *)file;
    FtxSection *s = (FtxSection *)(void *)(file + h->sections_at);

    for (uint32_t i = 0; i < h->sections; i++)
        if (s[i].kind == kind && s[i].rank == rank)
            return &s[i];
    fail();
    return NULL;
}

static void read_whole(void)
{
    char path[1000];
    FILE *f;

    golden_path("parallel", path, sizeof path);
    f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    file_bytes = (size_t)ftell(f);
    rewind(f);
    file = aligned_alloc(4096, (file_bytes + 4095) / 4096 * 4096);
    assert_non_null(file);
    assert_int_equal(fread(file, 1, file_bytes, f), file_bytes);
    fclose(f);
}

/* The file as it is now, with right checksums, is refused so; NULL: it runs. */
static void check_lie(const char *text)
{
    FtxHeader *h = (FtxHeader *)(void *)file;
    FtxSection *s = (FtxSection *)(void *)(file + h->sections_at);
    FtxModel *model = NULL;
    Artifact a;
    FtxError err = {0};
    FtxStatus status;

    for (uint32_t i = 0; i < h->sections; i++)
        s[i].checksum = hash64(file + s[i].offset, (size_t)s[i].bytes);
    h->sections_checksum = hash64(s, h->sections * sizeof *s);
    status = artifact_open_bytes(file, file_bytes, &a, &err);
    if (!status)
        status = model_on(&device_group_cpu, &a, 0, "", NULL, &model, &err);
    if (!status) {
        GoldenAnswer answer;

        assert_int_equal(generate(model, &answer, &err), FTX_OK);
        same_tokens(&answer);
        ftx_model_close(model);
    }
    assert_int_equal(status, text ? FTX_EFORMAT : FTX_OK);
    if (text && !strstr(err.text, text))
        fail_msg("expected '%s' in '%s'", text, err.text);
    free(file);
}

static void lies(void **state)
{
    FtxPlan *head;

    (void)state;
    read_whole();
    check_lie(NULL);
    read_whole();
    section_of(FTX_SEC_WEIGHTS, 1)->rank = 5;
    check_lie("it has weights of rank 5, and 2 ranks");
    read_whole();
    section_of(FTX_SEC_WEIGHTS, 1)->rank = 8;
    check_lie("(weights) is for rank 8");
    read_whole();
    section_of(FTX_SEC_WEIGHTS, 1)->rank = 0;
    check_lie("are both the weights of target 0");
    read_whole();
    section_of(FTX_SEC_STRINGS, 0)->rank = 1;
    check_lie("(strings) is for rank 1");
    read_whole();
    section_of(FTX_SEC_WEIGHTS, 1)->bytes -= 256;
    check_lie("bytes of weights and asks for");
    read_whole();
    head = (FtxPlan *)(void *)(file + section_of(FTX_SEC_PLAN, 0)->offset);
    head->exchange += 16;
    check_lie("its 2 ranks exchange");
    read_whole();
    head = (FtxPlan *)(void *)(file + section_of(FTX_SEC_PLAN, 0)->offset);
    head->exchange += 32;
    check_lie("$exchange has");
    read_whole();
    head = (FtxPlan *)(void *)(file + section_of(FTX_SEC_PLAN, 0)->offset);
    head->exchange = 512;
    check_lie("all_reduce");
    read_whole();
    head = (FtxPlan *)(void *)(file + section_of(FTX_SEC_PLAN, 0)->offset);
    head->exchange = 0;
    check_lie("its 2 ranks exchange nothing");
    read_whole();
    head = (FtxPlan *)(void *)(file + section_of(FTX_SEC_PLAN, 0)->offset);
    head->named_bytes[FTX_NAMED_peers] = 112;
    check_lie("$peers has 112 bytes");
}

/* Times are those of rank 0, and a step after them is still the next one of every rank. */
static void times(void **state)
{
    double median, least = 0.0, most = 0.0;
    FtxEngine *engine;
    GoldenAnswer answer;
    FtxModel *model;
    FtxError err;

    (void)state;
    assert_int_equal(open_faulty(&model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(model, NULL, &engine, &err), FTX_OK);
    for (int i = 0; i < 2; i++) {
        median = -1.0;
        assert_int_equal(ftx_engine_bench(engine, 1, 1, 4, 3, &median, &least, &most, &err), FTX_OK);
        assert_true(0.0 < least && least <= median && median <= most);
    }
    ftx_engine_close(engine);
    assert_int_equal(generate(model, &answer, &err), FTX_OK);
    same_tokens(&answer);
    ftx_model_close(model);
}

/* Random weights are the same on all ranks where they are whole. */
static void random_weights(void **state)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    GoldenAnswer a, b;
    FtxModel *model;
    FtxError err;
    char path[1000];

    (void)state;
    golden_path("parallel", path, sizeof path);
    o.device = FTX_DEVICE_CPU;
    o.random_weights = 7;
    assert_int_equal(ftx_model_open(path, &o, &model, &err), FTX_OK);
    assert_int_equal(generate(model, &a, &err), FTX_OK);
    assert_int_equal(generate(model, &b, &err), FTX_OK);
    assert_int_equal(a.n, TOKENS);
    assert_memory_equal(a.ids, b.ids, sizeof a.ids);
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(fails, no_faults),          cmocka_unit_test_setup(noticed, no_faults),
        cmocka_unit_test_setup(late, no_faults),           cmocka_unit_test_setup(wrong_step, no_faults),
        cmocka_unit_test_setup(refused, no_faults),        cmocka_unit_test_setup(pages, no_faults),
        cmocka_unit_test_setup(wrong_devices, no_faults),  cmocka_unit_test_setup(times, no_faults),
        cmocka_unit_test_setup(random_weights, no_faults), cmocka_unit_test(lies),
    };

    return cmocka_run_group_tests(tests, compile_once, NULL);
}
