/* test_request.c - what a request may ask for, and what is refused with a reason. */
#include "jobs.h"

#include <math.h>

/* --- bad words -------------------------------------------------------------------------------------- */

/* Words of all kinds beside each other, of one id and of several, as ids and as texts; slots are used again. */
static void run_words(bool asynchronous, uint32_t bad_words, const int32_t *of_model, uint32_t n_of_model)
{
    enum { JOBS = 10 };
    static const int32_t ids[] = {3, 4, 5, 7, 7, 7};
    static const size_t lengths[] = {2, 1, 1, 2};
    static const char *const texts[] = {"  ab", "c"};
    static const struct {
        size_t count, texts;
        int32_t words[8];
        int n;
    } cases[] = {
        {0, 0, {0}, 0},
        {4, 0, {3, ~4, ~5, 7, ~7}, 5}, /* an end id alone is not meant */
        {0, 2, {0, ~1, 11, 0, ~1, ~4, 11, ~4}, 8},
        {1, 1, {3, ~4, 0, ~1, 11, 0, ~1}, 7},
    };
    static Job job[JOBS];
    FakeSizes sizes = fake_sizes();
    Bed b;

    reset_fake(asynchronous, asynchronous ? 50 : 0);
    sizes.bad_words = bad_words;
    sizes.words = of_model;
    sizes.n_words = n_of_model;
    open_bed(&b, &sizes);
    for (int i = 0; i < JOBS; i++) {
        const int k = i % 4;
        const int own = n_of_model && cases[k].n + (int)n_of_model <= 8 ? (int)n_of_model : 0;

        make_job(&job[i], 1 + 2 * i, (uint64_t)i);
        if (n_of_model && !own) /* Job.words has no room */
            continue;
        job[i].request.bad_ids = ids;
        job[i].request.bad_lengths = lengths;
        job[i].request.bad_count = cases[k].count;
        job[i].request.bad_words = texts;
        job[i].request.bad_words_count = cases[k].texts;
        memcpy(job[i].words, of_model, (size_t)own * sizeof *of_model);
        memcpy(job[i].words + own, cases[k].words, (size_t)cases[k].n * sizeof *cases[k].words);
        job[i].n_words = own + cases[k].n;
        expect(&b, &job[i]);
        submit(&b, &job[i]);
    }
    run(&b);
    for (int i = 0; i < JOBS; i++)
        if (job[i].submitted)
            compare(&job[i]);
    assert_idle(b.engine);
    close_bed(&b);
}

static void test_bad_words(void **state)
{
    static const int32_t of_model[] = {9, ~9};

    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        run_words(asynchronous, 8, (const int32_t[]){0}, 0);
        run_words(asynchronous, 5000, (const int32_t[]){0}, 0); /* a table too large for a copy on the host */
        run_words(asynchronous, 8, of_model, 2);
    }
}

/* --- logits ------------------------------------------------------------------------------------------ */

/* How many of the greatest logits a request says that it depends on; 0: it may depend on all. */
static void test_need(void **state)
{
    static const int32_t id[] = {5};
    static const float bias[] = {5.0f};
    FakeSizes sizes = fake_sizes();
    Job job;
    Bed b;

    (void)state;
    sizes.vocab = 500;
    sizes.max_top_k = 300;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
#define NEEDS(n, ...) \
    do { \
        FtxRequest *q = &job.request; \
\
        make_job(&job, 2, 1); \
        q->temperature = 0.7f; \
        __VA_ARGS__; \
        submit(&b, &job); \
        run(&b); \
        assert_int_equal(fake.params.top_needed, n); \
    } while (0)
    NEEDS(1, q->temperature = 0.0f);
    NEEDS(4, (q->top_k = 4, q->top_p = 0.9f, q->min_p = 0.1f));
    NEEDS(4, (q->top_k = 4, q->typical_p = 1.0f));
    NEEDS(2, q->top_k = 1); /* with its ties */
    NEEDS(10, q->top_k = 10);
    NEEDS(128, q->top_p = 0.9f);
    NEEDS(128, (q->top_p = 0.9f, q->min_p = 0.1f));
    NEEDS(128, (q->top_p = 0.9f, q->temperature = 1.0f, q->logprobs = true));
    NEEDS(0, (q->top_p = 0.9f, q->logprobs = true));
    NEEDS(128, q->top_p = 1.0f); /* a draw from all */
    NEEDS(0, q->logprobs = true);
    NEEDS(0, q->repetition_penalty = 1.1f);
    NEEDS(0, (q->top_k = 4, q->typical_p = 0.9f));
    NEEDS(0, (q->top_k = 200));
    NEEDS(128, q->min_p = 0.1f);
    NEEDS(128, (q->top_k = 4, q->repetition_penalty = 1.1f)); /* processors that only lower */
    NEEDS(128, (q->top_k = 4, q->min_new = 1));
    NEEDS(0, (q->temperature = 0.0f, q->repetition_penalty = 1.1f));
    NEEDS(0, (q->top_k = 4, q->repetition_penalty = 0.9f));
    NEEDS(0, (q->top_k = 4, q->presence_penalty = -0.1f));
    NEEDS(0, (q->top_p = 0.9f, q->repetition_penalty = 1.1f));
    NEEDS(0, (q->top_k = 4, q->bias_ids = id, q->bias_values = bias, q->bias_count = 1));
#undef NEEDS
    close_bed(&b);
}

/* --- what is refused -------------------------------------------------------------------------------- */

static void refused(Bed *b, const FtxRequest *q, FtxStatus status, const char *part)
{
    FtxError err = {FTX_OK, ""};

    assert_int_equal(ftx_engine_submit(b->engine, q, NULL, &err), status);
    if (!strstr(err.text, part))
        fail_msg("expected '%s' in '%s'", part, err.text);
}

static void test_refused(void **state)
{
    const int32_t ids[] = {1, 2, 61}, good[] = {1, 2}, many[] = {1, 2, 3, 4};
    const float values[] = {1.0f, 2.0f, 3.0f}, nan[] = {__builtin_nanf("")};
    const char *empty[] = {"", "x"}, *bad[] = {"\xa9"}, *none[] = {NULL};
    char word[257] = "";
    const char *words[] = {word};
    int32_t longest[41] = {0};
    FakeSizes sizes = fake_sizes();
    Bed b;
    FtxRequest q;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
#define REFUSED(status, part, ...) \
    do { \
        q = ftx_request_default(b.model); \
        q.ids = good; \
        q.ids_count = 2; \
        __VA_ARGS__; \
        refused(&b, &q, status, part); \
    } while (0)
    REFUSED(FTX_EINVAL, "neither text nor ids", q.ids = NULL);
    REFUSED(FTX_EINVAL, "both set", q.text = "a");
    REFUSED(FTX_EINVAL, "empty", q.ids_count = 0);
    REFUSED(FTX_EINVAL, "empty", (q.ids = NULL, q.text = "", q.no_bos = true));
    REFUSED(FTX_EINVAL, "ids[2]: 61 is no token id (0 to 60)", (q.ids = ids, q.ids_count = 3));
    REFUSED(FTX_EFULL, "40 tokens; with one new token that exceeds the context of 40",
            (q.ids = longest, q.ids_count = 40));
    REFUSED(FTX_EFULL, "the prompt has 2 tokens; at most 1 fit", q.max_prompt = 1);
    REFUSED(FTX_EINVAL, "max_prompt: expected 0 to", q.max_prompt = -1);
    REFUSED(FTX_EINVAL, "forced_bos: expected -1 to", q.forced_bos = -2);
    REFUSED(FTX_EINVAL, "forced_eos: expected -1 to", q.forced_eos = 1 << 24);
    REFUSED(FTX_EINVAL, "truncate: expected none, start or end (FtxTruncate), found 1",
            q.truncate = FTX_TRUNCATE_LONGEST);
    REFUSED(FTX_EINVAL, "temperature", q.temperature = -1.0f);
    REFUSED(FTX_EINVAL, "temperature", q.temperature = nan[0]);
    REFUSED(FTX_EINVAL, "top_p: expected 0 to 1, found 1.5", q.top_p = 1.5f);
    REFUSED(FTX_EINVAL, "min_p", q.min_p = -0.1f);
    REFUSED(FTX_EINVAL, "typical_p", q.typical_p = 1.5f);
    REFUSED(FTX_EINVAL, "repetition_penalty", q.repetition_penalty = 0.0f);
    REFUSED(FTX_EINVAL, "top_k: expected 0 to 10, found 11", q.top_k = 11);
    REFUSED(FTX_EINVAL, "no_repeat_ngram", q.no_repeat_ngram = -1);
    REFUSED(FTX_EINVAL, "max_new", q.max_new = -1);
    REFUSED(FTX_EINVAL, "min_new: expected 0 to 3, found 4", (q.max_new = 3, q.min_new = 4));
    REFUSED(FTX_EINVAL, "bias_count: expected at most 300, found 301",
            (q.bias_ids = many, q.bias_values = values, q.bias_count = 301));
    REFUSED(FTX_EINVAL, "bias_ids[0]", (q.bias_ids = ids + 2, q.bias_values = values, q.bias_count = 1));
    REFUSED(FTX_EINVAL, "bias_values[0]", (q.bias_ids = ids, q.bias_values = nan, q.bias_count = 1));
    REFUSED(FTX_EINVAL, "bias_values[0]", (q.bias_ids = ids, q.bias_values = &(float){INFINITY}, q.bias_count = 1));
    REFUSED(FTX_EINVAL, "bad_ids or bad_lengths is NULL", (q.bad_ids = ids, q.bad_count = 1));
    REFUSED(FTX_EINVAL, "bad_ids[2]: 61 is no token id",
            (q.bad_ids = ids, q.bad_lengths = (const size_t[]){1, 2}, q.bad_count = 2));
    REFUSED(FTX_EINVAL, "bad_lengths[1]: expected 1 to 8 ids, the spec's limits.bad_words, found 0",
            (q.bad_ids = ids, q.bad_lengths = (const size_t[]){1, 0}, q.bad_count = 2));
    REFUSED(FTX_EINVAL, "bad_lengths[0]: expected 1 to 8 ids, the spec's limits.bad_words, found 9",
            (q.bad_ids = longest, q.bad_lengths = (const size_t[]){9}, q.bad_count = 1));
    REFUSED(FTX_EINVAL, "bad_lengths[2]: with it there are 9 ids of bad words, but the spec's limits.bad_words is 8",
            (q.bad_ids = longest, q.bad_lengths = (const size_t[]){4, 4, 1}, q.bad_count = 3));
    REFUSED(FTX_EINVAL, "bad_words[1]: expected 1 to 255 bytes of UTF-8",
            (q.bad_words = (const char *const[]){"a", "  "}, q.bad_words_count = 2));
    REFUSED(FTX_EINVAL, "bad_words[0]: expected 1 to 255", (q.bad_words = bad, q.bad_words_count = 1));
    REFUSED(FTX_EINVAL, "bad_words[0]: expected 1 to 255", (q.bad_words = none, q.bad_words_count = 1));
    REFUSED(FTX_EINVAL, "bad_words[0]: expected 1 to 255", q.bad_words_count = 1);
    REFUSED(FTX_EINVAL, "bad_words[0]: with it there are 9 ids of bad words",
            (q.bad_words = (const char *const[]){"abcd"}, q.bad_words_count = 1));
    REFUSED(FTX_EINVAL, "limits.end_ids is 4", (q.stop_ids = many, q.stop_ids_count = 4));
    REFUSED(FTX_EINVAL, "stop_ids[0]", (q.stop_ids = ids + 2, q.stop_ids_count = 1));
    REFUSED(FTX_EINVAL, "stop[0]", (q.stop = empty, q.stop_count = 1));
    REFUSED(FTX_EINVAL, "stop[0]", (q.stop = bad, q.stop_count = 1));
    REFUSED(FTX_EINVAL, "stop[0]", (q.stop = none, q.stop_count = 1));
    memset(word, 'a', 256);
    REFUSED(FTX_EINVAL, "stop[0]: expected 1 to 255 bytes of UTF-8, found 256", (q.stop = words, q.stop_count = 1));
    REFUSED(FTX_EINVAL, "at most 16", (q.stop = empty, q.stop_count = 17));
    assert_idle(b.engine);
    close_bed(&b);

    sizes.kv_pages = 3; /* 12 tokens */
    sizes.tokenizer = false;
    open_bed(&b, &sizes);
    REFUSED(FTX_EFULL, "need 4 KV pages of 4 tokens; there are 3: ask for less, or raise the spec's kv.pages",
            q.max_new = 12);
    REFUSED(FTX_EINVAL, "no tokenizer", (q.ids = NULL, q.text = "a"));
    REFUSED(FTX_EINVAL, "no tokenizer", (q.stop = empty + 1, q.stop_count = 1));
    REFUSED(FTX_EINVAL, "no tokenizer", (q.bad_words = empty + 1, q.bad_words_count = 1));
    close_bed(&b);
#undef REFUSED
}

static void test_text_prompt(void **state)
{
    const int32_t bos[] = {1, 0, 1, 4}, plain[] = {0, 1, 4};
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    for (int no_bos = 0; no_bos < 2; no_bos++) {
        make_job(&j, 0, 5);
        j.request.ids_count = no_bos ? 3 : 4;
        memcpy(j.prompt, no_bos ? plain : bos, j.request.ids_count * sizeof *plain);
        expect(&b, &j);
        j.request.ids = NULL;
        j.request.text = "abc and more";
        j.request.text_bytes = 3;
        j.request.no_bos = no_bos;
        submit(&b, &j);
        run(&b);
        compare(&j);
    }
    close_bed(&b);
}

/* FtxRequest.literal and ftx_tokenize's flags reach the tokenizer. */
static void test_literal(void **state)
{
    static const int32_t special[] = {1, 0, 9, 1}, text[] = {1, 0, 11, 1};
    FakeSizes sizes = fake_sizes();
    int32_t ids[8];
    FtxError err;
    size_t n;
    Bed b;
    Job j;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    for (int literal = 0; literal < 2; literal++) {
        const int32_t *want = literal ? text : special;
        const unsigned flags = literal ? FTX_TOKENIZE_LITERAL : 0;

        make_job(&j, 0, 5);
        j.request.ids_count = 4;
        memcpy(j.prompt, want, sizeof special);
        expect(&b, &j);
        j.request.ids = NULL;
        j.request.text = "a#b";
        j.request.literal = literal;
        submit(&b, &j);
        run(&b);
        compare(&j);
        assert_int_equal(ftx_tokenize(b.model, "a#b", 3, flags | FTX_TOKENIZE_SPECIAL, ids, 8, &n, &err), FTX_OK);
        assert_int_equal(n, 4);
        assert_memory_equal(ids, want, sizeof special);
        assert_int_equal(ftx_tokenize(b.model, "a#b", 3, flags, ids, 8, &n, &err), FTX_OK);
        assert_int_equal(n, 3);
        assert_memory_equal(ids, want + 1, 3 * sizeof *ids);
    }
    assert_int_equal(ftx_tokenize(b.model, "a", 1, 4, ids, 8, &n, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "flags: 0x4"));
    close_bed(&b);
}

/* A prompt that is too long, as ids and as text: what is left of it gives the tokens it would give alone. */
static void test_truncated(void **state)
{
    enum { LONG = 3000 };
    static int32_t ids[LONG];
    static char text[LONG + 1];
    static const struct {
        FtxTruncate way;
        int max_prompt, max_new, left; /* tokens of the prompt */
    } cases[] = {{FTX_TRUNCATE_START, 0, 0, 39}, {FTX_TRUNCATE_END, 0, 0, 39}, {FTX_TRUNCATE_START, 0, 7, 33},
                 {FTX_TRUNCATE_END, 0, 40, 1},   {FTX_TRUNCATE_END, 5, 7, 5},  {FTX_TRUNCATE_START, 9, 0, 9},
                 {FTX_TRUNCATE_START, 99, 3, 39}};
    enum { WITH_BOS, PLAIN, LARGE, AS_IDS, FORMS }; /* LARGE: than the tokenizer's memory */
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    for (int i = 0; i < LONG; i++) { /* fake_tokenizer: 0 and 1 */
        text[i] = i % 7 == 3 || i % 31 == 4 ? 'b' : 'a';
        ids[i] = text[i] == 'b';
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int form = cases[i].left > 1 ? WITH_BOS : PLAIN; form < FORMS; form++) {
            const int n = form == LARGE ? LONG : 200, bos = form == WITH_BOS, left = cases[i].left - bos;
            const int from = cases[i].way == FTX_TRUNCATE_START ? n - left : 0;

            make_job(&j, 0, i + 1);
            j.request.truncate = cases[i].way;
            j.request.max_prompt = cases[i].max_prompt;
            j.request.max_new = cases[i].max_new;
            j.prompt[0] = 1; /* BOS */
            memcpy(j.prompt + bos, ids + from, (size_t)left * sizeof *ids);
            j.request.ids_count = (size_t)cases[i].left;
            expect(&b, &j);
            j.request.ids = form == AS_IDS ? ids : NULL;
            j.request.text = form == AS_IDS ? NULL : text;
            *(form == AS_IDS ? &j.request.ids_count : &j.request.text_bytes) = (size_t)n;
            j.request.no_bos = form != WITH_BOS;
            submit(&b, &j);
            run(&b);
            compare(&j);
        }
    assert_idle(b.engine);
    close_bed(&b);
}

/* Biases are copied only for rows that have some, up to the last of them. */
static void test_biases(void **state)
{
    static const int32_t ids[] = {5, 9};
    static const float values[] = {5.0f, 9.0f}; /* as the fake device wants them */
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j[3];

    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++)
        for (int biased = 0; biased < 8; biased++) {
            const size_t rows = biased & 4 ? 3 : biased & 2 ? 2 : biased & 1;
            const uint64_t *at = b.artifact.plan.named;

            reset_fake(asynchronous, 0);
            open_bed(&b, &sizes);
            for (int i = 0; i < 3; i++) {
                make_job(&j[i], 4, (uint64_t)i);
                j[i].request.max_new = 5;
                j[i].request.bias_ids = ids;
                j[i].request.bias_values = values;
                j[i].request.bias_count = biased >> i & 1 ? 2 : 0;
                expect(&b, &j[i]);
                submit(&b, &j[i]);
            }
            step(&b);
            if (rows)
                assert_int_equal(fake.uploaded, at[FTX_NAMED_bias] + 2 * rows * sizeof(FtxBias));
            else /* a GPU has been sent the next step, too, which has one token of each */
                assert_int_equal(fake.uploaded, at[FTX_NAMED_token] + (asynchronous ? 3 : 12) * sizeof(FtxToken));
            run(&b);
            for (int i = 0; i < 3; i++)
                compare(&j[i]);
            close_bed(&b);
        }
}

/* FTX_NAN looks at the logits of every step; it counts as it stood when the engine was opened. */
static void test_nan_wants_logits(void **state)
{
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    (void)state;
    for (int on = 0; on < 2; on++) {
        reset_fake(false, 0);
        setenv("FTX_NAN", on ? "1" : "0", 1);
        open_bed(&b, &sizes);
        setenv("FTX_NAN", on ? "0" : "1", 1);
        make_job(&j, 5, 1);
        submit(&b, &j);
        assert_int_equal(b.engine->waiting.at[0]->params.logits, on);
        run(&b);
        close_bed(&b);
    }
    unsetenv("FTX_NAN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literal), cmocka_unit_test(test_bad_words),        cmocka_unit_test(test_need),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_text_prompt),      cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_biases),  cmocka_unit_test(test_nan_wants_logits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
