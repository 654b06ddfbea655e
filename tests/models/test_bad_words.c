/* test_bad_words.c - bad words (ids that may not be generated) against Hugging Face transformers (5.23) with the same
 * bad_words_ids, greedy and with four beams. The words come with the requests, or are compiled into the model. */
#include "search.h"

enum { CASES = 7, LONGEST = 12 };

/* words: the last id of each word is stored as ~id, as in $bad_words. */
typedef struct Case {
    const char *model;
    int n;
    int32_t ids[LONGEST], words[18];
    int n_words;
    int32_t greedy[LONGEST], beams[LONGEST];
    double score;
} Case;

static const Case cases[CASES] = {
    {"tiny-llama", /* one word begins in the prompt, one never begins, two would be generated without the ban */
     7,
     {46, 84, 307, 232, 174, 127, 41},
     {41, ~165, 196, ~148, ~137, 5, 46, ~84, 148, 89, ~72, 284, 291, 75, ~127},
     15,
     {196, 298, 307, 65, 65, 65, 296, 36, 9, 184, 290, 165},
     {184, 221, 193, 59, 148, 115, 56, 156, 177, 47, 136, 163},
     -2.256260633468628},
    {"tiny-llama", /* the whole text is the beginning of one word; another word has a longer beginning */
     1,
     {113},
     {113, ~61, 5, 113, ~229, 229, 10, ~176, 230, ~171, 113, 229, ~113},
     13,
     {229, 10, 65, 228, 19, 121, 57, 293, 151, 61, 139, 256},
     {53, 50, 178, 46, 152, 120, 255, 38, 175, 249, 81, 260},
     -2.2661733627319336},
    {"tiny-gpt2", /* words that repeat one id */
     7,
     {46, 84, 307, 232, 174, 127, 41},
     {230, ~230, 41, ~160, 160, 160, ~160, ~34},
     8,
     {230, 166, 166, 166, 166, 166, 166, 196, 196, 230, 196, 196},
     {113, 113, 113, 113, 113, 113, 113, 113, 230, 173, 173, 173},
     -1.0224273204803467},
    {"tiny-gpt2", /* the whole text is the beginning of one word */
     3,
     {46, 84, 307},
     {46, 84, 307, ~222, 307, ~230, 160, ~160, 196, 196, ~196},
     11,
     {65, 136, 84, 196, 230, 196, 196, 230, 230, 230, 230, 196},
     {65, 136, 84, 34, 34, 34, 34, 34, 34, 34, 34, 34},
     -1.3086735010147095},
    {"tiny-marian", /* a word after the start token; a word that is only the end id is ignored */
     11,
     {284, 246, 133, 253, 129, 97, 59, 33, 62, 80, 203},
     {110, ~110, 300, ~110, ~0, ~27},
     6,
     {111, 110, 111, 110, 124, 110, 259, 110, 259, 110, 259, 110},
     {111, 110, 111, 110, 297, 110, 111, 110, 111, 110, 111, 110},
     -1.7614449262619019},
    {"tiny-marian",
     11,
     {284, 246, 133, 253, 129, 97, 59, 33, 62, 80, 203},
     {300, ~110, 238, ~27, 110, 110, ~110},
     7,
     {111, 110, 110, 111, 110, 110, 111, 110, 110, 111, 110, 110},
     {111, 110, 110, 297, 110, 110, 111, 110, 110, 111, 110, 110},
     -1.3310247659683228},
    {"tiny-bart",
     11,
     {284, 246, 133, 253, 129, 97, 59, 33, 62, 80, 203},
     {2, ~16, ~2, 162, ~162, 222, 222, ~222},
     8,
     {274, 162, 16, 294, 135, 16, 294, 294, 4, 222, 294, 294},
     {274, 162, 16, 294, 135, 16, 294, 16, 294, 135, 135, 294},
     -2.129795789718628},
};

static void submit(FtxEngine *engine, const FtxModel *model, const Case *c, int beams, bool words, Found *f)
{
    FtxRequest r = beam_request(model, c->ids, (size_t)c->n, beams, LONGEST, f);
    int32_t ids[18];
    size_t lengths[18];

    r.ignore_eos = strcmp(c->model, "tiny-llama") == 0 || strcmp(c->model, "tiny-gpt2") == 0;
    r.bad_ids = ids;
    r.bad_lengths = lengths;
    r.bad_count = words ? words_of(c->words, c->n_words, ids, lengths) : 0;
    golden_submit(engine, &r);
}

static void check(const Case *c, const Found *greedy, const Found *beams)
{
    assert_int_equal(greedy->n_tokens, LONGEST);
    for (int i = 0; i < LONGEST; i++)
        if (greedy->tokens[i] != c->greedy[i])
            fail_msg("%s, greedy, token %d: %d, expected %d", c->model, i, greedy->tokens[i], c->greedy[i]);
    assert_int_equal(beams->count[0], LONGEST);
    for (int i = 0; i < LONGEST; i++)
        if (beams->ids[0][i] != c->beams[i])
            fail_msg("%s, beams, token %d: %d, expected %d", c->model, i, beams->ids[0][i], c->beams[i]);
    if (fabs(beams->score[0] - c->score) > tolerance())
        fail_msg("%s: score %.6f, expected %.6f", c->model, beams->score[0], c->score);
}

/* Each case of a model, greedy and with beams, in one batch with two requests without bad words. Two rounds, so that
 * slots are reused by requests with other words. */
static void check_model(const char *name)
{
    static Found greedy[CASES], beams[CASES], free_greedy, free_beams, alone;
    char path[100], artifact[100];

    snprintf(path, sizeof path, "tests/models/%s", name);
    snprintf(artifact, sizeof artifact, "words-%s", name);

    FtxModel *model = golden_open(path, artifact, "-D decode.width=4 -D limits.context=64");
    FtxEngine *engine = golden_engine(model);

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CASES; i++) {
            if (strcmp(cases[i].model, name) != 0)
                continue;
            submit(engine, model, &cases[i], 4 - 3 * round, true, round ? &greedy[i] : &beams[i]);
            submit(engine, model, &cases[i], 1, false, &free_greedy);
            submit(engine, model, &cases[i], 4, false, &free_beams);
            submit(engine, model, &cases[i], 1 + 3 * round, true, round ? &beams[i] : &greedy[i]);
            finish(engine);
            check(&cases[i], &greedy[i], &beams[i]);
            submit(engine, model, &cases[i], 1, false, &alone);
            finish(engine);
            assert_memory_equal(alone.tokens, free_greedy.tokens, sizeof alone.tokens);
            assert_memory_not_equal(alone.tokens, greedy[i].tokens, sizeof alone.tokens);
            assert_memory_not_equal(free_beams.ids[0], beams[i].ids[0], sizeof *beams[i].ids);
        }
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void decoders(void **state)
{
    (void)state;
    check_model("tiny-llama");
    check_model("tiny-gpt2");
}

static void sources(void **state)
{
    (void)state;
    check_model("tiny-marian");
    check_model("tiny-bart");
}

/* Some words are compiled into the model, the others come with the request. */
static void of_the_model(void **state)
{
    static Found greedy, beams;
    FtxModel *model = golden_open("tests/models/tiny-llama", "words-own",
                                  "-D decode.width=4 -D limits.context=64 -D limits.bad_words=9 "
                                  "-D 'decode.bad_words=41,165;196,148;137;5'");
    FtxEngine *engine = golden_engine(model);
    Case rest = cases[0];

    (void)state;
    rest.n_words = 9;
    memcpy(rest.words, cases[0].words + 6, 9 * sizeof *rest.words);
    submit(engine, model, &rest, 1, true, &greedy);
    submit(engine, model, &rest, 4, true, &beams);
    finish(engine);
    check(&rest, &greedy, &beams);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

/* Several samples of one request: a word is banned by the history of each sample. */
static void samples(void **state)
{
    enum { SAMPLES = 6, NEW = 40 };
    static int32_t ids[SAMPLES][NEW];
    static const int32_t prompt[] = {46, 84, 307}, bad[] = {307, 165, 228, 81, 4};
    static const size_t lengths[] = {2, 2, 1};
    FtxModel *model = golden_open("tests/models/tiny-llama", "words-samples", "-D limits.context=64");
    FtxEngine *engine = golden_engine(model);
    int met[2] = {0, 0}, n[SAMPLES];

    (void)state;
    for (int words = 0; words < 2; words++) {
        FtxRequest r = ftx_request_default(model);
        FtxEvent events[16] = {FTX_EVENT_INIT};
        FtxError err;
        size_t count;

        r.ids = prompt;
        r.ids_count = 3;
        r.temperature = 1.5f;
        r.top_k = 8;
        r.max_new = NEW;
        r.ignore_eos = true;
        r.samples = SAMPLES;
        r.bad_ids = bad;
        r.bad_lengths = lengths;
        r.bad_count = words ? 3 : 0;
        for (r.seed = 1; r.seed <= 20; r.seed++) {
            memset(n, 0, sizeof n);
            golden_submit(engine, &r);
            while (ftx_engine_busy(engine)) {
                if (ftx_engine_step(engine, events, 16, &count, &err))
                    fail_msg("%s", err.text);
                for (size_t i = 0; i < count; i++)
                    ids[events[i].sample][n[events[i].sample]++] = events[i].token;
            }
            for (int s = 0; s < SAMPLES; s++)
                for (int i = 0; i < NEW; i++) {
                    const int32_t before = i ? ids[s][i - 1] : prompt[2], id = ids[s][i];

                    met[words] += id == 4 || (before == 307 && id == 165) || (before == 228 && id == 81);
                }
        }
    }
    assert_true(met[0] > 20); /* without the ban these words are generated often */
    assert_int_equal(met[1], 0);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoders), cmocka_unit_test(sources),
                                       cmocka_unit_test(of_the_model), cmocka_unit_test(samples)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
