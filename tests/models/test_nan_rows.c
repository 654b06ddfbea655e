/* test_nan_rows.c - a model in which the key of one token is infinite: requests with that token end, all others have the tokens
 * that they have alone, also where they get the KV pages of those that ended. */
#include "golden.h"
#include "tests/skip.h"
#include "tests/temp.h"

enum { UNSOUND = 311, VOCAB = 320, HIDDEN = 96, COLUMN = 40, KEYS = 96, REQUESTS = 24, NEW = 12, MOST = 40 };

typedef struct Case {
    int32_t ids[MOST];
    bool unsound;
    GoldenAnswer alone, answer;
} Case;

static Case all[REQUESTS];

static char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *data;

    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(f);
    rewind(f);
    data = malloc(*bytes);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

static void write_file(const char *path, const char *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* A tensor [rows, HIDDEN] of bf16 in a safetensors file. */
static uint16_t *tensor_of(char *data, const char *name, size_t rows)
{
    uint64_t header;
    json_error_t e;

    memcpy(&header, data, sizeof header);

    json_t *root = json_loadb(data + 8, header, 0, &e);
    const json_t *tensor = json_object_get(root, name), *shape = json_object_get(tensor, "shape");
    char *at = data + 8 + header + json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"), 0));

    assert_non_null(tensor);
    assert_int_equal(json_integer_value(json_array_get(shape, 0)), rows);
    assert_int_equal(json_integer_value(json_array_get(shape, 1)), HIDDEN);
    json_decref(root);
    return (uint16_t *)(void *)at;
}

/* tiny-llama, in the folder of the test. UNSOUND is the only token whose embedding has something in COLUMN, and nothing else; the
 * first layer makes keys of 10^38 times COLUMN, which is 10 behind the norm. */
static void spoil(void)
{
    size_t bytes;
    char *data = read_file("tests/models/tiny-llama/config.json", &bytes);

    write_file(temp_path("config.json"), data, bytes);
    free(data);
    data = read_file("tests/models/tiny-llama/model.safetensors", &bytes);

    uint16_t *embed = tensor_of(data, "model.embed_tokens.weight", VOCAB);
    uint16_t *keys = tensor_of(data, "model.layers.0.self_attn.k_proj.weight", KEYS);
    const uint16_t one = 0x3f80, most = 0x7e96; /* 10^38 */

    memset(embed + UNSOUND * HIDDEN, 0, HIDDEN * sizeof *embed);
    for (size_t i = 0; i < VOCAB; i++)
        embed[i * HIDDEN + COLUMN] = i == UNSOUND ? one : 0;
    for (size_t i = 0; i < KEYS; i++)
        keys[i * HIDDEN + COLUMN] = most;
    write_file(temp_path("model.safetensors"), data, bytes);
    free(data);
}

static void make_cases(void)
{
    for (int i = 0; i < REQUESTS; i++) {
        Case *c = &all[i];

        c->unsound = i % 3 == 1;
        for (int k = 0; k < MOST; k++)
            c->ids[k] = 3 + (i * 37 + k * 11) % 300;
    }
}

static void submit(const FtxModel *m, FtxEngine *e, Case *c, bool unsound, int beams, GoldenAnswer *a)
{
    const size_t n = 5 + (size_t)(c - all);
    int32_t ids[MOST];
    FtxRequest r = ftx_request_default(m);
    FtxError err;

    memcpy(ids, c->ids, sizeof ids);
    if (unsound)
        ids[n - 1 - n / 2 * (size_t)(c - all) % n] = UNSOUND;
    *a = (GoldenAnswer){.n = 0};
    r.ids = ids;
    r.ids_count = n;
    r.temperature = 0.0f;
    r.beams = beams;
    r.ignore_eos = true;
    r.max_new = NEW;
    r.user = a;
    if (ftx_engine_submit(e, &r, NULL, &err))
        fail_msg("%s", err.text);
}

/* What each gives alone. */
static void run_alone(void)
{
    FtxModel *m = golden_open(temp_folder, "nan-sound", "-D precision.sums=fixed");
    FtxEngine *e = golden_engine(m);

    for (int i = 0; i < REQUESTS; i++) {
        submit(m, e, &all[i], false, 1, &all[i].alone);
        golden_finish(e);
        for (size_t k = 0; k < all[i].alone.n; k++)
            assert_int_not_equal(all[i].alone.ids[k], UNSOUND);
    }
    ftx_engine_close(e);
    ftx_model_close(m);
}

static void run_spoiled(const char *define, const char *name)
{
    FtxModel *m = golden_open(temp_folder, name, define);
    FtxModelInfo info = {.size = sizeof info};
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxError err;
    FtxEngine *e;

    o.prefix_cache = true;
    if (ftx_engine_open(m, &o, &e, &err))
        fail_msg("%s", err.text);
    ftx_model_info(m, &info);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < REQUESTS; i++)
            submit(m, e, &all[i], all[i].unsound, all[i].unsound && turn == 1 && info.max_beams > 1 ? 2 : 1,
                   &all[i].answer);
        golden_finish(e);
        for (int i = 0; i < REQUESTS; i++) {
            const Case *c = &all[i];

            assert_int_equal(c->answer.finish, c->unsound ? FTX_FINISH_NAN : FTX_FINISH_LENGTH);
            assert_int_equal(c->answer.n, c->unsound ? 0 : c->alone.n);
            assert_memory_equal(c->answer.ids, c->alone.ids, c->answer.n * sizeof *c->answer.ids);
        }
    }
    ftx_engine_close(e);
    ftx_model_close(m);
}

static void test_one_device(void **state)
{
    (void)state;
    run_spoiled("-D precision.sums=fixed", "nan");
}

static void test_two_ranks(void **state)
{
    (void)state;
    if (golden_on_cuda())
        SKIP("two ranks need two GPUs");
    run_spoiled("-D precision.sums=fixed -D parallel=2", "nan-2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_device), cmocka_unit_test(test_two_ranks)};

    make_cases();
    spoil();
    run_alone();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
