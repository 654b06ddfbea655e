/* test_kept.c - a model on the CPU whose requests are preempted: with their pages copied to the host and back, tokens, texts and
 * states are, bit for bit, those of an engine with room for all. */
#include "golden.h"

enum { REQUESTS = 10, PROMPT = 21, NEW = 150, MOST = PROMPT + NEW, MOST_WIDTH = 1024 };

typedef struct Result {
    int32_t ids[NEW];
    float logprobs[NEW], (*states)[MOST_WIDTH];
    size_t n, rows;
} Result;

static Result result[2][REQUESTS];

static FtxStats run_all(FtxModel *model, const FtxOptions *o, Result *to)
{
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    FtxModelInfo info;
    FtxEngine *engine;
    FtxStats stats;
    FtxError err;
    size_t n;

    ftx_model_info(model, &info);
    assert_in_range(info.states, 1, MOST_WIDTH);
    if (ftx_engine_open(model, o, &engine, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < REQUESTS; i++) {
        FtxRequest q = ftx_request_default(model);
        int32_t ids[PROMPT];

        for (int k = 0; k < PROMPT; k++)
            ids[k] = (17 * i + 5 * k + 3) % info.vocab;
        q.ids = ids;
        q.ids_count = PROMPT;
        q.max_new = NEW;
        q.ignore_eos = q.logprobs = true;
        q.temperature = i % 2 ? 0.8f : 0.0f;
        q.repetition_penalty = 1.1f; /* reads the history */
        q.seed = (uint64_t)i;
        q.states = FTX_STATES_TOKENS;
        q.user = &to[i];
        to[i] = (Result){.states = calloc(MOST, sizeof *to[i].states)};
        if (ftx_engine_submit(engine, &q, NULL, &err))
            fail_msg("%s", err.text);
    }
    while (ftx_engine_busy(engine)) {
        if (ftx_engine_step(engine, ev, 64, &n, &err))
            fail_msg("%s", err.text);
        for (size_t i = 0; i < n; i++) {
            Result *r = ev[i].user;

            for (size_t k = 0; k < ev[i].states_count; k++, r->rows++)
                memcpy(r->states[r->rows], ev[i].states + k * info.states, info.states * sizeof(float));
            if (ev[i].token >= 0) {
                r->ids[r->n] = ev[i].token;
                r->logprobs[r->n++] = ev[i].logprob;
            }
        }
    }
    stats = ftx_engine_stats(engine);
    ftx_engine_close(engine);
    return stats;
}

static void test_same(void **state)
{
    FtxModel *model = golden_open("specs/fable.lua", "fable-states", "-D states=true");
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxStats stats;
    FtxModelInfo info;

    (void)state;
    run_all(model, &o, result[0]);
    ftx_model_info(model, &info);
    o.kv_bytes = info.kv_token_bytes * 16 * 40; /* 40 pages for some 110 */
    o.overcommit = 1;
    o.swap_bytes = info.kv_token_bytes * 16 * 100;
    stats = run_all(model, &o, result[1]);
    assert_true(stats.preemptions > 0 && stats.swaps > 0);
    assert_int_equal(stats.free_swap_pages, stats.swap_pages);
    for (int i = 0; i < REQUESTS; i++) {
        const Result *a = &result[0][i], *b = &result[1][i];

        assert_int_equal(a->n, NEW);
        assert_int_equal(b->n, NEW);
        assert_memory_equal(a->ids, b->ids, sizeof a->ids);
        assert_memory_equal(a->logprobs, b->logprobs, sizeof a->logprobs);
        assert_int_equal(a->rows, MOST - 1);
        assert_int_equal(b->rows, MOST - 1);
        assert_memory_equal(a->states, b->states, MOST * sizeof *a->states);
        free(a->states);
        free(b->states);
    }
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
