/* safetensors.c - reads and checks the header of a safetensors file.
 *
 *   u64 n | JSON of n bytes | data
 *   {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {}}
 *
 * Offsets count from the beginning of data. The format allows neither holes nor overlaps: sorted by their begin,
 * each tensor must begin where the one before it ends, and the last must end with the file. A file that was cut
 * fails this check, too. */
#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

static const uint64_t HEADER_MAX_BYTES = 100000000; /* the limit of the reference implementation */

static const struct {
    const char *name;
    uint32_t bits;
    DType type;
} stored_types[] = {
    {"F32", 32, DT_FP32}, {"F16", 16, DT_FP16},    {"BF16", 16, DT_BF16},   {"F64", 64, DT_NONE},
    {"I64", 64, DT_NONE}, {"I32", 32, DT_NONE},    {"I16", 16, DT_NONE},    {"I8", 8, DT_NONE},
    {"U64", 64, DT_NONE}, {"U32", 32, DT_NONE},    {"U16", 16, DT_NONE},    {"U8", 8, DT_NONE},
    {"BOOL", 8, DT_NONE}, {"F8_E4M3", 8, DT_NONE}, {"F8_E5M2", 8, DT_NONE}, {"F8_E8M0", 8, DT_NONE},
    {"C64", 64, DT_NONE}, {"F4", 4, DT_NONE},
};

/* Where a mistake is: a file, and in it a tensor. */
typedef struct At {
    Loc loc;
    const char *tensor;
} At;

static bool read_type(const json_t *o, At at, Tensor *t, uint32_t *bits, Diag *d)
{
    const char *s = json_string_value(json_object_get(o, "dtype"));

    if (!s)
        return diag_error(d, at.loc, "tensor \"%.200s\" has no \"dtype\"", at.tensor);
    for (size_t i = 0; i < LEN(stored_types); i++)
        if (strcmp(stored_types[i].name, s) == 0) {
            t->stored = stored_types[i].name;
            t->type = stored_types[i].type;
            *bits = stored_types[i].bits;
            return true;
        }
    return diag_error(d, at.loc, "tensor \"%.200s\" has the unknown type \"%.40s\"", at.tensor, s);
}

static bool read_shape(const json_t *o, At at, Tensor *t, Diag *d)
{
    const json_t *shape = json_object_get(o, "shape");

    if (!json_is_array(shape))
        return diag_error(d, at.loc, "tensor \"%.200s\" has no \"shape\"", at.tensor);
    if (json_array_size(shape) > TENSOR_MAX_RANK)
        return diag_error(d, at.loc, "tensor \"%.200s\" has %zu dimensions, at most %d are read", at.tensor,
                          json_array_size(shape), TENSOR_MAX_RANK);
    t->rank = (uint32_t)json_array_size(shape);
    t->elements = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        const json_t *n = json_array_get(shape, i);

        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return diag_error(d, at.loc, "tensor \"%.200s\": dimension %u of its shape is not a size", at.tensor, i);
        t->dim[i] = json_integer_value(n);
        if (__builtin_mul_overflow(t->elements, (uint64_t)t->dim[i], &t->elements) || t->elements > UINT64_MAX / 64)
            return diag_error(d, at.loc, "tensor \"%.200s\": its shape has more than 2^58 elements", at.tensor);
    }
    return true;
}

static bool read_extent(const json_t *o, At at, const unsigned char *data, uint64_t data_bytes, uint32_t bits,
                        Tensor *t, Diag *d)
{
    const json_t *offsets = json_object_get(o, "data_offsets");
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    uint64_t begin, end, want;

    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
        json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from))
        return diag_error(d, at.loc, "tensor \"%.200s\": \"data_offsets\" are not [begin, end]", at.tensor);
    begin = (uint64_t)json_integer_value(from);
    end = (uint64_t)json_integer_value(to);
    if (end > data_bytes)
        return diag_error(d, at.loc,
                          "tensor \"%.200s\" ends at byte %" PRIu64 " of the data, but the file holds %" PRIu64
                          ": the file is cut off or damaged",
                          at.tensor, end, data_bytes);
    want = (t->elements * bits + 7) / 8;
    if (end - begin != want)
        return diag_error(d, at.loc, "tensor \"%.200s\" has %" PRIu64 " bytes, its shape and type ask for %" PRIu64,
                          at.tensor, end - begin, want);
    t->at = data + begin;
    t->bytes = want;
    return true;
}

static int by_place(const void *a, const void *b)
{
    const Tensor *x = a, *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool check_cover(Tensor *t, size_t n, Loc loc, const unsigned char *data, uint64_t data_bytes, Diag *d)
{
    const unsigned char *at = data;

    assert(t || n == 0);
    if (n > 0)
        qsort(t, n, sizeof *t, by_place);
    for (size_t i = 0; i < n; i++) {
        if (t[i].at < at)
            return diag_error(d, loc, "tensors \"%.200s\" and \"%.200s\" overlap", t[i - 1].name, t[i].name);
        if (t[i].at > at)
            return diag_error(d, loc, "%zu bytes before tensor \"%.200s\" belong to no tensor", (size_t)(t[i].at - at),
                              t[i].name);
        at += t[i].bytes;
    }
    if ((uint64_t)(at - data) != data_bytes)
        return diag_error(d, loc, "%" PRIu64 " bytes at the end belong to no tensor",
                          data_bytes - (uint64_t)(at - data));
    return true;
}

static bool read_tensors(json_t *root, const char *path, const unsigned char *data, uint64_t data_bytes, Arena *keep,
                         TensorList *out, Diag *d)
{
    const char *slash = strrchr(path, '/'), *name;
    const char *file = arena_strdup(keep, slash ? slash + 1 : path);
    const size_t first = out->n;
    json_t *o;

    json_object_foreach(root, name, o)
    {
        const At at = {{path, 0}, name};
        uint32_t bits = 0;
        Tensor *t;

        if (strcmp(name, "__metadata__") == 0)
            continue;
        if (!json_is_object(o))
            return diag_error(d, at.loc, "tensor \"%.200s\" is not described by an object", name);
        t = arena_push(keep, *out);
        t->name = arena_strdup(keep, name);
        t->path = path;
        t->file = file;
        if (!read_type(o, at, t, &bits, d) || !read_shape(o, at, t, d) ||
            !read_extent(o, at, data, data_bytes, bits, t, d))
            return false;
    }
    return check_cover(out->n > first ? &out->at[first] : NULL, out->n - first, (Loc){path, 0}, data, data_bytes, d);
}

bool safetensors_read(const char *path, const FileMap *map, Arena *keep, TensorList *out, Diag *d)
{
    const unsigned char *p = map->at;
    const Loc loc = {path, 0};
    uint64_t n = 0;
    json_error_t why;
    json_t *root;
    bool ok;

    if (map->bytes < 8)
        return diag_error(d, loc, "is %zu bytes; a safetensors file has at least 8", map->bytes);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | p[i];
    if (n > map->bytes - 8)
        return diag_error(d, loc,
                          "its header claims %" PRIu64 " bytes, the file has %zu: cut off, or not a safetensors file",
                          n, map->bytes);
    if (n > HEADER_MAX_BYTES)
        return diag_error(d, loc, "its header claims %" PRIu64 " bytes, at most %" PRIu64 " are read", n,
                          HEADER_MAX_BYTES);
    root = json_loadb((const char *)p + 8, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return diag_error(d, loc, "its header is not JSON: %s, byte %d", why.text, why.position + 8);
    ok = json_is_object(root) ? read_tensors(root, path, p + 8 + n, map->bytes - 8 - n, keep, out, d)
                              : diag_error(d, loc, "its header is not a JSON object");
    json_decref(root);
    return ok;
}
