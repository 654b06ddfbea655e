/* test_trace.c - the recorder: what fits is kept, what is told, and the file that is written. */
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "runtime/device/trace.h"
#include "tests/temp.h"

static const Memory from_malloc;
static char told[2000];

static void tell(void *user, int level, const char *text)
{
    (void)user, (void)level;
    strcat(strcat(told, text), "\n");
}

static Trace *opened(size_t room, bool is_told)
{
    Trace *t;

    assert_int_equal(trace_open(&from_malloc, room, is_told ? tell : NULL, NULL, &t, NULL), FTX_OK);
    t->start = 1000;
    return t;
}

static void add(Trace *t, TraceTrack track, int64_t from, int64_t to, uint32_t run, const char *name)
{
    trace_add(t, (TraceEvent){.from = 1000 + from,
                              .to = 1000 + to,
                              .track = track,
                              .run = run,
                              .name = name,
                              .kernel = track == TRACE_DEVICE ? "kernel__x" : NULL});
}

static char *written(const Trace *t)
{
    static char text[100000];
    const char *path = temp_path("trace.json");
    FtxError err = {0};
    FILE *f;

    if (trace_write(t, "mod\"el\n", "cpu", path, &err))
        fail_msg("%s", err.text);
    f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    remove(path);
    return text;
}

static void holds(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("%s is not in\n%s", part, text);
}

static void the_file_has_tracks_and_arrows(void **state)
{
    Trace *t = opened(100, false);

    (void)state;
    strcpy(t->note, "a note");
    add(t, TRACE_HOST, 0, 500, 1, "run");
    add(t, TRACE_DEVICE, 1000, 3500, 1, "first");
    add(t, TRACE_DEVICE, 3000, 4000, 1, "overlaps");
    add(t, TRACE_DEVICE, 3250, 3600, 1, "both");
    add(t, TRACE_DEVICE, 3500, 5000, 1, "on the first track");
    add(t, TRACE_DEVICE, 4000, 4100, 2, "on the second track");
    trace_add(t, (TraceEvent){.from = 7000, .to = 7001, .name = "copy", .bytes = 77, .track = TRACE_DEVICE});
    trace_add(t, (TraceEvent){.from = 8000, .to = 8001, .name = "whole", .T = 5, .S = 2, .track = TRACE_DEVICE});

    const char *text = written(t);
    holds(text, "\"model\":\"mod?el?\",\"device\":\"cpu\",\"device_times\":\"a note\",\"dropped_events\":0}");
    holds(text, "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":0.000,\"dur\":0.500,\"cat\":\"host\",\"name\":\"run\","
                "\"args\":{\"run\":1}},\n{\"ph\":\"s\",\"pid\":1,\"tid\":1,\"ts\":0.000,\"id\":1,");
    holds(text, "\"tid\":2,\"ts\":1.000,\"dur\":2.500,\"cat\":\"kernel\",\"name\":\"first\","
                "\"args\":{\"kernel\":\"kernel__x\",\"run\":1}},\n{\"ph\":\"f\",\"bp\":\"e\",\"pid\":1,\"tid\":2,"
                "\"ts\":1.000,\"id\":1,\"cat\":\"run\",\"name\":\"run\"},\n{\"ph\":\"X\",\"pid\":1,\"tid\":3,");
    holds(text, "\"tid\":4,\"ts\":3.250,\"dur\":0.350,\"cat\":\"kernel\",\"name\":\"both\"");
    holds(text, "\"tid\":2,\"ts\":3.500,\"dur\":1.500,\"cat\":\"kernel\",\"name\":\"on the first track\"");
    holds(text, "\"tid\":3,\"ts\":4.000,\"dur\":0.100,\"cat\":\"kernel\",\"name\":\"on the second track\"");
    holds(text, "\"id\":2");
    assert_null(strstr(strstr(strstr(text, "\"ph\":\"f\"") + 1, "\"ph\":\"f\"") + 1, "\"ph\":\"f\"")); /* two */
    holds(text, "\"cat\":\"copy\",\"name\":\"copy\",\"args\":{\"bytes\":77}}");
    holds(text, "\"cat\":\"program\",\"name\":\"whole\",\"args\":{\"T\":5,\"S\":2}}\n]}\n");
    trace_close(t);
}

static void what_does_not_fit_is_counted(void **state)
{
    Trace *t = opened(3, true);

    (void)state;
    told[0] = '\0';
    for (int i = 0; i < 5; i++)
        add(t, i ? TRACE_DEVICE : TRACE_HOST, i * 1000, i * 1000 + 250, 1, "name");
    trace_add(t,
              (TraceEvent){.from = 1000, .to = 1000, .name = "c", .bytes = 8, .T = 1, .S = 2, .track = TRACE_DEVICE});
    assert_string_equal(told, "host name: 0.2 us at 0.000000 s\n"
                              "launch name: kernel__x: 0.2 us at 0.000001 s\n"
                              "launch name: kernel__x: 0.2 us at 0.000002 s\n"
                              "launch name: kernel__x: 0.2 us at 0.000003 s\n"
                              "launch name: kernel__x: 0.2 us at 0.000004 s\n"
                              "device c T=1 S=2, 8 bytes: 0.0 us at 0.000000 s\n");
    assert_int_equal(t->n, 3);
    holds(written(t), "\"dropped_events\":3}");
    trace_close(t);
}

/* More than the buffer of the writer holds, and names of any length. */
static void a_long_file_is_whole(void **state)
{
    enum { MANY = 300 };
    static char name[3000];
    Trace *t = opened(MANY, false);
    size_t found = 0;

    (void)state;
    memset(name, 'n', sizeof name - 1);
    for (int i = 0; i < MANY; i++)
        add(t, TRACE_DEVICE, i * 10, i * 10 + 5, 0, i ? "short" : name);

    const char *text = written(t);
    for (const char *p = text; (p = strstr(p, "\"name\":\"short\"")); p++)
        found++;
    assert_int_equal(found, MANY - 1);
    assert_non_null(strstr(text, "nnnn\",\"args\""));
    assert_string_equal(text + strlen(text) - 4, "\n]}\n");
    trace_close(t);
}

/* Writes to a file that may have `most` bytes. */
static FtxStatus write_into(const Trace *t, const char *path, rlim_t most, FtxError *err)
{
    void (*const before)(int) = signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit, small;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const FtxStatus s = trace_write(t, "m", "cpu", path, err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, before);
    return s;
}

static void failures_are_told(void **state)
{
    const char *path = temp_path("short.json");
    Trace *t = opened(1, false), *none;
    char pattern[300];
    FtxError err;
    glob_t left;

    (void)state;
    assert_int_equal(write_into(t, path, 100, &err), FTX_EIO);
    assert_non_null(strstr(err.text, "short.json: File too large"));
    assert_int_equal(glob(strcat(strcpy(pattern, path), "*"), 0, NULL, &left), GLOB_NOMATCH); /* no part of it */
    assert_int_equal(trace_write(t, "m", "cpu", "/proc/none/x.json", &err), FTX_EIO);
    assert_non_null(strstr(err.text, "/proc/none/x.json: cannot be written"));
    trace_close(t);
    assert_int_equal(trace_open(&from_malloc, SIZE_MAX / 4, NULL, NULL, &none, &err), FTX_ENOMEM);
    assert_null(none);
    trace_close(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_has_tracks_and_arrows),
        cmocka_unit_test(what_does_not_fit_is_counted),
        cmocka_unit_test(a_long_file_is_whole),
        cmocka_unit_test(failures_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
