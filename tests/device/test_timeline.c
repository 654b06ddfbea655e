/* test_timeline.c - what a Trace holds of the CUDA device: by CUPTI, by events, told to the log; calls that fail. */
#include "runtime/device/trace.h"
#include "world.h"

static const Memory from_malloc;

static int reset_all(void **state)
{
    (void)state;
    fake_reset();
    fake.cupti = true;
    return 0;
}

static void say(void *user, int level, const char *text)
{
    World *w = user;
    const size_t n = strlen(w->log);
    const char *times = strstr(text, " us at "); /* they differ from run to run */

    (void)level;
    while (*times != ':')
        times--;
    snprintf(w->log + n, sizeof w->log - n, "%.*s\n", (int)(times - text), text);
}

static Trace *begin(World *w, Session *s, size_t room, bool told)
{
    FtxError err = {0};
    Trace *t;

    must(trace_open(&from_malloc, room, told ? say : NULL, w, &t, &err), &err);
    must(trace_enter(t, &device_cuda, s, &err), &err);
    return t;
}

/* The events of the device one a line: label: kernel, the run, T and S, bytes. */
static char *device_events(const Trace *t)
{
    static char text[8000];
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < t->n; i++) {
        const TraceEvent *e = &t->event[i];

        assert_true(e->from <= e->to);
        assert_true(e->from >= t->start && e->to <= trace_now());
        if (e->track == TRACE_DEVICE && e->bytes)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s %llu\n", e->name, (unsigned long long)e->bytes);
        else if (e->track == TRACE_DEVICE)
            n += (size_t)snprintf(text + n, sizeof text - n, "%u %s: %s T=%d S=%d\n", e->run, e->name,
                                  e->kernel ? e->kernel : "-", e->T, e->S);
    }
    return text;
}

static void kernels_have_their_names_by_cupti(void **state)
{
    World *w = world();
    FtxError err = {0};
    char page[16];
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    fake.split = true;

    Trace *t = begin(w, s, 100, false);
    Session *traced = (Session *)(void *)t;

    must(t->api.write(traced, FTX_NAMED_pages, 0, "x", 1, &err), &err);
    must(t->api.upload(traced, 64, &err), &err);
    must(t->api.run(traced, STEP_16, 3, 2, 1, &err), &err);
    must(t->api.run(traced, STEP_ANY, 20, 2, 1, &err), &err);
    must(t->api.run(traced, DECODE_4, 2, 2, 6, &err), &err);
    must(t->api.settle(traced, &err), &err);
    must(t->api.wait(traced, &err), &err);
    must(t->api.read(traced, FTX_NAMED_pages, 0, page, sizeof page, &err), &err);
    must(trace_leave(t, &err), &err);
    assert_string_equal(t->note, "CUPTI");
    assert_string_equal(device_events(t), "copy from the host 1\n"
                                          "copy from the host 64\n"
                                          "1 embedding: embed__x T=3 S=2\n"
                                          "1 layer 0: up: linear__x T=3 S=2\n"
                                          "1 head: sample__x T=3 S=2\n"
                                          "2 embedding: embed__x T=20 S=2\n"
                                          "2 layer 0: up: lt T=20 S=2\n"
                                          "2 layer 0: up: splitKreduce_kernel T=20 S=2\n"
                                          "2 head: sample__x T=20 S=2\n"
                                          "3 embedding: embed__x T=2 S=2\n"
                                          "3 layer 0: up: linear__x T=2 S=2\n"
                                          "3 head: sample__x T=2 S=2\n"
                                          "3 embedding: embed__x T=2 S=2\n"
                                          "3 layer 0: up: linear__x T=2 S=2\n"
                                          "3 head: sample__x T=2 S=2\n"
                                          "3 embedding: embed__x T=2 S=2\n"
                                          "3 layer 0: up: linear__x T=2 S=2\n"
                                          "3 head: sample__x T=2 S=2\n"
                                          "3 embedding: embed__x T=2 S=2\n"
                                          "3 layer 0: up: linear__x T=2 S=2\n"
                                          "3 head: sample__x T=2 S=2\n"
                                          "3 embedding: embed__x T=2 S=2\n"
                                          "3 layer 0: up: linear__x T=2 S=2\n"
                                          "3 head: sample__x T=2 S=2\n"
                                          "3 embedding: embed__x T=2 S=2\n"
                                          "3 layer 0: up: linear__x T=2 S=2\n"
                                          "3 head: sample__x T=2 S=2\n"
                                          "copy to the host 16\n");

    static const char *const calls[] = {"write", "upload", "run", "run", "run", "wait for the upload", "wait", "read"};
    for (size_t i = 0; i < 8; i++) {
        assert_string_equal(t->event[i].name, calls[i]);
        assert_int_equal(t->event[i].track, TRACE_HOST);
    }
    assert_int_equal(t->event[3].run, 2);
    assert_int_equal(t->event[3].T, 20);
    assert_true(t->event[8].from >= t->event[0].from); /* the clocks are one */
    assert_true(t->event[8].from <= t->event[0].to);
    trace_close(t);
    must(device_cuda.run(s, STEP_16, 3, 2, 1, &err), &err); /* records nothing: t is gone */
    close_both(w, d, s);
}

/* Copies and clears in memory of the GPU that is the caller's: calls of the host, and what the GPU did. */
static void work_in_the_callers_memory_is_recorded(void **state)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } calls[] = {{"follow the caller's stream", 0},
                 {"copy in on the device", 64},
                 {"clear on the device", 32},
                 {"copy out on the device", 64},
                 {"wait", 0}};
    World *w = world();
    FtxError err = {0};
    const CudaDriver *cu;
    CUcontext context = NULL;
    CUdeviceptr mine;
    char back[64];
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(cuda_driver(&cu, &err), &err);
    cu->cuCtxPushCurrent(context);
    assert_int_equal(cu->cuMemAlloc(&mine, 64), CUDA_SUCCESS);
    cu->cuCtxPopCurrent(&context);
    void *const p = (void *)(uintptr_t)mine;
    memset(p, 7, 64);

    Trace *t = begin(w, s, 100, false);
    Session *traced = (Session *)(void *)t;

    must(t->api.owns(traced, "hidden", p, &err), &err);
    assert_int_equal(t->api.owns(traced, "hidden", back, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "hidden: it is memory of the host"));
    must(t->api.follow(traced, NULL, &err), &err);
    must(t->api.copy_in(traced, FTX_NAMED_pages, 128, p, 64, &err), &err);
    must(t->api.clear(traced, p, 32, &err), &err);
    must(t->api.copy_out(traced, FTX_NAMED_pages, 96, p, 64, &err), &err); /* 32 bytes of zeros, 32 of sevens */
    must(t->api.wait(traced, &err), &err);
    must(trace_leave(t, &err), &err);
    for (int i = 0; i < 64; i++)
        assert_int_equal(((const char *)p)[i], i < 32 ? 0 : 7);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(t->event[i].name, calls[i].name);
        assert_int_equal(t->event[i].bytes, calls[i].bytes);
        assert_int_equal(t->event[i].track, TRACE_HOST);
    }
    assert_string_equal(device_events(t), "copy on the GPU 64\nclear 32\ncopy on the GPU 64\n");
    trace_close(t);

    t = begin(w, s, 100, false); /* what fails is recorded, too */
    traced = (Session *)(void *)t;
    assert_int_equal(t->api.copy_out(traced, FTX_NAMED_pages, 4090, p, 64, &err), FTX_EINVAL);
    assert_string_equal(err.text, "bytes 4090 to 4154 of $pages are outside of it");
    assert_int_equal(t->api.copy_in(traced, FTX_NAMED_out, 0, p, 64, &err), FTX_EINVAL);
    must(trace_leave(t, &err), &err);
    assert_int_equal(t->n, 2);
    assert_string_equal(device_events(t), "");
    trace_close(t);
    cu->cuCtxPushCurrent(context);
    cu->cuMemFree(mine);
    cu->cuCtxPopCurrent(&context);
    close_both(w, d, s);
}

static int allocations_left = 1 << 20;

static void *allocate(void *user, size_t bytes, size_t align)
{
    (void)user;
    return allocations_left-- > 0 ? aligned_alloc(align, (bytes + align - 1) / align * align) : NULL;
}

static void release(void *user, void *p, size_t bytes)
{
    (void)user, (void)bytes;
    free(p);
}

/* Without memory for the timeline, or for CUPTI's rows, nothing is recorded, and the session goes on. */
static void no_memory_for_a_trace(void **state)
{
    static const FtxAllocator table = {.alloc = allocate, .release = release};
    const FtxOptions options = {.size = sizeof options, .threads = 1, .allocator = &table};
    World *w = world();
    FtxError err = {0};
    Trace *t;
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &options, &d, &s);
    must(trace_open(&from_malloc, 10, NULL, NULL, &t, &err), &err);
    for (int left = 0; left < 2; left++) {
        allocations_left = left;
        assert_int_equal(trace_enter(t, &device_cuda, s, &err), FTX_ENOMEM);
        assert_non_null(strstr(err.text, "a trace"));
        must(device_cuda.run(s, STEP_16, 3, 2, 1, &err), &err);
    }
    allocations_left = 1 << 20;
    must(trace_enter(t, &device_cuda, s, &err), &err);
    assert_string_equal(t->note, "CUPTI");
    must(trace_leave(t, &err), &err);
    trace_close(t);
    close_both(w, d, s);
}

/* A kernel that is in no program, one that is missing, and records for which there is no room. */
static void other_records_do_no_harm(void **state)
{
    World *w = world();
    FtxError err = {0};
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    strcpy(w->code[1], "linear__x 4");

    Trace *t = begin(w, s, 5, false);
    Session *traced = (Session *)(void *)t;

    must(t->api.run(traced, STEP_16, 3, 2, 1, &err), &err);
    strcpy(fake.run[fake.n_run - 2].kernel, "someone_else");
    must(t->api.run(traced, STEP_16, 4, 2, 1, &err), &err);
    fake.cupti_dropped = 7;
    must(trace_leave(t, &err), &err);
    assert_string_equal(device_events(t), "1 embedding: embed__x T=3 S=2\n"
                                          "0 someone_else: someone_else T=0 S=0\n"
                                          "1 head: sample__x T=3 S=2\n");
    assert_int_equal(t->n, 5);
    assert_int_equal(t->dropped, 7 + 1 + 2); /* of CUPTI, of its rows, of the trace */
    trace_close(t);
    close_both(w, d, s);
}

static void events_time_graphs_as_a_whole(void **state)
{
    World *w = world();
    FtxError err = {0};
    Device *d;
    Session *s;

    (void)state;
    fake.cupti = false;
    open_both(w, &one_thread, &d, &s);

    Trace *t = begin(w, s, 2000, false);
    Session *traced = (Session *)(void *)t;

    assert_non_null(strstr(t->note, "CUDA events, of a program that is a graph only the whole: recording by CUPTI: "));
    must(t->api.run(traced, STEP_16, 3, 2, 1, &err), &err);
    must(t->api.run(traced, STEP_ANY, 20, 2, 1, &err), &err);
    assert_false(last_runs(1)->overlap); /* an event stands between */
    must(t->api.run(traced, DECODE_4, 2, 2, 6, &err), &err);
    must(trace_leave(t, &err), &err);
    static const char all[] = "1 program step: - T=3 S=2\n"
                              "2 embedding: embed__x T=20 S=2\n"
                              "2 layer 0: up: matmul T=20 S=2\n"
                              "2 head: sample__x T=20 S=2\n"
                              "3 program decode, 5 times: - T=2 S=2\n"
                              "3 program decode: - T=2 S=2\n";
    size_t n = 0, same = 0;
    int64_t last = 0;

    for (size_t i = 0; i < t->n; i++) {
        const TraceEvent *e = &t->event[i];

        if (e->track != TRACE_DEVICE)
            continue;
        assert_int_equal(e->to - e->from, 250000); /* cuEventElapsedTime of the fake driver */
        same += e->from == last;
        last = e->to;
        n++;
        t->event[i].from = t->event[i].to = t->start; /* its clock runs ahead of ours */
    }
    assert_int_equal(n, 6);
    assert_int_equal(same, 3); /* the others begin behind a mark of their own */
    assert_string_equal(device_events(t), all);
    trace_close(t);

    t = begin(w, s, 2000, false); /* more than there are events */
    traced = (Session *)(void *)t;
    for (int i = 0; i < 300; i++)
        must(t->api.run(traced, STEP_16, 3, 2, 1, &err), &err);
    must(trace_leave(t, &err), &err);
    n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += t->event[i].track == TRACE_DEVICE && t->event[i].run == n + 1;
    assert_int_equal(n, 300);
    trace_close(t);
    close_both(w, d, s);
}

/* CUPTI serves one at a time. */
static void a_second_session_is_timed_by_events(void **state)
{
    World *w = world();
    FtxError err = {0};
    uint32_t pages;
    Device *d;
    Session *s, *other;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.session_open(d, 0, &other, &pages, &err), &err);

    Trace *t = begin(w, s, 100, false), *second = begin(w, other, 100, false);

    assert_string_equal(t->note, "CUPTI");
    assert_non_null(strstr(second->note, "CUPTI records another engine"));
    must(second->api.run((Session *)(void *)second, STEP_16, 1, 1, 1, &err), &err);
    must(trace_leave(t, &err), &err);
    assert_string_equal(device_events(t), ""); /* the other's kernels are not ours */
    must(trace_leave(second, &err), &err);
    trace_close(t);
    trace_close(second);
    t = begin(w, other, 100, false);
    assert_string_equal(t->note, "CUPTI");
    must(trace_leave(t, &err), &err);
    trace_close(t);
    device_cuda.session_close(other);
    close_both(w, d, s);
}

/* FTX_TRACE: each event is told as soon as the run is over. Without CUPTI launches are enqueued one by one. */
static void a_told_trace_names_each_launch(void **state)
{
    static const char launches[] = "launch embedding: embed__x T=3 S=2\n"
                                   "launch layer 0: up: linear__x T=3 S=2\n"
                                   "launch head: sample__x T=3 S=2\n"
                                   "host run T=3 S=2\n"; /* it ends last */
    static const char copies[] = "device copy from the host, 64 bytes\n";

    (void)state;
    for (int cupti = 0; cupti < 2; cupti++) {
        World *w = world();
        FtxError err = {0};
        char want[1000] = "host upload, 64 bytes\n";
        Device *d;
        Session *s;

        fake.cupti = cupti;
        open_both(w, &one_thread, &d, &s);

        Trace *t = begin(w, s, 0, true);

        must(t->api.upload((Session *)(void *)t, 64, &err), &err);
        must(t->api.run((Session *)(void *)t, STEP_16, 3, 2, 1, &err), &err);
        assert_int_equal(last_runs(1)->in_graph, cupti);
        must(trace_leave(t, &err), &err);
        strcat(want, cupti ? copies : "");
        strcat(want, launches);
        assert_string_equal(w->log, want);
        assert_int_equal(t->n, 0);
        trace_close(t);
        close_both(w, d, s);
    }
}

/* --- failures ------------------------------------------------------------------------------------- */

static unsigned long calls_of_trace; /* that came before its end */

static FtxStatus scenario(World *w, bool told, char *note, FtxError *err)
{
    Device *d = NULL;
    Session *s = NULL;
    Trace *t = NULL;
    uint32_t pages;
    FtxStatus status = device_cuda.open(&w->t.artifact, &w->t.plan, &one_thread, &d, err), left = FTX_OK;

    if (!status)
        status = device_cuda.session_open(d, 0, &s, &pages, err);
    if (!status)
        status = trace_open(&from_malloc, 50, told ? say : NULL, w, &t, err);
    if (!status)
        status = trace_enter(t, &device_cuda, s, err);
    if (!status) {
        for (uint32_t p = 0; p < PROGRAMS && !status; p++)
            status = t->api.run((Session *)(void *)t, p, 4, 2, 1, err);
        left = trace_leave(t, status ? NULL : err);
        calls_of_trace = fake.calls;
        strcpy(note, t->note);
    }
    trace_close(t);
    device_cuda.session_close(s);
    device_cuda.close(d);
    return status ? status : left;
}

static bool closes(const char *function)
{
    static const char *const words[] = {"Destroy", "Free", "Unload", "Release", "Pop"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(function, words[i]))
            return true;
    return false;
}

/* When CUPTI is left, it is asked once more for its buffers. */
static bool is_last_flush(unsigned long *flushes)
{
    return strcmp(fake.failed, "cupti_FlushAll") == 0 && ++*flushes == 1;
}

static void every_call_may_fail(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        unsigned long by_cupti = 0, loud = 0, flushes = 0;

        for (unsigned long n = 1;; n++) {
            World *w = world();
            FtxError err = {0};
            char note[400] = "";

            fake_reset();
            fake.cupti = kind % 2;
            fake.late = true;
            fake.contexts = 1; /* the program's own */
            fake.fail_at = n;
            const FtxStatus status = scenario(w, kind / 2, note, &err);
            if (fake.calls < n) {
                must(status, &err);
                free(w);
                break;
            }
            loud += status != FTX_OK;
            if (status && !strstr(err.text, "UNKNOWN") && !strstr(err.text, "CUBLAS_STATUS"))
                fail_msg("call %lu (%s): no reason in '%s'", n, fake.failed, err.text);
            if (!status && strncmp(fake.failed, "cupti_", 6) == 0 && strstr(note, "made to fail"))
                by_cupti++; /* events take its place */
            else if (!status && !closes(fake.failed) && n <= calls_of_trace && !is_last_flush(&flushes))
                fail_msg("kind %d: call %lu (%s) failed and nobody said so", kind, n, fake.failed);
            if (strcmp(fake.failed, "fake_CtxPushCurrent") != 0 && fake_open_things() > 1)
                fail_msg("call %lu (%s): %d things stay open", n, fake.failed, fake_open_things() - 1);
            free(w);
        }
        assert_true(loud > 50);
        assert_true(by_cupti > 5);
    }
    fake_reset();
}

/* A GPU that does not answer: the trace ends with that, and keeps what it has. */
static void a_lost_gpu_ends_the_trace(void **state)
{
    World *w = world();
    FtxError err = {0};
    Device *d;
    Session *s;

    (void)state;
    setenv("FTX_PATIENCE", "1", 1);
    open_both(w, &one_thread, &d, &s);
    unsetenv("FTX_PATIENCE");

    Trace *t = begin(w, s, 50, false);

    must(t->api.run((Session *)(void *)t, STEP_16, 1, 1, 1, &err), &err);
    fake.hang_at = fake.calls;
    assert_int_equal(t->api.wait((Session *)(void *)t, &err), FTX_EDEVICE);
    assert_int_equal(trace_leave(t, &err), FTX_EDEVICE);
    assert_non_null(strstr(err.text, "has not answered"));
    assert_int_equal(t->n, 2); /* run, wait: for FTX_PATIENCE */
    assert_true(t->event[1].to - t->event[1].from >= 1000000000);
    trace_close(t);
    device_cuda.session_close(s);
    device_cuda.close(d);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(kernels_have_their_names_by_cupti, reset_all),
        cmocka_unit_test_setup(work_in_the_callers_memory_is_recorded, reset_all),
        cmocka_unit_test_setup(no_memory_for_a_trace, reset_all),
        cmocka_unit_test_setup(other_records_do_no_harm, reset_all),
        cmocka_unit_test_setup(events_time_graphs_as_a_whole, reset_all),
        cmocka_unit_test_setup(a_second_session_is_timed_by_events, reset_all),
        cmocka_unit_test_setup(a_told_trace_names_each_launch, reset_all),
        cmocka_unit_test_setup(every_call_may_fail, reset_all),
        cmocka_unit_test_setup(a_lost_gpu_ends_the_trace, reset_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
