/* test_engine_refusals.c - an engine that cannot do what it is asked: its device has failed, its plan lacks a program, the
 * cache is too small, the model is of another kind. Each says so and stays as it was. */
#include "jobs.h"

static void says(FtxStatus s, FtxStatus expected, const FtxError *err, const char *text)
{
    if (s != expected || strcmp(err->text, text) != 0)
        fail_msg("status %d, \"%s\"; expected %d, \"%s\"", (int)s, err->text, (int)expected, text);
}

/* Once the device has failed every call repeats the reason. */
static void test_dead(void **state)
{
    static const int32_t ids[] = {1, 2, 3};
    const FakeSizes sizes = fake_sizes();
    const FtxEncode encode = {.size = sizeof encode};
    float logprobs[3];
    double median, least, most;
    FtxEvent event[4] = {FTX_EVENT_INIT};
    char reason[sizeof(((FtxError *)0)->text)];
    FtxError err = {FTX_OK, ""};
    FtxStatus s = FTX_OK;
    size_t n;
    Bed b;
    Job j;

    (void)state;
    reset_fake(false, 0);
    fake.token = 61;
    open_bed(&b, &sizes);
    make_job(&j, 3, 1);
    submit(&b, &j);
    while (!s && ftx_engine_busy(b.engine))
        s = ftx_engine_step(b.engine, event, 4, &n, &err);
    says(s, FTX_EDEVICE, &err, "request 1: the device chose token 61 at position 3, of 61 tokens");
    strcpy(reason, err.text);
    fake.token = 0;
    says(ftx_engine_encode(b.engine, &encode, &err), FTX_EDEVICE, &err, reason);
    says(ftx_engine_score(b.engine, ids, 3, logprobs, &err), FTX_EDEVICE, &err, reason);
    says(ftx_engine_bench(b.engine, 1, 1, 4, 5, &median, &least, &most, &err), FTX_EDEVICE, &err, reason);
    close_bed(&b);
}

/* Plans that artifact_open accepts and no engine can run. */
static void test_plans(void **state)
{
    const FakeSizes sizes = fake_sizes();
    FakeArtifact f;
    FtxModel *m;
    FtxEngine *e;
    FtxError err;

    (void)state;
    reset_fake(false, 0);
    fake_artifact(&f, &sizes);
    f.plan.named[FTX_NAMED_rows] += 8;
    assert_int_equal(fake_model(&f, NULL, &m, &err), FTX_OK);
    says(ftx_engine_open(m, NULL, &e, &err), FTX_EFORMAT, &err,
         "plan: named buffer 1 is at 72, not at a multiple of 16");
    assert_null(e);
    ftx_model_close(m);

    fake_artifact(&f, &sizes);
    f.program[0].bucket = 8; /* beside 16 */
    assert_int_equal(fake_model(&f, NULL, &m, &err), FTX_OK);
    says(ftx_engine_open(m, NULL, &e, &err), FTX_EFORMAT, &err, "plan: no program takes a step of 20 tokens");
    assert_null(e);
    ftx_model_close(m);
}

/* A cache of fewer pages than a text needs. */
static void test_pages(void **state)
{
    static const int32_t ids[30] = {1};
    FakeSizes sizes = fake_sizes();
    float logprobs[30];
    double median, least, most;
    FtxError err;
    Bed b;

    (void)state;
    sizes.kv_pages = 5;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    says(ftx_engine_score(b.engine, ids, 30, logprobs, &err), FTX_EFULL, &err,
         "30 tokens need 8 KV pages of 4 tokens; there are 5: raise the spec's kv.pages");
    says(ftx_engine_bench(b.engine, 2, 1, 8, 5, &median, &least, &most, &err), FTX_EFULL, &err,
         "2 sequences of 9 tokens need more than the 5 KV pages of 4 tokens: raise the spec's kv.pages");
    says(ftx_engine_bench(b.engine, 1, 0, 8, 5, &median, &least, &most, &err), FTX_EINVAL, &err,
         "expected 1 token or more after 0 or more");
    assert_idle(b.engine);
    close_bed(&b);
}

/* As many requests as there can be: no memory of a request is left for what needs the engine for itself. */
static void test_full(void **state)
{
    static const int32_t ids[3] = {1};
    const FakeSizes sizes = fake_sizes();
    const unsigned all = 5 * sizes.sequences;
    float logprobs[3];
    double median, least, most;
    FtxError err = {FTX_OK, ""};
    FtxEvent event[4] = {FTX_EVENT_INIT};
    size_t n;
    Job j[20];
    Bed b;

    (void)state;
    assert_int_equal(all, 20);
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    for (unsigned i = 0; i < all; i++) {
        make_job(&j[i], 3, i);
        j[i].request.max_new = 4;
        j[i].request.ignore_eos = true;
        expect(&b, &j[i]);
        if (i == sizes.sequences) /* the first ones run, the others wait */
            assert_int_equal(ftx_engine_step(b.engine, event, 4, &n, &err), FTX_OK);
        submit(&b, &j[i]);
    }
    assert_int_equal(b.engine->unused.n, 0);
    says(ftx_engine_score(b.engine, ids, 3, logprobs, &err), FTX_EINVAL, &err,
         "requests wait or run: score needs the engine for itself");
    assert_int_equal(ftx_engine_bench(b.engine, 1, 1, 4, 5, &median, &least, &most, &err), FTX_EINVAL);
    run(&b);
    assert_idle(b.engine);
    close_bed(&b);
}

/* A plan whose buffers of the host are in another order than named.def: all of them go to the device. */
static void test_order_of_buffers(void **state)
{
    const FakeSizes sizes = fake_sizes();
    Bed b = {.sizes = sizes};
    Job j;

    (void)state;
    reset_fake(false, 0);
    fake_artifact(&b.artifact, &sizes);
    b.artifact.plan.named[FTX_NAMED_params] = b.artifact.plan.space_bytes[FTX_SPACE_IO];
    b.artifact.plan.space_bytes[FTX_SPACE_IO] += 1024;
    assert_int_equal(fake_model(&b.artifact, NULL, &b.model, NULL), FTX_OK);
    assert_int_equal(ftx_engine_open(b.model, NULL, &b.engine, NULL), FTX_OK);
    make_job(&j, 3, 1);
    expect(&b, &j);
    submit(&b, &j);
    run(&b);
    compare(&j);
    assert_int_equal(fake.uploaded, b.artifact.plan.space_bytes[FTX_SPACE_IO]);
    close_bed(&b);
}

/* An encoder that gives a vector a token only, and takes no hidden states. */
static void test_encoder(void **state)
{
    static const int32_t ids[] = {1, 2}, lengths[] = {2};
    static const float input[] = {1};
    float pooled[4];
    FakeSizes sizes = fake_sizes();
    FtxEncode encode = {.size = sizeof encode, .count = 1, .ids = ids, .lengths = lengths, .pooled = pooled};
    double median, least, most;
    FakeArtifact f;
    FtxModel *m;
    FtxEngine *e;
    FtxError err;

    (void)state;
    reset_fake(false, 0);
    sizes.tokens = sizes.context;
    fake_artifact(&f, &sizes);
    f.facts.kind = FTX_MODEL_ENCODER;
    f.program[0].kind = FTX_PROG_ENCODE;
    assert_int_equal(fake_model(&f, NULL, &m, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(m, NULL, &e, &err), FTX_OK);
    says(ftx_engine_encode(e, &encode, &err), FTX_EINVAL, &err,
         "pooled: the model gives a vector a token only; -D pooling=mean when it is compiled makes one a text");
    const FtxRequest request = {.size = sizeof request, .ids = ids, .ids_count = 2};
    says(ftx_engine_submit(e, &request, NULL, &err), FTX_EINVAL, &err,
         "the model is an encoder: it gives vectors, see ftx_engine_encode");
    encode = (FtxEncode){.size = sizeof encode, .count = 1, .input = input, .lengths = lengths};
    says(ftx_engine_encode(e, &encode, &err), FTX_EINVAL, &err,
         "input: the model takes no hidden states; nn.embedded in its spec says where");
    says(ftx_engine_bench(e, 2, 30, 0, 5, &median, &least, &most, &err), FTX_EINVAL, &err,
         "2 texts of 30 tokens (30 in the mean) exceed the context of 40 or the 40 tokens of a step");
    says(ftx_engine_bench(e, 4, 40, 10, 5, &median, &least, &most, &err), FTX_EINVAL, &err,
         "4 texts have more than the 40 tokens of a step"); /* their lengths go from 1 to 40 */
    ftx_engine_close(e);
    ftx_model_close(m);
    assert_int_equal(fake.opens, fake.closes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dead),
                                       cmocka_unit_test(test_plans),
                                       cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_pages),
                                       cmocka_unit_test(test_order_of_buffers),
                                       cmocka_unit_test(test_encoder)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
