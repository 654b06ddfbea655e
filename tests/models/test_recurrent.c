/* test_recurrent.c - a decoder with recurrent states: each request gives, bit for bit, the tokens and logits that it gives alone
 * with its whole prompt in one step: beside others, with its prompt in pieces, in a slot that others had before, and when it
 * is preempted and computed anew. Weights are drawn by their names. */
#include "golden.h"

enum { VOCAB = 67, NEW = 150, REQUESTS = 13, MOST = 45 };

typedef struct Result {
    GoldenAnswer answer;
    float logits[VOCAB];
} Result;

static FtxModel *open_model(const char *name, const char *options)
{
    FtxOptions o = {.size = sizeof(FtxOptions),
                    .device = golden_on_cuda() ? FTX_DEVICE_CUDA : FTX_DEVICE_CPU,
                    .random_weights = true};
    const char *target = getenv("FTX_TEST_TARGET");
    char path[1000], command[4000];
    FtxModel *model;
    FtxError err;

    golden_path(name, path, sizeof path);
    if (!getenv("FTX_TEST_ARTIFACTS")) {
        snprintf(command, sizeof command, "%s compile tests/models/recurrent/recur.lua -o %s -q -t %s%scpu %s",
                 getenv("FTXC"), path, target ? target : "", target ? "," : "", options);
        assert_int_equal(system(command), 0);
    }
    if (ftx_model_open(path, &o, &model, &err))
        fail_msg("%s: %s", path, err.text);
    return model;
}

/* Request i: prompts of 1 to MOST tokens. */
static FtxRequest request_of(const FtxModel *model, int i, int32_t ids[MOST])
{
    FtxRequest q = ftx_request_default(model);

    for (int k = 0; k < MOST; k++)
        ids[k] = (k * k + (3 + i) * k + 5 * i) % VOCAB;
    q.ids = ids;
    q.ids_count = (size_t)(i == 1 ? 1 : 7 + i * 29 % (MOST - 6));
    q.temperature = i % 3 ? 0.0f : 0.8f;
    q.seed = (uint64_t)i;
    q.max_new = NEW;
    q.ignore_eos = true;
    q.logits = true;
    return q;
}

static void take(FtxModel *model, FtxEngine *engine, uint64_t id, Result *r)
{
    (void)model;
    assert_int_equal(r->answer.n, NEW);
    memcpy(r->logits, ftx_engine_logits(engine, id), sizeof r->logits);
}

static void run_alone(FtxModel *model, Result *r)
{
    for (int i = 0; i < REQUESTS; i++) {
        FtxEngine *engine = golden_engine(model);
        int32_t ids[MOST];
        FtxRequest q = request_of(model, i, ids);
        uint64_t id;

        q.user = &r[i].answer;
        id = golden_submit(engine, &q);
        golden_finish(engine);
        take(model, engine, id, &r[i]);
        ftx_engine_close(engine);
    }
}

/* All at once: more requests than sequences. */
static FtxStats run_together(FtxModel *model, const FtxOptions *o, Result *r)
{
    int32_t ids[REQUESTS][MOST];
    uint64_t id[REQUESTS];
    FtxEngine *engine;
    FtxStats stats;
    FtxError err;

    if (ftx_engine_open(model, o, &engine, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < REQUESTS; i++) {
        FtxRequest q = request_of(model, i, ids[i]);

        q.user = &r[i].answer;
        id[i] = golden_submit(engine, &q);
    }
    golden_finish(engine);
    for (int i = 0; i < REQUESTS; i++)
        take(model, engine, id[i], &r[i]);
    stats = ftx_engine_stats(engine);
    ftx_engine_close(engine);
    return stats;
}

static void assert_same(const char *what, const Result *a, const Result *b)
{
    for (int i = 0; i < REQUESTS; i++) {
        if (memcmp(a[i].answer.ids, b[i].answer.ids, NEW * sizeof *a->answer.ids) != 0)
            fail_msg("%s: the tokens of request %d differ", what, i);
        if (!golden_on_cuda() && memcmp(a[i].logits, b[i].logits, sizeof a->logits) != 0)
            fail_msg("%s: the logits of request %d differ", what, i);
    }
}

static void test_same(void **state)
{
    static Result alone[REQUESTS], other[REQUESTS];
    FtxModel *model = open_model("recur-whole", "-D limits.tokens=96");
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxModelInfo info;

    (void)state;
    run_alone(model, alone);
    run_together(model, NULL, other);
    assert_same("together", alone, other);
    ftx_model_close(model);

    model = open_model("recur-pieces", "-D limits.tokens=11");
    memset(other, 0, sizeof other);
    run_alone(model, other);
    assert_same("in pieces", alone, other);
    memset(other, 0, sizeof other);
    run_together(model, NULL, other);
    assert_same("in pieces, together", alone, other);

    ftx_model_info(model, &info);
    o.kv_bytes = info.kv_token_bytes * 8 * 80; /* 80 pages, and six requests take some 140 */
    o.overcommit = 1;
    memset(other, 0, sizeof other);
    assert_true(run_together(model, &o, other).preemptions > 0);
    assert_same("preempted", alone, other);
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
