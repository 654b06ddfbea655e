/* fuzz_ranks.c - any bytes as a tekken.json; or as lines of a tiktoken file, behind those of all single bytes. What the
 * compiler takes the runtime opens, and it encodes and decodes. */
#include "tables.h"

#include "compiler/tokenizer/parts.h"

enum { MAX_FILE = 1 << 16 };

static const char arguments[] = "{\"pat_str\": \" ?\\\\p{L}+|\\\\s+$|[^\\\\s]\", \"special_tokens\": {\"<x>\": 1000}}";

/* The path of a file that is not there; what belongs beside it is. */
static const char *tiktoken_path(void)
{
    static char path[100];
    char beside[120];
    FILE *f;

    if (*path)
        return path;
    snprintf(path, sizeof path, "/tmp/ftx-fuzz-%d.tiktoken", (int)getpid());
    snprintf(beside, sizeof beside, "%s.json", path);
    f = fopen(beside, "w");
    if (!f || fputs(arguments, f) < 0 || fclose(f))
        fuzz_bug("%s cannot be written", beside);
    return path;
}

static void remove_arguments(void)
{
    char beside[120];

    snprintf(beside, sizeof beside, "%s.json", tiktoken_path());
    unlink(beside);
}

static size_t put_base64(char *to, unsigned char byte)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    return (size_t)sprintf(to, "%c%c== %d\n", digits[byte >> 2], digits[(byte & 3) << 4], byte);
}

/* An id of seven digits makes tables of as many tokens: seconds under a sanitizer, and nothing new. */
static bool has_large_id(const uint8_t *data, size_t size)
{
    size_t digits = 0;

    for (size_t i = 0; i < size && digits < 7; i++)
        digits = data[i] >= '0' && data[i] <= '9' ? digits + 1 : 0;
    return digits == 7;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char file[MAX_FILE];
    static bool begun;
    size_t n = 0;

    if (!begun)
        atexit(remove_arguments);
    begun = true;
    if (has_large_id(data, size))
        return 0;
    if (size && *data == '{') {
        tables_attempt("tekken.json", data, size);
        return 0;
    }
    for (int i = 0; i < 256; i++)
        n += put_base64(file + n, (unsigned char)i);
    if (size > sizeof file - n)
        size = sizeof file - n;
    if (size)
        memcpy(file + n, data, size);
    tables_attempt(tiktoken_path(), (const uint8_t *)file, n + size);
    return 0;
}

/* The tekken.json of the tests; tokens of two bytes, of an id that is taken, of a large id, and no tokens. */
void fuzz_seeds(void)
{
    json_t *root = json_load_file("tests/tokenizer/ranks.json", JSON_ALLOW_NUL, NULL), *one;
    size_t i;

    json_array_foreach(json_object_get(root, "tokenizers"), i, one)
    {
        char name[40], *file = json_dumps(json_object_get(one, "tokenizer"), JSON_COMPACT);

        snprintf(name, sizeof name, "tekken-%zu", i);
        if (file)
            fuzz_seed(name, file, strlen(file));
        free(file);
    }
    json_decref(root);
    FUZZ_SEED("merges", "YWI= 256\nYmM= 257\nYWJj 258\nIGE= 300\n");
    FUZZ_SEED("ids", "YWI= 255\n");
    FUZZ_SEED("id-99999", "YWI= 99999\n");
    FUZZ_SEED("special", "YWI= 1000\n");
    FUZZ_SEED("line", "YWI=\n\r\n256\n 256\n");
    FUZZ_SEED("empty", "");
    FUZZ_SEED("zero", "YW\0I= 256");
}
