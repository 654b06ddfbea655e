/* test_switches.c - every switch of every part of a tokenizer.json, on a small tokenizer each: ids and texts are what
 * Hugging Face's tokenizers gives (switches.py made switches.json with it). The same for SentencePiece files
 * (spm.py, spm.json, the sentencepiece library), and for tiktoken's files and tekken.json (ranks.py, ranks.json, the
 * tiktoken library).
 *
 * A tokenizer that ftxc refuses must be on the list below with a word of the refusal. */
#include "stored.h"

/* What is refused. */
static const struct {
    const char *name; /* begins the tokenizer's */
    const char *why;  /* in the message */
} refused[] = {
    {"decoder strip 0 1", "strips the end of the whole text"},
    {"decoder strip 2 2", "strips the end of the whole text"},
};

static const char *refusal_of(const char *name)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strncmp(name, refused[i].name, strlen(refused[i].name)) == 0)
            return refused[i].why;
    return NULL;
}

static int wrong;

static void report(const char *name, const char *text, const char *what)
{
    print_message("%s, \"%s\": %s\n", name, text, what);
    wrong++;
}

static bool equal_ids(const Fixture *f, const json_t *want)
{
    if (f->n != json_array_size(want))
        return false;
    for (size_t i = 0; i < f->n; i++)
        if (f->ids[i] != json_integer_value(json_array_get(want, i)))
            return false;
    return true;
}

static const char *list(const Fixture *f, const json_t *want)
{
    static char text[2000];
    size_t n = 0;

    n += (size_t)snprintf(text + n, sizeof text - n, "ids");
    for (size_t i = 0; i < f->n && n < 900; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, " %d", f->ids[i]);
    n += (size_t)snprintf(text + n, sizeof text - n, ", expected");
    for (size_t i = 0; i < json_array_size(want) && n < 1900; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, " %d", (int)json_integer_value(json_array_get(want, i)));
    return text;
}

static void check_encode(Fixture *f, const char *name, const json_t *c)
{
    const char *text = json_string_value(json_object_get(c, "text"));
    const size_t bytes = json_string_length(json_object_get(c, "text"));
    FtxError err;

    if (json_object_get(c, "refused")) {
        if (tokenizer_encode(f->t, f->s, text, bytes, false, f->ids, f->max, &f->n, &err) == FTX_OK)
            report(name, text, "is encoded, the library refuses it");
        return;
    }
    for (int framed = 0; framed < 2; framed++) {
        const json_t *want = json_object_get(c, framed ? "framed" : "ids");

        if (tokenizer_encode(f->t, f->s, text, bytes, framed, f->ids, f->max, &f->n, &err))
            report(name, text, err.text);
        else if (!equal_ids(f, want))
            report(name, text, list(f, want));
    }
}

static void check_stream(Fixture *f, const char *name, const char *want, size_t bytes, bool skip)
{
    const size_t room = tokenizer_token_bytes(f->t) + 16;
    TokenizerStream d = {.keep_special = !skip};
    char *text = calloc(f->n + 1, room);
    size_t at = 0, n = 0;

    assert_non_null(text);
    for (size_t i = 0; i <= f->n; i++) {
        const bool end = i == f->n;

        assert_int_equal(tokenizer_stream(f->t, &d, end ? -1 : f->ids[i], end, text + at, room, &n, NULL), FTX_OK);
        at += n;
    }
    if (at != bytes || memcmp(text, want, bytes) != 0)
        report(name, want, text);
    free(text);
}

/* In one piece, and in a stream. */
static void check_decode(Fixture *f, const char *name, const json_t *c)
{
    const json_t *ids = json_object_get(c, "decode");

    f->n = json_array_size(ids);
    for (size_t i = 0; i < f->n; i++)
        f->ids[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    for (int skip = 0; skip < 2; skip++) {
        const json_t *want = json_object_get(c, skip ? "skipped" : "text");

        if (!want) /* sentencepiece writes no control pieces */
            continue;
        size_t bytes;
        char *text = decode_bytes(f, f->ids, f->n, skip, &bytes);

        if (bytes != json_string_length(want) || memcmp(text, json_string_value(want), bytes) != 0) {
            char line[3000];

            snprintf(line, sizeof line, "\"%s\" %s %s", text, list(f, NULL), skip ? "(special left out)" : "");
            report(name, json_string_value(want), line);
        }
        check_stream(f, name, text, bytes, skip);
        free(text);
    }
}

/* "tokenizer": JSON; or "hex": bytes, two digits each. */
static char *file_of(const json_t *one, size_t *size)
{
    const char *hex = json_string_value(json_object_get(one, "hex"));
    char *file;

    if (!hex) {
        file = json_dumps(json_object_get(one, "tokenizer"), JSON_COMPACT);
        assert_non_null(file);
        *size = strlen(file);
        return file;
    }
    *size = strlen(hex) / 2;
    file = malloc(*size + 1);
    assert_non_null(file);
    for (size_t i = 0; i < *size; i++) {
        const char digits[] = {hex[2 * i], hex[2 * i + 1], 0};

        file[i] = (char)strtol(digits, NULL, 16);
    }
    return file;
}

/* The path that the tokenizer is said to have. "beside": the contents of a file whose name is that path with .json. */
static const char *path_of(const json_t *one, char path[200])
{
    char folder[] = "/tmp/ftx-switches-XXXXXX";
    const char *name = json_string_value(json_object_get(one, "file"));
    const json_t *beside = json_object_get(one, "beside");

    if (!beside)
        return name ? name : "small.json";
    assert_non_null(mkdtemp(folder));
    snprintf(path, 200, "%s/%s.json", folder, name);
    assert_int_equal(json_dump_file(beside, path, 0), 0);
    path[strlen(path) - strlen(".json")] = '\0';
    return path;
}

static void remove_beside(const char *path)
{
    char beside[220];

    if (*path != '/')
        return;
    snprintf(beside, sizeof beside, "%s.json", path);
    unlink(beside);
    *strrchr(beside, '/') = '\0';
    rmdir(beside);
}

static void check_tokenizer(const json_t *one)
{
    const char *name = json_string_value(json_object_get(one, "name")), *why = refusal_of(name);
    char room[200];
    const char *path = path_of(one, room);
    size_t size;
    bool ok;
    char *file = file_of(one, &size);
    Fixture f = {.keep = arena_open()};
    const json_t *cases = json_object_get(one, "cases");
    Diag d = {0};

    ok = tokenizer_compile_bytes(path, file, size, f.keep, &f.tables, &f.bytes, &d);
    remove_beside(path);
    if (!ok) {
        if (!why || !strstr(d.text, why))
            report(name, "", d.text);
        arena_close(f.keep);
        free(file);
        return;
    }
    if (why)
        report(name, "", "is on the list of what is refused, and is not");
    f = begin_tables(f, 1000);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);

        if (json_object_get(c, "decode"))
            check_decode(&f, name, c);
        else
            check_encode(&f, name, c);
    }
    end(&f);
    free(file);
}

/* All tokenizers of a file; at least so many. */
static void check_file(const char *path, size_t least)
{
    json_error_t e;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &e);
    const json_t *all = json_object_get(root, "tokenizers");

    if (!root)
        fail_msg("%s:%d: %s", path, e.line, e.text);
    assert_true(json_array_size(all) >= least);
    wrong = 0;
    for (size_t i = 0; i < json_array_size(all); i++)
        check_tokenizer(json_array_get(all, i));
    json_decref(root);
    assert_int_equal(wrong, 0);
}

static void test_switches(void **state)
{
    (void)state;
    check_file("tests/tokenizer/switches.json", 160);
}

static void test_sentencepiece_files(void **state)
{
    (void)state;
    check_file("tests/tokenizer/spm.json", 40);
}

static void test_ranks(void **state)
{
    (void)state;
    check_file("tests/tokenizer/ranks.json", 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_switches), cmocka_unit_test(test_sentencepiece_files),
                                       cmocka_unit_test(test_ranks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
