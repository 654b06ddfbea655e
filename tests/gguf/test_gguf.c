/* test_gguf.c - the reader of GGUF files: all kinds of keys, and each way in which a file can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "bytes.h"
#include "compiler/gguf/gguf.h"

typedef struct Reading {
    Arena *keep;
    Gguf g;
    Diag d;
    void *copy; /* of its own size, so that AddressSanitizer sees what is read past its end */
    bool ok;
} Reading;

static Reading read_bytes(const void *p, size_t n)
{
    Reading r = {.keep = arena_open(), .copy = malloc(n ? n : 1)};

    assert_non_null(r.copy);
    if (n)
        memcpy(r.copy, p, n);
    r.ok = gguf_read("x.gguf", r.copy, n, r.keep, &r.g, &r.d);
    assert_int_equal(r.ok, !r.d.failed);
    return r;
}

static void drop(Reading *r)
{
    arena_close(r->keep);
    free(r->copy);
}

static void expect_refused(GgufBytes *b, const char *message)
{
    Reading r = read_bytes(b->at, b->n);

    if (r.ok || strcmp(r.d.text, message) != 0)
        fail_msg("expected \"%s\", got: %s", message, r.ok ? "no error" : r.d.text);
    drop(&r);
    b->n = 0;
}

/* Two keys and two tensors, of which the first lies behind the second. */
static void small_file(GgufBytes *b)
{
    gguf_begin(b);
    gguf_key_text(b, "general.architecture", "llama");
    gguf_key_u32(b, "llama.block_count", 2);
    gguf_put_tensor(b, "b", 2, (uint64_t[]){32, 3}, 8, 64); /* Q8_0: 3 blocks of 34 bytes */
    gguf_put_tensor(b, "a", 1, (uint64_t[]){5}, 0, 0);
    gguf_put_data(b, 32, 64 + 102);
}

static void test_kinds(void **state)
{
    static const struct {
        uint32_t kind;
        const char *bytes;
        size_t n;
        double value;
    } cases[] = {
        {0, "\xff", 1, 255},
        {1, "\xfe", 1, -2},
        {2, "\xfe\xff", 2, 65534},
        {3, "\xfe\xff", 2, -2},
        {4, "\xff\xff\xff\xff", 4, 4294967295.0},
        {5, "\x00\x00\x00\x80", 4, -2147483648.0},
        {6, "\x00\x00\xc0\xbf", 4, -1.5},
        {7, "\x01", 1, 1},
        {10, "\x00\x00\x00\x00\x01\x00\x00\x00", 8, 4294967296.0},
        {11, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, -1},
        {11, "\x00\x00\x00\x00\x00\x00\x00\x80", 8, -9223372036854775808.0},
        {12, "\x00\x00\x00\x00\x00\x00\x04\xc0", 8, -2.5},
    };
    GgufBytes b = {0};
    Reading r;
    (void)state;

    gguf_begin(&b);
    for (size_t i = 0; i < LEN(cases); i++) {
        char name[8];

        snprintf(name, sizeof name, "k%02zu", i);
        gguf_name(&b, name, cases[i].kind);
        gguf_put(&b, cases[i].bytes, cases[i].n);
        name[0] = 'a'; /* the same as an array of two */
        gguf_key_array(&b, name, cases[i].kind, 2);
        gguf_put(&b, cases[i].bytes, cases[i].n);
        gguf_put(&b, cases[i].bytes, cases[i].n);
    }
    gguf_key_array(&b, "texts", 8, 2);
    gguf_put_text(&b, "one");
    gguf_put_text(&b, "");
    gguf_key_array(&b, "none", 4, 0);
    gguf_name(&b, "most", 10);
    gguf_put(&b, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    r = read_bytes(b.at, b.n);
    if (!r.ok)
        fail_msg("%s", r.d.text);
    for (size_t i = 0; i < LEN(cases); i++) {
        char name[8];
        const GgufKey *k;

        snprintf(name, sizeof name, "k%02zu", i);
        k = gguf_key(&r.g, name);
        assert_non_null(k);
        assert_false(k->is_array);
        assert_int_equal(k->n, 1);
        assert_true(gguf_number(k, 0) == cases[i].value);
        assert_int_equal(gguf_is_integer(k), cases[i].kind != 6 && cases[i].kind != 7 && cases[i].kind != 12);
        name[0] = 'a';
        k = gguf_key(&r.g, name);
        assert_non_null(k);
        assert_true(k->is_array && k->n == 2);
        assert_true(gguf_number(k, 1) == cases[i].value);
    }
    assert_int_equal(gguf_key(&r.g, "texts")->texts[0].n, 3);
    assert_memory_equal(gguf_key(&r.g, "texts")->texts[0].at, "one", 3);
    assert_int_equal(gguf_key(&r.g, "texts")->texts[1].n, 0);
    assert_int_equal(gguf_key(&r.g, "none")->n, 0);
    assert_true(gguf_integer(gguf_key(&r.g, "most"), 0) == INT64_MAX);
    assert_null(gguf_key(&r.g, "other"));
    drop(&r);
    free(b.at);
}

static void test_values(void **state)
{
    GgufBytes b = {0};
    const char *text = "as it was";
    const GgufKey *k;
    bool flag = true;
    int32_t id = -1;
    Reading r;
    Diag d = {0};
    (void)state;

    gguf_begin(&b);
    gguf_key_text(&b, "t", "text");
    gguf_key_flag(&b, "f", 0);
    gguf_key_u32(&b, "n", 7);
    gguf_key_u32(&b, "large", 0x80000000u);
    gguf_key_array(&b, "list", 5, 1);
    gguf_put_u32(&b, 1);
    r = read_bytes(b.at, b.n);
    assert_true(r.ok);
    assert_true(gguf_text(&r.g, "missing", r.keep, &text, &d));
    assert_string_equal(text, "as it was");
    assert_true(gguf_text(&r.g, "t", r.keep, &text, &d));
    assert_string_equal(text, "text");
    assert_true(gguf_flag(&r.g, "missing", &flag, &d) && flag);
    assert_true(gguf_flag(&r.g, "f", &flag, &d) && !flag);
    assert_true(gguf_id(&r.g, "missing", &id, &d) && id == -1);
    assert_true(gguf_id(&r.g, "n", &id, &d) && id == 7);
    assert_true(gguf_array(&r.g, "list", false, &k, &d) && k);
    assert_true(gguf_array(&r.g, "missing", true, &k, &d) && !k);
    assert_false(gguf_text(&r.g, "n", r.keep, &text, &d));
    assert_string_equal(d.text, "x.gguf: key \"n\" must be a text");
    assert_false(gguf_flag(&r.g, "n", &flag, &d));
    assert_false(gguf_id(&r.g, "large", &id, &d));
    assert_false(gguf_id(&r.g, "list", &id, &d));
    assert_false(gguf_array(&r.g, "list", true, &k, &d));
    assert_false(gguf_array(&r.g, "n", false, &k, &d));
    drop(&r);
    free(b.at);
}

static void test_tensors(void **state)
{
    GgufBytes b = {0};
    Reading r;
    (void)state;

    for (int version = 2; version <= 3; version++) {
        small_file(&b);
        b.at[4] = (unsigned char)version;
        r = read_bytes(b.at, b.n);
        if (!r.ok)
            fail_msg("%s", r.d.text);
        assert_int_equal(r.g.tensors.n, 2);
        assert_string_equal(r.g.tensors.at[0].name, "a");
        assert_string_equal(r.g.tensors.at[1].name, "b");
        assert_int_equal(r.g.tensors.at[0].bytes, 20);
        assert_int_equal(r.g.tensors.at[1].bytes, 102);
        assert_int_equal(r.g.tensors.at[1].dim[0], 32);
        assert_int_equal(r.g.tensors.at[1].dim[1], 3);
        assert_string_equal(r.g.tensors.at[1].type_name, "Q8_0");
        assert_ptr_equal(r.g.tensors.at[1].at, r.g.tensors.at[0].at + 64);
        assert_ptr_equal(r.g.tensors.at[0].at, (unsigned char *)r.copy + b.n - 166);
        drop(&r);
    }
    gguf_begin(&b); /* another alignment */
    gguf_key_u32(&b, "general.alignment", 256);
    gguf_put_tensor(&b, "a", 0, NULL, 0, 256);
    gguf_put_data(&b, 256, 260);
    r = read_bytes(b.at, b.n);
    assert_true(r.ok);
    assert_int_equal(r.g.tensors.at[0].at - (unsigned char *)r.copy, 512);
    drop(&r);
    free(b.at);
}

static void test_damaged_headers(void **state)
{
    GgufBytes b = {0};
    (void)state;

    gguf_put(&b, "GGU", 3);
    expect_refused(&b, "x.gguf: the file does not begin with GGUF");
    gguf_put(&b, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 23);
    expect_refused(&b, "x.gguf: the file is too short for a GGUF header");
    small_file(&b);
    b.at[4] = 1;
    expect_refused(&b, "x.gguf: is GGUF of the version 1; versions 2 and 3 are read, little-endian");
    small_file(&b);
    memcpy(b.at + 4, "\0\0\0\3", 4);
    expect_refused(&b, "x.gguf: is GGUF of the version 50331648; versions 2 and 3 are read, little-endian; this one is "
                       "big-endian");
    small_file(&b);
    b.at[13] = 1; /* 2^40 tensors */
    expect_refused(&b, "x.gguf: the file claims more keys or tensors than it has bytes for: cut off or damaged");
    small_file(&b);
    b.at[23] = 0x80;
    expect_refused(&b, "x.gguf: the file claims more keys or tensors than it has bytes for: cut off or damaged");
    free(b.at);
}

static void test_damaged_keys(void **state)
{
    static const char more[] = "key \"k\" claims more elements than the file has bytes for: cut off or damaged";
    GgufBytes b = {0};
    char message[200], name[300];
    (void)state;

    for (int i = 0; i < 3; i++) {
        gguf_begin(&b);
        gguf_count(&b, 16);
        memset(name, 'n', sizeof name);
        name[i == 0 ? 0 : i == 1 ? 256 : 5] = '\0';
        gguf_put_text(&b, name);
        if (i == 2)
            b.at[b.n - 1] = 0xff;
        gguf_put_data(&b, 32, 64);
        expect_refused(&b, "x.gguf: key 0: its name is not 1 to 255 bytes of UTF-8");
    }
    gguf_begin(&b);
    gguf_count(&b, 16);
    gguf_put_u64(&b, UINT64_MAX);
    gguf_put_data(&b, 32, 64);
    expect_refused(&b, "x.gguf: key 0: the file ends within it");
    gguf_begin(&b);
    gguf_name(&b, "k", 13);
    gguf_put_data(&b, 32, 64);
    expect_refused(&b, "x.gguf: key \"k\" is of a kind that GGUF does not have");
    gguf_begin(&b);
    gguf_key_array(&b, "k", 9, 1);
    gguf_put_data(&b, 32, 64);
    expect_refused(&b, "x.gguf: key \"k\" is an array of arrays, which is not read");
    gguf_begin(&b);
    gguf_key_flag(&b, "k", 2);
    gguf_put_data(&b, 32, 64);
    expect_refused(&b, "x.gguf: key \"k\" has a flag that is neither 0 nor 1");
    snprintf(message, sizeof message, "x.gguf: %s", more);
    gguf_begin(&b);
    gguf_name(&b, "k", 10);
    gguf_put_u32(&b, 1);
    expect_refused(&b, message);
    for (uint32_t kind = 0; kind <= 12; kind++) { /* counts whose bytes are more than 2^64 */
        if (kind == 8 || kind == 9)
            continue;
        gguf_begin(&b);
        gguf_key_array(&b, "k", kind, (UINT64_C(1) << 61) + 1);
        gguf_put_data(&b, 32, 64);
        expect_refused(&b, message);
    }
    gguf_begin(&b);
    gguf_key_array(&b, "k", 8, UINT64_C(1) << 61);
    gguf_put_data(&b, 32, 64);
    expect_refused(&b, "x.gguf: key \"k\" claims more texts than the file has bytes for: cut off or damaged");
    gguf_begin(&b);
    gguf_key_array(&b, "k", 8, 2);
    gguf_put_text(&b, "one");
    gguf_put_u64(&b, 9);
    gguf_put_u64(&b, 0);
    expect_refused(&b, "x.gguf: key \"k\" has a text that is longer than the file");
    gguf_begin(&b);
    gguf_key_text(&b, "k", "a\xff");
    expect_refused(&b, "x.gguf: key \"k\" has a text that is no UTF-8, or has a zero in it");
    gguf_begin(&b);
    gguf_key_text(&b, "k", "abc");
    b.at[b.n - 2] = 0;
    expect_refused(&b, "x.gguf: key \"k\" has a text that is no UTF-8, or has a zero in it");
    gguf_begin(&b);
    gguf_key_u32(&b, "k", 1);
    gguf_key_u32(&b, "k", 1);
    expect_refused(&b, "x.gguf: key \"k\" is there twice");
    gguf_begin(&b);
    gguf_key_u32(&b, "general.alignment", 0);
    expect_refused(&b, "x.gguf: key \"general.alignment\" is no number of 1 or more");
    gguf_begin(&b);
    gguf_key_text(&b, "general.alignment", "32");
    expect_refused(&b, "x.gguf: key \"general.alignment\" is no number of 1 or more");
    gguf_begin(&b);
    gguf_key_u32(&b, "general.alignment", 24);
    expect_refused(&b, "x.gguf: key \"general.alignment\" is no power of two");
    free(b.at);
}

static void test_damaged_tensors(void **state)
{
    static const struct {
        const char *message;
        uint32_t rank, type;
        uint64_t dim[5], offset;
        size_t data;
    } cases[] = {
        {"has more than 4 dimensions", 5, 0, {1, 1, 1, 1, 1}, 0, 64},
        {"has more than 2^58 elements", 2, 0, {UINT64_C(1) << 32, UINT64_C(1) << 32}, 0, 64},
        {"has more than 2^58 elements", 2, 0, {UINT64_C(1) << 63, 0}, 0, 64},
        {"has more than 2^58 elements", 1, 24, {UINT64_C(1) << 59}, 0, 64},
        {"has rows that are no whole number of its type's blocks", 2, 8, {16, 2}, 0, 64},
        {"has rows that are no whole number of its type's blocks", 1, 12, {128}, 0, 256},
        {"has rows that are no whole number of its type's blocks", 0, 2, {0}, 0, 64},
        {"does not begin at a multiple of general.alignment", 1, 0, {1}, 4, 64},
        {"ends behind the end of the file: cut off or damaged", 1, 0, {17}, 0, 64},
        {"ends behind the end of the file: cut off or damaged", 1, 0, {9}, 32, 64},
        {"ends behind the end of the file: cut off or damaged", 1, 0, {1}, 96, 64},
        {"ends behind the end of the file: cut off or damaged", 1, 0, {16}, UINT64_MAX - 31, 64},
    };
    GgufBytes b = {0};
    char message[200];
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        gguf_begin(&b);
        gguf_put_tensor(&b, "t", cases[i].rank, cases[i].dim, cases[i].type, cases[i].offset);
        gguf_put_data(&b, 32, cases[i].data);
        snprintf(message, sizeof message, "x.gguf: tensor \"t\" %s", cases[i].message);
        expect_refused(&b, message);
    }
    gguf_begin(&b);
    gguf_put_tensor(&b, "t", 1, (uint64_t[]){1}, 77, 0);
    gguf_put_data(&b, 32, 64);
    expect_refused(&b, "x.gguf: tensor \"t\" has the type 77, which ftxc does not know");
    gguf_begin(&b);
    gguf_put_tensor(&b, "t", 1, (uint64_t[]){1}, 0, 0);
    gguf_put_tensor(&b, "t", 1, (uint64_t[]){1}, 0, 32);
    gguf_put_data(&b, 32, 64);
    expect_refused(&b, "x.gguf: tensor \"t\" is there twice");
    gguf_begin(&b);
    gguf_put_tensor(&b, "a", 1, (uint64_t[]){9}, 0, 0);
    gguf_put_tensor(&b, "b", 1, (uint64_t[]){1}, 0, 32);
    gguf_put_data(&b, 32, 64);
    expect_refused(&b, "x.gguf: tensor \"b\" overlaps another one");
    gguf_begin(&b);
    gguf_put_tensor(&b, "t", 1, (uint64_t[]){0}, 0, 0);
    expect_refused(&b, "x.gguf: the file ends before its tensors: cut off or damaged");
    free(b.at);
}

/* A file that is cut at any byte is refused; one with a byte changed is refused or read, never past its end. */
static void test_cuts(void **state)
{
    GgufBytes b = {0};
    (void)state;

    small_file(&b);
    for (size_t n = 0; n < b.n; n++) {
        Reading r = read_bytes(b.at, n);

        assert_false(r.ok);
        drop(&r);
    }
    for (size_t i = 0; i < b.n; i++)
        for (int bit = 0; bit < 8; bit++) {
            Reading r;

            b.at[i] ^= (unsigned char)(1 << bit);
            r = read_bytes(b.at, b.n);
            drop(&r);
            b.at[i] ^= (unsigned char)(1 << bit);
        }
    free(b.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),        cmocka_unit_test(test_values),
        cmocka_unit_test(test_tensors),      cmocka_unit_test(test_damaged_headers),
        cmocka_unit_test(test_damaged_keys), cmocka_unit_test(test_damaged_tensors),
        cmocka_unit_test(test_cuts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
