/* test_cublaslt.c - matrix products by cuBLASLt: which are taken, and which algorithm runs for how many rows. */
#include "fake_driver.h"
#include "tables.h"

enum { ROWS = 200, WORKSPACE = 1 << 20 };

static const LtShape plain = {.rows = ROWS, .n = 128, .k = 64, .x = DT_BF16, .w = DT_BF16, .y = DT_BF16};
static const Memory memory; /* malloc */

typedef struct Bench {
    const CudaDriver *cu;
    CUdeviceptr workspace;
    CUstream stream;
    void *handle;
    LtPointers p;
} Bench;

static Bench open_bench(void)
{
    Bench b = {0};
    CUcontext context;

    fake_reset();
    must(cuda_driver(&b.cu, NULL), NULL);
    b.cu->cuDevicePrimaryCtxRetain(&context, 0);
    b.cu->cuCtxPushCurrent(context);
    b.cu->cuMemAlloc(&b.workspace, WORKSPACE);
    b.cu->cuStreamCreate(&b.stream, 0);
    must(lt_start(&b.handle, NULL), NULL);
    b.p = (LtPointers){.x = 16, .w = 32, .b = 48, .r = 64, .y = 80};
    return b;
}

static void close_bench(Bench *b)
{
    CUcontext context;

    lt_stop(b->handle);
    b->cu->cuStreamDestroy(b->stream);
    b->cu->cuMemFree(b->workspace);
    b->cu->cuCtxPopCurrent(&context);
    b->cu->cuDevicePrimaryCtxRelease(0);
    assert_int_equal(fake_open_things(), 0);
}

static LtMatmul *opened(const Bench *b, const LtShape *shape)
{
    FtxError err;
    LtMatmul *l;

    must(lt_open(&memory, b->handle, shape, &l, &err), &err);
    return l;
}

/* The algorithm, known by the row count it was chosen for, that runs for so many rows. */
static long long algo_of(const Bench *b, const LtMatmul *l, int64_t rows)
{
    FtxError err;

    fake.n_run = 0;
    must(lt_run(l, rows, &b->p, b->workspace, b->stream, &err), &err);
    assert_int_equal(fake.n_run, 1);
    assert_int_equal(fake.run[0].m, rows);
    return fake.run[0].algo;
}

/* One algorithm for each 64 rows, the last for the most rows there are. */
static void rows_choose_the_algorithm(void **state)
{
    static const int64_t rows[][2] = {{1, 64},    {63, 64},   {64, 64},   {65, 128},
                                      {128, 128}, {129, 192}, {193, 200}, {200, 200}};
    Bench b = open_bench();
    LtMatmul *l = opened(&b, &plain);
    FtxError err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(algo_of(&b, l, rows[i][0]), rows[i][1]);
    fake.n_run = 0;
    assert_int_equal(lt_run(l, ROWS + 1, &b.p, b.workspace, b.stream, &err), FTX_EINVAL);
    assert_string_equal(err.text, "201 rows in a matrix product planned for at most 200");
    assert_int_equal(lt_run(l, 0, &b.p, b.workspace, b.stream, &err), FTX_EINVAL);
    assert_int_equal(fake.n_run, 0);
    lt_close(l);
    close_bench(&b);
}

/* Warming runs each algorithm once, in a workspace that is enough for all: the first needs the most. */
static void each_algorithm_is_warmed(void **state)
{
    static const int64_t algos[] = {64, 128, 192, 200};
    Bench b = open_bench();
    LtMatmul *l = opened(&b, &plain);

    (void)state;
    assert_int_equal(lt_workspace(l), 4096 * (1 + 256 / 64));
    must(lt_warm(l, &b.p, b.workspace, b.stream, NULL), NULL);
    assert_int_equal(fake.n_run, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(fake.run[i].algo, algos[i]);
    lt_close(l);
    close_bench(&b);
}

/* Where the algorithm of a step does not serve a row count, one is chosen for just that count, in the same workspace. */
static void odd_rows_get_their_own_algorithm(void **state)
{
    Bench b = open_bench();
    LtMatmul *l = opened(&b, &plain);

    (void)state;
    fake.picky = true;
    assert_int_equal(algo_of(&b, l, 64), 64);
    assert_int_equal(algo_of(&b, l, 17), 17);
    assert_int_equal(algo_of(&b, l, 199), 199);
    lt_close(l);
    close_bench(&b);
}

#define RECORD(from, to, id) from, to, id, 2, 1, 0, 4, 5, 6, 7, 8

/* Measured algorithms run for the steps of 64 rows that end in their range; the library chooses the others. What it does not
 * accept is ignored and counted. */
static void measured_algorithms_are_taken(void **state)
{
    static const int64_t records[] = {RECORD(64, 64, 20), RECORD(128, 192, 21), RECORD(256, 256, 13)};
    static const int64_t broken[] = {RECORD(64, 64, 14), /* too much memory */
                                     64,
                                     64,
                                     22,
                                     2,
                                     2,
                                     1,
                                     4,
                                     5,
                                     6,
                                     7,
                                     8,                    /* sums over parts of K */
                                     RECORD(512, 640, 23), /* no such rows */
                                     RECORD(128, 128, 24),
                                     RECORD(64, 256, 25)};
    Bench b = open_bench();
    LtShape s = plain;
    LtMatmul *l;

    (void)state;
    s.measured = records, s.n_measured = 3, s.version = 130000;
    l = opened(&b, &s);
    assert_int_equal(algo_of(&b, l, 64), 1020);
    assert_int_equal(algo_of(&b, l, 65), 1021);
    assert_int_equal(algo_of(&b, l, 192), 1021);
    assert_int_equal(algo_of(&b, l, 200), 200); /* id 13 is not supported */
    assert_int_equal(lt_ignored(l), 1);
    assert_int_equal(lt_measured(l), 3);
    assert_false(lt_equal(l, &plain));
    assert_true(lt_equal(l, &s));
    lt_close(l);

    s.measured = broken, s.n_measured = 5;
    l = opened(&b, &s);
    assert_int_equal(algo_of(&b, l, 1), 1025);
    assert_int_equal(algo_of(&b, l, 128), 1024); /* the first record counts */
    assert_int_equal(algo_of(&b, l, 200), 1025);
    assert_int_equal(lt_ignored(l), 3);
    lt_close(l);

    s.version = 130001; /* of another library */
    l = opened(&b, &s);
    assert_int_equal(algo_of(&b, l, 1), 64);
    assert_int_equal(lt_ignored(l), 5);
    lt_close(l);
    close_bench(&b);
}

/* The list has what the library supports, with its attributes, and each of it can be run. */
static void algorithms_are_listed(void **state)
{
    static const int64_t attributes[FTX_MM_ATTRIBUTES] = {66, 2, 1, 0, 4, 5, 2, 7, 8};
    Bench b = open_bench();
    LtMatmul *l = opened(&b, &plain);
    LtChoice list[8];
    size_t n;

    (void)state;
    must(lt_list(l, 128, list, 2, &n, NULL), NULL);
    assert_int_equal(n, 2);
    must(lt_list(l, 128, list, 8, &n, NULL), NULL);
    assert_int_equal(n, 3); /* the fourth is not supported */
    assert_memory_equal(list[1].attribute, attributes, sizeof attributes);
    fake.n_run = 0;
    must(lt_try(l, &list[1], 100, &b.p, b.workspace, b.stream, NULL), NULL);
    assert_int_equal(fake.run[0].algo, 128);
    assert_int_equal(fake.run[0].m, 100);
    fake.picky = true;
    assert_int_equal(lt_try(l, &list[1], 100, &b.p, b.workspace, b.stream, NULL), FTX_EDEVICE);
    lt_close(l);
    close_bench(&b);
}

static void pointers_and_epilogues(void **state)
{
    static const struct {
        FtxAct act;
        bool bias, residual;
        int epilogue;
    } rows[] = {{FTX_ACT_NONE, false, false, 1},      {FTX_ACT_NONE, true, true, 4},
                {FTX_ACT_RELU, false, false, 2},      {FTX_ACT_RELU, true, false, 6},
                {FTX_ACT_GELU_TANH, true, false, 36}, {FTX_ACT_GELU_TANH, false, false, 32},
                {FTX_ACT_NONE, false, true, 1}};
    Bench b = open_bench();

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        LtShape s = plain;

        s.act = rows[i].act, s.bias = rows[i].bias, s.residual = rows[i].residual;
        LtMatmul *l = opened(&b, &s);
        algo_of(&b, l, 100);
        const FakeLaunch *r = &fake.run[0];
        assert_int_equal(r->epilogue, rows[i].epilogue); /* CUBLASLT_EPILOGUE_... */
        assert_true(r->beta == (s.residual ? 1.0f : 0.0f));
        assert_int_equal(r->param[0], b.p.x);
        assert_int_equal(r->param[1], b.p.w);
        assert_int_equal(r->param[2], s.bias ? b.p.b : 0);
        assert_int_equal(r->param[3], s.residual ? b.p.r : b.p.y);
        assert_int_equal(r->param[4], b.p.y);
        lt_close(l);
    }
    close_bench(&b);
}

static void refused(const Bench *b, const LtShape *s, const char *text)
{
    LtMatmul *l;
    FtxError err = {0};

    assert_int_equal(lt_open(&memory, b->handle, s, &l, &err), FTX_EFORMAT);
    assert_null(l);
    if (!strstr(err.text, text))
        fail_msg("'%s' is not in '%s'", text, err.text);
}

static void what_it_would_not_compute_is_refused(void **state)
{
    Bench b = open_bench();
    LtShape s;

    (void)state;
    s = plain, s.rows = 0;
    refused(&b, &s, "a matrix product of [0,64] and [128,64]");
    s = plain, s.n = 0;
    refused(&b, &s, "a matrix product of [200,64] and [0,64]");
    s = plain, s.k = 0;
    refused(&b, &s, "a matrix product of [200,0] and [128,0]");
    s = plain, s.k = (int64_t)INT32_MAX + 1;
    refused(&b, &s, "a matrix product");
    s = plain, s.act = FTX_ACT_SILU;
    refused(&b, &s, "no activation 5");
    s = plain, s.act = FTX_ACT_RELU, s.residual = true;
    refused(&b, &s, "no activation with a residual");
    s.bias = true;
    refused(&b, &s, "no activation with a residual");
    s = plain, s.w = DT_FP16;
    refused(&b, &s, "no matrix product of bf16 and fp16 into bf16");
    s = plain, s.y = DT_FP16;
    refused(&b, &s, "no matrix product of bf16 and bf16 into fp16");
    close_bench(&b);
}

/* A plan serves another launch only if nothing differs. */
static void only_equal_products_are_equal(void **state)
{
    Bench b = open_bench();
    LtMatmul *l = opened(&b, &plain);
    LtShape s[9];

    (void)state;
    assert_true(lt_equal(l, &plain));
    for (int i = 0; i < 9; i++)
        s[i] = plain;
    s[0].rows++, s[1].n++, s[2].k++;
    s[3].x = s[4].w = s[5].y = DT_FP32;
    s[6].act = FTX_ACT_RELU, s[7].bias = true, s[8].residual = true;
    for (int i = 0; i < 9; i++)
        assert_false(lt_equal(l, &s[i]));
    lt_close(l);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_choose_the_algorithm),
        cmocka_unit_test(each_algorithm_is_warmed),
        cmocka_unit_test(odd_rows_get_their_own_algorithm),
        cmocka_unit_test(measured_algorithms_are_taken),
        cmocka_unit_test(algorithms_are_listed),
        cmocka_unit_test(pointers_and_epilogues),
        cmocka_unit_test(what_it_would_not_compute_is_refused),
        cmocka_unit_test(only_equal_products_are_equal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
