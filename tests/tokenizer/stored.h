/* stored.h - compares ids and texts with pairs that Hugging Face's tokenizers made, stored in a JSON file. */
#ifndef TESTS_TOKENIZER_STORED_H
#define TESTS_TOKENIZER_STORED_H

#include "runtime/base/utf8.h"
#include "tools.h"

static inline void same_ids(const Fixture *f, const json_t *want, const char *text)
{
    assert_non_null(want);
    for (size_t i = 0; i < f->n || i < json_array_size(want); i++)
        if (i >= f->n || i >= json_array_size(want) || f->ids[i] != json_integer_value(json_array_get(want, i)))
            fail_msg("\"%s\": id %zu differs (%zu ids, expected %zu): %d", text, i, f->n, json_array_size(want),
                     i < f->n ? f->ids[i] : -1);
}

/* The stream gives the same text in whole characters. ends: ignore spaces at both ends, which some decoders strip. */
static inline void same_text(Fixture *f, bool skip, const json_t *want, bool ends)
{
    TokenizerStream d = {.keep_special = !skip};
    char stream[4096];
    size_t at = 0, n, bytes, from = 0, to;
    char *text = decode_bytes(f, f->ids, f->n, skip, &bytes);

    for (size_t i = 0; i < f->n; i++) {
        assert_int_equal(
            tokenizer_stream(f->t, &d, f->ids[i], i + 1 == f->n, stream + at, sizeof stream - at, &n, NULL), FTX_OK);
        assert_true(utf8_valid(stream + at, n));
        at += n;
    }
    assert_int_equal(at, bytes);
    assert_memory_equal(stream, text, bytes);
    for (to = bytes; ends && to && text[to - 1] == ' '; to--)
        ;
    for (; ends && from < to && text[from] == ' '; from++)
        ;
    if (to - from != json_string_length(want) || memcmp(text + from, json_string_value(want), to - from) != 0)
        fail_msg("\"%.*s\", expected \"%s\"", (int)(to - from), text + from, json_string_value(want));
    free(text);
}

/* Calls `check` with every case of a file and the model's tokenizer. */
static inline void each_stored(const char *model, const char *file, void (*check)(Fixture *f, const json_t *c))
{
    Fixture f = begin(model, 1 << 16);
    json_t *root = json_load_file(file, JSON_ALLOW_NUL, NULL), *c;
    size_t i;

    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        check(&f, c);
    }
    assert_true(i > 200);
    json_decref(root);
    end(&f);
}

static inline void encode_case(Fixture *f, const json_t *c, bool special)
{
    encode(f, json_string_value(json_object_get(c, "text")), json_string_length(json_object_get(c, "text")), special);
}

/* A case of files that hold ids and texts with and without special tokens. */
static inline void check_both(Fixture *f, const json_t *c)
{
    const char *text = json_string_value(json_object_get(c, "text"));

    encode_case(f, c, true);
    same_ids(f, json_object_get(c, "ids_with_special"), text);
    encode_case(f, c, false);
    same_ids(f, json_object_get(c, "ids"), text);
    same_text(f, false, json_object_get(c, "decoded"), false);
    same_text(f, true, json_object_get(c, "decoded_skip_special"), false);
}

#endif
