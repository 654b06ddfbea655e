/* fuzz_tokenizer.c - any bytes as tokenizer tables, then as a text for the fable's.
 * `FUZZ_SEED=FILE fuzz_tokenizer -runs=0` writes small tables that are right. */
#include "tests/tokenizer/tools.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Fixture fable; /* for the whole run */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *path = getenv("FUZZ_SEED");
    Fixture f;
    FILE *out;

    (void)argc, (void)argv;
    fable = begin("specs/fable/tokenizer.json", 1 << 16);
    if (!path)
        return 0;
    f = begin_recipe(&(Recipe){.merges = {"a b", "ab c", "Ġ a"}, .model = "\"ignore_merges\":true,",
                               .added = "{\"id\":300,\"content\":\"<x>\",\"lstrip\":true}"}, 16);
    out = fopen(path, "wb");
    if (out) {
        fwrite(f.tables, 1, f.bytes, out);
        fclose(out);
    }
    end(&f);
    return 0;
}

static void use(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t n)
{
    int32_t ids[1000];
    char back[16000];
    size_t count, bytes;

    if (tokenizer_encode(t, s, text, n, true, ids, 1000, &count, NULL))
        return;
    tokenizer_decode(t, ids, count < 1000 ? count : 1000, false, back, sizeof back, &bytes, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "abc  <x> a\xff\xc3\xa9 12";
    TokenizerScratch *s;
    Tokenizer *t;
    void *copy = NULL;

    if (posix_memalign(&copy, 8, size ? size : 1))
        return 0;
    memcpy(copy, data, size);
    if (!tokenizer_open(copy, size, &t, NULL)) {
        if (!tokenizer_scratch_open(t, 64, &s, NULL)) {
            use(t, s, text, sizeof text);
            tokenizer_scratch_close(s);
        }
        tokenizer_close(t);
    }
    if (size <= 1 << 16)
        use(fable.t, fable.s, copy, size);
    free(copy);
    return 0;
}
