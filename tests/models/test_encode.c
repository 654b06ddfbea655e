/* test_encode.c - encoders against Hugging Face transformers: vectors within 1e-4, whatever batch
 * they travel in: alone, packed with others, padded, in several steps. Mistakes in one text leave
 * the others unharmed. */
#include <math.h>
#include <unistd.h>

#include "golden.h"

/* A file of the bigger references: in FTX_SHARED, or beside the tree. */
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

static double tolerance(void)
{
    const char *t = getenv("FTX_TEST_TOLERANCE");

    return t ? atof(t) : 1e-4;
}

typedef struct Text {
    int32_t ids[128];
    size_t n;
    const json_t *golden;
    float first[MAX_D], pooled[MAX_D]; /* alone */
} Text;

typedef struct Texts {
    Text at[TEXTS];
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
} Texts;

/* A golden vector, if there is one. */
static void check(const char *what, const json_t *want, const float *got, size_t n)
{
    double worst = 0.0;

    if (!want || json_is_null(want))
        return;
    assert_int_equal(json_array_size(want), n);
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs(json_number_value(json_array_get(want, i)) - (double)got[i]));
    if (!(worst <= tolerance()))
        fail_msg("%s: a value differs by %g", what, worst);
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
    check("first", json_object_get(x->golden, "first"), hidden, D);
    check("mean", json_object_get(x->golden, "mean"), mean, D);
    if (t->info.pooled)
        check("pooled", json_object_get(x->golden, "pooler"), pooled, (size_t)t->info.pooled);
}

static void alone(const Texts *t, Text *x)
{
    static float hidden[MAX_TOKENS * MAX_D];
    const int32_t n = (int32_t)x->n;
    int32_t tokens = 0;

    run(t, &(FtxEncode){.count = 1,
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

/* All texts `copies` times, packed, or with rows `stride` apart. */
static void together(const Texts *t, size_t copies, size_t stride)
{
    static int32_t ids[64 * 128], lengths[64];
    static float hidden[64 * 128 * MAX_D], pooled[64 * MAX_D];
    const size_t D = (size_t)t->info.hidden, P = (size_t)t->info.pooled, count = copies * TEXTS;
    size_t at = 0, rows = 0;

    assert_true(count <= 64);
    memset(ids, -1, sizeof ids); /* what no text has is not read */
    memset(hidden, 1, sizeof hidden);
    for (size_t i = 0; i < count; i++, at += stride ? stride : t->at[(i - 1) % TEXTS].n) {
        const Text *x = &t->at[i % TEXTS];

        lengths[i] = (int32_t)x->n;
        memcpy(ids + at, x->ids, x->n * sizeof *ids);
        rows = at + x->n;
    }
    run(t, &(FtxEncode){.count = count,
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
        if (!golden_on_cuda()) { /* not one bit */
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
    char path[200], artifact[200];

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
}

static void close_texts(Texts *t, json_t *golden)
{
    ftx_engine_close(t->engine);
    ftx_model_close(t->model);
    json_decref(golden);
}

/* Fewer rows and tokens in a step make the same texts travel in other company. */
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

/* Another vector a text than the family's own. */
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

        run(&t, &(FtxEncode){.count = 1,
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
    FtxEncode job = {.count = 4,
                     .ids = ids,
                     .lengths = lengths,
                     .hidden = hidden,
                     .hidden_rows = 300,
                     .tokens = tokens,
                     .errors = errors};

    run(&t, &job); /* 5 6 with 243 before: fine; 400: unknown; 7 -1: unknown; none */
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
    assert_int_equal(ftx_engine_encode(t.engine, &(FtxEncode){.count = 1, .ids = ids, .lengths = lengths}, &err),
                     FTX_EINVAL);
    assert_non_null(strstr(err.text, "lengths: 129"));
    lengths[0] = 3;
    assert_int_equal(
        ftx_engine_encode(t.engine,
                          &(FtxEncode){.count = 1, .ids = ids, .lengths = lengths, .hidden = hidden, .hidden_rows = 2},
                          &err),
        FTX_EINVAL);
    assert_non_null(strstr(err.text, "hidden_rows: room for 2"));
    lengths[1] = 2; /* types: 0, 1 and, of 2 kinds, 2 */
    assert_int_equal(
        ftx_engine_encode(
            t.engine, &(FtxEncode){.count = 1, .ids = ids, .lengths = lengths, .types = (int32_t[]){0, 1, 2}}, &err),
        FTX_EINVAL);
    assert_non_null(strstr(err.text, "types[2]: 2"));
    assert_int_equal(ftx_engine_encode(t.engine, &(FtxEncode){.count = 1, .text = &text}, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "no tokenizer"));
    assert_int_equal(ftx_engine_submit(t.engine, &(FtxRequest){.ids = ids, .ids_count = 1}, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "encoder"));
    alone(&t, &t.at[1]); /* nothing of that has harmed the engine */
    close_texts(&t, golden);
}

/* Types change the vectors, and each text has its own. */
static void types(void **state)
{
    static Texts t;
    static float one[MAX_TOKENS * MAX_D], two[MAX_TOKENS * MAX_D];
    static const int32_t ids[] = {5, 6, 7, 8, 9}, kinds[] = {0, 0, 1, 1, 1}, lengths[] = {5};
    json_t *golden;
    double least = 1e9;

    (void)state;
    open_texts(&t, "tiny-bert", "wide", "", &golden);
    run(&t, &(FtxEncode){.count = 1, .ids = ids, .lengths = lengths, .hidden = one, .hidden_rows = 5});
    run(&t, &(FtxEncode){.count = 1, .ids = ids, .types = kinds, .lengths = lengths, .hidden = two, .hidden_rows = 5});
    for (int i = 0; i < 5; i++) {
        double far = 0.0;

        for (int d = 0; d < t.info.hidden; d++)
            far = fmax(far, fabs((double)(one[i * t.info.hidden + d] - two[i * t.info.hidden + d])));
        least = fmin(least, far);
    }
    assert_true(least > 1e-3);
    close_texts(&t, golden);
}

/* --- a trained model, where it is --------------------------------------------------------------------- */

/* A tensor of a safetensors file of 32-bit numbers; the file stays mapped in memory. */
static const float *tensor(const char *file, const json_t *head, const char *data, const char *name)
{
    const json_t *at = json_array_get(json_object_get(json_object_get(head, name), "data_offsets"), 0);

    if (!at)
        fail_msg("%s: no tensor %s", file, name);
    return (const float *)(const void *)(data + json_integer_value(at));
}

static void emb(void **state)
{
    const char *file = shared("golden/emb/outputs.safetensors");
    static char bytes[1 << 20];
    static int32_t ids[8 * 58], lengths[8];
    static float hidden[8 * 58 * 256], pooled[8 * 256];
    FILE *f = fopen(file, "rb");
    const char *sentence[8];
    uint64_t n;
    double worst = 0.0;

    (void)state;
    if (!f) {
        print_message("skipped: %s is not there\n", file);
        skip();
    }
    assert_true(fread(bytes, 1, sizeof bytes, f) > 8);
    fclose(f);
    memcpy(&n, bytes, 8);

    json_t *head = json_loadb(bytes + 8, n, 0, NULL), *golden = golden_json(shared("golden/emb/outputs.json"));
    const float *want = tensor(file, head, bytes + 8 + n, "last_hidden_state");
    const float *pooler = tensor(file, head, bytes + 8 + n, "pooler_output");
    FtxModel *model = golden_open(shared("models/emb"), "emb", getenv("FTX_TEST_NO_TEXT") ? "-D tokenizer=" : "");
    FtxEngine *engine = golden_engine(model);
    FtxModelInfo info;
    FtxError err;

    ftx_model_info(model, &info);
    for (size_t i = 0; i < 8; i++) {
        lengths[i] = (int32_t)golden_ids(json_array_get(json_object_get(golden, "ids"), i), ids + i * 58, 58);
        sentence[i] = json_string_value(json_array_get(json_object_get(golden, "sentences"), i));
    }
    for (int turn = 0; turn < (info.has_tokenizer ? 2 : 1); turn++) { /* ids, then texts */
        const FtxEncode job = {.count = 8,
                               .ids = turn ? NULL : ids,
                               .lengths = turn ? NULL : lengths,
                               .text = turn ? sentence : NULL,
                               .stride = 58,
                               .hidden = hidden,
                               .pooled = pooled};

        memset(hidden, 0, sizeof hidden);
        memset(pooled, 0, sizeof pooled);
        if (ftx_engine_encode(engine, &job, &err))
            fail_msg("%s", err.text);
        for (int i = 0; i < 8; i++) {
            for (int k = 0; k < lengths[i] * 256; k++)
                worst = fmax(worst, fabs((double)(hidden[i * 58 * 256 + k] - want[i * 58 * 256 + k])));
            for (int k = 0; k < 256; k++)
                worst = fmax(worst, fabs((double)(pooled[i * 256 + k] - pooler[i * 256 + k])));
        }
        if (!(worst <= tolerance()))
            fail_msg("%s: a value differs by %g", turn ? "texts" : "ids", worst);
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
    json_decref(head);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny),  cmocka_unit_test(pooling), cmocka_unit_test(mistakes),
        cmocka_unit_test(types), cmocka_unit_test(emb),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
