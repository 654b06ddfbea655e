/* test_odd.c - small decoders of unusual shapes in both families, and top-k with K from 1 to the
 * maximum, against a plain forward pass (plain.h). Several requests run together.
 *
 * FTX_ODD: number of shapes of each family, or "all", which takes long. */
#include "golden.h"
#include "plain.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/skip.h"

enum { FIRST_LLAMA = 35, FIRST_GPT2 = 10 };

typedef struct Request {
    int32_t ids[256];
    int prompt;
    uint64_t id;
    GoldenAnswer answer;
} Request;

static double tolerance(void)
{
    const char *t = getenv("FTX_TEST_TOLERANCE");

    return t ? atof(t) : 1e-4;
}

static int wanted(int few, int all)
{
    const char *odd = getenv("FTX_ODD");
    const int n = odd ? strcmp(odd, "all") == 0 ? all : atoi(odd) : few;

    return n < all ? n : all;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    if (!f || fputs(text, f) < 0 || fclose(f))
        fail_msg("%s: %s", path, strerror(errno));
}

/* Writes the spec and the weights of a shape, compiles and opens it. `path` is set to the artifact. */
static FtxModel *open_shape(const OddShape *s, const char *name, char path[1000])
{
    const char *folder = getenv("FTX_BUILD"), *artifacts = getenv("FTX_TEST_ARTIFACTS");
    char spec[1000], weights[1000], text[2000];
    FtxModel *model;

    assert_non_null(folder);
    snprintf(weights, sizeof weights, "%s/test-odd-%s.safetensors", folder, name);
    snprintf(spec, sizeof spec, "%s/test-odd-%s.lua", folder, name);
    snprintf(path, 1000, artifacts ? "%s/odd-%s.ftx" : "%s/test-odd-%s.ftx", artifacts ? artifacts : folder, name);
    if (!artifacts) {
        odd_spec(s, strrchr(weights, '/') + 1, text, sizeof text);
        write_text(spec, text);
        if (!odd_weights(s, (uint64_t)(s->heads * 1000 + s->hidden), weights))
            fail_msg("%s: %s", weights, strerror(errno));
    }
    snprintf(text, sizeof text, "odd-%s", name);
    model = golden_open(spec, text, "");
    if (!artifacts) {
        unlink(spec);
        unlink(weights);
    }
    return model;
}

static void draw_ids(Request *r, int vocab, int seed)
{
    for (int i = 0; i < r->prompt; i++)
        r->ids[i] = odd_draw(seed * 1000 + r->prompt, i, vocab);
}

/* Largest difference of a logit, relative to the largest logit. */
static double difference(const float *got, const float *want, int vocab)
{
    double largest = 0.0, worst = 0.0;

    for (int i = 0; i < vocab; i++) {
        const double d = fabs((double)got[i] - (double)want[i]);

        largest = fmax(largest, fabs((double)want[i]));
        worst = d <= worst ? worst : d; /* NaN is kept */
    }
    return worst / largest;
}

/* Whether `id` has the best logit, or one within the tolerance of it. parts: id is not the best. */
static bool is_best(const float *logits, int vocab, int id, bool *parts)
{
    double best = -INFINITY, largest = 0.0;
    int first = 0;

    for (int i = 0; i < vocab; i++) {
        largest = fmax(largest, fabs((double)logits[i]));
        if ((double)logits[i] > best) {
            best = (double)logits[i];
            first = i;
        }
    }
    *parts = id != first;
    return best - (double)logits[id] <= 2.0 * tolerance() * largest;
}

static void check_request(Plain *m, FtxEngine *engine, Request *r, const char *what)
{
    const int vocab = m->shape->vocab;
    const float *logits = ftx_engine_logits(engine, r->id);
    double d;

    assert_non_null(logits);
    plain_run(m, r->ids, r->prompt, 0);
    d = difference(logits, m->logits, vocab);
    if (!(d <= tolerance()))
        fail_msg("%s: prompt of %d: a logit differs by %.2e of the largest", what, r->prompt, d);
    assert_int_equal(r->answer.n, ODD_NEW);
    assert_int_equal(r->answer.finish, FTX_FINISH_LENGTH);
    for (int i = 0; i < ODD_NEW; i++) {
        const int id = r->answer.ids[i];
        bool parts;

        assert_in_range(id, 0, vocab - 1);
        if (!is_best(m->logits, vocab, id, &parts))
            fail_msg("%s: prompt of %d: new token %d is %d, not the best", what, r->prompt, i, id);
        r->ids[r->prompt + i] = id; /* after a near tie the reference continues with this token */
        if (i + 1 < ODD_NEW)
            plain_run(m, r->ids, 1, r->prompt + i);
    }
}

static void check_shape(bool gpt2, int number)
{
    static Request request[ODD_MAX_PROMPTS];
    const OddShape s = odd_shape(gpt2, number);
    char path[1000], what[300], name[40];
    FtxModel *model;
    FtxEngine *engine;
    Plain plain;

    snprintf(name, sizeof name, "%s-%d", gpt2 ? "gpt2" : "llama", number);
    snprintf(what, sizeof what,
             "%s (head_dim %d, heads %d of %d, hidden %d, ffn %d, vocab %d, block %d, tokens %d, sequences %d, window "
             "%d, %s)",
             name, s.head_dim, s.heads, s.kv_heads, s.hidden, s.ffn, s.vocab, s.block, s.tokens, s.sequences, s.window,
             s.weights);
    if (getenv("FTX_ODD"))
        print_message("%s\n", what);
    model = open_shape(&s, name, path);
    engine = golden_engine(model);
    plain_open(&plain, path, &s);
    for (int done = 0; done < s.prompts;) { /* batches of as many requests as the engine can hold */
        int n = 0;

        for (; done + n < s.prompts && n < 4 * s.sequences; n++) {
            Request *r = &request[n];
            FtxRequest q = ftx_request_default(model);

            r->prompt = s.prompt[done + n];
            r->answer = (GoldenAnswer){0};
            draw_ids(r, s.vocab, number);
            q.ids = r->ids;
            q.ids_count = (size_t)r->prompt;
            q.max_new = ODD_NEW;
            q.ignore_eos = true;
            q.logits = true;
            q.user = &r->answer;
            r->id = golden_submit(engine, &q);
        }
        golden_finish(engine);
        for (int i = 0; i < n; i++)
            check_request(&plain, engine, &request[i], what);
        done += n;
    }
    plain_close(&plain);
    ftx_engine_close(engine);
    ftx_model_close(model);
    if (!getenv("FTX_TEST_ARTIFACTS"))
        unlink(path);
}

static void llama_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < wanted(FIRST_LLAMA, ODD_LLAMA); i++)
        if (in_turn_sanitized((uint64_t)i, ODD_TURNS))
            check_shape(false, i);
}

static void gpt2_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < wanted(FIRST_GPT2, ODD_GPT2); i++)
        if (in_turn_sanitized((uint64_t)i, ODD_TURNS))
            check_shape(true, i);
}

/* --- K ----------------------------------------------------------------------------------------- */

static const int ks[] = {1, 2, 63, 64, 1000, 1024};
enum { LEN_KS = sizeof ks / sizeof *ks };

/* Other filters, which keep sets of other sizes. */
static const struct {
    int top_k;
    float top_p, min_p, typical_p;
} filters[] = {
    {0, 1.0f, 0.0f, 0.9f},  {0, 1.0f, 0.0f, 0.2f},     {50, 1.0f, 0.0f, 0.7f}, {0, 0.9f, 0.0f, 0.5f},
    {0, 1.0f, 0.02f, 0.8f}, {200, 0.95f, 0.01f, 0.6f}, {0, 0.5f, 0.0f, 1.0f},  {0, 1.0f, 0.05f, 1.0f},
};

static OddShape small(int vocab)
{
    OddShape s = odd_shape(true, 0);

    s.vocab = vocab;
    s.context = 40;
    s.sequences = 4;
    s.tokens = 64;
    return s;
}

/* Checks that `got` is the token that the reference sampler draws from the same logits. If the random
 * number is within 1e-5 of the border between two ids, either is right, since sums are rounded. */
static void check_draw(const float *logits, int vocab, int length, const FtxRequest *q, int got)
{
    const FtxRow row = {.kv_len = length, .prompt = length};
    const bool fewer = q->top_p < 1.0f || q->min_p > 0.0f || q->typical_p < 1.0f;
    const FtxParams params = {.temperature = q->temperature,
                              .top_p = q->top_p,
                              .min_p = q->min_p,
                              .repetition = 1.0f,
                              .top_k = q->top_k,
                              .typical_p = q->typical_p < 1.0f ? q->typical_p : 0.0f,
                              .seed_low = (unsigned)q->seed,
                              .seed_high = (unsigned)(q->seed >> 32)};
    const RefRow r = {.row = &row, .params = &params, .history = q->ids};
    double *p = malloc((size_t)vocab * sizeof *p), below = 0.0;
    int32_t *order = malloc((size_t)vocab * sizeof *order);
    int kept = 0;

    ref_probabilities(&r, logits, vocab, p, order);
    for (int i = 0; i < got; i++)
        below += p[i];
    for (int i = 0; i < vocab; i++)
        kept += p[i] > 0.0;
    if (!fewer && q->top_k > 0)
        assert_true(kept >= (q->top_k < vocab ? q->top_k : vocab)); /* more if there are ties at rank k */
    if (!(p[got] > 0.0) || ref_uniform(&r) < below - 1e-5 || ref_uniform(&r) > below + p[got] + 1e-5)
        fail_msg("vocab %d, top_k %d, top_p %g, min_p %g, typical_p %g, seed %llu: %d drawn (p %g), expected %d", vocab,
                 q->top_k, (double)q->top_p, (double)q->min_p, (double)q->typical_p, (unsigned long long)q->seed, got,
                 p[got], ref_draw(p, vocab, ref_uniform(&r)));
    free(p);
    free(order);
}

static void check_vocab(int vocab)
{
    const OddShape s = small(vocab);
    const int32_t ids[7] = {3, 1, 4, 1, 5, 9, 2};
    char path[1000], name[40], text[2000], spec[1000];
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
    FtxError err;
    FtxRequest q;
    const size_t ways = LEN_KS + sizeof filters / sizeof *filters;

    snprintf(name, sizeof name, "k-%d", vocab);
    snprintf(path, sizeof path, "%s/test-odd-%s.safetensors", getenv("FTX_BUILD"), name);
    snprintf(spec, sizeof spec, "%s/test-odd-%s.lua", getenv("FTX_BUILD"), name);
    odd_spec(&s, strrchr(path, '/') + 1, text, sizeof text);
    write_text(spec, text);
    assert_true(odd_weights(&s, 7, path));
    model = golden_open(spec, name, "-D decode.max_top_k=1024");
    engine = golden_engine(model);
    ftx_model_info(model, &info);
    assert_int_equal(info.max_top_k, 1024);
    for (size_t i = 0; i < ways; i++)
        for (int seed = 0; seed < 12; seed++) {
            GoldenAnswer a = {0};
            uint64_t id;

            q = ftx_request_default(model);
            q.ids = ids;
            q.ids_count = (size_t)(1 + seed % 7);
            q.max_new = 1;
            q.ignore_eos = true;
            q.logits = true;
            q.temperature = 0.5f + 0.25f * (float)(seed % 4);
            q.top_k = i < LEN_KS ? ks[i] : filters[i - LEN_KS].top_k;
            if (i >= LEN_KS) {
                q.top_p = filters[i - LEN_KS].top_p;
                q.min_p = filters[i - LEN_KS].min_p;
                q.typical_p = filters[i - LEN_KS].typical_p;
            }
            q.seed = (uint64_t)seed * UINT64_C(0x100000001) + 5;
            q.user = &a;
            id = golden_submit(engine, &q);
            golden_finish(engine);
            assert_int_equal(a.n, 1);
            check_draw(ftx_engine_logits(engine, id), vocab, (int)q.ids_count, &q, a.ids[0]);
        }
    q.top_k = 1025;
    assert_int_equal(ftx_engine_submit(engine, &q, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "top_k"));
    assert_non_null(strstr(err.text, "1024"));
    ftx_engine_close(engine);
    ftx_model_close(model);
    unlink(spec);
    unlink(path);
}

/* Vocabularies smaller than the largest K, equal to it and much larger. */
static void every_k(void **state)
{
    (void)state;
    if (getenv("FTX_TEST_ARTIFACTS"))
        SKIP("artifacts of another machine have no other vocabularies");
    check_vocab(300);
    check_vocab(1024);
    check_vocab(50257);
}

static int compile_with(const char *k)
{
    const OddShape s = small(300);
    char spec[1000], command[3000], text[2000];
    int status;

    snprintf(spec, sizeof spec, "%s/test-odd-max.lua", getenv("FTX_BUILD"));
    odd_spec(&s, NULL, text, sizeof text);
    write_text(spec, text);
    snprintf(command, sizeof command,
             "%s compile %s -t cpu -q -o %s/test-odd-max.ftx -D decode.max_top_k=%s >%s/test-odd-max.log 2>&1",
             getenv("FTXC"), spec, getenv("FTX_BUILD"), k, getenv("FTX_BUILD"));
    status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void compiled_k(void **state)
{
    char path[1000], text[1000] = "";
    FILE *f;

    (void)state;
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        char k[16];

        snprintf(k, sizeof k, "%d", ks[i]);
        assert_int_equal(compile_with(k), 0);
    }
    assert_int_equal(compile_with("1025"), 2);
    snprintf(path, sizeof path, "%s/test-odd-max.log", getenv("FTX_BUILD"));
    f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(text, "max_top_k"));
    assert_non_null(strstr(text, "1024"));
    assert_int_equal(compile_with("0"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(llama_shapes), cmocka_unit_test(gpt2_shapes),
                                       cmocka_unit_test(every_k), cmocka_unit_test(compiled_k)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
