/* test_safetensors.c - correct checkpoints, and each way in which one can be wrong. */
#include <sys/mman.h>

#include "compiler/weights/tensors.h"
#include "files.h"

typedef struct Fixture {
    Arena *keep;
    Spec spec;
    Diag d;
    Checkpoint *c;
} Fixture;

static Fixture begin(void)
{
    Fixture f = {.keep = arena_open()};

    f.spec.name = "tiny";
    f.spec.graph = ir_graph_new("tiny");
    return f;
}

static void end(Fixture *f)
{
    checkpoint_close(f->c);
    ir_graph_close(f->spec.graph);
    arena_close(f->keep);
}

static void expect_refused(const char *header, size_t data_bytes, const char *reason)
{
    static const unsigned char data[64];
    const char *path = temp_path("bad.safetensors");
    Fixture f = begin();

    write_safetensors(path, header, data, data_bytes);
    assert_false(checkpoint_open(path, f.keep, &f.c, &f.d));
    assert_null(f.c);
    if (!strstr(f.d.text, reason))
        fail_msg("expected \"%s\" in: %s", reason, f.d.text);
    assert_non_null(strstr(f.d.text, "bad.safetensors"));
    end(&f);
}

static void test_bad_headers(void **state)
{
    (void)state;
    expect_refused("", 0, "not JSON");
    expect_refused("[]", 0, "not a JSON object");
    expect_refused("{\"a\":{\"dtype\":\"F32\"", 0, "not JSON");
    expect_refused("{\"a\":5}", 0, "not described by an object");
    expect_refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no \"dtype\"");
    expect_refused("{\"a\":{\"dtype\":\"Q7\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown type \"Q7\"");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no \"shape\"");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "not a size");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "not a size");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
                   "more than 2^58 elements");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,4]}}", 4,
                   "more than 2^58 elements");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
                   "9 dimensions");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                   "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                   8, "duplicate");
}

static void test_bad_extents(void **state)
{
    (void)state;
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "not [begin, end]");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "not [begin, end]");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "not [begin, end]");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "not [begin, end]");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 12, "cut off");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "has 4 bytes, its shape");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                   "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
                   12, "overlap");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                   "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
                   12, "4 bytes before tensor \"b\"");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 9, "5 bytes at the end");
}

/* The first eight bytes claim more than the file has. */
static void test_header_length(void **state)
{
    static const uint64_t lengths[] = {1, 1000, (uint64_t)1 << 40, UINT64_MAX, UINT64_MAX - 7};
    (void)state;

    for (size_t i = 0; i < LEN(lengths); i++)
        for (size_t bytes = 0; bytes <= 8; bytes++) {
            const char *path = temp_path("length.safetensors");
            Fixture f = begin();
            FILE *out = fopen(path, "wb");

            assert_non_null(out);
            fwrite(&lengths[i], 1, bytes, out);
            fclose(out);
            assert_false(checkpoint_open(path, f.keep, &f.c, &f.d));
            assert_non_null(strstr(f.d.text, bytes < 8 ? "at least 8" : "its header claims"));
            end(&f);
        }
}

/* A header longer than any, in a file that has it: it is not read. */
static void test_long_header(void **state)
{
    const size_t bytes = (100u << 20) + 4096;
    unsigned char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const uint64_t n = bytes - 8;
    TensorList list = {0};
    Fixture f = begin();
    (void)state;

    assert_true(at != MAP_FAILED);
    memcpy(at, &n, sizeof n);
    assert_false(safetensors_read("long.safetensors", &(FileMap){at, bytes}, f.keep, &list, &f.d));
    assert_string_equal(f.d.text, "long.safetensors: its header claims 104861688 bytes, at most 100000000 are read");
    munmap(at, bytes);
    end(&f);
}

/* Tensors without elements stand where others begin. */
static void test_empty_tensors(void **state)
{
    const char *path = temp_path("empty.safetensors");
    const float data[] = {1, 2};
    Fixture f = begin();
    (void)state;

    write_safetensors(path,
                      "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                      "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                      "\"c\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[8,8]}}",
                      data, sizeof data);
    if (!checkpoint_open(path, f.keep, &f.c, &f.d))
        fail_msg("%s", f.d.text);
    add_weight(f.spec.graph, "b", 2, 0);
    *arena_push(f.keep, f.spec.ignored) = "a";
    *arena_push(f.keep, f.spec.ignored) = "c";
    assert_true(checkpoint_check(f.c, &f.spec, &f.d));
    end(&f);
}

/* An index that is not there. */
static void test_no_index(void **state)
{
    Fixture f = begin();
    (void)state;

    assert_false(checkpoint_open(temp_path("none.index.json"), f.keep, &f.c, &f.d));
    if (!strstr(f.d.text, "none.index.json: No such file or directory"))
        fail_msg("%s", f.d.text);
    assert_null(f.c);
    end(&f);
}

static void write_two(const char *path)
{
    const float data[] = {1, 2, 3, 4, 5, 6, 7};

    write_safetensors(path,
                      "{\"__metadata__\":{\"format\":\"pt\"},"
                      "\"net.w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                      "\"net.b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[24,28]}}",
                      data, sizeof data);
}

static void test_check(void **state)
{
    const char *path = temp_path("two.safetensors");
    Fixture f = begin();
    (void)state;

    write_two(path);
    assert_true(checkpoint_open(path, f.keep, &f.c, &f.d));
    add_weight(f.spec.graph, "net.w", 2, 3);
    assert_false(checkpoint_check(f.c, &f.spec, &f.d));
    assert_non_null(strstr(f.d.text, "two.safetensors: tensor \"net.b\" [1] is not used by tiny"));

    Spec none = {.name = "none", .graph = ir_graph_new("none")};

    f.d = (Diag){0};
    assert_false(checkpoint_check(f.c, &none, &f.d));
    if (!strstr(f.d.text, "tensor \"net.b\" [1] and 1 more are not used by none"))
        fail_msg("%s", f.d.text);
    ir_graph_close(none.graph);

    f.d = (Diag){0};
    *arena_push(f.keep, f.spec.ignored) = "net"; /* the whole name, not its beginning */
    assert_false(checkpoint_check(f.c, &f.spec, &f.d));
    f.d = (Diag){0};
    *arena_push(f.keep, f.spec.ignored) = "net.b";
    assert_true(checkpoint_check(f.c, &f.spec, &f.d));

    f.d = (Diag){0};
    add_weight(f.spec.graph, "net.c", 5, 0);
    assert_false(checkpoint_check(f.c, &f.spec, &f.d));
    assert_non_null(strstr(f.d.text, "model.lua:7: weight \"net.c\" [5] is missing in"));
    end(&f);
}

static void test_shape_and_prefix(void **state)
{
    const char *path = temp_path("two.safetensors");
    Fixture f = begin();
    (void)state;

    write_two(path);
    assert_true(checkpoint_open(path, f.keep, &f.c, &f.d));
    *arena_push(f.keep, f.spec.prefixes) = "net.";
    *arena_push(f.keep, f.spec.prefixes) = "model.";
    add_weight(f.spec.graph, "w", 2, 3); /* the spec lacks the prefix */
    add_weight(f.spec.graph, "model.net.b", 1, 0);
    assert_true(checkpoint_check(f.c, &f.spec, &f.d));

    add_weight(f.spec.graph, "net.w", 3, 2);
    assert_false(checkpoint_check(f.c, &f.spec, &f.d));
    assert_non_null(strstr(f.d.text, "model.lua:7: weight \"net.w\": expected [3,2], found [2,3] as \"net.w\" in "));
    end(&f);
}

/* Leading sizes of a tensor may be 1 and no more; older names are pairs: the second of one is not the first of another. */
static void test_shape_and_older_names(void **state)
{
    static const char *const renamed[] = {".g", ".gamma", ".b", ".beta"};
    const char *path = temp_path("two.safetensors");
    Fixture f = begin();
    (void)state;

    write_two(path);
    assert_true(checkpoint_open(path, f.keep, &f.c, &f.d));
    add_weight(f.spec.graph, "net.w", 3, 0);
    assert_false(checkpoint_check(f.c, &f.spec, &f.d));
    assert_non_null(strstr(f.d.text, "weight \"net.w\": expected [3], found [2,3]"));
    for (size_t i = 0; i < LEN(renamed); i++)
        *arena_push(f.keep, f.spec.renamed) = renamed[i];
    f.d = (Diag){0};
    f.spec.graph->values.n = 1;
    add_weight(f.spec.graph, "net.gamma", 1, 0);
    assert_false(checkpoint_check(f.c, &f.spec, &f.d));
    assert_non_null(strstr(f.d.text, "weight \"net.gamma\" [1] is missing"));
    end(&f);
}

/* Masks of old GPT-2 files are bytes: legal where ignored, refused where the spec wants them. */
static void test_other_types(void **state)
{
    const char *path = temp_path("types.safetensors");
    Fixture f = begin();
    (void)state;

    write_safetensors(path,
                      "{\"h.11.attn.bias\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                      "\"h.x.attn.bias\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[2,2]}}",
                      "\1\1", 2);
    assert_true(checkpoint_open(path, f.keep, &f.c, &f.d));
    *arena_push(f.keep, f.spec.ignored) = "h.*.attn.bias";
    assert_false(checkpoint_check(f.c, &f.spec, &f.d)); /* x is no number */
    assert_non_null(strstr(f.d.text, "\"h.x.attn.bias\""));

    f.d = (Diag){0};
    add_weight(f.spec.graph, "h.11.attn.bias", 2, 0);
    assert_false(checkpoint_check(f.c, &f.spec, &f.d));
    assert_non_null(strstr(f.d.text, "is stored as U8"));
    end(&f);
}

/* Three values of 4 bits take two bytes. */
static void test_half_bytes(void **state)
{
    const char *path = temp_path("half.safetensors");
    Fixture f = begin();
    (void)state;

    write_safetensors(path, "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", "\1\1", 2);
    if (!checkpoint_open(path, f.keep, &f.c, &f.d))
        fail_msg("%s", f.d.text);
    end(&f);
}

static void write_index(const char *text, Fixture *f, bool good, const char *reason)
{
    char path[256];

    strcpy(path, temp_path("model.safetensors.index.json"));
    write_text(path, text);
    checkpoint_close(f->c);
    f->d = (Diag){0};
    assert_int_equal(checkpoint_open(path, f->keep, &f->c, &f->d), good);
    if (!good && !strstr(f->d.text, reason))
        fail_msg("expected \"%s\" in: %s", reason, f->d.text);
}

static void test_shards(void **state)
{
    const float data[] = {1, 2};
    Fixture f = begin();
    (void)state;

    write_safetensors(temp_path("1.safetensors"), "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                      data, 4);
    write_safetensors(temp_path("2.safetensors"), "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                      data + 1, 4);
    write_safetensors(temp_path("3.safetensors"),
                      "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                      "\"c\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}",
                      data + 1, 4);
    add_weight(f.spec.graph, "a", 1, 0);
    add_weight(f.spec.graph, "b", 1, 0);

    write_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", &f, true, NULL);
    assert_true(checkpoint_check(f.c, &f.spec, &f.d));
    write_index("\xEF\xBB\xBF{\"weight_map\":{\"b\":\"2.safetensors\"}}", &f, true,
                NULL); /* as an editor may save it */
    write_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\"}}", &f, false, "it is not");
    write_index("{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}}", &f, false, "it is not");
    write_index("{\"weight_map\":{\"b\":\"2.safetensors\",\"c\":\"3.safetensors\"}}", &f, false, "is both in");
    write_index("{\"weight_map\":{\"a\":\"4.safetensors\"}}", &f, false, "No such file");
    write_index("{\"weight_map\":{\"a\":\"../1.safetensors\"}}", &f, false, "not a file in its folder");
    write_index("{\"weight_map\":{\"a\":\"x/../../1.safetensors\"}}", &f, false, "not a file in its folder");
    write_index("{\"weight_map\":{\"a\":\"/etc/passwd\"}}", &f, false, "not a file in its folder");
    write_index("{\"weight_map\":{\"a\":3}}", &f, false, "not a file in its folder");
    write_index("{\"weight_map\":{}}", &f, false, "no \"weight_map\"");
    write_index("{", &f, false, "not JSON");
    end(&f);
}

static void test_real_files(void **state)
{
    static const char *const paths[] = {"specs/fable", "tests/models/tiny-llama/model.safetensors",
                                        "tests/models/tiny-gpt2"};
    (void)state;

    for (size_t i = 0; i < LEN(paths); i++) {
        Fixture f = begin();

        assert_true(checkpoint_open(paths[i], f.keep, &f.c, &f.d));
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_bad_extents),
        cmocka_unit_test(test_header_length),
        cmocka_unit_test(test_long_header),
        cmocka_unit_test(test_empty_tensors),
        cmocka_unit_test(test_no_index),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_shape_and_prefix),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_real_files),
        cmocka_unit_test(test_half_bytes),
        cmocka_unit_test(test_shape_and_older_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
