/* fuzz_tokenizer_json.c - any bytes as a tokenizer.json. What the compiler takes the runtime opens, and it
 * encodes and decodes. */
#include "tables.h"

#include "runtime/base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tables_attempt("x.json", data, size);
    return 0;
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
    small_seeds();
}
