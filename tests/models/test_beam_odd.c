/* test_beam_odd.c - beam search of models of unusual shapes with random weights, against the plain search of
 * kernels/ref: three heads of size 32, 40 or 80, widths 1, 3, 7 and 64, lengths from one token to the whole
 * context, and 300 rows at once. In 16 bits some results may differ (search.h); the last test limits their number. */
#include "search.h"

enum { CONTEXT = 40, SOURCE = 24, VOCAB = 300, START = 2, SEED = 3 };

typedef enum Family { LLAMA, GPT2, TRANSFORMER } Family;

typedef struct Shape {
    Family family;
    int head_dim, kv_heads, sequences, tokens, block;
} Shape;

static void write_spec(const char *path, const Shape *s)
{
    const int hidden = 3 * s->head_dim;
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fprintf(f, "local ftx = require 'ftx'\nreturn ftx.model { name = 'odd', kv = { block_size = %d },\n", s->block);
    fprintf(f, "precision = { weights = 'fp32' }, decode = ftx.greedy { width = 64 },\n");
    fprintf(f, "limits = { sequences = %d, context = %d, tokens = %d%s },\n", s->sequences, CONTEXT, s->tokens,
            s->family == TRANSFORMER ? ", source = 24" : "");
    if (s->family == LLAMA)
        fprintf(f, "graph = require 'llama' { layers = 2, hidden = %d, heads = 3, kv_heads = %d, head_dim = %d, ",
                hidden, s->kv_heads, s->head_dim);
    else if (s->family == GPT2)
        fprintf(f, "graph = require 'gpt2' { layers = 2, hidden = %d, heads = 3, positions = %d, ", hidden, CONTEXT);
    else
        fprintf(f,
                "start = %d, graph = require 'seq2seq' { encoder_layers = 1, decoder_layers = 2, hidden = %d, "
                "heads = 3, ",
                START, hidden);
    fprintf(f, "ffn = 91, vocab = %d, tie_embeddings = false } }\n", VOCAB);
    fclose(f);
}

static FtxModel *open_shape(const Shape *s, const char *name)
{
    const char *target = getenv("FTX_TEST_TARGET"), *define = getenv("FTX_TEST_DEFINE");
    FtxOptions options = {.size = sizeof(FtxOptions),
                          .device = golden_on_cuda() ? FTX_DEVICE_CUDA : FTX_DEVICE_CPU,
                          .random_weights = SEED};
    char spec[1000], path[1000], command[4000];
    FtxModel *model;
    FtxError err;

    snprintf(spec, sizeof spec, "%s/test-beam-odd-%s.lua", getenv("FTX_BUILD"), name);
    snprintf(path, sizeof path, "%s/test-beam-odd-%s.ftx", getenv("FTX_BUILD"), name);
    write_spec(spec, s);
    snprintf(command, sizeof command, "%s compile %s -o %s -q --no-weights -t %s %s", getenv("FTXC"), spec, path,
             target ? target : "cpu", define ? define : "");
    assert_int_equal(system(command), 0);
    if (ftx_model_open(path, &options, &model, &err))
        fail_msg("%s: %s", path, err.text);
    return model;
}

static Rounding shape_rounding(const Shape *s, const char *name)
{
    enum { TEXTS = 2, LONG = 12 };
    int32_t texts[TEXTS * ROUNDING_MOST], source[TEXTS * LONG];
    char path[1000];
    PlainSource plain;
    Rounding r;

    snprintf(path, sizeof path, "%s/test-beam-odd-%s.ftx", getenv("FTX_BUILD"), name);
    for (int i = 0; i < TEXTS * ROUNDING_MOST; i++)
        texts[i] = 3 + i * 104729 % (VOCAB - 3);
    for (int i = 0; i < TEXTS * LONG; i++)
        source[i] = 3 + i * 7919 % (VOCAB - 3);
    if (s->family != TRANSFORMER)
        return rounding_of_decoder(path, SEED, 0, texts, TEXTS);
    plain_source_open(&plain, path, FTX_ACT_RELU, true, 0);
    plain.weights.seed = SEED;
    r = rounding_of_source(name, &plain, source, LONG, texts, TEXTS);
    plain_source_close(&plain);
    return r;
}

/* Pseudo-random ids, fixed for each task number. */
static void draw(int32_t *ids, int n, int number)
{
    for (int i = 0; i < n; i++)
        ids[i] = 3 + (int32_t)(((uint32_t)i * 2654435761u + (uint32_t)number * 40503u) >> 7) % (VOCAB - 3);
}

static Task make_task(const Shape *s, int length, int number)
{
    static int32_t ids[CONTEXT], source[SOURCE];

    draw(ids, length, number);
    draw(source, SOURCE, number + 1000);
    if (s->family != TRANSFORMER)
        return (Task){.ids = ids, .n = length};
    ids[0] = START;
    return (Task){.ids = ids, .n = length, .source = source, .n_source = 1 + number * 5 % SOURCE};
}

/* Width 1 is greedy decoding: the likeliest token each time, up to an end id. */
static void check_greedy(FtxEngine *engine, FtxModel *model, const Task *t, const Setting *s, const Rounding *r)
{
    static double logprobs[VOCAB];
    static Found found;
    const double close = r->any ? 2.0 * rounding_logprob(r) : 1e-4;
    int32_t ids[CONTEXT];
    FtxRequest q = setting_request(model, t, s, &found);
    int n = t->n, end = 0;

    golden_submit(engine, &q);
    finish(engine);
    memcpy(ids, t->ids, (size_t)n * sizeof *ids);
    while (!end && n < t->n + s->max_new) {
        double best = -INFINITY, second = -INFINITY;

        next_logprobs(engine, model, t, ids, n, s, VOCAB, logprobs);
        for (int i = 0; i < VOCAB; i++)
            if (logprobs[i] > best) {
                second = best;
                best = logprobs[i];
                ids[n] = i;
            } else if (logprobs[i] > second) {
                second = logprobs[i];
            }
        if (best - second < close)
            return; /* two tokens are nearly equal: the texts may differ from here on */
        for (int i = 0; i < s->n_ends; i++)
            end = end || ids[n] == s->ends[i];
        assert_true((size_t)(n - t->n) < found.n_tokens);
        if (found.tokens[n - t->n] != ids[n])
            fail_msg("token %d of a prompt of %d is %d; %d is %.2e likelier than any other, %.2e would be close",
                     n - t->n, t->n, (int)found.tokens[n - t->n], (int)ids[n], best - second, close);
        n++;
    }
    assert_int_equal(found.n_tokens, n - t->n);
}

static void check_shape(const Shape *s, const char *name, int number)
{
    static const Setting settings[] = {
        {1, 8, 0, 0, 1.0f, 1.0f, FTX_EARLY_TRUE, {61, 165, 2}, 3, 1, 0.0f, {0}, 0, 0},
        {3, 7, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {61, 165, 2}, 3, 1, 0.0f, {0}, 0, 0},
        {7, 5, 2, 2, 0.6f, 1.2f, FTX_EARLY_NEVER, {61, 165, 2}, 3, 1, 0.0f, {0}, 0, 0},
        {64, 3, 0, 0, 1.0f, 1.0f, FTX_EARLY_TRUE, {61, 165, 2}, 2, 1, 0.0f, {0}, 0, 0},
        {6, 4, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {61, 165, 2}, 3, 2, 0.8f, {~7, 3, ~4}, 3, 0},
        {3,
         CONTEXT - 1,
         30,
         0,
         1.0f,
         1.0f,
         FTX_EARLY_FALSE,
         {61, 165, 2},
         3,
         1,
         0.0f,
         {0},
         0,
         0}, /* with a prompt of one token: fills the context */
    };
    const int lengths[] = {s->block - 1, s->block, s->block + 1, 2, CONTEXT - 5, 1};
    FtxModel *model = open_shape(s, name);
    FtxEngine *engine = golden_engine(model);
    const Rounding rounding = shape_rounding(s, name);

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const Task t = make_task(s, lengths[i], number + (int)i);
        Setting one = settings[i];

        if (one.max_new > CONTEXT - t.n)
            one.max_new = CONTEXT - t.n;
        if (one.width == 1) {
            check_greedy(engine, model, &t, &one, &rounding);
            continue;
        }
        count_partings(1, check_setting(engine, model, &t, &one, &rounding), rounding.share);
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void decoders(void **state)
{
    (void)state;
    check_shape(&(Shape){LLAMA, 32, 1, 64, 64, 8}, "llama-32", 1);
    check_shape(&(Shape){LLAMA, 40, 3, 66, 70, 16}, "llama-40", 2);
    check_shape(&(Shape){GPT2, 80, 3, 64, 65, 8}, "gpt2-80", 3);
    check_shape(&(Shape){GPT2, 32, 3, 70, 71, 32}, "gpt2-32", 4);
}

static void sources(void **state)
{
    (void)state;
    check_shape(&(Shape){TRANSFORMER, 32, 3, 64, 64, 8}, "transformer-32", 5);
    check_shape(&(Shape){TRANSFORMER, 40, 3, 64, 70, 16}, "transformer-40", 6);
    check_shape(&(Shape){TRANSFORMER, 80, 3, 65, 90, 8}, "transformer-80", 7);
}

/* When a search ends. A bias makes three ids likely, and one, two or all of them end a hypothesis. Every value of
 * early_stopping, and negative, zero and positive length penalties. */
static void endings(void **state)
{
    static const float penalties[] = {-1.0f, -0.3f, 0.0f, 0.5f, 1.0f, 2.0f};
    static const Shape shapes[] = {{LLAMA, 40, 3, 64, 70, 16}, {TRANSFORMER, 40, 3, 64, 70, 16}};

    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const Shape *s = &shapes[k];
        const char *name = k ? "endings-transformer" : "endings-llama";
        FtxModel *model = open_shape(s, name);
        FtxEngine *engine = golden_engine(model);
        const Rounding rounding = shape_rounding(s, name);

        for (int i = 0; i < 3 * 6 * 4; i++) {
            const Task t = make_task(s, 1 + i % 5, i);
            const Setting one = {.width = 2 + i / 3 % 4,
                                 .max_new = 9,
                                 .penalty = penalties[i / 3 % 6],
                                 .repetition = 1.0f,
                                 .early = (FtxEarly)(i % 3),
                                 .ends = {61, 165, 2},
                                 .n_ends = 1 + i / 18 % 3,
                                 .groups = 1,
                                 .bias = 4.0f + 2.0f * (float)(i % 4)};

            count_partings(1, check_setting(engine, model, &t, &one, &rounding), rounding.share);
        }
        ftx_engine_close(engine);
        ftx_model_close(model);
    }
}

static Setting crowd_setting(int i)
{
    return (Setting){.width = (const int[]){3, 1, 4, 2}[i % 4],
                     .max_new = 2 + i % 5,
                     .penalty = 1.0f,
                     .repetition = 1.0f,
                     .early = FTX_EARLY_FALSE,
                     .ends = {61, 165, 2},
                     .n_ends = 3,
                     .groups = 1};
}

/* Whether two greedy results first differ at tokens whose log-probabilities are within the tolerance. */
static bool greedy_close(FtxEngine *engine, FtxModel *model, const Task *t, const Setting *s, const Rounding *r,
                         const Found *a, const Found *b)
{
    static double logprobs[VOCAB];
    int32_t ids[CONTEXT];
    int n = 0;

    memcpy(ids, t->ids, (size_t)t->n * sizeof *ids);
    while (n < (int)a->n_tokens && n < (int)b->n_tokens && a->tokens[n] == b->tokens[n]) {
        ids[t->n + n] = a->tokens[n];
        n++;
    }
    if (n == (int)a->n_tokens || n == (int)b->n_tokens)
        return false;
    next_logprobs(engine, model, t, ids, t->n + n, s, VOCAB, logprobs);
    return fabs(logprobs[a->tokens[n]] - logprobs[b->tokens[n]]) <= 2.0 * rounding_logprob(r);
}

/* 300 rows in one batch: searches of several widths and greedy requests, each with the result it has alone. */
static void check_crowd(const Shape *s, const char *name)
{
    enum { MOST = 120 };
    static Found alone[MOST], crowd[MOST];
    FtxModel *model = open_shape(s, name);
    FtxEngine *engine = golden_engine(model);
    const Rounding rounding = shape_rounding(s, name);
    int rows = 0;

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MOST; i++) {
            const Setting one = crowd_setting(i);
            const Task t = make_task(s, 1 + i * 7 % 20, i);
            const FtxRequest r = setting_request(model, &t, &one, round ? &crowd[i] : &alone[i]);

            rows += round * one.width;
            golden_submit(engine, &r);
            if (!round)
                finish(engine);
        }
        finish(engine);
    }
    assert_int_equal(rows, 300);
    for (int i = 0; i < MOST; i++) {
        const Setting one = crowd_setting(i);
        const Task t = make_task(s, 1 + i * 7 % 20, i);
        const bool parted = !same(&alone[i], &crowd[i], &rounding);
        RefBeams plain;

        count_partings(1, parted, rounding.share);
        if (!parted)
            continue;
        assert_true(rounding.any);
        if (one.width == 1)
            assert_true(greedy_close(engine, model, &t, &one, &rounding, &alone[i], &crowd[i]));
        else
            assert_true(plain_search(engine, model, &t, &one, &rounding, &plain));
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void crowds(void **state)
{
    (void)state;
    check_crowd(&(Shape){LLAMA, 40, 1, 300, 300, 8}, "crowd-llama");
    check_crowd(&(Shape){TRANSFORMER, 32, 3, 300, 300, 8}, "crowd-transformer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoders), cmocka_unit_test(sources), cmocka_unit_test(endings),
                                       cmocka_unit_test(crowds), cmocka_unit_test(few_part)};

    return cmocka_run_group_tests_name("odd beams", tests, NULL, NULL);
}
