/* tools.h - tokenizers made from files and from small descriptions in the tests. */
#ifndef TESTS_TOKENIZER_TOOLS_H
#define TESTS_TOKENIZER_TOOLS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/tokenizer/tokenizer.h"
#include "runtime/tokenizer/tokenizer.h"

/* A tokenizer.json of a BPE model; more: other fields. */
#define BPE(vocab, merges, more) "{\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}," more "}"
#define NORMALIZER(n) BPE("\"a\":0", "", "\"normalizer\":" n)

#define SMALL "tests/tokenizer/small/" /* tokenizers of a few tokens */

typedef struct Fixture {
    Arena *keep;
    void *tables;
    size_t bytes;
    Tokenizer *t;
    TokenizerScratch *s;
    int32_t *ids;
    size_t max, n;
} Fixture;

static inline Fixture begin_tables(Fixture f, size_t max_text)
{
    FtxError err;

    if (tokenizer_open(f.tables, f.bytes, &f.t, &err) || tokenizer_scratch_open(f.t, max_text, &f.s, &err))
        fail_msg("%s", err.text);
    f.max = 3 * max_text + 8;
    f.ids = malloc(f.max * sizeof *f.ids);
    assert_non_null(f.ids);
    return f;
}

static inline Fixture begin(const char *path, size_t max_text)
{
    Fixture f = {.keep = arena_open()};
    Diag d = {0};

    if (!tokenizer_compile(path, f.keep, &f.tables, &f.bytes, &d))
        fail_msg("%s", d.text);
    return begin_tables(f, max_text);
}

static inline Fixture begin_json(const char *text, size_t max_text)
{
    Fixture f = {.keep = arena_open()};
    Diag d = {0};

    if (!tokenizer_compile_bytes("small.json", text, strlen(text), f.keep, &f.tables, &f.bytes, &d))
        fail_msg("%s\n%s", text, d.text);
    return begin_tables(f, max_text);
}

/* --- SentencePiece's file ----------------------------------------------------------------------- */

typedef struct SpmFile {
    unsigned char at[8192];
    size_t n;
} SpmFile;

static inline void spm_field(SpmFile *f, int number, const void *p, size_t n)
{
    assert_true(number < 16 && n < 1 << 14 && f->n + n + 3 < sizeof f->at);
    f->at[f->n++] = (unsigned char)(number << 3 | 2);
    f->at[f->n++] = (unsigned char)((n & 0x7f) | 0x80);
    f->at[f->n++] = (unsigned char)(n >> 7);
    memcpy(f->at + f->n, p, n);
    f->n += n;
}

/* type: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte */
static inline void spm_piece(SpmFile *f, const char *text, float score, int type)
{
    SpmFile p = {.n = 0};

    spm_field(&p, 1, text, strlen(text));
    p.at[p.n++] = 2 << 3 | 5;
    memcpy(p.at + p.n, &score, 4);
    p.n += 4;
    p.at[p.n++] = 3 << 3;
    p.at[p.n++] = (unsigned char)type;
    spm_field(f, 1, p.at, p.n);
}

/* model: 1 Unigram, 2 BPE */
static inline void spm_trainer(SpmFile *f, int model, bool byte_fallback)
{
    const unsigned char p[] = {3 << 3, (unsigned char)model, (35 << 3 & 0x7f) | 0x80, 35 << 3 >> 7, byte_fallback};

    spm_field(f, 2, p, sizeof p);
}

static inline void spm_normaliser(SpmFile *f, bool dummy, bool squeeze)
{
    const unsigned char p[] = {3 << 3, dummy, 4 << 3, squeeze};

    spm_field(f, 3, p, sizeof p);
}

static inline Fixture begin_spm(const SpmFile *file, size_t max_text)
{
    Fixture f = {.keep = arena_open()};
    Diag d = {0};

    if (!tokenizer_compile_bytes("small.model", file->at, file->n, f.keep, &f.tables, &f.bytes, &d))
        fail_msg("%s", d.text);
    return begin_tables(f, max_text);
}

static inline void end(Fixture *f)
{
    free(f->ids);
    tokenizer_scratch_close(f->s);
    tokenizer_close(f->t);
    arena_close(f->keep);
}

static inline void encode(Fixture *f, const char *text, size_t bytes, bool special)
{
    FtxError err;

    if (tokenizer_encode(f->t, f->s, text, bytes, special, f->ids, f->max, &f->n, &err))
        fail_msg("%s", err.text);
    assert_true(f->n <= f->max);
}

static inline void expect_ids(Fixture *f, const char *text, const int32_t *want, size_t n)
{
    encode(f, text, strlen(text), false);
    for (size_t i = 0; i < f->n || i < n; i++)
        if (i >= f->n || i >= n || f->ids[i] != want[i])
            fail_msg("\"%s\": %zu ids, expected %zu; id %zu is %d, expected %d", text, f->n, n, i,
                     i < f->n ? f->ids[i] : -1, i < n ? want[i] : -1);
}

#define IDS(f, text, ...) \
    expect_ids(f, text, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static inline void normalises(Fixture *f, const char *text, const char *want)
{
    const char *out;
    FtxError err;
    size_t n;

    assert_int_equal(tokenizer_normalize(f->t, f->s, text, strlen(text), &out, &n, &err), FTX_OK);
    if (n != strlen(want) || memcmp(out, want, n) != 0)
        fail_msg("\"%s\" becomes \"%.*s\", expected \"%s\"", text, (int)n, out, want);
}

static inline char *decode_bytes(Fixture *f, const int32_t *ids, size_t n, bool skip, size_t *bytes)
{
    const size_t max = n * tokenizer_token_bytes(f->t) + 16;
    char *text = calloc(max + 1, 1);

    assert_non_null(text);
    assert_int_equal(tokenizer_decode(f->t, ids, n, skip, text, max, bytes, NULL), FTX_OK);
    assert_true(*bytes <= max);
    return text;
}

static inline char *decode(Fixture *f, const int32_t *ids, size_t n, bool skip)
{
    size_t bytes;

    return decode_bytes(f, ids, n, skip, &bytes);
}

/* Makes a tokenizer.json: the 256 bytes have the ids 0..255, merges give 256 and on, the
 * added tokens follow. Pieces are JSON texts. */
typedef struct Recipe {
    const char *merges[24]; /* "Ġ t": the merged token gets the next id */
    const char *added;      /* objects; %d is not expanded */
    const char *pre, *post, *decoder, *model, *normalizer;
} Recipe;

static inline void put_character(char *out, int byte)
{
    static int map[256];
    int next = 256;

    if (!map[33])
        for (int i = 0; i < 256; i++)
            map[i] = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174 ? i : next++;
    if (map[byte] < 0x80)
        sprintf(out, "%s%c", map[byte] == '"' || map[byte] == '\\' ? "\\" : "", map[byte]);
    else
        sprintf(out, "%c%c", 0xc0 | map[byte] >> 6, 0x80 | (map[byte] & 0x3f));
}

static inline const char *recipe_file(const Recipe *r)
{
    static char path[64];
    FILE *f;
    int id = 256, fd;

    strcpy(path, "/tmp/ftx-tokenizer-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    f = fdopen(fd, "w");
    assert_non_null(f);
    fprintf(f, "{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,",
            r->added ? r->added : "", r->normalizer ? r->normalizer : "null",
            r->pre ? r->pre : "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", r->post ? r->post : "null",
            r->decoder ? r->decoder : "{\"type\":\"ByteLevel\"}");
    fprintf(f, "\"model\":{\"type\":\"BPE\",%s\"vocab\":{", r->model ? r->model : "");
    for (int i = 0; i < 256; i++) {
        char c[4];

        put_character(c, i);
        fprintf(f, "%s\"%s\":%d", i ? "," : "", c, i);
    }
    for (size_t i = 0; r->merges[i]; i++) {
        const char *space = strchr(r->merges[i], ' ');

        fprintf(f, ",\"%.*s%s\":%d", (int)(space - r->merges[i]), r->merges[i], space + 1, id++);
    }
    fprintf(f, "},\"merges\":[");
    for (size_t i = 0; r->merges[i]; i++)
        fprintf(f, "%s\"%s\"", i ? "," : "", r->merges[i]);
    fprintf(f, "]}}");
    fclose(f);
    return path;
}

static inline Fixture begin_recipe(const Recipe *r, size_t max_text)
{
    const char *path = recipe_file(r);
    Fixture f = begin(path, max_text);

    unlink(path);
    return f;
}

#endif
