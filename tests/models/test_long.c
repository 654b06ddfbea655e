/* test_long.c - very large limits: an artifact for 256 sequences of 131,072 tokens, whose full KV cache fits no
 * machine, opens in little memory and gives the same tokens as one with small limits. */
#include <unistd.h>

#include "golden.h"
#include "runtime/engine/engine.h"

enum { SEQUENCES = 256, CONTEXT = 131072, REQUESTS = 24, PROMPT = 40, NEW = 30, BLOCK = 16 };

/* Resident memory of this process in bytes. */
static size_t resident(void)
{
    unsigned long all = 0, now = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &all, &now), 2);
    fclose(f);
    return (size_t)now * (size_t)sysconf(_SC_PAGESIZE);
}

static FtxEngine *open_engine(FtxModel *model, uint64_t kv_bytes)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxEngine *e;
    FtxError err;

    o.kv_bytes = kv_bytes;
    if (ftx_engine_open(model, &o, &e, &err))
        fail_msg("%s", err.text);
    return e;
}

static void answer(FtxModel *model, FtxEngine *e, GoldenAnswer *answers)
{
    memset(answers, 0, REQUESTS * sizeof *answers);
    for (int i = 0; i < REQUESTS; i++) {
        int32_t ids[PROMPT];
        FtxRequest q = ftx_request_default(model);

        for (int k = 0; k < PROMPT; k++)
            ids[k] = (i * 31 + k * 7) % 200 + 3;
        q.ids = ids;
        q.ids_count = (size_t)(1 + i * 11 % PROMPT);
        q.max_new = NEW;
        q.ignore_eos = true;
        q.temperature = i % 2 ? 0.8f : 0.0f;
        q.seed = (uint64_t)i;
        q.user = &answers[i];
        golden_submit(e, &q);
    }
    golden_finish(e);
}

static void same(const GoldenAnswer *a, const GoldenAnswer *b)
{
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(a[i].n, NEW);
        assert_int_equal(b[i].n, NEW);
        assert_memory_equal(a[i].ids, b[i].ids, NEW * sizeof *a[i].ids);
    }
}

static void test_limits(void **state)
{
    static GoldenAnswer small[REQUESTS], large[REQUESTS];
    FtxModel *model =
        golden_open("tests/models/tiny-llama", "long-small", "-D limits.sequences=6 -D limits.context=128");
    FtxEngine *e = open_engine(model, 0);
    FtxModelInfo info;
    size_t before, after;

    (void)state;
    answer(model, e, small);
    ftx_engine_close(e);
    ftx_model_close(model);

    model = golden_open("tests/models/tiny-llama", "long", "-D limits.sequences=256 -D limits.context=131072");
    ftx_model_info(model, &info);
    assert_int_equal(info.kv_tokens, (uint64_t)SEQUENCES * CONTEXT);
    before = resident();
    e = open_engine(model, 0);
    after = resident();
    ftx_model_info(model, &info);
    assert_true(info.kv_tokens >= SEQUENCES * BLOCK);
    print_message("%.1f MB more in memory; the KV cache has room for %llu tokens, %.1f MB\n",
                  (double)(after - before) * 1e-6, (unsigned long long)info.kv_tokens,
                  (double)(info.kv_tokens * info.kv_token_bytes) * 1e-6);
#ifndef __SANITIZE_ADDRESS__ /* the sanitizer needs memory of its own for all of it */
    assert_true(golden_on_cuda() || after - before < (size_t)48 << 20);
#endif
    answer(model, e, large);
    same(small, large);
    assert_int_equal(e->pages.n, e->pages.all);
    ftx_engine_close(e);
    ftx_model_close(model);
}

/* One KV page for each sequence is the smallest cache. Requests wait for pages, and the tokens stay the same. */
static void test_least(void **state)
{
    static GoldenAnswer all[REQUESTS], few[REQUESTS];
    FtxModel *model = golden_open("tests/models/tiny-llama", "long-least",
                                  "-D limits.sequences=8 -D limits.context=131072 -D limits.tokens=64");
    FtxModelInfo info;
    FtxEngine *e;
    FtxError err;
    FtxOptions o = FTX_OPTIONS_INIT;

    (void)state;
    ftx_model_info(model, &info);
    e = open_engine(model, 0);
    answer(model, e, all);
    ftx_engine_close(e);
    o.kv_bytes = 8 * BLOCK * info.kv_token_bytes - 1;
    assert_int_equal(ftx_engine_open(model, &o, &e, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "one page of 16 tokens for each of 8 sequences: raise it"));
    e = open_engine(model, 8 * BLOCK * info.kv_token_bytes);
    ftx_model_info(model, &info);
    assert_int_equal(info.kv_tokens, 8 * BLOCK);
    answer(model, e, few); /* each request needs up to 5 of the 8 pages */
    same(all, few);
    assert_int_equal(e->pages.n, 8);
    assert_int_equal(e->pages.fresh, 8);
    ftx_engine_close(e);
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_least)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
