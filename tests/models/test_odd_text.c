/* test_odd_text.c - small encoders of unusual shapes against a plain forward pass (plain_text.h): every length
 * from 1 to the context, batches of 1 to 300 texts, packed and padded, from ids and from input embeddings.
 *
 * FTX_ODD: number of shapes, or "all", which takes long. */
#include "golden.h"
#include "odd_text.h"
#include "plain_text.h"

#include <errno.h>
#include <unistd.h>

enum { FIRST = 20, MAX_BATCH = 300, MAX_CONTEXT = 82 };

static int wanted(void)
{
    const char *odd = getenv("FTX_ODD");
    const int n = odd ? strcmp(odd, "all") == 0 ? ODD_TEXTS : atoi(odd) : FIRST;

    return n < ODD_TEXTS ? n : ODD_TEXTS;
}

/* --- a shape ------------------------------------------------------------------------------------- */

typedef struct Shape {
    OddText s;
    char path[1000], what[300];
    FtxModel *model;
    FtxEngine *engine;
    PlainText plain;
    int D, P, count;                 /* hidden size, pooled size, number of texts */
    int32_t *ids, *types, *lengths;  /* [count][context], [count] */
    float *entry, *hidden, *pooled;  /* expected: [count][context][D], the same, [count][P] */
    float *got, *got_pooled, *input; /* outputs of the engine, and its input embeddings */
    double away;                     /* tolerance in the device's type */
} Shape;

static void open_shape(Shape *t, int number)
{
    static const char *const acts[] = {[FTX_ACT_RELU] = "relu",
                                       [FTX_ACT_GELU_ERF] = "gelu_erf",
                                       [FTX_ACT_GELU_TANH] = "gelu_tanh",
                                       [FTX_ACT_SILU] = "silu"};
    static const char *const pools[] = {"none", "pooler", "first", "mean"}; /* by PlainPool */
    const char *folder = getenv("FTX_BUILD"), *artifacts = getenv("FTX_TEST_ARTIFACTS");
    char spec[1000], weights[1000], text[2000], name[40];
    const OddText *s = &t->s;
    OddTensors tensors = {.n = 0};

    assert_non_null(folder);
    t->s = odd_text(number);
    snprintf(t->what, sizeof t->what,
             "shape %d (%s, head_dim %d, heads %d, ffn %d, context %d, tokens %d, sequences %d, pooling %s, labels %d, "
             "%s, %s)",
             number, s->distil ? "distilbert" : "bert", s->head_dim, s->heads, s->ffn, s->context, s->tokens,
             s->sequences, s->pooling, s->labels, s->activation, s->weights);
    snprintf(name, sizeof name, "odd-text-%d", number);
    snprintf(weights, sizeof weights, "%s/test-%s.safetensors", folder, name);
    snprintf(spec, sizeof spec, "%s/test-%s.lua", folder, name);
    snprintf(t->path, sizeof t->path, artifacts ? "%s/%s.ftx" : "%s/test-%s.ftx", artifacts ? artifacts : folder, name);
    if (!artifacts) {
        FILE *f = fopen(spec, "w");

        odd_text_spec(s, strrchr(weights, '/') + 1, text, sizeof text);
        if (!f || fputs(text, f) < 0 || fclose(f))
            fail_msg("%s: %s", spec, strerror(errno));
        odd_text_tensors(s, &tensors);
        if (!odd_write(&tensors, (uint64_t)number * 7919 + 1, weights))
            fail_msg("%s: %s", weights, strerror(errno));
    }
    t->model = golden_open(spec, name, "");
    t->engine = golden_engine(t->model);
    if (!artifacts) {
        unlink(spec);
        unlink(weights);
    }
    plain_text_open(&t->plain, t->path, s->distil ? plain_distilbert : plain_bert);
    t->plain.first_position = s->first_position;
    t->plain.normalize = s->normalize;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (acts[i] && strcmp(acts[i], s->activation) == 0)
            t->plain.act = (FtxAct)i;
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        if (strcmp(pools[i], s->pooling) == 0)
            t->plain.pool = (PlainPool)i;
    t->D = s->hidden;
    t->P = (int)t->plain.facts->pooled;
}

static void close_shape(Shape *t)
{
    void *const own[] = {t->ids, t->types, t->lengths, t->entry, t->hidden, t->pooled, t->got, t->got_pooled, t->input};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        free(own[i]);
    plain_text_close(&t->plain);
    ftx_engine_close(t->engine);
    ftx_model_close(t->model);
    if (!getenv("FTX_TEST_ARTIFACTS"))
        unlink(t->path);
    *t = (Shape){.count = 0};
}

static double worst(const float *a, const float *b, size_t n)
{
    double far = 0.0;

    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);

        far = d <= far ? far : d; /* NaN is kept */
    }
    return far;
}

/* Makes `count` texts of lengths 1, 2, 3 ... in turn, and their expected results. */
static void make_texts(Shape *t, int count)
{
    const size_t C = (size_t)t->s.context, rows = (size_t)count * C, D = (size_t)t->D, P = (size_t)t->P;

    t->count = count;
    t->ids = calloc(rows, sizeof *t->ids);
    t->types = calloc(rows, sizeof *t->types);
    t->lengths = calloc((size_t)count, sizeof *t->lengths);
    t->entry = calloc(rows * D, sizeof(float));
    t->hidden = calloc(rows * D, sizeof(float));
    t->input = calloc(rows * D, sizeof(float));
    t->got = calloc(rows * D, sizeof(float));
    t->pooled = calloc((size_t)count * P + 1, sizeof(float));
    t->got_pooled = calloc((size_t)count * P + 1, sizeof(float));
    for (size_t i = 0; i < (size_t)count; i++) {
        const int n = t->lengths[i] = (int)(i * 7 % C) + 1;

        for (int k = 0; k < n; k++) {
            t->ids[i * C + (size_t)k] = odd_draw((int)i, k, t->s.vocab);
            t->types[i * C + (size_t)k] = t->s.types ? odd_draw((int)i, 1000 + k, t->s.types) : 0;
        }
        plain_text(&t->plain, t->ids + i * C, t->types + i * C, n);
        memcpy(t->entry + i * C * D, t->plain.entry, (size_t)n * D * sizeof(float));
        memcpy(t->hidden + i * C * D, t->plain.hidden, (size_t)n * D * sizeof(float));
        memcpy(t->pooled + i * P, t->plain.pooled, P * sizeof(float));
    }
}

static double allowed(Shape *t)
{
    const size_t C = (size_t)t->s.context;
    double far = 0.0;

    for (size_t i = 0; i < C && i < (size_t)t->count; i++)
        far = fmax(far, plain_text_rounding(&t->plain, plain_text_type(&t->plain), t->ids + i * C, t->lengths[i]));
    return plain_text_allowed(&t->plain, far);
}

/* Encodes n texts, beginning with number `first`, in one call. states: from input embeddings. */
static void check_batch(Shape *t, int first, int n, bool padded, bool states)
{
    const size_t C = (size_t)t->s.context, D = (size_t)t->D, P = (size_t)t->P, from = (size_t)first;
    static int32_t ids[MAX_BATCH * MAX_CONTEXT], types[MAX_BATCH * MAX_CONTEXT];
    size_t rows = 0;
    FtxError err;

    for (size_t i = from; i < from + (size_t)n; i++) { /* padding holds bad values: it must not be read */
        const size_t at = padded ? (i - from) * C : rows, length = (size_t)t->lengths[i];

        memcpy(ids + at, t->ids + i * C, length * sizeof *ids);
        memcpy(types + at, t->types + i * C, length * sizeof *types);
        memcpy(t->input + at * D, t->entry + i * C * D, length * D * sizeof(float));
        for (size_t k = at + length; padded && k < at + C; k++) {
            ids[k] = -1;
            t->input[k * D] = NAN;
        }
        rows += length;
    }
    memset(t->got, -1, (size_t)n * C * D * sizeof(float));
    if (ftx_engine_encode(t->engine,
                          &(FtxEncode){.size = sizeof(FtxEncode),
                                       .count = (size_t)n,
                                       .ids = states ? NULL : ids,
                                       .types = states || !t->s.types ? NULL : types,
                                       .input = states ? t->input : NULL,
                                       .lengths = t->lengths + from,
                                       .stride = padded ? C : 0,
                                       .hidden = t->got,
                                       .hidden_rows = rows,
                                       .pooled = P ? t->got_pooled : NULL},
                          &err))
        fail_msg("%s: %s", t->what, err.text);
    rows = 0;
    for (size_t i = from; i < from + (size_t)n; i++) {
        const size_t at = padded ? (i - from) * C : rows, length = (size_t)t->lengths[i];
        const double h = worst(t->got + at * D, t->hidden + i * C * D, length * D);
        const double p = worst(t->got_pooled + (i - from) * P, t->pooled + i * P, P);

        if (!(h <= t->away) || !(p <= t->away))
            fail_msg("%s: %d texts%s%s, that of %zu tokens: hidden states differ by %.2e, the vector by %.2e, allowed "
                     "%.2e",
                     t->what, n, padded ? ", padded" : "", states ? ", from hidden states" : "", length, h, p, t->away);
        for (size_t k = (at + length) * D; padded && k < (at + C) * D; k++)
            assert_true(t->got[k] == 0.0f);
        rows += length;
    }
}

static void shapes(void **state)
{
    static Shape t;

    (void)state;
    for (int i = 0; i < wanted(); i++) {
        if (!in_turn_sanitized((uint64_t)i, ODD_TURNS))
            continue;
        open_shape(&t, i);
        if (getenv("FTX_ODD"))
            print_message("%s\n", t.what);
        make_texts(&t, t.s.context); /* every length from 1 to the context */
        t.away = allowed(&t);
        for (int way = 0; way < 4; way++)
            check_batch(&t, 0, t.count, way & 1, way & 2);
        check_batch(&t, t.count / 2, 1, false, false);
        close_shape(&t);
    }
}

/* Batches of many sizes from 1 to MAX_BATCH, on a small shape to save time. */
static void batches(void **state)
{
    static Shape t;

    (void)state;
    open_shape(&t, 5);
    make_texts(&t, MAX_BATCH);
    t.away = allowed(&t);
    for (int n = 1; n <= MAX_BATCH; n += n < 70 || n > 290 ? 1 : 7)
        check_batch(&t, (MAX_BATCH - n) / 2, n, n & 1, n & 2);
    close_shape(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(batches)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
