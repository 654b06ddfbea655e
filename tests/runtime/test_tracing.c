/* test_tracing.c - ftx_engine_trace_begin and _end, and FTX_TRACE, on the fake device. */
#include <stdio.h>

#include "jobs.h"
#include "tests/temp.h"

static char text[200000];

static void read_file(const char *path)
{
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    remove(path);
}

static int count(const char *part)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, part)); p++)
        n++;
    return n;
}

static void run_job(Bed *b)
{
    Job j;

    make_job(&j, 3, 1);
    expect(b, &j);
    submit(b, &j);
    run(b);
    compare(&j);
}

static void test_file(void **state)
{
    const char *path = temp_path("tracing.json");
    const FakeSizes sizes = fake_sizes();
    FtxError err = {0};
    Bed b;

    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        reset_fake(asynchronous, 300);
        open_bed(&b, &sizes);
        assert_int_equal(ftx_engine_trace_end(b.engine, path, &err), FTX_EINVAL);
        assert_string_equal(err.text, "ftx_engine_trace_end: no trace is being recorded");
        assert_int_equal(ftx_engine_trace_begin(b.engine, 0, &err), FTX_EINVAL);
        assert_string_equal(err.text, "events: expected 1 or more");
        run_job(&b);
        assert_null(fake.traced);
        assert_int_equal(ftx_engine_trace_begin(b.engine, 1000, &err), FTX_OK);
        assert_non_null(fake.traced);
        assert_int_equal(ftx_engine_trace_begin(b.engine, 1000, &err), FTX_EINVAL);
        assert_string_equal(err.text, "ftx_engine_trace_begin: a trace is being recorded");
        const int before = fake.runs;
        run_job(&b);
        assert_int_equal(ftx_engine_trace_end(b.engine, path, &err), FTX_OK);
        assert_null(fake.traced);
        read_file(path);
        assert_true(count("\"name\":\"step\"") > 1);
        assert_true(count("\"name\":\"run\",\"args\"") > 1 && count("\"name\":\"run\",\"args\"") <= fake.runs - before);
        assert_true(count("\"name\":\"run\",\"args\":{\"run\":1,\"T\":3,\"S\":1}") == 1);
        assert_true(count("\"name\":\"upload\"") >= 1);
        assert_true(!asynchronous || count("\"name\":\"wait for a token\"") > 1);
        run_job(&b); /* by the device's own table again */
        fake.made_up = true;
        assert_int_equal(ftx_engine_trace_begin(b.engine, 1000, &err), FTX_OK);
        assert_int_equal(ftx_engine_bench(b.engine, 1, 1, 4, 5, &(double){0}, &(double){0}, &(double){0}, &err),
                         FTX_OK);
        assert_int_equal(ftx_engine_profile(b.engine, false, &(const FtxProfile *){NULL}, &(size_t){0}, &err), FTX_OK);
        assert_int_equal(ftx_engine_trace_end(b.engine, path, &err), FTX_OK);
        fake.made_up = false;
        read_file(path);
        assert_true(count("\"name\":\"time\",\"args\":{\"run\":1,\"T\":1,\"S\":1}") == 1);
        assert_int_equal(ftx_engine_trace_begin(b.engine, 10, &err), FTX_OK);
        assert_int_equal(ftx_engine_trace_end(b.engine, NULL, &err), FTX_OK); /* thrown away */
        assert_int_equal(ftx_engine_trace_begin(b.engine, 10, &err), FTX_OK);
        assert_int_equal(ftx_engine_trace_end(b.engine, "/proc/none/t.json", &err), FTX_EIO);
        assert_int_equal(ftx_engine_trace_begin(b.engine, 10, &err), FTX_OK);
        close_bed(&b); /* the trace goes with the engine */
        assert_null(fake.traced);
    }
}

static void test_device_fails(void **state)
{
    const char *path = temp_path("tracing.json");
    const FakeSizes sizes = fake_sizes();
    FtxEvent event[4] = {FTX_EVENT_INIT};
    FtxError err = {0};
    FtxStatus s = FTX_OK;
    size_t n;
    Bed b;
    Job j;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    fake.trace = FTX_EDEVICE;
    assert_int_equal(ftx_engine_trace_begin(b.engine, 100, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "the fake device does not trace");
    fake.trace = FTX_OK;
    assert_int_equal(ftx_engine_trace_begin(b.engine, 100, &err), FTX_OK);
    make_job(&j, 3, 1);
    submit(&b, &j);
    fake.fail_at = fake.runs + 2;
    while (!s && ftx_engine_busy(b.engine))
        s = ftx_engine_step(b.engine, event, 4, &n, &err);
    assert_int_equal(s, FTX_EDEVICE);
    fake.trace = FTX_EDEVICE; /* what the device has done is not known, what the host has is written */
    assert_int_equal(ftx_engine_trace_end(b.engine, path, &err), FTX_EDEVICE);
    read_file(path);
    assert_int_equal(count("\"name\":\"run\",\"args\""), 2);
    assert_int_equal(ftx_engine_trace_begin(b.engine, 100, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "the fake device has failed");
    close_bed(&b);
}

static void keep(void *user, int level, const char *line)
{
    (void)user, (void)level;
    strcat(strcat(text, line), "\n");
}

/* FTX_TRACE tells the same events to the log; with a file both. */
static void test_log(void **state)
{
    const FtxOptions o = {.size = sizeof(FtxOptions), .log = keep};
    const char *path = temp_path("tracing.json");
    FakeSizes sizes = fake_sizes();
    FtxError err = {0};
    Bed b;

    (void)state;
    reset_fake(false, 0);
    fake_artifact(&b.artifact, &sizes);
    b.sizes = sizes;
    assert_int_equal(fake_model(&b.artifact, &o, &b.model, &err), FTX_OK);
    text[0] = '\0';
    setenv("FTX_TRACE", "1", 1);
    assert_int_equal(ftx_engine_open(b.model, NULL, &b.engine, &err), FTX_OK);
    run_job(&b);
    assert_true(count("host step: ") > 1 && count("host run T=1 S=1: ") > 1);
    assert_int_equal(ftx_engine_trace_end(b.engine, path, &err), FTX_EINVAL); /* it is no file */
    text[0] = '\0';
    assert_int_equal(ftx_engine_trace_begin(b.engine, 1000, &err), FTX_OK);
    unsetenv("FTX_TRACE");
    run_job(&b);
    assert_int_equal(ftx_engine_trace_end(b.engine, path, &err), FTX_OK);
    assert_true(count("host step: ") > 1);
    read_file(path);
    assert_true(count("\"name\":\"step\"") > 1);
    text[0] = '\0';
    run_job(&b);
    assert_string_equal(text, "");
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_file), cmocka_unit_test(test_device_fails),
                                       cmocka_unit_test(test_log)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
