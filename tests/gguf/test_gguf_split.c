/* test_gguf_split.c - models in several GGUF files: what they have together, and each way in which they do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "bytes.h"
#include "compiler/gguf/gguf.h"
#include "tests/temp.h"

enum { NONE = -1 };

typedef struct Part {
    const char *file;
    int no, count, tensors; /* the keys; NONE: it has no such key */
    const char *names[3];   /* its tensors, of one element each */
    const char *key, *text; /* one more key */
    uint32_t alignment;     /* 0: no key */
} Part;

static void write_part(const Part *p)
{
    const char *path = temp_path(p->file);
    const uint32_t step = p->alignment ? p->alignment : 32;
    const struct {
        const char *name;
        int value;
    } keys[] = {{"split.no", p->no}, {"split.count", p->count}, {"split.tensors.count", p->tensors}};
    GgufBytes b = {0};
    FILE *f;

    gguf_begin(&b);
    for (size_t i = 0; i < LEN(keys); i++)
        if (keys[i].value != NONE)
            gguf_key_u32(&b, keys[i].name, (uint32_t)keys[i].value);
    if (p->key)
        gguf_key_text(&b, p->key, p->text);
    if (p->alignment)
        gguf_key_u32(&b, "general.alignment", p->alignment);
    for (uint32_t i = 0; i < 3 && p->names[i]; i++)
        gguf_put_tensor(&b, p->names[i], 1, (uint64_t[]){1}, 0, step * i);
    for (uint32_t i = 0; i < 3 && p->names[i]; i++) { /* each has the first letter of its name as its number */
        const float x = (float)p->names[i][0];

        gguf_put_data(&b, step, 4);
        memcpy(b.at + b.n - 4, &x, 4);
    }
    f = fopen(path, "wb");
    assert_true(f && fwrite(b.at, 1, b.n, f) == b.n && !fclose(f));
    free(b.at);
}

typedef struct Opened {
    Arena *keep;
    FileMap map;
    FileMaps more;
    Gguf g;
    Diag d;
    bool ok;
} Opened;

static Opened open_model(const char *file)
{
    Opened o = {.keep = arena_open()};
    const char *path = arena_strdup(o.keep, temp_path(file));

    assert_int_equal(file_map(path, &o.map, NULL), FTX_OK);
    assert_true(gguf_read(path, o.map.at, o.map.bytes, o.keep, &o.g, &o.d));
    o.ok = gguf_join(&o.g, o.keep, &o.more, &o.d);
    assert_int_equal(o.ok, !o.d.failed);
    return o;
}

static void drop(Opened *o)
{
    file_unmap(&o->map);
    for (size_t i = 0; i < o->more.n; i++)
        file_unmap(&o->more.at[i]);
    arena_close(o->keep);
}

static void remove_file(const char *file)
{
    unlink(temp_path(file));
}

static void test_parts(void **state)
{
    static const Part parts[] = {
        {"m-00001-of-00003.gguf", 0, 3, 5, {NULL}, "general.name", "one", 0},
        {"m-00002-of-00003.gguf", 1, 3, 5, {"d", "a", "e"}, NULL, NULL, 256},
        {"m-00003-of-00003.gguf", 2, 3, 5, {"c", "b"}, "general.name", "one", 0},
    };
    Opened o;
    (void)state;

    for (size_t i = 0; i < LEN(parts); i++)
        write_part(&parts[i]);
    o = open_model(parts[0].file);
    if (!o.ok)
        fail_msg("%s", o.d.text);
    assert_int_equal(o.more.n, 2);
    assert_int_equal(o.g.tensors.n, 5);
    for (size_t i = 0; i < 5; i++) {
        const GgufTensor *t = &o.g.tensors.at[i];
        const char *end = strrchr(t->path, '/') + 1;
        float x;

        memcpy(&x, t->at, 4);
        assert_true(x == (float)('a' + (int)i));
        assert_int_equal(t->name[0], 'a' + (int)i);
        assert_string_equal(end, parts[strchr("bc", t->name[0]) ? 2 : 1].file);
    }
    assert_non_null(gguf_key(&o.g, "general.name"));
    drop(&o);
    for (size_t i = 0; i < LEN(parts); i++)
        remove_file(parts[i].file);
}

/* Nothing else is opened. */
static void test_whole(void **state)
{
    static const Part whole[] = {
        {"w-00001-of-00002.gguf", NONE, NONE, NONE, {"a"}, NULL, NULL, 0},
        {"w-00002-of-00002.gguf", 0, 0, 7, {"a"}, NULL, NULL, 0}, /* llama-gguf-split --merge leaves such keys */
        {"w.gguf", 0, 1, 1, {"a"}, NULL, NULL, 0},
    };
    (void)state;

    for (size_t i = 0; i < LEN(whole); i++) {
        Opened o;

        write_part(&whole[i]);
        o = open_model(whole[i].file);
        assert_true(o.ok && !o.more.n && o.g.tensors.n == 1);
        drop(&o);
        remove_file(whole[i].file);
    }
}

static void test_stem(void **state)
{
    static const struct {
        const char *name;
        size_t n;
    } cases[] = {{"a.gguf", 1},
                 {"a-00001-of-00003.gguf", 1},
                 {"b/a-12345-of-67890.gguf", 3},
                 {"a-0001-of-00003.gguf", 15},
                 {"a-00001-of-0000x.gguf", 16},
                 {"a-00001_of-00003.gguf", 16},
                 {"-00001-of-00003.gguf", 15},
                 {".gguf", 5},
                 {"a-00001-of-00003", 16},
                 {"", 0}};
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++)
        assert_int_equal(gguf_stem(cases[i].name), cases[i].n);
}

static void test_refused(void **state)
{
    static const struct {
        const char *message; /* behind the folder */
        Part a, b;           /* the file that is opened, and another */
    } cases[] = {
        {"x-00002-of-00002.gguf: is part 2 of 2 of a model; name its first part, FOLDER/x-00001-of-00002.gguf",
         {"x-00002-of-00002.gguf", 1, 2, 2, {"b"}, NULL, NULL, 0},
         {"x-00001-of-00002.gguf", 0, 2, 2, {"a"}, NULL, NULL, 0}},
        {"x.gguf: is part 2 of 3 of a model by its keys: its name must end with -00002-of-00003.gguf",
         {"x.gguf", 1, 3, 2, {"b"}, NULL, NULL, 0},
         {0}},
        {"x-00001-of-00002.gguf: is part 1 of 3 of a model by its keys: its name must end with -00001-of-00003.gguf",
         {"x-00001-of-00002.gguf", 0, 3, 2, {"b"}, NULL, NULL, 0},
         {0}},
        {"x-00002-of-00002.gguf: is part 1 of 2 of a model by its keys: its name must end with -00001-of-00002.gguf",
         {"x-00002-of-00002.gguf", 0, 2, 2, {"b"}, NULL, NULL, 0},
         {0}},
        {"x-00001-of-00002.gguf: key \"split.no\" is missing: the number of the part",
         {"x-00001-of-00002.gguf", NONE, 2, 2, {"b"}, NULL, NULL, 0},
         {0}},
        {"x-00001-of-00002.gguf: key \"split.no\" is 2, key \"split.count\" says no more parts than 2",
         {"x-00001-of-00002.gguf", 2, 2, 2, {"b"}, NULL, NULL, 0},
         {0}},
        {"x-00002-of-00002.gguf: key \"split.no\" is 1, key \"split.count\" is missing",
         {"x-00002-of-00002.gguf", 1, NONE, 2, {"b"}, NULL, NULL, 0},
         {0}},
        {"x-00002-of-00002.gguf: key \"split.no\" is 1, key \"split.count\" says no more parts than 0",
         {"x-00002-of-00002.gguf", 1, 0, 2, {"b"}, NULL, NULL, 0},
         {0}},
        {"x-00001-of-00002.gguf: key \"split.count\" says that the model has more than 65535 parts",
         {"x-00001-of-00002.gguf", 0, 65536, 2, {"b"}, NULL, NULL, 0},
         {0}},
        {"x-00001-of-00002.gguf: key \"split.tensors.count\" is missing: it says how many tensors all parts have",
         {"x-00001-of-00002.gguf", 0, 2, NONE, {"b"}, NULL, NULL, 0},
         {0}},
        {"x-00001-of-00002.gguf: key \"split.count\" must be a whole number of 0 or more",
         {"x-00001-of-00002.gguf", 0, NONE, 2, {"b"}, "split.count", "2", 0},
         {0}},
        {"x-00001-of-00003.gguf: part 3 of 3 is missing: there is no x-00003-of-00003.gguf beside it",
         {"x-00001-of-00003.gguf", 0, 3, 3, {"a"}, NULL, NULL, 0},
         {"x-00002-of-00003.gguf", 1, 3, 3, {"b"}, NULL, NULL, 0}},
        {"x-00002-of-00002.gguf: key \"split.no\" is 0; as a part of x-00001-of-00002.gguf it is 1",
         {"x-00001-of-00002.gguf", 0, 2, 2, {"a"}, NULL, NULL, 0},
         {"x-00002-of-00002.gguf", 0, 2, 2, {"b"}, NULL, NULL, 0}},
        {"x-00002-of-00002.gguf: key \"split.count\" is 3; as a part of x-00001-of-00002.gguf it is 2",
         {"x-00001-of-00002.gguf", 0, 2, 2, {"a"}, NULL, NULL, 0},
         {"x-00002-of-00002.gguf", 1, 3, 2, {"b"}, NULL, NULL, 0}},
        {"x-00002-of-00002.gguf: key \"split.no\" is missing; as a part of x-00001-of-00002.gguf it is 1",
         {"x-00001-of-00002.gguf", 0, 2, 2, {"a"}, NULL, NULL, 0},
         {"x-00002-of-00002.gguf", NONE, NONE, NONE, {"b"}, NULL, NULL, 0}},
        {"x-00002-of-00002.gguf: key \"split.tensors.count\" is 3; as a part of x-00001-of-00002.gguf it is 2",
         {"x-00001-of-00002.gguf", 0, 2, 2, {"a"}, NULL, NULL, 0},
         {"x-00002-of-00002.gguf", 1, 2, 3, {"b"}, NULL, NULL, 0}},
        {"x-00001-of-00002.gguf: tensor \"a\" is both in x-00001-of-00002.gguf and in x-00002-of-00002.gguf",
         {"x-00001-of-00002.gguf", 0, 2, 2, {"a"}, NULL, NULL, 0},
         {"x-00002-of-00002.gguf", 1, 2, 2, {"a"}, NULL, NULL, 0}},
        {"x-00001-of-00002.gguf: its 2 parts have 2 tensors; key \"split.tensors.count\" says 3",
         {"x-00001-of-00002.gguf", 0, 2, 3, {"a"}, NULL, NULL, 0},
         {"x-00002-of-00002.gguf", 1, 2, 3, {"b"}, NULL, NULL, 0}},
        {"x-00002-of-00002.gguf: key \"general.name\" is not that of x-00001-of-00002.gguf: parts of different models",
         {"x-00001-of-00002.gguf", 0, 2, 2, {"a"}, "general.name", "one", 0},
         {"x-00002-of-00002.gguf", 1, 2, 2, {"b"}, "general.name", "two", 0}},
        {"x-00002-of-00002.gguf: key \"general.name\" is not that of x-00001-of-00002.gguf: parts of different models",
         {"x-00001-of-00002.gguf", 0, 2, 2, {"a"}, NULL, NULL, 0},
         {"x-00002-of-00002.gguf", 1, 2, 2, {"b"}, "general.name", "two", 0}},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        char want[600];
        const char *cut = strstr(cases[i].message, "FOLDER/");
        Opened o;

        write_part(&cases[i].a);
        if (cases[i].b.file)
            write_part(&cases[i].b);
        o = open_model(cases[i].a.file);
        snprintf(want, sizeof want, "%s/%.*s%s%s", temp_folder,
                 (int)(cut ? cut - cases[i].message : (ptrdiff_t)strlen(cases[i].message)), cases[i].message,
                 cut ? temp_folder : "", cut ? cut + strlen("FOLDER") : "");
        if (o.ok || strcmp(o.d.text, want) != 0)
            fail_msg("expected \"%s\", got: %s", want, o.ok ? "no error" : o.d.text);
        drop(&o);
        remove_file(cases[i].a.file);
        if (cases[i].b.file)
            remove_file(cases[i].b.file);
    }
}

/* A part that is no GGUF file, and one whose key has another type than the first part's: 7, whose bytes are those with which
 * a text of 7 bytes begins. */
static void test_damaged_parts(void **state)
{
    static const Part first = {"y-00001-of-00002.gguf", 0, 2, 0, {NULL}, "general.file_type", "of seve", 0};
    const char *path;
    GgufBytes b = {0};
    FILE *f;
    Opened o;
    (void)state;

    write_part(&first);
    for (int i = 0; i < 2; i++) {
        gguf_begin(&b);
        gguf_key_u32(&b, "split.no", 1);
        gguf_key_u32(&b, "split.count", 2);
        gguf_key_u32(&b, "split.tensors.count", 0);
        gguf_key_u32(&b, "general.file_type", 7);
        path = temp_path("y-00002-of-00002.gguf");
        f = fopen(path, "wb");
        assert_true(f && fwrite(b.at, 1, i ? 3 : b.n, f) == (i ? 3 : b.n) && !fclose(f));
        o = open_model(first.file);
        assert_false(o.ok);
        assert_non_null(strstr(o.d.text, "y-00002-of-00002.gguf: "));
        assert_non_null(strstr(o.d.text, i ? "the file does not begin with GGUF"
                                           : "key \"general.file_type\" is not that of y-00001-of-00002.gguf"));
        drop(&o);
    }
    free(b.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_whole),
                                       cmocka_unit_test(test_stem), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_damaged_parts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
