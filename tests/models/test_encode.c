/* test_encode.c - encoders against Hugging Face transformers: vectors within 1e-4 in every kind of
 * batch: alone, packed with others, padded, in several steps. An error in one text does not affect
 * the others. */
#include <math.h>
#include <unistd.h>

#include "golden.h"
#include "plain_text.h"
#include "tests/skip.h"

/* Path of a file of the large references: in the folder FTX_SHARED, or in ../shared. */
static const char *shared(const char *name)
{
    static char path[4][1000];
    static int turn;
    const char *at = getenv("FTX_SHARED");

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", at ? at : "../shared", name);
    return path[turn];
}

enum { TEXTS = 4, MAX_TOKENS = 512, MAX_D = 256 };

typedef struct Text {
    int32_t ids[128];
    size_t n;
    const json_t *golden;
    float first[MAX_D], pooled[MAX_D]; /* results of the text in a batch of its own */
} Text;

typedef struct Texts {
    Text at[TEXTS];
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
    double away; /* tolerance of values against the reference */
} Texts;

/* Compares with a vector of the reference, if it has one. */
static void check(const Texts *t, const char *what, const json_t *want, const float *got, size_t n)
{
    double worst = 0.0;

    if (!want || json_is_null(want))
        return;
    assert_int_equal(json_array_size(want), n);
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs(json_number_value(json_array_get(want, i)) - (double)got[i]));
    if (!(worst <= t->away))
        fail_msg("%s: a value differs by %g, allowed %g", what, worst, t->away);
}

static void mean_of(const float *rows, size_t n, size_t D, float *mean)
{
    for (size_t d = 0; d < D; d++) {
        double sum = 0.0;

        for (size_t t = 0; t < n; t++)
            sum += (double)rows[t * D + d];
        mean[d] = (float)(sum / (double)n);
    }
}

static void run(const Texts *t, const FtxEncode *job)
{
    FtxError err;

    if (ftx_engine_encode(t->engine, job, &err))
        fail_msg("%s", err.text);
}

static void check_text(const Texts *t, const Text *x, const float *hidden, const float *pooled)
{
    const size_t D = (size_t)t->info.hidden;
    float mean[MAX_D];

    mean_of(hidden, x->n, D, mean);
    check(t, "first", json_object_get(x->golden, "first"), hidden, D);
    check(t, "mean", json_object_get(x->golden, "mean"), mean, D);
    if (t->info.pooled)
        check(t, "pooled", json_object_get(x->golden, "pooler"), pooled, (size_t)t->info.pooled);
}

static void alone(const Texts *t, Text *x)
{
    static float hidden[MAX_TOKENS * MAX_D];
    const int32_t n = (int32_t)x->n;
    int32_t tokens = 0;

    run(t, &(FtxEncode){.size = sizeof(FtxEncode),
                        .count = 1,
                        .ids = x->ids,
                        .lengths = &n,
                        .hidden = hidden,
                        .hidden_rows = x->n,
                        .pooled = t->info.pooled ? x->pooled : NULL,
                        .tokens = &tokens});
    assert_int_equal(tokens, n);
    check_text(t, x, hidden, x->pooled);
    memcpy(x->first, hidden, (size_t)t->info.hidden * sizeof *hidden);
}

/* Encodes all texts `copies` times in one batch: packed, or padded to `stride`. */
static void together(const Texts *t, size_t copies, size_t stride)
{
    static int32_t ids[64 * 128], lengths[64];
    static float hidden[64 * 128 * MAX_D], pooled[64 * MAX_D];
    const size_t D = (size_t)t->info.hidden, P = (size_t)t->info.pooled, count = copies * TEXTS;
    size_t at = 0, rows = 0;

    assert_true(count <= 64);
    memset(ids, -1, sizeof ids); /* ids of padding must not be read */
    memset(hidden, 1, sizeof hidden);
    for (size_t i = 0; i < count; i++, at += stride ? stride : t->at[(i - 1) % TEXTS].n) {
        const Text *x = &t->at[i % TEXTS];

        lengths[i] = (int32_t)x->n;
        memcpy(ids + at, x->ids, x->n * sizeof *ids);
        rows = at + x->n;
    }
    run(t, &(FtxEncode){.size = sizeof(FtxEncode),
                        .count = count,
                        .ids = ids,
                        .lengths = lengths,
                        .stride = stride,
                        .hidden = hidden,
                        .hidden_rows = rows,
                        .pooled = P ? pooled : NULL});
    at = 0;
    for (size_t i = 0; i < count; i++, at += stride ? stride : t->at[(i - 1) % TEXTS].n) {
        const Text *x = &t->at[i % TEXTS];

        check_text(t, x, hidden + at * D, pooled + i * P);
        if (!golden_on_cuda()) { /* on the CPU equal bit for bit */
            assert_memory_equal(hidden + at * D, x->first, D * sizeof *hidden);
            if (P)
                assert_memory_equal(pooled + i * P, x->pooled, P * sizeof *pooled);
        }
        for (size_t k = x->n * D; k < stride * D; k++)
            assert_true(hidden[at * D + k] == 0.0f);
    }
}

static void open_texts(Texts *t, const char *name, const char *variant, const char *defines, json_t **golden)
{
    char path[1000], artifact[200];

    snprintf(path, sizeof path, "tests/models/%s/golden.json", name);
    *golden = golden_json(path);
    for (size_t i = 0; i < TEXTS; i++) {
        t->at[i].golden = json_array_get(json_object_get(*golden, "prompts"), i);
        t->at[i].n = golden_ids(json_object_get(t->at[i].golden, "input_ids"), t->at[i].ids, 128);
    }
    snprintf(path, sizeof path, "tests/models/%s", name);
    snprintf(artifact, sizeof artifact, "%s-%s", name, variant);
    t->model = golden_open(path, artifact, defines);
    t->engine = golden_engine(t->model);
    ftx_model_info(t->model, &t->info);
    assert_int_equal(t->info.kind, FTX_MODEL_ENCODER);

    PlainText plain;
    double far = 0.0;

    golden_path(artifact, path, sizeof path);
    plain_text_named(&plain, path, name);
    for (size_t i = 0; i < TEXTS; i++)
        far = fmax(far, plain_text_rounding(&plain, plain_text_type(&plain), t->at[i].ids, (int)t->at[i].n));
    t->away = plain_text_allowed(&plain, far);
    plain_text_close(&plain);
}

static void close_texts(Texts *t, json_t *golden)
{
    ftx_engine_close(t->engine);
    ftx_model_close(t->model);
    json_decref(golden);
}

/* With fewer rows and tokens in a step the same texts are batched differently. */
static void tiny(void **state)
{
    static const char *const models[] = {"tiny-bert", "tiny-roberta", "tiny-distilbert"};
    static const struct {
        const char *name, *defines;
    } variants[] = {
        {"wide", ""},
        {"narrow", "-D limits.context=96 -D limits.tokens=100 -D limits.sequences=3"},
    };

    (void)state;
    for (size_t m = 0; m < 3; m++)
        for (size_t v = 0; v < 2; v++) {
            static Texts t;
            json_t *golden;

            open_texts(&t, models[m], variants[v].name, variants[v].defines, &golden);
            for (size_t i = 0; i < TEXTS; i++)
                alone(&t, &t.at[i]);
            together(&t, 1, 0);
            together(&t, 9, 0);
            together(&t, 7, 128);
            close_texts(&t, golden);
        }
}

/* A pooling other than the default of the architecture. */
static void pooling(void **state)
{
    static Texts t;
    json_t *golden;
    double length = 0.0;

    (void)state;
    open_texts(&t, "tiny-bert", "mean", "-D pooling=mean -D normalize=true", &golden);
    assert_int_equal(t.info.pooled, t.info.hidden);
    for (size_t i = 0; i < TEXTS; i++) {
        static float hidden[MAX_TOKENS * MAX_D];
        const int32_t n = (int32_t)t.at[i].n;
        float mean[MAX_D];

        run(&t, &(FtxEncode){.size = sizeof(FtxEncode),
                             .count = 1,
                             .ids = t.at[i].ids,
                             .lengths = &n,
                             .hidden = hidden,
                             .hidden_rows = t.at[i].n,
                             .pooled = t.at[i].pooled});
        mean_of(hidden, t.at[i].n, (size_t)t.info.hidden, mean);
        length = 0.0;
        for (int d = 0; d < t.info.hidden; d++)
            length += (double)mean[d] * (double)mean[d];
        for (int d = 0; d < t.info.hidden; d++)
            assert_true(fabs((double)mean[d] / sqrt(length) - (double)t.at[i].pooled[d]) < 1e-5);
    }
    close_texts(&t, golden);
}

static void mistakes(void **state)
{
    static Texts t;
    static float hidden[MAX_TOKENS * MAX_D];
    int32_t ids[300] = {243, 5, 6, 400, 7, -1}, lengths[4] = {3, 1, 2, 0}, tokens[4];
    const char *text = "no tokenizer here";
    FtxError errors[4], err;
    json_t *golden;

    (void)state;
    open_texts(&t, "tiny-bert", "wide", "", &golden);
    FtxEncode job = {.size = sizeof(FtxEncode),
                     .count = 4,
                     .ids = ids,
                     .lengths = lengths,
                     .hidden = hidden,
                     .hidden_rows = 300,
                     .tokens = tokens,
                     .errors = errors};

    run(&t, &job); /* texts: 243 5 6 is valid; 400 is unknown; 7 -1 has an unknown id; the last is empty */
    assert_int_equal(errors[0].status, FTX_OK);
    assert_int_equal(tokens[0], 3);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(errors[i].status, FTX_EINVAL);
        assert_int_equal(tokens[i], 0);
    }
    assert_non_null(strstr(errors[1].text, "ids[0]: 400 is no token id (0 to 399)"));
    assert_non_null(strstr(errors[2].text, "ids[1]: -1 is no token id"));
    assert_non_null(strstr(errors[3].text, "lengths: 0, expected 1 to 128"));
    job.errors = NULL;
    assert_int_equal(ftx_engine_encode(t.engine, &job, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "text 1: ids[0]: 400"));
    lengths[0] = 129;
    assert_int_equal(
        ftx_engine_encode(t.engine, &(FtxEncode){.size = sizeof(FtxEncode), .count = 1, .ids = ids, .lengths = lengths},
                          &err),
        FTX_EINVAL);
    assert_non_null(strstr(err.text, "lengths: 129"));
    lengths[0] = 3;
    assert_int_equal(ftx_engine_encode(t.engine,
                                       &(FtxEncode){.size = sizeof(FtxEncode),
                                                    .count = 1,
                                                    .ids = ids,
                                                    .lengths = lengths,
                                                    .hidden = hidden,
                                                    .hidden_rows = 2},
                                       &err),
                     FTX_EINVAL);
    assert_non_null(strstr(err.text, "hidden_rows: room for 2"));
    lengths[1] = 2; /* types 0, 1, 2: the model has only two */
    assert_int_equal(
        ftx_engine_encode(
            t.engine,
            &(FtxEncode){
                .size = sizeof(FtxEncode), .count = 1, .ids = ids, .lengths = lengths, .types = (int32_t[]){0, 1, 2}},
            &err),
        FTX_EINVAL);
    assert_non_null(strstr(err.text, "types[2]: 2"));
    assert_int_equal(
        ftx_engine_encode(t.engine, &(FtxEncode){.size = sizeof(FtxEncode), .count = 1, .text = &text}, &err),
        FTX_EINVAL);
    assert_non_null(strstr(err.text, "no tokenizer"));
    assert_int_equal(
        ftx_engine_submit(t.engine, &(FtxRequest){.size = sizeof(FtxRequest), .ids = ids, .ids_count = 1}, NULL, &err),
        FTX_EINVAL);
    assert_non_null(strstr(err.text, "encoder"));
    alone(&t, &t.at[1]); /* the engine still gives right results */
    close_texts(&t, golden);
}

/* Token types change the vectors, and each text has its own types. */
static void types(void **state)
{
    static Texts t;
    static float one[MAX_TOKENS * MAX_D], two[MAX_TOKENS * MAX_D];
    static const int32_t ids[] = {5, 6, 7, 8, 9}, kinds[] = {0, 0, 1, 1, 1}, lengths[] = {5};
    json_t *golden;
    double least = 1e9;

    (void)state;
    open_texts(&t, "tiny-bert", "wide", "", &golden);
    run(&t,
        &(FtxEncode){
            .size = sizeof(FtxEncode), .count = 1, .ids = ids, .lengths = lengths, .hidden = one, .hidden_rows = 5});
    run(&t, &(FtxEncode){.size = sizeof(FtxEncode),
                         .count = 1,
                         .ids = ids,
                         .types = kinds,
                         .lengths = lengths,
                         .hidden = two,
                         .hidden_rows = 5});
    for (int i = 0; i < 5; i++) {
        double far = 0.0;

        for (int d = 0; d < t.info.hidden; d++)
            far = fmax(far, fabs((double)(one[i * t.info.hidden + d] - two[i * t.info.hidden + d])));
        least = fmin(least, far);
    }
    assert_true(least > 1e-3);
    close_texts(&t, golden);
}

/* --- texts ---------------------------------------------------------------------------------------------- */

/* A text, or pair, and the ids and types that it must be tokenized to. */
typedef struct Words {
    const char *text, *pair;
    FtxTruncate truncate;
    int max_tokens, n;
    int32_t ids[16], types[16];
} Words;

static const Words words[] = {
    {"", NULL, 0, 0, 2, {2, 3}, {0}},
    {"a ab.", NULL, 0, 0, 5, {2, 4, 9, 10, 3}, {0}},
    {"a", "b", 0, 0, 5, {2, 4, 3, 5, 3}, {0, 0, 0, 1, 1}},
    {"", "", 0, 0, 3, {2, 3, 3}, {0, 0, 1}},
    {"a a a a a", NULL, FTX_TRUNCATE_LONGEST, 4, 4, {2, 4, 4, 3}, {0}},
    {"a a a a a", NULL, FTX_TRUNCATE_FIRST, 5, 5, {2, 4, 4, 4, 3}, {0}},
    {"a a a a a", "b b b", FTX_TRUNCATE_LONGEST, 9, 9, {2, 4, 4, 4, 3, 5, 5, 5, 3}, {0, 0, 0, 0, 0, 1, 1, 1, 1}},
    {"a a a a a", "b b b", FTX_TRUNCATE_FIRST, 8, 8, {2, 4, 4, 3, 5, 5, 5, 3}, {0, 0, 0, 0, 1, 1, 1, 1}},
    {"a a a a a", "b b b", FTX_TRUNCATE_SECOND, 10, 10, {2, 4, 4, 4, 4, 4, 3, 5, 5, 3}, {0, 0, 0, 0, 0, 0, 0, 1, 1, 1}},
    {"a a", "b", FTX_TRUNCATE_SECOND, 0, 6, {2, 4, 4, 3, 5, 3}, {0, 0, 0, 0, 1, 1}},
};

static void check_words(const Texts *t, const Words *w)
{
    static float one[16 * MAX_D], two[16 * MAX_D];
    const int32_t n = w->n;
    int32_t tokens = 0, ids[16], again[16];

    run(t, &(FtxEncode){.size = sizeof(FtxEncode),
                        .count = 1,
                        .text = &w->text,
                        .pair = w->pair ? &w->pair : NULL,
                        .truncate = w->truncate,
                        .max_tokens = w->max_tokens,
                        .hidden = one,
                        .hidden_rows = 16,
                        .tokens = &tokens,
                        .text_ids = ids});
    assert_int_equal(tokens, n);
    assert_memory_equal(ids, w->ids, (size_t)n * sizeof *ids);
    run(t, &(FtxEncode){.size = sizeof(FtxEncode),
                        .count = 1,
                        .ids = w->ids,
                        .types = w->types,
                        .lengths = &n,
                        .hidden = two,
                        .hidden_rows = 16,
                        .text_ids = again});
    assert_memory_equal(one, two, (size_t)(n * t->info.hidden) * sizeof *one);
    assert_memory_equal(again, ids, (size_t)n * sizeof *ids);
}

static void refuse_text(const Texts *t, const FtxEncode *job, const char *why)
{
    FtxError err;

    assert_int_equal(ftx_engine_encode(t->engine, job, &err), FTX_EINVAL);
    if (!strstr(err.text, why))
        fail_msg("said \"%s\", expected \"%s\"", err.text, why);
}

/* The ids of many texts, in more than one step: packed behind each other without those that are refused, or in rows. */
static void check_text_ids(const Texts *t)
{
    enum { COUNT = 400, STRIDE = 5 };
    static const char *text[COUNT];
    static int32_t ids[COUNT * STRIDE], rows[COUNT * STRIDE], tokens[COUNT];
    static FtxError errors[COUNT];
    FtxEncode job = {.size = sizeof(FtxEncode), .count = COUNT, .text = text, .tokens = tokens, .errors = errors};
    size_t at = 0;

    for (size_t i = 0; i < COUNT; i++)
        text[i] = i % 7 == 3 ? NULL : i % 3 ? "a b" : "b";
    job.text_ids = ids;
    job.hidden_rows = COUNT * STRIDE;
    run(t, &job);
    job.text_ids = rows;
    job.stride = STRIDE;
    memset(rows, 0xff, sizeof rows);
    run(t, &job);
    for (size_t i = 0; i < COUNT; at += (size_t)tokens[i++]) {
        const int32_t two[] = {2, 4, 5, 3}, one[] = {2, 5, 3}, *want = i % 3 ? two : one;

        assert_int_equal(tokens[i], text[i] ? 3 + (i % 3 > 0) : 0);
        for (int k = 0; k < STRIDE; k++)
            assert_int_equal(rows[i * STRIDE + (size_t)k], k < tokens[i] ? want[k] : -1);
        assert_memory_equal(ids + at, want, (size_t)tokens[i] * sizeof *ids);
    }
    job.stride = 0;
    job.hidden_rows = at;
    run(t, &job);
    job.hidden_rows = at - 1;
    refuse_text(t, &job, "hidden_rows: room for");
}

static const char small_words[] = "-D tokenizer=tests/tokenizer/small/wordpiece.json";

static void texts(void **state)
{
    static Texts t;
    static char long_text[1 << 16], blank[1 << 16];
    const char *text[4] = {"a", long_text, "ab", NULL}, *pair[4] = {"b", NULL, NULL, NULL};
    static float hidden[4 * 8 * MAX_D], many[128 * MAX_D];
    int32_t tokens[4];
    FtxError errors[4];
    json_t *golden;

    (void)state;
    if (getenv("FTX_TEST_NO_TEXT"))
        SKIP("FTX_TEST_NO_TEXT: this machine compiles no tokenizer");
    open_texts(&t, "tiny-bert", "words", small_words, &golden);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        check_words(&t, &words[i]);
    check_text_ids(&t);

    text[0] = "a[SEP]"; /* [CLS] a [SEP] [SEP]; with `literal` "[SEP]" is plain text, of more tokens */
    for (int literal = 0; literal < 2; literal++) {
        run(&t,
            &(FtxEncode){
                .size = sizeof(FtxEncode), .count = 1, .text = text, .literal = literal, .tokens = tokens + literal});
    }
    assert_int_equal(tokens[0], 4);
    assert_true(tokens[1] > 4);
    text[0] = "a";
    for (size_t i = 0; i + 2 < sizeof long_text; i += 2)
        memcpy(long_text + i, "b ", 2);
    memset(blank, ' ', sizeof blank - 1);
    /* A refused text does not affect the others, and its rows are zero. */
    memset(hidden, 1, sizeof hidden);
    tokens[1] = tokens[3] = 99;
    run(&t, &(FtxEncode){.size = sizeof(FtxEncode),
                         .count = 4,
                         .text = text,
                         .pair = pair,
                         .stride = 8,
                         .hidden = hidden,
                         .tokens = tokens,
                         .errors = errors});
    assert_int_equal(errors[0].status, FTX_OK);
    assert_int_equal(tokens[0], 5);
    assert_int_equal(errors[1].status, FTX_EINVAL);
    assert_non_null(strstr(errors[1].text, "at most"));
    assert_true(tokens[1] == 0 && tokens[3] == 0);
    assert_int_equal(tokens[2], 3);
    assert_non_null(strstr(errors[3].text, "text: it is NULL"));
    for (int i = 0; i < 8 * t.info.hidden; i++)
        assert_true(hidden[8 * t.info.hidden + i] == 0.0f);

    /* A text of any length is truncated: to the context, or to the stride of a padded batch. */
    run(&t, &(FtxEncode){.size = sizeof(FtxEncode),
                         .count = 2,
                         .text = text,
                         .truncate = FTX_TRUNCATE_LONGEST,
                         .hidden = many,
                         .hidden_rows = 131,
                         .tokens = tokens});
    assert_int_equal(tokens[0], 3);
    assert_int_equal(tokens[1], 128);
    run(&t, &(FtxEncode){.size = sizeof(FtxEncode),
                         .count = 3,
                         .text = text,
                         .truncate = FTX_TRUNCATE_LONGEST,
                         .stride = 8,
                         .hidden = hidden,
                         .tokens = tokens});
    assert_int_equal(tokens[1], 8);
    for (size_t i = 0; i + 4 < sizeof blank; i += 3) /* a long text without any space */
        memcpy(blank + i, "\xe4\xb8\xad", 3);
    text[1] = blank;
    run(&t, &(FtxEncode){.size = sizeof(FtxEncode),
                         .count = 2,
                         .text = text,
                         .truncate = FTX_TRUNCATE_LONGEST,
                         .hidden = many,
                         .hidden_rows = 131,
                         .tokens = tokens});
    assert_int_equal(tokens[1], 128);
    memset(blank, ' ', sizeof blank - 1);
    refuse_text(&t, &(FtxEncode){.size = sizeof(FtxEncode), .count = 2, .text = text, .truncate = FTX_TRUNCATE_LONGEST},
                "use ids");
    text[1] = "a a a a a a a a";
    refuse_text(&t, &(FtxEncode){.size = sizeof(FtxEncode), .count = 2, .text = text, .stride = 8, .hidden = hidden},
                "text 1: text: 10 tokens, at most 8 fit (stride)");
    refuse_text(&t, &(FtxEncode){.size = sizeof(FtxEncode), .count = 2, .text = text, .max_tokens = 9},
                "10 tokens, at most 9 fit (max_tokens)");
    refuse_text(&t,
                &(FtxEncode){.size = sizeof(FtxEncode), .count = 1, .text = text + 1, .truncate = FTX_TRUNCATE_SECOND},
                "there is none");
    pair[1] = "b b b b b b";
    refuse_text(&t,
                &(FtxEncode){.size = sizeof(FtxEncode),
                             .count = 1,
                             .text = text,
                             .pair = pair + 1,
                             .truncate = FTX_TRUNCATE_FIRST,
                             .max_tokens = 9},
                "nothing of the first would be left");
    refuse_text(&t, &(FtxEncode){.size = sizeof(FtxEncode), .count = 1, .text = text, .ids = tokens},
                "expected one of text, ids and input");
    refuse_text(&t, &(FtxEncode){.size = sizeof(FtxEncode), .count = 1, .text = text, .max_tokens = 129},
                "max_tokens: 129, expected 1 to 128");
    refuse_text(&t, &(FtxEncode){.size = sizeof(FtxEncode), .count = 1, .ids = tokens, .lengths = tokens, .pair = pair},
                "pair: only for texts");
    refuse_text(&t, &(FtxEncode){.size = sizeof(FtxEncode), .count = 1, .input = hidden}, "lengths: missing");
    check_words(&t, &words[2]);
    close_texts(&t, golden);
}

/* --- a trained model, if its files are there ----------------------------------------------------------- */

/* A tensor of a safetensors file of 32-bit numbers. data: the file's contents after its header. */
static const float *tensor(const char *file, const json_t *head, const char *data, const char *name)
{
    const json_t *at = json_array_get(json_object_get(json_object_get(head, name), "data_offsets"), 0);

    if (!at)
        fail_msg("%s: no tensor %s", file, name);
    return (const float *)(const void *)(data + json_integer_value(at));
}

enum { EMB = 8, EMB_LONGEST = 58, EMB_D = 256 };

typedef struct Emb {
    json_t *head, *golden; /* of outputs.safetensors; outputs.json */
    const char *data;
    FtxModel *model;
    FtxEngine *engine;
    int32_t ids[EMB * EMB_LONGEST], lengths[EMB];
    const char *sentence[EMB];
    double away;
} Emb;

static void open_emb(Emb *e)
{
    const char *file = shared("golden/emb/outputs.safetensors");
    static char bytes[1 << 20];
    FILE *f = fopen(file, "rb");
    char path[1000];
    PlainText plain;
    double far = 0.0, kept[2] = {0.0};
    uint64_t n;

    if (!f)
        SKIP("%s is not there: emb has 9 MB of weights", file);
    assert_true(fread(bytes, 1, sizeof bytes, f) > 8);
    fclose(f);
    memcpy(&n, bytes, 8);
    *e = (Emb){.head = json_loadb(bytes + 8, n, 0, NULL), .data = bytes + 8 + n};
    e->golden = golden_json(shared("golden/emb/outputs.json"));
    e->model = golden_open(shared("models/emb"), "emb", getenv("FTX_TEST_NO_TEXT") ? "-D tokenizer=" : "");
    e->engine = golden_engine(e->model);
    golden_path("emb", path, sizeof path);
    plain_text_named(&plain, path, "emb");
    for (size_t i = 0; i < EMB; i++) {
        int32_t *ids = e->ids + i * EMB_LONGEST;

        e->lengths[i] = (int32_t)golden_ids(json_array_get(json_object_get(e->golden, "ids"), i), ids, EMB_LONGEST);
        e->sentence[i] = json_string_value(json_array_get(json_object_get(e->golden, "sentences"), i));
        kept[0] = fmax(kept[0], plain_text_rounding(&plain, DT_FP16, ids, e->lengths[i]));
        kept[1] = fmax(kept[1], plain_text_rounding(&plain, DT_BF16, ids, e->lengths[i]));
    }
    far = kept[plain_text_type(&plain) == DT_BF16];
    print_message("emb: values kept in fp16 go %.1e away, in bf16 %.1e\n", kept[0], kept[1]);
    e->away = plain_text_allowed(&plain, far);
    plain_text_close(&plain);
}

static void close_emb(Emb *e)
{
    ftx_engine_close(e->engine);
    ftx_model_close(e->model);
    json_decref(e->head);
    json_decref(e->golden);
}

static double farthest(const float *a, const float *b, size_t n)
{
    double far = 0.0;

    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)(a[i] - b[i]));

        far = d <= far ? far : d; /* NaN is kept */
    }
    return far;
}

static void emb(void **state)
{
    static float hidden[EMB * EMB_LONGEST * EMB_D], pooled[EMB * EMB_D];
    static Emb e;
    const float *want, *pooler;
    FtxModelInfo info;
    FtxError err;
    double worst = 0.0;

    (void)state;
    open_emb(&e);
    want = tensor("outputs", e.head, e.data, "last_hidden_state");
    pooler = tensor("outputs", e.head, e.data, "pooler_output");
    ftx_model_info(e.model, &info);
    for (int turn = 0; turn < (info.has_tokenizer ? 2 : 1); turn++) { /* ids, then texts */
        const FtxEncode job = {.size = sizeof(FtxEncode),
                               .count = EMB,
                               .ids = turn ? NULL : e.ids,
                               .lengths = turn ? NULL : e.lengths,
                               .text = turn ? e.sentence : NULL,
                               .stride = EMB_LONGEST,
                               .hidden = hidden,
                               .pooled = pooled};

        memset(hidden, 0, sizeof hidden);
        memset(pooled, 0, sizeof pooled);
        if (ftx_engine_encode(e.engine, &job, &err))
            fail_msg("%s", err.text);
        for (size_t i = 0; i < EMB; i++)
            worst = fmax(worst, farthest(hidden + i * EMB_LONGEST * EMB_D, want + i * EMB_LONGEST * EMB_D,
                                         (size_t)e.lengths[i] * EMB_D));
        worst = fmax(worst, farthest(pooled, pooler, EMB * EMB_D));
        if (!(worst <= e.away))
            fail_msg("%s: a value differs by %g, allowed %g", turn ? "texts" : "ids", worst, e.away);
    }
    close_emb(&e);
}

/* The same texts packed, alone and in batches of several sizes. A batch begins with text `first` and takes every
 * third text, modulo EMB. */
static void emb_company(void **state)
{
    static const struct {
        size_t first, count;
    } packs[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {5, 2}, {3, 7}, {6, 23}, {1, 40}};
    static float hidden[40 * EMB_LONGEST * EMB_D], pooled[40 * EMB_D];
    static int32_t ids[40 * EMB_LONGEST], lengths[40];
    static Emb e;
    const float *want, *pooler;
    FtxError err;

    (void)state;
    open_emb(&e);
    want = tensor("outputs", e.head, e.data, "last_hidden_state");
    pooler = tensor("outputs", e.head, e.data, "pooler_output");
    for (size_t p = 0; p < sizeof packs / sizeof *packs; p++) {
        size_t rows = 0;

        for (size_t i = 0; i < packs[p].count; rows += (size_t)lengths[i++]) {
            const size_t text = (packs[p].first + i * 3) % EMB;

            lengths[i] = e.lengths[text];
            memcpy(ids + rows, e.ids + text * EMB_LONGEST, (size_t)lengths[i] * sizeof *ids);
        }
        if (ftx_engine_encode(e.engine,
                              &(FtxEncode){.size = sizeof(FtxEncode),
                                           .count = packs[p].count,
                                           .ids = ids,
                                           .lengths = lengths,
                                           .hidden = hidden,
                                           .hidden_rows = rows,
                                           .pooled = pooled},
                              &err))
            fail_msg("%s", err.text);
        rows = 0;
        for (size_t i = 0; i < packs[p].count; rows += (size_t)lengths[i++]) {
            const size_t text = (packs[p].first + i * 3) % EMB;
            const double h =
                farthest(hidden + rows * EMB_D, want + text * EMB_LONGEST * EMB_D, (size_t)lengths[i] * EMB_D);
            const double v = farthest(pooled + i * EMB_D, pooler + text * EMB_D, EMB_D);

            if (!(h <= e.away) || !(v <= e.away))
                fail_msg("text %zu among %zu: %g and %g away, allowed %g", text, packs[p].count, h, v, e.away);
        }
    }
    close_emb(&e);
}

/* Input embeddings (the hidden states before the first layer) instead of ids: packed, and as the second text of a
 * padded batch. */
static void emb_states(void **state)
{
    static float hidden[2 * EMB_LONGEST * EMB_D], pooled[2 * EMB_D];
    static Emb e;
    const float *first, *want, *pooler;
    const int32_t lengths[] = {3, 9};
    FtxError err;

    (void)state;
    open_emb(&e);
    first = tensor("outputs", e.head, e.data, "hidden_0_sentence_1"); /* [58, D], of which 9 rows are the text */
    want = tensor("outputs", e.head, e.data, "single_1_last_hidden_state");
    pooler = tensor("outputs", e.head, e.data, "single_1_pooler_output");
    for (int padded = 0; padded < 2; padded++) {
        static float input[2 * EMB_LONGEST * EMB_D];
        const size_t at = padded ? EMB_LONGEST * EMB_D : 0, text = padded ? 1 : 0;

        memcpy(input, first, EMB_LONGEST * EMB_D * sizeof *input);
        memcpy(input + at, first, EMB_LONGEST * EMB_D * sizeof *input);
        if (ftx_engine_encode(e.engine,
                              &(FtxEncode){.size = sizeof(FtxEncode),
                                           .count = 1 + text,
                                           .input = input,
                                           .lengths = lengths + 1 - text,
                                           .stride = padded ? EMB_LONGEST : 0,
                                           .hidden = hidden,
                                           .hidden_rows = 9,
                                           .pooled = pooled},
                              &err))
            fail_msg("%s", err.text);
        assert_true(farthest(hidden + at, want, 9 * EMB_D) <= e.away);
        assert_true(farthest(pooled + text * EMB_D, pooler, EMB_D) <= e.away);
    }
    close_emb(&e);
}

/* Measures the effect of rounding to 16 bits on each model: the tolerances of devices. docs/testing.md has these
 * figures. */
static void roundings(void **state)
{
    static const struct {
        const char *name, *spec, *artifact;
    } models[] = {{"tiny-bert", "tests/models/tiny-bert", "tiny-bert-wide"},
                  {"tiny-roberta", "tests/models/tiny-roberta", "tiny-roberta-wide"},
                  {"tiny-distilbert", "tests/models/tiny-distilbert", "tiny-distilbert-wide"}};

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        static Texts t;
        PlainText plain;
        json_t *golden;
        char path[1000];
        double fp16 = 0.0, bf16 = 0.0;

        open_texts(&t, models[i].name, "wide", "", &golden);
        golden_path(models[i].artifact, path, sizeof path);
        plain_text_named(&plain, path, models[i].name);
        for (size_t k = 0; k < TEXTS; k++) {
            fp16 = fmax(fp16, plain_text_rounding(&plain, DT_FP16, t.at[k].ids, (int)t.at[k].n));
            bf16 = fmax(bf16, plain_text_rounding(&plain, DT_BF16, t.at[k].ids, (int)t.at[k].n));
        }
        print_message("%s: values kept in fp16 go %.1e away, in bf16 %.1e\n", models[i].name, fp16, bf16);
        assert_true(fp16 > 1e-4 && bf16 > 4.0 * fp16 && bf16 < 16.0 * fp16); /* bf16 has three mantissa bits less */
        plain_text_close(&plain);
        close_texts(&t, golden);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny),  cmocka_unit_test(pooling),     cmocka_unit_test(mistakes),
        cmocka_unit_test(types), cmocka_unit_test(texts),       cmocka_unit_test(roundings),
        cmocka_unit_test(emb),   cmocka_unit_test(emb_company), cmocka_unit_test(emb_states),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
