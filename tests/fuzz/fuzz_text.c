/* fuzz_text.c - any text for a tokenizer of each kind: WordPiece, Unigram, BPE over bytes and over
 * characters, SentencePiece's two, with their normalisers. What is encoded has as many ids as were
 * counted; what is decoded in one call comes out of the stream, too. */
#include "fuzz.h"

#include "runtime/base/utf8.h"
#include "tests/tokenizer/tools.h"

enum { MAX_TEXT = 2000, MAX_IDS = 8000, KINDS = 8 };

static Fixture tokenizer[KINDS]; /* for the whole run */

static void open_all(void)
{
    static const char *const files[] = {SMALL "wordpiece.json",       SMALL "unigram.json",
                                        SMALL "characters.json",      SMALL "unicode.json",
                                        "specs/verse/tokenizer.json", "tests/tokenizer/emb/tokenizer.json"};
    size_t n = 0;

    for (size_t i = 0; i < LEN(files); i++)
        tokenizer[n++] = begin(files[i], MAX_TEXT);
    for (int model = 1; model <= 2; model++) {
        SpmFile f = {.n = 0};

        spm_piece(&f, "<unk>", 0, 2);
        spm_piece(&f, "a", -2, 1);
        spm_piece(&f, "b", -3, 1);
        spm_piece(&f, "ab", -1, 1);
        spm_piece(&f, "\xe2\x96\x81", -2, 1);
        for (int byte = 0; byte < 256; byte++) {
            char name[16];

            snprintf(name, sizeof name, "<0x%02X>", byte);
            spm_piece(&f, name, 0, 6);
        }
        spm_trainer(&f, model, true);
        spm_normaliser(&f, true, model == 1);
        tokenizer[n++] = begin_spm(&f, MAX_TEXT);
    }
}

static void must_stream(const Tokenizer *t, const int32_t *ids, size_t n, const char *whole, size_t bytes)
{
    TokenizerStream s = {.keep_special = true};
    static char text[1 << 20];
    size_t at = 0, got;
    FtxError err;

    for (size_t i = 0; i < n; i++) {
        if (tokenizer_stream(t, &s, ids[i], i + 1 == n, text + at, sizeof text - at, &got, &err))
            fuzz_bug("stream: %s", err.text);
        if (!utf8_valid(text + at, got))
            fuzz_bug("half a character came out");
        at += got;
    }
    if (at != bytes || memcmp(text, whole, bytes) != 0)
        fuzz_bug("the stream gave \"%.*s\", all at once it is \"%.*s\"", (int)at, text, (int)bytes, whole);
}

static void go_round(const Fixture *f, const char *text, size_t size)
{
    static int32_t ids[MAX_IDS];
    static char back[1 << 20];
    size_t counted, n, bytes;
    const char *normal;
    FtxError err;

    if (tokenizer_encode(f->t, f->s, text, size, true, ids, 0, &counted, &err)) {
        if (!*err.text)
            fuzz_bug("refused without a reason");
        return;
    }
    if (tokenizer_encode(f->t, f->s, text, size, true, ids, MAX_IDS, &n, &err) || n != counted)
        fuzz_bug("%zu ids were counted, %zu came", counted, n);
    if (utf8_valid(text, size) && !tokenizer_normalize(f->t, f->s, text, size, &normal, &bytes, &err) &&
        !utf8_valid(normal, bytes))
        fuzz_bug("a text is no longer UTF-8 once normalised");
    if (n > MAX_IDS)
        return;
    if (tokenizer_decode(f->t, ids, n, false, back, sizeof back, &bytes, &err))
        fuzz_bug("what was encoded is not decoded: %s", err.text);
    if (bytes <= sizeof back)
        must_stream(f->t, ids, n, back, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1); /* of its own size, so that a read past its end is seen */

    if (!text)
        return 0;
    if (!tokenizer[0].t)
        open_all();
    memcpy(text, data, size);
    for (size_t i = 0; i < KINDS; i++)
        go_round(&tokenizer[i], text, size);
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static char far[MAX_TEXT + 1];

    FUZZ_SEED("story", "Once upon a time, there was a king.\n\n  He had 3 daughters");
    FUZZ_SEED("marks", "A\xcc\x81\xcc\x81\xcc\x81 e\xcc\x82\xcc\xa3 \xef\xac\x81 \xe3\x8e\xa1 \xc7\x86 \xe1\xba\x9e");
    FUZZ_SEED("cjk", "\xe4\xb8\xad\xe6\x96\x87 \xed\x95\x9c\xea\xb5\xad\xe1\x84\x92\xe1\x85\xa1 \xe3\x81\x8c");
    FUZZ_SEED("spaces", " \t\r\n\xc2\xa0\xe3\x80\x80\xe2\x80\x89\xe2\x96\x81\xe2\x96\x81 \xe2\x80\x8b");
    FUZZ_SEED("special", "[CLS][SEP] <s></s><unk><pad> [MASK]##a <0x41> <|end|>");
    FUZZ_SEED("controls", "\x01\x02\x7f\xc2\x85 a\0b");
    FUZZ_SEED("invalid-utf8", "\xff\xfe \xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82");
    FUZZ_SEED("high", "\xf0\x9f\x98\x80\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 \xf4\x8f\xbf\xbf");
    fuzz_seed("empty", "", 0);
    memset(far, 'a', sizeof far);
    fuzz_seed("longest", far, MAX_TEXT);
    fuzz_seed("too-long", far, MAX_TEXT + 1);
    for (size_t i = 0; i + 3 <= MAX_TEXT; i += 3)
        memcpy(far + i, "\xe3\x8e\xa1", 3); /* a square that NFKC makes two letters of */
    fuzz_seed("grows", far, MAX_TEXT - MAX_TEXT % 3);
}
