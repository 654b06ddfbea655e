/* fuzz_tokenizer_json.c - any bytes as a tokenizer.json and as a SentencePiece model. What the
 * compiler takes the runtime opens, and it encodes and decodes. */
#include "fuzz.h"

#include <string.h>

#include "runtime/base/file.h"
#include "tests/tokenizer/tools.h"

enum { MAX_IDS = 400 };

static void use(const void *tables, size_t bytes)
{
    static const char text[] = "abc  Once <x>\n\n a\xff\xc3\xa9\xe2\x82\xac 12 A\xcc\x81 \xe3\x8e\xa1\xe4\xb8\xad.";
    const TokenizerPair pair = {text, sizeof text - 1, "b a", 3, true, 11, TOKENIZER_CUT_FIRST};
    TokenizerStream stream = {.keep_special = true};
    int32_t ids[MAX_IDS];
    TokenizerScratch *scratch;
    size_t n, back;
    char out[4000];
    Tokenizer *t;
    FtxError err;

    if (tokenizer_open(tables, bytes, &t, &err))
        fuzz_bug("tables that the compiler made are refused: %s", err.text);
    if (tokenizer_scratch_open(t, sizeof text, &scratch, &err))
        fuzz_bug("%s", err.text);
    if (!tokenizer_encode(t, scratch, text, sizeof text - 1, true, ids, MAX_IDS, &n, &err))
        tokenizer_decode(t, ids, n < MAX_IDS ? n : MAX_IDS, false, out, sizeof out, &back, &err);
    if (!tokenizer_encode_pair(t, scratch, &pair, ids, NULL, MAX_IDS, &n, &err) && n > pair.most)
        fuzz_bug("%zu ids, at most %zu were asked for", n, pair.most);
    for (size_t i = 0; i < n && i < MAX_IDS; i++)
        if (tokenizer_token_bytes(t) + 16 <= sizeof out &&
            tokenizer_stream(t, &stream, ids[i], i + 1 == n, out, tokenizer_token_bytes(t) + 16, &back, &err))
            fuzz_bug("%s", err.text);
    tokenizer_scratch_close(scratch);
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"x.json", "x.model"};

    for (size_t i = 0; i < LEN(names); i++) {
        Arena *keep = arena_open();
        Diag d = {0};
        void *tables;
        size_t bytes;

        if (tokenizer_compile_bytes(names[i], data, size, keep, &tables, &bytes, &d))
            use(tables, bytes);
        else if (!*d.text)
            fuzz_bug("refused without a reason");
        arena_close(keep);
    }
    return 0;
}

/* SentencePiece's files: two of a few pieces, and lengths that cannot be. */
static void spm_seeds(void)
{
    for (int model = 1; model <= 2; model++) {
        SpmFile f = {.n = 0};

        spm_piece(&f, "<unk>", 0, 2);
        spm_piece(&f, "<x>", 0, 4);
        spm_piece(&f, "a", -2, 1);
        spm_piece(&f, "b", -3, 1);
        spm_piece(&f, "ab", -1, 1);
        spm_piece(&f, "<0xC3>", 0, 6);
        spm_trainer(&f, model, true);
        spm_normaliser(&f, true, model == 1);
        fuzz_seed(model == 1 ? "spm-unigram" : "spm-bpe", f.at, f.n);
        fuzz_seed(model == 1 ? "spm-unigram-cut" : "spm-bpe-cut", f.at, f.n - 3);
    }
    FUZZ_SEED("spm-length", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    FUZZ_SEED("spm-number", "\x0a\x03\x0a\x01"
                            "a\x12\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    FUZZ_SEED("spm-map", "\x0a\x03\x0a\x01"
                         "a\x1a\x0b\x12\x09\x04\0\0\0\0\x01\0\0\0");
}

static size_t put_text(char *to, const char *s)
{
    memcpy(to, s, strlen(s));
    return strlen(s);
}

/* Those that the tests of this room read. */
static void small_seeds(void)
{
    static const char *const names[] = {"wordpiece", "unigram", "characters", "unicode"};

    for (size_t i = 0; i < LEN(names); i++) {
        char path[100];
        FileMap map;

        snprintf(path, sizeof path, SMALL "%s.json", names[i]);
        if (file_map(path, &map, NULL))
            fuzz_bug("%s cannot be read", path);
        fuzz_seed(names[i], map.at, map.bytes);
        file_unmap(&map);
    }
}

void fuzz_seeds(void)
{
    static char deep[60000];
    size_t n = 0;

    memset(deep, '[', sizeof deep);
    fuzz_seed("deep-lists", deep, sizeof deep);
    while (n < 40000)
        n += put_text(deep + n, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    fuzz_seed("deep-sequence", deep, n);
    n = put_text(deep, "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"");
    memset(deep + n, '(', 20000);
    n += 20000;
    n += put_text(deep + n, "\"}}}");
    fuzz_seed("deep-pattern", deep, n);
    fuzz_seed("empty", "", 0);
    n = 0;
    while (n < 40000)
        n += put_text(deep + n, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    fuzz_seed("deep-normalizer", deep, n);
    spm_seeds();
    small_seeds();
}
