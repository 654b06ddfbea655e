/* test_score.c - ftx_engine_score on a fake device that runs behind the host: what each row reads stands in the cache before
 * the step that has it as a row, and each log-probability is that of its own logits. */
#include "jobs.h"

#include <math.h>

static double logprob_of(const int32_t *ids, int n, uint32_t vocab, int32_t next)
{
    double sum = 0, at = 0;

    for (uint32_t v = 0; v < vocab; v++) {
        const double logit = (double)fake_logit(ids, n, v);

        sum += exp(logit);
        at = (int32_t)v == next ? logit : at;
    }
    return at - log(sum);
}

static void scores(bool fixed)
{
    FakeSizes sizes = fake_sizes(); /* four rows a step */
    int32_t ids[40];
    float logprobs[40], again[40];
    float *logits = malloc(sizeof *logits * 39 * sizes.vocab);
    FtxError err;
    Bed b;
    Job j;

    sizes.fixed_sums = fixed;
    for (int i = 0; i < 40; i++)
        ids[i] = (i * 23 + 5) % 61;
    reset_fake(true, 50);
    open_bed(&b, &sizes);
    for (size_t n = 2; n <= 40; n += n < 10 ? 1 : 15) {
        assert_int_equal(ftx_engine_score(b.engine, ids, n, logprobs, &err), FTX_OK);
        assert_string_equal(fake.wrong, "");
        for (size_t i = 0; i + 1 < n; i++)
            assert_true(fabs((double)logprobs[i] - logprob_of(ids, (int)i + 1, sizes.vocab, ids[i + 1])) < 1e-4);
        assert_int_equal(ftx_engine_score_logits(b.engine, ids, n, again, logits, &err), FTX_OK);
        assert_memory_equal(again, logprobs, (n - 1) * sizeof *again);
        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t v = 0; v < sizes.vocab; v++)
                assert_true(logits[i * sizes.vocab + v] == fake_logit(ids, (int)i + 1, v));
        assert_idle(b.engine);
        make_job(&j, 8, n); /* and the engine works as before */
        expect(&b, &j);
        submit(&b, &j);
        run(&b);
        compare(&j);
    }
    assert_int_equal(ftx_engine_score_logits(b.engine, ids, 5, again, NULL, &err), FTX_EINVAL);
    assert_string_equal(err.text, "score: logits is NULL");
    close_bed(&b);
    free(logits);
}

static void test_score(void **state)
{
    (void)state;
    scores(false);
    scores(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_score)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
