/* gguf.c - reads and checks the header of a GGUF file, versions 2 and 3.
 *
 *   "GGUF" | u32 version | u64 tensors | u64 keys
 *   key:     text name | u32 kind | value              text: u64 bytes, UTF-8; array: u32 kind, u64 n, n values
 *   tensor:  text name | u32 rank | u64 dim[rank] | u32 type | u64 offset
 *   zeros up to a multiple of general.alignment (32) | data: tensors at their offsets
 *
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every count is compared with the bytes that are left before
 * anything of that size is made. Tensors may not overlap; bytes between them are padding. */
#include "gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/base/utf8.h"

enum { KEY_BYTES = 13, TENSOR_BYTES = 24 /* the least that one takes */ };

typedef struct Bytes {
    const unsigned char *at, *end;
    Gguf *g;
    Arena *keep;
    Diag *d;
} Bytes;

static const struct {
    uint32_t type;
    const char *name;
    uint32_t elements, bytes; /* of a block */
} types[] = {
    {GGUF_TYPE_F32, "F32", 1, 4},
    {GGUF_TYPE_F16, "F16", 1, 2},
    {GGUF_TYPE_Q4_0, "Q4_0", 32, 18},
    {GGUF_TYPE_Q4_1, "Q4_1", 32, 20},
    {GGUF_TYPE_Q5_0, "Q5_0", 32, 22},
    {GGUF_TYPE_Q5_1, "Q5_1", 32, 24},
    {GGUF_TYPE_Q8_0, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 36},
    {GGUF_TYPE_Q2_K, "Q2_K", 256, 84},
    {GGUF_TYPE_Q3_K, "Q3_K", 256, 110},
    {GGUF_TYPE_Q4_K, "Q4_K", 256, 144},
    {GGUF_TYPE_Q5_K, "Q5_K", 256, 176},
    {GGUF_TYPE_Q6_K, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {GGUF_TYPE_IQ4_NL, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {GGUF_TYPE_IQ4_XS, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {GGUF_TYPE_BF16, "BF16", 1, 2},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},
};

static bool refuse(Bytes *b, const char *what, const char *name, const char *why)
{
    return diag_error(b->d, (Loc){b->g->path, 0}, "%s%s%.255s%s%s", what, *name ? " \"" : "", name, *name ? "\" " : " ",
                      why);
}

static size_t left(const Bytes *b)
{
    return (size_t)(b->end - b->at);
}

/* The next n bytes as a little-endian number; false: they are not there. */
static bool take(Bytes *b, int n, uint64_t *out)
{
    if (left(b) < (size_t)n)
        return false;
    *out = 0;
    for (int i = n - 1; i >= 0; i--)
        *out = *out << 8 | b->at[i];
    b->at += n;
    return true;
}

static bool take_text(Bytes *b, GgufText *t)
{
    uint64_t n;

    if (!take(b, 8, &n) || n > left(b))
        return false;
    *t = (GgufText){(const char *)b->at, (size_t)n};
    b->at += n;
    return true;
}

static bool is_clean(const GgufText *t)
{
    return !memchr(t->at, 0, t->n) && utf8_valid(t->at, t->n);
}

/* The name of a key or a tensor. */
static bool take_name(Bytes *b, const char *what, size_t number, const char **name)
{
    GgufText t;

    if (!take_text(b, &t))
        return diag_error(b->d, (Loc){b->g->path, 0}, "%s %zu: the file ends within it", what, number);
    if (!t.n || t.n > GGUF_MAX_NAME || !is_clean(&t))
        return diag_error(b->d, (Loc){b->g->path, 0}, "%s %zu: its name is not 1 to %d bytes of UTF-8", what, number,
                          GGUF_MAX_NAME);
    *name = arena_strndup(b->keep, t.at, t.n);
    return true;
}

/* --- keys --------------------------------------------------------------------------------------- */

size_t gguf_kind_bytes(GgufKind kind)
{
    static const size_t bytes[] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};

    return bytes[kind];
}

static bool read_texts(Bytes *b, GgufKey *k)
{
    GgufText *texts;

    if (k->n > left(b) / 8)
        return refuse(b, "key", k->name, "claims more texts than the file has bytes for: cut off or damaged");
    texts = arena_array(b->keep, GgufText, k->n);
    for (uint64_t i = 0; i < k->n; i++)
        if (!take_text(b, &texts[i]))
            return refuse(b, "key", k->name, "has a text that is longer than the file");
        else if (!is_clean(&texts[i]))
            return refuse(b, "key", k->name, "has a text that is no UTF-8, or has a zero in it");
    k->texts = texts;
    return true;
}

static bool read_key(Bytes *b)
{
    GgufKey *k = arena_push(b->keep, b->g->keys);
    uint64_t kind;

    k->n = 1;
    if (!take_name(b, "key", b->g->keys.n - 1, &k->name))
        return false;
    if (!take(b, 4, &kind))
        return refuse(b, "key", k->name, "has no value: the file ends");
    if (kind == GGUF_ARRAY) {
        k->is_array = true;
        if (!take(b, 4, &kind) || !take(b, 8, &k->n))
            return refuse(b, "key", k->name, "has no elements: the file ends");
        if (kind == GGUF_ARRAY)
            return refuse(b, "key", k->name, "is an array of arrays, which is not read");
    }
    if (kind > GGUF_F64)
        return refuse(b, "key", k->name, "is of a kind that GGUF does not have");
    k->kind = (GgufKind)kind;
    k->at = b->at;
    if (k->kind == GGUF_STRING)
        return read_texts(b, k);
    if (k->n > left(b) / gguf_kind_bytes(k->kind))
        return refuse(b, "key", k->name, "claims more elements than the file has bytes for: cut off or damaged");
    for (uint64_t i = 0; k->kind == GGUF_BOOL && i < k->n; i++)
        if (k->at[i] > 1)
            return refuse(b, "key", k->name, "has a flag that is neither 0 nor 1");
    b->at += k->n * gguf_kind_bytes(k->kind);
    return true;
}

/* --- tensors ------------------------------------------------------------------------------------ */

static bool read_dims(Bytes *b, GgufTensor *t)
{
    uint64_t rank, n;

    if (!take(b, 4, &rank))
        return refuse(b, "tensor", t->name, "has no shape: the file ends");
    if (rank > GGUF_MAX_RANK)
        return refuse(b, "tensor", t->name, "has more than 4 dimensions");
    t->rank = (uint32_t)rank;
    t->elements = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (!take(b, 8, &n))
            return refuse(b, "tensor", t->name, "has no shape: the file ends");
        if (__builtin_mul_overflow(t->elements, n, &t->elements) || n > INT64_MAX || t->elements > UINT64_MAX / 64)
            return refuse(b, "tensor", t->name, "has more than 2^58 elements");
        t->dim[i] = (int64_t)n;
    }
    return true;
}

/* offset: in the data, whose place is not known yet. */
static bool read_tensor(Bytes *b, uint64_t *offset)
{
    GgufTensor *t = arena_push(b->keep, b->g->tensors);
    uint64_t type;

    if (!take_name(b, "tensor", b->g->tensors.n - 1, &t->name) || !read_dims(b, t))
        return false;
    if (!take(b, 4, &type) || !take(b, 8, offset))
        return refuse(b, "tensor", t->name, "has no type or no offset: the file ends");
    t->type = (GgufType)type;
    t->path = b->g->path;
    for (size_t i = 0; i < LEN(types); i++)
        if (types[i].type == type) {
            const uint64_t row = t->rank ? (uint64_t)t->dim[0] : 1;

            if (row % types[i].elements)
                return refuse(b, "tensor", t->name, "has rows that are no whole number of its type's blocks");
            t->type_name = types[i].name;
            t->bytes = t->elements / types[i].elements * types[i].bytes;
            return true;
        }
    return diag_error(b->d, (Loc){b->g->path, 0}, "tensor \"%s\" has the type %" PRIu64 ", which ftxc does not know",
                      t->name, type);
}

static int by_place(const void *x, const void *y)
{
    const GgufTensor *a = x, *b = y;

    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* Offsets to places in the data, which fills the rest of the file. */
static bool place_tensors(Bytes *b, const uint64_t *offsets, uint64_t alignment)
{
    Gguf *g = b->g;

    for (size_t i = 0; i < g->tensors.n; i++) {
        GgufTensor *t = &g->tensors.at[i];

        if (offsets[i] % alignment)
            return refuse(b, "tensor", t->name, "does not begin at a multiple of general.alignment");
        if (offsets[i] > left(b) || t->bytes > left(b) - offsets[i])
            return refuse(b, "tensor", t->name, "ends behind the end of the file: cut off or damaged");
        t->at = b->at + offsets[i];
    }
    if (g->tensors.n)
        qsort(g->tensors.at, g->tensors.n, sizeof *g->tensors.at, by_place);
    for (size_t i = 1; i < g->tensors.n; i++)
        if (g->tensors.at[i].at < g->tensors.at[i - 1].at + g->tensors.at[i - 1].bytes)
            return refuse(b, "tensor", g->tensors.at[i].name, "overlaps another one");
    return true;
}

/* --- the file ----------------------------------------------------------------------------------- */

static int key_by_name(const void *x, const void *y)
{
    return strcmp(((const GgufKey *)x)->name, ((const GgufKey *)y)->name);
}

static int tensor_by_name(const void *x, const void *y)
{
    return strcmp(((const GgufTensor *)x)->name, ((const GgufTensor *)y)->name);
}

static bool sort_keys(Bytes *b)
{
    Gguf *g = b->g;

    if (g->keys.n)
        qsort(g->keys.at, g->keys.n, sizeof *g->keys.at, key_by_name);
    for (size_t i = 1; i < g->keys.n; i++)
        if (key_by_name(&g->keys.at[i - 1], &g->keys.at[i]) == 0)
            return refuse(b, "key", g->keys.at[i].name, "is there twice");
    return true;
}

static bool sort_tensors(Bytes *b)
{
    Gguf *g = b->g;

    if (g->tensors.n)
        qsort(g->tensors.at, g->tensors.n, sizeof *g->tensors.at, tensor_by_name);
    for (size_t i = 1; i < g->tensors.n; i++)
        if (tensor_by_name(&g->tensors.at[i - 1], &g->tensors.at[i]) == 0)
            return refuse(b, "tensor", g->tensors.at[i].name, "is there twice");
    return true;
}

/* The bytes up to the data's beginning, and how its tensors are aligned. */
static bool find_data(Bytes *b, const unsigned char *file, uint64_t *alignment)
{
    const GgufKey *k = gguf_key(b->g, "general.alignment");
    uint64_t over;

    *alignment = 32;
    if (k && (k->is_array || k->kind != GGUF_U32 || gguf_integer(k, 0) < 1))
        return refuse(b, "key", k->name, "is no number of 1 or more");
    if (k)
        *alignment = (uint64_t)gguf_integer(k, 0);
    if (*alignment & (*alignment - 1))
        return refuse(b, "key", "general.alignment", "is no power of two");
    over = (uint64_t)(b->at - file) % *alignment;
    if (over && b->g->tensors.n && *alignment - over > left(b))
        return refuse(b, "the file", "", "ends before its tensors: cut off or damaged");
    b->at += over && b->g->tensors.n ? *alignment - over : 0;
    return true;
}

static bool read_header(Bytes *b, uint64_t *tensors, uint64_t *keys)
{
    uint64_t version;

    b->at += 4;
    if (!take(b, 4, &version) || !take(b, 8, tensors) || !take(b, 8, keys))
        return refuse(b, "the file", "", "is too short for a GGUF header");
    if (version != 2 && version != 3) {
        const char *why = version && !(version & 0xffff) ? "; this one is big-endian" : "";

        return diag_error(b->d, (Loc){b->g->path, 0},
                          "is GGUF of the version %" PRIu64 "; versions 2 and 3 are read, little-endian%s", version,
                          why);
    }
    if (*keys > left(b) / KEY_BYTES || *tensors > left(b) / TENSOR_BYTES)
        return refuse(b, "the file", "", "claims more keys or tensors than it has bytes for: cut off or damaged");
    return true;
}

bool gguf_begins(const void *p, size_t n)
{
    return n >= 4 && memcmp(p, "GGUF", 4) == 0;
}

bool gguf_read(const char *path, const void *p, size_t n, Arena *keep, Gguf *out, Diag *d)
{
    Bytes b = {p, (const unsigned char *)p + n, out, keep, d};
    uint64_t tensors = 0, keys = 0, alignment = 1, *offsets;

    *out = (Gguf){.path = path};
    if (!gguf_begins(p, n))
        return refuse(&b, "the file", "", "does not begin with GGUF");
    if (!read_header(&b, &tensors, &keys))
        return false;
    for (uint64_t i = 0; i < keys; i++)
        if (!read_key(&b))
            return false;
    offsets = arena_array(keep, uint64_t, tensors + 1);
    for (uint64_t i = 0; i < tensors; i++)
        if (!read_tensor(&b, &offsets[i]))
            return false;
    return sort_keys(&b) && find_data(&b, p, &alignment) && place_tensors(&b, offsets, alignment) && sort_tensors(&b);
}

/* --- values ------------------------------------------------------------------------------------- */

const GgufKey *gguf_key(const Gguf *g, const char *name)
{
    const GgufKey key = {.name = name};

    return g->keys.n ? bsearch(&key, g->keys.at, g->keys.n, sizeof key, key_by_name) : NULL;
}

bool gguf_is_integer(const GgufKey *k)
{
    return k->kind != GGUF_F32 && k->kind != GGUF_F64 && k->kind != GGUF_STRING && k->kind != GGUF_BOOL;
}

int64_t gguf_integer(const GgufKey *k, uint64_t i)
{
    const size_t bytes = gguf_kind_bytes(k->kind);
    const bool negative = k->kind == GGUF_I8 || k->kind == GGUF_I16 || k->kind == GGUF_I32 || k->kind == GGUF_I64;
    uint64_t v = 0;

    for (size_t j = bytes; j-- > 0;)
        v = v << 8 | k->at[i * bytes + j];
    if (bytes && negative && v >> (8 * bytes - 1)) /* the sign's bit */
        return -(int64_t)(~(v | (bytes < 8 ? UINT64_MAX << 8 * bytes : 0))) - 1;
    return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

double gguf_number(const GgufKey *k, uint64_t i)
{
    double x;
    float f;

    if (k->kind == GGUF_F32) {
        memcpy(&f, k->at + 4 * i, 4);
        return (double)f;
    }
    if (k->kind == GGUF_F64) {
        memcpy(&x, k->at + 8 * i, 8);
        return x;
    }
    return (double)gguf_integer(k, i);
}

static bool refuse_kind(const Gguf *g, const GgufKey *k, const char *expected, Diag *d)
{
    return diag_error(d, (Loc){g->path, 0}, "key \"%s\" must be %s", k->name, expected);
}

bool gguf_text(const Gguf *g, const char *name, Arena *keep, const char **out, Diag *d)
{
    const GgufKey *k = gguf_key(g, name);

    if (!k)
        return true;
    if (k->is_array || k->kind != GGUF_STRING)
        return refuse_kind(g, k, "a text", d);
    *out = arena_strndup(keep, k->texts[0].at, k->texts[0].n);
    return true;
}

bool gguf_flag(const Gguf *g, const char *name, bool *out, Diag *d)
{
    const GgufKey *k = gguf_key(g, name);

    if (!k)
        return true;
    if (k->is_array || k->kind != GGUF_BOOL)
        return refuse_kind(g, k, "true or false", d);
    *out = k->at[0];
    return true;
}

bool gguf_id(const Gguf *g, const char *name, int32_t *out, Diag *d)
{
    const GgufKey *k = gguf_key(g, name);

    if (!k)
        return true;
    if (k->is_array || !gguf_is_integer(k) || gguf_integer(k, 0) < 0 || gguf_integer(k, 0) > INT32_MAX)
        return refuse_kind(g, k, "an id of 0 or more", d);
    *out = (int32_t)gguf_integer(k, 0);
    return true;
}

bool gguf_array(const Gguf *g, const char *name, bool texts, const GgufKey **out, Diag *d)
{
    const GgufKey *k = gguf_key(g, name);

    if (k && (!k->is_array || texts != (k->kind == GGUF_STRING)))
        return refuse_kind(g, k, texts ? "an array of texts" : "an array of numbers", d);
    *out = k;
    return true;
}
