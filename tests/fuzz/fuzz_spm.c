/* fuzz_spm.c - any bytes as a SentencePiece model. What the compiler takes the runtime opens, and it
 * encodes and decodes. */
#include "tables.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tables_attempt("x.model", data, size);
    return 0;
}

/* Pieces of each type, a trainer and a normaliser; model: 1 Unigram, 2 BPE. */
static SpmFile small_file(int model)
{
    SpmFile f = {.n = 0};

    spm_piece(&f, "<unk>", 0, 2);
    spm_piece(&f, "<x>", 0, 4);
    spm_piece(&f, "a", -2, 1);
    spm_piece(&f, "b", -3, 1);
    spm_piece(&f, "ab", -1, 1);
    spm_piece(&f, "\xe2\x96\x81", -2, 1);
    spm_piece(&f, "<0xC3>", 0, 6);
    spm_trainer(&f, model, true);
    spm_normaliser(&f, true, model == 1);
    return f;
}

/* A normaliser with a map of characters: its field 2. */
static void map_seed(const char *name, const void *map, size_t n)
{
    SpmFile f = small_file(1), inside = {.n = 0};

    spm_field(&inside, 2, map, n);
    spm_field(&f, 3, inside.at, inside.n);
    fuzz_seed(name, f.at, f.n);
}

/* Two that are right, and lengths and numbers that cannot be. */
void fuzz_seeds(void)
{
    static const char *const bytes[] = {"<0x-3>", "<0x 3>", "<0x+3>", "<0x3g>", "<0xc3>"};

    for (int model = 1; model <= 2; model++) {
        SpmFile f = small_file(model);

        fuzz_seed(model == 1 ? "unigram" : "bpe", f.at, f.n);
        fuzz_seed(model == 1 ? "unigram-cut" : "bpe-cut", f.at, f.n - 3);
        spm_piece(&f, "a", -2, 1);
        fuzz_seed(model == 1 ? "unigram-twice" : "bpe-twice", f.at, f.n);
        spm_piece(&f, "\xff\xc0\x80", -2, 1);
        fuzz_seed(model == 1 ? "unigram-invalid-utf8" : "bpe-invalid-utf8", f.at, f.n);
        spm_piece(&f, "", -2, 1);
        fuzz_seed(model == 1 ? "unigram-empty" : "bpe-empty", f.at, f.n);
    }
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) { /* byte pieces that name no byte */
        SpmFile f = small_file(1);

        spm_piece(&f, bytes[i], 0, 6);
        fuzz_seed(bytes[i], f.at, f.n);
    }
    fuzz_seed("empty", "", 0);
    FUZZ_SEED("length", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    FUZZ_SEED("length-2-63", "\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01");
    FUZZ_SEED("number-long", "\x0a\x03\x0a\x01"
                             "a\x12\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    FUZZ_SEED("groups", "\x0b\x0b\x0b\x0b\x0c\x0c");
    map_seed("map", "\x09\x04\0\0\0\0\x01\0\0\0", 10);
    map_seed("map-of-2-32", "\xff\xff\xff\xff", 4);
    map_seed("map-circle", "\x08\0\0\0\x01\x04\0\0\x01\x04\0\0a\0", 14);
}
