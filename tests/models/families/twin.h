/* twin.h - reads a file of this folder, which make.py packed, and writes its checkout: the numbers are drawn as make.py draws
 * them. */
#ifndef FTX_TEST_TWIN_H
#define FTX_TEST_TWIN_H

#include "tests/models/lora/adapters.h"

/* Names and shapes out of a tree of the parts of names: {"layers":{"0,1":{"q,k":[8,8]}}} has layers.0.q, layers.0.k,
 * layers.1.q and layers.1.k. `prefix` is empty or ends with a dot. */
static inline void twin_unpack_tensors(json_t *tree, const char *prefix, json_t *tensors)
{
    const char *parts;
    json_t *at;

    json_object_foreach(tree, parts, at)
    {
        for (const char *part = parts, *comma; part; part = comma ? comma + 1 : NULL) {
            char name[300];

            comma = strchr(part, ',');
            if (snprintf(name, sizeof name, "%s%.*s%s", prefix, (int)(comma ? (size_t)(comma - part) : strlen(part)),
                         part, json_is_object(at) ? "." : "") >= (int)sizeof name)
                abort();
            if (json_is_object(at))
                twin_unpack_tensors(at, name, tensors);
            else
                json_object_set(tensors, name, at);
        }
    }
}

/* {"largest":L,"parts":[...]} -> an array of numbers: part * L / 100000. */
static inline json_t *twin_unpack_numbers(const json_t *packed)
{
    const double unit = json_number_value(json_object_get(packed, "largest")) / 1e5;
    json_t *numbers = json_array(), *part;
    size_t i;

    json_array_foreach(json_object_get(packed, "parts"), i, part)
        json_array_append_new(numbers, json_real(json_number_value(part) * unit));
    return numbers;
}

/* The file with flat tensors and plain numbers. NULL: it cannot be read. The caller frees it. */
static inline json_t *twin_read(const char *path)
{
    static const char *const lists[] = {"prompts", "texts"}, *const packed[] = {"logits", "hidden", "pooled"};
    json_t *twin = json_load_file(path, 0, NULL), *tensors = json_object(), *input;
    size_t i;

    twin_unpack_tensors(json_object_get(twin, "tensors"), "", tensors);
    json_object_set_new(twin, "tensors", tensors);
    for (size_t l = 0; l < 2; l++)
        json_array_foreach(json_object_get(twin, lists[l]), i, input) for (size_t k = 0; k < 3; k++)
        {
            if (json_object_get(input, packed[k]))
                json_object_set_new(input, packed[k], twin_unpack_numbers(json_object_get(input, packed[k])));
        }
    return twin;
}

/* Gains lie around 1, biases of routers around -3: below 0, so that an expert that were masked with 0 would be chosen. */
static inline float twin_element(const char *name, size_t rank, uint64_t i)
{
    const size_t n = strlen(name);
    const float x = adapter_number(name, i) * 0.25f;

    if (strstr(name, ".e_score_correction_bias"))
        return x - 3.0f;
    return rank == 1 && n > 7 && strcmp(name + n - 7, ".weight") == 0 ? 1.0f + x : x;
}

/* modules.json, and of each module with settings or tensors a folder with these. */
static inline void twin_write_modules(const json_t *modules, const char *folder)
{
    json_t *list = json_array(), *module;
    char path[800];
    size_t i;

    json_array_foreach(modules, i, module)
    {
        const char *name = json_string_value(json_object_get(module, "path"));

        json_array_append_new(list, json_pack("{sO,sO}", "path", json_object_get(module, "path"), "type",
                                              json_object_get(module, "type")));
        snprintf(path, sizeof path, "%s/%s", folder, name);
        mkdir(path, 0777);
        snprintf(path, sizeof path, "%s/%s/config.json", folder, name);
        if (json_object_get(module, "config") && json_dump_file(json_object_get(module, "config"), path, 0))
            abort();
        snprintf(path, sizeof path, "%s/%s/model.safetensors", folder, name);
        if (json_object_get(module, "tensors"))
            adapter_write_tensors(json_object_get(module, "tensors"), "F32", twin_element, path);
    }
    snprintf(path, sizeof path, "%s/modules.json", folder);
    if (i && json_dump_file(list, path, 0))
        abort();
    json_decref(list);
}

/* Writes config.json, model.safetensors, perhaps generation_config.json and the files of sentence-transformers into the folder,
 * which is made if it is missing. */
static inline void twin_write(const json_t *golden, const char *folder)
{
    char path[700];

    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (json_dump_file(json_object_get(golden, "config"), path, 0))
        abort();
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    if (json_object_get(golden, "generation") && json_dump_file(json_object_get(golden, "generation"), path, 0))
        abort();
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    adapter_write_tensors(json_object_get(golden, "tensors"), "F32", twin_element, path);
    twin_write_modules(json_object_get(golden, "modules"), folder);
}

#endif
