/* test_misuse.c - wrong calls of the API: each is refused with a message, and the engine still works. Also the
 * functions that only `bench` and `--profile` call, on the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/ftx.h"

static const FtxOptions options = {.size = sizeof(FtxOptions), .device = FTX_DEVICE_CPU, .threads = 1};
static const int32_t ids[] = {5, 17, 9, 30, 2};
enum { IDS = sizeof ids / sizeof *ids };

/* An open model without a tokenizer. */
typedef struct Open {
    char path[1000];
    FtxModel *m;
    FtxEngine *e;
    FtxModelInfo info;
} Open;

/* more: an option of ftxc compile that sets a tokenizer, or "" */
static Open open_with(const char *spec, const char *more)
{
    char command[3000];
    FtxError err;
    Open o;

    snprintf(o.path, sizeof o.path, "%s/misuse-%s.ftx", getenv("FTX_BUILD"), spec);
    snprintf(command, sizeof command, "%s compile tests/models/%s -t cpu -q -o %s %s", getenv("FTXC"), spec, o.path,
             more);
    assert_int_equal(system(command), 0);
    if (ftx_model_open(o.path, &options, &o.m, &err) || ftx_engine_open(o.m, NULL, &o.e, &err))
        fail_msg("%s", err.text);
    ftx_model_info(o.m, &o.info);
    assert_int_equal(o.info.has_tokenizer, *more != 0);
    return o;
}

static Open open_model(const char *spec)
{
    return open_with(spec, "");
}

static void close_model(Open *o)
{
    ftx_engine_close(o->e);
    ftx_model_close(o->m);
    remove(o->path);
}

static void refused(FtxStatus s, const FtxError *err, const char *word)
{
    if (s != FTX_EINVAL || err->status != s || !strstr(err->text, word))
        fail_msg("status %d, \"%s\"; expected one about \"%s\"", (int)s, err->text, word);
}

#define REFUSED(call, word) \
    do { \
        FtxError err = {FTX_OK, ""}; \
        const FtxStatus status = call; \
        refused(status, &err, word); \
    } while (0)

static void opening(void **state)
{
    const FtxAllocator half = {.alloc = NULL, .release = NULL, .user = NULL};
    FtxOptions o = options;
    FtxModel *m = NULL;
    FtxEngine *e = NULL;

    (void)state;
    REFUSED(ftx_model_open("x.ftx", &o, NULL, &err), "model is NULL");
    REFUSED(ftx_model_open(NULL, &o, &m, &err), "path is NULL");
    REFUSED(ftx_engine_open(NULL, &o, &e, &err), "model is NULL");
    o.allocator = &half;
    REFUSED(ftx_model_open("x.ftx", &o, &m, &err), "must both be set");
    assert_int_equal(ftx_model_open("no/such.ftx", &options, &m, NULL), FTX_EIO);
    assert_null(m);
    ftx_engine_close(NULL);
    ftx_model_close(NULL);
}

static void environment(void **state)
{
    Open o = open_model("tiny-llama");
    FtxModel *m = NULL;
    FtxEngine *e;

    (void)state;
    setenv("FTX_CPU", "sse9", 1);
    REFUSED(ftx_model_open(o.path, &options, &m, &err), "FTX_CPU is \"sse9\"");
    assert_null(m);
    unsetenv("FTX_CPU");
    setenv("FTX_AHEAD", "many", 1);
    REFUSED(ftx_engine_open(o.m, &options, &e, &err), "FTX_AHEAD is \"many\": expected a whole number from 1 to 6");
    assert_null(e);
    unsetenv("FTX_AHEAD");
    close_model(&o);
}

static FtxRequest request(const Open *o)
{
    FtxRequest q = ftx_request_default(o->m);

    q.ids = ids;
    q.ids_count = IDS;
    q.max_new = 3;
    q.temperature = 0;
    return q;
}

static void requests(void **state)
{
    static const int32_t bias_ids[] = {3};
    Open o = open_model("tiny-gpt2");
    FtxRequest q;

    (void)state;
    REFUSED(ftx_engine_open(o.m, NULL, NULL, &err), "engine is NULL");
    REFUSED(ftx_engine_open(o.m, &(FtxOptions){.size = sizeof(FtxOptions), .allocator = &(FtxAllocator){0}},
                            &(FtxEngine *){NULL}, &err),
            "must both be set");
    REFUSED(ftx_engine_submit(o.e, NULL, NULL, &err), "request is NULL");
    q = request(&o);
    q.bias_ids = bias_ids;
    q.bias_count = 1;
    REFUSED(ftx_engine_submit(o.e, &q, NULL, &err), "bias_values is NULL");
    q = request(&o);
    q.stop_ids_count = 1;
    REFUSED(ftx_engine_submit(o.e, &q, NULL, &err), "stop_ids is NULL");
    q = request(&o);
    q.ids = NULL;
    q.text = "text";
    REFUSED(ftx_engine_submit(o.e, &q, NULL, &err), "tokenizer");
    q = request(&o);
    q.beams = 4;
    REFUSED(ftx_engine_submit(o.e, &q, NULL, &err), "beams");
    assert_false(ftx_engine_busy(o.e));
    close_model(&o);
}

static void texts_without_a_tokenizer(void **state)
{
    Open o = open_model("tiny-gpt2");
    int32_t found[4];
    char text[4];
    size_t n;

    (void)state;
    REFUSED(ftx_tokenize(o.m, "a", 1, true, found, 4, &n, &err), "no tokenizer");
    REFUSED(ftx_detokenize(o.m, ids, IDS, true, text, sizeof text, &n, &err), "no tokenizer");
    close_model(&o);
}

static void scores(void **state)
{
    static const int32_t wrong[] = {1, 1 << 30};
    Open o = open_model("tiny-gpt2");
    const FtxRequest q = request(&o);
    float logprobs[IDS];
    uint64_t id;

    (void)state;
    REFUSED(ftx_engine_score(o.e, NULL, 2, logprobs, &err), "ids or logprobs is NULL");
    REFUSED(ftx_engine_score(o.e, ids, 2, NULL, &err), "ids or logprobs is NULL");
    REFUSED(ftx_engine_score(o.e, ids, 1, logprobs, &err), "expected 2 to");
    REFUSED(ftx_engine_score(o.e, wrong, 2, logprobs, &err), "not below the vocabulary");
    assert_int_equal(ftx_engine_submit(o.e, &q, &id, NULL), FTX_OK);
    REFUSED(ftx_engine_score(o.e, ids, IDS, logprobs, &err), "needs the engine for itself");
    assert_int_equal(ftx_engine_cancel(o.e, id, NULL), FTX_OK);
    close_model(&o);
}

static void vectors(void **state)
{
    static const int32_t lengths[] = {IDS}, one[] = {1};
    Open o = open_model("tiny-bert"), writer = open_model("tiny-gpt2");
    float *pooled = calloc((size_t)o.info.pooled, sizeof *pooled);
    const char *const text[] = {"a"};
    FtxEncode job = {.size = sizeof(FtxEncode), .count = 1, .ids = ids, .lengths = lengths, .pooled = pooled};
    FtxEncode j;

    (void)state;
    assert_non_null(pooled);
    REFUSED(ftx_engine_encode(writer.e, &job, &err), "no encoder");
    REFUSED(ftx_engine_encode(o.e, NULL, &err), "job is NULL");
    j = job, j.text = text;
    REFUSED(ftx_engine_encode(o.e, &j, &err), "expected one of");
    j = job, j.lengths = NULL;
    REFUSED(ftx_engine_encode(o.e, &j, &err), "lengths: missing");
    j = job, j.stride = 2;
    REFUSED(ftx_engine_encode(o.e, &j, &err), "stride");
    j = job, j.max_tokens = 3;
    REFUSED(ftx_engine_encode(o.e, &j, &err), "max_tokens: only for texts");
    j = job, j.truncate = FTX_TRUNCATE_FIRST;
    REFUSED(ftx_engine_encode(o.e, &j, &err), "truncate: only for texts");
    j = job, j.ids = NULL, j.input = (const float[512]){0}, j.text_ids = &(int32_t){0};
    REFUSED(ftx_engine_encode(o.e, &j, &err), "text_ids: hidden states have none");
    j = (FtxEncode){.size = sizeof(FtxEncode), .count = 1, .text = text, .pooled = pooled};
    REFUSED(ftx_engine_encode(o.e, &j, &err), "no tokenizer");
    j.truncate = (FtxTruncate)9;
    REFUSED(ftx_engine_encode(o.e, &j, &err), "found 9");
    j.truncate = FTX_TRUNCATE_NONE;
    j.types = one;
    REFUSED(ftx_engine_encode(o.e, &j, &err), "types: only with ids");
    assert_int_equal(ftx_engine_encode(o.e, &job, NULL), FTX_OK);
    free(pooled);
    close_model(&o);
    close_model(&writer);
}

/* A tokenizer that adds no special tokens: an empty text has no tokens. */
static void no_tokens(void **state)
{
    static const char tokenizer[] = "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"vocab\":{\"a\":0}},"
                                    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}";
    const char *const texts[] = {"a a", " "};
    char path[1000], option[1100];
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%s/misuse-tokenizer.json", getenv("FTX_BUILD"));
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(tokenizer, f) >= 0);
    assert_int_equal(fclose(f), 0);
    snprintf(option, sizeof option, "-D tokenizer=%s", path);

    Open o = open_with("tiny-bert", option);
    float *pooled = calloc(2 * (size_t)o.info.pooled, sizeof *pooled);
    FtxEncode job = {.size = sizeof(FtxEncode), .count = 2, .text = texts, .pooled = pooled};

    assert_non_null(pooled);
    REFUSED(ftx_engine_encode(o.e, &job, &err), "text: it has no tokens");
    job.count = 1;
    assert_int_equal(ftx_engine_encode(o.e, &job, NULL), FTX_OK);
    free(pooled);
    close_model(&o);
    remove(path);
}

static void times(Open *o, int sequences, int tokens, int context)
{
    double median = 0, least = 0, most = 0;
    FtxError err;

    if (ftx_engine_bench(o->e, sequences, tokens, context, 3, &median, &least, &most, &err))
        fail_msg("%s", err.text);
    assert_true(least > 0 && least <= median && median <= most);
}

/* A decode step, a prompt step, a batch of texts; then the engine still answers. */
static void bench_and_profile(void **state)
{
    Open o = open_model("tiny-gpt2"), encoder = open_model("tiny-bert");
    const FtxRequest q = request(&o);
    const FtxProfile *rows = NULL;
    uint64_t launches = 0;
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    size_t n;

    (void)state;
    times(&o, 2, 1, 8);
    times(&o, 1, 8, 8);
    times(&encoder, 2, 8, 0);
    assert_int_equal(ftx_engine_profile(o.e, true, &rows, &n, NULL), FTX_OK);
    assert_int_equal(ftx_engine_submit(o.e, &q, NULL, NULL), FTX_OK);
    while (ftx_engine_busy(o.e))
        assert_int_equal(ftx_engine_step(o.e, ev, 64, &n, NULL), FTX_OK);
    assert_int_equal(ftx_engine_profile(o.e, false, &rows, &n, NULL), FTX_OK);
    for (size_t i = 0; i < n; i++)
        launches += rows[i].launches;
    assert_true(launches > 0);
    close_model(&o);
    close_model(&encoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),   cmocka_unit_test(environment),
        cmocka_unit_test(requests),  cmocka_unit_test(texts_without_a_tokenizer),
        cmocka_unit_test(scores),    cmocka_unit_test(vectors),
        cmocka_unit_test(no_tokens), cmocka_unit_test(bench_and_profile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
