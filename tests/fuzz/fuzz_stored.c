/* fuzz_stored.c - any bytes as a quantised checkpoint (quantization_config, a byte of value 0, model.safetensors), or choices:
 * one of each method that is right but for what they change. Of what is accepted every row is read, as codes and as numbers;
 * what the choices wrote without a change must be accepted. */
#include "choices.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/weights/stored.h"
#include "runtime/base/hash.h"
#include "tests/temp.h"

static volatile uint64_t sum; /* keeps the reads */

enum { MAX_ELEMENTS = 1 << 18 };

static void read_codes(const Tensor *t)
{
    const CodedForm *f = &t->coded->form;
    const int64_t columns = coded_columns(t), rows = columns ? (int64_t)t->elements / columns : 0;
    void *codes = malloc(coded_row_bytes(f, columns));

    if (!packed_group((uint64_t)f->group, (uint64_t)columns))
        fuzz_bug("%s has groups of %d", t->name, (int)f->group);
    for (int64_t r = 0; r < rows; r++) {
        const CodedRow row = coded_row(f, columns, codes, 0);

        coded_read(t, r, f, &row);
        for (int64_t k = 0; k < columns; k++)
            if (f->type == DT_INT4 && row.codes[k] > 15)
                fuzz_bug("%s: a code of 4 bits is %d", t->name, row.codes[k]);
        sum += hash64(codes, coded_row_bytes(f, columns));
    }
    free(codes);
}

static void read_tensor(const Tensor *t)
{
    const int64_t columns = t->dim[t->rank - 1];
    const int64_t rows = columns ? (int64_t)t->elements / columns : 0;
    float *values = malloc((size_t)columns * sizeof *values + 1);

    for (int64_t r = 0; r < rows; r++) {
        coded_values(t, r, values);
        sum += hash64(values, (size_t)columns * sizeof *values);
    }
    free(values);
    if (t->coded->form.type)
        read_codes(t);
}

static bool attempt(const void *config, size_t config_bytes, const void *tensors, size_t tensor_bytes)
{
    Arena *keep = arena_open();
    Diag d = {0};
    Checkpoint *c;
    json_t *json = json_loadb(config, config_bytes, 0, NULL);
    FILE *f = fopen(temp_path("stored.safetensors"), "wb");
    bool ok;

    if (!f || fwrite(tensors, 1, tensor_bytes, f) != tensor_bytes || fclose(f))
        fuzz_bug("cannot write");
    ok = json && checkpoint_open(temp_path("stored.safetensors"), keep, &c, &d);
    if (ok) {
        ok = stored_apply(c, json, "config.json", keep, &d);
        for (size_t i = 0; ok && i < c->tensors.n; i++)
            if (c->tensors.at[i].coded && c->tensors.at[i].elements < MAX_ELEMENTS)
                read_tensor(&c->tensors.at[i]);
        checkpoint_close(c);
    }
    if (json && !ok && !*d.text)
        fuzz_bug("refused without a reason");
    json_decref(json);
    arena_close(keep);
    return ok;
}

/* --- a checkpoint from choices ------------------------------------------------------------------------------ */

enum { TEXT_BYTES = 4000, DATA_BYTES = 16000, MAX_TENSORS = 5 };

static const struct {
    const char *config; /* but for its last brace */
    struct {
        const char *name, *type;
        uint64_t dim[4];
    } tensors[MAX_TENSORS];
} methods[] = {
    {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32",
     {{"x.qweight", "I32", {8, 16}}, {"x.qzeros", "I32", {2, 2}}, {"x.scales", "F16", {2, 16}}}},
    {"{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"checkpoint_format\":\"gptq_v2\"",
     {{"x.qweight", "I32", {8, 16}}, {"x.qzeros", "I32", {1, 4}}, {"x.scales", "BF16", {1, 16}}}},
    {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemm\"",
     {{"x.qweight", "I32", {64, 2}}, {"x.qzeros", "I32", {2, 2}}, {"x.scales", "F16", {2, 16}}}},
    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\"",
     {{"x.weight", "I8", {16, 64}}, {"x.weight_scale", "BF16", {16, 1}}, {"x.weight_zero_point", "I8", {16, 1}}}},
    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\"",
     {{"x.weight", "F8_E4M3", {16, 64}}, {"x.weight_scale", "F32", {16, 1}}, {"x.input_scale", "F32", {1}}}},
    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"",
     {{"x.weight_packed", "I32", {16, 8}},
      {"x.weight_scale", "F16", {16, 2}},
      {"x.weight_zero_point", "I32", {2, 2}},
      {"x.weight_shape", "I64", {2}}}},
    {"{\"quant_method\":\"fp8\"", {{"x.weight", "F8_E4M3", {20, 30}}, {"x.weight_scale", "F32", {1}}}},
    {"{\"quant_method\":\"fp8\",\"weight_block_size\":[16,16]",
     {{"x.weight", "F8_E4M3", {20, 30}}, {"x.weight_scale_inv", "F32", {2, 2}}}},
    {"{\"quant_method\":\"mxfp4\"", {{"x_blocks", "U8", {2, 3, 2, 16}}, {"x_scales", "U8", {2, 3, 2}}}},
};

enum { METHODS = sizeof methods / sizeof *methods };

typedef struct Made {
    char header[TEXT_BYTES];
    size_t n, data;
    bool changed;
} Made;

__attribute__((format(printf, 2, 3))) static void put(Made *m, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    m->n += (size_t)vsnprintf(m->header + m->n, TEXT_BYTES - m->n, format, ap);
    va_end(ap);
}

static uint64_t type_bytes(const char *type)
{
    return strcmp(type, "I64") == 0 ? 8 : strstr(type, "32") ? 4 : strstr(type, "16") ? 2 : 1;
}

/* A tensor; a choice may leave it out, or change a size, its type or its name. */
static void put_tensor(Made *m, Choices *c, const char *name, const char *type, const uint64_t dim[4])
{
    static const char *const types[] = {"F32", "BF16", "F16", "I32", "I8", "U8", "F8_E4M3", "F8_E5M2", "I64"};
    const uint32_t change = choose(c, 10), at = change == 1 || change == 2 ? choose(c, 4) : 0;
    uint64_t bytes = 1, size[4];

    memcpy(size, dim, sizeof size);
    if (change == 1)
        size[at] = choose(c, 40);
    if (change == 2)
        size[at] *= 2;
    if (change == 3)
        type = types[choose(c, sizeof types / sizeof *types)];
    m->changed |= change && change < 6;
    if (change == 4)
        return;
    put(m, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[", m->n > 1 ? "," : "", name, change == 5 ? "_x" : "", type);
    for (int i = 0; i < 4 && size[i]; i++) {
        put(m, "%s%" PRIu64, i ? "," : "", size[i]);
        bytes *= size[i];
    }
    bytes *= type_bytes(type);
    put(m, "],\"data_offsets\":[%zu,%zu]}", m->data, m->data + (size_t)bytes);
    m->data += bytes;
}

static void from_choices(Choices *c)
{
    static const char *const extras[] = {
        "",
        ",\"ignore\":[\"y\"]",
        ",\"new\":{}",
        ",\"group_size\":16",
        ",\"group_size\":0",
        ",\"bits\":8",
        ",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":8,\"group_size\":[]}}}",
        ",\"weight_block_size\":[7,9]",
        ",\"config_groups\":{\"a\":{\"weights\":{\"strategy\":\"block\",\"block_structure\":[5,1]}}}",
        ",\"modules_to_not_convert\":[\"x\"]",
        ",\"dynamic\":{\"a\":{}}",
        ",\"format\":7",
    };
    static Made m;
    static char config[TEXT_BYTES], file[8 + TEXT_BYTES + DATA_BYTES];
    const uint32_t method = choose(c, METHODS), extra = choose(c, sizeof extras / sizeof *extras);
    const uint32_t value = choose(c, 256);

    m = (Made){.changed = extra > 2 || value == 255};
    snprintf(config, sizeof config, "%s%s}", methods[method].config, extras[extra]);
    put(&m, "{");
    for (int i = 0; i < MAX_TENSORS && methods[method].tensors[i].name; i++)
        put_tensor(&m, c, methods[method].tensors[i].name, methods[method].tensors[i].type,
                   methods[method].tensors[i].dim);
    put(&m, "}");
    if (m.n >= TEXT_BYTES || m.data > DATA_BYTES)
        return;

    const uint64_t n = m.n, shape[2] = {16, 64}; /* of packed codes: the last tensor of its method */

    memcpy(file, &n, sizeof n);
    memcpy(file + 8, m.header, m.n);
    memset(file + 8 + m.n, (int)value, m.data);
    if (strstr(m.header, "weight_shape") && m.data >= sizeof shape && !m.changed)
        memcpy(file + 8 + m.n + m.data - sizeof shape, shape, sizeof shape);
    if (!attempt(config, strlen(config), file, 8 + m.n + m.data) && !m.changed)
        fuzz_bug("refused: %s %s", config, m.header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    Choices c;

    if (choices_begin(&c, data, size))
        from_choices(&c);
    else if (zero)
        attempt(data, (size_t)(zero - data), zero + 1, size - (size_t)(zero - data) - 1);
    return 0;
}

/* --- seeds -------------------------------------------------------------------------------------------------- */

void fuzz_seeds(void)
{
    char name[60];

    for (uint8_t method = 0; method < METHODS; method++)
        for (uint8_t extra = 0; extra < 12; extra++) {
            const uint8_t seed[] = {CHOICES, method, extra, (uint8_t)(extra * 21)};

            snprintf(name, sizeof name, "choices-%u-%u", method, extra);
            fuzz_seed(name, seed, sizeof seed);
        }
    for (uint8_t method = 0; method < METHODS; method++) /* each tensor changed in each way */
        for (uint8_t tensor = 0; tensor < MAX_TENSORS; tensor++)
            for (uint8_t change = 1; change < 6; change++)
                for (uint8_t at = 0; at < 3; at++) {
                    uint8_t seed[16] = {CHOICES, method, 0, 0x3c};

                    seed[4 + tensor] = change;
                    seed[5 + tensor] = change == 3 ? (uint8_t)(at * 3) : at;
                    seed[6 + tensor] = (uint8_t)(at * 7);
                    snprintf(name, sizeof name, "changed-%u-%u-%u-%u", method, tensor, change, at);
                    fuzz_seed(name, seed, (size_t)7 + tensor);
                }
    FUZZ_SEED("empty", "\0");
    FUZZ_SEED("list", "[]\0");
    FUZZ_SEED("no-tensors", "{\"quant_method\":\"gptq\"}\0\x02\0\0\0\0\0\0\0{}");
    FUZZ_SEED("rows-0", "{\"quant_method\":\"gptq\"}\0\x4c\0\0\0\0\0\0\0{\"x.qweight\":{\"dtype\":\"I32\","
                        "\"shape\":[1099511627776,0],\"data_offsets\":[0,0]}}");
}
