/* float8.c - matrices of floating-point numbers of 8 and 4 bits: those of fp8 keep their codes, those of MXFP4 are read as numbers
 * and stored in precision.weights.
 *
 *   fp8     weight F8_E4M3 [N,K]; w = weight * scale. weight_scale is one number, one a row [N] or [N,1], or one for each
 *           block; weight_scale_inv, one number or [ceil N / 128, ceil K / 128], is multiplied with, too, despite its name
 *   MXFP4   x_blocks U8 [X,N,K/32,16]: two numbers E2M1 a byte, the lower half first; x_scales U8 [X,N,K/32]: E8M0. The tensor
 *           x is [X,K,N], as the class of gpt-oss has it. bf16 holds every such number exactly */
#include <assert.h>
#include <math.h>

#include "stored.h"

typedef struct Float8 {
    const Tensor *weight, *scales;
    int64_t block_rows, block_columns; /* of the weight, for each scale */
    float values[256];
} Float8;

/* The scale of element [row,k] of rows of K. */
static float scale_at(const Float8 *f, int64_t K, int64_t row, int64_t k)
{
    const int64_t blocks = (K + f->block_columns - 1) / f->block_columns;

    return tensor_element(f->scales, (uint64_t)(row / f->block_rows * blocks + k / f->block_columns));
}

static void read_float8(const Tensor *t, int64_t row, float *to)
{
    const Float8 *f = t->coded->parts;
    const int64_t K = t->dim[1];

    for (int64_t k = 0; k < K; k++)
        to[k] = f->values[f->weight->at[row * K + k]] * scale_at(f, K, row, k);
}

static void read_codes(const Tensor *t, int64_t row, const CodedRow *to)
{
    const Float8 *f = t->coded->parts;
    const int64_t K = t->dim[1], group = t->coded->form.group;

    for (int64_t g = 0; g < K / group; g++)
        to->scales[g] = scale_at(f, K, row, g * group);
    memcpy(to->codes, f->weight->at + row * K, (size_t)K);
}

/* The form that holds codes and scales as they are: the largest group that divides a row and does not cross the edge of a block. */
static CodedForm form_of(const Float8 *f, int64_t columns)
{
    CodedForm form = {.type = DT_FP8, .scales = PACKED_FP16, .group = 128};

    while (form.group >= 16 && (columns % form.group || (f->block_columns < columns && f->block_columns % form.group)))
        form.group /= 2;
    if (form.group < 16)
        return (CodedForm){DT_NONE, PACKED_FP16, 0};
    for (uint64_t i = 0; i < f->scales->elements; i++) {
        const float scale = tensor_element(f->scales, i);

        if (fp16_to_float(fp16_from_float(scale)) != scale)
            form.scales = PACKED_FP32;
    }
    return form;
}

bool float8_add(Stored *s, const char *module, const Tensor *weight, const Tensor *scales, int64_t block_rows,
                int64_t block_columns)
{
    Float8 *f = arena_new(s->keep, Float8);
    int64_t rows, columns;

    assert(block_rows > 0 && block_columns > 0);
    if (weight->rank != 2 || !weight->elements)
        return stored_wrong(s, weight, "is not a matrix");
    rows = (weight->dim[0] + block_rows - 1) / block_rows;
    columns = (weight->dim[1] + block_columns - 1) / block_columns;
    if (rows > 1 || columns > 1 ? (scales->rank != 2 || scales->dim[1] != columns || scales->dim[0] != rows) &&
                                      (scales->rank != 1 || columns != 1 || scales->dim[0] != rows)
                                : scales->elements != 1)
        return stored_wrong(s, scales, "is not [%lld,%lld]: a scale for each %lld x %lld elements", (long long)rows,
                            (long long)columns, (long long)(block_rows < weight->dim[0] ? block_rows : weight->dim[0]),
                            (long long)(block_columns < weight->dim[1] ? block_columns : weight->dim[1]));
    *f = (Float8){weight, scales, block_rows, block_columns, {0}};
    for (unsigned i = 0; i < 256; i++)
        f->values[i] = e4m3_to_float((uint8_t)i);
    stored_add(s, weight, arena_printf(s->keep, "%s.weight", module), 0, weight->dim[0], weight->dim[1],
               &(Coded){.form = form_of(f, weight->dim[1]), .codes = read_codes, .values = read_float8, .parts = f});
    return true;
}

/* weight_block_size: [128, 128], or missing. */
static bool read_block(const Stored *s, int64_t block[2])
{
    const json_t *list = json_object_get(s->config, "weight_block_size");

    block[0] = block[1] = 0;
    if (!list || json_is_null(list))
        return true;
    for (size_t i = 0; i < 2; i++) {
        block[i] = json_integer_value(json_array_get(list, i));
        if (json_array_size(list) != 2 || block[i] < 1 || block[i] > 1 << 20)
            return stored_refuse(s, "\"weight_block_size\" must be two sizes, as in [128, 128]");
    }
    return true;
}

bool fp8_read(Stored *s)
{
    const char *kind;
    int64_t block[2];

    if (!stored_word(s, s->config, "fmt", "e4m3", &kind) || !read_block(s, block))
        return false;
    if (strcmp(kind, "e4m3") != 0)
        return stored_refuse(s, "fp8 of the kind \"%.40s\" is not read, only e4m3" STORED_ORIGINAL, kind);
    for (size_t i = 0; i < s->c->tensors.n; i++) {
        const Tensor *t = &s->c->tensors.at[i], *scales;
        const char *module = stored_module(s, t, ".weight");

        if (!module || strncmp(t->stored, "F8_", 3) != 0)
            continue;
        if (!stored_type(s, t, "F8_E4M3"))
            return false;
        if (stored_named(s, "modules_to_not_convert", module) || stored_named(s, "ignored_layers", module))
            return stored_wrong(s, t, "is stored as F8_E4M3, yet quantization_config leaves its module out");
        s->taken[i] = true;
        scales =
            stored_need(s, t, module,
                        block[0] || stored_take(s, module, ".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale",
                        "F32 BF16 F16");
        if (!scales || !float8_add(s, module, t, scales,
                                   block[0]               ? block[0]
                                   : scales->elements > 1 ? 1
                                                          : INT32_MAX,
                                   block[0] ? block[1] : INT32_MAX))
            return false;
    }
    stored_skip(s);
    return true;
}

/* --- MXFP4 -------------------------------------------------------------------------------------------------- */

typedef struct Mxfp4 {
    const Tensor *blocks, *scales;
    int64_t rows, columns; /* N and K of an expert */
} Mxfp4;

static unsigned mxfp4_code(const Mxfp4 *m, int64_t row, int64_t k)
{
    const unsigned byte = m->blocks->at[(row * m->columns + k) / 2];

    return k % 2 ? byte >> 4 : byte & 15;
}

static float mxfp4_at(const Mxfp4 *m, int64_t row, int64_t k)
{
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const unsigned code = mxfp4_code(m, row, k);
    const unsigned exponent = m->scales->at[(row * m->columns + k) / 32];
    const float scale = exponent == 255 ? NAN : ldexpf(1.0f, (int)exponent - 127);

    return (code & 8 ? -scale : scale) * values[code & 7];
}

/* Row x * K + k of [X,K,N]. */
static void mxfp4_row(const Tensor *t, int64_t row, float *to)
{
    const Mxfp4 *m = t->coded->parts;

    for (int64_t n = 0; n < m->rows; n++)
        to[n] = mxfp4_at(m, row / m->columns * m->rows + n, row % m->columns);
}

/* Column n of matrix x. */
static void mxfp4_column(const Tensor *t, int64_t x, int64_t n, float *to)
{
    const Mxfp4 *m = t->coded->parts;

    for (int64_t k = 0; k < m->columns; k++)
        to[k] = mxfp4_at(m, x * m->rows + n, k);
}

/* Row x * N + n of the transposes [X,N,K]: integers are twice the numbers. */
static void mxfp4_codes(const Tensor *t, int64_t row, const CodedRow *to)
{
    static const uint8_t integers[] = {0, 1, 2, 3, 4, 6, 8, 12};
    const Mxfp4 *m = t->coded->parts;

    for (int64_t k = 0; k < m->columns; k++) {
        const unsigned code = mxfp4_code(m, row, k);

        to->codes[k] = (uint8_t)(code & 8 ? 128 - integers[code & 7] : 128 + integers[code & 7]);
    }
    for (int64_t g = 0; g < m->columns / 32; g++) {
        const unsigned exponent = m->scales->at[row * (m->columns / 32) + g];

        to->scales[g] = exponent == 255 ? NAN : ldexpf(1.0f, (int)exponent - 128);
    }
}

/* Whether fp16 has all scales, which are 2^-24 to 2^15 there. */
static bool mxfp4_in_fp16(const Tensor *scales)
{
    for (uint64_t i = 0; i < scales->elements; i++)
        if (scales->at[i] < 104 || (scales->at[i] > 143 && scales->at[i] != 255))
            return false;
    return true;
}

bool mxfp4_read(Stored *s)
{
    for (size_t i = 0; i < s->c->tensors.n; i++) {
        const Tensor *t = &s->c->tensors.at[i];
        const char *module = stored_module(s, t, "_blocks");
        Mxfp4 *m;

        if (!module)
            continue;
        if (!stored_type(s, t, "U8"))
            return false;
        if (t->rank != 4 || t->dim[3] != 16 || !t->elements)
            return stored_wrong(s, t, "is not [experts, rows, K / 32, 16]");
        s->taken[i] = true;
        m = arena_new(s->keep, Mxfp4);
        *m = (Mxfp4){.blocks = t, .rows = t->dim[1], .columns = t->dim[2] * 32};
        m->scales = stored_need(s, t, module, "_scales", "U8");
        if (!m->scales)
            return false;
        if (m->scales->rank != 3 || memcmp(m->scales->dim, t->dim, 3 * sizeof *t->dim) != 0)
            return stored_wrong(s, m->scales, "does not have a scale for each 16 bytes of \"%.200s\"", t->name);
        stored_add(s, t, module, t->dim[0], m->columns, m->rows,
                   &(Coded){.form = {DT_INT8, mxfp4_in_fp16(m->scales) ? PACKED_FP16 : PACKED_FP32, 32},
                            .codes = mxfp4_codes,
                            .values = mxfp4_row,
                            .column = mxfp4_column,
                            .across = true,
                            .parts = m});
    }
    return true;
}
