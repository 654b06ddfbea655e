/* test_many.c - 64 requests in flight give the tokens that each gives alone: submitted at once, and
 * one by one while others run.
 *
 * With fp32 weights every token is the same; on the CPU every log-probability too, bit for bit.
 * In 16 bits (FTX_TEST_TOLERANCE of 1e-3 or more) rounding may depend on the number of tokens in a
 * step. Where two texts first differ, the logits after their common beginning must show that both
 * tokens were within the tolerance of being chosen. */
#include <math.h>

#include "golden.h"
#include "kernels/ref/ref.h"

enum { MANY = 64, NEW = 20, VOCAB = 4096 };

static const char *const texts[] = {
    "Once upon a time there was",
    "The king's daughter said to the frog",
    "THE GOLDEN BIRD",
    "In the forest, where the trees stood close together and no path was to be seen, there lived an old woman who",
    "\"Dear mother,\" said the boy,",
    "A",
    ("When the soldier came home from the war he found his house empty and his fields bare, and so he took his "
     "sword and his pipe and went out into the wide world to seek his fortune; and on the third day he met"),
    "There was once a poor man",
};

typedef struct Run {
    GoldenAnswer alone, together, trickle;
} Run;
static Run run[MANY];

static double tolerance(void)
{
    const char *t = getenv("FTX_TEST_TOLERANCE");

    return t ? atof(t) : 1e-4;
}

/* Every second request is greedy; the others have various sampling settings. */
static FtxRequest request_of(const FtxModel *m, int i)
{
    FtxRequest q = ftx_request_default(m);

    q.text = texts[i % 8];
    q.max_new = 4 + (i * 7) % (NEW - 3);
    q.seed = (uint64_t)i * 77 + 1;
    q.logprobs = true;
    q.ignore_eos = true;
    q.repetition_penalty = i % 4 == 3 ? 1.2f : 1.0f;
    q.temperature = i % 2 ? 0.4f + 0.05f * (float)(i % 16) : 0.0f;
    q.top_k = i % 2 ? (const int[]){0, 40, 5, 64}[i / 2 % 4] : 0;
    q.top_p = i % 2 ? (const float[]){1.0f, 0.9f, 0.5f}[i / 2 % 3] : 1.0f;
    q.typical_p = i % 10 == 3 ? 0.8f : 1.0f;
    return q;
}

/* How far `id` is from being chosen. Sampling: the distance of the random number u from the interval
 * of [0, 1) that belongs to id. Greedy: half the distance of its logit from the best one, relative
 * to the largest logit. */
static double away(const FtxRequest *q, const float *logits, const int32_t *history, int length, int prompt, int id)
{
    const FtxRow row = {.kv_len = length, .prompt = prompt};
    const FtxParams params = {.temperature = q->temperature,
                              .top_p = q->top_p,
                              .repetition = q->repetition_penalty,
                              .top_k = q->top_k,
                              .typical_p = q->typical_p < 1.0f ? q->typical_p : 0.0f,
                              .seed_low = (unsigned)q->seed,
                              .seed_high = (unsigned)(q->seed >> 32)};
    const RefRow r = {.row = &row, .params = &params, .history = history};
    static double p[VOCAB];
    static int32_t order[VOCAB];
    double below = 0.0, largest = 0.0, best = -INFINITY;

    if (q->temperature == 0.0f) {
        ref_penalties(&r, logits, VOCAB, p);
        for (int i = 0; i < VOCAB; i++) {
            largest = fmax(largest, fabs((double)logits[i]));
            best = fmax(best, p[i]);
        }
        return (best - p[id]) / largest / 2.0; /* either of two logits may have moved */
    }
    ref_probabilities(&r, logits, VOCAB, p, order);
    for (int i = 0; i < id; i++)
        below += p[i];
    return fmax(fmax(below - ref_uniform(&r), ref_uniform(&r) - below - p[id]), 0.0);
}

/* The same, when top_k, top_p and typical_p may each be a little smaller or larger: a token that
 * enters or leaves the kept set changes the probabilities of all others. */
static double away_at_borders(const FtxRequest *q, const float *logits, const int32_t *history, int length, int prompt,
                              int id)
{
    double least = INFINITY;

    for (int k = -1; k <= 1; k++)
        for (int p = -1; p <= 1; p++) {
            FtxRequest moved = *q;

            if (q->top_k > 0)
                moved.top_k = q->top_k + k > 1 ? q->top_k + k : 1;
            if (q->top_p < 1.0f)
                moved.top_p = fminf(q->top_p + (float)p * (float)tolerance(), 1.0f);
            if (q->typical_p < 1.0f)
                moved.typical_p = q->typical_p + (float)p * (float)tolerance();
            least = fmin(least, away(&moved, logits, history, length, prompt, id));
        }
    return least;
}

static int32_t prompt_ids[512];

/* Token k of request i differs between `b` and its run alone: checks that both were nearly chosen. */
static void check_parting(FtxEngine *engine, const FtxModel *model, int i, size_t k, const GoldenAnswer *b,
                          const char *how)
{
    const FtxRequest q = request_of(model, i);
    const GoldenAnswer *a = &run[i].alone;
    static GoldenAnswer after;
    FtxRequest again = ftx_request_default(model);
    double far = 0.0;
    size_t n;
    FtxError err;
    uint64_t id;

    if (tolerance() < 1e-3)
        fail_msg("request %d %s, token %zu: %d, alone %d", i, how, k, b->ids[k], a->ids[k]);
    if (ftx_tokenize(model, q.text, strlen(q.text), true, prompt_ids, 256, &n, &err))
        fail_msg("%s", err.text);
    assert_true(n <= 256);
    memcpy(prompt_ids + n, a->ids, k * sizeof *prompt_ids);
    after = (GoldenAnswer){0};
    again.ids = prompt_ids;
    again.ids_count = n + k;
    again.max_new = 1;
    again.temperature = 0.0f;
    again.logits = true;
    again.user = &after;
    id = golden_submit(engine, &again);
    golden_finish(engine);
    const float *logits = ftx_engine_logits(engine, id);
    far = fmax(away_at_borders(&q, logits, prompt_ids, (int)(n + k), (int)n, a->ids[k]),
               away_at_borders(&q, logits, prompt_ids, (int)(n + k), (int)n, b->ids[k]));
    print_message("request %d %s parts at token %zu: %d, alone %d; %.4f away\n", i, how, k, b->ids[k], a->ids[k], far);
    if (!(far <= tolerance()))
        fail_msg("request %d %s, token %zu: %d, alone %d: %.3f away", i, how, k, b->ids[k], a->ids[k], far);
}

/* 1 if the text of request i differs from its run alone, otherwise 0. */
static int check_same(FtxEngine *engine, const FtxModel *model, int i, const GoldenAnswer *b, const char *how)
{
    const GoldenAnswer *a = &run[i].alone;

    assert_int_equal(b->n, a->n);
    assert_int_equal(b->finish, a->finish);
    for (size_t k = 0; k < a->n; k++)
        if (b->ids[k] != a->ids[k]) {
            check_parting(engine, model, i, k, b, how);
            return 1;
        }
    assert_string_equal(b->text, a->text);
    if (!golden_on_cuda())
        assert_memory_equal(b->logprobs, a->logprobs, a->n * sizeof *a->logprobs);
    for (size_t k = 0; k < a->n; k++)
        assert_true(fabs((double)(b->logprobs[k] - a->logprobs[k])) < fmax(1e-3, 20.0 * tolerance()));
    return 0;
}

static void together_as_alone(void **state)
{
    const FtxModel *model;
    FtxModel *own = golden_open("specs/fable.lua", "fable-many", "-D limits.sequences=64 -D limits.context=160");
    FtxEngine *engine = golden_engine(own);
    FtxEvent events[256] = {FTX_EVENT_INIT};
    FtxError err;
    int parted = 0;

    (void)state;
    model = own;
    for (int i = 0; i < MANY; i++) {
        FtxRequest q = request_of(model, i);

        q.user = &run[i].alone;
        golden_submit(engine, &q);
        golden_finish(engine);
        assert_int_equal(run[i].alone.n, q.max_new);
    }
    for (int i = 0; i < MANY; i++) {
        FtxRequest q = request_of(model, i);

        q.user = &run[i].together;
        golden_submit(engine, &q);
    }
    golden_finish(engine);
    for (int i = 0; i < MANY || ftx_engine_busy(engine); i++) {
        size_t n;

        if (i < MANY) {
            FtxRequest q = request_of(model, (i * 37) % MANY);

            q.user = &run[(i * 37) % MANY].trickle;
            golden_submit(engine, &q);
        }
        if (ftx_engine_step(engine, events, 256, &n, &err))
            fail_msg("%s", err.text);
        for (size_t k = 0; k < n; k++)
            golden_take(events[k].user, &events[k]);
    }
    for (int i = 0; i < MANY; i++)
        parted += check_same(engine, model, i, &run[i].together, "at once") +
                  check_same(engine, model, i, &run[i].trickle, "one by one");
    print_message("%d texts of %d part from those written alone\n", parted, 2 * MANY);
    ftx_engine_close(engine);
    ftx_model_close(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(together_as_alone)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
