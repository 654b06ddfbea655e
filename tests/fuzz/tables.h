/* tables.h - what tokenizer tables must do once the compiler has made them: open, encode, decode. */
#ifndef TESTS_FUZZ_TABLES_H
#define TESTS_FUZZ_TABLES_H

#include "fuzz.h"

#include <string.h>

#include "tests/tokenizer/tools.h"

enum { TABLES_MAX_IDS = 400 };

static inline void tables_use(const void *tables, size_t bytes)
{
    static const char text[] = "abc  Once <x>\n\n a\xff\xc3\xa9\xe2\x82\xac 12 A\xcc\x81 \xe3\x8e\xa1\xe4\xb8\xad.";
    const TokenizerPair pair = {.text = text,
                                .bytes = sizeof text - 1,
                                .other = "b a",
                                .other_bytes = 3,
                                .special = true,
                                .most = 11,
                                .cut = TOKENIZER_CUT_FIRST};
    TokenizerStream stream = {.keep_special = true};
    int32_t ids[TABLES_MAX_IDS];
    TokenizerScratch *scratch;
    size_t n, back;
    char out[4000];
    Tokenizer *t;
    FtxError err;

    if (tokenizer_open(tables, bytes, &t, &err))
        fuzz_bug("tables that the compiler made are refused: %s", err.text);
    if (tokenizer_scratch_open(t, sizeof text, &scratch, &err))
        fuzz_bug("%s", err.text);
    if (!tokenizer_encode(t, scratch, text, sizeof text - 1, true, ids, TABLES_MAX_IDS, &n, &err))
        tokenizer_decode(t, ids, n < TABLES_MAX_IDS ? n : TABLES_MAX_IDS, false, out, sizeof out, &back, &err);
    if (!tokenizer_encode_pair(t, scratch, &pair, ids, NULL, TABLES_MAX_IDS, &n, &err) && n > pair.most)
        fuzz_bug("%zu ids, at most %zu were asked for", n, pair.most);
    for (size_t i = 0; i < n && i < TABLES_MAX_IDS; i++)
        if (tokenizer_token_bytes(t) + 16 <= sizeof out &&
            tokenizer_stream(t, &stream, ids[i], i + 1 == n, out, tokenizer_token_bytes(t) + 16, &back, &err))
            fuzz_bug("%s", err.text);
    tokenizer_scratch_close(scratch);
    tokenizer_close(t);
}

/* The file as `name` says what it is: made into tables and used, or refused with a reason. */
static inline void tables_attempt(const char *name, const uint8_t *data, size_t size)
{
    Arena *keep = arena_open();
    Diag d = {0};
    void *tables;
    size_t bytes;

    if (tokenizer_compile_bytes(name, data, size, keep, &tables, &bytes, &d))
        tables_use(tables, bytes);
    else if (!*d.text)
        fuzz_bug("refused without a reason");
    arena_close(keep);
}

#endif
