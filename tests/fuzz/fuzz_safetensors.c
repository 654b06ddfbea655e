/* fuzz_safetensors.c - any bytes as a checkpoint, or choices: a header that is valid but for what they change. Every
 * tensor that is accepted is read. What the choices wrote is accepted exactly if it is valid. */
#include "choices.h"

#include <inttypes.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/weights/tensors.h"
#include "runtime/base/hash.h"

static volatile uint64_t sum; /* keeps the reads */

static bool attempt(const void *data, size_t size)
{
    const FileMap map = {data, size};
    Arena *keep = arena_open();
    TensorList list = {0};
    Diag d = {0};
    const bool ok = safetensors_read("fuzz", &map, keep, &list, &d);

    for (size_t i = 0; ok && i < list.n; i++)
        sum += hash64(list.at[i].at, list.at[i].bytes);
    if (!ok && !*d.text)
        fuzz_bug("refused without a reason");
    arena_close(keep);
    return ok;
}

/* --- a header from choices ------------------------------------------------------------------------ */

enum { DATA_BYTES = 1 << 16, HEADER_BYTES = 1 << 14 };

typedef struct File {
    unsigned char at[8 + HEADER_BYTES + DATA_BYTES];
    size_t n;
    uint64_t data;     /* bytes of the tensors so far */
    bool valid, moved; /* moved: one tensor at most, as two could change places */
} File;

__attribute__((format(printf, 2, 3))) static void put(File *f, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    f->n += (size_t)vsnprintf((char *)f->at + f->n, 8 + HEADER_BYTES - f->n, format, ap);
    va_end(ap);
}

static bool asks_for(const uint64_t *dim, uint32_t rank, unsigned bits, uint64_t bytes)
{
    uint64_t elements = 1;

    for (uint32_t i = 0; i < rank; i++)
        if (__builtin_mul_overflow(elements, dim[i], &elements) || elements > UINT64_MAX / 64)
            return false;
    return (elements * bits + 7) / 8 == bytes;
}

/* Type and shape are chosen, the offsets follow from them. Then a choice may change one of these numbers, or move the
 * tensor. */
static void put_tensor(File *f, Choices *c, uint32_t number)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"F32", 32}, {"BF16", 16}, {"F16", 16}, {"F64", 64}, {"U8", 8}, {"F4", 4}, {"F8_E4M3", 8}, {"F7", 0}};
    const uint32_t type = choose(c, LEN(types)), rank = choose(c, TENSOR_MAX_RANK + 2);
    uint64_t dim[TENSOR_MAX_RANK + 1], elements = 1;

    for (uint32_t i = 0; i < rank; i++)
        elements *= dim[i] = choose(c, elements > 64 ? 2 : 6);

    const uint64_t begin = f->data, end = begin + (elements * types[type].bits + 7) / 8;
    uint64_t offsets[] = {begin, end};
    const uint32_t which = choose(c, 2 * (rank + 3)); /* in half of the cases none */
    uint64_t *lie = which < rank ? &dim[which] : which < rank + 2 ? &offsets[which - rank] : NULL;

    if (lie)
        *lie = choose_value(c, *lie) & INT64_MAX;
    if (which == rank + 2 && end > begin && !f->moved) {
        f->moved = true;
        offsets[0] = choose_value(c, begin) & INT64_MAX >> 1;
        offsets[1] = offsets[0] + end - begin;
    }
    f->valid &= types[type].bits > 0 && rank <= TENSOR_MAX_RANK && offsets[0] == begin && offsets[1] == end &&
                asks_for(dim, rank, types[type].bits, end - begin);
    put(f, "%s\"t%" PRIu32 "\":{\"dtype\":\"%s\",\"shape\":[", number ? "," : "", number, types[type].name);
    for (uint32_t i = 0; i < rank; i++)
        put(f, "%s%" PRIu64, i ? "," : "", dim[i]);
    put(f, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offsets[0], offsets[1]);
    f->data = end;
}

static void from_choices(Choices *c)
{
    static File f;
    const uint32_t tensors = choose(c, 8);

    f = (File){.n = 8, .valid = true};
    put(&f, "{");
    for (uint32_t i = 0; i < tensors && f.data < DATA_BYTES / 2; i++)
        put_tensor(&f, c, i);
    put(&f, "}");
    const uint64_t header = f.n - 8;
    const uint64_t said = choose_value(c, header), more = choose(c, 4) == 1 ? 1 + choose(c, 9) : 0;

    f.valid &= said == header && more == 0;
    memcpy(f.at, &said, sizeof said);
    f.n += f.data + more;

    void *copy = malloc(f.n); /* of its own size, so that a read past its end is seen */

    if (!copy)
        return;
    memcpy(copy, f.at, f.n);
    if (attempt(copy, f.n) != f.valid)
        fuzz_bug("%s: %.*s", f.valid ? "refused" : "accepted", (int)header, (char *)f.at + 8);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Choices c;

    if (choices_begin(&c, data, size))
        from_choices(&c);
    else
        attempt(data, size);
    return 0;
}

/* --- seeds ---------------------------------------------------------------------------------------- */

/* A length of n bytes is said, the header follows, then 32 bytes of data. */
static void file_seed(const char *name, uint64_t n, const char *header)
{
    static char file[80000];
    const size_t bytes = strlen(header);

    memcpy(file, &n, sizeof n);
    memcpy(file + 8, header, bytes);
    memset(file + 8 + bytes, 0x3f, 32);
    fuzz_seed(name, file, 8 + bytes + 32);
}

static void header_seed(const char *name, const char *header)
{
    file_seed(name, strlen(header), header);
}

/* Two matrices; each number of one of them in turn at each value near its own, and at each border. */
static void choices_seed(uint8_t type, uint8_t lies, uint8_t which, uint8_t value)
{
    uint8_t seed[20] = {CHOICES, 2}, n = 2;
    char name[60];

    for (uint8_t matrix = 0; matrix < 2; matrix++) {
        const uint8_t shape[] = {type, 2, 2 + matrix, 3};

        memcpy(seed + n, shape, sizeof shape);
        n += sizeof shape;
        seed[n++] = matrix == lies ? which : 9; /* 9: nothing is changed */
        if (matrix == lies)
            seed[n++] = value < 7 ? value : 7;
        if (matrix == lies && value >= 5)
            seed[n++] = value < 7 ? 1 : value - 7;
    }
    snprintf(name, sizeof name, "choices-%u-%u-%u-%u", type, lies, which, value);
    fuzz_seed(name, seed, n);
}

static void choices_seeds(void)
{
    for (uint8_t type = 0; type < 6; type += 5) /* F32, F4 */
        for (uint8_t lies = 0; lies < 2; lies++)
            for (uint8_t which = 0; which < 5; which++)
                for (uint8_t value = 1; value < 7 + CHOICES_BORDERS; value++)
                    choices_seed(type, lies, which, value);
}

void fuzz_seeds(void)
{
    static const char right[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                                "\"b\":{\"dtype\":\"BF16\",\"shape\":[8],\"data_offsets\":[16,32]}}";
    static char deep[60000];

    header_seed("right", right);
    file_seed("length-max", UINT64_MAX, right);
    file_seed("length-2-63", UINT64_C(1) << 63, right);
    file_seed("length-minus-8", UINT64_MAX - 7, right);
    file_seed("length-0", 0, right);
    FUZZ_SEED("short", "\x02\0\0");
    header_seed("overlap", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                           "\"b\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[8,32]}}");
    header_seed("hole", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}");
    header_seed("past-the-end", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[24,40]}}");
    header_seed("offset-2-63",
                "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9223372036854775806,9223372036854775807]}}");
    header_seed("offset-over", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,9223372036854775808]}}");
    header_seed("offset-minus", "{\"a\":{\"dtype\":\"U8\",\"shape\":[33],\"data_offsets\":[-1,32]}}");
    header_seed("shape-over", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}");
    header_seed("shape-2-63", "{\"a\":{\"dtype\":\"F64\",\"shape\":[9223372036854775807,2],\"data_offsets\":[0,32]}}");
    header_seed("shape-0", "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]}}");
    header_seed("bits", "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}");
    header_seed("rank", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}");
    header_seed("twice", "{\"a\":{},\"a\":{}}");
    header_seed("metadata", "{\"__metadata__\":{\"a\":\"b\"}}");
    header_seed("invalid-utf8", "{\"\xff\xc0\x80\":{\"dtype\":\"\xed\xa0\x80\"}}");
    header_seed("list", "[1]");
    memset(deep, '[', sizeof deep - 1);
    header_seed("deep", deep);
    FUZZ_SEED("choices-empty", "\x01");
    FUZZ_SEED("choices-more", "\x01\x01\x04\x01\x04\x07\x00\x01\x03");
    choices_seeds();
}
