/* fuzz_tokenizer_json.c - any text as a tokenizer.json. What the compiler takes the runtime opens,
 * and it encodes and decodes. */
#include "fuzz.h"

#include <string.h>

#include "compiler/tokenizer/tokenizer.h"
#include "runtime/tokenizer.h"

enum { MAX_IDS = 400 };

static void use(const void *tables, size_t bytes)
{
    static const char text[] = "abc  Once <x>\n\n a\xff\xc3\xa9\xe2\x82\xac 12";
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
    tokenizer_scratch_close(scratch);
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *keep = arena_open();
    Diag d = {0};
    void *tables;
    size_t bytes;

    if (tokenizer_compile(fuzz_file(data, size), keep, &tables, &bytes, &d))
        use(tables, bytes);
    else if (!*d.text)
        fuzz_bug("refused without a reason");
    arena_close(keep);
    return 0;
}

static size_t put_text(char *to, const char *s)
{
    memcpy(to, s, strlen(s));
    return strlen(s);
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
}
