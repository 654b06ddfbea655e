/* fuzz_safetensors.c - any bytes as a checkpoint; every tensor that is accepted is read. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "compiler/weights/tensors.h"
#include "runtime/base/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const FileMap map = {data, size};
    Arena *keep = arena_open();
    TensorList list = {0};
    Diag d = {0};
    uint64_t sum = 0;

    if (safetensors_read("fuzz", &map, keep, &list, &d))
        for (size_t i = 0; i < list.n; i++)
            sum += hash64(list.at[i].at, list.at[i].bytes);
    else if (!*d.text)
        fuzz_bug("refused without a reason");
    arena_close(keep);
    return sum == 1 ? -1 : 0; /* keeps the reads; -1: not kept as a seed */
}

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
}
