/* adapters.h - the adapters of golden.json as folders: their numbers are drawn as make.py draws them. */
#ifndef FTX_TEST_ADAPTERS_H
#define FTX_TEST_ADAPTERS_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/dtype.h"

/* Number i of a tensor: from -1 to 1, of 24 bits. splitmix64 (Steele et al. 2014) at place i, from a hash of the name. */
static inline float adapter_number(const char *name, uint64_t i)
{
    uint64_t key = UINT64_C(0xcbf29ce484222325), x;

    for (; *name; name++)
        key = (key ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + key;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return ((float)(x >> 40) - 8388608.0f) * 0x1p-23f;
}

typedef float AdapterElement(const char *name, size_t rank, uint64_t i);

static inline float adapter_element(const char *name, size_t rank, uint64_t i)
{
    const float x = adapter_number(name, i);
    (void)rank;

    if (strstr(name, "magnitude"))
        return 1.0f + x * 0.5f;
    if (strstr(name, "norm") && strstr(name, "weight"))
        return 1.0f + x * 0.25f;
    return x * 0.0625f;
}

static inline void adapter_put(FILE *f, const char *type, float x)
{
    const uint16_t half = type[0] == 'B' ? bf16_from_float(x) : fp16_from_float(x);

    if (strcmp(type, "F32") == 0)
        fwrite(&x, sizeof x, 1, f);
    else
        fwrite(&half, sizeof half, 1, f);
}

/* Writes a safetensors file; tensors: the shape of each name; type: BF16, F16 or F32. */
static inline void adapter_write_tensors(json_t *tensors, const char *type, AdapterElement *element, const char *path)
{
    json_t *header = json_object(), *shape, *size;
    const char *name;
    json_int_t at = 0;
    uint64_t n;
    char *text;
    FILE *f;

    json_object_foreach(tensors, name, shape)
    {
        const json_int_t begin = at;
        json_int_t elements = 1;
        size_t i;

        json_array_foreach(shape, i, size) elements *= json_integer_value(size);
        at += elements * (strcmp(type, "F32") == 0 ? 4 : 2);
        json_object_set_new(header, name,
                            json_pack("{ss,sO,s[II]}", "dtype", type, "shape", shape, "data_offsets", begin, at));
    }
    text = json_dumps(header, JSON_COMPACT);
    remove(path); /* an earlier one may be mapped */
    f = fopen(path, "wb");
    if (!text || !f)
        abort();
    n = strlen(text);
    fwrite(&n, sizeof n, 1, f);
    fwrite(text, 1, n, f);
    json_object_foreach(tensors, name, shape)
    {
        const json_t *place = json_object_get(json_object_get(header, name), "data_offsets");
        const uint64_t bytes =
            (uint64_t)(json_integer_value(json_array_get(place, 1)) - json_integer_value(json_array_get(place, 0)));

        for (uint64_t i = 0; i < bytes / (strcmp(type, "F32") == 0 ? 4 : 2); i++)
            adapter_put(f, type, element(name, json_array_size(shape), i));
    }
    if (fclose(f))
        abort();
    free(text);
    json_decref(header);
}

/* Writes adapter_config.json and adapter_model.safetensors of an adapter of golden.json into a folder that is there. */
static inline void adapter_write(const json_t *adapter, const char *folder)
{
    char path[700];

    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    if (json_dump_file(json_object_get(adapter, "config"), path, 0))
        abort();
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    adapter_write_tensors(json_object_get(adapter, "tensors"), json_string_value(json_object_get(adapter, "dtype")),
                          adapter_element, path);
}

#endif
