/* gguf.c - the tensors of a GGUF file as those of a checkpoint: blocks of quantised types as codes with scales.
 *
 *            a block (f16: little-endian)                                    element
 *   Q8_0     f16 d | 32 int8                                                 d q
 *   Q4_0     f16 d | 16 bytes: low nibbles 0..15, high nibbles 16..31        d (q - 8)
 *   Q4_1     f16 d | f16 m | nibbles as Q4_0                                 d q + m
 *   Q5_0     f16 d | 32 fifth bits | nibbles as Q4_0                         d (q - 16)
 *   Q5_1     f16 d | f16 m | 32 fifth bits | nibbles as Q4_0                 d q + m
 *   Q2_K     16 bytes of sc and m, 4 bits each | 64 of 2 bits | f16 d | f16 dmin   d sc q - dmin m, sc and m of 16 elements
 *   Q3_K     32 of third bits | 64 of 2 bits | 12 bytes of scales | f16 d    d (sc - 32) (q - 4), sc of 16 elements
 *   Q4_K     f16 d | f16 dmin | 12 bytes of scales | 128 of nibbles          d sc q - dmin m, sc and m of 32 elements
 *   Q5_K     f16 d | f16 dmin | 12 bytes of scales | 32 of fifth bits | 128  the same
 *   Q6_K     128 of nibbles | 64 of upper bits | 16 int8 sc | f16 d          d sc (q - 32), sc of 16 elements
 *   IQ4_NL   f16 d | nibbles as Q4_0                                         d NL[q], of a table of 16 numbers
 *   IQ4_XS   f16 d | u16 of upper bits of sc | 4 bytes of nibbles of sc | 128  d (sc - 32) NL[q], sc of 32 elements
 *
 * Products of d and a scale are exact in fp32. Names become the spec's (Spec.stored). llama.cpp's converter moves the rows
 * of queries and keys of LLaMA: in each head of E rows, stored row 2i is row i and 2i + 1 is row i + E / 2. Here they are
 * read in the checkpoint's order. */
#include <string.h>

#include "tensors.h"
#include "../gguf/gguf.h"

enum { K_BLOCK = 256 };

typedef struct Rows { /* Coded.parts: how the rows of a matrix lie */
    const struct Blocks *blocks;
    int64_t row_bytes;
    int64_t pairs; /* rows of a head that lie as neighbouring pairs; 0: all rows lie in order */
} Rows;

/* One block: its groups' scales and offsets, its codes. */
typedef void ReadBlock(const unsigned char *p, float *scales, float *offsets, uint8_t *codes);

static float half_at(const unsigned char *p)
{
    return fp16_to_float((uint16_t)(p[0] | p[1] << 8));
}

static void read_q8_0(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    (void)offsets;
    *scales = half_at(p);
    for (int i = 0; i < 32; i++)
        codes[i] = (uint8_t)(p[2 + i] ^ 0x80);
}

static void read_nibbles(const unsigned char *p, int n, uint8_t *low, uint8_t *high)
{
    for (int i = 0; i < n; i++) {
        low[i] = p[i] & 15;
        high[i] = p[i] >> 4;
    }
}

static void read_q4_0(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    (void)offsets;
    *scales = half_at(p);
    read_nibbles(p + 2, 16, codes, codes + 16);
}

static void read_minimum(const unsigned char *p, float *scales, float *offsets)
{
    *scales = half_at(p);
    *offsets = -half_at(p + 2);
}

static void read_q4_1(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    read_minimum(p, scales, offsets);
    read_nibbles(p + 4, 16, codes, codes + 16);
}

/* Codes of 5 bits from `zero` on: p has their fifth bits, then the nibbles. */
static void read_fives(const unsigned char *p, int zero, uint8_t *codes)
{
    read_nibbles(p + 4, 16, codes, codes + 16);
    for (int i = 0; i < 32; i++)
        codes[i] = (uint8_t)((codes[i] | (p[i / 8] >> i % 8 & 1) << 4) + zero);
}

static void read_q5_0(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    (void)offsets;
    *scales = half_at(p);
    read_fives(p + 2, 112, codes);
}

static void read_q5_1(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    read_minimum(p, scales, offsets);
    read_fives(p + 4, 0, codes);
}

/* Eight scales and eight minima of 6 bits: the first four of each have a byte, whose upper two bits belong to the others. */
static void read_scales(const unsigned char *p, float *scales, float *minima)
{
    const float d = half_at(p), least = half_at(p + 2);
    const unsigned char *s = p + 4;

    for (int i = 0; i < 4; i++) {
        scales[i] = d * (float)(s[i] & 63);
        minima[i] = least * (float)(s[i + 4] & 63);
        scales[i + 4] = d * (float)((s[i + 8] & 15) | s[i] >> 6 << 4);
        minima[i + 4] = least * (float)(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
    }
}

static void read_q4_k(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    read_scales(p, scales, offsets);
    for (int i = 0; i < 4; i++)
        read_nibbles(p + 16 + 32 * i, 32, codes + 64 * i, codes + 64 * i + 32);
}

static void read_q5_k(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    read_scales(p, scales, offsets);
    for (int i = 0; i < 4; i++)
        read_nibbles(p + 48 + 32 * i, 32, codes + 64 * i, codes + 64 * i + 32);
    for (int i = 0; i < K_BLOCK; i++)
        codes[i] = (uint8_t)(codes[i] | (p[16 + i % 32] >> i / 32 & 1) << 4);
}

/* Two halves of 128 elements; of each nibbles of 64 bytes, and pairs of bits of 32 bytes. */
static void read_q6_k(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    (void)offsets;
    for (int i = 0; i < 16; i++)
        scales[i] = half_at(p + 208) * (float)(int8_t)p[192 + i];
    for (int half = 0; half < 2; half++, codes += 128) {
        read_nibbles(p + 64 * half, 64, codes, codes + 64);
        for (int i = 0; i < 128; i++)
            codes[i] = (uint8_t)((codes[i] | (p[128 + 32 * half + i % 32] >> 2 * (i / 32) & 3) << 4) + 96);
    }
}

/* Two halves of 128 elements; each has pairs of bits of 32 bytes. */
static void read_pairs(const unsigned char *p, uint8_t *codes)
{
    for (int i = 0; i < K_BLOCK; i++)
        codes[i] = p[i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
}

static void read_q2_k(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    const float d = half_at(p + 80), least = half_at(p + 82);

    for (int i = 0; i < 16; i++) {
        scales[i] = d * (float)(p[i] & 15);
        offsets[i] = least * (float)(p[i] >> 4);
    }
    read_pairs(p + 16, codes);
}

/* Sixteen scales of 6 bits: the nibbles of 8 bytes, low ones first, then the upper bits of every fourth in a byte. */
static void read_q3_k(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    const unsigned char *s = p + 96;

    (void)offsets;
    for (int i = 0; i < 16; i++) {
        const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = s[8 + i % 4] >> 2 * (i / 4) & 3;

        scales[i] = half_at(p + 108) * (float)((high << 4 | low) - 32);
    }
    read_pairs(p + 32, codes);
    for (int i = 0; i < K_BLOCK; i++)
        codes[i] = (uint8_t)(codes[i] + (p[i % 32] >> i / 32 & 1) * 4 + 124);
}

/* Codes are places in a table of numbers, which are kept as codes of 8 bits. */
static void read_table(const unsigned char *p, uint8_t *codes)
{
    static const int8_t numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

    read_nibbles(p, 16, codes, codes + 16);
    for (int i = 0; i < 32; i++)
        codes[i] = (uint8_t)(128 + numbers[codes[i]]);
}

static void read_iq4_nl(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    (void)offsets;
    *scales = half_at(p);
    read_table(p + 2, codes);
}

static void read_iq4_xs(const unsigned char *p, float *scales, float *offsets, uint8_t *codes)
{
    const int upper = p[2] | p[3] << 8;

    (void)offsets;
    for (int i = 0; i < 8; i++) {
        const int low = p[4 + i / 2] >> 4 * (i % 2) & 15, high = upper >> 2 * i & 3;

        scales[i] = half_at(p) * (float)((high << 4 | low) - 32);
        read_table(p + 8 + 16 * i, codes + 32 * i);
    }
}

static const struct Blocks {
    GgufType type;
    int elements, bytes;
    CodedForm form;
    ReadBlock *read;
} blocks[] = {
    {GGUF_TYPE_Q8_0, 32, 34, {DT_INT8, PACKED_FP16, 32}, read_q8_0},
    {GGUF_TYPE_Q4_0, 32, 18, {DT_INT4, PACKED_FP16, 32}, read_q4_0},
    {GGUF_TYPE_Q4_1, 32, 20, {DT_INT4, PACKED_FP32_MINIMA, 32}, read_q4_1},
    {GGUF_TYPE_Q5_0, 32, 22, {DT_INT8, PACKED_FP16, 32}, read_q5_0},
    {GGUF_TYPE_Q5_1, 32, 24, {DT_INT8, PACKED_FP32_MINIMA, 32}, read_q5_1},
    {GGUF_TYPE_Q4_K, K_BLOCK, 144, {DT_INT4, PACKED_FP32_MINIMA, 32}, read_q4_k},
    {GGUF_TYPE_Q5_K, K_BLOCK, 176, {DT_INT8, PACKED_FP32_MINIMA, 32}, read_q5_k},
    {GGUF_TYPE_Q6_K, K_BLOCK, 210, {DT_INT8, PACKED_FP32, 16}, read_q6_k},
    {GGUF_TYPE_Q2_K, K_BLOCK, 84, {DT_INT4, PACKED_FP32_MINIMA, 16}, read_q2_k},
    {GGUF_TYPE_Q3_K, K_BLOCK, 110, {DT_INT8, PACKED_FP32, 16}, read_q3_k},
    {GGUF_TYPE_IQ4_NL, 32, 18, {DT_INT8, PACKED_FP16, 32}, read_iq4_nl},
    {GGUF_TYPE_IQ4_XS, K_BLOCK, 136, {DT_INT8, PACKED_FP32, 32}, read_iq4_xs},
};

/* --- rows of a matrix ---------------------------------------------------------------------------- */

static int64_t stored_row(int64_t pairs, int64_t row)
{
    const int64_t i = pairs ? row % pairs : 0;

    return !pairs ? row : row - i + (2 * i < pairs ? 2 * i : 2 * i - pairs + 1);
}

static const unsigned char *row_of(const Tensor *t, int64_t row)
{
    const Rows *r = t->coded->parts;

    return t->at + stored_row(r->pairs, row) * r->row_bytes;
}

static void read_codes(const Tensor *t, int64_t row, const CodedRow *to)
{
    const struct Blocks *b = ((const Rows *)t->coded->parts)->blocks;
    const int64_t groups = b->elements / b->form.group;
    const unsigned char *p = row_of(t, row);

    for (int64_t i = 0; i < t->dim[t->rank - 1] / b->elements; i++)
        b->read(p + i * b->bytes, to->scales + i * groups, to->offsets + i * groups, to->codes + i * b->elements);
}

/* Of a matrix of numbers whose rows lie in pairs. */
static void read_values(const Tensor *t, int64_t row, float *to)
{
    Tensor one = *t;

    one.at = row_of(t, row);
    for (int64_t i = 0; i < t->dim[t->rank - 1]; i++)
        to[i] = tensor_element(&one, (uint64_t)i);
}

/* Makes a matrix one whose rows are read through a Coded. b: its blocks; NULL: it has numbers. */
static void set_rows(Tensor *t, const struct Blocks *b, int64_t pairs, Arena *keep)
{
    Coded *coded = arena_new(keep, Coded);
    Rows *rows = arena_new(keep, Rows);
    const int64_t columns = t->dim[t->rank - 1];

    *rows = (Rows){b, b ? columns / b->elements * b->bytes : columns * (int64_t)dtype_size(t->type), pairs};
    coded->parts = rows;
    if (b) {
        coded->form = b->form;
        coded->codes = read_codes;
        t->type = DT_FP32; /* as values */
    } else {
        coded->values = read_values;
    }
    t->coded = coded;
}

/* A vector in the checkpoint's order. */
static void order_vector(Tensor *t, int64_t pairs, Arena *keep)
{
    const size_t size = dtype_size(t->type);
    unsigned char *ordered = arena_alloc(keep, (size_t)t->dim[0] * size);

    for (int64_t i = 0; i < t->dim[0]; i++)
        memcpy(ordered + (size_t)i * size, t->at + (size_t)stored_row(pairs, i) * size, size);
    t->at = ordered;
}

/* --- the file ------------------------------------------------------------------------------------ */

bool gguf_tensors(const char *path, const FileMap *map, FileMaps *maps, Arena *keep, TensorList *out, Diag *d)
{
    static const DType numbers[] = {[GGUF_TYPE_F32] = DT_FP32, [GGUF_TYPE_F16] = DT_FP16, [GGUF_TYPE_BF16] = DT_BF16};
    Gguf g = {0};

    if (!gguf_read(path, map->at, map->bytes, keep, &g, d) || !gguf_join(&g, keep, maps, d))
        return false;
    for (size_t i = 0; i < g.tensors.n; i++) {
        const GgufTensor *from = &g.tensors.at[i];
        const char *slash = strrchr(from->path, '/');
        Tensor *t = arena_push(keep, *out);

        *t = (Tensor){.name = from->name,
                      .stored = from->type_name,
                      .type = from->type < LEN(numbers) ? numbers[from->type] : DT_NONE,
                      .rank = from->rank,
                      .at = from->at,
                      .bytes = from->bytes,
                      .elements = from->elements,
                      .path = from->path,
                      .file = slash ? slash + 1 : from->path};
        for (uint32_t k = 0; k < t->rank; k++)
            t->dim[k] = from->dim[t->rank - 1 - k];
        for (size_t k = 0; k < LEN(blocks); k++)
            if (blocks[k].type == from->type && t->rank > 1)
                set_rows(t, &blocks[k], 0, keep);
    }
    return true;
}

/* --- names --------------------------------------------------------------------------------------- */

/* Whether `name` is the pattern, then ".weight" or ".bias"; *digits: of its *, *end: behind the pattern. */
static bool fits(const char *pattern, const char *name, const char **digits, int *n, const char **end)
{
    *n = 0;
    for (; *pattern; pattern++)
        if (*pattern == '*') {
            *digits = name;
            *n = (int)strspn(name, "0123456789");
            if (!*n)
                return false;
            name += *n;
        } else if (*pattern != *name++) {
            return false;
        }
    *end = name;
    return strcmp(name, ".weight") == 0 || strcmp(name, ".bias") == 0;
}

/* The weight's name for a tensor's; NULL: the list has none. */
static const char *renamed(const NameList *stored, const char *name, Arena *keep)
{
    for (size_t i = 0; i + 1 < stored->n; i += 2) {
        const char *to = stored->at[i + 1], *star = strchr(to, '*'), *digits = "", *end;
        int n;

        if (fits(stored->at[i], name, &digits, &n, &end))
            return star ? arena_printf(keep, "%.*s%.*s%s%s", (int)(star - to), to, n, digits, star + 1, end)
                        : arena_printf(keep, "%s%s", to, end);
    }
    return NULL;
}

static bool is_paired(const NameList *paired, const char *name)
{
    const char *digits, *end;
    int n;

    for (size_t i = 0; i < paired->n; i++)
        if (fits(paired->at[i], name, &digits, &n, &end))
            return true;
    return false;
}

bool checkpoint_rename(Checkpoint *c, const Spec *spec, Arena *keep, Diag *d)
{
    const int64_t head = spec->head_dim;

    for (size_t i = 0; i < c->tensors.n && spec->stored.n; i++) {
        Tensor *t = &c->tensors.at[i];
        const char *name = renamed(&spec->stored, t->name, keep);

        if (spec->layers && !head && is_paired(&spec->paired, t->name))
            return diag_error(
                d, (Loc){c->path, 0},
                "%s has pairs of rows of a head (nn.checkpoint, paired), and the heads of the layers differ "
                "in size",
                t->name);
        if (head && head % 2 == 0 && is_paired(&spec->paired, t->name) && t->type && t->rank && t->dim[0] % head == 0) {
            if (t->rank == 1)
                order_vector(t, head, keep);
            else
                set_rows(t, t->coded ? ((const Rows *)t->coded->parts)->blocks : NULL, head, keep);
        }
        t->name = name ? name : t->name;
    }
    return checkpoint_sort(c, d);
}
