/* test_inputs.c - what a device tells of the rows that matrices multiply (engine_watch): which matrices, how many rows, and that
 * these are the rows. */
#include <math.h>

#include "golden.h"
#include "runtime/artifact/artifact.h"
#include "runtime/device/cpu/inputs.h"
#include "kernels/cpu/consts.h"
#include "runtime/engine/watch.h"

enum { LAYERS = 2, MOST = 64, PROMPT = 11 };

typedef struct Seen {
    struct {
        uint64_t at;
        int64_t rows, columns;
    } of[MOST];
    int n;
    float first[256]; /* the first row of the first call */
    bool finite;
} Seen;

static void see(void *user, uint64_t at, const float *x, int64_t rows, int64_t columns)
{
    Seen *s = user;

    assert_true(s->n < MOST && columns <= 256);
    if (!s->n)
        memcpy(s->first, x, sizeof *x * (size_t)columns);
    for (int64_t i = 0; i < rows * columns; i++)
        s->finite = s->finite && isfinite(x[i]);
    s->of[s->n].at = at;
    s->of[s->n].rows = rows;
    s->of[s->n++].columns = columns;
}

static const FtxWeight *weight_at(const Artifact *a, uint64_t at)
{
    for (uint32_t i = 0; i < a->n_weights; i++)
        if (a->weights[i].offset == at)
            return &a->weights[i];
    fail_msg("no weight is there");
    return NULL;
}

/* The matrices of each layer multiply a row of each token of a prompt, that of the head one row. The first one multiplies rows
 * after a norm: without its gain, their squares have the mean 1. */
static void prompt(void **state)
{
    static const char *const order[] = {"q,k,v", "o_proj", "gate,up", "down_proj"};
    FtxModel *m = golden_open("tests/models/tiny-llama", "inputs", "-D precision.weights=fp32 -D precision.kv=fp32");
    FtxEngine *e = golden_engine(m);
    Seen seen = {.finite = true};
    const Watch watch = {see, &seen};
    GoldenAnswer answer = {0};
    FtxRequest r = ftx_request_default(m);
    int32_t ids[PROMPT];
    char path[1000];
    double squares = 0;
    int64_t hidden;
    Artifact a;
    FtxError err;
    (void)state;

    for (int i = 0; i < PROMPT; i++)
        ids[i] = 3 + 5 * i;
    golden_path("inputs", path, sizeof path);
    assert_int_equal(artifact_open(path, &a, &err), FTX_OK);
    r.ids = ids;
    r.ids_count = PROMPT;
    r.max_new = 1;
    r.temperature = 0;
    r.user = &answer;
    assert_int_equal(engine_watch(e, &watch, &err), FTX_OK);
    golden_submit(e, &r);
    golden_finish(e);
    assert_true(seen.finite);
    assert_int_equal(seen.n, 4 * LAYERS + 1);
    for (int i = 0; i < seen.n; i++) {
        const FtxWeight *w = weight_at(&a, seen.of[i].at);
        const char *name = artifact_string(&a, w->name);

        assert_int_equal(seen.of[i].rows, i < 4 * LAYERS ? PROMPT : 1);
        assert_int_equal(seen.of[i].columns, w->dim[1]);
        if (i < 4 * LAYERS && !strstr(name, order[i % 4]))
            fail_msg("matrix %d is %s", i, name);
    }
    hidden = seen.of[0].columns;
    for (uint32_t i = 0; i < a.n_weights; i++)
        if (strcmp(artifact_string(&a, a.weights[i].name), "model.layers.0.input_layernorm.weight") == 0)
            for (int64_t k = 0; k < hidden; k++) {
                const float x = seen.first[k] / ((const float *)artifact_weight(&a, i))[k];

                squares += (double)x * (double)x / (double)hidden;
            }
    assert_true(fabs(squares - 1) < 1e-2);

    seen.n = 0;
    assert_int_equal(engine_watch(e, NULL, &err), FTX_OK);
    golden_submit(e, &r);
    golden_finish(e);
    assert_int_equal(seen.n, 0);
    artifact_close(&a);
    ftx_engine_close(e);
    ftx_model_close(m);
}

/* Which operand is the matrix, how many rows there are and how long they are, by a kernel's constants. */
static void products(void **state)
{
    int64_t k[16];
    Product p;
    (void)state;

    for (int i = 0; i < 16; i++)
        k[i] = 100 + i;
    k[LINEAR_ROWS_S] = 0;
    assert_true(inputs_product("linear", k, 9, 4, &p));
    assert_int_equal(p.matrix, 1);
    assert_int_equal(p.rows, 9);
    assert_int_equal(p.columns, k[LINEAR_K]);
    k[LINEAR_ROWS_S] = 1;
    assert_true(inputs_product("linear", k, 9, 4, &p));
    assert_int_equal(p.rows, 4);
    k[EXPERT_LINEAR_ROWS_S] = 0;
    assert_true(inputs_product("expert_linear", k, 9, 4, &p));
    assert_int_equal(p.matrix, 4);
    assert_int_equal(p.rows, 9);
    assert_int_equal(p.columns, k[EXPERT_LINEAR_K]);
    k[EXPERT_SUM_ROWS_S] = 1;
    k[EXPERT_SUM_R] = 3;
    assert_true(inputs_product("expert_sum", k, 9, 4, &p));
    assert_int_equal(p.matrix, 4);
    assert_int_equal(p.rows, 12);
    assert_int_equal(p.columns, k[EXPERT_SUM_K]);
    assert_false(inputs_product("linear_q", k, 9, 4, &p));
    assert_false(inputs_product("rmsnorm", k, 9, 4, &p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(prompt), cmocka_unit_test(products)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
