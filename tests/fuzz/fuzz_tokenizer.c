/* fuzz_tokenizer.c - any bytes as tokenizer tables, then as a text for the fable's. */
#include "fuzz.h"

#include "runtime/tokenizer/format.h"
#include "tests/tokenizer/tools.h"

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
    static Fixture fable; /* for the whole run */
    TokenizerScratch *s;
    Tokenizer *t;
    void *copy = NULL;

    if (!fable.t)
        fable = begin("specs/fable/tokenizer.json", 1 << 16);
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

/* The tables of a tokenizer, and every part of them at a place or of a size that cannot be. */
static void seeds_of(const char *kind, const Fixture *f)
{
    static const uint64_t sizes[] = {0, 8, INT32_MAX, UINT64_C(1) << 63, UINT64_MAX - 7};
    TokHeader *h = f->tables;
    TokPart *part = (TokPart *)(h + 1);
    char name[80];

    snprintf(name, sizeof name, "%s-right", kind);
    fuzz_seed(name, f->tables, f->bytes);
    snprintf(name, sizeof name, "%s-cut", kind);
    fuzz_seed(name, f->tables, f->bytes / 2);
    for (uint32_t i = 0; i < h->parts; i++)
        for (size_t k = 0; k < LEN(sizes); k++) {
            const TokPart was = part[i];

            part[i].offset = sizes[k];
            snprintf(name, sizeof name, "%s-part-%u-offset-%zu", kind, i, k);
            fuzz_seed(name, f->tables, f->bytes);
            part[i] = was;
            part[i].bytes = sizes[k];
            snprintf(name, sizeof name, "%s-part-%u-bytes-%zu", kind, i, k);
            fuzz_seed(name, f->tables, f->bytes);
            part[i] = was;
        }
}

void fuzz_seeds(void)
{
    static const char *const small[] = {"wordpiece", "unigram", "characters", "unicode"};
    Fixture f = begin_recipe(&(Recipe){.merges = {"a b", "ab c", "Ġ a"},
                                       .model = "\"ignore_merges\":true,",
                                       .added = "{\"id\":300,\"content\":\"<x>\",\"lstrip\":true}"},
                             16);

    seeds_of("bytes", &f);
    end(&f);
    for (size_t i = 0; i < LEN(small); i++) {
        char path[100];

        snprintf(path, sizeof path, SMALL "%s.json", small[i]);
        f = begin(path, 16);
        seeds_of(small[i], &f);
        end(&f);
    }
    FUZZ_SEED("text", "Once upon a time \xff\xe2\x82 \xf0\x9f\x98\x80\n\n  <|end|>");
}
