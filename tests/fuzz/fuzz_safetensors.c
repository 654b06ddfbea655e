/* fuzz_safetensors.c - any bytes as a checkpoint; every tensor that is accepted is read. */
#include <stdint.h>
#include <string.h>

#include "compiler/weights/tensors.h"
#include "runtime/base/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    arena_close(keep);
    return sum == 1 ? -1 : 0; /* keeps the reads; -1: not kept as a seed */
}
