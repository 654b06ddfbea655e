/* test_sized.c - structs of ftx.h by the size that the caller says: shorter, longer, wrong. */
#include <stdio.h>

#include "jobs.h"
#include "runtime/base/sized.h"

/* Guards behind what a call writes, and a caller's struct that is longer than the library's. */
typedef struct Longer {
    FtxRequest request;
    uint64_t later[2];
} Longer;

typedef struct LongerEvent {
    FtxEvent event;
    uint64_t later[3];
} LongerEvent;

static void refused(FtxStatus s, const FtxError *err, const char *text)
{
    assert_int_equal(s, FTX_EINVAL);
    if (!strstr(err->text, text))
        fail_msg("expected '%s' in '%s'", text, err->text);
}

/* A struct ends with its last field: a later one could lie in padding, which older programs leave undefined. */
static void test_no_padding(void **state)
{
#define ENDS_WITH(type, field) assert_int_equal(offsetof(type, field) + sizeof(((type *)0)->field), sizeof(type))
    (void)state;
    ENDS_WITH(FtxOptions, gpu_layers);
    ENDS_WITH(FtxModelInfo, copy_us);
    ENDS_WITH(FtxRequest, states);
    ENDS_WITH(FtxEvent, states_count);
    ENDS_WITH(FtxStats, gap_seconds);
    ENDS_WITH(FtxEncode, text_ids);
    ENDS_WITH(FtxChat, time);
#undef ENDS_WITH
}

static void test_version(void **state)
{
    char text[20];

    (void)state;
    snprintf(text, sizeof text, "%d.%d", FTX_VERSION_MAJOR, FTX_VERSION_MINOR);
    assert_string_equal(ftx_version(), text);
    assert_int_equal(ftx_version_number(), FTX_VERSION_MAJOR * 1000 + FTX_VERSION_MINOR);
}

static void test_read(void **state)
{
    struct {
        size_t size;
        int a, b;
    } to;
    struct {
        size_t size;
        int a, b, c, d;
    } from = {sizeof(size_t), 5, 6, 0, 0};
    static const size_t wrong[] = {0, 1, 4, 12, 17, 65544, SIZE_MAX};
    FtxError err;

    (void)state;
#define READ (to.a = 1, to.b = 2, sized_read("Some", &from, &to, sizeof to, &err))
    assert_int_equal(READ, FTX_OK); /* nothing but the size */
    assert_true(to.size == sizeof to && to.a == 1 && to.b == 2);
    from.size = sizeof to;
    assert_int_equal(READ, FTX_OK);
    assert_true(to.size == sizeof to && to.a == 5 && to.b == 6);
    from.size = sizeof from;
    assert_int_equal(READ, FTX_OK);
    assert_true(to.size == sizeof to && to.a == 5 && to.b == 6);
    from.d = 1;
    refused(READ, &err, "Some.size is 24, this libftx (");
    refused(READ, &err, "knows 16 bytes, and a field after them is set: update libftx");
    from.size = sizeof to; /* what lies behind is not the struct's */
    assert_int_equal(READ, FTX_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        from.size = wrong[i];
        refused(READ, &err, "set it to sizeof(Some)");
    }
#undef READ
}

static void test_request(void **state)
{
    FakeSizes sizes = fake_sizes();
    Longer longer;
    FtxRequest q;
    FtxError err;
    Job job;
    Bed b;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    make_job(&job, 3, 5);
    longer = (Longer){.request = job.request};
    longer.request.size = sizeof longer;
    assert_int_equal(ftx_engine_submit(b.engine, &longer.request, NULL, &err), FTX_OK);
    longer.later[1] = 1;
    refused(ftx_engine_submit(b.engine, &longer.request, NULL, &err), &err, "FtxRequest.size is ");
    q = job.request;
    q.size = 0;
    refused(ftx_engine_submit(b.engine, &q, NULL, &err), &err, "FtxRequest.size is 0");

    /* A caller that knows no field behind the prompt gets the model's defaults: a window of garbage is not read. */
    memset(&q, 0xff, sizeof q);
    q.size = offsetof(FtxRequest, no_bos);
    q.text = NULL;
    q.ids = job.prompt;
    q.ids_count = 3;
    assert_int_equal(ftx_engine_submit(b.engine, &q, NULL, &err), FTX_OK);

    memset(&longer, 0xa5, sizeof longer); /* defaults by size: no more, and no less */
    longer.request.size = sizeof(FtxRequest) - 8;
    assert_int_equal(ftx_request_fill(b.model, &longer.request, &err), FTX_OK);
    assert_true(longer.request.top_p == 1.0f && longer.request.text == NULL);
    assert_true(longer.request.mask_user == NULL && longer.request.states == 0xa5a5a5a5a5a5a5a5);
    longer.request.size = sizeof longer;
    assert_int_equal(ftx_request_fill(b.model, &longer.request, &err), FTX_OK);
    assert_true(longer.request.user == NULL && longer.later[0] == 0 && longer.later[1] == 0);
    assert_int_equal(longer.request.size, sizeof longer);
    longer.request.size = 3;
    refused(ftx_request_fill(b.model, &longer.request, &err), &err, "FtxRequest.size is 3");
    q = ftx_request_default(b.model);
    assert_int_equal(q.size, sizeof q);
    close_bed(&b);
}

/* Events stand as far apart as the caller's header says. */
static void test_events(void **state)
{
    static const size_t sizes_of[] = {offsetof(FtxEvent, text), sizeof(FtxEvent), sizeof(LongerEvent)};
    FakeSizes sizes = fake_sizes();
    FtxError err;

    (void)state;
    for (size_t k = 0; k < sizeof sizes_of / sizeof *sizes_of; k++) {
        const size_t size = sizes_of[k], most = sizes.sequences;
        unsigned char *room = malloc((most + 1) * sizeof(LongerEvent));
        Job job[3];
        FtxEvent first;
        size_t n;
        Bed b;

        memset(room, 0xa5, (most + 1) * sizeof(LongerEvent));
        memcpy(room, &size, sizeof size);
        reset_fake(false, 0);
        open_bed(&b, &sizes);
        for (int i = 0; i < 3; i++) {
            make_job(&job[i], 2, (uint64_t)i);
            submit(&b, &job[i]);
        }
        assert_int_equal(ftx_engine_step(b.engine, (FtxEvent *)room, most, &n, &err), FTX_OK);
        assert_int_equal(n, 3);
        for (size_t i = 0; i < n; i++) {
            memset(&first, 0, sizeof first);
            memcpy(&first, room + i * size, size < sizeof first ? size : sizeof first);
            assert_int_equal(first.size, size);
            assert_int_equal(first.request, job[i].id);
            assert_ptr_equal(first.user, &job[i]);
            for (size_t at = sizeof first; at < size; at++)
                assert_int_equal(room[i * size + at], 0);
        }
        for (size_t at = n * size; at < (most + 1) * sizeof(LongerEvent); at++)
            assert_int_equal(room[at], 0xa5);
        ((FtxEvent *)room)->size = 0;
        refused(ftx_engine_step(b.engine, (FtxEvent *)room, most, &n, &err), &err, "FtxEvent.size is 0");
        assert_int_equal(n, 0);
        assert_true(ftx_engine_busy(b.engine)); /* nothing has changed */
        for (int i = 0; i < 3; i++)
            assert_int_equal(ftx_engine_cancel(b.engine, job[i].id, &err), FTX_OK);
        while (ftx_engine_busy(b.engine)) {
            ((FtxEvent *)room)->size = size;
            assert_int_equal(ftx_engine_step(b.engine, (FtxEvent *)room, most, &n, &err), FTX_OK);
        }
        close_bed(&b);
        free(room);
    }
}

static void test_options(void **state)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxModelInfo info;
    FakeSizes sizes = fake_sizes();
    FtxModel *model;
    FtxEngine *engine;
    FtxError err;
    Bed b;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    o.size = 0;
    refused(ftx_model_open("none.ftx", &o, &model, &err), &err, "FtxOptions.size is 0");
    refused(ftx_engine_open(b.model, &o, &engine, &err), &err, "FtxOptions.size is 0");
    assert_null(engine);
    memset(&o, 0xff, sizeof o); /* its allocator is not read */
    o.size = offsetof(FtxOptions, device);
    assert_int_equal(ftx_engine_open(b.model, &o, &engine, &err), FTX_OK);
    ftx_engine_close(engine);

    memset(&info, 0xa5, sizeof info);
    info.size = offsetof(FtxModelInfo, weight_bytes);
    assert_int_equal(ftx_model_describe(b.model, &info), FTX_OK);
    assert_int_equal(info.vocab, sizes.vocab);
    assert_int_equal(info.workspace_bytes, 0xa5a5a5a5a5a5a5a5);
    info.size = 0;
    assert_int_equal(ftx_model_describe(b.model, &info), FTX_EINVAL);
    ftx_model_info(b.model, &info);
    assert_int_equal(info.size, sizeof info);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version), cmocka_unit_test(test_no_padding), cmocka_unit_test(test_read),
        cmocka_unit_test(test_request), cmocka_unit_test(test_events),     cmocka_unit_test(test_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
