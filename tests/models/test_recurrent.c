/* test_recurrent.c - a decoder with recurrent states: each request gives, bit for bit, the tokens and logits that it gives alone
 * with its whole prompt in one step: beside others, with its prompt in pieces or with log-probabilities of it, in a slot that
 * others had before, and when it is preempted and computed anew; and the same tokens on two ranks. A text that is scored has
 * the log-probabilities with which its tokens were drawn. Weights are drawn by their names. */
#include <math.h>

#include "families/twin.h"
#include "golden.h"
#include "runtime/artifact/artifact.h"

enum { VOCAB = 67, NEW = 150, REQUESTS = 13, MOST = 45 };

typedef struct Result {
    GoldenAnswer answer;
    float logits[VOCAB];
} Result;

/* Writes the tensors of recurrent/recur.lua. */
static const char *weights(void)
{
    static const struct {
        const char *name;
        int rows, columns;
    } all[] = {{"embed", VOCAB, 48},    {"norm.weight", 48, 0}, {"norm1.weight", 48, 0}, {"norm2.weight", 48, 0},
               {"norm3.weight", 48, 0}, {"head", VOCAB, 48},    {"delta.in", 160, 48},   {"delta.taps", 160, 4},
               {"delta.a", 4, 48},      {"delta.beta", 4, 48},  {"delta.rate", 4, 0},    {"delta.shift", 4, 0},
               {"delta.out", 48, 96},   {"q", 64, 48},          {"k", 32, 48},           {"v", 32, 48},
               {"o", 48, 64},           {"space.b", 32, 48},    {"space.c", 32, 48},     {"space.x", 32, 48},
               {"space.a", 2, 48},      {"space.rate", 2, 0},   {"space.shift", 2, 0},   {"space.out", 48, 32},
               {"norm4.weight", 48, 0}, {"scan.x", 28, 48},     {"scan.c", 24, 48},      {"scan.b", 24, 48},
               {"scan.a", 28, 48},      {"scan.rate", 28, 24},  {"scan.shift", 28, 0},   {"scan.skip", 28, 0},
               {"scan.out", 48, 28}};
    json_t *tensors = json_object();
    static char path[1100];

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        json_object_set_new(tensors, all[i].name,
                            all[i].columns ? json_pack("[i,i]", all[i].rows, all[i].columns)
                                           : json_pack("[i]", all[i].rows));
    golden_path("recur-weights", path, 1000);
    strcat(path, ".safetensors");
    adapter_write_tensors(tensors, "F32", twin_element, path);
    json_decref(tensors);
    return path;
}

static FtxModel *open_model(const char *name, const char *options)
{
    const char *file = weights();
    char extra[1400];

    snprintf(extra, sizeof extra, "%s -D weights=%s%s", options, *file == '/' ? "" : "$PWD/", file);
    return golden_open("tests/models/recurrent/recur.lua", name, extra);
}

/* Bytes of a sequence's states on each rank. */
static uint64_t state_bytes(const char *name)
{
    char path[1000];
    uint64_t bytes;
    FtxError err;
    Artifact a;

    golden_path(name, path, sizeof path);
    if (artifact_open(path, &a, &err))
        fail_msg("%s", err.text);
    bytes = artifact_plan(&a, FTX_TARGET_CPU, "")->head->named_bytes[FTX_NAMED_recurrent] / a.facts->sequences;
    artifact_close(&a);
    return bytes;
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
    q.logits = q.logprobs = true;
    return q;
}

static void take(FtxEngine *engine, uint64_t id, Result *r)
{
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
        take(engine, id, &r[i]);
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
        q.prompt_logprobs = i % 4 == 2;
        id[i] = golden_submit(engine, &q);
    }
    golden_finish(engine);
    for (int i = 0; i < REQUESTS; i++)
        take(engine, id[i], &r[i]);
    stats = ftx_engine_stats(engine);
    ftx_engine_close(engine);
    return stats;
}

/* near: accepted difference of logits, relative to the largest. */
static void assert_same(const char *what, const Result *a, const Result *b, double near)
{
    for (int i = 0; i < REQUESTS; i++) {
        double largest = 0.0, worst = 0.0;

        if (memcmp(a[i].answer.ids, b[i].answer.ids, NEW * sizeof *a->answer.ids) != 0)
            fail_msg("%s: the tokens of request %d differ", what, i);
        for (int v = 0; v < VOCAB; v++) {
            largest = fmax(largest, fabs((double)a[i].logits[v]));
            worst = fmax(worst, fabs((double)a[i].logits[v] - (double)b[i].logits[v]));
        }
        if (!(worst <= near * largest))
            fail_msg("%s: request %d: a logit differs by %g, the largest is %g", what, i, worst, largest);
    }
}

static void assert_scored(FtxModel *model, int i, const GoldenAnswer *a)
{
    FtxEngine *engine = golden_engine(model);
    int32_t ids[MOST + NEW];
    float found[MOST + NEW];
    const size_t n = request_of(model, i, ids).ids_count;
    FtxError err;

    memcpy(ids + n, a->ids, NEW * sizeof *ids);
    if (ftx_engine_score(engine, ids, n + NEW, found, &err))
        fail_msg("%s", err.text);
    for (size_t t = 0; t < NEW; t++)
        if (!(fabs((double)found[n - 1 + t] - (double)a->logprobs[t]) <= 1e-4))
            fail_msg("request %d, new token %zu: its log-probability is %g, drawn with %g", i, t,
                     (double)found[n - 1 + t], (double)a->logprobs[t]);
    ftx_engine_close(engine);
}

static void test_same(void **state)
{
    const double near = golden_on_cuda() ? 1e-4 : 0.0;
    static Result alone[REQUESTS], other[REQUESTS];
    FtxModel *model = open_model("recur-whole", "-D limits.tokens=96");
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxModelInfo info;

    (void)state;
    run_alone(model, alone);
    run_together(model, NULL, other);
    assert_same("together", alone, other, near);
    for (int i = 1; i < 3; i++) /* those are greedy */
        assert_scored(model, i, &alone[i].answer);
    ftx_model_close(model);
    assert_int_equal(state_bytes("recur-whole"), 4 * (3 * 160 + 4 * 16 * 24 + 2 * 32 * 16 + 28 * 24));

    model = open_model("recur-pieces", "-D limits.tokens=11");
    memset(other, 0, sizeof other);
    run_alone(model, other);
    assert_same("in pieces", alone, other, near);
    memset(other, 0, sizeof other);
    run_together(model, NULL, other);
    assert_same("in pieces, together", alone, other, near);

    ftx_model_info(model, &info);
    o.kv_bytes = info.kv_token_bytes * 8 * 80; /* 80 pages, and six requests take some 140 */
    o.overcommit = 1;
    memset(other, 0, sizeof other);
    assert_true(run_together(model, &o, other).preemptions > 0);
    assert_same("preempted", alone, other, near);
    ftx_model_close(model);

    if (golden_on_cuda())
        return; /* ranks need as many GPUs */
    model = open_model("recur-ranks", "-D limits.tokens=11 -D parallel=2");
    memset(other, 0, sizeof other);
    run_together(model, NULL, other);
    assert_same("two ranks", alone, other, 1e-4);
    assert_int_equal(state_bytes("recur-ranks"),
                     4 * (3 * 160 + 2 * 16 * 24 + 1 * 32 * 16 + 14 * 24)); /* half of the heads */
    ftx_model_close(model);
}

/* --- snapshots ------------------------------------------------------------------------------------------ */

enum { MORE = 12, SEVERAL = 3 }; /* new tokens of each request here */

typedef struct Ask {
    int32_t ids[200];
    size_t n;
    int samples;
    bool logprobs; /* of the prompt */
} Ask;

typedef struct Told {
    GoldenAnswer answer[SEVERAL];
    uint64_t cached; /* tokens of the prompt that were taken over */
} Told;

/* Tokens i to i + n of text number `text`. */
static void say(Ask *a, int text, size_t n)
{
    for (size_t i = 0; i < n; i++, a->n++)
        a->ids[a->n] = (int32_t)((a->n * a->n + (size_t)(7 + text) * a->n + (size_t)(11 * text)) % VOCAB);
}

static Told ask(FtxModel *model, FtxEngine *engine, const Ask *a)
{
    const uint64_t before = ftx_engine_stats(engine).cached_tokens;
    FtxRequest q = ftx_request_default(model);
    static Told t;

    memset(&t, 0, sizeof t);
    q.ids = a->ids;
    q.ids_count = a->n;
    q.samples = a->samples;
    q.temperature = a->samples > 1 ? 0.9f : 0.0f;
    q.seed = 5;
    q.max_new = MORE;
    q.ignore_eos = q.logprobs = true;
    q.prompt_logprobs = a->logprobs;
    golden_submit(engine, &q);
    while (ftx_engine_busy(engine)) {
        FtxEvent events[32] = {FTX_EVENT_INIT};
        FtxError err;
        size_t n;

        if (ftx_engine_step(engine, events, 32, &n, &err))
            fail_msg("%s", err.text);
        for (size_t i = 0; i < n; i++)
            golden_take(&t.answer[events[i].sample], &events[i]);
    }
    t.cached = ftx_engine_stats(engine).cached_tokens - before;
    return t;
}

/* The answer is that of an engine of its own, and `cached` tokens of the prompt were not computed. */
static Told asked(FtxModel *model, FtxEngine *engine, const char *what, const Ask *a, uint64_t cached)
{
    FtxEngine *alone = golden_engine(model);
    const Told want = ask(model, alone, a), got = ask(model, engine, a);

    ftx_engine_close(alone);
    if (got.cached != cached)
        fail_msg("%s: %d tokens were taken over, not %d", what, (int)got.cached, (int)cached);
    for (int i = 0; i < (a->samples > 1 ? a->samples : 1); i++) {
        assert_int_equal(got.answer[i].n, MORE);
        assert_memory_equal(got.answer[i].ids, want.answer[i].ids, MORE * sizeof *got.answer[i].ids);
        for (int k = 0; k < MORE; k++)
            if (!(fabs((double)got.answer[i].logprobs[k] - (double)want.answer[i].logprobs[k]) <=
                  (golden_on_cuda() ? 1e-4 : 0.0)))
                fail_msg("%s: log-probability %d of sample %d differs", what, k, i);
    }
    return got;
}

/* Pages of 8 tokens. Snapshots are left where a prompt's last whole page ends, and where it leaves what others have written. */
static void check_snapshots(FtxModel *model)
{
    Ask talk = {.n = 0}, other = {.n = 0}, several, scored;
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxEngine *engine;
    FtxError err;
    Told t;

    o.prefix_cache = 1;
    if (ftx_engine_open(model, &o, &engine, &err))
        fail_msg("%s", err.text);

    say(&talk, 1, 60);
    t = asked(model, engine, "a first turn", &talk, 0);
    asked(model, engine, "the same again", &talk, 56);
    memcpy(talk.ids + talk.n, t.answer[0].ids, MORE * sizeof *talk.ids);
    talk.n += MORE;
    say(&talk, 2, 20);
    asked(model, engine, "a second turn", &talk, 56); /* 92 tokens; it leaves another behind 88 */
    say(&talk, 3, 5);
    asked(model, engine, "a third turn", &talk, 88);

    say(&other, 1, 43);
    say(&other, 4, 27);
    asked(model, engine, "another text behind the same beginning", &other, 0);
    other.n = 43;
    say(&other, 5, 30);
    asked(model, engine, "a third one", &other, 40);

    several = scored = other;
    several.samples = SEVERAL;
    asked(model, engine, "several samples", &several, 72);
    scored.logprobs = true;
    asked(model, engine, "log-probabilities of the prompt", &scored, 0);

    for (int i = 0; i < 3; i++) { /* three snapshots are all that there are */
        Ask new = {.n = 0};

        say(&new, 6 + i, 50);
        asked(model, engine, "an unknown text", &new, 0);
    }
    asked(model, engine, "a forgotten one", &other, 0);
    ftx_engine_close(engine);
}

static void test_snapshots(void **state)
{
    FtxModel *model = open_model("recur-snapshots", "-D limits.snapshots=3");

    (void)state;
    check_snapshots(model);
    ftx_model_close(model);
    if (golden_on_cuda())
        return;
    model = open_model("recur-snapshots-ranks", "-D limits.snapshots=3 -D parallel=2");
    check_snapshots(model);
    ftx_model_close(model);
}

/* Many at once, with beginnings in common, more than there are snapshots. */
static void test_beside(void **state)
{
    enum { ALL = 40, SHORT = 8 };
    FtxModel *model = open_model("recur-beside", "-D limits.snapshots=4 -D limits.tokens=11");
    static GoldenAnswer got[ALL];
    FtxOptions o = FTX_OPTIONS_INIT;
    static Ask a[ALL];
    FtxEngine *engine;
    FtxModelInfo info;
    FtxError err;

    (void)state;
    ftx_model_info(model, &info);
    o.prefix_cache = o.overcommit = 1;
    o.kv_bytes = info.kv_token_bytes * 8 * 60;
    if (ftx_engine_open(model, &o, &engine, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < ALL; i++) {
        FtxRequest q = ftx_request_default(model);

        say(&a[i], i % 3, (size_t)(34 + 8 * (i % 2)));
        say(&a[i], 3 + i % 5, (size_t)(3 + i * 7 % 40));
        q.ids = a[i].ids;
        q.ids_count = a[i].n;
        q.max_new = MORE + i % SHORT;
        q.ignore_eos = q.logprobs = true;
        q.user = &got[i];
        golden_submit(engine, &q);
        if (i % 7 == 6)
            golden_finish(engine);
    }
    golden_finish(engine);
    assert_true(ftx_engine_stats(engine).cached_tokens > 400);
    ftx_engine_close(engine);
    for (int i = 0; i < ALL; i++) {
        FtxEngine *alone = golden_engine(model);
        const Told want = ask(model, alone, &a[i]);

        assert_int_equal(got[i].n, MORE + i % SHORT);
        assert_memory_equal(got[i].ids, want.answer[0].ids, MORE * sizeof *got[i].ids);
        for (int k = 0; k < MORE && !golden_on_cuda(); k++)
            assert_true(got[i].logprobs[k] == want.answer[0].logprobs[k]);
        ftx_engine_close(alone);
    }
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_snapshots),
                                       cmocka_unit_test(test_beside)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
